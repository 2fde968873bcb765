/* int8_dot_avx2.h - hl_int8_dot in vectors of 32 bytes.
 *
 * Included by kernels_avx2.c, and by kernels_avx512.c with INT8_VNNI: one instruction then
 * multiplies unsigned by signed bytes and adds groups of four to 32-bit lanes.
 * A block's q is unsigned, less a constant c:
 *
 *     sum (u - c) q  =  sum u q  -  c sum q
 *
 * and the second sum is the same for all rows of W, so that they start from it.  c is a power of
 * two.  One row of x reads one row of W after the other, as in dense_products.h (two of Q4_0, whose
 * sums would wait for each other); more rows of x read four side by side, and share unpacked values
 * of Q8_0 and Q4_0.  Other types are unpacked to bytes first.  A row's result does not depend on the
 * others. */
#ifndef HL_KERNELS_INT8_DOT_AVX2_H
#define HL_KERNELS_INT8_DOT_AVX2_H

#include <immintrin.h>

#include "kernels/int8.h"
#include "kernels/quant_blocks.h"

#ifdef INT8_VNNI
#define TARGET __attribute__((target("avx512vnni")))
#else
#define TARGET
#endif
#define INLINE static inline __attribute__((always_inline)) TARGET

#include "kernels/quant_ints_avx2.h"

enum {
    WEIGHTS    = 4,
    INT8_AHEAD = 4096, /* bytes that are read ahead of a row in bytes */
#ifdef INT8_VNNI
    ROWS = 4, /* rows of x at a time: there are 32 registers */
#else
    ROWS = 2,
#endif
};

/* ------------------------------------------------------------- small pieces */

INLINE __m256i load_bytes(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* sums + groups of four of u (unsigned) times s.  u times |s| must be below 2^14. */
INLINE __m256i add_products(__m256i sums, __m256i u, __m256i s)
{
#ifdef INT8_VNNI
    return _mm256_dpbusd_epi32(sums, u, s);
#else
    __m256i pairs = _mm256_maddubs_epi16(u, s);
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

/* The start of the sums of all rows of W: -2^shift times the sum of q, in groups of four. */
INLINE __m256i start_of(__m256i q, int shift)
{
    __m256i sums = add_products(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
    return _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(sums, shift));
}

/* scale * (the f16 at `offset` of each row's block). */
INLINE void load_scales(float out[WEIGHTS], const uint8_t *const *b, int offset, int n_weights,
                        float scale)
{
    uint64_t halves = 0;

    for (int j = 0; j < n_weights; j++)
        halves |= (uint64_t)hl_read_u16(b[j] + offset) << (16 * j);
    __m128 values = _mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves));
    _mm_storeu_ps(out, _mm_mul_ps(values, _mm_set1_ps(scale)));
}

/* sums + scale * (integers). */
INLINE __m256 add_scaled(__m256 sums, float scale, __m256i integers)
{
    return _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(integers), sums);
}

/* The total is computed in double, as in the other products. */
INLINE float sum_lanes(__m256 a)
{
    __m256d four = _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a)),
                                 _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    __m128d two  = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return (float)_mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* One row of x, starting at some block. */
typedef struct x_block {
    const int8_t *q;
    const float  *scales;
    const float  *sums;
} x_block;

typedef __m256 block_sums[ROWS][WEIGHTS];

/* ---------------------------------------------------------------- the blocks */

/* Signed bytes become unsigned.  With VNNI, 128 is added to them.  Otherwise their sign moves to q,
 * since pairs of products must fit in 16 bits. */
INLINE void add_q8_0(block_sums sums, const x_block *x, int n_x, const uint8_t *const *b,
                     int n_weights)
{
    __m256i q[ROWS], start[ROWS];
    float   scales[ROWS][WEIGHTS];

    for (int r = 0; r < n_x; r++) {
        q[r] = load_bytes(x[r].q);
        load_scales(scales[r], b, 0, n_weights, x[r].scales[0]);
#ifdef INT8_VNNI
        start[r] = start_of(q[r], 7);
#else
        start[r] = _mm256_setzero_si256();
#endif
    }
    for (int j = 0; j < n_weights; j++) {
        __m256i w = load_bytes(b[j] + 2);
#ifdef INT8_VNNI
        __m256i u = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
#else
        __m256i u = _mm256_abs_epi8(w);
#endif
        for (int r = 0; r < n_x; r++) {
#ifdef INT8_VNNI
            __m256i s = q[r];
#else
            __m256i s = _mm256_sign_epi8(q[r], w);
#endif
            sums[r][j] = add_scaled(sums[r][j], scales[r][j], add_products(start[r], u, s));
        }
    }
}

INLINE void add_q4_0(block_sums sums, const x_block *x, int n_x, const uint8_t *const *b,
                     int n_weights)
{
    __m256i q[ROWS], start[ROWS];
    float   scales[ROWS][WEIGHTS];

    for (int r = 0; r < n_x; r++) {
        q[r]     = load_bytes(x[r].q);
        start[r] = start_of(q[r], 3);
        load_scales(scales[r], b, 0, n_weights, x[r].scales[0]);
    }
    for (int j = 0; j < n_weights; j++) {
        __m256i u = nibbles(b[j] + 2);
        for (int r = 0; r < n_x; r++)
            sums[r][j] = add_scaled(sums[r][j], scales[r][j], add_products(start[r], u, q[r]));
    }
}

/* Eight 6-bit scales and eight minima; see quant_blocks.h. */
INLINE void unpack_k_scales(__m256 *scales, __m256 *minima, const uint8_t *packed)
{
    uint32_t low    = hl_read_u32(packed);
    uint32_t middle = hl_read_u32(packed + 4);
    uint32_t high   = hl_read_u32(packed + 8);
    uint64_t first  = (low & 0x3f3f3f3f) | (uint64_t)((high & 0x0f0f0f0f) | (low >> 2 & 0x30303030))
                                              << 32;
    uint64_t second = (middle & 0x3f3f3f3f) |
                      (uint64_t)((high >> 4 & 0x0f0f0f0f) | (middle >> 2 & 0x30303030)) << 32;

    *scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)first)));
    *minima = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)second)));
}

INLINE void add_q4_k(__m256 *sums, const x_block *x, const uint8_t *const *b, int n_weights)
{
    float d[WEIGHTS], d_min[WEIGHTS];

    load_scales(d, b, 0, n_weights, 1.0f);
    load_scales(d_min, b, 2, n_weights, -1.0f);
    for (int j = 0; j < n_weights; j++) {
        __m256 scale, minimum, part = _mm256_setzero_ps();
        float  scales[8];

        unpack_k_scales(&scale, &minimum, b[j] + 4);
        _mm256_storeu_ps(scales, _mm256_mul_ps(scale, _mm256_loadu_ps(x->scales)));
        for (int s = 0; s < 8; s += 2) {
            const __m256i mask  = _mm256_set1_epi8(15);
            __m256i       bytes = load_bytes(b[j] + 16 + 16 * s);
            __m256i       low   = _mm256_and_si256(bytes, mask);
            __m256i       high  = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
            __m256i       zero  = _mm256_setzero_si256();

            part = add_scaled(part, scales[s], add_products(zero, low, load_bytes(x->q + 32 * s)));
            part = add_scaled(part, scales[s + 1],
                              add_products(zero, high, load_bytes(x->q + 32 * s + 32)));
        }
        sums[j] = _mm256_fmadd_ps(_mm256_set1_ps(d[j]), part, sums[j]);
        sums[j] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_set1_ps(d_min[j]), minimum),
                                  _mm256_loadu_ps(x->sums), sums[j]);
    }
}

/* Unpacks 32 values, starting at value 32 s, plus 32. */
INLINE __m256i unpack_q6_k(const uint8_t *b, int s)
{
    __m256i low  = _mm256_srli_epi16(load_bytes(b + s / 4 * 64 + s % 2 * 32), s / 2 % 2 * 4);
    __m256i high = _mm256_srli_epi16(load_bytes(b + 128 + s / 4 * 32), s % 4 * 2);

    low  = _mm256_and_si256(low, _mm256_set1_epi8(15));
    high = _mm256_and_si256(high, _mm256_set1_epi8(3));
    return _mm256_or_si256(low, _mm256_slli_epi16(high, 4));
}

/* 16 values share a scale: half of the lanes have one scale, half the next. */
INLINE void add_q6_k(__m256 *sums, const x_block *x, const uint8_t *const *b, int n_weights)
{
    __m256i start[8];
    float   d[WEIGHTS];

    load_scales(d, b, 208, n_weights, 1.0f);
    for (int s = 0; s < 8; s++)
        start[s] = start_of(load_bytes(x->q + 32 * s), 5);
    for (int j = 0; j < n_weights; j++) {
        __m256 part = _mm256_setzero_ps(), eight = part;

#pragma GCC unroll 8
        for (int s = 0; s < 8; s++) {
            __m256i at = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
            if (s % 4 == 0)
                eight = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(
                    _mm_loadl_epi64((const __m128i *)(const void *)(b[j] + 192 + 2 * s))));
            at = _mm256_add_epi32(at, _mm256_set1_epi32(s % 4 * 2));
            __m256 scale =
                _mm256_mul_ps(_mm256_permutevar8x32_ps(eight, at), _mm256_set1_ps(x->scales[s]));
            __m256i product =
                add_products(start[s], unpack_q6_k(b[j], s), load_bytes(x->q + 32 * s));
            part = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(product), part);
        }
        sums[j] = _mm256_fmadd_ps(_mm256_set1_ps(d[j]), part, sums[j]);
    }
}

/* ---------------------------------------------------------------------- rows */

/* Adds one block of n_weights rows of W times n_x rows of x. */
INLINE void add_block(block_sums sums, const x_block *x, int n_x, const uint8_t *const *b,
                      int n_weights, hl_dtype dtype)
{
    if (dtype == HL_DTYPE_Q8_0)
        add_q8_0(sums, x, n_x, b, n_weights);
    if (dtype == HL_DTYPE_Q4_0)
        add_q4_0(sums, x, n_x, b, n_weights);
    for (int r = 0; r < n_x && dtype == HL_DTYPE_Q4_K; r++)
        add_q4_k(sums[r], &x[r], b, n_weights);
    for (int r = 0; r < n_x && dtype == HL_DTYPE_Q6_K; r++)
        add_q6_k(sums[r], &x[r], b, n_weights);
}

/* Multiplies rows [row, row + n_x) of x with rows [first, first + n_weights) of W; `n_x`,
 * `n_weights` and `dtype` are compile-time constants. */
INLINE void dot_rows(const hl_int8_dot *d, int64_t row, int n_x, int64_t first, int n_weights,
                     hl_dtype dtype)
{
    const bool     is_small = dtype == HL_DTYPE_Q8_0 || dtype == HL_DTYPE_Q4_0;
    const int      n_values = is_small ? 32 : 256;
    const int      n_bytes  = dtype == HL_DTYPE_Q8_0   ? 34
                              : dtype == HL_DTYPE_Q4_0 ? 18
                              : dtype == HL_DTYPE_Q4_K ? 144
                                                       : 210;
    const int64_t  n        = d->n;
    block_sums     sums;
    x_block        x[ROWS];
    const uint8_t *b[WEIGHTS];

    for (int j = 0; j < n_weights; j++)
        b[j] = (const uint8_t *)d->w[first + j];
    for (int r = 0; r < n_x; r++) {
        int64_t at = (row + r) * n;

        x[r] = (x_block){ d->q + at, d->scales + at / HL_INT8_BLOCK, d->sums + at / HL_INT8_BLOCK };
        for (int j = 0; j < n_weights; j++)
            sums[r][j] = _mm256_setzero_ps();
    }
    for (int64_t block = 0; block < n / n_values; block++) {
        for (int j = 0; j < n_weights; j++) {
            for (int byte = 0; byte < n_bytes; byte += 64)
                _mm_prefetch((const char *)b[j] + byte + WEIGHTS * (n / n_values) * n_bytes,
                             _MM_HINT_T0);
        }
        add_block(sums, x, n_x, b, n_weights, dtype);
        for (int j = 0; j < n_weights; j++)
            b[j] += n_bytes;
        for (int r = 0; r < n_x; r++)
            x[r] = (x_block){ x[r].q + n_values, x[r].scales + n_values / 32,
                              x[r].sums + n_values / 32 };
    }
    for (int r = 0; r < n_x; r++) {
        for (int j = 0; j < n_weights; j++)
            d->out[(row + r) * d->out_stride + first + j] = sum_lanes(sums[r][j]);
    }
}

INLINE void dot_all(const hl_int8_dot *d, hl_dtype dtype)
{
    const int n_single = dtype == HL_DTYPE_Q4_0 ? 2 : 1; /* rows of W for one row of x */
    int64_t   j        = 0;

    for (; j + WEIGHTS <= d->n_weights; j += WEIGHTS) {
        int64_t row = 0;

        for (; row + ROWS <= d->n_rows; row += ROWS)
            dot_rows(d, row, ROWS, j, WEIGHTS, dtype);
        for (; row < d->n_rows; row++) {
            for (int part = 0; part < WEIGHTS; part += n_single)
                dot_rows(d, row, 1, j + part, n_single, dtype);
        }
    }
    for (; j < d->n_weights; j++) {
        for (int64_t row = 0; row < d->n_rows; row++)
            dot_rows(d, row, 1, j, 1, dtype);
    }
}

/* ------------------------------------------------- types that become bytes first */

/* Adds n_runs runs of 32 values; the sign of w moves to q. */
INLINE __m256 add_ints(__m256 sums, float *minima, const x_block *x, const quant_ints *w,
                       int n_runs, bool with_minimum)
{
    for (int run = 0; run < n_runs; run++) {
        __m256i q       = load_bytes(w->q + 32 * run);
        __m256i s       = _mm256_sign_epi8(load_bytes(x->q + 32 * run), q);
        __m256i product = add_products(_mm256_setzero_si256(), _mm256_abs_epi8(q), s);
        __m256  scale =
            _mm256_set_m128(_mm_set1_ps(w->scale[2 * run + 1]), _mm_set1_ps(w->scale[2 * run]));

        scale = _mm256_mul_ps(scale, _mm256_set1_ps(x->scales[run]));
        sums  = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(product), sums);
        if (with_minimum)
            *minima += w->minimum[2 * run] * x->sums[run];
    }
    return sums;
}

INLINE void ints_row(float *out, const uint8_t *b, x_block x, int64_t n, hl_dtype dtype,
                     int n_values, int n_bytes)
{
    const bool with_minimum = has_minimum(dtype);
    __m256     sums         = _mm256_setzero_ps();
    float      minima       = 0.0f;
    quant_ints w;

    for (int64_t i = 0; i < n; i += N_INTS) {
        int64_t values = n - i < (int64_t)N_INTS ? n - i : (int64_t)N_INTS;

        for (int byte = 0; byte < N_INTS / n_values * n_bytes; byte += 64)
            _mm_prefetch((const char *)b + byte + INT8_AHEAD, _MM_HINT_T0);
        if (values == N_INTS)
            unpack_ints(&w, dtype, b, N_INTS / n_values);
        else
            unpack_ints(&w, dtype, b, (int)(values / n_values));
        sums = add_ints(sums, &minima, &x, &w, (int)(values / 32), with_minimum);
        b += values / n_values * n_bytes;
        x = (x_block){ x.q + values, x.scales + values / 32, x.sums + values / 32 };
    }
    *out = sum_lanes(sums) + minima;
}

INLINE void ints_all(const hl_int8_dot *d, hl_dtype dtype, int n_values, int n_bytes)
{
    for (int64_t j = 0; j < d->n_weights; j++) {
        for (int64_t row = 0; row < d->n_rows; row++) {
            int64_t at = row * d->n;
            x_block x = { d->q + at, d->scales + at / HL_INT8_BLOCK, d->sums + at / HL_INT8_BLOCK };

            ints_row(d->out + row * d->out_stride + j, (const uint8_t *)d->w[j], x, d->n, dtype,
                     n_values, n_bytes);
        }
    }
}

TARGET static __attribute__((noinline)) void dot_ints(const hl_int8_dot *d)
{
#define INTS_CASE(type, TYPE, n_values, n_bytes)                                                   \
    case HL_DTYPE_##TYPE:                                                                          \
        ints_all(d, HL_DTYPE_##TYPE, n_values, n_bytes);                                           \
        break;
    switch (d->dtype) {
        HL_EACH_TYPE_OF_INTS(INTS_CASE)
    default:
        break;
    }
#undef INTS_CASE
}

TARGET static void int8_dot(const hl_int8_dot *d)
{
    switch (d->dtype) {
    case HL_DTYPE_Q8_0:
        dot_all(d, HL_DTYPE_Q8_0);
        break;
    case HL_DTYPE_Q4_0:
        dot_all(d, HL_DTYPE_Q4_0);
        break;
    case HL_DTYPE_Q4_K:
        dot_all(d, HL_DTYPE_Q4_K);
        break;
    case HL_DTYPE_Q6_K:
        dot_all(d, HL_DTYPE_Q6_K);
        break;
    default:
        dot_ints(d);
        break;
    }
}

#endif
