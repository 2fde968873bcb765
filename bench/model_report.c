/* model_report.c - prints tokens per second, the bars that they should reach, and JSON. */
#include "model_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/machine.h"
#include "base/status.h"

static bool is_measured(const hl_model_lane *lane)
{
    return bench_series_measured(&lane->seconds) > 0;
}

static bool same_cell(const hl_model_lane *a, const hl_model_lane *b)
{
    return a->file == b->file && a->kind == b->kind && a->n_tokens == b->n_tokens;
}

/* Our lane of the same mode without statistics; NULL if it was not measured. */
static const hl_model_lane *plain_of(const hl_model_result *result, const hl_model_lane *lane)
{
    for (int i = 0; i < result->n_lanes; i++) {
        const hl_model_lane *other = &result->lanes[i];

        if (same_cell(lane, other) && other->runner == HL_RUNNER_OURS && other->is_plain &&
            other->math == lane->math && is_measured(other))
            return other;
    }
    return NULL;
}

/* bf16 of one program is compared with bf16 of another, and f32 with f32. */
static bool is_peer_of(const hl_model_lane *lane, const hl_model_lane *other)
{
    if (!same_cell(lane, other) || other->runner == HL_RUNNER_OURS || !is_measured(other))
        return false;
    return lane->kind != HL_WORK_BODY ||
           (lane->math == HL_MATH_BF16) == (other->runner == HL_RUNNER_OPENVINO_BF16);
}

/* The fastest peer of a lane, by medians; NULL if there is none. */
static const hl_model_lane *best_peer(const hl_model_result *result, const hl_model_lane *lane)
{
    const hl_model_lane *best = NULL;

    for (int i = 0; i < result->n_lanes; i++) {
        const hl_model_lane *other = &result->lanes[i];

        if (is_peer_of(lane, other) && (best == NULL || bench_series_median(&other->seconds) <
                                                            bench_series_median(&best->seconds)))
            best = other;
    }
    return best;
}

const char *hl_runner_word(hl_runner runner)
{
    static const char *const words[] = { "ours",  "onnx",  "openvino", "openvino-bf16",
                                         "torch", "llama", "ik_llama" };
    return words[runner];
}

static double tokens_a_second(const hl_model_lane *lane, double seconds)
{
    return (double)lane->n_tokens / seconds;
}

/* The share of the peak rate of multiply-adds, counting products with weights only; NaN: unknown. */
static double share_of_peak(const hl_model_result *result, const hl_model_lane *lane)
{
    if (lane->file->products <= 0.0 || lane->kind == HL_WORK_DECODE)
        return NAN;
    return 2e-9 * lane->file->products *
           tokens_a_second(lane, bench_series_median(&lane->seconds)) /
           bench_series_median(&result->peak);
}

/* -------------------------------------------------------------------- tables */

static void print_lane(const hl_model_result *result, const hl_model_lane *lane)
{
    const hl_model_lane *plain = plain_of(result, lane), *peer = best_peer(result, lane);

    printf("  %-38s", lane->name);
    if (!is_measured(lane)) {
        printf(" not measured\n");
        return;
    }
    printf("%9.1f%9.1f%10.2f", tokens_a_second(lane, bench_series_median(&lane->seconds)),
           tokens_a_second(lane, bench_series_min(&lane->seconds)),
           1e3 * bench_series_median(&lane->seconds));
    if (lane->runner == HL_RUNNER_OURS && peer != NULL)
        printf("  %5.2fx %s", bench_series_ratio(&peer->seconds, &lane->seconds),
               hl_runner_word(peer->runner));
    if (lane->runner == HL_RUNNER_OURS && plain != NULL && plain != lane)
        printf("  %5.3fx the time of plain", bench_series_ratio(&lane->seconds, &plain->seconds));
    if (lane->runner == HL_RUNNER_OURS && !isnan(share_of_peak(result, lane)))
        printf("  %4.2f of the peak", share_of_peak(result, lane));
    printf("\n");
}

/* ---------------------------------------------------------------------- bars */

static void print_bar(const hl_model_lane *lane, const char *what, double seen, double limit,
                      bool at_most)
{
    char name[160];

    snprintf(name, sizeof name, "%s: %s", lane->name, what);
    printf("  %-68s%8.3f  %s %5.2f  %s\n", name, seen, at_most ? "<=" : ">=", limit,
           (at_most ? seen <= limit : seen >= limit) ? "pass" : "MISS");
}

static bool is_block(const hl_model_lane *lane)
{
    return lane->file->dtype == HL_DTYPE_F64 || hl_dtype_is_block(lane->file->dtype);
}

/* The speed relative to the best peer that a lane should reach; NaN: none.  Peers multiply blocks
 * in 8 bits. */
static double peer_bar(const hl_model_lane *lane)
{
    if (lane->kind == HL_WORK_BODY)
        return lane->math == HL_MATH_BF16 ? 1.0 : 1.05;
    if (is_block(lane))
        return lane->math == HL_MATH_INT8 ? 1.0 : NAN;
    return lane->math == HL_MATH_F32 && lane->kind == HL_WORK_DECODE ? 0.9 : NAN;
}

static void print_lane_bars(const hl_model_result *result, const hl_model_lane *lane)
{
    const hl_model_lane *plain = plain_of(result, lane), *peer = best_peer(result, lane);
    double               limit = peer_bar(lane), share = share_of_peak(result, lane);
    char                 what[64];

    if (lane->runner != HL_RUNNER_OURS || lane->is_plain || !is_measured(lane))
        return;
    if (plain != NULL)
        print_bar(lane, "time / plain", bench_series_ratio(&lane->seconds, &plain->seconds), 1.03,
                  true);
    if (peer != NULL && !isnan(limit)) {
        snprintf(what, sizeof what, "speed / %s", hl_runner_word(peer->runner));
        print_bar(lane, what, bench_series_ratio(&peer->seconds, &lane->seconds), limit, false);
    }
    if (is_block(lane) && lane->math == HL_MATH_F32 && !isnan(share))
        print_bar(lane, "share of the peak", share, 0.9, false);
}

static void print_memory(const hl_model_result *result)
{
    printf("\nMiB of a pass over %d tokens with all statistics, beyond mapped weights and cache\n",
           HL_WORK_CTX);
    for (int i = 0; i < result->n_files; i++) {
        const hl_model_file *file = &result->files[i];
        bool                 some = false;

        for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++)
            some = some || file->memory_kib[math] >= 0;
        if (some)
            printf("  %-24s", file->label);
        for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++) {
            if (file->memory_kib[math] >= 0)
                printf("  %s %6.1f", hl_math_name((hl_math)math),
                       (double)file->memory_kib[math] / 1024.0);
        }
        printf("%s", some ? "\n" : "");
    }
}

void hl_model_report_print(const hl_model_result *result)
{
    char title[64];

    for (int i = 1; i < HL_N_RUNNERS; i++) {
        printf("peer %-13s: %s", hl_runner_word((hl_runner)i), result->peers[i]);
        if (!isnan(result->errors[i]))
            printf("; hidden states differ from ours by %.2g at most", result->errors[i]);
        printf("\n");
    }
    printf("machine: %.0f GFLOP/s of multiply-adds, %.1f GB/s of memory\n",
           bench_series_median(&result->peak), bench_series_median(&result->bandwidth));
    snprintf(title, sizeof title, "%d rounds", result->n_rounds);
    printf("\n%-40s%9s%9s%10s\n", title, "tokens/s", "at best", "ms");
    for (int i = 0; i < result->n_lanes; i++)
        print_lane(result, &result->lanes[i]);
    print_memory(result);
    printf("\nbars\n");
    for (int i = 0; i < result->n_lanes; i++)
        print_lane_bars(result, &result->lanes[i]);
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

static json_t *json_lane(const hl_model_lane *lane)
{
    double seconds = bench_series_median(&lane->seconds);

    return json_pack("{s:s, s:I, s:o, s:o}", "name", lane->name, "n_tokens",
                     (json_int_t)lane->n_tokens, "tokens_per_s",
                     is_measured(lane) ? json_real(tokens_a_second(lane, seconds)) : json_null(),
                     "seconds", json_series(&lane->seconds));
}

static json_t *json_peers(const hl_model_result *result)
{
    json_t *peers = json_object();

    for (int i = 1; i < HL_N_RUNNERS; i++)
        json_object_set_new(peers, hl_runner_word((hl_runner)i), json_string(result->peers[i]));
    return peers;
}

static json_t *json_memory(const hl_model_result *result)
{
    json_t *memory = json_object();

    for (int i = 0; i < result->n_files; i++) {
        json_t *file = json_object();
        for (int math = HL_MATH_F32; math < HL_MATH_COUNT; math++) {
            if (result->files[i].memory_kib[math] >= 0)
                json_object_set_new(file, hl_math_name((hl_math)math),
                                    json_integer(result->files[i].memory_kib[math]));
        }
        json_object_set_new(memory, result->files[i].label, file);
    }
    return memory;
}

hl_status hl_model_report_json(const hl_model_result *result, const char *path)
{
    json_t *lanes = json_array();

    for (int i = 0; i < result->n_lanes; i++)
        json_array_append_new(lanes, json_lane(&result->lanes[i]));

    json_t *root   = json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:o, s:o, s:o, s:o, s:o}", "bench",
                               "model", "build", hl_build_info(), "cpu", hl_cpu_features()->name,
                               "threads", result->n_threads, "rounds", result->n_rounds, "busy",
                               result->busy, "peak_gflops", json_series(&result->peak),
                               "memory_gb_per_s", json_series(&result->bandwidth), "peers",
                               json_peers(result), "memory_kib", json_memory(result), "lanes", lanes);
    int     failed = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));

    json_decref(root);
    return failed == 0 ? HL_OK : hl_fail(HL_IO, "%s: cannot be written", path);
}
