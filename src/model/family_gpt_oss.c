/* family_gpt_oss.c - gpt-oss: learned sinks, windows in every other layer, and a
 * mixture whose experts clamp their gates.
 *
 * Experts are stored stacked.  Unpacked they are (in, out), with gate and up in
 * alternating columns; as released they are MXFP4, (out, in), with alternating
 * rows, in a tensor of blocks and one of scales.  GGUF keeps gate and up apart. */
#include "model/family.h"

static const hl_family_tensor gpt_oss_tensors[] = {
    { HL_ROLE_SINKS, "layers.*.self_attn.sinks", HL_STORED_BARE },
    { HL_ROLE_ROUTER, "layers.*.mlp.router", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.mlp.experts.gate_up_proj",
      HL_STORED_BARE | HL_STORED_TRANSPOSED | HL_STORED_INTERLEAVED },
    { HL_ROLE_EXPERT_DOWN, "layers.*.mlp.experts.down_proj",
      HL_STORED_BARE | HL_STORED_TRANSPOSED },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor gpt_oss_gguf_tensors[] = {
    { HL_ROLE_MLP_NORM, "blk.*.post_attention_norm|blk.*.ffn_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field gpt_oss_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "num_local_experts|num_experts", "expert_count", HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "num_experts_per_tok|experts_per_token", "expert_used_count",
      HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { NULL, "expert_feed_forward_length", HL_INT(d_expert, 1, HL_MAX_WIDTH) },
    { "swiglu_limit", NULL, HL_DOUBLE(activation_limit) },
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { NULL, "attention.sliding_window_pattern", HL_COUNT(window_period, 1, HL_MAX_LAYERS) },
    { 0 },
};

/* hidden_act says silu, but the model computes SWIGLU_CLAMPED. */
static hl_status describe_gpt_oss(hl_config *config, const hl_fields *fields)
{
    config->activation = HL_ACTIVATION_SWIGLU_CLAMPED;
    config->mxfp4      = hl_fields_have(fields, "quantization_config", NULL);
    /* GGUF has no key for truncate: false, which all config.json files of the family have. */
    if (fields->object == NULL)
        config->ropes[HL_ROPE_MAIN].untruncated = true;
    return HL_OK;
}

const hl_family hl_family_gpt_oss = {
    .name          = "gpt_oss",
    .model_types   = "gpt_oss",
    .architectures = "gpt-oss",
    .prefixes      = "model.|",
    .defaults      = { .position         = HL_POSITION_ROPE,
                       .ropes            = { [HL_ROPE_MAIN] = { .base = 150000 } },
                       .d_head           = 64,
                       .norm             = HL_NORM_RMS,
                       .norm_eps         = 1e-5,
                       .sinks            = true,
                       .gated            = true,
                       .activation_limit = 7.0,
                       .biases           = HL_BIAS_QKV | HL_BIAS_O | HL_BIAS_ROUTER | HL_BIAS_EXPERTS,
                       .n_experts        = 128,
                       .n_experts_used   = 4,
                       .router           = { .normed = true },
                       .window           = 128,
                       .window_period    = 2 },
    .fields        = gpt_oss_fields,
    .describe      = describe_gpt_oss,
    .tensors       = { gpt_oss_tensors, hl_llama_tensors },
    .gguf          = { gpt_oss_gguf_tensors },
};
