/* kept_logits.c - rows put away and compared with. */
#include "model/kept_logits.h"

#include <math.h>
#include <string.h>

void hl_kept_put(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                 int64_t n)
{
    float *p = kept->p + row * n;

    memcpy(kept->logits + row * n, logits, (size_t)n * sizeof *logits);
    for (int64_t i = 0; i < n; i++)
        p[i] = (float)exp((double)logits[i] - lse);
    kept->lse[row] = lse;
}

double hl_kept_divergence(const hl_kept_logits *kept, int64_t row, const float *logits, double lse,
                          int64_t n)
{
    const float *a     = kept->logits + row * n;
    const float *p     = kept->p + row * n;
    double       shift = lse - kept->lse[row];
    double       kl    = 0.0;

    for (int64_t i = 0; i < n; i++) {
        if (p[i] > 0.0f) /* a token that cannot be has logit -inf in both */
            kl += (double)p[i] * ((double)a[i] - (double)logits[i] + shift);
    }
    return kl;
}
