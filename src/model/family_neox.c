/* family_neox.c - GPT-NeoX (Pythia) and BLOOM: q, k, v of a head side by side. */
#include "model/family.h"

#define ALL_BIASES (HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM)

/* ----------------------------------------------------------------- gpt_neox */

/* embed_out is its name on disk, lm_head what newer classes call it. */
static const hl_family_tensor neox_tensors[] = {
    { HL_ROLE_EMBED, "embed_in", 0 },
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", 0 },
    { HL_ROLE_ATTN_QKV, "layers.*.attention.query_key_value", HL_STORED_GROUPED },
    { HL_ROLE_ATTN_O, "layers.*.attention.dense", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_UP, "layers.*.mlp.dense_h_to_4h", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mlp.dense_4h_to_h", 0 },
    { HL_ROLE_FINAL_NORM, "final_layer_norm", 0 },
    { HL_ROLE_LM_HEAD, "embed_out|lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field neox_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { 0 },
};

static hl_status describe_neox(hl_config *config, const hl_fields *fields)
{
    bool      parallel = true;
    hl_status status =
        hl_fields_bool(&parallel, fields, "use_parallel_residual", "use_parallel_residual");

    config->residual = parallel ? HL_RESIDUAL_PARALLEL : HL_RESIDUAL_SEQUENTIAL;
    return status;
}

const hl_family hl_family_gpt_neox = {
    .name          = "gpt_neox",
    .model_types   = "gpt_neox",
    .architectures = "gptneox",
    .prefixes      = "gpt_neox.|",
    .defaults      = { .position        = HL_POSITION_ROPE,
                       .ropes           = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .rotary_fraction = 0.25,
                       .norm_eps        = 1e-5,
                       .activation      = HL_ACTIVATION_GELU,
                       .biases          = ALL_BIASES },
    .fields        = neox_fields,
    .describe      = describe_neox,
    .tensors       = { neox_tensors },
};

/* -------------------------------------------------------------------- bloom */

static const hl_family_tensor bloom_tensors[] = {
    { HL_ROLE_EMBED, "word_embeddings", 0 },
    { HL_ROLE_EMBED_NORM, "word_embeddings_layernorm", 0 },
    { HL_ROLE_ATTN_NORM, "h.*.input_layernorm", 0 },
    { HL_ROLE_ATTN_QKV, "h.*.self_attention.query_key_value", HL_STORED_GROUPED },
    { HL_ROLE_ATTN_O, "h.*.self_attention.dense", 0 },
    { HL_ROLE_MLP_NORM, "h.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_UP, "h.*.mlp.dense_h_to_4h", 0 },
    { HL_ROLE_MLP_DOWN, "h.*.mlp.dense_4h_to_h", 0 },
    { HL_ROLE_FINAL_NORM, "ln_f", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field bloom_fields[] = {
    { "apply_residual_connection_post_layernorm", NULL, HL_BOOL(residual_normed) },
    { 0 },
};

/* The width of the MLP has no field; the context is only what it was trained on. */
const hl_family hl_family_bloom = {
    .name          = "bloom",
    .model_types   = "bloom",
    .architectures = "bloom",
    .prefixes      = "transformer.|",
    .defaults      = { .position   = HL_POSITION_ALIBI,
                       .n_ctx      = 2048,
                       .embed_norm = true,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU_TANH,
                       .biases     = ALL_BIASES,
                       .tied       = true },
    .fields        = bloom_fields,
    .tensors       = { bloom_tensors },
};
