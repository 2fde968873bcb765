/* adjust.c - a model, changed after it was read: mitigations to try, and gates.
 *
 * The forward pass and whoever measures read the description alone, so that nothing else
 * needs to know.  Gates lie beside it: they are of a session's feed as much as of a model. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"

static bool is_positive(double value)
{
    return isfinite(value) && value > 0.0;
}

static bool turns(const hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].rope != HL_ROPE_NONE)
            return true;
    }
    return false;
}

static hl_status check(const hl_model *model, const hl_adjustment *wanted)
{
    const hl_config *config = model->config;
    const hl_rope   *main   = &config->ropes[HL_ROPE_MAIN];
    bool             rope   = wanted->rope_base != 0.0 || wanted->rope_factor != 0.0;

    if (wanted->temperature != 0.0 && !is_positive(wanted->temperature))
        return hl_fail(HL_BAD_ARGUMENT, "an attention temperature of %g, wanted more than 0",
                       wanted->temperature);
    if (wanted->window < 0)
        return hl_fail(HL_BAD_ARGUMENT, "a window of %lld keys, wanted at least 1",
                       (long long)wanted->window);
    if ((wanted->rope_base != 0.0 && !is_positive(wanted->rope_base)) ||
        (wanted->rope_factor != 0.0 && !is_positive(wanted->rope_factor)))
        return hl_fail(HL_BAD_ARGUMENT, "RoPE with base %g and factor %g, wanted more than 0",
                       wanted->rope_base, wanted->rope_factor);
    if (wanted->window_sink < -1)
        return hl_fail(HL_BAD_ARGUMENT, "%lld first keys beside a window, wanted -1 or more",
                       (long long)wanted->window_sink);
    if (wanted->window > 0 && config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s: an encoder cannot be given a window", model->path);
    if (rope && !turns(config))
        return hl_fail(HL_UNSUPPORTED, "%s: its positions do not turn (no RoPE)", model->path);
    if (wanted->rope_factor != 0.0 && main->kind != HL_ROPE_DEFAULT)
        return hl_fail(HL_UNSUPPORTED, "%s: its positions are scaled already (%s)", model->path,
                       hl_rope_kind_name(main->kind));
    return HL_OK;
}

static void adjust_layer(hl_layer_config *layer, const hl_adjustment *wanted)
{
    if (wanted->temperature != 0.0)
        layer->attn_scale /= wanted->temperature;
    if (wanted->window > 0 && (!layer->is_local || layer->window_left > wanted->window - 1)) {
        layer->is_local    = true;
        layer->window_left = wanted->window - 1;
        layer->window_sink = wanted->window_sink;
    }
}

static void adjust_rope(hl_rope *rope, const hl_adjustment *wanted)
{
    if (wanted->rope_base != 0.0 && rope->base != 0.0)
        rope->base = wanted->rope_base;
    if (wanted->rope_factor != 0.0 && rope->kind == HL_ROPE_DEFAULT) {
        rope->kind   = HL_ROPE_LINEAR;
        rope->factor = wanted->rope_factor;
    }
}

/* How many first keys there are beside the window: one unless told otherwise, since models
 * lean on it. */
static int64_t kept_keys(const hl_adjustment *wanted)
{
    if (wanted->window == 0 || wanted->window_sink < 0)
        return 0;
    return wanted->window_sink == 0 ? 1 : wanted->window_sink;
}

hl_status hl_model_adjust(hl_model *model, const hl_adjustment *adjustment)
{
    hl_adjustment wanted = *adjustment;
    hl_status     status = check(model, &wanted);

    if (status != HL_OK)
        return status;
    wanted.window_sink = kept_keys(&wanted);
    for (int64_t i = 0; i < model->config->n_layers; i++)
        adjust_layer(&model->config->layers[i], &wanted);
    for (int i = HL_ROPE_MAIN; i < HL_N_ROPES; i++)
        adjust_rope(&model->config->ropes[i], &wanted);
    model->adjusted = wanted;
    return HL_OK;
}

/* -------------------------------------------------------------------- gates */

static hl_status check_gates(bool *all_open, const hl_config *config, const float *gates)
{
    *all_open = true;
    for (int64_t i = 0; i < config->n_layers * config->n_heads; i++) {
        int64_t layer = i / config->n_heads;
        int64_t head  = i % config->n_heads;

        if (!(gates[i] >= 0.0f && gates[i] <= 1.0f))
            return hl_fail(HL_BAD_ARGUMENT, "the gate of L%lldH%lld is %g, wanted 0 to 1",
                           (long long)layer, (long long)head, (double)gates[i]);
        if (head < config->layers[layer].n_heads && gates[i] != 1.0f)
            *all_open = false;
    }
    return HL_OK;
}

hl_status hl_model_set_gates(hl_model *model, const float *gates)
{
    float *copy     = NULL;
    bool   all_open = true;
    size_t count    = (size_t)(model->config->n_layers * model->config->n_heads);

    if (gates != NULL)
        HL_NEED(check_gates(&all_open, model->config, gates));
    if (!all_open) {
        HL_NEED(HL_ALLOC(&copy, count));
        memcpy(copy, gates, count * sizeof *copy);
    }
    hl_free(model->gates);
    model->gates = copy;
    return HL_OK;
}

const float *hl_model_gates(const hl_model *model)
{
    return model->gates;
}
