/* session_memory.c - all memory of a session: planned, and taken or only counted.
 *
 * Beside the mapped weights and with N = n_rows, which is n_batch * n_chunk unless told:
 *
 *     cache      2 * n_layers * n_batch * n_ctx * n_kv_heads * d_head  elements
 *     rows       N * (6 d_model + 2 (n_heads + n_kv_heads) d_head + 2 d_mlp)  floats
 *     statistics N * n_heads * 11 numbers
 *     panels     a part of a weight as floats, for every thread
 *
 * so it grows with n_ctx by the cache alone (and, for Falcon's ALiBi, by a bias a head and
 * key).  hl_session_measure runs the same plan without allocating. */
#include <math.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/device.h"
#include "model/session.h"

/* ------------------------------------------------------------------- memory */

static hl_status keep_block(hl_session *session, void *block)
{
    if (session->n_blocks == session->max_blocks) {
        size_t    more   = 2 * session->max_blocks + 64;
        hl_status status = hl_realloc((void **)&session->blocks, session->max_blocks, more,
                                      sizeof *session->blocks);
        if (status != HL_OK)
            return status;
        session->max_blocks = more;
    }
    session->blocks[session->n_blocks++] = block;
    return HL_OK;
}

static hl_status count_block(hl_session *session, int64_t count, size_t size)
{
    size_t n_bytes = 0;

    if (count < 0 || !hl_size_multiply(&n_bytes, (size_t)count, size) ||
        !hl_size_add(&session->n_bytes, session->n_bytes, n_bytes))
        return hl_fail(HL_NO_MEMORY, "a session's memory is beyond 2^63 bytes");
    return HL_OK;
}

hl_status hl_session_alloc_table(hl_session *session, void **out, int64_t count, size_t size)
{
    hl_status status = HL_OK;
    void     *block  = NULL;

    HL_TRY(count_block(session, count, size));
    HL_TRY(hl_alloc_zeroed(&block, (size_t)count, size));
    HL_TRY(keep_block(session, block));
    *out  = block;
    block = NULL;

done:
    hl_free(block);
    return status;
}

hl_status hl_session_alloc(hl_session *session, void **out, int64_t count, size_t size)
{
    *out = NULL;
    return session->counting ? count_block(session, count, size)
                             : hl_session_alloc_table(session, out, count, size);
}

/* The product, or -1, which hl_session_alloc refuses. */
static int64_t product(int64_t a, int64_t b, int64_t c)
{
    int64_t result;

    if (a < 0 || b < 0 || c < 0 || __builtin_mul_overflow(a, b, &result) ||
        __builtin_mul_overflow(result, c, &result) || result > INT64_MAX / 16)
        return -1;
    return result;
}

/* ---------------------------------------------------------------------- plan */

static int64_t count_caches(const hl_config *config)
{
    return config->is_encoder ? 1 : config->n_layers;
}

static hl_status plan_cache(hl_session *session)
{
    const hl_config *config   = session->config;
    int64_t          n_caches = count_caches(config);
    size_t           size     = hl_dtype_bits(session->options.cache_dtype) / 8;
    size_t           before   = session->n_bytes;

    for (int64_t i = 0; i < n_caches; i++) {
        int64_t n_kv_heads = config->is_encoder ? config->n_kv_heads : config->layers[i].n_kv_heads;
        int64_t count =
            product(session->options.n_batch * n_kv_heads, session->options.n_ctx, config->d_head);

        HL_NEED(hl_session_alloc(session, &session->caches[i].k, count, size));
        HL_NEED(hl_session_alloc(session, &session->caches[i].v, count, size));
    }
    session->cache_bytes = session->n_bytes - before;
    return HL_OK;
}

/* The widest hidden layer of any MLP. */
static int64_t mlp_width(const hl_config *config)
{
    int64_t width = config->d_shared;

    for (int64_t layer = 0; layer < config->n_layers; layer++) {
        if (config->layers[layer].d_mlp > width)
            width = config->layers[layer].d_mlp;
    }
    return width;
}

/* What each row has of its own: (n_rows, width) floats. */
static hl_status plan_rows(hl_session *session, int64_t n_rows)
{
    hl_session_rows *rows    = &session->rows;
    const hl_config *config  = session->config;
    uint32_t         wants   = session->options.wants;
    int64_t          d_model = config->d_model;
    int64_t          queries = product(config->n_heads, config->d_head, 1);
    int64_t          keys    = product(config->n_kv_heads, config->d_head, 1);
    int64_t          d_mlp   = mlp_width(config);

    const struct {
        float **out;
        int64_t width;
        bool    is_wanted;
    } plans[] = {
        { &rows->x, d_model, true },
        { &rows->normed, d_model, true },
        { &rows->branch, d_model, true },
        { &rows->mlp, d_model, true },
        { &rows->pre, d_model, (wants & HL_WANT_RESID_PRE) != 0 },
        { &rows->mid, d_model, (wants & HL_WANT_RESID_MID) != 0 },
        { &rows->embedded, config->d_embed, config->d_embed != d_model },
        { &rows->q, queries, true },
        { &rows->z, queries, true },
        { &rows->k, keys, true },
        { &rows->v, keys, true },
        { &rows->gate, d_mlp, true },
        { &rows->up, d_mlp, true },
    };

    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        if (plans[i].is_wanted)
            HL_NEED(HL_SESSION_ALLOC(session, plans[i].out, product(n_rows, plans[i].width, 1)));
    }
    return HL_OK;
}

/* What the experts share: of one sequence at a time. */
static hl_status plan_experts(hl_session *session)
{
    hl_session_rows *rows   = &session->rows;
    const hl_config *config = session->config;
    int64_t          chunk  = session->options.n_chunk;

    if (config->n_experts == 0)
        return HL_OK;
    HL_NEED(HL_SESSION_ALLOC(session, &rows->router, product(chunk, config->n_experts, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->chosen, product(chunk, config->n_experts_used, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->weights, product(chunk, config->n_experts_used, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->members, chunk));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->member_weights, chunk));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->gathered, product(chunk, config->d_model, 1)));
    return HL_SESSION_ALLOC(session, &rows->expert, product(chunk, config->d_model, 1));
}

static hl_status plan_kept(hl_session *session)
{
    hl_session_rows *rows  = &session->rows;
    int64_t          n     = product(session->options.n_batch, session->options.n_kept, 1);
    int64_t          count = product(n, session->config->d_vocab, 1);

    HL_NEED(HL_SESSION_ALLOC(session, &rows->divergence, HL_LOGIT_ROWS));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->kept.logits, count));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->kept.p, count));
    return HL_SESSION_ALLOC(session, &rows->kept.lse, n);
}

/* Which rows are kept; on the CPU, where. */
static hl_status plan_streams(hl_session *session, bool is_here)
{
    hl_kept_streams *kept  = &session->streams;
    int64_t          every = session->options.stream_every;

    kept->n_slots = every > 0 ? (session->config->n_layers - 1) / every : 0;
    int64_t n     = product(kept->n_slots, session->options.n_batch, 1);
    HL_NEED(HL_SESSION_ALLOC(session, &kept->ranges, n));
    if (is_here)
        HL_NEED(HL_SESSION_ALLOC(session, &kept->x,
                                 product(n, session->options.n_ctx, session->config->d_model)));
    return HL_OK;
}

static hl_status plan_ends(hl_session *session, int64_t n_rows)
{
    hl_session_rows *rows   = &session->rows;
    const hl_config *config = session->config;
    uint32_t         wants  = session->options.wants;
    int64_t          widest = config->d_embed > config->d_model ? config->d_embed : config->d_model;
    uint32_t         logits =
        HL_WANT_LOGITS | HL_WANT_LAST_LOGITS | HL_WANT_LENS | HL_WANT_LOSSES | HL_WANT_DIVERGENCE;

    HL_NEED(HL_SESSION_ALLOC(session, &rows->hidden, product(HL_LOGIT_ROWS, widest, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->narrow, product(HL_LOGIT_ROWS, widest, 1)));
    if ((wants & logits) != 0)
        HL_NEED(
            HL_SESSION_ALLOC(session, &rows->logits, product(HL_LOGIT_ROWS, config->d_vocab, 1)));
    if ((wants & HL_WANT_LAST_LOGITS) != 0)
        HL_NEED(HL_SESSION_ALLOC(session, &rows->last,
                                 product(session->options.n_batch, config->d_vocab, 1)));
    if ((wants & HL_WANT_LENS) != 0) {
        HL_NEED(HL_SESSION_ALLOC(session, &rows->lens_top, n_rows + HL_LOGIT_ROWS));
        HL_NEED(HL_SESSION_ALLOC(session, &rows->lens_entropy, n_rows + HL_LOGIT_ROWS));
        HL_NEED(HL_SESSION_ALLOC(session, &rows->lens_gap, n_rows + HL_LOGIT_ROWS));
    }
    if ((wants & HL_WANT_LOSSES) != 0) {
        HL_NEED(HL_SESSION_ALLOC(session, &rows->losses, HL_LOGIT_ROWS));
        HL_NEED(HL_SESSION_ALLOC(session, &rows->tops, HL_LOGIT_ROWS));
    }
    if ((wants & HL_WANT_DIVERGENCE) != 0)
        HL_NEED(plan_kept(session));
    return HL_OK;
}

static hl_status plan_statistics(hl_session *session, int64_t n_rows)
{
    hl_attention_result *result     = &session->statistics;
    int64_t              count      = product(n_rows, session->config->n_heads, 1);
    float              **wanted[10] = { &result->lse,      &result->entropy,
                                        &result->renyi2,   &result->varentropy,
                                        &result->peak,     &result->entropy_nosink,
                                        &result->diagonal, &result->previous,
                                        &result->first,    NULL };

    for (int i = 0; wanted[i] != NULL; i++)
        HL_NEED(HL_SESSION_ALLOC(session, wanted[i], count));
    HL_NEED(HL_SESSION_ALLOC(session, &result->argmax, count));
    return HL_SESSION_ALLOC(session, &result->segment_mass, product(count, HL_MAX_SEGMENTS, 1));
}

static hl_status plan_patterns(hl_session *session)
{
    hl_session_rows *rows  = &session->rows;
    int64_t          heads = product(session->options.n_batch, session->config->n_heads, 1);

    if ((session->options.wants & HL_WANT_PATTERN) == 0)
        return HL_OK;
    HL_NEED(HL_SESSION_ALLOC(session, &rows->pattern_rows,
                             product(session->options.n_batch, session->options.n_patterns, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &rows->pattern,
                             product(heads, session->options.n_patterns, session->options.n_ctx)));
    HL_NEED(
        HL_SESSION_ALLOC(session, &rows->exact, product(heads, session->options.n_patterns, 1)));
    return HL_SESSION_ALLOC(session, &rows->scores,
                            product(session->pool.n_threads, session->options.n_ctx, 1));
}

/* The largest panel of any weight, for every thread. */
static hl_status plan_panels(hl_session *session)
{
    for (int64_t i = 0; i < session->n_params; i++) {
        const hl_matrix *matrix = &session->params[i].matrix;
        int64_t          count  = matrix->data != NULL ? hl_linear_scratch(matrix) : 0;

        if (count > session->pool.thread_floats)
            session->pool.thread_floats = count;
    }
    return HL_SESSION_ALLOC(session, &session->pool.scratch,
                            product(session->pool.n_threads, session->pool.thread_floats, 1));
}

/* Few rows of every sequence, of the widest input that a weight of int8.h has. */
static hl_status plan_int8(hl_session *session)
{
    hl_linear_int8 *int8   = &session->int8;
    int64_t         widest = 0;

    if (session->options.activations != HL_ACTIVATIONS_INT8)
        return HL_OK;
    for (int64_t i = 0; i < session->n_params; i++) {
        const hl_matrix *matrix = &session->params[i].matrix;
        if (matrix->data != NULL && hl_int8_has(matrix->dtype) && matrix->n_columns > widest)
            widest = matrix->n_columns;
    }
    int8->n_values = product(session->options.n_batch, HL_LINEAR_FEW_ROWS, widest);
    HL_NEED(HL_SESSION_ALLOC(session, &int8->q, int8->n_values));
    HL_NEED(HL_SESSION_ALLOC(session, &int8->scales, int8->n_values / HL_INT8_BLOCK));
    HL_NEED(HL_SESSION_ALLOC(session, &int8->sums, int8->n_values / HL_INT8_BLOCK));
    session->pool.int8 = int8;
    return HL_OK;
}

/* ----------------------------------------------------------------- positions */

static hl_status plan_ropes(hl_session *session, int64_t n_rows)
{
    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        int64_t          n_pairs = session->config->ropes[choice].n_dims / 2;
        hl_session_rope *rope    = &session->ropes[choice];

        if (n_pairs == 0)
            continue;
        HL_NEED(HL_SESSION_ALLOC(session, &rope->frequencies, n_pairs));
        HL_NEED(HL_SESSION_ALLOC(session, &rope->cosine, product(n_rows, n_pairs, 1)));
        HL_NEED(HL_SESSION_ALLOC(session, &rope->sine, product(n_rows, n_pairs, 1)));
    }
    return HL_OK;
}

/* 2^(-8(h+1)/c), c the largest power of two up to n_heads; the heads beyond it get
 * every other of the slopes that 2c heads would have. */
static double alibi_slope(int64_t head, int64_t n_heads)
{
    int64_t power = 1;

    while (power * 2 <= n_heads)
        power *= 2;
    if (head < power)
        return exp2(-8.0 * (double)(head + 1) / (double)power);
    return exp2(-4.0 * (double)(2 * (head - power) + 1) / (double)power);
}

static float as_bf16(float value)
{
    return hl_bf16_to_f32(hl_f32_to_bf16(value));
}

/* Falcon adds ALiBi to q.k before it scales: score = (q.k + slope * key) / sqrt(d_head).  It rounds
 * slope, position and their product to bf16, whatever the weights are; the division comes after.
 * (transformers' eager attention adds the biases a second time, in the mask; its SDPA path and the
 * code that the models were trained with do not.) */
static hl_status plan_falcon_bias(hl_session *session)
{
    const hl_config *config = session->config;
    int64_t          n_ctx  = session->options.n_ctx;
    float            root   = (float)sqrt((double)config->d_head);
    hl_status        status =
        HL_SESSION_ALLOC(session, &session->key_bias, product(config->n_heads, n_ctx, 1));

    if (session->counting)
        return status;
    for (int64_t head = 0; head < config->n_heads && status == HL_OK; head++) {
        float slope = as_bf16((float)alibi_slope(head, config->n_heads));
        for (int64_t key = 0; key < n_ctx; key++)
            session->key_bias[head * n_ctx + key] = as_bf16(slope * as_bf16((float)key)) / root;
    }
    return status;
}

static hl_status plan_alibi(hl_session *session)
{
    const hl_config *config = session->config;

    if (config->position == HL_POSITION_ALIBI_FALCON)
        return plan_falcon_bias(session);
    if (config->position != HL_POSITION_ALIBI)
        return HL_OK;
    hl_status status = HL_SESSION_TABLE(session, &session->alibi_slopes, config->n_heads);
    for (int64_t head = 0; head < config->n_heads && status == HL_OK; head++)
        session->alibi_slopes[head] = (float)alibi_slope(head, config->n_heads);
    return status;
}

/* --------------------------------------------------------------------- whole */

/* What the CPU works with. */
static hl_status plan_work(hl_session *session)
{
    int64_t n_rows = session->options.n_rows;

    HL_NEED(plan_cache(session));
    HL_NEED(plan_rows(session, n_rows));
    HL_NEED(plan_experts(session));
    HL_NEED(plan_ends(session, n_rows));
    HL_NEED(plan_statistics(session, n_rows));
    HL_NEED(plan_patterns(session));
    HL_NEED(plan_int8(session));
    return plan_ropes(session, n_rows);
}

hl_status hl_session_plan(hl_session *session)
{
    int64_t          n_batch = session->options.n_batch;
    hl_device_choice choice;

    HL_NEED(count_block(session, 1, sizeof *session));
    HL_NEED(hl_device_choose(&choice, &session->options));
    session->options.device = NULL; /* was borrowed */
    if (choice.ops == NULL &&
        (session->options.wants & (HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW)) != 0)
        session->options.wants |= HL_WANT_LAST_LOGITS; /* they are found there when asked for */
    HL_NEED(hl_session_load_weights(session));
    HL_NEED(HL_SESSION_ALLOC(session, &session->searched, session->config->n_layers + 1));
    HL_NEED(HL_SESSION_ALLOC(session, &session->places, product(4, n_batch, 1)));
    HL_NEED(HL_SESSION_ALLOC(session, &session->kept, n_batch));
    HL_NEED(plan_streams(session, choice.ops == NULL));
    HL_NEED(HL_SESSION_ALLOC(session, &session->length, n_batch));
    HL_NEED(HL_SESSION_TABLE(session, &session->caches, count_caches(session->config)));
    HL_NEED(plan_panels(session));
    HL_NEED(plan_alibi(session));
    if (choice.ops != NULL)
        HL_NEED(hl_device_session_open(session, &choice));
    else
        HL_NEED(plan_work(session));
    return HL_OK;
}
