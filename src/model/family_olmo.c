/* family_olmo.c - OLMo, OLMo 2, OLMo 3, OLMoE.
 *
 * The first has norms without weights and limits q, k and v to an interval.  OLMo 2 is a Llama with
 * its norms after the branches, before the addition, and with norms of q and k over all heads of a
 * row together; OLMo 3 adds windows.  OLMoE is a mixture with the norms of q and k alone. */
#include "base/status.h"
#include "model/family.h"

static const hl_field olmo_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "clip_qkv", "attention.clamp_kqv", HL_DOUBLE_OR_NULL(qkv_limit) },
    { 0 },
};

const hl_family hl_family_olmo = {
    .name          = "olmo",
    .model_types   = "olmo",
    .architectures = "olmo",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm_eps   = 1e-5,
                       .norm_plain = true,
                       .activation = HL_ACTIVATION_SILU,
                       .gated      = true },
    .fields        = olmo_fields,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* ---------------------------------------------------------------------------------- olmo2, olmo3 */

static const hl_family_tensor olmo2_tensors[] = {
    { HL_ROLE_ATTN_POST_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_POST_NORM, "layers.*.post_feedforward_layernorm", 0 },
    HL_FAMILY_TENSORS_END,
};

#define OLMO2_DEFAULTS                                                                             \
    HL_LLAMA_DEFAULTS(1e-5, 10000), .norm_place = HL_NORM_BRANCH, .qk_norm = HL_HEAD_NORM_ALL

/* Windowed layers turn by the base alone; what stretches it is for the full layers. */
static hl_status describe_olmo3(hl_config *config, const hl_fields *fields)
{
    hl_rope *local = &config->ropes[HL_ROPE_LOCAL];
    (void)fields;

    if (local->base == 0.0)
        *local = (hl_rope){ .base = config->ropes[HL_ROPE_MAIN].base };
    return HL_OK;
}

/* llama.cpp has one architecture for both: a file with a window is an OLMo 3. */
static hl_status describe_olmo2(hl_config *config, const hl_fields *fields)
{
    if (config->window == 0)
        return HL_OK;
    config->family = hl_family_olmo3.name;
    return describe_olmo3(config, fields);
}

static const hl_field olmo2_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { NULL, "attention.sliding_window", HL_INT(window, 0, HL_MAX_CONTEXT) },
    { NULL, "rope.freq_base_swa", HL_DOUBLE(ropes[HL_ROPE_LOCAL].base) },
    { 0 },
};

const hl_family hl_family_olmo2 = {
    .name          = "olmo2",
    .model_types   = "olmo2",
    .architectures = "olmo2",
    .prefixes      = "model.|",
    .defaults      = { OLMO2_DEFAULTS },
    .fields        = olmo2_fields,
    .describe      = describe_olmo2,
    .tensors       = { olmo2_tensors, hl_llama_tensors },
};

static const hl_field olmo3_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "sliding_window", NULL, HL_INT_OR_NULL(window, 1, HL_MAX_CONTEXT) },
    { 0 },
};

const hl_family hl_family_olmo3 = {
    .name        = "olmo3",
    .model_types = "olmo3",
    .prefixes    = "model.|",
    .defaults    = { OLMO2_DEFAULTS, .window = 4096, .window_period = 4 },
    .fields      = olmo3_fields,
    .describe    = describe_olmo3,
    .tensors     = { olmo2_tensors, hl_llama_tensors },
};

/* ----------------------------------------------------------------------------------------- olmoe */

static const hl_field olmoe_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "clip_qkv", "attention.clamp_kqv", HL_DOUBLE_OR_NULL(qkv_limit) },
    { "num_experts|num_local_experts", "expert_count", HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "num_experts_per_tok", "expert_used_count", HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { "norm_topk_prob", "expert_weights_norm", HL_BOOL(router.normed) },
    { 0 },
};

const hl_family hl_family_olmoe = {
    .name          = "olmoe",
    .model_types   = "olmoe",
    .architectures = "olmoe",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 10000), .qk_norm = HL_HEAD_NORM_ALL, .n_experts = 64,
                       .n_experts_used = 8 },
    .fields        = olmoe_fields,
    .tensors       = { hl_experts_tensors, hl_llama_tensors },
};
