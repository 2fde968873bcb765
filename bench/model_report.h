/* model_report.h - prints the results of the model benchmark, as text and as JSON.
 *
 * Lanes of one file, one kind of work and one length form a cell; their times are compared. */
#ifndef HL_BENCH_MODEL_REPORT_H
#define HL_BENCH_MODEL_REPORT_H

#include "headlight.h"
#include "model_work.h"
#include "series.h"

enum { HL_MODEL_MAX_LANES = 160, HL_MODEL_MAX_FILES = 24 };

typedef enum hl_runner {
    HL_RUNNER_OURS = 0,
    HL_RUNNER_ONNX, /* these four: scripts of bench/peers */
    HL_RUNNER_OPENVINO,
    HL_RUNNER_OPENVINO_BF16,
    HL_RUNNER_TORCH,
    HL_RUNNER_LLAMA, /* these two: programs like llama-bench */
    HL_RUNNER_IK,
    HL_N_RUNNERS
} hl_runner;

/* A model's file. */
typedef struct hl_model_file {
    char     path[512];
    char     label[64]; /* "llama-q4_k" */
    hl_dtype dtype;     /* of its matrices; F64: not known */
    double   products;  /* weights that every token is multiplied with, without the unembedding;
                         * 0: not known */
    long     memory_kib[HL_MATH_COUNT]; /* beyond mapped weights and cache; -1: not measured */
} hl_model_file;

typedef struct hl_model_lane {
    char                 name[96]; /* "gpt2-f32.p512.ours.f32.all" */
    const hl_model_file *file;
    hl_work_kind         kind;
    int64_t              n_tokens; /* number of tokens that are timed */
    hl_runner            runner;
    hl_math              math;     /* OURS */
    bool                 is_plain; /* OURS: without statistics */
    bool                 gave_up;  /* the runner is missing, or failed */
    bench_series         seconds;
} hl_model_lane;

typedef struct hl_model_result {
    hl_model_file files[HL_MODEL_MAX_FILES];
    int           n_files;
    hl_model_lane lanes[HL_MODEL_MAX_LANES];
    int           n_lanes;
    int           n_rounds;
    int           n_threads;
    double        busy;      /* share of the CPUs that other programs used before the start */
    bench_series  peak;      /* GFLOP/s of multiply-adds on these threads */
    bench_series  bandwidth; /* GB/s that they read from memory */
    char          peers[HL_N_RUNNERS][200]; /* names of peers, or why one is missing */
    double        errors[HL_N_RUNNERS]; /* largest difference of a peer's hidden states; or NaN */
} hl_model_result;

/* As in the names of lanes, such as "ik_llama". */
const char *hl_runner_word(hl_runner runner);

void      hl_model_report_print(const hl_model_result *result);
hl_status hl_model_report_json(const hl_model_result *result, const char *path);

#endif
