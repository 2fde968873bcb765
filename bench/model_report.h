/* model_report.h - prints the results of the model benchmark, as text and as JSON. */
#ifndef HL_BENCH_MODEL_REPORT_H
#define HL_BENCH_MODEL_REPORT_H

#include "headlight.h"
#include "series.h"

enum { HL_MODEL_MAX_LANES = 48, HL_MODEL_N_TYPES = 4 };

typedef enum hl_runner {
    HL_RUNNER_PLAIN = 0, /* headlight, hidden states and no statistics */
    HL_RUNNER_ALL,       /* headlight, hidden states and all statistics */
    HL_RUNNER_LAST,      /* headlight, all statistics and llama-bench's work */
    HL_RUNNER_ONNX,
    HL_RUNNER_LLAMA,
} hl_runner;

/* One line of a table: a runner and a task, with weights of one type. */
typedef struct hl_model_lane {
    char         name[48]; /* "p512.ours.f32.all" */
    bool         is_decode;
    int64_t      n_tokens; /* number of tokens that are timed */
    hl_runner    runner;
    hl_dtype     dtype;
    bool         gave_up; /* the runner is missing, or failed */
    bench_series seconds;
} hl_model_lane;

typedef struct hl_model_result {
    hl_model_lane lanes[HL_MODEL_MAX_LANES];
    int           n_lanes;
    int           n_rounds;
    int           n_threads;
    double        busy;       /* share of the CPUs that other programs used before the start */
    char          onnx[200];  /* ONNX Runtime's name, or why it is missing */
    char          llama[200]; /* llama.cpp's name, or why it is missing */
    double        onnx_error; /* largest difference of ONNX Runtime's hidden states from
                               * headlight's; or NaN */
    long          memory_kib[HL_MODEL_N_TYPES]; /* KiB beyond weights and cache; or -1 */
} hl_model_result;

/* The types of weights, in the order of memory_kib: F32, F16, Q8_0, Q4_0. */
extern const hl_dtype hl_model_types[HL_MODEL_N_TYPES];

void      hl_model_report_print(const hl_model_result *result);
hl_status hl_model_report_json(const hl_model_result *result, const char *path);

#endif
