/* prune_print.c - what was written: the heads, and what that saves. */
#include "prune_print.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "printable.h"

static void print_row(const char *what, double before, double after)
{
    double change = before > 0.0 ? 100.0 * (after - before) / before : 0.0;

    printf("  %-12s %14.0f %14.0f %8.1f%%\n", what, before, after, change + 0.0);
}

static void print_heads(const hl_head_list *heads)
{
    int column = 0;

    for (int64_t i = 0; i < heads->n_heads; i++) {
        char name[48];
        int  n = snprintf(name, sizeof name, "L%lldH%lld", (long long)heads->heads[i].layer,
                          (long long)heads->heads[i].head);

        if (column + n + 1 > 76) {
            printf("\n");
            column = 0;
        }
        printf("%s%s", column == 0 ? "  " : " ", name);
        column += n + 1;
    }
    if (heads->n_heads > 0)
        printf("\n\n");
}

void hl_prune_print(const hl_prune_story *story)
{
    const hl_prune_report *report   = story->report;
    int64_t                n_zeroed = report->n_pruned - report->n_gone;

    printf("%s  %s: %lld of %lld heads pruned, %lld gone, %lld zeroed%s%s\n\n",
           hl_shown(story->output), story->form, (long long)report->n_pruned,
           (long long)story->n_heads, (long long)report->n_gone, (long long)n_zeroed,
           story->by != NULL ? "; by " : "", story->by != NULL ? story->by : "");
    print_heads(story->heads);
    printf("  %-12s %14s %14s\n", "", "before", "after");
    print_row("parameters", (double)story->before->n_params, (double)report->n_params);
    print_row("bytes", (double)story->before->tensor_bytes, (double)report->tensor_bytes);
    if (!story->before->is_encoder)
        print_row("K/V a token", (double)story->before->kv_bytes_f16, (double)report->kv_bytes_f16);
    printf("\n  Opened by headlight, and by %s.\n", report->loads);
    if (report->vocab[0] != '\0')
        printf("  %s: %s.\n", report->has_vocab ? "Its vocabulary" : "No vocabulary",
               hl_shown(report->vocab));
    if (n_zeroed > 0)
        printf("  A head that is zeroed saves no time and no memory.\n");
    if (story->check.done)
        printf("\n  nats/token   %.4f whole, %.4f with zero, %.4f with means  (%lld tokens of the "
               "text\n  that the means are of)\n",
               story->check.whole, story->check.zero, story->check.mean,
               (long long)story->check.n_scored);
}

static json_t *heads_json(const hl_head_list *heads)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < heads->n_heads; i++) {
        char name[48];
        snprintf(name, sizeof name, "L%lldH%lld", (long long)heads->heads[i].layer,
                 (long long)heads->heads[i].head);
        json_array_append_new(list, json_string(name));
    }
    return list;
}

static json_t *sizes_json(int64_t n_params, size_t n_bytes, size_t kv_bytes)
{
    return json_pack("{s:I, s:I, s:I}", "parameters", (json_int_t)n_params, "tensor_bytes",
                     (json_int_t)n_bytes, "kv_bytes_f16", (json_int_t)kv_bytes);
}

int hl_prune_print_json(const hl_prune_story *story)
{
    const hl_prune_report *report = story->report;
    const hl_model_info   *before = story->before;
    json_t                *root   = json_pack(
                         "{s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "model", story->model_path,
                         "output", story->output, "as", story->form, "by", story->by, "heads",
                         (json_int_t)story->n_heads, "pruned", (json_int_t)report->n_pruned, "gone",
                         (json_int_t)report->n_gone, "pruned_heads", heads_json(story->heads), "before",
                         sizes_json(before->n_params, before->tensor_bytes, before->kv_bytes_f16), "after",
                         sizes_json(report->n_params, report->tensor_bytes, report->kv_bytes_f16), "loads",
                         report->loads);

    if (root != NULL && report->vocab[0] != '\0')
        json_object_set_new(root, report->has_vocab ? "vocabulary_note" : "no_vocabulary",
                            json_string(report->vocab));
    if (root != NULL && story->check.done)
        json_object_set_new(root, "nats_per_token",
                            json_pack("{s:f, s:f, s:f, s:I}", "whole", story->check.whole, "zero",
                                      story->check.zero, "mean", story->check.mean, "tokens",
                                      (json_int_t)story->check.n_scored));
    if (!hl_put_json(root, JSON_INDENT(2))) {
        json_decref(root);
        hl_complain("prune", "out of memory");
        return HL_EXIT_RESOURCES;
    }
    printf("\n");
    json_decref(root);
    return HL_EXIT_OK;
}
