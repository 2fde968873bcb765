/* kept.h - positions for which a session keeps data for later feeds: rows of logits to compare with
 * (hl_device_kept of kernels/device.h), and residual streams to start from.
 *
 * Streams.  With hl_session_options.stream_every = n, every feed keeps the inputs of layers n, 2 n,
 * ... on the session's device.  A feed whose first layer is one of them starts from these rows.
 * Rows are indexed by position, like keys. */
#ifndef HL_MODEL_KEPT_H
#define HL_MODEL_KEPT_H

#include "headlight/session.h"

struct hl_session;
struct hl_chunk;

/* A range of positions of a sequence for which something is kept. */
typedef struct hl_kept_range {
    int64_t begin;
    int64_t end;
} hl_kept_range;

static inline bool hl_kept_has(hl_kept_range range, int64_t start, int64_t count)
{
    return count == 0 || (start >= range.begin && start + count <= range.end);
}

typedef struct hl_kept_streams {
    float         *x;      /* (n_slots, B, S, D) on the device */
    hl_kept_range *ranges; /* (n_slots, B) positions that are stored */
    int64_t        n_slots;
} hl_kept_streams;

/* The slot of the stream that a layer reads; -1: it is not kept. */
int64_t hl_streams_slot(const struct hl_session *session, int64_t layer);
/* The address of the chunk's rows of a sequence in a slot. */
float *hl_streams_rows(const struct hl_session *session, const struct hl_chunk *chunk, int64_t slot,
                       int64_t b);
/* Checks that the feed can start at its first layer. */
hl_status hl_streams_check(const struct hl_session *session, const hl_feed *feed);
/* Marks the rows that the feed will overwrite as missing, until a chunk has been run. */
void hl_streams_begin(struct hl_session *session, const hl_feed *feed);
void hl_streams_extend(struct hl_session *session, const struct hl_chunk *chunk);

#endif
