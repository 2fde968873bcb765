/* pick.h - draws the next tokens of sequences, on the device that has their logits.
 *
 *     hl_pick pick = { .sequence = 0, .sampler = sampler };
 *     HL_TRY(hl_session_look(session, &pick, 1));
 *     HL_TRY(hl_pick_token(&pick));
 *
 * There are two steps: the first uses the session, for all draws at once; the second uses only the
 * draw, so different threads may run it. */
#ifndef HL_MODEL_PICK_H
#define HL_MODEL_PICK_H

#include "headlight/generate.h"
#include "kernels/logits.h"
#include "kernels/pick.h"
#include "model/session.h"

typedef struct hl_pick {
    int64_t     sequence;
    hl_sampler *sampler;
    bool        wants_logits; /* `logits` must be filled in */

    /* Set by hl_session_look; borrowed until the session's next call. */
    int64_t               d_vocab;
    const float          *logits; /* (d_vocab); NULL: they stay on the device */
    const hl_pick_result *result; /* the device's summary of the logits */
    hl_pick_candidate    *candidates;

    /* Set by hl_pick_token. */
    int64_t       token;
    double        logprob; /* log-probability of the token, before temperature and filters */
    hl_logits_row row;     /* statistics of the logits; without the top where `logits` is NULL */
} hl_pick;

/* Collects what n draws need, for sequences that were fed since the session was opened with
 * HL_WANT_LAST_DRAW or HL_WANT_LAST_LOGITS. */
hl_status hl_session_look(hl_session *session, hl_pick *picks, int64_t n);
/* Draws the token.  HL_BAD_INPUT, naming the token, where a logit is NaN or +inf. */
hl_status hl_pick_token(hl_pick *pick);

#endif
