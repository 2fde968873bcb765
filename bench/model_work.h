/* model_work.h - headlight's passes in the model benchmark.
 *
 *     hl_model_work *work = NULL;
 *     hl_model_work_new(&work, n_threads);
 *     hl_model_pass pass = { .path = "build/bench/gpt2-f16.gguf", .math = HL_MATH_F32 };
 *     hl_model_work_prefill(&seconds, work, &pass, 512);
 *     hl_model_work_decode(&seconds, work, &pass, 64, 64);
 *     hl_model_work_free(work);
 *
 * One sequence; models are mapped, and sessions opened, when first used. */
#ifndef HL_BENCH_MODEL_WORK_H
#define HL_BENCH_MODEL_WORK_H

#include "headlight.h"

typedef enum hl_work_kind {
    HL_WORK_BODY = 0, /* every block and the final norm of every row */
    /* The work of llama-bench's prompt test: the last block's MLP is left out, since no wanted
     * result needs it, and one row goes through the unembedding. */
    HL_WORK_LAST,
    HL_WORK_DECODE, /* the logits of each token */
} hl_work_kind;

typedef struct hl_model_pass {
    const char  *path;
    hl_math      math;
    hl_work_kind kind;
    bool         is_plain; /* no statistics; else all of every attention row but segment mass */
} hl_model_pass;

typedef struct hl_model_work hl_model_work;

enum { HL_WORK_CTX = 1024 };

hl_status hl_model_work_new(hl_model_work **out, int n_threads);
void      hl_model_work_free(hl_model_work *work);

/* Empties the sequence, then feeds n_tokens at once. */
hl_status hl_model_work_prefill(double *seconds, hl_model_work *work, const hl_model_pass *pass,
                                int64_t n_tokens);
/* Feeds n_tokens one by one after n_before untimed ones. */
hl_status hl_model_work_decode(double *seconds, hl_model_work *work, const hl_model_pass *pass,
                               int64_t n_before, int64_t n_tokens);

/* The hidden states (n_tokens, d_model) of a prefill, to compare a peer's with. */
hl_status hl_model_work_hidden(float *out, hl_model_work *work, const char *path, int64_t n_tokens);

/* Measures the memory of a pass with all statistics over HL_WORK_CTX tokens in a child process: KiB
 * that are neither mapped weights nor cache, or -1.  It forks, so it must come before the first
 * parallel region. */
long hl_model_work_memory(const char *path, hl_math math, int n_threads);

#endif
