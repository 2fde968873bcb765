/* family_phi.c - Phi (1, 1.5, 2), Phi-3 and Phi-3.5-MoE, which share a name and little else.
 *
 * Phi has LayerNorm with bias, one norm for both branches, and a bias on the head.
 * Phi-3 is Llama with q, k, v in one tensor and gate and up in another.  Phi-3.5-MoE is Mixtral with
 * LayerNorm and biases, and a router of its own (kernels/router.h). */
#include "base/status.h"
#include "model/family.h"

static const hl_family_tensor phi_tensors[] = {
    { HL_ROLE_ATTN_O, "layers.*.self_attn.dense", 0 },
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_layernorm", 0 },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_layernorm", 0 },
    { HL_ROLE_MLP_UP, "layers.*.mlp.fc1", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mlp.fc2", 0 },
    { HL_ROLE_FINAL_NORM, "final_layernorm", 0 },
    HL_FAMILY_TENSORS_END,
};

static hl_status describe_phi(hl_config *config, const hl_fields *fields)
{
    bool      qk_norm = false;
    hl_status status  = hl_fields_bool(&qk_norm, fields, "qk_layernorm", NULL);
    int64_t   d_mlp   = hl_fields_tensor_size(fields, "blk.0.ffn_up.weight", 0);

    if (qk_norm) {
        config->qk_norm = HL_HEAD_NORM_SHARED;
        config->biases |= HL_BIAS_QK_NORM;
    }
    /* The converter writes 4 * d_model and ignores intermediate_size. */
    if (d_mlp > 0)
        config->d_mlp = d_mlp;
    return status;
}

const hl_family hl_family_phi = {
    .name          = "phi",
    .model_types   = "phi",
    .architectures = "phi2",
    .prefixes      = "model.|",
    .defaults      = { .position        = HL_POSITION_ROPE,
                       .ropes           = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .rotary_fraction = 0.5,
                       .norm_eps        = 1e-5,
                       .residual        = HL_RESIDUAL_PARALLEL_SHARED,
                       .activation      = HL_ACTIVATION_GELU_TANH,
                       .biases = HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_MLP | HL_BIAS_NORM | HL_BIAS_HEAD },
    .describe      = describe_phi,
    .tensors       = { phi_tensors, hl_llama_tensors },
};

/* --------------------------------------------------------------------- phi3 */

static const hl_family_tensor phi3_tensors[] = {
    { HL_ROLE_ATTN_QKV, "layers.*.self_attn.qkv_proj", 0 },
    { HL_ROLE_MLP_GATE_UP, "layers.*.mlp.gate_up_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor phi3_gguf_tensors[] = {
    { HL_ROLE_MLP_GATE_UP, "blk.*.ffn_up", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field phi3_fields[] = {
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { 0 },
};

/* In the first files, "yarn" was a name of longrope. */
static hl_status describe_phi3(hl_config *config, const hl_fields *fields)
{
    (void)fields;
    if (config->ropes[HL_ROPE_MAIN].kind == HL_ROPE_YARN)
        config->ropes[HL_ROPE_MAIN].kind = HL_ROPE_LONGROPE;
    return HL_OK;
}

const hl_family hl_family_phi3 = {
    .name          = "phi3",
    .model_types   = "phi3",
    .architectures = "phi3",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm       = HL_NORM_RMS,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_SILU,
                       .gated      = true },
    .fields        = phi3_fields,
    .describe      = describe_phi3,
    .tensors       = { phi3_tensors, hl_llama_tensors },
    .gguf          = { phi3_gguf_tensors },
};

/* ------------------------------------------------------------------------------------- phimoe */

static const hl_family_tensor phimoe_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.block_sparse_moe.gate|layers.*.mlp.router", 0 },
    { HL_ROLE_EXPERT_GATE, "layers.*.block_sparse_moe.experts.*.w1", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.block_sparse_moe.experts.*.w3", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.block_sparse_moe.experts.*.w2", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field phimoe_fields[] = {
    HL_EXPERTS_FIELDS,
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "lm_head_bias", NULL, HL_BIASES(HL_BIAS_HEAD) },
    { "router_jitter_noise", NULL, HL_DOUBLE(router.margin) },
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { 0 },
};

/* Experts take part that are within twice the router's noise of the best. */
static hl_status describe_phimoe(hl_config *config, const hl_fields *fields)
{
    if (!(config->router.margin >= 0.0))
        return hl_fail(HL_BAD_INPUT, "%s: 'router_jitter_noise' is %g, wanted 0 or more",
                       fields->where, config->router.margin);
    config->router.margin *= 2.0;
    return HL_OK;
}

const hl_family hl_family_phimoe = {
    .name          = "phimoe",
    .model_types   = "phimoe",
    .architectures = "phimoe",
    .prefixes      = "model.|",
    .defaults      = { .position       = HL_POSITION_ROPE,
                       .ropes          = { [HL_ROPE_MAIN] = { .base = 1e6 } },
                       .norm_eps       = 1e-5,
                       .activation     = HL_ACTIVATION_SILU,
                       .gated          = true,
                       .biases         = HL_BIAS_NORM,
                       .n_experts      = 16,
                       .n_experts_used = 2,
                       .router         = { .score = HL_ROUTER_SPARSEMIXER, .margin = 0.01 } },
    .fields        = phimoe_fields,
    .describe      = describe_phimoe,
    .tensors       = { phimoe_tensors, hl_experts_tensors, hl_llama_tensors },
};
