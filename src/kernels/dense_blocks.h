/* dense_blocks.h - dot products with weights that are stored in blocks.
 *
 * A block's values are multiplied as integers; the scale is applied once, to their sum:
 *
 *     sum d q x  =  d (q_0 x_0 + q_1 x_1 + ...)        Q8_0, Q4_0, Q6_K
 *     sum (d q - m) x  =  d (sum q x) - m (sum x)      Q4_K
 *
 * Other types are first unpacked to bytes (quant_ints_avx2.h) or decoded to floats.
 *
 * Included by dense_products.h alone. */
#ifndef HL_KERNELS_DENSE_BLOCKS_H
#define HL_KERNELS_DENSE_BLOCKS_H

#include "base/dtype.h"
#include "kernels/dense_vector.h"
#include "kernels/quant.h"
#include "kernels/quant_blocks.h"
#if defined(__AVX2__)
#include "kernels/quant_ints_avx2.h"
#endif

enum {
    DOT_WEIGHTS = 4,    /* rows of W that are read side by side */
    DOT_ROWS    = 4,    /* rows of x that share each read of W, if there are enough */
    DOT_DECODED = 256,  /* values of a row that are decoded together */
    INTS_AHEAD  = 2048, /* bytes that are read ahead of a row in bytes */
};

/* -------------------------------------------------------------------- tiles
 *
 * A tile is a few rows of x times a few rows of W: each part of W is read and decoded once for all
 * rows of x.  The numbers of rows are compile-time constants and do not change a result. */

typedef struct dot_tile {
    float             *out;
    int64_t            out_stride;
    const float       *x;
    int64_t            x_stride;
    const void *const *w;
    int64_t            n;
} dot_tile;

HL_INLINE vf as_floats(vi a)
{
    return __builtin_convertvector(a, vf);
}

/* The sum of all lanes, in double.  Each lane is a short sum and has lost little precision. */
HL_INLINE float sum_lanes(vf a, vf b)
{
    return (float)sum_doubles((vd_low(a) + vd_high(a)) + (vd_low(b) + vd_high(b)));
}

/* Prefetches the bytes `ahead` of p, where a later row has the same columns.  They may lie beyond
 * the data: a prefetch is not an access. */
HL_INLINE void read_ahead(const void *p, int64_t ahead)
{
    __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)ahead), 0, 3);
}

/* ------------------------------------------------------------ dots of blocks
 *
 * Each type has a function that adds one block of n_weights rows to sums.  PIECES is vectors per 32
 * values. */

enum { PIECES = 32 / VL };

/* One block: x (n_x, ...), rows x_stride apart, and the offset of the block in the rows of W. */
typedef struct dot_block {
    const float   *x;
    int64_t        x_stride;
    const uint8_t *b[DOT_WEIGHTS];
} dot_block;

typedef vf block_sums[DOT_ROWS][DOT_WEIGHTS];

/* Loads the scales of one block of up to four rows, stored as f16 at `offset`.  They are converted
 * together and broadcast from memory, which leaves the vector units to the products. */
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

#if !defined(__AVX512F__) /* which has dense_nibbles.h */

/* The low or the high nibbles of bytes, as floats. */
HL_INLINE vf nibble_values(vi bytes, int shift)
{
    return as_floats(bytes >> shift & 15);
}

/* Lanes whose total is the sum of 32 values of x, or of n_pieces vectors of it. */
HL_INLINE vf x_lanes(const float *x, int n_pieces)
{
    vf sum = vf_load(x);

    for (int i = 1; i < n_pieces; i++)
        sum += vf_load(x + i * VL);
    return sum;
}

/* Every q is stored plus 8 in all rows, so their sums start from -8 x. */
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

/* Like hl_unpack_k_scales, for four bytes at a time: eight scales, then eight minima. */
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

/* Adds 64 values of one row of a Q4_K.  They are the nibbles of 32 bytes: the low nibbles are one
 * run of 32 values, the high nibbles the next. */
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

/* Unpacks 32 values, starting at value 32 s, as q + 32 in bytes.  There is no instruction that
 * shifts bytes, so words are shifted, and the mask removes the bits of the neighbor byte. */
HL_INLINE void unpack_q6_k(uint8_t q[32], const uint8_t *b, int s)
{
    typedef uint16_t words __attribute__((vector_size(32)));
    words            low, high;

    memcpy(&low, b + s / 4 * 64 + s % 2 * 32, sizeof low);
    memcpy(&high, b + 128 + s / 4 * 32, sizeof high);
    low = (low >> (s / 2 % 2 * 4) & 0x0f0f) | (high >> (s % 4 * 2) & 0x0303) << 4;
    memcpy(q, &low, sizeof low);
}

/* Adds 32 values of one row of a Q6_K from value 32 s on: two runs of 16, each with its scale. */
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

#endif

typedef void (*add_block)(block_sums sums, const dot_block *d, int n_x, int n_weights);

/* `add`, the counts and the block sizes are compile-time constants. */
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
#define DEQUANTISE hl_dequantize_avx2
#else
#define DEQUANTISE hl_dequantize_scalar
#endif

#if defined(__AVX2__)

/* Sums per row of x, so that no addition waits for the one before. */
enum { INTS_SUMS = 4, INTS_ROWS = VL == 16 ? 4 : 2 };
typedef vf ints_sums[INTS_ROWS][INTS_SUMS];

/* Adds values [first, first + n) of one row of W, unpacked, times n_x rows of x. */
HL_INLINE void add_ints(ints_sums sums, const dot_tile *t, const quant_ints *ints, int64_t first,
                        int64_t n, int n_x, bool with_minimum)
{
#pragma GCC unroll 32
    for (int64_t i = 0; i < n; i += VL) {
        int k      = (int)(i / VL) % INTS_SUMS;
        vf  scale  = vf_set(ints->scale[i / INTS_RUN]);
        vf  values = as_floats(vi_load_s8((const uint8_t *)ints->q + i));

        values = with_minimum ? vf_fma(values, scale, vf_set(ints->minimum[i / INTS_RUN]))
                              : values * scale;
        for (int r = 0; r < n_x; r++)
            sums[r][k] = vf_fma(vf_load(t->x + r * t->x_stride + first + i), values, sums[r][k]);
    }
}

/* n_x rows of x times one row of W.  Its blocks become bytes, these become floats in registers, and
 * each is multiplied with all rows of x. */
HL_INLINE void dot_ints(const dot_tile *t, int n_x, hl_dtype dtype, int n_values, int n_bytes)
{
    const int      n_blocks = N_INTS / n_values;
    const uint8_t *b        = t->w[0];
    int64_t        first    = 0;
    quant_ints     ints;
    ints_sums      sums;

    for (int r = 0; r < n_x; r++) {
        for (int k = 0; k < INTS_SUMS; k++)
            sums[r][k] = (vf){ 0 };
    }
    for (; first + N_INTS <= t->n; first += N_INTS, b += n_blocks * n_bytes) {
        for (int byte = 0; byte < n_blocks * n_bytes; byte += 64)
            read_ahead(b + byte, INTS_AHEAD);
        unpack_ints(&ints, dtype, b, n_blocks);
        add_ints(sums, t, &ints, first, N_INTS, n_x, has_minimum(dtype));
    }
    for (; first < t->n; first += n_values, b += n_bytes) {
        unpack_ints(&ints, dtype, b, 1);
        add_ints(sums, t, &ints, first, n_values, n_x, has_minimum(dtype));
    }
    for (int r = 0; r < n_x; r++)
        t->out[r * t->out_stride] = sum_lanes(sums[r][0] + sums[r][1], sums[r][2] + sums[r][3]);
}

#endif

/* Types without a loop of their own are converted to floats first, DOT_DECODED values at a time. */
static void dot_decoded(float *out, const float *x, const void *w, hl_dtype dtype, int64_t n)
{
    hl_dtype_block block = hl_dtype_block_of(dtype);
    float          values[DOT_DECODED];
    vf             sums[2] = { { 0 } };

    for (int64_t first = 0; first < n; first += DOT_DECODED) {
        int64_t count = n - first < DOT_DECODED ? n - first : DOT_DECODED;
        size_t  at    = (size_t)first / block.n_values * block.n_bytes;

        DEQUANTISE(values, dtype, (const uint8_t *)w + at, (size_t)count / block.n_values);
        for (int64_t i = 0; i < count; i += 2 * VL) { /* blocks have at least 32 values */
            sums[0] = vf_fma(vf_load(x + first + i), vf_load(values + i), sums[0]);
            sums[1] = vf_fma(vf_load(x + first + i + VL), vf_load(values + i + VL), sums[1]);
        }
    }
    *out = sum_lanes(sums[0], sums[1]);
}

#endif
