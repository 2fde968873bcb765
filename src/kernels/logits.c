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

int64_t hl_logits_top(const float *logits, int64_t n)
{
    int64_t top = 0;

    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[top])
            top = i;
    }
    return top;
}

double hl_logits_lse_around(int64_t top, const float *logits, int64_t n)
{
    double max  = (double)logits[top];
    double rest = 0.0; /* l - 1 */

    for (int64_t i = 0; i < n; i++) {
        if (i != top)
            rest += exp((double)logits[i] - max);
    }
    return max + log1p(rest);
}

double hl_logits_lse(const float *logits, int64_t n)
{
    return hl_logits_lse_around(hl_logits_top(logits, n), logits, n);
}

hl_logits_row hl_logits_read(const float *logits, int64_t n)
{
    hl_logits_row row  = { .top = hl_logits_top(logits, n) };
    double        max  = (double)logits[row.top];
    double        rest = 0.0; /* l - 1 */
    double        dot  = 0.0;
    double        dot2 = 0.0;

    for (int64_t i = 0; i < n; i++) {
        double offset = (double)logits[i] - max;
        double weight = exp(offset);

        if (i != row.top && weight > 0.0) { /* 0 * -inf is NaN */
            rest += weight;
            dot += weight * offset;
            dot2 += weight * offset * offset;
        }
    }
    double mean    = dot / (1.0 + rest);
    row.lse        = max + log1p(rest);
    row.entropy    = log1p(rest) - mean;
    row.varentropy = fmax(dot2 / (1.0 + rest) - mean * mean, 0.0);
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
