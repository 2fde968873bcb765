/* family_deepseek.c - models with latent attention (config.h): DeepSeek-V2, -V3 and -V3.2, and with
 * the same blocks Kimi K2, GLM-4.7-Flash (glm4_moe_lite) and Mistral 4.
 *
 * Their experts lie beside shared ones, after a few dense layers; V2 and Mistral choose them by a
 * softmax, the others by sigmoids with a correction.  GGUF has one architecture for all but V3.2, and
 * writes the sizes of the cached rows as those of heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "model/family.h"

static const hl_family_tensor deepseek_tensors[] = {
    { HL_ROLE_LATENT_QUERY, "layers.*.self_attn.q_a_proj", 0 },
    { HL_ROLE_LATENT_QUERY_NORM, "layers.*.self_attn.q_a_layernorm", 0 },
    { HL_ROLE_LATENT_Q, "layers.*.self_attn.q_b_proj|layers.*.self_attn.q_proj", 0 },
    { HL_ROLE_LATENT_AND_ROPE, "layers.*.self_attn.kv_a_proj_with_mqa", 0 },
    { HL_ROLE_LATENT_NORM, "layers.*.self_attn.kv_a_layernorm", 0 },
    { HL_ROLE_LATENT_KV, "layers.*.self_attn.kv_b_proj", 0 },
    { HL_ROLE_INDEX_Q, "layers.*.self_attn.indexer.wq_b", 0 },
    { HL_ROLE_INDEX_K, "layers.*.self_attn.indexer.wk", 0 },
    { HL_ROLE_INDEX_K_NORM, "layers.*.self_attn.indexer.k_norm", 0 },
    { HL_ROLE_INDEX_WEIGHTS, "layers.*.self_attn.indexer.weights_proj", 0 },
    HL_FAMILY_TENSORS_END,
};

static const hl_family_tensor deepseek_gguf_tensors[] = {
    { HL_ROLE_LATENT_QUERY, "blk.*.attn_q_a", 0 },
    { HL_ROLE_LATENT_QUERY_NORM, "blk.*.attn_q_a_norm", 0 },
    { HL_ROLE_LATENT_Q, "blk.*.attn_q_b|blk.*.attn_q", 0 },
    { HL_ROLE_LATENT_AND_ROPE, "blk.*.attn_kv_a_mqa", 0 },
    { HL_ROLE_LATENT_NORM, "blk.*.attn_kv_a_norm", 0 },
    { HL_ROLE_LATENT_K, "blk.*.attn_k_b", 0 },
    { HL_ROLE_LATENT_V, "blk.*.attn_v_b", 0 },
    { HL_ROLE_INDEX_Q, "blk.*.indexer.attn_q_b", 0 },
    { HL_ROLE_INDEX_K, "blk.*.indexer.attn_k", 0 },
    { HL_ROLE_INDEX_K_NORM, "blk.*.indexer.k_norm", 0 },
    { HL_ROLE_INDEX_WEIGHTS, "blk.*.indexer.proj", 0 },
    HL_FAMILY_TENSORS_END,
};

#define LATENT_FIELDS                                                                              \
    HL_EXPERTS_FIELDS,                                                                             \
        { "kv_lora_rank", "attention.kv_lora_rank", HL_INT(latent.d_latent, 1, HL_MAX_HEAD_DIM) }, \
        { "q_lora_rank", "attention.q_lora_rank",                                                  \
          HL_INT_OR_NULL(latent.d_query, 1, HL_MAX_WIDTH) },                                       \
        { "qk_rope_head_dim", "rope.dimension_count", HL_INT(latent.d_rope, 2, HL_MAX_HEAD_DIM) }, \
        { "qk_nope_head_dim", NULL, HL_INT(latent.d_nope, 1, HL_MAX_WIDTH) },                      \
        { "v_head_dim", "attention.value_length_mla",                                              \
          HL_INT(latent.d_value, 1, HL_MAX_HEAD_DIM) },                                            \
    {                                                                                              \
        "attention_bias", NULL, HL_BIASES(HL_BIAS_QKV | HL_BIAS_O)                                 \
    }

static const hl_field latent_fields[] = {
    LATENT_FIELDS,
    { 0 },
};

static const hl_field deepseek_v32_fields[] = {
    LATENT_FIELDS,
    { "index_topk", "attention.indexer.top_k", HL_INT(latent.n_top, 1, HL_MAX_CONTEXT) },
    { "index_n_heads", "attention.indexer.head_count",
      HL_INT(latent.n_index_heads, 1, HL_MAX_HEADS) },
    { "index_head_dim", "attention.indexer.key_length",
      HL_INT(latent.d_index, 1, HL_MAX_HEAD_DIM) },
    { 0 },
};

/* Sizes of heads.  The scale of the scores has the square of what yarn would multiply q and k by. */
static hl_status describe_latent(hl_config *config, const hl_fields *fields)
{
    hl_latent_config *latent = &config->latent;
    hl_rope          *rope   = &config->ropes[HL_ROPE_MAIN];
    double            factor = 0.0;
    int64_t           d_key  = 0;
    bool              paired = true;

    HL_NEED(hl_fields_bool(&paired, fields, "rope_interleave", NULL));
    HL_NEED(hl_fields_int(&d_key, fields, NULL, "attention.key_length_mla", 1, HL_MAX_WIDTH));
    HL_NEED(hl_fields_double(&factor, fields, NULL, "rope.scaling.yarn_log_multiplier"));
    if (latent->d_latent < 1)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is missing", fields->where,
                       fields->object != NULL ? "kv_lora_rank" : "attention.kv_lora_rank");
    if (fields->object == NULL) {
        if (d_key == 0 || latent->d_value == 0)
            return hl_fail(HL_UNSUPPORTED,
                           "%s: a file of an old converter, without 'attention.key_length_mla' and "
                           "'attention.value_length_mla'; convert the model again",
                           fields->where);
        latent->d_nope         = d_key - latent->d_rope;
        rope->mscale_all       = 10.0 * factor;
        rope->attention_factor = 1.0;
    }
    rope->interleaved  = paired;
    rope->n_dims       = latent->d_rope;
    config->d_head     = latent->d_value;
    config->n_kv_heads = config->n_heads;
    double scale       = 1.0 / sqrt((double)(latent->d_nope + latent->d_rope));
    if (rope->kind != HL_ROPE_DEFAULT && rope->mscale_all != 0.0 && rope->factor > 1.0)
        scale *= pow(0.1 * rope->mscale_all * log(rope->factor) + 1.0, 2.0);
    config->attn_scale = scale;
    return HL_OK;
}

/* V2's configurations name the rule by which groups are chosen. */
static hl_status describe_deepseek_v2(hl_config *config, const hl_fields *fields)
{
    char method[HL_MAX_FIELD_TEXT] = "greedy";

    HL_NEED(hl_fields_text(method, fields, "topk_method", NULL));
    if (strcmp(method, "greedy") == 0)
        config->router.n_groups = 0;
    else if (strcmp(method, "group_limited_greedy") != 0)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: 'topk_method' is '%s', wanted greedy or group_limited_greedy",
                       fields->where, method);
    config->router.normed = false; /* the code ignores norm_topk_prob */
    return describe_latent(config, fields);
}

/* GGUF's architecture is that of V2, too, which differs in the router. */
static hl_status describe_deepseek(hl_config *config, const hl_fields *fields)
{
    int64_t gating = 2;

    HL_NEED(hl_fields_int(&gating, fields, NULL, "expert_gating_func", 1, 2));
    if (gating == 1) {
        config->family               = hl_family_deepseek_v2.name;
        config->router.score         = HL_ROUTER_SOFTMAX;
        config->router.groups_by_two = false;
        config->router.added         = 0.0;
    }
    if (fields->object == NULL) {
        config->router.normed         = false;
        config->router.has_correction = false;
        HL_NEED(hl_fields_bool(&config->router.normed, fields, NULL, "expert_weights_norm"));
        for (int64_t i = 0; i < config->n_layers; i++) {
            char name[64];

            snprintf(name, sizeof name, "blk.%lld.exp_probs_b.bias", (long long)i);
            config->router.has_correction =
                config->router.has_correction || hl_fields_have_tensor(fields, name);
        }
    }
    return describe_latent(config, fields);
}

#define LATENT_DEFAULTS(eps, theta)                                                                \
    .position = HL_POSITION_ROPE,                                                                  \
    .ropes = { [HL_ROPE_MAIN] = { .base = (theta), .interleaved = true } }, .norm = HL_NORM_RMS,   \
    .norm_eps = (eps), .activation = HL_ACTIVATION_SILU, .gated = true

const hl_family hl_family_deepseek_v2 = {
    .name        = "deepseek_v2",
    .model_types = "deepseek_v2",
    .prefixes    = "model.|",
    .defaults    = { LATENT_DEFAULTS(1e-6, 10000), .n_experts = 64, .n_experts_used = 6,
                     .d_expert = 1407, .n_shared = 2,
                     .latent = { .d_latent = 512,
                                 .d_query  = 1536,
                                 .d_rope   = 64,
                                 .d_nope   = 128,
                                 .d_value  = 128 } },
    .fields      = latent_fields,
    .describe    = describe_deepseek_v2,
    .tensors     = { deepseek_tensors, hl_experts_tensors, hl_llama_tensors },
    .gguf        = { deepseek_gguf_tensors },
};

const hl_family hl_family_deepseek_v3 = {
    .name          = "deepseek_v3",
    .model_types   = "deepseek_v3|kimi_k2",
    .architectures = "deepseek2",
    .prefixes      = "model.|",
    .defaults      = { LATENT_DEFAULTS(1e-6, 10000), .n_experts = 256, .n_experts_used = 8,
                       .d_expert = 2048, .n_shared = 1, .router = { HL_ROUTER_DEEPSEEK } },
    .fields        = latent_fields,
    .describe      = describe_deepseek,
    .tensors       = { deepseek_tensors, hl_experts_tensors, hl_llama_tensors },
    .gguf          = { deepseek_gguf_tensors },
};

const hl_family hl_family_glm4_moe_lite = {
    .name        = "glm4_moe_lite",
    .model_types = "glm4_moe_lite",
    .prefixes    = "model.|",
    .defaults    = { LATENT_DEFAULTS(1e-5, 10000), .n_experts = 64, .n_experts_used = 4,
                     .d_expert = 1536, .n_shared = 1, .n_dense = 1,
                     .router = { HL_ROUTER_DEEPSEEK, .scale = 1.8 } },
    .fields      = latent_fields,
    .describe    = describe_deepseek,
    .tensors     = { deepseek_tensors, hl_experts_tensors, hl_llama_tensors },
};

const hl_family hl_family_mistral4 = {
    .name        = "mistral4",
    .model_types = "mistral4",
    .prefixes    = "model.|",
    .defaults    = { LATENT_DEFAULTS(1e-6, 10000), .n_experts = 128, .n_experts_used = 4,
                     .d_expert = 2048, .n_shared = 1,
                     .router = { .normed = true, .groups_by_two = true, .added = 1e-20 } },
    .fields      = latent_fields,
    .describe    = describe_latent,
    .tensors     = { deepseek_tensors, hl_experts_tensors, hl_llama_tensors },
};

/* V3 with an indexer, which chooses the keys that a row sees. */
const hl_family hl_family_deepseek_v32 = {
    .name          = "deepseek_v32",
    .model_types   = "deepseek_v32",
    .architectures = "deepseek32",
    .prefixes      = "model.|",
    .defaults      = { LATENT_DEFAULTS(1e-6, 10000), .n_experts = 256, .n_experts_used = 8,
                       .d_expert = 2048, .n_shared = 1, .biases = HL_BIAS_INDEX,
                       .latent = { .n_top = 2048, .n_index_heads = 64, .d_index = 128 },
                       .router = { HL_ROUTER_DEEPSEEK } },
    .fields        = deepseek_v32_fields,
    .describe      = describe_deepseek,
    .tensors       = { deepseek_tensors, hl_experts_tensors, hl_llama_tensors },
    .gguf          = { deepseek_gguf_tensors },
};
