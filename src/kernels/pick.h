/* pick.h - drawing a token where its logits are, for model/sample.c and every device.
 *
 * A row of logits stays on the device; what leaves it is what the row says (hl_pick_result) and the
 * candidates, few tokens with their logits, among which the sampler draws as it does among all.
 * Candidates are a superset of those that the rules of hl_sample_options leave, so that all ties and
 * all rounding are decided in one place, by the sampler.  They are found without sorting: tokens are
 * counted by how far their scores lie below the largest, in bins that widen with the distance,
 *
 *     TOP_K   as many bins from the top as hold k tokens
 *     TOP_P   as many as hold a mass of p of all weights, and a little more
 *     MIN_P   no bins: what weighs p of the largest, or a little less
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

/* What one draw is told. */
typedef struct hl_pick_rule {
    int64_t      row; /* of the logits */
    hl_pick_kind kind;
    float        penalty;     /* 1: none */
    double       temperature; /* above 0, but for GREEDY */
    double       top_p;
    double       min_p;
    int64_t      top_k;
    double       unit; /* the random number, in [0, 1) */
} hl_pick_rule;

typedef struct hl_pick_candidate {
    int32_t token;
    float   logit;
} hl_pick_candidate;

/* What is known of a row then. */
typedef struct hl_pick_result {
    double  lse; /* of the logits, as hl_logits_row */
    double  entropy;
    double  varentropy;
    double  total; /* of all weights; 0 with GREEDY */
    int32_t token; /* GREEDY and ALL; else -1 */
    float   logit; /* of it */
    int32_t n_candidates;
    int32_t is_bad; /* a logit is NaN or +inf, or all are -inf: nothing else counts */
} hl_pick_result;

enum {
    HL_PICK_CANDIDATES = 1024, /* more are counted, not listed: then the row itself is needed */
    HL_PICK_BINS       = 2304,
    HL_PICK_WORK_BYTES = 32 << 10, /* of device memory for a row */
};

/* TOP_P's and MIN_P's little more: far above rounding, far below what anybody asks for. */
#define HL_PICK_SLACK 1e-6

/* Weights in the bins are whole numbers of this, so that their sums have no order. */
#define HL_PICK_UNIT 0x1p40

HL_HOST_DEVICE float hl_pick_score(float logit, float penalty, bool is_repeated)
{
    const float largest = 3.402823466e+38f; /* FLT_MAX */

    if (is_repeated)
        logit = logit < 0.0f ? logit * penalty : logit / penalty;
    return logit < largest ? logit : largest;
}

/* The bin of a score that lies so far below the largest: 128 bins for each doubling from 2^-10 on,
 * all that is nearer in the first, all from 2^8 on in the last. */
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
