/* fuzz_config.c - arbitrary bytes as config.json and as generation_config.json.
 *
 * An accepted file keeps the promises that code relies on without checking: sizes within limits,
 * divisible numbers of heads, windows and rotary pairs that fit, positive shapes of all roles. */
#include <math.h>

#include "fuzz.h"
#include "model/config.h"
#include "model/roles.h"

static void check_layer(const hl_config *config, int64_t index)
{
    const hl_layer_config *layer = &config->layers[index];

    PROMISE(layer->n_heads >= 0 && layer->n_heads <= config->n_heads);
    PROMISE(layer->n_heads == 0 || layer->n_kv_heads > 0);
    PROMISE(layer->n_heads == 0 || layer->n_heads % layer->n_kv_heads == 0);
    PROMISE(isfinite(layer->deviations) && isfinite(layer->temper));
    PROMISE(layer->d_mlp >= 0 && layer->n_experts >= 0);
    PROMISE(isfinite(layer->attn_scale) && layer->attn_scale != 0.0);
    PROMISE(config->is_encoder || layer->n_heads == 0 ||
            (config->layers[layer->kv_layer].d_head == layer->d_head &&
             config->layers[layer->kv_layer].n_kv_heads == layer->n_kv_heads));
    PROMISE(config->latent.d_latent == 0 || layer->n_heads == 0 ||
            layer->d_head == config->latent.d_value);
    PROMISE(!layer->is_local || (layer->window_left >= 0 && layer->window_right >= 0));
    PROMISE(layer->rope == HL_ROPE_NONE || config->ropes[layer->rope].n_dims >= 2);
    for (hl_role role = HL_FIRST_LAYER_ROLE; role < HL_N_ROLES; role++) {
        if (hl_role_weight_need(role, config, index) == HL_ROLE_ABSENT)
            continue;
        PROMISE(hl_role_parts(role, config, index) > 0);
        PROMISE(hl_role_rows(role, config, index) > 0);
        PROMISE(hl_role_columns(role, config, index) > 0);
    }
}

static void check_ropes(const hl_config *config)
{
    float frequencies[HL_MAX_ROPE_PAIRS];

    for (int i = HL_ROPE_MAIN; i < HL_N_ROPES; i++) {
        const hl_rope *rope = &config->ropes[i];
        PROMISE(rope->n_dims >= 0 && rope->n_dims % 2 == 0);
        PROMISE(rope->n_dims <= config->d_head || config->latent.d_latent > 0);
        if (rope->n_dims > 0)
            hl_rope_frequencies(frequencies, rope, config->n_ctx + 1);
    }
}

static void check_config(const hl_config *config)
{
    PROMISE(config->n_layers >= 1 && config->n_layers <= HL_MAX_LAYERS);
    PROMISE(config->n_streams >= 1 && config->n_streams <= HL_MAX_STREAMS);
    PROMISE(config->d_ple_known >= 0 && config->d_ple_known <= config->d_vocab);
    PROMISE(config->d_model > 0 && config->d_vocab > 0 && config->d_embed > 0);
    PROMISE(config->d_head > 0 && config->d_head <= HL_MAX_HEAD_DIM);
    PROMISE(config->embed_scale > 0.0 && config->residual_scale > 0.0);
    PROMISE(config->logit_scale > 0.0 && config->norm_eps >= 0.0);
    PROMISE(config->generation.n_eos_ids <= HL_MAX_EOS_TOKENS);
    PROMISE(config->position != HL_POSITION_LEARNED || config->n_ctx > 0);
    for (int64_t i = 0; i < config->n_layers; i++)
        check_layer(config, i);
    check_ropes(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_config *config = NULL;

    if (hl_config_parse(&config, (const char *)bytes, n_bytes, "fuzz") != HL_OK)
        return refused(config);
    check_config(config);
    (void)hl_config_parse_generation(config, (const char *)bytes, n_bytes, "fuzz");
    PROMISE(config->generation.n_eos_ids <= HL_MAX_EOS_TOKENS);
    hl_config_free(config);
    return 0;
}
