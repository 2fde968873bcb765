/* kept_logits.h - rows of logits that a session keeps, for later ones to be compared with.
 *
 * With a the logits that were kept, p = exp(a - lse a), and x those of another row
 *
 *     KL = sum p ((a - lse a) - (x - lse x)),
 *
 * which is exactly 0 where x = a.  On the CPU p is kept, too: it takes longer to make than all
 * the rest.  A device keeps logits in its own memory (model/device.h). */
#ifndef HL_MODEL_KEPT_LOGITS_H
#define HL_MODEL_KEPT_LOGITS_H

#include "headlight.h"

typedef struct hl_kept_logits {
    float  *logits; /* (B, n_kept, V) */
    float  *p;      /* the same       */
    double *lse;    /* (B, n_kept)    */
} hl_kept_logits;

/* Positions of a sequence whose logits are kept: those of one feed. */
typedef struct hl_kept_range {
    int64_t begin;
    int64_t end;
} hl_kept_range;

void   hl_kept_put(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                   int64_t n);
double hl_kept_divergence(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                          int64_t n);

static inline bool hl_kept_has(hl_kept_range range, int64_t start, int64_t count)
{
    return count == 0 || (start >= range.begin && start + count <= range.end);
}

#endif
