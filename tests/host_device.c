/* host_device.c - the device "host": the operations of kernels/device.h, written for readability.
 *
 * The forward pass is tested on it without a GPU.  Its memory is that of the process, but is
 * treated as a device's: weights are copied, rows are sent in lanes, and sums, comparisons and
 * draws are made by the device.  Values of any compute type (host:f16, host:bf16) are read as
 * floats, processed by the CPU's kernels one row at a time, and rounded once when they are stored.
 * Every program that is linked with this file can open it by name. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "kernels/likeness.h"
#include "kernels/linear.h"
#include "kernels/quant.h"

struct hl_device {
    const hl_dense *dense;
    hl_linear_pool  pool;
    size_t          n_scratch; /* floats of pool.scratch */
    float          *values;    /* inputs and outputs of a product, as floats */
    size_t          n_values;
};

/* -------------------------------------------------------------------- memory */

static hl_status host_grow(float **block, size_t *size, int64_t count)
{
    if ((size_t)count <= *size)
        return HL_OK;
    hl_free(*block);
    *block = NULL;
    *size  = 0;
    HL_NEED(HL_ALLOC(block, (size_t)count));
    *size = (size_t)count;
    return HL_OK;
}

static void host_load(float *out, const void *rows, hl_dtype dtype, int64_t first, int64_t n)
{
    const uint8_t *from = (const uint8_t *)rows + (size_t)first * (hl_dtype_bits(dtype) / 8);

    (void)hl_dtype_to_f32(out, from, dtype, (size_t)n); /* cannot fail, since it is a compute
                                                         * type */
}

static void host_store(void *rows, hl_dtype dtype, int64_t first, const float *x, int64_t n)
{
    uint8_t *to = (uint8_t *)rows + (size_t)first * (hl_dtype_bits(dtype) / 8);

    (void)hl_dtype_from_f32(to, dtype, x, (size_t)n);
}

static hl_status open_host(hl_device **out, const hl_linear_pool *pool)
{
    hl_device        *device  = NULL;
    const hl_kernels *kernels = NULL;

    *out = NULL;
    HL_NEED(hl_kernels_current(&kernels));
    HL_NEED(HL_ALLOC_ZEROED(&device, 1));
    device->dense          = kernels->dense;
    device->pool.n_threads = pool->n_threads;
    *out                   = device;
    return HL_OK;
}

static void close_host(hl_device *device)
{
    if (device == NULL)
        return;
    hl_free(device->pool.scratch);
    hl_free(device->values);
    hl_free(device);
}

/* All memory that the machine has counts as free, since others may release theirs. */
static hl_status memory_of(hl_device *device, hl_device_memory *out)
{
    size_t n_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    (void)device;

    *out = (hl_device_memory){ n_bytes, n_bytes };
    return HL_OK;
}

static hl_status alloc_block(hl_device *device, void **out, size_t n_bytes)
{
    (void)device;
    return hl_alloc_zeroed(out, n_bytes, 1);
}

static void free_block(hl_device *device, void *block)
{
    (void)device;
    hl_free(block);
}

/* -------------------------------------------------------------------- copies */

static hl_status copy_in(hl_device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    if (n_bytes > 0)
        memcpy(to, from, n_bytes);
    return HL_OK;
}

static hl_status zero(hl_device *device, void *to, size_t n_bytes)
{
    (void)device;
    memset(to, 0, n_bytes);
    return HL_OK;
}

static hl_status copy_out(hl_device *device, int lane, void *to, const void *from, size_t n_bytes)
{
    (void)lane;
    return copy_in(device, to, from, n_bytes);
}

static hl_status arrived(hl_device *device, int lane)
{
    (void)device;
    (void)lane;
    return HL_OK;
}

static hl_status wait_for_all(hl_device *device)
{
    (void)device;
    return HL_OK;
}

/* Converts values in blocks, by way of floats. */
static hl_status put_values(hl_device *device, void *to, hl_dtype to_dtype, const void *from,
                            hl_dtype from_dtype, int64_t n_values)
{
    enum { MOST = 4096 };
    hl_dtype_block block  = hl_dtype_block_of(from_dtype);
    int64_t        step   = (int64_t)(MOST / block.n_values * block.n_values);
    const uint8_t *source = from;
    float          values[MOST];
    (void)device;

    for (int64_t first = 0; first < n_values; first += step) {
        int64_t n = n_values - first < step ? n_values - first : step;

        HL_NEED(hl_dequantize(values, from_dtype,
                              source + (size_t)first / block.n_values * block.n_bytes, (size_t)n));
        host_store(to, to_dtype, first, values, n);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- attention */

static hl_status attention(hl_device *device, const hl_device_attention *parts, int64_t n_parts)
{
    for (int64_t i = 0; i < n_parts; i++) {
        hl_attention        own = parts[i].problem;
        hl_attention_result out = parts[i].result;

        own.n_threads = device->pool.n_threads;
        HL_NEED(hl_attention_forward(&out, &own));
    }
    return HL_OK;
}

/* ============================================================ products and experts */

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

/* Computes out (n_rows, W's rows) = x W' + b in floats.  Each row is a sequence of its own, so its
 * result does not depend on the number of rows, as OpenBLAS's would on some CPUs. */
static hl_status multiply(hl_device *device, float *out, const float *x, int64_t n_rows,
                          const hl_matrix *matrix, const float *bias)
{
    static const int64_t one[]  = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const int64_t        most   = (int64_t)(sizeof one / sizeof *one);
    int64_t              floats = hl_linear_scratch(matrix);

    if (floats > device->pool.thread_floats)
        device->pool.thread_floats = floats;
    HL_NEED(host_grow(&device->pool.scratch, &device->n_scratch,
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

static hl_status host_linear(hl_device *device, const hl_device_linear *linear)
{
    hl_matrix matrix = packed(linear->weight, linear->dtype, linear->n_out, linear->n_in);

    HL_NEED(host_grow(&device->values, &device->n_values,
                      linear->n_rows * (linear->n_in + linear->n_out)));
    float *x   = device->values;
    float *out = x + linear->n_rows * linear->n_in;
    for (int64_t row = 0; row < linear->n_rows; row++)
        host_load(x + row * linear->n_in, linear->x, linear->dtype, row * linear->x_stride,
                  linear->n_in);
    HL_NEED(multiply(device, out, x, linear->n_rows, &matrix, linear->bias));
    for (int64_t row = 0; row < linear->n_rows; row++)
        host_store(linear->out, linear->out_dtype, row * linear->out_stride,
                   out + row * linear->n_out, linear->n_out);
    return HL_OK;
}

/* ------------------------------------------------------------------- routing */

/* The parts of hl_device_experts.work. */
typedef struct mixture_room {
    int64_t *chosen;  /* (N, n_used) */
    float   *weights; /* (N, n_used) */
    int64_t *members; /* (N) rows that an expert gets */
    float   *shares;  /* (N) weights of these rows for the expert */
    float   *x;       /* (N, D) */
    float   *hidden;  /* (N, 2 F) */
    float   *active;  /* (N, F) */
    float   *out;     /* (N, D) */
    float   *sum;     /* (N, D) */
    float   *scores;  /* (n_experts) */
} mixture_room;

static size_t room_floats(const hl_device_experts *e)
{
    return (size_t)(e->n_rows * (e->n_used + 1 + 3 * e->d_model + 3 * e->d_expert) + e->n_experts);
}

static size_t host_experts_bytes(hl_device *device, const hl_device_experts *e)
{
    (void)device;
    return (size_t)(e->n_rows * (e->n_used + 1)) * sizeof(int64_t) + room_floats(e) * sizeof(float);
}

static mixture_room room_of(const hl_device_experts *e)
{
    mixture_room r = { .chosen = e->work };

    r.members = r.chosen + e->n_rows * e->n_used;
    r.weights = (float *)(void *)(r.members + e->n_rows);
    r.shares  = r.weights + e->n_rows * e->n_used;
    r.x       = r.shares + e->n_rows;
    r.hidden  = r.x + e->n_rows * e->d_model;
    r.active  = r.hidden + e->n_rows * 2 * e->d_expert;
    r.out     = r.active + e->n_rows * e->d_expert;
    r.sum     = r.out + e->n_rows * e->d_model;
    r.scores  = r.sum + e->n_rows * e->d_model;
    return r;
}

/* ------------------------------------------------------------------- experts */

static int64_t gather(const hl_device_experts *e, const mixture_room *r, int64_t expert)
{
    int64_t count = 0;

    for (int64_t i = 0; i < e->n_rows * e->n_used; i++) {
        int64_t row = i / e->n_used;

        if (r->chosen[i] != expert)
            continue;
        float *x = r->x + count * e->d_model;
        host_load(x, e->x, e->dtype, row * e->d_model, e->d_model);
        for (int64_t j = 0; e->rule.scales_input && j < e->d_model; j++)
            x[j] *= r->weights[i];
        r->members[count]  = row;
        r->shares[count++] = e->rule.scales_input ? 1.0f : r->weights[i];
    }
    return count;
}

static void activate(const hl_device *device, const hl_device_experts *e, const mixture_room *r,
                     int64_t n_rows)
{
    int64_t width = e->is_gated ? 2 * e->d_expert : e->d_expert;

    for (int64_t row = 0; row < n_rows; row++) {
        float *to   = r->active + row * e->d_expert;
        float *from = r->hidden + row * width;

        memcpy(to, from, (size_t)e->d_expert * sizeof *to);
        device->dense->activate(to, e->is_gated ? from + e->d_expert : NULL, e->d_expert,
                                e->activation, (const float[HL_ACTIVATION_NUMBERS]){ e->limit });
    }
}

static const float *bias_of(const float *biases, int64_t expert, int64_t n)
{
    return biases != NULL ? biases + expert * n : NULL;
}

static hl_status run_expert(hl_device *device, const hl_device_experts *e, const mixture_room *r,
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

static hl_status host_experts(hl_device *device, const hl_device_experts *e)
{
    mixture_room r = room_of(e);

    memset(r.sum, 0, (size_t)(e->n_rows * e->d_model) * sizeof *r.sum);
    for (int64_t row = 0; row < e->n_rows; row++)
        hl_router_choose(r.chosen + row * e->n_used, r.weights + row * e->n_used, r.scores,
                         e->router + row * e->n_experts, e->correction, &e->rule, e->n_experts,
                         e->n_used);
    for (int64_t i = 0; i < e->n_rows * e->n_used && e->expert_scale != NULL; i++)
        r.weights[i] *= e->expert_scale[r.chosen[i]];
    for (int64_t expert = 0; expert < e->n_experts; expert++)
        HL_NEED(run_expert(device, e, &r, expert));
    host_store(e->out, e->dtype, 0, r.sum, e->n_rows * e->d_model);
    return HL_OK;
}

static hl_status host_add_gated(hl_device *device, const hl_device_add_gated *add)
{
    HL_NEED(host_grow(&device->values, &device->n_values, 2 * add->n));
    float *out = device->values;
    float *x   = out + add->n;
    for (int64_t row = 0; row < add->n_rows; row++) {
        float weight = add->logit != NULL ? 1.0f / (1.0f + expf(-add->logit[row])) : 1.0f;

        host_load(out, add->out, add->dtype, row * add->n, add->n);
        host_load(x, add->x, add->dtype, row * add->n, add->n);
        for (int64_t i = 0; i < add->n; i++)
            out[i] += weight * x[i];
        host_store(add->out, add->dtype, row * add->n, out, add->n);
    }
    return HL_OK;
}

/* ============================================================ row by row */

/* Makes room for n floats in device->values. */
static hl_status make_rows(hl_device *device, int64_t n)
{
    return host_grow(&device->values, &device->n_values, n);
}

static int64_t count_rows(const hl_device_places *places)
{
    return places->n_batch * places->batch_rows;
}

static int64_t position_of(const hl_device_places *places, int64_t row)
{
    return places->start[row / places->batch_rows] + row % places->batch_rows;
}

static bool counts(const hl_device_places *places, int64_t row)
{
    return row % places->batch_rows < places->lengths[row / places->batch_rows];
}

/* ----------------------------------------------------------------- embedding */

static void add_table_row(float *out, float *room, const void *table, hl_dtype dtype, int64_t row,
                          int64_t n)
{
    if (table == NULL)
        return;
    host_load(room, table, dtype, row * n, n);
    for (int64_t i = 0; i < n; i++)
        out[i] += room[i];
}

static void embed_row(const hl_device_embed *e, float *x, int64_t row)
{
    float  *room  = x + e->n;
    int64_t token = e->tokens[row];

    if (e->n_known > 0 && token >= e->n_known)
        token = 0;
    if (e->base != NULL) {
        host_load(x, e->base, e->dtype, row * e->n, e->n);
    } else {
        host_load(x, e->table, e->dtype, token * e->n, e->n);
        for (int64_t i = 0; i < e->n; i++)
            x[i] *= e->scale;
    }
    add_table_row(x, room, e->position_table, e->dtype, position_of(&e->places, row), e->n);
    add_table_row(x, room, e->type_table, e->dtype, e->type_table != NULL ? e->types[row] : 0,
                  e->n);
    host_store(e->out, e->out_dtype, row * e->n, x, e->n);
}

static hl_status host_embed(hl_device *device, const hl_device_embed *embed)
{
    hl_status status = make_rows(device, 2 * embed->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < count_rows(&embed->places); row++) {
        if (counts(&embed->places, row))
            embed_row(embed, device->values, row);
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- norms */

static void norm_row(const hl_device *device, const hl_device_norm *norm, float *x, int64_t row)
{
    float  *room  = x + norm->n;
    int64_t first = row * norm->n;

    host_load(x, norm->x, norm->x_dtype, first, norm->n);
    for (int part = 0; part < 2; part++) {
        if (norm->add[part] == NULL)
            continue;
        host_load(room, norm->add[part], norm->dtype, first, norm->n);
        for (int64_t i = 0; i < norm->n; i++)
            x[i] += norm->add_scale * room[i];
        host_store(norm->x, norm->x_dtype, first, x, norm->n);
    }
    if (!norm->is_plain)
        device->dense->norm(x, x, norm->n, &norm->norm);
    if (norm->out != NULL)
        host_store(norm->out, norm->out_dtype, first, x, norm->n);
    if (norm->kept != NULL)
        memcpy(norm->kept + first, x, (size_t)norm->n * sizeof *x);
}

static hl_status host_norm(hl_device *device, const hl_device_norm *norm)
{
    hl_status status = make_rows(device, 2 * norm->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < norm->n_rows; row++)
        norm_row(device, norm, device->values, row);
    return HL_OK;
}

/* ------------------------------------------------------------------- q, k, v */

static hl_status host_angles(hl_device *device, const hl_device_angles *angles)
{
    const hl_device_places *places = &angles->places;
    (void)device;

    for (int64_t i = 0; i < count_rows(places) * angles->n_pairs; i++) {
        int64_t row       = i / angles->n_pairs;
        int64_t pair      = i % angles->n_pairs;
        int64_t sequence  = row / places->batch_rows;
        float   frequency = angles->frequencies[sequence * angles->n_pairs + pair];
        double  angle     = (double)((float)position_of(places, row) * frequency);

        angles->cosine[i] = (float)cos(angle) * angles->factors[sequence];
        angles->sine[i]   = (float)sin(angle) * angles->factors[sequence];
    }
    return HL_OK;
}

static hl_norm part_of(const hl_norm *norm, int64_t first)
{
    hl_norm part = *norm;

    part.weight = norm->weight != NULL ? norm->weight + first : NULL;
    part.bias   = norm->bias != NULL ? norm->bias + first : NULL;
    return part;
}

static void norm_heads(const hl_device *device, const hl_device_heads *h, const hl_norm *norm,
                       float *x, int64_t n_heads)
{
    if (h->norm == HL_HEAD_NORM_ALL)
        device->dense->norm(x, x, n_heads * h->d_head, norm);
    for (int64_t head = 0; head < n_heads; head++) {
        float  *at   = x + head * h->d_head;
        hl_norm each = part_of(norm, h->norm == HL_HEAD_NORM_EACH ? head * h->d_head : 0);

        if (h->norm == HL_HEAD_NORM_SHARED || h->norm == HL_HEAD_NORM_EACH)
            device->dense->norm(at, at, h->d_head, &each);
    }
}

static void clamp_row(float *x, int64_t n, float limit)
{
    for (int64_t i = 0; i < n && limit > 0.0f; i++)
        x[i] = x[i] > limit ? limit : x[i] < -limit ? -limit : x[i];
}

/* Applies norm, limit and RoPE to all heads of a row, which is q or k. */
static void finish_heads(const hl_device *device, const hl_device_heads *h, const hl_norm *norm,
                         float *x, int64_t n_heads, int64_t row)
{
    if (!h->norm_last)
        norm_heads(device, h, norm, x, n_heads);
    clamp_row(x, n_heads * h->d_head, h->limit);
    for (int64_t head = 0; head < n_heads && h->cosine != NULL; head++)
        device->dense->rotate(x + head * h->d_head, h->cosine + row * h->n_pairs,
                              h->sine + row * h->n_pairs, h->n_pairs, h->interleaved);
    if (h->norm_last)
        norm_heads(device, h, norm, x, n_heads);
}

/* Divides heads of v by their root mean square, and applies the limit. */
static void finish_values(const hl_device *device, const hl_device_heads *h, float *v)
{
    hl_norm plain = { .kind = HL_NORM_RMS, .eps = h->k_norm.eps };

    for (int64_t head = 0; head < h->n_kv_heads && h->v_normed; head++)
        device->dense->norm(v + head * h->d_head, v + head * h->d_head, h->d_head, &plain);
    clamp_row(v, h->n_kv_heads * h->d_head, h->limit);
}

static void temper_queries(const hl_device_heads *h, float *q, int64_t row)
{
    int64_t position = position_of(&h->places, row) + h->temper_first;
    double  scale    = 1.0 + (double)h->temper * log(1.0 + (double)(position / h->temper_period));

    for (int64_t i = 0; i < h->n_heads * h->d_head; i++)
        q[i] *= (float)scale;
}

static void cache_row(const hl_device_heads *h, void *cache, const float *x, int64_t row)
{
    int64_t sequence = h->places.sequences[row / h->places.batch_rows];
    int64_t position = position_of(&h->places, row);

    for (int64_t head = 0; head < h->n_kv_heads; head++)
        host_store(cache, h->dtype,
                   ((sequence * h->n_kv_heads + head) * h->n_ctx + position) * h->d_head,
                   x + head * h->d_head, h->d_head);
}

static void heads_row(const hl_device *device, const hl_device_heads *h, float *x, int64_t row)
{
    int64_t q_width = h->n_heads * h->d_head;
    int64_t k_width = h->n_kv_heads * h->d_head;
    int64_t width   = q_width + (h->no_values ? 1 : 2) * k_width;
    float  *k       = x + q_width;

    host_load(x, h->qkv, h->dtype, row * width, width);
    finish_heads(device, h, &h->q_norm, x, h->n_heads, row);
    finish_heads(device, h, &h->k_norm, k, h->n_kv_heads, row);
    if (!h->no_values)
        finish_values(device, h, k + k_width);
    if (h->temper != 0.0f)
        temper_queries(h, x, row);
    host_store(h->qkv, h->dtype, row * width, x, width);
    cache_row(h, h->k_cache, k, row);
    if (!h->no_values)
        cache_row(h, h->v_cache, k + k_width, row);
}

static hl_status host_heads(hl_device *device, const hl_device_heads *heads)
{
    int64_t   n_kv   = heads->no_values ? heads->n_kv_heads : 2 * heads->n_kv_heads;
    int64_t   width  = (heads->n_heads + n_kv) * heads->d_head;
    hl_status status = make_rows(device, width);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < count_rows(&heads->places); row++) {
        if (counts(&heads->places, row))
            heads_row(device, heads, device->values, row);
    }
    return HL_OK;
}

/* --------------------------------------------------------------- activations */

static void activate_row(const hl_device *device, const hl_device_activate *a, float *x,
                         int64_t row)
{
    float *up = a->up != NULL ? x + a->n : NULL;

    host_load(x, a->gate, a->dtype, row * a->x_stride, a->n);
    if (up != NULL)
        host_load(up, a->up, a->dtype, row * a->x_stride, a->n);
    if (a->is_sparse)
        device->dense->sparsify(x, a->n, a->deviations);
    device->dense->activate(x, up, a->n, a->activation, a->numbers);
    host_store(a->out, a->dtype, row * a->n, x, a->n);
}

static hl_status host_activate(hl_device *device, const hl_device_activate *activate)
{
    hl_status status = make_rows(device, 2 * activate->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < activate->n_rows; row++)
        activate_row(device, activate, device->values, row);
    return HL_OK;
}

static int larger_first(const void *a, const void *b)
{
    const float *x = a, *y = b; /* score, then key */

    if (x[0] != y[0])
        return x[0] < y[0] ? 1 : -1;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

static hl_status host_select(hl_device *device, const hl_device_select *s)
{
    int64_t width = s->n_heads * s->d_head;

    HL_NEED(make_rows(device, width + s->d_head + 2 * s->n_keys));
    for (int64_t row = 0; row < count_rows(&s->places); row++) {
        int64_t sequence = s->places.sequences[row / s->places.batch_rows];
        int64_t n        = position_of(&s->places, row) + 1;
        float  *q = device->values, *k = q + width, *pairs = k + s->d_head;

        if (!counts(&s->places, row))
            continue;
        host_load(q, s->q, s->dtype, row * width, width);
        for (int64_t key = 0; key < n; key++) {
            double sum = 0.0;

            host_load(k, s->keys, s->cache_dtype, (sequence * s->n_ctx + key) * s->d_head,
                      s->d_head);
            for (int64_t head = 0; head < s->n_heads; head++) {
                double product = 0.0;

                for (int64_t i = 0; i < s->d_head; i++)
                    product += (double)q[head * s->d_head + i] * (double)k[i];
                sum += (double)s->weight[row * s->n_heads + head] * fmax(product, 0.0);
            }
            pairs[2 * key]     = (float)sum;
            pairs[2 * key + 1] = (float)key;
        }
        qsort(pairs, (size_t)n, 2 * sizeof *pairs, larger_first);
        for (int64_t key = 0; key < s->n_keys; key++)
            s->out[row * s->n_keys + key] = -INFINITY;
        for (int64_t i = 0; i < n && i < s->n_top; i++)
            s->out[row * s->n_keys + (int64_t)pairs[2 * i + 1]] = 0.0f;
    }
    return HL_OK;
}

static hl_status host_gate_heads(hl_device *device, const hl_device_gate_heads *g)
{
    const hl_device_places *places = &g->places;
    int64_t                 n      = g->n_heads * g->d_head;

    HL_NEED(make_rows(device, n));
    for (int64_t row = 0; row < count_rows(places); row++) {
        const float *gates = g->gates + row / places->batch_rows * g->gate_stride;

        host_load(device->values, g->x, g->dtype, row * n, n);
        for (int64_t i = 0; i < n; i++)
            device->values[i] *= gates[i / g->d_head];
        host_store(g->x, g->dtype, row * n, device->values, n);
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- copies */

/* x (n) += scale * row `from` of the source. */
static void add_to_copy(float *x, float *room, const hl_device_copy_rows *copy, int64_t from)
{
    for (int part = 0; part < 2; part++) {
        if (copy->add[part] == NULL)
            continue;
        host_load(room, copy->add[part], copy->add_dtype, from * copy->x_stride, copy->n);
        for (int64_t i = 0; i < copy->n; i++)
            x[i] += copy->add_scale * room[i];
    }
}

static hl_status host_copy_rows(hl_device *device, const hl_device_copy_rows *copy)
{
    hl_status status = make_rows(device, 2 * copy->n);

    if (status != HL_OK)
        return status;
    for (int64_t row = 0; row < copy->n_rows; row++) {
        int64_t from = copy->index != NULL ? copy->index[row] : row;
        float  *x    = device->values;

        if (from < 0)
            continue;
        host_load(x, copy->x, copy->x_dtype, from * copy->x_stride, copy->n);
        add_to_copy(x, x + copy->n, copy, from);
        host_store(copy->out, copy->out_dtype, row * copy->out_stride, x, copy->n);
    }
    return HL_OK;
}

/* ------------------------------------------------------ mixers with a state */

/* Converts n values of each row of a sequence to floats, packed at `to`; NULL stays NULL. */
static float *load_sequence(float *to, const hl_device_places *places, int64_t b, const void *rows,
                            hl_dtype dtype, int64_t stride, int64_t n)
{
    if (rows == NULL)
        return NULL;
    for (int64_t row = 0; row < places->lengths[b]; row++)
        host_load(to + row * n, rows, dtype, (b * places->batch_rows + row) * stride, n);
    return to;
}

static void store_sequence(void *rows, const hl_device_places *places, int64_t b, hl_dtype dtype,
                           const float *from, int64_t n)
{
    host_store(rows, dtype, b * places->batch_rows * n, from, places->lengths[b] * n);
}

static hl_status host_conv(hl_device *device, const hl_device_conv *c)
{
    const hl_device_places *places = &c->places;
    int64_t                 size   = places->batch_rows * c->n;

    HL_NEED(make_rows(device, 4 * size));
    for (int64_t b = 0; b < places->n_batch; b++) {
        float  *x    = device->values;
        hl_conv conv = {
            .out        = x + 3 * size,
            .out_stride = c->n,
            .x          = load_sequence(x, places, b, c->x, c->dtype, c->x_stride, c->n),
            .times      = load_sequence(x + size, places, b, c->times, c->dtype, c->x_stride, c->n),
            .after = load_sequence(x + 2 * size, places, b, c->after, c->dtype, c->x_stride, c->n),
            .x_stride = c->n,
            .weight   = c->weight,
            .bias     = c->bias,
            .state    = c->state + places->sequences[b] * c->stride,
            .stride   = c->n,
            .width    = c->width,
            .n_rows   = places->lengths[b],
            .n        = c->n,
            .begins   = places->start[b] == 0,
            .is_silu  = c->is_silu,
        };

        if (conv.n_rows == 0)
            continue;
        hl_dense_scalar.conv(&conv);
        store_sequence(c->out, places, b, c->dtype, conv.out, c->n);
    }
    return HL_OK;
}

/* Runs one head, given the floats of the whole sequence. */
static void scan_head(const hl_device_scan *s, const hl_scan *whole, int64_t head)
{
    hl_scan one   = *whole;
    int64_t group = s->is_tiled ? head % s->n_groups : head / (s->n_heads / s->n_groups);

    one.out += head * s->d_head;
    one.x += head * s->d_head;
    one.k += group * s->d_state;
    one.q += group * s->d_state;
    one.dt += head;
    one.beta    = s->beta != NULL ? one.beta + head : NULL;
    one.a       = s->a + head;
    one.dt_bias = s->dt_bias != NULL ? s->dt_bias + head : NULL;
    one.skip    = s->skip != NULL ? s->skip + head : NULL;
    one.state += head * s->d_state * s->d_head;
    hl_dense_scalar.scan(&one);
}

static hl_status host_scan(hl_device *device, const hl_device_scan *s)
{
    const hl_device_places *places = &s->places;
    int64_t                 values = s->n_heads * s->d_head;
    int64_t                 keys   = s->n_groups * s->d_state;
    int64_t                 steps  = s->kind == HL_SCAN_CHANNEL ? s->d_head : s->n_heads;
    int64_t                 n      = places->batch_rows;

    HL_NEED(make_rows(device, n * (2 * values + 2 * keys + 2 * steps)));
    for (int64_t b = 0; b < places->n_batch; b++) {
        float  *x    = device->values;
        float  *k    = x + n * values;
        float  *q    = k + n * keys;
        float  *dt   = q + n * keys;
        float  *beta = dt + n * steps;
        hl_scan scan = {
            .kind        = s->kind,
            .out         = beta + n * steps,
            .out_stride  = values,
            .x           = load_sequence(x, places, b, s->x, s->dtype, s->x_stride, values),
            .x_stride    = values,
            .k           = load_sequence(k, places, b, s->k, s->dtype, s->k_stride, keys),
            .q           = load_sequence(q, places, b, s->q, s->dtype, s->k_stride, keys),
            .k_stride    = keys,
            .dt          = load_sequence(dt, places, b, s->dt, s->dtype, s->dt_stride, steps),
            .beta        = load_sequence(beta, places, b, s->beta, s->dtype, s->beta_stride, steps),
            .dt_stride   = steps,
            .beta_stride = steps,
            .dt_scale    = s->dt_scale,
            .dt_low      = s->dt_low,
            .dt_high     = s->dt_high,
            .state       = s->state + places->sequences[b] * s->stride,
            .state_stride = s->d_head,
            .d_state      = s->d_state,
            .d_head       = s->d_head,
            .n_rows       = places->lengths[b],
            .begins       = places->start[b] == 0,
        };

        for (int64_t head = 0; head < s->n_heads && scan.n_rows > 0; head++)
            scan_head(s, &scan, head);
        if (scan.n_rows > 0)
            store_sequence(s->out, places, b, s->dtype, scan.out, values);
    }
    return HL_OK;
}

static void norm_groups(const hl_device_gate *g, float *x)
{
    for (int64_t at = 0; at < g->n && g->has_norm; at += g->d_group) {
        hl_norm norm = { .kind   = HL_NORM_RMS,
                         .eps    = g->eps,
                         .weight = g->weight != NULL ? g->weight + (g->is_shared ? 0 : at) : NULL };

        hl_dense_scalar.norm(x + at, x + at, g->d_group, &norm);
    }
}

static hl_status host_gate(hl_device *device, const hl_device_gate *g)
{
    HL_NEED(make_rows(device, 2 * g->n));
    for (int64_t row = 0; row < g->n_rows; row++) {
        float *x = device->values;
        float *z = x + g->n;

        if (!counts(&g->places, row))
            continue;
        host_load(x, g->x, g->dtype, row * g->x_stride, g->n);
        if (g->z != NULL)
            host_load(z, g->z, g->dtype, row * g->z_stride, g->n);
        if (g->norm_first)
            norm_groups(g, x);
        for (int64_t i = 0; i < g->n && g->z != NULL; i++)
            z[i] *= g->z_scale;
        if (g->z != NULL) {
            hl_dense_scalar.activate(z, x, g->n, g->activation,
                                     (const float[HL_ACTIVATION_NUMBERS]){ 0.0f });
            x = z;
        }
        if (!g->norm_first)
            norm_groups(g, x);
        for (int64_t i = 0; i < g->n; i++)
            x[i] *= g->scale;
        host_store(g->out, g->dtype, row * g->n, x, g->n);
    }
    return HL_OK;
}

/* ------------------------------------------------------------ several streams */

static void mix_row(const hl_device_streams *s, int64_t row)
{
    int64_t    m = s->n_streams, n_coefficients = s->corrects ? m : m * m;
    float      c[HL_MAX_STREAMS * HL_MAX_STREAMS];
    hl_streams stream = { .x            = s->x + row * s->n,
                          .stride       = s->stride,
                          .kept         = s->kept + row * s->n,
                          .coefficients = c,
                          .n_streams    = m,
                          .n            = s->n };

    for (int64_t i = 0; i < n_coefficients; i++) {
        double sum = 0.0;

        for (int64_t j = 0; j < m; j++)
            sum += (double)s->weight[i * m + j] * tanh((double)s->logits[row * m + j]);
        c[i] = (float)sum;
    }
    if (s->corrects)
        hl_dense_scalar.correct(&stream);
    else
        hl_dense_scalar.predict(&stream);
}

static hl_status host_streams(hl_device *device, const hl_device_streams *s)
{
    HL_NEED(make_rows(device, s->n));
    for (int64_t row = 0; row < count_rows(&s->places); row++) {
        if (!counts(&s->places, row))
            continue;
        mix_row(s, row);
        for (int64_t i = 0; i < s->n; i++)
            device->values[i] = s->x[row * s->n + i] * (s->scale != NULL ? s->scale[i] : 1.0f);
        if (s->out != NULL)
            host_store(s->out, s->dtype, row * s->n, device->values, s->n);
    }
    return HL_OK;
}

static hl_status host_match(hl_device *device, const hl_device_match *m)
{
    (void)device;
    for (int64_t row = 0; row < count_rows(&m->places); row++) {
        int64_t at = row * m->n;

        if (!counts(&m->places, row))
            continue;
        for (int64_t i = 0; i < m->n && !m->adds; i++)
            m->out[at + i] = 0.0f;
        hl_dense_scalar.match(m->out + at, m->x + at, m->like + at, m->n);
    }
    return HL_OK;
}

/* ============================================================ logits, whole rows, sums */

/* -------------------------------------------------------------------- logits */

static hl_status host_cap(hl_device *device, const hl_device_cap *cap)
{
    (void)device;
    for (int64_t i = 0; i < cap->count; i++) {
        cap->x[i] *= cap->scale;
        if (cap->softcap > 0.0f)
            cap->x[i] = cap->softcap * tanhf(cap->x[i] / cap->softcap);
    }
    return HL_OK;
}

static int64_t top_of(const float *logits, int64_t n)
{
    int64_t top = 0;

    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[top])
            top = i;
    }
    return top;
}

static float gap_of(const float *logits, int64_t n, int64_t top)
{
    float second = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (i != top && logits[i] > second)
            second = logits[i];
    }
    return logits[top] - second;
}

/* Returns the divergence of a row from the kept one at its place, or keeps the row. */
static double compare_row(const hl_device_kept *kept, const float *logits, int64_t row, double lse,
                          int64_t n)
{
    float *a  = kept->logits + row * n;
    double kl = 0.0;

    if (kept->puts) {
        memcpy(a, logits, (size_t)n * sizeof *a);
        kept->lse[row] = lse;
        return 0.0;
    }
    double shift = lse - kept->lse[row];
    for (int64_t i = 0; i < n; i++) {
        float p = (float)exp((double)a[i] - kept->lse[row]);

        if (p > 0.0f) /* an impossible token has logit -inf in both */
            kl += (double)p * ((double)a[i] - (double)logits[i] + shift);
    }
    return kl;
}

static void read_row(const hl_device_logits *l, int64_t row)
{
    const float *logits = l->logits + row * l->n;
    int64_t      top    = top_of(logits, l->n);
    double       max    = (double)logits[top];
    double       rest   = 0.0; /* the sum of exponentials, without the largest one, which is 1 */
    double       dot    = 0.0;

    for (int64_t i = 0; i < l->n; i++) {
        double offset = (double)logits[i] - max;
        double weight = exp(offset);

        if (i != top && !(weight <= 0.0)) { /* 0 * -inf is NaN */
            rest += weight;
            dot += weight * offset;
        }
    }
    if (l->top != NULL)
        l->top[row] = top;
    if (l->entropy != NULL)
        l->entropy[row] = (float)(log1p(rest) - dot / (1.0 + rest));
    if (l->gap != NULL)
        l->gap[row] = gap_of(logits, l->n, top);
    if (l->losses != NULL)
        l->losses[row] =
            l->targets[row] >= 0 ? max + log1p(rest) - (double)logits[l->targets[row]] : NAN;
    if (l->kept.logits != NULL)
        l->divergence[row] = compare_row(&l->kept, logits, row, max + log1p(rest), l->n);
}

static void find_bad(const hl_device_logits *l)
{
    for (int64_t i = 0; i < l->n_rows * l->n; i++) {
        if (!isfinite(l->logits[i]))
            *l->flag |= 1;
    }
}

static hl_status host_logits(hl_device *device, const hl_device_logits *logits)
{
    (void)device;
    for (int64_t row = 0; row < logits->n_rows; row++)
        read_row(logits, row);
    if (logits->flag != NULL)
        find_bad(logits);
    return HL_OK;
}

static hl_status host_finite(hl_device *device, const hl_device_finite *finite)
{
    const hl_device_places *places = &finite->places;
    (void)device;

    for (int64_t row = 0; row < places->n_batch * places->batch_rows; row++) {
        if (row % places->batch_rows >= places->lengths[row / places->batch_rows])
            continue;
        for (int64_t i = 0; i < finite->n; i++) {
            if (!isfinite(finite->x[row * finite->n + i]))
                *finite->flag |= 1;
        }
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ patterns */

static hl_status host_patterns(hl_device *device, const hl_device_patterns *p)
{
    hl_status status = HL_OK;
    double   *scores = NULL;
    (void)device;

    HL_TRY(HL_ALLOC(&scores, (size_t)p->problem->n_keys));
    for (int64_t i = 0; i < p->n_items; i++) {
        const int64_t *item = p->items + 3 * i;
        float         *out  = p->out + i * p->out_stride;

        if (item[2] < 0)
            continue;
        memset(out, 0, (size_t)p->out_stride * sizeof *out);
        HL_TRY(hl_attention_pattern(out, scores, p->statistics != NULL ? &p->statistics[i] : NULL,
                                    p->problem, item[0], item[1], item[2]));
    }

done:
    hl_free(scores);
    return status;
}

/* ---------------------------------------------------------------------- sums */

/* One head's rows of one run. */
typedef struct run_rows {
    const float *values[HL_N_QUANTITIES]; /* NORMALIZED is computed from ENTROPY */
    int64_t      plan;                    /* index of the run's first row in (B, C) */
    int64_t      first;                   /* index of the run's first row in (B, H, C) */
    int64_t      n;
} run_rows;

static run_rows rows_of(const hl_device_reduce *r, int64_t head, const hl_run *run)
{
    run_rows out = { .plan  = run->sequence * r->batch_rows + run->begin,
                     .first = (run->sequence * r->n_heads + head) * r->batch_rows + run->begin,
                     .n     = run->end - run->begin };

    hl_quantity_rows(out.values, r->rows, 0);
    return out;
}

static bool is_small(const hl_device_reduce *r, const run_rows *rows)
{
    for (int64_t i = 0; i < rows->n; i++) {
        if (!hl_entropy_is_possible(rows->values[HL_Q_ENTROPY][rows->first + i],
                                    r->log_n[rows->plan + i]))
            return false;
        for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
            if (!hl_is_small(rows->values[quantity][rows->first + i]))
                return false;
        }
    }
    return true;
}

static void sum_quantity(hl_run_sums *out, const hl_device_reduce *r, const run_rows *rows,
                         int quantity)
{
    for (int64_t i = 0; i < rows->n; i++) {
        double value = (double)rows->values[quantity][rows->first + i];

        if (quantity == HL_Q_NORMALIZED)
            value *= r->inverse[rows->plan + i];
        out->sum[quantity] += hl_fixed(value);
        out->squares[quantity] += hl_fixed(value * value);
        out->min[quantity] = fminf(out->min[quantity], (float)value);
        out->max[quantity] = fmaxf(out->max[quantity], (float)value);
    }
}

static void add_histogram(int64_t *out, const float *values, const double *scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[hl_bin_of((double)values[i] * (scale != NULL ? scale[i] : 1.0))]++;
}

static void add_histograms(int64_t *out, const hl_device_reduce *r, const run_rows *rows,
                           uint32_t defined)
{
    const float  *values[HL_N_HISTOGRAMS] = { [HL_HIST_NORMALIZED] = rows->values[HL_Q_ENTROPY],
                                              [HL_HIST_NORMALIZED_NOSINK] =
                                                  rows->values[HL_Q_ENTROPY_NOSINK],
                                              [HL_HIST_PEAK] = rows->values[HL_Q_PEAK] };
    const double *scales[HL_N_HISTOGRAMS] = { [HL_HIST_NORMALIZED] = r->inverse + rows->plan,
                                              [HL_HIST_NORMALIZED_NOSINK] =
                                                  r->inverse_other + rows->plan };

    for (int i = 0; i < HL_N_HISTOGRAMS; i++) {
        if ((defined & 1U << (HL_N_QUANTITIES + i)) != 0)
            add_histogram(out + i * HL_N_BINS, values[i] + rows->first, scales[i], rows->n);
    }
}

static void add_lookback(int64_t *out, const hl_device_reduce *r, const run_rows *rows)
{
    for (int64_t i = 0; i < rows->n * r->n_types; i++) {
        float share = hl_share_of(r->rows->segment_mass[rows->first * r->n_types + i]);

        out[i % r->n_types] += llrint((double)share * HL_UNIT_ONE);
    }
}

static void reduce_run(const hl_device_reduce *r, int64_t head, int64_t index)
{
    const hl_run *run  = &r->runs[index];
    hl_run_sums  *out  = &r->sums[head * r->n_runs + index];
    run_rows      rows = rows_of(r, head, run);

    *out = (hl_run_sums){ .is_small = is_small(r, &rows) };
    for (int quantity = 0; quantity < HL_N_QUANTITIES; quantity++) {
        out->min[quantity] = INFINITY;
        out->max[quantity] = -INFINITY;
        if (out->is_small && (run->defined & 1U << quantity) != 0)
            sum_quantity(out, r, &rows, quantity);
    }
    if (!out->is_small)
        return;
    add_histograms(r->histogram + head * HL_N_HISTOGRAMS * HL_N_BINS, r, &rows, run->defined);
    if (r->lookback != NULL)
        add_lookback(r->lookback + (head * r->n_types + run->type) * r->n_types, r, &rows);
}

static hl_status host_reduce(hl_device *device, int lane, const hl_device_reduce *r)
{
    (void)device;
    (void)lane;
    memset(r->histogram, 0, (size_t)(r->n_heads * HL_N_HISTOGRAMS * HL_N_BINS) * sizeof(int64_t));
    if (r->lookback != NULL)
        memset(r->lookback, 0, (size_t)(r->n_heads * r->n_types * r->n_types) * sizeof(int64_t));
    for (int64_t i = 0; i < r->n_heads * r->n_runs; i++)
        reduce_run(r, i / r->n_runs, i % r->n_runs);
    return HL_OK;
}

/* ============================================================ draws */

/* One row, and what is known about it. */
typedef struct draw_row {
    const float        *logits;
    const hl_pick_rule *rule;
    const uint32_t     *repeated; /* read only with a penalty */
    int64_t             n;
    int64_t             top; /* index of the largest logit */
    int64_t             top_score;
    float               max; /* largest score */
} draw_row;

static float score_of(const draw_row *r, int64_t token)
{
    bool is_repeated =
        r->rule->penalty != 1.0f && (r->repeated[token / 32] >> (token % 32) & 1) != 0;

    return hl_pick_score(r->logits[token], r->rule->penalty, is_repeated);
}

static double weight_of(const draw_row *r, int64_t token)
{
    return exp(((double)score_of(r, token) - (double)r->max) / r->rule->temperature);
}

/* Returns false if no token can be drawn from the row. */
static bool find_tops(draw_row *r)
{
    bool is_good = true;

    for (int64_t i = 0; i < r->n; i++) {
        is_good      = is_good && r->logits[i] < INFINITY; /* false for NaN too */
        r->top       = r->logits[i] > r->logits[r->top] ? i : r->top;
        r->top_score = score_of(r, i) > score_of(r, r->top_score) ? i : r->top_score;
    }
    r->max = score_of(r, r->top_score);
    return is_good && r->logits[r->top] > -INFINITY;
}

/* Reads a row as hl_logits_read does. */
static void read_logits(hl_pick_result *out, const draw_row *r)
{
    double max  = (double)r->logits[r->top];
    double rest = 0.0, dot = 0.0, dot2 = 0.0;

    for (int64_t i = 0; i < r->n; i++) {
        double offset = (double)r->logits[i] - max;
        double weight = exp(offset);

        if (i != r->top && weight > 0.0) { /* 0 * -inf is NaN */
            rest += weight;
            dot += weight * offset;
            dot2 += weight * offset * offset;
        }
    }
    double mean     = dot / (1.0 + rest);
    out->lse        = max + log1p(rest);
    out->entropy    = log1p(rest) - mean;
    out->varentropy = fmax(dot2 / (1.0 + rest) - mean * mean, 0.0);
}

/* Returns the last bin whose tokens are candidates; *count is the number of candidates. */
static int find_cut(int32_t *count, const draw_row *r, double total)
{
    int32_t  counts[HL_PICK_BINS] = { 0 };
    uint64_t masses[HL_PICK_BINS] = { 0 };
    double   wanted               = r->rule->top_p * total + HL_PICK_SLACK * total;
    uint64_t mass                 = 0;
    int      bin                  = 0;

    for (int64_t i = 0; i < r->n; i++) {
        int at = hl_pick_bin(r->max - score_of(r, i));

        counts[at]++;
        masses[at] += (uint64_t)llrint(weight_of(r, i) * HL_PICK_UNIT);
    }
    *count = 0;
    for (;; bin++) {
        *count += counts[bin];
        mass += masses[bin];
        bool is_enough = r->rule->kind == HL_PICK_TOP_K ? *count >= r->rule->top_k
                                                        : (double)mass / HL_PICK_UNIT >= wanted;
        if (is_enough || bin == HL_PICK_BINS - 1)
            return bin;
    }
}

static void list_candidates(hl_pick_result *out, hl_pick_candidate *candidates, const draw_row *r)
{
    int32_t count = 0;
    int     cut   = 0;

    if (r->rule->kind != HL_PICK_MIN_P)
        cut = find_cut(&count, r, out->total);
    for (int64_t i = 0; i < r->n && count <= HL_PICK_CANDIDATES; i++) {
        bool is_in = r->rule->kind == HL_PICK_MIN_P
                         ? weight_of(r, i) >= r->rule->min_p * (1.0 - HL_PICK_SLACK)
                         : hl_pick_bin(r->max - score_of(r, i)) <= cut;

        if (is_in && out->n_candidates < HL_PICK_CANDIDATES)
            candidates[out->n_candidates] =
                (hl_pick_candidate){ .token = (int32_t)i, .logit = r->logits[i] };
        out->n_candidates += is_in ? 1 : 0;
    }
    if (count > HL_PICK_CANDIDATES)
        out->n_candidates = count;
}

/* Returns the last token with weight that has no more than `target` of mass before it. */
static int64_t draw_from_all(const draw_row *r, double target)
{
    double  mass  = 0.0;
    int64_t token = -1;

    for (int64_t i = 0; i < r->n && mass <= target; i++) {
        double weight = weight_of(r, i);

        token = weight > 0.0 ? i : token;
        mass += weight;
    }
    return token;
}

static void draw_one(const hl_device_pick *d, int64_t index)
{
    const hl_pick_rule *rule = &d->rules[index];
    hl_pick_result     *out  = &d->out[index];
    draw_row            r    = { .logits   = d->logits + rule->row * d->n,
                                 .rule     = rule,
                                 .repeated = d->repeated + index * ((d->n + 31) / 32),
                                 .n        = d->n };

    *out = (hl_pick_result){ .token = -1, .is_bad = !find_tops(&r) };
    if (out->is_bad)
        return;
    read_logits(out, &r);
    if (rule->kind == HL_PICK_GREEDY)
        out->token = (int32_t)r.top_score;
    for (int64_t i = 0; i < d->n && rule->kind != HL_PICK_GREEDY; i++)
        out->total += weight_of(&r, i);
    if (rule->kind == HL_PICK_ALL)
        out->token = (int32_t)draw_from_all(&r, out->total * rule->unit);
    if (out->token >= 0)
        out->logit = r.logits[out->token];
    else
        list_candidates(out, d->candidates + index * HL_PICK_CANDIDATES, &r);
}

static hl_status host_pick(hl_device *device, const hl_device_pick *pick)
{
    (void)device;
    for (int64_t i = 0; i < pick->n_rows; i++)
        draw_one(pick, i);
    return HL_OK;
}

/* ============================================================ comparisons */

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* ---------------------------------------------------------------- the stream */

static hl_status host_follow(hl_device *device, const hl_device_follow *f)
{
    (void)device;
    for (int64_t row = 0; row < f->n_rows; row++) {
        float       *kept = f->kept + row * f->n;
        const float *x    = f->x + row * f->n;

        if (f->index[row] < 0)
            continue;
        if (f->influence != NULL)
            f->influence[row] =
                hl_block_influence(dot(kept, x, f->n), dot(kept, kept, f->n), dot(x, x, f->n));
        memcpy(kept, x, (size_t)f->n * sizeof *kept);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- kernels */

/* Returns the prepared kernel of a sequence and head. */
static double *kernel_of(const hl_device_outputs *o, int64_t sequence, int64_t head)
{
    return o->kernels + (sequence * o->n_heads + head) * hl_kernel_size(o->kernel_rows);
}

static const float *z_of(const hl_device_outputs *o, int64_t row, int64_t head)
{
    return o->z + (row * o->n_heads + head) * o->d_head;
}

/* Computes y = z G for one row. */
static void multiply_gram(float *y, const hl_device_outputs *o, int64_t row, int64_t head)
{
    int64_t      d    = o->d_head;
    const float *z    = z_of(o, row, head);
    const float *gram = o->gram + head * d * d;

    memset(y, 0, (size_t)d * sizeof *y);
    for (int64_t k = 0; k < d; k++) {
        for (int64_t j = 0; j < d; j++)
            y[j] += z[k] * gram[k * d + j];
    }
}

/* Lists the rows of a sequence by their places in (B, n_sampled). */
static int64_t list_rows(int64_t *out, const hl_device_outputs *o, int64_t sequence)
{
    int64_t n = 0;

    for (int64_t i = 0; i < o->n_sampled; i++) {
        if (o->index[sequence * o->n_sampled + i] >= 0)
            out[n++] = sequence * o->n_sampled + i;
    }
    return n;
}

static void write_head(const hl_device_outputs *o, int64_t sequence, int64_t head, int64_t *rows,
                       float *y)
{
    double *kernel = kernel_of(o, sequence, head);
    int64_t n_rows = list_rows(rows, o, sequence);
    int64_t n      = n_rows < o->kernel_rows ? n_rows : o->kernel_rows;
    int64_t step   = n > 0 ? n_rows / n : 1;

    for (int64_t i = 0; i < n_rows; i++) {
        multiply_gram(y, o, rows[i], head);
        o->squares[head * o->n_batch * o->n_sampled + rows[i]] =
            dot(y, z_of(o, rows[i], head), o->d_head);
        if (i % step != 0 || i / step >= n)
            continue;
        for (int64_t j = 0; j <= i / step; j++) {
            double product = dot(y, z_of(o, rows[j * step], head), o->d_head);

            kernel[i / step * n + j] = product;
            kernel[j * n + i / step] = product;
        }
    }
    hl_kernel_prepare(kernel, kernel, n);
}

/* With too few rows there is no estimate. */
static void compare_heads(const hl_device_outputs *o, int64_t sequence, int64_t n)
{
    int64_t n_heads = o->n_heads;
    double *out     = o->alike + sequence * (n_heads * (n_heads + 1) / 2);

    for (int64_t a = 0; a < n_heads; a++) {
        for (int64_t b = a; b < n_heads; b++)
            *out++ =
                n < 3 ? (double)NAN
                      : hl_kernels_alike(kernel_of(o, sequence, a), kernel_of(o, sequence, b), n);
    }
}

static hl_status host_outputs(hl_device *device, int lane, const hl_device_outputs *o)
{
    hl_status status = HL_OK;
    int64_t  *rows   = NULL;
    float    *y      = NULL;
    (void)device;
    (void)lane;

    HL_TRY(HL_ALLOC(&rows, (size_t)o->n_sampled));
    HL_TRY(HL_ALLOC(&y, (size_t)o->d_head));
    for (int64_t sequence = 0; sequence < o->n_batch; sequence++) {
        int64_t n = list_rows(rows, o, sequence);

        for (int64_t head = 0; head < o->n_heads; head++)
            write_head(o, sequence, head, rows, y);
        compare_heads(o, sequence, n < o->kernel_rows ? n : o->kernel_rows);
    }

done:
    hl_free(rows);
    hl_free(y);
    return status;
}

/* ----------------------------------------------------------------- distances */

static hl_status host_distances(hl_device *device, int lane, const hl_device_distances *d)
{
    int64_t stride = d->n_patterns * d->n_keys; /* distance between two heads */
    double *out    = d->out;
    (void)device;
    (void)lane;

    for (int64_t row = 0; row < d->n_batch * d->n_patterns; row++) {
        int64_t      sequence = row / d->n_patterns;
        const float *p = d->p + sequence * d->n_heads * stride + row % d->n_patterns * d->n_keys;

        for (int64_t a = 0; a < d->n_heads; a++) {
            for (int64_t b = a + 1; b < d->n_heads; b++)
                *out++ = hl_rows_apart(p + a * stride, p + b * stride, 0, d->n_keys);
        }
    }
    return HL_OK;
}

/* ---------------------------------------------------------------- whole rows */

static hl_status host_pattern_sums(hl_device *device, int lane, const hl_device_pattern_sums *s)
{
    hl_status        status  = HL_OK;
    hl_pattern_sums *out     = s->out;
    float           *scratch = NULL;
    (void)device;
    (void)lane;

    HL_TRY(HL_ALLOC(&scratch, (size_t)s->n_keys));
    for (int64_t row = 0; row < s->n_batch * s->n_patterns; row++) {
        int64_t first = row / s->n_patterns * s->n_heads; /* first head of the sequence */

        for (int64_t head = 0; head < s->n_heads; head++, out++) {
            const float *p =
                s->p + ((first + head) * s->n_patterns + row % s->n_patterns) * s->n_keys;

            *out = (hl_pattern_sums){ 0 };
            if (s->places[row].keys.end > 0)
                hl_pattern_sum(out, p, &s->places[row], scratch);
        }
    }

done:
    hl_free(scratch);
    return status;
}

/* --------------------------------------------------------------------- table */

static const hl_device_ops host_table = {
    .interface     = HL_DEVICE_INTERFACE,
    .name          = "host",
    .error         = hl_error_message,
    .open          = open_host,
    .close         = close_host,
    .memory        = memory_of,
    .alloc         = alloc_block,
    .free          = free_block,
    .alloc_host    = alloc_block,
    .free_host     = free_block,
    .copy_in       = copy_in,
    .zero          = zero,
    .copy_out      = copy_out,
    .arrived       = arrived,
    .wait          = wait_for_all,
    .put_values    = put_values,
    .linear        = host_linear,
    .experts_bytes = host_experts_bytes,
    .experts       = host_experts,
    .add_gated     = host_add_gated,
    .embed         = host_embed,
    .norm          = host_norm,
    .angles        = host_angles,
    .heads         = host_heads,
    .activate      = host_activate,
    .select        = host_select,
    .gate_heads    = host_gate_heads,
    .copy_rows     = host_copy_rows,
    .conv          = host_conv,
    .scan          = host_scan,
    .gate          = host_gate,
    .streams       = host_streams,
    .match         = host_match,
    .cap           = host_cap,
    .logits        = host_logits,
    .pick          = host_pick,
    .finite        = host_finite,
    .attention     = attention,
    .patterns      = host_patterns,
    .follow        = host_follow,
    .reduce        = host_reduce,
    .outputs       = host_outputs,
    .distances     = host_distances,
    .pattern_sums  = host_pattern_sums,
};

__attribute__((constructor)) static void offer(void)
{
    hl_device_offer(&host_table);
}
