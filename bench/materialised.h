/* materialised.h - attention the plain way, for comparison: build the matrix.
 *
 * Head by head: scores = scale Q K^T, softmax, entropy -sum p log(p + 1e-8),
 * out = P V.  This is a fair version of it, not a straw man: only the causal
 * half is computed, products go to OpenBLAS where it is installed, exp and log
 * are vectorised, and rows run on all threads.  It needs memory for S^2 floats. */
#ifndef HL_BENCH_MATERIALISED_H
#define HL_BENCH_MATERIALISED_H

#include <stdint.h>

#include "headlight.h"

typedef struct hl_materialised hl_materialised;

hl_status hl_materialised_new(hl_materialised **out, int64_t n_keys, int64_t d_head);
void      hl_materialised_free(hl_materialised *work);

/* "OpenBLAS" or "plain loops": who multiplies the matrices. */
const char *hl_materialised_product(void);

void hl_materialised_run(hl_materialised *work, float *out, /* (n_heads, n_keys, d_head) */
                         float       *entropy,              /* (n_heads, n_keys)         */
                         const float *q, const float *k, const float *v, int64_t n_heads,
                         int n_threads);

#endif
