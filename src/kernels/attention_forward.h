/* attention_forward.h - fused attention with entropy, a block of rows at a time.
 *
 * A block is a few panels of one KV head.  Tiles of keys are loaded once for
 * all of them:
 *
 *     for each tile of keys but key 0
 *         for each panel: scores, softmax step, output = carry * output + P' V
 *     note the entropy so far (without the sink), then the same for key 0 alone
 *     learned sink, statistics, normalization, store
 *
 * Tiles start at fixed keys (1, 97, 193, ...), so a row's bytes depend on its own keys alone: not
 * on its neighbors, its batch, or the number of threads. (The exception: a head with very few rows
 * sums its products in another order.)
 *
 * When all rows of a KV head fit in one panel and there are many keys (decoding
 * a long context), keys are split into chunks of a fixed size that threads work
 * on independently; their panels are merged in order afterwards. */
#ifndef HL_KERNELS_ATTENTION_FORWARD_H
#define HL_KERNELS_ATTENTION_FORWARD_H

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/attention_scores.h"

enum {
    MAX_PANELS = 8,              /* per block */
    CHUNK_KEYS = 10 * TILE_KEYS, /* per chunk, when keys are split */
    SMALL_JOB  = 48 * 1024,      /* bytes of scratch that fit on the stack */
};

/* The working memory of one thread. */
typedef struct workspace {
    panel *panels; /* (n_panels)                        */
    float *rows;   /* (LANES, padded d_head): queries   */
    float *q;      /* (n_panels, d_head, LANES), or (LANES, padded d_head) if narrow */
    float *out;    /* (n_panels, LANES, padded d_value) */
    float *scores; /* (TILE_KEYS, LANES)                */
    float *k;      /* (TILE_KEYS, padded d_head), if not used in place */
    float *v;      /* (TILE_KEYS, padded d_value), if not used in place */
} workspace;

/* Processes block, chunk or KV head number `index` in a thread's workspace. */
typedef struct forward_job forward_job;
typedef void forward_step(const forward_job *job, const workspace *space, int64_t index);

struct forward_job {
    const hl_attention        *problem;
    const hl_attention_result *result;
    void (*absorb)(panel *w, float *s, int64_t key, int64_t n);
    bool          want_neighbors;
    bool          want_nosink;
    int64_t       n_panels;  /* per block */
    int64_t       n_blocks;  /* per KV head */
    int64_t       n_chunks;  /* per KV head; 1 if keys are not split */
    workspace    *threads;   /* (n_threads)                   */
    void         *memory;    /* one allocation for all threads */
    uint8_t      *small;     /* (SMALL_JOB) the caller's stack memory, used instead by small jobs */
    panel        *parts;     /* (KV heads, n_chunks), only if keys are split */
    float        *parts_out; /* (KV heads, n_chunks, LANES, padded d_value), only if split */
    forward_step *step;      /* the current step */
};

/* ------------------------------------------------------------------- a tile */

/* Keys and values of one tile, as floats. */
typedef struct kv_tile {
    hl_key_range keys;
    const float *k;
    const float *v;
    int64_t      k_stride;
    int64_t      v_stride;
} kv_tile;

static void tile_load(kv_tile *t, const workspace *space, const kv_head *h, hl_key_range keys)
{
    const hl_attention *p = h->problem;
    int64_t             n = keys.end - keys.begin;

    t->keys = keys;
    t->k    = load_rows(&t->k_stride, space->k, &p->k, h->batch, h->head, keys.begin, n, p->d_head,
                     kv_head_is_narrow(h) ? VL : 1);
    t->v =
        load_rows(&t->v_stride, space->v, &p->v, h->batch, h->head, keys.begin, n, p->d_value, VL);
}

/* out (LANES, d_value) = carry * out + weights' v. */
static void panel_accumulate(const panel *w, float *out, int64_t out_stride, const float *weights,
                             const float *v, int64_t v_stride, int64_t n, int64_t width)
{
    multiply_transposed(&(matrix_product){ .c        = out,
                                           .c_stride = out_stride,
                                           .a        = weights,
                                           .a_stride = LANES,
                                           .b        = v,
                                           .b_stride = v_stride,
                                           .k        = n,
                                           .scale    = w->carry },
                        w->n_rows, width);
}

/* Adds to one panel the keys of one tile that it sees. */
static void panel_step(const forward_job *job, const kv_head *h, panel *w, const float *q,
                       float *out, float *scores, const kv_tile *t)
{
    const hl_attention *p     = job->problem;
    hl_key_range        part  = panel_part(w, t->keys);
    int64_t             begin = part.begin;
    int64_t             n     = part.end - part.begin;
    int64_t             skip  = part.begin - t->keys.begin;

    if (n == 0)
        return;
    panel_scores(scores, w, h, q, t->k + skip * t->k_stride, t->k_stride, begin, n);
    if (job->want_neighbors)
        panel_note_neighbors(w, scores, begin, n);
    if (begin == 0)
        memcpy(w->first, scores, sizeof w->first);
    job->absorb(w, scores, begin, n);
    if (job->result->segment_mass != NULL)
        panel_add_segments(w, scores, p->segments + h->batch * p->segment_stride + begin, n,
                           p->n_segments);
    if (job->result->out.data != NULL)
        panel_accumulate(w, out, padded(p->d_value), scores, t->v + skip * t->v_stride, t->v_stride,
                         n, p->d_value);
}

/* ------------------------------------------------------------------ a block */

/* Loads the queries times their factor, as columns; as rows if the head is narrow. */
static void panel_load_queries(const workspace *space, const kv_head *h, int64_t index)
{
    const hl_attention *p      = h->problem;
    float              *q      = space->q + index * LANES * padded(p->d_head);
    float               factor = query_factor(p);

    panel_load_rows(space->rows, &space->panels[index], h, &p->q, p->d_head);
    if (!kv_head_is_narrow(h)) {
        transpose_rows(q, space->rows, p->d_head, factor);
        return;
    }
    for (int64_t i = 0; i < LANES * padded(p->d_head); i += VL)
        vf_store(q + i, vf_load(space->rows + i) * vf_set(factor));
}

static void block_open(const forward_job *job, const workspace *space, const kv_head *h,
                       int64_t row, int64_t n_panels)
{
    const hl_attention *p = job->problem;

    for (int64_t i = 0; i < n_panels; i++) {
        panel_open(&space->panels[i], h, row + i * LANES);
        panel_load_queries(space, h, i);
    }
    memset(space->out, 0, (size_t)(n_panels * LANES * padded(p->d_value)) * sizeof *space->out);
}

static void block_step(const forward_job *job, const workspace *space, const kv_head *h,
                       int64_t n_panels, hl_key_range keys)
{
    const hl_attention *p = job->problem;
    kv_tile             tile;

    tile_load(&tile, space, h, keys);
    for (int64_t i = 0; i < n_panels; i++)
        panel_step(job, h, &space->panels[i], space->q + i * LANES * padded(p->d_head),
                   space->out + i * LANES * padded(p->d_value), space->scores, &tile);
}

/* Absorbs the tiles of `within` that some row sees.  Tiles lie on the grid 1, 1 + TILE_KEYS, ...;
 * key 0 is left for the end. */
static void block_run(const forward_job *job, const workspace *space, const kv_head *h,
                      int64_t n_panels, hl_key_range within)
{
    hl_visible_keys keys  = panels_keys(space->panels, n_panels);
    int64_t         last  = keys.end < within.end ? keys.end : within.end;
    int64_t         begin = hl_visible_from(keys, within.begin);

    while (begin < last) {
        int64_t next = (begin - 1) / TILE_KEYS * TILE_KEYS + TILE_KEYS + 1;
        int64_t end  = next < last ? next : last;
        block_step(job, space, h, n_panels, (hl_key_range){ begin, end });
        begin = hl_visible_from(keys, next);
    }
}

/* ------------------------------------------------------------------ results */

/* Copies a statistic to its array, where the rows of a panel lie one after the other. */
static void put(float *array, int64_t index, const float *lanes, int n)
{
    if (array != NULL)
        memcpy(array + index, lanes, (size_t)n * sizeof *array);
}

static void write_statistics(const forward_job *job, const kv_head *h, const panel *w,
                             const panel_result *r)
{
    const hl_attention_result *to         = job->result;
    int64_t                    index      = row_index(h, w->row);
    int64_t                    n_segments = job->problem->n_segments;

#define PUT(name) put(to->name, index, r->name, w->n_rows);
    HL_EACH_ROW_STATISTIC(PUT)
#undef PUT
    for (int lane = 0; lane < w->n_rows && to->argmax != NULL; lane++)
        to->argmax[index + lane] = w->argmax[lane];
    for (int lane = 0; lane < w->n_rows && to->segment_mass != NULL; lane++)
        for (int64_t g = 0; g < n_segments; g++)
            to->segment_mass[(index + lane) * n_segments + g] = w->mass[g][lane] * r->factor[lane];
    for (int lane = 0; lane < w->n_rows && r->some_nan; lane++)
        if (isnan(r->lse[lane]))
            hl_attention_row_not_finite(to, job->problem, index + lane,
                                        (double)r->entropy_nosink[lane]);
}

static void write_output(const forward_job *job, const kv_head *h, const panel *w,
                         const panel_result *r, float *out)
{
    const hl_attention *p      = job->problem;
    int64_t             stride = padded(p->d_value);

    for (int lane = 0; lane < w->n_rows; lane++) {
        int64_t head   = w->head[lane];
        float   factor = r->factor[lane] * (p->gates != NULL ? p->gates[head] : 1.0f);
        float  *row    = out + lane * stride;
        vf      none   = { 0 };
        for (int64_t d = 0; d < stride; d += VL) {
            vf value = vf_load(row + d) * vf_set(factor);
            none     = vf_fma(value, vf_set(0.0f), none);
            vf_store(row + d, value);
        }
        store_row(&job->result->out, h->batch, head, w->query[lane], row, p->d_value);
        /* A non-finite value got into the product, possibly of a hidden key with weight 0. */
        if (vi_any(none != none) && !isnan(r->lse[lane]))
            hl_attention_row_forward(job->result, p, row_index(h, w->row + lane));
    }
}

static const float *lane_sinks(float *sinks, const kv_head *h, const panel *w)
{
    if (h->problem->sinks == NULL)
        return NULL;
    for (int lane = 0; lane < LANES; lane++)
        sinks[lane] = h->problem->sinks[w->head[lane]] * LOG2E;
    return sinks;
}

/* Absorbs key 0 and the learned sink, then stores the results. */
static void block_finish(const forward_job *job, const workspace *space, const kv_head *h,
                         int64_t n_panels)
{
    int64_t out_size = LANES * padded(job->problem->d_value);

    for (int64_t i = 0; i < n_panels && job->want_nosink; i++)
        panel_note_nosink(&space->panels[i]);
    if (hl_visible_has(panels_keys(space->panels, n_panels), 0))
        block_step(job, space, h, n_panels, (hl_key_range){ 0, 1 });
    for (int64_t i = 0; i < n_panels; i++) {
        panel       *w = &space->panels[i];
        float        sinks[LANES];
        panel_result r;
        panel_finish(&r, w, lane_sinks(sinks, h, w));
        write_statistics(job, h, w, &r);
        if (job->result->out.data != NULL)
            write_output(job, h, w, &r, space->out + i * out_size);
    }
}

static void block_forward(const forward_job *job, const workspace *space, int64_t index)
{
    /* Later rows see more keys.  Starting with them balances the threads better. */
    kv_head h        = kv_head_at(job->problem, index / job->n_blocks);
    int64_t block    = job->n_blocks - 1 - index % job->n_blocks;
    int64_t row      = block * job->n_panels * LANES;
    int64_t left     = (kv_head_rows(&h) - row + LANES - 1) / LANES;
    int64_t n_panels = left < job->n_panels ? left : job->n_panels;

    block_open(job, space, &h, row, n_panels);
    block_run(job, space, &h, n_panels, (hl_key_range){ 1, job->problem->n_keys });
    block_finish(job, space, &h, n_panels);
}

/* -------------------------------------------------------------- split keys */

static void chunk_forward(const forward_job *job, const workspace *space, int64_t index)
{
    kv_head h     = kv_head_at(job->problem, index / job->n_chunks);
    int64_t first = index % job->n_chunks * CHUNK_KEYS + 1;
    size_t  size  = (size_t)(LANES * padded(job->problem->d_value));

    block_open(job, space, &h, 0, 1);
    block_run(job, space, &h, 1, (hl_key_range){ first, first + CHUNK_KEYS });
    job->parts[index] = *space->panels;
    memcpy(job->parts_out + (size_t)index * size, space->out, size * sizeof(float));
}

/* out = into's carry * out + from's carry * part. */
static void merge_output(float *out, const panel *into, const float *part, const panel *from,
                         int64_t stride)
{
    for (int lane = 0; lane < LANES; lane++) {
        vf a = vf_set(into->carry[lane]);
        vf b = vf_set(from->carry[lane]);
        for (int64_t d = lane * stride; d < (lane + 1) * stride; d += VL)
            vf_store(out + d, vf_fma(a, vf_load(out + d), b * vf_load(part + d)));
    }
}

static void chunks_finish(const forward_job *job, const workspace *space, int64_t index)
{
    kv_head h      = kv_head_at(job->problem, index);
    int64_t stride = padded(job->problem->d_value);

    block_open(job, space, &h, 0, 1);
    for (int64_t chunk = 0; chunk < job->n_chunks; chunk++) {
        int64_t part = index * job->n_chunks + chunk;
        panel_merge(space->panels, &job->parts[part], job->problem->n_segments);
        merge_output(space->out, space->panels, job->parts_out + part * LANES * stride,
                     &job->parts[part], stride);
    }
    block_finish(job, space, &h, 1);
}

/* -------------------------------------------------------------------- a job */

static void job_plan(forward_job *job)
{
    const hl_attention        *p     = job->problem;
    const hl_attention_result *r     = job->result;
    int64_t                    rows  = p->n_heads / p->n_kv_heads * p->n_queries;
    int64_t                    width = p->d_head > p->d_value ? p->d_head : p->d_value;

    job->absorb = panel_absorb_sum;
    if (r->entropy != NULL || r->entropy_nosink != NULL)
        job->absorb = panel_absorb_shannon;
    if (r->renyi2 != NULL || r->varentropy != NULL || r->argmax != NULL)
        job->absorb = panel_absorb_all;
    job->want_neighbors = r->self != NULL || r->previous != NULL;
    job->want_nosink    = r->entropy_nosink != NULL;

    /* A block's queries and output share the second-level cache with a tile. */
    int64_t most  = MAX_PANELS * 64 / width;
    int64_t whole = (rows + LANES - 1) / LANES;
    most          = most < 1 ? 1 : most > MAX_PANELS ? MAX_PANELS : most;
    job->n_panels = whole < 1 ? 1 : whole < most ? whole : most;
    job->n_blocks = (rows + job->n_panels * LANES - 1) / (job->n_panels * LANES);
    job->n_chunks = 1;
    if (rows <= LANES && p->n_keys > 2 * CHUNK_KEYS)
        job->n_chunks = (p->n_keys - 1 + CHUNK_KEYS - 1) / CHUNK_KEYS;
}

/* Bytes of scratch for a tile of K or V. */
static size_t tile_size(const hl_rows *rows, int64_t width)
{
    return rows_in_place(rows, width, VL) ? 0 : (size_t)(TILE_KEYS * padded(width));
}

/* Allocates everything that a job needs at once, for all threads. */
static hl_status job_allocate(forward_job *job)
{
    const hl_attention *p        = job->problem;
    size_t              n_rows   = (size_t)(LANES * padded(p->d_head));
    size_t              n_q      = (size_t)(job->n_panels * LANES * padded(p->d_head));
    size_t              n_out    = (size_t)(job->n_panels * LANES * padded(p->d_value));
    size_t              n_k      = tile_size(&p->k, p->d_head);
    size_t              n_v      = tile_size(&p->v, p->d_value);
    size_t              n_floats = n_rows + n_q + n_out + n_k + n_v + TILE_KEYS * LANES;
    size_t              n_bytes  = (size_t)job->n_panels * sizeof(panel) + n_floats * sizeof(float);
    uint8_t            *memory   = NULL;

    n_bytes = (n_bytes + HL_ALIGNMENT - 1) / HL_ALIGNMENT * HL_ALIGNMENT;
    if (p->n_threads == 1 && n_bytes + sizeof *job->threads <= SMALL_JOB) {
        memory       = job->small;
        job->threads = (workspace *)(void *)(memory + n_bytes);
    } else {
        HL_NEED(hl_alloc(&job->memory, (size_t)p->n_threads, n_bytes + sizeof *job->threads));
        memory       = job->memory;
        job->threads = (workspace *)(void *)(memory + (size_t)p->n_threads * n_bytes);
    }
    for (int i = 0; i < p->n_threads; i++, memory += n_bytes) {
        workspace *space = &job->threads[i];
        space->panels    = (panel *)(void *)memory;
        space->rows      = (float *)(void *)(space->panels + job->n_panels);
        space->q         = space->rows + n_rows;
        space->out       = space->q + n_q;
        space->scores    = space->out + n_out;
        space->k         = space->scores + TILE_KEYS * LANES;
        space->v         = space->k + n_k;
    }
    if (job->n_chunks > 1) {
        size_t n_parts = (size_t)(p->n_batch * p->n_kv_heads * job->n_chunks);
        HL_NEED(HL_ALLOC(&job->parts, n_parts));
        HL_NEED(HL_ALLOC(&job->parts_out, n_parts * LANES * (size_t)padded(p->d_value)));
    }
    return HL_OK;
}

static void job_work(void *context, int64_t first, int64_t end, int member)
{
    const forward_job *job = context;

    for (int64_t i = first; i < end; i++)
        job->step(job, &job->threads[member], i);
}

/* Divides `count` steps among the threads. */
static void job_share(forward_job *job, int64_t count, forward_step *step)
{
    job->step = step;
    hl_parallel(job->problem->n_threads, count, 1, job_work, job);
}

static void job_run(forward_job *job)
{
    int64_t n_heads = job->problem->n_batch * job->problem->n_kv_heads;

    if (job->n_chunks == 1) {
        job_share(job, n_heads * job->n_blocks, block_forward);
        return;
    }
    job_share(job, n_heads * job->n_chunks, chunk_forward);
    job_share(job, n_heads, chunks_finish);
}

static void job_free(forward_job *job)
{
    hl_free(job->parts_out);
    hl_free(job->parts);
    hl_free(job->memory);
}

static hl_status attention_forward(const hl_attention_result *result, const hl_attention *problem)
{
    HL_SCOPED(job_free) forward_job job = { .problem = problem, .result = result };
    /* Decoding calls this function so often that a malloc would show in profiles. */
    _Alignas(HL_ALIGNMENT) uint8_t small[SMALL_JOB];

    job.small = small;
    job_plan(&job);
    HL_NEED(job_allocate(&job));
    job_run(&job);
    return HL_OK;
}

#endif
