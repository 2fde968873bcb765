/* family_stablelm.c - StableLM and StarCoder2: Llama's names, LayerNorm with bias. */
#include "base/status.h"
#include "model/family.h"

/* Each head has a norm in its own tensor; GGUF stacks them. */
static const hl_family_tensor stablelm_tensors[] = {
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_layernorm.norms.*", 0 },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_layernorm.norms.*", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field stablelm_fields[] = {
    { "use_qkv_bias", NULL, HL_BIASES(HL_BIAS_QKV) },
    { 0 },
};

static hl_status describe_stablelm(hl_config *config, const hl_fields *fields)
{
    bool qk_norm  = hl_fields_have_tensor(fields, "blk.0.attn_q_norm.weight");
    bool parallel = false;

    HL_NEED(hl_fields_bool(&qk_norm, fields, "qk_layernorm", NULL));
    HL_NEED(hl_fields_bool(&parallel, fields, "use_parallel_residual", NULL));
    /* In GGUF the key is not reliable: the tensor of the norm decides. */
    if (fields->object == NULL)
        parallel = !hl_fields_have_tensor(fields, "blk.0.ffn_norm.weight");
    if (qk_norm)
        config->qk_norm = HL_HEAD_NORM_EACH;
    if (parallel)
        config->residual = HL_RESIDUAL_PARALLEL_SHARED;
    return HL_OK;
}

const hl_family hl_family_stablelm = {
    .name          = "stablelm",
    .model_types   = "stablelm|stablelm_epoch",
    .architectures = "stablelm",
    .prefixes      = "model.|",
    .defaults      = { .position        = HL_POSITION_ROPE,
                       .ropes           = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .rotary_fraction = 0.25,
                       .norm_eps        = 1e-5,
                       .activation      = HL_ACTIVATION_SILU,
                       .gated           = true,
                       .biases          = HL_BIAS_NORM },
    .fields        = stablelm_fields,
    .describe      = describe_stablelm,
    .tensors       = { stablelm_tensors, hl_llama_tensors },
};

/* --------------------------------------------------------------- starcoder2 */

static const hl_family_tensor starcoder2_tensors[] = {
    { HL_ROLE_MLP_UP, "layers.*.mlp.c_fc", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mlp.c_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field starcoder2_fields[] = {
    { "use_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP) },
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { 0 },
};

const hl_family hl_family_starcoder2 = {
    .name          = "starcoder2",
    .model_types   = "starcoder2",
    .architectures = "starcoder2",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_GELU_TANH,
                       .biases     = HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM,
                       .tied       = true },
    .fields        = starcoder2_fields,
    .tensors       = { starcoder2_tensors, hl_llama_tensors },
};
