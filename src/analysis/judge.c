/* judge.c - do the signals of a trace tell right from wrong?
 *
 *     labels and traces  ->  cases: the mean of each signal over a span
 *     ->  logistic models, each case judged by one that has not seen its text (or its task)
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

enum { MIN_CASES = 5, MIN_TEXTS = 8, DEFAULT_FOLDS = 5, MAX_GROUPS = 1000 };

/* What the models are trained on: numbers of every head. */
typedef enum feature_set { SET_LOOKBACK = 0, SET_ANSWER, SET_PROMPT, N_SETS } feature_set;

static const struct {
    hl_signal   signal;
    feature_set set;
    bool        with_logprob;
} models[] = {
    { HL_SIGNAL_HEADS_LOOKBACK, SET_LOOKBACK, false },
    { HL_SIGNAL_HEADS, SET_ANSWER, false },
    { HL_SIGNAL_BOTH, SET_ANSWER, true },
    { HL_SIGNAL_PROMPT_HEADS, SET_PROMPT, false },
};

enum { N_MODELS = sizeof models / sizeof *models };

typedef struct judging {
    const hl_trace *const *traces;
    const char *const     *names;
    size_t                 n_traces;
    const hl_labels       *labels;
    hl_judge_options       options;
    int64_t                n_cells;
    int64_t                count;                 /* number of cases so far */
    int64_t                n_judged;              /* the first of them; the rest is learned from */
    double                *signals[HL_N_SIGNALS]; /* (count) each */
    double                *sets[N_SETS];          /* (count, n_cells) each */
    int64_t                widths[N_SETS];        /* columns of a set that hold a number */
    uint8_t               *is_wrong;              /* (count) */
    int64_t               *texts;                 /* (count) index of the trace */
    int64_t               *groups;                /* (count) unit that is left out together */
    int64_t               *folds;                 /* (count) fold of cross-validation */
    int64_t               *numbers;               /* (n_traces) a text's group; -1: none yet */
    double                *features;              /* (count, n_cells + 1) inputs of the model that
                                                   * is trained */
    uint8_t               *kinds;                 /* (count) labels of these inputs */
    int64_t               *parts;                 /* (count) folds of these inputs */
    double                *means;                 /* (n_cells + 1) means of the inputs */
    double                *spreads;
    double                *weights; /* (n_cells + 2) weights of the model */
    double                *row;
} judging;

const char *hl_signal_name(hl_signal signal)
{
    static const char *const names[HL_N_SIGNALS] = { "log-probability",
                                                     "vocabulary entropy",
                                                     "length",
                                                     "attention spikes",
                                                     "lookback",
                                                     "heads' lookback",
                                                     "heads' Rényi-2",
                                                     "both",
                                                     "first token's entropy",
                                                     "prompt's length",
                                                     "prompt's Rényi-2" };

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

/* The share of generated tokens in attention on generated, prompt and context tokens; 0 if all
 * attention is on special tokens. */
static double share_generated(const double shares[HL_N_KINDS])
{
    double all = shares[HL_KIND_GENERATED] + shares[HL_KIND_PROMPT] + shares[HL_KIND_CONTEXT];

    return all == 0.0 ? 0.0 : shares[HL_KIND_GENERATED] / all;
}

/* A signal of one token. */
static double token_signal(const hl_trace *trace, int64_t token, hl_signal signal)
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
        return share_generated(shares);
    }
}

static double head_lookback(const hl_trace *trace, int64_t token, int64_t layer, int64_t head)
{
    double shares[HL_N_KINDS];

    for (int kind = 0; kind < HL_N_KINDS; kind++)
        shares[kind] =
            hl_trace_row(trace, token, layer, head, (hl_trace_rows)(HL_TRACE_LOOKBACK + kind));
    return share_generated(shares);
}

static int64_t first_generated(const hl_trace *trace)
{
    int64_t token = 0, n = hl_trace_n_tokens(trace);

    while (token < n && hl_trace_describe(trace, token).kind != HL_KIND_GENERATED)
        token++;
    return token;
}

/* Adds up rows of the prompt: those that led to its tokens, and the one that led to the first
 * generated token.  The first token has none. */
static void add_prompt(judging *j, const hl_trace *trace, int64_t first)
{
    int64_t n_heads = hl_trace_n_heads(trace);
    double *prompt  = j->sets[SET_PROMPT] + j->count * j->n_cells;

    for (int64_t cell = 0; cell < j->n_cells; cell++) {
        double sum = 0.0, n = 0.0;
        for (int64_t token = 1; token <= first; token++) {
            double value =
                hl_trace_row(trace, token, cell / n_heads, cell % n_heads, HL_TRACE_RENYI2);
            sum += isfinite(value) ? value : 0.0;
            n += isfinite(value);
        }
        prompt[cell] = sum / n;
    }
    j->signals[HL_SIGNAL_FIRST][j->count]         = hl_trace_token(trace, first).entropy;
    j->signals[HL_SIGNAL_PROMPT_LENGTH][j->count] = (double)first;
}

/* Adds a span's means as one more case; returns false if it has no generated token. */
static bool add_case(judging *j, const hl_trace *trace, int64_t first, int64_t end)
{
    int64_t n_heads = hl_trace_n_heads(trace), n = 0;
    double *heads = j->sets[SET_ANSWER] + j->count * j->n_cells;
    double *looks = j->sets[SET_LOOKBACK] + j->count * j->n_cells;

    memset(heads, 0, (size_t)j->n_cells * sizeof *heads);
    memset(looks, 0, (size_t)j->n_cells * sizeof *looks);
    for (int i = 0; i <= HL_SIGNAL_LOOKBACK; i++)
        j->signals[i][j->count] = 0.0;
    for (int64_t token = first; token < end; token++) {
        if (hl_trace_describe(trace, token).kind != HL_KIND_GENERATED)
            continue;
        n++;
        for (int i = 0; i <= HL_SIGNAL_LOOKBACK; i++)
            j->signals[i][j->count] += token_signal(trace, token, (hl_signal)i);
        for (int64_t cell = 0; cell < j->n_cells; cell++) {
            heads[cell] +=
                hl_trace_row(trace, token, cell / n_heads, cell % n_heads, HL_TRACE_RENYI2);
            looks[cell] += head_lookback(trace, token, cell / n_heads, cell % n_heads);
        }
    }
    if (n == 0)
        return false;
    for (int i = 0; i <= HL_SIGNAL_LOOKBACK; i++)
        j->signals[i][j->count] /= (double)n;
    j->signals[HL_SIGNAL_LENGTH][j->count] = (double)n;
    for (int64_t cell = 0; cell < j->n_cells; cell++) {
        heads[cell] /= (double)n;
        looks[cell] /= (double)n;
    }
    add_prompt(j, trace, first_generated(trace));
    return isfinite(j->signals[HL_SIGNAL_LOGPROB][j->count]);
}

static hl_status gather_label(hl_judgment *out, judging *j, const hl_label *label, bool is_judged)
{
    size_t  which = 0;
    int64_t first = 0, end = 0;

    HL_NEED(find_trace(&which, j, label));
    HL_NEED(find_tokens(&first, &end, j, label, j->traces[which]));
    if (!add_case(j, j->traces[which], first, end)) {
        out->n_left_out += is_judged;
        return HL_OK;
    }
    if (is_judged && j->numbers[which] < 0)
        j->numbers[which] = out->n_texts++;
    j->is_wrong[j->count] = !label->is_right;
    j->texts[j->count++]  = (int64_t)which;
    if (is_judged) {
        out->n_right += label->is_right;
        out->n_wrong += !label->is_right;
    }
    return HL_OK;
}

/* The judged spans first, then those that are learned from alone. */
static hl_status gather(hl_judgment *out, judging *j)
{
    const char *task = j->options.task;

    for (int learned = 0; learned <= (j->options.across ? 1 : 0); learned++) {
        for (int64_t i = 0; i < j->labels->count; i++) {
            const hl_label *label     = &j->labels->items[i];
            const char     *name      = hl_labels_task(j->labels, label->task);
            bool            is_judged = task == NULL || (name != NULL && strcmp(name, task) == 0);

            if (is_judged == (learned == 0))
                HL_NEED(gather_label(out, j, label, is_judged));
        }
        j->n_judged = learned == 0 ? j->count : j->n_judged;
    }
    if (out->n_right < MIN_CASES || out->n_wrong < MIN_CASES)
        return hl_fail(
            HL_BAD_INPUT,
            "%s: %lld right and %lld wrong spans%s%s (%lld left out: no generated token, "
            "or no log-probability), wanted %d of each",
            j->labels->where, (long long)out->n_right, (long long)out->n_wrong,
            task != NULL ? " of the task " : "", task != NULL ? task : "",
            (long long)out->n_left_out, MIN_CASES);
    return HL_OK;
}

/* --------------------------------------------------------------------- models */

/* Removes the heads that have no number in some case, as those that some layers lack. */
static void drop_missing(judging *j, feature_set set)
{
    double *all = j->sets[set];

    for (int64_t cell = 0; cell < j->n_cells; cell++) {
        bool whole = true;
        for (int64_t i = 0; i < j->count && whole; i++)
            whole = isfinite(all[i * j->n_cells + cell]);
        for (int64_t i = 0; i < j->count && whole; i++)
            all[i * j->n_cells + j->widths[set]] = all[i * j->n_cells + cell];
        j->widths[set] += whole;
    }
}

/* Writes a case as inputs of a model: the heads, then -log p if the model gets it. */
static void fill_row(double *out, const judging *j, int64_t i, int model)
{
    feature_set set = models[model].set;

    memcpy(out, j->sets[set] + i * j->n_cells, (size_t)j->widths[set] * sizeof *out);
    if (models[model].with_logprob)
        out[j->widths[set]] = j->signals[HL_SIGNAL_LOGPROB][i];
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

/* Trains on all other folds, choosing the penalty within them, and scores the cases of this
 * one. */
static hl_status judge_fold(hl_judgment *out, judging *j, int model, int64_t fold)
{
    hl_signal         signal  = models[model].signal;
    int64_t           d       = j->widths[models[model].set] + models[model].with_logprob;
    int64_t           n_wrong = 0;
    double            l1      = j->options.l1;
    hl_logistic_cases cases   = { .x           = j->features,
                                  .is_positive = j->kinds,
                                  .folds       = j->parts,
                                  .n_features  = d,
                                  .n_folds     = j->options.n_folds + 1 };

    for (int64_t i = 0; i < j->count; i++) {
        if (j->folds[i] == fold)
            continue;
        fill_row(j->features + cases.n_cases * d, j, i, model);
        n_wrong += j->is_wrong[i];
        j->parts[cases.n_cases]   = j->folds[i];
        j->kinds[cases.n_cases++] = j->is_wrong[i];
    }
    if (n_wrong == 0 || n_wrong == cases.n_cases)
        return hl_fail(HL_BAD_INPUT,
                       "%s: outside of fold %lld all spans are %s; add texts, or use fewer --folds",
                       j->labels->where, (long long)fold, n_wrong == 0 ? "right" : "wrong");
    standardize(j, cases.n_cases, d);
    memset(j->weights, 0, ((size_t)d + 1) * sizeof *j->weights);
    if (l1 > 0.0)
        HL_NEED(hl_logistic_fit(j->weights, &cases, l1));
    else
        HL_NEED(hl_logistic_choose(j->weights, &l1, &cases));
    for (int64_t k = 0; k < d; k++)
        out->n_used[signal] += j->weights[k] != 0.0;
    for (int64_t i = 0; i < j->count; i++) {
        if (j->folds[i] != fold)
            continue;
        fill_row(j->row, j, i, model);
        for (int64_t k = 0; k < d; k++)
            j->row[k] = (j->row[k] - j->means[k]) / j->spreads[k];
        j->signals[signal][i] = hl_logistic_score(j->weights, j->row, d);
    }
    return HL_OK;
}

/* Texts are kept whole in a fold if there are enough of them; otherwise folds are runs of spans.
 * Across tasks, all judged spans are fold 0, and those that are learned from are the others. */
static hl_status judge_models(hl_judgment *out, judging *j)
{
    int64_t n_folds = j->options.n_folds;

    for (int64_t i = 0; i < j->count; i++) {
        if (j->options.across)
            j->folds[i] = i < j->n_judged ? 0 : 1 + j->texts[i] % n_folds;
        else
            j->folds[i] = out->n_texts >= n_folds ? j->numbers[j->texts[i]] % n_folds
                                                  : i * n_folds / j->count;
    }
    for (int set = 0; set < N_SETS; set++)
        drop_missing(j, (feature_set)set);
    out->n_heads = j->widths[SET_ANSWER];
    out->n_folds = j->options.across ? 0 : n_folds;
    n_folds      = j->options.across ? 1 : n_folds;
    for (int model = 0; model < N_MODELS; model++) {
        for (int64_t fold = 0; fold < n_folds; fold++)
            HL_NEED(judge_fold(out, j, model, fold));
        out->n_used[models[model].signal] /= (double)n_folds;
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- estimates */

/* The areas of all signals with each group left out: (HL_N_SIGNALS, n_groups + 1). */
static hl_status leave_out(double *left, const judging *j, const hl_cases *cases)
{
    for (int s = 0; s < HL_N_SIGNALS; s++) {
        double *areas = left + s * (cases->n_groups + 1);
        bool    whole = true;

        for (int64_t i = 0; i < cases->count; i++)
            whole = whole && isfinite(j->signals[s][i]);
        if (whole)
            HL_NEED(hl_auroc_left_out(areas, j->signals[s], cases));
        for (int64_t i = 0; i <= cases->n_groups && !whole; i++)
            areas[i] = NAN;
    }
    return HL_OK;
}

/* What one signal's area is above another's. */
static hl_estimate difference(const double *left, double *room, hl_signal more, hl_signal less,
                              int64_t n, hl_units units)
{
    for (int64_t i = 0; i <= n; i++)
        room[i] = left[more * (n + 1) + i] - left[less * (n + 1) + i];
    return (hl_estimate){ room[n], hl_jackknife(room[n], room, n, HL_SCALE_PLAIN, units) };
}

static hl_status estimate_all(hl_judgment *out, judging *j)
{
    bool             by_text = out->n_texts >= MIN_TEXTS;
    hl_units         units   = by_text ? HL_UNITS_DOCUMENTS : HL_UNITS_SPANS;
    hl_cases         cases   = { .is_positive = j->is_wrong, .groups = j->groups };
    HL_FREED double *left    = NULL;

    /* Several spans are left out together if there are many, which limits the work. */
    cases.count    = j->n_judged;
    cases.n_groups = by_text ? out->n_texts : cases.count < MAX_GROUPS ? cases.count : MAX_GROUPS;
    for (int64_t i = 0; i < cases.count; i++)
        j->groups[i] = by_text ? j->numbers[j->texts[i]] : i % cases.n_groups;
    int64_t n = cases.n_groups;
    HL_NEED(hl_alloc((void **)&left, (size_t)n + 1, (HL_N_SIGNALS + 1) * sizeof *left));
    double *room = left + HL_N_SIGNALS * (n + 1);
    HL_NEED(leave_out(left, j, &cases));
    for (int s = 0; s < HL_N_SIGNALS; s++) {
        const double *own = left + s * (n + 1);
        out->auroc[s]     = (hl_estimate){ own[n], hl_auroc_interval(own, &cases, units) };
        out->gain[s]      = difference(left, room, (hl_signal)s, HL_SIGNAL_LOGPROB, n, units);
    }
    out->over_lookback =
        difference(left, room, HL_SIGNAL_HEADS, HL_SIGNAL_HEADS_LOOKBACK, n, units);
    out->over_first = difference(left, room, HL_SIGNAL_PROMPT_HEADS, HL_SIGNAL_FIRST, n, units);
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

    HL_NEED(hl_alloc((void **)&j->features, n + 4, (N_SETS + 1) * d * sizeof *j->features));
    HL_NEED(HL_ALLOC(&j->signals[0], n * HL_N_SIGNALS));
    HL_NEED(HL_ALLOC(&j->texts, 4 * n + j->n_traces));
    HL_NEED(HL_ALLOC(&j->is_wrong, 2 * n));
    for (size_t i = 0; i < N_SETS; i++)
        j->sets[i] = j->features + (i + 1) * n * d;
    j->means   = j->features + (N_SETS + 1) * n * d;
    j->spreads = j->means + d;
    j->weights = j->spreads + d;
    j->row     = j->weights + d;
    for (size_t i = 1; i < HL_N_SIGNALS; i++)
        j->signals[i] = j->signals[0] + i * n;
    j->groups  = j->texts + n;
    j->folds   = j->groups + n;
    j->parts   = j->folds + n;
    j->numbers = j->parts + n;
    for (size_t i = 0; i < j->n_traces; i++)
        j->numbers[i] = -1;
    j->kinds = j->is_wrong + n;
    return HL_OK;
}

static void release(judging *j)
{
    hl_free(j->features);
    hl_free(j->signals[0]);
    hl_free(j->texts);
    hl_free(j->is_wrong);
}

hl_status hl_judge(hl_judgment *out, const hl_trace *const *traces, const char *const *names,
                   size_t n_traces, const hl_labels *labels, const hl_judge_options *options)
{
    HL_SCOPED(release)
    judging j = { .traces = traces, .names = names, .n_traces = n_traces, .labels = labels };

    *out = (hl_judgment){ 0 };
    if (options != NULL)
        j.options = *options;
    j.options.n_folds = j.options.n_folds == 0 ? DEFAULT_FOLDS : j.options.n_folds;
    if (j.options.n_folds < 2 || j.options.n_folds > 1000 || !(j.options.l1 >= 0.0))
        return hl_fail(HL_BAD_ARGUMENT,
                       "judge: %lld folds and a penalty of %g, wanted 2 to 1000 "
                       "and at least 0",
                       (long long)j.options.n_folds, j.options.l1);
    if (j.options.across && (j.options.task == NULL || labels->n_tasks < 2))
        return hl_fail(HL_BAD_ARGUMENT, "judge: a comparison across tasks needs labels of two "
                                        "tasks or more, and the name of one");
    HL_NEED(check_traces(&j));
    j.n_cells = hl_trace_n_layers(traces[0]) * hl_trace_n_heads(traces[0]);
    HL_NEED(allocate(&j));
    HL_NEED(gather(out, &j));
    HL_NEED(judge_models(out, &j));
    return estimate_all(out, &j);
}
