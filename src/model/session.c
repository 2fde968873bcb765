/* session.c - a session: opens it, if it fits into memory, feeds it and answers queries.
 *
 * A feed is checked, then cut into chunks that are run one after the other.  A chunk has at most
 * n_chunk rows of every sequence; an encoder, whose rows see later tokens, has one chunk.
 * session_memory.c has its memory, session_weights.c its weights. */
#include "model/session.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "kernels/logits.h"
#include "model/forward.h"
#include "model/model.h"

enum {
    DEFAULT_CHUNK = 512,
    MAX_CTX       = 1 << 30,
    MAX_BATCH     = 1 << 20,
    STEADY_ROWS   = 32, /* attention over fewer rows may round differently */
};

/* --------------------------------------------------------------------------------------- options */

static hl_status check_context(const hl_session_options *options, const hl_config *config)
{
    bool possible = config->position != HL_POSITION_LEARNED && options->beyond_ctx;

    if (config->n_ctx == 0 || options->n_ctx <= config->n_ctx || possible)
        return HL_OK;
    return hl_fail(HL_LIMIT, "a context of %lld tokens exceeds the model's limit of %lld%s",
                   (long long)options->n_ctx, (long long)config->n_ctx,
                   config->position == HL_POSITION_LEARNED
                       ? ", the number of positions it was trained with"
                       : "");
}

static hl_status complete_options(hl_session_options *options, const hl_config *config)
{
    options->n_ctx   = hl_config_ctx(config, options->n_ctx);
    options->n_batch = options->n_batch != 0 ? options->n_batch : 1;
    options->n_chunk = options->n_chunk != 0 ? options->n_chunk : DEFAULT_CHUNK;
    HL_NEED(hl_check_count("session: n_ctx", options->n_ctx, 1, MAX_CTX));
    HL_NEED(hl_check_count("session: n_batch", options->n_batch, 1, MAX_BATCH));
    HL_NEED(hl_check_count("session: n_chunk", options->n_chunk, 1, MAX_CTX));
    HL_NEED(hl_check_count("session: n_patterns", options->n_patterns, 0, MAX_CTX));
    HL_NEED(hl_check_count("session: n_rows", options->n_rows, 0, INT64_MAX));
    HL_NEED(hl_check_count("session: n_sampled", options->n_sampled, 0, MAX_CTX));
    HL_NEED(hl_check_count("session: n_kept", options->n_kept, -1, MAX_CTX));
    HL_NEED(hl_check_count("session: stream_every", options->stream_every, 0, INT64_MAX));
    HL_NEED(hl_check_count("session: n_threads", options->n_threads, 0, HL_MAX_THREADS));
    HL_NEED(hl_check_count("session: math", options->math, 0, HL_MATH_COUNT - 1));
    if (options->n_chunk > options->n_ctx || config->is_encoder)
        options->n_chunk = options->n_ctx;
    int64_t all = options->n_batch * options->n_chunk; /* cannot overflow: both are bounded */
    if (options->n_rows == 0 || options->n_rows > all)
        options->n_rows = all;
    options->n_kept = options->n_kept != 0 ? options->n_kept : options->n_ctx;
    if (options->n_kept < 0 || (options->wants & HL_WANT_DIVERGENCE) == 0)
        options->n_kept = 0;
    if (options->cache_dtype != HL_DTYPE_F32 && options->cache_dtype != HL_DTYPE_F16)
        return hl_fail(HL_BAD_ARGUMENT, "session: the cache can be F32 or F16, not %s",
                       hl_dtype_name(options->cache_dtype));
    if (config->latent.d_latent > 0 && (options->wants & (HL_WANT_Q | HL_WANT_K | HL_WANT_V)) != 0)
        return hl_fail(HL_UNSUPPORTED,
                       "session: latent attention has no rows of q, k and v of each head; z, the "
                       "stream and all statistics of rows are there");
    return check_context(options, config);
}

/* ---------------------------------------------------------------------------------- does it fit? */

/* Refuses a session that does not fit, with numbers, before the operating system does so without
 * them.  hl_session_measure knows a session's memory to the byte before it opens.  Weights are
 * mapped, so the system could drop and read them again, but then every token would wait for the
 * disk.  So they count as memory. */

static size_t weight_bytes(const hl_model *model)
{
    size_t         sum = 0;
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) == HL_OK)
            sum += tensor.n_bytes;
    }
    return sum;
}

/* Formats a size, such as "1.5 GiB". */
static const char *as_bytes(char out[32], size_t n_bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double                   value   = (double)n_bytes;
    int                      unit    = 0;

    for (; value >= 1024.0 && unit < 6; unit++)
        value /= 1024.0;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

/* Fails with HL_LIMIT, with the numbers, if there is a limit (hl_memory_limit) and the session does
 * not fit under it together with the memory already in use.  Copies of weights are given up first. */
static hl_status check_limit(const hl_model *model, hl_session_options *options)
{
    char              sum[32], weights[32], cache[32], work[32], others[32], allowed[32];
    hl_session_memory memory;
    size_t            limit = hl_memory_limited_to(), before = hl_memory_held();

    if (limit == 0)
        return HL_OK;
    HL_NEED(hl_session_measure(&memory, model, options));
    size_t n_weights = weight_bytes(model);
    double wanted =
        (double)n_weights + (double)memory.cache_bytes + (double)memory.work_bytes + (double)before;
    if (wanted <= (double)limit)
        return HL_OK;
    if (options->repack) {
        options->repack = false;
        return check_limit(model, options);
    }
    return hl_fail(HL_LIMIT,
                   "%s: %s of memory for %lld tokens (weights %s, cache %s, work %s, held already "
                   "%s), at most %s: a shorter context takes less, and max-memory allows more",
                   model->path, as_bytes(sum, (size_t)wanted), (long long)memory.n_ctx,
                   as_bytes(weights, n_weights), as_bytes(cache, memory.cache_bytes),
                   as_bytes(work, memory.work_bytes), as_bytes(others, before),
                   as_bytes(allowed, limit));
}

/* -------------------------------------------------------------------------------- open and close */

static hl_status check_head(const hl_session *session)
{
    uint32_t words = HL_WANT_LOGITS | HL_WANT_LAST_LOGITS | HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW |
                     HL_WANT_LENS | HL_WANT_LOSSES | HL_WANT_DIVERGENCE;

    if ((session->options.wants & words) == 0 ||
        hl_weights_get(session->weights, HL_ROLE_LM_HEAD, -1, 0) != NULL)
        return HL_OK;
    return hl_fail(HL_UNSUPPORTED, "%s has no output head, so no logits", session->model->path);
}

/* If `counting`, it only collects what hl_session_measure needs. */
static hl_status make_session(hl_session **out, const hl_model *model,
                              const hl_session_options *options, bool counting)
{
    HL_CLOSED(hl_session_close) hl_session *session = NULL;

    *out = NULL;
    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "session: model is NULL");
    HL_NEED(HL_ALLOC_ZEROED(&session, 1));
    session->model    = model;
    session->config   = model->config;
    session->weights  = model->weights;
    session->counting = counting;
    if (options != NULL)
        session->options = *options;
    HL_NEED(complete_options(&session->options, session->config));
    HL_NEED(check_head(session));
    session->pool.n_threads = hl_threads(session->options.n_threads);
    HL_NEED(hl_session_plan(session));
    *out = hl_taken(&session);
    return HL_OK;
}

hl_status hl_session_open(hl_session **out, const hl_model *model,
                          const hl_session_options *options)
{
    hl_session_options fitting = options != NULL ? *options : (hl_session_options){ 0 };

    *out = NULL;
    if (model != NULL)
        HL_NEED(check_limit(model, &fitting));
    return make_session(out, model, &fitting, false);
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
    hl_session_release(session);
    for (size_t i = 0; i < session->n_blocks; i++)
        hl_free(session->blocks[i]);
    hl_free(session->blocks);
    hl_free(session);
}

/* ------------------------------------------------------------------------------------------ taps */

/* The connection between a model and its observers.  Measuring, verifying, monitoring and serving
 * are taps; the forward pass computes no statistics beyond a row. */

static const char *const hooks[HL_N_HOOKS] = {
    [HL_HOOK_Q]           = "attn.hook_q",
    [HL_HOOK_K]           = "attn.hook_k",
    [HL_HOOK_V]           = "attn.hook_v",
    [HL_HOOK_Z]           = "attn.hook_z",
    [HL_HOOK_ATTN_SCORES] = "attn.hook_attn_scores",
    [HL_HOOK_PATTERN]     = "attn.hook_pattern",
    [HL_HOOK_ENTROPY]     = "attn.hook_entropy",
    [HL_HOOK_RESID_PRE]   = "hook_resid_pre",
    [HL_HOOK_RESID_MID]   = "hook_resid_mid",
    [HL_HOOK_RESID_POST]  = "hook_resid_post",
};

size_t hl_hook_name(char *out, size_t n_bytes, hl_hook hook, int64_t layer)
{
    const char *name   = (unsigned)hook < HL_N_HOOKS ? hooks[hook] : "?";
    int         length = snprintf(out, n_bytes, "blocks.%lld.%s", (long long)layer, name);
    return length < 0 ? 0 : (size_t)length;
}

/* The index of the first position that is not above the one before (or -1); -1 may end the list. */
static int64_t first_not_rising(const int64_t *positions, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (positions[i] <= positions[i - 1] && positions[i] != -1)
            return i;
    }
    return -1;
}

/* A tap may only want what the session was opened with. */
static hl_status check_tap(const hl_tap *tap, const hl_session_options *options, int64_t n_batch)
{
    int64_t n_patterns = n_batch > 0 ? options->n_batch * options->n_patterns / n_batch : 0;

    if (tap == NULL)
        return HL_OK;
    if ((tap->wants & ~options->wants) != 0)
        return hl_fail(HL_BAD_ARGUMENT, "the tap wants 0x%x, but the session was opened with 0x%x",
                       (unsigned)tap->wants, (unsigned)options->wants);
    if ((tap->wants & HL_WANT_PATTERN) == 0)
        return HL_OK;
    if (tap->n_pattern_positions < 0 || tap->n_pattern_positions > n_patterns)
        return hl_fail(HL_BAD_ARGUMENT,
                       "the tap names %lld positions, the session was opened for %lld",
                       (long long)tap->n_pattern_positions, (long long)n_patterns);
    for (int64_t list = 0; list < (tap->patterns_differ ? n_batch : 1); list++) {
        const int64_t *positions = tap->pattern_positions + list * tap->n_pattern_positions;
        int64_t        bad       = first_not_rising(positions, tap->n_pattern_positions);

        if (bad >= 0)
            return hl_fail(HL_BAD_ARGUMENT, "the tap's positions do not rise at [%lld]",
                           (long long)bad);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------------------ checks of a feed */

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
            return hl_fail(
                HL_BAD_ARGUMENT,
                "feed: sequence %lld follows sequence %lld; they must rise and stay below %lld",
                (long long)feed->sequences[i], (long long)before,
                (long long)session->options.n_batch);
    }
    return HL_OK;
}

/* Whether the rows of the largest chunk fit. */
static hl_status check_rows(const hl_session *session, const hl_feed *feed)
{
    const hl_session_options *options = &session->options;
    int64_t longest = feed->n_tokens < options->n_chunk ? feed->n_tokens : options->n_chunk;

    if (options->steady && feed->sequences == NULL && longest < STEADY_ROWS)
        longest = options->n_chunk < STEADY_ROWS ? options->n_chunk : STEADY_ROWS;
    if (longest == 0 || hl_feed_count(session, feed) <= options->n_rows / longest)
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT,
                   "feed: %lld rows of %lld sequences, the session was opened for %lld in all",
                   (long long)longest, (long long)hl_feed_count(session, feed),
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
            return hl_fail(HL_BAD_ARGUMENT, "token type %lld, wanted one below %lld",
                           (long long)type, (long long)config->n_token_types);
    }
    return HL_OK;
}

static hl_status check_length(const hl_session *session, const hl_feed *feed, int64_t index)
{
    int64_t length   = hl_feed_length(feed, index);
    int64_t sequence = hl_feed_sequence(feed, index);

    if (length < 0 || length > feed->n_tokens)
        return hl_fail(HL_BAD_ARGUMENT, "sequence %lld has a length of %lld, wanted 0 to %lld",
                       (long long)sequence, (long long)length, (long long)feed->n_tokens);
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
    for (int64_t i = 1; i < hl_feed_count(session, feed); i++) {
        int64_t first = hl_feed_sequence(feed, 0);
        int64_t other = hl_feed_sequence(feed, i);

        if (session->length[other] != session->length[first])
            return hl_fail(HL_UNSUPPORTED,
                           "patterns: sequence %lld has %lld tokens and sequence %lld %lld, but a "
                           "position must be the same row in all",
                           (long long)other, (long long)session->length[other], (long long)first,
                           (long long)session->length[first]);
    }
    return HL_OK;
}

/* Checks the targets of tokens whose losses the tap wants. */
static hl_status check_targets(const hl_session *session, const hl_feed *feed)
{
    if (feed->tap == NULL || (feed->tap->wants & HL_WANT_LOSSES) == 0)
        return HL_OK;
    if (feed->targets == NULL && feed->n_tokens > 0)
        return hl_fail(HL_BAD_ARGUMENT, "feed: losses are wanted, but there are no targets");
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        for (int64_t j = 0; j < hl_feed_length(feed, i); j++) {
            int64_t target = feed->targets[i * feed->n_tokens + j];

            if (target < -1 || target >= session->config->d_vocab)
                return hl_fail(HL_BAD_ARGUMENT,
                               "target %lld of sequence %lld is %lld, the model knows 0 to %lld",
                               (long long)j, (long long)hl_feed_sequence(feed, i),
                               (long long)target, (long long)session->config->d_vocab - 1);
        }
    }
    return HL_OK;
}

static hl_status check_room(const hl_session *session, const hl_feed *feed)
{
    if (feed->kept_by != NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: rows are kept, and compared with another session's");
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        if (hl_feed_length(feed, i) > session->options.n_kept)
            return hl_fail(
                HL_LIMIT, "feed: %lld rows of sequence %lld to keep, the session has room for %lld",
                (long long)hl_feed_length(feed, i), (long long)hl_feed_sequence(feed, i),
                (long long)session->options.n_kept);
    }
    return HL_OK;
}

/* Whether the keeper's rows can be compared with the session's at all. */
static hl_status check_keeper(const hl_session *session, const hl_session *keeper)
{
    if (session->device->ops != keeper->device->ops)
        return hl_fail(HL_BAD_ARGUMENT, "feed: rows are kept on another device");
    if (keeper->config->d_vocab != session->config->d_vocab)
        return hl_fail(HL_BAD_ARGUMENT, "feed: rows of %lld logits compared with rows of %lld",
                       (long long)session->config->d_vocab, (long long)keeper->config->d_vocab);
    return HL_OK;
}

static hl_status check_kept_rows(const hl_session *session, const hl_session *keeper,
                                 const hl_feed *feed, int64_t index)
{
    int64_t sequence = hl_feed_sequence(feed, index);
    int64_t start    = session->length[sequence];
    int64_t length   = hl_feed_length(feed, index);

    if (sequence < keeper->options.n_batch && hl_kept_has(keeper->kept[sequence], start, length))
        return HL_OK;
    return hl_fail(HL_BAD_ARGUMENT,
                   "feed: no logits are kept for positions %lld to %lld of sequence %lld",
                   (long long)start, (long long)(start + length - 1), (long long)sequence);
}

/* Checks that rows can be compared with kept rows, or be kept themselves. */
static hl_status check_kept(const hl_session *session, const hl_feed *feed)
{
    const hl_session *keeper = feed->kept_by != NULL ? feed->kept_by : session;

    if (feed->tap == NULL || feed->tap->final == NULL ||
        (feed->tap->wants & HL_WANT_DIVERGENCE) == 0)
        return feed->keeps_logits ? hl_fail(HL_BAD_ARGUMENT,
                                            "feed: logits are kept where the tap wants divergence")
                                  : HL_OK;
    if (feed->keeps_logits)
        return check_room(session, feed);
    HL_NEED(check_keeper(session, keeper));
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++)
        HL_NEED(check_kept_rows(session, keeper, feed, i));
    return HL_OK;
}

/* Drops the kept rows of the fed sequences, which the feed's rows replace. */
static void begin_keeping(hl_session *session, const hl_feed *feed)
{
    for (int64_t i = 0; i < hl_feed_count(session, feed) && feed->keeps_logits; i++) {
        int64_t sequence = hl_feed_sequence(feed, i);

        session->kept[sequence].begin = session->length[sequence];
        session->kept[sequence].end   = session->length[sequence];
    }
}

/* Checks that there is a residual stream to start from: the feed's, or a kept one. */
static hl_status check_stream(const hl_session *session, const hl_feed *feed)
{
    HL_NEED(
        hl_check_count("session: first_layer", feed->first_layer, 0, session->config->n_layers));
    HL_NEED(hl_check_count("session: n_layers", feed->n_layers, 0,
                           session->config->n_layers - feed->first_layer));
    if (feed->n_layers > 0 && session->streams.n_slots > 0)
        return hl_fail(HL_BAD_ARGUMENT, "feed: a session that keeps streams runs all layers");
    if (feed->stream != NULL && session->config->n_streams > 1)
        return hl_fail(HL_UNSUPPORTED,
                       "feed: the model has %lld residual streams, and one cannot be given alone",
                       (long long)session->config->n_streams);
    if (feed->from_mid || feed->to_mid) {
        if (session->config->residual != HL_RESIDUAL_SEQUENTIAL)
            return hl_fail(HL_UNSUPPORTED, "feed: both branches of a layer read one stream, so "
                                           "nothing lies between them");
        if (feed->n_layers == 0 || (feed->from_mid && feed->stream == NULL))
            return hl_fail(HL_BAD_ARGUMENT,
                           "feed: from_mid and to_mid need n_layers, from_mid a stream, too");
    }
    if (feed->stream == NULL && feed->first_layer != 0)
        HL_NEED(hl_streams_check(session, feed));
    return HL_OK;
}

/* Patches are written where the rows are, which is possible in the process's memory. */
static hl_status check_patches(const hl_session *session, const hl_feed *feed)
{
    if (feed->n_patches == 0)
        return HL_OK;
    if (!session->device->ops->is_near || session->device->dtype != HL_DTYPE_F32)
        return hl_fail(HL_UNSUPPORTED, "feed: outputs of heads can be replaced on the CPU alone");
    for (int64_t i = 0; i < feed->n_patches; i++) {
        HL_NEED(hl_check_count("feed: a patch's layer", feed->patches[i].layer, 0,
                               session->config->n_layers - 1));
        if (feed->patches[i].z == NULL)
            return hl_fail(HL_BAD_ARGUMENT, "feed: a patch without rows");
    }
    return HL_OK;
}

static hl_status check_feed(const hl_session *session, const hl_feed *feed)
{
    if (feed == NULL || feed->n_tokens < 0 || (feed->tokens == NULL && feed->n_tokens > 0))
        return hl_fail(HL_BAD_ARGUMENT, "feed: no tokens");
    if (feed->segments != NULL)
        HL_NEED(hl_check_count("session: n_segments", feed->n_segments, 1, HL_MAX_SEGMENTS));
    HL_NEED(check_sequences(session, feed));
    HL_NEED(check_rows(session, feed));
    HL_NEED(check_tap(feed->tap, &session->options, hl_feed_count(session, feed)));
    HL_NEED(check_patterns(session, feed));
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        HL_NEED(check_length(session, feed, i));
        HL_NEED(check_tokens(session, feed, i));
    }
    HL_NEED(check_targets(session, feed));
    HL_NEED(check_stream(session, feed));
    HL_NEED(check_patches(session, feed));
    return check_kept(session, feed);
}

/* ---------------------------------------------------------------------------------------- chunks */

/* Sets the chunk to columns [offset, offset + n_rows) of the feed. */
static void place_chunk(hl_chunk *chunk, const hl_session *session, int64_t offset)
{
    int64_t longest = 0;

    chunk->offset = offset;
    for (int64_t i = 0; i < chunk->n_batch; i++) {
        int64_t sequence = hl_feed_sequence(chunk->feed, i);
        int64_t left     = hl_feed_length(chunk->feed, i) - offset;

        left                = left > session->options.n_chunk ? session->options.n_chunk : left;
        left                = left < 0 ? 0 : left;
        chunk->sequences[i] = sequence;
        chunk->lengths[i]   = left;
        chunk->start[i]     = session->length[sequence];
        chunk->ends[i]      = session->length[sequence] + left;
        longest             = left > longest ? left : longest;
    }
    /* Attention over fewer rows than a vector has lanes uses another method, which rounds
     * differently.  That must not depend on the longest sequence of the batch.  Chosen sequences
     * all have the same length. */
    if (session->options.steady && chunk->feed->sequences == NULL && longest > 0 &&
        longest < STEADY_ROWS)
        longest = session->options.n_chunk < STEADY_ROWS ? session->options.n_chunk : STEADY_ROWS;
    chunk->n_rows = longest;
}

static hl_status run_chunks(hl_session *session, const hl_feed *feed)
{
    int64_t  n_batch = session->options.n_batch;
    hl_chunk chunk   = { .feed      = feed,
                         .n_batch   = hl_feed_count(session, feed),
                         .start     = session->places,
                         .lengths   = session->places + n_batch,
                         .ends      = session->places + 2 * n_batch,
                         .sequences = session->places + 3 * n_batch };

    begin_keeping(session, feed);
    hl_streams_begin(session, feed);
    for (int64_t offset = 0;; offset += session->options.n_chunk) {
        place_chunk(&chunk, session, offset);
        if (chunk.n_rows == 0)
            return HL_OK;
        hl_states_begin(session, &chunk);
        HL_NEED(hl_forward(session, &chunk));
        HL_NEED(hl_states_extend(session, &chunk));
        hl_streams_extend(session, &chunk);
        for (int64_t i = 0; i < chunk.n_batch; i++) {
            session->length[chunk.sequences[i]] = chunk.ends[i];
            if (feed->keeps_logits)
                session->kept[chunk.sequences[i]].end = chunk.ends[i];
        }
    }
}

hl_status hl_session_feed(hl_session *session, const hl_feed *feed)
{
    if (session == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "feed: session is NULL");
    if (session->config->is_encoder)
        memset(session->length, 0, (size_t)session->options.n_batch * sizeof *session->length);
    HL_NEED(check_feed(session, feed));
    HL_NEED(hl_states_recover(session, feed, run_chunks));
    return run_chunks(session, feed);
}

/* ------------------------------------------------------------------------------------- questions */

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
    if (session->device->tops != NULL)
        return session->device->tops[sequence];
    return hl_logits_top(hl_session_logits(session, sequence), session->config->d_vocab);
}

const float *hl_session_logits(const hl_session *session, int64_t sequence)
{
    if (!is_sequence(session, sequence) || (session->options.wants & HL_WANT_LAST_LOGITS) == 0)
        return NULL;
    return session->last + sequence * session->config->d_vocab;
}

size_t hl_session_bytes(const hl_session *session, size_t *cache_bytes)
{
    if (cache_bytes != NULL)
        *cache_bytes = session != NULL ? session->cache_bytes : 0;
    return session != NULL ? session->n_bytes : 0;
}

/* -------------------- places of kept streams, and which of their rows are valid */

int64_t hl_streams_slot(const hl_session *session, int64_t layer)
{
    int64_t every = session->options.stream_every;

    return every > 0 && layer > 0 && layer < session->config->n_layers && layer % every == 0
               ? layer / every - 1
               : -1;
}

float *hl_streams_rows(const hl_session *session, const hl_chunk *chunk, int64_t slot, int64_t b)
{
    int64_t sequence = slot * session->options.n_batch + chunk->sequences[b];

    return session->streams.x + (sequence * session->options.n_ctx + chunk->start[b]) *
                                    session->config->n_streams * session->config->d_model;
}

static hl_kept_range *range_of(const hl_session *session, int64_t slot, int64_t sequence)
{
    return session->streams.ranges + slot * session->options.n_batch + sequence;
}

/* The first slot that a feed that starts at this layer writes. */
static int64_t first_written(const hl_session *session, const hl_feed *feed)
{
    return session->streams.n_slots > 0 ? feed->first_layer / session->options.stream_every : 0;
}

hl_status hl_streams_check(const hl_session *session, const hl_feed *feed)
{
    int64_t slot = hl_streams_slot(session, feed->first_layer);

    if (slot < 0)
        return hl_fail(HL_BAD_ARGUMENT, "feed: from layer %lld on without a residual stream",
                       (long long)feed->first_layer);
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        int64_t sequence = hl_feed_sequence(feed, i);
        int64_t start    = session->length[sequence];
        int64_t length   = hl_feed_length(feed, i);

        if (!hl_kept_has(*range_of(session, slot, sequence), start, length))
            return hl_fail(HL_BAD_ARGUMENT,
                           "feed: the stream that layer %lld reads is not kept for positions %lld "
                           "to %lld of sequence %lld",
                           (long long)feed->first_layer, (long long)start,
                           (long long)(start + length - 1), (long long)sequence);
    }
    return HL_OK;
}

void hl_streams_begin(hl_session *session, const hl_feed *feed)
{
    for (int64_t slot = first_written(session, feed); slot < session->streams.n_slots; slot++) {
        for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
            int64_t        sequence = hl_feed_sequence(feed, i);
            int64_t        start    = session->length[sequence];
            hl_kept_range *range    = range_of(session, slot, sequence);

            if (start < range->begin || start > range->end)
                range->begin = start;
            range->end = start;
        }
    }
}

void hl_streams_extend(hl_session *session, const hl_chunk *chunk)
{
    for (int64_t slot = first_written(session, chunk->feed); slot < session->streams.n_slots;
         slot++) {
        for (int64_t b = 0; b < chunk->n_batch; b++)
            range_of(session, slot, chunk->sequences[b])->end = chunk->ends[b];
    }
}
