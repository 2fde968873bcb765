/* device_attention.c - the attention branch on a device.
 *
 * As forward_attention.c: q, k and v by one product, their norms, RoPE and the cache by one
 * operation, then the fused kernel on the cache.  Chosen sequences whose caches do not
 * follow each other, or whose gates differ, are problems of their own. */
#include <string.h>

#include "base/status.h"
#include "model/device.h"

static hl_session_cache *cache_of(const hl_session *session, int64_t layer)
{
    return &session->caches[session->config->is_encoder ? 0 : layer];
}

/* ------------------------------------------------------------------- q, k, v */

static hl_device_head_norm head_norm_of(hl_qk_norm norm)
{
    switch (norm) {
    case HL_QK_NORM_SHARED:
        return HL_HEAD_NORM_SHARED;
    case HL_QK_NORM_EACH:
        return HL_HEAD_NORM_EACH;
    case HL_QK_NORM_ALL:
        return HL_HEAD_NORM_ALL;
    default:
        return HL_HEAD_NORM_NONE;
    }
}

static hl_status make_heads(hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_layer_config  *at    = &session->config->layers[layer];
    const hl_rope          *rope  = &session->config->ropes[at->rope];
    hl_device_session      *d     = session->device;
    const hl_device_layer  *w     = &d->weights.layers[layer];
    const hl_session_cache *cache = cache_of(session, layer);
    hl_status status = hl_device_multiply(session, d->rows.qkv, d->dtype, d->rows.normed, &w->qkv,
                                          chunk->n_batch * chunk->n_rows);

    if (status != HL_OK)
        return status;
    hl_device_heads heads = { .qkv        = d->rows.qkv,
                              .k_cache    = cache->k,
                              .v_cache    = cache->v,
                              .dtype      = d->dtype,
                              .n_heads    = at->n_heads,
                              .n_kv_heads = at->n_kv_heads,
                              .d_head     = session->config->d_head,
                              .n_ctx      = session->options.n_ctx,
                              .norm       = head_norm_of(session->config->qk_norm),
                              .q_norm     = hl_device_norm_of(session, &w->q_norm),
                              .k_norm     = hl_device_norm_of(session, &w->k_norm),
                              .places     = d->inputs.places };
    if (at->rope != HL_ROPE_NONE) {
        heads.cosine      = d->rows.cosine[at->rope];
        heads.sine        = d->rows.sine[at->rope];
        heads.n_pairs     = rope->n_dims / 2;
        heads.interleaved = rope->interleaved;
    }
    return hl_device_checked(d, d->ops->heads(d->device, &heads), "heads");
}

/* ------------------------------------------------------------------ problems */

static void *offset(void *block, int64_t count, size_t size)
{
    return (uint8_t *)block + (size_t)count * size;
}

/* What hl_forward_problem says, with everything in the device's memory, of fed sequences
 * [first, first + n): the caches of these follow each other. */
static hl_attention problem_of(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                               int64_t first, int64_t n)
{
    const hl_device_session *d       = session->device;
    const hl_layer_config   *at      = &session->config->layers[layer];
    const hl_device_layer   *w       = &d->weights.layers[layer];
    const hl_device_inputs  *inputs  = &d->inputs;
    int64_t                  d_head  = session->config->d_head;
    int64_t                  width   = (at->n_heads + 2 * at->n_kv_heads) * d_head;
    int64_t                  kept    = at->n_kv_heads * session->options.n_ctx * d_head;
    hl_attention             problem = hl_forward_problem(session, chunk, layer);

    problem.n_batch = n;
    problem.n_keys  = inputs->n_keys;
    if (problem.window_left >= inputs->n_keys - 1) /* hides nothing, and a mask costs time */
        problem.flags &= ~(uint32_t)HL_ATTENTION_WINDOW_LEFT;
    problem.q = (hl_rows){ .data  = offset(d->rows.qkv, first * chunk->n_rows * width, d->size),
                           .dtype = d->dtype,
                           .batch_stride = chunk->n_rows * width,
                           .head_stride  = d_head,
                           .row_stride   = width };
    problem.k.dtype = d->dtype;
    problem.v.dtype = d->dtype;
    problem.k.data  = offset(cache_of(session, layer)->k, chunk->sequences[first] * kept, d->size);
    problem.v.data  = offset(cache_of(session, layer)->v, chunk->sequences[first] * kept, d->size);
    problem.query_start  = inputs->places.start + first;
    problem.key_length   = inputs->ends + first;
    problem.alibi_slopes = d->weights.alibi_slopes;
    problem.key_bias     = d->weights.key_bias;
    problem.sinks        = w->sinks.weight;
    problem.gates        = NULL;
    if (inputs->gates != NULL)
        problem.gates = inputs->gates +
                        (inputs->gates_differ ? first : 0) * session->config->n_layers *
                            session->config->n_heads +
                        layer * session->config->n_heads;
    if (problem.segments != NULL)
        problem.segments = d->rows.segments + chunk->sequences[first] * session->options.n_ctx;
    return problem;
}

/* How many fed sequences from `first` on are one problem. */
static int64_t run_length(const hl_device_session *d, const hl_chunk *chunk, int64_t first)
{
    int64_t n = 1;

    while (!d->inputs.gates_differ && first + n < chunk->n_batch &&
           chunk->sequences[first + n] == chunk->sequences[first] + n)
        n++;
    return n;
}

static void advance(float **pointer, int64_t count)
{
    if (*pointer != NULL)
        *pointer += count;
}

static hl_attention_result result_from(const hl_attention_result *whole, int64_t rows,
                                       int64_t n_segments)
{
    hl_attention_result part         = *whole;
    float             **statistics[] = { &part.lse,        &part.entropy,  &part.renyi2,
                                         &part.varentropy, &part.peak,     &part.entropy_nosink,
                                         &part.diagonal,   &part.previous, &part.first };

    for (size_t i = 0; i < sizeof statistics / sizeof *statistics; i++)
        advance(statistics[i], rows);
    advance(&part.segment_mass, rows * n_segments);
    if (part.argmax != NULL)
        part.argmax += rows;
    return part;
}

hl_status hl_device_attend(hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const hl_attention_result *statistics)
{
    hl_device_session *d       = session->device;
    int64_t            n_heads = session->config->layers[layer].n_heads;
    int64_t            width   = n_heads * session->config->d_head;
    int64_t            n       = 0;

    HL_NEED(make_heads(session, chunk, layer));
    for (int64_t first = 0; first < chunk->n_batch; first += n) {
        n                           = run_length(d, chunk, first);
        hl_attention        problem = problem_of(session, chunk, layer, first, n);
        hl_attention_result result =
            result_from(statistics, first * n_heads * chunk->n_rows, problem.n_segments);

        result.out = (hl_rows){ .data  = offset(d->rows.z, first * chunk->n_rows * width, d->size),
                                .dtype = d->dtype,
                                .batch_stride = chunk->n_rows * width,
                                .head_stride  = session->config->d_head,
                                .row_stride   = width };
        HL_NEED(hl_device_checked(d, d->ops->attention(d->device, &result, &problem), "attention"));
    }
    return hl_device_multiply(session, d->rows.branch, d->dtype, d->rows.z,
                              &d->weights.layers[layer].o, chunk->n_batch * chunk->n_rows);
}

/* ------------------------------------------------------------------ patterns */

/* (batch, head, row) of every place in (B, H, n_patterns); rows of nobody's interest are -1. */
static void list_items(int64_t *items, const hl_session *session, const hl_chunk *chunk,
                       int64_t layer, int64_t first, int64_t n)
{
    const hl_tap *tap        = chunk->feed->tap;
    int64_t       n_heads    = session->config->layers[layer].n_heads;
    int64_t       n_patterns = session->device->n_patterns;

    for (int64_t i = 0; i < n * n_heads * n_patterns; i++) {
        int64_t pattern  = i % n_patterns;
        int64_t head     = i / n_patterns % n_heads;
        int64_t sequence = first + i / n_patterns / n_heads;
        int64_t row =
            session->rows
                .pattern_rows[tap->patterns_differ ? sequence * n_patterns + pattern : pattern];
        bool wanted = tap->pattern_heads == NULL ||
                      tap->pattern_heads[layer * session->config->n_heads + head];

        items[3 * i]     = sequence - first;
        items[3 * i + 1] = head;
        items[3 * i + 2] = wanted && row < chunk->lengths[sequence] ? row : -1;
    }
}

/* Of n sequences that are one problem.  Where nobody reads `exact`, the operator's own lse will do. */
static hl_status make_some(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const hl_device_lane *lane, int64_t first, int64_t n)
{
    const hl_device_session *d       = session->device;
    bool                     quick   = hl_device_compares(session, chunk);
    int64_t                  n_heads = session->config->layers[layer].n_heads;
    int64_t                  before  = first * n_heads * d->n_patterns;
    int64_t                  n_items = n * n_heads * d->n_patterns;
    int64_t                 *items   = (int64_t *)lane->items.host + 3 * before;
    hl_attention             problem = problem_of(session, chunk, layer, first, n);
    hl_device_patterns       rows    = { .out_stride = session->options.n_ctx,
                                         .problem    = &problem,
                                         .items      = (int64_t *)lane->items.device + 3 * before,
                                         .n_items    = n_items };

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
    return hl_device_checked(d, d->ops->patterns(d->device, &rows), "patterns");
}

hl_status hl_device_make_patterns(hl_session *session, const hl_chunk *chunk, int64_t layer,
                                  hl_device_lane *lane)
{
    hl_device_session *d = session->device;
    int64_t n_items      = chunk->n_batch * session->config->layers[layer].n_heads * d->n_patterns;
    int64_t n            = 0;

    /* A shorter sequence has no such row: it reads as zeros. */
    if (!chunk->feed->tap->patterns_differ)
        HL_NEED(hl_device_checked(
            d,
            d->ops->zero(d->device, lane->pattern.device,
                         (size_t)(n_items * session->options.n_ctx) * sizeof(float)),
            "patterns"));
    for (int64_t first = 0; first < chunk->n_batch && n_items > 0; first += n) {
        n = run_length(d, chunk, first);
        HL_NEED(make_some(session, chunk, layer, lane, first, n));
    }
    return HL_OK;
}
