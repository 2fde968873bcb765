/* kept.c - the places of kept streams, and which of their rows are valid. */
#include "model/session.h"

#include "base/status.h"

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
                                    session->config->n_streams * session->config->d_model;
}

static hl_kept_range *range_of(const hl_session *session, int64_t slot, int64_t sequence)
{
    return session->streams.ranges + slot * session->options.n_batch + sequence;
}

/* The first slot that a feed that starts at this layer writes. */
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
