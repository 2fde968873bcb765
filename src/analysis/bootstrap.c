/* bootstrap.c - draws of whole sequences. */
#include "analysis/bootstrap.h"

#include <math.h>
#include <string.h>

#include "analysis/numbers.h"
#include "analysis/random.h"
#include "base/memory.h"
#include "base/status.h"

/* How often each unit is drawn. */
static void draw(int64_t *times, int64_t n_units, hl_random *random)
{
    memset(times, 0, sizeof *times * (size_t)n_units);
    for (int64_t i = 0; i < n_units; i++)
        times[hl_random_below(random, n_units)]++;
}

/* One draw's mean of every column; sums has room for two numbers a column. */
static void means_of_draw(double *sums, const double *values, const int64_t *times, int64_t n_units,
                          int64_t n_columns)
{
    double *counts = sums + n_columns;

    memset(sums, 0, 2 * sizeof *sums * (size_t)n_columns);
    for (int64_t unit = 0; unit < n_units; unit++) {
        const double *row    = values + unit * n_columns;
        double        weight = (double)times[unit];

        if (times[unit] == 0)
            continue;
        for (int64_t column = 0; column < n_columns; column++) {
            if (!isnan(row[column])) {
                sums[column] += weight * row[column];
                counts[column] += weight;
            }
        }
    }
    for (int64_t column = 0; column < n_columns; column++)
        sums[column] = counts[column] > 0.0 ? sums[column] / counts[column] : NAN;
}

hl_status hl_bootstrap_means(double *out, const double *values, int64_t n_units, int64_t n_columns,
                             int64_t n_resamples, uint64_t seed)
{
    hl_status status = HL_OK;
    hl_random random = { seed };
    int64_t  *times  = NULL;
    double   *sums   = NULL;

    HL_TRY(HL_ALLOC(&times, (size_t)n_units));
    HL_TRY(HL_ALLOC(&sums, 2 * (size_t)n_columns));
    for (int64_t resample = 0; resample < n_resamples; resample++) {
        draw(times, n_units, &random);
        means_of_draw(sums, values, times, n_units, n_columns);
        for (int64_t column = 0; column < n_columns; column++)
            out[column * n_resamples + resample] = sums[column];
    }

done:
    hl_free(times);
    hl_free(sums);
    return status;
}

hl_interval hl_bootstrap_interval(double *draws, int64_t n_resamples, double level)
{
    double  error  = sqrt(hl_variance(draws, n_resamples));
    int64_t n_real = hl_sort(draws, n_resamples);

    return (hl_interval){
        .low   = hl_sorted_quantile(draws, n_real, 0.5 * (1.0 - level)),
        .high  = hl_sorted_quantile(draws, n_real, 0.5 * (1.0 + level)),
        .error = error,
    };
}

double hl_bootstrap_p_value(const double *draws, int64_t n_resamples)
{
    int64_t n_below = 0, n_above = 0, n_real = 0;

    for (int64_t i = 0; i < n_resamples; i++) {
        n_real += !isnan(draws[i]);
        n_below += draws[i] <= 0.0;
        n_above += draws[i] >= 0.0;
    }
    if (n_real == 0)
        return NAN;
    int64_t n_fewer = n_below < n_above ? n_below : n_above;
    return fmin(1.0, 2.0 * (double)(n_fewer + 1) / (double)(n_real + 1));
}
