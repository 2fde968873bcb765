/* numbers.h - small statistics of plain arrays.
 *
 * NaN stands for "not measured" everywhere: such values are left out, and what has
 * nothing left to be computed from is NaN itself. */
#ifndef HL_ANALYSIS_NUMBERS_H
#define HL_ANALYSIS_NUMBERS_H

#include "headlight/base.h"

double hl_mean(const double *values, int64_t count);
/* Divided by the number of values: the spread of these values, not an estimate. */
double hl_variance(const double *values, int64_t count);

/* The value below which a share q of a sorted array without NaN lies, with straight lines between
 * neighbors. */
double hl_sorted_quantile(const double *sorted, int64_t count, double q);
/* Rising; NaN last.  Returns how many are not NaN. */
int64_t hl_sort(double *values, int64_t count);

/* The median, and 1.4826 times the median distance from it: a standard deviation that outliers do
 * not move.  `work` has room for count values. */
typedef struct hl_robust {
    double median;
    double sigma;
} hl_robust;
hl_robust hl_robust_spread(const double *values, int64_t count, double *work);

/* Ranks 1 ... n; equal values share the mean of their ranks, NaN has rank NaN. */
hl_status hl_ranks(double *out, const double *values, int64_t count);
/* Spearman's correlation.  Pairs with a NaN are left out.  NaN of fewer than two pairs, or of a
 * constant. */
hl_status hl_spearman(double *out, const double *x, const double *y, int64_t count);

/* y = constant + linear x + quadratic x^2 by least squares; all NaN where fewer than three
 * different x have a y. */
typedef struct hl_parabola {
    double constant;
    double linear;
    double quadratic;
} hl_parabola;
hl_parabola hl_fit_parabola(const double *x, const double *y, int64_t count);

/* How far two histograms of 64 bins are apart, whatever they counted in all: total variation, half the
 * sum of the differences of shares, 0 to 1; Jensen-Shannon, nats, 0 to ln 2.  NaN where one is empty. */
double hl_histogram_variation(const int64_t *p, const int64_t *q);
double hl_histogram_divergence(const int64_t *p, const int64_t *q);

/* Benjamini-Hochberg: the smallest false discovery rate at which each test would still be a
 * discovery.  NaN is no test. */
hl_status hl_false_discovery(double *out, const double *p_values, int64_t count);

/* ------------------------------------------------------------------- bootstrap
 *
 * How sure a mean is, from the sequences it was made of.  Rows of one sequence are not independent,
 * so whole sequences are drawn: as many as there are, with replacement, a thousand times.  Each draw
 * gives a mean, and the middle 95% of these means is the interval.  Two profiles of the same
 * sequences are compared by drawing from the differences (the paired bootstrap), which takes the
 * sequences' own spread out. */

enum { HL_RESAMPLES = 1000 };

/* The means of the draws of every column; NaN is left out of a mean.  All columns see the same
 * draws, so that sums and differences of columns can be formed draw by draw.
 *   out     (n_columns, n_resamples)
 *   values  (n_units, n_columns) */
hl_status hl_bootstrap_means(double *out, const double *values, int64_t n_units, int64_t n_columns,
                             int64_t n_resamples, uint64_t seed);

/* The same with HL_RESAMPLES draws, in memory of their own: *out is released with hl_free. */
hl_status hl_bootstrap_draws(double **out, const double *values, int64_t n_units, int64_t n_columns,
                             uint64_t seed);

typedef struct hl_interval {
    double low;
    double high;
    double error; /* standard error: the spread of the draws */
} hl_interval;
/* Nothing was drawn: all NaN. */
extern const hl_interval hl_no_interval;

/* The interval that holds the share `level` of the draws; sorts them. */
hl_interval hl_bootstrap_interval(double *draws, int64_t n_resamples, double level);

/* Two-sided: how often the draws lie on the side of 0 where fewer do, doubled.  One is added to
 * both counts, since a finite number of draws cannot show an impossibility. */
double hl_bootstrap_p_value(const double *draws, int64_t n_resamples);

#endif
