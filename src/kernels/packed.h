/* packed.h - products of many rows with weights that are packed in strips, in one of three modes.
 *
 *     packed->rows(&strip, room, w, stride, n, k, HL_MATH_F32);    up to 48 rows of W
 *     packed->multiply(c, c_stride, &x, &strip);                   c (m, n) = x (m, k) times them
 *
 *     F32    x and w as they are
 *     BF16   both rounded to bf16; products in pairs, sums in f32
 *     INT8   blocks of w as bytes with their scales, x in 8 bits per block of 32 (int8.h); the
 *            products of a block are added as integers
 *
 * A result does not depend on m, nor on which rows share a call: each is one sum over the columns,
 * in order. */
#ifndef HL_KERNELS_PACKED_H
#define HL_KERNELS_PACKED_H

#include "headlight/base.h"
#include "headlight/session.h"

#define HL_STRIP 48 /* rows of W: three vectors of AVX-512 */

/* Rows of x, in the form that the mode takes. */
typedef struct hl_packed_x {
    int64_t         m;
    int64_t         stride; /* of f32 */
    const float    *f32;    /* (m, k) */
    const uint16_t *bf16;   /* (m, k), k rounded up to 2 */
    const int8_t   *q;      /* (m, k) */
    const float    *scales; /* (m, k / 32) */
    const int32_t  *sums;   /* (m, k / 16) sums of q */
} hl_packed_x;

/* Rows of W. */
typedef struct hl_strip {
    hl_math math;
    int64_t n; /* at most HL_STRIP */
    int64_t k;
    void   *values; /* (k, HL_STRIP) f32; pairs of bf16; groups of four bytes */
    int     run;    /* INT8: columns that share a scale, 16 or 32 */
    float  *scales; /* INT8: (k / 16, HL_STRIP) */
    float  *minima; /* INT8: (k / 16, HL_STRIP), or NULL */

    const float *bias; /* (n), added to every product, or NULL */
} hl_strip;

/* A back end's functions. */
typedef struct hl_packed {
    /* Whether the CPU has the instructions of a mode. */
    bool (*has)(hl_math math);
    /* Whether INT8 is for blocks of this type. */
    bool (*has_type)(hl_dtype dtype);
    /* Packs n rows of floats, `stride` apart, for F32 or BF16, at `room`. */
    void (*rows)(hl_strip *out, float *room, const float *rows, int64_t stride, int64_t n,
                 int64_t k, hl_math math);
    /* The same of a transposed matrix: column i of k begins at columns + i * stride. */
    void (*columns)(hl_strip *out, float *room, const float *columns, int64_t stride, int64_t n,
                    int64_t k, hl_math math);
    /* Packs n rows of blocks for INT8. */
    void (*blocks)(hl_strip *out, float *room, const void *const *rows, hl_dtype dtype, int64_t n,
                   int64_t k);
    /* out (k rounded up to 2) = x (k) in bf16. */
    void (*round)(uint16_t *out, const float *x, int64_t k);
    /* c (m, n), rows c_stride apart, = x times the strip. */
    void (*multiply)(float *c, int64_t c_stride, const hl_packed_x *x, const hl_strip *strip);
} hl_packed;

extern const hl_packed hl_packed_avx512;

/* The number of floats at `room` for a strip of k columns in one mode. */
static inline int64_t hl_packed_floats_of(int64_t k, hl_math math)
{
    if (math == HL_MATH_BF16)
        return (k + 1) / 2 * HL_STRIP;
    return math == HL_MATH_INT8 ? (k / 4 + 2 * (k / 16)) * HL_STRIP : k * HL_STRIP;
}

/* The same in any mode. */
static inline int64_t hl_packed_floats(int64_t k)
{
    return (k + 1) * HL_STRIP;
}

#endif
