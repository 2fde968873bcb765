/* router.h - which experts of a mixture a row goes through, and their weights.
 *
 * A router's logits l become scores s, one per expert:
 *
 *     SOFTMAX       s = softmax(l) over all experts
 *     SIGMOID       s = 1 / (1 + e^-l)
 *
 * The n_used experts with the largest s + correction are chosen; of equal ones, the lowest index.
 * With groups of experts, only the best groups take part: a group counts as much as its best
 * expert, or as its two best together.  The weight of a chosen expert is
 *
 *     w = scale * s                                          or, if normed,
 *     w = scale * s / max(sum of the chosen s + added, least)
 *
 * without the correction.  It multiplies the expert's output, or its input (scales_input).
 *
 *     SPARSEMIXER   chooses two experts, each by its largest logit; w = softmax(l) over the experts
 *                   that come close to it: (best - l) / max(|l|, best) <= margin.  The first expert
 *                   has no part in the second's softmax.
 *
 * A softmax normed over the chosen is a softmax of the chosen logits alone.  Order is decided by
 * logits where scores have the same order, because scores may round to equal numbers.
 *
 * Host and CUDA share the formulas; model_experts.cu distributes the search over a warp. */
#ifndef HL_KERNELS_ROUTER_H
#define HL_KERNELS_ROUTER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HL_MAX_EXPERTS 4096

typedef enum hl_router_score {
    HL_ROUTER_SOFTMAX = 0,
    HL_ROUTER_SIGMOID,
    HL_ROUTER_SPARSEMIXER,
} hl_router_score;

typedef struct hl_router {
    hl_router_score score;
    bool            normed;
    bool            scales_input;
    bool            has_correction;
    bool            groups_by_two; /* a group counts as much as its two best experts */
    int64_t         n_groups;      /* 0 or 1: no groups */
    int64_t         n_groups_used;
    double          added;
    double          least;
    double          scale;
    double          margin; /* sparsemixer */
} hl_router;

/* Does the order of s + correction differ from that of the logits? */
HL_HOST_DEVICE bool hl_router_needs_scores(const hl_router *router)
{
    return router->has_correction || router->n_groups > 1;
}

/* exp(l - max) or the sigmoid of l; a softmax's is divided by the sum over all experts. */
HL_HOST_DEVICE double hl_router_unscaled(const hl_router *router, float logit, float max)
{
    return router->score == HL_ROUTER_SIGMOID ? 1.0 / (1.0 + exp(-(double)logit))
                                              : exp((double)(logit - max));
}

/* What all weights of a row are multiplied by, given the sum of the chosen scores. */
HL_HOST_DEVICE double hl_router_factor(const hl_router *router, double sum)
{
    double total = sum + router->added;

    return router->normed ? router->scale / (total > router->least ? total : router->least)
                          : router->scale;
}

/* Sparsemixer: is an expert close to the best of those that take part? */
HL_HOST_DEVICE bool hl_router_is_close(const hl_router *router, float logit, float best)
{
    float size = fabsf(logit) > best ? fabsf(logit) : best;

    return (best - logit) / size <= (float)router->margin;
}

/* Chooses the experts of one row, and their weights: chosen, weights (n_used) by falling rank.
 * correction (n_experts) is read if the router has one; scores (n_experts) is scratch. */
void hl_router_choose(int64_t *chosen, float *weights, float *scores, const float *logits,
                      const float *correction, const hl_router *router, int64_t n_experts,
                      int64_t n_used);

/* Replaces one row's logits by their gradients, given the chosen experts and the gradients of their
 * weights, slopes (n_used).  A small change of logits does not change which experts are chosen. */
void hl_router_gradient(float *logits, const int64_t *chosen, const float *slopes,
                        const hl_router *router, int64_t n_experts, int64_t n_used);

#ifdef __cplusplus
}
#endif
#endif
