/* int8.h - products of stored blocks with activations of 8 bits.
 *
 *     hl_int8_quantize(q, scales, sums, x, n);
 *     hl_int8_dot_avx2(&(hl_int8_dot){ ... });
 *
 * Blocks hold small integers.  If x holds small integers too, 32 products and their sum take one or
 * two instructions instead of twelve.  This costs precision: each value of x keeps 8 bits, relative
 * to the largest of its 32.  linear.h uses it only if a session asks for it.
 *
 *     x_i  =  scale_{i/32} q_i,  q_i in -127 .. 127
 *
 * The scalar version adds decoded weights times these x, in double; the others add
 * integers, which is exact, and round a few floats. */
#ifndef HL_KERNELS_INT8_H
#define HL_KERNELS_INT8_H

#include "headlight/base.h"

#define HL_INT8_BLOCK 32
#define HL_INT8_RUN   16 /* values with a sum of their own */

/* Like hl_dot of dense.h, for the types of hl_int8_has. */
typedef struct hl_int8_dot {
    float             *out;
    int64_t            out_stride;
    const int8_t      *q;      /* (n_rows, n) */
    const float       *scales; /* (n_rows, n / 32) */
    const float       *sums;   /* (n_rows, n / 32) scale * (q_0 + ... + q_31) */
    int64_t            n_rows;
    const void *const *w; /* (n_weights), each (n) of dtype */
    hl_dtype           dtype;
    int64_t            n_weights;
    int64_t            n;
} hl_int8_dot;

/* Blocks of 3 to 8 bits whose minima, if any, belong to 32 values. */
bool hl_int8_has(hl_dtype dtype);

/* n is a multiple of 32; run_sums is (n / 16) sums of q.  A non-finite value makes the scale of its
 * block NaN. */
void hl_int8_quantize(int8_t *q, float *scales, float *sums, int32_t *run_sums, const float *x,
                      int64_t n);

void hl_int8_dot_scalar(const hl_int8_dot *dot);
/* The AVX-512 version is int8_dot_avx512.h if the CPU has VNNI, otherwise the code for AVX2. */
void hl_int8_dot_avx2(const hl_int8_dot *dot);
void hl_int8_dot_avx512(const hl_int8_dot *dot);

#endif
