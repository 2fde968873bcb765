/* router.c - the choice of experts for one row, and its gradient. */
#include "kernels/router.h"

#include <string.h>

/* The largest of n numbers; the first of equal ones. */
static int64_t best_of(const float *x, int64_t n)
{
    int64_t best = 0;

    for (int64_t i = 1; i < n; i++) {
        if (x[i] > x[best])
            best = i;
    }
    return best;
}

static double sum_over(const float *logits, int64_t n, float max)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += exp((double)(logits[i] - max));
    return sum;
}

/* The sum that divides a softmax; 1 for scores that are not divided. */
static double total_of(const hl_router *router, const float *logits, int64_t n, float max)
{
    return router->score == HL_ROUTER_SIGMOID ? 1.0 : sum_over(logits, n, max);
}

/* ---------------------------------------------------------------------------------------- groups */

static float group_score(const float *scores, int64_t n, bool by_two)
{
    int64_t best   = best_of(scores, n);
    float   second = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (i != best && scores[i] > second)
            second = scores[i];
    }
    return by_two && n > 1 ? scores[best] + second : scores[best];
}

/* Removes the scores of all groups but the best. */
static void keep_groups(float *scores, const hl_router *router, int64_t n_experts)
{
    int64_t size = n_experts / router->n_groups;
    float   of_groups[HL_MAX_EXPERTS];
    bool    is_kept[HL_MAX_EXPERTS] = { false };

    for (int64_t i = 0; i < router->n_groups; i++)
        of_groups[i] = group_score(scores + i * size, size, router->groups_by_two);
    for (int64_t i = 0; i < router->n_groups_used; i++) {
        int64_t best    = best_of(of_groups, router->n_groups);
        is_kept[best]   = true;
        of_groups[best] = -INFINITY;
    }
    for (int64_t i = 0; i < n_experts; i++) {
        if (!is_kept[i / size])
            scores[i] = -INFINITY;
    }
}

/* ------------------------------------------------------------------------------------- the choice */

/* The softmax of the best of `scores` over the experts that are close to it.  Experts that take no
 * part have -inf. */
static float sparse_weight(const float *scores, const hl_router *router, int64_t n_experts,
                           int64_t best)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n_experts; i++) {
        if (scores[i] > -INFINITY && hl_router_is_close(router, scores[i], scores[best]))
            sum += exp((double)(scores[i] - scores[best]));
    }
    return (float)(router->scale / sum);
}

void hl_router_choose(int64_t *chosen, float *weights, float *scores, const float *logits,
                      const float *correction, const hl_router *router, int64_t n_experts,
                      int64_t n_used)
{
    float  max   = logits[best_of(logits, n_experts)];
    double total = total_of(router, logits, n_experts, max);
    double sum   = 0.0;

    memcpy(scores, logits, (size_t)n_experts * sizeof *scores);
    for (int64_t i = 0; hl_router_needs_scores(router) && i < n_experts; i++)
        scores[i] = (float)(hl_router_unscaled(router, logits[i], max) / total) +
                    (router->has_correction ? correction[i] : 0.0f);
    if (router->n_groups > 1)
        keep_groups(scores, router, n_experts);
    for (int64_t i = 0; i < n_used; i++) {
        chosen[i] = best_of(scores, n_experts);
        if (router->score == HL_ROUTER_SPARSEMIXER)
            weights[i] = sparse_weight(scores, router, n_experts, chosen[i]);
        scores[chosen[i]] = -INFINITY;
        sum += hl_router_unscaled(router, logits[chosen[i]], max) / total;
    }
    for (int64_t i = 0; router->score != HL_ROUTER_SPARSEMIXER && i < n_used; i++)
        weights[i] = (float)(hl_router_unscaled(router, logits[chosen[i]], max) / total *
                             hl_router_factor(router, sum));
}

/* ----------------------------------------------------------------------------------- the gradient */

/* w = softmax over the experts close to the best:  dl_e = dw w ([e is the best] - softmax_e). */
static void sparse_gradient(float *logits, const int64_t *chosen, const float *slopes,
                            const hl_router *router, int64_t n_experts, int64_t n_used)
{
    double out[HL_MAX_EXPERTS] = { 0.0 };

    for (int64_t i = 0; i < n_used; i++) {
        float  best = logits[chosen[i]];
        double sum  = 0.0;

        for (int pass = 0; pass < 2; pass++) {
            for (int64_t e = 0; e < n_experts; e++) {
                bool taken = false;
                for (int64_t j = 0; j < i; j++)
                    taken = taken || chosen[j] == e;
                if (taken || !hl_router_is_close(router, logits[e], best))
                    continue;
                double term = exp((double)(logits[e] - best));
                if (pass == 0)
                    sum += term;
                else
                    out[e] += (double)slopes[i] * router->scale / sum *
                              ((e == chosen[i] ? 1.0 : 0.0) - term / sum);
            }
        }
    }
    for (int64_t e = 0; e < n_experts; e++)
        logits[e] = (float)out[e];
}

void hl_router_gradient(float *logits, const int64_t *chosen, const float *slopes,
                        const hl_router *router, int64_t n_experts, int64_t n_used)
{
    float  max    = logits[best_of(logits, n_experts)];
    double total  = total_of(router, logits, n_experts, max);
    double sum    = 0.0;
    double common = 0.0; /* what the norm over the chosen takes from each */
    double mean   = 0.0;
    double out[HL_MAX_EXPERTS];

    if (router->score == HL_ROUTER_SPARSEMIXER) {
        sparse_gradient(logits, chosen, slopes, router, n_experts, n_used);
        return;
    }
    for (int64_t e = 0; e < n_experts; e++)
        out[e] = 0.0;
    for (int64_t i = 0; i < n_used; i++) {
        double score = hl_router_unscaled(router, logits[chosen[i]], max) / total;

        sum += score;
        common += score * (double)slopes[i];
    }
    double factor = hl_router_factor(router, sum);
    bool   moves  = router->normed && sum + router->added > router->least;
    common        = moves ? common * factor / (sum + router->added) : 0.0;
    for (int64_t i = 0; i < n_used; i++) {
        double score = hl_router_unscaled(router, logits[chosen[i]], max) / total;

        out[chosen[i]] = (double)slopes[i] * factor - common;
        mean += score * out[chosen[i]];
    }
    for (int64_t e = 0; e < n_experts; e++) {
        double score = hl_router_unscaled(router, logits[e], max) / total;
        double slope = router->score == HL_ROUTER_SIGMOID ? (1.0 - score) * out[e] : out[e] - mean;

        logits[e] = (float)(score * slope);
    }
}
