/* diagnose_locking.c - has attention stopped moving while the model speaks, or does the text repeat? */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "stats/trace_parts.h"

/* ------------------------------------------------------------------ locking */

/* Has attention stopped moving while the model speaks?
 *
 * Windows slide a token at a time.  Locked is a window whose entropy keeps its level
 * (the drift over the window, |slope| times its length, and the spread are both under a
 * threshold) and whose rows hardly differ from the ones before; but only if the rows of
 * some window that ended before it began did move.  A model that never moved was
 * never free: that is collapse or overload, not locking. */

typedef struct stillness {
    double slope;
    double spread;
    double change;
} stillness;

/* Returns the least-squares slope of values over their indices. */
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
        return hl_fail(HL_BAD_ARGUMENT, "locking-window is %lld tokens; at least 2 are needed",
                       (long long)length);
    for (int64_t first = 0; first + length <= n_tokens; first++) {
        stillness w = { slope_of(entropy + first, length),
                        sqrt(hl_variance(entropy + first, length)),
                        hl_mean(change + first, length) };

        out->n_windows++;
        /* the window that ends where this one begins */
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

/* -------------------------------------------------------------- loops of rows */

enum { WINDOW_STEP = 8, MOST_VALUES = 256 };

/* Computes the mean change of the values from one period to the next: out (n_tokens), 0 for the
 * first `period` tokens. */
static void change_over(double *out, const float *rows, int64_t n_tokens, int64_t n_values,
                        int64_t period)
{
    int64_t stride = (n_values + MOST_VALUES - 1) / MOST_VALUES; /* of large models, every stride-th
                                                                  * value is compared */

    for (int64_t t = 0; t < n_tokens; t++) {
        double  sum   = 0.0;
        int64_t count = 0;

        out[t] = 0.0;
        for (int64_t i = 0; i < n_values && t >= period; i += stride) {
            double change =
                fabs((double)rows[t * n_values + i] - (double)rows[(t - period) * n_values + i]);
            sum += isnan(change) ? 0.0 : change;
            count += !isnan(change);
        }
        if (count > 0)
            out[t] = sum / (double)count;
    }
}

/* Returns the loop's period in one window; 0 if there is no loop. It is the smallest period
 * whose change is small, far below that of one step, and close to the smallest change of any
 * period, so that it is not a multiple of the loop's. */
static int64_t period_of(double *change, const double *means, int64_t n_windows, int64_t window,
                         double limit)
{
    double  step  = means[n_windows + window];
    int64_t found = 0;

    *change = (double)INFINITY;
    for (int64_t period = 2; period <= HL_LOOP_MAX_PERIOD; period++)
        *change = fmin(*change, means[period * n_windows + window]);
    for (int64_t period = 2; period <= HL_LOOP_MAX_PERIOD && found == 0; period++) {
        double mean = means[period * n_windows + window];
        if (mean < limit && mean <= 0.4 * step && mean <= 1.5 * *change)
            found = period;
    }
    return found;
}

hl_status hl_find_row_loop(hl_row_loop *out, const float *rows, int64_t n_tokens, int64_t n_values,
                           const hl_thresholds *thresholds)
{
    int64_t          length = (int64_t)hl_threshold_of(thresholds, HL_T_LOCKING_WINDOW);
    double           limit  = hl_threshold_of(thresholds, HL_T_LOCKING_LOOP);
    int64_t          n      = (n_tokens - HL_LOOP_MAX_PERIOD - length) / WINDOW_STEP + 1;
    HL_FREED double *change = NULL; /* (n_tokens) */
    HL_FREED double *means  = NULL; /* (HL_LOOP_MAX_PERIOD + 1, n) mean change, by period and window
                                     * */

    *out = (hl_row_loop){ 0, -1, NAN, NAN };
    if (length < 2 || n_tokens < HL_LOOP_MAX_PERIOD + length)
        return HL_OK;
    HL_NEED(HL_ALLOC(&change, (size_t)n_tokens));
    HL_NEED(HL_ALLOC(&means, (HL_LOOP_MAX_PERIOD + 1) * (size_t)n));
    for (int64_t period = 1; period <= HL_LOOP_MAX_PERIOD; period++) {
        change_over(change, rows, n_tokens, n_values, period);
        for (int64_t window = 0; window < n; window++)
            means[period * n + window] =
                hl_mean(change + HL_LOOP_MAX_PERIOD + window * WINDOW_STEP, length);
    }
    for (int64_t window = 0; window < n && out->period == 0; window++) {
        double smallest;

        out->period = period_of(&smallest, means, n, window, limit);
        if (out->period > 0 || isnan(out->change) || smallest < out->change) {
            out->change = out->period > 0 ? means[out->period * n + window] : smallest;
            out->step   = means[n + window];
        }
        if (out->period > 0)
            out->first = HL_LOOP_MAX_PERIOD + window * WINDOW_STEP;
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- a trace */

/* The generated tokens of a trace whose own row and previous row are known. */
typedef struct decoded {
    double  *entropy;
    double  *change;
    float   *rows;   /* (n_tokens, n_cells) normalized entropies of all heads */
    int64_t *tokens; /* positions in the trace */
    int64_t  n_tokens;
    int64_t  n_cells;
    int64_t  n_generated;
} decoded;

static void free_decoded(decoded *text)
{
    hl_free(text->entropy);
    hl_free(text->change);
    hl_free(text->rows);
    hl_free(text->tokens);
}

static hl_status read_decoded(decoded *out, const hl_trace *trace)
{
    size_t  n       = (size_t)hl_trace_n_tokens(trace);
    int64_t n_heads = hl_trace_n_heads(trace);

    out->n_cells = hl_trace_n_layers(trace) * n_heads;
    HL_NEED(HL_ALLOC(&out->entropy, n));
    HL_NEED(HL_ALLOC(&out->change, n));
    HL_NEED(HL_ALLOC(&out->tokens, n));
    HL_NEED(HL_ALLOC(&out->rows, n * (size_t)out->n_cells));
    for (int64_t token = 0; token < hl_trace_n_tokens(trace); token++) {
        double change = hl_trace_mean(trace, token, HL_TRACE_CHANGE);

        if (hl_trace_describe(trace, token).kind != HL_KIND_GENERATED)
            continue;
        out->n_generated++;
        if (isnan(change))
            continue;
        for (int64_t i = 0; i < out->n_cells; i++)
            out->rows[out->n_tokens * out->n_cells + i] =
                (float)hl_trace_row(trace, token, i / n_heads, i % n_heads, HL_TRACE_NORMALIZED);
        out->entropy[out->n_tokens]  = hl_trace_mean(trace, token, HL_TRACE_NORMALIZED);
        out->change[out->n_tokens]   = change;
        out->tokens[out->n_tokens++] = token;
    }
    return HL_OK;
}

/* Lists the heads whose own rows did not change within the window of these tokens. */
static hl_status list_locked(hl_examination *e, const int64_t *tokens, int64_t length)
{
    int64_t n_heads = hl_trace_n_heads(e->trace);
    double  still   = hl_limit(e, HL_T_LOCKING_CHANGE);

    for (int64_t i = 0; i < hl_trace_n_layers(e->trace) * n_heads; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < length; j++)
            sum += hl_trace_row(e->trace, tokens[j], i / n_heads, i % n_heads, HL_TRACE_CHANGE);
        if (sum / (double)length < still)
            HL_NEED(hl_shown_by_add(e->result, i / n_heads, i % n_heads, sum / (double)length));
    }
    hl_shown_by_sort(e->result, false);
    return HL_OK;
}

/* Looks for a window whose rows do not change. If there is none, the value is that of the window
 * with the least change. */
static hl_status find_still(hl_examination *e, const decoded *text)
{
    hl_locking found;
    int64_t    length = (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW);

    HL_NEED(hl_find_locking(&found, text->entropy, text->change, text->n_tokens, e->thresholds));
    e->result->value     = found.change;
    e->result->threshold = hl_limit(e, HL_T_LOCKING_CHANGE);
    for (int64_t first = 0; !found.locked && first + length <= text->n_tokens; first++)
        e->result->value = fmin(e->result->value, hl_mean(text->change + first, length));
    if (!found.locked) {
        hl_text_addf(&e->finding, "smallest change of rows in any of %lld windows: %.4f",
                     (long long)found.n_windows, e->result->value);
        if (e->result->value < e->result->threshold) {
            hl_text_addf(&e->finding, ", but there the entropy moves, or no earlier window moved");
            /* Another part of the rule decided, so the value would mislead. */
            e->result->value = NAN;
        }
        return HL_OK;
    }
    e->result->verdict = HL_VERDICT_FOUND;
    hl_text_addf(&e->finding,
                 "from token %lld on rows change by %.4f; entropy drifts by %.4f and spreads by "
                 "%.4f",
                 (long long)text->tokens[found.first], found.change,
                 fabs(found.slope) * (double)length, found.spread);
    return list_locked(e, text->tokens + found.first, length);
}

/* Looks for rows that return periodically. */
static hl_status find_returning(hl_examination *e, const decoded *text)
{
    hl_row_loop found;

    HL_NEED(hl_find_row_loop(&found, text->rows, text->n_tokens, text->n_cells, e->thresholds));
    if (found.period == 0)
        return HL_OK;
    hl_text_addf(&e->finding,
                 "; from token %lld on attention comes back every %lld tokens: heads' normalized "
                 "entropies change by %.4f over a period, by %.4f in a step",
                 (long long)text->tokens[found.first], (long long)found.period, found.change,
                 found.step);
    if (e->result->verdict == HL_VERDICT_FOUND)
        return HL_OK;
    e->result->verdict   = HL_VERDICT_FOUND;
    e->result->value     = found.change;
    e->result->threshold = hl_limit(e, HL_T_LOCKING_LOOP);
    e->result->unit      = "normalized entropy";
    return HL_OK;
}

/* A text that repeats itself is the clearest sign of locking, so the length of the repetition is
 * the value. */
static void find_repeated(hl_examination *e, const hl_repetition *text)
{
    double least = hl_limit(e, HL_T_LOCKING_TOKENS);

    hl_text_addf(&e->against,
                 "Distinct 1-grams %.2f, 2-grams %.2f, 3-grams %.2f; the last %lld "
                 "tokens occur before.",
                 text->distinct[0], text->distinct[1], text->distinct[2], (long long)text->suffix);
    if ((double)text->loop_tokens < least)
        return;
    hl_text_addf(
        &e->finding, "%sfrom token %lld on the text repeats %lld token%s, %.1f times in a row",
        e->finding.n_bytes > 0 ? "; " : "", (long long)text->first, (long long)text->period,
        text->period == 1 ? "" : "s", (double)text->loop_tokens / (double)text->period);
    e->result->verdict   = HL_VERDICT_FOUND;
    e->result->value     = (double)text->loop_tokens;
    e->result->threshold = least;
    e->result->unit      = "tokens of a loop";
    e->result->below     = false;
}

static hl_status find_locked(hl_examination *e, const decoded *text)
{
    hl_repetition repeated;
    char          needs[96], how[96];
    int64_t       length  = (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW);
    bool          is_long = text->n_tokens >= 2 * length;

    HL_NEED(hl_trace_repetition(&repeated, e->trace));
    if (is_long) {
        HL_NEED(find_still(e, text));
        HL_NEED(find_returning(e, text));
    }
    find_repeated(e, &repeated);
    if (is_long || e->result->verdict == HL_VERDICT_FOUND)
        return HL_OK;
    snprintf(needs, sizeof needs, "%lld generated tokens; the trace has %lld",
             (long long)(2 * length + 1), (long long)text->n_generated);
    snprintf(how, sizeof how, "run headlight generate again with --max-tokens %lld and --trace",
             (long long)(2 * length + 1));
    return hl_examination_not_run(e, needs, how);
}

hl_status hl_diagnose_locking(hl_examination *e)
{
    HL_SCOPED(free_decoded) decoded text = { 0 };

    hl_text_addf(
        &e->rule,
        "while generating, a loop of at least %g tokens with a period of up to %d; or heads' "
        "normalized entropies that come back, with a period of up to %d tokens, to within %g over "
        "%g tokens; or a window of %g tokens whose entropy neither drifts nor spreads by %g and "
        "whose rows differ by less than %g from the ones before, after a window that moved",
        hl_limit(e, HL_T_LOCKING_TOKENS), HL_LOOP_MAX_PERIOD, HL_LOOP_MAX_PERIOD,
        hl_limit(e, HL_T_LOCKING_LOOP), hl_limit(e, HL_T_LOCKING_WINDOW),
        hl_limit(e, HL_T_LOCKING_WINDOW), hl_limit(e, HL_T_LOCKING_SPREAD),
        hl_limit(e, HL_T_LOCKING_CHANGE));
    e->result->threshold = hl_limit(e, HL_T_LOCKING_CHANGE);
    if (e->trace == NULL) {
        char    needs[64], how[160];
        int64_t n_tokens = 2 * (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW) + 1;

        snprintf(needs, sizeof needs, "%lld generated tokens", (long long)n_tokens);
        snprintf(how, sizeof how,
                 "write a trace with headlight generate --max-tokens %lld --trace, then give it to "
                 "headlight diagnose --trace",
                 (long long)n_tokens);
        return hl_examination_not_run(e, needs, how);
    }
    HL_NEED(read_decoded(&text, e->trace));
    return find_locked(e, &text);
}
