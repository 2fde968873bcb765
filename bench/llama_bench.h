/* llama_bench.h - llama.cpp's own benchmark, or that of ik_llama.cpp, run as a program.
 *
 *     hl_llama_run  run;
 *     hl_llama_test test = { .program = hl_llama_bench_path(false), .model = "gpt2-f16.gguf",
 *                            .n_prompt = 512, .n_threads = 2, .n_runs = 2 };
 *     hl_llama_bench(&run, &test)
 *
 * $HEADLIGHT_LLAMA_BENCH and $HEADLIGHT_IK_BENCH name the programs.  They load the model, warm up,
 * and make n_runs timed runs, with their default settings: flash attention as they choose, keys and
 * values in f16, batches of 512.  ik_llama.cpp also repacks its weights (-rtr 1).
 *
 * A prompt run computes only the logits of the last token.  So the last block's MLP is computed for
 * that row only, and one row is unembedded.  A run of generation computes the logits of each of its
 * tokens. */
#ifndef HL_BENCH_LLAMA_BENCH_H
#define HL_BENCH_LLAMA_BENCH_H

#include "headlight.h"

typedef struct hl_llama_test {
    const char *program;
    bool        is_ik;
    const char *model;
    int64_t     n_prompt; /* tokens fed at once, or 0 */
    int64_t     n_gen;    /* tokens fed one by one, or 0 */
    int64_t     n_depth;  /* untimed tokens that are fed first */
    int         n_threads;
    int         n_runs;
} hl_llama_test;

typedef struct hl_llama_run {
    double seconds;  /* the fastest of the runs */
    char   name[64]; /* the program's own name and version */
} hl_llama_run;

/* Returns the path, or NULL with the reason as the error message. */
const char *hl_llama_bench_path(bool is_ik);
hl_status   hl_llama_bench(hl_llama_run *out, const hl_llama_test *test);

#endif
