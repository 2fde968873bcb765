/* dense_products.h - dot and combine of dense.h on vectors of simd.h.
 *
 * Included once by dense_avx2.c and each of its siblings, after dense_vector.h.
 *
 * Few rows are multiplied by weights that come from memory, so memory must be kept busy.  A thread
 * reads one row of W after the other, as one long stream: the prefetchers of CPUs follow it, and
 * they lose several short ones.  Types that keep a thread busier than memory does are read
 * DOT_WEIGHTS rows at a time, so that work is shared.
 *
 *     F32 F16 BF16 Q8_0         here
 *     Q4_0 Q4_K Q6_K            dense_blocks.h; for AVX-512, with other types of 4 to 6 bits,
 *                               dense_nibbles.h
 *     other blocks              dense_blocks.h: unpacked to bytes, or decoded to floats
 *
 * The products of one x and one w are added in the same order, whatever other rows share a call. */
#ifndef HL_KERNELS_DENSE_PRODUCTS_H
#define HL_KERNELS_DENSE_PRODUCTS_H

#include "base/dtype.h"
#include "kernels/dense_blocks.h"
#if defined(__AVX512F__)
#include "kernels/dense_nibbles.h"
#endif
#include "kernels/dense_vector.h"

enum {
    TILE_FLOATS    = VL == 8 ? 1 : 2, /* rows of W per DOT_ROWS of x: sums stay in registers */
    TILE_BLOCKS    = VL == 8 ? 2 : 4, /* rows of W in blocks: these need fewer registers */
    COMBINED_ROWS  = 8,               /* sums are read and written once per this many rows */
    COMBINED_WIDTH = 1024,            /* sums per run, so that they stay in the first-level cache */
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

/* --------------------------------------------------------------------- dots */

/* Multiplies n_x rows of x from `row` on with n_weights rows of W from `j` on. */
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
#if !defined(__AVX512F__)
    case HL_DTYPE_Q4_0:
        dot_blocks(&t, n_x, n_weights, add_q4_0, 32, 18);
        break;
    case HL_DTYPE_Q4_K:
        dot_blocks(&t, n_x, n_weights, add_q4_k, 256, 144);
        break;
    case HL_DTYPE_Q6_K:
        dot_blocks(&t, n_x, n_weights, add_q6_k, 256, 210);
        break;
#endif
    default:
        dot_floats(&t, n_x, n_weights, dtype);
        break;
    }
}

/* Multiplies four rows of W at a time with every x, in tiles; then the other rows singly. */
HL_INLINE void dot_all(const hl_dot *d, hl_dtype dtype)
{
    const bool is_float = dtype == HL_DTYPE_F32 || dtype == HL_DTYPE_F16 || dtype == HL_DTYPE_BF16;
    const int  n_tile   = is_float ? TILE_FLOATS : TILE_BLOCKS;
    const int  n_wide   = 2 * n_tile < DOT_WEIGHTS ? 2 * n_tile : DOT_WEIGHTS;
    const int  n_single = is_float || dtype == HL_DTYPE_Q8_0 ? 1 : DOT_WEIGHTS;
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
        for (; row < d->n_rows; row++) {
            for (int part = 0; part < DOT_WEIGHTS; part += n_single)
                dot_at(d, row, 1, j + part, n_single, dtype);
        }
    }
    for (; j < d->n_weights; j++) {
        for (int64_t row = 0; row < d->n_rows; row++)
            dot_at(d, row, 1, j, 1, dtype);
    }
}

#if defined(__AVX2__)

HL_INLINE void dot_ints_at(const hl_dot *d, int64_t row, int n_x, int64_t j, hl_dtype dtype,
                           int n_values, int n_bytes)
{
    dot_tile t = { .out        = d->out + row * d->out_stride + j,
                   .out_stride = d->out_stride,
                   .x          = d->x + row * d->x_stride,
                   .x_stride   = d->x_stride,
                   .w          = d->w + j,
                   .n          = d->n };

    dot_ints(&t, n_x, dtype, n_values, n_bytes);
}

/* Multiplies one row of W at a time with every x. */
HL_INLINE void dot_all_ints(const hl_dot *d, hl_dtype dtype, int n_values, int n_bytes)
{
    for (int64_t j = 0; j < d->n_weights; j++) {
        int64_t row = 0;

        for (; row + INTS_ROWS <= d->n_rows; row += INTS_ROWS)
            dot_ints_at(d, row, INTS_ROWS, j, dtype, n_values, n_bytes);
        for (; row < d->n_rows; row++)
            dot_ints_at(d, row, 1, j, dtype, n_values, n_bytes);
    }
}

#endif

static __attribute__((noinline)) void dot_others(const hl_dot *d)
{
    for (int64_t j = 0; j < d->n_weights; j++) {
        for (int64_t row = 0; row < d->n_rows; row++)
            dot_decoded(d->out + row * d->out_stride + j, d->x + row * d->x_stride, d->w[j],
                        d->dtype, d->n);
    }
}

/* X(type, TYPE, loop, values, bytes) for every type, with the loop that multiplies it. */
#define ROWS_LOOP(d, TYPE, values, bytes)    dot_all(d, HL_DTYPE_##TYPE)
#define INTS_LOOP(d, TYPE, values, bytes)    dot_all_ints(d, HL_DTYPE_##TYPE, values, bytes)
#define NIBBLES_LOOP(d, TYPE, values, bytes) dot_nibbles(d, HL_DTYPE_##TYPE, bytes)
#if defined(__AVX512F__)
#define FOUR_LOOP  NIBBLES_LOOP
#define OTHER_LOOP NIBBLES_LOOP
#else
#define FOUR_LOOP  ROWS_LOOP
#define OTHER_LOOP INTS_LOOP
#endif
#define EACH_ROWS_TYPE(X)                                                                          \
    X(f32, F32, ROWS_LOOP, 1, 4)                                                                   \
    X(f16, F16, ROWS_LOOP, 1, 2)                                                                   \
    X(bf16, BF16, ROWS_LOOP, 1, 2)                                                                 \
    X(q8_0, Q8_0, ROWS_LOOP, 32, 34)                                                               \
    X(q4_0, Q4_0, FOUR_LOOP, 32, 18)                                                               \
    X(q4_k, Q4_K, FOUR_LOOP, 256, 144)                                                             \
    X(q6_k, Q6_K, FOUR_LOOP, 256, 210)
#if defined(__AVX2__)
#define EACH_DOT_TYPE(X)                                                                           \
    EACH_ROWS_TYPE(X)                                                                              \
    X(q4_1, Q4_1, OTHER_LOOP, 32, 20)                                                              \
    X(q5_0, Q5_0, OTHER_LOOP, 32, 22)                                                              \
    X(q5_k, Q5_K, OTHER_LOOP, 256, 176)                                                            \
    X(iq4_nl, IQ4_NL, OTHER_LOOP, 32, 18)                                                          \
    X(iq4_xs, IQ4_XS, OTHER_LOOP, 256, 136)                                                        \
    X(mxfp4, MXFP4, OTHER_LOOP, 32, 17)                                                            \
    X(q5_1, Q5_1, INTS_LOOP, 32, 24)                                                               \
    X(q2_k, Q2_K, INTS_LOOP, 256, 84)                                                              \
    X(q3_k, Q3_K, INTS_LOOP, 256, 110)                                                             \
    X(tq1_0, TQ1_0, INTS_LOOP, 256, 54)                                                            \
    X(tq2_0, TQ2_0, INTS_LOOP, 256, 66)
#else
#define EACH_DOT_TYPE EACH_ROWS_TYPE
#endif

/* One function per type: a single function for all would be too large for compilers. */
#define DOT_OF(type, TYPE, loop, values, bytes)                                                    \
    static __attribute__((noinline)) void dot_##type(const hl_dot *d)                              \
    {                                                                                              \
        loop(d, TYPE, values, bytes);                                                              \
    }
EACH_DOT_TYPE(DOT_OF)

static void dense_dot(const hl_dot *d)
{
#define DOT_ENTRY(type, TYPE, loop, values, bytes) [HL_DTYPE_##TYPE] = dot_##type,
    static void (*const dots[HL_DTYPE_COUNT])(const hl_dot *)        = { EACH_DOT_TYPE(DOT_ENTRY) };

    (dots[d->dtype] != NULL ? dots[d->dtype] : dot_others)(d);
}

/* ------------------------------------------------------------------ combine */

/* The weighted sum of n_rows rows of w for a vector of columns; even and odd rows apart. */
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

/* Columns are processed in runs whose sums stay in the first-level cache. */
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

enum { EXACT_KEYS = 4 }; /* keys at a time, so that their sums are independent */

HL_INLINE void dots_exact_of(double *out, const double *q, const float *k, int64_t stride,
                             int64_t n, int n_keys)
{
    vd      low[EXACT_KEYS]  = { { 0 } };
    vd      high[EXACT_KEYS] = { { 0 } };
    int64_t i                = 0;

    for (; i + VL <= n; i += VL) {
        for (int key = 0; key < n_keys; key++) {
            const float *at = k + key * stride + i;
            read_ahead(at, 4 * EXACT_KEYS * stride * (int64_t)sizeof *k);
            low[key]  = vd_fma(vd_load(q + i), vd_of_floats(at), low[key]);
            high[key] = vd_fma(vd_load(q + i + VD), vd_of_floats(at + VD), high[key]);
        }
    }
    for (int key = 0; key < n_keys; key++)
        low[key] += high[key];
    if (n_keys == EXACT_KEYS)
        sum_four(out, low);
    for (int key = 0; key < n_keys; key++) {
        double rest = n_keys == EXACT_KEYS ? out[key] : sum_doubles(low[key]);
        for (int64_t j = i; j < n; j++)
            rest += q[j] * (double)k[key * stride + j];
        out[key] = rest;
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

/* e^x = 2^k e^r with k = round(x / ln 2) and |r| <= ln 2 / 2.  The power comes from exponent bits
 * (as in simd_math.h), e^r from its series, whose 14th term is below 2^-56. */
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

    r = vd_fma(k, -0x1.abc9e3b39803fp-56 - (vd){ 0 }, r); /* ln 2 beyond a double */
    for (size_t i = 1; i < sizeof series / sizeof *series; i++)
        sum = vd_fma(sum, r, series[i] - (vd){ 0 });
    return (vd)((vl)(sum * power) & ~is_zero);
}

typedef struct exact_lanes {
    vd sum;
    vd dot;
    vd dot2;
    vd squares;
} exact_lanes;

/* e^z.  Adds to the sums unless it is 0, because 0 * -inf is NaN. */
HL_INLINE vd exp_and_add(exact_lanes *lanes, vd z)
{
    vd w       = vd_exp(z);
    vd product = (vd)((vl)(w * z) & (w > 0.0));
    vd again   = (vd)((vl)(product * z) & (w > 0.0));

    lanes->sum += w;
    lanes->dot += product;
    lanes->dot2 += again;
    lanes->squares = vd_fma(w, w, lanes->squares);
    return w;
}

static void dense_exp_exact(hl_exact_sums *sums, double *x, double shift, int64_t n)
{
    exact_lanes lanes = { { 0 }, { 0 }, { 0 }, { 0 } };
    double      rest[VD];
    int64_t     i = 0;

    for (; i + VD <= n; i += VD)
        vd_store(x + i, exp_and_add(&lanes, vd_load(x + i) - shift));
    if (i < n) {
        for (int j = 0; j < VD; j++)
            rest[j] = i + j < n ? x[i + j] : -(double)INFINITY;
        vd_store(rest, exp_and_add(&lanes, vd_load(rest) - shift));
        memcpy(x + i, rest, (size_t)(n - i) * sizeof *x);
    }
    sums->sum += sum_doubles(lanes.sum);
    sums->dot += sum_doubles(lanes.dot);
    sums->dot2 += sum_doubles(lanes.dot2);
    sums->squares += sum_doubles(lanes.squares);
}

/* ------------------------------------------------------------------------ the peak */

enum { PEAK_CHAINS = 12 }; /* two units with a latency of four cycles need eight */

/* x -> 0.999 x + 0.001 stays near 1. */
static float dense_multiply_adds(float start, int64_t n_steps)
{
    vf chains[PEAK_CHAINS], sum = { 0 };

    for (int i = 0; i < PEAK_CHAINS; i++)
        chains[i] = vf_set(start + (float)i);
    for (int64_t step = 0; step < n_steps; step++) {
        for (int i = 0; i < PEAK_CHAINS; i++)
            chains[i] = vf_fma(chains[i], vf_set(0.999f), vf_set(0.001f));
    }
    for (int i = 0; i < PEAK_CHAINS; i++)
        sum += chains[i];
    return sum_lanes(sum, (vf){ 0 });
}

#endif
