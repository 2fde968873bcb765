/* numbers.h - small statistics of plain arrays.
 *
 * NaN means "not measured" everywhere: such values are left out, and a result without any value
 * is NaN. */
#ifndef HL_ANALYSIS_NUMBERS_H
#define HL_ANALYSIS_NUMBERS_H

#include <stdint.h>

#include "base/interval.h"

double hl_mean(const double *values, int64_t count);
/* Returns the variance of these values: divided by their number, not an estimate for a
 * population. */
double hl_variance(const double *values, int64_t count);

/* Returns the q-quantile of a sorted array without NaN, with linear interpolation. */
double hl_sorted_quantile(const double *sorted, int64_t count, double q);
/* Sorts in increasing order, NaN last. Returns the number of values that are not NaN. */
int64_t hl_sort(double *values, int64_t count);

/* The median, and 1.4826 times the median absolute deviation from it: a standard deviation that
 * is robust against outliers. `work` has room for count values. */
typedef struct hl_robust {
    double median;
    double sigma;
} hl_robust;
hl_robust hl_robust_spread(const double *values, int64_t count, double *work);

/* Computes ranks from 1 to n. Equal values share the mean of their ranks; the rank of NaN is
 * NaN. */
hl_status hl_ranks(double *out, const double *values, int64_t count);
/* Computes Spearman's correlation. Pairs with a NaN are left out. NaN for fewer than two pairs,
 * or if one side is constant. */
hl_status hl_spearman(double *out, const double *x, const double *y, int64_t count);

/* y = constant + linear x + quadratic x^2, by least squares. All NaN if fewer than three
 * different x have a y. */
typedef struct hl_parabola {
    double constant;
    double linear;
    double quadratic;
} hl_parabola;
hl_parabola hl_fit_parabola(const double *x, const double *y, int64_t count);

/* Return the distance of two histograms of 64 bins, after division by their totals: total
 * variation (half the sum of the differences of shares, from 0 to 1), and Jensen-Shannon
 * divergence (nats, from 0 to ln 2). NaN if one is empty. */
double hl_histogram_variation(const int64_t *p, const int64_t *q);
double hl_histogram_divergence(const int64_t *p, const int64_t *q);

/* Benjamini-Hochberg: computes the smallest false discovery rate at which each test would be
 * significant. NaN p-values are not counted as tests. */
hl_status hl_false_discovery(double *out, const double *p_values, int64_t count);

/* ------------------------------------------------- certainty of a rank correlation
 *
 * Numbers of the same items (heads) in two columns, each with every unit left out, as hl_left_out
 * gives them.  Noise in either column draws their correlation towards 0, and the more so the fewer
 * units there are.  The jackknife does not see that; so the interval also holds the correlation
 * from which the noise has been taken out: with R the ranks and N their covariances by the
 * jackknife over units, times 1 + 4 / (n - 1) for what is not known of N itself,
 *
 *     (cov(Rx, Ry) - Nxy) / sqrt((var Rx - Nxx) (var Ry - Nyy))
 *
 *     hl_rank_noise noise = { 0 };
 *     HL_NEED(hl_rank_noise_add(&noise, x, y, n_items, n));         each cause of noise
 *     HL_NEED(hl_rank_noise_add_items(&noise, x, y, n_items, n));   if the items are a sample, too
 *     hl_interval interval = hl_rank_interval(&noise, HL_UNITS_WINDOWS); */
typedef struct hl_rank_noise {
    hl_error error; /* error of atanh(rho) */
    double   rho;   /* correlation with all units */
    /* Variances and covariance of the items' ranks. */
    double xx;
    double xy;
    double yy;
    /* Variances and covariance of the noise in these ranks. */
    double  noise_xx;
    double  noise_xy;
    double  noise_yy;
    int64_t n; /* number of units */
} hl_rank_noise;

/* Adds the noise of x and y (n_items, n + 1), whose last columns are with all units. Items with
 * a NaN are left out. Further calls add the noise of other units; they need the same last
 * columns. */
hl_status hl_rank_noise_add(hl_rank_noise *noise, const double *x, const double *y, int64_t n_items,
                            int64_t n);
hl_status hl_rank_noise_add_items(hl_rank_noise *noise, const double *x, const double *y,
                                  int64_t n_items, int64_t n);
hl_interval hl_rank_interval(const hl_rank_noise *noise, hl_units units);

/* ---------------------------------------------------------- random numbers */

/* Numbers that look random and are the same on every machine.
 *
 * SplitMix64: a counter that is stepped by an odd constant and mixed.  Any seed is
 * a good one, 0 too, and nothing of the machine or the thread enters. */

/* Initialized as { seed }. */
typedef struct hl_random {
    uint64_t state;
} hl_random;

static inline uint64_t hl_random_next(hl_random *random)
{
    uint64_t mixed = random->state += 0x9e3779b97f4a7c15u;

    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

/* Returns one of 0 ... count - 1 with equal probability; count is at least 1. */
static inline int64_t hl_random_below(hl_random *random, int64_t count)
{
    uint64_t n      = (uint64_t)count;
    uint64_t biased = (UINT64_MAX % n + 1) % n; /* Numbers above the last multiple of n are drawn
                                                 * again; otherwise small results would be more
                                                 * likely. */
    uint64_t number = hl_random_next(random);

    while (number > UINT64_MAX - biased)
        number = hl_random_next(random);
    return (int64_t)(number % n);
}

#endif
