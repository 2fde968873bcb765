/* interval.h - the one mechanism behind every confidence interval.
 *
 *     hl_error    error    = hl_jackknife_error(value, without, n, HL_SCALE_PLAIN);
 *     hl_interval interval = hl_interval_of(value, error, HL_SCALE_PLAIN, n, HL_UNITS_WINDOWS);
 *
 * `without` holds the number computed with each unit left out.  The variance of the number is
 *
 *     (n - 1) / n * sum_i (f(without_i) - f(value))^2
 *
 * and its degrees of freedom are n - 1, f being the scale.  The interval is
 *
 *     f^-1(f(value) -+ (t s + e)),   e = s |g| (1 + 2 t^2) / 6
 *
 * where e is there on one side only, the one to which the units are skewed: g is the skewness of
 * the number (Hall 1992).  A sample that misses the few windows with large numbers has a small
 * spread, too; without e it misses the truth three times as often on that side as on the other.
 *
 * Much of a KL divergence may come from a few rare units, and a sample without them cannot know it.
 * Of units of a kind that n units do not show, there are with 95% confidence no more than a share
 * u = 1 - 0.05^(1/n), about 3 / n.  The upper end allows for this share of units that are five times
 * as far from the value as the largest one seen:
 *
 *     high = value + hypot(high - value, 5 u (largest - value))
 *
 * Errors of independent causes (windows and random seeds, two texts) are added, with the degrees of
 * freedom of Welch and Satterthwaite. */
#ifndef HL_BASE_INTERVAL_H
#define HL_BASE_INTERVAL_H

#include "headlight/base.h"

#define HL_LEVEL 0.95

typedef enum hl_error_scale {
    HL_SCALE_PLAIN = 0, /* means, losses, differences: f(x) = x */
    HL_SCALE_POSITIVE,  /* skewed numbers above 0: the lower end as PLAIN and not below 0, the upper
                           * end x exp((t s + e) / x), which is farther than PLAIN's */
    HL_SCALE_KL,        /* as POSITIVE, and the upper end allows for unseen units */
    HL_SCALE_SHARE,     /* between 0 and 1, as AUROC: f = log(x / (1 - x)), or on the plain scale
                           * where that end is farther */
    HL_SCALE_CORRELATION, /* between -1 and 1: f = atanh */
} hl_error_scale;

/* A variance on a scale; NaN: unknown. */
typedef struct hl_error {
    double variance;
    double freedom;  /* degrees of freedom */
    double skewness; /* of the number, as estimated from the units */
    double largest;  /* the number of the unit with the largest one; used by SCALE_KL alone */
} hl_error;

/* The quantile of Student's t that leaves (1 - level) / 2 above it, and how probable it is to be at
 * least as far from 0 as t.  Degrees of freedom need not be whole. */
double hl_student_quantile(double level, double freedom);
double hl_student_p_value(double t, double freedom);

/* f of the scale and its inverse.  Ends of a bounded scale are pulled in by 1e-9. */
double hl_to_scale(double value, hl_error_scale scale);
double hl_from_scale(double value, hl_error_scale scale);

/* NaN in `without` is left out: those units have no such number.  Unknown with fewer than
 * HL_MIN_UNITS. */
hl_error hl_jackknife_error(double value, const double *without, int64_t n, hl_error_scale scale);
hl_error hl_error_add(hl_error a, hl_error b);
/* The skewness of a mean of n numbers, from sums of the squares and cubes of their differences from
 * it. */
double hl_mean_skewness(double squares, double cubes, double n);

/* No interval of n units: all NaN. */
hl_interval hl_no_interval(int64_t n, hl_units units);
/* The interval of a value whose error is known on that scale. */
hl_interval hl_interval_of(double value, hl_error error, hl_error_scale scale, int64_t n,
                           hl_units units);
/* hl_jackknife_error and hl_interval_of. */
hl_interval hl_jackknife(double value, const double *without, int64_t n, hl_error_scale scale,
                         hl_units units);
/* Two-sided: how probable a number is that lies at least as far from 0. */
double hl_error_p_value(double value, hl_error error);

/* ----------------------------------------------------------- means without a unit
 *
 * Rows of numbers, each of a window, in groups: the units.  The mean of column c is
 * sum_i w_ic x_ic / sum_i w_ic, which is a ratio of two sums where windows differ in length. */
typedef struct hl_unit_rows {
    const double  *values;  /* (n_rows, n_columns) NaN: left out */
    const double  *weights; /* (n_rows, n_columns), or NULL: all 1 */
    const int64_t *groups;  /* (n_rows) 0 to n_groups - 1; NULL: each row by itself */
    int64_t        n_rows;
    int64_t        n_columns;
    int64_t        n_groups; /* as n_rows where groups is NULL */
    hl_units       units;
} hl_unit_rows;

/* *out (n_columns, n_groups + 1), to be released with hl_free: the means with each group left out,
 * and last the mean of all.  NaN where a group has no number of a column, and where nothing is
 * left. */
hl_status hl_left_out(double **out, const hl_unit_rows *rows);
/* The interval of one column of these. */
hl_interval hl_left_out_interval(const double *column, const hl_unit_rows *rows,
                                 hl_error_scale scale);

#endif
