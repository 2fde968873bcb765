/* stream_walk.c - windows of tokens, one after the other, through parts of a model. */
#include "prune/stream_walk.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"
#include "measure/window.h"
#include "model/model.h"
#include "model/session.h"

/* The scores of one row. */
typedef struct walk_row {
    double  nll, kl;
    int64_t top;
} walk_row;

struct hl_walk {
    const hl_config *config;
    hl_session      *session;
    int64_t         *tokens; /* (n_tokens) of all windows, with special tokens */
    size_t           token_room;
    int64_t          n_tokens;
    int64_t         *begins; /* (n_windows) index of each window's first token */
    size_t           begin_room;
    int64_t          n_windows;
    int64_t          n_first; /* tokens of the first text */

    const hl_scored_windows *scored; /* the second text, or NULL */
    walk_row                *rows;   /* (n_ctx) scores of a window's rows */
    int64_t                 *tops;   /* (n_ctx) most likely tokens of the reference stream */
    float                   *last;   /* (n_ctx, d_model) the stream after the last layer */

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
    hl_free(walk->rows);
    hl_free(walk->tops);
    hl_free(walk->last);
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
    if (config->n_streams > 1)
        return hl_fail(
            HL_UNSUPPORTED,
            "a %s has %lld residual streams: what attention writes reaches the others by "
            "products with them",
            config->family, (long long)config->n_streams);
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].n_heads > 0 && config->layers[i].mixer != HL_MIXER_NONE)
            return hl_fail(HL_UNSUPPORTED,
                           "layer %lld has a %s beside attention: the stream behind them is the "
                           "sum of both",
                           (long long)i, hl_mixer_name(config->layers[i].mixer));
    }
    return HL_OK;
}

static hl_status add_window(hl_walk *walk, const int64_t *tokens, int64_t n)
{
    HL_NEED(HL_GROW(&walk->tokens, &walk->token_room, (size_t)walk->n_tokens, (size_t)n));
    HL_NEED(HL_GROW(&walk->begins, &walk->begin_room, (size_t)walk->n_windows, 1));
    memcpy(walk->tokens + walk->n_tokens, tokens, (size_t)n * sizeof *walk->tokens);
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
        if (batch.lengths[0] > 0) /* batches are single windows */
            HL_NEED(add_window(walk, batch.tokens, batch.lengths[0]));
    }
    walk->n_first = walk->n_tokens;
    return walk->n_tokens > 0 ? HL_OK : hl_fail(HL_BAD_INPUT, "the text has no tokens");
}

static hl_status add_scored(hl_walk *walk, const hl_scored_windows *scored, int64_t n_ctx)
{
    walk->scored = scored;
    if (scored == NULL)
        return HL_OK;
    for (int64_t i = 0; i < scored->n_windows; i++)
        HL_NEED(
            add_window(walk, scored->tokens + scored->windows[i].begin, scored->windows[i].length));
    HL_NEED(HL_ALLOC(&walk->rows, (size_t)n_ctx));
    HL_NEED(HL_ALLOC(&walk->tops, (size_t)n_ctx));
    return hl_alloc((void **)&walk->last, (size_t)n_ctx,
                    (size_t)walk->config->d_model * sizeof *walk->last);
}

hl_status hl_walk_open(hl_walk **out, const hl_model *model, const hl_corpus *corpus,
                       const hl_window_options *windows, const hl_scored_windows *scored,
                       int32_t n_threads)
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
    HL_NEED(add_scored(walk, scored, each.n_ctx));
    wants |= is_parallel(model->config) ? HL_WANT_RESID_POST : HL_WANT_RESID_MID;
    if (scored != NULL)
        wants |= HL_WANT_RESID_POST | HL_WANT_LOSSES | HL_WANT_DIVERGENCE;
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

int64_t hl_walk_n_first(const hl_walk *walk)
{
    return walk->n_first;
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

/* ---------------------------------------------------------------------- scoring */

static hl_status take_last(void *context, const hl_layer_rows *rows)
{
    const hl_walk *walk = context;

    memcpy(walk->last + rows->start[0] * rows->d_model, rows->resid_post,
           (size_t)(rows->lengths[0] * rows->d_model) * sizeof *walk->last);
    return HL_OK;
}

static hl_status take_scores(void *context, const hl_final_rows *rows)
{
    const hl_walk *walk = context;

    for (int64_t i = 0; i < rows->n_rows; i++)
        walk->rows[rows->start + i] =
            (walk_row){ .nll = rows->losses[i], .kl = rows->divergence[i], .top = rows->tops[i] };
    return HL_OK;
}

/* Runs the last layer's MLP and the output head over a window's stream x. */
static hl_status predict(hl_walk *walk, const hl_scored_window *window, const float *x, bool keeps)
{
    const int64_t *tokens   = walk->scored->tokens + window->begin;
    int64_t        n_layers = walk->config->n_layers;
    hl_tap         middle   = { .context = walk, .layer = take_last, .wants = HL_WANT_RESID_POST };
    hl_tap         end      = { .context = walk,
                                .final   = take_scores,
                                .wants   = HL_WANT_LOSSES | HL_WANT_DIVERGENCE };
    hl_feed        feed     = {
                   .tokens = tokens, .n_tokens = window->length - 1, .stream = x, .tap = &middle
    };

    HL_NEED(hl_session_rewind(walk->session, 0, 0));
    if (!is_parallel(walk->config)) {
        feed.first_layer = n_layers - 1;
        feed.n_layers    = 1;
        feed.from_mid    = true;
        HL_NEED(hl_session_feed(walk->session, &feed));
        HL_NEED(hl_session_rewind(walk->session, 0, 0));
        feed.stream   = walk->last;
        feed.n_layers = 0;
        feed.from_mid = false;
    }
    feed.tap          = &end;
    feed.first_layer  = n_layers;
    feed.targets      = tokens + 1;
    feed.keeps_logits = keeps;
    return hl_session_feed(walk->session, &feed);
}

/* Adds up a window; the reference stream comes first and leaves its most likely tokens. */
static hl_status add_rows(hl_scores *out, hl_walk *walk, int64_t index, bool is_reference)
{
    const hl_scored_window *window = &walk->scored->windows[index];

    *out = (hl_scores){ 0 };
    for (int64_t i = window->first - 1; i < window->length - 1; i++) {
        if (is_reference)
            walk->tops[i] = walk->rows[i].top;
        out->nll += walk->rows[i].nll;
        out->kl += walk->rows[i].kl;
        out->n_same += walk->rows[i].top == walk->tops[i];
    }
    if (isfinite(out->nll) && isfinite(out->kl))
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "window %lld of the text: its losses are NaN or infinite",
                   (long long)index);
}

hl_status hl_walk_score(hl_evaluation *out, hl_walk *walk, const float *reference,
                        float *const *streams)
{
    int64_t d_model = walk->config->d_model;

    for (int64_t i = 0; i < walk->scored->n_windows; i++) {
        const hl_scored_window *window = &walk->scored->windows[i];
        int64_t                 at     = (walk->n_first + window->begin) * d_model;

        HL_NEED(predict(walk, window, reference + at, true));
        HL_NEED(add_rows(&out->dense[i], walk, i, true));
        for (int64_t k = 0; k < out->n_settings; k++) {
            if (streams[k] == NULL)
                continue;
            HL_NEED(predict(walk, window, streams[k] + at, false));
            HL_NEED(add_rows(&out->scores[k * out->n_windows + i], walk, i, false));
        }
    }
    return HL_OK;
}
