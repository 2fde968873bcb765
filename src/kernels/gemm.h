/* gemm.h - the general matrix product, and Cholesky's factors, by OpenBLAS.
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

/* C (m, n) += A' B or A B in double, row-major: A is (k, m) and transposed, or (m, k); B is (k, n). */
typedef struct hl_gemm_sum {
    double       *c;
    int64_t       c_stride;
    const double *a;
    int64_t       a_stride;
    bool          a_transposed;
    const double *b;
    int64_t       b_stride;
    int64_t       m;
    int64_t       n;
    int64_t       k;
    double        factor; /* of A B */
} hl_gemm_sum;

/* Is OpenBLAS here, with the double products below and the parts of LAPACK that it comes with?
 * HL_UNSUPPORTED if it is not; without it none of the next calls may be made. */
hl_status hl_lapack_check(void);
void      hl_gemm_add(const hl_gemm_sum *operands);
/* The Cholesky factor of a symmetric matrix (n, n), of which the lower triangle (row-major) is read
 * and overwritten.  HL_BAD_INPUT if it is not positive definite. */
hl_status hl_cholesky_factor(double *a, int64_t n);
/* X A = B, row by row: x (n_rows, n) holds B and then X; `factor` is hl_cholesky_factor's. */
void hl_cholesky_solve(double *x, int64_t n_rows, const double *factor, int64_t n);
/* The lower triangle of the inverse of A in the place of its factor. */
hl_status hl_cholesky_invert(double *factor, int64_t n);

/* OpenBLAS's name for the kernels that it has chosen, such as "SkylakeX"; "" without OpenBLAS. */
const char *hl_gemm_name(void);

#endif
