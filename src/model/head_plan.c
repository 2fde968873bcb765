/* head_plan.c - which heads are removed and which are zeroed, so that groups stay equal. */
#include "model/head_plan.h"

#include "base/memory.h"
#include "base/status.h"

hl_status hl_head_plan_new(hl_head_plan **out, const hl_config *config)
{
    HL_CLOSED(hl_head_plan_free) hl_head_plan *plan = NULL;
    size_t each = (size_t)(config->n_heads + config->n_kv_heads);

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&plan, 1));
    plan->n_layers = config->n_layers;
    HL_NEED(HL_ALLOC_ZEROED(&plan->layers, (size_t)config->n_layers));
    HL_NEED(HL_ALLOC_ZEROED(&plan->fates, each * (size_t)config->n_layers));
    for (int64_t i = 0; i < config->n_layers; i++) {
        uint8_t *fates  = plan->fates + (size_t)i * each;
        plan->layers[i] = (hl_layer_plan){ .n_heads    = config->layers[i].n_heads,
                                           .n_kv_heads = config->layers[i].n_kv_heads,
                                           .heads      = fates,
                                           .kv         = fates + config->n_heads };
    }
    *out = hl_taken(&plan);
    return HL_OK;
}

void hl_head_plan_free(hl_head_plan *plan)
{
    if (plan == NULL)
        return;
    hl_free(plan->layers);
    hl_free(plan->fates);
    hl_free(plan->biases);
    hl_free(plan);
}

void hl_head_plan_zero(hl_head_plan *plan, int64_t layer, int64_t head)
{
    plan->layers[layer].heads[head] = HL_HEAD_ZEROED;
}

/* Counts the pruned heads of a group. */
static int64_t count_pruned(const uint8_t *heads, int64_t n)
{
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        count += heads[i] != HL_HEAD_KEPT;
    return count;
}

/* Marks the first `n` pruned heads of a group as GONE. */
static void take_out(uint8_t *heads, int64_t n)
{
    for (int64_t i = 0; n > 0; i++) {
        if (heads[i] == HL_HEAD_ZEROED) {
            heads[i] = HL_HEAD_GONE;
            n--;
        }
    }
}

static void compact_layer(hl_layer_plan *plan, const hl_layer_config *layer)
{
    int64_t n_groups = layer->n_kv_heads;
    int64_t n_each   = n_groups > 0 ? layer->n_heads / n_groups : 0;
    int64_t fewest   = n_each; /* largest number that every remaining group can remove */
    int64_t n_left   = 0;

    for (int64_t g = 0; g < n_groups; g++) {
        int64_t n_pruned = count_pruned(plan->heads + g * n_each, n_each);
        bool    spared   = g == 0 && count_pruned(plan->heads, layer->n_heads) == layer->n_heads;

        if (n_pruned == n_each && !spared) {
            plan->kv[g] = HL_HEAD_GONE;
            continue;
        }
        n_left++;
        if (n_pruned - spared < fewest)
            fewest = n_pruned - spared; /* one query of the spared group is kept */
    }
    for (int64_t g = 0; g < n_groups; g++)
        take_out(plan->heads + g * n_each, plan->kv[g] == HL_HEAD_GONE ? n_each : fewest);
    plan->n_kv_heads = n_left;
    plan->n_heads    = n_left * (n_each - fewest);
}

void hl_head_plan_expand(hl_head_plan *plan, const hl_config *config)
{
    for (int64_t i = 0; i < plan->n_layers; i++) {
        hl_layer_plan         *left  = &plan->layers[i];
        const hl_layer_config *layer = &config->layers[i];

        for (int64_t head = 0; head < layer->n_heads; head++) {
            if (left->heads[head] == HL_HEAD_GONE)
                left->heads[head] = HL_HEAD_ZEROED;
        }
        for (int64_t head = 0; head < layer->n_kv_heads; head++)
            left->kv[head] = HL_HEAD_KEPT;
        left->n_heads    = layer->n_heads;
        left->n_kv_heads = layer->n_kv_heads;
    }
}

void hl_head_plan_compact(hl_head_plan *plan, const hl_config *config)
{
    hl_head_plan_expand(plan, config); /* forget an earlier compaction */
    for (int64_t i = 0; i < plan->n_layers; i++)
        compact_layer(&plan->layers[i], &config->layers[i]);
}

bool hl_head_plan_is_uniform(const hl_head_plan *plan)
{
    for (int64_t i = 1; i < plan->n_layers; i++) {
        if (plan->layers[i].n_heads != plan->layers[0].n_heads ||
            plan->layers[i].n_kv_heads != plan->layers[0].n_kv_heads)
            return false;
    }
    return true;
}

void hl_head_plan_count(int64_t *n_zeroed, int64_t *n_gone, const hl_head_plan *plan,
                        const hl_config *config)
{
    *n_zeroed = *n_gone = 0;
    for (int64_t i = 0; i < plan->n_layers; i++) {
        for (int64_t head = 0; head < config->layers[i].n_heads; head++) {
            *n_zeroed += plan->layers[i].heads[head] == HL_HEAD_ZEROED;
            *n_gone += plan->layers[i].heads[head] == HL_HEAD_GONE;
        }
    }
}

bool hl_head_plan_is_compact(const hl_head_plan *plan, const hl_config *config)
{
    int64_t n_zeroed = 0;
    int64_t n_gone   = 0;

    hl_head_plan_count(&n_zeroed, &n_gone, plan, config);
    return n_gone > 0;
}

bool hl_head_plan_adds_biases(const hl_head_plan *plan, const hl_config *config)
{
    return plan->biases != NULL && (config->biases & HL_BIAS_O) == 0;
}
