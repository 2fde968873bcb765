/* model_work.h - headlight's passes in the model benchmark, over GPT-2's shapes.
 *
 *     hl_model_work *work = NULL;
 *     hl_model_work_new(&work, "build/bench", n_threads);
 *     hl_model_work_prefill(&seconds, work, HL_DTYPE_F16, HL_PASS_ALL, 512);
 *     hl_model_work_decode(&seconds, work, HL_DTYPE_F16, 64, 64);
 *     hl_model_work_free(work);
 *
 * One sequence, weights from the files of gpt2_files.h, mapped when first used. */
#ifndef HL_BENCH_MODEL_WORK_H
#define HL_BENCH_MODEL_WORK_H

#include "headlight.h"

typedef enum hl_pass {
    HL_PASS_PLAIN = 0, /* every block and the final norm, no statistics        */
    HL_PASS_ALL,       /* like PLAIN, and every statistic of every attention row */
    /* The work of llama-bench, and every statistic.  The last block's MLP is left out, since no
     * wanted result needs it, and one row goes through the unembedding. */
    HL_PASS_LAST,
} hl_pass;

typedef struct hl_model_work hl_model_work;

hl_status hl_model_work_new(hl_model_work **out, const char *folder, int n_threads);
void      hl_model_work_free(hl_model_work *work);

/* Empties the sequence, then feeds n_tokens at once. */
hl_status hl_model_work_prefill(double *seconds, hl_model_work *work, hl_dtype dtype, hl_pass pass,
                                int64_t n_tokens);
/* Feeds n_tokens one by one, with statistics and logits of each, after n_before untimed ones. */
hl_status hl_model_work_decode(double *seconds, hl_model_work *work, hl_dtype dtype,
                               int64_t n_before, int64_t n_tokens);

/* The hidden states (n_tokens, d_model) of a prefill with f32 weights, to compare a peer's with. */
hl_status hl_model_work_hidden(float *out, hl_model_work *work, int64_t n_tokens);

/* Measures the memory of a pass with all statistics over HL_GPT2_CTX tokens in a child process: KiB
 * that are neither mapped weights nor cache, or -1.  It forks, so it must come before the first
 * parallel region. */
long hl_model_work_memory(const char *folder, hl_dtype dtype, int n_threads);

#endif
