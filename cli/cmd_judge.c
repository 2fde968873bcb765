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

/* ---------------------------------------------------------------------- print */

/* Returns true if the confidence interval contains 0.5. */
static bool is_chance(hl_estimate auroc)
{
    return !(auroc.interval.low > 0.5) && !(auroc.interval.high < 0.5);
}

/* Prints the conclusion in words. */
static void print_verdict(const hl_judgment *found)
{
    const hl_estimate *gain = &found->gain[HL_SIGNAL_BOTH];
    hl_estimate        base = found->auroc[HL_SIGNAL_LOGPROB];
    hl_estimate        both = found->auroc[HL_SIGNAL_BOTH];

    if (gain->interval.low > 0.0)
        printf("Attention adds to log-probability here: together they reach %.3f, alone that has "
               "%.3f\n(a gain of %.3f to %.3f).\n",
               both.value, base.value, gain->interval.low, gain->interval.high);
    else
        printf("Attention adds nothing to log-probability here: together they reach %.3f, alone "
               "that has\n%.3f (a gain of %.3f to %.3f).  Use log-probability: it costs nothing.\n",
               both.value, base.value, gain->interval.low, gain->interval.high);
    for (int i = HL_SIGNAL_SPIKE; i <= HL_SIGNAL_HEADS; i++) {
        hl_estimate alone = found->auroc[i];
        if (is_chance(alone))
            printf("By %s alone right and wrong cannot be distinguished (%.3f, chance is 0.5).\n",
                   hl_signal_name((hl_signal)i), alone.value);
        else if (alone.interval.high < 0.5)
            printf("By %s wrong spans have the lower values (%.3f), against what was expected.\n",
                   hl_signal_name((hl_signal)i), alone.value);
    }
}

static void print_text(const hl_judgment *found)
{
    printf("%lld right and %lld wrong spans in %lld text%s", (long long)found->n_right,
           (long long)found->n_wrong, (long long)found->n_traces, found->n_traces == 1 ? "" : "s");
    if (found->n_left_out > 0)
        printf(" (%lld left out)", (long long)found->n_left_out);
    printf("\n\n  %-22s %5s  %-16s  %s\n", "signal", "AUROC", "95% interval",
           "more than log-probability");
    for (int i = 0; i < HL_N_SIGNALS; i++) {
        hl_estimate a = found->auroc[i], g = found->gain[i];
        const char *name = hl_signal_name((hl_signal)i);

        /* One letter of a name takes two bytes. */
        printf("  %-*s %.3f  %.3f to %.3f  ", i == HL_SIGNAL_HEADS ? 23 : 22, name, a.value,
               a.interval.low, a.interval.high);
        if (i != HL_SIGNAL_LOGPROB)
            printf("  %+.3f (%+.3f to %+.3f)", g.value, g.interval.low, g.interval.high);
        printf("\n");
    }
    printf("\nheads' Rényi-2 is a logistic model of %lld numbers, both has log-probability too; "
           "%lld-fold\ncross-validation by %s.  Intervals: 95%%, %s\n(n = %lld).\n\n",
           (long long)found->n_heads, (long long)found->n_folds,
           found->n_traces >= found->n_folds ? "texts" : "runs of spans",
           hl_interval_method(found->auroc[0].interval.units),
           (long long)found->auroc[0].interval.n);
    print_verdict(found);
}

static json_t *make_estimate(hl_estimate e)
{
    return HL_OBJECT(HL_IS("value", e.value), HL_IS("interval", hl_value_interval(&e.interval)));
}

static int print_json(const hl_judgment *found)
{
    json_t *signals = json_array();

    for (int i = 0; i < HL_N_SIGNALS; i++)
        json_array_append_new(signals, HL_OBJECT(HL_IS("signal", hl_signal_name((hl_signal)i)),
                                                 HL_IS("auroc", make_estimate(found->auroc[i])),
                                                 HL_IS("gain", make_estimate(found->gain[i]))));
    return hl_print_json(
        HL_OBJECT(HL_IS("traces", found->n_traces), HL_IS("right", found->n_right),
                  HL_IS("wrong", found->n_wrong), HL_IS("left_out", found->n_left_out),
                  HL_IS("heads", found->n_heads), HL_IS("folds", found->n_folds),
                  HL_IS("drawn", hl_units_name(found->auroc[0].interval.units)),
                  HL_IS("attention_adds", (bool)(found->gain[HL_SIGNAL_BOTH].interval.low > 0.0)),
                  HL_IS("signals", signals)),
        JSON_INDENT(1));
}

/* ---------------------------------------------------------------------- judge */

static hl_status judge(hl_judgment *out, const judge_request *request, hl_trace **traces)
{
    HL_HELD(hl_labels_free) hl_labels *labels   = NULL;
    char                             **paths    = request->arguments.items;
    size_t                             n_traces = (size_t)request->arguments.count - 1;
    hl_judge_options                   options  = request->options;

    for (size_t i = 0; i < n_traces; i++)
        HL_NEED(hl_trace_load(&traces[i], paths[i]));
    HL_NEED(hl_labels_load(&labels, paths[n_traces]));
    return hl_judge(out, (const hl_trace *const *)traces, (const char *const *)paths, n_traces,
                    labels, &options);
}

static int parse_request(judge_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_INT("folds", 0, &request->options.n_folds, "K", "parts for cross-validation (5)", 2,
               1000),
        HL_NUMBER("l2", 0, &request->options.l2, "X", "penalty of the logistic models (1)", 0,
                  1000000),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "judge",
        .arguments = "TRACE... LABELS.jsonl",
        .text      = "How well do the signals of traces tell right from wrong?  TRACEs are what\n"
                     "headlight generate --trace wrote; LABELS has a line of JSON for every span that\n"
                     "is known to be right or wrong:\n"
                     "\n"
                     "    {\"trace\": \"a.trace\", \"tokens\": [57, 60], \"right\": false}\n"
                     "    {\"characters\": [120, 131], \"right\": true}\n"
                     "\n"
                     "Prints the area under the ROC curve of log-probability, vocabulary entropy,\n"
                     "attention spikes, lookback and a logistic model of every head's entropy, with\n"
                     "intervals, and says whether attention adds anything to log-probability.",
        .options   = options,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->arguments.count < 2)
        return hl_options_refuse(
            &usage, "%s", request->arguments.count == 0 ? "no trace given" : "no labels given");
    if (!(request->options.l2 > 0.0))
        return hl_options_refuse(&usage,
                                 "--l2: 0 means no penalty, and without one heads that separate "
                                 "right from wrong perfectly have unbounded weights");
    return HL_EXIT_OK;
}

int hl_command_judge(int argc, char **argv)
{
    judge_request request = { .options = { .n_folds = 5, .l2 = 1.0 } };
    hl_judgment   found   = { 0 };

    HL_PASS(parse_request(&request, argc, argv));
    size_t                   n_traces = (size_t)request.arguments.count - 1;
    HL_HELD(free) hl_trace **traces   = calloc(n_traces, sizeof *traces);
    hl_status status = traces != NULL ? judge(&found, &request, traces) : HL_NO_MEMORY;
    for (size_t i = 0; i < n_traces && traces != NULL; i++)
        hl_trace_free(traces[i]);
    HL_CALL("judge", status);
    if (request.common.json)
        return print_json(&found);
    print_text(&found);
    return HL_EXIT_OK;
}
