/* family_olmo2.c - OLMo 2: Llama with its norms after the branches, before they are
 * added, and a norm of q and of k that runs over all heads of a row together. */
#include "model/family.h"

static const hl_family_tensor olmo2_tensors[] = {
    { HL_ROLE_ATTN_POST_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_POST_NORM, "layers.*.post_feedforward_layernorm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field olmo2_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { 0 },
};

const hl_family hl_family_olmo2 = {
    .name          = "olmo2",
    .model_types   = "olmo2",
    .architectures = "olmo2",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm       = HL_NORM_RMS,
                       .norm_place = HL_NORM_BRANCH,
                       .norm_eps   = 1e-5,
                       .qk_norm    = HL_QK_NORM_ALL,
                       .activation = HL_ACTIVATION_SILU,
                       .gated      = true },
    .fields        = olmo2_fields,
    .tensors       = { olmo2_tensors, hl_llama_tensors },
};
