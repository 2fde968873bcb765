/* family.h - what a family is: defaults, fields and names.
 *
 * A family lives in one family_*.c, alone or with its close kin, and is made of
 *
 *     defaults   a hl_config with what all its models have in common
 *     fields     which values of config.json or GGUF metadata set which member,
 *                beyond those that every family has (config.c lists these)
 *     describe   a rule between fields, which a table cannot express
 *     layers     a rule for values that differ between layers
 *     tensors    the name of every role's tensor in a Hugging Face folder
 *     gguf       the names in GGUF files that differ from the usual ones (family.c)
 *
 * A name is a pattern: the first '*' is the layer, the second the part (expert or
 * head); '|' separates spellings.  ".weight" and ".bias" come after it.  A family's
 * tables are searched in order, so one that is mostly llama lists what differs
 * and then llama's table. */
#ifndef HL_MODEL_FAMILY_H
#define HL_MODEL_FAMILY_H

#include "headlight/base.h"
#include "model/config.h"
#include "model/fields.h"
#include "model/roles.h"

/* Bits for tensors whose layout is not (rows, columns) with rows in their order and fused weights
 * one after the other. */
enum {
    HL_STORED_TRANSPOSED  = 1 << 0, /* (columns, rows): y = x W                       */
    HL_STORED_GROUPED     = 1 << 1, /* qkv: for every KV head its queries, key, value */
    HL_STORED_INTERLEAVED = 1 << 2, /* gate and up: even rows, odd rows               */
    HL_STORED_PAIRED      = 1 << 3, /* q, k: rotary pairs side by side: in every head
                                     * row i is stored as 2i, row d/2 + i as 2i + 1   */
    HL_STORED_MINUS_ONE   = 1 << 4, /* the weight is 1 + what is stored               */
    HL_STORED_OFFSET      = 1 << 5, /* positions: position_offset rows come first     */
    HL_STORED_QUARTERS    = 1 << 7, /* qkv: for every quarter of the heads q, v, k     */
    HL_STORED_BARE        = 1 << 6, /* NAME and NAME_bias, not NAME.weight, NAME.bias */
    HL_STORED_FLAT        = 1 << 8, /* experts: the rows of all, one after the other  */
    HL_STORED_LOG         = 1 << 9, /* the weight is -exp(what is stored)             */
};

/* Members follow the order in which tables are read. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
typedef struct hl_family_tensor {
    hl_role     role; /* HL_N_STORED_ROLES with a NULL name ends a table */
    const char *name;
    uint32_t    stored;
} hl_family_tensor;

#define HL_FAMILY_TENSORS_END                                                                      \
    {                                                                                              \
        HL_N_STORED_ROLES, NULL, 0                                                                 \
    }
#define HL_MAX_TABLES 4

typedef struct hl_family {
    const char     *name;
    const char     *model_types;   /* model_type in config.json: "falcon|RefinedWeb" */
    const char     *architectures; /* architecture in GGUF; NULL: not in GGUF */
    const char     *prefixes;      /* prefixes of tensor names: "model.|" */
    hl_config       defaults;
    const hl_field *fields;
    hl_status (*describe)(hl_config *config, const hl_fields *fields);
    hl_status (*layers)(hl_config *config, const hl_fields *fields);
    const hl_family_tensor *tensors[HL_MAX_TABLES];
    const hl_family_tensor *gguf[HL_MAX_TABLES];
} hl_family;

/* Finds a family by model_type or architecture.  For an unknown one it returns HL_UNSUPPORTED, with
 * a message that names the nearest. */
hl_status hl_family_of_model_type(const hl_family **out, const char *model_type, const char *where);
hl_status hl_family_of_architecture(const hl_family **out, const char *architecture,
                                    const char *where);
/* Finds a family by its own name; NULL if there is none. */
const hl_family *hl_family_named(const char *name);

/* -------------------------------------------------- what several families use */

/* Defaults of families that are mostly Llama: an RMSNorm before each branch, RoPE, gated MLPs. */
#define HL_LLAMA_DEFAULTS(eps, theta)                                                              \
    .position = HL_POSITION_ROPE, .ropes = { [HL_ROPE_MAIN] = { .base = (theta) } },               \
    .norm = HL_NORM_RMS, .norm_eps = (eps), .activation = HL_ACTIVATION_SILU, .gated = true

/* Fields of mixtures that their families name alike. */
#define HL_EXPERTS_FIELDS                                                                          \
    { "num_experts|num_local_experts|n_routed_experts|moe_num_experts", "expert_count",            \
      HL_INT(n_experts, 1, HL_MAX_EXPERTS) },                                                      \
        { "num_experts_per_tok|moe_topk|moe_k", "expert_used_count",                               \
          HL_COUNT(n_experts_used, 1, HL_MAX_EXPERTS) },                                           \
        { "moe_intermediate_size", "expert_feed_forward_length",                                   \
          HL_COUNT(d_expert, 1, HL_MAX_WIDTH) },                                                   \
        { "n_shared_experts|moe_num_shared_experts", "expert_shared_count",                        \
          HL_INT_OR_NULL(n_shared, 0, HL_MAX_EXPERTS) },                                           \
        { "first_k_dense_replace|num_dense_layers", "leading_dense_block_count",                   \
          HL_INT(n_dense, 0, HL_MAX_LAYERS) },                                                     \
        { "norm_topk_prob", "expert_weights_norm", HL_BOOL(router.normed) },                       \
        { "routed_scaling_factor", "expert_weights_scale", HL_DOUBLE(router.scale) },              \
        { "n_group", "expert_group_count", HL_INT(router.n_groups, 0, HL_MAX_EXPERTS) },           \
    {                                                                                              \
        "topk_group", "expert_group_used_count", HL_INT(router.n_groups_used, 0, HL_MAX_EXPERTS)   \
    }

/* DeepSeek-V3's router, which others use too. */
#define HL_ROUTER_DEEPSEEK                                                                         \
    .score = HL_ROUTER_SIGMOID, .normed = true, .has_correction = true, .groups_by_two = true,     \
    .added = 1e-20

/* Makes this layer's MLP a single one. */
void hl_config_make_dense(hl_config *config, int64_t layer);

extern const hl_family_tensor hl_llama_tensors[];   /* names in a Hugging Face folder */
extern const hl_family_tensor hl_experts_tensors[]; /* of mixtures: mlp.gate, mlp.experts */
extern const hl_family_tensor hl_llama2c_tensors[]; /* searched before hl_llama_tensors */
extern const hl_family_tensor hl_gguf_tensors[];    /* the usual names, for all families */
/* q and k with rotary pairs side by side; searched before hl_gguf_tensors */
extern const hl_family_tensor hl_gguf_paired_tensors[];

extern const hl_family hl_family_apertus, hl_family_arcee, hl_family_bert, hl_family_biogpt,
    hl_family_bloom, hl_family_codegen, hl_family_cohere, hl_family_cohere2, hl_family_cwm,
    hl_family_dbrx, hl_family_deci, hl_family_distilbert, hl_family_ernie4_5,
    hl_family_ernie4_5_moe, hl_family_exaone4, hl_family_falcon, hl_family_gemma, hl_family_gemma2,
    hl_family_gemma3, hl_family_gemma3n, hl_family_glm, hl_family_glm4, hl_family_glm4_moe,
    hl_family_gpt2, hl_family_gpt_bigcode, hl_family_gpt_neo, hl_family_gpt_neox, hl_family_gpt_oss,
    hl_family_gptj, hl_family_granite, hl_family_granitemoe, hl_family_helium,
    hl_family_hunyuan_v1_dense, hl_family_hunyuan_v1_moe, hl_family_phimoe, hl_family_bitnet,
    hl_family_xglm, hl_family_llama4_text, hl_family_gemma4, hl_family_deepseek_v2,
    hl_family_deepseek_v3, hl_family_deepseek_v32, hl_family_glm4_moe_lite, hl_family_mistral4,
    hl_family_lfm2, hl_family_lfm2_moe, hl_family_llama, hl_family_minimax_m2, hl_family_ministral3,
    hl_family_mistral, hl_family_mixtral, hl_family_modernbert, hl_family_mpt, hl_family_nemotron,
    hl_family_olmo, hl_family_olmo2, hl_family_olmo3, hl_family_olmoe, hl_family_opt, hl_family_phi,
    hl_family_phi3, hl_family_qwen2, hl_family_qwen2_moe, hl_family_qwen3, hl_family_qwen3_moe,
    hl_family_roberta, hl_family_seed_oss, hl_family_smollm3, hl_family_stablelm,
    hl_family_starcoder2;
/* Families with mixers (family_hybrid.c, family_qwen.c). */
extern const hl_family hl_family_bamba, hl_family_falcon_h1, hl_family_granitemoehybrid,
    hl_family_jamba, hl_family_nemotron_h, hl_family_qwen3_5, hl_family_qwen3_5_moe,
    hl_family_qwen3_next;

#endif
