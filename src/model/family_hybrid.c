/* family_hybrid.c - families in which some layers have a mixer with a state instead of attention:
 * LFM2 (short convolutions), Bamba, Granite 4, Nemotron-H and Falcon-H1 (Mamba-2), Jamba (Mamba).
 *
 * The kinds of mixers are those of config.h; Qwen's gated delta rule is in family_qwen.c.  A GGUF
 * file says which layers attend by their number of KV heads. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/family.h"

/* ------------------------------------------------------------------------------------------ lfm2 */

static const hl_family_tensor lfm2_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.operator_norm", 0 },
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_layernorm", 0 },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_layernorm", 0 },
    { HL_ROLE_ATTN_O, "layers.*.self_attn.out_proj", 0 },
    { HL_ROLE_MIX_IN, "layers.*.conv.in_proj", 0 },
    { HL_ROLE_MIX_CONV, "layers.*.conv.conv", 0 },
    { HL_ROLE_MIX_OUT, "layers.*.conv.out_proj", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.ffn_norm", 0 },
    { HL_ROLE_MLP_GATE, "layers.*.feed_forward.w1", 0 },
    { HL_ROLE_MLP_UP, "layers.*.feed_forward.w3", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.feed_forward.w2", 0 },
    { HL_ROLE_ROUTER, "layers.*.feed_forward.gate", 0 },
    { HL_ROLE_ROUTER_CORRECTION, "layers.*.feed_forward.expert_bias", HL_STORED_BARE },
    { HL_ROLE_EXPERT_GATE, "layers.*.feed_forward.experts.*.w1", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.feed_forward.experts.*.w3", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.*.w2", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.feed_forward.experts.gate_up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.down_proj", HL_STORED_BARE },
    { HL_ROLE_FINAL_NORM, "embedding_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor lfm2_gguf_tensors[] = {
    { HL_ROLE_FINAL_NORM, "output_norm|token_embd_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

#define LFM2_FIELDS                                                                                \
    { "conv_L_cache", "shortconv.l_cache", HL_INT(mixer.width, 1, HL_MAX_CONV) },                  \
        { "conv_bias", NULL, HL_BIASES(HL_BIAS_CONV | HL_BIAS_MIX_IN | HL_BIAS_MIX_OUT) },         \
    {                                                                                              \
        "block_ff_dim", NULL, HL_INT(d_mlp, 1, HL_MAX_WIDTH)                                       \
    }

static const hl_field lfm2_fields[] = {
    LFM2_FIELDS,
    { 0 },
};

/* config.json has the width of an MLP that is not gated: a gated one has two thirds of it, times a
 * factor, rounded up. */
static hl_status describe_lfm2(hl_config *config, const hl_fields *fields)
{
    bool    adjusts  = true;
    int64_t multiple = 256;
    double  factor   = 1.0;

    if (fields->object == NULL)
        return HL_OK;
    HL_NEED(hl_fields_bool(&adjusts, fields, "block_auto_adjust_ff_dim", NULL));
    HL_NEED(hl_fields_int(&multiple, fields, "block_multiple_of", NULL, 1, HL_MAX_WIDTH));
    HL_NEED(hl_fields_double(&factor, fields, "block_ffn_dim_multiplier", NULL));
    if (factor <= 0.0 || factor > 64.0)
        return hl_fail(HL_BAD_INPUT, "%s: 'block_ffn_dim_multiplier' is %g, wanted 0 to 64",
                       fields->where, factor);
    if (config->d_mlp == 0)
        config->d_mlp = 12288;
    if (adjusts) {
        int64_t width = (int64_t)(factor * (double)(2 * config->d_mlp / 3));
        config->d_mlp = (width + multiple - 1) / multiple * multiple;
    }
    return HL_OK;
}

/* Old files list the layers that attend. */
static hl_status layers_lfm2(hl_config *config, const hl_fields *fields)
{
    const json_t *list                   = json_object_get(fields->object, "full_attn_idxs");
    bool          attends[HL_MAX_LAYERS] = { false };

    if (hl_fields_have(fields, "layer_types", NULL) || !json_is_array(list))
        return HL_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t layer = json_integer_value(json_array_get(list, i));

        if (layer < 0 || layer >= config->n_layers)
            return hl_fail(HL_BAD_INPUT, "%s: 'full_attn_idxs' [%zu] is not a layer, 0 to %lld",
                           fields->where, i, (long long)config->n_layers - 1);
        attends[layer] = true;
    }
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (!attends[i])
            hl_config_put_mixer(config, i);
    }
    return HL_OK;
}

const hl_family hl_family_lfm2 = {
    .name          = "lfm2",
    .model_types   = "lfm2",
    .architectures = "lfm2",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 1e6), .qk_norm = HL_HEAD_NORM_SHARED, .tied = true,
                       .mixer = { .kind = HL_MIXER_CONV, .width = 3 } },
    .fields        = lfm2_fields,
    .describe      = describe_lfm2,
    .layers        = layers_lfm2,
    .tensors       = { lfm2_tensors, hl_llama_tensors },
    .gguf          = { lfm2_gguf_tensors },
};

static const hl_field lfm2_moe_fields[] = {
    LFM2_FIELDS,
    HL_EXPERTS_FIELDS,
    { "use_expert_bias", NULL, HL_BOOL(router.has_correction) },
    { 0 },
};

const hl_family hl_family_lfm2_moe = {
    .name          = "lfm2_moe",
    .model_types   = "lfm2_moe",
    .architectures = "lfm2moe",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 1e6), .qk_norm = HL_HEAD_NORM_SHARED, .tied = true,
                       .n_experts = 32, .n_experts_used = 4, .d_expert = 1792, .n_dense = 2,
                       .router = { .score          = HL_ROUTER_SIGMOID,
                                   .normed         = true,
                                   .has_correction = true,
                                   .added          = 1e-6 },
                       .mixer  = { .kind = HL_MIXER_CONV, .width = 3 } },
    .fields        = lfm2_moe_fields,
    .layers        = layers_lfm2,
    .tensors       = { lfm2_tensors, hl_llama_tensors },
    .gguf          = { lfm2_gguf_tensors },
};
