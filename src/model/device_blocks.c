/* device_blocks.c - one block of a chunk, on a device.
 *
 * The lines of config.h, as in forward.c, with one difference: what a branch gives is not added to the
 * residual stream at once but kept as pending, and added by the operation that next
 * norms the stream, which saves a pass over it. */
#include "base/status.h"
#include "model/device.h"

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
                                .n_rows    = hl_chunk_rows(chunk),
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
                                                 .n_rows    = hl_chunk_rows(chunk),
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

    HL_NEED(hl_device_multiply(session, d->rows.up, d->dtype, d->rows.normed, up, n_rows));
    HL_NEED(hl_device_checked(d, d->ops->activate(d->device, &activate), "activation"));
    return hl_device_multiply(session, out, d->dtype, d->rows.active, down, n_rows);
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
    const hl_device_session *d       = session->device;
    const hl_device_layer   *w       = &d->weights.layers[layer];
    hl_device_experts        experts = hl_device_experts_of(session, layer, n_rows);
    float                   *logit   = d->rows.router + n_rows * experts.n_experts;

    HL_NEED(hl_device_multiply(session, d->rows.router, HL_DTYPE_F32, d->rows.normed, &w->router,
                               n_rows));
    HL_NEED(hl_device_checked(d, d->ops->experts(d->device, &experts), "experts"));
    if (w->shared_up.weight == NULL)
        return HL_OK;
    HL_NEED(hl_device_multiply(session, logit, HL_DTYPE_F32, d->rows.normed, &w->shared_router,
                               n_rows));
    HL_NEED(run_mlp(session, d->rows.shared, &w->shared_up, &w->shared_down, n_rows));
    return hl_device_checked(
        d,
        d->ops->add_gated(d->device, &(hl_device_add_gated){ .out    = d->rows.mlp,
                                                             .x      = d->rows.shared,
                                                             .logit  = logit,
                                                             .dtype  = d->dtype,
                                                             .n_rows = n_rows,
                                                             .n      = session->config->d_model }),
        "experts");
}

/* rows.mlp = M(normed). */
static hl_status run_branch(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_device_session *d = session->device;

    if (session->config->layers[layer].n_experts > 0)
        return run_mixture(session, layer, hl_chunk_rows(chunk));
    return run_mlp(session, d->rows.mlp, &d->weights.layers[layer].up,
                   &d->weights.layers[layer].down, hl_chunk_rows(chunk));
}

static hl_status parallel_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                bool attention_only, const hl_device_watch *watch)
{
    hl_device_session     *d       = session->device;
    const hl_device_layer *w       = &d->weights.layers[layer];
    bool                   attends = session->config->layers[layer].n_heads > 0;
    bool                   has_mlp = session->config->layers[layer].d_mlp > 0 && !attention_only;

    HL_NEED(open_half(session, chunk, layer, HL_ROLE_ATTN_NORM, &w->attn_norm));
    if (attends)
        HL_NEED(hl_device_attend(session, chunk, layer, &watch->statistics));
    if (has_mlp) {
        if (session->config->residual == HL_RESIDUAL_PARALLEL)
            HL_NEED(open_half(session, chunk, layer, HL_ROLE_MLP_NORM, &w->mlp_norm));
        HL_NEED(run_branch(session, chunk, layer));
    }
    d->pending[0] = has_mlp ? d->rows.mlp : attends ? d->rows.branch : NULL;
    d->pending[1] = has_mlp && attends ? d->rows.branch : NULL;
    return HL_OK;
}

static hl_status sequential_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                  bool attention_only, const hl_device_watch *watch)
{
    hl_device_session     *d  = session->device;
    const hl_layer_config *at = &session->config->layers[layer];
    const hl_device_layer *w  = &d->weights.layers[layer];

    if (at->n_heads > 0) {
        HL_NEED(open_half(session, chunk, layer, HL_ROLE_ATTN_NORM, &w->attn_norm));
        HL_NEED(hl_device_attend(session, chunk, layer, &watch->statistics));
        HL_NEED(close_half(session, chunk, d->rows.branch, &w->attn_post_norm));
    }
    if (watch->lane != NULL && (hl_chunk_wants(chunk) & HL_WANT_RESID_MID) != 0)
        HL_NEED(hl_device_keep(session, chunk, watch->lane, 1U << HL_KEPT_MID));
    if (at->d_mlp > 0 && !attention_only) {
        HL_NEED(open_half(session, chunk, layer, HL_ROLE_MLP_NORM, &w->mlp_norm));
        HL_NEED(run_branch(session, chunk, layer));
        HL_NEED(close_half(session, chunk, d->rows.mlp, &w->mlp_post_norm));
    }
    return HL_OK;
}

hl_status hl_device_run_block(hl_session *session, const hl_chunk *chunk, int64_t layer,
                              const hl_device_watch *watch)
{
    bool attention_only =
        layer == session->config->n_layers - 1 && !hl_forward_needs_end(session, chunk);

    if (session->config->residual != HL_RESIDUAL_SEQUENTIAL)
        return parallel_block(session, chunk, layer, attention_only, watch);
    return sequential_block(session, chunk, layer, attention_only, watch);
}
