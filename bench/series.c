/* series.c - medians.  On a shared machine the mean tells about the neighbours;
 * ratios are taken round by round, because a slow moment slows both sides.  A round
 * that was skipped keeps its place as a NaN, so that rounds stay side by side. */
#include "series.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

double hl_bench_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void hl_series_add(hl_series *series, double value)
{
    if (series->count < HL_SERIES_MAX)
        series->values[series->count++] = value;
}

void hl_series_skip(hl_series *series)
{
    hl_series_add(series, NAN);
}

size_t hl_series_measured(const hl_series *series)
{
    size_t n = 0;

    for (size_t i = 0; i < series->count; i++)
        n += !isnan(series->values[i]);
    return n;
}

double hl_series_sum(const hl_series *series)
{
    double sum = 0.0;

    for (size_t i = 0; i < series->count; i++)
        sum += isnan(series->values[i]) ? 0.0 : series->values[i];
    return sum;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double hl_series_median(const hl_series *series)
{
    double sorted[HL_SERIES_MAX];
    size_t n = 0;

    for (size_t i = 0; i < series->count; i++)
        if (!isnan(series->values[i]))
            sorted[n++] = series->values[i];
    if (n == 0)
        return NAN;
    qsort(sorted, n, sizeof *sorted, compare);
    return n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

double hl_series_min(const hl_series *series)
{
    double least = NAN;

    for (size_t i = 0; i < series->count; i++)
        least = fmin(least, series->values[i]); /* fmin ignores a NaN */
    return least;
}

double hl_series_max(const hl_series *series)
{
    double most = NAN;

    for (size_t i = 0; i < series->count; i++)
        most = fmax(most, series->values[i]);
    return most;
}

double hl_series_ratio(const hl_series *above, const hl_series *below)
{
    hl_series ratios = { .count = 0 };
    size_t    n      = above->count < below->count ? above->count : below->count;

    for (size_t i = 0; i < n; i++)
        hl_series_add(&ratios, above->values[i] / below->values[i]);
    return hl_series_median(&ratios);
}
