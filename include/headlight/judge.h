/* headlight/judge.h - do the signals of a trace tell right from wrong?
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_JUDGE_H
#define HEADLIGHT_JUDGE_H

#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ labels
 *
 * Lines of JSON, each of which says of some tokens of a text whether they are right:
 *
 *     {"trace": "a.trace", "tokens": [57, 60], "right": false}
 *     {"characters": [120, 131], "right": true}
 *
 * Ranges are [first, end) of the trace's tokens, prompt included, or of the characters of
 * its text.  "trace" is the name of the trace's file, and may be left out where there is but
 * one.  Other members are ignored.
 *
 * Labels do not change after they have been loaded, and any number of threads may use them at once. */

typedef struct hl_labels hl_labels;

/* HL_BAD_INPUT, naming the line, where one is not of this form. */
HL_API hl_status hl_labels_load(hl_labels **out, const char *path);
HL_API void      hl_labels_free(hl_labels *labels);

/* ------------------------------------------------------------------ judging
 *
 * Each span is one case, and a signal's value for it is the mean over its generated tokens;
 * more should mean wrong.  AUROC is how often a wrong case has the larger value of a wrong and a
 * right one, ties counting half: 0.5 is chance.  Units of the intervals are texts
 * (HL_UNITS_DOCUMENTS), or spans where there are fewer than 8 texts. */

typedef enum hl_signal {
    HL_SIGNAL_LOGPROB = 0, /* -log p of the tokens: the baseline */
    HL_SIGNAL_VOCABULARY,  /* entropy over the vocabulary */
    HL_SIGNAL_SPIKE,       /* score of attention spikes */
    HL_SIGNAL_LOOKBACK,    /* share of attention on generated tokens, of that on these and on prompt
                            * and context */
    HL_SIGNAL_HEADS,       /* logistic model of every head's Renyi-2 entropy, cross-validated */
    HL_SIGNAL_BOTH,        /* the same with -log p as one more number */
    HL_N_SIGNALS
} hl_signal;

/* "log-probability", ... */
HL_API const char *hl_signal_name(hl_signal signal);

/* A number and the interval around it. */
typedef struct hl_estimate {
    double      value;
    hl_interval interval;
} hl_estimate;

typedef struct hl_judgment {
    int64_t     n_traces;
    int64_t     n_right;    /* spans */
    int64_t     n_wrong;    /* ... */
    int64_t     n_left_out; /* without a generated token, or without one of the signals */
    int64_t     n_heads;    /* numbers in the model */
    int64_t     n_folds;
    hl_estimate auroc[HL_N_SIGNALS];
    hl_estimate gain[HL_N_SIGNALS]; /* AUROC less that of log-probability, on the same cases */
} hl_judgment;

typedef struct hl_judge_options {
    int64_t  n_folds; /* 0: 5 */
    double   l2;      /* weight of the model's penalty, half the sum of squares; 0: 1 */
} hl_judge_options;

/* names (n_traces) are those of their files, for labels and messages.  HL_BAD_INPUT where a label
 * lies outside its trace or names none, where models differ, and where too few spans
 * of either kind are left. */
HL_API hl_status hl_judge(hl_judgment *out, const hl_trace *const *traces, const char *const *names,
                          size_t n_traces, const hl_labels *labels,
                          const hl_judge_options *options);

#ifdef __cplusplus
}
#endif
#endif
