/* series.h - times of repeated runs, and their medians. */
#ifndef HL_BENCH_SERIES_H
#define HL_BENCH_SERIES_H

#include <stddef.h>

/* The seconds of a clock that never jumps. */
double hl_bench_now(void);

enum { BENCH_SERIES_MAX = 1024 };

/* One number per round; starts as { 0 }.  At most BENCH_SERIES_MAX are kept. */
typedef struct bench_series {
    double values[BENCH_SERIES_MAX];
    size_t count;
} bench_series;

void bench_series_add(bench_series *series, double value);
/* Adds a round without a number: it keeps its place and is not counted by the functions below. */
void   bench_series_skip(bench_series *series);
size_t bench_series_measured(const bench_series *series);
double bench_series_sum(const bench_series *series);
/* NaN for an empty series. */
double bench_series_median(const bench_series *series);
double bench_series_min(const bench_series *series);
double bench_series_max(const bench_series *series);
/* The median of above[i] / below[i] over the rounds that both series have. */
double bench_series_ratio(const bench_series *above, const bench_series *below);

#endif
