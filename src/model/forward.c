/* forward.c - runs one chunk through all blocks.
 *
 * config.h shows what a block computes; blocks.c runs one.  This file has the stream that the first
 * block reads, the order of layers, the search for non-finite values, and decoding steps that are
 * recorded once and replayed. */
#include <string.h>

#include "base/status.h"
#include "model/forward.h"

/* What needs the residual stream after the last block, where the feed gets there. */
bool hl_forward_needs_end(const hl_session *session, const hl_chunk *chunk)
{
    uint32_t end = HL_WANT_RESID_POST | HL_WANT_LENS | HL_WANT_HIDDEN | HL_WANT_LOGITS |
                   HL_WANT_LOSSES | HL_WANT_DIVERGENCE;
    uint32_t last = HL_WANT_LAST_LOGITS | HL_WANT_LAST_TOP | HL_WANT_LAST_DRAW;

    return chunk->feed->n_layers == 0 &&
           ((hl_chunk_wants(chunk) & end) != 0 || (session->options.wants & last) != 0);
}

/* ------------------------------------------------------------------ kept streams */

/* Copies a sequence's rows of the chunk to the kept streams, or back.  A kept row has all streams of a
 * position side by side. */
static hl_status copy_stream(const hl_session *session, const hl_chunk *chunk, int64_t b,
                             hl_device_copy_rows copy)
{
    const hl_device_session *d = session->device;

    copy.out_dtype = copy.x_dtype = HL_DTYPE_F32;
    copy.n                        = session->config->d_model;
    copy.n_rows                   = chunk->lengths[b];
    return hl_device_checked(d, d->ops->copy_rows(d->device, &copy), "kept streams");
}

/* Writes the input of `layer`, with all pending outputs added. */
static hl_status put_stream(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_device_session *d         = session->device;
    int64_t                  d_model   = session->config->d_model;
    int64_t                  n_streams = session->config->n_streams;
    int64_t                  slot      = hl_streams_slot(session, layer);

    for (int64_t i = 0; i < chunk->n_batch * n_streams && slot >= 0; i++) {
        int64_t             b = i / n_streams, stream = i % n_streams;
        int64_t             first = b * chunk->n_rows * d_model;
        hl_device_copy_rows copy  = { .out = hl_streams_rows(session, chunk, slot, b) +
                                             stream * d_model,
                                      .out_stride = n_streams * d_model,
                                      .x          = d->rows.x + stream * d->rows.stride + first,
                                      .x_stride   = d_model,
                                      .add_dtype  = d->dtype,
                                      .add_scale  = (float)session->config->residual_scale };

        for (int j = 0; j < 2 && d->pending[j] != NULL && stream == 0; j++)
            copy.add[j] = (const uint8_t *)d->pending[j] + (size_t)first * d->size;
        HL_NEED(copy_stream(session, chunk, b, copy));
    }
    return HL_OK;
}

static hl_status get_stream(const hl_session *session, const hl_chunk *chunk)
{
    const hl_device_session *d         = session->device;
    int64_t                  d_model   = session->config->d_model;
    int64_t                  n_streams = session->config->n_streams;
    int64_t                  slot      = hl_streams_slot(session, chunk->feed->first_layer);

    for (int64_t i = 0; i < chunk->n_batch * n_streams; i++) {
        int64_t             b = i / n_streams, stream = i % n_streams;
        hl_device_copy_rows copy = {
            .out        = d->rows.x + stream * d->rows.stride + b * chunk->n_rows * d_model,
            .out_stride = d_model,
            .x          = hl_streams_rows(session, chunk, slot, b) + stream * d_model,
            .x_stride   = n_streams * d_model
        };

        HL_NEED(copy_stream(session, chunk, b, copy));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- numbers */

/* Sets rows.flag if the stream, with all pending outputs, has a non-finite value. */
static hl_status look_for_nan(hl_session *session)
{
    hl_device_session *d = session->device;

    HL_NEED(hl_device_settle(session));
    HL_NEED(hl_device_checked(d, d->ops->zero(d->device, d->rows.flag, 2 * sizeof *d->rows.flag),
                              "flag"));
    return hl_device_checked(
        d,
        d->ops->finite(d->device, &(hl_device_finite){ .flag   = d->rows.flag,
                                                       .x      = d->rows.x,
                                                       .n      = session->config->d_model,
                                                       .places = d->inputs.places }),
        "flag");
}

static hl_status send_flag(const hl_device_session *d)
{
    return hl_device_checked(
        d, d->ops->copy_out(d->device, 0, d->flag, d->rows.flag, sizeof *d->flag), "flag");
}

static hl_status wait_for_ends(const hl_device_session *d)
{
    return hl_device_checked(d, d->ops->arrived(d->device, 0), "copies");
}

/* After the flag has arrived: searches the weights for the cause, once per session. */
static hl_status check_flag(hl_session *session)
{
    if (*session->device->flag == 0 || session->searched[1])
        return HL_OK;
    session->searched[1] = true;
    for (int64_t layer = -1; layer < session->config->n_layers; layer++)
        HL_NEED(hl_session_find_nan(session, layer));
    hl_log(HL_LOG_WARNING, "the residual stream overflows, the weights are numbers");
    return HL_OK;
}

/* A near device is checked after every layer (-1: after the embeddings). */
static hl_status check_stream(hl_session *session, int64_t layer)
{
    if (!session->device->ops->is_near)
        return HL_OK;
    HL_NEED(hl_device_settle(session));
    if (session->searched[layer + 1])
        return HL_OK;
    HL_NEED(look_for_nan(session));
    if (*session->device->flag == 0)
        return HL_OK;
    session->searched[layer + 1] = true;
    HL_NEED(hl_session_find_nan(session, layer));
    hl_log(HL_LOG_WARNING, "layer %lld: the residual stream overflows, the weights are numbers",
           (long long)layer);
    return HL_OK;
}

/* Other devices are checked once, at the end, because NaNs stay in the residual stream. */
static hl_status check_end(hl_session *session)
{
    if (session->device->ops->is_near)
        return HL_OK;
    HL_NEED(look_for_nan(session));
    HL_NEED(send_flag(session->device));
    HL_NEED(wait_for_ends(session->device));
    return check_flag(session);
}

/* ------------------------------------------------------------------------ blocks */

/* Whether a tap or an observer is called for each layer. */
static bool is_watched(const hl_chunk *chunk)
{
    return chunk->feed->tap != NULL && chunk->feed->tap->layer != NULL;
}

static hl_status run_block(hl_session *session, const hl_chunk *chunk, int64_t layer, int lane)
{
    if (is_watched(chunk))
        return hl_observe_block(session, chunk, layer, lane);
    session->device->watch = (hl_device_watch){ 0 };
    return hl_block_run(session, chunk, layer);
}

/* Runs all blocks.  A near device reports each layer when it ends, others during the next layer. */
static hl_status run_blocks(hl_session *session, const hl_chunk *chunk)
{
    bool near  = session->device->ops->is_near;
    int  lane  = 0;
    int  other = near ? 0 : 1;

    for (int64_t layer = chunk->feed->first_layer; layer < hl_chunk_end_layer(session, chunk);
         layer++) {
        if (layer > chunk->feed->first_layer)
            HL_NEED(put_stream(session, chunk, layer));
        HL_NEED(run_block(session, chunk, layer, lane));
        HL_NEED(check_stream(session, layer));
        if (layer == chunk->feed->first_layer && !near)
            HL_NEED(hl_observe_tell_embedded(session, chunk));
        HL_NEED(hl_observe_tell(session, chunk, other));
        if (!near) {
            other = lane;
            lane  = 1 - lane;
        }
    }
    return hl_observe_tell(session, chunk, other);
}

/* --------------------------------------------------------------------- ends */

/* Prepares x as the first layer to run reads it. */
static hl_status begin_stream(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d       = session->device;
    const hl_feed     *feed    = chunk->feed;
    int64_t            d_model = session->config->d_model;

    d->pending[0] = NULL;
    d->pending[1] = NULL;
    if (feed->stream == NULL && feed->first_layer > 0)
        return get_stream(session, chunk);
    if (feed->stream == NULL)
        return hl_forward_embed(session, chunk);
    for (int64_t b = 0; b < chunk->n_batch; b++)
        HL_NEED(hl_device_checked(
            d,
            d->ops->copy_in(d->device, d->rows.x + b * chunk->n_rows * d_model,
                            feed->stream + (b * feed->n_tokens + chunk->offset) * d_model,
                            (size_t)(chunk->lengths[b] * d_model) * sizeof(float)),
            "inputs"));
    return HL_OK;
}

static hl_status make_angles(const hl_session *session)
{
    const hl_device_session *d = session->device;

    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        const hl_rope *rope = &session->config->ropes[choice];

        if (rope->n_dims == 0)
            continue;
        HL_NEED(hl_device_checked(
            d,
            d->ops->angles(d->device,
                           &(hl_device_angles){ .cosine      = d->rows.cosine[choice],
                                                .sine        = d->rows.sine[choice],
                                                .frequencies = d->inputs.frequencies[choice],
                                                .n_pairs     = rope->n_dims / 2,
                                                .factors     = d->inputs.factors[choice],
                                                .places      = d->inputs.places }),
            "angles"));
    }
    return HL_OK;
}

static hl_status run_chunk(hl_session *session, const hl_chunk *chunk)
{
    HL_NEED(make_angles(session));
    HL_NEED(begin_stream(session, chunk));
    HL_NEED(check_stream(session, -1));
    HL_NEED(hl_observe_embedded(session, chunk));
    HL_NEED(run_blocks(session, chunk));
    HL_NEED(check_end(session));
    if (!hl_forward_needs_end(session, chunk))
        return HL_OK;
    HL_NEED(hl_forward_merge(session));
    HL_NEED(hl_forward_final(session, chunk));
    HL_NEED(hl_forward_make_last(session, chunk));
    HL_NEED(hl_forward_send_last(session, chunk));
    HL_NEED(wait_for_ends(session->device));
    return hl_forward_receive_last(session, chunk);
}

/* ---------------------------------------------------------------------- steps */

/* Whether the chunk is a decoding step: few rows, with only statistics and last logits wanted. */
static bool is_step(const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    return !session->device->ops->is_near && hl_chunk_rows(chunk) <= session->device->step_rows &&
           chunk->feed->stream == NULL && chunk->feed->n_layers == 0 &&
           session->streams.n_slots == 0 && !session->config->is_encoder &&
           (tap == NULL || ((tap->wants & ~(uint32_t)HL_WANT_LAST_LOGITS) == 0 &&
                            tap->embedded == NULL && tap->sampled_positions == NULL));
}

/* Issues the part that runs on the device; it makes the same calls for all steps of a kind. */
static hl_status issue_step(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d          = session->device;
    int64_t            n_segments = hl_chunk_segments(chunk);

    HL_NEED(make_angles(session));
    HL_NEED(begin_stream(session, chunk));
    for (int64_t layer = 0; layer < session->config->n_layers; layer++) {
        d->watch = (hl_device_watch){ 0 };
        if (is_watched(chunk))
            d->watch.statistics = hl_device_place_statistics(
                (uint8_t *)d->all_statistics.device + (size_t)layer * d->step_bytes,
                hl_chunk_rows(chunk) * session->config->layers[layer].n_heads, n_segments);
        HL_NEED(hl_block_run(session, chunk, layer));
    }
    HL_NEED(look_for_nan(session));
    HL_NEED(hl_forward_merge(session));
    return hl_forward_make_last(session, chunk);
}

static bool is_step_for(const hl_device_step *step, const hl_device_session *d,
                        const hl_chunk *chunk)
{
    return step->n_batch == chunk->n_batch && step->n_rows == chunk->n_rows &&
           step->n_keys == d->inputs.n_keys && step->is_watched == is_watched(chunk) &&
           step->has_gates == (d->inputs.gates != NULL) &&
           step->gates_differ == d->inputs.gates_differ &&
           step->n_segments == hl_chunk_segments(chunk) &&
           memcmp(step->sequences, chunk->sequences,
                  (size_t)chunk->n_batch * sizeof *step->sequences) == 0;
}

static void note_step(hl_device_step *step, const hl_device_session *d, const hl_chunk *chunk)
{
    step->n_batch      = chunk->n_batch;
    step->n_rows       = chunk->n_rows;
    step->n_keys       = d->inputs.n_keys;
    step->is_watched   = is_watched(chunk);
    step->has_gates    = d->inputs.gates != NULL;
    step->gates_differ = d->inputs.gates_differ;
    step->n_segments   = hl_chunk_segments(chunk);
    memcpy(step->sequences, chunk->sequences, (size_t)chunk->n_batch * sizeof *step->sequences);
}

/* Returns the recorded step of this kind, or a new one that replaces the oldest. */
static hl_device_step *find_step(hl_device_session *d, const hl_chunk *chunk, bool *is_new)
{
    for (int i = 0; i < HL_DEVICE_STEPS; i++) {
        *is_new = false;
        if (is_step_for(&d->steps[i], d, chunk))
            return &d->steps[i];
    }
    hl_device_step *step = &d->steps[d->next_step];
    d->next_step         = (d->next_step + 1) % HL_DEVICE_STEPS;
    if (step->graph != NULL)
        d->ops->graph_free(d->device, step->graph);
    step->graph = NULL;
    note_step(step, d, chunk);
    *is_new = true;
    return step;
}

/* The first step of a kind runs without recording, which also initializes the device's libraries;
 * the second is recorded. */
static hl_status run_step(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = session->device;
    bool               is_new = false;

    if (d->ops->graph_begin == NULL)
        return issue_step(session, chunk);
    hl_device_step *step = find_step(d, chunk, &is_new);
    if (is_new)
        return issue_step(session, chunk);
    if (step->graph == NULL) {
        HL_NEED(hl_device_checked(d, d->ops->graph_begin(d->device), "recording"));
        status = issue_step(session, chunk);
        hl_status ended =
            hl_device_checked(d, d->ops->graph_end(d->device, &step->graph), "recording");
        HL_NEED(status);
        HL_NEED(ended);
    }
    HL_NEED(hl_device_checked(d, d->ops->graph_run(d->device, step->graph), "a recorded step"));
    return status;
}

static hl_status finish_step(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d = session->device;

    if (is_watched(chunk))
        HL_NEED(hl_device_checked(
            d,
            d->ops->copy_out(d->device, 0, d->all_statistics.host, d->all_statistics.device,
                             (size_t)session->config->n_layers * d->step_bytes),
            "copies"));
    HL_NEED(send_flag(d));
    HL_NEED(hl_forward_send_last(session, chunk));
    HL_NEED(wait_for_ends(d));
    HL_NEED(check_flag(session));
    if (is_watched(chunk))
        HL_NEED(hl_observe_tell_steps(session, chunk));
    return hl_forward_receive_last(session, chunk);
}

/* ---------------------------------------------------------------------- whole */

/* Marks all lanes as idle, because their rows are gone. */
static void forget_lanes(hl_device_session *d)
{
    for (int lane = 0; lane < HL_DEVICE_LANES; lane++)
        d->lanes[lane].layer = -1;
    (void)d->ops->wait(d->device);
}

hl_status hl_forward(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = session->device;

    if ((hl_chunk_wants(chunk) & HL_WANT_PATTERN) != 0)
        d->n_patterns = hl_forward_pattern_rows(session, chunk);
    HL_TRY(hl_device_put_inputs(session, chunk));
    if (is_step(session, chunk)) {
        d->step_bytes = hl_device_statistics_bytes(hl_chunk_rows(chunk) * session->config->n_heads,
                                                   hl_chunk_segments(chunk));
        d->step_bytes = (d->step_bytes + 15) / 16 * 16;
        HL_TRY(run_step(session, chunk));
        HL_TRY(finish_step(session, chunk));
    } else {
        HL_TRY(run_chunk(session, chunk));
    }

done:
    if (status != HL_OK)
        forget_lanes(d);
    return status;
}
