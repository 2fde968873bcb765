/* family_mixtures.c - mixtures of experts that do not vary a dense family: DBRX,
 * MiniMax-M2.
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
