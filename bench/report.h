/* report.h - prints the results of the attention benchmark, as text and as JSON. */
#ifndef HL_BENCH_REPORT_H
#define HL_BENCH_REPORT_H

#include "headlight.h"
#include "series.h"
#include "workload.h"

enum { HL_MAX_LANES = 16, HL_MAX_SIZES = 8 };

/* One line of a table: a method of doing the work. */
typedef struct hl_lane {
    hl_work      kind;
    const char  *backend; /* NULL if it is not headlight's */
    char         label[64];
    bool         gave_up; /* the peer refused, or has used its share of the time */
    bench_series seconds;
} hl_lane;

/* The multiply-add peak in GFLOP/s, sampled during the whole run; empty if the CPU lacks the
 * instruction set. */
typedef struct hl_peaks {
    bench_series avx2;
    bench_series avx512;
} hl_peaks;

typedef struct hl_size_result {
    hl_workload_shape shape;
    hl_lane           lanes[HL_MAX_LANES];
    int               n_lanes;
    int               n_rounds;
    const hl_peaks   *peaks; /* peaks of the whole run */
} hl_size_result;

typedef struct hl_bench_result {
    hl_peaks       peaks;
    hl_size_result sizes[HL_MAX_SIZES];
    int            n_sizes;
    int            n_threads;
    const char    *best;       /* the preferred back end */
    const char    *peer;       /* "PyTorch 1.13", or why it is missing */
    double         busy;       /* share of the CPUs that other programs used before the start */
    long           memory_kib; /* KiB of the longest length, beyond inputs and outputs; or -1 */
    int64_t        memory_n_keys;
} hl_bench_result;

void      hl_report_print(const hl_bench_result *result);
hl_status hl_report_json(const hl_bench_result *result, const char *path);

#endif
