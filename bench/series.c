/* series.c - medians.  On a shared machine the mean depends on other load.  Ratios are taken round
 * by round, because a slow moment slows both sides.  A skipped round keeps its place as a NaN, so
 * that rounds of different series match. */
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

void bench_series_add(bench_series *series, double value)
{
    if (series->count < BENCH_SERIES_MAX)
        series->values[series->count++] = value;
}

void bench_series_skip(bench_series *series)
{
    bench_series_add(series, NAN);
}

size_t bench_series_measured(const bench_series *series)
{
    size_t n = 0;

    for (size_t i = 0; i < series->count; i++)
        n += !isnan(series->values[i]);
    return n;
}

double bench_series_sum(const bench_series *series)
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

double bench_series_median(const bench_series *series)
{
    double sorted[BENCH_SERIES_MAX];
    size_t n = 0;

    for (size_t i = 0; i < series->count; i++)
        if (!isnan(series->values[i]))
            sorted[n++] = series->values[i];
    if (n == 0)
        return NAN;
    qsort(sorted, n, sizeof *sorted, compare);
    return n % 2 == 1 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

double bench_series_min(const bench_series *series)
{
    double least = NAN;

    for (size_t i = 0; i < series->count; i++)
        least = fmin(least, series->values[i]); /* fmin ignores a NaN */
    return least;
}

double bench_series_max(const bench_series *series)
{
    double most = NAN;

    for (size_t i = 0; i < series->count; i++)
        most = fmax(most, series->values[i]);
    return most;
}

double bench_series_ratio(const bench_series *above, const bench_series *below)
{
    bench_series ratios = { .count = 0 };
    size_t       n      = above->count < below->count ? above->count : below->count;

    for (size_t i = 0; i < n; i++)
        bench_series_add(&ratios, above->values[i] / below->values[i]);
    return bench_series_median(&ratios);
}
