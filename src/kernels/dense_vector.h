/* dense_vector.h - the functions of dense.h on vectors of simd.h.
 *
 * Included once by dense_avx2.c and each of its siblings.  Loops run over whole
 * vectors; what is left at the end of a row goes through the same code in a vector
 * padded with zeros, so that an element's value does not depend on where it
 * stands. */
#ifndef HL_KERNELS_DENSE_VECTOR_H
#define HL_KERNELS_DENSE_VECTOR_H

#include <math.h>

#include "kernels/dense.h"
#include "kernels/simd.h"
#include "kernels/simd_math.h"

/* ------------------------------------------------------------------- lanes */

HL_INLINE vf load_part(const float *p, int64_t n)
{
    vf a = { 0 };
    memcpy(&a, p, (size_t)n * sizeof *p);
    return a;
}

HL_INLINE void store_part(float *p, vf a, int64_t n)
{
    memcpy(p, &a, (size_t)n * sizeof *p);
}

/* A register of doubles holds half as many: low and high are the two halves. */
enum { VD = VL / 2 };
typedef double vd __attribute__((vector_size(8 * VD)));
typedef float  vf_half __attribute__((vector_size(4 * VD)));

#if VL == 16
#define LOW_HALF  0, 1, 2, 3, 4, 5, 6, 7
#define HIGH_HALF 8, 9, 10, 11, 12, 13, 14, 15
#elif VL == 8
#define LOW_HALF  0, 1, 2, 3
#define HIGH_HALF 4, 5, 6, 7
#else
#define LOW_HALF  0, 1
#define HIGH_HALF 2, 3
#endif

HL_INLINE vd vd_low(vf a)
{
    return __builtin_convertvector(__builtin_shufflevector(a, a, LOW_HALF), vd);
}

HL_INLINE vd vd_high(vf a)
{
    return __builtin_convertvector(__builtin_shufflevector(a, a, HIGH_HALF), vd);
}

/* a * b + c. */
HL_INLINE vd vd_fma(vd a, vd b, vd c)
{
#if defined(__AVX512F__)
    return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__AVX2__)
    return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return vfmaq_f64(c, a, b);
#endif
}

HL_INLINE vd vd_load(const double *p)
{
    vd a;
    memcpy(&a, p, sizeof a);
    return a;
}

HL_INLINE void vd_store(double *p, vd a)
{
    memcpy(p, &a, sizeof a);
}

HL_INLINE double sum_doubles(vd a)
{
    double lanes[VD];

    vd_store(lanes, a);
    for (int width = VD / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

/* -------------------------------------------------------------------- norm */

static double row_mean(const float *x, int64_t n)
{
    vd      sum = { 0 };
    int64_t i   = 0;

    for (; i + VL <= n; i += VL)
        sum += vd_low(vf_load(x + i)) + vd_high(vf_load(x + i));
    if (i < n)
        sum += vd_low(load_part(x + i, n - i)) + vd_high(load_part(x + i, n - i));
    return sum_doubles(sum) / (double)n;
}

static double row_mean_square(const float *x, int64_t n, double centre)
{
    vd      sum  = { 0 };
    double  rest = 0.0;
    int64_t i    = 0;

    for (; i + VL <= n; i += VL) {
        vd low  = vd_low(vf_load(x + i)) - centre;
        vd high = vd_high(vf_load(x + i)) - centre;
        sum += low * low + high * high;
    }
    for (; i < n; i++)
        rest += ((double)x[i] - centre) * ((double)x[i] - centre);
    return (sum_doubles(sum) + rest) / (double)n;
}

/* ((x - mean) * scale) w + b of VD elements, rounded to float once. */
HL_INLINE vf_half norm_half(vd x, vd w, vd b, double mean, double scale)
{
    return __builtin_convertvector((x - mean) * scale * w + b, vf_half);
}

HL_INLINE vf norm_vector(vf x, vf w, vf b, double mean, double scale)
{
    vf_half halves[2] = { norm_half(vd_low(x), vd_low(w), vd_low(b), mean, scale),
                          norm_half(vd_high(x), vd_high(w), vd_high(b), mean, scale) };
    vf      value;

    memcpy(&value, halves, sizeof value);
    return value;
}

static void dense_norm(float *out, const float *x, int64_t n, const hl_norm *norm)
{
    double       mean   = norm->kind == HL_NORM_LAYER ? row_mean(x, n) : 0.0;
    double       scale  = 1.0 / sqrt(row_mean_square(x, n, mean) + (double)norm->eps);
    const float *weight = norm->weight;
    const float *bias   = norm->bias;
    const vf     one    = vf_set(1.0f);
    const vf     zero   = vf_set(0.0f);
    int64_t      i      = 0;

    for (; i + VL <= n; i += VL)
        vf_store(out + i, norm_vector(vf_load(x + i), weight != NULL ? vf_load(weight + i) : one,
                                      bias != NULL ? vf_load(bias + i) : zero, mean, scale));
    if (i < n)
        store_part(out + i,
                   norm_vector(load_part(x + i, n - i),
                               weight != NULL ? load_part(weight + i, n - i) : one,
                               bias != NULL ? load_part(bias + i, n - i) : zero, mean, scale),
                   n - i);
}

/* -------------------------------------------------------------------- rope */

static void rotate_pairs(float *x, const float *cosine, const float *sine, int64_t n_pairs)
{
    for (int64_t i = 0; i < n_pairs; i++) {
        float first  = x[2 * i];
        float second = x[2 * i + 1];

        x[2 * i]     = first * cosine[i] - second * sine[i];
        x[2 * i + 1] = second * cosine[i] + first * sine[i];
    }
}

static void dense_rotate(float *x, const float *cosine, const float *sine, int64_t n_pairs,
                         bool interleaved)
{
    int64_t i = 0;

    if (interleaved) {
        rotate_pairs(x, cosine, sine, n_pairs);
        return;
    }
    for (; i + VL <= n_pairs; i += VL) {
        vf first  = vf_load(x + i);
        vf second = vf_load(x + n_pairs + i);
        vf c      = vf_load(cosine + i);
        vf s      = vf_load(sine + i);

        vf_store(x + i, first * c - second * s);
        vf_store(x + n_pairs + i, second * c + first * s);
    }
    for (; i < n_pairs; i++) {
        float first  = x[i];
        float second = x[n_pairs + i];

        x[i]           = first * cosine[i] - second * sine[i];
        x[n_pairs + i] = second * cosine[i] + first * sine[i];
    }
}

/* ------------------------------------------------------------- activations */

/* By e^-|x|, which cannot overflow. */
HL_INLINE vf vf_sigmoid(vf x)
{
    vf size = vf_max(x, -x);
    vf e    = vf_exp2(size * vf_set(-LOG2E));
    vf one  = vf_set(1.0f);
    return vf_select(x < vf_set(0.0f), e, one) / (one + e);
}

/* erfc of x >= 0: t exp(-x^2 + P(t)) with t = 1 / (1 + x/2), P the Chebyshev fit
 * of Numerical Recipes, good to 1.2e-7 everywhere. */
HL_INLINE vf vf_erfc_positive(vf x)
{
    static const float fit[] = {
        0.17087277f,  -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
        -0.18628806f, 0.09678418f,  0.37409196f, 1.00002368f,  -1.26551223f
    };

    vf t    = vf_set(1.0f) / vf_fma(vf_set(0.5f), x, vf_set(1.0f));
    vf poly = vf_set(fit[0]);
    for (int i = 1; i < 10; i++)
        poly = vf_fma(poly, t, vf_set(fit[i]));
    return t * vf_exp2(vf_fma(-x, x, poly) * vf_set(LOG2E));
}

/* x/2 erfc(-x / sqrt 2): where x > 0 that is x less the other tail. */
HL_INLINE vf vf_gelu(vf x)
{
    vf size = vf_max(x, -x);
    vf tail = vf_set(0.5f) * x * vf_erfc_positive(size * vf_set(0.70710678f));
    return vf_select(x > vf_set(0.0f), x - tail, tail);
}

HL_INLINE vf vf_gelu_tanh(vf x)
{
    vf inner = x * vf_fma(vf_set(0.044715f) * x, x, vf_set(1.0f));
    return x * vf_sigmoid(inner * vf_set(2.0f * 0.797884561f));
}

/* `activation` is a constant where this is called. */
HL_INLINE vf vf_activate(vf x, hl_activation activation)
{
    switch (activation) {
    case HL_ACTIVATION_GELU:
        return vf_gelu(x);
    case HL_ACTIVATION_GELU_TANH:
        return vf_gelu_tanh(x);
    case HL_ACTIVATION_SILU:
        return x * vf_sigmoid(x);
    case HL_ACTIVATION_RELU:
        return vf_max(vf_set(0.0f), x);
    case HL_ACTIVATION_RELU_SQUARED:
        return vf_max(vf_set(0.0f), x) * vf_max(vf_set(0.0f), x);
    default: /* GELU_QUICK, and the gate of SWIGLU_CLAMPED */
        return x * vf_sigmoid(vf_set(1.702f) * x);
    }
}

HL_INLINE vf activate_vector(vf x, vf up, hl_activation activation, vf limit)
{
    if (activation == HL_ACTIVATION_SWIGLU_CLAMPED) {
        x  = -vf_max(-limit, -x);
        up = -vf_max(-limit, -vf_max(-limit, up)) + vf_set(1.0f);
    }
    return vf_activate(x, activation) * up;
}

HL_INLINE void activate_row(float *x, const float *up, int64_t n, hl_activation activation,
                            float limit)
{
    vf      most = vf_set(limit);
    vf      one  = vf_set(1.0f);
    int64_t i    = 0;

    for (; i + VL <= n; i += VL)
        vf_store(x + i, activate_vector(vf_load(x + i), up != NULL ? vf_load(up + i) : one,
                                        activation, most));
    if (i < n)
        store_part(x + i,
                   activate_vector(load_part(x + i, n - i),
                                   up != NULL ? load_part(up + i, n - i) : one, activation, most),
                   n - i);
}

static void dense_activate(float *x, const float *up, int64_t n, hl_activation activation,
                           float limit)
{
    switch (activation) {
    case HL_ACTIVATION_GELU:
        activate_row(x, up, n, HL_ACTIVATION_GELU, limit);
        break;
    case HL_ACTIVATION_GELU_TANH:
        activate_row(x, up, n, HL_ACTIVATION_GELU_TANH, limit);
        break;
    case HL_ACTIVATION_SILU:
        activate_row(x, up, n, HL_ACTIVATION_SILU, limit);
        break;
    case HL_ACTIVATION_RELU:
        activate_row(x, up, n, HL_ACTIVATION_RELU, limit);
        break;
    case HL_ACTIVATION_RELU_SQUARED:
        activate_row(x, up, n, HL_ACTIVATION_RELU_SQUARED, limit);
        break;
    case HL_ACTIVATION_SWIGLU_CLAMPED:
        activate_row(x, up, n, HL_ACTIVATION_SWIGLU_CLAMPED, limit);
        break;
    default:
        activate_row(x, up, n, HL_ACTIVATION_GELU_QUICK, limit);
        break;
    }
}

/* ---------------------------------------------------------------- products
 *
 * Sums are kept in double: where so few rows are multiplied the weight comes from
 * memory, and arithmetic is not what takes the time.  A row's sums do not depend on
 * how many rows share the weight. */

enum {
    COMBINED_ROWS  = 4,    /* so that sums are read and written once for all of them */
    COMBINED_WIDTH = 1024, /* sums that stay in the first cache */
};

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

/* sums += x w, exactly: a product of two floats fits in a double. */
HL_INLINE void add_products(vd *sums, vf x, vf w)
{
    sums[0] = vd_fma(vd_low(x), vd_low(w), sums[0]);
    sums[1] = vd_fma(vd_high(x), vd_high(w), sums[1]);
}

HL_INLINE float dot_row(const float *x, const void *w, hl_dtype dtype, int64_t n)
{
    vd      sums[4] = { { 0 } };
    int64_t i       = 0;

    for (; i + 2 * VL <= n; i += 2 * VL) {
        add_products(sums, vf_load(x + i), load_weight(w, dtype, i));
        add_products(sums + 2, vf_load(x + i + VL), load_weight(w, dtype, i + VL));
    }
    for (; i + VL <= n; i += VL)
        add_products(sums, vf_load(x + i), load_weight(w, dtype, i));
    if (i < n)
        add_products(sums + 2, load_part(x + i, n - i), load_weight_part(w, dtype, i, n - i));
    return (float)sum_doubles((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

HL_INLINE void dot_rows(const hl_dot *d, hl_dtype dtype)
{
    for (int64_t row = 0; row < d->n_rows; row++)
        d->out[row * d->out_stride] = dot_row(d->x + row * d->x_stride, d->w, dtype, d->n);
}

static void dense_dot(const hl_dot *d)
{
    switch (d->dtype) {
    case HL_DTYPE_F16:
        dot_rows(d, HL_DTYPE_F16);
        break;
    case HL_DTYPE_BF16:
        dot_rows(d, HL_DTYPE_BF16);
        break;
    default:
        dot_rows(d, HL_DTYPE_F32);
        break;
    }
}

/* sums (n, rounded up to vectors) += rows [first, first + n_rows) of w, from `column`. */
HL_INLINE void combine_rows(double *sums, const hl_combine *c, hl_dtype dtype, int64_t column,
                            int64_t n, int64_t first, int n_rows)
{
    int64_t at = first * c->w_stride + column;
    int64_t i  = 0;
    vd      x[COMBINED_ROWS];

    for (int row = 0; row < n_rows; row++)
        x[row] = (double)c->x[first + row] - (vd){ 0 };
    for (; i + VL <= n; i += VL) {
        vd low  = vd_load(sums + i);
        vd high = vd_load(sums + i + VD);
        for (int row = 0; row < n_rows; row++) {
            vf w = load_weight(c->w, dtype, at + row * c->w_stride + i);
            low  = vd_fma(x[row], vd_low(w), low);
            high = vd_fma(x[row], vd_high(w), high);
        }
        vd_store(sums + i, low);
        vd_store(sums + i + VD, high);
    }
    for (int row = 0; row < n_rows && i < n; row++) {
        vf w = load_weight_part(c->w, dtype, at + row * c->w_stride + i, n - i);
        vd_store(sums + i, vd_fma(x[row], vd_low(w), vd_load(sums + i)));
        vd_store(sums + i + VD, vd_fma(x[row], vd_high(w), vd_load(sums + i + VD)));
    }
}

HL_INLINE void combine_columns(const hl_combine *c, hl_dtype dtype, int64_t column, int64_t n)
{
    double  sums[COMBINED_WIDTH + VL] = { 0 };
    int64_t row                       = 0;

    for (int64_t i = 0; i < n; i++)
        sums[i] = (double)c->out[column + i];
    for (; row + COMBINED_ROWS <= c->n_rows; row += COMBINED_ROWS)
        combine_rows(sums, c, dtype, column, n, row, COMBINED_ROWS);
    for (; row < c->n_rows; row++)
        combine_rows(sums, c, dtype, column, n, row, 1);
    for (int64_t i = 0; i < n; i++)
        c->out[column + i] = (float)sums[i];
}

HL_INLINE void combine_all(const hl_combine *c, hl_dtype dtype)
{
    for (int64_t column = 0; column < c->n; column += COMBINED_WIDTH)
        combine_columns(c, dtype, column,
                        c->n - column < COMBINED_WIDTH ? c->n - column : COMBINED_WIDTH);
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

#endif
