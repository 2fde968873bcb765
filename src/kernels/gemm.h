/* gemm.h - the general matrix product, by OpenBLAS.
 *
 * It runs on the calling thread only: headlight has its own threads (base/threads.h), and each
 * multiplies its own panel.  Additional threads of OpenBLAS would halve the speed. */
#ifndef HL_KERNELS_GEMM_H
#define HL_KERNELS_GEMM_H

#include "headlight/base.h"

/* C (m, n) = A (m, k) B, row-major; B is (n, k) and transposed, or (k, n). */
typedef struct hl_gemm_operands {
    float       *c;
    int64_t      c_stride;
    const float *a;
    int64_t      a_stride;
    const float *b;
    int64_t      b_stride;
    bool         b_transposed;
    int64_t      m;
    int64_t      n;
    int64_t      k;
} hl_gemm_operands;

void hl_gemm(const hl_gemm_operands *operands);

/* What hl_gemm does without OpenBLAS, slowly. */
void hl_gemm_plain(const hl_gemm_operands *operands);

/* OpenBLAS's name for the kernels that it has chosen, such as "SkylakeX"; "" without OpenBLAS. */
const char *hl_gemm_name(void);

#endif
