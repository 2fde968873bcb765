/* judge.c - do the signals of a trace tell right from wrong?
 *
 *     labels and traces  ->  cases: the mean of each signal over a span
 *     ->  two logistic models, each case judged by one that has not seen its text
 *     ->  AUROC of every signal, with each text left out
 *
 * All signals are judged on the same cases, so that differences between them
 * are differences of the signals. */
#include <math.h>
#include <string.h>

#include "analysis/labels.h"
#include "analysis/numbers.h"
#include "analysis/two_kinds.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

enum { N_PLAIN = HL_SIGNAL_HEADS }; /* signals that need no model */
enum { MIN_CASES = 5, MIN_TEXTS = 8, DEFAULT_FOLDS = 5, MAX_GROUPS = 1000 };

typedef struct judging {
    const hl_trace *const *traces;
    const char *const     *names;
    size_t                 n_traces;
    const hl_labels       *labels;
    hl_judge_options       options;
    int64_t                n_cells;
    int64_t                count;                 /* number of cases so far */
    double                *signals[HL_N_SIGNALS]; /* (count) each; the last two come from models */
    double                *heads;                 /* (count, n_cells) */
    uint8_t               *is_wrong;              /* (count) */
    int64_t               *texts;                 /* (count) index of the trace */
    int64_t               *groups;                /* (count) unit that is left out together */
    int64_t               *folds;                 /* (count) fold of cross-validation */
    double                *features;              /* (count, n_cells + 1) inputs of the model that
                                                   * is trained */
    uint8_t               *kinds;                 /* (count) labels of these inputs */
    double                *means;                 /* (n_cells + 1) means of the inputs */
    double                *spreads;
    double                *weights; /* (n_cells + 2) weights of the model */
    double                *row;
} judging;

const char *hl_signal_name(hl_signal signal)
{
    static const char *const names[HL_N_SIGNALS] = { "log-probability",  "vocabulary entropy",
                                                     "attention spikes", "lookback",
                                                     "heads' Rényi-2",   "both" };

    return signal >= HL_SIGNAL_LOGPROB && signal < HL_N_SIGNALS ? names[signal] : "?";
}

/* ---------------------------------------------------------------------- spans */

static hl_status find_trace(size_t *out, const judging *j, const hl_label *label)
{
    *out = 0;
    if (label->trace == NULL && j->n_traces == 1)
        return HL_OK;
    if (label->trace == NULL)
        return hl_fail(HL_BAD_INPUT,
                       "%s:%lld: %zu traces are given, so the line needs 'trace' to say which one",
                       j->labels->where, (long long)label->line, j->n_traces);
    for (; *out < j->n_traces; ++*out) {
        const char *slash = strrchr(j->names[*out], '/');

        if (strcmp(label->trace, j->names[*out]) == 0 ||
            (slash != NULL && strcmp(label->trace, slash + 1) == 0))
            return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT, "%s:%lld: no given trace is called '%.100s'", j->labels->where,
                   (long long)label->line, label->trace);
}

/* Counts the characters of a text; an invalid byte counts as one. */
static int64_t count_characters(const char *text, size_t n_bytes)
{
    int64_t count = 0;

    for (size_t at = 0; at < n_bytes; count++) {
        size_t length = hl_utf8_length(text + at, n_bytes - at);
        at += length > 0 ? length : 1;
    }
    return count;
}

/* Finds the tokens of a label: those of its range, or those that overlap its characters. */
static hl_status find_tokens(int64_t *first, int64_t *end, const judging *j, const hl_label *label,
                             const hl_trace *trace)
{
    int64_t n = hl_trace_n_tokens(trace), at = 0;

    *first = label->first;
    *end   = label->end;
    if (label->is_characters) {
        *first = n;
        *end   = 0;
    }
    for (int64_t i = 0; i < n && label->is_characters; i++) {
        hl_traced_token about = hl_trace_describe(trace, i);
        int64_t         next  = at + count_characters(about.text, about.n_bytes);

        if (next > label->first && at < label->end && next > at) {
            *first = i < *first ? i : *first;
            *end   = i + 1;
        }
        at = next;
    }
    if ((label->is_characters ? at : n) >= label->end)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s:%lld: the range ends at %lld, and the trace has %lld %s",
                   j->labels->where, (long long)label->line, (long long)label->end,
                   (long long)(label->is_characters ? at : n),
                   label->is_characters ? "characters" : "tokens");
}

static double plain_signal(const hl_trace *trace, int64_t token, hl_signal signal)
{
    double shares[HL_N_KINDS];

    switch (signal) {
    case HL_SIGNAL_LOGPROB:
        return -hl_trace_token(trace, token).logprob;
    case HL_SIGNAL_VOCABULARY:
        return hl_trace_token(trace, token).entropy;
    case HL_SIGNAL_SPIKE:
        return hl_trace_describe(trace, token).spike;
    default:
        for (int kind = 0; kind < HL_N_KINDS; kind++)
            shares[kind] = hl_trace_mean(trace, token, (hl_trace_rows)(HL_TRACE_LOOKBACK + kind));
        return shares[HL_KIND_GENERATED] /
               (shares[HL_KIND_GENERATED] + shares[HL_KIND_PROMPT] + shares[HL_KIND_CONTEXT]);
    }
}

/* Adds a span's means as one more case; returns false if a value is missing. */
static bool add_case(judging *j, const hl_trace *trace, int64_t first, int64_t end)
{
    int64_t n_heads = hl_trace_n_heads(trace), n = 0;
    double *heads = j->heads + j->count * j->n_cells;
    bool    whole = true;

    memset(heads, 0, (size_t)j->n_cells * sizeof *heads);
    for (int i = 0; i < N_PLAIN; i++)
        j->signals[i][j->count] = 0.0;
    for (int64_t token = first; token < end; token++) {
        if (hl_trace_describe(trace, token).kind != HL_KIND_GENERATED)
            continue;
        n++;
        for (int i = 0; i < N_PLAIN; i++)
            j->signals[i][j->count] += plain_signal(trace, token, (hl_signal)i);
        for (int64_t cell = 0; cell < j->n_cells; cell++)
            heads[cell] +=
                hl_trace_row(trace, token, cell / n_heads, cell % n_heads, HL_TRACE_RENYI2);
    }
    for (int i = 0; i < N_PLAIN; i++) {
        j->signals[i][j->count] /= (double)n;
        whole = whole && isfinite(j->signals[i][j->count]);
    }
    for (int64_t cell = 0; cell < j->n_cells; cell++)
        heads[cell] /= (double)n;
    return whole && n > 0;
}

static hl_status gather(hl_judgment *out, judging *j)
{
    for (int64_t i = 0; i < j->labels->count; i++) {
        const hl_label *label = &j->labels->items[i];
        size_t          which = 0;
        int64_t         first = 0, end = 0;

        HL_NEED(find_trace(&which, j, label));
        HL_NEED(find_tokens(&first, &end, j, label, j->traces[which]));
        if (!add_case(j, j->traces[which], first, end)) {
            out->n_left_out++;
            continue;
        }
        j->is_wrong[j->count] = !label->is_right;
        j->texts[j->count++]  = (int64_t)which;
        out->n_right += label->is_right;
        out->n_wrong += !label->is_right;
    }
    if (out->n_right < MIN_CASES || out->n_wrong < MIN_CASES)
        return hl_fail(HL_BAD_INPUT,
                       "%s: %lld right and %lld wrong spans (%lld left out: no generated token, or "
                       "a signal is missing), wanted %d of each",
                       j->labels->where, (long long)out->n_right, (long long)out->n_wrong,
                       (long long)out->n_left_out, MIN_CASES);
    return HL_OK;
}

/* --------------------------------------------------------------------- models */

/* Removes the heads that some layers lack, which are NaN in every case. */
static int64_t drop_missing(judging *j)
{
    int64_t n_kept = 0;

    for (int64_t cell = 0; cell < j->n_cells; cell++) {
        bool whole = true;
        for (int64_t i = 0; i < j->count && whole; i++)
            whole = isfinite(j->heads[i * j->n_cells + cell]);
        for (int64_t i = 0; i < j->count && whole; i++)
            j->heads[i * j->n_cells + n_kept] = j->heads[i * j->n_cells + cell];
        n_kept += whole;
    }
    return n_kept;
}

/* Writes a case as inputs of a model: the heads, then -log p if the model gets it. */
static void fill_row(double *out, const judging *j, int64_t i, int64_t n_heads, bool with_logprob)
{
    memcpy(out, j->heads + i * j->n_cells, (size_t)n_heads * sizeof *out);
    if (with_logprob)
        out[n_heads] = j->signals[HL_SIGNAL_LOGPROB][i];
}

/* Standardizes the inputs to mean 0 and standard deviation 1, and keeps their means and standard
 * deviations. */
static void standardize(judging *j, int64_t n, int64_t d)
{
    for (int64_t k = 0; k < d; k++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t i = 0; i < n; i++)
            sum += j->features[i * d + k];
        for (int64_t i = 0; i < n; i++)
            squares += pow(j->features[i * d + k] - sum / (double)n, 2.0);
        j->means[k]   = sum / (double)n;
        j->spreads[k] = squares > 0.0 ? sqrt(squares / (double)n) : 1.0;
        for (int64_t i = 0; i < n; i++)
            j->features[i * d + k] = (j->features[i * d + k] - j->means[k]) / j->spreads[k];
    }
}

/* Trains on all other folds and scores the cases of this one. */
static hl_status judge_fold(judging *j, hl_signal signal, int64_t fold, int64_t n_heads)
{
    bool    both = signal == HL_SIGNAL_BOTH;
    int64_t d    = n_heads + (both ? 1 : 0);
    int64_t n = 0, n_wrong = 0;

    for (int64_t i = 0; i < j->count; i++) {
        if (j->folds[i] == fold)
            continue;
        fill_row(j->features + n * d, j, i, n_heads, both);
        n_wrong += j->is_wrong[i];
        j->kinds[n++] = j->is_wrong[i];
    }
    if (n_wrong == 0 || n_wrong == n)
        return hl_fail(HL_BAD_INPUT,
                       "%s: outside of fold %lld all spans are %s; add texts, or use fewer --folds",
                       j->labels->where, (long long)fold, n_wrong == 0 ? "right" : "wrong");
    standardize(j, n, d);
    HL_NEED(hl_logistic_fit(j->weights, j->features, j->kinds, n, d, j->options.l2));
    for (int64_t i = 0; i < j->count; i++) {
        if (j->folds[i] != fold)
            continue;
        fill_row(j->row, j, i, n_heads, both);
        for (int64_t k = 0; k < d; k++)
            j->row[k] = (j->row[k] - j->means[k]) / j->spreads[k];
        j->signals[signal][i] = hl_logistic_score(j->weights, j->row, d);
    }
    return HL_OK;
}

/* Texts are kept whole in a fold if there are enough of them; otherwise folds are runs of spans. */
static hl_status judge_models(hl_judgment *out, judging *j)
{
    int64_t n_folds = j->options.n_folds;

    out->n_heads = drop_missing(j);
    out->n_folds = n_folds;
    for (int64_t i = 0; i < j->count; i++)
        j->folds[i] =
            (int64_t)j->n_traces >= n_folds ? j->texts[i] % n_folds : i * n_folds / j->count;
    for (int64_t fold = 0; fold < n_folds; fold++) {
        HL_NEED(judge_fold(j, HL_SIGNAL_HEADS, fold, out->n_heads));
        HL_NEED(judge_fold(j, HL_SIGNAL_BOTH, fold, out->n_heads));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- estimates */

static hl_status estimate_all(hl_judgment *out, judging *j)
{
    bool             by_text = j->n_traces >= MIN_TEXTS;
    hl_units         units   = by_text ? HL_UNITS_DOCUMENTS : HL_UNITS_SPANS;
    hl_cases         cases = { .is_positive = j->is_wrong, .groups = j->groups, .count = j->count };
    HL_FREED double *left = NULL; /* (3, n_groups + 1): log-probability, a signal, the difference */

    /* Several spans are left out together if there are many, which limits the work. */
    cases.n_groups = by_text ? (int64_t)j->n_traces : j->count < MAX_GROUPS ? j->count : MAX_GROUPS;
    for (int64_t i = 0; i < j->count; i++)
        j->groups[i] = by_text ? j->texts[i] : i % cases.n_groups;
    int64_t n = cases.n_groups;
    HL_NEED(HL_ALLOC(&left, 3 * ((size_t)n + 1)));
    double *base = left, *own = base + n + 1, *gain = own + n + 1;
    HL_NEED(hl_auroc_left_out(base, j->signals[HL_SIGNAL_LOGPROB], &cases));
    for (int s = 0; s < HL_N_SIGNALS; s++) {
        HL_NEED(hl_auroc_left_out(own, j->signals[s], &cases));
        for (int64_t i = 0; i <= n; i++)
            gain[i] = own[i] - base[i];
        out->auroc[s] = (hl_estimate){ own[n], hl_auroc_interval(own, &cases, units) };
        out->gain[s] =
            (hl_estimate){ gain[n], hl_jackknife(gain[n], gain, n, HL_SCALE_PLAIN, units) };
    }
    return HL_OK;
}

/* ----------------------------------------------------------------------- whole */

static hl_status check_traces(const judging *j)
{
    if (j->n_traces == 0)
        return hl_fail(HL_BAD_ARGUMENT, "judge: no trace");
    for (size_t i = 1; i < j->n_traces; i++) {
        const hl_trace *a = j->traces[0], *b = j->traces[i];
        if (hl_trace_n_layers(a) != hl_trace_n_layers(b) ||
            hl_trace_n_heads(a) != hl_trace_n_heads(b))
            return hl_fail(HL_BAD_INPUT,
                           "%s: %lld layers of %lld heads, but %s has %lld of %lld: not one model",
                           j->names[i], (long long)hl_trace_n_layers(b),
                           (long long)hl_trace_n_heads(b), j->names[0],
                           (long long)hl_trace_n_layers(a), (long long)hl_trace_n_heads(a));
    }
    return HL_OK;
}

/* All doubles are in one block, all indices in another, all labels in a third. */
static hl_status allocate(judging *j)
{
    size_t n = (size_t)j->labels->count, d = (size_t)j->n_cells + 2;

    HL_NEED(hl_alloc((void **)&j->heads, n + 2, 2 * d * sizeof *j->heads));
    HL_NEED(HL_ALLOC(&j->signals[0], n * HL_N_SIGNALS));
    HL_NEED(HL_ALLOC(&j->texts, 3 * n));
    HL_NEED(HL_ALLOC(&j->is_wrong, 2 * n));
    j->features = j->heads + n * d;
    j->means    = j->features + n * d;
    j->spreads  = j->means + d;
    j->weights  = j->spreads + d;
    j->row      = j->weights + d;
    for (size_t i = 1; i < HL_N_SIGNALS; i++)
        j->signals[i] = j->signals[0] + i * n;
    j->groups = j->texts + n;
    j->folds  = j->groups + n;
    j->kinds  = j->is_wrong + n;
    return HL_OK;
}

static void release(judging *j)
{
    hl_free(j->heads);
    hl_free(j->signals[0]);
    hl_free(j->texts);
    hl_free(j->is_wrong);
}

hl_status hl_judge(hl_judgment *out, const hl_trace *const *traces, const char *const *names,
                   size_t n_traces, const hl_labels *labels, const hl_judge_options *options)
{
    HL_SCOPED(release)
    judging j = { .traces = traces, .names = names, .n_traces = n_traces, .labels = labels };

    *out = (hl_judgment){ .n_traces = (int64_t)n_traces };
    if (options != NULL)
        j.options = *options;
    j.options.n_folds = j.options.n_folds == 0 ? DEFAULT_FOLDS : j.options.n_folds;
    j.options.l2      = j.options.l2 == 0.0 ? 1.0 : j.options.l2;
    if (j.options.n_folds < 2 || j.options.n_folds > 1000 || !(j.options.l2 > 0.0))
        return hl_fail(HL_BAD_ARGUMENT,
                       "judge: %lld folds and a penalty of %g, wanted 2 to 1000 "
                       "and more than 0",
                       (long long)j.options.n_folds, j.options.l2);
    HL_NEED(check_traces(&j));
    j.n_cells = hl_trace_n_layers(traces[0]) * hl_trace_n_heads(traces[0]);
    HL_NEED(allocate(&j));
    HL_NEED(gather(out, &j));
    HL_NEED(judge_models(out, &j));
    return estimate_all(out, &j);
}
