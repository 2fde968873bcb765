/* numbers.h - small statistics of plain arrays.
 *
 * NaN stands for "not measured" everywhere: such values are left out, and what has
 * nothing left to be computed from is NaN itself. */
#ifndef HL_ANALYSIS_NUMBERS_H
#define HL_ANALYSIS_NUMBERS_H

#include "headlight.h"

double hl_mean(const double *values, int64_t count);
/* Divided by the number of values: the spread of these values, not an estimate. */
double hl_variance(const double *values, int64_t count);

/* The value below which a share q of a sorted array without NaN lies, with straight lines between
 * neighbours. */
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

/* How far two distributions are apart, each given as weights that need not sum to 1: total
 * variation, half the sum of differences, 0 to 1; Jensen-Shannon, nats, 0 to ln 2.  NaN where one
 * has no weight. */
double hl_total_variation(const double *p, const double *q, int64_t count);
double hl_jensen_shannon(const double *p, const double *q, int64_t count);

/* Benjamini-Hochberg: the smallest false discovery rate at which each test would still be a
 * discovery.  NaN is no test. */
hl_status hl_false_discovery(double *out, const double *p_values, int64_t count);

#endif
