/* diagnose_locking.c - has attention stopped moving while the model speaks, or does the text repeat? */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

/* ------------------------------------------------------------------ locking */

/* Has attention stopped moving while the model speaks?
 *
 * Windows slide a token at a time.  Locked is a window whose entropy keeps its level
 * (the drift over the window, |slope| times its length, and the spread are both under a
 * threshold) and whose rows hardly differ from the ones before; but only if the rows of
 * some window that ended before it began did move.  A model that never moved was
 * never free: that is collapse or overload, not locking. */

typedef struct window {
    double slope;
    double spread;
    double change;
} window;

/* The least-squares slope of values over their places. */
static double slope_of(const double *values, int64_t count)
{
    double middle = 0.5 * (double)(count - 1);
    double mean   = hl_mean(values, count);
    double xy = 0.0, xx = 0.0;

    for (int64_t i = 0; i < count; i++) {
        double x = (double)i - middle;
        xy += x * (values[i] - mean);
        xx += x * x;
    }
    return xx > 0.0 ? xy / xx : 0.0;
}

hl_status hl_find_locking(hl_locking *out, const double *entropy, const double *change,
                          int64_t n_tokens, const hl_thresholds *thresholds)
{
    int64_t length = (int64_t)hl_threshold_of(thresholds, HL_T_LOCKING_WINDOW);
    double  still  = hl_threshold_of(thresholds, HL_T_LOCKING_CHANGE);
    double  level  = hl_threshold_of(thresholds, HL_T_LOCKING_SPREAD);
    bool    moved  = false;

    *out = (hl_locking){ false, -1, NAN, NAN, NAN, 0 };
    if (length < 2)
        return hl_fail(HL_BAD_ARGUMENT, "a window of %lld tokens, at least 2 are needed",
                       (long long)length);
    for (int64_t first = 0; first + length <= n_tokens; first++) {
        window w = { slope_of(entropy + first, length), sqrt(hl_variance(entropy + first, length)),
                     hl_mean(change + first, length) };

        out->n_windows++;
        /* The window that ends where this one begins. */
        if (first >= length)
            moved = moved || hl_mean(change + first - length, length) >= still;
        if (moved && w.change < still && w.spread < level &&
            fabs(w.slope) * (double)length < level) {
            out->locked = true;
            out->first  = first;
            out->slope  = w.slope;
            out->spread = w.spread;
            out->change = w.change;
            return HL_OK;
        }
    }
    return HL_OK;
}

/* What hl_find_locking looks at: generated tokens, but those that have no row before. */
typedef struct decoded {
    double  *entropy;
    double  *change;
    int64_t *tokens; /* where they are in the trace */
    int64_t  n_tokens;
    int64_t  n_generated;
} decoded;

static void free_decoded(decoded *text)
{
    hl_free(text->entropy);
    hl_free(text->change);
    hl_free(text->tokens);
}

static hl_status read_decoded(decoded *out, const hl_trace *trace)
{
    size_t n = (size_t)hl_trace_n_tokens(trace);

    HL_NEED(HL_ALLOC(&out->entropy, n));
    HL_NEED(HL_ALLOC(&out->change, n));
    HL_NEED(HL_ALLOC(&out->tokens, n));
    for (int64_t token = 0; token < hl_trace_n_tokens(trace); token++) {
        double change = hl_trace_mean(trace, token, HL_TRACE_CHANGE);

        if (hl_trace_describe(trace, token).kind != HL_KIND_GENERATED)
            continue;
        out->n_generated++;
        if (isnan(change))
            continue;
        out->entropy[out->n_tokens]  = hl_trace_mean(trace, token, HL_TRACE_NORMALIZED);
        out->change[out->n_tokens]   = change;
        out->tokens[out->n_tokens++] = token;
    }
    return HL_OK;
}

/* Heads whose own rows were still in the window of these tokens. */
static hl_status list_locked(hl_examination *e, const int64_t *tokens, int64_t length)
{
    int64_t n_heads = hl_trace_n_heads(e->trace);

    for (int64_t i = 0; i < hl_trace_n_layers(e->trace) * n_heads; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < length; j++)
            sum += hl_trace_row(e->trace, tokens[j], i / n_heads, i % n_heads, HL_TRACE_CHANGE);
        if (sum / (double)length < e->result->threshold)
            HL_NEED(hl_shown_by_add(e->result, i / n_heads, i % n_heads, sum / (double)length));
    }
    hl_shown_by_sort(e->result, false);
    return HL_OK;
}

static hl_status find_locked(hl_examination *e, const decoded *text)
{
    hl_locking found;
    char       needs[96], how[96];
    int64_t    length = (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW);

    HL_NEED(hl_find_locking(&found, text->entropy, text->change, text->n_tokens, e->thresholds));
    if (text->n_tokens < 2 * length) {
        snprintf(needs, sizeof needs, "%lld generated tokens, and the trace has %lld",
                 (long long)(2 * length + 1), (long long)text->n_generated);
        snprintf(how, sizeof how, "generate again, with --max-tokens %lld and --trace",
                 (long long)(2 * length + 1));
        return hl_examination_not_run(e, needs, how);
    }
    e->result->value = found.change;
    for (int64_t first = 0; !found.locked && first + length <= text->n_tokens; first++)
        e->result->value = fmin(e->result->value, hl_mean(text->change + first, length));
    e->result->verdict = found.locked ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND;
    if (!found.locked) {
        hl_text_addf(&e->finding, "in the stillest of %lld windows rows change by %.4f",
                     (long long)found.n_windows, e->result->value);
        if (e->result->value < e->result->threshold) {
            hl_text_addf(&e->finding, ", but its entropy moves, or no window before it moved");
            /* Another part of the rule decided: this number would mislead. */
            e->result->value = NAN;
        }
        return HL_OK;
    }
    hl_text_addf(&e->finding,
                 "from token %lld on rows change by %.4f; entropy drifts by %.4f and spreads by "
                 "%.4f",
                 (long long)text->tokens[found.first], found.change,
                 fabs(found.slope) * (double)length, found.spread);
    hl_text_addf(&e->against, "A text that repeats itself also looks still: read it there.");
    return list_locked(e, text->tokens + found.first, length);
}

hl_status hl_diagnose_locking(hl_examination *e)
{
    HL_SCOPED(free_decoded) decoded text = { 0 };

    hl_text_addf(
        &e->rule,
        "while generating, a window of %g tokens whose entropy neither drifts nor spreads by "
        "%g and whose rows differ by less than %g from the ones before, after a window that "
        "moved",
        hl_limit(e, HL_T_LOCKING_WINDOW), hl_limit(e, HL_T_LOCKING_SPREAD),
        hl_limit(e, HL_T_LOCKING_CHANGE));
    e->result->threshold = hl_limit(e, HL_T_LOCKING_CHANGE);
    if (e->trace == NULL) {
        char    needs[64], how[160];
        int64_t n_tokens = 2 * (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW) + 1;

        snprintf(needs, sizeof needs, "%lld generated tokens", (long long)n_tokens);
        snprintf(
            how, sizeof how,
            "let headlight generate write a trace of %lld tokens (--max-tokens, --trace), and give "
            "it to headlight diagnose with --trace",
            (long long)n_tokens);
        return hl_examination_not_run(e, needs, how);
    }
    HL_NEED(read_decoded(&text, e->trace));
    return find_locked(e, &text);
}

