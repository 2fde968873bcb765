/* forward_latent.c - the attention branch of models that cache a latent row per position (DeepSeek).
 *
 * config.h has the formulas.  The projections of keys and values are absorbed: queries go through
 * those of the keys, and what attention returns through those of the values, head by head.  So all
 * heads share one key, whose second part is the value, and nothing is expanded:
 *
 *     queries (N, H, d_rope + d_latent)     cache (S, d_rope + d_latent)     z' (N, H, d_latent) */
#include "base/dtype.h"
#include "base/status.h"
#include "model/forward.h"

static void *columns(const hl_device_session *d, void *rows, int64_t column)
{
    return (uint8_t *)rows + (size_t)column * d->size;
}

/* Multiplies n_heads parts of rows, each by the map of its head. */
static hl_status multiply_heads(const hl_session *session, void *out, int64_t out_stride,
                                int64_t out_step, const void *x, int64_t x_stride, int64_t x_step,
                                const hl_device_map *maps, int64_t n_heads)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;

    for (int64_t head = 0; head < n_heads; head++) {
        hl_device_linear linear = { .out        = columns(d, out, head * out_step),
                                    .out_dtype  = d->dtype,
                                    .out_stride = out_stride,
                                    .x          = columns(d, (void *)x, head * x_step),
                                    .x_stride   = x_stride,
                                    .weight     = maps[head].weight,
                                    .dtype      = d->dtype,
                                    .n_rows     = places->n_batch * places->batch_rows,
                                    .n_in       = maps[head].n_in,
                                    .n_out      = maps[head].n_out,
                                    .places     = *places };

        HL_NEED(hl_device_checked(d, d->ops->linear(d->device, &linear), "product"));
    }
    return HL_OK;
}

/* Copies n columns of `count` rows. */
static hl_status copy_columns(const hl_session *session, void *out, int64_t out_stride,
                              const void *x, int64_t x_stride, int64_t count, int64_t n)
{
    const hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->copy_rows(d->device, &(hl_device_copy_rows){ .out        = out,
                                                             .out_dtype  = d->dtype,
                                                             .out_stride = out_stride,
                                                             .x          = x,
                                                             .x_dtype    = d->dtype,
                                                             .x_stride   = x_stride,
                                                             .n_rows     = count,
                                                             .n          = n }),
        "latent rows");
}

/* The norms within latent attention have an epsilon of their own. */
static hl_status norm_columns(const hl_session *session, void *x, const hl_device_vector *weight,
                              int64_t n, hl_norm_kind kind)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;

    return hl_device_checked(
        d,
        d->ops->norm(d->device, &(hl_device_norm){ .out       = x,
                                                   .out_dtype = d->dtype,
                                                   .x         = x,
                                                   .x_dtype   = d->dtype,
                                                   .dtype     = d->dtype,
                                                   .norm      = { .kind   = kind,
                                                                  .eps    = 1e-6f,
                                                                  .weight = weight->weight,
                                                                  .bias   = weight->bias },
                                                   .n_rows = places->n_batch * places->batch_rows,
                                                   .n      = n,
                                                   .places = *places }),
        "norm");
}

/* RoPE and the positions' scale of rows of `n_heads` queries, or of one key, which is then cached. */
static hl_status turn(const hl_session *session, int64_t layer, void *rows, int64_t n_heads,
                      int64_t d_head, void *cache, hl_rope_choice choice, bool interleaved)
{
    const hl_device_session *d     = session->device;
    const hl_layer_config   *at    = &session->config->layers[layer];
    hl_device_heads          heads = { .qkv           = rows,
                                       .k_cache       = cache,
                                       .dtype         = d->dtype,
                                       .cache_dtype   = d->cache_dtype,
                                       .n_heads       = n_heads,
                                       .n_kv_heads    = cache != NULL ? 1 : 0,
                                       .d_head        = d_head,
                                       .n_ctx         = session->options.n_ctx,
                                       .no_values     = true,
                                       .temper        = cache == NULL ? (float)at->temper : 0.0f,
                                       .temper_first  = session->config->temper_first,
                                       .temper_period = session->config->temper_period,
                                       .cosine        = d->rows.cosine[choice],
                                       .sine          = d->rows.sine[choice],
                                       .n_pairs       = session->config->ropes[choice].n_dims / 2,
                                       .interleaved   = interleaved,
                                       .places        = d->inputs.places };

    return hl_device_checked(d, d->ops->heads(d->device, &heads), "heads");
}

/* rows.index = norm(A u), where there is an A; returns what Q_h reads. */
static hl_status make_query_input(const void **out, const hl_session *session, int64_t layer,
                                  const void *input)
{
    const hl_device_session *d = session->device;
    const hl_device_latent  *w = &d->weights.layers[layer].latent;

    *out = input;
    if (w->query.weight == NULL)
        return HL_OK;
    *out = d->rows.query;
    HL_NEED(
        hl_device_multiply(session, d->rows.query, d->dtype, input, &w->query, &d->inputs.places));
    return norm_columns(session, d->rows.query, &w->query_norm, w->query.n_out, HL_NORM_RMS);
}

/* rows.qkv = (rope, K_h' nope) of every head. */
static hl_status make_queries(const hl_session *session, int64_t layer, const void *input)
{
    const hl_device_session *d      = session->device;
    const hl_latent_config  *latent = &session->config->latent;
    const hl_device_latent  *w      = &d->weights.layers[layer].latent;
    int64_t                  H      = session->config->layers[layer].n_heads;
    int64_t                  d_key  = hl_latent_key_size(session->config);
    int64_t                  width  = latent->d_nope + latent->d_rope;
    int64_t                  n_rows = d->inputs.places.n_batch * d->inputs.places.batch_rows;

    HL_NEED(hl_device_multiply(session, d->rows.heads, d->dtype, input, &w->q, &d->inputs.places));
    HL_NEED(multiply_heads(session, columns(d, d->rows.qkv, latent->d_rope), H * d_key, d_key,
                           d->rows.heads, H * width, width, w->k, H));
    HL_NEED(copy_columns(session, d->rows.qkv, d_key, columns(d, d->rows.heads, latent->d_nope),
                         width, n_rows * H, latent->d_rope));
    return turn(session, layer, d->rows.qkv, H, d_key, NULL, HL_ROPE_MAIN,
                session->config->ropes[HL_ROPE_MAIN].interleaved);
}

/* rows.latent = (k_rope, c), which is cached. */
static hl_status make_key(const hl_session *session, int64_t layer, const void *input)
{
    const hl_device_session *d      = session->device;
    const hl_latent_config  *latent = &session->config->latent;
    const hl_device_latent  *w      = &d->weights.layers[layer].latent;
    const hl_device_places  *places = &d->inputs.places;
    int64_t                  d_key  = hl_latent_key_size(session->config);
    int64_t                  n_rows = places->n_batch * places->batch_rows;

    HL_NEED(hl_device_multiply(session, d->rows.compressed, d->dtype, input, &w->latent, places));
    HL_NEED(norm_columns(session, d->rows.compressed, &w->norm, latent->d_latent, HL_NORM_RMS));
    HL_NEED(copy_columns(session, columns(d, d->rows.latent, latent->d_rope), d_key,
                         d->rows.compressed, latent->d_latent, n_rows, latent->d_latent));
    HL_NEED(hl_device_multiply(session, d->rows.compressed, d->dtype, input, &w->rope, places));
    HL_NEED(copy_columns(session, d->rows.latent, d_key, d->rows.compressed, latent->d_rope, n_rows,
                         latent->d_rope));
    return turn(session, layer, d->rows.latent, 0, d_key, session->caches[layer].k, HL_ROPE_MAIN,
                session->config->ropes[HL_ROPE_MAIN].interleaved);
}

/* rows.index_bias: the keys that each row sees.  The indexer's keys are cached in any case, because later
 * rows may need them. */
static hl_status select_keys(const hl_session *session, int64_t layer, const void *input,
                             const void *query)
{
    const hl_device_session *d      = session->device;
    const hl_latent_config  *latent = &session->config->latent;
    const hl_device_latent  *w      = &d->weights.layers[layer].latent;
    const hl_device_places  *places = &d->inputs.places;
    hl_device_select         select = { .out         = d->rows.index_bias,
                                        .n_keys      = d->inputs.n_keys,
                                        .q           = d->rows.index_q,
                                        .weight      = d->rows.index_weight,
                                        .keys        = session->caches[layer].v,
                                        .dtype       = d->dtype,
                                        .cache_dtype = d->cache_dtype,
                                        .n_heads     = latent->n_index_heads,
                                        .d_head      = latent->d_index,
                                        .n_ctx       = session->options.n_ctx,
                                        .n_top       = latent->n_top,
                                        .places      = *places };

    HL_NEED(hl_device_multiply(session, d->rows.index_k, d->dtype, input, &w->index_k, places));
    HL_NEED(
        norm_columns(session, d->rows.index_k, &w->index_k_norm, latent->d_index, HL_NORM_LAYER));
    HL_NEED(turn(session, layer, d->rows.index_k, 0, latent->d_index, session->caches[layer].v,
                 HL_ROPE_MAIN, false));
    HL_NEED(hl_device_multiply(session, d->rows.index_q, d->dtype, query, &w->index_q, places));
    HL_NEED(turn(session, layer, d->rows.index_q, latent->n_index_heads, latent->d_index, NULL,
                 HL_ROPE_MAIN, false));
    HL_NEED(hl_device_multiply(session, d->rows.index_weight, HL_DTYPE_F32, input,
                               &w->index_weights, places));
    return hl_device_checked(d, d->ops->select(d->device, &select), "indexer");
}

hl_status hl_latent_make(const hl_session *session, int64_t layer, const void *input)
{
    const void *query = NULL;

    HL_NEED(make_query_input(&query, session, layer, input));
    if (session->config->latent.n_top > 0)
        HL_NEED(select_keys(session, layer, input, query));
    HL_NEED(make_queries(session, layer, query));
    return make_key(session, layer, input);
}

/* rows.z = V_h z' of every head. */
hl_status hl_latent_finish(const hl_session *session, int64_t layer)
{
    const hl_device_session *d      = session->device;
    const hl_latent_config  *latent = &session->config->latent;
    int64_t                  H      = session->config->layers[layer].n_heads;

    return multiply_heads(session, d->rows.z, H * latent->d_value, latent->d_value,
                          d->rows.latent_z, H * latent->d_latent, latent->d_latent,
                          d->weights.layers[layer].latent.v, H);
}
