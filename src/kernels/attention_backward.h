/* attention_backward.h - the gradient of fused attention, entropy included.
 *
 * The formulas are those of attention_scalar.c.  One task owns a KV head and a
 * chunk of its keys, so dk and dv have one owner; it walks the rows in blocks:
 *
 *     for each block of rows                      for each tile of keys
 *         pack q and dO                               P, dS from q, dO, lse  (2 products)
 *         dq = 0                                      dv += P dO,  dk += dS q
 *         ...                                         dq += dS' k            (3 products)
 *
 * P and dS are one tile by one block, recomputed from lse and never larger. There is one chunk per
 * KV head, unless there are fewer heads than threads: then the chunks' shares of dq are kept apart
 * and added up, in order, at the end. */
#ifndef HL_KERNELS_ATTENTION_BACKWARD_H
#define HL_KERNELS_ATTENTION_BACKWARD_H

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/attention_scores.h"

enum {
    BLOCK_ROWS   = 64,
    BLOCK_PANELS = BLOCK_ROWS / LANES,
};

/* The gradient of a score needs these values of its row, by lane:
 *     dS = p (gate * dO.v + constant + logarithm * log2 p). */
typedef struct lane_gradient {
    _Alignas(64) float lse[LANES]; /* in units of ln 2; +inf makes every weight 0 */
    float gate[LANES];
    float constant[LANES];
    float logarithm[LANES];
    float dgate[LANES]; /* sum of p dO.v over the keys so far */
} lane_gradient;

/* The working memory of one thread. */
typedef struct backward_space {
    panel         *panels;    /* (BLOCK_PANELS)                          */
    lane_gradient *lanes;     /* (BLOCK_PANELS)                          */
    float         *q;         /* (BLOCK_PANELS, d_head, LANES)           */
    float         *grad;      /* (BLOCK_PANELS, d_value, LANES)          */
    float         *q_rows;    /* (BLOCK_ROWS, padded d_head)             */
    float         *grad_rows; /* (BLOCK_ROWS, padded d_value), times the gate */
    float         *dq;        /* (BLOCK_ROWS, padded d_head)             */
    float         *scores;    /* (TILE_KEYS, LANES)                      */
    float         *products;  /* (TILE_KEYS, LANES): dO.v                */
    float         *slopes;    /* (TILE_KEYS, LANES): slopes of the soft-cap */
    float         *weights;   /* (TILE_KEYS, BLOCK_ROWS): P              */
    float         *ds;        /* (TILE_KEYS, BLOCK_ROWS): scale * dS     */
    float         *k;         /* (TILE_KEYS, padded d_head)              */
    float         *v;         /* (TILE_KEYS, padded d_value)             */
    float         *dk;        /* (keys of a chunk, padded d_head)        */
    float         *dv;        /* (keys of a chunk, padded d_value)       */
} backward_space;

typedef struct backward_job {
    const hl_attention          *problem;
    const hl_attention_upstream *upstream;
    const hl_attention_gradient *gradient;
    int64_t                      n_chunks;   /* per KV head */
    int64_t                      chunk_keys; /* keys per chunk */
    void                        *memory;
    backward_space              *threads; /* (n_threads) */
    double                      *dgates;  /* (n_batch, n_heads, n_chunks) */
    double                      *dsinks;  /* (n_batch, n_heads, n_chunks) */
    float *dq_parts;                      /* (n_chunks, n_batch, n_heads, n_queries, padded d_head),
                                            * only with several chunks */
} backward_job;

/* ------------------------------------------------------------ rows of a block */

/* D = dO.out of one row. */
static double row_delta(const backward_job *job, int64_t batch, int64_t head, int64_t query)
{
    const hl_attention_upstream *u     = job->upstream;
    int64_t                      width = job->problem->d_value;
    double                       delta = 0.0;
    float                        grad[HL_MAX_HEAD_DIM], out[HL_MAX_HEAD_DIM];

    load_row(grad, width, hl_rows_at(&u->grad_out, batch, head, query), u->grad_out.dtype, width);
    load_row(out, width, hl_rows_at(&u->out, batch, head, query), u->out.dtype, width);
    for (int64_t d = 0; d < width; d++)
        delta += (double)grad[d] * (double)out[d];
    return delta;
}

static void lane_open(lane_gradient *g, int lane, const backward_job *job, const kv_head *h,
                      const panel *w)
{
    const hl_attention          *p     = job->problem;
    const hl_attention_upstream *u     = job->upstream;
    int64_t                      index = row_index(h, w->row + lane);
    int64_t                      head  = w->head[lane];
    double                       g_lse = u->grad_lse != NULL ? (double)u->grad_lse[index] : 0.0;
    double g_entropy = u->grad_entropy != NULL ? (double)u->grad_entropy[index] : 0.0;
    double entropy   = u->grad_entropy != NULL ? (double)u->entropy[index] : 0.0;
    double delta = u->grad_out.data != NULL ? row_delta(job, h->batch, head, w->query[lane]) : 0.0;
    bool   blind = u->lse[index] == -INFINITY;

    g->lse[lane]       = blind ? INFINITY : u->lse[index] * LOG2E;
    g->gate[lane]      = p->gates != NULL ? p->gates[head] : 1.0f;
    g->constant[lane]  = (float)(g_lse - delta - g_entropy * entropy);
    g->logarithm[lane] = (float)(-g_entropy * 0.69314718055994530942);
}

static void lanes_open(lane_gradient *g, const backward_job *job, const kv_head *h, const panel *w)
{
    memset(g, 0, sizeof *g);
    for (int lane = 0; lane < LANES; lane++) {
        if (lane < w->n_rows)
            lane_open(g, lane, job, h, w);
        else
            g->lse[lane] = INFINITY;
    }
}

/* Packs q and dO of one panel: as columns for the first two products, as rows for the others.  Only
 * the rows are multiplied by the gate, because dv needs it. */
static void pack_panel(const backward_job *job, const backward_space *space, const kv_head *h,
                       int64_t index)
{
    const hl_attention *p         = job->problem;
    const hl_rows      *grad      = &job->upstream->grad_out;
    const panel        *w         = &space->panels[index];
    int64_t             q_stride  = padded(p->d_head);
    int64_t             v_stride  = padded(p->d_value);
    float              *q_rows    = space->q_rows + index * LANES * q_stride;
    float              *grad_rows = space->grad_rows + index * LANES * v_stride;

    panel_load_rows(q_rows, w, h, &p->q, p->d_head);
    transpose_rows(space->q + index * p->d_head * LANES, q_rows, p->d_head, query_factor(p));
    if (grad->data == NULL)
        return;
    panel_load_rows(grad_rows, w, h, grad, p->d_value);
    transpose_rows(space->grad + index * p->d_value * LANES, grad_rows, p->d_value, 1.0f);
    for (int lane = 0; lane < LANES && p->gates != NULL; lane++)
        for (int64_t d = 0; d < v_stride; d++)
            grad_rows[lane * v_stride + d] *= p->gates[w->head[lane]];
}

/* ------------------------------------------------------- one panel, one tile */

/* Soft-caps the scores, before the bias, and stores the slope of the cap for their gradient. */
static void cap_with_slopes(float *s, float *slopes, int64_t n, const hl_attention *p)
{
    vf cap = vf_set((float)(p->softcap * 1.44269504088896340736));

    for (int64_t i = 0; i < n * LANES; i += VL) {
        vf bent = vf_tanh(vf_load(s + i));
        vf_store(s + i, bent * cap);
        vf_store(slopes + i, vf_set(1.0f) - bent * bent);
    }
}

/* Computes P and scale * dS of n keys, as columns of (n, BLOCK_ROWS). */
static void panel_gradients(lane_gradient *g, float *weights, float *ds, const float *s,
                            const float *products, int64_t n, double scale)
{
    vf factor = vf_set((float)scale);

    for (int j = 0; j < TILE_VECTORS; j++) {
        vf lse       = vf_load(g->lse + j * VL);
        vf gate      = vf_load(g->gate + j * VL);
        vf constant  = vf_load(g->constant + j * VL);
        vf logarithm = vf_load(g->logarithm + j * VL);
        vf dgate     = { 0 };

        for (int64_t i = 0; i < n; i++) {
            vf x   = vf_max(vf_set(EXP2_FLOOR), vf_load(s + i * LANES + j * VL) - lse);
            vf p   = vf_exp2_clamped(x);
            vf dot = vf_load(products + i * LANES + j * VL);
            vf sum = vf_fma(logarithm, x, vf_fma(gate, dot, constant));
            dgate  = vf_fma(p, dot, dgate);
            vf_store(weights + i * BLOCK_ROWS + j * VL, p);
            vf_store(ds + i * BLOCK_ROWS + j * VL, p * sum * factor);
        }
        vf_store(g->dgate + j * VL, vf_load(g->dgate + j * VL) + dgate);
    }
}

static void multiply_slopes(float *ds, const float *slopes, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int j = 0; j < LANES; j += VL)
            vf_store(ds + i * BLOCK_ROWS + j,
                     vf_load(ds + i * BLOCK_ROWS + j) * vf_load(slopes + i * LANES + j));
}

static void zero_columns(float *block, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        memset(block + i * BLOCK_ROWS, 0, LANES * sizeof *block);
}

/* Writes the panel's columns of P and dS for the tile's keys [key, key + n). */
static void panel_backward(const backward_job *job, const backward_space *space, const kv_head *h,
                           int64_t index, int64_t key, int64_t n)
{
    const hl_attention *p        = job->problem;
    const panel        *w        = &space->panels[index];
    float              *weights  = space->weights + index * LANES;
    float              *ds       = space->ds + index * LANES;
    int64_t             k_stride = padded(p->d_head);
    int64_t             v_stride = padded(p->d_value);
    hl_key_range        part     = panel_part(w, (hl_key_range){ key, key + n });
    int64_t             begin    = part.begin - key;
    int64_t             end      = part.end - key;
    int64_t             seen     = end - begin;

    zero_columns(weights, 0, begin);
    zero_columns(weights, end, n);
    zero_columns(ds, 0, begin);
    zero_columns(ds, end, n);
    if (seen == 0)
        return;

    panel_products(space->scores, w, space->q + index * p->d_head * LANES,
                   space->k + begin * k_stride, k_stride, seen, p->d_head);
    if (p->softcap != 0.0)
        cap_with_slopes(space->scores, space->slopes, seen, p);
    panel_bias_and_mask(space->scores, w, h, key + begin, seen);
    if (job->upstream->grad_out.data != NULL)
        panel_products(space->products, w, space->grad + index * p->d_value * LANES,
                       space->v + begin * v_stride, v_stride, seen, p->d_value);
    panel_gradients(&space->lanes[index], weights + begin * BLOCK_ROWS, ds + begin * BLOCK_ROWS,
                    space->scores, space->products, seen, p->scale);
    if (p->softcap != 0.0)
        multiply_slopes(ds + begin * BLOCK_ROWS, space->slopes, seen);
}

/* -------------------------------------------------------- one block, one tile */

/* A product that adds to c.  c and the block have rows of `width`; b is (k, width). */
static matrix_product add_to(float *c, const float *block, const float *b, int64_t k, int64_t width)
{
    return (matrix_product){ .c        = c,
                             .c_stride = padded(width),
                             .a        = block,
                             .a_stride = BLOCK_ROWS,
                             .b        = b,
                             .b_stride = padded(width),
                             .k        = k,
                             .add      = true };
}

static void load_tile(float *out, const hl_rows *rows, const kv_head *h, int64_t key, int64_t n,
                      int64_t width)
{
    int64_t stride = padded(width);

    for (int64_t i = 0; i < n; i++)
        load_row(out + i * stride, stride, hl_rows_at(rows, h->batch, h->head, key + i),
                 rows->dtype, width);
}

static void tile_backward(const backward_job *job, const backward_space *space, const kv_head *h,
                          int64_t n_panels, int64_t first_key, hl_key_range keys)
{
    const hl_attention *p      = job->problem;
    int64_t             n      = keys.end - keys.begin;
    int64_t             at     = keys.begin - first_key;
    int64_t             n_rows = n_panels * LANES;

    load_tile(space->k, &p->k, h, keys.begin, n, p->d_head);
    load_tile(space->v, &p->v, h, keys.begin, n, p->d_value);
    for (int64_t i = 0; i < n_panels; i++)
        panel_backward(job, space, h, i, keys.begin, n);
    if (job->gradient->dv.data != NULL && job->upstream->grad_out.data != NULL) {
        matrix_product dv = add_to(space->dv + at * padded(p->d_value), space->weights,
                                   space->grad_rows, n_rows, p->d_value);
        multiply(&dv, n, p->d_value);
    }
    if (job->gradient->dk.data != NULL) {
        matrix_product dk =
            add_to(space->dk + at * padded(p->d_head), space->ds, space->q_rows, n_rows, p->d_head);
        multiply(&dk, n, p->d_head);
    }
    if (job->gradient->dq.data != NULL) {
        matrix_product dq = add_to(space->dq, space->ds, space->k, n, p->d_head);
        multiply_transposed(&dq, n_rows, p->d_head);
    }
}

/* ---------------------------------------------------------- one block of rows */

/* The gradient of a learned sink's score.  A sink has no value vector. */
static double sink_gradient(const lane_gradient *g, int lane, float sink)
{
    double x = (double)sink * 1.44269504088896340736 - (double)g->lse[lane];

    return exp2(x) * ((double)g->constant[lane] + (double)g->logarithm[lane] * x);
}

static void rows_finish(const backward_job *job, const backward_space *space, const kv_head *h,
                        int64_t chunk, int64_t n_panels)
{
    const hl_attention *p      = job->problem;
    int64_t             stride = padded(p->d_head);
    int64_t             n_rows = p->n_batch * p->n_heads * p->n_queries;

    for (int64_t row = 0; row < n_panels * LANES; row++) {
        const panel         *w    = &space->panels[row / LANES];
        const lane_gradient *g    = &space->lanes[row / LANES];
        int                  lane = (int)(row % LANES);
        const float         *dq   = space->dq + row * stride;
        if (lane >= w->n_rows)
            continue;
        int64_t head = w->head[lane];
        int64_t at   = (h->batch * p->n_heads + head) * job->n_chunks + chunk;
        job->dgates[at] += (double)g->dgate[lane];
        if (p->sinks != NULL && chunk == 0 && g->lse[lane] != INFINITY)
            job->dsinks[at] += sink_gradient(g, lane, p->sinks[head]);
        if (job->dq_parts != NULL)
            memcpy(job->dq_parts + (chunk * n_rows + row_index(h, w->row + lane)) * stride, dq,
                   (size_t)stride * sizeof *dq);
        else if (job->gradient->dq.data != NULL)
            store_row(&job->gradient->dq, h->batch, head, w->query[lane], dq, p->d_head);
    }
}

static void rows_backward(const backward_job *job, const backward_space *space, const kv_head *h,
                          int64_t chunk, int64_t row, hl_key_range chunk_keys)
{
    const hl_attention *p        = job->problem;
    int64_t             left     = (kv_head_rows(h) - row + LANES - 1) / LANES;
    int64_t             n_panels = left < BLOCK_PANELS ? left : BLOCK_PANELS;

    for (int64_t i = 0; i < n_panels; i++) {
        panel_open(&space->panels[i], h, row + i * LANES);
        lanes_open(&space->lanes[i], job, h, &space->panels[i]);
        pack_panel(job, space, h, i);
    }
    memset(space->dq, 0, (size_t)(BLOCK_ROWS * padded(p->d_head)) * sizeof *space->dq);
    hl_visible_keys keys  = panels_keys(space->panels, n_panels);
    int64_t         last  = keys.end < chunk_keys.end ? keys.end : chunk_keys.end;
    int64_t         begin = hl_visible_from(keys, chunk_keys.begin);
    while (begin < last) {
        int64_t next = begin / TILE_KEYS * TILE_KEYS + TILE_KEYS;
        int64_t end  = next < last ? next : last;
        tile_backward(job, space, h, n_panels, chunk_keys.begin, (hl_key_range){ begin, end });
        begin = hl_visible_from(keys, next);
    }
    rows_finish(job, space, h, chunk, n_panels);
}

/* --------------------------------------------------------------------- a task */

static void store_keys(const hl_rows *rows, const kv_head *h, const float *values,
                       hl_key_range keys, int64_t width)
{
    for (int64_t key = keys.begin; key < keys.end && rows->data != NULL; key++)
        store_row(rows, h->batch, h->head, key, values + (key - keys.begin) * padded(width), width);
}

static void chunk_backward(const backward_job *job, const backward_space *space, int64_t index)
{
    const hl_attention *p     = job->problem;
    int64_t             chunk = index % job->n_chunks;
    kv_head             h     = kv_head_at(p, index / job->n_chunks);
    int64_t             begin = chunk * job->chunk_keys;
    int64_t             end   = begin + job->chunk_keys;
    hl_key_range        keys  = { begin < p->n_keys ? begin : p->n_keys,
                          end < p->n_keys ? end : p->n_keys };
    size_t n = (size_t)(keys.end - keys.begin);

    memset(space->dk, 0, n * (size_t)padded(p->d_head) * sizeof *space->dk);
    memset(space->dv, 0, n * (size_t)padded(p->d_value) * sizeof *space->dv);
    for (int64_t row = 0; row < kv_head_rows(&h); row += BLOCK_ROWS)
        rows_backward(job, space, &h, chunk, row, keys);
    store_keys(&job->gradient->dk, &h, space->dk, keys, p->d_head);
    store_keys(&job->gradient->dv, &h, space->dv, keys, p->d_value);
}

/* ---------------------------------------------------------------------- a job */

static void backward_plan(backward_job *job)
{
    const hl_attention *p       = job->problem;
    int64_t             n_heads = p->n_batch * p->n_kv_heads;
    int64_t             n_tiles = (p->n_keys + TILE_KEYS - 1) / TILE_KEYS;

    job->n_chunks = 1;
    if (n_heads > 0 && n_heads < p->n_threads) /* twice as many chunks as needed, for balance */
        job->n_chunks = 2 * ((p->n_threads + n_heads - 1) / n_heads);
    if (job->n_chunks > n_tiles)
        job->n_chunks = n_tiles > 0 ? n_tiles : 1;
    job->chunk_keys = (n_tiles + job->n_chunks - 1) / job->n_chunks * TILE_KEYS;
}

/* Takes `count` floats of a thread's memory, in whole cache lines; with base NULL only counts. */
static float *take(uint8_t *base, size_t *used, int64_t count)
{
    size_t   n_bytes = (size_t)count * sizeof(float);
    uint8_t *block   = base != NULL ? base + *used : NULL;

    *used += (n_bytes + HL_ALIGNMENT - 1) / HL_ALIGNMENT * HL_ALIGNMENT;
    return (float *)(void *)block;
}

static size_t space_layout(backward_space *s, uint8_t *base, const backward_job *job)
{
    const hl_attention *p       = job->problem;
    int64_t             d_head  = padded(p->d_head);
    int64_t             d_value = padded(p->d_value);
    size_t              used    = 0;

    s->panels    = (panel *)(void *)take(base, &used, BLOCK_PANELS * (int64_t)sizeof(panel) / 4);
    s->lanes     = (lane_gradient *)(void *)take(base, &used,
                                                 BLOCK_PANELS * (int64_t)sizeof(lane_gradient) / 4);
    s->q         = take(base, &used, BLOCK_ROWS * p->d_head);
    s->grad      = take(base, &used, BLOCK_ROWS * p->d_value);
    s->q_rows    = take(base, &used, BLOCK_ROWS * d_head);
    s->grad_rows = take(base, &used, BLOCK_ROWS * d_value);
    s->dq        = take(base, &used, BLOCK_ROWS * d_head);
    s->scores    = take(base, &used, TILE_KEYS * LANES);
    s->products  = take(base, &used, TILE_KEYS * LANES);
    s->slopes    = take(base, &used, TILE_KEYS * LANES);
    s->weights   = take(base, &used, TILE_KEYS * BLOCK_ROWS);
    s->ds        = take(base, &used, TILE_KEYS * BLOCK_ROWS);
    s->k         = take(base, &used, TILE_KEYS * d_head);
    s->v         = take(base, &used, TILE_KEYS * d_value);
    s->dk        = take(base, &used, job->chunk_keys * d_head);
    s->dv        = take(base, &used, job->chunk_keys * d_value);
    return used;
}

static hl_status backward_allocate(backward_job *job)
{
    const hl_attention *p       = job->problem;
    size_t              n_heads = (size_t)(p->n_batch * p->n_heads * job->n_chunks);
    size_t              n_rows  = (size_t)(p->n_batch * p->n_heads * p->n_queries);
    backward_space      measure;
    size_t              n_bytes = space_layout(&measure, NULL, job);

    HL_NEED(hl_alloc_zeroed(&job->memory, (size_t)p->n_threads, n_bytes));
    HL_NEED(HL_ALLOC(&job->threads, (size_t)p->n_threads));
    for (int i = 0; i < p->n_threads; i++)
        space_layout(&job->threads[i], (uint8_t *)job->memory + (size_t)i * n_bytes, job);
    HL_NEED(HL_ALLOC_ZEROED(&job->dgates, n_heads));
    HL_NEED(HL_ALLOC_ZEROED(&job->dsinks, n_heads));
    if (job->n_chunks > 1 && job->gradient->dq.data != NULL)
        HL_NEED(
            HL_ALLOC(&job->dq_parts, (size_t)job->n_chunks * n_rows * (size_t)padded(p->d_head)));
    return HL_OK;
}

/* Adds up the chunks' shares of dq of one row, in order. */
static void reduce_dq(const backward_job *job, int64_t index)
{
    const hl_attention *p      = job->problem;
    int64_t             stride = padded(p->d_head);
    int64_t             n_rows = p->n_batch * p->n_heads * p->n_queries;
    float              *total  = job->dq_parts + index * stride;

    for (int64_t chunk = 1; chunk < job->n_chunks; chunk++)
        for (int64_t d = 0; d < stride; d += VL)
            vf_store(total + d, vf_load(total + d) + vf_load(total + chunk * n_rows * stride + d));
    store_row(&job->gradient->dq, index / p->n_queries / p->n_heads,
              index / p->n_queries % p->n_heads, index % p->n_queries, total, p->d_head);
}

/* Adds up partial sums (n_batch, n_heads, n_chunks) to out (n_heads). */
static void reduce_heads(float *out, const double *partial, const backward_job *job)
{
    const hl_attention *p = job->problem;

    for (int64_t head = 0; head < p->n_heads && out != NULL; head++) {
        double total = 0.0;
        for (int64_t batch = 0; batch < p->n_batch; batch++)
            for (int64_t chunk = 0; chunk < job->n_chunks; chunk++)
                total += partial[(batch * p->n_heads + head) * job->n_chunks + chunk];
        out[head] = (float)total;
    }
}

static void chunks_backward(void *context, int64_t first, int64_t end, int member)
{
    const backward_job *job = context;

    for (int64_t i = first; i < end; i++)
        chunk_backward(job, &job->threads[member], i);
}

static void reduce_some(void *context, int64_t first, int64_t end, int member)
{
    (void)member;
    for (int64_t i = first; i < end; i++)
        reduce_dq(context, i);
}

static void backward_run(backward_job *job)
{
    const hl_attention *p       = job->problem;
    int64_t             n_tasks = p->n_batch * p->n_kv_heads * job->n_chunks;
    int64_t             n_rows = job->dq_parts != NULL ? p->n_batch * p->n_heads * p->n_queries : 0;

    hl_parallel(p->n_threads, n_tasks, 1, chunks_backward, job);
    hl_parallel(p->n_threads, n_rows, 0, reduce_some, job);
    reduce_heads(job->gradient->dgates, job->dgates, job);
    reduce_heads(job->gradient->dsinks, job->dsinks, job);
}

static void backward_free(backward_job *job)
{
    hl_free(job->dq_parts);
    hl_free(job->dsinks);
    hl_free(job->dgates);
    hl_free(job->threads);
    hl_free(job->memory);
}

static hl_status attention_backward(const hl_attention_gradient *gradient,
                                    const hl_attention          *problem,
                                    const hl_attention_upstream *upstream)
{
    HL_SCOPED(backward_free)
    backward_job job = { .problem = problem, .upstream = upstream, .gradient = gradient };

    backward_plan(&job);
    HL_NEED(backward_allocate(&job));
    backward_run(&job);
    return HL_OK;
}

#endif
