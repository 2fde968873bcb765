/* forward_attention.c - projections, norms of q and k, RoPE, cache, attention.
 *
 * q, k and v are made for the chunk; k and v join the cache, and the fused kernel
 * reads all of it.  Everything that tells the families apart here is an argument
 * of that kernel: windows, scale, soft-cap, ALiBi, sinks, gates. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/rope.h"
#include "model/session.h"

enum { TEAM_PRODUCTS = 64 * 1024 }; /* below, attention of few rows stays on one thread */

/* --------------------------------------------------------------------- rope */

static void sequence_angles(hl_session *session, const hl_chunk *chunk, hl_rope_choice choice,
                            int64_t sequence)
{
    const hl_rope   *rope    = &session->config->ropes[choice];
    hl_session_rope *angles  = &session->ropes[choice];
    int64_t          n_pairs = rope->n_dims / 2;
    float            factor  = (float)rope->attention_factor;

    hl_rope_frequencies(angles->frequencies, rope, chunk->ends[sequence]);
    for (int64_t row = 0; row < chunk->lengths[sequence]; row++) {
        int64_t first    = (sequence * chunk->n_rows + row) * n_pairs;
        float   position = (float)(chunk->start[sequence] + row);

        for (int64_t pair = 0; pair < n_pairs; pair++) {
            /* The product is rounded to float, as in the implementations that the
             * models were trained with: far out it shows. */
            double angle                 = (double)(position * angles->frequencies[pair]);
            angles->cosine[first + pair] = (float)cos(angle) * factor;
            angles->sine[first + pair]   = (float)sin(angle) * factor;
        }
    }
}

void hl_forward_angles(hl_session *session, const hl_chunk *chunk)
{
    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        if (session->ropes[choice].cosine == NULL)
            continue;
        for (int64_t sequence = 0; sequence < chunk->n_batch; sequence++)
            sequence_angles(session, chunk, choice, sequence);
    }
}

/* ------------------------------------------------------------------ q and k */

/* What happens to q or k between projection and attention. */
typedef struct head_work {
    float         *x; /* (B, C, n_heads d_head) */
    int64_t        n_heads;
    hl_role        norm_role;
    int64_t        layer;
    const hl_rope *rope;   /* NULL: none */
    const float   *cosine; /* (B, C, n_dims/2) */
    const float   *sine;
} head_work;

static void norm_heads(const hl_session *session, const head_work *work, float *x)
{
    int64_t d_head = session->config->d_head;
    bool    each   = session->config->qk_norm == HL_QK_NORM_EACH;

    if (session->config->qk_norm == HL_QK_NORM_ALL) {
        hl_norm norm = hl_forward_norm_of(
            session, hl_session_param_of(session, work->norm_role, work->layer, 0));
        session->dense->norm(x, x, work->n_heads * d_head, &norm);
        return;
    }
    for (int64_t head = 0; head < work->n_heads; head++) {
        hl_norm norm = hl_forward_norm_of(
            session, hl_session_param_of(session, work->norm_role, work->layer, each ? head : 0));
        session->dense->norm(x + head * d_head, x + head * d_head, d_head, &norm);
    }
}

static void finish_row(const hl_session *session, const head_work *work, int64_t row)
{
    int64_t d_head = session->config->d_head;
    float  *x      = work->x + row * work->n_heads * d_head;

    if (session->config->qk_norm != HL_QK_NORM_NONE)
        norm_heads(session, work, x);
    for (int64_t head = 0; head < work->n_heads && work->rope != NULL; head++) {
        int64_t n_pairs = work->rope->n_dims / 2;
        session->dense->rotate(x + head * d_head, work->cosine + row * n_pairs,
                               work->sine + row * n_pairs, n_pairs, work->rope->interleaved);
    }
}

/* Heads of a chunk's rows: what a thread is given. */
typedef struct head_rows {
    const hl_session *session;
    const hl_chunk   *chunk;
    const head_work  *work;
} head_rows;

static void finish_rows(void *context, int64_t first, int64_t end, int member)
{
    const head_rows *rows = context;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        if (hl_chunk_has(rows->chunk, row))
            finish_row(rows->session, rows->work, row);
    }
}

static void finish_heads(const hl_session *session, const hl_chunk *chunk, const head_work *work)
{
    int64_t n_rows = hl_chunk_rows(chunk);
    int n_threads  = hl_forward_threads(session, n_rows * work->n_heads * session->config->d_head);

    if (session->config->qk_norm != HL_QK_NORM_NONE || work->rope != NULL)
        hl_parallel(n_threads, n_rows, 0, finish_rows, &(head_rows){ session, chunk, work });
}

static hl_status project_heads(hl_session *session, const hl_chunk *chunk, int64_t layer,
                               const float *x)
{
    const hl_layer_config *config = &session->config->layers[layer];
    hl_session_rows       *rows   = &session->rows;
    const hl_session_rope *angles = &session->ropes[config->rope];
    const hl_rope         *rope =
        config->rope != HL_ROPE_NONE ? &session->config->ropes[config->rope] : NULL;
    head_work       q        = { rows->q, config->n_heads, HL_ROLE_Q_NORM, layer,
                                 rope,    angles->cosine,  angles->sine };
    head_work       k        = { rows->k, config->n_kv_heads, HL_ROLE_K_NORM, layer,
                                 rope,    angles->cosine,     angles->sine };
    hl_forward_part parts[3] = {
        { rows->q, hl_session_param_of(session, HL_ROLE_ATTN_Q, layer, 0) },
        { rows->k, hl_session_param_of(session, HL_ROLE_ATTN_K, layer, 0) },
        { rows->v, hl_session_param_of(session, HL_ROLE_ATTN_V, layer, 0) },
    };

    HL_NEED(hl_forward_linears(session, chunk, x, parts, 3));
    finish_heads(session, chunk, &q);
    finish_heads(session, chunk, &k);
    return HL_OK;
}

/* -------------------------------------------------------------------- cache */

static hl_session_cache *cache_of(const hl_session *session, int64_t layer)
{
    return &session->caches[session->config->is_encoder ? 0 : layer];
}

static void store_row(const hl_session *session, void *cache, const float *x, int64_t n_kv_heads,
                      int64_t sequence, int64_t position)
{
    int64_t  d_head = session->config->d_head;
    hl_dtype dtype  = session->options.cache_dtype;

    for (int64_t head = 0; head < n_kv_heads; head++) {
        int64_t first =
            ((sequence * n_kv_heads + head) * session->options.n_ctx + position) * d_head;
        if (dtype == HL_DTYPE_F32)
            memcpy((float *)cache + first, x + head * d_head, (size_t)d_head * sizeof *x);
        else
            hl_dtype_from_f32((uint16_t *)cache + first, dtype, x + head * d_head, (size_t)d_head);
    }
}

/* A row of k and one of v. */
static void store_both(const hl_session *session, const hl_chunk *chunk, int64_t layer, int64_t row)
{
    const hl_session_cache *cache      = cache_of(session, layer);
    int64_t                 n_kv_heads = session->config->layers[layer].n_kv_heads;
    int64_t                 first      = row * n_kv_heads * session->config->d_head;
    int64_t                 sequence   = chunk->sequences[row / chunk->n_rows];
    int64_t                 position   = chunk->start[row / chunk->n_rows] + row % chunk->n_rows;

    store_row(session, cache->k, session->rows.k + first, n_kv_heads, sequence, position);
    store_row(session, cache->v, session->rows.v + first, n_kv_heads, sequence, position);
}

/* A chunk's rows for the cache of a layer: what a thread is given. */
typedef struct cache_rows {
    const hl_session *session;
    const hl_chunk   *chunk;
    int64_t           layer;
} cache_rows;

static void store_some(void *context, int64_t first, int64_t end, int member)
{
    const cache_rows *rows = context;
    (void)member;

    for (int64_t row = first; row < end; row++) {
        if (hl_chunk_has(rows->chunk, row))
            store_both(rows->session, rows->chunk, rows->layer, row);
    }
}

static void store_rows(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    int64_t width  = session->config->layers[layer].n_kv_heads * session->config->d_head;
    int64_t n_rows = hl_chunk_rows(chunk);

    hl_parallel(hl_forward_threads(session, n_rows * width), n_rows, 0, store_some,
                &(cache_rows){ session, chunk, layer });
}

/* ---------------------------------------------------------------- attention */

static void set_masks(hl_attention *problem, const hl_session *session,
                      const hl_layer_config *layer)
{
    problem->flags = HL_ATTENTION_SCALE;
    if (!session->config->is_encoder)
        problem->flags |= HL_ATTENTION_CAUSAL;
    if (!layer->is_local)
        return;
    problem->flags |= HL_ATTENTION_WINDOW_LEFT;
    problem->window_left = layer->window_left;
    problem->window_sink = layer->window_sink;
    if (session->config->is_encoder) {
        problem->flags |= HL_ATTENTION_WINDOW_RIGHT;
        problem->window_right = layer->window_right;
    }
}

/* Queries times keys times `width`, at most. */
static int64_t chunk_products(const hl_chunk *chunk, int64_t width)
{
    int64_t count = 0;

    for (int64_t i = 0; i < chunk->n_batch; i++)
        count += chunk->lengths[i] * chunk->ends[i];
    return count * width;
}

hl_attention hl_forward_problem(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_config        *config     = session->config;
    const hl_layer_config  *at         = &config->layers[layer];
    const hl_session_cache *cache      = cache_of(session, layer);
    const hl_session_param *sinks      = hl_session_param_of(session, HL_ROLE_SINKS, layer, 0);
    int64_t                 n_ctx      = session->options.n_ctx;
    int64_t                 d_head     = config->d_head;
    int64_t                 n_products = chunk_products(chunk, at->n_heads * d_head);
    hl_rows                 cached     = { .dtype        = session->options.cache_dtype,
                                           .batch_stride = at->n_kv_heads * n_ctx * d_head,
                                           .head_stride  = n_ctx * d_head,
                                           .row_stride   = d_head };
    hl_attention            problem    = {
                      .n_batch      = chunk->n_batch,
                      .n_heads      = at->n_heads,
                      .n_kv_heads   = at->n_kv_heads,
                      .n_queries    = chunk->n_rows,
                      .n_keys       = n_ctx,
                      .d_head       = d_head,
                      .d_value      = d_head,
                      .q            = { .data         = session->rows.q,
                                        .batch_stride = chunk->n_rows * at->n_heads * d_head,
                                        .head_stride  = d_head,
                                        .row_stride   = at->n_heads * d_head },
                      .k            = cached,
                      .v            = cached,
                      .scale        = at->attn_scale,
                      .softcap      = config->attn_softcap,
                      .query_start  = chunk->start,
                      .key_length   = chunk->ends,
                      .alibi_slopes = session->alibi_slopes,
                      .key_bias     = session->key_bias,
                      .sinks        = sinks != NULL ? sinks->vector : NULL,
                      .n_threads    = hl_forward_threads(session, n_products),
    };

    problem.k.data = cache->k;
    problem.v.data = cache->v;
    const float *gates =
        chunk->feed->gates != NULL ? chunk->feed->gates : hl_model_gates(session->model);
    if (gates != NULL)
        problem.gates = gates + layer * config->n_heads;
    if (chunk->feed->segments != NULL) {
        problem.segments       = chunk->feed->segments;
        problem.segment_stride = n_ctx;
        problem.n_segments     = chunk->feed->n_segments;
    }
    set_masks(&problem, session, at);
    return problem;
}

/* Attention in parts: some heads of one sequence each. */
typedef struct attention_parts {
    const hl_session    *session;
    const hl_chunk      *chunk;
    int64_t              layer;
    const hl_attention  *problem; /* all of it, where sequences lie one after the other */
    hl_attention_result *result;
    int64_t              n_heads; /* of a part: all, all of a K/V head, or one */
    _Atomic(int)         failure; /* HL_OK */
} attention_parts;

static void advance(float **pointer, int64_t count)
{
    if (*pointer != NULL)
        *pointer += count;
}

static hl_rows rows_from(hl_rows rows, int64_t sequence, int64_t head)
{
    int64_t first = sequence * rows.batch_stride + head * rows.head_stride;

    rows.data = (uint8_t *)rows.data + first * (int64_t)(hl_dtype_bits(rows.dtype) / 8);
    return rows;
}

/* (n_heads) of a layer, for number `index` of what is fed; NULL: ones. */
static const float *gates_of(const attention_parts *parts, int64_t index)
{
    const hl_feed *feed = parts->chunk->feed;

    if (feed->gates_each == NULL || feed->gates_each[index] == NULL)
        return parts->problem->gates;
    return feed->gates_each[index] + parts->layer * parts->session->config->n_heads;
}

/* n_heads heads of one sequence, from `head` on: all that share a K/V head or some, or those of
 * some K/V heads. */
static hl_attention problem_part(const attention_parts *parts, int64_t index, int64_t head,
                                 int64_t n_heads)
{
    const hl_attention *whole    = parts->problem;
    const float        *gates    = gates_of(parts, index);
    hl_attention        part     = *whole;
    int64_t             group    = whole->n_heads / whole->n_kv_heads;
    int64_t             sequence = parts->chunk->sequences[index];

    part.n_batch    = 1;
    part.n_heads    = n_heads;
    part.n_kv_heads = n_heads / group > 1 ? n_heads / group : 1;
    part.q          = rows_from(whole->q, index, head);
    part.k          = rows_from(whole->k, sequence, head / group);
    part.v          = rows_from(whole->v, sequence, head / group);
    part.query_start += index;
    part.key_length += index;
    part.alibi_slopes = whole->alibi_slopes != NULL ? whole->alibi_slopes + head : NULL;
    part.key_bias     = whole->key_bias != NULL ? whole->key_bias + head * whole->n_keys : NULL;
    part.sinks        = whole->sinks != NULL ? whole->sinks + head : NULL;
    part.gates        = gates != NULL ? gates + head : NULL;
    part.segments =
        whole->segments != NULL ? whole->segments + sequence * whole->segment_stride : NULL;
    return part;
}

static hl_attention_result result_part(const hl_attention_result *whole,
                                       const hl_attention *problem, int64_t index, int64_t head)
{
    hl_attention_result part         = *whole;
    int64_t             first        = (index * problem->n_heads + head) * problem->n_queries;
    float             **statistics[] = { &part.lse,        &part.entropy,  &part.renyi2,
                                         &part.varentropy, &part.peak,     &part.entropy_nosink,
                                         &part.diagonal,   &part.previous, &part.first };

    part.out = rows_from(whole->out, index, head);
    for (size_t i = 0; i < sizeof statistics / sizeof *statistics; i++)
        advance(statistics[i], first);
    advance(&part.segment_mass, first * problem->n_segments);
    if (part.argmax != NULL)
        part.argmax += first;
    return part;
}

static hl_status attend_part(const attention_parts *parts, int64_t number, int n_threads)
{
    const hl_attention *whole   = parts->problem;
    int64_t             index   = number * parts->n_heads / whole->n_heads;
    int64_t             head    = number * parts->n_heads % whole->n_heads;
    hl_attention        problem = problem_part(parts, index, head, parts->n_heads);
    hl_attention_result result  = result_part(parts->result, whole, index, head);

    problem.n_threads = n_threads;
    return hl_attention_forward(&result, &problem);
}

static void attend_some(void *context, int64_t first, int64_t end, int member)
{
    attention_parts *parts = context;
    (void)member;

    for (int64_t number = first; number < end; number++) {
        hl_status status = attend_part(parts, number, 1);
        if (status != HL_OK)
            atomic_store(&parts->failure, (int)status);
    }
}

/* Few rows: each part is one thread's. */
static hl_status attend_together(attention_parts *parts, int64_t n_parts)
{
    hl_parallel(parts->session->pool.n_threads, n_parts, 1, attend_some, parts);
    if (atomic_load(&parts->failure) != HL_OK)
        return hl_fail((hl_status)atomic_load(&parts->failure), "attention failed on a thread");
    return HL_OK;
}

static hl_status attend_one_by_one(attention_parts *parts)
{
    hl_status status = HL_OK;

    parts->n_heads = parts->problem->n_heads;
    for (int64_t i = 0; i < parts->problem->n_batch && status == HL_OK; i++)
        status = attend_part(parts, i, parts->problem->n_threads);
    return status;
}

/* Chosen sequences are not one problem: their keys lie here and there, their gates differ.  Of
 * these, heads that share keys stay together in any case: how many sequences there are must
 * not show. */
static hl_status run_attention(attention_parts *parts, int64_t n_products)
{
    const hl_session   *session   = parts->session;
    const hl_attention *problem   = parts->problem;
    bool                is_chosen = parts->chunk->feed->sequences != NULL;
    int64_t             n_groups  = problem->n_batch * problem->n_kv_heads;
    bool                by_group  = is_chosen || n_groups >= session->pool.n_threads;

    parts->n_heads  = by_group ? problem->n_heads / problem->n_kv_heads : 1;
    int64_t n_parts = problem->n_batch * problem->n_heads / parts->n_heads;
    if (session->few_rows && n_products >= TEAM_PRODUCTS)
        return attend_together(parts, n_parts);
    return is_chosen ? attend_one_by_one(parts) : hl_attention_forward(parts->result, problem);
}

static hl_status attend(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    bool                watched = chunk->feed->tap != NULL && chunk->feed->tap->layer != NULL;
    hl_attention        problem = hl_forward_problem(session, chunk, layer);
    hl_attention_result result  = { 0 };
    attention_parts     parts   = {
              .session = session, .chunk = chunk, .layer = layer, .problem = &problem, .result = &result
    };

    if (watched) {
        result = session->statistics;
        if (chunk->feed->segments == NULL)
            result.segment_mass = NULL;
    }
    result.out      = problem.q;
    result.out.data = session->rows.z;
    return run_attention(&parts, chunk_products(chunk, problem.n_heads * problem.d_head));
}

/* ----------------------------------------------------------------- patterns */

/* The tap's positions that fall into this chunk, as rows; all sequences must start
 * at the same position for a row to mean the same in each. */
static int64_t list_rows(int64_t *out, const hl_chunk *chunk)
{
    const hl_tap *tap   = chunk->feed->tap;
    int64_t       count = 0;

    for (int64_t i = 0; i < tap->n_pattern_positions; i++) {
        int64_t row = tap->pattern_positions[i] - chunk->start[0];
        if (row >= 0 && row < chunk->n_rows)
            out[count++] = row;
    }
    return count;
}

/* The same where each sequence has its own: -1 for those that fall elsewhere. */
static int64_t list_own_rows(int64_t *out, const hl_chunk *chunk, int64_t n_batch)
{
    const hl_tap *tap = chunk->feed->tap;

    for (int64_t i = 0; i < n_batch * tap->n_pattern_positions; i++) {
        int64_t sequence = i / tap->n_pattern_positions;
        int64_t row      = tap->pattern_positions[i] - chunk->start[sequence];

        out[i] = row >= 0 && row < chunk->lengths[sequence] ? row : -1;
    }
    return tap->n_pattern_positions;
}

int64_t hl_forward_pattern_rows(const hl_session *session, const hl_chunk *chunk)
{
    if (chunk->feed->tap->patterns_differ)
        return list_own_rows(session->rows.pattern_rows, chunk, chunk->n_batch);
    return list_rows(session->rows.pattern_rows, chunk);
}

/* Is somebody interested in this head's rows? */
static bool is_wanted(const hl_session *session, const hl_chunk *chunk, int64_t layer, int64_t head)
{
    const bool *wanted = chunk->feed->tap->pattern_heads;

    return wanted == NULL || wanted[layer * session->config->n_heads + head];
}

static hl_status make_pattern(const attention_parts *parts, const hl_layer_rows *rows,
                              int64_t index, int thread)
{
    const hl_session *session  = parts->session;
    const hl_chunk   *chunk    = parts->chunk;
    int64_t           head     = index / rows->n_patterns % rows->n_heads;
    int64_t           sequence = index / rows->n_patterns / rows->n_heads;
    int64_t           listed =
        index % rows->n_patterns + (rows->patterns_differ ? sequence * rows->n_patterns : 0);
    int64_t row    = rows->pattern_rows[listed];
    double *scores = session->rows.scores + thread * rows->n_keys;
    float  *out    = session->rows.pattern + index * rows->n_keys;

    if (row < 0 || !is_wanted(session, chunk, rows->layer, head))
        return HL_OK;
    session->rows.exact[index] = (hl_pattern_row){ 0 };
    if (row >= chunk->lengths[sequence]) {
        memset(out, 0, (size_t)rows->n_keys * sizeof *out);
        return HL_OK;
    }
    hl_attention problem = problem_part(parts, sequence, head, 1);
    return hl_attention_pattern(out, scores, &session->rows.exact[index], &problem, 0, 0, row);
}

void hl_forward_describe_patterns(hl_layer_rows *rows, const hl_session *session,
                                  const hl_chunk *chunk)
{
    rows->patterns_differ = chunk->feed->tap->patterns_differ;
    rows->n_patterns      = hl_forward_pattern_rows(session, chunk);
    rows->pattern_rows    = session->rows.pattern_rows;
    rows->pattern         = session->rows.pattern;
    rows->n_keys          = session->options.n_ctx;
}

/* Whole rows to be made: what a thread is given. */
typedef struct pattern_job {
    attention_parts     *parts;
    const hl_layer_rows *rows;
} pattern_job;

static void make_some(void *context, int64_t first, int64_t end, int member)
{
    const pattern_job *job = context;

    for (int64_t index = first; index < end; index++) {
        hl_status status = make_pattern(job->parts, job->rows, index, member);
        if (status != HL_OK)
            atomic_store(&job->parts->failure, (int)status);
    }
}

static hl_status make_each(attention_parts *parts, const hl_layer_rows *rows)
{
    int64_t count     = rows->n_batch * rows->n_heads * rows->n_patterns;
    int     n_threads = hl_forward_threads(parts->session, count * rows->n_keys * rows->d_head);

    hl_parallel(n_threads, count, 0, make_some, &(pattern_job){ parts, rows });
    return (hl_status)atomic_load(&parts->failure);
}

/* Whole rows at the tap's positions: now that queries and keys are at hand. */
static hl_status make_patterns(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    hl_layer_rows rows = { .layer   = layer,
                           .n_batch = chunk->n_batch,
                           .n_heads = session->config->layers[layer].n_heads,
                           .d_head  = session->config->d_head };

    hl_forward_describe_patterns(&rows, session, chunk);
    if (rows.n_patterns == 0)
        return HL_OK;
    hl_attention    problem = hl_forward_problem(session, chunk, layer);
    attention_parts parts   = {
          .session = session, .chunk = chunk, .layer = layer, .problem = &problem
    };
    return make_each(&parts, &rows);
}

/* ------------------------------------------------------------------ the branch */

hl_status hl_forward_attention(hl_session *session, const hl_chunk *chunk, int64_t layer,
                               const float *x)
{
    HL_NEED(project_heads(session, chunk, layer, x));
    store_rows(session, chunk, layer);
    HL_NEED(attend(session, chunk, layer));
    if ((hl_chunk_wants(chunk) & HL_WANT_PATTERN) != 0)
        HL_NEED(make_patterns(session, chunk, layer));
    return hl_forward_linear(session, chunk, session->rows.branch, session->rows.z,
                             hl_session_param_of(session, HL_ROLE_ATTN_O, layer, 0));
}
