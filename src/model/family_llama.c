/* family_llama.c - Llama, Mistral, Ministral 3, Mixtral, SmolLM3, Granite (dense and as a mixture),
 * Arcee, Apertus, CWM, Helium, Hunyuan, Seed-OSS, DeciLM, Nemotron 3 and 4 (Minitron).
 *
 * RMSNorm before the branches, rotary positions, grouped KV heads, gated MLPs.  Half of all
 * families are variants of this with small changes; their tables list llama's names after their
 * own.  llama.cpp's converter puts the rotary pairs of q and k side by side; Hugging Face keeps
 * them half a head apart. */
#include <math.h>

#include "base/status.h"
#include "model/family.h"

const hl_family_tensor hl_llama_tensors[] = {
    { HL_ROLE_EMBED, "embed_tokens", 0 },
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", 0 },
    { HL_ROLE_ATTN_Q, "layers.*.self_attn.q_proj", 0 },
    { HL_ROLE_ATTN_K, "layers.*.self_attn.k_proj", 0 },
    { HL_ROLE_ATTN_V, "layers.*.self_attn.v_proj", 0 },
    { HL_ROLE_Q_NORM, "layers.*.self_attn.q_norm", 0 },
    { HL_ROLE_K_NORM, "layers.*.self_attn.k_norm", 0 },
    { HL_ROLE_ATTN_O, "layers.*.self_attn.o_proj", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", 0 },
    { HL_ROLE_MLP_GATE, "layers.*.mlp.gate_proj", 0 },
    { HL_ROLE_MLP_UP, "layers.*.mlp.up_proj", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.mlp.down_proj", 0 },
    { HL_ROLE_FINAL_NORM, "norm", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

const hl_family_tensor hl_gguf_paired_tensors[] = {
    { HL_ROLE_ATTN_Q, "blk.*.attn_q", HL_STORED_PAIRED },
    { HL_ROLE_ATTN_K, "blk.*.attn_k", HL_STORED_PAIRED },
    { HL_ROLE_ATTN_QKV, "blk.*.attn_qkv", HL_STORED_PAIRED },
    HL_FAMILY_TENSORS_END,
};

/* llama2.c's files have Hugging Face's names and llama.cpp's order of rows. */
const hl_family_tensor hl_llama2c_tensors[] = {
    { HL_ROLE_ATTN_Q, "layers.*.self_attn.q_proj", HL_STORED_PAIRED },
    { HL_ROLE_ATTN_K, "layers.*.self_attn.k_proj", HL_STORED_PAIRED },
    HL_FAMILY_TENSORS_END,
};

/* GGUF files of the architecture "llama" may hold experts. */
static const hl_field llama_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { NULL, "attention.sliding_window", HL_INT(window, 0, HL_MAX_CONTEXT) },
    { NULL, "expert_count", HL_INT(n_experts, 0, HL_MAX_EXPERTS) },
    { NULL, "expert_used_count", HL_INT(n_experts_used, 0, HL_MAX_EXPERTS) },
    { 0 },
};

static hl_status describe_llama(hl_config *config, const hl_fields *fields)
{
    (void)fields;
    if (config->n_experts > 0) {
        config->family        = hl_family_mixtral.name;
        config->router.normed = true;
    }
    return HL_OK;
}

const hl_family hl_family_llama = {
    .name          = "llama",
    .model_types   = "llama",
    .architectures = "llama",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 10000), .n_ctx = 2048 },
    .fields        = llama_fields,
    .describe      = describe_llama,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* ------------------------------------------------------------------------------ mistral, mixtral */

static const hl_field mistral_fields[] = {
    { "sliding_window", NULL, HL_INT_OR_NULL(window, 1, HL_MAX_CONTEXT) },
    { "num_local_experts", NULL, HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "num_experts_per_tok", NULL, HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { 0 },
};

const hl_family hl_family_mistral = {
    .name        = "mistral",
    .model_types = "mistral",
    .prefixes    = "model.|",
    .defaults    = { HL_LLAMA_DEFAULTS(1e-6, 10000), .window = 4096 },
    .fields      = mistral_fields,
    .tensors     = { hl_llama_tensors },
};

/* Ministral 3 scales its queries by the logarithm of the position.  GGUF has the stretch of the
 * angles as yarn_log_multiplier. */
static const hl_field ministral3_fields[] = {
    { "sliding_window", "attention.sliding_window", HL_INT_OR_NULL(window, 0, HL_MAX_CONTEXT) },
    { NULL, "attention.temperature_scale", HL_DOUBLE(temper) },
    { 0 },
};

static hl_status describe_ministral3(hl_config *config, const hl_fields *fields)
{
    hl_rope *rope     = &config->ropes[HL_ROPE_MAIN];
    double   multiple = 0.0;

    HL_NEED(hl_fields_double(&multiple, fields, NULL, "rope.scaling.yarn_log_multiplier"));
    if (multiple != 0.0 && rope->kind == HL_ROPE_YARN && rope->factor > 1.0)
        rope->attention_factor =
            (0.1 * log(rope->factor) + 1.0) / (0.1 * multiple * log(rope->factor) + 1.0);
    return HL_OK;
}

const hl_family hl_family_ministral3 = {
    .name          = "ministral3",
    .model_types   = "ministral3",
    .architectures = "mistral3",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-5, 1e6) },
    .fields        = ministral3_fields,
    .describe      = describe_ministral3,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* One tensor per expert, with the old name of the module or the new one.  Newer code stacks experts
 * in memory, and some files are written that way. */
static const hl_family_tensor mixtral_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.block_sparse_moe.gate|layers.*.mlp.gate", 0 },
    { HL_ROLE_EXPERT_GATE, "layers.*.block_sparse_moe.experts.*.w1|layers.*.mlp.experts.*.w1", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.block_sparse_moe.experts.*.w3|layers.*.mlp.experts.*.w3", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.block_sparse_moe.experts.*.w2|layers.*.mlp.experts.*.w2", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.mlp.experts.gate_up_proj", HL_STORED_BARE },
    { HL_ROLE_EXPERT_DOWN, "layers.*.mlp.experts.down_proj", HL_STORED_BARE },
    HL_FAMILY_TENSORS_END,
};

const hl_family hl_family_mixtral = {
    .name        = "mixtral",
    .model_types = "mixtral",
    .prefixes    = "model.|",
    .defaults    = { HL_LLAMA_DEFAULTS(1e-5, 1e6), .n_experts = 8, .n_experts_used = 2,
                     .router = { .normed = true } },
    .fields      = mistral_fields,
    .tensors     = { mixtral_tensors, hl_llama_tensors },
    .gguf        = { hl_gguf_paired_tensors },
};

/* --------------------------------------------------------------------------------------- smollm3 */

static const hl_field smollm3_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { "sliding_window", NULL, HL_INT_OR_NULL(window, 1, HL_MAX_CONTEXT) },
    { 0 },
};

static hl_status describe_smollm3(hl_config *config, const hl_fields *fields)
{
    bool      windowed = false;
    hl_status status   = hl_fields_bool(&windowed, fields, "use_sliding_window", NULL);

    if (!windowed)
        config->window = 0;
    return status;
}

/* Every fourth layer does not rotate q and k; a list (1: rotate) overrides this.  If windows are
 * used, the layers that do not rotate have one. */
static hl_status layers_smollm3(hl_config *config, const hl_fields *fields)
{
    int64_t interval = 4;
    int64_t turns[HL_MAX_LAYERS];
    bool    listed = false;
    bool    typed  = hl_fields_have(fields, "layer_types", NULL);

    HL_NEED(hl_fields_int(&interval, fields, "no_rope_layer_interval", NULL, 1, HL_MAX_LAYERS));
    HL_NEED(
        hl_fields_ints(turns, &listed, fields, "no_rope_layers", NULL, (size_t)config->n_layers));
    for (int64_t i = 0; i < config->n_layers; i++) {
        bool turn              = listed ? turns[i] != 0 : (i + 1) % interval != 0;
        config->layers[i].rope = turn ? HL_ROPE_MAIN : HL_ROPE_NONE;
        if (!typed)
            config->layers[i].is_local = !turn && config->window > 0;
    }
    return HL_OK;
}

const hl_family hl_family_smollm3 = {
    .name          = "smollm3",
    .model_types   = "smollm3",
    .architectures = "smollm3",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 2e6), .tied = true },
    .fields        = smollm3_fields,
    .describe      = describe_smollm3,
    .layers        = layers_smollm3,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* --------------------------------------------------------------------------------------- granite */

/* attention_multiplier is the scale itself; logits are divided by logits_scaling. */
#define GRANITE_FIELDS                                                                             \
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },                                \
        { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },                                              \
        { "attention_multiplier", "attention.scale", HL_DOUBLE(attn_scale) },                      \
        { "embedding_multiplier", "embedding_scale", HL_DOUBLE(embed_scale) },                     \
        { "residual_multiplier", "residual_scale", HL_DOUBLE(residual_scale) },                    \
    {                                                                                              \
        "logits_scaling", "logit_scale", HL_INVERSE(logit_scale)                                   \
    }

static const hl_field granite_fields[] = {
    GRANITE_FIELDS,
    { 0 },
};

const hl_family hl_family_granite = {
    .name          = "granite",
    .model_types   = "granite",
    .architectures = "granite",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 10000), .attn_scale = 1.0 },
    .fields        = granite_fields,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* The experts of a layer are two tensors, gate before up. */
static const hl_family_tensor granitemoe_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.block_sparse_moe.router.layer", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.block_sparse_moe.input_linear", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.block_sparse_moe.output_linear", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field granitemoe_fields[] = {
    GRANITE_FIELDS,
    { "num_local_experts", "expert_count", HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "num_experts_per_tok", "expert_used_count", HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { 0 },
};

const hl_family hl_family_granitemoe = {
    .name          = "granitemoe",
    .model_types   = "granitemoe",
    .architectures = "granitemoe",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 10000), .attn_scale = 1.0, .n_experts = 8,
                       .n_experts_used = 2, .router = { .normed = true } },
    .fields        = granitemoe_fields,
    .tensors       = { granitemoe_tensors, hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* ----------------------------------------------------------------------------------------- arcee */

static const hl_field biases_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { 0 },
};

/* No gate: down(relu(up x)^2). */
const hl_family hl_family_arcee = {
    .name          = "arcee",
    .model_types   = "arcee",
    .architectures = "arcee",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm       = HL_NORM_RMS,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_RELU_SQUARED },
    .fields        = biases_fields,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* --------------------------------------------------------------------------------------- apertus */

/* Norms of q and k, and no gate: down(xielu(up x)), with numbers of its own in every layer. */
static const hl_family_tensor apertus_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.attention_layernorm", 0 },
    { HL_ROLE_MLP_NORM, "layers.*.feedforward_layernorm", 0 },
    { HL_ROLE_XIELU_P, "layers.*.mlp.act_fn.alpha_p", HL_STORED_BARE },
    { HL_ROLE_XIELU_N, "layers.*.mlp.act_fn.alpha_n", HL_STORED_BARE },
    { HL_ROLE_XIELU_B, "layers.*.mlp.act_fn.beta", HL_STORED_BARE },
    { HL_ROLE_XIELU_E, "layers.*.mlp.act_fn.eps", HL_STORED_BARE },
    HL_FAMILY_TENSORS_END,
};

/* Where files have no numbers, they are those of a new model. */
static hl_status layers_apertus(hl_config *config, const hl_fields *fields)
{
    static const char *const keys[]     = { "=xielu.alpha_p", "=xielu.alpha_n", "=xielu.beta",
                                            "=xielu.eps" };
    static const double      defaults[] = { 0.5414, 0.5414, 0.5, -1e-6 };
    double                   values[HL_MAX_LAYERS];

    for (int i = 0; i < HL_ACTIVATION_NUMBERS; i++) {
        bool found = false;

        HL_NEED(hl_fields_doubles(values, &found, fields, NULL, keys[i], (size_t)config->n_layers));
        for (int64_t layer = 0; layer < config->n_layers; layer++)
            config->layers[layer].numbers[i] = (float)(found ? values[layer] : defaults[i]);
    }
    return HL_OK;
}

const hl_family hl_family_apertus = {
    .name          = "apertus",
    .model_types   = "apertus",
    .architectures = "apertus",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 12e6 } },
                       .norm       = HL_NORM_RMS,
                       .norm_eps   = 1e-5,
                       .qk_norm    = HL_HEAD_NORM_SHARED,
                       .activation = HL_ACTIVATION_XIELU },
    .fields        = biases_fields,
    .layers        = layers_apertus,
    .tensors       = { apertus_tensors, hl_llama_tensors },
};

/* --------------------------------------------------------------------------------------- hunyuan */

/* The norms of q and k follow RoPE. */
static const hl_family_tensor hunyuan_tensors[] = {
    { HL_ROLE_Q_NORM, "layers.*.self_attn.query_layernorm", 0 },
    { HL_ROLE_K_NORM, "layers.*.self_attn.key_layernorm", 0 },
    HL_FAMILY_TENSORS_END,
};

const hl_family hl_family_hunyuan_v1_dense = {
    .name        = "hunyuan_v1_dense",
    .model_types = "hunyuan_v1_dense",
    .prefixes    = "model.|",
    .defaults    = { HL_LLAMA_DEFAULTS(1e-5, 10000), .qk_norm = HL_HEAD_NORM_SHARED,
                     .qk_norm_last = true },
    .fields      = biases_fields,
    .tensors     = { hunyuan_tensors, hl_llama_tensors },
};

/* Every layer is a mixture beside a shared expert.  Counts may be lists with an entry per layer. */
static const hl_family_tensor hunyuan_moe_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.mlp.gate.wg", 0 },
    { HL_ROLE_SHARED_GATE, "layers.*.mlp.shared_mlp.gate_proj", 0 },
    { HL_ROLE_SHARED_UP, "layers.*.mlp.shared_mlp.up_proj", 0 },
    { HL_ROLE_SHARED_DOWN, "layers.*.mlp.shared_mlp.down_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field hunyuan_moe_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "num_experts", NULL, HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "moe_topk", NULL, HL_COUNT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { "num_shared_expert", NULL, HL_COUNT(n_shared, 0, HL_MAX_EXPERTS) },
    { 0 },
};

const hl_family hl_family_hunyuan_v1_moe = {
    .name        = "hunyuan_v1_moe",
    .model_types = "hunyuan_v1_moe",
    .prefixes    = "model.|",
    .defaults    = { HL_LLAMA_DEFAULTS(1e-5, 10000), .qk_norm = HL_HEAD_NORM_SHARED,
                     .qk_norm_last = true, .n_experts = 1, .n_experts_used = 1, .n_shared = 1,
                     .router = { .normed = true } },
    .fields      = hunyuan_moe_fields,
    .tensors     = { hunyuan_tensors, hunyuan_moe_tensors, hl_experts_tensors, hl_llama_tensors },
};

/* ------------------------------------------------------------------------------------------- cwm */

static const hl_field cwm_fields[] = {
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { "sliding_window", NULL, HL_INT_OR_NULL(window, 1, HL_MAX_CONTEXT) },
    { 0 },
};

/* Windows, except in the first of every four layers. */
const hl_family hl_family_cwm = {
    .name        = "cwm",
    .model_types = "cwm",
    .prefixes    = "model.|",
    .defaults = { HL_LLAMA_DEFAULTS(1e-5, 1e6), .d_head = 128, .window = 8192, .window_period = 4,
                  .full_first = true },
    .fields   = cwm_fields,
    .tensors  = { hl_llama_tensors },
};

/* ---------------------------------------------------------------------------------------- helium */

/* Rotary pairs lie side by side.  The output projection has no bias. */
static const hl_field helium_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { 0 },
};

const hl_family hl_family_helium = {
    .name        = "helium",
    .model_types = "helium",
    .prefixes    = "model.|",
    .defaults    = { .position   = HL_POSITION_ROPE,
                     .ropes      = { [HL_ROPE_MAIN] = { .base = 1e5, .interleaved = true } },
                     .d_head     = 128,
                     .norm       = HL_NORM_RMS,
                     .norm_eps   = 1e-8,
                     .activation = HL_ACTIVATION_SILU,
                     .gated      = true },
    .fields      = helium_fields,
    .tensors     = { hl_llama_tensors },
};

/* ---------------------------------------------------------------------------------------- bitnet */

/* The gate is relu(x)^2, and the last map of each branch reads through a norm.  Files with packed
 * weights of 1.58 bits are refused as quantized. */
static const hl_family_tensor bitnet_tensors[] = {
    { HL_ROLE_ATTN_Z_NORM, "layers.*.self_attn.attn_sub_norm", 0 },
    { HL_ROLE_MLP_INNER_NORM, "layers.*.mlp.ffn_sub_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

const hl_family hl_family_bitnet = {
    .name        = "bitnet",
    .model_types = "bitnet",
    .prefixes    = "model.|",
    .defaults    = { .position    = HL_POSITION_ROPE,
                     .ropes       = { [HL_ROPE_MAIN] = { .base = 500000 } },
                     .norm        = HL_NORM_RMS,
                     .norm_eps    = 1e-5,
                     .inner_norms = true,
                     .activation  = HL_ACTIVATION_RELU_SQUARED,
                     .gated       = true },
    .fields      = biases_fields,
    .tensors     = { bitnet_tensors, hl_llama_tensors },
};

/* -------------------------------------------------------------------------------------- seed_oss */

static const hl_field seed_oss_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV) },
    { "attention_out_bias", NULL, HL_BIASES(HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { 0 },
};

static const hl_family_tensor seed_oss_gguf_tensors[] = {
    { HL_ROLE_MLP_NORM, "blk.*.post_attention_norm|blk.*.ffn_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

const hl_family hl_family_seed_oss = {
    .name          = "seed_oss",
    .model_types   = "seed_oss",
    .architectures = "seed_oss",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 10000), .d_head = 128, .biases = HL_BIAS_QKV },
    .fields        = seed_oss_fields,
    .tensors       = { hl_llama_tensors },
    .gguf          = { seed_oss_gguf_tensors },
};

/* ------------------------------------------------------------------------------------------ deci */

/* DeciLM (Nemotron-NAS) is a Llama whose layers differ in size.
 *
 * A search removed heads, whole attentions and MLPs where they were not needed.  GGUF has lists of
 * head_count, head_count_kv and feed_forward_length.  config.json has block_configs: for each layer
 * the number of queries per KV head, and the width of the MLP in units of the model's width.  It
 * is also the form in which other programs load pruned models. */

/* 2/3 of ffn_mult times the width, rounded up to a multiple of 256. */
static int64_t deci_mlp_width(double multiple, int64_t d_model)
{
    int64_t width = (int64_t)(2.0 * multiple * (double)d_model / 3.0);
    return (width + 255) / 256 * 256;
}

static hl_status read_deci_attention(hl_layer_config *layer, const json_t *object,
                                     const char *where)
{
    hl_fields fields  = { .where = where, .object = object, .outer = object };
    bool      nothing = false;
    bool      linear  = false;
    int64_t   group   = 0;

    HL_NEED(hl_fields_bool(&nothing, &fields, "no_op", NULL));
    HL_NEED(hl_fields_bool(&linear, &fields, "replace_with_linear", NULL));
    HL_NEED(hl_fields_int(&group, &fields, "n_heads_in_group", NULL, 1, HL_MAX_HEADS));
    if (nothing)
        layer->n_heads = layer->n_kv_heads = 0;
    else if (linear)
        layer->n_kv_heads = 0; /* config.c refuses 0 and names the field */
    else if (group == 0 || layer->n_heads % group != 0)
        return hl_fail(HL_BAD_INPUT, "%s: 'n_heads_in_group' is %lld, wanted a divisor of %lld",
                       where, (long long)group, (long long)layer->n_heads);
    else
        layer->n_kv_heads = layer->n_heads / group;
    return HL_OK;
}

static hl_status read_deci_mlp(hl_layer_config *layer, const json_t *object, int64_t d_model,
                               const char *where)
{
    hl_fields fields   = { .where = where, .object = object, .outer = object };
    bool      nothing  = false;
    bool      linear   = false;
    double    multiple = 0.0;

    HL_NEED(hl_fields_bool(&nothing, &fields, "no_op", NULL));
    HL_NEED(hl_fields_bool(&linear, &fields, "replace_with_linear", NULL));
    HL_NEED(hl_fields_double(&multiple, &fields, "ffn_mult", NULL));
    if (linear)
        return hl_fail(HL_UNSUPPORTED, "%s: an MLP replaced with a linear map is not supported",
                       where);
    if (!nothing && !(multiple > 0.0 && multiple < 64.0))
        return hl_fail(HL_BAD_INPUT, "%s: 'ffn_mult' is %g, wanted more than 0, below 64", where,
                       multiple);
    layer->d_mlp = nothing ? 0 : deci_mlp_width(multiple, d_model);
    return HL_OK;
}

/* Drops layers without an MLP, as llama.cpp does. */
static void drop_empty(hl_config *config)
{
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (config->layers[i].d_mlp == 0)
            config->layers[i].n_heads = config->layers[i].n_kv_heads = 0;
    }
}

static hl_status layers_deci(hl_config *config, const hl_fields *fields)
{
    const json_t *blocks = json_object_get(fields->object, "block_configs");

    if (fields->object == NULL)
        drop_empty(config);
    if (blocks == NULL)
        return HL_OK;
    if (json_array_size(blocks) != (size_t)config->n_layers)
        return hl_fail(HL_BAD_INPUT, "%s: 'block_configs' has %zu entries, wanted %lld",
                       fields->where, json_array_size(blocks), (long long)config->n_layers);
    for (int64_t i = 0; i < config->n_layers; i++) {
        const json_t    *block = json_array_get(blocks, (size_t)i);
        hl_layer_config *layer = &config->layers[i];
        HL_NEED(read_deci_attention(layer, json_object_get(block, "attention"), fields->where));
        HL_NEED(
            read_deci_mlp(layer, json_object_get(block, "ffn"), config->d_model, fields->where));
    }
    return HL_OK;
}

const hl_family hl_family_deci = {
    .name          = "deci",
    .model_types   = "deci|nemotron-nas",
    .architectures = "deci",
    .prefixes      = "model.|",
    .defaults      = { .position   = HL_POSITION_ROPE,
                       .ropes      = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm       = HL_NORM_RMS,
                       .norm_eps   = 1e-5,
                       .activation = HL_ACTIVATION_SILU,
                       .gated      = true },
    .fields        = biases_fields,
    .layers        = layers_deci,
    .tensors       = { hl_llama_tensors },
    .gguf          = { hl_gguf_paired_tensors },
};

/* ---------------------------------------------------------------------- Nemotron
 *
 * LayerNorm whose weights are stored as their distance from 1 (llama.cpp's converter adds the 1), and
 * an MLP without a gate, with squared ReLU. */

static const hl_family_tensor nemotron_tensors[] = {
    { HL_ROLE_ATTN_NORM, "layers.*.input_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_MLP_NORM, "layers.*.post_attention_layernorm", HL_STORED_MINUS_ONE },
    { HL_ROLE_FINAL_NORM, "norm", HL_STORED_MINUS_ONE },
    HL_FAMILY_TENSORS_END,
};

static const hl_field nemotron_fields[] = {
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "mlp_bias", NULL, HL_BIASES(HL_BIAS_MLP) },
    { "rope_percent", NULL, HL_DOUBLE(rotary_fraction) },
    { 0 },
};

const hl_family hl_family_nemotron = {
    .name          = "nemotron",
    .model_types   = "nemotron",
    .architectures = "nemotron",
    .prefixes      = "model.|",
    .defaults      = { .position        = HL_POSITION_ROPE,
                       .ropes           = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .rotary_fraction = 0.5,
                       .norm_eps        = 1e-5,
                       .activation      = HL_ACTIVATION_RELU_SQUARED,
                       .biases          = HL_BIAS_NORM },
    .fields        = nemotron_fields,
    .tensors       = { nemotron_tensors, hl_llama_tensors },
};
