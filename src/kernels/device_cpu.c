/* device_cpu.c - the device "cpu": the operations of device.h on the process's own memory.
 *
 * The compute type is f32, whatever the weights are stored as.  Rows are divided among the threads
 * of the pool, and padding is skipped.  A row's result does not depend on the number of threads
 * nor, where device.h says so, on the rest of its batch. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/attention.h"
#include "kernels/device.h"
#include "kernels/kernels.h"
#include "kernels/logits.h"
#include "kernels/select.h"

enum {
    TEAM_VALUES   = 16 * 1024, /* a smaller loop ends before another thread has woken */
    TEAM_PRODUCTS = 64 * 1024, /* smaller attention of few rows stays on one thread */
};

struct hl_device {
    const hl_linear_pool *pool;
};

/* What a thread needs for its rows: the operation's description, the rows' places, the kernels. */
typedef struct job {
    const void             *what;
    const hl_device_places *places; /* NULL: no row is padding */
    const hl_dense         *dense;
    _Atomic(int)            failure; /* HL_OK, or how a thread failed */
} job;

/* The number of threads for a loop over n_values values. */
static int team(const hl_device *device, int64_t n_values)
{
    return n_values < TEAM_VALUES ? 1 : device->pool->n_threads;
}

/* Runs `work` on n rows of `width` values, with the kernels in use. */
static hl_status share_rows(const hl_device *device, hl_parallel_work work, int64_t n,
                            int64_t width, const void *what, const hl_device_places *places)
{
    const hl_kernels *kernels = NULL;

    HL_NEED(hl_kernels_current(&kernels));
    job rows = { .what = what, .places = places, .dense = kernels->dense };
    hl_parallel(team(device, n * width), n, 0, work, &rows);
    if (atomic_load(&rows.failure) != HL_OK)
        return hl_fail((hl_status)atomic_load(&rows.failure), "work failed on a thread");
    return HL_OK;
}

static bool counts(const hl_device_places *places, int64_t row)
{
    return row % places->batch_rows < places->lengths[row / places->batch_rows];
}

static int64_t position_of(const hl_device_places *places, int64_t row)
{
    return places->start[row / places->batch_rows] + row % places->batch_rows;
}

static int64_t count_rows(const hl_device_places *places)
{
    return places->n_batch * places->batch_rows;
}

/* ------------------------------------------------------------------ memory */

static hl_status open_device(hl_device **out, const hl_linear_pool *pool)
{
    HL_NEED(HL_ALLOC_ZEROED(out, 1));
    (*out)->pool = pool;
    return HL_OK;
}

static void close_device(hl_device *device)
{
    hl_free(device);
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

static hl_status copy_in(hl_device *device, void *to, const void *from, size_t n_bytes)
{
    (void)device;
    if (n_bytes > 0 && to != from)
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

/* ---------------------------------------------------------------- products */

static hl_status linear(hl_device *device, const hl_device_linear *l)
{
    const hl_stored_map *map = l->weight;
    float               *out = l->out;
    hl_linear_product    products[HL_LINEAR_PRODUCTS];

    for (int64_t i = 0; i < map->n_parts; i++) {
        products[i] = (hl_linear_product){ .rows   = { .out        = out,
                                                       .out_stride = l->out_stride,
                                                       .x          = l->x,
                                                       .x_stride   = l->x_stride,
                                                       .n_batch    = l->places.n_batch,
                                                       .batch_rows = l->places.batch_rows,
                                                       .n_rows     = l->places.lengths },
                                           .matrix = map->parts[i].matrix,
                                           .bias   = map->parts[i].bias };
        out += map->parts[i].matrix->n_rows;
    }
    return hl_linear_all(products, (int)map->n_parts, device->pool);
}

static void add_gated_rows(void *context, int64_t first, int64_t end, int member)
{
    const job                 *rows = context;
    const hl_device_add_gated *add  = rows->what;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float        weight = add->logit != NULL ? 1.0f / (1.0f + expf(-add->logit[row])) : 1.0f;
        float       *out    = (float *)add->out + row * add->n;
        const float *x      = (const float *)add->x + row * add->n;

        for (int64_t i = 0; i < add->n && counts(rows->places, row); i++)
            out[i] += weight * x[i];
    }
}

static hl_status add_gated(hl_device *device, const hl_device_add_gated *add)
{
    return share_rows(device, add_gated_rows, add->n_rows, add->n, add, &add->places);
}

/* ----------------------------------------------------------------- experts */

/* Each row chooses its experts, then expert after expert processes the rows that chose it, so that
 * its weights are read once.  Rows are gathered sequence by sequence, and each sequence is
 * multiplied by itself; where sequences are short, each row is, which gives the same results.  A
 * row's parts are added in the order of the experts, whatever else is in the batch. */
typedef struct mixture {
    hl_device               *device;
    const hl_dense          *dense;
    const hl_device_experts *e;
    int64_t                  n_batch;    /* B: of gathered sequences */
    int64_t                  batch_rows; /* C */
    int64_t                 *members;    /* (B, C) the rows that chose an expert */
    int64_t                 *counts;     /* (B) number of them in each sequence */
    float                   *weights;    /* (B, C) the expert's weights in its rows */
    float                   *gathered;   /* (B, C, D) */
    float                   *gate;       /* (B, C, 2 F) */
    float                   *active;     /* (B, C, F) */
    float                   *out;        /* (B, C, D) */
    float                   *scores;     /* (n_experts) */
} mixture;

static size_t experts_bytes(hl_device *device, const hl_device_experts *e)
{
    int64_t floats = 1 + 2 * e->d_model + 3 * e->d_expert;
    (void)device;

    return (size_t)e->n_rows * (2 * sizeof(int64_t) + (size_t)floats * sizeof(float)) +
           (size_t)e->n_experts * sizeof(float);
}

static mixture mixture_of(hl_device *device, const hl_dense *dense, const hl_device_experts *e)
{
    int64_t n = e->n_rows;
    mixture m = { .device = device, .dense = dense, .e = e, .members = e->work };

    m.counts   = m.members + n;
    m.weights  = (float *)(void *)(m.counts + n);
    m.gathered = m.weights + n;
    m.gate     = m.gathered + n * e->d_model;
    m.active   = m.gate + n * 2 * e->d_expert;
    m.out      = m.active + n * e->d_expert;
    m.scores   = m.out + n * e->d_model;
    return m;
}

/* The weight goes into the input or stays for the output. */
static void gather_row(const mixture *m, int64_t at, int64_t row, float weight)
{
    const hl_device_experts *e    = m->e;
    float                   *to   = m->gathered + at * e->d_model;
    const float             *from = (const float *)e->x + row * e->d_model;

    for (int64_t i = 0; i < e->d_model; i++)
        to[i] = e->rule.scales_input ? weight * from[i] : from[i];
    m->weights[at] = e->rule.scales_input ? 1.0f : weight;
    m->members[at] = row;
}

/* Collects the rows that chose this expert; returns the number of them. */
static int64_t gather_rows(mixture *m, int64_t expert)
{
    const hl_device_experts *e     = m->e;
    bool                     few   = e->places.batch_rows <= HL_LINEAR_FEW_ROWS;
    int64_t                  total = 0;

    for (int64_t b = 0; b < e->places.n_batch; b++) {
        int64_t first = b * e->places.batch_rows;
        int64_t end   = first + e->places.lengths[b];
        int64_t count = 0;

        for (int64_t pair = first * e->n_used; pair < end * e->n_used; pair++) {
            if (e->chosen[pair] == expert)
                gather_row(m, (few ? total : first) + count++, pair / e->n_used, e->shares[pair]);
        }
        for (int64_t i = 0; few && i < count; i++)
            m->counts[total + i] = 1;
        if (!few)
            m->counts[b] = count;
        total += count;
    }
    m->n_batch    = few ? total : e->places.n_batch;
    m->batch_rows = few ? 1 : e->places.batch_rows;
    return total;
}

/* Multiplies by part `part` of each map; the rows of x and out are packed. */
static hl_status multiply(const mixture *m, float *out, const float *x, const hl_stored_part *parts,
                          int64_t n_parts, int64_t out_stride)
{
    hl_linear_product products[2];
    int64_t           n_out = 0;

    for (int64_t i = 0; i < n_parts; i++) {
        products[i] = (hl_linear_product){ .rows   = { .out        = out + n_out,
                                                       .out_stride = out_stride,
                                                       .x          = x,
                                                       .x_stride   = parts[i].matrix->n_columns,
                                                       .n_batch    = m->n_batch,
                                                       .batch_rows = m->batch_rows,
                                                       .n_rows     = m->counts },
                                           .matrix = parts[i].matrix,
                                           .bias   = parts[i].bias };
        n_out += parts[i].matrix->n_rows;
    }
    return hl_linear_all(products, (int)n_parts, m->device->pool);
}

/* Is this one of the rows that were gathered? */
static bool is_gathered(const mixture *m, int64_t at)
{
    return at % m->batch_rows < m->counts[at / m->batch_rows];
}

static void activate_expert(void *context, int64_t first, int64_t end, int member)
{
    const mixture           *m     = context;
    const hl_device_experts *e     = m->e;
    int64_t                  width = e->is_gated ? 2 * e->d_expert : e->d_expert;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float       *out  = m->active + row * e->d_expert;
        const float *gate = m->gate + row * width;

        if (!is_gathered(m, row))
            continue;
        memcpy(out, gate, (size_t)e->d_expert * sizeof *out);
        m->dense->activate(out, e->is_gated ? gate + e->d_expert : NULL, e->d_expert, e->activation,
                           (const float[HL_ACTIVATION_NUMBERS]){ e->limit });
    }
}

static hl_status add_expert(mixture *m, int64_t expert)
{
    const hl_device_experts *e       = m->e;
    const hl_stored_map     *up      = e->up;
    const hl_stored_map     *down    = e->down;
    int64_t                  n_parts = e->is_gated ? 2 : 1;
    int64_t                  count   = gather_rows(m, expert);
    int64_t                  n       = m->n_batch * m->batch_rows;

    if (count == 0)
        return HL_OK;
    HL_NEED(multiply(m, m->gate, m->gathered, &up->parts[expert * n_parts], n_parts,
                     n_parts * e->d_expert));
    hl_parallel(team(m->device, count * e->d_expert), n, 0, activate_expert, m);
    HL_NEED(multiply(m, m->out, m->active, &down->parts[expert], 1, e->d_model));
    for (int64_t i = 0; i < n; i++) {
        float *out = is_gathered(m, i) ? (float *)e->out + m->members[i] * e->d_model : NULL;

        for (int64_t j = 0; j < e->d_model && out != NULL; j++)
            out[j] += m->weights[i] * m->out[i * e->d_model + j];
    }
    return HL_OK;
}

static hl_status experts(hl_device *device, const hl_device_experts *e)
{
    const hl_kernels *kernels = NULL;

    HL_NEED(hl_kernels_current(&kernels));
    mixture m = mixture_of(device, kernels->dense, e);
    for (int64_t row = 0; row < e->n_rows; row++) {
        int64_t chosen = row * e->n_used;

        if (!counts(&e->places, row))
            continue;
        memset((float *)e->out + row * e->d_model, 0, (size_t)e->d_model * sizeof(float));
        hl_router_choose(e->chosen + chosen, e->shares + chosen, m.scores,
                         e->router + row * e->n_experts, e->correction, &e->rule, e->n_experts,
                         e->n_used);
        for (int64_t i = 0; i < e->n_used && e->expert_scale != NULL; i++)
            e->shares[chosen + i] *= e->expert_scale[e->chosen[chosen + i]];
    }
    for (int64_t expert = 0; expert < e->n_experts; expert++)
        HL_NEED(add_expert(&m, expert));
    return HL_OK;
}

/* --------------------------------------------------------------- embedding */

static const hl_matrix *matrix_of(const void *table)
{
    return ((const hl_stored_map *)table)->parts[0].matrix;
}

/* Adds row `row` of a table to out (n), using `room` (n) as scratch. */
static hl_status add_table_row(float *out, float *room, const void *table, int64_t row, int64_t n)
{
    if (table == NULL)
        return HL_OK;
    HL_NEED(hl_matrix_read_row(room, matrix_of(table), row));
    for (int64_t i = 0; i < n; i++)
        out[i] += room[i];
    return HL_OK;
}

static hl_status embed_row(const hl_device_embed *e, float *room, int64_t row)
{
    float  *out   = (float *)e->out + row * e->n;
    int64_t token = e->tokens[row];

    if (e->base == NULL) {
        token = e->n_known > 0 && token >= e->n_known ? 0 : token;
        HL_NEED(hl_matrix_read_row(out, matrix_of(e->table), token));
        for (int64_t i = 0; i < e->n && e->scale != 1.0f; i++)
            out[i] *= e->scale;
    } else if (e->base != e->out) {
        memcpy(out, (const float *)e->base + row * e->n, (size_t)e->n * sizeof *out);
    }
    HL_NEED(add_table_row(out, room, e->position_table, position_of(&e->places, row), e->n));
    return add_table_row(out, room, e->type_table, e->type_table != NULL ? e->types[row] : 0, e->n);
}

static hl_status embed(hl_device *device, const hl_device_embed *e)
{
    for (int64_t row = 0; row < count_rows(&e->places); row++) {
        if (counts(&e->places, row)) /* a row fits into the scratch, which holds a panel of rows */
            HL_NEED(embed_row(e, device->pool->scratch, row));
    }
    return HL_OK;
}

/* -------------------------------------------------------------- row by row */

static void add_scaled(float *x, const void *rows, int64_t first, int64_t n, float scale)
{
    const float *add = rows;

    for (int64_t i = 0; i < n && add != NULL; i++)
        x[i] += scale * add[first + i];
}

static void norm_rows(void *context, int64_t first, int64_t end, int member)
{
    const job            *rows = context;
    const hl_device_norm *norm = rows->what;
    int64_t               n    = norm->n;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float *x   = (float *)norm->x + row * n;
        float *out = norm->out != NULL ? (float *)norm->out + row * n : x;

        if (!counts(rows->places, row))
            continue;
        add_scaled(x, norm->add[0], row * n, n, norm->add_scale);
        add_scaled(x, norm->add[1], row * n, n, norm->add_scale);
        if (norm->out == NULL && norm->kept != NULL)
            out = norm->kept + row * n;
        if (!norm->is_plain)
            rows->dense->norm(out, x, n, &norm->norm);
        else if (out != x)
            memcpy(out, x, (size_t)n * sizeof *x);
        if (norm->kept != NULL && norm->kept + row * n != out)
            memcpy(norm->kept + row * n, out, (size_t)n * sizeof *x);
    }
}

static hl_status norm(hl_device *device, const hl_device_norm *what)
{
    return share_rows(device, norm_rows, what->n_rows, what->n, what, &what->places);
}

static void angle_rows(void *context, int64_t first, int64_t end, int member)
{
    const job              *rows   = context;
    const hl_device_angles *angles = rows->what;
    int64_t                 n      = angles->n_pairs;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        int64_t      sequence    = row / rows->places->batch_rows;
        const float *frequencies = angles->frequencies + sequence * n;
        float        factor      = angles->factors[sequence];
        float        position    = (float)position_of(rows->places, row);

        for (int64_t pair = 0; pair < n && counts(rows->places, row); pair++) {
            /* The product is rounded to float, as in the implementations that the models were
             * trained with.  At large positions the difference is visible. */
            double angle                   = (double)(position * frequencies[pair]);
            angles->cosine[row * n + pair] = (float)cos(angle) * factor;
            angles->sine[row * n + pair]   = (float)sin(angle) * factor;
        }
    }
}

static hl_status angles(hl_device *device, const hl_device_angles *what)
{
    return share_rows(device, angle_rows, count_rows(&what->places), what->n_pairs, what,
                      &what->places);
}

/* The norm of one head of q or k, or of all of them together. */
static void norm_heads(const hl_dense *dense, const hl_device_heads *h, const hl_norm *norm,
                       float *x, int64_t n_heads)
{
    int64_t width = h->norm == HL_HEAD_NORM_ALL ? n_heads * h->d_head : h->d_head;

    for (int64_t i = 0; i < n_heads * h->d_head && h->norm != HL_HEAD_NORM_NONE; i += width) {
        int64_t first = h->norm == HL_HEAD_NORM_EACH ? i : 0;
        hl_norm each  = { .kind   = norm->kind,
                          .eps    = norm->eps,
                          .weight = norm->weight != NULL ? norm->weight + first : NULL,
                          .bias   = norm->bias != NULL ? norm->bias + first : NULL };

        dense->norm(x + i, x + i, width, &each);
    }
}

static void clamp(float *x, int64_t n, float limit)
{
    for (int64_t i = 0; i < n && limit > 0.0f; i++)
        x[i] = fminf(fmaxf(x[i], -limit), limit);
}

/* All steps for the heads of q or k of a row. */
static void finish_heads(const hl_dense *dense, const hl_device_heads *h, const hl_norm *norm,
                         float *x, int64_t n_heads, int64_t row)
{
    if (!h->norm_last)
        norm_heads(dense, h, norm, x, n_heads);
    clamp(x, n_heads * h->d_head, h->limit);
    for (int64_t head = 0; head < n_heads && h->cosine != NULL; head++)
        dense->rotate(x + head * h->d_head, h->cosine + row * h->n_pairs,
                      h->sine + row * h->n_pairs, h->n_pairs, h->interleaved);
    if (h->norm_last)
        norm_heads(dense, h, norm, x, n_heads);
}

static void temper_queries(const hl_device_heads *h, float *q, int64_t row)
{
    int64_t turns = (position_of(&h->places, row) + h->temper_first) / h->temper_period;
    float   scale = (float)(1.0 + (double)h->temper * log1p((double)turns));

    for (int64_t i = 0; i < h->n_heads * h->d_head; i++)
        q[i] *= scale;
}

static void finish_values(const hl_dense *dense, const hl_device_heads *h, float *v)
{
    const hl_norm plain = { .kind = HL_NORM_RMS, .eps = h->k_norm.eps };

    for (int64_t head = 0; head < h->n_kv_heads && h->v_normed; head++)
        dense->norm(v + head * h->d_head, v + head * h->d_head, h->d_head, &plain);
    clamp(v, h->n_kv_heads * h->d_head, h->limit);
}

static void cache_row(const hl_device_heads *h, void *cache, const float *x, int64_t row)
{
    int64_t sequence = h->places.sequences[row / h->places.batch_rows];
    int64_t position = position_of(&h->places, row);

    for (int64_t head = 0; head < h->n_kv_heads; head++) {
        int64_t at = ((sequence * h->n_kv_heads + head) * h->n_ctx + position) * h->d_head;

        if (h->cache_dtype == HL_DTYPE_F32)
            memcpy((float *)cache + at, x + head * h->d_head, (size_t)h->d_head * sizeof *x);
        else
            hl_dtype_from_f32((uint16_t *)cache + at, h->cache_dtype, x + head * h->d_head,
                              (size_t)h->d_head);
    }
}

static void head_rows(void *context, int64_t first, int64_t end, int member)
{
    const job             *rows  = context;
    const hl_device_heads *h     = rows->what;
    int64_t                n_kv  = h->no_values ? h->n_kv_heads : 2 * h->n_kv_heads;
    int64_t                width = (h->n_heads + n_kv) * h->d_head;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float *q = (float *)h->qkv + row * width;
        float *k = q + h->n_heads * h->d_head;
        float *v = k + h->n_kv_heads * h->d_head;

        if (!counts(rows->places, row))
            continue;
        finish_heads(rows->dense, h, &h->q_norm, q, h->n_heads, row);
        finish_heads(rows->dense, h, &h->k_norm, k, h->n_kv_heads, row);
        if (h->temper != 0.0f)
            temper_queries(h, q, row);
        cache_row(h, h->k_cache, k, row);
        if (h->no_values)
            continue;
        finish_values(rows->dense, h, v);
        cache_row(h, h->v_cache, v, row);
    }
}

static hl_status heads(hl_device *device, const hl_device_heads *h)
{
    return share_rows(device, head_rows, count_rows(&h->places),
                      (h->n_heads + 2 * h->n_kv_heads) * h->d_head, h, &h->places);
}

static void activate_rows(void *context, int64_t first, int64_t end, int member)
{
    const job                *rows = context;
    const hl_device_activate *a    = rows->what;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float       *out  = (float *)a->out + row * a->n;
        const float *gate = (const float *)a->gate + row * a->x_stride;

        if (!counts(rows->places, row))
            continue;
        if (out != gate)
            memcpy(out, gate, (size_t)a->n * sizeof *out);
        if (a->is_sparse)
            rows->dense->sparsify(out, a->n, a->deviations);
        rows->dense->activate(out, a->up != NULL ? (const float *)a->up + row * a->x_stride : NULL,
                              a->n, a->activation, a->numbers);
    }
}

static hl_status activate(hl_device *device, const hl_device_activate *a)
{
    return share_rows(device, activate_rows, a->n_rows, a->n, a, &a->places);
}

/* Scores of keys [0, n), a few at a time. */
static void score_keys(const hl_dense *dense, float *out, const hl_device_select *s, int64_t row,
                       int64_t n)
{
    enum { KEYS = 32, HEADS = 16 };
    int64_t     sequence = s->places.sequences[row / s->places.batch_rows];
    size_t      size     = hl_dtype_bits(s->cache_dtype) / 8;
    const char *keys     = (const char *)s->keys + (size_t)(sequence * s->n_ctx * s->d_head) * size;
    float       products[HEADS * KEYS];
    const void *some[KEYS];

    for (int64_t first = 0; first < n; first += KEYS) {
        int64_t count = n - first < KEYS ? n - first : KEYS;

        for (int64_t i = 0; i < count; i++) {
            some[i]        = keys + (size_t)((first + i) * s->d_head) * size;
            out[first + i] = 0.0f;
        }
        for (int64_t head = 0; head < s->n_heads; head += HEADS) {
            int64_t      heads  = s->n_heads - head < HEADS ? s->n_heads - head : HEADS;
            const float *weight = s->weight + row * s->n_heads + head;

            dense->dot(&(hl_dot){ .out        = products,
                                  .out_stride = KEYS,
                                  .x = (const float *)s->q + (row * s->n_heads + head) * s->d_head,
                                  .x_stride  = s->d_head,
                                  .n_rows    = heads,
                                  .w         = some,
                                  .dtype     = s->cache_dtype,
                                  .n_weights = count,
                                  .n         = s->d_head });
            for (int64_t h = 0; h < heads; h++) {
                for (int64_t i = 0; i < count; i++)
                    out[first + i] += weight[h] * fmaxf(products[h * KEYS + i], 0.0f);
            }
        }
    }
}

/* Replaces the n scores by 0 for the n_top largest and -inf for the others. */
static void keep_largest(float *scores, int64_t n, int64_t n_top)
{
    uint32_t least = 0; /* of the scores that stay */
    int64_t  equal = n_top;

    for (int bit = 31; bit >= 0 && n > n_top; bit--) {
        uint32_t try   = least | (uint32_t)1 << bit;
        int64_t  count = 0;

        for (int64_t i = 0; i < n; i++)
            count += hl_select_order(scores[i]) >= try;
        least = count >= n_top ?
        try : least
            ;
    }
    for (int64_t i = 0; i < n; i++)
        equal -= n > n_top && hl_select_order(scores[i]) > least;
    for (int64_t i = 0; i < n; i++) {
        uint32_t order = hl_select_order(scores[i]);
        bool     stays = n <= n_top || order > least || (order == least && equal-- > 0);

        scores[i] = stays ? 0.0f : -INFINITY;
    }
}

static void select_rows(void *context, int64_t first, int64_t end, int member)
{
    const job              *rows = context;
    const hl_device_select *s    = rows->what;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float  *out = s->out + row * s->n_keys;
        int64_t n   = position_of(rows->places, row) + 1;

        if (!counts(rows->places, row))
            continue;
        score_keys(rows->dense, out, s, row, n);
        keep_largest(out, n, s->n_top);
        for (int64_t i = n; i < s->n_keys; i++)
            out[i] = -INFINITY;
    }
}

static hl_status select_keys(hl_device *device, const hl_device_select *s)
{
    return share_rows(device, select_rows, count_rows(&s->places), s->n_keys * s->d_head, s,
                      &s->places);
}

static void gate_some_heads(void *context, int64_t first, int64_t end, int member)
{
    const job                  *rows = context;
    const hl_device_gate_heads *g    = rows->what;
    int64_t                     n    = g->n_heads * g->d_head;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        const float *gates = g->gates + row / rows->places->batch_rows * g->gate_stride;
        float       *x     = (float *)g->x + row * n;

        for (int64_t i = 0; i < n && counts(rows->places, row); i++)
            x[i] *= gates[i / g->d_head];
    }
}

static hl_status gate_heads(hl_device *device, const hl_device_gate_heads *g)
{
    return share_rows(device, gate_some_heads, count_rows(&g->places), g->n_heads * g->d_head, g,
                      &g->places);
}

static void copy_some(void *context, int64_t first, int64_t end, int member)
{
    const hl_device_copy_rows *copy = ((const job *)context)->what;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        int64_t from = copy->index != NULL ? copy->index[row] : row;
        float  *out  = (float *)copy->out + row * copy->out_stride;

        if (from < 0)
            continue;
        memcpy(out, (const float *)copy->x + from * copy->x_stride, (size_t)copy->n * sizeof *out);
        add_scaled(out, copy->add[0], from * copy->x_stride, copy->n, copy->add_scale);
        add_scaled(out, copy->add[1], from * copy->x_stride, copy->n, copy->add_scale);
    }
}

static hl_status copy_rows(hl_device *device, const hl_device_copy_rows *copy)
{
    return share_rows(device, copy_some, copy->n_rows, copy->n, copy, NULL);
}

/* ------------------------------------------------------- several streams */

static void mix_some(void *context, int64_t first, int64_t end, int member)
{
    const job               *rows = context;
    const hl_device_streams *s    = rows->what;
    int64_t                  m    = s->n_streams;
    float                    c[HL_MAX_STREAMS * HL_MAX_STREAMS];
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float     *out    = s->out != NULL ? (float *)s->out + row * s->n : NULL;
        hl_streams stream = { .x            = s->x + row * s->n,
                              .stride       = s->stride,
                              .kept         = s->kept + row * s->n,
                              .coefficients = c,
                              .n_streams    = m,
                              .n            = s->n };

        if (!counts(rows->places, row))
            continue;
        for (int64_t i = 0; i < (s->corrects ? m : m * m); i++) {
            c[i] = 0.0f;
            for (int64_t j = 0; j < m; j++)
                c[i] += s->weight[i * m + j] * tanhf(s->logits[row * m + j]);
        }
        if (s->corrects)
            rows->dense->correct(&stream);
        else
            rows->dense->predict(&stream);
        for (int64_t i = 0; i < s->n && out != NULL; i++)
            out[i] = stream.x[i] * (s->scale != NULL ? s->scale[i] : 1.0f);
    }
}

static hl_status mix_streams(hl_device *device, const hl_device_streams *s)
{
    return share_rows(device, mix_some, count_rows(&s->places), s->n * s->n_streams, s, &s->places);
}

static void match_some(void *context, int64_t first, int64_t end, int member)
{
    const job             *rows = context;
    const hl_device_match *m    = rows->what;
    (void)member;

    for (int64_t at = first * m->n; at < end * m->n; at += m->n) {
        if (!counts(rows->places, at / m->n))
            continue;
        if (!m->adds)
            memset(m->out + at, 0, (size_t)m->n * sizeof *m->out);
        rows->dense->match(m->out + at, m->x + at, m->like + at, m->n);
    }
}

static hl_status match(hl_device *device, const hl_device_match *m)
{
    return share_rows(device, match_some, count_rows(&m->places), m->n, m, &m->places);
}

/* ------------------------------------------------------ mixers with a state */

enum { CONV_CHANNELS = 64 }; /* channels of a convolution, or of HL_SCAN_CHANNEL, in one piece */

static bool begins(const hl_device_places *places, int64_t sequence)
{
    return places->start[sequence] == 0;
}

static int64_t longest(const hl_device_places *places)
{
    int64_t most = 0;

    for (int64_t b = 0; b < places->n_batch; b++)
        most = places->lengths[b] > most ? places->lengths[b] : most;
    return most;
}

/* Item i is a block of channels of a sequence. */
static void conv_some(void *context, int64_t first, int64_t end, int member)
{
    const job            *rows     = context;
    const hl_device_conv *c        = rows->what;
    int64_t               n_blocks = (c->n + CONV_CHANNELS - 1) / CONV_CHANNELS;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        int64_t      b    = i / n_blocks;
        int64_t      at   = i % n_blocks * CONV_CHANNELS;
        int64_t      row  = b * rows->places->batch_rows;
        int64_t      from = row * c->x_stride + at;
        const float *x    = c->x;
        hl_conv      conv = {
                 .out        = (float *)c->out + row * c->n + at,
                 .out_stride = c->n,
                 .x          = x + from,
                 .times      = c->times != NULL ? (const float *)c->times + from : NULL,
                 .after      = c->after != NULL ? (const float *)c->after + from : NULL,
                 .x_stride   = c->x_stride,
                 .weight     = c->weight + at,
                 .bias       = c->bias != NULL ? c->bias + at : NULL,
                 .state      = c->state + rows->places->sequences[b] * c->stride + at,
                 .stride     = c->n,
                 .width      = c->width,
                 .n_rows     = rows->places->lengths[b],
                 .n          = c->n - at < CONV_CHANNELS ? c->n - at : CONV_CHANNELS,
                 .begins     = begins(rows->places, b),
                 .is_silu    = c->is_silu,
        };

        if (conv.n_rows > 0)
            rows->dense->conv(&conv);
    }
}

static hl_status conv(hl_device *device, const hl_device_conv *c)
{
    int64_t n_blocks = (c->n + CONV_CHANNELS - 1) / CONV_CHANNELS;

    return share_rows(device, conv_some, c->places.n_batch * n_blocks,
                      longest(&c->places) * CONV_CHANNELS * c->width, c, &c->places);
}

static hl_scan scan_of(const hl_device_scan *s, const hl_device_places *places, int64_t b)
{
    int64_t row = b * places->batch_rows;

    return (hl_scan){
        .kind         = s->kind,
        .out          = (float *)s->out + row * s->n_heads * s->d_head,
        .out_stride   = s->n_heads * s->d_head,
        .x            = (const float *)s->x + row * s->x_stride,
        .x_stride     = s->x_stride,
        .k            = (const float *)s->k + row * s->k_stride,
        .q            = (const float *)s->q + row * s->k_stride,
        .k_stride     = s->k_stride,
        .dt           = (const float *)s->dt + row * s->dt_stride,
        .beta         = s->beta != NULL ? (const float *)s->beta + row * s->beta_stride : NULL,
        .dt_stride    = s->dt_stride,
        .beta_stride  = s->beta_stride,
        .dt_scale     = s->dt_scale,
        .dt_low       = s->dt_low,
        .dt_high      = s->dt_high,
        .a            = s->a,
        .dt_bias      = s->dt_bias,
        .skip         = s->skip,
        .state        = s->state + places->sequences[b] * s->stride,
        .state_stride = s->d_head,
        .d_state      = s->d_state,
        .d_head       = s->d_head,
        .n_rows       = places->lengths[b],
        .begins       = begins(places, b),
    };
}

/* Turns the whole into one head, or, with HL_SCAN_CHANNEL, into a block of channels. */
static void take_piece(hl_scan *scan, const hl_device_scan *s, int64_t piece)
{
    bool    each  = s->kind == HL_SCAN_CHANNEL;
    int64_t at    = each ? piece * CONV_CHANNELS : piece;
    int64_t first = each ? at : at * s->d_head;
    int64_t group = s->is_tiled ? piece % s->n_groups : piece / (s->n_heads / s->n_groups);

    scan->out += first;
    scan->x += first;
    scan->dt += at;
    scan->a += at;
    scan->state += each ? at : at * s->d_state * s->d_head;
    scan->dt_bias = s->dt_bias != NULL ? s->dt_bias + at : NULL;
    scan->skip    = s->skip != NULL ? s->skip + at : NULL;
    if (each) {
        scan->d_head = s->d_head - at < CONV_CHANNELS ? s->d_head - at : CONV_CHANNELS;
        return;
    }
    scan->k += group * s->d_state;
    scan->q += group * s->d_state;
    scan->beta = s->beta != NULL ? scan->beta + at : NULL;
}

static int64_t count_pieces(const hl_device_scan *s)
{
    return s->kind == HL_SCAN_CHANNEL ? (s->d_head + CONV_CHANNELS - 1) / CONV_CHANNELS
                                      : s->n_heads;
}

static void scan_some(void *context, int64_t first, int64_t end, int member)
{
    const job            *rows     = context;
    const hl_device_scan *s        = rows->what;
    int64_t               n_pieces = count_pieces(s);
    (void)member;

    for (int64_t i = first; i < end; i++) {
        hl_scan scan = scan_of(s, rows->places, i / n_pieces);

        take_piece(&scan, s, i % n_pieces);
        if (scan.n_rows > 0)
            rows->dense->scan(&scan);
    }
}

static hl_status scan(hl_device *device, const hl_device_scan *s)
{
    int64_t n_pieces = count_pieces(s);

    return share_rows(device, scan_some, s->places.n_batch * n_pieces,
                      longest(&s->places) * s->d_state * s->d_head * s->n_heads / n_pieces, s,
                      &s->places);
}

static void norm_groups(const hl_dense *dense, const hl_device_gate *g, float *out, const float *x)
{
    for (int64_t at = 0; at < g->n && g->has_norm; at += g->d_group) {
        hl_norm norm = { .kind   = HL_NORM_RMS,
                         .eps    = g->eps,
                         .weight = g->weight != NULL ? g->weight + (g->is_shared ? 0 : at) : NULL };

        dense->norm(out + at, x + at, g->d_group, &norm);
    }
}

static void gate_rows(void *context, int64_t first, int64_t end, int member)
{
    const job            *rows = context;
    const hl_device_gate *g    = rows->what;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        float       *x   = (float *)g->x + row * g->x_stride;
        float       *out = (float *)g->out + row * g->n;
        const float *z   = g->z != NULL ? (const float *)g->z + row * g->z_stride : NULL;
        float        gate[CONV_CHANNELS];

        if (!counts(rows->places, row))
            continue;
        if (g->norm_first)
            norm_groups(rows->dense, g, x, x);
        for (int64_t at = 0; at < g->n && z != NULL; at += CONV_CHANNELS) {
            int64_t n = g->n - at < CONV_CHANNELS ? g->n - at : CONV_CHANNELS;

            for (int64_t i = 0; i < n; i++)
                gate[i] = g->z_scale * z[at + i];
            rows->dense->activate(gate, x + at, n, g->activation,
                                  (const float[HL_ACTIVATION_NUMBERS]){ 0.0f });
            memcpy(out + at, gate, (size_t)n * sizeof *gate);
        }
        if (z == NULL && out != x)
            memmove(out, x, (size_t)g->n * sizeof *x);
        if (!g->norm_first)
            norm_groups(rows->dense, g, out, out);
        for (int64_t i = 0; i < g->n && g->scale != 1.0f; i++)
            out[i] *= g->scale;
    }
}

static hl_status gate(hl_device *device, const hl_device_gate *g)
{
    return share_rows(device, gate_rows, g->n_rows, g->n, g, &g->places);
}

/* ------------------------------------------------------------------ logits */

static void cap_some(void *context, int64_t first, int64_t end, int member)
{
    const hl_device_cap *cap = ((const job *)context)->what;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        cap->x[i] *= cap->scale;
        if (cap->softcap > 0.0f)
            cap->x[i] = cap->softcap * tanhf(cap->x[i] / cap->softcap);
    }
}

static hl_status cap_logits(hl_device *device, const hl_device_cap *cap)
{
    return share_rows(device, cap_some, cap->count, 1, cap, NULL);
}

/* 0 * x is 0 for finite x, otherwise NaN. */
static bool is_finite(const float *x, int64_t n)
{
    float sum = 0.0f;

    for (int64_t i = 0; i < n; i++)
        sum += 0.0f * x[i];
    return sum == 0.0f;
}

static float second_gap(const float *logits, int64_t n, int64_t top)
{
    float second = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (i != top && logits[i] > second)
            second = logits[i];
    }
    return logits[top] - second;
}

/* Returns the divergence of a row from its reference row, or stores the row as the reference. */
static double compare_kept(const hl_device_kept *kept, int64_t row, const float *logits, double lse,
                           int64_t n)
{
    float *a     = kept->logits + row * n;
    float *p     = kept->p + row * n;
    double shift = lse - kept->lse[row];
    double kl    = 0.0;

    if (kept->puts) {
        memcpy(a, logits, (size_t)n * sizeof *logits);
        for (int64_t i = 0; i < n; i++)
            p[i] = (float)exp((double)logits[i] - lse);
        kept->lse[row] = lse;
        return 0.0;
    }
    for (int64_t i = 0; i < n; i++) {
        if (p[i] > 0.0f) /* an impossible token has logit -inf in both */
            kl += (double)p[i] * ((double)a[i] - (double)logits[i] + shift);
    }
    return kl;
}

static void read_rows(void *context, int64_t first, int64_t end, int member)
{
    const hl_device_logits *l = ((const job *)context)->what;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        const float *logits = l->logits + row * l->n;
        int64_t      target = l->losses != NULL ? l->targets[row] : -1;
        bool reads  = l->top != NULL || l->entropy != NULL || target >= 0 || l->kept.logits != NULL;
        int64_t top = reads ? hl_logits_top(logits, l->n) : -1;
        double  lse = NAN;

        if (l->top != NULL)
            l->top[row] = top;
        if (l->entropy != NULL) {
            l->entropy[row] = (float)hl_logits_read(logits, l->n).entropy;
            l->gap[row]     = second_gap(logits, l->n, top);
        }
        if (target >= 0 || l->kept.logits != NULL)
            lse = hl_logits_lse_around(top, logits, l->n);
        if (l->losses != NULL)
            l->losses[row] = target >= 0 ? lse - (double)logits[target] : NAN;
        if (l->kept.logits != NULL)
            l->divergence[row] = compare_kept(&l->kept, row, logits, lse, l->n);
        if (l->flag != NULL && !is_finite(logits, l->n))
            __atomic_store_n(l->flag, 1, __ATOMIC_RELAXED);
    }
}

static hl_status logits_of(hl_device *device, const hl_device_logits *logits)
{
    return share_rows(device, read_rows, logits->n_rows, logits->n, logits, NULL);
}

static hl_status find_bad(hl_device *device, const hl_device_finite *what)
{
    (void)device;
    for (int64_t row = 0; row < count_rows(&what->places) && *what->flag == 0; row++) {
        if (counts(&what->places, row) && !is_finite(what->x + row * what->n, what->n))
            *what->flag = 1;
    }
    return HL_OK;
}

/* --------------------------------------------------------------- attention */

/* Attention in pieces: each piece is some heads of one sequence. */
typedef struct pieces {
    const hl_device_attention *parts;
    int64_t                    n_heads; /* per piece: all heads of a KV head, or one */
    _Atomic(int)               failure; /* HL_OK, or how a thread failed */
} pieces;

static hl_rows rows_from(hl_rows rows, int64_t sequence, int64_t head)
{
    int64_t first = sequence * rows.batch_stride + head * rows.head_stride;

    rows.data = (uint8_t *)rows.data + first * (int64_t)(hl_dtype_bits(rows.dtype) / 8);
    return rows;
}

/* The problem of n_heads heads of a sequence, from `head` on: all or some of a KV head's. */
static hl_attention problem_piece(const hl_attention *whole, int64_t index, int64_t head,
                                  int64_t n_heads)
{
    hl_attention part  = *whole;
    int64_t      group = whole->n_heads / whole->n_kv_heads;

    part.n_batch    = 1;
    part.n_heads    = n_heads;
    part.n_kv_heads = n_heads / group > 1 ? n_heads / group : 1;
    part.q          = rows_from(whole->q, index, head);
    part.k          = rows_from(whole->k, index, head / group);
    part.v          = rows_from(whole->v, index, head / group);
    part.query_start += index;
    part.key_length += index;
    part.alibi_slopes = whole->alibi_slopes != NULL ? whole->alibi_slopes + head : NULL;
    part.key_bias     = whole->key_bias != NULL ? whole->key_bias + head * whole->n_keys : NULL;
    part.row_bias =
        whole->row_bias != NULL ? whole->row_bias + index * whole->n_queries * whole->n_keys : NULL;
    part.sinks = whole->sinks != NULL ? whole->sinks + head : NULL;
    part.gates = whole->gates != NULL ? whole->gates + head : NULL;
    part.segments =
        whole->segments != NULL ? whole->segments + index * whole->segment_stride : NULL;
    part.n_threads = 1;
    return part;
}

static hl_status attend_piece(const hl_device_attention *part, int64_t number, int64_t n_heads)
{
    const hl_attention *whole   = &part->problem;
    int64_t             index   = number * n_heads / whole->n_heads;
    int64_t             head    = number * n_heads % whole->n_heads;
    hl_attention        problem = problem_piece(whole, index, head, n_heads);
    int64_t             first   = (index * whole->n_heads + head) * whole->n_queries;
    hl_attention_result result  = hl_attention_result_from(&part->result, first, whole->n_segments);

    result.out = rows_from(part->result.out, index, head);
    return hl_attention_forward(&result, &problem);
}

static void attend_some(void *context, int64_t first, int64_t end, int member)
{
    pieces *all = context;
    (void)member;

    for (int64_t number = first; number < end; number++) {
        int64_t   part   = 0;
        int64_t   within = number;
        hl_status status;

        for (;; part++) {
            const hl_attention *problem = &all->parts[part].problem;
            int64_t             n       = problem->n_batch * problem->n_heads / all->n_heads;
            if (within < n)
                break;
            within -= n;
        }
        status = attend_piece(&all->parts[part], within, all->n_heads);
        if (status != HL_OK)
            atomic_store(&all->failure, (int)status);
    }
}

/* An upper bound of queries times keys times the width of all heads. */
static int64_t count_products(const hl_device_attention *part)
{
    const hl_attention *p     = &part->problem;
    int64_t             count = 0;

    for (int64_t b = 0; b < p->n_batch; b++)
        count += (p->key_length[b] - p->query_start[b]) * p->key_length[b];
    return count * p->n_heads * p->d_head;
}

/* For few rows: one thread computes each piece.  Heads that share keys stay together if there are
 * at least as many KV heads as threads, and always if sequences are apart, because their results
 * must not depend on the number of sequences. */
static hl_status attend_together(const hl_device *device, const hl_device_attention *parts,
                                 int64_t n_parts)
{
    const hl_attention *one = &parts->problem;
    int64_t             n   = 0;
    pieces              all = { .parts = parts };

    for (int64_t i = 0; i < n_parts; i++)
        n += parts[i].problem.n_batch;
    bool by_group = parts->is_apart || n * one->n_kv_heads >= device->pool->n_threads;
    all.n_heads   = by_group ? one->n_heads / one->n_kv_heads : 1;
    hl_parallel(device->pool->n_threads, n * one->n_heads / all.n_heads, 1, attend_some, &all);
    if (atomic_load(&all.failure) != HL_OK)
        return hl_fail((hl_status)atomic_load(&all.failure), "attention failed on a thread");
    return HL_OK;
}

static hl_status attention(hl_device *device, const hl_device_attention *parts, int64_t n_parts)
{
    int64_t n_products = 0;

    for (int64_t i = 0; i < n_parts; i++)
        n_products += count_products(&parts[i]);
    if (parts->problem.n_queries <= HL_LINEAR_FEW_ROWS && n_products >= TEAM_PRODUCTS)
        return attend_together(device, parts, n_parts);
    for (int64_t i = 0; i < n_parts; i++) {
        hl_attention        problem = parts[i].problem;
        hl_attention_result result  = parts[i].result;

        problem.n_threads = team(device, n_products);
        HL_NEED(hl_attention_forward(&result, &problem));
    }
    return HL_OK;
}

static void pattern_some(void *context, int64_t first, int64_t end, int member)
{
    job                      *rows = context;
    const hl_device_patterns *what = rows->what;

    for (int64_t i = first; i < end; i++) {
        const int64_t *item   = what->items + 3 * i;
        double        *scores = what->scores + member * what->problem->n_keys;

        if (item[2] < 0)
            continue;
        hl_status status =
            hl_attention_pattern(what->out + i * what->out_stride, scores,
                                 what->statistics != NULL ? &what->statistics[i] : NULL,
                                 what->problem, item[0], item[1], item[2]);
        if (status != HL_OK)
            atomic_store(&rows->failure, (int)status);
    }
}

static hl_status patterns(hl_device *device, const hl_device_patterns *what)
{
    return share_rows(device, pattern_some, what->n_items,
                      what->problem->n_keys * what->problem->d_head, what, NULL);
}

/* ------------------------------------------------------------------- table */

const hl_device_ops hl_device_cpu = {
    .interface     = HL_DEVICE_INTERFACE,
    .name          = "cpu",
    .is_near       = true,
    .error         = hl_error_message,
    .open          = open_device,
    .close         = close_device,
    .alloc         = alloc_block,
    .free          = free_block,
    .alloc_host    = alloc_block,
    .free_host     = free_block,
    .copy_in       = copy_in,
    .zero          = zero,
    .copy_out      = copy_out,
    .arrived       = arrived,
    .wait          = wait_for_all,
    .linear        = linear,
    .experts_bytes = experts_bytes,
    .experts       = experts,
    .add_gated     = add_gated,
    .embed         = embed,
    .norm          = norm,
    .angles        = angles,
    .heads         = heads,
    .activate      = activate,
    .select        = select_keys,
    .gate_heads    = gate_heads,
    .copy_rows     = copy_rows,
    .streams       = mix_streams,
    .match         = match,
    .conv          = conv,
    .scan          = scan,
    .gate          = gate,
    .cap           = cap_logits,
    .logits        = logits_of,
    .finite        = find_bad,
    .attention     = attention,
    .patterns      = patterns,
};
