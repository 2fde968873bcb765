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
 *     W rows of the table of per-layer inputs    Z d_ple    Y n_layers * d_ple
 *     A n_streams    O n_streams^2     L d_laurel
 *
 * and of a mixer (hl_mixer_config):
 *
 *     I n_heads * d_head         G n_groups * d_state       C n_channels     w width
 *     h n_heads                  N d_state                  R d_step         n size of the norm
 *     M, B rows of both fused projections                   j, i heads and 1, or with a
 *                                                           recurrence per channel I and N
 *
 * and of latent attention (hl_latent_config):
 *
 *     l d_latent     r d_rope     o d_nope      v d_value     a d_query
 *     u n_heads * (d_nope + d_rope)     b n_heads * (d_nope + d_value)
 *     y d_query, or d_model without it
 *     x n_index_heads     p d_index     t n_index_heads * d_index
 *
 * The last roles exist only in files: several weights in one tensor.  Families name them; callers
 * always ask for the single weights. */
#ifndef HL_MODEL_ROLES_H
#define HL_MODEL_ROLES_H

#include "headlight/base.h"
#include "model/config.h"

typedef enum hl_role {
    /* Once per model. */
    HL_ROLE_EMBED = 0,
    HL_ROLE_PLE_EMBED, /* per-layer inputs: a row has d_ple values for every layer */
    HL_ROLE_PLE_IN,    /* from the embedding */
    HL_ROLE_PLE_IN_NORM,
    HL_ROLE_EMBED_IN,   /* d_embed to d_model, after the embedding  */
    HL_ROLE_STREAM_IN,  /* one per stream but the first: from the embedding */
    HL_ROLE_STREAM_OUT, /* and to the average at the end */
    HL_ROLE_POSITION,
    HL_ROLE_TOKEN_TYPE,
    HL_ROLE_EMBED_NORM,
    HL_ROLE_FINAL_NORM,
    HL_ROLE_EMBED_OUT,  /* d_model to d_embed, before the head      */
    HL_ROLE_HEAD_DENSE, /* encoders: head = lm_head(norm(act(dense x))) */
    HL_ROLE_HEAD_NORM,
    HL_ROLE_LM_HEAD,

    /* Once per layer, in the order of their use. */
    HL_ROLE_STREAM_ROUTER_NORM, /* coefficients are maps of tanh(router(norm x)) */
    HL_ROLE_STREAM_ROUTER,
    HL_ROLE_STREAM_PREDICT,
    HL_ROLE_STREAM_CORRECT,
    HL_ROLE_STREAM_SCALE, /* x_0 times this is what per-layer inputs are gated by */
    HL_ROLE_LAUREL_IN,
    HL_ROLE_LAUREL_OUT,
    HL_ROLE_LAUREL_NORM,
    HL_ROLE_ATTN_NORM,
    HL_ROLE_ATTN_Q,
    HL_ROLE_ATTN_K,
    HL_ROLE_ATTN_V,
    HL_ROLE_ATTN_GATE, /* z * sigmoid(gate x) is what ATTN_O reads */
    HL_ROLE_Q_NORM,
    HL_ROLE_K_NORM,
    HL_ROLE_SINKS,
    HL_ROLE_LATENT_QUERY, /* of latent attention, from here to LATENT_V; no ATTN_Q, K, V */
    HL_ROLE_LATENT_QUERY_NORM,
    HL_ROLE_LATENT_Q,
    HL_ROLE_LATENT_ROPE, /* the rotated part of the keys */
    HL_ROLE_LATENT,
    HL_ROLE_LATENT_NORM,
    HL_ROLE_LATENT_K, /* one per head, as queries are multiplied: the transpose of what keys need */
    HL_ROLE_LATENT_V, /* one per head */
    HL_ROLE_INDEX_Q,  /* of its indexer */
    HL_ROLE_INDEX_K,
    HL_ROLE_INDEX_K_NORM,
    HL_ROLE_INDEX_WEIGHTS,
    HL_ROLE_ATTN_Z_NORM, /* of all heads together, before ATTN_O */
    HL_ROLE_ATTN_O,
    HL_ROLE_ATTN_POST_NORM,
    HL_ROLE_MIX_IN, /* of mixers, from here to MIX_OUT; the norm before them is ATTN_NORM */
    HL_ROLE_MIX_Q,
    HL_ROLE_MIX_K,
    HL_ROLE_MIX_V,
    HL_ROLE_MIX_Z,
    HL_ROLE_MIX_B,
    HL_ROLE_MIX_A,
    HL_ROLE_MIX_CONV, /* a row per channel */
    HL_ROLE_MIX_X,    /* dt, k and q from x: MAMBA */
    HL_ROLE_MIX_DT,
    HL_ROLE_MIX_DT_NORM,
    HL_ROLE_MIX_K_NORM,
    HL_ROLE_MIX_Q_NORM,
    HL_ROLE_MIX_DT_BIAS,
    HL_ROLE_MIX_DECAY, /* negative: -exp of what is called A_log */
    HL_ROLE_MIX_SKIP,
    HL_ROLE_MIX_NORM,
    HL_ROLE_MIX_OUT,
    HL_ROLE_MLP_NORM,
    HL_ROLE_MLP_GATE,
    HL_ROLE_MLP_UP,
    HL_ROLE_MLP_DOWN,
    HL_ROLE_MLP_INNER_NORM, /* before MLP_DOWN */
    HL_ROLE_XIELU_P,        /* the numbers of XIELU, before softplus where it applies */
    HL_ROLE_XIELU_N,
    HL_ROLE_XIELU_B,
    HL_ROLE_XIELU_E,
    HL_ROLE_ROUTER,
    HL_ROLE_ROUTER_CORRECTION, /* added to the scores when experts are chosen */
    HL_ROLE_EXPERT_GATE,
    HL_ROLE_EXPERT_UP,
    HL_ROLE_EXPERT_DOWN,
    HL_ROLE_SHARED_ROUTER,
    HL_ROLE_SHARED_GATE,
    HL_ROLE_SHARED_UP,
    HL_ROLE_SHARED_DOWN,
    HL_ROLE_ROUTER_NORM,  /* experts_apart: weights of the norm through which the router reads */
    HL_ROLE_EXPERT_SCALE, /* multiplies an expert's weight */
    HL_ROLE_EXPERT_NORM,  /* through which the experts read */
    HL_ROLE_EXPERT_POST_NORM, /* of the sum of experts, and of the shared expert */
    HL_ROLE_SHARED_POST_NORM,
    HL_ROLE_MLP_POST_NORM,
    HL_ROLE_PLE_GATE, /* of per-layer inputs, after the MLP */
    HL_ROLE_PLE_OUT,
    HL_ROLE_PLE_NORM,
    HL_ROLE_LAYER_SCALE,
    HL_N_ROLES,

    /* In files only. */
    HL_ROLE_ATTN_QKV = HL_N_ROLES,
    HL_ROLE_MLP_GATE_UP,
    HL_ROLE_EXPERT_GATE_UP,
    HL_ROLE_SHARED_GATE_UP,
    HL_ROLE_ATTN_Q_GATE, /* for every head its rows of q, then of the gate */
    HL_ROLE_MIX_QKV,
    HL_ROLE_MIX_QKVZ,        /* for every group its q, k, v and z */
    HL_ROLE_MIX_BA,          /* for every group its b and a */
    HL_ROLE_LATENT_AND_ROPE, /* LATENT, then LATENT_ROPE */
    HL_ROLE_LATENT_KV,       /* for every head its rows of keys, then of values */
    HL_N_STORED_ROLES,

    HL_FIRST_LAYER_ROLE = HL_ROLE_STREAM_ROUTER_NORM,
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

/* May a tensor of the role `stored` hold `role`?  ATTN_QKV holds ATTN_Q; a role holds itself. */
bool hl_role_holds(hl_role stored, hl_role role);

/* Does layer `layer` have such a weight?  Layer -1 is for roles of the whole model. */
hl_role_need hl_role_weight_need(hl_role role, const hl_config *config, int64_t layer);
hl_role_need hl_role_bias_need(hl_role role, const hl_config *config);

/* What biases of this role are multiplied by where factors of a branch are applied elsewhere. */
double hl_role_bias_factor(hl_role role, const hl_config *config);

/* The number of weights of this role in the layer: experts, or heads with own norms; usually 1. */
int64_t hl_role_parts(hl_role role, const hl_config *config, int64_t layer);
/* Rows (outputs) and columns (inputs; 1 for a vector) of one part.  Also works for roles that
 * exist in files only. */
int64_t hl_role_rows(hl_role role, const hl_config *config, int64_t layer);
int64_t hl_role_columns(hl_role role, const hl_config *config, int64_t layer);
/* A vector's shape has one dimension, a matrix's two. */
bool hl_role_is_vector(hl_role role);
/* Is it read as floats when a session opens, not multiplied as it is stored?  All vectors are, and small
 * tables of mixers. */
bool hl_role_is_floats(hl_role role);

#endif
