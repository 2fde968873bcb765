/* watch_seen.h - which checkpoints have been looked at, and which are still being written.
 *
 * A checkpoint is settled when its size and time have not changed for some seconds: by its own
 * time, or, where the clocks of two machines differ, by how long it has looked the same to us. */
#ifndef HL_CLI_WATCH_SEEN_H
#define HL_CLI_WATCH_SEEN_H

#include <stdbool.h>

#include "headlight.h"

typedef struct hl_seen_checkpoint {
    char   *name;
    int64_t n_bytes;
    int64_t modified;
    double  since;     /* when it first looked like this, by our clock */
    bool    is_failed; /* and could not be measured */
} hl_seen_checkpoint;

/* Starts as { 0 }. */
typedef struct hl_seen {
    hl_seen_checkpoint *items;
    int64_t             count;
} hl_seen;

/* What is known of a checkpoint, as it looks now; NULL when memory is out.  Borrowed until the
 * next call. */
hl_seen_checkpoint *hl_seen_look(hl_seen *seen, const hl_checkpoint *checkpoint);
bool                hl_seen_is_settled(const hl_seen_checkpoint *seen, double seconds);
void                hl_seen_free(hl_seen *seen);

#endif
