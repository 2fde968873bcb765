/* int8_dot_avx512.h - hl_int8_dot in vectors of 64 bytes, with VNNI, for types of 4 to 6 bits.
 *
 * As in dense_nibbles.h, no value of W is moved between lanes: x is put in the order in which
 * unpacked values lie, once for all rows of W.  One vector (`lanes`) has sixteen sums of four products:
 *
 *     Q4_0 Q4_1 Q5_0 Q5_1 IQ4_NL    64 bytes are four blocks: their first 16 values, their last 16
 *     IQ4_XS                        the same, of runs of a block
 *     Q4_K Q5_K                     64 bytes are four runs of 32: 0 and 2, 1 and 3
 *     Q6_K                          values in their order
 *
 * Weights are unsigned, u - c.  c times the sum of x is subtracted in `start`, or with the scales of
 * Q6_K, whose runs of 16 have one each.  Included by kernels_avx512.c, after int8_dot_avx2.h, which
 * has the other types. */
#ifndef HL_KERNELS_INT8_DOT_AVX512_H
#define HL_KERNELS_INT8_DOT_AVX512_H

#include "kernels/int8_dot_avx2.h"

enum {
    WIDE_PART  = 4096, /* columns that are multiplied at a time, with x in order */
    WIDE_HALF  = 128,  /* values of two vectors */
    WIDE_BLOCK = 256,
    WIDE_AHEAD = 8192, /* bytes that are read ahead */
};

/* A part of a row of x.  Each 128 values have two vectors of bytes, and a vector of starts; the
 * scales, and what minima are multiplied with, stand as each type needs them. */
typedef struct wide_x {
    int8_t  q[WIDE_PART] __attribute__((aligned(64)));
    int32_t start[WIDE_PART / 8] __attribute__((aligned(64)));
    float   scales[WIDE_PART / 8] __attribute__((aligned(64)));
    float   sums[WIDE_PART / 8] __attribute__((aligned(64)));
} wide_x;

INLINE bool is_wide_small(hl_dtype dtype)
{
    return dtype == HL_DTYPE_Q4_0 || dtype == HL_DTYPE_Q4_1 || dtype == HL_DTYPE_Q5_0 ||
           dtype == HL_DTYPE_Q5_1 || dtype == HL_DTYPE_IQ4_NL;
}

/* c = 2^shift; -1: 0. */
INLINE int wide_shift(hl_dtype dtype)
{
    switch (dtype) {
    case HL_DTYPE_Q4_0:
        return 3;
    case HL_DTYPE_Q5_0:
        return 4;
    case HL_DTYPE_IQ4_NL:
    case HL_DTYPE_IQ4_XS:
        return 7;
    default:
        return -1;
    }
}

INLINE __m512i load64(const void *p)
{
    return _mm512_loadu_si512(p);
}

/* Lane i of the result is lane `step * (i / 4) + first` of eight or sixteen floats. */
INLINE __m512 spread_fours(__m512 floats, int first, int step)
{
    const __m512i four = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i       at   = _mm512_mullo_epi32(four, _mm512_set1_epi32(step));

    return _mm512_permutexvar_ps(_mm512_add_epi32(at, _mm512_set1_epi32(first)), floats);
}

/* -------------------------------------------------------------------- x in order */

/* Orders 128 values: four runs of 32, of which `n_runs` are there. */
INLINE void order_runs(wide_x *to, int64_t at, const int8_t *q, const float *scales, int n_runs,
                       int shift)
{
    int8_t rest[WIDE_HALF] = { 0 };
    float  of_run[4]       = { 0.0f };

    memcpy(rest, q, (size_t)n_runs * 32);
    memcpy(of_run, scales, (size_t)n_runs * sizeof *scales);
    for (int half = 0; half < 2; half++) {
        for (int run = 0; run < 4; run++)
            memcpy(to->q + at + 64 * half + 16 * run, rest + 32 * run + 16 * half, 16);
    }
    __m512i ones  = _mm512_set1_epi8(1);
    __m512i total = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, load64(to->q + at));
    total         = _mm512_dpbusd_epi32(total, ones, load64(to->q + at + 64));
    __m512i start = _mm512_setzero_si512();
    if (shift >= 0)
        start = _mm512_sub_epi32(start, _mm512_sll_epi32(total, _mm_cvtsi32_si128(shift)));
    _mm512_store_si512(to->start + at / 8, start);
    __m512 lanes = spread_fours(_mm512_castps128_ps512(_mm_loadu_ps(of_run)), 0, 1);
    _mm512_store_ps(to->scales + at / 8, lanes);
    _mm512_store_ps(to->sums + at / 8, _mm512_mul_ps(lanes, _mm512_cvtepi32_ps(total)));
}

/* Orders 256 values of Q4_K and Q5_K; scales and sums are eight per 256. */
INLINE void order_k(wide_x *to, int64_t at, const int8_t *q, const float *scales, const float *sums)
{
    static const int runs[8] = { 0, 2, 1, 3, 4, 6, 5, 7 };

    for (int i = 0; i < 8; i++)
        memcpy(to->q + at + 32 * i, q + 32 * runs[i], 32);
    memcpy(to->scales + at / 8, scales, 8 * sizeof *scales);
    memcpy(to->sums + at / 8, sums, 8 * sizeof *sums);
}

/* 256 values of Q6_K; scales and -32 times the sums of 16 values are sixteen per 256. */
INLINE void order_q6_k(wide_x *to, int64_t at, const int8_t *q, const float *scales)
{
    memcpy(to->q + at, q, WIDE_BLOCK);
    for (int run = 0; run < 16; run++) {
        int32_t sum = 0;
        for (int i = 0; i < 16; i++)
            sum += q[16 * run + i];
        to->scales[at / 8 + run] = scales[run / 2];
        to->sums[at / 8 + run]   = -32.0f * scales[run / 2] * (float)sum;
    }
}

/* Orders columns [begin, begin + n) of a row of x. */
INLINE void order_x(wide_x *to, const hl_int8_dot *d, int64_t row, int64_t begin, int64_t n,
                    hl_dtype dtype)
{
    const int8_t *q      = d->q + row * d->n + begin;
    const float  *scales = d->scales + (row * d->n + begin) / HL_INT8_BLOCK;
    const float  *sums   = d->sums + (row * d->n + begin) / HL_INT8_BLOCK;

    if (is_wide_small(dtype) || dtype == HL_DTYPE_IQ4_XS) {
        for (int64_t i = 0; i < n; i += WIDE_HALF)
            order_runs(to, i, q + i, scales + i / 32, (int)(n - i < WIDE_HALF ? (n - i) / 32 : 4),
                       wide_shift(dtype));
        return;
    }
    for (int64_t i = 0; i < n; i += WIDE_BLOCK) {
        if (dtype == HL_DTYPE_Q6_K)
            order_q6_k(to, i, q + i, scales + i / 32);
        else
            order_k(to, i, q + i, scales + i / 32, sums + i / 32);
    }
}

/* ------------------------------------------------------------------------ blocks */

/* Sums of products, two for each half of a block, and one for minima. */
typedef struct wide_sums {
    __m512 a[2];
    __m512 minima;
} wide_sums;

INLINE __m512i low_nibbles(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}

INLINE __m512i high_nibbles(__m512i bytes)
{
    return low_nibbles(_mm512_srli_epi16(bytes, 4));
}

/* u, plus 16 where a bit is set. */
INLINE __m512i with_fifth(__m512i u, __mmask64 bits)
{
    return _mm512_mask_add_epi8(u, bits, u, _mm512_set1_epi8(16));
}

/* The values of codes, plus 128. */
INLINE __m512i codes_of_book(__m512i codes)
{
    static const int8_t values[16] = HL_IQ4_VALUES;
    __m128i             book = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)values),
                                             _mm_set1_epi8((char)0x80));

    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(book), codes);
}

/* The f16 at b and `bytes`, 2 bytes and 3 bytes after it, each in four lanes.  Where one vector has
 * them all, a permutation of words is faster than four loads. */
INLINE __m512 four_halves(const uint8_t *b, int bytes)
{
    if (3 * bytes + 2 <= 64) {
        const __m256i at    = _mm256_setr_epi16(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        const __m256i words = _mm256_mullo_epi16(at, _mm256_set1_epi16((short)(bytes / 2)));

        return _mm512_cvtph_ps(_mm512_castsi512_si256(
            _mm512_permutexvar_epi16(_mm512_castsi256_si512(words), load64(b))));
    }
    uint64_t halves = hl_read_u16(b) | (uint64_t)hl_read_u16(b + bytes) << 16 |
                      (uint64_t)hl_read_u16(b + 2 * bytes) << 32 |
                      (uint64_t)hl_read_u16(b + 3 * bytes) << 48;

    return spread_fours(_mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi64_si128((long long)halves))),
                        0, 1);
}

/* The fifth bits of 16 values of four blocks. */
INLINE __mmask64 four_fifths(const uint8_t *b, int bytes)
{
    return hl_read_u16(b) | (uint64_t)hl_read_u16(b + bytes) << 16 |
           (uint64_t)hl_read_u16(b + 2 * bytes) << 32 | (uint64_t)hl_read_u16(b + 3 * bytes) << 48;
}

/* sums + floats of (start + products of 128 values) times scales. */
INLINE __m512 add_runs(__m512 sums, const wide_x *x, int64_t at, __m512i low, __m512i high,
                       __m512 scales)
{
    __m512i products = _mm512_load_si512(x->start + at / 8);

    products = _mm512_dpbusd_epi32(products, low, _mm512_load_si512(x->q + at));
    products = _mm512_dpbusd_epi32(products, high, _mm512_load_si512(x->q + at + 64));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scales, sums);
}

/* Four blocks of 32 values, into sum k. */
INLINE void add_four(wide_sums *s, int k, const wide_x *x, int64_t at, const uint8_t *b,
                     hl_dtype dtype, int bytes)
{
    const bool     has_five = dtype == HL_DTYPE_Q5_0 || dtype == HL_DTYPE_Q5_1;
    const bool     has_min  = dtype == HL_DTYPE_Q4_1 || dtype == HL_DTYPE_Q5_1;
    const uint8_t *p        = b + bytes - 16;
    __m512i words = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)p));

    words =
        _mm512_inserti32x4(words, _mm_loadu_si128((const __m128i *)(const void *)(p + bytes)), 1);
    words       = _mm512_inserti32x4(words,
                                     _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * bytes)), 2);
    words       = _mm512_inserti32x4(words,
                                     _mm_loadu_si128((const __m128i *)(const void *)(p + 3 * bytes)), 3);
    __m512i low = low_nibbles(words), high = high_nibbles(words);
    if (dtype == HL_DTYPE_IQ4_NL) {
        low  = codes_of_book(low);
        high = codes_of_book(high);
    }
    if (has_five) {
        low  = with_fifth(low, four_fifths(p - 4, bytes));
        high = with_fifth(high, four_fifths(p - 2, bytes));
    }
    __m512 scales = _mm512_mul_ps(four_halves(b, bytes), _mm512_load_ps(x->scales + at / 8));
    s->a[k]       = add_runs(s->a[k], x, at, low, high, scales);
    if (has_min)
        s->minima =
            _mm512_fmadd_ps(four_halves(b + 2, bytes), _mm512_load_ps(x->sums + at / 8), s->minima);
}

INLINE void add_iq4_xs(wide_sums *s, const wide_x *x, int64_t at, const uint8_t *b)
{
    const __m256i by_four = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i by_two  = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i       low     = _mm256_srlv_epi32(_mm256_set1_epi32((int)hl_read_u32(b + 4)), by_four);
    __m256i       high    = _mm256_srlv_epi32(_mm256_set1_epi32(hl_read_u16(b + 2)), by_two);

    low  = _mm256_and_si256(low, _mm256_set1_epi32(15));
    high = _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4);
    __m256 eight =
        _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_or_si256(low, high), _mm256_set1_epi32(32)));
    eight = _mm256_mul_ps(eight, _mm256_set1_ps(_cvtsh_ss(hl_read_u16(b))));
    for (int half = 0; half < 2; half++) {
        int64_t first  = at + WIDE_HALF * half;
        __m512i words  = load64(b + 8 + 64 * half);
        __m512  scales = _mm512_mul_ps(spread_fours(_mm512_castps256_ps512(eight), 4 * half, 1),
                                       _mm512_load_ps(x->scales + first / 8));
        s->a[half]     = add_runs(s->a[half], x, first, codes_of_book(low_nibbles(words)),
                                  codes_of_book(high_nibbles(words)), scales);
    }
}

/* sums + floats of the products of 64 values times scales. */
INLINE __m512 add_64(__m512 sums, const wide_x *x, int64_t at, __m512i u, __m512 scales)
{
    __m512i products = _mm512_dpbusd_epi32(_mm512_setzero_si512(), u, _mm512_load_si512(x->q + at));

    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), scales, sums);
}

INLINE void add_k(wide_sums *s, const wide_x *x, int64_t at, const uint8_t *b, hl_dtype dtype)
{
    const __m512i first = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    __m256        scale, minimum;
    __m512i       fifths = _mm512_setzero_si512();

    unpack_k_scales(&scale, &minimum, b + 4);
    scale = _mm256_mul_ps(scale, _mm256_set1_ps(_cvtsh_ss(hl_read_u16(b))));
    scale = _mm256_mul_ps(scale, _mm256_load_ps(x->scales + at / 8));
    minimum =
        _mm256_mul_ps(minimum, _mm256_set1_ps(-_cvtsh_ss(hl_read_u16(b + 2)))); /* subtracted */
    s->minima =
        _mm512_fmadd_ps(_mm512_zextps256_ps512(minimum),
                        _mm512_zextps256_ps512(_mm256_load_ps(x->sums + at / 8)), s->minima);
    if (dtype == HL_DTYPE_Q5_K)
        fifths =
            _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)(b + 16)));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i words = load64(b + (dtype == HL_DTYPE_Q5_K ? 48 : 16) + 64 * half);
#pragma GCC unroll 2
        for (int o = 0; o < 2; o++) {
            __m512i u    = o == 0 ? low_nibbles(words) : high_nibbles(words);
            __m512i at_o = _mm512_add_epi32(first, _mm512_set1_epi32(4 * half + o));
            if (dtype == HL_DTYPE_Q5_K) {
                char    bit = (char)(1 << (4 * half + o)), later = (char)(4 << (4 * half + o));
                __m512i bits = _mm512_mask_set1_epi8(_mm512_set1_epi8(bit),
                                                     UINT64_C(0xffffffff00000000), later);
                u            = with_fifth(u, _mm512_test_epi8_mask(fifths, bits));
            }
            s->a[o] = add_64(s->a[o], x, at + WIDE_HALF * half + 64 * o, u,
                             _mm512_permutexvar_ps(at_o, _mm512_castps256_ps512(scale)));
        }
    }
}

/* Values 0 to 127 of a half take two bits more from 32 bytes, four times. */
INLINE void add_q6(wide_sums *s, const wide_x *x, int64_t at, const uint8_t *b)
{
    const __m512i left    = _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2);
    const __m512i right   = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    __m128i       bytes   = _mm_loadu_si128((const __m128i *)(const void *)(b + 192));
    __m512        sixteen = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)),
                                          _mm512_set1_ps(_cvtsh_ss(hl_read_u16(b + 208))));

    s->minima = _mm512_fmadd_ps(sixteen, _mm512_load_ps(x->sums + at / 8), s->minima);
    sixteen   = _mm512_mul_ps(sixteen, _mm512_load_ps(x->scales + at / 8));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i words = load64(b + 64 * half);
        __m512i two   = _mm512_broadcast_i64x4(
              _mm256_loadu_si256((const __m256i *)(const void *)(b + 128 + 32 * half)));
        const __m512i higher = _mm512_set1_epi8(0x30), nibble = _mm512_set1_epi8(15);
        __m512i       low = _mm512_and_si512(words, nibble), high = _mm512_srli_epi16(words, 4);

        low  = _mm512_or_si512(low, _mm512_and_si512(_mm512_sllv_epi64(two, left), higher));
        high = _mm512_or_si512(_mm512_and_si512(high, nibble),
                               _mm512_and_si512(_mm512_srlv_epi64(two, right), higher));
        s->a[0] =
            add_64(s->a[0], x, at + WIDE_HALF * half, low, spread_fours(sixteen, 8 * half, 1));
        s->a[1] = add_64(s->a[1], x, at + WIDE_HALF * half + 64, high,
                         spread_fours(sixteen, 8 * half + 4, 1));
    }
}

/* -------------------------------------------------------------------------- rows */

INLINE __m512d as_doubles(__m512 a)
{
    return _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(a)),
                         _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
}

/* Adds 256 values. */
INLINE void add_wide(wide_sums *s, const wide_x *x, int64_t at, const uint8_t *b, hl_dtype dtype,
                     int bytes)
{
    if (is_wide_small(dtype)) {
        add_four(s, 0, x, at, b, dtype, bytes);
        add_four(s, 1, x, at + WIDE_HALF, b + 4 * bytes, dtype, bytes);
    } else if (dtype == HL_DTYPE_IQ4_XS) {
        add_iq4_xs(s, x, at, b);
    } else if (dtype == HL_DTYPE_Q6_K) {
        add_q6(s, x, at, b);
    } else {
        add_k(s, x, at, b, dtype);
    }
}

/* Adds n columns of one row of W times one row of x. */
INLINE void wide_row(float *out, const wide_x *x, const uint8_t *b, int64_t n, bool is_first,
                     hl_dtype dtype, int bytes)
{
    const bool is_small = is_wide_small(dtype);
    const int  step     = is_small ? WIDE_BLOCK / 32 * bytes : bytes;
    wide_sums  s        = { { _mm512_setzero_ps(), _mm512_setzero_ps() }, _mm512_setzero_ps() };
    int64_t    at       = 0;

    for (; at + WIDE_BLOCK <= n; at += WIDE_BLOCK, b += step) {
        for (int byte = 0; byte < step; byte += 64)
            _mm_prefetch((const char *)b + byte + WIDE_AHEAD, _MM_HINT_T0);
        add_wide(&s, x, at, b, dtype, bytes);
    }
    for (; is_small && at < n; at += WIDE_HALF, b += 4 * bytes) {
        uint8_t rest[4 * 24] = { 0 }; /* up to four blocks; the others are zeros, with x of zeros */
        int64_t left         = (n - at) / 32;

        memcpy(rest, b, (size_t)((left < 4 ? left : 4) * bytes));
        add_four(&s, 0, x, at, rest, dtype, bytes);
    }
    __m512d total = _mm512_add_pd(as_doubles(s.a[0]), as_doubles(s.a[1]));
    float   sum   = (float)_mm512_reduce_add_pd(_mm512_add_pd(total, as_doubles(s.minima)));
    *out          = is_first ? sum : *out + sum;
}

INLINE void wide_all(const hl_int8_dot *d, hl_dtype dtype, int bytes)
{
    const int values = is_wide_small(dtype) ? 32 : WIDE_BLOCK;
    wide_x    x;

    for (int64_t row = 0; row < d->n_rows; row++) {
        float *out = d->out + row * d->out_stride;

        for (int64_t j = 0; j < d->n_weights && d->n == 0; j++)
            out[j] = 0.0f;
        for (int64_t begin = 0; begin < d->n; begin += WIDE_PART) {
            int64_t n = d->n - begin < (int64_t)WIDE_PART ? d->n - begin : (int64_t)WIDE_PART;

            order_x(&x, d, row, begin, n, dtype);
            for (int64_t j = 0; j < d->n_weights; j++)
                wide_row(out + j, &x, (const uint8_t *)d->w[j] + begin / values * bytes, n,
                         begin == 0, dtype, bytes);
        }
    }
}

#define WIDE_OF(type, TYPE, bytes)                                                                 \
    TARGET static __attribute__((noinline)) void wide_##type(const hl_int8_dot *d)                 \
    {                                                                                              \
        wide_all(d, HL_DTYPE_##TYPE, bytes);                                                       \
    }
#define EACH_WIDE(X)                                                                               \
    X(q4_0, Q4_0, 18)                                                                              \
    X(q4_1, Q4_1, 20)                                                                              \
    X(q5_0, Q5_0, 22)                                                                              \
    X(q5_1, Q5_1, 24)                                                                              \
    X(iq4_nl, IQ4_NL, 18)                                                                          \
    X(q4_k, Q4_K, 144)                                                                             \
    X(q5_k, Q5_K, 176)                                                                             \
    X(q6_k, Q6_K, 210)                                                                             \
    X(iq4_xs, IQ4_XS, 136)
EACH_WIDE(WIDE_OF)

/* False if the type is none of these. */
static bool int8_dot_wide(const hl_int8_dot *d)
{
#define WIDE_CASE(type, TYPE, bytes)                                                               \
    case HL_DTYPE_##TYPE:                                                                          \
        wide_##type(d);                                                                            \
        return true;
    switch (d->dtype) {
        EACH_WIDE(WIDE_CASE)
    default:
        return false;
    }
#undef WIDE_CASE
}

#endif
