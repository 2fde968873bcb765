/* device_forward.c - one chunk through all blocks, on a device.
 *
 * The lines of config.h, as in forward.c, with one difference: what a branch gives is not added to the
 * residual stream at once but kept as pending, and added by the operation that next
 * norms the stream, which saves a pass over it. */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/device.h"

static int64_t count_rows(const hl_chunk *chunk)
{
    return chunk->n_batch * chunk->n_rows;
}

/* --------------------------------------------------------------------- tools */

hl_status hl_device_multiply(const hl_session *session, void *out, hl_dtype out_dtype,
                             const void *x, const hl_device_map *map, int64_t n_rows)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->linear(d->device, &(hl_device_linear){ .out        = out,
                                                       .out_dtype  = out_dtype,
                                                       .out_stride = map->n_out,
                                                       .x          = x,
                                                       .x_stride   = map->n_in,
                                                       .weight     = map->weight,
                                                       .bias       = map->bias,
                                                       .dtype      = d->dtype,
                                                       .n_rows     = n_rows,
                                                       .n_in       = map->n_in,
                                                       .n_out      = map->n_out }),
        "product");
}

hl_norm hl_device_norm_of(const hl_session *session, const hl_device_vector *vector)
{
    return (hl_norm){ .kind   = session->config->norm,
                      .eps    = (float)session->config->norm_eps,
                      .weight = vector->weight,
                      .bias   = vector->bias };
}

/* The stream, with what is pending added to it, on its way through a norm. */
static hl_device_norm stream_norm(const hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d    = session->device;
    hl_device_norm     norm = { .x         = d->rows.x,
                                .add       = { d->pending[0], d->pending[1] },
                                .dtype     = d->dtype,
                                .add_scale = (float)session->config->residual_scale,
                                .n_rows    = count_rows(chunk),
                                .n         = session->config->d_model };

    d->pending[0] = NULL;
    d->pending[1] = NULL;
    return norm;
}

static hl_status run_norm(const hl_session *session, const hl_device_norm *norm)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(d, d->ops->norm(d->device, norm), "norm");
}

hl_status hl_device_settle(const hl_session *session, const hl_chunk *chunk)
{
    if (session->device->pending[0] == NULL)
        return HL_OK;
    hl_device_norm norm = stream_norm(session, chunk);
    norm.is_plain       = true;
    return run_norm(session, &norm);
}

/* -------------------------------------------------------------------- blocks */

/* normed = what the branch reads, of the compute type: n(x), or x itself. */
static hl_status open_half(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                           hl_role role, const hl_device_vector *vector)
{
    hl_device_norm norm = stream_norm(session, chunk);

    norm.out       = session->device->rows.normed;
    norm.out_dtype = session->device->dtype;
    norm.norm      = hl_device_norm_of(session, vector);
    norm.is_plain  = !hl_forward_has_norm(session->config, role, layer);
    if (session->config->residual_normed)
        norm.kept = session->device->rows.x;
    return run_norm(session, &norm);
}

/* What a branch gave joins the stream, by the place of the norms. */
static hl_status close_half(const hl_session *session, const hl_chunk *chunk, void *branch,
                            const hl_device_vector *post)
{
    const hl_config   *config = session->config;
    hl_device_session *d      = session->device;

    if (config->norm_place == HL_NORM_SANDWICH || config->norm_place == HL_NORM_BRANCH) {
        hl_status status =
            run_norm(session, &(hl_device_norm){ .out       = branch,
                                                 .out_dtype = d->dtype,
                                                 .x         = branch,
                                                 .x_dtype   = d->dtype,
                                                 .dtype     = d->dtype,
                                                 .norm      = hl_device_norm_of(session, post),
                                                 .n_rows    = count_rows(chunk),
                                                 .n         = config->d_model });
        if (status != HL_OK)
            return status;
    }
    d->pending[0] = branch;
    if (config->norm_place != HL_NORM_POST)
        return HL_OK;
    hl_device_norm norm = stream_norm(session, chunk);
    norm.norm           = hl_device_norm_of(session, post);
    norm.kept           = d->rows.x;
    return run_norm(session, &norm);
}

/* out = down(act(up x)), gated or not. */
static hl_status run_mlp(const hl_session *session, void *out, const hl_device_map *up,
                         const hl_device_map *down, int64_t n_rows)
{
    hl_status                status   = HL_OK;
    const hl_device_session *d        = session->device;
    int64_t                  width    = down->n_in;
    bool                     gated    = up->n_out == 2 * width;
    uint8_t                 *gate     = d->rows.up;
    hl_device_activate       activate = { .out      = d->rows.active,
                                          .gate     = gate,
                                          .up       = gated ? gate + (size_t)width * d->size : NULL,
                                          .x_stride = up->n_out,
                                          .dtype    = d->dtype,
                                          .activation = session->config->activation,
                                          .limit      = (float)session->config->activation_limit,
                                          .n_rows     = n_rows,
                                          .n          = width };

    HL_TRY(hl_device_multiply(session, d->rows.up, d->dtype, d->rows.normed, up, n_rows));
    HL_TRY(hl_device_checked(d, d->ops->activate(d->device, &activate), "activation"));
    HL_TRY(hl_device_multiply(session, out, d->dtype, d->rows.active, down, n_rows));

done:
    return status;
}

hl_device_experts hl_device_experts_of(const hl_session *session, int64_t layer, int64_t n_rows)
{
    const hl_device_session *d      = session->device;
    const hl_config         *config = session->config;
    const hl_device_layer   *w      = &d->weights.layers[layer];

    return (hl_device_experts){ .out       = d->rows.mlp,
                                .x         = d->rows.normed,
                                .router    = d->rows.router,
                                .up        = w->experts_up.weight,
                                .up_bias   = w->experts_up.bias,
                                .down      = w->experts_down.weight,
                                .down_bias = w->experts_down.bias,
                                .dtype     = d->dtype,
                                .n_rows    = n_rows,
                                .d_model   = config->d_model,
                                .d_expert  = w->experts_down.n_in,
                                .n_experts = config->layers[layer].n_experts,
                                .n_used    = config->n_experts_used,
                                .over_all  = config->router == HL_ROUTER_SOFTMAX_ALL,
                                .is_gated =
                                    w->experts_up.n_out ==
                                    2 * w->experts_down.n_in * config->layers[layer].n_experts,
                                .activation = config->activation,
                                .limit      = (float)config->activation_limit,
                                .work       = d->rows.work };
}

static hl_status run_mixture(const hl_session *session, int64_t layer, int64_t n_rows)
{
    hl_status                status  = HL_OK;
    const hl_device_session *d       = session->device;
    const hl_device_layer   *w       = &d->weights.layers[layer];
    hl_device_experts        experts = hl_device_experts_of(session, layer, n_rows);
    float                   *logit   = d->rows.router + n_rows * experts.n_experts;

    HL_TRY(hl_device_multiply(session, d->rows.router, HL_DTYPE_F32, d->rows.normed, &w->router,
                              n_rows));
    HL_TRY(hl_device_checked(d, d->ops->experts(d->device, &experts), "experts"));
    if (w->shared_up.weight == NULL)
        return HL_OK;
    HL_TRY(hl_device_multiply(session, logit, HL_DTYPE_F32, d->rows.normed, &w->shared_router,
                              n_rows));
    HL_TRY(run_mlp(session, d->rows.shared, &w->shared_up, &w->shared_down, n_rows));
    HL_TRY(hl_device_checked(
        d,
        d->ops->add_gated(d->device, &(hl_device_add_gated){ .out    = d->rows.mlp,
                                                             .x      = d->rows.shared,
                                                             .logit  = logit,
                                                             .dtype  = d->dtype,
                                                             .n_rows = n_rows,
                                                             .n      = session->config->d_model }),
        "experts"));

done:
    return status;
}

/* rows.mlp = M(normed). */
static hl_status run_branch(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_device_session *d = session->device;

    if (session->config->layers[layer].n_experts > 0)
        return run_mixture(session, layer, count_rows(chunk));
    return run_mlp(session, d->rows.mlp, &d->weights.layers[layer].up,
                   &d->weights.layers[layer].down, count_rows(chunk));
}

/* What is watched in the middle of a block. */
typedef struct block_watch {
    hl_attention_result statistics; /* all NULL: nobody */
    hl_device_lane     *lane;       /* NULL: nothing but these */
} block_watch;

static hl_status parallel_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                bool attention_only, const block_watch *watch)
{
    hl_status              status  = HL_OK;
    hl_device_session     *d       = session->device;
    const hl_device_layer *w       = &d->weights.layers[layer];
    bool                   attends = session->config->layers[layer].n_heads > 0;
    bool                   has_mlp = session->config->layers[layer].d_mlp > 0 && !attention_only;

    HL_TRY(open_half(session, chunk, layer, HL_ROLE_ATTN_NORM, &w->attn_norm));
    if (attends)
        HL_TRY(hl_device_attend(session, chunk, layer, &watch->statistics));
    if (has_mlp) {
        if (session->config->residual == HL_RESIDUAL_PARALLEL)
            HL_TRY(open_half(session, chunk, layer, HL_ROLE_MLP_NORM, &w->mlp_norm));
        HL_TRY(run_branch(session, chunk, layer));
    }
    d->pending[0] = has_mlp ? d->rows.mlp : attends ? d->rows.branch : NULL;
    d->pending[1] = has_mlp && attends ? d->rows.branch : NULL;

done:
    return status;
}

static hl_status sequential_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                  bool attention_only, const block_watch *watch)
{
    hl_status              status = HL_OK;
    hl_device_session     *d      = session->device;
    const hl_layer_config *at     = &session->config->layers[layer];
    const hl_device_layer *w      = &d->weights.layers[layer];

    if (at->n_heads > 0) {
        HL_TRY(open_half(session, chunk, layer, HL_ROLE_ATTN_NORM, &w->attn_norm));
        HL_TRY(hl_device_attend(session, chunk, layer, &watch->statistics));
        HL_TRY(close_half(session, chunk, d->rows.branch, &w->attn_post_norm));
    }
    if (watch->lane != NULL && (hl_chunk_wants(chunk) & HL_WANT_RESID_MID) != 0)
        HL_TRY(hl_device_keep(session, chunk, watch->lane, 1U << HL_KEPT_MID));
    if (at->d_mlp > 0 && !attention_only) {
        HL_TRY(open_half(session, chunk, layer, HL_ROLE_MLP_NORM, &w->mlp_norm));
        HL_TRY(run_branch(session, chunk, layer));
        HL_TRY(close_half(session, chunk, d->rows.mlp, &w->mlp_post_norm));
    }

done:
    return status;
}

static hl_status run_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const block_watch *watch)
{
    bool attention_only =
        layer == session->config->n_layers - 1 && !hl_forward_needs_end(session, chunk);

    if (session->config->residual != HL_RESIDUAL_SEQUENTIAL)
        return parallel_block(session, chunk, layer, attention_only, watch);
    return sequential_block(session, chunk, layer, attention_only, watch);
}

/* ------------------------------------------------------------------- watched */

/* A block with a lane for all that the tap wants of it. */
static hl_status watch_block(hl_session *session, const hl_chunk *chunk, int64_t layer, int number)
{
    hl_status          status  = HL_OK;
    hl_device_session *d       = session->device;
    hl_device_lane    *lane    = &d->lanes[number];
    uint32_t           wants   = hl_chunk_wants(chunk);
    uint32_t           rows    = wants & (HL_WANT_Q | HL_WANT_K | HL_WANT_V | HL_WANT_Z);
    int64_t            n_heads = session->config->layers[layer].n_heads;
    block_watch        watch   = { .lane = lane };

    lane->layer = layer;
    lane->kinds = 0;
    watch.statistics =
        hl_device_place_statistics(lane->statistics.device, count_rows(chunk) * n_heads,
                                   chunk->feed->segments != NULL ? chunk->feed->n_segments : 0);
    if ((wants & HL_WANT_RESID_PRE) != 0)
        HL_TRY(hl_device_keep(session, chunk, lane, 1U << HL_KEPT_PRE));
    if ((wants & HL_WANT_LENS) != 0)
        HL_TRY(hl_device_make_lens(session, chunk, lane));
    HL_TRY(run_block(session, chunk, layer, &watch));
    HL_TRY(hl_device_keep(session, chunk, lane, n_heads > 0 ? rows : 0));
    HL_TRY(hl_device_sum(session, chunk, lane));
    if ((wants & HL_WANT_PATTERN) != 0 && n_heads > 0)
        HL_TRY(hl_device_make_patterns(session, chunk, layer, lane));
    if ((wants & HL_WANT_RESID_POST) != 0 || d->inputs.sampled != NULL)
        HL_TRY(hl_device_keep(session, chunk, lane, 1U << HL_KEPT_POST));
    HL_TRY(hl_device_send(session, chunk, number));

done:
    return status;
}

/* All blocks; each is told while the next one runs. */
static hl_status run_blocks(hl_session *session, const hl_chunk *chunk)
{
    hl_status status  = HL_OK;
    int       number  = 0;
    bool      watched = hl_device_is_watched(chunk);

    for (int64_t layer = chunk->feed->first_layer; layer < session->config->n_layers; layer++) {
        if (watched)
            HL_TRY(watch_block(session, chunk, layer, number));
        else
            HL_TRY(run_block(session, chunk, layer, &(block_watch){ 0 }));
        if (layer == chunk->feed->first_layer)
            HL_TRY(hl_device_tell_embedded(session, chunk));
        if (watched) {
            number = 1 - number;
            HL_TRY(hl_device_tell(session, chunk, number));
        }
    }
    if (watched)
        HL_TRY(hl_device_tell(session, chunk, 1 - number));

done:
    return status;
}

/* --------------------------------------------------------------------- ends */

/* x as the first layer that is run reads it. */
static hl_status begin_stream(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status  = HL_OK;
    hl_device_session *d       = session->device;
    const hl_feed     *feed    = chunk->feed;
    int64_t            d_model = session->config->d_model;

    d->pending[0] = NULL;
    d->pending[1] = NULL;
    if (feed->stream == NULL)
        return hl_device_embed_rows(session, chunk);
    for (int64_t b = 0; b < chunk->n_batch; b++)
        HL_TRY(hl_device_checked(
            d,
            d->ops->copy_in(d->device, d->rows.x + b * chunk->n_rows * d_model,
                            feed->stream + (b * feed->n_tokens + chunk->offset) * d_model,
                            (size_t)(chunk->lengths[b] * d_model) * sizeof(float)),
            "inputs"));

done:
    return status;
}

static hl_status make_angles(const hl_session *session)
{
    hl_status                status = HL_OK;
    const hl_device_session *d      = session->device;

    for (hl_rope_choice choice = HL_ROPE_MAIN; choice < HL_N_ROPES; choice++) {
        const hl_rope *rope = &session->config->ropes[choice];

        if (rope->n_dims == 0)
            continue;
        HL_TRY(hl_device_checked(
            d,
            d->ops->angles(d->device,
                           &(hl_device_angles){ .cosine      = d->rows.cosine[choice],
                                                .sine        = d->rows.sine[choice],
                                                .frequencies = d->inputs.frequencies[choice],
                                                .n_pairs     = rope->n_dims / 2,
                                                .factor      = (float)rope->attention_factor,
                                                .places      = d->inputs.places }),
            "angles"));
    }

done:
    return status;
}

/* Numbers that are none stay in the stream, so it is looked at once, at the end. */
static hl_status look_for_nan(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = session->device;

    HL_TRY(hl_device_settle(session, chunk));
    HL_TRY(
        hl_device_checked(d, d->ops->zero(d->device, d->rows.flag, sizeof *d->rows.flag), "flag"));
    HL_TRY(hl_device_checked(
        d,
        d->ops->finite(d->device, &(hl_device_finite){ .flag   = d->rows.flag,
                                                       .x      = d->rows.x,
                                                       .n      = session->config->d_model,
                                                       .places = d->inputs.places }),
        "flag"));

done:
    return status;
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

/* Is the file to blame?  Once a session, when the flag has arrived. */
static hl_status check_flag(hl_session *session)
{
    hl_status status = HL_OK;

    if (*session->device->flag == 0 || session->searched[1])
        return HL_OK;
    session->searched[1] = true;
    for (int64_t layer = -1; layer < session->config->n_layers; layer++)
        HL_TRY(hl_session_find_nan(session, layer));
    hl_log(HL_LOG_WARNING, "the residual stream overflows, the weights are numbers");

done:
    return status;
}

static hl_status run_chunk(hl_session *session, const hl_chunk *chunk)
{
    hl_status status = HL_OK;

    HL_TRY(make_angles(session));
    HL_TRY(begin_stream(session, chunk));
    HL_TRY(hl_device_send_embedded(session, chunk));
    HL_TRY(run_blocks(session, chunk));
    HL_TRY(look_for_nan(session, chunk));
    HL_TRY(send_flag(session->device));
    HL_TRY(wait_for_ends(session->device));
    HL_TRY(check_flag(session));
    if (!hl_forward_needs_end(session, chunk))
        return HL_OK;
    HL_TRY(hl_device_final(session, chunk));
    HL_TRY(hl_device_make_last(session, chunk));
    HL_TRY(hl_device_send_last(session, chunk));
    HL_TRY(wait_for_ends(session->device));
    HL_TRY(hl_device_receive_last(session, chunk));

done:
    return status;
}

/* ---------------------------------------------------------------------- steps */

/* Few rows, and nothing wanted of them but statistics and the last logits. */
static bool is_step(const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    return count_rows(chunk) <= session->device->step_rows && chunk->feed->stream == NULL &&
           !session->config->is_encoder &&
           (tap == NULL || ((tap->wants & ~(uint32_t)HL_WANT_LAST_LOGITS) == 0 &&
                            tap->embedded == NULL && tap->sampled_positions == NULL));
}

/* All of it that runs on the device; the same calls for steps of the same kind. */
static hl_status issue_step(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status     = HL_OK;
    hl_device_session *d          = session->device;
    int64_t            n_segments = chunk->feed->segments != NULL ? chunk->feed->n_segments : 0;

    HL_TRY(make_angles(session));
    HL_TRY(begin_stream(session, chunk));
    for (int64_t layer = 0; layer < session->config->n_layers; layer++) {
        block_watch watch = { 0 };

        if (hl_device_is_watched(chunk))
            watch.statistics = hl_device_place_statistics(
                (uint8_t *)d->all_statistics.device + (size_t)layer * d->step_bytes,
                count_rows(chunk) * session->config->layers[layer].n_heads, n_segments);
        HL_TRY(run_block(session, chunk, layer, &watch));
    }
    HL_TRY(look_for_nan(session, chunk));
    HL_TRY(hl_device_make_last(session, chunk));

done:
    return status;
}

static bool is_step_for(const hl_device_step *step, const hl_device_session *d,
                        const hl_chunk *chunk)
{
    return step->n_batch == chunk->n_batch && step->n_rows == chunk->n_rows &&
           step->n_keys == d->inputs.n_keys && step->is_watched == hl_device_is_watched(chunk) &&
           step->has_gates == (d->inputs.gates != NULL) &&
           step->gates_differ == d->inputs.gates_differ &&
           step->n_segments == (chunk->feed->segments != NULL ? chunk->feed->n_segments : 0) &&
           memcmp(step->sequences, chunk->sequences,
                  (size_t)chunk->n_batch * sizeof *step->sequences) == 0;
}

static void note_step(hl_device_step *step, const hl_device_session *d, const hl_chunk *chunk)
{
    step->n_batch      = chunk->n_batch;
    step->n_rows       = chunk->n_rows;
    step->n_keys       = d->inputs.n_keys;
    step->is_watched   = hl_device_is_watched(chunk);
    step->has_gates    = d->inputs.gates != NULL;
    step->gates_differ = d->inputs.gates_differ;
    step->n_segments   = chunk->feed->segments != NULL ? chunk->feed->n_segments : 0;
    memcpy(step->sequences, chunk->sequences, (size_t)chunk->n_batch * sizeof *step->sequences);
}

/* The recorded step of this kind; a new one in the place of the oldest. */
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

/* The first step of a kind runs as it is, which also warms the device's libraries up; the
 * second is recorded. */
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
        HL_TRY(hl_device_checked(d, d->ops->graph_begin(d->device), "recording"));
        status = issue_step(session, chunk);
        hl_status ended =
            hl_device_checked(d, d->ops->graph_end(d->device, &step->graph), "recording");
        HL_TRY(status);
        HL_TRY(ended);
    }
    HL_TRY(hl_device_checked(d, d->ops->graph_run(d->device, step->graph), "a recorded step"));

done:
    return status;
}

static hl_status finish_step(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = session->device;

    if (hl_device_is_watched(chunk))
        HL_TRY(hl_device_checked(
            d,
            d->ops->copy_out(d->device, 0, d->all_statistics.host, d->all_statistics.device,
                             (size_t)session->config->n_layers * d->step_bytes),
            "copies"));
    HL_TRY(send_flag(d));
    HL_TRY(hl_device_send_last(session, chunk));
    HL_TRY(wait_for_ends(d));
    HL_TRY(check_flag(session));
    if (hl_device_is_watched(chunk))
        HL_TRY(hl_device_tell_steps(session, chunk));
    HL_TRY(hl_device_receive_last(session, chunk));

done:
    return status;
}

/* ---------------------------------------------------------------------- whole */

/* Nothing may be under way in a lane whose rows are gone. */
static void forget_lanes(hl_device_session *d)
{
    for (int lane = 0; lane < HL_DEVICE_LANES; lane++)
        d->lanes[lane].layer = -1;
    (void)d->ops->wait(d->device);
}

hl_status hl_device_forward(hl_session *session, const hl_chunk *chunk)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = session->device;

    if ((hl_chunk_wants(chunk) & HL_WANT_PATTERN) != 0)
        d->n_patterns = hl_forward_pattern_rows(session, chunk);
    HL_TRY(hl_device_put_inputs(session, chunk));
    if (is_step(session, chunk)) {
        d->step_bytes =
            hl_device_statistics_bytes(count_rows(chunk) * session->config->n_heads,
                                       chunk->feed->segments != NULL ? chunk->feed->n_segments : 0);
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
