/* observer.c - reports each layer to a tap or to the library's own observer.
 *
 * A layer's statistics and rows are collected in a lane while it runs, and reported after it has
 * run.  On a near device these are the layer's own rows.  On other devices they are copied when the
 * layer is done and reported when they have arrived, while the next layer runs.  An observer with a
 * plan gets no rows of z, of the stream and of attention.  Instead the lane computes sums of rows,
 * norms, products between heads and distances between their whole rows (row_sums.h): a few hundred
 * kilobytes instead of megabytes, and no work for the host. */
#include <string.h>

#include "base/status.h"
#include "kernels/attention.h"
#include "model/forward.h"

/* Arrays of (B, H, C), followed by one of segments.  argmax is omitted: no observer uses it, and
 * the fastest kernels do not compute it. */
size_t hl_device_statistics_bytes(int64_t count, int64_t n_segments)
{
    return (size_t)count * (size_t)(HL_ROW_STATISTICS + n_segments) * sizeof(float);
}

hl_attention_result hl_device_place_statistics(void *block, int64_t count, int64_t n_segments)
{
    float              *first  = block;
    hl_attention_result result = hl_attention_result_in(first, count);

    if (n_segments > 0)
        result.segment_mass = first + HL_ROW_STATISTICS * count;
    return result;
}

/* ------------------------------------------------------------------- keeping */

/* The address of rows of some kind on the device. */
typedef struct kept_rows {
    const void *data;
    hl_dtype    dtype;
    int64_t     stride;
    int64_t     width;
} kept_rows;

static kept_rows find_rows(const hl_session *session, int kind, int64_t layer)
{
    const hl_device_session *d       = session->device;
    const hl_config         *config  = session->config;
    int64_t                  d_model = config->d_model;

    if (kind >= HL_KEPT_PRE)
        return (kept_rows){ d->rows.x, HL_DTYPE_F32, d_model, d_model };
    int64_t  d_head = config->layers[layer].d_head;
    int64_t  q      = config->layers[layer].n_heads * d_head;
    int64_t  k      = hl_config_own_kv_heads(config, layer) * d_head;
    uint8_t *qkv    = d->rows.qkv;
    int64_t  stride = q + 2 * k;
    switch (kind) {
    case HL_KEPT_Q:
        return (kept_rows){ qkv, d->dtype, stride, q };
    case HL_KEPT_K:
        return (kept_rows){ qkv + (size_t)q * d->size, d->dtype, stride, k };
    case HL_KEPT_V:
        return (kept_rows){ qkv + (size_t)(q + k) * d->size, d->dtype, stride, k };
    default:
        return (kept_rows){ config->inner_norms ? d->rows.z_normed : d->rows.z, d->dtype, q, q };
    }
}

/* The number of rows kept: all, or those that the tap samples. */
static int64_t kept_count(const hl_session *session, const hl_chunk *chunk)
{
    const hl_device_inputs *inputs = &session->device->inputs;

    return inputs->sampled != NULL ? inputs->n_sampled : hl_chunk_rows(chunk);
}

/* The stream is copied with the pending outputs added. */
static hl_device_copy_rows copy_of(const hl_session *session, const hl_chunk *chunk,
                                   const hl_device_lane *lane, int kind)
{
    const hl_device_session *d    = session->device;
    kept_rows                rows = find_rows(session, kind, lane->layer);
    hl_device_copy_rows      copy = { .out        = lane->kept[kind].device,
                                      .out_dtype  = HL_DTYPE_F32,
                                      .out_stride = rows.width,
                                      .x          = rows.data,
                                      .x_dtype    = rows.dtype,
                                      .x_stride   = rows.stride,
                                      .index      = d->inputs.sampled,
                                      .n_rows     = kept_count(session, chunk),
                                      .n          = rows.width };

    if (kind >= HL_KEPT_PRE) {
        copy.add[0]    = d->pending[0];
        copy.add[1]    = d->pending[1];
        copy.add_dtype = d->dtype;
        copy.add_scale = (float)session->config->residual_scale;
    }
    return copy;
}

/* Rows that do not change before the layer is reported need not be copied. */
static bool is_at_hand(const hl_session *session, int kind)
{
    return session->device->ops->is_near && (kind == HL_KEPT_Z || kind == HL_KEPT_POST);
}

/* Copies the current rows of x, q, ... to the lane. */
static hl_status keep(hl_session *session, const hl_chunk *chunk, hl_device_lane *lane,
                      uint32_t kinds)
{
    hl_device_session *d = session->device;

    for (int kind = 0; kind < HL_N_KEPT; kind++) {
        if ((kinds & 1U << kind) == 0)
            continue;
        if (is_at_hand(session, kind)) {
            lane->kept[kind].host = kind == HL_KEPT_Z ? d->rows.z : d->rows.x;
            lane->kinds |= 1U << kind;
            continue;
        }
        if (lane->kept[kind].device == NULL)
            continue;
        hl_device_copy_rows copy = copy_of(session, chunk, lane, kind);
        HL_NEED(hl_device_checked(d, d->ops->copy_rows(d->device, &copy), "rows for the tap"));
        lane->kinds |= 1U << kind;
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- summing */

/* The parts of a lane's sums: counts, then the runs. */
typedef struct sum_parts {
    int64_t     *histogram; /* (H, HL_N_HISTOGRAMS, HL_N_BINS) */
    int64_t     *lookback;  /* (H, n_segments, n_segments) */
    hl_run_sums *runs;      /* (H, n_runs) */
} sum_parts;

static sum_parts place_sums(void *block, int64_t n_heads, int64_t n_segments)
{
    sum_parts parts = { .histogram = block };

    parts.lookback = parts.histogram + n_heads * HL_N_HISTOGRAMS * HL_N_BINS;
    parts.runs     = (hl_run_sums *)(parts.lookback + n_heads * n_segments * n_segments);
    return parts;
}

static size_t sums_bytes(int64_t n_heads, int64_t n_segments, int64_t n_runs)
{
    int64_t counts = n_heads * (HL_N_HISTOGRAMS * HL_N_BINS + n_segments * n_segments);

    return (size_t)counts * sizeof(int64_t) + (size_t)(n_heads * n_runs) * sizeof(hl_run_sums);
}

size_t hl_device_sums_bytes(const hl_session *session, int64_t n_runs)
{
    return n_runs > 0 ? sums_bytes(session->config->n_heads, HL_MAX_SEGMENTS, n_runs) : 0;
}

static hl_status put(const hl_device_session *d, const hl_device_pair *pair, size_t n_bytes)
{
    return hl_device_checked(d, d->ops->copy_in(d->device, pair->device, pair->host, n_bytes),
                             "runs");
}

/* Copies the current plan to the lane, unless it is there already, as most layers share it.  The
 * lane's earlier work has arrived, so both halves of its memory are free. */
static hl_status put_plan(hl_device_session *d, hl_device_plan *own, const hl_row_plan *plan,
                          int64_t n_rows)
{
    const double *parts[3] = { plan->log_n, plan->inverse, plan->inverse_other };
    size_t        n_bytes  = (size_t)n_rows * sizeof(double);
    size_t        of_runs  = (size_t)plan->n_runs * sizeof *plan->runs;

    if (own->version == plan->version)
        return HL_OK;
    own->version = 0;
    memcpy(own->runs.host, plan->runs, of_runs);
    for (int i = 0; i < 3; i++)
        memcpy((double *)own->numbers.host + i * n_rows, parts[i], n_bytes);
    HL_NEED(put(d, &own->runs, of_runs));
    HL_NEED(put(d, &own->numbers, 3 * n_bytes));
    own->n_runs  = plan->n_runs;
    own->version = plan->version;
    return HL_OK;
}

static hl_status reduce(hl_session *session, const hl_chunk *chunk, int number)
{
    hl_device_session        *d          = session->device;
    const hl_device_lane     *lane       = &d->lanes[number];
    const double             *numbers    = lane->plan.numbers.device;
    int64_t                   n_rows     = hl_chunk_rows(chunk);
    int64_t                   n_heads    = session->config->layers[lane->layer].n_heads;
    int64_t                   n_segments = hl_chunk_segments(chunk);
    sum_parts                 parts      = place_sums(lane->sums.device, n_heads, n_segments);
    const hl_attention_result statistics =
        hl_device_place_statistics(lane->statistics.device, n_rows * n_heads, n_segments);

    return hl_device_checked(
        d,
        d->ops->reduce(d->device, number,
                       &(hl_device_reduce){ .sums          = parts.runs,
                                            .histogram     = parts.histogram,
                                            .lookback      = n_segments > 0 ? parts.lookback : NULL,
                                            .rows          = &statistics,
                                            .runs          = lane->plan.runs.device,
                                            .n_runs        = lane->plan.n_runs,
                                            .log_n         = numbers,
                                            .inverse       = numbers + n_rows,
                                            .inverse_other = numbers + 2 * n_rows,
                                            .n_types       = n_segments,
                                            .n_heads       = n_heads,
                                            .batch_rows    = chunk->n_rows }),
        "sums");
}

/* If there are more runs than room, rows are reported instead of sums. */
static hl_status sum_rows(hl_session *session, const hl_chunk *chunk, int number,
                          const hl_row_plan *plan)
{
    hl_device_session *d    = session->device;
    hl_device_lane    *lane = &d->lanes[number];

    lane->is_summed = false;
    if (plan->n_runs == 0 || plan->n_runs > d->max_runs)
        return HL_OK;
    HL_NEED(put_plan(d, &lane->plan, plan, hl_chunk_rows(chunk)));
    HL_NEED(reduce(session, chunk, number));
    lane->n_runs    = plan->n_runs;
    lane->is_summed = true;
    return HL_OK;
}

/* ------------------------------------------------------------------ comparing */

/* The parts of a lane's likeness block, one after the other. */
typedef struct likeness_parts {
    double          *influence; /* (B, n_sampled) */
    double          *squares;   /* (H, B, n_sampled) */
    double          *alike;     /* (B, H (H + 1) / 2) */
    double          *distances; /* (B, n_patterns, H (H - 1) / 2) */
    hl_pattern_sums *patterns;  /* (B, n_patterns, H) */
    void            *end;
} likeness_parts;

static likeness_parts place_likeness(void *block, int64_t n_batch, int64_t n_sampled,
                                     int64_t n_patterns, int64_t n_heads)
{
    likeness_parts p = { .influence = block };

    p.squares   = p.influence + n_batch * n_sampled;
    p.alike     = p.squares + n_batch * n_sampled * n_heads;
    p.distances = p.alike + n_batch * (n_heads * (n_heads + 1) / 2);
    p.patterns =
        (hl_pattern_sums *)(p.distances + n_batch * n_patterns * (n_heads * (n_heads - 1) / 2));
    p.end = p.patterns + n_batch * n_patterns * n_heads;
    return p;
}

static likeness_parts parts_of(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                               void *block)
{
    return place_likeness(block, chunk->n_batch, chunk->feed->tap->n_sampled_positions,
                          session->device->n_patterns, session->config->layers[layer].n_heads);
}

/* Sparse layers also need rows that see all keys, which come whole. */
static bool may_compare(const hl_session *session)
{
    const hl_session_options *options = &session->options;

    return session->config->latent.n_top == 0 && options->n_sampled > 0 &&
           (options->wants & HL_WANT_Z) != 0 && (options->wants & HL_WANT_PATTERN) != 0;
}

size_t hl_device_likeness_bytes(const hl_session *session)
{
    const hl_session_options *options = &session->options;
    int64_t                   heads   = session->config->n_heads;
    int64_t                   rows    = options->n_sampled * (1 + heads) + heads * (heads + 1) / 2;
    int64_t                   pairs   = options->n_patterns * (heads * (heads - 1) / 2);
    size_t                    bytes   = (size_t)(rows + pairs) * sizeof(double) +
                   (size_t)(options->n_patterns * heads) * sizeof(hl_pattern_sums);

    return may_compare(session) ? (size_t)options->n_batch * bytes : 0;
}

bool hl_device_compares(const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    return tap != NULL && tap->observer != NULL && tap->sampled_positions != NULL &&
           !session->device->ops->is_near && may_compare(session) &&
           (tap->wants & HL_WANT_Z) != 0 && (tap->wants & HL_WANT_PATTERN) != 0;
}

/* ---------------------------------------------------------------- the stream */

/* Compares the lane's sampled rows with earlier ones; influence is NULL for the embedded rows. */
static hl_status follow(hl_session *session, const hl_device_lane *lane, double *influence)
{
    hl_device_session *d = session->device;

    return hl_device_checked(
        d,
        d->ops->follow(d->device, &(hl_device_follow){ .influence = influence,
                                                       .kept      = d->followed,
                                                       .x         = lane->kept[HL_KEPT_POST].device,
                                                       .index     = d->inputs.sampled,
                                                       .n_rows    = d->inputs.n_sampled,
                                                       .n         = session->config->d_model }),
        "the stream");
}

static hl_status follow_embedded(hl_session *session, const hl_chunk *chunk)
{
    hl_device_lane *lane = &session->device->lanes[1];

    HL_NEED(keep(session, chunk, lane, 1U << HL_KEPT_POST));
    return follow(session, lane, NULL);
}

/* --------------------------------------------------------------------- heads */

/* Copies a layer's Gram matrices when they are first needed. */
static hl_status put_gram(const float **out, const hl_session *session, int64_t layer,
                          const float *gram)
{
    hl_device_session *d      = session->device;
    const hl_config   *config = session->config;
    int64_t            d_head = config->layers[layer].d_head;
    float             *there  = d->gram + layer * config->n_heads * config->d_head * config->d_head;
    size_t n_bytes = (size_t)(config->layers[layer].n_heads * d_head * d_head) * sizeof *there;

    *out = there;
    if (d->has_gram[layer])
        return HL_OK;
    HL_NEED(
        hl_device_checked(d, d->ops->copy_in(d->device, there, gram, n_bytes), "Gram matrices"));
    d->has_gram[layer] = true;
    return HL_OK;
}

static hl_status compare_outputs(hl_session *session, const hl_chunk *chunk, int number,
                                 const hl_row_plan *plan, const likeness_parts *out)
{
    hl_device_session *d         = session->device;
    hl_device_lane    *lane      = &d->lanes[number];
    int64_t            n_sampled = chunk->feed->tap->n_sampled_positions;
    const float       *gram      = NULL;

    HL_NEED(put_gram(&gram, session, lane->layer, plan->gram));
    return hl_device_checked(
        d,
        d->ops->outputs(
            d->device, number,
            &(hl_device_outputs){ .squares     = out->squares,
                                  .alike       = out->alike,
                                  .kernels     = lane->kernels,
                                  .z           = lane->kept[HL_KEPT_Z].device,
                                  .gram        = gram,
                                  .index       = d->inputs.sampled,
                                  .n_batch     = chunk->n_batch,
                                  .n_sampled   = n_sampled,
                                  .n_heads     = session->config->layers[lane->layer].n_heads,
                                  .d_head      = session->config->layers[lane->layer].d_head,
                                  .kernel_rows = plan->kernel_rows < n_sampled ? plan->kernel_rows
                                                                               : n_sampled }),
        "outputs of heads");
}

static hl_status compare_patterns(const hl_session *session, const hl_chunk *chunk, int number,
                                  const likeness_parts *out)
{
    const hl_device_session *d    = session->device;
    const hl_device_lane    *lane = &d->lanes[number];

    return hl_device_checked(
        d,
        d->ops->distances(
            d->device, number,
            &(hl_device_distances){ .out        = out->distances,
                                    .p          = lane->pattern.device,
                                    .n_batch    = chunk->n_batch,
                                    .n_heads    = session->config->layers[lane->layer].n_heads,
                                    .n_patterns = d->n_patterns,
                                    .n_keys     = session->options.n_ctx }),
        "distances of heads");
}

static hl_status put_places(const hl_session *session, const hl_chunk *chunk,
                            const hl_device_pair *own, const hl_pattern_place *places)
{
    const hl_device_session *d       = session->device;
    size_t                   n_bytes = (size_t)(chunk->n_batch * d->n_patterns) * sizeof *places;

    memcpy(own->host, places, n_bytes);
    return hl_device_checked(d, d->ops->copy_in(d->device, own->device, own->host, n_bytes),
                             "places of rows");
}

static hl_status sum_patterns(const hl_session *session, const hl_chunk *chunk, int number,
                              const hl_row_plan *plan, const likeness_parts *out)
{
    const hl_device_session *d    = session->device;
    const hl_device_lane    *lane = &d->lanes[number];

    HL_NEED(put_places(session, chunk, &lane->places, plan->places));
    return hl_device_checked(
        d,
        d->ops->pattern_sums(
            d->device, number,
            &(hl_device_pattern_sums){ .out        = out->patterns,
                                       .p          = lane->pattern.device,
                                       .places     = lane->places.device,
                                       .n_batch    = chunk->n_batch,
                                       .n_heads    = session->config->layers[lane->layer].n_heads,
                                       .n_patterns = d->n_patterns,
                                       .n_keys     = session->options.n_ctx }),
        "sums of whole rows");
}

static hl_status compare_heads(hl_session *session, const hl_chunk *chunk, int number,
                               const hl_row_plan *plan)
{
    hl_device_lane *lane = &session->device->lanes[number];
    likeness_parts  out  = parts_of(session, chunk, lane->layer, lane->likeness.device);

    HL_NEED(follow(session, lane, out.influence));
    if (session->config->layers[lane->layer].n_heads > 0) {
        HL_NEED(compare_outputs(session, chunk, number, plan, &out));
        HL_NEED(compare_patterns(session, chunk, number, &out));
        HL_NEED(sum_patterns(session, chunk, number, plan, &out));
    }
    lane->kinds &=
        ~(1U << HL_KEPT_Z | 1U << HL_KEPT_POST); /* neither z nor the output is reported */
    return HL_OK;
}

static hl_status send_likeness(hl_session *session, const hl_chunk *chunk, int number)
{
    hl_device_session *d    = session->device;
    hl_device_lane    *lane = &d->lanes[number];
    likeness_parts     own  = parts_of(session, chunk, lane->layer, lane->likeness.device);

    return hl_device_checked(
        d,
        d->ops->copy_out(d->device, number, lane->likeness.host, own.influence,
                         (size_t)((uint8_t *)own.end - (uint8_t *)own.influence)),
        "copies");
}

static hl_likeness likeness_of(const hl_session *session, const hl_chunk *chunk, int number)
{
    const hl_device_lane *lane      = &session->device->lanes[number];
    likeness_parts        own       = parts_of(session, chunk, lane->layer, lane->likeness.host);
    bool                  has_heads = session->config->layers[lane->layer].n_heads > 0;

    return (hl_likeness){ .influence = own.influence,
                          .squares   = has_heads ? own.squares : NULL,
                          .alike     = has_heads ? own.alike : NULL,
                          .distances = has_heads ? own.distances : NULL,
                          .patterns  = has_heads ? own.patterns : NULL };
}

/* ------------------------------------------------------------------- sending */

static hl_status send(const hl_device_session *d, int lane, const hl_device_pair *pair,
                      size_t n_bytes)
{
    return hl_device_checked(
        d, d->ops->copy_out(d->device, lane, pair->host, pair->device, n_bytes), "copies");
}

static hl_status send_patterns(const hl_session *session, const hl_chunk *chunk, int number)
{
    const hl_device_session *d       = session->device;
    const hl_device_lane    *lane    = &d->lanes[number];
    int64_t                  n_heads = session->config->layers[lane->layer].n_heads;
    size_t                   count   = (size_t)(chunk->n_batch * n_heads * d->n_patterns);

    HL_NEED(
        send(d, number, &lane->pattern, count * (size_t)session->options.n_ctx * sizeof(float)));
    if (lane->full.device != NULL)
        HL_NEED(send(d, number, &lane->full, count * sizeof(hl_pattern_row)));
    return send(d, number, &lane->exact, count * sizeof(hl_pattern_row));
}

static hl_status send_layer(hl_session *session, const hl_chunk *chunk, int number)
{
    hl_device_session *d      = session->device;
    hl_device_lane    *lane   = &d->lanes[number];
    uint32_t           wants  = hl_chunk_wants(chunk);
    int64_t            n_rows = hl_chunk_rows(chunk);
    int64_t            heads  = session->config->layers[lane->layer].n_heads;

    if (lane->is_summed)
        HL_NEED(send(d, number, &lane->sums,
                     sums_bytes(heads, hl_chunk_segments(chunk), lane->n_runs)));
    else
        HL_NEED(send(d, number, &lane->statistics,
                     hl_device_statistics_bytes(n_rows * heads, hl_chunk_segments(chunk))));
    for (int kind = 0; kind < HL_N_KEPT; kind++) {
        if ((lane->kinds & 1U << kind) != 0)
            HL_NEED(send(
                d, number, &lane->kept[kind],
                (size_t)(kept_count(session, chunk) * find_rows(session, kind, lane->layer).width) *
                    sizeof(float)));
    }
    if (hl_device_compares(session, chunk))
        HL_NEED(send_likeness(session, chunk, number));
    else if ((wants & HL_WANT_PATTERN) != 0)
        HL_NEED(send_patterns(session, chunk, number));
    if ((wants & HL_WANT_LENS) != 0)
        HL_NEED(
            send(d, number, &lane->lens, (size_t)n_rows * (sizeof(int64_t) + 2 * sizeof(float))));
    return HL_OK;
}

/* ------------------------------------------------------------------- telling */

/* The number of rows per sequence if only those are kept that the tap samples; else 0. */
static int64_t count_sampled(const hl_session *session, const hl_chunk *chunk)
{
    return session->device->inputs.sampled != NULL ? chunk->feed->tap->n_sampled_positions : 0;
}

/* Describes a layer, except its rows; -1: the embeddings. */
static hl_layer_rows describe(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    const hl_layer_config *at = layer >= 0 ? &session->config->layers[layer] : NULL;

    return (hl_layer_rows){ .layer      = layer,
                            .n_batch    = chunk->n_batch,
                            .n_rows     = chunk->n_rows,
                            .n_heads    = at != NULL ? at->n_heads : 0,
                            .n_kv_heads = at != NULL ? at->n_kv_heads : 0,
                            .d_head     = at != NULL ? at->d_head : 0,
                            .d_model    = session->config->d_model,
                            .sequences  = chunk->sequences,
                            .start      = chunk->start,
                            .lengths    = chunk->lengths,
                            .n_segments = at != NULL ? hl_chunk_segments(chunk) : 0,
                            .n_sampled  = count_sampled(session, chunk) };
}

/* Says which rows are looked at whole. */
static void describe_patterns(hl_layer_rows *rows, const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    if ((tap->wants & HL_WANT_PATTERN) == 0 || rows->n_heads == 0)
        return;
    rows->patterns_differ = tap->patterns_differ;
    rows->n_patterns      = session->device->n_patterns;
    rows->pattern_rows    = session->device->pattern_rows;
    rows->n_keys          = session->options.n_ctx;
}

/* Asks the tap's observer, if it has one, for its plan for a layer's rows. */
static hl_status ask_plan(hl_row_plan *out, const hl_session *session, const hl_chunk *chunk,
                          int64_t layer)
{
    const hl_tap *tap  = chunk->feed->tap;
    hl_layer_rows rows = describe(session, chunk, layer);

    *out = (hl_row_plan){ 0 };
    if (tap->observer == NULL || session->device->max_runs == 0 || rows.n_heads == 0)
        return HL_OK;
    describe_patterns(&rows, session, chunk);
    return tap->observer->plan(tap->context, &rows, out);
}

/* The statistics of a layer in a lane's memory, in the form in which they are written or read. */
static hl_attention_result statistics_in(const hl_session *session, const hl_chunk *chunk,
                                         const hl_device_lane *lane, void *block)
{
    int64_t             count = hl_chunk_rows(chunk) * session->config->layers[lane->layer].n_heads;
    hl_attention_result result = hl_device_place_statistics(block, count, hl_chunk_segments(chunk));

    result.argmax = lane->argmax;
    return result;
}

hl_status hl_observe_middle(hl_session *session, const hl_chunk *chunk)
{
    hl_device_lane *lane = session->device->watch.lane;

    if (lane == NULL || (hl_chunk_wants(chunk) & HL_WANT_RESID_MID) == 0)
        return HL_OK;
    return keep(session, chunk, lane, 1U << HL_KEPT_MID);
}

hl_status hl_observe_block(hl_session *session, const hl_chunk *chunk, int64_t layer, int number)
{
    hl_device_session *d       = session->device;
    hl_device_lane    *lane    = &d->lanes[number];
    uint32_t           wants   = hl_chunk_wants(chunk);
    uint32_t           rows    = wants & (HL_WANT_Q | HL_WANT_K | HL_WANT_V | HL_WANT_Z);
    int64_t            n_heads = session->config->layers[layer].n_heads;
    hl_row_plan        plan;

    lane->layer         = layer;
    lane->kinds         = 0;
    d->watch.lane       = lane;
    d->watch.statistics = statistics_in(session, chunk, lane, lane->statistics.device);
    if ((wants & HL_WANT_RESID_PRE) != 0)
        HL_NEED(keep(session, chunk, lane, 1U << HL_KEPT_PRE));
    if ((wants & HL_WANT_LENS) != 0)
        HL_NEED(hl_forward_lens(session, chunk, lane));
    HL_NEED(hl_block_run(session, chunk, layer));
    HL_NEED(keep(session, chunk, lane, n_heads > 0 ? rows : 0));
    HL_NEED(ask_plan(&plan, session, chunk, layer));
    HL_NEED(sum_rows(session, chunk, number, &plan));
    if ((wants & HL_WANT_PATTERN) != 0 && n_heads > 0)
        HL_NEED(hl_forward_patterns(session, chunk, layer, lane));
    if ((wants & HL_WANT_RESID_POST) != 0 || chunk->feed->tap->sampled_positions != NULL)
        HL_NEED(keep(session, chunk, lane, 1U << HL_KEPT_POST));
    if (hl_device_compares(session, chunk))
        HL_NEED(compare_heads(session, chunk, number, &plan));
    return d->ops->is_near ? HL_OK : send_layer(session, chunk, number);
}

static const float *received(const hl_device_lane *lane, int kind)
{
    return (lane->kinds & 1U << kind) != 0 ? lane->kept[kind].host : NULL;
}

static void describe_kept(hl_layer_rows *rows, const hl_session *session,
                          const hl_device_lane *lane)
{
    bool is_parallel = session->config->residual != HL_RESIDUAL_SEQUENTIAL;

    rows->q          = received(lane, HL_KEPT_Q);
    rows->k          = received(lane, HL_KEPT_K);
    rows->v          = received(lane, HL_KEPT_V);
    rows->z          = received(lane, HL_KEPT_Z);
    rows->resid_pre  = received(lane, HL_KEPT_PRE);
    rows->resid_mid  = is_parallel ? NULL : received(lane, HL_KEPT_MID);
    rows->resid_post = received(lane, HL_KEPT_POST);
}

static void describe_lens(hl_layer_rows *rows, const hl_device_lane *lane, int64_t n_rows)
{
    rows->lens_top     = lane->lens.host;
    rows->lens_entropy = (const float *)(const void *)(rows->lens_top + n_rows);
    rows->lens_gap     = rows->lens_entropy + n_rows;
}

/* Rows that the sums could not use are fetched after them, if there are any. */
static hl_status receive_sums(hl_row_sums *out, const hl_session *session, const hl_chunk *chunk,
                              int number)
{
    const hl_device_session *d          = session->device;
    const hl_device_lane    *lane       = &d->lanes[number];
    int64_t                  n_heads    = session->config->layers[lane->layer].n_heads;
    int64_t                  n_segments = hl_chunk_segments(chunk);
    sum_parts                parts      = place_sums(lane->sums.host, n_heads, n_segments);
    bool                     is_whole   = true;

    *out = (hl_row_sums){ .runs      = parts.runs,
                          .n_runs    = lane->n_runs,
                          .histogram = parts.histogram,
                          .lookback  = n_segments > 0 ? parts.lookback : NULL };
    for (int64_t i = 0; i < n_heads * lane->n_runs; i++)
        is_whole = is_whole && parts.runs[i].is_small != 0;
    if (is_whole)
        return HL_OK;
    HL_NEED(send(d, number, &lane->statistics,
                 hl_device_statistics_bytes(hl_chunk_rows(chunk) * n_heads, n_segments)));
    return hl_device_checked(d, d->ops->arrived(d->device, number), "copies");
}

static hl_status tell_lane(const hl_session *session, const hl_chunk *chunk, int number)
{
    const hl_device_session *d     = session->device;
    const hl_device_lane    *lane  = &d->lanes[number];
    const hl_tap            *tap   = chunk->feed->tap;
    hl_layer_rows            rows  = describe(session, chunk, lane->layer);
    hl_attention_result statistics = statistics_in(session, chunk, lane, lane->statistics.host);
    hl_row_sums         sums       = { 0 };
    hl_likeness         alike      = { 0 };
    hl_observed         observed   = { 0 };

    HL_NEED(hl_device_checked(d, d->ops->arrived(d->device, number), "copies"));
    if (lane->is_summed) {
        HL_NEED(receive_sums(&sums, session, chunk, number));
        observed.sums = &sums;
    }
    if (hl_device_compares(session, chunk)) {
        alike             = likeness_of(session, chunk, number);
        observed.likeness = &alike;
    }
    rows.rows     = &statistics;
    rows.observed = &observed;
    describe_kept(&rows, session, lane);
    if ((tap->wants & HL_WANT_LENS) != 0)
        describe_lens(&rows, lane, hl_chunk_rows(chunk));
    describe_patterns(&rows, session, chunk);
    if (rows.n_patterns > 0 && observed.likeness == NULL) {
        rows.pattern   = lane->pattern.host;
        observed.exact = lane->exact.host;
        if (hl_forward_leaves_out(session, chunk))
            observed.full = lane->full.host;
    }
    return tap->layer(tap->context, &rows);
}

hl_status hl_observe_tell(hl_session *session, const hl_chunk *chunk, int number)
{
    hl_device_lane *lane = &session->device->lanes[number];

    if (lane->layer < 0)
        return HL_OK;
    hl_status status = tell_lane(session, chunk, number);
    lane->layer      = -1;
    return status;
}

/* ------------------------------------------------------------------- embedded */

/* Whether the tap gets the embedded rows; not if the device compares the stream itself. */
static bool hears_embedded(const hl_session *session, const hl_chunk *chunk)
{
    return chunk->feed->tap != NULL && chunk->feed->tap->embedded != NULL &&
           !hl_device_compares(session, chunk);
}

hl_status hl_observe_tell_embedded(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d    = session->device;
    const hl_tap      *tap  = chunk->feed->tap;
    hl_layer_rows      rows = describe(session, chunk, -1);

    if (!hears_embedded(session, chunk))
        return HL_OK;
    HL_NEED(hl_device_checked(d, d->ops->arrived(d->device, 1), "copies"));
    rows.resid_post = received(&d->lanes[1], HL_KEPT_POST);
    return tap->embedded(tap->context, &rows);
}

/* This uses the second lane, which is idle until the first layer has been issued. */
hl_status hl_observe_embedded(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d    = session->device;
    hl_device_lane    *lane = &d->lanes[1];

    if (hl_device_compares(session, chunk))
        return follow_embedded(session, chunk);
    if (!hears_embedded(session, chunk))
        return HL_OK;
    if (!d->ops->is_near && lane->kept[HL_KEPT_POST].device == NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "on %s only sessions opened with HL_WANT_RESID_POST or n_sampled get "
                       "embeddings",
                       d->ops->name);
    lane->kinds = 0;
    HL_NEED(keep(session, chunk, lane, 1U << HL_KEPT_POST));
    if (d->ops->is_near)
        return hl_observe_tell_embedded(session, chunk);
    return send(d, 1, &lane->kept[HL_KEPT_POST],
                (size_t)(kept_count(session, chunk) * session->config->d_model) * sizeof(float));
}

hl_status hl_observe_tell_steps(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d   = session->device;
    const hl_tap      *tap = chunk->feed->tap;

    for (int64_t layer = 0; layer < session->config->n_layers; layer++) {
        hl_layer_rows       rows       = describe(session, chunk, layer);
        hl_attention_result statistics = hl_device_place_statistics(
            (uint8_t *)d->all_statistics.host + (size_t)layer * d->step_bytes,
            hl_chunk_rows(chunk) * rows.n_heads, hl_chunk_segments(chunk));

        rows.rows = &statistics;
        HL_NEED(tap->layer(tap->context, &rows));
    }
    return HL_OK;
}
