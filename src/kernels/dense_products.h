/* dense_products.h - dot and combine of dense.h on vectors of simd.h.
 *
 * Included once by dense_avx2.c and each of its siblings, after dense_vector.h.
 *
 * Few rows are multiplied by weights that come from memory, so what counts is to
 * keep memory busy: DOT_WEIGHTS rows of W are read side by side, each far enough
 * ahead, and their values become floats in registers.  A block's values are
 * multiplied as the integers that they are; its scale comes in once, on what they
 * add up to:
 *
 *     sum d q x  =  d (q_0 x_0 + q_1 x_1 + ...)        Q8_0, Q4_0, Q6_K
 *     sum (d q - m) x  =  d (sum q x) - m (sum x)      Q4_K
 *
 * Whatever shares a call, the sums of one x and one w are added in one order. */
#ifndef HL_KERNELS_DENSE_PRODUCTS_H
#define HL_KERNELS_DENSE_PRODUCTS_H

#include "base/dtype.h"
#include "kernels/dense_vector.h"
#include "kernels/quant.h"
#include "kernels/quant_blocks.h"

enum {
    DOT_WEIGHTS    = 4, /* rows of W that are read side by side */
    DOT_ROWS       = 4, /* rows of x that share what is read, where there are so many, */
    TILE_FLOATS    = VL == 8 ? 1 : 2, /* ... with so many of W: registers must hold all sums, */
    TILE_BLOCKS    = VL == 8 ? 2 : 4, /* of which blocks need fewer, and AVX2 has but 16 */
    DOT_DECODED    = 256,             /* values of a row that are decoded together */
    COMBINED_ROWS  = 8,               /* so that sums are read and written once for all of them */
    COMBINED_WIDTH = 1024,            /* sums that stay in the first cache */
};

/* ------------------------------------------------------------------ weights */

HL_INLINE vf load_weight(const void *w, hl_dtype dtype, int64_t index)
{
    switch (dtype) {
    case HL_DTYPE_F16:
        return vf_load_f16((const uint16_t *)w + index);
    case HL_DTYPE_BF16:
        return vf_load_bf16((const uint16_t *)w + index);
    default:
        return vf_load((const float *)w + index);
    }
}

HL_INLINE vf load_weight_part(const void *w, hl_dtype dtype, int64_t index, int64_t n)
{
    uint16_t halves[VL] = { 0 };

    if (dtype == HL_DTYPE_F32)
        return load_part((const float *)w + index, n);
    memcpy(halves, (const uint16_t *)w + index, (size_t)n * sizeof *halves);
    return load_weight(halves, dtype, 0);
}

HL_INLINE vf as_floats(vi a)
{
    return __builtin_convertvector(a, vf);
}

/* The sum of all lanes, in double: lanes are short sums, so that little is lost before. */
HL_INLINE float sum_lanes(vf a, vf b)
{
    return (float)sum_doubles((vd_low(a) + vd_high(a)) + (vd_low(b) + vd_high(b)));
}

/* What lies `ahead` bytes behind p will be read soon: the same place of a row that
 * comes later.  There may be nothing; asking for it is no access. */
HL_INLINE void read_ahead(const void *p, int64_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)ahead), 0, 3);
}

/* -------------------------------------------------------------------- tiles
 *
 * Some rows of x times some rows of W: what is read and decoded of W serves all of x.  How many
 * of each are constants wherever a tile is worked on, and do not show in what comes out. */

typedef struct dot_tile {
    float             *out;
    int64_t            out_stride;
    const float       *x;
    int64_t            x_stride;
    const void *const *w;
    int64_t            n;
} dot_tile;

/* ------------------------------------------------------------ dots of floats */

HL_INLINE void dot_floats(const dot_tile *t, int n_x, int n_weights, hl_dtype dtype)
{
    int64_t n     = t->n;
    int64_t size  = dtype == HL_DTYPE_F32 ? 4 : 2;
    int64_t ahead = DOT_WEIGHTS * n * size;
    int64_t i     = 0;
    vf      sums[DOT_ROWS][DOT_WEIGHTS][2];

    for (int r = 0; r < n_x; r++) {
        for (int j = 0; j < n_weights; j++)
            sums[r][j][0] = sums[r][j][1] = (vf){ 0 };
    }
    for (; i + 2 * VL <= n; i += 2 * VL) {
        for (int j = 0; j < n_weights; j++) {
            for (int64_t byte = 0; byte < 2 * VL * size; byte += 64)
                read_ahead((const uint8_t *)t->w[j] + i * size + byte, ahead);
            vf w0 = load_weight(t->w[j], dtype, i);
            vf w1 = load_weight(t->w[j], dtype, i + VL);
            for (int r = 0; r < n_x; r++) {
                const float *x = t->x + r * t->x_stride + i;
                sums[r][j][0]  = vf_fma(vf_load(x), w0, sums[r][j][0]);
                sums[r][j][1]  = vf_fma(vf_load(x + VL), w1, sums[r][j][1]);
            }
        }
    }
    for (; i < n; i += VL) {
        int64_t left = n - i < VL ? n - i : VL;
        for (int j = 0; j < n_weights; j++) {
            vf w0 = load_weight_part(t->w[j], dtype, i, left);
            for (int r = 0; r < n_x; r++)
                sums[r][j][0] =
                    vf_fma(load_part(t->x + r * t->x_stride + i, left), w0, sums[r][j][0]);
        }
    }
    for (int r = 0; r < n_x; r++) {
        for (int j = 0; j < n_weights; j++)
            t->out[r * t->out_stride + j] = sum_lanes(sums[r][j][0], sums[r][j][1]);
    }
}

/* ------------------------------------------------------------ dots of blocks
 *
 * A type has a function that adds one block of n_weights rows to their sums.
 * PIECES vectors are 32 values. */

enum { PIECES = 32 / VL };

/* One block: x (n_x, ...), x_stride apart, and where the rows of W have it. */
typedef struct dot_block {
    const float   *x;
    int64_t        x_stride;
    const uint8_t *b[DOT_WEIGHTS];
} dot_block;

typedef vf block_sums[DOT_ROWS][DOT_WEIGHTS];

/* The scales, stored as f16 at `offset`, of the blocks of up to four rows.  Converted
 * together, and broadcast from memory: that leaves the vector units to the products. */
HL_INLINE void load_scales(float out[DOT_WEIGHTS], const uint8_t *const *b, int offset,
                           int n_weights)
{
    uint64_t halves = 0;

    for (int j = 0; j < n_weights; j++)
        halves |= (uint64_t)hl_read_u16(b[j] + offset) << (16 * j);
    store_f16x4(out, halves);
}

HL_INLINE void add_q8_0(block_sums sums, const dot_block *d, int n_x, int n_weights)
{
    float scales[DOT_WEIGHTS];

    load_scales(scales, d->b, 0, n_weights);
    for (int j = 0; j < n_weights; j++) {
        vf part[DOT_ROWS];
        for (int i = 0; i < PIECES; i++) {
            vf q = as_floats(vi_load_s8(d->b[j] + 2 + i * VL));
            for (int r = 0; r < n_x; r++) {
                vf x    = vf_load(d->x + r * d->x_stride + i * VL);
                part[r] = i == 0 ? x * q : vf_fma(x, q, part[r]);
            }
        }
        for (int r = 0; r < n_x; r++)
            sums[r][j] = vf_fma(vf_set(scales[j]), part[r], sums[r][j]);
    }
}

/* The low or the high half of bytes.  AVX-512 looks it up: that takes the lowest four
 * bits of a lane by itself, and what it finds is a float. */
HL_INLINE vf nibble_values(vi bytes, int shift)
{
#if defined(__AVX512F__)
    const vf book = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return (vf)_mm512_permutexvar_ps((__m512i)(bytes >> shift), (__m512)book);
#else
    return as_floats(bytes >> shift & 15);
#endif
}

/* Lanes that add up to the sum of 32 of x, or of n_pieces vectors of it. */
HL_INLINE vf x_lanes(const float *x, int n_pieces)
{
    vf sum = vf_load(x);

    for (int i = 1; i < n_pieces; i++)
        sum += vf_load(x + i * VL);
    return sum;
}

/* What is subtracted from every q, 8, is so for all rows: they start from -8 x. */
HL_INLINE void add_q4_0(block_sums sums, const dot_block *d, int n_x, int n_weights)
{
    vf    start[DOT_ROWS];
    float scales[DOT_WEIGHTS];

    for (int r = 0; r < n_x; r++)
        start[r] = -8.0f * x_lanes(d->x + r * d->x_stride, PIECES);
    load_scales(scales, d->b, 0, n_weights);
    for (int j = 0; j < n_weights; j++) {
        vf part[DOT_ROWS];
        for (int r = 0; r < n_x; r++)
            part[r] = start[r];
        for (int i = 0; i < PIECES / 2; i++) {
            vi bytes = vi_load_u8(d->b[j] + 2 + i * VL);
            vf low   = nibble_values(bytes, 0);
            vf high  = nibble_values(bytes, 4);
            for (int r = 0; r < n_x; r++) {
                const float *x = d->x + r * d->x_stride + i * VL;
                part[r]        = vf_fma(vf_load(x), low, part[r]);
                part[r]        = vf_fma(vf_load(x + 16), high, part[r]);
            }
        }
        for (int r = 0; r < n_x; r++)
            sums[r][j] = vf_fma(vf_set(scales[j]), part[r], sums[r][j]);
    }
}

/* hl_unpack_k_scales, on four bytes at a time: eight scales, then eight minima. */
HL_INLINE void unpack_k_scales(float out[16], const uint8_t *packed)
{
    uint32_t low      = hl_read_u32(packed);
    uint32_t middle   = hl_read_u32(packed + 4);
    uint32_t high     = hl_read_u32(packed + 8);
    uint32_t words[4] = { low & 0x3f3f3f3f, (high & 0x0f0f0f0f) | (low >> 2 & 0x30303030),
                          middle & 0x3f3f3f3f,
                          (high >> 4 & 0x0f0f0f0f) | (middle >> 2 & 0x30303030) };
    uint8_t  bytes[16];

    memcpy(bytes, words, sizeof bytes);
    for (int i = 0; i < 16; i += VL)
        vf_store(out + i, as_floats(vi_load_u8(bytes + i)));
}

/* 64 values of one row of a Q4_K: nibbles of 32 bytes, of which the low ones are one run of 32
 * values and the high ones the next. */
HL_INLINE void add_q4_k_pair(vf *low, vf *high, const dot_block *d, int n_x, const uint8_t *bytes,
                             int first)
{
    for (int r = 0; r < n_x; r++)
        low[r] = high[r] = (vf){ 0 };
    for (int i = 0; i < PIECES; i++) {
        vi q      = vi_load_u8(bytes + i * VL);
        vf q_low  = nibble_values(q, 0);
        vf q_high = nibble_values(q, 4);
        for (int r = 0; r < n_x; r++) {
            const float *at = d->x + r * d->x_stride + first + i * VL;
            low[r]          = vf_fma(vf_load(at), q_low, low[r]);
            high[r]         = vf_fma(vf_load(at + 32), q_high, high[r]);
        }
    }
}

HL_INLINE void add_q4_k(block_sums sums, const dot_block *d, int n_x, int n_weights)
{
    vf    x_sums[DOT_ROWS][8];
    float scale[DOT_WEIGHTS], minimum[DOT_WEIGHTS];

    load_scales(scale, d->b, 0, n_weights);
    load_scales(minimum, d->b, 2, n_weights);
    for (int r = 0; r < n_x; r++) {
        for (int s = 0; s < 8; s++)
            x_sums[r][s] = x_lanes(d->x + r * d->x_stride + 32 * s, PIECES);
    }
    for (int j = 0; j < n_weights; j++) {
        float scales[16];
        vf    part[DOT_ROWS] = { { 0 } }, minima[DOT_ROWS] = { { 0 } };

        unpack_k_scales(scales, d->b[j] + 4);
        for (int s = 0; s < 8; s += 2) {
            vf low[DOT_ROWS], high[DOT_ROWS];

            add_q4_k_pair(low, high, d, n_x, d->b[j] + 16 + 16 * s, 32 * s);
            for (int r = 0; r < n_x; r++) {
                part[r]   = vf_fma(vf_set(scales[s]), low[r], part[r]);
                part[r]   = vf_fma(vf_set(scales[s + 1]), high[r], part[r]);
                minima[r] = vf_fma(vf_set(scales[8 + s]), x_sums[r][s], minima[r]);
                minima[r] = vf_fma(vf_set(scales[9 + s]), x_sums[r][s + 1], minima[r]);
            }
        }
        for (int r = 0; r < n_x; r++) {
            sums[r][j] = vf_fma(vf_set(scale[j]), part[r], sums[r][j]);
            sums[r][j] = vf_fma(vf_set(-minimum[j]), minima[r], sums[r][j]);
        }
    }
}

/* The 32 values from 32 s on: q + 32, in bytes.  No instruction shifts bytes: what a
 * shift of words brings in from the neighbour, the mask takes away. */
HL_INLINE void unpack_q6_k(uint8_t q[32], const uint8_t *b, int s)
{
    typedef uint16_t words __attribute__((vector_size(32)));
    words            low, high;

    memcpy(&low, b + s / 4 * 64 + s % 2 * 32, sizeof low);
    memcpy(&high, b + 128 + s / 4 * 32, sizeof high);
    low = (low >> (s / 2 % 2 * 4) & 0x0f0f) | (high >> (s % 4 * 2) & 0x0303) << 4;
    memcpy(q, &low, sizeof low);
}

/* 32 values of one row of a Q6_K, from 32 s on: two runs of 16, each with its scale. */
HL_INLINE void add_q6_k_pair(vf *part, const dot_block *d, int n_x, vf (*start)[16],
                             const uint8_t q[32], const float *scales, int s)
{
    enum { RUN = 16 / VL };

    for (int half = 0; half < 2; half++) {
        vf run[DOT_ROWS];
        for (int r = 0; r < n_x; r++)
            run[r] = start[r][2 * s + half];
        for (int i = 0; i < RUN; i++) {
            int at     = half * 16 + i * VL;
            vf  values = as_floats(vi_load_u8(q + at));
            for (int r = 0; r < n_x; r++)
                run[r] = vf_fma(vf_load(d->x + r * d->x_stride + 32 * s + at), values, run[r]);
        }
        for (int r = 0; r < n_x; r++)
            part[r] = vf_fma(vf_set(scales[2 * s + half]), run[r], part[r]);
    }
}

HL_INLINE void add_q6_k(block_sums sums, const dot_block *d, int n_x, int n_weights)
{
    vf    start[DOT_ROWS][16];
    float scale[DOT_WEIGHTS];

    load_scales(scale, d->b, 208, n_weights);
    for (int r = 0; r < n_x; r++) {
        for (int s = 0; s < 16; s++)
            start[r][s] = -32.0f * x_lanes(d->x + r * d->x_stride + 16 * s, 16 / VL);
    }
    for (int j = 0; j < n_weights; j++) {
        float scales[16];
        vf    part[DOT_ROWS] = { { 0 } };

        for (int i = 0; i < 16; i += VL)
            vf_store(scales + i, as_floats(vi_load_s8(d->b[j] + 192 + i)));
        for (int s = 0; s < 8; s++) {
            uint8_t q[32];
            unpack_q6_k(q, d->b[j], s);
            add_q6_k_pair(part, d, n_x, start, q, scales, s);
        }
        for (int r = 0; r < n_x; r++)
            sums[r][j] = vf_fma(vf_set(scale[j]), part[r], sums[r][j]);
    }
}

typedef void (*add_block)(block_sums sums, const dot_block *d, int n_x, int n_weights);

/* `add`, the counts and the sizes of a block are constants. */
HL_INLINE void dot_blocks(const dot_tile *t, int n_x, int n_weights, add_block add, int n_values,
                          int n_bytes)
{
    int64_t    n_blocks = t->n / n_values;
    dot_block  d        = { .x_stride = t->x_stride };
    block_sums sums;

    for (int r = 0; r < n_x; r++) {
        for (int j = 0; j < n_weights; j++)
            sums[r][j] = (vf){ 0 };
    }
    for (int64_t block = 0; block < n_blocks; block++) {
        d.x = t->x + block * n_values;
        for (int j = 0; j < n_weights; j++) {
            d.b[j] = (const uint8_t *)t->w[j] + block * n_bytes;
            for (int byte = 0; byte < n_bytes; byte += 64)
                read_ahead(d.b[j] + byte, DOT_WEIGHTS * n_blocks * n_bytes);
        }
        add(sums, &d, n_x, n_weights);
    }
    for (int r = 0; r < n_x; r++) {
        for (int j = 0; j < n_weights; j++)
            t->out[r * t->out_stride + j] = sum_lanes(sums[r][j], (vf){ 0 });
    }
}

/* ------------------------------------------------------- dots of other blocks */

#if defined(__AVX2__)
#define DEQUANTISE hl_dequantise_avx2
#else
#define DEQUANTISE hl_dequantise_scalar
#endif

/* Types that are not worth a loop of their own become floats first, some of a row at a
 * time. */
static void dot_decoded(float *out, const float *x, const void *w, hl_dtype dtype, int64_t n)
{
    hl_dtype_block block = hl_dtype_block_of(dtype);
    float          values[DOT_DECODED];
    vf             sums[2] = { { 0 } };

    for (int64_t first = 0; first < n; first += DOT_DECODED) {
        int64_t count = n - first < DOT_DECODED ? n - first : DOT_DECODED;
        size_t  at    = (size_t)first / block.n_values * block.n_bytes;

        DEQUANTISE(values, dtype, (const uint8_t *)w + at, (size_t)count / block.n_values);
        for (int64_t i = 0; i < count; i += 2 * VL) { /* blocks are of 32 and more */
            sums[0] = vf_fma(vf_load(x + first + i), vf_load(values + i), sums[0]);
            sums[1] = vf_fma(vf_load(x + first + i + VL), vf_load(values + i + VL), sums[1]);
        }
    }
    *out = sum_lanes(sums[0], sums[1]);
}

/* --------------------------------------------------------------------- dots */

/* Row `row` of x and those after it, with weight `j` and those after it. */
HL_INLINE void dot_at(const hl_dot *d, int64_t row, int n_x, int64_t j, int n_weights,
                      hl_dtype dtype)
{
    dot_tile t = { .out        = d->out + row * d->out_stride + j,
                   .out_stride = d->out_stride,
                   .x          = d->x + row * d->x_stride,
                   .x_stride   = d->x_stride,
                   .w          = d->w + j,
                   .n          = d->n };

    switch (dtype) {
    case HL_DTYPE_Q8_0:
        dot_blocks(&t, n_x, n_weights, add_q8_0, 32, 34);
        break;
    case HL_DTYPE_Q4_0:
        dot_blocks(&t, n_x, n_weights, add_q4_0, 32, 18);
        break;
    case HL_DTYPE_Q4_K:
        dot_blocks(&t, n_x, n_weights, add_q4_k, 256, 144);
        break;
    case HL_DTYPE_Q6_K:
        dot_blocks(&t, n_x, n_weights, add_q6_k, 256, 210);
        break;
    default:
        dot_floats(&t, n_x, n_weights, dtype);
        break;
    }
}

/* Four rows of W at a time with every x, in tiles; then the rest one by one. */
HL_INLINE void dot_all(const hl_dot *d, hl_dtype dtype)
{
    const bool is_float = dtype == HL_DTYPE_F32 || dtype == HL_DTYPE_F16 || dtype == HL_DTYPE_BF16;
    const int  n_tile   = is_float ? TILE_FLOATS : TILE_BLOCKS;
    const int  n_wide   = 2 * n_tile < DOT_WEIGHTS ? 2 * n_tile : DOT_WEIGHTS;
    int64_t    j        = 0;

    for (; j + DOT_WEIGHTS <= d->n_weights; j += DOT_WEIGHTS) {
        int64_t row = 0;

        for (; row + DOT_ROWS <= d->n_rows; row += DOT_ROWS) {
            for (int part = 0; part < DOT_WEIGHTS; part += n_tile)
                dot_at(d, row, DOT_ROWS, j + part, n_tile, dtype);
        }
        for (; row + DOT_ROWS / 2 <= d->n_rows; row += DOT_ROWS / 2) {
            for (int part = 0; part < DOT_WEIGHTS; part += n_wide)
                dot_at(d, row, DOT_ROWS / 2, j + part, n_wide, dtype);
        }
        for (; row < d->n_rows; row++)
            dot_at(d, row, 1, j, DOT_WEIGHTS, dtype);
    }
    for (; j < d->n_weights; j++) {
        for (int64_t row = 0; row < d->n_rows; row++)
            dot_at(d, row, 1, j, 1, dtype);
    }
}

static void dot_others(const hl_dot *d)
{
    for (int64_t j = 0; j < d->n_weights; j++) {
        for (int64_t row = 0; row < d->n_rows; row++)
            dot_decoded(d->out + row * d->out_stride + j, d->x + row * d->x_stride, d->w[j],
                        d->dtype, d->n);
    }
}

/* A function for each type: in one they would be more than compilers like to work on. */
#define DOT_OF(name, dtype)                                                                        \
    static __attribute__((noinline)) void name(const hl_dot *d)                                    \
    {                                                                                              \
        dot_all(d, dtype);                                                                         \
    }

DOT_OF(dot_f32, HL_DTYPE_F32)
DOT_OF(dot_f16, HL_DTYPE_F16)
DOT_OF(dot_bf16, HL_DTYPE_BF16)
DOT_OF(dot_q8_0, HL_DTYPE_Q8_0)
DOT_OF(dot_q4_0, HL_DTYPE_Q4_0)
DOT_OF(dot_q4_k, HL_DTYPE_Q4_K)
DOT_OF(dot_q6_k, HL_DTYPE_Q6_K)

static void dense_dot(const hl_dot *d)
{
    switch (d->dtype) {
    case HL_DTYPE_F32:
        dot_f32(d);
        break;
    case HL_DTYPE_F16:
        dot_f16(d);
        break;
    case HL_DTYPE_BF16:
        dot_bf16(d);
        break;
    case HL_DTYPE_Q8_0:
        dot_q8_0(d);
        break;
    case HL_DTYPE_Q4_0:
        dot_q4_0(d);
        break;
    case HL_DTYPE_Q4_K:
        dot_q4_k(d);
        break;
    case HL_DTYPE_Q6_K:
        dot_q6_k(d);
        break;
    default:
        dot_others(d);
        break;
    }
}

/* ------------------------------------------------------------------ combine */

/* A vector of n_rows rows of w, weighted: the even ones, the odd ones, both. */
HL_INLINE vf combine_vector(const vf *w, const float *x, int n_rows)
{
    vf part[2] = { { 0 } };

    for (int row = 0; row < n_rows; row++)
        part[row % 2] = vf_fma(vf_set(x[row]), w[row], part[row % 2]);
    return part[0] + part[1];
}

/* out (n_outs, n) += rows [first, first + n_rows) of w, from `column` on. */
HL_INLINE void combine_rows(const hl_combine *c, hl_dtype dtype, int64_t column, int64_t n,
                            int64_t first, int n_rows)
{
    int64_t      size = dtype == HL_DTYPE_F32 ? 4 : 2;
    int64_t      at   = first * c->w_stride + column;
    const float *x    = c->x + first;
    float       *out  = c->out + column;
    int64_t      i    = 0;
    vf           w[COMBINED_ROWS];

    for (; i + VL <= n; i += VL) {
        for (int row = 0; row < n_rows; row++) {
            const uint8_t *from = (const uint8_t *)c->w + (at + row * c->w_stride + i) * size;
            if (i * size % 64 < VL * size)
                read_ahead(from, COMBINED_ROWS * c->w_stride * size);
            w[row] = load_weight(from, dtype, 0);
        }
        for (int64_t k = 0; k < c->n_outs; k++) {
            float *sums = out + k * c->out_stride + i;
            vf_store(sums, vf_load(sums) + combine_vector(w, x + k * c->x_stride, n_rows));
        }
    }
    if (i == n)
        return;
    for (int row = 0; row < n_rows; row++)
        w[row] = load_weight_part(c->w, dtype, at + row * c->w_stride + i, n - i);
    for (int64_t k = 0; k < c->n_outs; k++) {
        float *sums = out + k * c->out_stride + i;
        vf     more = combine_vector(w, x + k * c->x_stride, n_rows);
        store_part(sums, load_part(sums, n - i) + more, n - i);
    }
}

/* Columns in runs whose sums stay in the first cache. */
HL_INLINE void combine_all(const hl_combine *c, hl_dtype dtype)
{
    int64_t width = c->n_outs > 4 ? COMBINED_WIDTH / 4 : COMBINED_WIDTH;

    for (int64_t column = 0; column < c->n; column += width) {
        int64_t n   = c->n - column < width ? c->n - column : width;
        int64_t row = 0;

        for (; row + COMBINED_ROWS <= c->n_rows; row += COMBINED_ROWS)
            combine_rows(c, dtype, column, n, row, COMBINED_ROWS);
        for (; row < c->n_rows; row++)
            combine_rows(c, dtype, column, n, row, 1);
    }
}

static void dense_combine(const hl_combine *c)
{
    switch (c->dtype) {
    case HL_DTYPE_F16:
        combine_all(c, HL_DTYPE_F16);
        break;
    case HL_DTYPE_BF16:
        combine_all(c, HL_DTYPE_BF16);
        break;
    default:
        combine_all(c, HL_DTYPE_F32);
        break;
    }
}

/* -------------------------------------------------------------------- in double */

enum { EXACT_KEYS = 4 }; /* at a time: their sums do not wait for each other */

HL_INLINE void dots_exact_of(double *out, const double *q, const float *k, int64_t stride,
                             int64_t n, int n_keys)
{
    vd      low[EXACT_KEYS]  = { { 0 } };
    vd      high[EXACT_KEYS] = { { 0 } };
    int64_t i                = 0;

    for (; i + VL <= n; i += VL) {
        for (int key = 0; key < n_keys; key++) {
            vf values = vf_load(k + key * stride + i);
            read_ahead(k + key * stride + i, 4 * EXACT_KEYS * stride * (int64_t)sizeof *k);
            low[key]  = vd_fma(vd_load(q + i), vd_low(values), low[key]);
            high[key] = vd_fma(vd_load(q + i + VD), vd_high(values), high[key]);
        }
    }
    for (int key = 0; key < n_keys; key++) {
        double rest = 0.0;
        for (int64_t j = i; j < n; j++)
            rest += q[j] * (double)k[key * stride + j];
        out[key] = sum_doubles(low[key] + high[key]) + rest;
    }
}

static void dense_dots_exact(double *out, const double *q, const float *k, int64_t stride,
                             int64_t n_keys, int64_t n)
{
    int64_t key = 0;

    for (; key + EXACT_KEYS <= n_keys; key += EXACT_KEYS)
        dots_exact_of(out + key, q, k + key * stride, stride, n, EXACT_KEYS);
    for (; key < n_keys; key++)
        dots_exact_of(out + key, q, k + key * stride, stride, n, 1);
}

/* e^x = 2^k e^r, k = round(x / ln 2), |r| <= ln 2 / 2: the power from exponent bits (as in
 * simd_math.h), e^r by its series, whose 14th term is below 2^-56. */
HL_INLINE vd vd_exp(vd x)
{
    static const double series[] = { 1.0 / 6227020800,
                                     1.0 / 479001600,
                                     1.0 / 39916800,
                                     1.0 / 3628800,
                                     1.0 / 362880,
                                     1.0 / 40320,
                                     1.0 / 5040,
                                     1.0 / 720,
                                     1.0 / 120,
                                     1.0 / 24,
                                     1.0 / 6,
                                     1.0 / 2,
                                     1.0,
                                     1.0 };

    const vd magic   = 0x1.8p52 + 1023.0 - (vd){ 0 };
    const vd floor   = -707.0 - (vd){ 0 };
    vl       is_zero = x < floor;
    vd       bounded = (vd)(((vl)floor & is_zero) | ((vl)x & ~is_zero)); /* keeps a NaN */
    vd       shifted = vd_fma(bounded, 0x1.71547652b82fep0 - (vd){ 0 }, magic);
    vd       k       = shifted - magic;
    vd       r       = vd_fma(k, -0x1.62e42fefa39efp-1 - (vd){ 0 }, bounded);
    vd       power   = (vd)((vl)shifted << 52);
    vd       sum     = series[0] - (vd){ 0 };

    r = vd_fma(k, -0x1.abc9e3b39803fp-56 - (vd){ 0 }, r); /* what ln 2 is beyond a double */
    for (size_t i = 1; i < sizeof series / sizeof *series; i++)
        sum = vd_fma(sum, r, series[i] - (vd){ 0 });
    return (vd)((vl)(sum * power) & ~is_zero);
}

static void dense_exp_exact(double *x, double shift, int64_t n)
{
    int64_t i        = 0;
    double  rest[VD] = { 0 };

    for (; i + VD <= n; i += VD)
        vd_store(x + i, vd_exp(vd_load(x + i) - shift));
    if (i == n)
        return;
    memcpy(rest, x + i, (size_t)(n - i) * sizeof *x);
    vd_store(rest, vd_exp(vd_load(rest) - shift));
    memcpy(x + i, rest, (size_t)(n - i) * sizeof *x);
}

#endif
