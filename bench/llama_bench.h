/* llama_bench.h - llama.cpp's own benchmark, run as a program.
 *
 *     hl_llama_run  run;
 *     hl_llama_test test = { .model = "gpt2-f16.gguf", .n_prompt = 512,
 *                            .n_threads = 2, .n_runs = 2 };
 *     hl_llama_bench(&run, &test)
 *
 * The program is what $HEADLIGHT_LLAMA_BENCH names.  It loads the model, makes a run that
 * does not count, then n_runs that do, on its default settings: flash attention
 * where it thinks fit, keys and values in f16, batches of 512.
 *
 * What a prompt run computes: the logits of the last token alone.  The last block's MLP
 * is therefore worked out for that row only, and one row is unembedded.  A run of
 * generation computes the logits of each of its tokens. */
#ifndef HL_BENCH_LLAMA_BENCH_H
#define HL_BENCH_LLAMA_BENCH_H

#include "headlight.h"

typedef struct hl_llama_test {
    const char *model;
    int64_t     n_prompt; /* tokens at once, or */
    int64_t     n_gen;    /* tokens one by one  */
    int64_t     n_depth;  /* after so many that are not timed */
    int         n_threads;
    int         n_runs;
} hl_llama_test;

typedef struct hl_llama_run {
    double seconds;  /* the median of the runs */
    char   name[64]; /* what the program says of itself */
} hl_llama_run;

/* NULL, with the reason as the error message, where there is none. */
const char *hl_llama_bench_path(void);
hl_status   hl_llama_bench(hl_llama_run *out, const hl_llama_test *test);

#endif
