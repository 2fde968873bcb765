/* family_cohere.c - Command R (cohere) and its successor (cohere2).
 *
 * LayerNorm without bias, one for both branches; rotary pairs are side by side, also in Hugging
 * Face folders; the logits are scaled, and the head is the embedding.  cohere2 rotates q and k only
 * in its windowed layers; its full layers have no positions. */
#include "model/family.h"

#define COHERE_DEFAULTS                                                                            \
    .position = HL_POSITION_ROPE, .norm_eps = 1e-5, .residual = HL_RESIDUAL_PARALLEL_SHARED,       \
    .activation = HL_ACTIVATION_SILU, .gated = true, .logit_scale = 0.0625, .tied = true

static const hl_field cohere_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "logit_scale", "logit_scale", HL_DOUBLE(logit_scale) },
    { 0 },
};

static hl_status describe_cohere(hl_config *config, const hl_fields *fields)
{
    bool      qk_norm = hl_fields_have_tensor(fields, "blk.0.attn_q_norm.weight");
    hl_status status  = hl_fields_bool(&qk_norm, fields, "use_qk_norm", NULL);

    if (qk_norm)
        config->qk_norm = HL_HEAD_NORM_EACH;
    return status;
}

const hl_family hl_family_cohere = {
    .name          = "cohere",
    .model_types   = "cohere",
    .architectures = "command-r",
    .prefixes      = "model.|",
    .defaults      = { COHERE_DEFAULTS,
                       .ropes = { [HL_ROPE_MAIN] = { .base = 500000, .interleaved = true } } },
    .fields        = cohere_fields,
    .describe      = describe_cohere,
    .tensors       = { hl_llama_tensors },
};

/* ------------------------------------------------------------------ cohere2 */

static const hl_field cohere2_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "logit_scale", "logit_scale", HL_DOUBLE(logit_scale) },
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { "sliding_window_pattern|_sliding_window_pattern", "attention.sliding_window_pattern",
      HL_COUNT(window_period, 1, HL_MAX_LAYERS) },
    { 0 },
};

static hl_status layers_cohere2(hl_config *config, const hl_fields *fields)
{
    (void)fields;
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (!config->layers[i].is_local)
            config->layers[i].rope = HL_ROPE_NONE;
    }
    return HL_OK;
}

const hl_family hl_family_cohere2 = {
    .name          = "cohere2",
    .model_types   = "cohere2",
    .architectures = "cohere2",
    .prefixes      = "model.|",
    .defaults      = { COHERE_DEFAULTS,
                       .ropes  = { [HL_ROPE_MAIN] = { .base = 10000, .interleaved = true } },
                       .window = 4096, .window_period = 4 },
    .fields        = cohere2_fields,
    .layers        = layers_cohere2,
    .tensors       = { hl_llama_tensors },
};
