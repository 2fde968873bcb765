/* config_check.c - is this a model at all?
 *
 * Ranges of single numbers were checked where they were read, under the key they
 * were read from.  Here is what several of them must fulfil together.  After it,
 * code that uses a description checks nothing. */
#include <math.h>

#include "base/status.h"
#include "model/config_build.h"

static hl_status check_heads(const hl_config *config, int64_t index, const char *where)
{
    const hl_layer_config *layer = &config->layers[index];
    long long              q = layer->n_heads, kv = layer->n_kv_heads;

    if (q == 0)
        return HL_OK;
    if (q < 0 || q > HL_MAX_HEADS || kv < 0 || kv > q)
        return hl_fail(HL_BAD_INPUT,
                       "%s: layer %lld has %lld heads and %lld K/V heads, wanted 0 to %d, and no "
                       "more K/V heads than heads",
                       where, (long long)index, q, kv, HL_MAX_HEADS);
    if (kv == 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: layer %lld has %lld heads and no K/V heads: linear attention is not "
                       "supported",
                       where, (long long)index, q);
    if (q % kv != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: layer %lld has %lld heads, not divisible by its %lld K/V heads", where,
                       (long long)index, q, kv);
    return HL_OK;
}

static hl_status check_layer(const hl_config *config, int64_t index, const char *where)
{
    const hl_layer_config *layer  = &config->layers[index];
    hl_status              status = check_heads(config, index, where);

    if (status != HL_OK)
        return status;
    if (layer->d_mlp < 0 || layer->d_mlp > HL_MAX_WIDTH)
        return hl_fail(HL_BAD_INPUT, "%s: layer %lld has an MLP of %lld, wanted 0 to %lld", where,
                       (long long)index, (long long)layer->d_mlp, (long long)HL_MAX_WIDTH);
    if (!isfinite(layer->attn_scale) || layer->attn_scale == 0.0)
        return hl_fail(HL_BAD_INPUT, "%s: layer %lld scales its scores by %g", where,
                       (long long)index, layer->attn_scale);
    return HL_OK;
}

static hl_status check_experts(const hl_config *config, const char *where)
{
    if (config->n_experts == 0)
        return HL_OK;
    if (config->n_experts_used < 1 || config->n_experts_used > config->n_experts)
        return hl_fail(HL_BAD_INPUT, "%s: a token uses %lld experts of %lld, wanted 1 to %lld",
                       where, (long long)config->n_experts_used, (long long)config->n_experts,
                       (long long)config->n_experts);
    return HL_OK;
}

static hl_status check_scales(const hl_config *config, const char *where)
{
    const struct {
        const char *name;
        double      value;
        bool        may_be_zero;
    } scales[] = {
        { "the embedding multiplier", config->embed_scale, false },
        { "the residual multiplier", config->residual_scale, false },
        { "the logit scale", config->logit_scale, false },
        { "the norm's epsilon", config->norm_eps, true },
        { "the soft-cap of the scores", config->attn_softcap, true },
        { "the soft-cap of the logits", config->logit_softcap, true },
    };

    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        if (scales[i].value > 0.0 || (scales[i].may_be_zero && scales[i].value == 0.0))
            continue;
        return hl_fail(HL_BAD_INPUT, "%s: %s is %g, wanted %s", where, scales[i].name,
                       scales[i].value, scales[i].may_be_zero ? "0 or more" : "more than 0");
    }
    return HL_OK;
}

hl_status hl_config_check(const hl_config *config, const char *where)
{
    if (config->d_head < 1 || config->d_head > HL_MAX_HEAD_DIM)
        return hl_fail(HL_LIMIT, "%s: heads of %lld dimensions, at most %d", where,
                       (long long)config->d_head, HL_MAX_HEAD_DIM);
    if (config->d_mlp > HL_MAX_WIDTH)
        return hl_fail(HL_BAD_INPUT, "%s: an MLP of %lld, at most %lld", where,
                       (long long)config->d_mlp, (long long)HL_MAX_WIDTH);
    if (config->position == HL_POSITION_LEARNED && config->n_ctx < 1)
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'max_position_embeddings' is missing, and positions are a table",
                       where);
    if (config->n_heads == 0)
        return hl_fail(HL_BAD_INPUT, "%s: no layer has an attention head", where);
    HL_NEED(check_experts(config, where));
    HL_NEED(check_scales(config, where));
    for (int64_t i = 0; i < config->n_layers; i++)
        HL_NEED(check_layer(config, i, where));
    return HL_OK;
}
