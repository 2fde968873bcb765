/* cmd_judge.c - headlight judge: how well the signals of traces detect wrong tokens. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "values.h"

typedef struct judge_request {
    hl_common    common;
    hl_arguments arguments; /* traces, followed by the labels */

    hl_judge_options options;
} judge_request;

/* What was judged together: all spans, or those of one task. */
typedef struct judged {
    const char *task;   /* NULL: the labels name none */
    bool        across; /* the models learned from the other tasks */
    hl_judgment found;
} judged;

typedef struct judged_parts {
    judged *items;
    int64_t count;
} judged_parts;

static void free_parts(judged_parts *parts)
{
    free(parts->items);
}

/* ---------------------------------------------------------------------- print */

/* Returns true if the confidence interval contains 0.5. */
static bool is_chance(hl_estimate auroc)
{
    return !(auroc.interval.low > 0.5) && !(auroc.interval.high < 0.5);
}

static void print_difference(const char *what, hl_estimate gain)
{
    if (!isnan(gain.value))
        printf("%s: %+.3f (95%% interval %+.3f to %+.3f)\n", what, gain.value, gain.interval.low,
               gain.interval.high);
}

/* Prints the conclusion in words. */
static void print_verdict(const hl_judgment *found)
{
    static const hl_signal of_attention[] = { HL_SIGNAL_SPIKE, HL_SIGNAL_LOOKBACK,
                                              HL_SIGNAL_HEADS_LOOKBACK, HL_SIGNAL_HEADS,
                                              HL_SIGNAL_PROMPT_HEADS };
    const hl_estimate     *gain           = &found->gain[HL_SIGNAL_BOTH];
    hl_estimate            base           = found->auroc[HL_SIGNAL_LOGPROB];
    hl_estimate            both           = found->auroc[HL_SIGNAL_BOTH];

    if (gain->interval.low > 0.0)
        printf("Attention adds to log-probability here: AUC %.3f together, %.3f for "
               "log-probability alone\n(95%% interval of the gain: %.3f to %.3f).\n",
               both.value, base.value, gain->interval.low, gain->interval.high);
    else
        printf("Attention adds nothing to log-probability here: AUC %.3f together, %.3f for\n"
               "log-probability alone (95%% interval of the gain: %.3f to %.3f).  Use "
               "log-probability:\n"
               "it costs nothing.\n",
               both.value, base.value, gain->interval.low, gain->interval.high);
    print_difference("heads' Rényi-2 over heads' lookback", found->over_lookback);
    print_difference("prompt's Rényi-2 over first token's entropy", found->over_first);
    for (size_t i = 0; i < sizeof of_attention / sizeof *of_attention; i++) {
        hl_estimate alone = found->auroc[of_attention[i]];
        const char *name  = hl_signal_name(of_attention[i]);
        if (isnan(alone.value))
            printf("%s has no value for some spans: their prompts are too short.\n", name);
        else if (is_chance(alone))
            printf("%s alone does not distinguish right from wrong (AUC %.3f; chance is 0.5).\n",
                   name, alone.value);
        else if (alone.interval.high < 0.5)
            printf("%s is lower for wrong spans (AUC %.3f), the opposite of what was expected.\n",
                   name, alone.value);
    }
}

static hl_status make_signals(hl_sheet **out, const judged *parts, int64_t n_parts)
{
    hl_sheet *table = NULL;

    HL_NEED(hl_sheet_new(
        &table, "signals", "How well each signal separates wrong spans from right ones",
        parts->task == NULL
            ? "signal:t auroc:3 auroc_low:3 auroc_high:3 gain:3 gain_low:3 gain_high:3 | weights:1"
            : "signal:t auroc:3 auroc_low:3 auroc_high:3 gain:3 gain_low:3 gain_high:3 | weights:1 "
              "task:t learned_from:t"));
    for (int64_t part = 0; part < n_parts; part++) {
        const hl_judgment *found = &parts[part].found;
        for (int i = 0; i < HL_N_SIGNALS; i++) {
            hl_estimate alone = found->auroc[i], gain = found->gain[i];

            if (i == HL_SIGNAL_LOGPROB) /* a gain over itself says nothing */
                gain.value = gain.interval.low = gain.interval.high = NAN;
            hl_sheet_put_text(table, "%s", hl_signal_name((hl_signal)i));
            hl_sheet_put_reals(table, alone.value, alone.interval.low, alone.interval.high);
            hl_sheet_put_reals(table, gain.value, gain.interval.low, gain.interval.high);
            hl_sheet_put_real(table, found->n_used[i]);
            if (parts->task != NULL) {
                hl_sheet_put_text(table, "%s", parts[part].task);
                hl_sheet_put_text(table, "%s", parts[part].across ? "other tasks" : "this task");
            }
        }
    }
    hl_sheet_fact_interval(table, &parts->found.auroc[0].interval);
    return hl_sheet_hand_over(out, table, HL_OK);
}

static hl_status print_part(const judged *part)
{
    HL_HELD(hl_sheet_free) hl_sheet *signals = NULL;
    const hl_judgment               *found   = &part->found;

    if (part->task != NULL)
        printf("Task %s, models that learned from %s\n", hl_shown(part->task),
               part->across ? "the other tasks" : "other texts of the same task");
    printf("%lld right and %lld wrong spans in %lld text%s", (long long)found->n_right,
           (long long)found->n_wrong, (long long)found->n_texts, found->n_texts == 1 ? "" : "s");
    if (found->n_left_out > 0)
        printf(" (%lld left out)", (long long)found->n_left_out);
    printf("\n\n");
    HL_NEED(make_signals(&signals, part, 1));
    HL_NEED(hl_print_sheet(signals, HL_SHEET_TEXT));
    printf("\n");
    print_verdict(found);
    return HL_OK;
}

static hl_status print_text(const judged_parts *parts)
{
    const hl_judgment *first = &parts->items[0].found;

    for (int64_t i = 0; i < parts->count; i++) {
        HL_NEED(print_part(&parts->items[i]));
        printf("\n");
    }
    printf("heads' lookback, heads' and prompt's Rényi-2: sparse logistic models of %lld numbers;\n"
           "both: heads' Rényi-2 with log-probability added.  %lld-fold cross-validation by %s.\n"
           "gain: over log-probability.\n",
           (long long)first->n_heads, (long long)first->n_folds,
           first->n_texts >= first->n_folds ? "texts" : "runs of spans");
    return HL_OK;
}

static json_t *estimate_json(hl_estimate of)
{
    return HL_OBJECT(HL_IS("value", of.value), HL_IS("interval", hl_value_interval(&of.interval)));
}

/* Members of one part; the tasks' parts are a list of these. */
static hl_status part_json(json_t **out, const judged *part)
{
    const hl_judgment *found   = &part->found;
    bool               adds    = found->gain[HL_SIGNAL_BOTH].interval.low > 0.0;
    hl_sheet          *signals = NULL;

    HL_NEED(make_signals(&signals, part, 1));
    *out = HL_OBJECT(HL_IS("task", part->task), HL_IS("learned_from_other_tasks", part->across),
                     HL_IS("texts", found->n_texts), HL_IS("right", found->n_right),
                     HL_IS("wrong", found->n_wrong), HL_IS("left_out", found->n_left_out),
                     HL_IS("heads", found->n_heads), HL_IS("folds", found->n_folds),
                     HL_IS("attention_adds", adds),
                     HL_IS("over_lookback", estimate_json(found->over_lookback)),
                     HL_IS("over_first_token", estimate_json(found->over_first)),
                     HL_IS("signals", hl_value_rows(signals)));
    return HL_OK;
}

static hl_status print_json(const judged_parts *parts)
{
    json_t *root = parts->items->task != NULL ? json_array() : NULL, *one = NULL;

    for (int64_t i = 0; i < parts->count; i++) {
        HL_NEED(part_json(&one, &parts->items[i]));
        if (root != NULL)
            json_array_append_new(root, one);
        else
            root = one;
    }
    hl_print_json(parts->items->task != NULL ? HL_OBJECT(HL_IS("tasks", root)) : root,
                  JSON_INDENT(1));
    return HL_OK;
}

static hl_status print_found(const judged_parts *parts, const judge_request *request)
{
    HL_HELD(hl_sheet_free) hl_sheet *signals = NULL;

    if (request->common.json)
        return print_json(parts);
    if (!request->common.csv)
        return print_text(parts);
    HL_NEED(make_signals(&signals, parts->items, parts->count));
    return hl_print_sheet(signals, HL_SHEET_CSV);
}

/* ---------------------------------------------------------------------- judge */

/* Judges every task by models that learned from it, and, if there are several, by models that
 * learned from the others. */
static hl_status judge_tasks(judged_parts *parts, const judge_request *request,
                             const hl_trace *const *traces, const hl_labels *labels)
{
    const char *const *names    = (const char *const *)request->arguments.items;
    size_t             n_traces = (size_t)request->arguments.count - 1;
    int64_t            n_tasks  = hl_labels_n_tasks(labels);
    int64_t            n_parts  = n_tasks < 2 ? 1 : 2 * n_tasks;

    parts->items = calloc((size_t)n_parts, sizeof *parts->items);
    if (parts->items == NULL)
        return HL_NO_MEMORY;
    for (; parts->count < n_parts; parts->count++) {
        judged          *part    = &parts->items[parts->count];
        hl_judge_options options = request->options;

        part->task     = hl_labels_task(labels, parts->count / 2);
        part->across   = parts->count % 2 == 1;
        options.task   = part->task;
        options.across = part->across;
        HL_NEED(hl_judge(&part->found, traces, names, n_traces, labels, &options));
    }
    return HL_OK;
}

/* Loads the traces and labels, judges, and prints. */
static hl_status judge(const judge_request *request, hl_trace **traces)
{
    HL_HELD(hl_labels_free) hl_labels *labels   = NULL;
    HL_KEPT(free_parts) judged_parts   parts    = { 0 };
    char                             **paths    = request->arguments.items;
    size_t                             n_traces = (size_t)request->arguments.count - 1;

    for (size_t i = 0; i < n_traces; i++)
        HL_NEED(hl_trace_load(&traces[i], paths[i]));
    HL_NEED(hl_labels_load(&labels, paths[n_traces]));
    HL_NEED(judge_tasks(&parts, request, (const hl_trace *const *)traces, labels));
    return print_found(&parts, request);
}

static int parse_request(judge_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_INT("folds", 0, &request->options.n_folds, "K", "number of cross-validation folds (5)",
               2, 1000),
        HL_NUMBER("l1", 0, &request->options.l1, "X",
                  "L1 penalty of the logistic models (chosen by cross-validation)", 0, 1000000),
        HL_CSV_OPTION(&request->common, "print the table as CSV"),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "judge",
        .arguments = "TRACE... LABELS.jsonl",
        .text =
            "Tests how well the signals of traces separate right from wrong.  Each TRACE is a\n"
            "file of 'headlight generate --trace'.  LABELS has one JSON line for every span\n"
            "that is known to be right or wrong:\n"
            "\n"
            "    {\"trace\": \"a.trace\", \"tokens\": [57, 60], \"right\": false}\n"
            "    {\"characters\": [120, 131], \"right\": true, \"task\": \"sums\"}\n"
            "\n"
            "Prints the area under the ROC curve (AUC) of log-probability, vocabulary entropy,\n"
            "length, attention spikes, lookback and sparse logistic models of every head's\n"
            "entropy or lookback, with 95% intervals, and says whether attention adds anything\n"
            "to log-probability.  If the labels name several tasks, each is judged twice: by\n"
            "models that learned from it, and by models that learned from the others.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->arguments.count < 2)
        return hl_options_refuse(&usage, "%s",
                                 request->arguments.count == 0 ? "no TRACE given"
                                                               : "no LABELS.jsonl given");
    return HL_EXIT_OK;
}

int hl_command_judge(int argc, char **argv)
{
    judge_request request = { .options = { .n_folds = 5 } };

    HL_PASS(parse_request(&request, argc, argv));
    size_t                   n_traces = (size_t)request.arguments.count - 1;
    HL_HELD(free) hl_trace **traces   = calloc(n_traces, sizeof *traces);
    hl_status                status   = traces != NULL ? judge(&request, traces) : HL_NO_MEMORY;
    for (size_t i = 0; i < n_traces && traces != NULL; i++)
        hl_trace_free(traces[i]);
    return hl_finish("judge", status);
}
