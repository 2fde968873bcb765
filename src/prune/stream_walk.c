/* stream_walk.c - windows of tokens, one after the other, through parts of a model. */
#include "prune/stream_walk.h"

#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"
#include "measure/window.h"
#include "model/forward.h"
#include "model/model.h"
#include "model/session.h"

enum { DEVICE_ROWS = 4096 };

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
    int64_t          n_first;         /* tokens of the first text */
    int64_t          n_first_windows; /* windows of the first text */

    const hl_scored_windows *scored; /* the second text, or NULL */
    walk_row                *rows;   /* (B, n_ctx) scores of the rows of a batch */
    int64_t                 *tops;   /* (B, n_ctx) most likely tokens of the reference stream */
    float                   *last;   /* (B, n_ctx, d_model) the stream after the last layer */

    /* B windows are fed at a time: one where memory is near, as many as keep a device busy.  The
     * fields below describe the current batch, of which the first n_fed windows exist. */
    int64_t  n_batch; /* B */
    int64_t  window;  /* number of its first window */
    int64_t  n_fed;
    int64_t  n_rows;  /* rows of the longest */
    int64_t *lengths; /* (B) rows that are fed */
    int64_t *fed;     /* (B, n_rows) tokens; room for n_ctx rows */
    int64_t *targets; /* (B, n_rows) */
    float   *packed;  /* (B, n_rows, d_model); NULL if B is 1 */

    /* The fields below describe the current step. */
    const hl_walk_stream *stream;
    int64_t               layer;
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
    hl_free(walk->lengths);
    hl_free(walk->fed);
    hl_free(walk->targets);
    hl_free(walk->packed);
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
    walk->n_first         = walk->n_tokens;
    walk->n_first_windows = walk->n_windows;
    return walk->n_tokens > 0 ? HL_OK : hl_fail(HL_BAD_INPUT, "the text has no tokens");
}

static hl_status add_scored(hl_walk *walk, const hl_scored_windows *scored)
{
    walk->scored = scored;
    for (int64_t i = 0; scored != NULL && i < scored->n_windows; i++)
        HL_NEED(
            add_window(walk, scored->tokens + scored->windows[i].begin, scored->windows[i].length));
    return HL_OK;
}

static hl_status make_rows(hl_walk *walk, int64_t n_ctx)
{
    size_t n_rows   = (size_t)(walk->n_batch * n_ctx);
    size_t n_stream = (size_t)walk->config->d_model * sizeof(float);

    HL_NEED(HL_ALLOC(&walk->lengths, (size_t)walk->n_batch));
    HL_NEED(HL_ALLOC_ZEROED(&walk->fed, n_rows));
    HL_NEED(HL_ALLOC_ZEROED(&walk->targets, n_rows));
    if (walk->n_batch > 1)
        HL_NEED(hl_alloc_zeroed((void **)&walk->packed, n_rows, n_stream));
    if (walk->scored == NULL)
        return HL_OK;
    HL_NEED(HL_ALLOC(&walk->rows, n_rows));
    HL_NEED(HL_ALLOC(&walk->tops, n_rows));
    return hl_alloc((void **)&walk->last, n_rows, n_stream);
}

/* Opens the session; on a device with as many windows at a time as fit. */
static hl_status open_session(hl_walk *walk, const hl_model *model, hl_session_options options)
{
    hl_device_choice choice = { 0 };

    HL_NEED(hl_device_choose(&choice, model, NULL));
    options.n_batch = choice.ops->is_near ? 1 : DEVICE_ROWS / options.n_ctx;
    if (options.n_batch > walk->n_windows)
        options.n_batch = walk->n_windows;
    if (options.n_batch < 1)
        options.n_batch = 1;
    hl_status status = hl_session_open(&walk->session, model, &options);
    while ((status == HL_NO_MEMORY || status == HL_LIMIT) && options.n_batch > 1) {
        options.n_batch /= 2;
        status = hl_session_open(&walk->session, model, &options);
    }
    HL_NEED(status);
    walk->n_batch = options.n_batch;
    return make_rows(walk, options.n_ctx);
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
    HL_NEED(add_scored(walk, scored));
    wants |= is_parallel(model->config) ? HL_WANT_RESID_POST : HL_WANT_RESID_MID;
    if (scored != NULL)
        wants |= HL_WANT_RESID_POST | HL_WANT_LOSSES | HL_WANT_DIVERGENCE;
    HL_NEED(open_session(
        walk, model,
        (hl_session_options){ .n_ctx = each.n_ctx, .wants = wants, .n_threads = n_threads }));
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
           walk->begin_room * sizeof *walk->begins +
           (walk->packed != NULL ? 2 : 0) * (size_t)(walk->n_batch * walk->session->options.n_ctx) *
               (size_t)walk->config->d_model * sizeof *walk->packed;
}

/* ------------------------------------------------------------------------ steps */

/* Places windows from `first` on, up to `end`, in the batch; each without its last n_without tokens. */
static hl_status place_batch(hl_walk *walk, int64_t first, int64_t end, int64_t n_without)
{
    walk->window = first;
    walk->n_fed  = end - first < walk->n_batch ? end - first : walk->n_batch;
    walk->n_rows = 0;
    for (int64_t b = 0; b < walk->n_batch; b++) {
        int64_t next = first + b + 1;
        int64_t stop = next < walk->n_windows ? walk->begins[next] : walk->n_tokens;

        walk->lengths[b] = b < walk->n_fed ? stop - walk->begins[next - 1] - n_without : 0;
        walk->n_rows     = walk->lengths[b] > walk->n_rows ? walk->lengths[b] : walk->n_rows;
        HL_NEED(hl_session_rewind(walk->session, b, 0));
    }
    for (int64_t b = 0; b < walk->n_fed; b++) {
        const int64_t *tokens  = walk->tokens + walk->begins[first + b];
        size_t         n_bytes = (size_t)walk->lengths[b] * sizeof *tokens;

        memcpy(walk->fed + b * walk->n_rows, tokens, n_bytes);
        if (n_without > 0)
            memcpy(walk->targets + b * walk->n_rows, tokens + 1, n_bytes);
    }
    return HL_OK;
}

/* Returns the batch's rows of a stream x of both texts. */
static const float *pack(hl_walk *walk, const float *x)
{
    int64_t d_model = walk->config->d_model;

    if (walk->n_batch == 1)
        return x + walk->begins[walk->window] * d_model;
    for (int64_t b = 0; b < walk->n_fed; b++)
        memcpy(walk->packed + b * walk->n_rows * d_model,
               x + walk->begins[walk->window + b] * d_model,
               (size_t)(walk->lengths[b] * d_model) * sizeof *x);
    return walk->packed;
}

/* Copies the rows of a window, the b-th of its batch. */
static void take_window(const hl_walk *walk, const hl_layer_rows *rows, int64_t b)
{
    const hl_walk_stream *stream = walk->stream;
    int64_t               at     = walk->begins[walk->window + b] + rows->start[b];
    int64_t               first  = b * rows->n_rows;
    int64_t               width  = rows->n_heads * rows->d_head;
    const float          *x      = is_parallel(walk->config) ? rows->resid_post : rows->resid_mid;

    memcpy(stream->x + at * rows->d_model, x + first * rows->d_model,
           (size_t)(rows->lengths[b] * rows->d_model) * sizeof *x);
    for (int64_t row = 0; row < rows->lengths[b] && stream->z != NULL; row++) {
        const float *from = rows->z + (first + row) * width;
        float       *z    = stream->z + (at + row) * stream->n_heads * rows->d_head;

        for (int64_t i = 0; i < stream->n_heads; i++)
            memcpy(z + i * rows->d_head, from + stream->heads[i] * rows->d_head,
                   (size_t)rows->d_head * sizeof *z);
    }
}

static hl_status take_rows(void *context, const hl_layer_rows *rows)
{
    const hl_walk *walk = context;

    for (int64_t b = 0; b < walk->n_fed && rows->layer == walk->layer; b++)
        take_window(walk, rows, b);
    return HL_OK;
}

/* Describes a run from the stream after the attention of one layer to that of the next; with parallel
 * branches, a run of one whole layer. */
static hl_feed feed_of(hl_walk *walk)
{
    bool    parallel = is_parallel(walk->config);
    hl_feed feed     = { .tokens   = walk->fed,
                         .n_tokens = walk->n_rows,
                         .lengths  = walk->lengths,
                         .gates    = walk->stream->gates,
                         .n_layers = 1,
                         .to_mid   = !parallel };

    if (walk->layer == 0)
        return feed;
    feed.stream      = pack(walk, walk->stream->x);
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
    for (int64_t window = 0; window < walk->n_windows; window += walk->n_fed) {
        HL_NEED(place_batch(walk, window, walk->n_windows, 0));
        hl_feed feed = feed_of(walk);
        feed.tap     = &tap;
        HL_NEED(hl_session_feed(walk->session, &feed));
    }
    walk->stream = NULL;
    return HL_OK;
}

/* ---------------------------------------------------------------------- scoring */

static hl_status take_last(void *context, const hl_layer_rows *rows)
{
    const hl_walk *walk = context;

    for (int64_t b = 0; b < walk->n_fed; b++)
        memcpy(walk->last + (b * walk->n_rows + rows->start[b]) * rows->d_model,
               rows->resid_post + b * rows->n_rows * rows->d_model,
               (size_t)(rows->lengths[b] * rows->d_model) * sizeof *walk->last);
    return HL_OK;
}

static hl_status take_scores(void *context, const hl_final_rows *rows)
{
    const hl_walk *walk = context;

    for (int64_t i = 0; i < rows->n_rows; i++)
        walk->rows[rows->sequence * walk->n_rows + rows->start + i] =
            (walk_row){ .nll = rows->losses[i], .kl = rows->divergence[i], .top = rows->tops[i] };
    return HL_OK;
}

/* Runs the last layer's MLP and the output head over the batch's rows x. */
static hl_status predict(hl_walk *walk, const float *x, bool keeps)
{
    int64_t n_layers = walk->config->n_layers;
    hl_tap  middle   = { .context = walk, .layer = take_last, .wants = HL_WANT_RESID_POST };
    hl_tap  end      = { .context = walk,
                         .final   = take_scores,
                         .wants   = HL_WANT_LOSSES | HL_WANT_DIVERGENCE };
    hl_feed feed     = { .tokens   = walk->fed,
                         .n_tokens = walk->n_rows,
                         .lengths  = walk->lengths,
                         .stream   = x,
                         .tap      = &middle };

    if (!is_parallel(walk->config)) {
        feed.first_layer = n_layers - 1;
        feed.n_layers    = 1;
        feed.from_mid    = true;
        HL_NEED(hl_session_feed(walk->session, &feed));
        feed.stream   = walk->last;
        feed.n_layers = 0;
        feed.from_mid = false;
    }
    for (int64_t b = 0; b < walk->n_batch; b++)
        HL_NEED(hl_session_rewind(walk->session, b, 0));
    feed.tap          = &end;
    feed.first_layer  = n_layers;
    feed.targets      = walk->targets;
    feed.keeps_logits = keeps;
    return hl_session_feed(walk->session, &feed);
}

/* Adds up a window, the b-th of its batch; the reference stream comes first and leaves its most likely
 * tokens. */
static hl_status add_rows(hl_scores *out, hl_walk *walk, int64_t b, bool is_reference)
{
    int64_t                 index  = walk->window + b - walk->n_first_windows;
    const hl_scored_window *window = &walk->scored->windows[index];
    const walk_row         *rows   = walk->rows + b * walk->n_rows;
    int64_t                *tops   = walk->tops + b * walk->n_rows;

    *out = (hl_scores){ 0 };
    for (int64_t i = window->first - 1; i < window->length - 1; i++) {
        if (is_reference)
            tops[i] = rows[i].top;
        out->nll += rows[i].nll;
        out->kl += rows[i].kl;
        out->n_same += rows[i].top == tops[i];
    }
    if (isfinite(out->nll) && isfinite(out->kl))
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "window %lld of the text: its losses are NaN or infinite",
                   (long long)index);
}

/* Scores the batch under a stream: `scores` has one entry per window of the second text. */
static hl_status score_batch(hl_scores *scores, hl_walk *walk, const float *stream,
                             bool is_reference)
{
    int64_t first = walk->window - walk->n_first_windows;

    HL_NEED(predict(walk, pack(walk, stream), is_reference));
    for (int64_t b = 0; b < walk->n_fed; b++)
        HL_NEED(add_rows(&scores[first + b], walk, b, is_reference));
    return HL_OK;
}

hl_status hl_walk_score(hl_evaluation *out, hl_walk *walk, const float *reference,
                        float *const *streams)
{
    for (int64_t i = walk->n_first_windows; i < walk->n_windows; i += walk->n_fed) {
        HL_NEED(place_batch(walk, i, walk->n_windows, 1));
        HL_NEED(score_batch(out->dense, walk, reference, true));
        for (int64_t k = 0; k < out->n_settings; k++) {
            if (streams[k] == NULL)
                continue;
            for (int64_t b = 0; b < walk->n_batch; b++)
                HL_NEED(hl_session_rewind(walk->session, b, 0));
            HL_NEED(score_batch(out->scores + k * out->n_windows, walk, streams[k], false));
        }
    }
    return HL_OK;
}
