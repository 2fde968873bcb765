/* pattern_sums.h - what one row of attention, looked at whole, comes to.
 *
 * metrics.md 5's patterns are made of few numbers of a row: sums, the largest weight, those near
 * the row's own key, and how many keys have a share.  They are found here, where the row lies in
 * the host's memory, or by a device where it lies in its own, and mean the same.  Key 0 often
 * holds most of a row, so that all is known without it, too. */
#ifndef HL_KERNELS_PATTERN_SUMS_H
#define HL_KERNELS_PATTERN_SUMS_H

#include "base/visible.h"

/* A band is so many keys on either side of the row's own. */
#define HL_BAND 4

/* A key has an edge to the row where its weight is more than this, of all. */
#define HL_EDGE 1e-3

/* k90: how many of the largest weights make up this share of all. */
#define HL_KEPT_SHARE 0.9

/* Where a row stands and what it sees; no keys: it is not looked at. */
typedef struct hl_pattern_place {
    hl_visible_keys keys;
    int64_t         position;
} hl_pattern_place;

/* Pairs are of the whole row, and of the keys but key 0 as a whole of their own. */
typedef struct hl_pattern_sums {
    double  total; /* of the keys but key 0, as squares, peak and top */
    double  squares;
    float   peak;
    int32_t top;                      /* the lowest of equals */
    float   first;                    /* key 0's weight; 0 where it is not seen */
    float   near_by[2 * HL_BAND + 1]; /* from key position - HL_BAND on; 0 where not seen */
    int32_t n_edges[2];
    int32_t k90[2];
} hl_pattern_sums;

/* p: a weight a key, from key 0 on, 0 where it is not seen.  Where total is not finite, pairs are 0.
 * scratch has room for keys.end weights. */
void hl_pattern_sum(hl_pattern_sums *out, const float *p, const hl_pattern_place *place,
                    float *scratch);

#endif
