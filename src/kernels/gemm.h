/* gemm.h - the general matrix product, by OpenBLAS.
 *
 * On the calling thread only: threads are ours (base/threads.h), and each multiplies a panel
 * of its own.  OpenBLAS's threads beside them would halve the speed. */
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

/* Without OpenBLAS: what hl_gemm does, slowly, where there is none. */
void hl_gemm_plain(const hl_gemm_operands *operands);

/* What OpenBLAS calls the kernels that it has chosen, "SkylakeX"; "" if there is none. */
const char *hl_gemm_name(void);

#endif
