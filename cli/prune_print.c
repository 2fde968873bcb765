/* prune_print.c - what was written: the heads, and what that saves. */
#include "prune_print.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "printable.h"
#include "values.h"

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

/* ------------------------------------------------------------------------- types */

static bool is_alike(const hl_prune_tensor *a, const hl_prune_tensor *b)
{
    return a->stored == b->stored && a->wanted == b->wanted && a->written == b->written &&
           strcmp(a->why, b->why) == 0;
}

/* "blk.12.attn_q.weight" is layer 12 and "attn_q.weight"; -1 and the name for other tensors. */
static long layer_of(const char **rest, const char *name)
{
    char *end   = NULL;
    long  layer = -1;

    *rest = name;
    if (strncmp(name, "blk.", 4) == 0)
        layer = strtol(name + 4, &end, 10);
    if (end == NULL || *end != '.')
        return -1;
    *rest = end + 1;
    return layer;
}

/* The tensors of one name as "blk.0-3,7.attn_q.weight", from tensors[first] on; true for each that
 * was printed. */
static void print_names(bool *printed, const hl_prune_report *report, int64_t first)
{
    const hl_prune_tensor *one  = &report->tensors[first];
    const char            *rest = NULL;
    long                   from = layer_of(&rest, one->name);
    long                   last = from;

    printed[first] = true;
    if (from < 0) {
        printf("    %s\n", one->name);
        return;
    }
    printf("    blk.%ld", from);
    for (int64_t i = first + 1; i < report->n_tensors; i++) {
        const char *other = NULL;
        long        layer = layer_of(&other, report->tensors[i].name);

        if (!is_alike(one, &report->tensors[i]) || layer < 0 || strcmp(other, rest) != 0)
            continue;
        printed[i] = true;
        if (layer != last + 1) {
            if (last > from)
                printf("-%ld", last);
            printf(",%ld", layer);
            from = layer;
        }
        last = layer;
    }
    if (last > from)
        printf("-%ld", last);
    printf(".%s\n", rest);
}

/* What all tensors of one kind have in common: their types, why, and what that costs. */
static void print_kind(const hl_prune_report *report, const hl_prune_tensor *kind)
{
    int64_t count  = 0;
    double  growth = 0.0;

    for (int64_t i = 0; i < report->n_tensors; i++) {
        if (is_alike(kind, &report->tensors[i])) {
            count++;
            growth +=
                (double)report->tensors[i].written_bytes - (double)report->tensors[i].stored_bytes;
        }
    }
    printf("\n  %lld tensor%s stored as %s %s now %s", (long long)count, count == 1 ? "" : "s",
           hl_dtype_name(kind->stored), count == 1 ? "is" : "are", hl_dtype_name(kind->written));
    if (kind->why[0] != '\0')
        printf(", not %s", hl_dtype_name(kind->wanted));
    printf(" (%+.0f bytes)", growth);
    if (kind->why[0] != '\0')
        printf(":\n  %s\n", kind->why);
    else
        printf(", as --type asks\n");
}

/* Matrices that could not have their type, and those that grew. */
static void print_tensors(const hl_prune_report *report)
{
    bool *printed = calloc((size_t)report->n_tensors + 1, sizeof *printed);

    for (int64_t i = 0; printed != NULL && i < report->n_tensors; i++) {
        if (printed[i])
            continue;
        print_kind(report, &report->tensors[i]);
        for (int64_t k = i; k < report->n_tensors; k++) {
            if (!printed[k] && is_alike(&report->tensors[i], &report->tensors[k]))
                print_names(printed, report, k);
        }
    }
    free(printed);
}

/* ------------------------------------------------------------------------- text */

/* NULL: nothing was ranked. */
static const char *ranker_name(const hl_prune_story *story)
{
    return story->ranker != HL_RANKER_AUTO ? hl_ranker_name((size_t)story->ranker) : NULL;
}

void hl_prune_print(const hl_prune_story *story)
{
    const hl_prune_report *report   = story->report;
    const char            *by       = ranker_name(story);
    const char            *verdict  = hl_ranker_verdict((size_t)story->ranker);
    int64_t                n_zeroed = report->n_pruned - report->n_gone;

    printf("%s  %s: %lld of %lld heads pruned, %lld gone, %lld zeroed%s%s\n\n",
           hl_shown(story->output), story->form, (long long)report->n_pruned,
           (long long)story->n_heads, (long long)report->n_gone, (long long)n_zeroed,
           by != NULL ? "; by " : "", by != NULL ? by : "");
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
    if (verdict != NULL)
        printf("  %s\n", verdict);
    if (n_zeroed > 0)
        printf("  A head that is zeroed saves no time and no memory.\n");
    if (story->check.done)
        printf("\n  nats/token   %.4f whole, %.4f with zero, %.4f with means  (%lld tokens of the "
               "text\n  that the means are of)\n",
               story->check.whole, story->check.zero, story->check.mean,
               (long long)story->check.n_scored);
    print_tensors(report);
    if (report->form_note[0] != '\0')
        printf("\n  Masked, which saves nothing: %s.\n", hl_shown(report->form_note));
}

/* ------------------------------------------------------------------------- JSON */

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

/* Every tensor that could not have its type, or grew. */
static json_t *tensors_json(const hl_prune_report *report)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < report->n_tensors; i++) {
        const hl_prune_tensor *tensor = &report->tensors[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s?}", "name",
                                              tensor->name, "stored", hl_dtype_name(tensor->stored),
                                              "wanted", hl_dtype_name(tensor->wanted), "written",
                                              hl_dtype_name(tensor->written), "stored_bytes",
                                              (json_int_t)tensor->stored_bytes, "written_bytes",
                                              (json_int_t)tensor->written_bytes, "why",
                                              tensor->why[0] != '\0' ? tensor->why : NULL));
    }
    return list;
}

static int64_t count_fallen_back(const hl_prune_report *report)
{
    int64_t count = 0;

    for (int64_t i = 0; i < report->n_tensors; i++)
        count += report->tensors[i].written != report->tensors[i].wanted;
    return count;
}

int hl_prune_print_json(const hl_prune_story *story)
{
    const hl_prune_report *report = story->report;
    const hl_model_info   *before = story->before;
    json_t                *root =
        json_pack("{s:o, s:o, s:s, s:s?, s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "model",
                  hl_value_name(story->model_path), "output", hl_value_name(story->output), "as",
                  story->form, "by", ranker_name(story), "heads", (json_int_t)story->n_heads,
                  "pruned", (json_int_t)report->n_pruned, "gone", (json_int_t)report->n_gone,
                  "pruned_heads", heads_json(story->heads), "before",
                  sizes_json(before->n_params, before->tensor_bytes, before->kv_bytes_f16), "after",
                  sizes_json(report->n_params, report->tensor_bytes, report->kv_bytes_f16), "loads",
                  report->loads);

    if (root != NULL && report->vocab[0] != '\0')
        json_object_set_new(root, report->has_vocab ? "vocabulary_note" : "no_vocabulary",
                            json_string(report->vocab));
    if (root != NULL && hl_ranker_verdict((size_t)story->ranker) != NULL)
        json_object_set_new(root, "verdict", json_string(hl_ranker_verdict((size_t)story->ranker)));
    if (root != NULL && report->form_note[0] != '\0')
        json_object_set_new(root, "form_note", json_string(report->form_note));
    if (root != NULL && report->form == HL_PRUNE_GGUF) {
        json_object_set_new(root, "file_type", json_string(hl_dtype_name(report->file_type)));
        json_object_set_new(root, "other_types", json_integer(count_fallen_back(report)));
        json_object_set_new(root, "tensors", tensors_json(report));
    }
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
