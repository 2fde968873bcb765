/* session.c - everything a model needs to run, allocated once.
 *
 * Memory, beside the mapped weights and with N = n_rows, which is n_batch * n_chunk unless told:
 *
 *     cache      2 * n_layers * n_batch * n_ctx * n_kv_heads * d_head  elements
 *     rows       N * (6 d_model + 2 (n_heads + n_kv_heads) d_head + 2 d_mlp)  floats
 *     statistics N * n_heads * 11 numbers
 *     panels     a part of a weight as floats, for every thread
 *
 * so it grows with n_ctx by the cache alone (and, for Falcon's ALiBi, by a bias a head and
 * key).  hl_session_measure runs the same plan without allocating.  A feed is cut into chunks of at most
 * n_chunk rows; an encoder, whose rows see what comes after them, has one chunk. */
#include "model/session.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/device.h"
#include "model/logits.h"
#include "model/model.h"
#include "model/session_limit.h"
#include "model/tap.h"

enum {
    DEFAULT_CTX   = 4096,
    DEFAULT_CHUNK = 512,
    MAX_CTX       = 1 << 30,
    MAX_BATCH     = 1 << 20,
    STEADY_ROWS   = 32,
};

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

/* ------------------------------------------------------------------- options */

static hl_status check_option(const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value >= least && value <= most)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT, "session: %s is %lld, wanted %lld to %lld", name,
                   (long long)value, (long long)least, (long long)most);
}

static hl_status check_context(const hl_session_options *options, const hl_config *config)
{
    bool possible = config->position != HL_POSITION_LEARNED && options->beyond_ctx;

    if (config->n_ctx == 0 || options->n_ctx <= config->n_ctx || possible)
        return HL_OK;
    return hl_fail(HL_LIMIT, "a context of %lld tokens is longer than the model's %lld%s",
                   (long long)options->n_ctx, (long long)config->n_ctx,
                   config->position == HL_POSITION_LEARNED ? ", which has no more positions" : "");
}

static hl_status complete_options(hl_session_options *options, const hl_config *config)
{
    hl_status status = HL_OK;
    int64_t   by_model =
        config->n_ctx > 0 && config->n_ctx < DEFAULT_CTX ? config->n_ctx : DEFAULT_CTX;

    options->n_ctx   = options->n_ctx != 0 ? options->n_ctx : by_model;
    options->n_batch = options->n_batch != 0 ? options->n_batch : 1;
    options->n_chunk = options->n_chunk != 0 ? options->n_chunk : DEFAULT_CHUNK;
    HL_TRY(check_option("n_ctx", options->n_ctx, 1, MAX_CTX));
    HL_TRY(check_option("n_batch", options->n_batch, 1, MAX_BATCH));
    HL_TRY(check_option("n_chunk", options->n_chunk, 1, MAX_CTX));
    HL_TRY(check_option("n_patterns", options->n_patterns, 0, MAX_CTX));
    HL_TRY(check_option("n_rows", options->n_rows, 0, INT64_MAX));
    HL_TRY(check_option("n_sampled", options->n_sampled, 0, MAX_CTX));
    HL_TRY(check_option("n_threads", options->n_threads, 0, HL_MAX_THREADS));
    HL_TRY(check_option("activations", options->activations, 0, HL_ACTIVATIONS_COUNT - 1));
    if (options->n_chunk > options->n_ctx || config->is_encoder)
        options->n_chunk = options->n_ctx;
    int64_t all = product(options->n_batch, options->n_chunk, 1);
    if (options->n_rows == 0 || options->n_rows > all)
        options->n_rows = all;
    if (options->cache_dtype != HL_DTYPE_F32 && options->cache_dtype != HL_DTYPE_F16)
        return hl_fail(HL_BAD_ARGUMENT, "session: the cache can be F32 or F16, not %s",
                       hl_dtype_name(options->cache_dtype));
    HL_TRY(check_context(options, config));

done:
    return status;
}

/* ---------------------------------------------------------------------- plan */

static int64_t count_caches(const hl_config *config)
{
    return config->is_encoder ? 1 : config->n_layers;
}

static hl_status plan_cache(hl_session *session)
{
    hl_status        status   = HL_OK;
    const hl_config *config   = session->config;
    int64_t          n_caches = count_caches(config);
    size_t           size     = hl_dtype_bits(session->options.cache_dtype) / 8;
    size_t           before   = session->n_bytes;

    for (int64_t i = 0; i < n_caches; i++) {
        int64_t n_kv_heads = config->is_encoder ? config->n_kv_heads : config->layers[i].n_kv_heads;
        int64_t count =
            product(session->options.n_batch * n_kv_heads, session->options.n_ctx, config->d_head);

        HL_TRY(hl_session_alloc(session, &session->caches[i].k, count, size));
        HL_TRY(hl_session_alloc(session, &session->caches[i].v, count, size));
    }
    session->cache_bytes = session->n_bytes - before;

done:
    return status;
}

static hl_status plan_stream(hl_session *session, int64_t n_rows)
{
    hl_status        status = HL_OK;
    hl_session_rows *rows   = &session->rows;
    const hl_config *config = session->config;
    uint32_t         wants  = session->options.wants;

    HL_TRY(HL_SESSION_ALLOC(session, &rows->x, product(n_rows, config->d_model, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->normed, product(n_rows, config->d_model, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->branch, product(n_rows, config->d_model, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->mlp, product(n_rows, config->d_model, 1)));
    if ((wants & HL_WANT_RESID_PRE) != 0)
        HL_TRY(HL_SESSION_ALLOC(session, &rows->pre, product(n_rows, config->d_model, 1)));
    if ((wants & HL_WANT_RESID_MID) != 0)
        HL_TRY(HL_SESSION_ALLOC(session, &rows->mid, product(n_rows, config->d_model, 1)));
    if (config->d_embed != config->d_model)
        HL_TRY(HL_SESSION_ALLOC(session, &rows->embedded, product(n_rows, config->d_embed, 1)));

done:
    return status;
}

static hl_status plan_heads(hl_session *session, int64_t n_rows)
{
    hl_status        status = HL_OK;
    hl_session_rows *rows   = &session->rows;
    const hl_config *config = session->config;

    HL_TRY(HL_SESSION_ALLOC(session, &rows->q, product(n_rows, config->n_heads, config->d_head)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->z, product(n_rows, config->n_heads, config->d_head)));
    HL_TRY(
        HL_SESSION_ALLOC(session, &rows->k, product(n_rows, config->n_kv_heads, config->d_head)));
    HL_TRY(
        HL_SESSION_ALLOC(session, &rows->v, product(n_rows, config->n_kv_heads, config->d_head)));

done:
    return status;
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

static hl_status plan_mlp(hl_session *session, int64_t n_rows)
{
    hl_status        status = HL_OK;
    hl_session_rows *rows   = &session->rows;
    const hl_config *config = session->config;
    int64_t          chunk  = session->options.n_chunk;

    HL_TRY(HL_SESSION_ALLOC(session, &rows->gate, product(n_rows, mlp_width(config), 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->up, product(n_rows, mlp_width(config), 1)));
    if (config->n_experts == 0)
        return HL_OK;
    HL_TRY(HL_SESSION_ALLOC(session, &rows->router, product(chunk, config->n_experts, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->chosen, product(chunk, config->n_experts_used, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->weights, product(chunk, config->n_experts_used, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->members, chunk));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->member_weights, chunk));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->gathered, product(chunk, config->d_model, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->expert, product(chunk, config->d_model, 1)));

done:
    return status;
}

static hl_status plan_ends(hl_session *session, int64_t n_rows)
{
    hl_status        status = HL_OK;
    hl_session_rows *rows   = &session->rows;
    const hl_config *config = session->config;
    uint32_t         wants  = session->options.wants;
    int64_t          widest = config->d_embed > config->d_model ? config->d_embed : config->d_model;
    uint32_t         logits = HL_WANT_LOGITS | HL_WANT_LAST_LOGITS | HL_WANT_LENS;

    HL_TRY(HL_SESSION_ALLOC(session, &rows->hidden, product(HL_LOGIT_ROWS, widest, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->narrow, product(HL_LOGIT_ROWS, widest, 1)));
    if ((wants & logits) != 0)
        HL_TRY(
            HL_SESSION_ALLOC(session, &rows->logits, product(HL_LOGIT_ROWS, config->d_vocab, 1)));
    if ((wants & HL_WANT_LAST_LOGITS) != 0)
        HL_TRY(HL_SESSION_ALLOC(session, &rows->last,
                                product(session->options.n_batch, config->d_vocab, 1)));
    if ((wants & HL_WANT_LENS) != 0) {
        HL_TRY(HL_SESSION_ALLOC(session, &rows->lens_top, n_rows + HL_LOGIT_ROWS));
        HL_TRY(HL_SESSION_ALLOC(session, &rows->lens_entropy, n_rows + HL_LOGIT_ROWS));
        HL_TRY(HL_SESSION_ALLOC(session, &rows->lens_gap, n_rows + HL_LOGIT_ROWS));
    }

done:
    return status;
}

static hl_status plan_statistics(hl_session *session, int64_t n_rows)
{
    hl_status            status     = HL_OK;
    hl_attention_result *result     = &session->statistics;
    int64_t              count      = product(n_rows, session->config->n_heads, 1);
    float              **wanted[10] = { &result->lse,      &result->entropy,
                                        &result->renyi2,   &result->varentropy,
                                        &result->peak,     &result->entropy_nosink,
                                        &result->diagonal, &result->previous,
                                        &result->first,    NULL };

    for (int i = 0; wanted[i] != NULL; i++)
        HL_TRY(HL_SESSION_ALLOC(session, wanted[i], count));
    HL_TRY(HL_SESSION_ALLOC(session, &result->argmax, count));
    HL_TRY(HL_SESSION_ALLOC(session, &result->segment_mass, product(count, HL_MAX_SEGMENTS, 1)));

done:
    return status;
}

static hl_status plan_patterns(hl_session *session)
{
    hl_status        status = HL_OK;
    hl_session_rows *rows   = &session->rows;
    int64_t          heads  = product(session->options.n_batch, session->config->n_heads, 1);

    if ((session->options.wants & HL_WANT_PATTERN) == 0)
        return HL_OK;
    HL_TRY(HL_SESSION_ALLOC(session, &rows->pattern_rows,
                            product(session->options.n_batch, session->options.n_patterns, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->pattern,
                            product(heads, session->options.n_patterns, session->options.n_ctx)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->exact, product(heads, session->options.n_patterns, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &rows->scores,
                            product(session->pool.n_threads, session->options.n_ctx, 1)));

done:
    return status;
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
    hl_status       status = HL_OK;
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
    HL_TRY(HL_SESSION_ALLOC(session, &int8->q, int8->n_values));
    HL_TRY(HL_SESSION_ALLOC(session, &int8->scales, int8->n_values / HL_INT8_BLOCK));
    HL_TRY(HL_SESSION_ALLOC(session, &int8->sums, int8->n_values / HL_INT8_BLOCK));
    session->pool.int8 = int8;

done:
    return status;
}

/* ----------------------------------------------------------------- positions */

static hl_status plan_ropes(hl_session *session, int64_t n_rows)
{
    hl_status status = HL_OK;

    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        int64_t          n_pairs = session->config->ropes[choice].n_dims / 2;
        hl_session_rope *rope    = &session->ropes[choice];

        if (n_pairs == 0)
            continue;
        HL_TRY(HL_SESSION_ALLOC(session, &rope->frequencies, n_pairs));
        HL_TRY(HL_SESSION_ALLOC(session, &rope->cosine, product(n_rows, n_pairs, 1)));
        HL_TRY(HL_SESSION_ALLOC(session, &rope->sine, product(n_rows, n_pairs, 1)));
    }

done:
    return status;
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

/* Falcon rounds slope, position and their product to bf16, whatever the weights are. */
static hl_status plan_falcon_bias(hl_session *session)
{
    const hl_config *config = session->config;
    int64_t          n_ctx  = session->options.n_ctx;
    hl_status        status =
        HL_SESSION_ALLOC(session, &session->key_bias, product(config->n_heads, n_ctx, 1));

    if (session->counting)
        return status;
    for (int64_t head = 0; head < config->n_heads && status == HL_OK; head++) {
        float slope = as_bf16((float)alibi_slope(head, config->n_heads));
        for (int64_t key = 0; key < n_ctx; key++)
            session->key_bias[head * n_ctx + key] = as_bf16(slope * as_bf16((float)key));
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

/* ------------------------------------------------------------- open and close */

/* What the CPU works with. */
static hl_status plan_work(hl_session *session)
{
    hl_status status = HL_OK;
    int64_t   n_rows = session->options.n_rows;

    HL_TRY(plan_cache(session));
    HL_TRY(plan_stream(session, n_rows));
    HL_TRY(plan_heads(session, n_rows));
    HL_TRY(plan_mlp(session, n_rows));
    HL_TRY(plan_ends(session, n_rows));
    HL_TRY(plan_statistics(session, n_rows));
    HL_TRY(plan_patterns(session));
    HL_TRY(plan_int8(session));
    HL_TRY(plan_ropes(session, n_rows));

done:
    return status;
}

static hl_status plan(hl_session *session)
{
    hl_status        status  = HL_OK;
    int64_t          n_batch = session->options.n_batch;
    hl_device_choice choice;

    HL_TRY(hl_device_choose(&choice, &session->options));
    session->options.device = NULL; /* was borrowed */
    if (choice.ops == NULL && (session->options.wants & HL_WANT_LAST_TOP) != 0)
        session->options.wants |= HL_WANT_LAST_LOGITS; /* it is found there when asked for */
    HL_TRY(hl_session_load_weights(session));
    HL_TRY(HL_SESSION_ALLOC(session, &session->searched, session->config->n_layers + 1));
    HL_TRY(HL_SESSION_ALLOC(session, &session->places, product(4, n_batch, 1)));
    HL_TRY(HL_SESSION_ALLOC(session, &session->length, n_batch));
    HL_TRY(HL_SESSION_TABLE(session, &session->caches, count_caches(session->config)));
    HL_TRY(plan_panels(session));
    HL_TRY(plan_alibi(session));
    if (choice.ops != NULL)
        HL_TRY(hl_device_session_open(session, &choice));
    else
        HL_TRY(plan_work(session));

done:
    return status;
}

static hl_status check_head(const hl_session *session)
{
    uint32_t words = HL_WANT_LOGITS | HL_WANT_LAST_LOGITS | HL_WANT_LAST_TOP | HL_WANT_LENS;

    if ((session->options.wants & words) == 0 ||
        hl_weights_get(session->weights, HL_ROLE_LM_HEAD, -1, 0) != NULL)
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED, "%s has no output head, so no logits", session->model->path);
}

/* With `counting`, only what hl_session_measure wants to know. */
static hl_status make_session(hl_session **out, const hl_model *model,
                              const hl_session_options *options, bool counting)
{
    hl_status   status  = HL_OK;
    hl_session *session = NULL;

    *out = NULL;
    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "session: model is NULL");
    HL_TRY(HL_ALLOC_ZEROED(&session, 1));
    session->model    = model;
    session->config   = model->config;
    session->weights  = model->weights;
    session->counting = counting;
    if (options != NULL)
        session->options = *options;
    HL_TRY(complete_options(&session->options, session->config));
    HL_TRY(check_head(session));
    session->pool.n_threads = hl_threads(session->options.n_threads);
    if (!counting)
        HL_TRY(hl_team_open(&session->pool.team, session->pool.n_threads));
    HL_TRY(count_block(session, 1, sizeof *session));
    HL_TRY(plan(session));
    *out    = session;
    session = NULL;

done:
    hl_session_close(session);
    return status;
}

hl_status hl_session_open(hl_session **out, const hl_model *model,
                          const hl_session_options *options)
{
    *out             = NULL;
    hl_status status = model != NULL ? hl_session_limit_check(model, options) : HL_OK;

    if (status == HL_OK)
        status = make_session(out, model, options, false);
    return status;
}

hl_status hl_session_measure(hl_session_memory *out, const hl_model *model,
                             const hl_session_options *options)
{
    hl_session *session = NULL;
    hl_status   status  = make_session(&session, model, options, true);

    *out = (hl_session_memory){ 0 };
    if (status == HL_OK)
        *out = (hl_session_memory){ .n_ctx       = session->options.n_ctx,
                                    .cache_bytes = session->cache_bytes,
                                    .work_bytes  = session->n_bytes - session->cache_bytes };
    hl_session_close(session);
    return status;
}

void hl_session_close(hl_session *session)
{
    if (session == NULL)
        return;
    hl_device_session_close(session);
    hl_team_close(session->pool.team);
    for (size_t i = 0; i < session->n_blocks; i++)
        hl_free(session->blocks[i]);
    hl_free(session->blocks);
    hl_free(session);
}

/* ---------------------------------------------------------------------- feed */

/* How many sequences are fed, and which is number `index` of them. */
static int64_t fed_count(const hl_session *session, const hl_feed *feed)
{
    return feed->sequences != NULL ? feed->n_sequences : session->options.n_batch;
}

static int64_t fed_sequence(const hl_feed *feed, int64_t index)
{
    return feed->sequences != NULL ? feed->sequences[index] : index;
}

static hl_status check_sequences(const hl_session *session, const hl_feed *feed)
{
    if (feed->sequences == NULL) {
        if (feed->gates_each != NULL)
            return hl_fail(HL_BAD_ARGUMENT, "feed: gates of each sequence, but not which they are");
        return HL_OK;
    }
    if (feed->lengths != NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: chosen sequences have no lengths of their own");
    for (int64_t i = 0; i < feed->n_sequences; i++) {
        int64_t before = i > 0 ? feed->sequences[i - 1] : -1;

        if (feed->sequences[i] <= before || feed->sequences[i] >= session->options.n_batch)
            return hl_fail(HL_BAD_ARGUMENT, "feed: sequence %lld after %lld, of %lld",
                           (long long)feed->sequences[i], (long long)before,
                           (long long)session->options.n_batch);
    }
    return HL_OK;
}

/* Do the largest chunk's rows fit? */
static hl_status check_rows(const hl_session *session, const hl_feed *feed)
{
    const hl_session_options *options = &session->options;
    int64_t longest = feed->n_tokens < options->n_chunk ? feed->n_tokens : options->n_chunk;

    if (options->steady && feed->sequences == NULL && longest < STEADY_ROWS)
        longest = options->n_chunk < STEADY_ROWS ? options->n_chunk : STEADY_ROWS;
    if (product(fed_count(session, feed), longest, 1) <= options->n_rows)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT,
                   "feed: %lld rows of %lld sequences, the session was opened for %lld in all",
                   (long long)longest, (long long)fed_count(session, feed),
                   (long long)options->n_rows);
}

static hl_status check_tokens(const hl_session *session, const hl_feed *feed, int64_t sequence)
{
    const hl_config *config = session->config;

    for (int64_t i = 0; i < hl_feed_length(feed, sequence); i++) {
        int64_t column = sequence * feed->n_tokens + i;
        int64_t token  = feed->tokens[column];
        int64_t type   = feed->token_types != NULL ? feed->token_types[column] : 0;

        if (token < 0 || token >= config->d_vocab)
            return hl_fail(HL_BAD_ARGUMENT,
                           "token %lld of sequence %lld is %lld, the model knows 0 to %lld",
                           (long long)i, (long long)sequence, (long long)token,
                           (long long)config->d_vocab - 1);
        if (type < 0 || (type > 0 && type >= config->n_token_types))
            return hl_fail(HL_BAD_ARGUMENT, "token type %lld, the model has %lld", (long long)type,
                           (long long)config->n_token_types);
    }
    return HL_OK;
}

static hl_status check_length(const hl_session *session, const hl_feed *feed, int64_t index)
{
    int64_t length   = hl_feed_length(feed, index);
    int64_t sequence = fed_sequence(feed, index);

    if (length < 0 || length > feed->n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "sequence %lld: %lld tokens of %lld", (long long)sequence,
                       (long long)length, (long long)feed->n_tokens);
    if (length > session->options.n_ctx - session->length[sequence])
        return hl_fail(HL_LIMIT,
                       "sequence %lld: %lld tokens after %lld are more than the context of %lld",
                       (long long)sequence, (long long)length, (long long)session->length[sequence],
                       (long long)session->options.n_ctx);
    return HL_OK;
}

static hl_status check_patterns(const hl_session *session, const hl_feed *feed)
{
    if (feed->tap == NULL || (feed->tap->wants & HL_WANT_PATTERN) == 0 ||
        feed->tap->patterns_differ)
        return HL_OK;
    for (int64_t i = 1; i < fed_count(session, feed); i++) {
        int64_t first = fed_sequence(feed, 0);
        int64_t other = fed_sequence(feed, i);

        if (session->length[other] != session->length[first])
            return hl_fail(HL_UNSUPPORTED,
                           "patterns: sequence %lld has %lld tokens and sequence %lld %lld, but a "
                           "position must be the same row in all",
                           (long long)other, (long long)session->length[other], (long long)first,
                           (long long)session->length[first]);
    }
    return HL_OK;
}

static hl_status check_stream_given(const hl_session *session, const hl_feed *feed)
{
    if (feed->stream == NULL && feed->first_layer != 0)
        return hl_fail(HL_BAD_ARGUMENT, "feed: from layer %lld on without a residual stream",
                       (long long)feed->first_layer);
    return check_option("first_layer", feed->first_layer, 0, session->config->n_layers);
}

static hl_status check_feed(const hl_session *session, const hl_feed *feed)
{
    hl_status status = HL_OK;

    if (feed == NULL || feed->n_tokens < 0 || (feed->tokens == NULL && feed->n_tokens > 0))
        return hl_fail(HL_BAD_ARGUMENT, "feed: no tokens");
    if (feed->segments != NULL)
        HL_TRY(check_option("n_segments", feed->n_segments, 1, HL_MAX_SEGMENTS));
    HL_TRY(check_sequences(session, feed));
    HL_TRY(check_rows(session, feed));
    HL_TRY(check_stream_given(session, feed));
    HL_TRY(hl_tap_check(feed->tap, &session->options, fed_count(session, feed)));
    HL_TRY(check_patterns(session, feed));
    for (int64_t i = 0; i < fed_count(session, feed); i++) {
        HL_TRY(check_length(session, feed, i));
        HL_TRY(check_tokens(session, feed, i));
    }

done:
    return status;
}

/* Columns [offset, offset + n_rows) of the feed. */
static void place_chunk(hl_chunk *chunk, const hl_session *session, int64_t offset)
{
    int64_t longest = 0;

    chunk->offset = offset;
    for (int64_t i = 0; i < chunk->n_batch; i++) {
        int64_t sequence = fed_sequence(chunk->feed, i);
        int64_t left     = hl_feed_length(chunk->feed, i) - offset;

        left                = left > session->options.n_chunk ? session->options.n_chunk : left;
        left                = left < 0 ? 0 : left;
        chunk->sequences[i] = sequence;
        chunk->lengths[i]   = left;
        chunk->start[i]     = session->length[sequence];
        chunk->ends[i]      = session->length[sequence] + left;
        longest             = left > longest ? left : longest;
    }
    /* Attention over fewer rows than a vector has lanes takes another way, which rounds
     * differently: whether it does must not depend on the longest of the batch.  Chosen
     * sequences are all as long. */
    if (session->options.steady && chunk->feed->sequences == NULL && longest > 0 &&
        longest < STEADY_ROWS)
        longest = session->options.n_chunk < STEADY_ROWS ? session->options.n_chunk : STEADY_ROWS;
    chunk->n_rows = longest;
}

static hl_status run_chunks(hl_session *session, const hl_feed *feed)
{
    int64_t  n_batch = session->options.n_batch;
    hl_chunk chunk   = { .feed      = feed,
                         .n_batch   = fed_count(session, feed),
                         .start     = session->places,
                         .lengths   = session->places + n_batch,
                         .ends      = session->places + 2 * n_batch,
                         .sequences = session->places + 3 * n_batch };

    for (int64_t offset = 0;; offset += session->options.n_chunk) {
        place_chunk(&chunk, session, offset);
        if (chunk.n_rows == 0)
            return HL_OK;
        hl_status status = hl_forward(session, &chunk);
        if (status != HL_OK)
            return status;
        for (int64_t i = 0; i < chunk.n_batch; i++)
            session->length[chunk.sequences[i]] = chunk.ends[i];
    }
}

hl_status hl_session_feed(hl_session *session, const hl_feed *feed)
{
    if (session == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: session is NULL");
    if (session->config->is_encoder)
        memset(session->length, 0, (size_t)session->options.n_batch * sizeof *session->length);
    hl_status status = check_feed(session, feed);
    return status == HL_OK ? run_chunks(session, feed) : status;
}

/* ------------------------------------------------------------------- questions */

static bool is_sequence(const hl_session *session, int64_t sequence)
{
    return session != NULL && sequence >= 0 && sequence < session->options.n_batch;
}

int64_t hl_session_length(const hl_session *session, int64_t sequence)
{
    return is_sequence(session, sequence) ? session->length[sequence] : 0;
}

hl_status hl_session_rewind(hl_session *session, int64_t sequence, int64_t length)
{
    if (!is_sequence(session, sequence))
        return hl_fail(HL_BAD_ARGUMENT, "rewind: no sequence %lld", (long long)sequence);
    if (length < 0 || length > session->length[sequence])
        return hl_fail(HL_BAD_ARGUMENT, "rewind: to %lld tokens, sequence %lld has %lld",
                       (long long)length, (long long)sequence,
                       (long long)session->length[sequence]);
    session->length[sequence] = length;
    return HL_OK;
}

int64_t hl_session_top(const hl_session *session, int64_t sequence)
{
    if (!is_sequence(session, sequence) || (session->options.wants & HL_WANT_LAST_TOP) == 0)
        return -1;
    if (session->device != NULL)
        return session->device->tops[sequence];
    return hl_logits_top(hl_session_logits(session, sequence), session->config->d_vocab);
}

const float *hl_session_logits(const hl_session *session, int64_t sequence)
{
    if (!is_sequence(session, sequence) || session->rows.last == NULL)
        return NULL;
    return session->rows.last + sequence * session->config->d_vocab;
}

size_t hl_session_bytes(const hl_session *session, size_t *cache_bytes)
{
    if (cache_bytes != NULL)
        *cache_bytes = session != NULL ? session->cache_bytes : 0;
    return session != NULL ? session->n_bytes : 0;
}
