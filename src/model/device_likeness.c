/* device_likeness.c - what heads write and how alike they are, made on the device.
 *
 * A tap with a plan and sampled rows wants no rows of z, of the stream and of attention, but what
 * comes of them: norms, products between heads, distances between their whole rows and sums of these
 * (hl_likeness of base/row_runs.h), a few hundred kilobytes instead of megabytes and of work for the
 * host.  All of it is made from the lane's own memory, so it runs in the lane, beside the layers that follow; the
 * stream's rows are compared with those of the block before, in order. */
#include <string.h>

#include "base/status.h"
#include "model/device.h"

/* The parts of a lane's block, one after the other. */
typedef struct parts {
    double          *influence; /* (B, n_sampled) */
    double          *squares;   /* (H, B, n_sampled) */
    double          *alike;     /* (B, H (H + 1) / 2) */
    double          *distances; /* (B, n_patterns, H (H - 1) / 2) */
    hl_pattern_sums *patterns;  /* (B, n_patterns, H) */
    void            *end;
} parts;

static parts place_likeness(void *block, int64_t n_batch, int64_t n_sampled, int64_t n_patterns,
                            int64_t n_heads)
{
    parts p = { .influence = block };

    p.squares   = p.influence + n_batch * n_sampled;
    p.alike     = p.squares + n_batch * n_sampled * n_heads;
    p.distances = p.alike + n_batch * (n_heads * (n_heads + 1) / 2);
    p.patterns =
        (hl_pattern_sums *)(p.distances + n_batch * n_patterns * (n_heads * (n_heads - 1) / 2));
    p.end = p.patterns + n_batch * n_patterns * n_heads;
    return p;
}

static parts parts_of(const hl_session *session, const hl_chunk *chunk, int64_t layer, void *block)
{
    return place_likeness(block, chunk->n_batch, chunk->feed->tap->n_sampled_positions,
                          session->device->n_patterns, session->config->layers[layer].n_heads);
}

static bool may_compare(const hl_session_options *options)
{
    return options->n_sampled > 0 && (options->wants & HL_WANT_Z) != 0 &&
           (options->wants & HL_WANT_PATTERN) != 0;
}

size_t hl_device_likeness_bytes(const hl_session *session)
{
    const hl_session_options *options = &session->options;
    int64_t                   heads   = session->config->n_heads;
    int64_t                   rows    = options->n_sampled * (1 + heads) + heads * (heads + 1) / 2;
    int64_t                   pairs   = options->n_patterns * (heads * (heads - 1) / 2);
    size_t                    bytes   = (size_t)(rows + pairs) * sizeof(double) +
                   (size_t)(options->n_patterns * heads) * sizeof(hl_pattern_sums);

    return may_compare(options) ? (size_t)options->n_batch * bytes : 0;
}

bool hl_device_compares(const hl_session *session, const hl_chunk *chunk)
{
    const hl_tap *tap = chunk->feed->tap;

    return tap != NULL && tap->plan != NULL && tap->sampled_positions != NULL &&
           may_compare(&session->options) && (tap->wants & HL_WANT_Z) != 0 &&
           (tap->wants & HL_WANT_PATTERN) != 0;
}

/* ---------------------------------------------------------------- the stream */

/* From the lane's sampled rows; influence is NULL for the embedded ones. */
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

hl_status hl_device_follow_embedded(hl_session *session, const hl_chunk *chunk)
{
    hl_device_lane *lane = &session->device->lanes[1];

    HL_NEED(hl_device_keep(session, chunk, lane, 1U << HL_KEPT_POST));
    return follow(session, lane, NULL);
}

/* --------------------------------------------------------------------- heads */

/* A layer's Gram matrices, copied when they are first seen. */
static hl_status put_gram(const float **out, const hl_session *session, int64_t layer,
                          const float *gram)
{
    hl_device_session *d       = session->device;
    const hl_config   *config  = session->config;
    int64_t            each    = config->d_head * config->d_head;
    float             *there   = d->gram + layer * config->n_heads * each;
    size_t             n_bytes = (size_t)(config->layers[layer].n_heads * each) * sizeof *there;

    *out = there;
    if (d->has_gram[layer])
        return HL_OK;
    HL_NEED(
        hl_device_checked(d, d->ops->copy_in(d->device, there, gram, n_bytes), "Gram matrices"));
    d->has_gram[layer] = true;
    return HL_OK;
}

static hl_status compare_outputs(hl_session *session, const hl_chunk *chunk, int number,
                                 const hl_row_plan *plan, const parts *out)
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
                                  .d_head      = session->config->d_head,
                                  .kernel_rows = plan->kernel_rows < n_sampled ? plan->kernel_rows
                                                                               : n_sampled }),
        "outputs of heads");
}

static hl_status compare_patterns(const hl_session *session, const hl_chunk *chunk, int number,
                                  const parts *out)
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
                              const hl_row_plan *plan, const parts *out)
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

hl_status hl_device_compare(hl_session *session, const hl_chunk *chunk, int number,
                            const hl_row_plan *plan)
{
    hl_device_lane *lane = &session->device->lanes[number];
    parts           out  = parts_of(session, chunk, lane->layer, lane->likeness.device);

    HL_NEED(follow(session, lane, out.influence));
    if (session->config->layers[lane->layer].n_heads > 0) {
        HL_NEED(compare_outputs(session, chunk, number, plan, &out));
        HL_NEED(compare_patterns(session, chunk, number, &out));
        HL_NEED(sum_patterns(session, chunk, number, plan, &out));
    }
    lane->kinds &= ~(1U << HL_KEPT_Z | 1U << HL_KEPT_POST); /* not told */
    return HL_OK;
}

/* --------------------------------------------------------- sending and telling */

hl_status hl_device_send_likeness(hl_session *session, const hl_chunk *chunk, int number)
{
    hl_device_session *d    = session->device;
    hl_device_lane    *lane = &d->lanes[number];
    parts              own  = parts_of(session, chunk, lane->layer, lane->likeness.device);

    return hl_device_checked(
        d,
        d->ops->copy_out(d->device, number, lane->likeness.host, own.influence,
                         (size_t)((uint8_t *)own.end - (uint8_t *)own.influence)),
        "copies");
}

hl_likeness hl_device_likeness_of(const hl_session *session, const hl_chunk *chunk, int number)
{
    const hl_device_lane *lane      = &session->device->lanes[number];
    parts                 own       = parts_of(session, chunk, lane->layer, lane->likeness.host);
    bool                  has_heads = session->config->layers[lane->layer].n_heads > 0;

    return (hl_likeness){ .influence = own.influence,
                          .squares   = has_heads ? own.squares : NULL,
                          .alike     = has_heads ? own.alike : NULL,
                          .distances = has_heads ? own.distances : NULL,
                          .patterns  = has_heads ? own.patterns : NULL };
}
