/* forward_streams.c - models with several residual streams (config.h has the formulas).
 *
 * Blocks run on rows.x, which is the first stream; the others lie after it, rows.stride values apart.
 * What is between blocks costs a pass over all of them, by one operation before and one after. */
#include <math.h>

#include "base/status.h"
#include "model/forward.h"

static float *stream_of(const hl_device_session *d, int64_t stream)
{
    return d->rows.x + stream * d->rows.stride;
}

/* out = map(x) in f32, with x (N, D) in f32, by way of rows.normed. */
static hl_status map_stream(const hl_session *session, float *out, const float *x,
                            const hl_device_map *map)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;
    hl_device_norm           plain  = { .out       = d->rows.normed,
                                        .out_dtype = d->dtype,
                                        .x         = (float *)x, /* nothing is added */
                                        .dtype     = d->dtype,
                                        .is_plain  = true,
                                        .n_rows    = places->n_batch * places->batch_rows,
                                        .n         = session->config->d_model,
                                        .places    = *places };

    HL_NEED(hl_device_checked(d, d->ops->norm(d->device, &plain), "norm"));
    return hl_device_multiply(session, out, HL_DTYPE_F32, d->rows.normed, map, places);
}

/* out = x as long as the first stream, or is added to. */
static hl_status match(const hl_session *session, float *out, const float *x, bool adds)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->match(d->device, &(hl_device_match){ .out    = out,
                                                     .x      = x,
                                                     .like   = d->rows.x,
                                                     .adds   = adds,
                                                     .n      = session->config->d_model,
                                                     .places = d->inputs.places }),
        "streams");
}

hl_status hl_forward_spread(const hl_session *session)
{
    const hl_device_session *d = session->device;

    for (int64_t a = 1; a < session->config->n_streams; a++) {
        HL_NEED(map_stream(session, d->rows.other, d->rows.x, &d->weights.stream_in[a - 1]));
        HL_NEED(match(session, stream_of(d, a), d->rows.other, false));
    }
    return HL_OK;
}

/* Runs the operation on all streams, with coefficients from the first. */
static hl_status mix(const hl_session *session, int64_t layer, bool corrects)
{
    hl_device_session     *d      = session->device;
    const hl_device_layer *w      = &d->weights.layers[layer];
    bool                   writes = corrects && session->config->d_ple > 0;
    hl_device_streams      op     = { .x      = d->rows.x,
                                      .kept   = d->rows.predicted,
                                      .stride = d->rows.stride,
                                      .logits = d->rows.stream_logits,
                                      .weight = (corrects ? &w->stream_correct : &w->stream_predict)->weight,
                                      .corrects  = corrects,
                                      .out       = writes ? d->rows.normed : NULL,
                                      .scale     = w->stream_scale.weight,
                                      .dtype     = d->dtype,
                                      .n_streams = session->config->n_streams,
                                      .n         = session->config->d_model,
                                      .places    = d->inputs.places };

    HL_NEED(hl_block_norm(session, &w->stream_router_norm));
    HL_NEED(hl_device_multiply(session, d->rows.stream_logits, HL_DTYPE_F32, d->rows.normed,
                               &w->stream_router, &d->inputs.places));
    return hl_device_checked(d, d->ops->streams(d->device, &op), "streams");
}

hl_status hl_forward_predict(const hl_session *session, int64_t layer)
{
    return mix(session, layer, false);
}

hl_status hl_forward_correct(const hl_session *session, int64_t layer)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;

    HL_NEED(mix(session, layer, true));
    if (session->config->d_ple == 0)
        return HL_OK;
    HL_NEED(hl_block_inputs(session, layer));
    for (int64_t a = 1; a < session->config->n_streams; a++) {
        hl_device_norm sum = { .x         = stream_of(d, a),
                               .add       = { d->rows.branch },
                               .dtype     = d->dtype,
                               .add_scale = 1.0f,
                               .is_plain  = true,
                               .n_rows    = places->n_batch * places->batch_rows,
                               .n         = session->config->d_model,
                               .places    = *places };

        HL_NEED(hl_device_checked(d, d->ops->norm(d->device, &sum), "sum"));
    }
    return HL_OK;
}

hl_status hl_forward_laurel(const hl_session *session, int64_t layer, const void *input)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;
    const hl_device_layer   *w      = &d->weights.layers[layer];

    HL_NEED(hl_device_multiply(session, d->rows.laurel, d->dtype, input, &w->laurel_in, places));
    HL_NEED(
        hl_device_multiply(session, d->rows.mlp, d->dtype, d->rows.laurel, &w->laurel_out, places));
    HL_NEED(
        hl_device_norm_rows(session, d->rows.mlp, d->rows.mlp, d->dtype, &w->laurel_norm, places));
    return hl_device_checked(
        d,
        d->ops->add_gated(d->device,
                          &(hl_device_add_gated){ .out    = d->rows.mlp,
                                                  .x      = input,
                                                  .dtype  = d->dtype,
                                                  .n_rows = places->n_batch * places->batch_rows,
                                                  .n      = session->config->d_model,
                                                  .places = *places }),
        "sum");
}

hl_status hl_forward_merge(const hl_session *session)
{
    hl_device_session      *d      = session->device;
    const hl_device_places *places = &d->inputs.places;
    int64_t                 n      = session->config->d_model;
    int64_t                 n_rows = places->n_batch * places->batch_rows;
    hl_device_copy_rows     first  = { .out        = d->rows.merged,
                                       .out_dtype  = HL_DTYPE_F32,
                                       .out_stride = n,
                                       .x          = d->rows.x,
                                       .x_dtype    = HL_DTYPE_F32,
                                       .x_stride   = n,
                                       .n_rows     = n_rows,
                                       .n          = n };

    HL_NEED(hl_device_settle(session));
    d->rows.ended = d->rows.x;
    if (session->config->n_streams == 1)
        return HL_OK;
    d->rows.ended = d->rows.merged;
    HL_NEED(hl_device_checked(d, d->ops->copy_rows(d->device, &first), "streams"));
    for (int64_t a = 1; a < session->config->n_streams; a++) {
        HL_NEED(map_stream(session, d->rows.other, stream_of(d, a), &d->weights.stream_out[a - 1]));
        HL_NEED(match(session, d->rows.merged, d->rows.other, true));
    }
    return hl_device_checked(
        d,
        d->ops->cap(d->device,
                    &(hl_device_cap){ .x     = d->rows.merged,
                                      .count = n_rows * n,
                                      .scale = 1.0f / (float)session->config->n_streams }),
        "scale");
}
