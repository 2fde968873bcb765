/* family_gemma.c - Gemma, Gemma 2, Gemma 3.
 *
 * Norm weights are stored as their distance from 1 (llama.cpp's converter adds the 1), embeddings
 * are multiplied by sqrt(d_model), and the scale of the scores has its own field.  From Gemma 2 on,
 * every branch has a norm before and after it. */
#include <math.h>

#include "base/status.h"
#include "model/family.h"

#define GEMMA_DEFAULTS                                                                             \
    .position = HL_POSITION_ROPE, .norm = HL_NORM_RMS, .norm_eps = 1e-6,                           \
    .activation = HL_ACTIVATION_GELU_TANH, .gated = true, .tied = true, .d_head = 256

static const hl_family_tensor gemma_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_FINAL_NORM, "norm", HL_STORED_MINUS_ONE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field gemma_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { 0 },
};

/* Old files have hidden_act "gelu" and mean the tanh form; hidden_activation is exact. */
static hl_status describe_gemma(hl_config *config, const hl_fields *fields)
{
    bool      both   = false;
    hl_status status = hl_fields_bool(&both, fields, "use_bidirectional_attention", NULL);

    /* PaliGemma's is for the image before the text; a text alone is read causally. */
    if (both && !config->is_part)
        return hl_fail(HL_UNSUPPORTED, "%s: 'use_bidirectional_attention' is not supported",
                       fields->where);
    if (!hl_fields_have(fields, "hidden_activation", NULL) &&
        config->activation == HL_ACTIVATION_GELU)
        config->activation = HL_ACTIVATION_GELU_TANH;
    config->embed_scale = sqrt((double)config->d_model);
    return status;
}

const hl_family hl_family_gemma = {
    .name          = "gemma",
    .model_types   = "gemma",
    .architectures = "gemma",
    .prefixes      = "model.|",
    .defaults      = { GEMMA_DEFAULTS, .ropes = { [HL_ROPE_MAIN] = { .base = 10000 } } },
    .fields        = gemma_fields,
    .describe      = describe_gemma,
    .tensors       = { gemma_tensors, hl_llama_tensors },
};

/* ---------------------------------------------------------- gemma2, gemma3 */

static const hl_family_tensor gemma2_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_ATTN_POST_NORM, "layers.*.post_attention_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_MLP_NORM, "layers.*.pre_feedforward_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_MLP_POST_NORM, "layers.*.post_feedforward_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_norm", HL_STORED_MINUS_ONE },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_norm", HL_STORED_MINUS_ONE },
    { HL_ROLE_FINAL_NORM, "norm", HL_STORED_MINUS_ONE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field gemma2_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "query_pre_attn_scalar", NULL, HL_RSQRT(attn_scale) },
    { NULL, "attention.scale", HL_DOUBLE(attn_scale) },
    { "attn_logit_softcapping", "attn_logit_softcapping", HL_DOUBLE_OR_NULL(attn_softcap) },
    { "final_logit_softcapping", "final_logit_softcapping", HL_DOUBLE_OR_NULL(logit_softcap) },
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { "sliding_window_pattern|_sliding_window_pattern", "attention.sliding_window_pattern",
      HL_COUNT(window_period, 1, HL_MAX_LAYERS) },
    { NULL, "rope.freq_base_swa", HL_DOUBLE(ropes[HL_ROPE_LOCAL].base) },
    { 0 },
};

/* GGUF does not store query_pre_attn_scalar.  It equals d_head, except in the largest model (27B,
 * recognized by its layers), where it is d_model / n_heads. */
static hl_status describe_gemma2(hl_config *config, const hl_fields *fields)
{
    int64_t n_layers_27b = config->ropes[HL_ROPE_LOCAL].base != 0.0 ? 62 : 46;
    int64_t scalar       = 256; /* default of config.json */

    if (fields->object == NULL)
        scalar =
            config->n_layers == n_layers_27b ? config->d_model / config->n_heads : config->d_head;
    if (config->attn_scale == 0.0 && scalar > 0)
        config->attn_scale = 1.0 / sqrt((double)scalar);
    return describe_gemma(config, fields);
}

const hl_family hl_family_gemma2 = {
    .name          = "gemma2",
    .model_types   = "gemma2",
    .architectures = "gemma2",
    .prefixes      = "model.|",
    .defaults      = { GEMMA_DEFAULTS, .ropes = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm_place = HL_NORM_SANDWICH, .attn_softcap = 50.0, .logit_softcap = 30.0,
                       .window = 4096, .window_period = 2 },
    .fields        = gemma2_fields,
    .describe      = describe_gemma2,
    .tensors       = { gemma2_tensors, hl_llama_tensors },
};

/* In models with images, the text model is nested, and its config.json omits values that equal the
 * defaults of the class.  That is why the sizes are given here. */
const hl_family hl_family_gemma3 = {
    .name          = "gemma3",
    .model_types   = "gemma3_text|gemma3",
    .architectures = "gemma3",
    .prefixes      = "model.|",
    .defaults = { GEMMA_DEFAULTS, .d_vocab = 262208, .n_heads = 8, .n_kv_heads = 4, .n_ctx = 131072,
                  .ropes      = { [HL_ROPE_MAIN]  = { .base = 1e6 },
                                  [HL_ROPE_LOCAL] = { .base = 10000 } },
                  .norm_place = HL_NORM_SANDWICH, .qk_norm = HL_HEAD_NORM_SHARED, .window = 4096,
                  .window_period = 6 },
    .fields   = gemma2_fields,
    .describe = describe_gemma2,
    .tensors  = { gemma2_tensors, hl_llama_tensors },
};
