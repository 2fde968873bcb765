/* quant_ints_avx2.h - blocks of weights as signed bytes and the scales of every 16 of them.
 *
 *     w_i  =  scale[i / 16] q[i] + minimum[i / 16]
 *
 * Nearly every block type is this in a different packing, so that products of them with floats
 * (dense_blocks.h) or with 8-bit activations (int8_dot_avx2.h) are written once.  Included by these
 * two; unpack_ints is inlined into their loops, for a type that is a compile-time constant. */
#ifndef HL_KERNELS_QUANT_INTS_AVX2_H
#define HL_KERNELS_QUANT_INTS_AVX2_H

#include <immintrin.h>

#include "base/dtype.h"
#include "kernels/quant_blocks.h"

enum {
    N_INTS   = 256, /* values at most */
    INTS_RUN = 16,  /* values that share a scale */
};

typedef struct quant_ints {
    int8_t q[N_INTS] __attribute__((aligned(64)));
    float  scale[N_INTS / INTS_RUN];
    float  minimum[N_INTS / INTS_RUN]; /* written if has_minimum */
} quant_ints;

/* Whether minimum is not 0 everywhere. */
static inline bool has_minimum(hl_dtype dtype)
{
    return dtype == HL_DTYPE_Q4_1 || dtype == HL_DTYPE_Q5_1 || dtype == HL_DTYPE_Q2_K ||
           dtype == HL_DTYPE_Q4_K || dtype == HL_DTYPE_Q5_K;
}

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

typedef struct place {
    quant_ints *out;
    int         at;
} place;
#define AT(y, i) ((place){ (y).out, (y).at + (i) })

INLINE void scale16(place y, __m128i q, float d)
{
    _mm_storeu_si128((__m128i *)(void *)(y.out->q + y.at), q);
    y.out->scale[y.at / INTS_RUN] = d;
}

INLINE void affine16(place y, __m128i q, float d, float m)
{
    scale16(y, q, d);
    y.out->minimum[y.at / INTS_RUN] = m;
}

INLINE void store_twice(float *p, float value)
{
    _mm_storel_pi((__m64 *)(void *)p, _mm_set1_ps(value));
}

INLINE void scale32(place y, __m256i q, float d)
{
    _mm256_storeu_si256((__m256i *)(void *)(y.out->q + y.at), q);
    store_twice(y.out->scale + y.at / INTS_RUN, d);
}

INLINE void affine32(place y, __m256i q, float d, float m)
{
    scale32(y, q, d);
    store_twice(y.out->minimum + y.at / INTS_RUN, m);
}

#include "kernels/quant_decoders_avx2.h"

/* The two types of codes into a book of 16; quant_books.h has them for floats. */
static const int8_t iq4_values[16] = HL_IQ4_VALUES;
static const int8_t fp4_values[16] = HL_FP4_VALUES;

INLINE void decode_iq4_nl(place y, const uint8_t *b)
{
    decode_nibbles(y, b + 2, iq4_values, f16_at(b));
}

INLINE void decode_mxfp4(place y, const uint8_t *b)
{
    decode_nibbles(y, b + 1, fp4_values, hl_e8m0_half(b[0]));
}

INLINE void decode_iq4_xs(place y, const uint8_t *b)
{
    float    d        = f16_at(b);
    uint16_t scales_h = hl_read_u16(b + 2);

    for (int s = 0; s < 8; s++) {
        int low  = b[4 + s / 2] >> (s % 2 * 4) & 15;
        int high = scales_h >> (2 * s) & 3;
        decode_nibbles(AT(y, 32 * s), b + 8 + 16 * s, iq4_values,
                       d * (float)((low | high << 4) - 32));
    }
}

/* X(type, TYPE, values, bytes) for the types above. */
#define HL_EACH_TYPE_OF_INTS(X)                                                                    \
    X(q4_0, Q4_0, 32, 18)                                                                          \
    X(q4_1, Q4_1, 32, 20)                                                                          \
    X(q5_0, Q5_0, 32, 22)                                                                          \
    X(q5_1, Q5_1, 32, 24)                                                                          \
    X(q8_0, Q8_0, 32, 34)                                                                          \
    X(q2_k, Q2_K, 256, 84)                                                                         \
    X(q3_k, Q3_K, 256, 110)                                                                        \
    X(q4_k, Q4_K, 256, 144)                                                                        \
    X(q5_k, Q5_K, 256, 176)                                                                        \
    X(q6_k, Q6_K, 256, 210)                                                                        \
    X(iq4_nl, IQ4_NL, 32, 18)                                                                      \
    X(iq4_xs, IQ4_XS, 256, 136)                                                                    \
    X(tq1_0, TQ1_0, 256, 54)                                                                       \
    X(tq2_0, TQ2_0, 256, 66)                                                                       \
    X(mxfp4, MXFP4, 32, 17)

/* Unpacks n_blocks blocks, of N_INTS values at most. */
INLINE void unpack_ints(quant_ints *out, hl_dtype dtype, const uint8_t *b, int n_blocks)
{
#define UNPACK_CASE(type, TYPE, n_values, n_bytes)                                                 \
    case HL_DTYPE_##TYPE:                                                                          \
        for (int i = 0; i < n_blocks; i++)                                                         \
            decode_##type((place){ out, i * (n_values) }, b + i * (n_bytes));                      \
        break;

    switch (dtype) {
        HL_EACH_TYPE_OF_INTS(UNPACK_CASE)
    default:
        break;
    }
#undef UNPACK_CASE
}

#endif
