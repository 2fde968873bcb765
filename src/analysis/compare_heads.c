/* compare_heads.c - two profiles side by side, head by head: how much attention stays on the diagonal and
 * how much moves off it, every metric of every layer, the highest peaks, and pairs of heads.
 *
 * A head is dominated by its diagonal if in most sampled rows the largest weight is on the token
 * itself.  A weight above 0.5 is the largest of its row; if it is not on the diagonal it is off it.  A
 * profile counts rows with such a peak and rows whose peak is the token itself, but not both at once,
 * so that
 *
 *     rows with a weight above 0.5 off the diagonal  >=  rows with a peak above 0.5
 *                                                        - rows whose peak is the token itself
 *
 * is a lower bound, and exact where every peak on the diagonal is above 0.5. */
#include <math.h>
#include <stdlib.h>

#include "analysis/compare_parts.h"
#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

/* ------------------------------------------------------------------ numbers */

double hl_change_percent(double a, double b)
{
    return a != 0.0 ? 100.0 * (b - a) / fabs(a) : (double)NAN;
}

double hl_sign_test(int64_t n_above, int64_t n_below)
{
    int64_t n = n_above + n_below, fewer = n_above < n_below ? n_above : n_below;
    double  sum = 0.0;

    if (n == 0)
        return (double)NAN;
    for (int64_t k = 0; k <= fewer; k++)
        sum += exp(lgamma((double)n + 1.0) - lgamma((double)k + 1.0) -
                   lgamma((double)(n - k) + 1.0) - (double)n * log(2.0));
    return fmin(1.0, 2.0 * sum);
}

/* ----------------------------------------------------------------- diagonal */

static double pattern_mean(const hl_profile *profile, int64_t layer, int64_t head,
                           hl_pattern_metric metric)
{
    return hl_profile_pattern(profile, layer, head, metric, false).mean;
}

/* Returns the lower bound of the share of rows with a weight above 0.5 off the diagonal. */
static double off_diagonal(const hl_profile *profile, int64_t layer, int64_t head)
{
    enum { BINS = 64 };
    const int64_t *counts = hl_profile_histogram(profile, layer, head, HL_HIST_PEAK);
    double         above = 0.0, all = 0.0;

    for (int bin = 0; bin < BINS; bin++) {
        all += (double)counts[bin];
        above += bin >= BINS / 2 ? (double)counts[bin] : 0.0;
    }
    return all > 0.0 ? fmax(above / all - pattern_mean(profile, layer, head, HL_PM_SELF_TOP), 0.0)
                     : (double)NAN;
}

/* The diagonal of one of the two profiles. */
typedef struct diagonal {
    double n_heads;
    double n_dominated;    /* number of heads whose largest weight is on the token itself in most
                            * rows */
    double n_off;          /* number of heads that have a weight above 0.5 elsewhere in most rows */
    double n_above_chance; /* number of heads that look at the token itself more than at a random
                            * key */
    double self, chance, peak, off; /* means over heads */
} diagonal;

static diagonal read_diagonal(const hl_profile *profile)
{
    diagonal d = { 0 };

    HL_EACH_HEAD(profile, layer, head)
    {
        double self   = pattern_mean(profile, layer, head, HL_PM_SELF);
        double chance = pattern_mean(profile, layer, head, HL_PM_CHANCE);
        double off    = off_diagonal(profile, layer, head);

        if (isnan(self) || isnan(off))
            continue;
        d.n_heads++;
        d.n_dominated += pattern_mean(profile, layer, head, HL_PM_SELF_TOP) > 0.5;
        d.n_off += off > 0.5;
        d.n_above_chance += self > chance;
        d.self += self;
        d.chance += chance;
        d.peak += pattern_mean(profile, layer, head, HL_PM_PEAK);
        d.off += off;
    }
    return d;
}

const char hl_diagonal_columns[] = "measure:t a:3 b:3 difference:3 change_percent:1";

static void put_measure(hl_sheet *table, const char *name, double a, double b)
{
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_reals(table, a, b, b - a, hl_change_percent(a, b));
}

hl_status hl_fill_diagonal(hl_sheet *table, const hl_profile *a, const hl_profile *b)
{
    diagonal of_a = read_diagonal(a), of_b = read_diagonal(b);
    int64_t  n_more = 0, n_less = 0;

    put_measure(table, "heads dominated by the diagonal", of_a.n_dominated, of_b.n_dominated);
    put_measure(table, "share of heads dominated by the diagonal", of_a.n_dominated / of_a.n_heads,
                of_b.n_dominated / of_b.n_heads);
    put_measure(table, "mean weight on the diagonal", of_a.self / of_a.n_heads,
                of_b.self / of_b.n_heads);
    put_measure(table, "the same over chance", of_a.self / of_a.chance, of_b.self / of_b.chance);
    put_measure(table, "heads above chance on the diagonal", of_a.n_above_chance,
                of_b.n_above_chance);
    put_measure(table, "mean peak", of_a.peak / of_a.n_heads, of_b.peak / of_b.n_heads);
    put_measure(table, "heads with weights above 0.5 off the diagonal in most rows", of_a.n_off,
                of_b.n_off);
    put_measure(table, "share of rows with a weight above 0.5 off the diagonal, at least",
                of_a.off / of_a.n_heads, of_b.off / of_b.n_heads);
    HL_EACH_HEAD(a, layer, head)
    {
        double before = pattern_mean(a, layer, head, HL_PM_SELF);
        double after  = pattern_mean(b, layer, head, HL_PM_SELF);

        n_more += after > before;
        n_less += after < before;
    }
    /* The sign tests count heads: is the diagonal above chance in more of them than coin flips
     * would give? */
    hl_sheet_fact_real(
        table, "sign test over heads, A above chance: p",
        hl_sign_test((int64_t)of_a.n_above_chance, (int64_t)(of_a.n_heads - of_a.n_above_chance)));
    hl_sheet_fact_real(
        table, "sign test over heads, B above chance: p",
        hl_sign_test((int64_t)of_b.n_above_chance, (int64_t)(of_b.n_heads - of_b.n_above_chance)));
    hl_sheet_fact_real(table, "heads with more weight on it in B", (double)n_more);
    hl_sheet_fact_real(table, "heads with less", (double)n_less);
    hl_sheet_fact_real(table, "sign test over heads, A against B: p", hl_sign_test(n_more, n_less));
    return HL_OK;
}

/* ------------------------------------------------------- layers and metrics */

const char hl_layer_metric_columns[] = "layer:i metric:t a:3 b:3 difference:3 change_percent:1";

/* Means are over the heads of a layer that have the metric in both profiles. */
hl_status hl_fill_layer_metrics(hl_sheet *table, const hl_profile *a, const hl_profile *b)
{
    for (int64_t layer = 0; layer < hl_profile_n_layers(a); layer++) {
        for (int metric = 0; hl_compared_metric_name(metric) != NULL; metric++) {
            double sum_a = 0.0, sum_b = 0.0, n = 0.0; /* 0 / 0 is NaN: not measured */

            for (int64_t head = 0; head < hl_profile_heads_of(a, layer); head++) {
                double of_a = hl_compared_metric(a, layer, head, metric);
                double of_b = hl_compared_metric(b, layer, head, metric);

                if (isnan(of_a) || isnan(of_b))
                    continue;
                n++;
                sum_a += of_a;
                sum_b += of_b;
            }
            hl_sheet_put_int(table, layer);
            put_measure(table, hl_compared_metric_name(metric), sum_a / n, sum_b / n);
        }
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- peaks */

const char hl_peak_columns[] = "side:t rank:i layer:i head:i peak:3 self:3 previous:3 first:3 "
                               "peak_other:3";

static int compare_peaks(const void *left, const void *right)
{
    return -hl_shown_by_compare(left, right);
}

/* Lists the heads with the highest mean peaks of one profile, with their peaks in the other. */
static hl_status put_peaks(hl_sheet *table, const char *side, const hl_profile *profile,
                           const hl_profile *other)
{
    enum { LISTED = 10 };
    HL_FREED hl_shown_by *heads = NULL;
    int64_t               count = 0;

    HL_NEED(HL_ALLOC(&heads, (size_t)hl_grid_size(profile)));
    HL_EACH_HEAD(profile, layer, head)
    {
        double peak = hl_profile_mean(profile, layer, head, HL_Q_PEAK);
        if (!isnan(peak))
            heads[count++] = (hl_shown_by){ layer, head, peak };
    }
    if (count > 1)
        qsort(heads, (size_t)count, sizeof *heads, compare_peaks);
    for (int64_t i = 0; i < count && i < LISTED; i++) {
        const hl_shown_by *at = &heads[i];

        hl_sheet_put_text(table, "%s", side);
        hl_sheet_put_ints(table, i + 1, at->layer, at->head);
        hl_sheet_put_reals(table, at->value,
                           hl_profile_mean(profile, at->layer, at->head, HL_Q_SELF),
                           hl_profile_mean(profile, at->layer, at->head, HL_Q_PREVIOUS),
                           hl_profile_mean(profile, at->layer, at->head, HL_Q_FIRST),
                           hl_profile_mean(other, at->layer, at->head, HL_Q_PEAK));
    }
    return HL_OK;
}

hl_status hl_fill_peaks(hl_sheet *table, const hl_profile *a, const hl_profile *b)
{
    HL_NEED(put_peaks(table, "A", a, b));
    return put_peaks(table, "B", b, a);
}

/* -------------------------------------------------------------------- pairs */

const char hl_pair_columns[] = "layer:i head_1:i head_2:i similarity_a:3 similarity_b:3 "
                               "difference:3 beside_first_a:3 beside_first_b:3";

hl_status hl_fill_pairs(hl_sheet *table, const hl_profile *a, const hl_profile *b)
{
    HL_EACH_HEAD(a, layer, second)
    {
        for (int64_t first = 0; first < second; first++) {
            double of_a = hl_profile_similarity(a, layer, first, second);
            double of_b = hl_profile_similarity(b, layer, first, second);

            if (isnan(of_a) && isnan(of_b))
                continue;
            hl_sheet_put_ints(table, layer, first, second);
            hl_sheet_put_reals(table, of_a, of_b, of_b - of_a,
                               hl_similarity_beside_first(a, layer, first, second),
                               hl_similarity_beside_first(b, layer, first, second));
        }
    }
    return HL_OK;
}
