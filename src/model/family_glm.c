/* family_glm.c - GLM-4 in its first form (glm) and from 2025 (glm4), and GLM-4.5, a mixture.
 *
 * A Llama with biases on q, k and v, gate and up in one tensor, and rotary pairs side by side in
 * the first half of each head.  glm4 also norms the outputs of the branches. */
#include "base/status.h"
#include "model/family.h"

static const hl_family_tensor glm_tensors[] = {
    { HL_ROLE_MLP_GATE_UP, "layers.*.mlp.gate_up_proj", 0 },
    { HL_ROLE_ATTN_POST_NORM, "layers.*.post_self_attn_layernorm", 0 },
    { HL_ROLE_MLP_POST_NORM, "layers.*.post_mlp_layernorm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor glm_gguf_tensors[] = {
    { HL_ROLE_MLP_GATE_UP, "blk.*.ffn_up", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field glm_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV) },
    { 0 },
};

/* The class's default; GGUF's is d_model / n_heads. */
static hl_status describe_glm(hl_config *config, const hl_fields *fields)
{
    if (fields->object != NULL && config->d_head == 0)
        config->d_head = 128;
    return HL_OK;
}

#define GLM_DEFAULTS                                                                               \
    .position = HL_POSITION_ROPE,                                                                  \
    .ropes = { [HL_ROPE_MAIN] = { .base = 10000, .interleaved = true } }, .rotary_fraction = 0.5,  \
    .norm = HL_NORM_RMS, .norm_eps = 1.5625e-7, .activation = HL_ACTIVATION_SILU, .gated = true,   \
    .biases = HL_BIAS_QKV

const hl_family hl_family_glm = {
    .name          = "glm",
    .model_types   = "glm",
    .architectures = "chatglm",
    .prefixes      = "model.|",
    .defaults      = { GLM_DEFAULTS },
    .fields        = glm_fields,
    .describe      = describe_glm,
    .tensors       = { glm_tensors, hl_llama_tensors },
    .gguf          = { glm_gguf_tensors },
};

const hl_family hl_family_glm4 = {
    .name          = "glm4",
    .model_types   = "glm4",
    .architectures = "glm4",
    .prefixes      = "model.|",
    .defaults      = { GLM_DEFAULTS, .norm_place = HL_NORM_SANDWICH },
    .fields        = glm_fields,
    .describe      = describe_glm,
    .tensors       = { glm_tensors, hl_llama_tensors },
    .gguf          = { glm_gguf_tensors },
};

/* -------------------------------------------------------------------------------------- glm4_moe */

static const hl_family_tensor glm4_moe_gguf_tensors[] = {
    { HL_ROLE_MLP_NORM, "blk.*.post_attention_norm|blk.*.ffn_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field glm4_moe_fields[] = {
    HL_EXPERTS_FIELDS,
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV) },
    { 0 },
};

static hl_status describe_glm4_moe(hl_config *config, const hl_fields *fields)
{
    bool      qk_norm = hl_fields_have_tensor(fields, "blk.0.attn_q_norm.weight");
    hl_status status  = hl_fields_bool(&qk_norm, fields, "use_qk_norm", NULL);

    config->qk_norm = qk_norm ? HL_HEAD_NORM_SHARED : HL_HEAD_NORM_NONE;
    return status == HL_OK ? describe_glm(config, fields) : status;
}

const hl_family hl_family_glm4_moe = {
    .name          = "glm4_moe",
    .model_types   = "glm4_moe",
    .architectures = "glm4moe",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 10000), .rotary_fraction = 0.5, .n_experts = 128,
                       .n_experts_used = 8, .d_expert = 1408, .n_shared = 1, .n_dense = 1,
                       .router = { HL_ROUTER_DEEPSEEK } },
    .fields        = glm4_moe_fields,
    .describe      = describe_glm4_moe,
    .tensors       = { hl_experts_tensors, hl_llama_tensors },
    .gguf          = { glm4_moe_gguf_tensors },
};
