/* auroc.h - how well a number tells two kinds of cases apart.
 *
 * The area under the ROC curve is the share of pairs, one case of each kind, in which the
 * positive one has the larger score; a tie is half a pair.  0.5 is chance. */
#ifndef HL_ANALYSIS_AUROC_H
#define HL_ANALYSIS_AUROC_H

#include "headlight.h"

typedef struct hl_cases {
    const uint8_t *is_positive; /* (count) */
    const int64_t *groups;      /* (count) which are drawn together: 0 ... n_groups - 1 */
    int64_t        count;
    int64_t        n_groups;
} hl_cases;

/* scores (count), none NaN.  NaN where there are no two kinds. */
hl_status hl_auroc(double *out, const double *scores, const hl_cases *cases);
/* The same for draws of as many groups, with replacement: out (n_draws), NaN where a draw
 * has but one kind.  One seed draws the same groups for all scores. */
hl_status hl_auroc_draws(double *out, const double *scores, const hl_cases *cases, int64_t n_draws,
                         uint64_t seed);

#endif
