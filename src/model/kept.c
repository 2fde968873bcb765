/* kept.c - rows of logits put away and compared with; where kept streams stand, and which rows are
 * there. */
#include "model/kept.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "model/session.h"

/* ---------------------------------------------------------------------------------------- logits */

void hl_kept_put(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                 int64_t n)
{
    float *p = kept->p + row * n;

    memcpy(kept->logits + row * n, logits, (size_t)n * sizeof *logits);
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)exp((double)logits[i] - lse);
    kept->lse[row] = lse;
}

double hl_kept_divergence(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                          int64_t n)
{
    const float *a     = kept->logits + row * n;
    const float *p     = kept->p + row * n;
    double       shift = lse - kept->lse[row];
    double       kl    = 0.0;

    for (int64_t i = 0; i < n; i++) {
        if (p[i] > 0.0f) /* a token that cannot be has logit -inf in both */
            kl += (double)p[i] * ((double)a[i] - (double)logits[i] + shift);
    }
    return kl;
}

/* --------------------------------------------------------------------------------------- streams */

int64_t hl_streams_slot(const hl_session *session, int64_t layer)
{
    int64_t every = session->options.stream_every;

    return every > 0 && layer > 0 && layer < session->config->n_layers && layer % every == 0
               ? layer / every - 1
               : -1;
}

float *hl_streams_rows(const hl_session *session, const hl_chunk *chunk, int64_t slot, int64_t b)
{
    int64_t sequence = slot * session->options.n_batch + chunk->sequences[b];

    return session->streams.x + (sequence * session->options.n_ctx + chunk->start[b]) *
                                    (int64_t)session->config->d_model;
}

static hl_kept_range *range_of(const hl_session *session, int64_t slot, int64_t sequence)
{
    return session->streams.ranges + slot * session->options.n_batch + sequence;
}

/* The first slot that a feed from this layer on writes. */
static int64_t first_written(const hl_session *session, const hl_feed *feed)
{
    return session->streams.n_slots > 0 ? feed->first_layer / session->options.stream_every : 0;
}

hl_status hl_streams_check(const hl_session *session, const hl_feed *feed)
{
    int64_t slot = hl_streams_slot(session, feed->first_layer);

    if (slot < 0)
        return hl_fail(HL_BAD_ARGUMENT, "feed: from layer %lld on without a residual stream",
                       (long long)feed->first_layer);
    for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
        int64_t sequence = hl_feed_sequence(feed, i);
        int64_t start    = session->length[sequence];
        int64_t length   = hl_feed_length(feed, i);

        if (!hl_kept_has(*range_of(session, slot, sequence), start, length))
            return hl_fail(HL_BAD_ARGUMENT,
                           "feed: the stream that layer %lld reads is not kept for positions %lld "
                           "to %lld of sequence %lld",
                           (long long)feed->first_layer, (long long)start,
                           (long long)(start + length - 1), (long long)sequence);
    }
    return HL_OK;
}

void hl_streams_begin(hl_session *session, const hl_feed *feed)
{
    for (int64_t slot = first_written(session, feed); slot < session->streams.n_slots; slot++) {
        for (int64_t i = 0; i < hl_feed_count(session, feed); i++) {
            int64_t        sequence = hl_feed_sequence(feed, i);
            int64_t        start    = session->length[sequence];
            hl_kept_range *range    = range_of(session, slot, sequence);

            if (start < range->begin || start > range->end)
                range->begin = start;
            range->end = start;
        }
    }
}

void hl_streams_extend(hl_session *session, const hl_chunk *chunk)
{
    for (int64_t slot = first_written(session, chunk->feed); slot < session->streams.n_slots;
         slot++) {
        for (int64_t b = 0; b < chunk->n_batch; b++)
            range_of(session, slot, chunk->sequences[b])->end = chunk->ends[b];
    }
}

void hl_streams_put(const hl_session *session, const hl_chunk *chunk, int64_t layer)
{
    int64_t slot    = hl_streams_slot(session, layer);
    int64_t d_model = session->config->d_model;

    for (int64_t b = 0; b < chunk->n_batch && slot >= 0; b++)
        memcpy(hl_streams_rows(session, chunk, slot, b),
               session->rows.x + b * chunk->n_rows * d_model,
               (size_t)(chunk->lengths[b] * d_model) * sizeof(float));
}

void hl_streams_get(const hl_session *session, const hl_chunk *chunk)
{
    int64_t slot    = hl_streams_slot(session, chunk->feed->first_layer);
    int64_t d_model = session->config->d_model;

    for (int64_t b = 0; b < chunk->n_batch; b++)
        memcpy(session->rows.x + b * chunk->n_rows * d_model,
               hl_streams_rows(session, chunk, slot, b),
               (size_t)(chunk->lengths[b] * d_model) * sizeof(float));
}
