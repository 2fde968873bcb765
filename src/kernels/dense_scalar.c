/* dense_scalar.c - norms, RoPE, activations and dot products, written to be read.
 *
 * Sums are kept in double here; the vector versions keep them in many floats,
 * and their agreement with this file is what their tests measure. */
#include "kernels/dense.h"

#include <math.h>

#include "base/dtype.h"
#include "kernels/quant.h"

enum { MAX_BLOCK = 256 }; /* number of values in the largest block */

/* -------------------------------------------------------------------- norm */

static double mean_of(const float *x, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

static double mean_square(const float *x, int64_t n, double center)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - center) * (x[i] - center);
    return sum / (double)n;
}

static void norm_row(float *out, const float *x, int64_t n, const hl_norm *norm)
{
    double center = norm->kind == HL_NORM_LAYER ? mean_of(x, n) : 0.0;
    double scale  = 1.0 / sqrt(mean_square(x, n, center) + (double)norm->eps);

    for (int64_t i = 0; i < n; i++) {
        double value = (x[i] - center) * scale;
        if (norm->weight != NULL)
            value *= norm->weight[i];
        if (norm->bias != NULL)
            value += norm->bias[i];
        out[i] = (float)value;
    }
}

/* -------------------------------------------------------------------- rope */

static void rotate(float *x, const float *cosine, const float *sine, int64_t n_pairs,
                   bool interleaved)
{
    int64_t step     = interleaved ? 2 : 1;
    int64_t distance = interleaved ? 1 : n_pairs;

    for (int64_t i = 0; i < n_pairs; i++) {
        float *pair   = x + i * step;
        float  first  = pair[0];
        float  second = pair[distance];

        pair[0]        = first * cosine[i] - second * sine[i];
        pair[distance] = second * cosine[i] + first * sine[i];
    }
}

/* ------------------------------------------------------------- activations */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* tanh(u) = 2 sigmoid(2u) - 1 turns x (1 + tanh(u)) / 2 into x sigmoid(2u). */
static double gelu_tanh(double x)
{
    return x * sigmoid(2.0 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

static double xielu(double x, const float *numbers)
{
    double p = numbers[0], n = numbers[1], b = numbers[2], e = numbers[3];

    return (x > 0.0 ? p * x * x : n * (expm1(x < e ? x : e) - x)) + b * x;
}

static double activated(double x, hl_activation activation, const float *numbers)
{
    switch (activation) {
    case HL_ACTIVATION_GELU:
        return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case HL_ACTIVATION_GELU_TANH:
        return gelu_tanh(x);
    case HL_ACTIVATION_SILU:
        return x * sigmoid(x);
    case HL_ACTIVATION_RELU:
        return x > 0.0 ? x : 0.0;
    case HL_ACTIVATION_RELU_SQUARED:
        return x > 0.0 ? x * x : 0.0;
    case HL_ACTIVATION_XIELU:
        return xielu(x, numbers);
    case HL_ACTIVATION_SIGMOID:
        return sigmoid(x);
    case HL_ACTIVATION_SILU_SCALED:
        return (double)numbers[1] * x * sigmoid((double)numbers[0] * x);
    default: /* GELU_QUICK, and the gate of SWIGLU_CLAMPED */
        return x * sigmoid(1.702 * x);
    }
}

static float clamped(float x, float low, float high)
{
    return x < low ? low : (x > high ? high : x);
}

static void activate(float *x, const float *up, int64_t n, hl_activation activation,
                     const float *numbers)
{
    float limit = numbers[0];

    for (int64_t i = 0; i < n; i++) {
        float  gate   = x[i];
        double factor = up != NULL ? up[i] : 1.0;

        if (activation == HL_ACTIVATION_SWIGLU_CLAMPED) {
            gate   = gate > limit ? limit : gate;
            factor = clamped((float)factor, -limit, limit) + 1.0;
        }
        x[i] = (float)(activated(gate, activation, numbers) * factor);
    }
}

static void sparsify(float *x, int64_t n, float deviations)
{
    double mean = mean_of(x, n);
    double cut  = mean + (double)deviations * sqrt(mean_square(x, n, mean));

    for (int64_t i = 0; i < n; i++)
        x[i] = x[i] > cut ? (float)(x[i] - cut) : 0.0f;
}

/* ---------------------------------------------------------------- products */

static float element(const void *w, hl_dtype dtype, int64_t index)
{
    switch (dtype) {
    case HL_DTYPE_F16:
        return hl_f16_to_f32(((const uint16_t *)w)[index]);
    case HL_DTYPE_BF16:
        return hl_bf16_to_f32(((const uint16_t *)w)[index]);
    default:
        return ((const float *)w)[index];
    }
}

/* x . w, one block of w at a time; an unquantized element counts as a block of one. */
static float dot_row(const float *x, const void *w, hl_dtype dtype, int64_t n)
{
    hl_dtype_block block             = hl_dtype_block_of(dtype);
    const uint8_t *at                = w;
    double         sum               = 0.0;
    float          values[MAX_BLOCK] = { 0 };

    for (int64_t first = 0; first < n; first += (int64_t)block.n_values) {
        if (hl_dtype_is_block(dtype))
            hl_dequantize_scalar(values, dtype, at, 1);
        else
            values[0] = element(w, dtype, first);
        for (int64_t i = 0; i < (int64_t)block.n_values; i++)
            sum += (double)x[first + i] * (double)values[i];
        at += block.n_bytes;
    }
    return (float)sum;
}

static void dot(const hl_dot *d)
{
    for (int64_t row = 0; row < d->n_rows; row++) {
        for (int64_t j = 0; j < d->n_weights; j++)
            d->out[row * d->out_stride + j] =
                dot_row(d->x + row * d->x_stride, d->w[j], d->dtype, d->n);
    }
}

static void combine_one(const hl_combine *c, float *out, const float *x)
{
    for (int64_t i = 0; i < c->n; i++) {
        double sum = out[i];

        for (int64_t row = 0; row < c->n_rows; row++)
            sum += (double)x[row] * (double)element(c->w, c->dtype, row * c->w_stride + i);
        out[i] = (float)sum;
    }
}

static void combine(const hl_combine *c)
{
    for (int64_t i = 0; i < c->n_outs; i++)
        combine_one(c, c->out + i * c->out_stride, c->x + i * c->x_stride);
}

static void dots_exact(double *out, const double *q, const float *k, int64_t stride, int64_t n_keys,
                       int64_t n)
{
    for (int64_t key = 0; key < n_keys; key++) {
        out[key] = 0.0;
        for (int64_t i = 0; i < n; i++)
            out[key] += q[i] * (double)k[key * stride + i];
    }
}

static void exp_exact(hl_exact_sums *sums, double *x, double shift, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double z = x[i] - shift;

        x[i] = exp(z);
        sums->sum += x[i];
        sums->squares += x[i] * x[i];
        if (x[i] > 0.0) { /* 0 * -inf is NaN */
            sums->dot += x[i] * z;
            sums->dot2 += x[i] * z * z;
        }
    }
}

/* ------------------------------------------------------ mixers with a state */

static double softplus(double x)
{
    return x > 30.0 ? x : log1p(exp(x));
}

static float conv_input(const hl_conv *c, int64_t row, int64_t i)
{
    int64_t at = row * c->x_stride + i;

    if (row < 0)
        return c->begins ? 0.0f : c->state[(row + c->width - 1) * c->stride + i];
    return c->x[at] * (c->times != NULL ? c->times[at] : 1.0f);
}

static void conv(const hl_conv *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        float last[HL_MAX_CONV];

        for (int64_t row = 0; row < c->n_rows; row++) {
            double sum = c->bias != NULL ? c->bias[i] : 0.0;

            for (int64_t j = 0; j < c->width; j++)
                sum += (double)c->weight[j * c->stride + i] *
                       (double)conv_input(c, row - c->width + 1 + j, i);
            if (c->is_silu)
                sum *= sigmoid(sum);
            if (c->after != NULL)
                sum *= (double)c->after[row * c->x_stride + i];
            c->out[row * c->out_stride + i] = (float)sum;
        }
        for (int64_t j = 0; j < c->width - 1; j++)
            last[j] = conv_input(c, c->n_rows - c->width + 1 + j, i);
        for (int64_t j = 0; j < c->width - 1; j++)
            c->state[j * c->stride + i] = last[j];
    }
}

static double inverse_length(const float *x, int64_t n)
{
    double sum = 1e-6;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return 1.0 / sqrt(sum);
}

/* dt of a row, of channel j with HL_SCAN_CHANNEL. */
static double step_of(const hl_scan *s, int64_t row, int64_t j)
{
    double bias = s->dt_bias != NULL ? s->dt_bias[j] : 0.0;
    double dt   = softplus((double)s->dt_scale * (double)s->dt[row * s->dt_stride + j] + bias);

    return fmin(fmax(dt, s->dt_low), s->dt_high);
}

/* Column j of the state, in row `row`; the sums are in double, the state in float. */
static void scan_column(const hl_scan *s, int64_t row, int64_t j)
{
    bool         each   = s->kind == HL_SCAN_CHANNEL;
    bool         delta  = s->kind == HL_SCAN_DELTA;
    const float *k      = s->k + row * s->k_stride;
    const float *q      = s->q + row * s->k_stride;
    double       k_size = delta ? inverse_length(k, s->d_state) : 1.0;
    double       q_size = delta ? inverse_length(q, s->d_state) / sqrt((double)s->d_state) : 1.0;
    double       dt     = step_of(s, row, each ? j : 0);
    double       x      = s->x[row * s->x_stride + j];
    double       sum    = 0.0;
    double       had    = 0.0;

    for (int64_t i = 0; i < s->d_state; i++) {
        float *at = &s->state[i * s->state_stride + j];

        *at = (float)(exp((double)s->a[each ? i * s->state_stride + j : 0] * dt) * (double)*at);
        had += k_size * (double)k[i] * (double)*at;
    }
    double put = delta ? (x - had) * sigmoid(s->beta[row * s->beta_stride]) : dt * x;
    for (int64_t i = 0; i < s->d_state; i++) {
        float *at = &s->state[i * s->state_stride + j];

        *at += (float)(k_size * (double)k[i] * put);
        sum += q_size * (double)q[i] * (double)*at;
    }
    if (s->skip != NULL)
        sum += (double)s->skip[each ? j : 0] * x;
    s->out[row * s->out_stride + j] = (float)sum;
}

static void scan(const hl_scan *s)
{
    for (int64_t i = 0; i < s->d_state * s->d_head && s->begins; i++)
        s->state[i / s->d_head * s->state_stride + i % s->d_head] = 0.0f;
    for (int64_t row = 0; row < s->n_rows; row++) {
        for (int64_t j = 0; j < s->d_head; j++)
            scan_column(s, row, j);
    }
}

static void predict(const hl_streams *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        double before[HL_MAX_STREAMS];

        for (int64_t b = 0; b < s->n_streams; b++)
            before[b] = s->x[b * s->stride + i];
        for (int64_t a = 0; a < s->n_streams; a++) {
            double sum = before[a];

            for (int64_t b = 0; b < s->n_streams; b++)
                sum += (double)s->coefficients[a * s->n_streams + b] * before[b];
            s->x[a * s->stride + i] = (float)sum;
        }
        s->kept[i] = s->x[i];
    }
}

static void correct(const hl_streams *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        float change = s->x[i] - s->kept[i];

        s->x[i] = s->kept[i];
        for (int64_t a = 0; a < s->n_streams; a++)
            s->x[a * s->stride + i] += (1.0f + s->coefficients[a]) * change;
    }
}

static void match(float *out, const float *x, const float *like, int64_t n)
{
    double factor = sqrt(mean_square(like, n, 0.0) / fmax(mean_square(x, n, 0.0), 1e-5));

    for (int64_t i = 0; i < n; i++)
        out[i] += (float)(factor * (double)x[i]);
}

static float multiply_adds(float start, int64_t n_steps)
{
    for (int64_t i = 0; i < n_steps; i++)
        start = start * 0.999f + 0.001f;
    return start;
}

const hl_dense hl_dense_scalar = {
    .norm       = norm_row,
    .rotate     = rotate,
    .activate   = activate,
    .sparsify   = sparsify,
    .dot        = dot,
    .combine    = combine,
    .dots_exact = dots_exact,
    .exp_exact  = exp_exact,
    .conv       = conv,
    .scan       = scan,
    .predict    = predict,
    .correct    = correct,
    .match      = match,

    .multiply_adds = multiply_adds,
    .n_chains      = 1,
};
