/* session.c - what a session is opened for, and what can be asked of it.
 *
 * Its memory is session_memory.c's, feeding it session_feed.c's. */
#include "model/session.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/device.h"
#include "model/logits.h"
#include "model/model.h"
#include "model/session_limit.h"

enum {
    DEFAULT_CTX   = 4096,
    DEFAULT_CHUNK = 512,
    MAX_CTX       = 1 << 30,
    MAX_BATCH     = 1 << 20,
};

/* ------------------------------------------------------------------- options */

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
    int64_t by_model =
        config->n_ctx > 0 && config->n_ctx < DEFAULT_CTX ? config->n_ctx : DEFAULT_CTX;

    options->n_ctx   = options->n_ctx != 0 ? options->n_ctx : by_model;
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
    HL_NEED(
        hl_check_count("session: activations", options->activations, 0, HL_ACTIVATIONS_COUNT - 1));
    if (options->n_chunk > options->n_ctx || config->is_encoder)
        options->n_chunk = options->n_ctx;
    int64_t all = options->n_batch * options->n_chunk; /* both are bounded */
    if (options->n_rows == 0 || options->n_rows > all)
        options->n_rows = all;
    options->n_kept = options->n_kept != 0 ? options->n_kept : options->n_ctx;
    if (options->n_kept < 0 || (options->wants & HL_WANT_DIVERGENCE) == 0)
        options->n_kept = 0;
    if (options->cache_dtype != HL_DTYPE_F32 && options->cache_dtype != HL_DTYPE_F16)
        return hl_fail(HL_BAD_ARGUMENT, "session: the cache can be F32 or F16, not %s",
                       hl_dtype_name(options->cache_dtype));
    return check_context(options, config);
}

/* ------------------------------------------------------------- open and close */

static hl_status check_head(const hl_session *session)
{
    uint32_t words = HL_WANT_LOGITS | HL_WANT_LAST_LOGITS | HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW |
                     HL_WANT_LENS | HL_WANT_LOSSES | HL_WANT_DIVERGENCE;

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
    HL_TRY(hl_session_plan(session));
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
    for (size_t i = 0; i < session->n_blocks; i++)
        hl_free(session->blocks[i]);
    hl_free(session->blocks);
    hl_free(session);
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
    if (!is_sequence(session, sequence) || (session->options.wants & HL_WANT_LAST_LOGITS) == 0)
        return NULL;
    return session->rows.last + sequence * session->config->d_vocab;
}

size_t hl_session_bytes(const hl_session *session, size_t *cache_bytes)
{
    if (cache_bytes != NULL)
        *cache_bytes = session != NULL ? session->cache_bytes : 0;
    return session != NULL ? session->n_bytes : 0;
}
