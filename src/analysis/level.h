/* level.h - how spread out a model's attention is as a whole, and whether that fell.
 *
 *     hl_level before, now;
 *     HL_TRY(hl_level_of(&before, earlier));
 *     HL_TRY(hl_level_of(&now, profile));
 *     double fall = hl_level_fall(&before, &now);      in robust standard deviations
 *
 * A sequence's level is the mean fair entropy of all heads on it. */
#ifndef HL_ANALYSIS_LEVEL_H
#define HL_ANALYSIS_LEVEL_H

#include "headlight.h"

typedef struct hl_level {
    int64_t n_sequences;
    double  mean;   /* of the sequences' levels; NaN of none */
    double  median; /* of the same, with */
    double  sigma;  /* a robust standard deviation */
} hl_level;

hl_status hl_level_of(hl_level *out, const hl_profile *profile);
/* How far the mean lies below the median of `before`, in its sigmas; NaN where `before` has fewer
 * than four sequences, or all alike. */
double hl_level_fall(const hl_level *before, const hl_level *now);

#endif
