/* blocks.c - runs one block for a chunk: its halves in order, with their norms, MLPs and experts.
 *
 * A branch's output is not added to the residual stream at once.  It is kept as pending and added
 * by the next norm of the stream, which saves a pass over it. */
#include "model/blocks.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "model/forward.h"

/* ------------------------------------------------------------------ the form */

static bool reads_norm(const hl_config *config, hl_role role, int64_t layer)
{
    if (config->norm_place == HL_NORM_POST || config->norm_place == HL_NORM_BRANCH)
        return false;
    return !(role == HL_ROLE_ATTN_NORM && layer == 0 && config->first_norm_plain);
}

static hl_post_norm post_norm(const hl_config *config)
{
    if (config->residual != HL_RESIDUAL_SEQUENTIAL)
        return HL_POST_NONE;
    switch (config->norm_place) {
    case HL_NORM_SANDWICH:
    case HL_NORM_BRANCH:
        return HL_POST_BRANCH;
    case HL_NORM_POST:
        return HL_POST_SUM;
    default:
        return HL_POST_NONE;
    }
}

/* Appends a mixer, or attention, which joins one. */
static int put_first_half(hl_half *out, int n, hl_branch branch, const hl_config *config,
                          int64_t layer)
{
    out[n] = (hl_half){ .branch     = branch,
                        .norm       = HL_ROLE_ATTN_NORM,
                        .reads_norm = reads_norm(config, HL_ROLE_ATTN_NORM, layer),
                        .post_role  = HL_ROLE_ATTN_POST_NORM,
                        .post       = post_norm(config),
                        .joins      = n > 0,
                        .shares     = n > 0 };
    return n + 1;
}

int hl_block_halves(hl_half out[HL_BLOCK_HALVES], const hl_config *config, int64_t layer)
{
    bool shared = config->residual == HL_RESIDUAL_PARALLEL_SHARED;
    int  n      = 0;

    if (config->layers[layer].mixer != HL_MIXER_NONE)
        n = put_first_half(out, n, HL_BRANCH_MIXER, config, layer);
    if (config->layers[layer].n_heads > 0)
        n = put_first_half(out, n, HL_BRANCH_ATTENTION, config, layer);
    if (config->d_laurel > 0 && config->layers[layer].n_heads > 0) {
        n               = put_first_half(out, n, HL_BRANCH_LAUREL, config, layer);
        out[n - 1].post = HL_POST_NONE; /* the map of low rank ends with a norm */
    }
    if (config->layers[layer].d_mlp > 0) {
        hl_role role  = shared ? HL_ROLE_ATTN_NORM : HL_ROLE_MLP_NORM;
        bool    joins = n > 0 && config->residual != HL_RESIDUAL_SEQUENTIAL;

        out[n++] = (hl_half){ .branch     = HL_BRANCH_MLP,
                              .norm       = role,
                              .reads_norm = reads_norm(config, role, layer),
                              .post_role  = HL_ROLE_MLP_POST_NORM,
                              .post       = post_norm(config),
                              .joins      = joins,
                              .shares     = joins && shared };
    }
    return n;
}

/* --------------------------------------------------------------------- tools */

hl_status hl_device_multiply(const hl_session *session, void *out, hl_dtype out_dtype,
                             const void *x, const hl_device_map *map,
                             const hl_device_places *places)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->linear(d->device,
                       &(hl_device_linear){ .out        = out,
                                            .out_dtype  = out_dtype,
                                            .out_stride = map->n_out,
                                            .x          = x,
                                            .x_stride   = map->n_in,
                                            .weight     = map->weight,
                                            .bias       = map->bias,
                                            .dtype      = d->dtype,
                                            .n_rows     = places->n_batch * places->batch_rows,
                                            .n_in       = map->n_in,
                                            .n_out      = map->n_out,
                                            .places     = *places }),
        "product");
}

hl_norm hl_device_norm_of(const hl_session *session, const hl_device_vector *vector)
{
    return (hl_norm){ .kind   = session->config->norm,
                      .eps    = (float)session->config->norm_eps,
                      .weight = vector->weight,
                      .bias   = vector->bias };
}

static hl_status run_norm(const hl_session *session, const hl_device_norm *norm)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(d, d->ops->norm(d->device, norm), "norm");
}

hl_status hl_device_norm_wide(const hl_session *session, void *out, const void *x, hl_dtype dtype,
                              const hl_device_vector *vector, int64_t n,
                              const hl_device_places *places)
{
    return run_norm(session, &(hl_device_norm){ .out       = out,
                                                .out_dtype = dtype,
                                                .x         = (void *)x, /* nothing is added */
                                                .x_dtype   = dtype,
                                                .dtype     = session->device->dtype,
                                                .norm      = hl_device_norm_of(session, vector),
                                                .n_rows    = places->n_batch * places->batch_rows,
                                                .n         = n,
                                                .places    = *places });
}

hl_status hl_device_norm_rows(const hl_session *session, void *out, const void *x, hl_dtype dtype,
                              const hl_device_vector *vector, const hl_device_places *places)
{
    return hl_device_norm_wide(session, out, x, dtype, vector, session->config->d_model, places);
}

/* The norm of the stream, which first adds the pending outputs. */
static hl_device_norm stream_norm(const hl_session *session)
{
    hl_device_session *d    = session->device;
    hl_device_norm     norm = { .x         = d->rows.x,
                                .add       = { d->pending[0], d->pending[1] },
                                .dtype     = d->dtype,
                                .add_scale = (float)session->config->residual_scale,
                                .n_rows    = d->inputs.places.n_batch * d->inputs.places.batch_rows,
                                .n         = session->config->d_model,
                                .places    = d->inputs.places };

    d->pending[0] = NULL;
    d->pending[1] = NULL;
    return norm;
}

hl_status hl_device_settle(const hl_session *session)
{
    if (session->device->pending[0] == NULL)
        return HL_OK;
    hl_device_norm norm = stream_norm(session);
    norm.is_plain       = true;
    return run_norm(session, &norm);
}

/* -------------------------------------------------------------------- halves */

/* Sets *input to the input of the branch, in the compute type: n(x), or x itself. */
static hl_status open_half(const void **input, const hl_session *session, int64_t layer,
                           const hl_half *half)
{
    hl_device_session *d = session->device;

    *input = d->rows.normed;
    if (!half->reads_norm && d->ops->is_near && !session->config->residual_normed) {
        *input = d->rows.x;
        return hl_device_settle(session);
    }
    hl_device_norm norm = stream_norm(session);
    norm.out            = d->rows.normed;
    norm.out_dtype      = d->dtype;
    norm.norm =
        hl_device_norm_of(session, hl_device_norm_role(&d->weights.layers[layer], half->norm));
    norm.is_plain = !half->reads_norm;
    if (session->config->residual_normed)
        norm.kept = d->rows.x;
    return run_norm(session, &norm);
}

static void *result_of(const hl_session *session, int64_t layer, hl_branch branch)
{
    const hl_device_session *d = session->device;

    if (branch == HL_BRANCH_MIXER)
        return hl_forward_mixed(session, layer);
    return branch == HL_BRANCH_ATTENTION ? d->rows.branch : d->rows.mlp;
}

/* Adds the outputs of halves [first, end) to the stream, the last half's first. */
static hl_status close_group(const hl_session *session, int64_t layer, const hl_half *halves,
                             int first, int end)
{
    hl_device_session     *d = session->device;
    const hl_device_layer *w = &d->weights.layers[layer];
    int                    n = 0;

    for (int i = end - 1; i >= first; i--) {
        void *given = result_of(session, layer, halves[i].branch);

        if (halves[i].post == HL_POST_BRANCH)
            HL_NEED(hl_device_norm_rows(session, given, given, d->dtype,
                                        hl_device_norm_role(w, halves[i].post_role),
                                        &d->inputs.places));
        d->pending[n++] = given;
    }
    if (halves[first].post != HL_POST_SUM)
        return HL_OK;
    hl_device_norm norm = stream_norm(session);
    norm.norm = hl_device_norm_of(session, hl_device_norm_role(w, halves[first].post_role));
    norm.kept = d->rows.x;
    return run_norm(session, &norm);
}

/* ---------------------------------------------------------------------- MLPs */

/* out = down(act(up x)), gated or not. */
static hl_status run_mlp(const hl_session *session, void *out, const void *x, int64_t layer,
                         const hl_device_map *up, const hl_device_map *down)
{
    const hl_device_session *d        = session->device;
    const hl_device_places  *places   = &d->inputs.places;
    const hl_layer_config   *at       = &session->config->layers[layer];
    int64_t                  width    = down->n_in;
    bool                     gated    = up->n_out == 2 * width;
    uint8_t                 *gate     = d->rows.up;
    hl_device_activate       activate = { .out      = d->rows.active,
                                          .gate     = gate,
                                          .up       = gated ? gate + (size_t)width * d->size : NULL,
                                          .x_stride = up->n_out,
                                          .dtype    = d->dtype,
                                          .activation = session->config->activation,
                                          .n_rows     = places->n_batch * places->batch_rows,
                                          .n          = width,
                                          .places     = *places };

    memcpy(activate.numbers, at->numbers, sizeof activate.numbers);
    activate.is_sparse  = at->is_sparse;
    activate.deviations = (float)at->deviations;
    HL_NEED(hl_device_multiply(session, d->rows.up, d->dtype, x, up, places));
    HL_NEED(hl_device_checked(d, d->ops->activate(d->device, &activate), "activation"));
    if (d->weights.layers[layer].inner_norm.weight != NULL)
        HL_NEED(hl_device_norm_wide(session, d->rows.active, d->rows.active, d->dtype,
                                    &d->weights.layers[layer].inner_norm, width, places));
    return hl_device_multiply(session, out, d->dtype, d->rows.active, down, places);
}

hl_device_experts hl_device_experts_of(const hl_session *session, int64_t layer,
                                       const hl_device_places *places)
{
    const hl_device_session *d      = session->device;
    const hl_config         *config = session->config;
    const hl_device_layer   *w      = &d->weights.layers[layer];

    return (hl_device_experts){ .out          = d->rows.mlp,
                                .router       = d->rows.router,
                                .up           = w->experts_up.weight,
                                .up_bias      = w->experts_up.bias,
                                .down         = w->experts_down.weight,
                                .down_bias    = w->experts_down.bias,
                                .dtype        = d->dtype,
                                .n_rows       = places->n_batch * places->batch_rows,
                                .d_model      = config->d_model,
                                .d_expert     = w->experts_down.n_in,
                                .n_experts    = config->layers[layer].n_experts,
                                .n_used       = config->n_experts_used,
                                .rule         = config->router,
                                .correction   = w->router_correction.weight,
                                .expert_scale = w->expert_scale.weight,
                                .is_gated =
                                    w->experts_up.n_out ==
                                    2 * w->experts_down.n_in * config->layers[layer].n_experts,
                                .activation = config->activation,
                                .limit      = (float)config->activation_limit,
                                .work       = d->rows.work,
                                .chosen     = d->rows.chosen,
                                .shares     = d->rows.shares,
                                .places     = *places };
}

hl_status hl_block_norm(const hl_session *session, const hl_device_vector *vector)
{
    hl_device_norm norm = stream_norm(session);

    norm.out       = session->device->rows.normed;
    norm.out_dtype = session->device->dtype;
    norm.norm      = hl_device_norm_of(session, vector);
    return run_norm(session, &norm);
}

static hl_status add_rows(const hl_session *session, void *out, const void *x, int64_t n)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;

    return hl_device_checked(
        d,
        d->ops->add_gated(d->device,
                          &(hl_device_add_gated){ .out    = out,
                                                  .x      = x,
                                                  .dtype  = d->dtype,
                                                  .n_rows = places->n_batch * places->batch_rows,
                                                  .n      = n,
                                                  .places = *places }),
        "sum");
}

/* rows.mlp = norm(shared expert(x)) + norm(sum of experts), where router and experts read the stream
 * through norms of their own. */
static hl_status run_apart(const hl_session *session, int64_t layer, const void *x)
{
    const hl_device_session *d       = session->device;
    const hl_device_places  *places  = &d->inputs.places;
    const hl_device_layer   *w       = &d->weights.layers[layer];
    hl_device_experts        experts = hl_device_experts_of(session, layer, places);

    HL_NEED(run_mlp(session, d->rows.shared, x, layer, &w->shared_up, &w->shared_down));
    HL_NEED(hl_device_norm_rows(session, d->rows.shared, d->rows.shared, d->dtype,
                                &w->shared_post_norm, places));
    HL_NEED(hl_block_norm(session, &w->router_norm));
    HL_NEED(hl_device_multiply(session, d->rows.router, HL_DTYPE_F32, d->rows.normed, &w->router,
                               places));
    HL_NEED(hl_block_norm(session, &w->expert_norm));
    experts.x = d->rows.normed;
    HL_NEED(hl_device_checked(d, d->ops->experts(d->device, &experts), "experts"));
    HL_NEED(hl_device_norm_rows(session, d->rows.mlp, d->rows.mlp, d->dtype, &w->expert_post_norm,
                                places));
    return add_rows(session, d->rows.mlp, d->rows.shared, session->config->d_model);
}

static hl_status run_mixture(const hl_session *session, int64_t layer, const void *x)
{
    const hl_device_session *d       = session->device;
    const hl_device_places  *places  = &d->inputs.places;
    const hl_device_layer   *w       = &d->weights.layers[layer];
    hl_device_experts        experts = hl_device_experts_of(session, layer, places);
    float                   *logit   = d->rows.router + experts.n_rows * experts.n_experts;

    experts.x = x;
    HL_NEED(hl_device_multiply(session, d->rows.router, HL_DTYPE_F32, x, &w->router, places));
    HL_NEED(hl_device_checked(d, d->ops->experts(d->device, &experts), "experts"));
    if (w->shared_up.weight == NULL)
        return HL_OK;
    if (w->shared_router.weight != NULL)
        HL_NEED(hl_device_multiply(session, logit, HL_DTYPE_F32, x, &w->shared_router, places));
    HL_NEED(run_mlp(session, d->rows.shared, x, layer, &w->shared_up, &w->shared_down));
    return hl_device_checked(
        d,
        d->ops->add_gated(
            d->device,
            &(hl_device_add_gated){ .out    = d->rows.mlp,
                                    .x      = d->rows.shared,
                                    .logit  = w->shared_router.weight != NULL ? logit : NULL,
                                    .dtype  = d->dtype,
                                    .n_rows = experts.n_rows,
                                    .n      = session->config->d_model,
                                    .places = *places }),
        "experts");
}

/* --------------------------------------------------------------------- whole */

hl_status hl_block_branch(hl_session *session, const hl_chunk *chunk, int64_t layer,
                          hl_branch branch, const void *input)
{
    const hl_device_session *d = session->device;

    if (branch == HL_BRANCH_ATTENTION)
        return hl_forward_attention(session, chunk, layer, input);
    if (branch == HL_BRANCH_MIXER)
        return hl_forward_mixer(session, chunk, layer, input);
    if (branch == HL_BRANCH_LAUREL)
        return hl_forward_laurel(session, layer, input);
    if (session->config->layers[layer].n_experts > 0 && session->config->experts_apart)
        return run_apart(session, layer, input);
    if (session->config->layers[layer].n_experts > 0)
        return run_mixture(session, layer, input);
    return run_mlp(session, d->rows.mlp, input, layer, &d->weights.layers[layer].up,
                   &d->weights.layers[layer].down);
}

hl_status hl_block_inputs(const hl_session *session, int64_t layer)
{
    hl_device_session      *d      = session->device;
    const hl_device_places *places = &d->inputs.places;
    const hl_device_layer  *w      = &d->weights.layers[layer];
    int64_t                 n_rows = places->n_batch * places->batch_rows;
    int64_t                 n      = session->config->d_ple;
    int64_t                 stride = session->config->n_layers * n;
    hl_device_linear        gate   = { .out        = d->rows.ple_gate,
                                       .out_dtype  = d->dtype,
                                       .out_stride = stride,
                                       .x          = d->rows.normed,
                                       .x_stride   = session->config->d_model,
                                       .weight     = w->ple_gate.weight,
                                       .dtype      = d->dtype,
                                       .n_rows     = n_rows,
                                       .n_in       = session->config->d_model,
                                       .n_out      = n,
                                       .places     = *places };
    hl_device_activate      active = { .out  = d->rows.ple_active,
                                       .gate = d->rows.ple_gate,
                                       .up = (uint8_t *)d->rows.ple + (size_t)(layer * n) * d->size,
                                       .x_stride   = stride,
                                       .dtype      = d->dtype,
                                       .activation = session->config->activation,
                                       .n_rows     = n_rows,
                                       .n          = n,
                                       .places     = *places };

    HL_NEED(hl_device_checked(d, d->ops->linear(d->device, &gate), "product"));
    HL_NEED(hl_device_checked(d, d->ops->activate(d->device, &active), "activation"));
    HL_NEED(hl_device_multiply(session, d->rows.branch, d->dtype, d->rows.ple_active, &w->ple_out,
                               places));
    return hl_device_norm_rows(session, d->rows.branch, d->rows.branch, d->dtype, &w->ple_norm,
                               places);
}

/* x += the layer's inputs. */
static hl_status add_inputs(const hl_session *session, int64_t layer)
{
    hl_device_session *d    = session->device;
    hl_device_norm     norm = stream_norm(session);

    norm.out       = d->rows.normed;
    norm.out_dtype = d->dtype;
    norm.is_plain  = true;
    HL_NEED(run_norm(session, &norm));
    HL_NEED(hl_block_inputs(session, layer));
    d->pending[0] = d->rows.branch;
    return HL_OK;
}

/* x *= factor, with all pending outputs. */
static hl_status scale_stream(const hl_session *session, double factor)
{
    const hl_device_session *d = session->device;

    HL_NEED(hl_device_settle(session));
    return hl_device_checked(
        d,
        d->ops->cap(d->device, &(hl_device_cap){ .x     = d->rows.x,
                                                 .count = d->inputs.places.n_batch *
                                                          d->inputs.places.batch_rows *
                                                          session->config->d_model,
                                                 .scale = (float)factor }),
        "scale");
}

hl_status hl_block_end(hl_session *session, int64_t layer)
{
    double scale = session->config->layers[layer].scale;

    if (session->config->n_streams > 1)
        HL_NEED(hl_forward_correct(session, layer));
    else if (session->config->d_ple > 0)
        HL_NEED(add_inputs(session, layer));
    return scale != 0.0 ? scale_stream(session, scale) : HL_OK;
}

/* Does the chunk end with the attention of this layer, since nobody needs what follows? */
static bool ends_with_attention(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    if (layer != hl_chunk_end_layer(session, chunk) - 1)
        return false;
    return chunk->feed->n_layers > 0 ? chunk->feed->to_mid : !hl_forward_needs_end(session, chunk);
}

hl_status hl_block_run(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    bool        attention_only = ends_with_attention(session, chunk, layer);
    bool        mlp_only       = chunk->feed->from_mid && layer == chunk->feed->first_layer;
    bool        has_middle     = session->config->residual == HL_RESIDUAL_SEQUENTIAL;
    const void *input          = NULL;
    hl_half     halves[HL_BLOCK_HALVES];
    int         n_halves = hl_block_halves(halves, session->config, layer);

    if (attention_only && n_halves > 0 && halves[n_halves - 1].branch == HL_BRANCH_MLP)
        n_halves--;
    if (session->config->n_streams > 1)
        HL_NEED(hl_forward_predict(session, layer));
    for (int first = 0, end = 0; first < n_halves; first = end) {
        end = hl_block_group(halves, n_halves, first);
        if (mlp_only && halves[first].branch != HL_BRANCH_MLP)
            continue;
        if (has_middle && halves[first].branch == HL_BRANCH_MLP) {
            HL_NEED(hl_observe_middle(session, chunk));
            has_middle = false;
        }
        for (int i = first; i < end; i++) {
            if (!halves[i].shares)
                HL_NEED(open_half(&input, session, layer, &halves[i]));
            HL_NEED(hl_block_branch(session, chunk, layer, halves[i].branch, input));
        }
        HL_NEED(close_group(session, layer, halves, first, end));
        if (halves[end - 1].branch == HL_BRANCH_LAUREL)
            HL_NEED(scale_stream(session, sqrt(0.5)));
    }
    if (!attention_only)
        HL_NEED(hl_block_end(session, layer));
    return has_middle ? hl_observe_middle(session, chunk) : HL_OK;
}
