/* cmd_needle.c - headlight needle: which heads retrieve, and how well a model finds a needle by its depth
 * and the length of the text; with heads disabled, in another storage type, with RoPE stretched. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "progress.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

typedef struct needle_request {
    hl_common           common;
    hl_arguments        arguments; /* the model, and texts for facts */
    const char         *task;
    const char         *length_list;
    const char         *depth_list;
    const char         *tokenizer_path;
    const char         *table;
    hl_option_list      against; /* other models */
    hl_option_list      fails;
    hl_adjust_arguments adjust;
    hl_gate_arguments   gates;
    int64_t             n_shown;
    int64_t             lengths[HL_NEEDLE_MOST];
    double              depths[HL_NEEDLE_MOST];
    hl_needle_options   options;
} needle_request;

typedef struct needle_work {
    const needle_request *request;
    hl_model             *model;
    hl_tokenizer         *tokenizer;
    hl_input              text;
    hl_model             *models[HL_NEEDLE_MOST]; /* other models, which `others` borrow */
    hl_needle_other       others[HL_NEEDLE_MOST];
    hl_needle            *found;
} needle_work;

static void close_work(needle_work *work)
{
    hl_needle_free(work->found);
    for (int i = 0; i < HL_NEEDLE_MOST; i++)
        hl_model_close(work->models[i]);
    hl_tokenizer_close(work->tokenizer);
    hl_model_close(work->model);
    hl_input_free(&work->text);
}

/* -------------------------------------------------------------------- arguments */

/* Reads "1,2,3" into values; returns their number, or -1 where one is not between the limits. */
static int64_t read_list(double *values, const char *text, double low, double high)
{
    int64_t n = 0;

    for (const char *at = text;; at++) {
        char  *end   = NULL;
        double value = strtod(at, &end);

        if (end == at || (*end != ',' && *end != '\0') || !(value >= low && value <= high) ||
            n == HL_NEEDLE_MOST)
            return -1;
        values[n++] = value;
        if (*end == '\0')
            return n;
        at = end;
    }
}

/* A condition of --fail-on: "loss>1", "exact<0.9", "rise>0.1", for the conditions that a model would be
 * used in: all heads, and other models. */
typedef struct bound {
    char   what[8];
    bool   above;
    double value;
} bound;

static bool read_bound(bound *out, const char *text)
{
    static const char *const names[] = { "loss", "exact", "rise" };
    size_t                   n       = strcspn(text, "<>");
    char                    *end     = NULL;

    for (int i = 0; i < 3 && text[n] != '\0'; i++) {
        if (strlen(names[i]) != n || strncmp(names[i], text, n) != 0)
            continue;
        snprintf(out->what, sizeof out->what, "%s", names[i]);
        out->above = text[n] == '>';
        out->value = strtod(text + n + 1, &end);
        return end != text + n + 1 && *end == '\0';
    }
    return false;
}

static int check_request(needle_request *request, const hl_usage *usage)
{
    hl_needle_options *o = &request->options;
    double             lengths[HL_NEEDLE_MOST];

    if (request->arguments.count == 0)
        return hl_options_refuse(usage, "no MODEL given");
    while (o->task < HL_N_NEEDLE_TASKS && strcmp(hl_needle_task_name(o->task), request->task) != 0)
        o->task++;
    if ((request->arguments.count > 1) != (o->task == HL_NEEDLE_FACTS))
        return hl_options_refuse(usage, o->task == HL_NEEDLE_FACTS
                                            ? "--task facts needs a TEXT to hide facts in"
                                            : "only --task facts reads a TEXT");
    if (request->length_list != NULL) {
        o->n_lengths = read_list(lengths, request->length_list, 2.0, 1 << 24);
        for (int64_t i = 0; i < o->n_lengths; i++)
            request->lengths[i] = (int64_t)lengths[i];
        o->lengths = request->lengths;
    }
    if (request->depth_list != NULL) {
        o->n_depths = read_list(request->depths, request->depth_list, 0.0, 1.0);
        o->depths   = request->depths;
    }
    if (o->n_lengths < 0)
        return hl_options_refuse(usage, "--lengths: '%s' is not a list of numbers of tokens",
                                 request->length_list);
    if (o->n_depths < 0)
        return hl_options_refuse(usage, "--depths: '%s' is not a list of numbers from 0 to 1",
                                 request->depth_list);
    for (int i = 0; i < request->fails.count; i++) {
        bound unused;
        if (!read_bound(&unused, request->fails.items[i]))
            return hl_options_refuse(usage, "--fail-on: '%s' is not loss>X, exact<X or rise>X",
                                     request->fails.items[i]);
    }
    if (request->against.count > HL_NEEDLE_MOST - 1)
        return hl_options_refuse(usage, "--against: at most %d models", HL_NEEDLE_MOST - 1);
    return HL_EXIT_OK;
}

static int parse_request(needle_request *request, int argc, char **argv)
{
    hl_needle_options *o         = &request->options;
    const hl_option    options[] = {
           HL_CHOICE("task", 0, &request->task, "copy|pairs|facts",
                     "what is to be found (copy); facts reads TEXT"),
           HL_TEXT("lengths", 0, &request->length_list, "N,N",
                   "lengths of texts in tokens (64,128,... up to the context or 1024)"),
           HL_TEXT("depths", 0, &request->depth_list, "D,D",
                   "places of the needle, 0 to 1 (0,0.25,0.5,0.75,1)"),
           HL_INT("samples", 0, &o->n_samples, "N", "texts per length and depth (4)", 1, 100000),
           HL_INT("rank-samples", 0, &o->n_ranked, "N",
                  "other texts per length and depth, for the scores (2)", 1, 100000),
           HL_INT("disable", 0, &o->n_disabled, "K",
                  "disable the K top heads (those with a score of 0.1 or more)", 1, 1 << 20),
           HL_INT("random", 0, &o->n_random, "N", "sets of as many random heads (5)", 1, 1000),
           HL_LIST("against", 0, &request->against, "MODEL",
                   "another model on the same texts: another quantization (repeatable)"),
           HL_ADJUST_OPTIONS("also: ", &request->adjust),
           HL_GATE_OPTIONS(&request->gates),
           HL_TOKENIZER_OPTION(&request->tokenizer_path),
           HL_CHOICE("table", 0, &request->table, "conditions|cells|heads", "print only this table"),
           HL_INT("count", 'n', &request->n_shown, "N", "heads to print (10; all with --table)", 1,
                  1 << 20),
           HL_CSV_OPTION(&request->common, "print the table as CSV (conditions)"),
           HL_LIST("fail-on", 0, &request->fails, "CONDITION",
                   "exit with 1 if loss>X, exact<X or rise>X (repeatable)"),
           { 0 },
    };
    const hl_usage usage = {
        .command   = "needle",
        .arguments = "MODEL [TEXT]",
        .text =
            "Hides something in texts, asks for it at their end, and measures which heads look\n"
            "at it (the retrieval score) and how well the model finds it, by the length of the\n"
            "text and the depth of the needle: the loss of the answer's tokens, and the share\n"
            "that was most likely.  The same again with the top heads disabled and with as many\n"
            "random heads disabled; with other models (--against) or a stretched RoPE.\n"
            "\n"
            "Tasks: copy and pairs hide random words, for any model; facts hides a sentence in\n"
            "TEXT, and asks for it by the chat template if the model has one.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* ------------------------------------------------------------------------- work */

static hl_status open_others(needle_work *work)
{
    const needle_request *request = work->request;
    int64_t               n       = 0;

    for (int i = 0; i < request->against.count; i++, n++) {
        HL_NEED(hl_model_open(&work->models[n], request->against.items[i]));
        work->others[n] = (hl_needle_other){ request->against.items[i], work->models[n] };
    }
    if (hl_adjust_options_given(&request->adjust.adjustment)) {
        hl_adjustment adjustment = hl_adjust_options_of(&request->adjust);

        HL_NEED(hl_model_open(&work->models[n], request->arguments.items[0]));
        HL_NEED(hl_model_adjust(work->models[n], &adjustment));
        work->others[n] = (hl_needle_other){ "adjusted", work->models[n] };
    }
    return HL_OK;
}

static int64_t count_others(const needle_request *request)
{
    return request->against.count + (hl_adjust_options_given(&request->adjust.adjustment) ? 1 : 0);
}

/* Random words need no tokenizer, so a model without one will do. */
static hl_status open_model(needle_work *work)
{
    const needle_request *request = work->request;

    HL_NEED(hl_model_open(&work->model, request->arguments.items[0]));
    HL_NEED(hl_gate_options_apply(work->model, &request->gates, "needle",
                                  request->common.quiet || request->common.json));
    const char *path   = request->tokenizer_path != NULL
                             ? request->tokenizer_path
                             : hl_model_get_info(work->model)->tokenizer_path;
    hl_status   status = hl_tokenizer_open(&work->tokenizer, path);
    if (status != HL_OK && (request->options.task == HL_NEEDLE_FACTS ||
                            request->tokenizer_path != NULL || status != HL_NOT_FOUND))
        return status;
    return open_others(work);
}

/* ------------------------------------------------------------------------ output */

/* Prints losses by depth (rows) and length (columns), dark where the loss is low. */
static hl_status print_map(const hl_needle *found, int64_t condition)
{
    hl_depth depth = hl_terminal_depth(stdout);

    printf("\n%s: loss by depth and length\n\n depth", found->conditions[condition].name);
    for (int64_t i = 0; i < found->n_lengths; i++)
        printf(" %7lld", (long long)found->lengths[i]);
    for (int64_t d = 0; d < found->n_depths; d++) {
        printf("\n%6.2f ", found->depths[d]);
        for (int64_t i = 0; i < found->n_lengths; i++) {
            hl_needle_score s;

            HL_NEED(hl_needle_score_of(&s, found, condition, i, d));
            hl_shade_background(stdout, depth, 1.0 - exp(-s.loss));
            printf(" %6.2f ", s.loss);
            hl_shade_end(stdout, depth);
        }
    }
    printf("\n");
    return HL_OK;
}

static hl_status print_table(const needle_work *work, const char *name, hl_sheet_format format)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

    HL_NEED(hl_needle_sheet(&table, work->found, name));
    return hl_print_sheet(table, format);
}

static void print_heads(const needle_work *work)
{
    const hl_needle *found  = work->found;
    int64_t          n      = work->request->n_shown > 0 ? work->request->n_shown : 10;
    int64_t          n_high = 0;

    for (int64_t i = 0; i < found->n_ranked; i++)
        n_high += found->ranked[i].score >= 0.1;
    printf("%lld of %lld heads retrieve (score 0.1 or more):", (long long)n_high,
           (long long)found->n_ranked);
    for (int64_t i = 0; i < n && i < found->n_ranked && found->ranked[i].score > 0.0; i++)
        printf("%s L%lldH%lld %.3f", i == 0 ? "" : ",", (long long)found->ranked[i].layer,
               (long long)found->ranked[i].head, found->ranked[i].score);
    printf("\n\n");
}

/* What the ablation shows, in words. */
static hl_status print_verdict(const hl_needle *found)
{
    hl_needle_score top, random;

    if (found->n_conditions < 3 || found->conditions[1].n_disabled == 0)
        return HL_OK;
    HL_NEED(hl_needle_score_of(&top, found, 1, -1, -1));
    HL_NEED(hl_needle_score_of(&random, found, 2, -1, -1));
    printf("\n");
    if (top.rise_interval.low > random.rise_interval.high)
        printf("The %lld top heads find the needle: without them the loss rises by %.2f nats, "
               "without as many\nrandom heads by %.2f.\n",
               (long long)found->conditions[1].n_disabled, top.rise, random.rise);
    else
        printf("Disabling the %lld top heads (%+.2f nats) is not clearly worse than disabling as "
               "many random\nheads (%+.2f).\n",
               (long long)found->conditions[1].n_disabled, top.rise, random.rise);
    return HL_OK;
}

static hl_status print_json(const needle_work *work)
{
    static const char *const names[] = { "conditions", "cells", "heads" };
    json_t                  *root    = json_object();

    json_object_set_new(root, "model", hl_value_name(work->request->arguments.items[0]));
    json_object_set_new(root, "task", json_string(hl_needle_task_name(work->found->task)));
    for (int i = 0; i < 3; i++) {
        HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

        HL_NEED(hl_needle_sheet(&table, work->found, names[i]));
        HL_NEED(hl_set_sheet(root, table));
    }
    (void)hl_print_json(root, JSON_INDENT(1));
    return HL_OK;
}

static hl_status print_all(const needle_work *work)
{
    const needle_request *request = work->request;
    const hl_needle      *found   = work->found;

    if (request->common.csv || request->table != NULL)
        return print_table(work, request->table != NULL ? request->table : "conditions",
                           hl_sheet_format_of(&request->common));
    if (request->common.json)
        return print_json(work);
    if (request->common.quiet)
        return HL_OK;
    print_heads(work);
    HL_NEED(print_table(work, "conditions", HL_SHEET_TEXT));
    for (int64_t i = 0; i < found->n_conditions; i++)
        HL_NEED(print_map(found, i));
    return print_verdict(found);
}

/* Says which bounds of --fail-on do not hold. */
static int check_bounds(const needle_work *work)
{
    int code = HL_EXIT_OK;

    for (int i = 0; i < work->request->fails.count; i++) {
        bound b;

        read_bound(&b, work->request->fails.items[i]);
        for (int64_t c = 0; c < work->found->n_conditions; c++) {
            hl_needle_score s;

            if (work->found->conditions[c].n_disabled > 0)
                continue; /* nobody runs the model like that */
            HL_CALL("needle", hl_needle_score_of(&s, work->found, c, -1, -1));
            double value = b.what[0] == 'l' ? s.loss : b.what[0] == 'e' ? s.exact : s.rise;
            if (b.above ? value > b.value : value < b.value) {
                hl_complain("needle", "%s: %s is %.4g, and --fail-on says %s",
                            work->found->conditions[c].name, b.what, value,
                            work->request->fails.items[i]);
                code = HL_EXIT_NO;
            }
        }
    }
    return code;
}

int hl_command_needle(int argc, char **argv)
{
    needle_request                  request = { .task = "copy", .adjust = HL_ADJUST_ARGUMENTS };
    HL_KEPT(close_work) needle_work work    = { .request = &request };
    hl_progress_bar                 bar;

    HL_PASS(parse_request(&request, argc, argv));
    HL_CALL("needle", open_model(&work));
    hl_needle_options *o = &request.options;
    if (o->task == HL_NEEDLE_FACTS) {
        HL_PASS(hl_input_read(&work.text, request.arguments.items[1], "needle"));
        o->text   = work.text.bytes;
        o->n_text = work.text.n_bytes;
    }
    hl_progress_start(&bar, stderr, "needles", request.common.quiet || request.common.json);
    o->others        = work.others;
    o->n_others      = count_others(&request);
    o->seed          = request.common.seed;
    o->n_threads     = request.common.n_threads;
    o->progress      = hl_progress_show;
    o->context       = &bar;
    hl_status status = hl_needle_run(&work.found, work.model, work.tokenizer, o);
    hl_progress_end(&bar);
    HL_CALL("needle", status);
    HL_CALL("needle", print_all(&work));
    return check_bounds(&work);
}
