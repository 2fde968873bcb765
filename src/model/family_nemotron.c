/* family_nemotron.c - Nemotron 3 and 4, Minitron: LayerNorm whose weights are stored as their
 * distance from 1 (llama.cpp's converter adds the 1), and an MLP without a gate, with squared
 * ReLU. */
#include "model/family.h"

static const hl_family_tensor nemotron_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_FINAL_NORM, "norm", HL_STORED_MINUS_ONE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field nemotron_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { "rope_percent", NULL, HL_DOUBLE(rotary_fraction) },
    { 0 },
};

const hl_family hl_family_nemotron = {
    .name          = "nemotron",
    .model_types   = "nemotron",
    .architectures = "nemotron",
    .prefixes      = "model.|",
    .defaults      = { .position        = HL_POSITION_ROPE,
                       .ropes           = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .rotary_fraction = 0.5,
                       .norm_eps        = 1e-5,
                       .activation      = HL_ACTIVATION_RELU_SQUARED,
                       .biases          = HL_BIAS_NORM },
    .fields        = nemotron_fields,
    .tensors       = { nemotron_tensors, hl_llama_tensors },
};
