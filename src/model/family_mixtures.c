/* family_mixtures.c - mixtures of experts that do not vary a dense family: DBRX,
 * MiniMax-M2, Llama 4.
 *
 * Their attention is Llama's; they differ in the names of their tensors and in the router, whose
 * rules are in kernels/router.h. */
#include "base/status.h"
#include "model/family.h"

/* ------------------------------------------------------------------------------------------ dbrx */

/* LayerNorm without bias; the experts of a layer are three matrices, down as (in, out). */
static const hl_family_tensor dbrx_tensors[] = {
    { HL_ROLE_EMBED, "wte", 0 },
    { HL_ROLE_ATTN_NORM, "blocks.*.norm_attn_norm.norm_1", 0 },
    { HL_ROLE_ATTN_QKV, "blocks.*.norm_attn_norm.attn.Wqkv", 0 },
    { HL_ROLE_ATTN_O, "blocks.*.norm_attn_norm.attn.out_proj", 0 },
    { HL_ROLE_MLP_NORM, "blocks.*.norm_attn_norm.norm_2", 0 },
    { HL_ROLE_ROUTER, "blocks.*.ffn.router.layer", 0 },
    { HL_ROLE_EXPERT_GATE, "blocks.*.ffn.experts.mlp.w1", HL_STORED_BARE | HL_STORED_FLAT },
    { HL_ROLE_EXPERT_UP, "blocks.*.ffn.experts.mlp.v1", HL_STORED_BARE | HL_STORED_FLAT },
    { HL_ROLE_EXPERT_DOWN, "blocks.*.ffn.experts.mlp.w2",
      HL_STORED_BARE | HL_STORED_FLAT | HL_STORED_TRANSPOSED },
    { HL_ROLE_FINAL_NORM, "norm_f", 0 },
    { HL_ROLE_LM_HEAD, "lm_head", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor dbrx_gguf_tensors[] = {
    { HL_ROLE_MLP_NORM, "blk.*.attn_output_norm", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field dbrx_fields[] = {
    { NULL, "expert_count", HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { NULL, "expert_used_count", HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { NULL, "attention.clamp_kqv", HL_DOUBLE(qkv_limit) },
    { 0 },
};

static const hl_field dbrx_attn_fields[] = {
    { "kv_n_heads", NULL, HL_INT(n_kv_heads, 1, HL_MAX_HEADS) },
    { "clip_qkv", NULL, HL_DOUBLE_OR_NULL(qkv_limit) },
    { 0 },
};

static const hl_field dbrx_ffn_fields[] = {
    { "ffn_hidden_size", NULL, HL_INT(d_expert, 1, HL_MAX_WIDTH) },
    { "moe_num_experts", NULL, HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "moe_top_k", NULL, HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { 0 },
};

/* The weights are divided by their p-norm. */
static hl_status read_dbrx_norm(hl_config *config, const hl_fields *ffn)
{
    double    p      = hl_fields_have(ffn, "moe_normalize_expert_weights", NULL) ? 0.0 : 1.0;
    hl_status status = hl_fields_double(&p, ffn, "moe_normalize_expert_weights", NULL);
    bool      none   = json_is_null(json_object_get(ffn->object, "moe_normalize_expert_weights"));

    if (status == HL_OK && !none && p != 1.0)
        return hl_fail(HL_UNSUPPORTED, "%s: 'moe_normalize_expert_weights' is %g, wanted 1 or null",
                       ffn->where, p);
    config->router.normed = !none;
    return status;
}

/* config.json has attention and experts in objects of their own. */
static hl_status describe_dbrx(hl_config *config, const hl_fields *fields)
{
    const json_t         *attn    = json_object_get(fields->object, "attn_config");
    const json_t         *ffn     = json_object_get(fields->object, "ffn_config");
    const json_t         *act     = json_object_get(ffn, "ffn_act_fn");
    hl_fields             of_attn = { .where = fields->where, .object = attn, .outer = attn };
    hl_fields             of_ffn  = { .where = fields->where, .object = ffn, .outer = ffn };
    hl_fields             of_act  = { .where = fields->where, .object = act, .outer = act };
    static const hl_field name[]  = { { "name", NULL, HL_ACTIVATION(activation) }, { 0 } };

    if (fields->object == NULL)
        return HL_OK;
    HL_NEED(hl_fields_read(config, &of_attn, dbrx_attn_fields));
    if (!hl_fields_have(fields, "rope_parameters|rope_theta", NULL))
        HL_NEED(hl_fields_double(&config->ropes[HL_ROPE_MAIN].base, &of_attn, "rope_theta", NULL));
    config->d_expert = 3584;
    HL_NEED(hl_fields_read(config, &of_ffn, dbrx_ffn_fields));
    HL_NEED(hl_fields_read(config, &of_act, name));
    return read_dbrx_norm(config, &of_ffn);
}

const hl_family hl_family_dbrx = {
    .name          = "dbrx",
    .model_types   = "dbrx",
    .architectures = "dbrx",
    .prefixes      = "transformer.|",
    .defaults      = { .position       = HL_POSITION_ROPE,
                       .ropes          = { [HL_ROPE_MAIN] = { .base = 10000 } },
                       .norm_eps       = 1e-5,
                       .activation     = HL_ACTIVATION_SILU,
                       .gated          = true,
                       .n_experts      = 4,
                       .n_experts_used = 1,
                       .router         = { .normed = true } },
    .fields        = dbrx_fields,
    .describe      = describe_dbrx,
    .tensors       = { dbrx_tensors },
    .gguf          = { dbrx_gguf_tensors },
};

/* ------------------------------------------------------------------------------------ minimax_m2 */

/* Norms of q and k over all heads of a row, and a rotation of part of each head. */
static const hl_family_tensor minimax_m2_tensors[] = {
    { HL_ROLE_ROUTER, "layers.*.block_sparse_moe.gate", 0 },
    { HL_ROLE_ROUTER_CORRECTION, "layers.*.block_sparse_moe.e_score_correction_bias",
      HL_STORED_BARE },
    { HL_ROLE_EXPERT_GATE, "layers.*.block_sparse_moe.experts.*.w1", 0 },
    { HL_ROLE_EXPERT_UP, "layers.*.block_sparse_moe.experts.*.w3", 0 },
    { HL_ROLE_EXPERT_DOWN, "layers.*.block_sparse_moe.experts.*.w2", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field minimax_m2_fields[] = {
    HL_EXPERTS_FIELDS,
    { "rotary_dim", NULL, HL_INT(ropes[HL_ROPE_MAIN].n_dims, 2, HL_MAX_HEAD_DIM) },
    { 0 },
};

const hl_family hl_family_minimax_m2 = {
    .name          = "minimax_m2",
    .model_types   = "minimax_m2",
    .architectures = "minimax-m2",
    .prefixes      = "model.|",
    .defaults      = { HL_LLAMA_DEFAULTS(1e-6, 5e6), .d_head = 128, .qk_norm = HL_HEAD_NORM_ALL,
                       .n_experts = 256, .n_experts_used = 8,
                       .router = { .score          = HL_ROUTER_SIGMOID,
                                   .normed         = true,
                                   .has_correction = true } },
    .fields        = minimax_m2_fields,
    .tensors       = { minimax_m2_tensors, hl_experts_tensors, hl_llama_tensors },
};

/* ----------------------------------------------------------------------------------- llama4_text */

/* Most layers rotate, norm q and k after that, and attend within blocks of positions.  The others
 * have no positions and attend to everything, with queries that grow with the logarithm of the
 * position.  An expert's weight multiplies its input. */
static const hl_family_tensor llama4_tensors[] = {
    { HL_ROLE_MLP_GATE, "layers.*.feed_forward.gate_proj", 0 },
    { HL_ROLE_MLP_UP, "layers.*.feed_forward.up_proj", 0 },
    { HL_ROLE_MLP_DOWN, "layers.*.feed_forward.down_proj", 0 },
    { HL_ROLE_ROUTER, "layers.*.feed_forward.router", 0 },
    { HL_ROLE_EXPERT_GATE_UP, "layers.*.feed_forward.experts.gate_up_proj",
      HL_STORED_BARE | HL_STORED_TRANSPOSED },
    { HL_ROLE_EXPERT_DOWN, "layers.*.feed_forward.experts.down_proj",
      HL_STORED_BARE | HL_STORED_TRANSPOSED },
    { HL_ROLE_SHARED_GATE, "layers.*.feed_forward.shared_expert.gate_proj", 0 },
    { HL_ROLE_SHARED_UP, "layers.*.feed_forward.shared_expert.up_proj", 0 },
    { HL_ROLE_SHARED_DOWN, "layers.*.feed_forward.shared_expert.down_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_field llama4_fields[] = {
    { "num_local_experts", NULL, HL_INT(n_experts, 1, HL_MAX_EXPERTS) },
    { "num_experts_per_tok", NULL, HL_INT(n_experts_used, 1, HL_MAX_EXPERTS) },
    { "attention_chunk_size", NULL, HL_INT_OR_NULL(window, 1, HL_MAX_CONTEXT) },
    { "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O) },
    { "floor_scale", NULL, HL_INT(temper_period, 1, HL_MAX_CONTEXT) },
    { "intermediate_size", NULL, HL_INT(d_expert, 1, HL_MAX_WIDTH) },
    { "intermediate_size_mlp", NULL, HL_INT(d_mlp, 1, HL_MAX_WIDTH) },
    { 0 },
};

static hl_status describe_llama4(hl_config *config, const hl_fields *fields)
{
    bool normed = true;

    HL_NEED(hl_fields_bool(&normed, fields, "use_qk_norm", NULL));
    if (!normed)
        config->qk_norm = HL_HEAD_NORM_NONE;
    return HL_OK;
}

/* Which layers are mixtures: a list, or one of every interval. */
static hl_status choose_llama4_mixtures(hl_config *config, const hl_fields *fields)
{
    const json_t *list                      = json_object_get(fields->object, "moe_layers");
    bool          is_mixture[HL_MAX_LAYERS] = { false };
    int64_t       interval                  = 1;

    HL_NEED(hl_fields_int(&interval, fields, "interleave_moe_layer_step", NULL, 1, HL_MAX_LAYERS));
    for (int64_t i = 0; i < config->n_layers && !json_is_array(list); i++)
        is_mixture[i] = (i + 1) % interval == 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        json_int_t    layer = json_is_integer(entry) ? json_integer_value(entry) : -1;

        if (layer < 0 || layer >= config->n_layers)
            return hl_fail(HL_BAD_INPUT, "%s: 'moe_layers' [%zu] is not a layer, 0 to %lld",
                           fields->where, i, (long long)config->n_layers - 1);
        is_mixture[layer] = true;
    }
    for (int64_t i = 0; i < config->n_layers; i++) {
        if (!is_mixture[i])
            hl_config_make_dense(config, i);
    }
    return HL_OK;
}

/* Every fourth layer does not rotate, unless a list (1: rotate) says otherwise. */
static hl_status layers_llama4(hl_config *config, const hl_fields *fields)
{
    int64_t interval = 4;
    int64_t turns[HL_MAX_LAYERS];
    double  scale  = 0.1;
    bool    scales = true;
    bool    listed = false;

    HL_NEED(hl_fields_int(&interval, fields, "no_rope_layer_interval", NULL, 1, HL_MAX_LAYERS));
    HL_NEED(hl_fields_bool(&scales, fields, "attn_temperature_tuning", NULL));
    HL_NEED(hl_fields_double(&scale, fields, "attn_scale", NULL));
    if (json_array_size(json_object_get(fields->object, "no_rope_layers")) > 0)
        HL_NEED(hl_fields_ints(turns, &listed, fields, "no_rope_layers", NULL,
                               (size_t)config->n_layers));
    for (int64_t i = 0; i < config->n_layers; i++) {
        hl_layer_config *layer = &config->layers[i];
        bool             turn  = listed ? turns[i] != 0 : (i + 1) % interval != 0;

        layer->rope    = turn ? HL_ROPE_MAIN : HL_ROPE_NONE;
        layer->qk_norm = turn ? config->qk_norm : HL_HEAD_NORM_NONE;
        layer->temper  = turn || !scales ? 0.0 : scale;
        if (!hl_fields_have(fields, "layer_types", NULL))
            layer->is_local = layer->window_blocks = turn;
    }
    return choose_llama4_mixtures(config, fields);
}

const hl_family hl_family_llama4_text = {
    .name        = "llama4_text",
    .model_types = "llama4_text|llama4",
    .prefixes    = "model.|",
    .defaults    = { .position       = HL_POSITION_ROPE,
                     .ropes          = { [HL_ROPE_MAIN] = { .base = 500000, .interleaved = true } },
                     .d_head         = 128,
                     .norm           = HL_NORM_RMS,
                     .norm_eps       = 1e-5,
                     .qk_norm        = HL_HEAD_NORM_SHARED,
                     .qk_norm_last   = true,
                     .qk_norm_plain  = true,
                     .window         = 8192,
                     .temper_first   = 1,
                     .temper_period  = 8192,
                     .activation     = HL_ACTIVATION_SILU,
                     .gated          = true,
                     .d_mlp          = 16384,
                     .d_expert       = 8192,
                     .n_experts      = 16,
                     .n_experts_used = 1,
                     .n_shared       = 1,
                     .router         = { .score = HL_ROUTER_SIGMOID, .scales_input = true } },
    .fields      = llama4_fields,
    .describe    = describe_llama4,
    .layers      = layers_llama4,
    .tensors     = { llama4_tensors, hl_llama_tensors },
};
