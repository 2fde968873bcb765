/* ablate.c - each head switched off alone: what the model loses by it.
 *
 * The oracle among the rankers, as far as heads do not stand in for one another.  A head of
 * layer l starts at layer l, so all of them cost about half of what they would one by one. */
#include "prune/ablate.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "prune/evaluate.h"

int64_t hl_model_heads(hl_head *out, const hl_model *model)
{
    int64_t count = 0;

    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < model->config->layers[layer].n_heads; head++) {
            if (out != NULL)
                out[count] = (hl_head){ layer, head };
            count++;
        }
    }
    return count;
}

hl_status hl_single_gates(float **out, const hl_model *model, const float *base)
{
    int64_t           n_gates = model->config->n_layers * model->config->n_heads;
    int64_t           n       = hl_model_heads(NULL, model);
    HL_FREED float   *gates   = NULL;
    HL_FREED hl_head *heads   = NULL;

    *out = NULL;
    HL_NEED(hl_alloc((void **)&gates, (size_t)n + 1, (size_t)n_gates * sizeof *gates));
    HL_NEED(HL_ALLOC(&heads, (size_t)n));
    hl_model_heads(heads, model);
    for (int64_t i = 0; i <= n; i++) {
        float *setting = gates + i * n_gates;
        for (int64_t j = 0; j < n_gates; j++)
            setting[j] = base != NULL ? base[j] : 1.0f;
        if (i < n)
            setting[heads[i].layer * model->config->n_heads + heads[i].head] = 0.0f;
    }
    *out = hl_taken(&gates);
    return HL_OK;
}

hl_status hl_spread_heads(double *out, const hl_model *model, const double *values)
{
    int64_t  n_gates = model->config->n_layers * model->config->n_heads;
    int64_t  n       = hl_model_heads(NULL, model);
    hl_head *heads   = NULL;

    HL_NEED(HL_ALLOC(&heads, (size_t)n));
    hl_model_heads(heads, model);
    for (int64_t i = 0; i < n_gates; i++)
        out[i] = NAN;
    for (int64_t i = 0; i < n; i++)
        out[heads[i].layer * model->config->n_heads + heads[i].head] = values[i];
    hl_free(heads);
    return HL_OK;
}

static hl_status mean_rises(double *out, const hl_model *model, const hl_evaluation *found)
{
    double   *rises  = NULL;
    double    dense  = hl_evaluation_total(found, -1).nll;
    hl_status status = HL_ALLOC(&rises, (size_t)found->n_settings);

    if (status != HL_OK)
        return status;
    for (int64_t i = 0; i < found->n_settings; i++)
        rises[i] = (hl_evaluation_total(found, i).nll - dense) / (double)found->n_scored;
    status = hl_spread_heads(out, model, rises);
    hl_free(rises);
    return status;
}

hl_status hl_ablate(double *out, const hl_model *model, const hl_corpus *corpus,
                    const hl_evaluate_options *options)
{
    HL_CLOSED(hl_evaluation_free) hl_evaluation *found = NULL;
    HL_FREED float                              *gates = NULL;

    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "ablate: no model");
    HL_NEED(hl_single_gates(&gates, model, NULL));
    HL_NEED(hl_evaluate(&found, model, corpus, gates, hl_model_heads(NULL, model), options));
    return mean_rises(out, model, found);
}
