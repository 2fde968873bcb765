/* family_gemma.c - Gemma, Gemma 2, Gemma 3, Gemma 3n, Gemma 4.
 *
 * Norm weights are stored as their distance from 1 (llama.cpp's converter adds the 1), embeddings
 * are multiplied by sqrt(d_model), and the scale of the scores has its own field.  From Gemma 2 on,
 * every branch has a norm before and after it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* ---------------------------------------------------------------------------------------- gemma4 */

/* Norms are stored as they are.  Full and windowed layers have heads of different widths, and full
 * ones may have other KV heads, or none of their own for values; the last layers use the keys and
 * values of earlier ones.  Some models add per-layer inputs, others experts beside the MLP. */
static const hl_family_tensor gemma4_tensors[] = {
    { HL_ROLE_PLE_EMBED, "embed_tokens_per_layer", 0 },
    { HL_ROLE_PLE_IN, "per_layer_model_projection", 0 },
    { HL_ROLE_PLE_IN_NORM, "per_layer_projection_norm", 0 },
    { HL_ROLE_ATTN_V, "layers.*.self_attn.v_proj|layers.*.self_attn.k_proj", 0 },
    { HL_ROLE_ATTN_POST_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.pre_feedforward_layernorm", 0 },
    { HL_ROLE_SHARED_GATE, "layers.*.mlp.gate_proj", 0 },
    { HL_ROLE_SHARED_UP, "layers.*.mlp.up_proj", 0 },
    { HL_ROLE_SHARED_DOWN, "layers.*.mlp.down_proj", 0 },
    { HL_ROLE_SHARED_POST_NORM, "layers.*.post_feedforward_layernorm_1", 0 },
    { HL_ROLE_ROUTER, "layers.*.router.proj", 0 },
    { HL_ROLE_ROUTER_NORM, "layers.*.router.scale", HL_STORED_BARE },
    { HL_ROLE_EXPERT_SCALE, "layers.*.router.per_expert_scale", HL_STORED_BARE },
    { HL_ROLE_EXPERT_NORM, "layers.*.pre_feedforward_layernorm_2", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.experts.gate_up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.experts.down_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_POST_NORM, "layers.*.post_feedforward_layernorm_2", 0 },
    { HL_ROLE_MLP_POST_NORM, "layers.*.post_feedforward_layernorm", 0 },
    { HL_ROLE_PLE_GATE, "layers.*.per_layer_input_gate", 0 },
    { HL_ROLE_PLE_OUT, "layers.*.per_layer_projection", 0 },
    { HL_ROLE_PLE_NORM, "layers.*.post_per_layer_input_norm", 0 },
    { HL_ROLE_LAYER_SCALE, "layers.*.layer_scalar", HL_STORED_BARE },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor gemma4_gguf_tensors[] = {
    { HL_ROLE_PLE_EMBED, "per_layer_token_embd", 0 },
    { HL_ROLE_PLE_IN, "per_layer_model_proj", 0 },
    { HL_ROLE_PLE_IN_NORM, "per_layer_proj_norm", 0 },
    { HL_ROLE_ATTN_V, "blk.*.attn_v|blk.*.attn_k", 0 },
    { HL_ROLE_SHARED_GATE, "blk.*.ffn_gate", 0 },
    { HL_ROLE_SHARED_UP, "blk.*.ffn_up", 0 },
    { HL_ROLE_SHARED_DOWN, "blk.*.ffn_down", 0 },
    { HL_ROLE_SHARED_POST_NORM, "blk.*.post_ffw_norm_1", 0 },
    { HL_ROLE_ROUTER_NORM, "blk.*.ffn_gate_inp.scale", HL_STORED_BARE },
    { HL_ROLE_EXPERT_SCALE, "blk.*.ffn_down_exps.scale", HL_STORED_BARE },
    { HL_ROLE_EXPERT_NORM, "blk.*.pre_ffw_norm_2", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "blk.*.ffn_gate_up_exps", 0 },
    { HL_ROLE_EXPERT_POST_NORM, "blk.*.post_ffw_norm_2", 0 },
    { HL_ROLE_PLE_GATE, "blk.*.inp_gate", 0 },
    { HL_ROLE_PLE_OUT, "blk.*.proj", 0 },
    { HL_ROLE_PLE_NORM, "blk.*.post_norm", 0 },
    { HL_ROLE_LAYER_SCALE, "blk.*.layer_output_scale", 0 },
    HL_FAMILY_TENSORS_END,
};

#define GEMMA4_FIELDS                                                                              \
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },                                \
        { "final_logit_softcapping", "final_logit_softcapping",                                    \
          HL_DOUBLE_OR_NULL(logit_softcap) },                                                      \
        { "sliding_window", "attention.sliding_window",                                            \
          HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },                                             \
        { NULL, "rope.freq_base_swa", HL_DOUBLE(ropes[HL_ROPE_LOCAL].base) },                      \
        { "hidden_size_per_layer_input", "embedding_length_per_layer_input",                       \
          HL_INT_OR_NULL(d_ple, 0, HL_MAX_WIDTH / HL_MAX_LAYERS) },                                \
    {                                                                                              \
        "vocab_size_per_layer_input", NULL, HL_INT(d_ple_vocab, 1, HL_MAX_VOCAB)                   \
    }

static const hl_field gemma4_fields[] = {
    GEMMA4_FIELDS,
    { "num_experts", "expert_count", HL_INT_OR_NULL(n_experts, 0, HL_MAX_EXPERTS) },
    { "top_k_experts", "expert_used_count", HL_INT_OR_NULL(n_experts_used, 0, HL_MAX_EXPERTS) },
    { "moe_intermediate_size", "expert_feed_forward_length",
      HL_INT_OR_NULL(d_expert, 0, HL_MAX_WIDTH) },
    { 0 },
};

/* The table of per-layer inputs has a row for every token. */
static hl_status describe_inputs(hl_config *config, const hl_fields *fields)
{
    int64_t rows = hl_fields_tensor_size(fields, "per_layer_token_embd.weight", 0);

    if (rows > 0 && rows <= HL_MAX_VOCAB)
        config->d_ple_vocab = rows;
    if (config->d_ple_vocab == 0)
        config->d_ple_vocab = config->d_vocab;
    if (config->d_ple > 0 && config->d_ple_known == 0 && config->d_ple_vocab < config->d_vocab)
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'vocab_size_per_layer_input' is %lld, wanted at least the vocabulary's "
                       "%lld",
                       fields->where, (long long)config->d_ple_vocab, (long long)config->d_vocab);
    config->embed_scale = sqrt((double)config->d_model);
    return HL_OK;
}

/* What per_layer_config says of the first layer that sees everything. */
static const json_t *find_full_layer(const hl_config *config, const hl_fields *fields)
{
    const json_t *types = json_object_get(fields->object, "layer_types");
    const json_t *table = json_object_get(fields->object, "per_layer_config");
    char          key[32];

    for (int64_t i = 0; i < config->n_layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));

        if (type == NULL || strcmp(type, "full_attention") != 0)
            continue;
        snprintf(key, sizeof key, "%lld", (long long)i);
        if (json_object_get(table, key) == NULL)
            snprintf(key, sizeof key, "%02lld", (long long)i);
        return json_object_get(table, key);
    }
    return NULL;
}

/* The width of heads in layers that see everything. */
static hl_status read_global_width(int64_t *out, const hl_config *config, const hl_fields *fields)
{
    const json_t *full   = find_full_layer(config, fields);
    hl_fields     nested = { .where = fields->where, .object = full, .outer = full };

    *out = config->d_head;
    HL_NEED(
        hl_fields_int(out, fields, "global_head_dim", "attention.key_length", 1, HL_MAX_HEAD_DIM));
    return full != NULL ? hl_fields_int(out, &nested, "head_dim", NULL, 1, HL_MAX_HEAD_DIM) : HL_OK;
}

static hl_status describe_gemma4(hl_config *config, const hl_fields *fields)
{
    const json_t *both  = json_object_get(fields->object, "use_bidirectional_attention");
    hl_rope      *main  = &config->ropes[HL_ROPE_MAIN];
    hl_rope      *local = &config->ropes[HL_ROPE_LOCAL];

    if (json_is_true(both) || (json_is_string(both) && strcmp(json_string_value(both), "all") == 0))
        return hl_fail(HL_UNSUPPORTED, "%s: 'use_bidirectional_attention' is not supported",
                       fields->where);
    HL_NEED(read_global_width(&main->n_dims, config, fields));
    HL_NEED(hl_fields_int(&config->d_head, fields, NULL, "attention.key_length_swa", 1,
                          HL_MAX_HEAD_DIM));
    local->n_dims = config->d_head;
    if (config->n_experts > 0) {
        config->experts_apart = true;
        config->d_shared      = config->d_mlp;
    }
    return describe_inputs(config, fields);
}

/* Layers that use the keys and values of the last one of their kind that has its own. */
static hl_status share_keys(hl_config *config, const hl_fields *fields)
{
    int64_t n_shared = 0;

    HL_NEED(hl_fields_int(&n_shared, fields, "num_kv_shared_layers", "attention.shared_kv_layers",
                          0, HL_MAX_LAYERS));
    if (n_shared >= config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: %lld of %lld layers use the keys of others",
                       fields->where, (long long)n_shared, (long long)config->n_layers);
    for (int64_t i = config->n_layers - n_shared; i < config->n_layers; i++) {
        int64_t source = config->n_layers - n_shared - 1;

        while (source >= 0 && config->layers[source].is_local != config->layers[i].is_local)
            source--;
        if (source < 0)
            return hl_fail(HL_BAD_INPUT,
                           "%s: layer %lld has no earlier layer of its kind with keys",
                           fields->where, (long long)i);
        config->layers[i].kv_layer = source;
    }
    return HL_OK;
}

static hl_status layers_gemma4(hl_config *config, const hl_fields *fields)
{
    bool    wide     = false;
    int64_t n_global = 0;

    HL_NEED(hl_fields_bool(&wide, fields, "use_double_wide_mlp", NULL));
    HL_NEED(hl_fields_int(&n_global, fields, "num_global_key_value_heads", NULL, 0, HL_MAX_HEADS));
    HL_NEED(share_keys(config, fields));
    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_config *layer = &config->layers[i];

        if (!layer->is_local) {
            layer->d_head = config->ropes[HL_ROPE_MAIN].n_dims;
            if (n_global > 0)
                layer->n_kv_heads = n_global;
        }
        if (layer->kv_layer != i && wide)
            layer->d_mlp = 2 * config->d_mlp;
    }
    return HL_OK;
}

const hl_family hl_family_gemma4 = {
    .name          = "gemma4",
    .model_types   = "gemma4_text|gemma4",
    .architectures = "gemma4",
    .prefixes      = "model.|",
    .defaults      = { GEMMA_DEFAULTS,
                       .ropes      = { [HL_ROPE_MAIN]  = { .base = 1e6 },
                                       [HL_ROPE_LOCAL] = { .base = 10000 } },
                       .norm_place = HL_NORM_SANDWICH, .qk_norm = HL_HEAD_NORM_SHARED, .v_normed = true,
                       .attn_scale = 1.0, .window = 512, .window_period = 6, .layers_scaled = true,
                       .router = { .normed = true } },
    .fields        = gemma4_fields,
    .describe      = describe_gemma4,
    .layers        = layers_gemma4,
    .tensors       = { gemma4_tensors, hl_llama_tensors },
    .gguf          = { gemma4_gguf_tensors },
};

/* --------------------------------------------------------------------------------------- gemma3n */

/* Gemma 4's per-layer inputs and shared keys, over several streams (AltUp), with a map of low rank
 * beside attention (LAuReL). */
static const hl_family_tensor gemma3n_tensors[] = {
    { HL_ROLE_STREAM_IN, "altup_projections.*", 0 },
    { HL_ROLE_STREAM_OUT, "altup_unembed_projections.*", 0 },
    { HL_ROLE_STREAM_ROUTER_NORM, "layers.*.altup.router_norm", 0 },
    { HL_ROLE_STREAM_ROUTER, "layers.*.altup.modality_router", 0 },
    { HL_ROLE_STREAM_PREDICT, "layers.*.altup.prediction_coefs", 0 },
    { HL_ROLE_STREAM_CORRECT, "layers.*.altup.correction_coefs", 0 },
    { HL_ROLE_STREAM_SCALE, "layers.*.altup.correct_output_scale", HL_STORED_BARE },
    { HL_ROLE_LAUREL_IN, "layers.*.laurel.linear_left", 0 },
    { HL_ROLE_LAUREL_OUT, "layers.*.laurel.linear_right", 0 },
    { HL_ROLE_LAUREL_NORM, "layers.*.laurel.post_laurel_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor gemma3n_gguf_tensors[] = {
    { HL_ROLE_STREAM_IN, "altup_proj", 0 },
    { HL_ROLE_STREAM_OUT, "altup_unembd_proj", 0 },
    { HL_ROLE_STREAM_ROUTER_NORM, "blk.*.altup_router_norm", 0 },
    { HL_ROLE_STREAM_ROUTER, "blk.*.altup_router", 0 },
    { HL_ROLE_STREAM_PREDICT, "blk.*.altup_predict_coef", 0 },
    { HL_ROLE_STREAM_CORRECT, "blk.*.altup_correct_coef", 0 },
    { HL_ROLE_STREAM_SCALE, "blk.*.altup_correct_scale", 0 },
    { HL_ROLE_LAUREL_IN, "blk.*.laurel_l", 0 },
    { HL_ROLE_LAUREL_OUT, "blk.*.laurel_r", 0 },
    { HL_ROLE_LAUREL_NORM, "blk.*.laurel_post_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field gemma3n_fields[] = {
    GEMMA4_FIELDS,
    { "altup_num_inputs", "altup.num_inputs", HL_INT(n_streams, 2, HL_MAX_STREAMS) },
    { "laurel_rank", NULL, HL_INT(d_laurel, 1, HL_MAX_WIDTH) },
    { 0 },
};

static hl_status describe_gemma3n(hl_config *config, const hl_fields *fields)
{
    bool    scales = true;
    int64_t active = 0, rank = hl_fields_tensor_size(fields, "blk.0.laurel_l.weight", 0);

    HL_NEED(
        hl_fields_int(&active, fields, "altup_active_idx", "altup.active_idx", 0, HL_MAX_STREAMS));
    HL_NEED(hl_fields_bool(&scales, fields, "altup_correct_scale", NULL));
    if (active != 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: layers run on stream %lld ('altup_active_idx'), supported is 0",
                       fields->where, (long long)active);
    config->streams_scaled = scales;
    if (rank > 0 && rank <= HL_MAX_WIDTH)
        config->d_laurel = rank;
    if (config->d_ple_vocab > 0 && config->d_ple_vocab < config->d_vocab)
        config->d_ple_known = config->d_ple_vocab;
    return describe_inputs(config, fields);
}

/* How many standard deviations above the mean a share of a normal distribution ends. */
static double normal_quantile(double share)
{
    double low = -40.0, high = 40.0;

    for (int i = 0; i < 100; i++) {
        double middle = 0.5 * (low + high);

        if (0.5 * erfc(-middle / sqrt(2.0)) < share)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

/* The share of each layer's gates that become 0; GGUF has the deviations themselves. */
static hl_status read_sparsity(hl_config *config, const hl_fields *fields)
{
    bool             found  = false;
    HL_FREED double *shares = NULL;
    const char      *key    = "activation_sparsity_pattern";

    HL_NEED(HL_ALLOC_ZEROED(&shares, (size_t)config->n_layers));
    HL_NEED(hl_fields_doubles(shares, &found, fields, key, "activation_sparsity_scale",
                              (size_t)config->n_layers));
    for (int64_t i = 0; i < config->n_layers && found; i++) {
        hl_layer_config *layer = &config->layers[i];

        if (fields->object != NULL && !(shares[i] >= 0.0 && shares[i] < 1.0))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' [%lld] is %g, wanted 0 to less than 1",
                           fields->where, key, (long long)i, shares[i]);
        layer->is_sparse  = fields->object != NULL ? shares[i] > 0.0 : isfinite(shares[i]);
        layer->deviations = 0.0;
        if (layer->is_sparse)
            layer->deviations = fields->object != NULL ? normal_quantile(shares[i]) : shares[i];
    }
    return HL_OK;
}

static hl_status layers_gemma3n(hl_config *config, const hl_fields *fields)
{
    HL_NEED(read_sparsity(config, fields));
    return share_keys(config, fields);
}

const hl_family hl_family_gemma3n = {
    .name          = "gemma3n",
    .model_types   = "gemma3n_text|gemma3n",
    .architectures = "gemma3n",
    .prefixes      = "model.|",
    .defaults      = { GEMMA_DEFAULTS,
                       .ropes      = { [HL_ROPE_MAIN]  = { .base = 1e6 },
                                       [HL_ROPE_LOCAL] = { .base = 10000 } },
                       .norm_place = HL_NORM_SANDWICH, .qk_norm = HL_HEAD_NORM_SHARED, .v_normed = true,
                       .attn_scale = 1.0, .window = 512, .window_period = 5, .logit_softcap = 30.0,
                       .n_streams = 4, .d_laurel = 64 },
    .fields        = gemma3n_fields,
    .describe      = describe_gemma3n,
    .layers        = layers_gemma3n,
    .tensors       = { gemma3n_tensors, gemma4_tensors, hl_llama_tensors },
    .gguf          = { gemma3n_gguf_tensors, gemma4_gguf_tensors },
};
