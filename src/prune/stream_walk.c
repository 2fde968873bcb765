/* stream_walk.c - windows of tokens, one after the other, through parts of a model. */
#include "prune/stream_walk.h"

#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"
#include "measure/window.h"
#include "model/model.h"
#include "model/session.h"

struct hl_walk {
    const hl_config *config;
    hl_session      *session;
    int64_t         *tokens; /* (n_tokens) of all windows, with special tokens */
    size_t           token_room;
    int64_t          n_tokens;
    int64_t         *begins; /* (n_windows) index of each window's first token */
    size_t           begin_room;
    int64_t          n_windows;

    /* The fields below describe the current step. */
    const hl_walk_stream *stream;
    int64_t               layer;
    int64_t               begin; /* first token of the current window */
};

void hl_walk_close(hl_walk *walk)
{
    if (walk == NULL)
        return;
    hl_session_close(walk->session);
    hl_free(walk->tokens);
    hl_free(walk->begins);
    hl_free(walk);
}

static bool is_parallel(const hl_config *config)
{
    return config->residual != HL_RESIDUAL_SEQUENTIAL;
}

hl_status hl_walk_check(const hl_model *model)
{
    const hl_config *config = model->config;

    if (config->is_encoder)
        return hl_fail(HL_UNSUPPORTED,
                       "%s is an encoder: the stream behind its attention goes "
                       "through a norm before anything reads it",
                       model->path);
    if (config->norm_place == HL_NORM_POST)
        return hl_fail(HL_UNSUPPORTED,
                       "a %s norms the sum of stream and attention: the stream behind it is no "
                       "linear function of the output projection",
                       config->family);
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].n_heads > 0 && config->layers[i].mixer != HL_MIXER_NONE)
            return hl_fail(HL_UNSUPPORTED,
                           "layer %lld has a %s beside attention: the stream behind them is the "
                           "sum of both",
                           (long long)i, hl_mixer_name(config->layers[i].mixer));
    }
    return HL_OK;
}

/* Batches are single windows. */
static hl_status add_window(hl_walk *walk, const hl_batch *batch)
{
    int64_t n = batch->lengths[0];

    HL_NEED(HL_GROW(&walk->tokens, &walk->token_room, (size_t)walk->n_tokens, (size_t)n));
    HL_NEED(HL_GROW(&walk->begins, &walk->begin_room, (size_t)walk->n_windows, 1));
    memcpy(walk->tokens + walk->n_tokens, batch->tokens, (size_t)n * sizeof *walk->tokens);
    walk->begins[walk->n_windows++] = walk->n_tokens;
    walk->n_tokens += n;
    return HL_OK;
}

static hl_status read_text(hl_walk *walk, const hl_corpus *corpus, const hl_window_options *options)
{
    HL_CLOSED(hl_windows_close) hl_windows *windows = NULL;
    hl_batch                                batch;

    HL_NEED(hl_windows_open(&windows, corpus, options));
    for (;;) {
        HL_NEED(hl_windows_next(&batch, windows));
        if (batch.n_windows == 0)
            break;
        if (batch.lengths[0] > 0)
            HL_NEED(add_window(walk, &batch));
    }
    return walk->n_tokens > 0 ? HL_OK : hl_fail(HL_BAD_INPUT, "the text has no tokens");
}

hl_status hl_walk_open(hl_walk **out, const hl_model *model, const hl_corpus *corpus,
                       const hl_window_options *windows, int32_t n_threads)
{
    HL_CLOSED(hl_walk_close) hl_walk *walk  = NULL;
    hl_window_options                 each  = *windows;
    uint32_t                          wants = HL_WANT_Z;

    *out = NULL;
    HL_NEED(hl_walk_check(model));
    HL_NEED(HL_ALLOC_ZEROED(&walk, 1));
    walk->config = model->config;
    each.n_batch = 1;
    each.stride  = 0;
    each.n_ctx   = hl_config_ctx(model->config, windows->n_ctx);
    HL_NEED(read_text(walk, corpus, &each));
    wants |= is_parallel(model->config) ? HL_WANT_RESID_POST : HL_WANT_RESID_MID;
    HL_NEED(hl_session_open(
        &walk->session, model,
        &(hl_session_options){ .n_ctx = each.n_ctx, .wants = wants, .n_threads = n_threads }));
    *out = hl_taken(&walk);
    return HL_OK;
}

int64_t hl_walk_n_tokens(const hl_walk *walk)
{
    return walk->n_tokens;
}

uint64_t hl_walk_hash(const hl_walk *walk)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, 0);
    hl_hash_add(&hasher, walk->tokens, (size_t)walk->n_tokens * sizeof *walk->tokens);
    hl_hash_add(&hasher, walk->begins, (size_t)walk->n_windows * sizeof *walk->begins);
    return hl_hash_end(&hasher);
}

size_t hl_walk_bytes(const hl_walk *walk)
{
    return hl_session_bytes(walk->session, NULL) + walk->token_room * sizeof *walk->tokens +
           walk->begin_room * sizeof *walk->begins;
}

/* ------------------------------------------------------------------------ steps */

static hl_status take_rows(void *context, const hl_layer_rows *rows)
{
    const hl_walk        *walk   = context;
    const hl_walk_stream *stream = walk->stream;
    int64_t               at     = walk->begin + rows->start[0];
    int64_t               width  = rows->n_heads * rows->d_head;
    const float          *x      = is_parallel(walk->config) ? rows->resid_post : rows->resid_mid;

    if (rows->layer != walk->layer)
        return HL_OK;
    memcpy(stream->x + at * rows->d_model, x,
           (size_t)(rows->lengths[0] * rows->d_model) * sizeof *x);
    for (int64_t row = 0; row < rows->lengths[0] && stream->z != NULL; row++) {
        float *z = stream->z + (at + row) * stream->n_heads * rows->d_head;

        for (int64_t i = 0; i < stream->n_heads; i++)
            memcpy(z + i * rows->d_head, rows->z + row * width + stream->heads[i] * rows->d_head,
                   (size_t)rows->d_head * sizeof *z);
    }
    return HL_OK;
}

/* Describes a run from the stream after the attention of one layer to that of the next; with parallel
 * branches, a run of one whole layer. */
static hl_feed feed_of(const hl_walk *walk, int64_t window)
{
    bool    parallel = is_parallel(walk->config);
    int64_t end      = window + 1 < walk->n_windows ? walk->begins[window + 1] : walk->n_tokens;
    hl_feed feed     = { .tokens   = walk->tokens + walk->begin,
                         .n_tokens = end - walk->begin,
                         .gates    = walk->stream->gates,
                         .n_layers = 1,
                         .to_mid   = !parallel };

    if (walk->layer == 0)
        return feed;
    feed.stream      = walk->stream->x + walk->begin * walk->config->d_model;
    feed.first_layer = parallel ? walk->layer : walk->layer - 1;
    feed.from_mid    = !parallel;
    feed.n_layers    = parallel ? 1 : 2;
    return feed;
}

hl_status hl_walk_step(hl_walk *walk, const hl_walk_stream *stream, int64_t layer)
{
    hl_tap tap = { .context = walk,
                   .layer   = take_rows,
                   .wants   = HL_WANT_Z |
                            (is_parallel(walk->config) ? HL_WANT_RESID_POST : HL_WANT_RESID_MID) };

    walk->stream = stream;
    walk->layer  = layer;
    for (int64_t window = 0; window < walk->n_windows; window++) {
        walk->begin  = walk->begins[window];
        hl_feed feed = feed_of(walk, window);
        feed.tap     = &tap;
        HL_NEED(hl_session_rewind(walk->session, 0, 0));
        HL_NEED(hl_session_feed(walk->session, &feed));
    }
    walk->stream = NULL;
    return HL_OK;
}
