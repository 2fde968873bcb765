/* positions.h - how entropy goes with where in the text a row stands. */
#ifndef HL_ANALYSIS_POSITIONS_H
#define HL_ANALYSIS_POSITIONS_H

#include "headlight.h"
#include "stats/profile.h"

typedef struct hl_position_curve {
    int64_t n_buckets;
    double  means[HL_PROFILE_MAX_BUCKETS]; /* over heads, of the heads' means; NaN: no such row */
    /* 95% intervals by the bootstrap over sequences; NaN with fewer than two that have such rows,
     * and in profiles of versions that kept no curves of sequences. */
    double lows[HL_PROFILE_MAX_BUCKETS];
    double highs[HL_PROFILE_MAX_BUCKETS];
    bool   has_intervals; /* of any bucket */
} hl_position_curve;

/* Of ENTROPY or FAIR. */
hl_status hl_position_curve_read(hl_position_curve *out, const hl_profile *profile,
                                 hl_quantity quantity, uint64_t seed);

#endif
