/* backward_dense.c - gradients through linear maps, norms and activations.
 *
 *     y = x W' + b           dx = dy W
 *     y = (x - m) r w + b    t = dy w,  h = (x - m) r:   dx = r (t - mean(t) - h mean(t h)),
 *                            without mean(t) if the norm has no m (RMS)
 *     y = act(g) u           dg = dy u act'(g),  du = dy act(g)
 *
 * Norms and activations are in double: they are a small part of the work. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/status.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "model/backward.h"

/* -------------------------------------------------------------------- linear */

/* The context of the threads: rows [first, first + count) of a matrix, and their operands. */
typedef struct panel_job {
    const hl_backward *b;
    const hl_matrix   *matrix;
    int64_t            first;
    int64_t            count;
    float             *dx;
    const float       *dy;
    _Atomic(int)       failure; /* HL_OK, or how a thread failed */
} panel_job;

static void read_some(void *context, int64_t from, int64_t end, int member)
{
    panel_job *job = context;
    (void)member;

    for (int64_t row = from; row < end; row++) {
        hl_status status = hl_matrix_read_row(job->b->panel + row * job->matrix->n_columns,
                                              job->matrix, job->first + row);
        if (status != HL_OK)
            atomic_store(&job->failure, (int)status);
    }
}

/* dx += the panel's columns of dy times the panel, for some rows of both. */
static void multiply_some(void *context, int64_t from, int64_t end, int member)
{
    const panel_job *job   = context;
    int64_t          width = job->matrix->n_columns;
    float           *sums  = job->b->partial;
    (void)member;

    hl_gemm(&(hl_gemm_operands){ .c        = sums + from * width,
                                 .c_stride = width,
                                 .a        = job->dy + from * job->matrix->n_rows + job->first,
                                 .a_stride = job->matrix->n_rows,
                                 .b        = job->b->panel,
                                 .b_stride = width,
                                 .m        = end - from,
                                 .n        = width,
                                 .k        = job->count });
    for (int64_t i = from * width; i < end * width; i++)
        job->dx[i] += sums[i];
}

hl_status hl_backward_linear(const hl_backward *b, float *dx, const float *dy, int64_t n,
                             const hl_session_param *param, bool add)
{
    const hl_matrix *matrix = &param->matrix;

    if (!add)
        memset(dx, 0, (size_t)(n * matrix->n_columns) * sizeof *dx);
    for (int64_t first = 0; first < matrix->n_rows && n > 0; first += HL_BACKWARD_PANEL) {
        int64_t   left  = matrix->n_rows - first;
        int64_t   count = left < HL_BACKWARD_PANEL ? left : HL_BACKWARD_PANEL;
        panel_job job   = { b, matrix, first, count, dx, dy, HL_OK };

        hl_parallel(b->n_threads, count, 0, read_some, &job);
        if (atomic_load(&job.failure) != HL_OK)
            return (hl_status)atomic_load(&job.failure);
        hl_parallel(b->n_threads, n, (n + b->n_threads - 1) / b->n_threads, multiply_some, &job);
    }
    return HL_OK;
}

hl_status hl_backward_forward(const hl_backward *b, float *out, const float *x, int64_t n,
                              const hl_session_param *param)
{
    hl_linear_rows rows = { .out        = out,
                            .out_stride = param->matrix.n_rows,
                            .x          = x,
                            .x_stride   = param->matrix.n_columns,
                            .n_batch    = 1,
                            .batch_rows = n,
                            .n_rows     = &n };

    return hl_linear(&rows, &param->matrix, param->bias, &b->session->pool);
}

/* ---------------------------------------------------------------------- norm */

static double mean_of(const float *x, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    return sum / (double)n;
}

static double mean_square(const float *x, int64_t n, double center)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += ((double)x[i] - center) * ((double)x[i] - center);
    return sum / (double)n;
}

void hl_backward_norm(float *dx, const float *dy, const float *x, int64_t n, const hl_norm *norm)
{
    bool   centered = norm->kind == HL_NORM_LAYER;
    double center   = centered ? mean_of(x, n) : 0.0;
    double scale    = 1.0 / sqrt(mean_square(x, n, center) + (double)norm->eps);
    double sum      = 0.0; /* sum of t */
    double along    = 0.0; /* sum of t h */

    for (int64_t i = 0; i < n; i++) {
        double t = (double)dy[i] * (norm->weight != NULL ? (double)norm->weight[i] : 1.0);

        sum += t;
        along += t * ((double)x[i] - center) * scale;
    }
    sum   = centered ? sum / (double)n : 0.0;
    along = along / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double t = (double)dy[i] * (norm->weight != NULL ? (double)norm->weight[i] : 1.0);

        dx[i] = (float)(scale * (t - sum - ((double)x[i] - center) * scale * along));
    }
}

/* The context of the threads. */
typedef struct norm_job {
    float       *dx;
    const float *dy;
    const float *x;
    int64_t      n;
    hl_norm      norm;
} norm_job;

static void norm_some(void *context, int64_t first, int64_t end, int member)
{
    const norm_job *job = context;
    (void)member;

    for (int64_t row = first; row < end; row++)
        hl_backward_norm(job->dx + row * job->n, job->dy + row * job->n, job->x + row * job->n,
                         job->n, &job->norm);
}

void hl_backward_norms(const hl_backward *b, float *dx, const float *dy, const float *x,
                       const hl_norm *norm)
{
    hl_parallel(b->n_threads, b->n_tokens, 0, norm_some,
                &(norm_job){ dx, dy, x, b->config->d_model, *norm });
}

hl_norm hl_backward_norm_of(const hl_backward *b, hl_role role, int64_t layer, int64_t part)
{
    const hl_session_param *param = hl_session_param_of(b->session, role, layer, part);

    return (hl_norm){ .kind   = b->config->norm,
                      .eps    = (float)b->config->norm_eps,
                      .weight = param != NULL ? param->vector : NULL,
                      .bias   = param != NULL ? param->bias : NULL };
}

/* ---------------------------------------------------------------- activation */

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* x sigmoid(u(x)): the approximations of GELU and SiLU are all of this form. */
static void gated_line(double *value, double *slope, double x, double u, double du)
{
    double s = sigmoid(u);

    *value = x * s;
    *slope = s + x * s * (1.0 - s) * du;
}

static void xielu_at(double *value, double *slope, double x, const float *numbers)
{
    double p = numbers[0], n = numbers[1], b = numbers[2], e = numbers[3];

    if (x > 0.0) {
        *value = p * x * x + b * x;
        *slope = 2.0 * p * x + b;
    } else {
        *value = n * (expm1(x < e ? x : e) - x) + b * x;
        *slope = n * ((x < e ? exp(x) : 0.0) - 1.0) + b;
    }
}

/* Computes act(x) and act'(x). */
static void activation_at(double *value, double *slope, double x, hl_activation activation,
                          const float *numbers)
{
    const double root  = 2.0 * 0.79788456080286535588; /* 2 sqrt(2 / pi) */
    const double cubic = 0.044715;

    switch (activation) {
    case HL_ACTIVATION_GELU: {
        double phi = 0.5 * erfc(-x * 0.70710678118654752440);

        *value = x * phi;
        *slope = phi + x * exp(-0.5 * x * x) * 0.39894228040143267794; /* 1 / sqrt(2 pi) */
        return;
    }
    case HL_ACTIVATION_GELU_TANH:
        gated_line(value, slope, x, root * (x + cubic * x * x * x),
                   root * (1.0 + 3.0 * cubic * x * x));
        return;
    case HL_ACTIVATION_SILU:
        gated_line(value, slope, x, x, 1.0);
        return;
    case HL_ACTIVATION_RELU:
        *value = x > 0.0 ? x : 0.0;
        *slope = x > 0.0 ? 1.0 : 0.0;
        return;
    case HL_ACTIVATION_RELU_SQUARED:
        *value = x > 0.0 ? x * x : 0.0;
        *slope = x > 0.0 ? 2.0 * x : 0.0;
        return;
    case HL_ACTIVATION_XIELU:
        xielu_at(value, slope, x, numbers);
        return;
    case HL_ACTIVATION_SIGMOID:
        *value = 1.0 / (1.0 + exp(-x));
        *slope = *value * (1.0 - *value);
        return;
    case HL_ACTIVATION_SILU_SCALED:
        gated_line(value, slope, x, (double)numbers[0] * x, (double)numbers[0]);
        *value *= (double)numbers[1];
        *slope *= (double)numbers[1];
        return;
    default: /* GELU_QUICK, and the gate of SWIGLU_CLAMPED */
        gated_line(value, slope, x, 1.702 * x, 1.702);
        return;
    }
}

void hl_backward_activation(float *d_gate, float *d_up, const float *gate, const float *up,
                            int64_t n, hl_activation activation, const float *numbers)
{
    bool  clamped = activation == HL_ACTIVATION_SWIGLU_CLAMPED;
    float limit   = numbers[0];

    for (int64_t i = 0; i < n; i++) {
        double value;
        double slope;
        double dy     = (double)d_gate[i];
        double factor = up != NULL ? (double)up[i] : 1.0;
        bool   g_flat = clamped && gate[i] > limit;
        bool   u_flat = clamped && up != NULL && fabsf(up[i]) > limit;

        if (clamped)
            factor = fmin(fmax(factor, -(double)limit), (double)limit) + 1.0;
        activation_at(&value, &slope, (double)(g_flat ? limit : gate[i]), activation, numbers);
        d_gate[i] = g_flat ? 0.0f : (float)(dy * factor * slope);
        if (d_up != NULL)
            d_up[i] = u_flat ? 0.0f : (float)(dy * value);
    }
}
