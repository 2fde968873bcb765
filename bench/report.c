/* report.c - prints tables, the bars that the results should reach, and JSON.
 *
 * A share of the peak is a ratio of medians: both were sampled during the whole run, in turns, so
 * that other load slows both.  The best peak of the run is also printed, and the share of it next
 * to the bar: on an idle machine the two agree. */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"

/* Returns NULL if the lane was not measured. */
static const hl_lane *find_lane(const hl_size_result *size, hl_work kind, const char *backend)
{
    for (int i = 0; i < size->n_lanes; i++) {
        const hl_lane *lane = &size->lanes[i];
        bool same = lane->backend == backend || (lane->backend != NULL && backend != NULL &&
                                                 strcmp(lane->backend, backend) == 0);
        if (lane->kind == kind && same && bench_series_measured(&lane->seconds) > 0)
            return lane;
    }
    return NULL;
}

/* One lane's time divided by another's, from the rounds' ratios; NaN if one is missing. */
static double ratio(const hl_size_result *size, hl_work above, const char *above_backend,
                    hl_work below, const char *below_backend)
{
    const hl_lane *a = find_lane(size, above, above_backend);
    const hl_lane *b = find_lane(size, below, below_backend);

    return a != NULL && b != NULL ? bench_series_ratio(&a->seconds, &b->seconds) : NAN;
}

static double gflops(const hl_size_result *size, const hl_lane *lane)
{
    return hl_workload_flops(size->shape) * 1e-9 / bench_series_median(&lane->seconds);
}

/* The peak of the lane's own instruction set, or NULL. */
static const bench_series *peak_of(const hl_size_result *size, const hl_lane *lane)
{
    const char *backend = lane != NULL && lane->backend != NULL ? lane->backend : "";

    if (strcmp(backend, "avx2") == 0)
        return &size->peaks->avx2;
    return strcmp(backend, "avx512") == 0 ? &size->peaks->avx512 : NULL;
}

static double share_of_peak(const hl_size_result *size, const hl_lane *lane)
{
    const bench_series *peak = peak_of(size, lane);

    return peak != NULL ? gflops(size, lane) / bench_series_median(peak) : NAN;
}

/* -------------------------------------------------------------------- tables */

/* Prints the comparison that belongs to a line: "  1.04x none", "  31.2x ours". */
static void print_comparison(const hl_size_result *size, const hl_lane *lane)
{
    const char *ours = size->lanes[0].backend;

    switch (lane->kind) {
    case HL_WORK_SHANNON:
    case HL_WORK_ALL:
        printf("  %5.3fx out only",
               ratio(size, lane->kind, lane->backend, HL_WORK_NONE, lane->backend));
        break;
    case HL_WORK_BACKWARD:
        printf("  %5.2fx forward with all",
               ratio(size, lane->kind, lane->backend, HL_WORK_ALL, lane->backend));
        break;
    case HL_WORK_MATERIALIZED:
    case HL_WORK_PEER:
    case HL_WORK_PEER_FUSED:
        printf("  %5.1fx ours with all", ratio(size, lane->kind, NULL, HL_WORK_ALL, ours));
        break;
    default:
        break;
    }
}

static void print_lane(const hl_size_result *size, const hl_lane *lane)
{
    double share = share_of_peak(size, lane);

    printf("  %-31s", lane->label);
    if (bench_series_measured(&lane->seconds) == 0) {
        printf(" not measured\n");
        return;
    }
    printf("%9.2f%9.2f", 1e3 * bench_series_median(&lane->seconds),
           1e3 * bench_series_min(&lane->seconds));
    if (lane->kind == HL_WORK_BACKWARD)
        printf("%9s%7s", "", "");
    else if (isnan(share))
        printf("%9.1f%7s", gflops(size, lane), "");
    else
        printf("%9.1f%6.0f%%", gflops(size, lane), 100.0 * share);
    print_comparison(size, lane);
    printf("\n");
}

static void print_size(const hl_size_result *size)
{
    char title[64];

    snprintf(title, sizeof title, "S = %lld, %d rounds", (long long)size->shape.n_keys,
             size->n_rounds);
    printf("\n%-33s%9s%9s%9s%7s\n", title, "ms", "least", "GFLOP/s", "peak");
    for (int i = 0; i < size->n_lanes; i++)
        print_lane(size, &size->lanes[i]);
}

static void print_peak(const char *name, const bench_series *peak)
{
    if (peak->count > 0)
        printf("FMA peak, %-6s  %7.1f GFLOP/s at best, %.1f in the median of %zu\n", name,
               bench_series_max(peak), bench_series_median(peak), peak->count);
}

/* ---------------------------------------------------------------------- bars */

static void print_bar(const char *what, double seen, double limit, bool at_most, const char *unit)
{
    bool passed = at_most ? seen <= limit : seen >= limit;

    if (isnan(seen))
        return;
    printf("  %-55s%8.2f%-2s %s %5.2f%-2s %s\n", what, seen, unit, at_most ? "<=" : ">=", limit,
           unit, passed ? "pass" : "MISS");
}

static void print_backend_bars(const hl_size_result *size, const char *backend)
{
    char what[96];
    long S = (long)size->shape.n_keys;

    snprintf(what, sizeof what, "S %-5ld %-6s all statistics over out only", S, backend);
    print_bar(what, ratio(size, HL_WORK_ALL, backend, HL_WORK_NONE, backend), 1.05, true, "x");
    snprintf(what, sizeof what, "S %-5ld %-6s backward over forward with all", S, backend);
    print_bar(what, ratio(size, HL_WORK_BACKWARD, backend, HL_WORK_ALL, backend), 3.5, true, "x");
}

static void print_share_bar(const hl_size_result *size, hl_work kind, const char *what)
{
    char                text[96];
    const hl_lane      *lane = find_lane(size, kind, "avx2");
    const bench_series *peak = peak_of(size, lane);

    if (peak == NULL)
        return;
    snprintf(text, sizeof text, "S %-5ld avx2   %s, of the peak (%.0f%% of the best)",
             (long)size->shape.n_keys, what, 100.0 * gflops(size, lane) / bench_series_max(peak));
    print_bar(text, 100.0 * share_of_peak(size, lane), 60.0, false, "%");
}

static bool has_lane(const hl_size_result *size, hl_work kind)
{
    for (int i = 0; i < size->n_lanes; i++) {
        if (size->lanes[i].kind == kind)
            return true;
    }
    return false;
}

static void print_size_bars(const hl_size_result *size, const char *best)
{
    char what[96];
    long S = (long)size->shape.n_keys;

    print_backend_bars(size, best);
    if (strcmp(best, "avx2") != 0)
        print_backend_bars(size, "avx2");
    print_share_bar(size, HL_WORK_NONE, "out only");
    print_share_bar(size, HL_WORK_ALL, "all statistics");
    snprintf(what, sizeof what, "S %-5ld %-6s PyTorch over all statistics", S, best);
    if (S == 4096)
        print_bar(what, ratio(size, HL_WORK_PEER, NULL, HL_WORK_ALL, best), 12.0, false, "x");
    snprintf(what, sizeof what, "S %-5ld %-6s PyTorch's SDPA over all statistics", S, best);
    if (has_lane(size, HL_WORK_PEER_FUSED))
        print_bar(what, ratio(size, HL_WORK_PEER_FUSED, NULL, HL_WORK_ALL, best), 1.0, false, "x");
}

static void print_bars(const hl_bench_result *result)
{
    char what[96];

    printf("\nbars%61s\n", "seen");
    for (int i = 0; i < result->n_sizes; i++)
        print_size_bars(&result->sizes[i], result->best);
    snprintf(what, sizeof what, "S %lld, one head: MiB beyond inputs and outputs",
             (long long)result->memory_n_keys);
    if (result->memory_kib >= 0)
        print_bar(what, (double)result->memory_kib / 1024.0, 64.0, true, "");
}

void hl_report_print(const hl_bench_result *result)
{
    printf("\n");
    print_peak("avx2", &result->peaks.avx2);
    print_peak("avx512", &result->peaks.avx512);
    for (int i = 0; i < result->n_sizes; i++)
        print_size(&result->sizes[i]);
    print_bars(result);
}

/* ---------------------------------------------------------------------- JSON */

static json_t *json_series(const bench_series *series)
{
    json_t *numbers = json_array();

    for (size_t i = 0; i < series->count; i++)
        json_array_append_new(numbers, isnan(series->values[i]) ? json_null()
                                                                : json_real(series->values[i]));
    return numbers;
}

static json_t *json_lane(const hl_size_result *size, const hl_lane *lane)
{
    double share = share_of_peak(size, lane);
    bool   some  = bench_series_measured(&lane->seconds) > 0;

    return json_pack("{s:s, s:o, s:o, s:o, s:o}", "name", lane->label, "median_s",
                     some ? json_real(bench_series_median(&lane->seconds)) : json_null(), "gflops",
                     some ? json_real(gflops(size, lane)) : json_null(), "share_of_peak",
                     isnan(share) ? json_null() : json_real(share), "seconds",
                     json_series(&lane->seconds));
}

static json_t *json_size(const hl_size_result *size)
{
    json_t *lanes = json_array();

    for (int i = 0; i < size->n_lanes; i++)
        json_array_append_new(lanes, json_lane(size, &size->lanes[i]));
    return json_pack("{s:I, s:I, s:I, s:i, s:o}", "n_keys", (json_int_t)size->shape.n_keys,
                     "n_heads", (json_int_t)size->shape.n_heads, "d_head",
                     (json_int_t)size->shape.d_head, "rounds", size->n_rounds, "lanes", lanes);
}

hl_status hl_report_json(const hl_bench_result *result, const char *path)
{
    json_t *sizes = json_array();

    for (int i = 0; i < result->n_sizes; i++)
        json_array_append_new(sizes, json_size(&result->sizes[i]));

    json_t *root = json_pack(
        "{s:s, s:s, s:i, s:f, s:s, s:I, s:I, s:o, s:o, s:o}", "bench", "attention", "build",
        hl_build_info(), "threads", result->n_threads, "busy", result->busy, "peer", result->peer,
        "memory_n_keys", (json_int_t)result->memory_n_keys, "memory_kib",
        (json_int_t)result->memory_kib, "peak_avx2_gflops", json_series(&result->peaks.avx2),
        "peak_avx512_gflops", json_series(&result->peaks.avx512), "sizes", sizes);
    int failed = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));

    json_decref(root);
    return failed == 0 ? HL_OK : hl_fail(HL_IO, "%s: cannot be written", path);
}
