/* packed_avx512.c - packed.h on AVX-512, with its BF16 and VNNI instructions.
 *
 * A strip is 48 rows of W, transposed: three vectors hold one column (F32), two columns (BF16) or
 * four (INT8) of them.  A tile is ROWS rows of x times a strip; its sums stay in registers while it
 * walks down the columns, and x is broadcast from where it lies:
 *
 *     F32 BF16   8 x 48: 24 sums; three loads and eight broadcasts feed 24 products
 *     INT8       4 x 48: 12 sums of integers and 12 of floats
 *
 * F32 and BF16 take DEPTH columns at a time, so that this part of the strip stays in the cache while
 * all rows of x pass by.
 *
 * For INT8, u = q + 128 is unsigned, as the instruction wants it of one side, and the sums of
 * integers start from -128 (x_0 + x_1 + ...). */
#include "kernels/packed.h"

#include <immintrin.h>
#include <string.h>

#include "base/machine.h"
#include "kernels/quant_ints_avx2.h"
#include "kernels/simd.h"

#define BF16_TARGET __attribute__((target("avx512bf16")))
#define VNNI_TARGET __attribute__((target("avx512vnni")))

enum {
    VECTORS   = HL_STRIP / VL,
    TILE_X    = 8,    /* rows of x of a tile */
    TILE_INT8 = 4,    /* rows of x of a tile with INT8 */
    DEPTH     = 1024, /* columns at a time, or pairs of them */
    BLOCK     = 32,   /* columns that share a scale of x */
};

/* ---------------------------------------------------------------------- what there is */

static bool has(hl_math math)
{
    const hl_cpu *cpu = hl_cpu_features();

    return math == HL_MATH_F32 || (math == HL_MATH_BF16 ? cpu->bf16 : cpu->vnni);
}

static bool has_type(hl_dtype dtype)
{
#define IS_TYPE(type, TYPE, n_values, n_bytes) || dtype == HL_DTYPE_##TYPE
    return false HL_EACH_TYPE_OF_INTS(IS_TYPE);
#undef IS_TYPE
}

/* --------------------------------------------------------------------------- packing */

/* The first n of 16 floats, then zeros. */
HL_INLINE vf load_part(const float *p, int64_t n)
{
    return (vf)_mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), p);
}

/* 16 x 16 floats, transposed: out[column][row], rows of `out` HL_STRIP apart. */
HL_INLINE void pack_square(float *out, vf square[VL], int64_t n_columns)
{
    vf_transpose(square);
    for (int64_t column = 0; column < n_columns; column++)
        vf_store(out + column * HL_STRIP, square[column]);
}

/* The same of the n_rows rows and n_columns columns that there are. */
static void pack_corner(float *out, const float *rows, int64_t stride, int64_t n_rows,
                        int64_t n_columns)
{
    vf square[VL];

    for (int64_t row = 0; row < VL; row++)
        square[row] = row < n_rows ? load_part(rows + row * stride, n_columns) : (vf){ 0 };
    pack_square(out, square, n_columns);
}

/* floats (n, k), `stride` apart, to (k, HL_STRIP) with zeros beyond n. */
static void pack_rows(float *out, const float *rows, int64_t stride, int64_t n, int64_t k)
{
    for (int64_t part = 0; part < HL_STRIP; part += VL) {
        const float *from  = rows + part * stride;
        int64_t      first = 0;

        for (; part + VL <= n && first + VL <= k; first += VL) {
            vf square[VL];
            for (int64_t row = 0; row < VL; row++)
                square[row] = vf_load(from + row * stride + first);
            pack_square(out + first * HL_STRIP + part, square, VL);
        }
        for (; first < k; first += VL)
            pack_corner(out + first * HL_STRIP + part, n > part ? from + first : rows, stride,
                        n - part, k - first < VL ? k - first : VL);
    }
}

static void pack_columns(float *out, const float *columns, int64_t stride, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        memcpy(out + i * HL_STRIP, columns + i * stride, (size_t)n * sizeof *out);
        memset(out + i * HL_STRIP + n, 0, (size_t)(HL_STRIP - n) * sizeof *out);
    }
}

/* Two columns of floats, (2, HL_STRIP), as pairs: out[row] = column 0 below column 1. */
BF16_TARGET static void pair_columns(uint16_t *out, const float *first, const float *second)
{
    const __m512i even = _mm512_set1_epi32(0xffff);

    for (int i = 0; i < HL_STRIP; i += VL) {
        __m512i low =
            _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(first + i)));
        __m512i high =
            second == NULL
                ? _mm512_setzero_si512()
                : _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(second + i)));
        _mm512_storeu_si512(
            out + 2 * i, _mm512_or_si512(_mm512_and_si512(low, even), _mm512_slli_epi32(high, 16)));
    }
}

BF16_TARGET static void round_row(uint16_t *out, const float *x, int64_t k)
{
    int64_t i = 0;

    for (; i + VL <= k; i += VL) {
        __m256i halves = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), halves);
    }
    for (; i < k; i += VL) {
        int64_t left   = k - i;
        __m256i halves = (__m256i)_mm512_cvtneps_pbh((__m512)load_part(x + i, left));
        memcpy(out + i, &halves, (size_t)(left + left % 2) * sizeof *out);
    }
}

/* 16 rows and 32 columns of floats as pairs: out[pair][row]. */
BF16_TARGET static void pack_pairs(uint16_t *out, const float *rows, int64_t stride)
{
    vf square[VL];

    for (int row = 0; row < VL; row++) {
        const float *at = rows + row * stride;
        square[row] =
            (vf)(__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(at + VL), _mm512_loadu_ps(at));
    }
    vf_transpose(square);
    for (int pair = 0; pair < VL; pair++)
        vf_store((float *)(void *)(out + 2 * pair * HL_STRIP), square[pair]);
}

/* Packs DEPTH columns of floats at a time, and pairs them for BF16. */
static void pack_floats(hl_strip *out, float *room, const float *w, int64_t stride, bool is_rows,
                        int64_t n, int64_t k, hl_math math)
{
    enum { COLUMNS = 32 };
    float some[COLUMNS * HL_STRIP];

    *out = (hl_strip){ .math = math, .n = n, .k = k, .values = room };
    if (math == HL_MATH_F32) {
        if (is_rows)
            pack_rows(room, w, stride, n, k);
        else
            pack_columns(room, w, stride, n, k);
        return;
    }
    for (int64_t first = 0; first < k; first += COLUMNS) {
        int64_t   count = k - first < COLUMNS ? k - first : COLUMNS;
        uint16_t *pairs = (uint16_t *)(void *)room + first * HL_STRIP;

        if (is_rows && n == HL_STRIP && count == COLUMNS) {
            for (int64_t part = 0; part < HL_STRIP; part += VL)
                pack_pairs(pairs + 2 * part, w + part * stride + first, stride);
            continue;
        }
        if (is_rows)
            pack_rows(some, w + first, stride, n, count);
        else
            pack_columns(some, w + first * stride, stride, n, count);
        for (int64_t i = 0; i < count; i += 2)
            pair_columns(pairs + i * HL_STRIP, some + i * HL_STRIP,
                         i + 1 < count ? some + (i + 1) * HL_STRIP : NULL);
    }
}

static void rows_in(hl_strip *out, float *room, const float *rows, int64_t stride, int64_t n,
                    int64_t k, hl_math math)
{
    pack_floats(out, room, rows, stride, true, n, k, math);
}

static void columns_in(hl_strip *out, float *room, const float *columns, int64_t stride, int64_t n,
                       int64_t k, hl_math math)
{
    pack_floats(out, room, columns, stride, false, n, k, math);
}

/* 16 rows of bytes, as words of four columns: out[4 columns][row]. */
static void pack_bytes(uint8_t *out, const quant_ints *ints, int64_t n_values)
{
    for (int64_t first = 0; first < n_values; first += 4 * VL) {
        int64_t count = (n_values - first < 4 * VL ? n_values - first : 4 * VL) / 4;
        vf      square[VL];

        for (int row = 0; row < VL; row++)
            memcpy(&square[row], ints[row].q + first, sizeof square[row]);
        vf_transpose(square);
        for (int64_t word = 0; word < count; word++) {
            __m512i u = _mm512_xor_si512((__m512i)square[word], _mm512_set1_epi8((char)0x80));
            _mm512_storeu_si512(out + (first / 4 + word) * 4 * HL_STRIP, u);
        }
    }
}

/* Whether 16 values have a scale of their own, not 32. */
static bool has_runs_of_16(hl_dtype dtype)
{
    return dtype == HL_DTYPE_Q2_K || dtype == HL_DTYPE_Q3_K || dtype == HL_DTYPE_Q6_K;
}

/* The scales or the minima of 16 rows: out[run][row]. */
static void pack_scales(float *out, const quant_ints *ints, size_t offset, int64_t n_runs)
{
    vf square[VL];

    for (int row = 0; row < VL; row++)
        memcpy(&square[row], (const uint8_t *)&ints[row] + offset, sizeof square[row]);
    vf_transpose(square);
    for (int64_t run = 0; run < n_runs; run++)
        vf_store(out + run * HL_STRIP, square[run]);
}

HL_INLINE void pack_blocks(const hl_strip *out, const void *const *rows, hl_dtype dtype,
                           int64_t n_values, int64_t n_bytes)
{
    quant_ints ints[VL];

    memset(ints, 0, sizeof ints);
    for (int64_t part = 0; part < HL_STRIP; part += VL) {
        for (int64_t first = 0; first < out->k; first += N_INTS) {
            int64_t count = out->k - first < N_INTS ? out->k - first : N_INTS;
            int64_t at    = first / INTS_RUN * HL_STRIP + part;

            for (int64_t row = 0; row < VL; row++) {
                if (part + row < out->n)
                    unpack_ints(&ints[row], dtype,
                                (const uint8_t *)rows[part + row] + first / n_values * n_bytes,
                                (int)(count / n_values));
                else
                    memset(&ints[row], 0, sizeof ints[row]);
            }
            pack_bytes((uint8_t *)out->values + (first / 4 * HL_STRIP + part) * 4, ints, count);
            pack_scales(out->scales + at, ints, offsetof(quant_ints, scale), count / INTS_RUN);
            if (out->minima != NULL)
                pack_scales(out->minima + at, ints, offsetof(quant_ints, minimum),
                            count / INTS_RUN);
        }
    }
}

static void blocks_in(hl_strip *out, float *room, const void *const *rows, hl_dtype dtype,
                      int64_t n, int64_t k)
{
    int64_t scales = k / INTS_RUN * HL_STRIP;

    *out = (hl_strip){ .math   = HL_MATH_INT8,
                       .n      = n,
                       .k      = k,
                       .values = room,
                       .scales = room + k / 4 * HL_STRIP,
                       .run    = has_runs_of_16(dtype) ? INTS_RUN : BLOCK,
                       .minima = has_minimum(dtype) ? room + k / 4 * HL_STRIP + scales : NULL };
    switch (dtype) {
#define PACK_CASE(type, TYPE, n_values, n_bytes)                                                   \
    case HL_DTYPE_##TYPE:                                                                          \
        pack_blocks(out, rows, HL_DTYPE_##TYPE, n_values, n_bytes);                                \
        break;
        HL_EACH_TYPE_OF_INTS(PACK_CASE)
#undef PACK_CASE
    default:
        break;
    }
}

/* -------------------------------------------------------------------------- tiles */

/* The lanes of vector v that hold rows of W. */
HL_INLINE __mmask16 lanes_of(int64_t n, int v)
{
    int64_t left = n - v * VL;
    if (left >= VL)
        return 0xffff;
    if (left <= 0)
        return 0;
    return (__mmask16)((1 << left) - 1);
}

typedef __m512   tile_row[VECTORS];
typedef tile_row tile_sums[TILE_X];

/* Asks for the lines that will be written when all columns are added: a line that is in no cache then
 * costs more than its products. */
HL_INLINE void expect_tile(const float *c, int64_t c_stride, int rows)
{
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++)
            __builtin_prefetch(c + r * c_stride + v * VL, 1, 3);
        __builtin_prefetch(c + r * c_stride + HL_STRIP - 1, 1, 3);
    }
}

HL_INLINE void load_tile(tile_row *sums, const float *c, int64_t c_stride, int rows, int64_t n,
                         bool is_first)
{
    if (is_first)
        expect_tile(c, c_stride, rows);
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++)
            sums[r][v] = is_first
                             ? _mm512_setzero_ps()
                             : _mm512_maskz_loadu_ps(lanes_of(n, v), c + r * c_stride + v * VL);
    }
}

/* Stores the sums, plus `bias` if it is not NULL. */
HL_INLINE void store_tile(float *c, int64_t c_stride, tile_row *sums, int rows, int64_t n,
                          const float *bias)
{
    for (int v = 0; v < VECTORS; v++) {
        __mmask16 lanes = lanes_of(n, v);
        __m512    more =
            bias != NULL ? _mm512_maskz_loadu_ps(lanes, bias + v * VL) : _mm512_setzero_ps();
        for (int r = 0; r < rows; r++)
            _mm512_mask_storeu_ps(c + r * c_stride + v * VL, lanes,
                                  bias != NULL ? _mm512_add_ps(sums[r][v], more) : sums[r][v]);
    }
}

/* Adds `depth` columns. */
HL_INLINE void tile_f32(float *c, int64_t c_stride, const float *x, int64_t x_stride,
                        const float *w, int64_t depth, int64_t n, int rows, bool is_first,
                        const float *bias)
{
    tile_sums sums;

    load_tile(sums, c, c_stride, rows, n, is_first);
    for (int64_t i = 0; i < depth; i++) {
        __m512 at[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            at[v] = _mm512_loadu_ps(w + i * HL_STRIP + v * VL);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512 value = _mm512_set1_ps(x[r * x_stride + i]);
            for (int v = 0; v < VECTORS; v++)
                sums[r][v] = _mm512_fmadd_ps(value, at[v], sums[r][v]);
        }
    }
    store_tile(c, c_stride, sums, rows, n, bias);
}

/* Adds `depth` pairs of columns. */
__attribute__((always_inline)) BF16_TARGET static inline void
tile_bf16(float *c, int64_t c_stride, const uint16_t *x, int64_t x_stride, const uint16_t *w,
          int64_t depth, int64_t n, int rows, bool is_first, const float *bias)
{
    tile_sums sums;

    load_tile(sums, c, c_stride, rows, n, is_first);
    for (int64_t i = 0; i < depth; i++) {
        __m512bh at[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            at[v] = (__m512bh)_mm512_loadu_si512(w + 2 * (i * HL_STRIP + v * VL));
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            uint32_t pair;
            memcpy(&pair, x + r * x_stride + 2 * i, sizeof pair);
            __m512bh value = (__m512bh)_mm512_set1_epi32((int)pair);
            for (int v = 0; v < VECTORS; v++)
                sums[r][v] = _mm512_dpbf16_ps(sums[r][v], value, at[v]);
        }
    }
    store_tile(c, c_stride, sums, rows, n, bias);
}

/* Adds the products of a run of columns to integers.  Loops over words of four columns. */
__attribute__((always_inline)) VNNI_TARGET static inline void
add_words(__m512i sums[TILE_INT8][VECTORS], const int8_t *q, int64_t q_stride, const uint8_t *w,
          int rows, int n_words)
{
#pragma GCC unroll 8
    for (int word = 0; word < n_words; word++) {
        __m512i at[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            at[v] = _mm512_loadu_si512(w + 4 * (word * HL_STRIP + v * VL));
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, q + r * q_stride + 4 * word, sizeof four);
            __m512i value = _mm512_set1_epi32(four);
            for (int v = 0; v < VECTORS; v++)
                sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], at[v], value);
        }
    }
}

/* All columns; `run` columns share a scale of W, 16 or 32. */
__attribute__((always_inline)) VNNI_TARGET static inline void
tile_int8(float *c, int64_t c_stride, const hl_packed_x *x, int64_t row, const hl_strip *strip,
          int rows, int run, bool with_minima)
{
    int64_t       k = strip->k;
    __m512        sums[TILE_INT8][VECTORS];
    const int8_t *q = x->q + row * k;

    expect_tile(c, c_stride, rows);
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < VECTORS; v++)
            sums[r][v] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < k; i += run) {
        const uint8_t *w  = (const uint8_t *)strip->values + i * HL_STRIP;
        const float   *at = strip->scales + i / INTS_RUN * HL_STRIP;
        __m512i        products[TILE_INT8][VECTORS];
        int32_t        total[TILE_INT8];

        for (int r = 0; r < rows; r++) {
            const int32_t *of = x->sums + ((row + r) * k + i) / INTS_RUN;
            total[r]          = run == BLOCK ? of[0] + of[1] : of[0];
            for (int v = 0; v < VECTORS; v++)
                products[r][v] = _mm512_set1_epi32(-128 * total[r]);
        }
        add_words(products, q + i, k, w, rows, run / 4);
        for (int r = 0; r < rows; r++) {
            float  of_x  = x->scales[(row + r) * (k / BLOCK) + i / BLOCK];
            __m512 scale = _mm512_set1_ps(of_x), sum = _mm512_set1_ps(of_x * (float)total[r]);

            for (int v = 0; v < VECTORS; v++) {
                __m512 both = _mm512_mul_ps(_mm512_loadu_ps(at + v * VL), scale);
                sums[r][v]  = _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[r][v]), both, sums[r][v]);
                if (with_minima)
                    sums[r][v] = _mm512_fmadd_ps(
                        _mm512_loadu_ps(strip->minima + i / INTS_RUN * HL_STRIP + v * VL), sum,
                        sums[r][v]);
            }
        }
    }
    store_tile(c, c_stride, sums, rows, strip->n, strip->bias);
}

/* ------------------------------------------------------------------------ products */

static void multiply_f32(float *c, int64_t c_stride, const hl_packed_x *x, const hl_strip *s)
{
    int64_t n_parts = (s->k + DEPTH - 1) / DEPTH;

    for (int64_t part = 0; part < n_parts; part++) {
        int64_t      first = part * DEPTH;
        int64_t      depth = s->k - first < DEPTH ? s->k - first : DEPTH;
        const float *w     = (const float *)s->values + first * HL_STRIP;
        const float *bias  = part + 1 == n_parts ? s->bias : NULL;
        int64_t      row   = 0;

        for (; row + TILE_X <= x->m; row += TILE_X)
            tile_f32(c + row * c_stride, c_stride, x->f32 + row * x->stride + first, x->stride, w,
                     depth, s->n, TILE_X, first == 0, bias);
        for (; row < x->m; row++)
            tile_f32(c + row * c_stride, c_stride, x->f32 + row * x->stride + first, x->stride, w,
                     depth, s->n, 1, first == 0, bias);
    }
}

BF16_TARGET static void multiply_bf16(float *c, int64_t c_stride, const hl_packed_x *x,
                                      const hl_strip *s)
{
    int64_t columns = (s->k + 1) / 2 * 2;
    int64_t n_parts = (columns + 2 * DEPTH - 1) / (2 * DEPTH);

    for (int64_t part = 0; part < n_parts; part++) {
        int64_t         first = part * 2 * DEPTH;
        int64_t         left  = columns - first;
        int64_t         depth = (left < 2 * DEPTH ? left : 2 * DEPTH) / 2;
        const uint16_t *w     = (const uint16_t *)s->values + first * HL_STRIP;
        const float    *bias  = part + 1 == n_parts ? s->bias : NULL;
        int64_t         row   = 0;

        for (; row + TILE_X <= x->m; row += TILE_X)
            tile_bf16(c + row * c_stride, c_stride, x->bf16 + row * columns + first, columns, w,
                      depth, s->n, TILE_X, first == 0, bias);
        for (; row < x->m; row++)
            tile_bf16(c + row * c_stride, c_stride, x->bf16 + row * columns + first, columns, w,
                      depth, s->n, 1, first == 0, bias);
    }
}

VNNI_TARGET static void multiply_int8(float *c, int64_t c_stride, const hl_packed_x *x,
                                      const hl_strip *s)
{
    int64_t row = 0;

    for (; row + TILE_INT8 <= x->m; row += TILE_INT8) {
        float *out = c + row * c_stride;
        if (s->minima != NULL && s->run == BLOCK)
            tile_int8(out, c_stride, x, row, s, TILE_INT8, BLOCK, true);
        else if (s->minima != NULL)
            tile_int8(out, c_stride, x, row, s, TILE_INT8, INTS_RUN, true);
        else if (s->run == BLOCK)
            tile_int8(out, c_stride, x, row, s, TILE_INT8, BLOCK, false);
        else
            tile_int8(out, c_stride, x, row, s, TILE_INT8, INTS_RUN, false);
    }
    for (; row < x->m; row++) {
        if (s->run == BLOCK)
            tile_int8(c + row * c_stride, c_stride, x, row, s, 1, BLOCK, s->minima != NULL);
        else
            tile_int8(c + row * c_stride, c_stride, x, row, s, 1, INTS_RUN, s->minima != NULL);
    }
}

static void multiply(float *c, int64_t c_stride, const hl_packed_x *x, const hl_strip *strip)
{
    switch (strip->math) {
    case HL_MATH_BF16:
        multiply_bf16(c, c_stride, x, strip);
        break;
    case HL_MATH_INT8:
        multiply_int8(c, c_stride, x, strip);
        break;
    default:
        multiply_f32(c, c_stride, x, strip);
        break;
    }
}

const hl_packed hl_packed_avx512 = {
    .has      = has,
    .has_type = has_type,
    .rows     = rows_in,
    .columns  = columns_in,
    .blocks   = blocks_in,
    .round    = round_row,
    .multiply = multiply,
};
