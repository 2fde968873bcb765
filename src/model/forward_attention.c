/* forward_attention.c - the attention branch: projections, norms of q and k, RoPE, cache,
 * attention.
 *
 * One product computes q, k and v; one operation does their norms, RoPE and the cache; then the
 * fused kernel reads the cache.  All differences between families are arguments of that kernel:
 * windows, scale, soft-cap, ALiBi, sinks, gates. */
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/attention.h"
#include "model/forward.h"

/* ------------------------------------------------------------------- q, k, v */

static const hl_session_cache *cache_of(const hl_session *session, int64_t layer)
{
    return &session->caches[session->config->layers[layer].kv_layer];
}

static hl_status make_heads(hl_session *session, int64_t layer, const void *input)
{
    const hl_layer_config  *at    = &session->config->layers[layer];
    const hl_rope          *rope  = &session->config->ropes[at->rope];
    hl_device_session      *d     = session->device;
    const hl_device_layer  *w     = &d->weights.layers[layer];
    const hl_session_cache *cache = cache_of(session, layer);
    hl_device_heads         heads = { .qkv         = d->rows.qkv,
                                      .k_cache     = cache->k,
                                      .v_cache     = cache->v,
                                      .dtype       = d->dtype,
                                      .cache_dtype = d->cache_dtype,
                                      .n_heads     = at->n_heads,
                                      .n_kv_heads  = hl_config_own_kv_heads(session->config, layer),
                                      .d_head      = at->d_head,
                                      .n_ctx       = session->options.n_ctx,
                                      .norm        = at->qk_norm,
                                      .q_norm      = hl_device_norm_of(session, &w->q_norm),
                                      .k_norm      = hl_device_norm_of(session, &w->k_norm),
                                      .v_normed    = session->config->v_normed,
                                      .norm_last   = session->config->qk_norm_last,
                                      .limit       = (float)session->config->qkv_limit,
                                      .temper      = (float)at->temper,
                                      .temper_first  = session->config->temper_first,
                                      .temper_period = session->config->temper_period,
                                      .places        = d->inputs.places };

    if (at->rope != HL_ROPE_NONE) {
        heads.cosine      = d->rows.cosine[at->rope];
        heads.sine        = d->rows.sine[at->rope];
        heads.n_pairs     = rope->n_dims / 2;
        heads.interleaved = rope->interleaved;
    }
    HL_NEED(hl_device_multiply(session, d->rows.qkv, d->dtype, input, &w->qkv, &d->inputs.places));
    return hl_device_checked(d, d->ops->heads(d->device, &heads), "heads");
}

/* ------------------------------------------------------------------ problems */

static void *offset(void *block, int64_t count, size_t size)
{
    return (uint8_t *)block + (size_t)count * size;
}

static void set_masks(hl_attention *problem, const hl_session *session,
                      const hl_layer_config *layer)
{
    problem->flags = HL_ATTENTION_SCALE;
    if (!session->config->is_encoder)
        problem->flags |= HL_ATTENTION_CAUSAL;
    /* A window that hides nothing is omitted, because a mask costs time. */
    if (!layer->is_local || (!session->device->ops->is_near && !session->config->is_encoder &&
                             layer->window_left >= problem->n_keys - 1 && !layer->window_blocks))
        return;
    problem->flags |= HL_ATTENTION_WINDOW_LEFT;
    if (layer->window_blocks)
        problem->flags |= HL_ATTENTION_WINDOW_BLOCKS;
    problem->window_left = layer->window_left;
    problem->window_sink = layer->window_sink;
    if (session->config->is_encoder) {
        problem->flags |= HL_ATTENTION_WINDOW_RIGHT;
        problem->window_right = layer->window_right;
    }
}

/* Latent attention: all heads share a key, and its second part is the value. */
static void share_latent(hl_attention *problem, const hl_session *session, const hl_chunk *chunk,
                         int64_t layer, int64_t first)
{
    const hl_device_session *d      = session->device;
    const hl_latent_config  *latent = &session->config->latent;
    int64_t                  d_key  = hl_latent_key_size(session->config);
    int64_t                  width  = problem->n_heads * d_key;
    int64_t                  kept   = session->options.n_ctx * d_key;
    size_t                   size   = hl_dtype_bits(d->cache_dtype) / 8;

    problem->n_kv_heads = 1;
    problem->d_head     = d_key;
    problem->d_value    = latent->d_latent;
    problem->q = (hl_rows){ .data  = offset(d->rows.qkv, first * chunk->n_rows * width, d->size),
                            .dtype = d->dtype,
                            .batch_stride = chunk->n_rows * width,
                            .head_stride  = d_key,
                            .row_stride   = width };
    problem->k = (hl_rows){ .data         = offset(cache_of(session, layer)->k,
                                                   chunk->sequences[first] * kept, size),
                            .dtype        = d->cache_dtype,
                            .batch_stride = kept,
                            .head_stride  = kept,
                            .row_stride   = d_key };
    if (hl_forward_leaves_out(session, chunk))
        problem->row_bias = d->rows.index_bias + first * chunk->n_rows * problem->n_keys;
    problem->v      = problem->k;
    problem->v.data = offset(problem->k.data, latent->d_rope, size);
}

bool hl_forward_leaves_out(const hl_session *session, const hl_chunk *chunk)
{
    (void)chunk;
    return session->config->latent.n_top > 0 &&
           session->config->latent.n_top < session->device->inputs.n_keys;
}

hl_attention hl_forward_problem(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                                int64_t first, int64_t n)
{
    const hl_device_session *d       = session->device;
    const hl_config         *config  = session->config;
    const hl_layer_config   *at      = &config->layers[layer];
    const hl_device_inputs  *inputs  = &d->inputs;
    int64_t                  n_ctx   = session->options.n_ctx;
    int64_t                  d_head  = at->d_head;
    int64_t                  n_own   = hl_config_own_kv_heads(config, layer);
    int64_t                  width   = (at->n_heads + 2 * n_own) * d_head;
    int64_t                  kept    = at->n_kv_heads * n_ctx * d_head;
    int64_t                  cached  = chunk->sequences[first] * kept;
    size_t                   size    = hl_dtype_bits(d->cache_dtype) / 8;
    hl_attention             problem = {
                    .n_batch    = n,
                    .n_heads    = at->n_heads,
                    .n_kv_heads = at->n_kv_heads,
                    .n_queries  = chunk->n_rows,
                    .n_keys     = inputs->n_keys,
                    .d_head     = d_head,
                    .d_value    = d_head,
                    .q     = { .data  = offset(d->rows.qkv, first * chunk->n_rows * width, d->size),
                               .dtype = d->dtype,
                               .batch_stride = chunk->n_rows * width,
                               .head_stride  = d_head,
                               .row_stride   = width },
                    .k     = { .data         = offset(cache_of(session, layer)->k, cached, size),
                               .dtype        = d->cache_dtype,
                               .batch_stride = kept,
                               .head_stride  = n_ctx * d_head,
                               .row_stride   = d_head },
                    .scale = at->attn_scale,
                    .softcap      = config->attn_softcap,
                    .query_start  = inputs->places.start + first,
                    .key_length   = inputs->ends + first,
                    .alibi_slopes = d->weights.alibi_slopes,
                    .key_bias     = d->weights.key_bias,
                    .sinks        = d->weights.layers[layer].sinks.weight,
    };

    problem.v      = problem.k;
    problem.v.data = offset(cache_of(session, layer)->v, cached, size);
    if (config->latent.d_latent > 0)
        share_latent(&problem, session, chunk, layer, first);
    if (inputs->gates != NULL && !config->inner_norms)
        problem.gates = inputs->gates +
                        (inputs->gates_differ ? first : 0) * config->n_layers * config->n_heads +
                        layer * config->n_heads;
    if (chunk->feed->segments != NULL) {
        problem.segments       = d->rows.segments + chunk->sequences[first] * n_ctx;
        problem.segment_stride = n_ctx;
        problem.n_segments     = chunk->feed->n_segments;
    }
    set_masks(&problem, session, at);
    return problem;
}

/* Whether rows must not depend on what else is fed.  A near device keeps this promise of
 * hl_feed.sequences. */
static bool is_apart(const hl_device_session *d, const hl_chunk *chunk)
{
    return d->ops->is_near && chunk->feed->sequences != NULL;
}

/* The number of fed sequences, from `first` on, that form one problem. */
static int64_t run_length(const hl_device_session *d, const hl_chunk *chunk, int64_t first)
{
    int64_t n = 1;

    while (!d->inputs.gates_differ && !is_apart(d, chunk) && first + n < chunk->n_batch &&
           chunk->sequences[first + n] == chunk->sequences[first] + n)
        n++;
    return n;
}

/* rows (N, n) *= factor. */
static hl_status scale_rows(const hl_session *session, void *rows, int64_t n, double factor)
{
    const hl_device_session *d      = session->device;
    const hl_device_places  *places = &d->inputs.places;

    if (factor == 1.0)
        return HL_OK;
    return hl_device_checked(
        d,
        d->ops->gate(d->device, &(hl_device_gate){ .out      = rows,
                                                   .x        = rows,
                                                   .x_stride = n,
                                                   .scale    = (float)factor,
                                                   .dtype    = d->dtype,
                                                   .n_rows   = places->n_batch * places->batch_rows,
                                                   .n        = n,
                                                   .d_group  = n,
                                                   .places   = *places }),
        "factor");
}

/* z *= sigmoid(gate x), after the gates of heads. */
static hl_status gate_heads(const hl_session *session, int64_t layer, const void *input)
{
    const hl_device_session *d      = session->device;
    const hl_device_map     *map    = &d->weights.layers[layer].attn_gate;
    const hl_device_places  *places = &d->inputs.places;
    int64_t                  n      = map->n_out;

    if (map->weight == NULL)
        return HL_OK;
    HL_NEED(hl_device_multiply(session, d->rows.gate, d->dtype, input, map, places));
    return hl_device_checked(
        d,
        d->ops->gate(d->device, &(hl_device_gate){ .out        = d->rows.z,
                                                   .x          = d->rows.z,
                                                   .z          = d->rows.gate,
                                                   .x_stride   = n,
                                                   .z_stride   = n,
                                                   .activation = HL_ACTIVATION_SIGMOID,
                                                   .z_scale    = 1.0f,
                                                   .scale      = 1.0f,
                                                   .dtype      = d->dtype,
                                                   .n_rows  = places->n_batch * places->batch_rows,
                                                   .n       = n,
                                                   .d_group = n,
                                                   .places  = *places }),
        "gate");
}

/* z_normed = norm(z), and then the gates of heads. */
static hl_status norm_heads(const hl_session *session, int64_t layer)
{
    const hl_device_session *d      = session->device;
    const hl_config         *config = session->config;
    const hl_layer_config   *at     = &config->layers[layer];
    hl_device_gate_heads     gates  = { .x       = d->rows.z_normed,
                                        .dtype   = d->dtype,
                                        .n_heads = at->n_heads,
                                        .d_head  = at->d_head,
                                        .places  = d->inputs.places };

    HL_NEED(hl_device_norm_wide(session, d->rows.z_normed, d->rows.z, d->dtype,
                                &d->weights.layers[layer].z_norm, at->n_heads * at->d_head,
                                &d->inputs.places));
    if (d->inputs.gates == NULL)
        return HL_OK;
    gates.gates       = d->inputs.gates + layer * config->n_heads;
    gates.gate_stride = d->inputs.gates_differ ? config->n_layers * config->n_heads : 0;
    return hl_device_checked(d, d->ops->gate_heads(d->device, &gates), "gates");
}

/* Writes the rows of a patch over those that were computed. */
static void put_patch(const hl_session *session, const hl_chunk *chunk, const hl_patch *patch)
{
    const hl_layer_config *at    = &session->config->layers[patch->layer];
    int64_t                width = at->n_heads * at->d_head;
    float                 *z =
        session->config->inner_norms ? session->device->rows.z_normed : session->device->rows.z;

    for (int64_t i = 0; i < chunk->n_batch * chunk->n_rows; i++) {
        int64_t      sequence = i / chunk->n_rows, row = i % chunk->n_rows;
        const float *from =
            patch->z + (sequence * chunk->feed->n_tokens + chunk->offset + row) * width;

        for (int64_t head = 0; head < at->n_heads && row < chunk->lengths[sequence]; head++) {
            if (patch->heads == NULL || patch->heads[head])
                memcpy(z + i * width + head * at->d_head, from + head * at->d_head,
                       (size_t)at->d_head * sizeof *z);
        }
    }
}

hl_status hl_forward_attention(hl_session *session, const hl_chunk *chunk, int64_t layer,
                               const void *input)
{
    hl_device_session *d       = session->device;
    int64_t            n_heads = session->config->layers[layer].n_heads;
    int64_t            d_head  = session->config->layers[layer].d_head;
    int64_t            width   = n_heads * d_head;
    int64_t            n_parts = 0;
    int64_t            n       = 0;

    bool  is_latent = session->config->latent.d_latent > 0;
    void *z         = is_latent ? d->rows.latent_z : d->rows.z;

    if (is_latent) {
        d_head = session->config->latent.d_latent;
        width  = n_heads * d_head;
    }
    HL_NEED(is_latent ? hl_latent_make(session, layer, input) : make_heads(session, layer, input));
    for (int64_t first = 0; first < chunk->n_batch; first += n) {
        hl_device_attention *part = &d->parts[n_parts++];

        n = run_length(d, chunk, first);
        *part =
            (hl_device_attention){ .problem  = hl_forward_problem(session, chunk, layer, first, n),
                                   .is_apart = is_apart(d, chunk) };
        part->result = hl_attention_result_from(
            &d->watch.statistics, first * n_heads * chunk->n_rows, part->problem.n_segments);
        part->result.out = (hl_rows){
            .data         = offset(z, first * chunk->n_rows * width, d->size),
            .dtype        = d->dtype,
            .batch_stride = chunk->n_rows * width,
            .head_stride  = d_head,
            .row_stride   = width,
        };
    }
    HL_NEED(hl_device_checked(d, d->ops->attention(d->device, d->parts, n_parts), "attention"));
    if (is_latent)
        HL_NEED(hl_latent_finish(session, layer));
    HL_NEED(gate_heads(session, layer, input));
    HL_NEED(scale_rows(session, d->rows.z, width, session->config->attn_in_factor));
    if (session->config->inner_norms)
        HL_NEED(norm_heads(session, layer));
    for (int64_t i = 0; i < chunk->feed->n_patches; i++) {
        if (chunk->feed->patches[i].layer == layer)
            put_patch(session, chunk, &chunk->feed->patches[i]);
    }
    HL_NEED(hl_device_multiply(session, d->rows.branch, d->dtype,
                               session->config->inner_norms ? d->rows.z_normed : d->rows.z,
                               &d->weights.layers[layer].o, &d->inputs.places));
    return scale_rows(session, d->rows.branch, session->config->d_model,
                      session->config->attn_out_factor);
}

/* ------------------------------------------------------------------ patterns */

/* Lists the tap's positions that are in this chunk, as rows.  All sequences must start at the same
 * position, so that a row means the same in each. */
static int64_t list_rows(int64_t *out, const hl_chunk *chunk)
{
    const hl_tap *tap   = chunk->feed->tap;
    int64_t       count = 0;

    for (int64_t i = 0; i < tap->n_pattern_positions; i++) {
        int64_t row = tap->pattern_positions[i] - chunk->start[0];
        if (row >= 0 && row < chunk->n_rows)
            out[count++] = row;
    }
    return count;
}

/* Lists rows if each sequence has its own positions: -1 for positions outside the chunk. */
static int64_t list_own_rows(int64_t *out, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    for (int64_t i = 0; i < chunk->n_batch * tap->n_pattern_positions; i++) {
        int64_t sequence = i / tap->n_pattern_positions;
        int64_t row      = tap->pattern_positions[i] - chunk->start[sequence];
        out[i]           = row >= 0 && row < chunk->lengths[sequence] ? row : -1;
    }
    return tap->n_pattern_positions;
}

int64_t hl_forward_pattern_rows(const hl_session *session, const hl_chunk *chunk)
{
    if (chunk->feed->tap->patterns_differ)
        return list_own_rows(session->device->pattern_rows, chunk);
    return list_rows(session->device->pattern_rows, chunk);
}

/* Writes (batch, head, row) for every place in (B, H, n_patterns); row is -1 if no tap wants it. */
static void list_items(int64_t *items, const hl_session *session, const hl_chunk *chunk,
                       int64_t layer, int64_t first, int64_t n)
{
    const hl_tap  *tap        = chunk->feed->tap;
    const int64_t *rows       = session->device->pattern_rows;
    int64_t        n_heads    = session->config->layers[layer].n_heads;
    int64_t        n_patterns = session->device->n_patterns;

    for (int64_t i = 0; i < n * n_heads * n_patterns; i++) {
        int64_t pattern  = i % n_patterns;
        int64_t head     = i / n_patterns % n_heads;
        int64_t sequence = first + i / n_patterns / n_heads;
        int64_t row      = rows[tap->patterns_differ ? sequence * n_patterns + pattern : pattern];
        bool    wanted   = tap->pattern_heads == NULL ||
                      tap->pattern_heads[layer * session->config->n_heads + head];

        items[3 * i]     = sequence - first;
        items[3 * i + 1] = head;
        items[3 * i + 2] = wanted && row < chunk->lengths[sequence] ? row : -1;
    }
}

/* Computes whole rows of n sequences that form one problem.  If `exact` is not read, the operator's
 * own lse is precise enough. */
static hl_status make_some(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const hl_device_lane *lane, int64_t first, int64_t n)
{
    const hl_device_session *d       = session->device;
    bool                     quick   = hl_device_compares(session, chunk);
    int64_t                  n_heads = session->config->layers[layer].n_heads;
    int64_t                  before  = first * n_heads * d->n_patterns;
    int64_t                  n_items = n * n_heads * d->n_patterns;
    int64_t                 *items   = (int64_t *)lane->items.host + 3 * before;
    hl_attention             problem = hl_forward_problem(session, chunk, layer, first, n);
    hl_device_patterns       rows    = { .out_stride = session->options.n_ctx,
                                         .problem    = &problem,
                                         .items      = (int64_t *)lane->items.device + 3 * before,
                                         .n_items    = n_items,
                                         .scores     = d->rows.scores };

    rows.out = (float *)lane->pattern.device + before * rows.out_stride;
    if (quick)
        rows.lse =
            hl_device_place_statistics(lane->statistics.device, hl_chunk_rows(chunk) * n_heads, 0)
                .lse +
            first * n_heads * chunk->n_rows;
    else
        rows.statistics = (hl_pattern_row *)lane->exact.device + before;
    list_items(items, session, chunk, layer, first, n);
    HL_NEED(hl_device_checked(d,
                              d->ops->copy_in(d->device, (int64_t *)lane->items.device + 3 * before,
                                              items, (size_t)(3 * n_items) * sizeof *items),
                              "patterns"));
    if (problem.row_bias != NULL && lane->full.device != NULL) {
        hl_attention       all  = problem;
        hl_device_patterns full = rows; /* the next call overwrites these rows */

        all.row_bias    = NULL;
        full.problem    = &all;
        full.statistics = (hl_pattern_row *)lane->full.device + before;
        HL_NEED(hl_device_checked(d, d->ops->patterns(d->device, &full), "patterns"));
    }
    return hl_device_checked(d, d->ops->patterns(d->device, &rows), "patterns");
}

/* Whether some sequence lacks a row that others have. */
static bool has_gaps(const hl_session *session, const hl_chunk *chunk)
{
    const hl_device_session *d = session->device;

    for (int64_t b = 0; b < chunk->n_batch && !chunk->feed->tap->patterns_differ; b++) {
        if (d->n_patterns > 0 && d->pattern_rows[d->n_patterns - 1] >= chunk->lengths[b])
            return true;
    }
    return false;
}

hl_status hl_forward_patterns(hl_session *session, const hl_chunk *chunk, int64_t layer,
                              hl_device_lane *lane)
{
    hl_device_session *d = session->device;
    int64_t n_items      = chunk->n_batch * session->config->layers[layer].n_heads * d->n_patterns;
    int64_t n            = 0;

    if (has_gaps(session, chunk)) { /* missing rows read as zeros */
        HL_NEED(hl_device_checked(
            d,
            d->ops->zero(d->device, lane->pattern.device,
                         (size_t)(n_items * session->options.n_ctx) * sizeof(float)),
            "patterns"));
        if (lane->exact.device != NULL)
            HL_NEED(hl_device_checked(d,
                                      d->ops->zero(d->device, lane->exact.device,
                                                   (size_t)n_items * sizeof(hl_pattern_row)),
                                      "patterns"));
    }
    for (int64_t first = 0; first < chunk->n_batch && n_items > 0; first += n) {
        n = run_length(d, chunk, first);
        HL_NEED(make_some(session, chunk, layer, lane, first, n));
    }
    return HL_OK;
}
