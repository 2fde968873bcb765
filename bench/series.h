/* series.h - times of repeated runs, and what to make of them. */
#ifndef HL_BENCH_SERIES_H
#define HL_BENCH_SERIES_H

#include <stddef.h>

/* Seconds on a clock that never jumps. */
double hl_bench_now(void);

enum { HL_SERIES_MAX = 1024 };

/* One number a round; starts as { 0 }.  More than HL_SERIES_MAX are not kept. */
typedef struct hl_series {
    double values[HL_SERIES_MAX];
    size_t count;
} hl_series;

void hl_series_add(hl_series *series, double value);
/* A round without a number: it keeps its place, and counts nowhere below. */
void   hl_series_skip(hl_series *series);
size_t hl_series_measured(const hl_series *series);
double hl_series_sum(const hl_series *series);
/* NaN of an empty series. */
double hl_series_median(const hl_series *series);
double hl_series_min(const hl_series *series);
double hl_series_max(const hl_series *series);
/* The median of above[i] / below[i], over the rounds that both have. */
double hl_series_ratio(const hl_series *above, const hl_series *below);

#endif
