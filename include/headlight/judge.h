/* headlight/judge.h - how well the signals of a trace detect wrong tokens. Part of headlight.h,
 * which see for the conventions. */
#ifndef HEADLIGHT_JUDGE_H
#define HEADLIGHT_JUDGE_H

#include "trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ labels
 *
 * A file of labels has lines of JSON.  Each line states whether some tokens of a text are right:
 *
 *     {"trace": "a.trace", "tokens": [57, 60], "right": false}
 *     {"characters": [120, 131], "right": true}
 *     {"trace": "b.trace", "characters": [40, 44], "right": true, "task": "sums"}
 *
 * Ranges are [first, end) of the trace's tokens, prompt included, or of the characters of
 * its text.  "trace" is the name of the trace's file, which may be left out if there is only
 * one trace.  "task" names the kind of text; either all lines have it or none.  Other members are
 * ignored.
 *
 * Labels do not change after they have been loaded; any number of threads may use them at once. */

typedef struct hl_labels hl_labels;

/* Returns HL_BAD_INPUT, naming the line, if a line does not have this form. */
HL_API hl_status hl_labels_load(hl_labels **out, const char *path);
HL_API void      hl_labels_free(hl_labels *labels);
/* The tasks that the labels name, in the order of their first lines; 0 and NULL if there are
 * none. */
HL_API int64_t     hl_labels_n_tasks(const hl_labels *labels);
HL_API const char *hl_labels_task(const hl_labels *labels, int64_t task);

/* ------------------------------------------------------------------ judging
 *
 * Each span is one case, and a signal's value for it is the mean over its generated tokens;
 * more should mean wrong.  AUROC is how often a wrong case has the larger value of a wrong and a
 * right one, ties counting half: 0.5 is chance.  Units of the intervals are texts
 * (HL_UNITS_DOCUMENTS), or spans where there are fewer than 8 texts.
 *
 * Some signals are sparse logistic models (L1 penalty), each case of which is scored by a model
 * that has seen neither its text nor, if asked, its task.  The penalty is chosen by cross-validation
 * within the texts on which the model is trained. */

typedef enum hl_signal {
    HL_SIGNAL_LOGPROB = 0,    /* -log p of the tokens: the baseline */
    HL_SIGNAL_VOCABULARY,     /* entropy over the vocabulary */
    HL_SIGNAL_LENGTH,         /* number of tokens of the span */
    HL_SIGNAL_SPIKE,          /* score of attention spikes */
    HL_SIGNAL_LOOKBACK,       /* share of attention on generated tokens, relative to that on
                               * generated, prompt and context tokens */
    HL_SIGNAL_HEADS_LOOKBACK, /* model of every head's such share */
    HL_SIGNAL_HEADS,          /* model of every head's Renyi-2 entropy */
    HL_SIGNAL_BOTH,           /* as HEADS, with -log p as an additional input */
    HL_SIGNAL_FIRST,          /* entropy over the vocabulary for the first generated token; this and
                               * the next two are known before anything is generated */
    HL_SIGNAL_PROMPT_LENGTH,  /* number of tokens before the first generated one */
    HL_SIGNAL_PROMPT_HEADS, /* model of every head's mean Renyi-2 entropy over the prompt's rows */
    HL_N_SIGNALS
} hl_signal;

/* The name of a signal: "log-probability", ... */
HL_API const char *hl_signal_name(hl_signal signal);

/* A number and its 95% confidence interval. */
typedef struct hl_estimate {
    double      value;
    hl_interval interval;
} hl_estimate;

typedef struct hl_judgment {
    int64_t     n_texts;    /* traces with a judged span */
    int64_t     n_right;    /* number of spans labeled right */
    int64_t     n_wrong;    /* number of spans labeled wrong */
    int64_t     n_left_out; /* spans without a generated token or its log-probability */
    int64_t     n_heads;    /* number of inputs of the model HEADS */
    int64_t     n_folds;    /* of the cross-validation; 0 if the models learned from other tasks */
    hl_estimate auroc[HL_N_SIGNALS];  /* NaN if some span has no value */
    hl_estimate gain[HL_N_SIGNALS];   /* AUROC less that of log-probability, on the same cases */
    hl_estimate over_lookback;        /* AUROC of HEADS less that of HEADS_LOOKBACK */
    hl_estimate over_first;           /* AUROC of PROMPT_HEADS less that of FIRST */
    double      n_used[HL_N_SIGNALS]; /* mean number of weights of the models that are not 0 */
} hl_judgment;

typedef struct hl_judge_options {
    int64_t     n_folds; /* 0: 5 */
    double      l1;      /* penalty per case; 0: chosen by cross-validation */
    const char *task;    /* judge the spans of this task alone; NULL: all */
    bool        across;  /* learn from the spans of all other tasks, and from none of this one */
} hl_judge_options;

/* Judges the signals.  names (n_traces) are the traces' file names, for labels and messages.
 * Returns HL_BAD_INPUT if a label lies outside its trace or names an unknown trace, if the models
 * differ, or if there are too few spans of either kind. */
HL_API hl_status hl_judge(hl_judgment *out, const hl_trace *const *traces, const char *const *names,
                          size_t n_traces, const hl_labels *labels,
                          const hl_judge_options *options);

#ifdef __cplusplus
}
#endif
#endif
