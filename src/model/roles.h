/* roles.h - the parts that a model's tensors play.
 *
 * Whatever a family calls its tensors, the forward pass knows them by role.  A
 * role has a weight, of one shape for all families, and mostly a bias:
 *
 *     role         weight              in words
 *     ATTN_Q       (n_heads*d_head, d_model)   y = W x + b, as all linear maps
 *     ATTN_NORM    (d_model)                   a vector
 *     EXPERT_UP    (d_expert, d_model)         a part for every expert
 *
 * Sizes are written with letters, so that tables can hold them:
 *
 *     V d_vocab      D d_model    E d_embed    P rows of the position table
 *     T token types  Q n_heads * d_head        K n_kv_heads * d_head
 *     H n_heads      d d_head     F d_mlp of the layer (in a mixture: of an expert)
 *     X n_experts    S d_shared   1 one
 *
 * Three roles exist only in files: several weights in one tensor.  Families name them; callers
 * always ask for the single weights. */
#ifndef HL_MODEL_ROLES_H
#define HL_MODEL_ROLES_H

#include "headlight/base.h"
#include "model/config.h"

typedef enum hl_role {
    /* Once per model. */
    HL_ROLE_EMBED = 0,
    HL_ROLE_EMBED_IN, /* d_embed to d_model, after the embedding  */
    HL_ROLE_POSITION,
    HL_ROLE_TOKEN_TYPE,
    HL_ROLE_EMBED_NORM,
    HL_ROLE_FINAL_NORM,
    HL_ROLE_EMBED_OUT,  /* d_model to d_embed, before the head      */
    HL_ROLE_HEAD_DENSE, /* encoders: head = lm_head(norm(act(dense x))) */
    HL_ROLE_HEAD_NORM,
    HL_ROLE_LM_HEAD,

    /* Once per layer, in the order of their use. */
    HL_ROLE_ATTN_NORM,
    HL_ROLE_ATTN_Q,
    HL_ROLE_ATTN_K,
    HL_ROLE_ATTN_V,
    HL_ROLE_Q_NORM,
    HL_ROLE_K_NORM,
    HL_ROLE_SINKS,
    HL_ROLE_ATTN_O,
    HL_ROLE_ATTN_POST_NORM,
    HL_ROLE_MLP_NORM,
    HL_ROLE_MLP_GATE,
    HL_ROLE_MLP_UP,
    HL_ROLE_MLP_DOWN,
    HL_ROLE_XIELU_P, /* the numbers of XIELU, before softplus where it applies */
    HL_ROLE_XIELU_N,
    HL_ROLE_XIELU_B,
    HL_ROLE_XIELU_E,
    HL_ROLE_ROUTER,
    HL_ROLE_EXPERT_GATE,
    HL_ROLE_EXPERT_UP,
    HL_ROLE_EXPERT_DOWN,
    HL_ROLE_SHARED_ROUTER,
    HL_ROLE_SHARED_GATE,
    HL_ROLE_SHARED_UP,
    HL_ROLE_SHARED_DOWN,
    HL_ROLE_MLP_POST_NORM,
    HL_N_ROLES,

    /* In files only. */
    HL_ROLE_ATTN_QKV = HL_N_ROLES,
    HL_ROLE_MLP_GATE_UP,
    HL_ROLE_EXPERT_GATE_UP,
    HL_N_STORED_ROLES,

    HL_FIRST_LAYER_ROLE = HL_ROLE_ATTN_NORM,
    HL_N_LAYER_ROLES    = HL_N_ROLES - HL_FIRST_LAYER_ROLE,
} hl_role;

typedef enum hl_role_need {
    HL_ROLE_ABSENT = 0, /* this model does not use it */
    HL_ROLE_OPTIONAL,
    HL_ROLE_REQUIRED,
} hl_role_need;

/* "attn.q", "experts.gate_up", ... ; static. */
const char *hl_role_name(hl_role role);
bool        hl_role_is_of_layer(hl_role role);

/* The fused role that may hold `role`: ATTN_QKV for ATTN_Q; `role` itself if there is none. */
hl_role hl_role_fused(hl_role role);

/* Does layer `layer` have such a weight?  Layer -1 is for roles of the whole model. */
hl_role_need hl_role_weight_need(hl_role role, const hl_config *config, int64_t layer);
hl_role_need hl_role_bias_need(hl_role role, const hl_config *config);

/* The number of weights of this role in the layer: experts, or heads with own norms; usually 1. */
int64_t hl_role_parts(hl_role role, const hl_config *config, int64_t layer);
/* Rows (outputs) and columns (inputs; 1 for a vector) of one part.  Also works for roles that
 * exist in files only. */
int64_t hl_role_rows(hl_role role, const hl_config *config, int64_t layer);
int64_t hl_role_columns(hl_role role, const hl_config *config, int64_t layer);
/* A vector's shape has one dimension, a matrix's two. */
bool hl_role_is_vector(hl_role role);

#endif
