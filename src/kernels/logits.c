/* logits.c - sums over one row of logits.
 *
 * With o = logit - max, w = exp(o):  l = sum w,  t = sum w o,  v = sum w o^2 give
 *
 *     lse = max + log l      entropy = log l - t/l      varentropy = v/l - (t/l)^2
 *
 * The largest logit weighs exactly 1, so l - 1 is summed and log1p used: the entropy of
 * a model that is almost certain keeps its digits. */
#include "kernels/logits.h"

#include <math.h>

#include "base/status.h"
#include "kernels/kernels.h"

int64_t hl_logits_top(const float *logits, int64_t n)
{
    int64_t top = 0;

    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[top])
            top = i;
    }
    return top;
}

/* l - 1, t and v around the logit `top`, which is left out. */
static hl_exact_sums sums_around(int64_t top, const float *logits, int64_t n)
{
    enum { CHUNK = 512 };
    const hl_kernels *kernels = &hl_kernels_scalar;
    hl_exact_sums     sums    = { 0.0, 0.0, 0.0, 0.0 };
    double            some[CHUNK];

    (void)hl_kernels_current(&kernels); /* if this fails, the scalar kernels are also correct */
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t count = n - first < CHUNK ? n - first : CHUNK;

        for (int64_t i = 0; i < count; i++)
            some[i] = (double)logits[first + i];
        if (top >= first && top < first + count)
            some[top - first] = -(double)INFINITY;
        kernels->dense->exp_exact(&sums, some, (double)logits[top], count);
    }
    return sums;
}

double hl_logits_lse_around(int64_t top, const float *logits, int64_t n)
{
    return (double)logits[top] + log1p(sums_around(top, logits, n).sum);
}

double hl_logits_lse(const float *logits, int64_t n)
{
    return hl_logits_lse_around(hl_logits_top(logits, n), logits, n);
}

double hl_logits_loss(int64_t *top, const float *logits, int64_t n, int64_t token)
{
    *top = hl_logits_top(logits, n);
    return hl_logits_lse_around(*top, logits, n) - (double)logits[token];
}

hl_logits_row hl_logits_read(const float *logits, int64_t n)
{
    hl_logits_row row  = { .top = hl_logits_top(logits, n) };
    hl_exact_sums sums = sums_around(row.top, logits, n);
    double        mean = sums.dot / (1.0 + sums.sum);

    row.lse        = (double)logits[row.top] + log1p(sums.sum);
    row.entropy    = log1p(sums.sum) - mean;
    row.varentropy = fmax(sums.dot2 / (1.0 + sums.sum) - mean * mean, 0.0);
    return row;
}

hl_status hl_logits_check(const float *logits, int64_t n)
{
    bool possible = false;

    for (int64_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return hl_fail(HL_BAD_INPUT, "the logit of token %lld is %s", (long long)i,
                           isnan(logits[i]) ? "NaN" : "+inf");
        possible = possible || logits[i] > -INFINITY;
    }
    if (!possible)
        return hl_fail(HL_BAD_INPUT,
                       "no token can be drawn: the logits of all %lld tokens are -inf",
                       (long long)n);
    return HL_OK;
}
