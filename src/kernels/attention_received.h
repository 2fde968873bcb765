/* attention_received.h - the attention that each key receives, from the lse of a forward pass.
 *
 * received[j] is the sum over rows of exp(s_ij - lse_i).  A task owns one head and a chunk of its
 * keys, so a sum has one owner:
 *
 *     for each panel of rows that sees the chunk
 *         for each tile of keys: scores, weights, sums += weights
 *
 * Sums are vectors, one per key, over the rows of a few panels; then they are added up, in double
 * precision.  Chunks start at fixed keys, so the bytes do not depend on the number of threads. */
#ifndef HL_KERNELS_ATTENTION_RECEIVED_H
#define HL_KERNELS_ATTENTION_RECEIVED_H

#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/attention_scores.h"

enum {
    RECEIVED_KEYS   = 5 * TILE_KEYS, /* per task */
    RECEIVED_PANELS = 16,            /* after this number of panels, sums are added to the totals */
};

/* The working memory of one thread. */
typedef struct received_space {
    panel  *rows_seen; /* one */
    float  *lse;       /* (LANES) in units of ln 2; +inf makes every weight 0 */
    float  *rows;      /* (LANES, padded d_head): queries */
    float  *q;         /* (d_head, LANES) */
    float  *scores;    /* (TILE_KEYS, LANES) */
    float  *k;         /* (RECEIVED_KEYS, padded d_head), if not used in place */
    float  *sums;      /* (RECEIVED_KEYS, VL) */
    double *totals;    /* (RECEIVED_KEYS) */
} received_space;

typedef struct received_job {
    const hl_attention *problem;
    const float        *lse;
    float              *received;
    int64_t             first_query;
    int64_t             n_chunks; /* per head */
    received_space     *threads;  /* (n_threads) */
    void               *memory;   /* one allocation for all threads */
} received_job;

/* A chunk of keys of one head. */
typedef struct received_part {
    kv_head      h;
    int64_t      row; /* the head's first row among those of its KV head */
    hl_key_range keys;
    const float *k;
    int64_t      k_stride;
} received_part;

/* Adds the weights of one tile to the sums of its keys. */
static void add_weights(float *sums, const panel *w, const float *s, const float *lse, int64_t n)
{
    for (int j = 0; j < w->n_vectors; j++) {
        vf base = vf_load(lse + j * VL);
        for (int64_t i = 0; i < n; i++) {
            vf x = vf_max(vf_set(EXP2_FLOOR), vf_load(s + i * LANES + j * VL) - base);
            vf_store(sums + i * VL, vf_load(sums + i * VL) + vf_exp2_clamped(x));
        }
    }
}

/* A row of NaN says nothing about any key that it sees. */
static void spoil_keys(const received_space *space, const received_part *part, int lane)
{
    const panel *w = space->rows_seen;

    for (int64_t key = part->keys.begin; key < part->keys.end; key++)
        if ((key >= w->begin[lane] || key < w->kept[lane]) && key < w->end[lane])
            space->totals[key - part->keys.begin] = (double)NAN;
}

/* Sets each lane's lse.  Lanes that count nothing get +inf: those beyond the last row, and rows
 * that see no key or are not finite. */
static void lanes_set_lse(const received_job *job, const received_space *space,
                          const received_part *part)
{
    const panel *w     = space->rows_seen;
    const float *given = job->lse + row_index(&part->h, w->row);

    for (int lane = 0; lane < LANES; lane++) {
        float lse        = lane < w->n_rows ? given[lane] : INFINITY;
        space->lse[lane] = isfinite(lse) ? lse * LOG2E : INFINITY;
        if (isnan(lse))
            spoil_keys(space, part, lane);
    }
}

static void panel_received(const received_job *job, const received_space *space,
                           const received_part *part)
{
    const hl_attention *p = job->problem;
    const panel        *w = space->rows_seen;

    panel_load_rows(space->rows, w, &part->h, &p->q, p->d_head);
    transpose_rows(space->q, space->rows, p->d_head, query_factor(p));
    lanes_set_lse(job, space, part);
    for (int64_t key = part->keys.begin; key < part->keys.end; key += TILE_KEYS) {
        int64_t      end  = key + TILE_KEYS < part->keys.end ? key + TILE_KEYS : part->keys.end;
        hl_key_range seen = panel_part(w, (hl_key_range){ key, end });
        int64_t      n    = seen.end - seen.begin;
        int64_t      at   = seen.begin - part->keys.begin;
        if (n == 0)
            continue;
        panel_products(space->scores, w, space->q, part->k + at * part->k_stride, part->k_stride, n,
                       p->d_head);
        if (p->softcap != 0.0)
            panel_cap(space->scores, n, p);
        panel_bias_and_mask(space->scores, w, &part->h, seen.begin, n);
        add_weights(space->sums + at * VL, w, space->scores, space->lse, n);
    }
}

/* Adds the sums of the last panels to the totals, and clears them. */
static void sums_flush(const received_space *space, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int lane = 0; lane < VL; lane++)
            space->totals[i] += (double)space->sums[i * VL + lane];
    }
    memset(space->sums, 0, (size_t)(n * VL) * sizeof *space->sums);
}

static void part_received(const received_job *job, const received_space *space, int64_t index)
{
    const hl_attention *p     = job->problem;
    int64_t             group = p->n_heads / p->n_kv_heads;
    int64_t             head  = index / job->n_chunks % p->n_heads;
    int64_t             batch = index / job->n_chunks / p->n_heads;
    int64_t             begin = index % job->n_chunks * RECEIVED_KEYS;
    int64_t             end   = hl_attention_key_length(p, batch);
    float              *out   = job->received + (batch * p->n_heads + head) * p->n_keys + begin;
    int64_t n_out  = p->n_keys - begin < RECEIVED_KEYS ? p->n_keys - begin : RECEIVED_KEYS;
    int     n_open = 0;

    end                = end < begin + RECEIVED_KEYS ? end : begin + RECEIVED_KEYS;
    int64_t       n    = end > begin ? end - begin : 0;
    received_part part = { .h    = kv_head_at(p, batch * p->n_kv_heads + head / group),
                           .row  = head % group * p->n_queries,
                           .keys = { begin, begin + n } };
    memset(space->totals, 0, RECEIVED_KEYS * sizeof *space->totals);
    memset(space->sums, 0, RECEIVED_KEYS * VL * sizeof *space->sums);
    if (n > 0)
        part.k =
            load_rows(&part.k_stride, space->k, &p->k, batch, head / group, begin, n, p->d_head, 1);
    for (int64_t query = job->first_query; query < p->n_queries && n > 0; query += LANES) {
        panel_open_rows(space->rows_seen, &part.h, part.row + query, p->n_queries - query);
        hl_key_range seen = panel_part(space->rows_seen, part.keys);
        if (seen.begin == seen.end)
            continue;
        panel_received(job, space, &part);
        if (++n_open % RECEIVED_PANELS == 0)
            sums_flush(space, n);
    }
    sums_flush(space, n);
    for (int64_t i = 0; i < n_out; i++)
        out[i] = (float)space->totals[i];
}

static void parts_received(void *context, int64_t first, int64_t end, int member)
{
    const received_job *job = context;

    for (int64_t i = first; i < end; i++)
        part_received(job, &job->threads[member], i);
}

static hl_status received_allocate(received_job *job)
{
    const hl_attention *p      = job->problem;
    size_t              stride = (size_t)padded(p->d_head);
    size_t   n_k      = rows_in_place(&p->k, p->d_head, 1) ? 0 : (size_t)RECEIVED_KEYS * stride;
    size_t   n_floats = LANES + 2 * LANES * stride + TILE_KEYS * LANES + n_k + RECEIVED_KEYS * VL;
    size_t   n_bytes  = sizeof(panel) + RECEIVED_KEYS * sizeof(double) + n_floats * sizeof(float);
    uint8_t *memory   = NULL;

    n_bytes = (n_bytes + HL_ALIGNMENT - 1) / HL_ALIGNMENT * HL_ALIGNMENT;
    HL_NEED(hl_alloc(&job->memory, (size_t)p->n_threads, n_bytes + sizeof *job->threads));
    memory       = job->memory;
    job->threads = (received_space *)(void *)(memory + (size_t)p->n_threads * n_bytes);
    for (int i = 0; i < p->n_threads; i++, memory += n_bytes) {
        received_space *space = &job->threads[i];
        space->rows_seen      = (panel *)(void *)memory;
        space->totals         = (double *)(void *)(space->rows_seen + 1);
        space->lse            = (float *)(void *)(space->totals + RECEIVED_KEYS);
        space->rows           = space->lse + LANES;
        space->q              = space->rows + LANES * stride;
        space->scores         = space->q + LANES * stride;
        space->sums           = space->scores + TILE_KEYS * LANES;
        space->k              = space->sums + RECEIVED_KEYS * VL;
    }
    return HL_OK;
}

static void received_free(received_job *job)
{
    hl_free(job->memory);
}

static hl_status attention_received(float *received, const hl_attention *p, const float *lse,
                                    int64_t first_query)
{
    HL_SCOPED(received_free)
    received_job job = {
        .problem     = p,
        .lse         = lse,
        .received    = received,
        .first_query = first_query,
        .n_chunks    = (p->n_keys + RECEIVED_KEYS - 1) / RECEIVED_KEYS,
    };

    HL_NEED(received_allocate(&job));
    hl_parallel(p->n_threads, p->n_batch * p->n_heads * job.n_chunks, 1, parts_received, &job);
    return HL_OK;
}

#endif
