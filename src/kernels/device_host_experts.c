/* device_host_experts.c - products of the device "host", and mixtures of experts.
 *
 * Work of a mixture: n_used experts and their weights for every row; rows gathered for the
 * expert at hand, its hidden layer, what comes out, and the sums, all as floats. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/device_host.h"

/* ------------------------------------------------------------------ products */

static hl_matrix packed(const void *data, hl_dtype dtype, int64_t n_rows, int64_t n_columns)
{
    return (hl_matrix){ .data      = data,
                        .dtype     = dtype,
                        .n_rows    = n_rows,
                        .n_columns = n_columns,
                        .n_stored  = n_rows,
                        .block     = n_rows };
}

/* out (n_rows, W's rows) = x W' + b, in floats.  Each row is a sequence of its own: what it comes
 * out as does not depend on how many share the product, as OpenBLAS's would on some CPUs. */
static hl_status multiply(hl_device *device, float *out, const float *x, int64_t n_rows,
                          const hl_matrix *matrix, const float *bias)
{
    static const int64_t one[]  = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const int64_t        most   = (int64_t)(sizeof one / sizeof *one);
    int64_t              floats = hl_linear_scratch(matrix);

    if (floats > device->pool.thread_floats)
        device->pool.thread_floats = floats;
    HL_NEED(hl_device_host_grow(&device->pool.scratch, &device->n_scratch,
                                device->pool.n_threads * device->pool.thread_floats));
    for (int64_t first = 0; first < n_rows; first += most) {
        hl_linear_rows rows = { .out        = out + first * matrix->n_rows,
                                .out_stride = matrix->n_rows,
                                .x          = x + first * matrix->n_columns,
                                .x_stride   = matrix->n_columns,
                                .n_batch    = n_rows - first < most ? n_rows - first : most,
                                .batch_rows = 1,
                                .n_rows     = one };
        HL_NEED(hl_linear(&rows, matrix, bias, &device->pool));
    }
    return HL_OK;
}

hl_status hl_device_host_linear(hl_device *device, const hl_device_linear *linear)
{
    hl_matrix matrix = packed(linear->weight, linear->dtype, linear->n_out, linear->n_in);

    HL_NEED(hl_device_host_grow(&device->values, &device->n_values,
                                linear->n_rows * (linear->n_in + linear->n_out)));
    float *x   = device->values;
    float *out = x + linear->n_rows * linear->n_in;
    for (int64_t row = 0; row < linear->n_rows; row++)
        hl_device_host_load(x + row * linear->n_in, linear->x, linear->dtype,
                            row * linear->x_stride, linear->n_in);
    HL_NEED(multiply(device, out, x, linear->n_rows, &matrix, linear->bias));
    for (int64_t row = 0; row < linear->n_rows; row++)
        hl_device_host_store(linear->out, linear->out_dtype, row * linear->out_stride,
                             out + row * linear->n_out, linear->n_out);
    return HL_OK;
}

/* ------------------------------------------------------------------- routing */

/* The parts of hl_device_experts.work. */
typedef struct room {
    int64_t *chosen;  /* (N, n_used) */
    float   *weights; /* (N, n_used) */
    int64_t *members; /* (N) the rows that an expert gets */
    float   *shares;  /* (N) and their weights for it */
    float   *x;       /* (N, D) */
    float   *hidden;  /* (N, 2 F) */
    float   *active;  /* (N, F) */
    float   *out;     /* (N, D) */
    float   *sum;     /* (N, D) */
} room;

static size_t room_floats(const hl_device_experts *e)
{
    return (size_t)(e->n_rows * (e->n_used + 1 + 3 * e->d_model + 3 * e->d_expert));
}

size_t hl_device_host_experts_bytes(hl_device *device, const hl_device_experts *e)
{
    (void)device;
    return (size_t)(e->n_rows * (e->n_used + 1)) * sizeof(int64_t) + room_floats(e) * sizeof(float);
}

static room room_of(const hl_device_experts *e)
{
    room r = { .chosen = e->work };

    r.members = r.chosen + e->n_rows * e->n_used;
    r.weights = (float *)(void *)(r.members + e->n_rows);
    r.shares  = r.weights + e->n_rows * e->n_used;
    r.x       = r.shares + e->n_rows;
    r.hidden  = r.x + e->n_rows * e->d_model;
    r.active  = r.hidden + e->n_rows * 2 * e->d_expert;
    r.out     = r.active + e->n_rows * e->d_expert;
    r.sum     = r.out + e->n_rows * e->d_model;
    return r;
}

/* The best that is not among the `n` chosen; the first of equals. */
static int64_t next_best(const float *logits, int64_t n_experts, const int64_t *chosen, int64_t n)
{
    int64_t best = -1;

    for (int64_t expert = 0; expert < n_experts; expert++) {
        bool taken = false;
        for (int64_t i = 0; i < n; i++)
            taken = taken || chosen[i] == expert;
        if (!taken && (best < 0 || logits[expert] > logits[best]))
            best = expert;
    }
    return best;
}

static void route_row(const hl_device_experts *e, const room *r, int64_t row)
{
    const float *logits  = e->router + row * e->n_experts;
    int64_t     *chosen  = r->chosen + row * e->n_used;
    float       *weights = r->weights + row * e->n_used;
    double       sum     = 0.0;

    for (int64_t i = 0; i < e->n_used; i++)
        chosen[i] = next_best(logits, e->n_experts, chosen, i);
    float max = logits[chosen[0]];
    for (int64_t i = 0; i < (e->over_all ? e->n_experts : e->n_used); i++)
        sum += exp((double)(logits[e->over_all ? i : chosen[i]] - max));
    for (int64_t i = 0; i < e->n_used; i++)
        weights[i] = (float)(exp((double)(logits[chosen[i]] - max)) / sum);
}

/* ------------------------------------------------------------------- experts */

static int64_t gather(const hl_device_experts *e, const room *r, int64_t expert)
{
    int64_t count = 0;

    for (int64_t i = 0; i < e->n_rows * e->n_used; i++) {
        int64_t row = i / e->n_used;

        if (r->chosen[i] != expert)
            continue;
        hl_device_host_load(r->x + count * e->d_model, e->x, e->dtype, row * e->d_model,
                            e->d_model);
        r->members[count]  = row;
        r->shares[count++] = r->weights[i];
    }
    return count;
}

static void activate(const hl_device *device, const hl_device_experts *e, const room *r,
                     int64_t n_rows)
{
    int64_t width = e->is_gated ? 2 * e->d_expert : e->d_expert;

    for (int64_t row = 0; row < n_rows; row++) {
        float *to   = r->active + row * e->d_expert;
        float *from = r->hidden + row * width;

        memcpy(to, from, (size_t)e->d_expert * sizeof *to);
        device->dense->activate(to, e->is_gated ? from + e->d_expert : NULL, e->d_expert,
                                e->activation, e->limit);
    }
}

static const float *bias_of(const float *biases, int64_t expert, int64_t n)
{
    return biases != NULL ? biases + expert * n : NULL;
}

static hl_status run_expert(hl_device *device, const hl_device_experts *e, const room *r,
                            int64_t expert)
{
    int64_t   n_up  = e->is_gated ? 2 * e->d_expert : e->d_expert;
    int64_t   count = gather(e, r, expert);
    size_t    size  = hl_dtype_block_of(e->dtype).n_bytes;
    hl_matrix up    = packed((const uint8_t *)e->up + (size_t)(expert * n_up * e->d_model) * size,
                             e->dtype, n_up, e->d_model);
    hl_matrix down =
        packed((const uint8_t *)e->down + (size_t)(expert * e->d_model * e->d_expert) * size,
               e->dtype, e->d_model, e->d_expert);

    if (count == 0)
        return HL_OK;
    HL_NEED(multiply(device, r->hidden, r->x, count, &up, bias_of(e->up_bias, expert, n_up)));
    activate(device, e, r, count);
    HL_NEED(multiply(device, r->out, r->active, count, &down,
                     bias_of(e->down_bias, expert, e->d_model)));
    for (int64_t i = 0; i < count * e->d_model; i++)
        r->sum[r->members[i / e->d_model] * e->d_model + i % e->d_model] +=
            r->shares[i / e->d_model] * r->out[i];
    return HL_OK;
}

hl_status hl_device_host_experts(hl_device *device, const hl_device_experts *e)
{
    room r = room_of(e);

    memset(r.sum, 0, (size_t)(e->n_rows * e->d_model) * sizeof *r.sum);
    for (int64_t row = 0; row < e->n_rows; row++)
        route_row(e, &r, row);
    for (int64_t expert = 0; expert < e->n_experts; expert++)
        HL_NEED(run_expert(device, e, &r, expert));
    hl_device_host_store(e->out, e->dtype, 0, r.sum, e->n_rows * e->d_model);
    return HL_OK;
}

hl_status hl_device_host_add_gated(hl_device *device, const hl_device_add_gated *add)
{
    HL_NEED(hl_device_host_grow(&device->values, &device->n_values, 2 * add->n));
    float *out = device->values;
    float *x   = out + add->n;
    for (int64_t row = 0; row < add->n_rows; row++) {
        float weight = 1.0f / (1.0f + expf(-add->logit[row]));

        hl_device_host_load(out, add->out, add->dtype, row * add->n, add->n);
        hl_device_host_load(x, add->x, add->dtype, row * add->n, add->n);
        for (int64_t i = 0; i < add->n; i++)
            out[i] += weight * x[i];
        hl_device_host_store(add->out, add->dtype, row * add->n, out, add->n);
    }
    return HL_OK;
}
