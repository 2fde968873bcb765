/* materialized.h - attention by the plain method, which builds the matrix, for comparison.
 *
 * Head by head: scores = scale Q K^T, softmax, entropy -sum p log(p + 1e-8), out = P V.  The
 * comparison is fair: only the causal half is computed, products use OpenBLAS if it is installed,
 * exp and log are vectorized, and rows run on all threads.  It needs memory for S^2 floats. */
#ifndef HL_BENCH_MATERIALIZED_H
#define HL_BENCH_MATERIALIZED_H

#include <stdint.h>

#include "headlight.h"

typedef struct hl_materialized hl_materialized;

hl_status hl_materialized_new(hl_materialized **out, int64_t n_keys, int64_t d_head);
void      hl_materialized_free(hl_materialized *work);

/* "OpenBLAS" or "plain loops": the code that multiplies the matrices. */
const char *hl_materialized_product(void);

void hl_materialized_run(hl_materialized *work, float *out, /* (n_heads, n_keys, d_head) */
                         float       *entropy,              /* (n_heads, n_keys)         */
                         const float *q, const float *k, const float *v, int64_t n_heads,
                         int n_threads);

#endif
