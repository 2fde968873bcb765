/* dense_nibbles.h - dot products of blocks of 4 to 6 bits, for AVX-512.
 *
 * 64 bytes of nibbles are sixteen words of eight values.  Vector (o, j), for o < 2 and j < 4, is
 * nibble 2j + o of every word: one shift, and one permute that takes the float of a nibble from a
 * table.  Each vector has one product with x, and no value is moved between lanes.  Instead x is
 * moved, once for all rows of W: its vector (o, j) holds the values that these nibbles belong to.
 *
 *     word      of lanes 0-3   4-7   8-11   12-15       the first value of each, in 128 of x
 *     Q4_0 ...  16 bytes of a block each                16 o + { 0, 32, 64, 96 }
 *     IQ4_XS    the same
 *     Q4_K Q5_K bytes 0-31, and 32-63                   32 o + { 0, 16, 64, 80 }
 *     Q6_K      as Q4_K                                 64 o + { 0, 16, 32, 48 }
 *
 * A fifth bit, or a fifth and a sixth, come from another word: rotated, they are put above the
 * nibble.  Minima, and what Q6_K subtracts from every value, take the sums of x.
 *
 * Included by dense_products.h alone. */
#ifndef HL_KERNELS_DENSE_NIBBLES_H
#define HL_KERNELS_DENSE_NIBBLES_H

#include "base/dtype.h"
#include "kernels/dense_blocks.h"
#include "kernels/quant_blocks.h"

enum {
    NIBBLES_ROWS  = 4,    /* rows of x that share each read of W, if there are enough */
    NIBBLES_PART  = 4096, /* columns that are multiplied at a time, with x in order */
    NIBBLES_HALF  = 128,  /* values of 64 bytes of nibbles */
    NIBBLES_AHEAD = 4096, /* bytes that are read ahead */
};

/* x in the order of the vectors.  Aligned, because loads that cross a cache line take twice as long
 * and there is one for each multiplication. */
typedef struct nibbles_x {
    _Alignas(64) float values[NIBBLES_ROWS][NIBBLES_PART];
    float sums[NIBBLES_ROWS]
              [NIBBLES_PART / 16]; /* of 16 or of 32 values of x, as the type has it */
} nibbles_x;

/* -------------------------------------------------------------------- x in order */

/* out[j][4 i + l] = x[offset_i + 4 l + j]. */
HL_INLINE void order_vectors(float *out, const float *const from[4])
{
    const __m512i by_place =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512 t[4];

    for (int i = 0; i < 4; i++)
        t[i] = _mm512_permutexvar_ps(by_place, _mm512_loadu_ps(from[i]));
    __m512 a = _mm512_shuffle_f32x4(t[0], t[1], 0x44), b = _mm512_shuffle_f32x4(t[2], t[3], 0x44);
    __m512 c = _mm512_shuffle_f32x4(t[0], t[1], 0xee), d = _mm512_shuffle_f32x4(t[2], t[3], 0xee);
    _mm512_storeu_ps(out, _mm512_shuffle_f32x4(a, b, 0x88));
    _mm512_storeu_ps(out + 32, _mm512_shuffle_f32x4(a, b, 0xdd));
    _mm512_storeu_ps(out + 64, _mm512_shuffle_f32x4(c, d, 0x88));
    _mm512_storeu_ps(out + 96, _mm512_shuffle_f32x4(c, d, 0xdd));
}

HL_INLINE bool is_small_block(hl_dtype dtype)
{
    return dtype == HL_DTYPE_Q4_0 || dtype == HL_DTYPE_Q4_1 || dtype == HL_DTYPE_Q5_0 ||
           dtype == HL_DTYPE_IQ4_NL || dtype == HL_DTYPE_MXFP4;
}

/* Orders 128 values. */
HL_INLINE void order_half(float *out, const float *x, hl_dtype dtype)
{
    const bool by_sixteen = is_small_block(dtype) || dtype == HL_DTYPE_IQ4_XS;
    const int  step       = by_sixteen ? 16 : (dtype == HL_DTYPE_Q6_K ? 64 : 32);
    const int  second     = by_sixteen ? 32 : 16;
    const int  third      = dtype == HL_DTYPE_Q6_K ? 32 : 64;

    for (int o = 0; o < 2; o++) {
        const float *from[4] = { x + step * o, x + step * o + second, x + step * o + third,
                                 x + step * o + third + second };
        order_vectors(out + 16 * o, from);
    }
}

/* Orders n values of a row of x, and zeros up to the next 128. */
HL_INLINE void order_row(nibbles_x *to, int r, const float *x, int64_t n, hl_dtype dtype)
{
    const int run = dtype == HL_DTYPE_Q6_K ? 16 : 32;
    float     rest[NIBBLES_HALF];

    for (int64_t i = 0; i < n; i += NIBBLES_HALF) {
        const float *from = x + i;
        if (n - i < NIBBLES_HALF) {
            memset(rest, 0, sizeof rest);
            memcpy(rest, from, (size_t)(n - i) * sizeof *rest);
            from = rest;
        }
        order_half(&to->values[r][i], from, dtype);
        for (int at = 0; at < NIBBLES_HALF; at += run) {
            __m512 sum = _mm512_loadu_ps(from + at);
            if (run == 32)
                sum = _mm512_add_ps(sum, _mm512_loadu_ps(from + at + 16));
            to->sums[r][(i + at) / run] = _mm512_reduce_add_ps(sum);
        }
    }
}

/* --------------------------------------------------------------------- products */

/* Two sums of the products, for even and odd nibbles, and one for what is subtracted or added. */
typedef __m512 nibbles_sums[NIBBLES_ROWS][3];

/* 64 bytes of nibbles; the words with their higher bits, and the two scales of every lane. */
typedef struct nibbles_half {
    __m512i words;
    __m512i high;
    __m512  scale[2];
} nibbles_half;

/* The floats of 16 codes, or of 32. */
typedef struct nibbles_book {
    __m512 low;
    __m512 high;
} nibbles_book;

HL_INLINE bool has_high_bits(hl_dtype dtype)
{
    return dtype == HL_DTYPE_Q5_0 || dtype == HL_DTYPE_Q5_K || dtype == HL_DTYPE_Q6_K;
}

/* The places of the high bits of vector (o, j) in a word, less 4. */
HL_INLINE int high_place(hl_dtype dtype, int o, int j)
{
    const int first = dtype == HL_DTYPE_Q5_K   ? o + 8 * j
                      : dtype == HL_DTYPE_Q6_K ? 4 * o + 8 * j
                                               : 16 * o + j;
    return (first + 28) % 32;
}

/* The floats of vector (o, j). */
HL_INLINE __m512 nibbles_values(__m512i words, __m512i higher, const nibbles_book *book,
                                hl_dtype dtype, int o, int j)
{
    const __m512i low  = _mm512_set1_epi32(15);
    __m512i       bits = _mm512_srli_epi32(words, (unsigned)(8 * j + 4 * o));

    if (has_high_bits(dtype)) {
        __m512i high = _mm512_rorv_epi32(higher, _mm512_set1_epi32(high_place(dtype, o, j)));
        bits = _mm512_ternarylogic_epi32(bits, high, low, 0xe4); /* bits where low, else high */
    }
    if (dtype == HL_DTYPE_Q6_K)
        return _mm512_cvtepi32_ps(_mm512_and_si512(bits, _mm512_set1_epi32(63)));
    if (dtype == HL_DTYPE_Q5_0 || dtype == HL_DTYPE_Q5_K)
        return _mm512_permutex2var_ps(book->low, bits, book->high);
    return _mm512_permutexvar_ps(bits, book->low);
}

/* Adds 128 values of one row of W times n_x rows of x. */
HL_INLINE void add_half(nibbles_sums sums, const nibbles_x *x, int64_t first, int n_x,
                        const nibbles_half *h, const nibbles_book *book, hl_dtype dtype)
{
    __m512  part[NIBBLES_ROWS][2];
    __m512i words = h->words, high = h->high;

    /* Loads of 64 bytes that cross a cache line are slow; without this, gcc repeats each of them
     * eight times, as an operand of the shifts. */
    __asm__("" : "+v"(words));
    if (has_high_bits(dtype))
        __asm__("" : "+v"(high));
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
#pragma GCC unroll 2
        for (int o = 0; o < 2; o++) {
            __m512 w = nibbles_values(words, high, book, dtype, o, j);
            for (int r = 0; r < n_x; r++) {
                __m512 at  = _mm512_loadu_ps(&x->values[r][first + 32 * j + 16 * o]);
                part[r][o] = j == 0 ? _mm512_mul_ps(at, w) : _mm512_fmadd_ps(at, w, part[r][o]);
            }
        }
    }
    for (int r = 0; r < n_x; r++) {
        for (int o = 0; o < 2; o++)
            sums[r][o] = _mm512_fmadd_ps(h->scale[o], part[r][o], sums[r][o]);
    }
}

/* ------------------------------------------------------------- blocks of 32 values */

/* Four blocks: their scales, and their minima times the sums of x. */
HL_INLINE void add_small_blocks(nibbles_sums sums, const nibbles_x *x, int64_t first, int n_x,
                                const uint8_t *b, const nibbles_book *book, hl_dtype dtype,
                                int bytes)
{
    const int      at     = bytes - 16;
    const __m512i  spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const uint8_t *all[4] = { b, b + bytes, b + 2 * bytes, b + 3 * bytes };
    nibbles_half   h      = { .words = _mm512_setzero_si512() };
    float          scales[4], minima[4];
    (void)minima;

#define NIBBLES_OF(i) _mm_loadu_si128((const __m128i *)(const void *)(all[i] + at))
    h.words = _mm512_inserti32x4(_mm512_castsi128_si512(NIBBLES_OF(0)), NIBBLES_OF(1), 1);
    h.words = _mm512_inserti32x4(h.words, NIBBLES_OF(2), 2);
    h.words = _mm512_inserti32x4(h.words, NIBBLES_OF(3), 3);
#undef NIBBLES_OF
    if (dtype == HL_DTYPE_MXFP4) {
        for (int i = 0; i < 4; i++)
            scales[i] = hl_e8m0_half(*all[i]);
    } else {
        load_scales(scales, all, 0, 4);
    }
    h.scale[0] = _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(_mm_loadu_ps(scales)));
    h.scale[1] = h.scale[0];
    if (dtype == HL_DTYPE_Q5_0) {
        const __m512i by_lane =
            _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
        __m128i words = _mm_setr_epi32((int)hl_read_u32(all[0] + 2), (int)hl_read_u32(all[1] + 2),
                                       (int)hl_read_u32(all[2] + 2), (int)hl_read_u32(all[3] + 2));
        h.high = _mm512_rorv_epi32(_mm512_permutexvar_epi32(spread, _mm512_castsi128_si512(words)),
                                   by_lane);
    }
    add_half(sums, x, first, n_x, &h, book, dtype);
    if (dtype == HL_DTYPE_Q4_1) {
        load_scales(minima, all, 2, 4);
        for (int r = 0; r < n_x; r++)
            sums[r][2] = _mm512_fmadd_ps(
                _mm512_zextps128_ps512(_mm_loadu_ps(minima)),
                _mm512_zextps128_ps512(_mm_loadu_ps(&x->sums[r][first / 32])), sums[r][2]);
    }
}

/* ------------------------------------------------------------ blocks of 256 values */

HL_INLINE __m512 floats_of_bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* Like hl_unpack_k_scales, of the block b: eight scales, then eight minima. */
HL_INLINE __m512 floats_of_k_scales(const uint8_t *b)
{
    const __m128i low    = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    const __m128i high   = _mm_setr_epi32(0, 0x30303030, 0, 0x30303030);
    __m128i       packed = _mm_loadu_si128((const __m128i *)(const void *)(b + 4));
    __m128i four = _mm_srlv_epi32(_mm_shuffle_epi32(packed, 0x98), _mm_setr_epi32(0, 0, 0, 4));
    __m128i two  = _mm_srli_epi32(_mm_shuffle_epi32(packed, 0x50), 2);

    two = _mm_or_si128(_mm_and_si128(four, low), _mm_and_si128(two, high));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(two));
}

/* Q4_K and Q5_K: eight scales, then eight minima, which meet the eight sums of x. */
HL_INLINE void add_k_block(nibbles_sums sums, const nibbles_x *x, int64_t first, int n_x,
                           const uint8_t *b, const nibbles_book *book, hl_dtype dtype)
{
    const bool    is_five = dtype == HL_DTYPE_Q5_K;
    const __m512i spread  = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    __m128        d       = _mm_cvtph_ps(_mm_cvtsi32_si128((int)hl_read_u32(b)));
    nibbles_half  h       = { .words = _mm512_setzero_si512() };
    __m512        scales  = floats_of_k_scales(b);
    __m256        minima  = _mm512_extractf32x8_ps(scales, 1);

    minima = _mm256_mul_ps(minima, _mm256_broadcastss_ps(_mm_movehdup_ps(d)));
    scales = _mm512_mul_ps(scales, _mm512_broadcastss_ps(d));
    for (int r = 0; r < n_x; r++) /* the upper lanes are 0 */
        sums[r][2] = _mm512_zextps256_ps512(_mm256_fnmadd_ps(
            minima, _mm256_loadu_ps(&x->sums[r][first / 32]), _mm512_castps512_ps256(sums[r][2])));
    if (is_five) {
        const __m512i by_lane = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
        __m512i       high =
            _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(const void *)(b + 16)));
        h.high = _mm512_rorv_epi32(high, by_lane);
    }
    for (int half = 0; half < 2; half++) {
        h.words = _mm512_loadu_si512(b + (is_five ? 48 : 16) + 64 * half);
        for (int o = 0; o < 2; o++)
            h.scale[o] = _mm512_permutexvar_ps(
                _mm512_add_epi32(spread, _mm512_set1_epi32(4 * half + o)), scales);
        if (is_five && half == 1)
            h.high = _mm512_rorv_epi32(h.high, _mm512_set1_epi32(4));
        add_half(sums, x, first + NIBBLES_HALF * half, n_x, &h, book, dtype);
    }
}

/* Q6_K and IQ4_XS.  Q6_K has 16 scales, and 32 is taken from every value; IQ4_XS has eight. */
HL_INLINE void add_other_block(nibbles_sums sums, const nibbles_x *x, int64_t first, int n_x,
                               const uint8_t *b, const nibbles_book *book, hl_dtype dtype)
{
    const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const bool    is_six = dtype == HL_DTYPE_Q6_K;
    nibbles_half  h      = { .words = _mm512_setzero_si512() };
    __m512        scales;

    if (is_six) {
        scales = _mm512_mul_ps(floats_of_bytes(b + 192),
                               _mm512_set1_ps(_cvtsh_ss(hl_read_u16(b + 208))));
        for (int r = 0; r < n_x; r++)
            sums[r][2] = _mm512_fmadd_ps(_mm512_mul_ps(scales, _mm512_set1_ps(-32.0f)),
                                         _mm512_loadu_ps(&x->sums[r][first / 16]), sums[r][2]);
    } else { /* four low bits of each scale, then two high ones, less 32 */
        const __m512i by_four =
            _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0);
        const __m512i by_two = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 0, 0, 0, 0, 0, 0, 0);
        __m512i       low  = _mm512_srlv_epi32(_mm512_set1_epi32((int)hl_read_u32(b + 4)), by_four);
        __m512i       high = _mm512_srlv_epi32(_mm512_set1_epi32(hl_read_u16(b + 2)), by_two);
        __m512i       both =
            _mm512_ternarylogic_epi32(low, _mm512_slli_epi32(high, 4), _mm512_set1_epi32(15), 0xe4);
        both =
            _mm512_sub_epi32(_mm512_and_si512(both, _mm512_set1_epi32(63)), _mm512_set1_epi32(32));
        scales = _mm512_mul_ps(_mm512_cvtepi32_ps(both), _mm512_set1_ps(_cvtsh_ss(hl_read_u16(b))));
    }
    for (int half = 0; half < 2; half++) {
        h.words = _mm512_loadu_si512(b + (is_six ? 0 : 8) + 64 * half);
        for (int o = 0; o < 2; o++)
            h.scale[o] = _mm512_permutexvar_ps(
                _mm512_add_epi32(spread, _mm512_set1_epi32(is_six ? 8 * half + 4 * o : 4 * half)),
                scales);
        if (is_six) {
            const __m512i by_lane =
                _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
            __m512i high = _mm512_broadcast_i64x4(
                _mm256_loadu_si256((const __m256i *)(const void *)(b + 128 + 32 * half)));
            h.high = _mm512_rorv_epi32(high, by_lane);
        }
        add_half(sums, x, first + NIBBLES_HALF * half, n_x, &h, book, dtype);
    }
}

/* ------------------------------------------------------------------------- rows */

/* The floats of the codes of a type. */
HL_INLINE nibbles_book book_of(hl_dtype dtype)
{
    float book[32];

    static const int8_t iq4[16] = HL_IQ4_VALUES, fp4[16] = HL_FP4_VALUES;
    const int           least = dtype == HL_DTYPE_Q4_0 ? 8 : (dtype == HL_DTYPE_Q5_0 ? 16 : 0);

    for (int i = 0; i < 32; i++) {
        book[i] = (float)(i - least);
        if (dtype == HL_DTYPE_IQ4_NL || dtype == HL_DTYPE_IQ4_XS)
            book[i] = iq4[i % 16];
        if (dtype == HL_DTYPE_MXFP4)
            book[i] = fp4[i % 16];
    }
    return (nibbles_book){ _mm512_loadu_ps(book), _mm512_loadu_ps(book + 16) };
}

/* One row of W times n_x rows of x, of `n` columns; adds to out if not `is_first`. */
HL_INLINE void dot_nibbles_row(float *out, int64_t out_stride, const nibbles_x *x, int n_x,
                               const uint8_t *b, int64_t n, bool is_first, const nibbles_book *book,
                               hl_dtype dtype, int n_bytes)
{
    const bool   is_small = is_small_block(dtype);
    const int    bytes    = is_small ? 4 * n_bytes : n_bytes;
    const int    values   = is_small ? NIBBLES_HALF : 256;
    nibbles_sums sums;
    int64_t      first = 0;

    for (int r = 0; r < n_x; r++)
        sums[r][0] = sums[r][1] = sums[r][2] = _mm512_setzero_ps();
    for (; first + values <= n; first += values, b += bytes) {
        for (int byte = 0; byte < bytes; byte += 64)
            read_ahead(b + byte, NIBBLES_AHEAD);
        if (is_small)
            add_small_blocks(sums, x, first, n_x, b, book, dtype, n_bytes);
        else if (dtype == HL_DTYPE_Q4_K || dtype == HL_DTYPE_Q5_K)
            add_k_block(sums, x, first, n_x, b, book, dtype);
        else
            add_other_block(sums, x, first, n_x, b, book, dtype);
    }
    if (is_small && first < n) { /* up to three blocks; the others are zeros, with x of zeros */
        uint8_t rest[256] = { 0 };
        memcpy(rest, b, (size_t)((n - first) / 32 * n_bytes));
        add_small_blocks(sums, x, first, n_x, rest, book, dtype, n_bytes);
    }
    for (int r = 0; r < n_x; r++) {
        float sum           = sum_lanes((vf)_mm512_add_ps(sums[r][0], sums[r][1]), (vf)sums[r][2]);
        out[r * out_stride] = is_first ? sum : out[r * out_stride] + sum;
    }
}

/* n_x rows of x times all rows of W. */
HL_INLINE void dot_nibbles_rows(const hl_dot *d, int64_t row, int n_x, hl_dtype dtype, int n_bytes)
{
    const nibbles_book book = book_of(dtype);
    nibbles_x          x;

    if (d->n == 0) {
        for (int64_t j = 0; j < d->n_weights * n_x; j++)
            d->out[(row + j % n_x) * d->out_stride + j / n_x] = 0.0f;
    }
    for (int64_t begin = 0; begin < d->n; begin += NIBBLES_PART) {
        int64_t n  = d->n - begin < NIBBLES_PART ? d->n - begin : NIBBLES_PART;
        size_t  at = (size_t)begin / (is_small_block(dtype) ? 32 : 256) * (size_t)n_bytes;

        for (int r = 0; r < n_x; r++)
            order_row(&x, r, d->x + (row + r) * d->x_stride + begin, n, dtype);
        for (int64_t j = 0; j < d->n_weights; j++)
            dot_nibbles_row(d->out + row * d->out_stride + j, d->out_stride, &x, n_x,
                            (const uint8_t *)d->w[j] + at, n, begin == 0, &book, dtype, n_bytes);
    }
}

HL_INLINE void dot_nibbles(const hl_dot *d, hl_dtype dtype, int n_bytes)
{
    int64_t row = 0;

    for (; row + NIBBLES_ROWS <= d->n_rows; row += NIBBLES_ROWS)
        dot_nibbles_rows(d, row, NIBBLES_ROWS, dtype, n_bytes);
    for (; row < d->n_rows; row++)
        dot_nibbles_rows(d, row, 1, dtype, n_bytes);
}

#endif
