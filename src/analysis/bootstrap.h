/* bootstrap.h - how sure a mean is, from the sequences it was made of.
 *
 * Rows of one sequence are not independent, so whole sequences are drawn: as many as
 * there are, with replacement, a thousand times.  Each draw gives a mean, and the middle
 * 95% of these means is the interval.  Two profiles of the same sequences are compared
 * by drawing from the differences (the paired bootstrap), which takes the sequences'
 * own spread out. */
#ifndef HL_ANALYSIS_BOOTSTRAP_H
#define HL_ANALYSIS_BOOTSTRAP_H

#include "headlight.h"

enum { HL_RESAMPLES = 1000 };

/* The means of the draws of every column; NaN is left out of a mean.  All columns see the same
 * draws, so that sums and differences of columns can be formed draw by draw.
 *   out     (n_columns, n_resamples)
 *   values  (n_units, n_columns) */
hl_status hl_bootstrap_means(double *out, const double *values, int64_t n_units, int64_t n_columns,
                             int64_t n_resamples, uint64_t seed);

typedef struct hl_interval {
    double low;
    double high;
    double error; /* standard error: the spread of the draws */
} hl_interval;

/* The interval that holds the share `level` of the draws; sorts them. */
hl_interval hl_bootstrap_interval(double *draws, int64_t n_resamples, double level);

/* Two-sided: how often the draws lie on the side of 0 where fewer do, doubled.  One is added to
 * both counts, since a finite number of draws cannot show an impossibility. */
double hl_bootstrap_p_value(const double *draws, int64_t n_resamples);

#endif
