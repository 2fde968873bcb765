/* kept.h - what a session keeps for later feeds: rows of logits to be compared with, and residual
 * streams to start from.
 *
 * Logits.  With a those that were kept, p = exp(a - lse a), and x those of another row
 *
 *     KL = sum p ((a - lse a) - (x - lse x)),
 *
 * which is exactly 0 where x = a.  On the CPU p is kept, too: it takes longer to make than all
 * the rest.  A device keeps logits in its own memory (model/device.h).
 *
 * Streams.  With hl_session_options.stream_every = n every feed leaves what layers n, 2 n, ... read
 * of its rows, where the session runs, and a feed whose first layer is one of them reads its rows
 * there.  Rows stand by their positions, as keys do. */
#ifndef HL_MODEL_KEPT_H
#define HL_MODEL_KEPT_H

#include "headlight/session.h"

struct hl_session;
struct hl_chunk;

/* Positions of a sequence of which something is kept. */
typedef struct hl_kept_range {
    int64_t begin;
    int64_t end;
} hl_kept_range;

static inline bool hl_kept_has(hl_kept_range range, int64_t start, int64_t count)
{
    return count == 0 || (start >= range.begin && start + count <= range.end);
}

/* ---------------------------------------------------------------------------------------- logits */

typedef struct hl_kept_logits {
    float  *logits; /* (B, n_kept, V) */
    float  *p;      /* the same       */
    double *lse;    /* (B, n_kept)    */
} hl_kept_logits;

void   hl_kept_put(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                   int64_t n);
double hl_kept_divergence(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                          int64_t n);

/* --------------------------------------------------------------------------------------- streams */

typedef struct hl_kept_streams {
    float         *x;      /* (n_slots, B, S, D); the device's where the session is on one */
    hl_kept_range *ranges; /* (n_slots, B) positions that are there */
    int64_t        n_slots;
} hl_kept_streams;

/* The slot of the stream that a layer reads; -1: none. */
int64_t hl_streams_slot(const struct hl_session *session, int64_t layer);
/* Where the chunk's rows of a sequence begin in it. */
float *hl_streams_rows(const struct hl_session *session, const struct hl_chunk *chunk, int64_t slot,
                       int64_t b);
/* Can the feed start at its first layer? */
hl_status hl_streams_check(const struct hl_session *session, const hl_feed *feed);
/* What the feed will overwrite is no longer there, until a chunk of it has been run. */
void hl_streams_begin(struct hl_session *session, const hl_feed *feed);
void hl_streams_extend(struct hl_session *session, const struct hl_chunk *chunk);

/* On the CPU: the chunk's rows of x to the stream that `layer` reads, and from it. */
void hl_streams_put(const struct hl_session *session, const struct hl_chunk *chunk, int64_t layer);
void hl_streams_get(const struct hl_session *session, const struct hl_chunk *chunk);

#endif
