/* family_qwen.c - Qwen2, Qwen3, Qwen3-Next and Qwen3.5, dense and as mixtures of experts.
 *
 * Qwen2 is Llama with biases on q, k and v; Qwen3 drops them and norms every head of q and k.
 * Windows are off unless use_sliding_window says so; each of these four has its own rule for the
 * layers that have one.  Qwen3-Next and Qwen3.5 have gated attention in one layer of four and the
 * gated delta rule in the others. */
#include "base/status.h"
#include "model/family.h"

#define QWEN_DEFAULTS                                                                              \
    .position = HL_POSITION_ROPE, .ropes = { [HL_ROPE_MAIN] = { .base = 10000 } },                 \
    .norm = HL_NORM_RMS, .norm_eps = 1e-6, .activation = HL_ACTIVATION_SILU, .gated = true,        \
    .window = 4096

static const hl_field qwen_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "sliding_window", NULL, HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { 0 },
};

static hl_status describe_qwen(hl_config *config, const hl_fields *fields)
{
    bool      windowed = false;
    hl_status status   = hl_fields_bool(&windowed, fields, "use_sliding_window", NULL);

    if (!windowed)
        config->window = 0;
    return status;
}

/* The first max_window_layers are full. */
static hl_status layers_qwen(hl_config *config, const hl_fields *fields)
{
    int64_t   n_full = 28;
    hl_status status = hl_fields_int(&n_full, fields, "max_window_layers", NULL, 0, HL_MAX_CONTEXT);

    if (status != HL_OK || hl_fields_have(fields, "layer_types", NULL))
        return status;
    for (int64_t i = 0; i < config->n_layers; i++)
        config->layers[i].is_local = i >= n_full;
    return HL_OK;
}

static const hl_field qwen2_fields[] = {
    { "sliding_window", NULL, HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { 0 },
};

const hl_family hl_family_qwen2 = {
    .name          = "qwen2",
    .model_types   = "qwen2|qwen2_vl_text|qwen2_5_vl_text|qwen2_vl|qwen2_5_vl",
    .architectures = "qwen2|qwen2vl",
    .prefixes      = "model.|",
    .defaults      = { QWEN_DEFAULTS, .biases = HL_BIAS_QKV },
    .fields        = qwen2_fields,
    .describe      = describe_qwen,
    .layers        = layers_qwen,
    .tensors       = { hl_llama_tensors },
};

const hl_family hl_family_qwen3 = {
    .name          = "qwen3",
    .model_types   = "qwen3|qwen3_vl_text|qwen3_vl",
    .architectures = "qwen3|qwen3vl",
    .prefixes      = "model.|",
    .defaults      = { QWEN_DEFAULTS, .d_head = 128, .qk_norm = HL_HEAD_NORM_SHARED },
    .fields        = qwen_fields,
    .describe      = describe_qwen,
    .layers        = layers_qwen,
    .tensors       = { hl_llama_tensors },
};

/* ------------------------------------------------------------------ mixtures */

const hl_family_tensor hl_experts_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.mlp.gate", 0 },
    { HL_ROLE_EXPERT_GATE, "layers.*.mlp.experts.*.gate_proj", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.mlp.experts.*.up_proj", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.mlp.experts.*.down_proj", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.mlp.experts.gate_up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.mlp.experts.down_proj", HL_STORED_BARE },
    { HL_ROLE_ROUTER_CORRECTION, "layers.*.mlp.gate.e_score_correction_bias", HL_STORED_BARE },
    { HL_ROLE_SHARED_ROUTER, "layers.*.mlp.shared_expert_gate", 0 },
    { HL_ROLE_SHARED_GATE,
      "layers.*.mlp.shared_expert.gate_proj|layers.*.mlp.shared_experts.gate_proj", 0 },
    { HL_ROLE_SHARED_UP, "layers.*.mlp.shared_expert.up_proj|layers.*.mlp.shared_experts.up_proj",
      0 },
    { HL_ROLE_SHARED_DOWN,
      "layers.*.mlp.shared_expert.down_proj|layers.*.mlp.shared_experts.down_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

#define MOE_FIELDS                                                                                 \
    { "num_experts|num_local_experts", "expert_count", HL_INT(n_experts, 1, HL_MAX_EXPERTS) },     \
        { "num_experts_per_tok", "expert_used_count", HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) }, \
    {                                                                                              \
        "moe_intermediate_size", "expert_feed_forward_length", HL_INT(d_expert, 1, HL_MAX_WIDTH)   \
    }
#define WINDOW_FIELD                                                                               \
    {                                                                                              \
        "sliding_window", NULL, HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT)                          \
    }
#define SHARED_FIELD                                                                               \
    {                                                                                              \
        "shared_expert_intermediate_size", "expert_shared_feed_forward_length",                    \
            HL_INT(d_shared, 1, HL_MAX_WIDTH)                                                      \
    }

/* Without norm_topk_prob, the weights of the chosen experts do not add up to 1. */
static hl_status describe_router(hl_config *config, const hl_fields *fields, bool normed)
{
    hl_status status = hl_fields_bool(&normed, fields, "norm_topk_prob", NULL);

    config->router.normed = normed;
    return status == HL_OK ? describe_qwen(config, fields) : status;
}

/* Every decoder_sparse_step-th layer is a mixture, unless mlp_only_layers lists it. */
static hl_status layers_moe(hl_config *config, const hl_fields *fields)
{
    const json_t *dense = json_object_get(fields->object, "mlp_only_layers");
    int64_t       step  = 1;

    HL_NEED(hl_fields_int(&step, fields, "decoder_sparse_step", NULL, 1, HL_MAX_LAYERS));
    for (int64_t i = 0; i < config->n_layers; i++) {
        if ((i + 1) % step != 0)
            hl_config_make_dense(config, i);
    }
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *entry = json_array_get(dense, i);
        json_int_t    layer = json_integer_value(entry);
        if (!json_is_integer(entry) || layer < 0 || layer >= config->n_layers)
            return hl_fail(HL_BAD_INPUT, "%s: 'mlp_only_layers' [%zu] is not a layer, 0 to %lld",
                           fields->where, i, (long long)config->n_layers - 1);
        hl_config_make_dense(config, layer);
    }
    return HL_OK;
}

static const hl_field qwen3_moe_fields[] = {
    MOE_FIELDS,
    WINDOW_FIELD,
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { 0 },
};

/* GGUF has no key for norm_topk_prob: llama.cpp normalizes in qwen3moe, but not in qwen2moe. */
static hl_status describe_qwen3_moe(hl_config *config, const hl_fields *fields)
{
    return describe_router(config, fields, fields->object == NULL);
}

const hl_family hl_family_qwen3_moe = {
    .name          = "qwen3_moe",
    .model_types   = "qwen3_moe",
    .architectures = "qwen3moe",
    .prefixes      = "model.|",
    .defaults      = { QWEN_DEFAULTS, .qk_norm = HL_HEAD_NORM_SHARED, .n_experts = 128,
                       .n_experts_used = 8, .d_expert = 768 },
    .fields        = qwen3_moe_fields,
    .describe      = describe_qwen3_moe,
    .layers        = layers_moe,
    .tensors       = { hl_experts_tensors, hl_llama_tensors },
};

static const hl_field qwen2_moe_fields[] = {
    MOE_FIELDS, WINDOW_FIELD, SHARED_FIELD, { "qkv_bias", NULL, HL_BIASES(HL_BIAS_QKV) }, { 0 },
};

static hl_status describe_qwen2_moe(hl_config *config, const hl_fields *fields)
{
    return describe_router(config, fields, false);
}

/* Even layers among the first max_window_layers have a window. */
static hl_status layers_qwen2_moe(hl_config *config, const hl_fields *fields)
{
    int64_t   n_first = 28;
    hl_status status =
        hl_fields_int(&n_first, fields, "max_window_layers", NULL, 0, HL_MAX_CONTEXT);

    for (int64_t i = 0; !hl_fields_have(fields, "layer_types", NULL) && i < config->n_layers; i++)
        config->layers[i].is_local = i % 2 == 0 && i < n_first;
    return status == HL_OK ? layers_moe(config, fields) : status;
}

const hl_family hl_family_qwen2_moe = {
    .name          = "qwen2_moe",
    .model_types   = "qwen2_moe",
    .architectures = "qwen2moe",
    .prefixes      = "model.|",
    .defaults      = { QWEN_DEFAULTS, .biases = HL_BIAS_QKV, .n_experts = 60, .n_experts_used = 4,
                       .d_expert = 1408, .d_shared = 5632, .shared_gated = true },
    .fields        = qwen2_moe_fields,
    .describe      = describe_qwen2_moe,
    .layers        = layers_qwen2_moe,
    .tensors       = { hl_experts_tensors, hl_llama_tensors },
};

/* ------------------------------------------------------------------ gated delta rule */

/* Norms are stored as what is added to 1, except that of a mixer.  A row of q_proj's heads is q,
 * then the gate. */
static const hl_family_tensor delta_tensors[] = {
    { HL_ROLE_FINAL_NORM, "norm", HL_STORED_MINUS_ONE },
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_norm", HL_STORED_MINUS_ONE },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_norm", HL_STORED_MINUS_ONE },
    { HL_ROLE_ATTN_Q_GATE, "layers.*.self_attn.q_proj", 0 },
    { HL_ROLE_MIX_QKVZ, "layers.*.linear_attn.in_proj_qkvz", 0 },
    { HL_ROLE_MIX_BA, "layers.*.linear_attn.in_proj_ba", 0 },
    { HL_ROLE_MIX_QKV, "layers.*.linear_attn.in_proj_qkv", 0 },
    { HL_ROLE_MIX_Z, "layers.*.linear_attn.in_proj_z", 0 },
    { HL_ROLE_MIX_B, "layers.*.linear_attn.in_proj_b", 0 },
    { HL_ROLE_MIX_A, "layers.*.linear_attn.in_proj_a", 0 },
    { HL_ROLE_MIX_CONV, "layers.*.linear_attn.conv1d", 0 },
    { HL_ROLE_MIX_DT_BIAS, "layers.*.linear_attn.dt_bias", HL_STORED_BARE },
    { HL_ROLE_MIX_DECAY, "layers.*.linear_attn.A_log", HL_STORED_BARE | HL_STORED_LOG },
    { HL_ROLE_MIX_NORM, "layers.*.linear_attn.norm", 0 },
    { HL_ROLE_MIX_OUT, "layers.*.linear_attn.out_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor delta_gguf_tensors[] = {
    { HL_ROLE_ATTN_Q_GATE, "blk.*.attn_q", 0 },
    { HL_ROLE_MLP_NORM, "blk.*.post_attention_norm|blk.*.ffn_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

#define DELTA_FIELDS                                                                               \
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },                                \
        { "linear_num_value_heads", "ssm.time_step_rank",                                          \
          HL_INT(mixer.n_heads, 1, HL_MAX_HEADS) },                                                \
        { "linear_num_key_heads", "ssm.group_count", HL_INT(mixer.n_groups, 1, HL_MAX_HEADS) },    \
        { "linear_value_head_dim", NULL, HL_INT(mixer.d_head, 1, HL_MAX_WIDTH) },                  \
        { "linear_key_head_dim", "ssm.state_size", HL_INT(mixer.d_state, 1, HL_MAX_STATE) },       \
    {                                                                                              \
        "linear_conv_kernel_dim", "ssm.conv_kernel", HL_INT(mixer.width, 1, HL_MAX_CONV)           \
    }

#define DELTA_DEFAULTS                                                                             \
    HL_LLAMA_DEFAULTS(1e-6, 10000), .d_head = 256, .rotary_fraction = 0.25, .attn_gated = true,    \
                                    .qk_norm = HL_HEAD_NORM_SHARED,                                \
                                    .mixer   = { .kind     = HL_MIXER_DELTA,                       \
                                                 .n_heads  = 32,                                   \
                                                 .n_groups = 16,                                   \
                                                 .d_head   = 128,                                  \
                                                 .d_state  = 128,                                  \
                                                 .width    = 4 }

/* GGUF has the width of all heads together. */
static hl_status describe_delta(hl_config *config, const hl_fields *fields)
{
    int64_t inner = config->mixer.n_heads * config->mixer.d_head;

    HL_NEED(hl_fields_int(&inner, fields, NULL, "ssm.inner_size", 1, HL_MAX_WIDTH));
    if (inner % config->mixer.n_heads != 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: 'ssm.inner_size' is %lld, wanted a multiple of %lld heads",
                       fields->where, (long long)inner, (long long)config->mixer.n_heads);
    config->mixer.d_head = inner / config->mixer.n_heads;
    return HL_OK;
}

/* The last of every four layers attends, unless a list says otherwise. */
static hl_status layers_delta(hl_config *config, const hl_fields *fields)
{
    const char *key      = "full_attention_interval";
    int64_t     interval = 4;

    HL_NEED(hl_fields_int(&interval, fields, key, key, 1, HL_MAX_LAYERS));
    for (int64_t i = 0; i < config->n_layers && !hl_fields_have(fields, "layer_types", NULL); i++) {
        if ((i + 1) % interval != 0)
            hl_config_put_mixer(config, i);
    }
    return HL_OK;
}

static const hl_field qwen3_5_fields[] = {
    DELTA_FIELDS,
    { 0 },
};

/* GGUF has the value heads in the order of their place in a group. */
static hl_status describe_qwen3_5(hl_config *config, const hl_fields *fields)
{
    config->mixer.is_tiled = fields->object == NULL;
    return describe_delta(config, fields);
}

const hl_family hl_family_qwen3_5 = {
    .name          = "qwen3_5",
    .model_types   = "qwen3_5|qwen3_5_text",
    .architectures = "qwen35",
    .prefixes      = "model.|",
    .defaults      = { DELTA_DEFAULTS },
    .fields        = qwen3_5_fields,
    .describe      = describe_qwen3_5,
    .layers        = layers_delta,
    .tensors       = { delta_tensors, hl_llama_tensors },
    .gguf          = { delta_gguf_tensors },
};

#define DELTA_MOE_DEFAULTS                                                                         \
    DELTA_DEFAULTS, .d_expert = 512, .d_shared = 512, .shared_gated = true,                        \
                    .router = { .normed = true }

static const hl_field qwen3_5_moe_fields[] = {
    DELTA_FIELDS,
    MOE_FIELDS,
    SHARED_FIELD,
    { 0 },
};

const hl_family hl_family_qwen3_5_moe = {
    .name          = "qwen3_5_moe",
    .model_types   = "qwen3_5_moe|qwen3_5_moe_text",
    .architectures = "qwen35moe",
    .prefixes      = "model.|",
    .defaults      = { DELTA_MOE_DEFAULTS, .n_experts = 256, .n_experts_used = 8 },
    .fields        = qwen3_5_moe_fields,
    .describe      = describe_qwen3_5,
    .layers        = layers_delta,
    .tensors       = { delta_tensors, hl_experts_tensors, hl_llama_tensors },
    .gguf          = { delta_gguf_tensors },
};

static const hl_field qwen3_next_fields[] = {
    DELTA_FIELDS, MOE_FIELDS, SHARED_FIELD, { "norm_topk_prob", NULL, HL_BOOL(router.normed) },
    { 0 },
};

static hl_status layers_qwen3_next(hl_config *config, const hl_fields *fields)
{
    HL_NEED(layers_delta(config, fields));
    return layers_moe(config, fields);
}

const hl_family hl_family_qwen3_next = {
    .name          = "qwen3_next",
    .model_types   = "qwen3_next",
    .architectures = "qwen3next",
    .prefixes      = "model.|",
    .defaults      = { DELTA_MOE_DEFAULTS, .n_experts = 512, .n_experts_used = 10 },
    .fields        = qwen3_next_fields,
    .describe      = describe_delta,
    .layers        = layers_qwen3_next,
    .tensors       = { delta_tensors, hl_experts_tensors, hl_llama_tensors },
    .gguf          = { delta_gguf_tensors },
};
