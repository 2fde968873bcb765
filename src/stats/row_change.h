/* row_change.h - how far a head's attention has moved from one row to another.
 *
 * Half the sum of |p - q| over the keys that both rows see; all else (a new key, one that left the
 * window, a learned sink) counts as one outcome together, so that change lies between 0 and 1. */
#ifndef HL_STATS_ROW_CHANGE_H
#define HL_STATS_ROW_CHANGE_H

#include "stats/profile_add.h"

/* p and q are whole rows, from key 0 on, of one head, whose mask is the same for both. */
double hl_row_change(const float *p, const float *q, hl_seen_keys now, hl_seen_keys before);

#endif
