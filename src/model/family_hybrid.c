/* family_hybrid.c - families in which some layers have a mixer with a state instead of attention:
 * LFM2 (short convolutions), Bamba, Granite 4, Nemotron-H and Falcon-H1 (Mamba-2), Jamba (Mamba).
 *
 * The kinds of mixers are those of config.h; Qwen's gated delta rule is in family_qwen.c.  A GGUF
 * file says which layers attend by their number of KV heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/family.h"

/* --------------------------------------------------------------------------- Mamba, for several */

static const hl_family_tensor mamba_tensors[] = {
    { HL_ROLE_MIX_IN, "layers.*.mamba.in_proj", 0 },
    { HL_ROLE_MIX_CONV, "layers.*.mamba.conv1d", 0 },
    { HL_ROLE_MIX_DT_BIAS, "layers.*.mamba.dt_bias", HL_STORED_BARE },
    { HL_ROLE_MIX_DECAY, "layers.*.mamba.A_log", HL_STORED_BARE | HL_STORED_LOG },
    { HL_ROLE_MIX_SKIP, "layers.*.mamba.D", HL_STORED_BARE },
    { HL_ROLE_MIX_NORM, "layers.*.mamba.norm", 0 },
    { HL_ROLE_MIX_OUT, "layers.*.mamba.out_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

/* What Bamba, Falcon-H1 and Jamba call their MLPs and norms. */
static const hl_family_tensor forward_tensors[] = {
    { HL_ROLE_FINAL_NORM, "final_layernorm", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.pre_ff_layernorm", 0 },
    { HL_ROLE_MLP_GATE, "layers.*.feed_forward.gate_proj", 0 },
    { HL_ROLE_MLP_UP, "layers.*.feed_forward.up_proj", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.feed_forward.down_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

#define MAMBA_FIELDS                                                                               \
    { "mamba_d_state|ssm_state_size", "ssm.state_size", HL_INT(mixer.d_state, 1, HL_MAX_STATE) },  \
        { "mamba_d_conv|conv_kernel", "ssm.conv_kernel", HL_INT(mixer.width, 1, HL_MAX_CONV) },    \
    {                                                                                              \
        "mamba_conv_bias|use_conv_bias", NULL, HL_BIASES(HL_BIAS_CONV)                             \
    }

#define MAMBA2_FIELDS                                                                              \
    MAMBA_FIELDS,                                                                                  \
        { "mamba_n_heads|mamba_num_heads", "ssm.time_step_rank",                                   \
          HL_INT(mixer.n_heads, 1, HL_MAX_HEADS) },                                                \
    {                                                                                              \
        "mamba_n_groups|n_groups", "ssm.group_count", HL_INT(mixer.n_groups, 1, HL_MAX_HEADS)      \
    }

#define MAMBA2_MIXER(heads, groups, state)                                                         \
    {                                                                                              \
        .kind = HL_MIXER_MAMBA2, .n_heads = (heads), .n_groups = (groups), .d_state = (state),     \
        .width = 4, .n_norms = 1                                                                   \
    }

/* One end of the limits of dt: a number, or {"__float__": "Infinity"}. */
static hl_status read_limit(double *out, const json_t *end, const char *where)
{
    const char *text = json_string_value(json_object_get(end, "__float__"));

    if (json_is_number(end))
        *out = json_number_value(end);
    else if (text != NULL && strcmp(text, "Infinity") == 0)
        *out = INFINITY;
    else
        return hl_fail(HL_BAD_INPUT, "%s: 'time_step_limit' has an entry that is not a number",
                       where);
    return HL_OK;
}

static hl_status read_limits(hl_config *config, const hl_fields *fields)
{
    const json_t *list = json_object_get(fields->object, "time_step_limit");

    if (list == NULL || json_is_null(list))
        return HL_OK;
    if (json_array_size(list) != 2)
        return hl_fail(HL_BAD_INPUT, "%s: 'time_step_limit' has %zu entries, wanted 2",
                       fields->where, json_array_size(list));
    HL_NEED(read_limit(&config->mixer.dt_low, json_array_get(list, 0), fields->where));
    HL_NEED(read_limit(&config->mixer.dt_high, json_array_get(list, 1), fields->where));
    if (config->mixer.dt_high <= 0.0)
        return hl_fail(HL_BAD_INPUT, "%s: 'time_step_limit' ends at %g, wanted more than 0",
                       fields->where, config->mixer.dt_high);
    return HL_OK;
}

/* The width of all heads together is given or `expand` times the model's; that of one may be "auto".
 */
static hl_status describe_mamba2(hl_config *config, const hl_fields *fields)
{
    int64_t n_heads = config->mixer.n_heads;
    int64_t expand  = 2;
    int64_t inner   = 0;
    int64_t d_head  = 0;

    HL_NEED(hl_fields_int(&expand, fields, "mamba_expand", NULL, 1, 64));
    inner = expand * config->d_model;
    HL_NEED(hl_fields_int(&inner, fields, "mamba_d_ssm", "ssm.inner_size", 1, HL_MAX_WIDTH));
    if (inner % n_heads != 0)
        return hl_fail(HL_BAD_INPUT, "%s: Mamba's width of %lld is not divisible by its %lld heads",
                       fields->where, (long long)inner, (long long)n_heads);
    d_head = inner / n_heads;
    if (!json_is_string(json_object_get(fields->object, "mamba_d_head")))
        HL_NEED(hl_fields_int(&d_head, fields, "mamba_d_head", NULL, 1, HL_MAX_WIDTH));
    if (d_head * n_heads != inner)
        return hl_fail(HL_BAD_INPUT, "%s: %lld heads of %lld, and Mamba's width is %lld",
                       fields->where, (long long)n_heads, (long long)d_head, (long long)inner);
    config->mixer.d_head = d_head;
    return read_limits(config, fields);
}

/* ------------------------------------------------------------------------------------------ lfm2 */

static const hl_family_tensor lfm2_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.operator_norm", 0 },
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_layernorm", 0 },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_layernorm", 0 },
    { HL_ROLE_ATTN_O, "layers.*.self_attn.out_proj", 0 },
    { HL_ROLE_MIX_IN, "layers.*.conv.in_proj", 0 },
    { HL_ROLE_MIX_CONV, "layers.*.conv.conv", 0 },
    { HL_ROLE_MIX_OUT, "layers.*.conv.out_proj", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.ffn_norm", 0 },
    { HL_ROLE_MLP_GATE, "layers.*.feed_forward.w1", 0 },
    { HL_ROLE_MLP_UP, "layers.*.feed_forward.w3", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.feed_forward.w2", 0 },
    { HL_ROLE_ROUTER, "layers.*.feed_forward.gate", 0 },
    { HL_ROLE_ROUTER_CORRECTION, "layers.*.feed_forward.expert_bias", HL_STORED_BARE },
    { HL_ROLE_EXPERT_GATE, "layers.*.feed_forward.experts.*.w1", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.feed_forward.experts.*.w3", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.*.w2", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.feed_forward.experts.gate_up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.down_proj", HL_STORED_BARE },
    { HL_ROLE_FINAL_NORM, "embedding_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor lfm2_gguf_tensors[] = {
    { HL_ROLE_FINAL_NORM, "output_norm|token_embd_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

#define LFM2_FIELDS                                                                                \
    { "conv_L_cache", "shortconv.l_cache", HL_INT(mixer.width, 1, HL_MAX_CONV) },                  \
        { "conv_bias", NULL, HL_BIASES(HL_BIAS_CONV | HL_BIAS_MIX_IN | HL_BIAS_MIX_OUT) },         \
    {                                                                                              \
        "block_ff_dim", NULL, HL_INT(d_mlp, 1, HL_MAX_WIDTH)                                       \
    }

static const hl_field lfm2_fields[] = {
    LFM2_FIELDS,
    { 0 },
};

/* config.json has the width of an MLP that is not gated: a gated one has two thirds of it, times a
 * factor, rounded up. */
static hl_status describe_lfm2(hl_config *config, const hl_fields *fields)
{
    bool    adjusts  = true;
    int64_t multiple = 256;
    double  factor   = 1.0;

    if (fields->object == NULL)
        return HL_OK;
    HL_NEED(hl_fields_bool(&adjusts, fields, "block_auto_adjust_ff_dim", NULL));
    HL_NEED(hl_fields_int(&multiple, fields, "block_multiple_of", NULL, 1, HL_MAX_WIDTH));
    HL_NEED(hl_fields_double(&factor, fields, "block_ffn_dim_multiplier", NULL));
    if (factor <= 0.0 || factor > 64.0)
        return hl_fail(HL_BAD_INPUT, "%s: 'block_ffn_dim_multiplier' is %g, wanted 0 to 64",
                       fields->where, factor);
    if (config->d_mlp == 0)
        config->d_mlp = 12288;
    if (adjusts) {
        int64_t width = (int64_t)(factor * (double)(2 * config->d_mlp / 3));
        config->d_mlp = (width + multiple - 1) / multiple * multiple;
    }
    return HL_OK;
}

/* The layers that this list names attend, the others do not.  layer_types counts more. */
static hl_status read_attending(hl_config *config, const hl_fields *fields, const char *key)
{
    const json_t *list                   = json_object_get(fields->object, key);
    bool          attends[HL_MAX_LAYERS] = { false };

    if (hl_fields_have(fields, "layer_types", NULL) || !json_is_array(list))
        return HL_OK;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        json_int_t    layer = json_integer_value(entry);

        if (!json_is_integer(entry) || layer < 0 || layer >= config->n_layers)
            return hl_fail(HL_BAD_INPUT, "%s: '%s' [%zu] is not a layer, 0 to %lld", fields->where,
                           key, i, (long long)config->n_layers - 1);
        attends[layer] = true;
    }
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (!attends[i])
            hl_config_put_mixer(config, i);
    }
    return HL_OK;
}

static hl_status layers_lfm2(hl_config *config, const hl_fields *fields)
{
    return read_attending(config, fields, "full_attn_idxs");
}

const hl_family hl_family_lfm2 = {
    .name          = "lfm2",
    .model_types   = "lfm2",
    .architectures = "lfm2",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 1e6), .qk_norm = HL_HEAD_NORM_SHARED, .tied = true,
                       .mixer = { .kind = HL_MIXER_CONV, .width = 3 } },
    .fields        = lfm2_fields,
    .describe      = describe_lfm2,
    .layers        = layers_lfm2,
    .tensors       = { lfm2_tensors, hl_llama_tensors },
    .gguf          = { lfm2_gguf_tensors },
};

static const hl_field lfm2_moe_fields[] = {
    LFM2_FIELDS,
    HL_EXPERTS_FIELDS,
    { "use_expert_bias", NULL, HL_BOOL(router.has_correction) },
    { 0 },
};

const hl_family hl_family_lfm2_moe = {
    .name          = "lfm2_moe",
    .model_types   = "lfm2_moe",
    .architectures = "lfm2moe",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 1e6), .qk_norm = HL_HEAD_NORM_SHARED, .tied = true,
                       .n_experts = 32, .n_experts_used = 4, .d_expert = 1792, .n_dense = 2,
                       .router = { .score          = HL_ROUTER_SIGMOID,
                                   .normed         = true,
                                   .has_correction = true,
                                   .added          = 1e-6 },
                       .mixer  = { .kind = HL_MIXER_CONV, .width = 3 } },
    .fields        = lfm2_moe_fields,
    .layers        = layers_lfm2,
    .tensors       = { lfm2_tensors, hl_llama_tensors },
    .gguf          = { lfm2_gguf_tensors },
};

/* ----------------------------------------------------------------------------------------- bamba */

static const hl_field bamba_fields[] = {
    MAMBA2_FIELDS,
    { "mamba_proj_bias", NULL, HL_BIASES(HL_BIAS_MIX_IN | HL_BIAS_MIX_OUT) },
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { 0 },
};

/* Half of each head is rotated, whatever the file says. */
static hl_status describe_bamba(hl_config *config, const hl_fields *fields)
{
    config->rotary_fraction = 0.5;
    return describe_mamba2(config, fields);
}

static hl_status layers_bamba(hl_config *config, const hl_fields *fields)
{
    return read_attending(config, fields, "attn_layer_indices");
}

const hl_family hl_family_bamba = {
    .name        = "bamba",
    .model_types = "bamba",
    .prefixes    = "model.|",
    .defaults    = { HL_LLAMA_DEFAULTS(1e-5, 10000), .biases = HL_BIAS_CONV,
                     .mixer = MAMBA2_MIXER(128, 1, 256) },
    .fields      = bamba_fields,
    .describe    = describe_bamba,
    .layers      = layers_bamba,
    .tensors     = { mamba_tensors, forward_tensors, hl_llama_tensors },
};

/* -------------------------------------------------------------------------------- granitemoehybrid */

/* An MLP that every row uses stands beside the experts, or alone where there are none. */
static const hl_family_tensor granitemoehybrid_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.block_sparse_moe.router.layer", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.block_sparse_moe.input_linear", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.block_sparse_moe.output_linear", 0 },
    { HL_ROLE_SHARED_GATE_UP, "layers.*.shared_mlp.input_linear", 0 },
    { HL_ROLE_SHARED_DOWN, "layers.*.shared_mlp.output_linear", 0 },
    { HL_ROLE_MLP_GATE_UP, "layers.*.shared_mlp.input_linear", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.shared_mlp.output_linear", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field granitemoehybrid_fields[] = {
    MAMBA2_FIELDS,
    { "mamba_proj_bias", NULL, HL_BIASES(HL_BIAS_MIX_IN | HL_BIAS_MIX_OUT) },
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "attention_multiplier", "attention.scale", HL_DOUBLE(attn_scale) },
    { "embedding_multiplier", "embedding_scale", HL_DOUBLE(embed_scale) },
    { "residual_multiplier", "residual_scale", HL_DOUBLE(residual_scale) },
    { "logits_scaling", "logit_scale", HL_INVERSE(logit_scale) },
    { "num_local_experts", "expert_count", HL_INT_OR_NULL(n_experts, 0, HL_MAX_EXPERTS) },
    { "num_experts_per_tok", "expert_used_count", HL_INT(n_experts_used, 0, HL_MAX_EXPERTS) },
    { "shared_intermediate_size", "expert_shared_feed_forward_length",
      HL_INT(d_shared, 1, HL_MAX_WIDTH) },
    { 0 },
};

/* A GGUF file of this architecture may also hold a Bamba: it has RoPE, and no multipliers. */
static void describe_granite_gguf(hl_config *config, const hl_fields *fields)
{
    int64_t width = hl_fields_tensor_size(fields, "blk.0.ffn_up.weight", 0);

    if (!hl_fields_have(fields, NULL, "expert_count"))
        config->n_experts = 0;
    if (!hl_fields_have(fields, NULL, "attention.scale"))
        config->attn_scale = 0.0;
    if (width > 0)
        config->d_mlp = width;
}

static hl_status describe_granitemoehybrid(hl_config *config, const hl_fields *fields)
{
    char position[HL_MAX_FIELD_TEXT] = "";
    bool rotates                     = false;

    HL_NEED(hl_fields_text(position, fields, "position_embedding_type", NULL));
    HL_NEED(hl_fields_bool(&rotates, fields, NULL, "rope.scaling.finetuned"));
    if (!rotates && strcmp(position, "rope") != 0)
        config->position = HL_POSITION_NONE;
    config->d_expert = config->d_mlp;
    if (fields->object == NULL)
        describe_granite_gguf(config, fields);
    else if (config->n_experts == 0)
        config->d_mlp = config->d_shared;
    if (config->n_experts == 0)
        config->d_shared = 0;
    return describe_mamba2(config, fields);
}

const hl_family hl_family_granitemoehybrid = {
    .name          = "granitemoehybrid",
    .model_types   = "granitemoehybrid",
    .architectures = "granitehybrid",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 10000), .attn_scale = 1.0, .biases = HL_BIAS_CONV,
                       .n_experts = 8, .n_experts_used = 2, .d_shared = 1024,
                       .router = { .normed = true }, .mixer = MAMBA2_MIXER(128, 1, 256) },
    .fields        = granitemoehybrid_fields,
    .describe      = describe_granitemoehybrid,
    .tensors       = { granitemoehybrid_tensors, mamba_tensors, hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* ------------------------------------------------------------------------------------- falcon_h1 */

/* Every layer has attention and a Mamba-2 side by side. */

static const hl_family_tensor falcon_h1_gguf_tensors[] = {
    { HL_ROLE_MLP_NORM, "blk.*.ffn_norm", HL_STORED_BARE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field falcon_h1_fields[] = {
    MAMBA2_FIELDS,
    { "mamba_proj_bias", NULL, HL_BIASES(HL_BIAS_MIX_IN) },
    { "projectors_bias", NULL, HL_BIASES(HL_BIAS_MIX_OUT) },
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { "embedding_multiplier", NULL, HL_DOUBLE(embed_scale) },
    { "lm_head_multiplier", NULL, HL_DOUBLE(logit_scale) },
    { "attention_in_multiplier", NULL, HL_DOUBLE(attn_in_factor) },
    { "attention_out_multiplier", NULL, HL_DOUBLE(attn_out_factor) },
    { "ssm_in_multiplier", NULL, HL_DOUBLE(mixer.in_factor) },
    { "ssm_out_multiplier", NULL, HL_DOUBLE(mixer.out_factor) },
    { 0 },
};

/* Reads `count` multipliers that are not 0, or leaves the list as it was. */
static hl_status read_multipliers(double *out, const hl_fields *fields, const char *key,
                                  size_t count)
{
    bool found = false;

    HL_NEED(hl_fields_doubles(out, &found, fields, key, NULL, count));
    for (size_t i = 0; i < count; i++) {
        if (out[i] == 0.0 || !isfinite(out[i]))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' [%zu] is %g, wanted another number than 0",
                           fields->where, key, i, out[i]);
    }
    return HL_OK;
}

/* GGUF has the multipliers in its weights, and the gate before the norm, if there is one. */
static hl_status describe_falcon_h1(hl_config *config, const hl_fields *fields)
{
    hl_mixer_config *mixer      = &config->mixer;
    double           of_keys    = 1.0;
    bool             has_norm   = hl_fields_have_tensor(fields, "blk.0.ssm_norm.weight");
    bool             norm_first = fields->object != NULL;

    HL_NEED(describe_mamba2(config, fields));
    HL_NEED(hl_fields_double(&of_keys, fields, "key_multiplier", NULL));
    HL_NEED(hl_fields_bool(&has_norm, fields, "mamba_rms_norm", NULL));
    HL_NEED(hl_fields_bool(&norm_first, fields, "mamba_norm_before_gate", NULL));
    for (int i = 0; i < HL_N_MIX_PARTS; i++)
        mixer->factors[i] = 1.0;
    HL_NEED(read_multipliers(mixer->factors, fields, "ssm_multipliers", HL_N_MIX_PARTS));
    for (int i = 0; i < HL_N_MIX_PARTS && mixer->in_factor != 0.0; i++)
        mixer->factors[i] *= mixer->in_factor;
    mixer->n_norms     = has_norm ? mixer->n_groups : 0;
    config->activation = HL_ACTIVATION_SILU_SCALED;
    mixer->norm_first  = norm_first;
    if (config->d_head == 0 && config->d_model % config->n_heads == 0)
        config->d_head = config->d_model / config->n_heads;
    if (config->attn_in_factor != 0.0)
        of_keys *= config->attn_in_factor * config->attn_in_factor;
    if (config->d_head > 0)
        config->attn_scale = of_keys / sqrt((double)config->d_head);
    return HL_OK;
}

static hl_status layers_falcon_h1(hl_config *config, const hl_fields *fields)
{
    double factors[] = { 1.0, 1.0 };

    HL_NEED(read_multipliers(factors, fields, "mlp_multipliers", 2));
    config->mlp_out_factor = factors[1];
    for (int64_t i = 0; i < config->n_layers; i++) {
        config->layers[i].mixer      = config->mixer.kind;
        config->layers[i].numbers[0] = (float)factors[0];
        config->layers[i].numbers[1] = (float)(factors[0] * factors[1]);
    }
    return HL_OK;
}

const hl_family hl_family_falcon_h1 = {
    .name          = "falcon_h1",
    .model_types   = "falcon_h1",
    .architectures = "falcon-h1",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 10000), .biases = HL_BIAS_CONV,
                       .mixer = MAMBA2_MIXER(128, 1, 256) },
    .fields        = falcon_h1_fields,
    .describe      = describe_falcon_h1,
    .layers        = layers_falcon_h1,
    .tensors       = { mamba_tensors, forward_tensors, hl_llama_tensors },
    .gguf          = { falcon_h1_gguf_tensors },
};

/* ------------------------------------------------------------------------------------ nemotron_h */

/* A layer is one block: a Mamba-2, attention, an MLP or a mixture, with one norm before it. */
static const hl_family_tensor nemotron_h_tensors[] = {
    { HL_ROLE_EMBED, "embeddings|embed_tokens", 0 },
    { HL_ROLE_FINAL_NORM, "norm_f", 0 },
    { HL_ROLE_ATTN_NORM, "layers.*.norm", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.norm", 0 },
    { HL_ROLE_ATTN_Q, "layers.*.mixer.q_proj", 0 },
    { HL_ROLE_ATTN_K, "layers.*.mixer.k_proj", 0 },
    { HL_ROLE_ATTN_V, "layers.*.mixer.v_proj", 0 },
    { HL_ROLE_ATTN_O, "layers.*.mixer.o_proj", 0 },
    { HL_ROLE_MIX_IN, "layers.*.mixer.in_proj", 0 },
    { HL_ROLE_MIX_CONV, "layers.*.mixer.conv1d", 0 },
    { HL_ROLE_MIX_DT_BIAS, "layers.*.mixer.dt_bias", HL_STORED_BARE },
    { HL_ROLE_MIX_DECAY, "layers.*.mixer.A_log", HL_STORED_BARE | HL_STORED_LOG },
    { HL_ROLE_MIX_SKIP, "layers.*.mixer.D", HL_STORED_BARE },
    { HL_ROLE_MIX_NORM, "layers.*.mixer.norm", 0 },
    { HL_ROLE_MIX_OUT, "layers.*.mixer.out_proj", 0 },
    { HL_ROLE_MLP_UP, "layers.*.mixer.up_proj", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mixer.down_proj", 0 },
    { HL_ROLE_ROUTER, "layers.*.mixer.gate", 0 },
    { HL_ROLE_ROUTER_CORRECTION, "layers.*.mixer.gate.e_score_correction_bias", HL_STORED_BARE },
    { HL_ROLE_EXPERT_UP, "layers.*.mixer.experts.*.up_proj", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.mixer.experts.*.down_proj", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.mixer.experts.up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.mixer.experts.down_proj", HL_STORED_BARE },
    { HL_ROLE_SHARED_UP, "layers.*.mixer.shared_experts.up_proj", 0 },
    { HL_ROLE_SHARED_DOWN, "layers.*.mixer.shared_experts.down_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor nemotron_h_gguf_tensors[] = {
    { HL_ROLE_MLP_NORM, "blk.*.attn_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field nemotron_h_fields[] = {
    { "layers_block_type|layer_types|hybrid_override_pattern", NULL,
      HL_LENGTH(n_layers, 1, HL_MAX_LAYERS) },
    MAMBA2_FIELDS,
    HL_EXPERTS_FIELDS,
    { "mamba_head_dim", NULL, HL_INT(mixer.d_head, 1, HL_MAX_WIDTH) },
    { "mlp_hidden_act", NULL, HL_ACTIVATION(activation) },
    { "use_bias|mamba_proj_bias", NULL, HL_BIASES(HL_BIAS_MIX_IN | HL_BIAS_MIX_OUT) },
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP | HL_BIAS_SHARED) },
    { "time_step_min|mamba_dt_min", NULL, HL_DOUBLE(mixer.dt_low) },
    { "moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length",
      HL_INT(d_shared, 1, HL_MAX_WIDTH) },
    { 0 },
};

/* GGUF has neither the least dt nor the experts of a model that does not use them. */
static hl_status describe_nemotron_h(hl_config *config, const hl_fields *fields)
{
    char    act[HL_MAX_FIELD_TEXT] = "silu";
    int64_t inner                  = config->mixer.n_heads * config->mixer.d_head;
    int64_t latent                 = 0;

    HL_NEED(hl_fields_text(act, fields, "mamba_hidden_act", NULL));
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return hl_fail(HL_UNSUPPORTED, "%s: 'mamba_hidden_act' is '%s', wanted silu", fields->where,
                       act);
    HL_NEED(hl_fields_int(&latent, fields, "moe_latent_size", "moe_latent_size", 0, HL_MAX_WIDTH));
    if (latent > 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: 'moe_latent_size' is %lld: experts that work on a projection of their "
                       "input are not supported",
                       fields->where, (long long)latent);
    HL_NEED(hl_fields_int(&inner, fields, NULL, "ssm.inner_size", 1, HL_MAX_WIDTH));
    if (inner % config->mixer.n_heads != 0)
        return hl_fail(HL_BAD_INPUT, "%s: Mamba's width of %lld is not divisible by its %lld heads",
                       fields->where, (long long)inner, (long long)config->mixer.n_heads);
    config->mixer.d_head  = inner / config->mixer.n_heads;
    config->mixer.n_norms = config->mixer.n_groups;
    if (fields->object == NULL)
        config->mixer.dt_low = 0.0;
    if (fields->object == NULL && !hl_fields_have(fields, NULL, "expert_used_count"))
        config->n_experts = 0;
    return HL_OK;
}

/* Leaves only the part of the layer that its letter names; false for an unknown one. */
static bool keep_part(hl_config *config, int64_t layer, char letter)
{
    hl_layer_config *at = &config->layers[layer];

    if (letter == 'M')
        hl_config_put_mixer(config, layer);
    if (letter == '-' && config->n_experts > 0)
        hl_config_make_dense(config, layer);
    if (letter == '-' || letter == 'E') {
        at->mixer   = HL_MIXER_NONE;
        at->n_heads = at->n_kv_heads = 0;
    } else {
        at->d_mlp = at->n_experts = 0;
    }
    return letter == 'M' || letter == '-' || letter == '*' || (letter == 'E' && at->n_experts > 0);
}

static char letter_of_word(const char *word)
{
    static const struct {
        const char *word;
        char        letter;
    } words[] = {
        { "linear_attention", 'M' }, { "mamba", 'M' },     { "mlp", '-' },
        { "full_attention", '*' },   { "attention", '*' }, { "moe", 'E' },
    };

    for (size_t i = 0; i < sizeof words / sizeof *words && word != NULL; i++) {
        if (strcmp(word, words[i].word) == 0)
            return words[i].letter;
    }
    return '?';
}

/* The letter of a layer: by a list of words, by a pattern such as "M-M*-E", or in GGUF by what the
 * layer has. */
static char letter_of_layer(const hl_config *config, const hl_fields *fields, int64_t layer)
{
    static const char *const keys[] = { "layers_block_type", "layer_types" };
    const char              *pattern =
        json_string_value(json_object_get(fields->object, "hybrid_override_pattern"));
    char name[64];

    if (fields->object == NULL) {
        snprintf(name, sizeof name, "blk.%lld.ffn_gate_inp.weight", (long long)layer);
        if (hl_fields_have_tensor(fields, name))
            return 'E';
        snprintf(name, sizeof name, "blk.%lld.ffn_up.weight", (long long)layer);
        if (hl_fields_have_tensor(fields, name))
            return '-';
        return config->layers[layer].mixer != HL_MIXER_NONE ? 'M' : '*';
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *list = json_object_get(fields->object, keys[i]);

        if (json_is_array(list))
            return letter_of_word(json_string_value(json_array_get(list, (size_t)layer)));
    }
    return pattern != NULL ? pattern[layer] : '?';
}

static hl_status layers_nemotron_h(hl_config *config, const hl_fields *fields)
{
    bool mixes = false;

    for (int64_t i = 0; i < config->n_layers; i++) {
        char letter = letter_of_layer(config, fields, i);
        char name[64];

        if (!keep_part(config, i, letter))
            return hl_fail(HL_UNSUPPORTED,
                           "%s: layer %lld is neither mamba, attention, mlp nor moe: "
                           "'layers_block_type' or 'hybrid_override_pattern' has to say which",
                           fields->where, (long long)i);
        mixes = mixes || letter == 'E';
        snprintf(name, sizeof name, "blk.%lld.ffn_up.weight", (long long)i);
        if (letter == '-' && fields->object == NULL)
            config->layers[i].d_mlp = hl_fields_tensor_size(fields, name, 0);
    }
    if (!mixes)
        config->n_experts = 0;
    return HL_OK;
}

const hl_family hl_family_nemotron_h = {
    .name          = "nemotron_h",
    .model_types   = "nemotron_h",
    .architectures = "nemotron_h|nemotron_h_moe",
    .prefixes      = "backbone.|model.|",
    .defaults      = { .norm           = HL_NORM_RMS,
                       .norm_eps       = 1e-5,
                       .d_head         = 128,
                       .activation     = HL_ACTIVATION_RELU_SQUARED,
                       .biases         = HL_BIAS_CONV,
                       .n_experts      = 8,
                       .n_experts_used = 2,
                       .d_expert       = 7688,
                       .d_shared       = 7688,
                       .router         = { HL_ROUTER_DEEPSEEK },
                       .mixer          = { .kind     = HL_MIXER_MAMBA2,
                                           .n_heads  = 128,
                                           .d_head   = 64,
                                           .n_groups = 8,
                                           .d_state  = 128,
                                           .width    = 4,
                                           .dt_low   = 0.001 } },
    .fields        = nemotron_h_fields,
    .describe      = describe_nemotron_h,
    .layers        = layers_nemotron_h,
    .tensors       = { nemotron_h_tensors, hl_llama_tensors },
    .gguf          = { nemotron_h_gguf_tensors, hl_gguf_paired_tensors },
};

/* ----------------------------------------------------------------------------------------- jamba */

static const hl_family_tensor jamba_tensors[] = {
    { HL_ROLE_MIX_DT_BIAS, "layers.*.mamba.dt_proj.bias", HL_STORED_BARE },
    { HL_ROLE_MIX_DT, "layers.*.mamba.dt_proj", 0 },
    { HL_ROLE_MIX_X, "layers.*.mamba.x_proj", 0 },
    { HL_ROLE_MIX_DT_NORM, "layers.*.mamba.dt_layernorm", 0 },
    { HL_ROLE_MIX_K_NORM, "layers.*.mamba.b_layernorm", 0 },
    { HL_ROLE_MIX_Q_NORM, "layers.*.mamba.c_layernorm", 0 },
    { HL_ROLE_ROUTER, "layers.*.feed_forward.router", 0 },
    { HL_ROLE_EXPERT_GATE, "layers.*.feed_forward.experts.*.gate_proj", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.feed_forward.experts.*.up_proj", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.*.down_proj", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.feed_forward.experts.gate_up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.down_proj", HL_STORED_BARE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field jamba_fields[] = {
    MAMBA_FIELDS,
    { "num_experts|num_local_experts", "expert_count", HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "num_experts_per_tok", "expert_used_count", HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { "mamba_proj_bias", NULL, HL_BIASES(HL_BIAS_MIX_IN | HL_BIAS_MIX_OUT) },
    { NULL, "ssm.inner_size", HL_INT(mixer.d_head, 1, HL_MAX_WIDTH) },
    { NULL, "ssm.time_step_rank", HL_INT(mixer.d_step, 1, HL_MAX_WIDTH) },
    { 0 },
};

static hl_status describe_jamba(hl_config *config, const hl_fields *fields)
{
    const char *rank   = "mamba_dt_rank";
    int64_t     expand = 2;

    HL_NEED(hl_fields_int(&expand, fields, "mamba_expand", NULL, 1, 64));
    if (config->mixer.d_head == 0)
        config->mixer.d_head = expand * config->d_model;
    if (config->mixer.d_step == 0)
        config->mixer.d_step = (config->d_model + 15) / 16;
    if (!json_is_string(json_object_get(fields->object, rank))) /* "auto" is the default */
        HL_NEED(hl_fields_int(&config->mixer.d_step, fields, rank, NULL, 1, HL_MAX_WIDTH));
    if (config->n_experts == 1)
        config->n_experts = 0;
    return HL_OK;
}

/* Is the layer the one of every period that has something special? */
static hl_status read_period(bool *out, const hl_config *config, const hl_fields *fields,
                             const char *key_of_period, const char *key_of_offset, int64_t period,
                             int64_t offset)
{
    HL_NEED(hl_fields_int(&period, fields, key_of_period, NULL, 1, HL_MAX_LAYERS));
    HL_NEED(hl_fields_int(&offset, fields, key_of_offset, NULL, 0, period - 1));
    for (int64_t i = 0; i < config->n_layers; i++)
        out[i] = i % period == offset;
    return HL_OK;
}

static hl_status layers_jamba(hl_config *config, const hl_fields *fields)
{
    bool attends[HL_MAX_LAYERS], mixes[HL_MAX_LAYERS];
    char name[64];

    HL_NEED(read_period(attends, config, fields, "attn_layer_period", "attn_layer_offset", 8, 4));
    HL_NEED(read_period(mixes, config, fields, "expert_layer_period", "expert_layer_offset", 2, 1));
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (fields->object == NULL) { /* the number of KV heads has said which layers attend */
            snprintf(name, sizeof name, "blk.%lld.ffn_gate_inp.weight", (long long)i);
            mixes[i] = hl_fields_have_tensor(fields, name);
        } else if (!attends[i] && !hl_fields_have(fields, "layer_types", NULL)) {
            hl_config_put_mixer(config, i);
        }
        if (!mixes[i] || config->n_experts == 0)
            hl_config_make_dense(config, i);
    }
    return HL_OK;
}

const hl_family hl_family_jamba = {
    .name          = "jamba",
    .model_types   = "jamba",
    .architectures = "jamba",
    .prefixes      = "model.|",
    .defaults      = { .norm           = HL_NORM_RMS,
                       .norm_eps       = 1e-6,
                       .activation     = HL_ACTIVATION_SILU,
                       .gated          = true,
                       .biases         = HL_BIAS_CONV,
                       .n_experts      = 16,
                       .n_experts_used = 2,
                       .mixer          = { .kind = HL_MIXER_MAMBA, .d_state = 16, .width = 4 } },
    .fields        = jamba_fields,
    .describe      = describe_jamba,
    .layers        = layers_jamba,
    .tensors       = { jamba_tensors, mamba_tensors, forward_tensors, hl_llama_tensors },
};
