/* dense_vector.h - the functions of dense.h on vectors of simd.h.
 *
 * Included once by dense_avx2.c and each of its siblings.  Loops run over whole vectors; the
 * remainder of a row goes through the same code in a vector padded with zeros, so that an element's
 * value does not depend on where it stands. */
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

/* Doubles per register.  `low` and `high` are the two halves of a vector of floats. */
enum { VD = VL / 2 };
typedef double  vd __attribute__((vector_size(8 * VD)));
typedef int64_t vl __attribute__((vector_size(8 * VD)));
typedef float   vf_half __attribute__((vector_size(4 * VD)));

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

/* gcc 12 compiles __builtin_convertvector to four instructions where one is enough. */
HL_INLINE vd vd_of(vf_half a)
{
#if defined(__AVX512F__)
    return (vd)_mm512_cvtps_pd((__m256)a);
#elif defined(__AVX2__)
    return (vd)_mm256_cvtps_pd((__m128)a);
#else
    return __builtin_convertvector(a, vd);
#endif
}

HL_INLINE vd vd_low(vf a)
{
    return vd_of(__builtin_shufflevector(a, a, LOW_HALF));
}

HL_INLINE vd vd_high(vf a)
{
    return vd_of(__builtin_shufflevector(a, a, HIGH_HALF));
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

/* Half a vector of floats as doubles.  From memory this is a single conversion. */
HL_INLINE vd vd_of_floats(const float *p)
{
    vf_half a;

    memcpy(&a, p, sizeof a);
    return vd_of(a);
}

/* Lane i is added to lane i + half of the lanes, until one lane is left. */
HL_INLINE double sum_doubles(vd a)
{
#if VL == 16
    a += __builtin_shufflevector(a, a, 4, 5, 6, 7, 4, 5, 6, 7);
    a += __builtin_shufflevector(a, a, 2, 3, 2, 3, 2, 3, 2, 3);
    a += __builtin_shufflevector(a, a, 1, 1, 1, 1, 1, 1, 1, 1);
#elif VL == 8
    a += __builtin_shufflevector(a, a, 2, 3, 2, 3);
    a += __builtin_shufflevector(a, a, 1, 1, 1, 1);
#else
    a += __builtin_shufflevector(a, a, 1, 1);
#endif
    return a[0];
}

typedef double vd_four __attribute__((vector_size(32)));

/* The lanes of a vector as four sums; if it has two lanes, the other two are 0. */
HL_INLINE vd_four to_four(vd a)
{
    vd_four parts[VD > 4 ? VD / 4 : 1] = { { 0 } };

    memcpy(parts, &a, sizeof a);
    for (int i = 1; i < VD / 4; i++)
        parts[0] += parts[i];
    return parts[0];
}

/* out[i] is the sum of the lanes of a[i], for four vectors at once. */
HL_INLINE void sum_four(double *out, const vd *a)
{
    vd_four b[4];

    for (int i = 0; i < 4; i++)
        b[i] = to_four(a[i]);
    vd_four first = __builtin_shufflevector(b[0], b[1], 0, 4, 2, 6) +
                    __builtin_shufflevector(b[0], b[1], 1, 5, 3, 7);
    vd_four second = __builtin_shufflevector(b[2], b[3], 0, 4, 2, 6) +
                     __builtin_shufflevector(b[2], b[3], 1, 5, 3, 7);
    first = __builtin_shufflevector(first, second, 0, 1, 4, 5) +
            __builtin_shufflevector(first, second, 2, 3, 6, 7);
    memcpy(out, &first, sizeof first);
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

static double row_mean_square(const float *x, int64_t n, double center)
{
    vd      sum  = { 0 };
    double  rest = 0.0;
    int64_t i    = 0;

    for (; i + VL <= n; i += VL) {
        vd low  = vd_low(vf_load(x + i)) - center;
        vd high = vd_high(vf_load(x + i)) - center;
        sum += low * low + high * high;
    }
    for (; i < n; i++)
        rest += ((double)x[i] - center) * ((double)x[i] - center);
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

/* Computed from e^-|x|, which cannot overflow. */
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

/* x/2 erfc(-x / sqrt 2); for x > 0 it is x minus the other tail. */
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

/* e^x - 1 is within 1e-7 of its value, because x is at most 0. */
HL_INLINE vf vf_xielu(vf x, const float *numbers)
{
    vf low = -vf_max(-vf_set(numbers[3]), -x);
    vf neg = vf_exp2(low * vf_set(LOG2E)) - vf_set(1.0f) - x;
    vf pos = vf_set(numbers[0]) * x * x;

    return vf_fma(vf_set(numbers[2]), x,
                  vf_select(x > vf_set(0.0f), pos, vf_set(numbers[1]) * neg));
}

/* `activation` is a compile-time constant for every caller. */
HL_INLINE vf vf_activate(vf x, hl_activation activation, const float *numbers)
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
    case HL_ACTIVATION_XIELU:
        return vf_xielu(x, numbers);
    case HL_ACTIVATION_SIGMOID:
        return vf_sigmoid(x);
    case HL_ACTIVATION_SILU_SCALED:
        return vf_set(numbers[1]) * x * vf_sigmoid(vf_set(numbers[0]) * x);
    default: /* GELU_QUICK, and the gate of SWIGLU_CLAMPED */
        return x * vf_sigmoid(vf_set(1.702f) * x);
    }
}

HL_INLINE vf activate_vector(vf x, vf up, hl_activation activation, const float *numbers)
{
    if (activation == HL_ACTIVATION_SWIGLU_CLAMPED) {
        vf limit = vf_set(numbers[0]);

        x  = -vf_max(-limit, -x);
        up = -vf_max(-limit, -vf_max(-limit, up)) + vf_set(1.0f);
    }
    return vf_activate(x, activation, numbers) * up;
}

HL_INLINE void activate_row(float *x, const float *up, int64_t n, hl_activation activation,
                            const float *numbers)
{
    vf      one = vf_set(1.0f);
    int64_t i   = 0;

    for (; i + VL <= n; i += VL)
        vf_store(x + i, activate_vector(vf_load(x + i), up != NULL ? vf_load(up + i) : one,
                                        activation, numbers));
    if (i < n)
        store_part(x + i,
                   activate_vector(load_part(x + i, n - i),
                                   up != NULL ? load_part(up + i, n - i) : one, activation,
                                   numbers),
                   n - i);
}

static void dense_activate(float *x, const float *up, int64_t n, hl_activation activation,
                           const float *numbers)
{
    switch (activation) {
    case HL_ACTIVATION_GELU:
        activate_row(x, up, n, HL_ACTIVATION_GELU, numbers);
        break;
    case HL_ACTIVATION_GELU_TANH:
        activate_row(x, up, n, HL_ACTIVATION_GELU_TANH, numbers);
        break;
    case HL_ACTIVATION_SILU:
        activate_row(x, up, n, HL_ACTIVATION_SILU, numbers);
        break;
    case HL_ACTIVATION_RELU:
        activate_row(x, up, n, HL_ACTIVATION_RELU, numbers);
        break;
    case HL_ACTIVATION_RELU_SQUARED:
        activate_row(x, up, n, HL_ACTIVATION_RELU_SQUARED, numbers);
        break;
    case HL_ACTIVATION_SWIGLU_CLAMPED:
        activate_row(x, up, n, HL_ACTIVATION_SWIGLU_CLAMPED, numbers);
        break;
    case HL_ACTIVATION_XIELU:
        activate_row(x, up, n, HL_ACTIVATION_XIELU, numbers);
        break;
    case HL_ACTIVATION_SIGMOID:
        activate_row(x, up, n, HL_ACTIVATION_SIGMOID, numbers);
        break;
    case HL_ACTIVATION_SILU_SCALED:
        activate_row(x, up, n, HL_ACTIVATION_SILU_SCALED, numbers);
        break;
    default:
        activate_row(x, up, n, HL_ACTIVATION_GELU_QUICK, numbers);
        break;
    }
}

static void dense_sparsify(float *x, int64_t n, float deviations)
{
    double  mean = row_mean(x, n);
    float   cut  = (float)(mean + (double)deviations * sqrt(row_mean_square(x, n, mean)));
    int64_t i    = 0;

    for (; i + VL <= n; i += VL)
        vf_store(x + i, vf_max(vf_set(0.0f), vf_load(x + i) - vf_set(cut)));
    for (; i < n; i++)
        x[i] = x[i] > cut ? x[i] - cut : 0.0f;
}

/* ------------------------------------------------------------ several streams */

/* One vector, or part of it, of all streams. */
HL_INLINE void predict_at(const hl_streams *s, int64_t at, int64_t n)
{
    vf before[HL_MAX_STREAMS];

    for (int64_t b = 0; b < s->n_streams; b++)
        before[b] = load_part(s->x + b * s->stride + at, n);
    for (int64_t a = s->n_streams - 1; a >= 0; a--) {
        vf sum = before[a];

        for (int64_t b = 0; b < s->n_streams; b++)
            sum = vf_fma(vf_set(s->coefficients[a * s->n_streams + b]), before[b], sum);
        store_part(s->x + a * s->stride + at, sum, n);
        if (a == 0)
            store_part(s->kept + at, sum, n);
    }
}

HL_INLINE int64_t part_of(int64_t at, int64_t n)
{
    return n - at < VL ? n - at : VL;
}

static void dense_predict(const hl_streams *s)
{
    for (int64_t at = 0; at < s->n; at += VL)
        predict_at(s, at, part_of(at, s->n));
}

static void dense_correct(const hl_streams *s)
{
    for (int64_t at = 0; at < s->n; at += VL) {
        int64_t n      = part_of(at, s->n);
        vf      kept   = load_part(s->kept + at, n);
        vf      change = load_part(s->x + at, n) - kept;

        store_part(s->x + at, kept, n);
        for (int64_t a = 0; a < s->n_streams; a++) {
            float *x = s->x + a * s->stride + at;

            store_part(x, vf_fma(vf_set(1.0f + s->coefficients[a]), change, load_part(x, n)), n);
        }
    }
}

static void dense_match(float *out, const float *x, const float *like, int64_t n)
{
    double square = row_mean_square(x, n, 0.0);
    double factor = sqrt(row_mean_square(like, n, 0.0) / (square > 1e-5 ? square : 1e-5));

    for (int64_t at = 0; at < n; at += VL) {
        int64_t m = part_of(at, n);

        store_part(out + at,
                   vf_fma(vf_set((float)factor), load_part(x + at, m), load_part(out + at, m)), m);
    }
}

#endif
