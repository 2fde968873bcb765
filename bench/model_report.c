/* model_report.c - prints tokens per second, the bars that they should reach, and JSON.
 *
 * Two comparisons: hidden states of all rows, by headlight and by ONNX Runtime; and the work of
 * llama-bench, by headlight and by llama.cpp, with the same type of weights. */
#include "model_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/status.h"

const hl_dtype hl_model_types[HL_MODEL_N_TYPES] = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_Q8_0,
                                                    HL_DTYPE_Q4_0 };

/* The lane of another runner that does the same work; NULL if it was not measured. */
static const hl_model_lane *sibling(const hl_model_result *result, const hl_model_lane *lane,
                                    hl_runner runner)
{
    for (int i = 0; i < result->n_lanes; i++) {
        const hl_model_lane *other = &result->lanes[i];

        if (other->is_decode == lane->is_decode && other->n_tokens == lane->n_tokens &&
            other->runner == runner && other->dtype == lane->dtype &&
            bench_series_measured(&other->seconds) > 0)
            return other;
    }
    return NULL;
}

/* How many times as fast as `slow` a lane is, from the rounds' ratios; NaN if one is missing. */
static double speedup(const hl_model_lane *lane, const hl_model_lane *slow)
{
    return lane != NULL && slow != NULL ? bench_series_ratio(&slow->seconds, &lane->seconds) : NAN;
}

static double tokens_a_second(const hl_model_lane *lane, double seconds)
{
    return (double)lane->n_tokens / seconds;
}

/* -------------------------------------------------------------------- tables */

static void print_comparison(const hl_model_result *result, const hl_model_lane *lane)
{
    double onnx  = speedup(lane, sibling(result, lane, HL_RUNNER_ONNX));
    double llama = speedup(lane, sibling(result, lane, HL_RUNNER_LLAMA));
    double plain = speedup(sibling(result, lane, HL_RUNNER_PLAIN), lane);

    if (lane->runner == HL_RUNNER_ALL && !isnan(plain))
        printf("  %5.3fx the time of plain", plain);
    if (lane->runner == HL_RUNNER_ALL && !isnan(onnx))
        printf("  %5.2fx ONNX Runtime", onnx);
    if (lane->runner == HL_RUNNER_LAST && !isnan(llama))
        printf("  %5.2fx llama.cpp", llama);
}

static void print_lane(const hl_model_result *result, const hl_model_lane *lane)
{
    printf("  %-24s", lane->name);
    if (bench_series_measured(&lane->seconds) == 0) {
        printf(" not measured\n");
        return;
    }
    printf("%10.1f%10.1f%10.2f", tokens_a_second(lane, bench_series_median(&lane->seconds)),
           tokens_a_second(lane, bench_series_min(&lane->seconds)),
           1e3 * bench_series_median(&lane->seconds));
    print_comparison(result, lane);
    printf("\n");
}

/* ---------------------------------------------------------------------- bars */

static void print_bar(const char *what, double seen, double limit, bool at_most)
{
    bool passed = at_most ? seen <= limit : seen >= limit;

    if (!isnan(seen))
        printf("  %-55s%8.3fx  %s %5.2fx  %s\n", what, seen, at_most ? "<=" : ">=", limit,
               passed ? "pass" : "MISS");
}

/* The bar for llama.cpp's prefill at a type of weights, or NaN. */
static double prefill_bar(hl_dtype dtype)
{
    return dtype == HL_DTYPE_F32 ? 1.25 : dtype == HL_DTYPE_F16 ? 1.1 : NAN;
}

static void print_lane_bars(const hl_model_result *result, const hl_model_lane *lane)
{
    const hl_model_lane *plain = sibling(result, lane, HL_RUNNER_PLAIN);
    const hl_model_lane *onnx  = sibling(result, lane, HL_RUNNER_ONNX);
    const hl_model_lane *llama = sibling(result, lane, HL_RUNNER_LLAMA);
    double               limit = prefill_bar(lane->dtype);
    char                 what[96];

    if (lane->runner == HL_RUNNER_ALL) {
        snprintf(what, sizeof what, "%s: the time of plain", lane->name);
        print_bar(what, speedup(plain, lane), 1.03, true);
        snprintf(what, sizeof what, "%s: the speed of ONNX Runtime", lane->name);
        print_bar(what, speedup(lane, onnx), 1.0, false);
    }
    if (lane->is_decode)
        limit = lane->dtype == HL_DTYPE_Q8_0 ? 1.15 : 1.0;
    snprintf(what, sizeof what, "%s: the speed of llama.cpp", lane->name);
    if (lane->runner == HL_RUNNER_LAST && !isnan(limit))
        print_bar(what, speedup(lane, llama), limit, false);
}

static void print_memory(const hl_model_result *result)
{
    printf("\nmemory of a pass over 1024 tokens with all statistics, beyond mapped weights and "
           "cache\n");
    for (int i = 0; i < HL_MODEL_N_TYPES; i++) {
        if (result->memory_kib[i] >= 0)
            printf("  %-24s%10.1f MiB\n", hl_dtype_name(hl_model_types[i]),
                   (double)result->memory_kib[i] / 1024.0);
    }
}

void hl_model_report_print(const hl_model_result *result)
{
    char title[64];

    printf("peer: %s\npeer: %s\n", result->onnx, result->llama);
    if (!isnan(result->onnx_error))
        printf("ONNX Runtime's hidden states differ from ours by %.2g at most\n",
               result->onnx_error);
    snprintf(title, sizeof title, "%d rounds", result->n_rounds);
    printf("\n%-26s%10s%10s%10s\n", title, "tokens/s", "at best", "ms");
    for (int i = 0; i < result->n_lanes; i++)
        print_lane(result, &result->lanes[i]);
    print_memory(result);
    printf("\nbars%59s\n", "seen");
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
    bool   some    = bench_series_measured(&lane->seconds) > 0;
    double seconds = bench_series_median(&lane->seconds);

    return json_pack("{s:s, s:I, s:o, s:o}", "name", lane->name, "n_tokens",
                     (json_int_t)lane->n_tokens, "tokens_per_s",
                     some ? json_real(tokens_a_second(lane, seconds)) : json_null(), "seconds",
                     json_series(&lane->seconds));
}

static json_t *json_memory(const hl_model_result *result)
{
    json_t *memory = json_object();

    for (int i = 0; i < HL_MODEL_N_TYPES; i++)
        json_object_set_new(memory, hl_dtype_name(hl_model_types[i]),
                            json_integer(result->memory_kib[i]));
    return memory;
}

hl_status hl_model_report_json(const hl_model_result *result, const char *path)
{
    json_t *lanes = json_array();

    for (int i = 0; i < result->n_lanes; i++)
        json_array_append_new(lanes, json_lane(&result->lanes[i]));

    json_t *root =
        json_pack("{s:s, s:s, s:i, s:i, s:f, s:s, s:s, s:o, s:o, s:o}", "bench", "model", "build",
                  hl_build_info(), "threads", result->n_threads, "rounds", result->n_rounds, "busy",
                  result->busy, "onnx", result->onnx, "llama", result->llama, "onnx_error",
                  isnan(result->onnx_error) ? json_null() : json_real(result->onnx_error),
                  "memory_kib", json_memory(result), "lanes", lanes);
    int failed = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));

    json_decref(root);
    return failed == 0 ? HL_OK : hl_fail(HL_IO, "%s: cannot be written", path);
}
