/* device_tap.c - what a tap wants, on its way from the device.
 *
 * A layer's statistics and rows are gathered in a lane while it runs, sent when it is done, and
 * told when they have arrived, by then beside the work of the next layer.  session->rows and
 * session->statistics then point at what came, for as long as the tap is being told. */
#include <string.h>

#include "base/status.h"
#include "kernels/attention.h"
#include "model/device.h"

/* Arrays of (B, H, C), and one of segments behind them.  argmax is not among them: nobody
 * listens to it, and the fastest kernels do not know it. */
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

/* Where rows of a kind lie on the device. */
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
    int64_t  q      = config->layers[layer].n_heads * config->d_head;
    int64_t  k      = config->layers[layer].n_kv_heads * config->d_head;
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
        return (kept_rows){ d->rows.z, d->dtype, q, q };
    }
}

/* All rows, or those that the tap names. */
static int64_t kept_count(const hl_session *session, const hl_chunk *chunk)
{
    const hl_device_inputs *inputs = &session->device->inputs;

    return inputs->sampled != NULL ? inputs->n_sampled : hl_chunk_rows(chunk);
}

/* The stream is told with what is still to be added to it. */
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

hl_status hl_device_keep(hl_session *session, const hl_chunk *chunk, hl_device_lane *lane,
                         uint32_t kinds)
{
    hl_device_session *d = session->device;

    for (int kind = 0; kind < HL_N_KEPT; kind++) {
        if ((kinds & 1U << kind) == 0 || lane->kept[kind].device == NULL)
            continue;
        hl_device_copy_rows copy = copy_of(session, chunk, lane, kind);
        HL_NEED(hl_device_checked(d, d->ops->copy_rows(d->device, &copy), "rows for the tap"));
        lane->kinds |= 1U << kind;
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- summing */

enum { N_BINS = 64 };

/* The parts of a lane's sums: counts, then the runs. */
typedef struct sum_parts {
    int64_t     *histogram; /* (H, HL_N_HISTOGRAMS, N_BINS) */
    int64_t     *lookback;  /* (H, n_segments, n_segments) */
    hl_run_sums *runs;      /* (H, n_runs) */
} sum_parts;

static sum_parts place_sums(void *block, int64_t n_heads, int64_t n_segments)
{
    sum_parts parts = { .histogram = block };

    parts.lookback = parts.histogram + n_heads * HL_N_HISTOGRAMS * N_BINS;
    parts.runs     = (hl_run_sums *)(parts.lookback + n_heads * n_segments * n_segments);
    return parts;
}

static size_t sums_bytes(int64_t n_heads, int64_t n_segments, int64_t n_runs)
{
    int64_t counts = n_heads * (HL_N_HISTOGRAMS * N_BINS + n_segments * n_segments);

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

/* The plan as it is now, in the lane; most layers have the same.  What the lane did before has
 * arrived, so that its memory is free, the host's half too. */
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

/* Where there are more runs than room, rows go over as they are. */
hl_status hl_device_sum(hl_session *session, const hl_chunk *chunk, int number,
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
    return send(d, number, &lane->exact, count * sizeof(hl_pattern_row));
}

hl_status hl_device_send(hl_session *session, const hl_chunk *chunk, int number)
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
        HL_NEED(hl_device_send_likeness(session, chunk, number));
    else if ((wants & HL_WANT_PATTERN) != 0)
        HL_NEED(send_patterns(session, chunk, number));
    if ((wants & HL_WANT_LENS) != 0)
        HL_NEED(
            send(d, number, &lane->lens, (size_t)n_rows * (sizeof(int64_t) + 2 * sizeof(float))));
    return HL_OK;
}

/* ------------------------------------------------------------------- telling */

static float *received(const hl_device_lane *lane, int kind)
{
    return (lane->kinds & 1U << kind) != 0 ? lane->kept[kind].host : NULL;
}

static void receive_rows(hl_session *session, const hl_device_lane *lane)
{
    hl_session_rows *rows = &session->rows;

    rows->q   = received(lane, HL_KEPT_Q);
    rows->k   = received(lane, HL_KEPT_K);
    rows->v   = received(lane, HL_KEPT_V);
    rows->z   = received(lane, HL_KEPT_Z);
    rows->pre = received(lane, HL_KEPT_PRE);
    rows->mid = received(lane, HL_KEPT_MID);
    rows->x   = received(lane, HL_KEPT_POST);
}

static void receive_lens(hl_session *session, const hl_device_lane *lane, int64_t n_rows)
{
    session->rows.lens_top = lane->lens.host;
    if (lane->lens.host == NULL) /* nobody asked for it */
        return;
    session->rows.lens_entropy = (float *)(void *)((int64_t *)lane->lens.host + n_rows);
    session->rows.lens_gap     = session->rows.lens_entropy + n_rows;
}

/* Rows that the sums leave to be looked at, if there are any, come after them. */
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

/* Which rows are looked at whole, wherever they lie. */
void hl_device_describe_patterns(hl_layer_rows *rows, const hl_session *session,
                                 const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    if ((tap->wants & HL_WANT_PATTERN) == 0 || rows->n_heads == 0)
        return;
    rows->patterns_differ = tap->patterns_differ;
    rows->n_patterns      = session->device->n_patterns;
    rows->pattern_rows    = session->rows.pattern_rows;
    rows->n_keys          = session->options.n_ctx;
}

static hl_status tell_layer(hl_session *session, const hl_chunk *chunk, int64_t layer,
                            const hl_device_lane *lane, const hl_row_sums *sums,
                            const hl_likeness *likeness)
{
    const hl_tap *tap = chunk->feed->tap;
    hl_layer_rows rows;

    hl_forward_describe(&rows, session, chunk, layer);
    rows.sums     = sums;
    rows.likeness = likeness;
    if (lane != NULL)
        hl_device_describe_patterns(&rows, session, chunk);
    if (lane != NULL && rows.n_patterns > 0 && likeness == NULL) {
        rows.pattern        = lane->pattern.host;
        session->rows.exact = lane->exact.host;
    }
    return tap->layer(tap->context, &rows);
}

hl_status hl_device_tell(hl_session *session, const hl_chunk *chunk, int number)
{
    hl_status          status = HL_OK;
    hl_device_session *d      = session->device;
    hl_device_lane    *lane   = &d->lanes[number];
    int64_t            n_rows = hl_chunk_rows(chunk);
    hl_row_sums        sums   = { 0 };
    hl_likeness        alike  = { 0 };
    bool               has    = hl_device_compares(session, chunk);

    if (lane->layer < 0)
        return HL_OK;
    HL_TRY(hl_device_checked(d, d->ops->arrived(d->device, number), "copies"));
    if (lane->is_summed)
        HL_TRY(receive_sums(&sums, session, chunk, number));
    session->statistics = hl_device_place_statistics(
        lane->statistics.host, n_rows * session->config->layers[lane->layer].n_heads,
        hl_chunk_segments(chunk));
    receive_rows(session, lane);
    receive_lens(session, lane, n_rows);
    if (has)
        alike = hl_device_likeness_of(session, chunk, number);
    HL_TRY(tell_layer(session, chunk, lane->layer, lane, lane->is_summed ? &sums : NULL,
                      has ? &alike : NULL));

done:
    lane->layer = -1;
    return status;
}

/* Not where the device follows the stream by itself. */
static bool hears_embedded(const hl_session *session, const hl_chunk *chunk)
{
    return chunk->feed->tap != NULL && chunk->feed->tap->embedded != NULL &&
           !hl_device_compares(session, chunk);
}

/* The second lane has nothing to do until the first layer has been issued. */
hl_status hl_device_send_embedded(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d    = session->device;
    hl_device_lane    *lane = &d->lanes[1];

    if (hl_device_compares(session, chunk))
        return hl_device_follow_embedded(session, chunk);
    if (!hears_embedded(session, chunk))
        return HL_OK;
    if (lane->kept[HL_KEPT_POST].device == NULL)
        return hl_fail(HL_UNSUPPORTED,
                       "on %s the embeddings are told to sessions opened with "
                       "HL_WANT_RESID_POST or n_sampled",
                       d->ops->name);
    lane->kinds = 0;
    HL_NEED(hl_device_keep(session, chunk, lane, 1U << HL_KEPT_POST));
    return send(d, 1, &lane->kept[HL_KEPT_POST],
                (size_t)(kept_count(session, chunk) * session->config->d_model) * sizeof(float));
}

hl_status hl_device_tell_embedded(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d = session->device;

    if (!hears_embedded(session, chunk))
        return HL_OK;
    HL_NEED(hl_device_checked(d, d->ops->arrived(d->device, 1), "copies"));
    receive_rows(session, &d->lanes[1]);
    return hl_forward_report_embedded(session, chunk);
}

hl_status hl_device_tell_steps(hl_session *session, const hl_chunk *chunk)
{
    hl_device_session *d = session->device;

    for (int64_t layer = 0; layer < session->config->n_layers; layer++) {
        int64_t n_heads = session->config->layers[layer].n_heads;

        session->statistics = hl_device_place_statistics(
            (uint8_t *)d->all_statistics.host + (size_t)layer * d->step_bytes,
            hl_chunk_rows(chunk) * n_heads, hl_chunk_segments(chunk));
        HL_NEED(tell_layer(session, chunk, layer, NULL, NULL, NULL));
    }
    return HL_OK;
}
