/* pick.h - drawing a token where its logits are, for model/sample.c and every device.
 *
 * A row of logits stays on the device.  Only its statistics (hl_pick_result) and the candidates
 * leave it: a few tokens with their logits, among which the sampler draws as it does among all.
 * Candidates are a superset of those that the rules of hl_sample_options leave, so that all ties
 * and all rounding are decided in one place, by the sampler.  They are found without sorting:
 * tokens are counted by how far their scores lie below the largest, in bins that widen with the
 * distance,
 *
 *     TOP_K   the highest bins that together hold k tokens
 *     TOP_P   the highest bins that hold a share p of all weights, and a little more
 *     MIN_P   no bins: tokens with at least p of the largest weight, or a little less
 *
 * GREEDY and ALL need no candidates: the device takes the largest score, or draws by the sums of
 * weights from token 0 on.  Scores are logits after the penalty, weights exp((score - max) / T). */
#ifndef HL_KERNELS_PICK_H
#define HL_KERNELS_PICK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/host_device.h"

typedef enum hl_pick_kind {
    HL_PICK_GREEDY = 0,
    HL_PICK_ALL,
    HL_PICK_TOP_K,
    HL_PICK_TOP_P,
    HL_PICK_MIN_P,
} hl_pick_kind;

/* The rule of one draw. */
typedef struct hl_pick_rule {
    int64_t      row; /* row of the logits */
    hl_pick_kind kind;
    float        penalty;     /* 1: no penalty */
    double       temperature; /* above 0, except with GREEDY */
    double       top_p;
    double       min_p;
    int64_t      top_k;
    double       unit; /* the random number, in [0, 1) */
} hl_pick_rule;

typedef struct hl_pick_candidate {
    int32_t token;
    float   logit;
} hl_pick_candidate;

/* The result for one row. */
typedef struct hl_pick_result {
    double  lse; /* log-sum-exp of the logits, as in hl_logits_row */
    double  entropy;
    double  varentropy;
    double  total; /* sum of all weights; 0 with GREEDY */
    int32_t token; /* the token drawn by GREEDY and ALL; else -1 */
    float   logit; /* the token's logit */
    int32_t n_candidates;
    int32_t is_bad; /* a logit is NaN or +inf, or all are -inf; other fields are then invalid */
} hl_pick_result;

enum {
    HL_PICK_CANDIDATES = 1024, /* if there are more, the list is incomplete and the row is needed */
    HL_PICK_BINS       = 2304,
    HL_PICK_WORK_BYTES = 32 << 10, /* bytes of device memory per row */
};

/* The margin of TOP_P and MIN_P: far above rounding errors, far below what a user can notice. */
#define HL_PICK_SLACK 1e-6

/* Weights in the bins are whole numbers in this unit, so that addition has no rounding. */
#define HL_PICK_UNIT 0x1p40

HL_HOST_DEVICE float hl_pick_score(float logit, float penalty, bool is_repeated)
{
    const float largest = 3.402823466e+38f; /* FLT_MAX */

    if (is_repeated)
        logit = logit < 0.0f ? logit * penalty : logit / penalty;
    return logit < largest ? logit : largest;
}

/* The bin of a score that is `below` less than the largest.  There are 128 bins per doubling from
 * 2^-10 to 2^8; smaller distances go to the first bin, larger ones to the last. */
HL_HOST_DEVICE int hl_pick_bin(float below)
{
    const uint32_t first = UINT32_C(0x3a800000); /* 2^-10 */
    uint32_t       bits;

    memcpy(&bits, &below, sizeof bits);
    if (!(below >= 0x1p-10f))
        return 0;
    bits = (bits - first) >> 16;
    return bits < HL_PICK_BINS - 1 ? (int)bits + 1 : HL_PICK_BINS - 1;
}

#endif
