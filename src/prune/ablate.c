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
    int64_t n_gates = model->config->n_layers * model->config->n_heads;
    int64_t n       = hl_model_heads(NULL, model);

    HL_NEED(hl_alloc((void **)out, (size_t)n + 1, (size_t)n_gates * sizeof **out));
    for (int64_t i = 0; i < (n + 1) * n_gates; i++)
        (*out)[i] = base != NULL ? base[i % n_gates] : 1.0f;
    float *setting = *out;
    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < model->config->layers[layer].n_heads; head++) {
            setting[layer * model->config->n_heads + head] = 0.0f;
            setting += n_gates;
        }
    }
    return HL_OK;
}

void hl_single_rises(double *out, const hl_model *model, const hl_evaluation *found, int64_t base)
{
    double  before = hl_evaluation_total(found, base).nll;
    int64_t n      = 0;

    for (int64_t layer = 0; layer < model->config->n_layers; layer++) {
        for (int64_t head = 0; head < model->config->n_heads; head++) {
            bool is_there = head < model->config->layers[layer].n_heads;
            *out++        = is_there
                                ? (hl_evaluation_total(found, n++).nll - before) / (double)found->n_scored
                                : NAN;
        }
    }
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
    hl_single_rises(out, model, found, -1);
    return HL_OK;
}
