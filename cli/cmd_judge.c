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
        printf("Attention adds to log-probability here: AUC %.3f together, %.3f for "
               "log-probability alone\n(95%% interval of the gain: %.3f to %.3f).\n",
               both.value, base.value, gain->interval.low, gain->interval.high);
    else
        printf("Attention adds nothing to log-probability here: AUC %.3f together, %.3f for\n"
               "log-probability alone (95%% interval of the gain: %.3f to %.3f).  Use "
               "log-probability:\n"
               "it costs nothing.\n",
               both.value, base.value, gain->interval.low, gain->interval.high);
    for (int i = HL_SIGNAL_SPIKE; i <= HL_SIGNAL_HEADS; i++) {
        hl_estimate alone = found->auroc[i];
        if (is_chance(alone))
            printf("%s alone does not distinguish right from wrong (AUC %.3f; chance is 0.5).\n",
                   hl_signal_name((hl_signal)i), alone.value);
        else if (alone.interval.high < 0.5)
            printf("%s is lower for wrong spans (AUC %.3f), the opposite of what was expected.\n",
                   hl_signal_name((hl_signal)i), alone.value);
    }
}

static hl_status make_signals(hl_sheet **out, const hl_judgment *found)
{
    hl_sheet *table = NULL;

    HL_NEED(hl_sheet_new(
        &table, "signals", "How well each signal separates wrong spans from right ones",
        "signal:t auroc:3 auroc_low:3 auroc_high:3 gain:3 gain_low:3 gain_high:3"));
    for (int i = 0; i < HL_N_SIGNALS; i++) {
        hl_estimate alone = found->auroc[i], gain = found->gain[i];

        if (i == HL_SIGNAL_LOGPROB) /* a gain over itself says nothing */
            gain.value = gain.interval.low = gain.interval.high = NAN;
        hl_sheet_put_text(table, "%s", hl_signal_name((hl_signal)i));
        hl_sheet_put_reals(table, alone.value, alone.interval.low, alone.interval.high);
        hl_sheet_put_reals(table, gain.value, gain.interval.low, gain.interval.high);
    }
    hl_sheet_fact_interval(table, &found->auroc[0].interval);
    return hl_sheet_hand_over(out, table, HL_OK);
}

static hl_status print_text(const hl_judgment *found, const hl_sheet *signals)
{
    printf("%lld right and %lld wrong spans in %lld text%s", (long long)found->n_right,
           (long long)found->n_wrong, (long long)found->n_traces, found->n_traces == 1 ? "" : "s");
    if (found->n_left_out > 0)
        printf(" (%lld left out)", (long long)found->n_left_out);
    printf("\n\n");
    HL_NEED(hl_print_sheet(signals, HL_SHEET_TEXT));
    printf("\n"
           "heads' Rényi-2: a logistic model of %lld numbers; both: with log-probability added.\n"
           "%lld-fold cross-validation by %s.  gain: over log-probability.\n"
           "\n",
           (long long)found->n_heads, (long long)found->n_folds,
           found->n_traces >= found->n_folds ? "texts" : "runs of spans");
    print_verdict(found);
    return HL_OK;
}

static hl_status print_json(const hl_judgment *found)
{
    bool      adds    = found->gain[HL_SIGNAL_BOTH].interval.low > 0.0;
    hl_sheet *signals = NULL;

    HL_NEED(make_signals(&signals, found));
    hl_print_json(HL_OBJECT(HL_IS("traces", found->n_traces), HL_IS("right", found->n_right),
                            HL_IS("wrong", found->n_wrong), HL_IS("left_out", found->n_left_out),
                            HL_IS("heads", found->n_heads), HL_IS("folds", found->n_folds),
                            HL_IS("drawn", hl_units_name(found->auroc[0].interval.units)),
                            HL_IS("attention_adds", adds),
                            HL_IS("signals", hl_value_rows(signals))),
                  JSON_INDENT(1));
    return HL_OK;
}

static hl_status print_found(const hl_judgment *found, const judge_request *request)
{
    HL_HELD(hl_sheet_free) hl_sheet *signals = NULL;

    if (request->common.json)
        return print_json(found);
    HL_NEED(make_signals(&signals, found));
    if (request->common.csv)
        return hl_print_sheet(signals, HL_SHEET_CSV);
    return print_text(found, signals);
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
        HL_INT("folds", 0, &request->options.n_folds, "K", "number of cross-validation folds (5)",
               2, 1000),
        HL_NUMBER("l2", 0, &request->options.l2, "X", "L2 penalty of the logistic models (1)", 0,
                  1000000),
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
            "    {\"characters\": [120, 131], \"right\": true}\n"
            "\n"
            "Prints the area under the ROC curve (AUC) of log-probability, vocabulary entropy,\n"
            "attention spikes, lookback and a logistic model of every head's entropy, with 95%\n"
            "intervals, and says whether attention adds anything to log-probability.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->arguments.count < 2)
        return hl_options_refuse(&usage, "%s",
                                 request->arguments.count == 0 ? "no TRACE given"
                                                               : "no LABELS.jsonl given");
    if (!(request->options.l2 > 0.0))
        return hl_options_refuse(&usage, "--l2 must be more than 0: without a penalty, heads that "
                                         "separate the spans perfectly get unbounded weights");
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
    return hl_finish("judge", print_found(&found, &request));
}
