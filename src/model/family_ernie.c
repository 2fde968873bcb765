/* family_ernie.c - ERNIE 4.5: a Llama with rotary pairs side by side, dense or as a mixture. */
#include "base/status.h"
#include "model/family.h"

#define ERNIE_DEFAULTS                                                                             \
    .position = HL_POSITION_ROPE,                                                                  \
    .ropes = { [HL_ROPE_MAIN] = { .base = 500000, .interleaved = true } }, .norm = HL_NORM_RMS,    \
    .norm_eps = 1e-5, .activation = HL_ACTIVATION_SILU, .gated = true, .tied = true

static const hl_field ernie_fields[] = {
    { "use_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP) },
    { 0 },
};

/* The class's default; GGUF's is d_model / n_heads. */
static hl_status describe_ernie(hl_config *config, const hl_fields *fields)
{
    if (fields->object != NULL && config->d_head == 0)
        config->d_head = 128;
    return HL_OK;
}

const hl_family hl_family_ernie4_5 = {
    .name          = "ernie4_5",
    .model_types   = "ernie4_5",
    .architectures = "ernie4_5",
    .prefixes      = "model.|",
    .defaults      = { ERNIE_DEFAULTS },
    .fields        = ernie_fields,
    .describe      = describe_ernie,
    .tensors       = { hl_llama_tensors },
};

/* ---------------------------------------------------------------------------------- ernie4_5_moe */

static const hl_family_tensor ernie_moe_tensors[] = {
    { HL_ROLE_ROUTER_CORRECTION, "layers.*.mlp.moe_statics.e_score_correction_bias",
      HL_STORED_BARE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field ernie_moe_fields[] = {
    HL_EXPERTS_FIELDS,
    { "use_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP) },
    { "moe_norm_min", NULL, HL_DOUBLE(router.least) },
    { 0 },
};

/* Mixtures are the layers from a first to a last one, and of these one in each interval. */
static hl_status layers_ernie_moe(hl_config *config, const hl_fields *fields)
{
    int64_t first = 1, last = -1, interval = 1;

    HL_NEED(hl_fields_int(&first, fields, "moe_layer_start_index", "leading_dense_block_count", 0,
                          HL_MAX_LAYERS));
    HL_NEED(hl_fields_int(&last, fields, "moe_layer_end_index", NULL, -1, HL_MAX_LAYERS));
    HL_NEED(hl_fields_int(&interval, fields, "moe_layer_interval", "interleave_moe_layer_step", 1,
                          HL_MAX_LAYERS));
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (i < first || (last >= 0 && i > last) || (i + 1) % interval != 0)
            hl_config_make_dense(config, i);
    }
    return HL_OK;
}

const hl_family hl_family_ernie4_5_moe = {
    .name          = "ernie4_5_moe",
    .model_types   = "ernie4_5_moe",
    .architectures = "ernie4_5-moe",
    .prefixes      = "model.|",
    .defaults      = { ERNIE_DEFAULTS, .n_experts = 64, .n_experts_used = 6, .d_expert = 1536,
                       .n_shared = 2,
                       .router   = { .normed = true, .has_correction = true, .least = 1e-12 } },
    .fields        = ernie_moe_fields,
    .layers        = layers_ernie_moe,
    .tensors       = { ernie_moe_tensors, hl_experts_tensors, hl_llama_tensors },
};
