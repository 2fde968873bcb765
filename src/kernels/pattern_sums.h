/* pattern_sums.h - sums over one whole row of attention.
 *
 * The patterns of metrics.md 5 need few numbers of a row: sums, the largest weight, the weights
 * near the row's own key, and how many keys have a share.  They are computed here for rows in host
 * memory; a device computes the same for rows in its own.  Key 0 often holds most of a row, so
 * there are also numbers without it. */
#ifndef HL_KERNELS_PATTERN_SUMS_H
#define HL_KERNELS_PATTERN_SUMS_H

#include "base/visible.h"

/* The number of keys in a band, on either side of the row's own. */
#define HL_BAND 4

/* A key has an edge to the row if its weight is above this share of the total. */
#define HL_EDGE 1e-3

/* k90 counts how many of the largest weights make up this share of the total. */
#define HL_KEPT_SHARE 0.9

/* The position of a row and the keys that it sees.  If there are none, the row is not looked at. */
typedef struct hl_pattern_place {
    hl_visible_keys keys;
    int64_t         position;
} hl_pattern_place;

/* In arrays of two, [0] is for the whole row, [1] for its keys without key 0, rescaled. */
typedef struct hl_pattern_sums {
    double  total; /* sum over the keys without key 0; squares, peak and top also exclude it */
    double  squares;
    float   peak;
    int32_t top;                      /* the lowest of equal keys */
    float   first;                    /* key 0's weight; 0 if it is not seen */
    float   near_by[2 * HL_BAND + 1]; /* keys from position - HL_BAND on; 0 if not seen */
    int32_t n_edges[2];
    int32_t k90[2];
} hl_pattern_sums;

/* p has one weight per key, from key 0 on, and 0 for keys that are not seen.  If total is not
 * finite, the pairs are 0.  scratch has room for keys.end weights. */
void hl_pattern_sum(hl_pattern_sums *out, const float *p, const hl_pattern_place *place,
                    float *scratch);

#endif
