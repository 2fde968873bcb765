/* roles.c - the shape of every role, and which models need it.
 *
 * The families' tables only name tensors.  The description determines which of them must exist: a
 * block with parallel branches and one norm has no MLP_NORM, a layer without experts no router.
 * Both questions are answered here, once for all families. */
#include "model/roles.h"

typedef struct role_shape {
    const char *name;
    const char *rows;    /* sum of letters of roles.h */
    const char *columns; /* NULL: the role is a vector */
    uint32_t    bias;    /* HL_BIAS_... that decides whether it has a bias */
} role_shape;

/* In lower case: the sizes of the norms of q and k, which depend on the kind of norm. */
static const role_shape shapes[HL_N_STORED_ROLES] = {
    [HL_ROLE_EMBED]      = { "embed", "V", "E", 0 },
    [HL_ROLE_EMBED_IN]   = { "embed.in", "D", "E", 0 },
    [HL_ROLE_POSITION]   = { "embed.position", "P", "D", 0 },
    [HL_ROLE_TOKEN_TYPE] = { "embed.token_type", "T", "D", 0 },
    [HL_ROLE_EMBED_NORM] = { "embed.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_FINAL_NORM] = { "final_norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_EMBED_OUT]  = { "embed.out", "E", "D", 0 },
    [HL_ROLE_HEAD_DENSE] = { "head.dense", "D", "D", HL_BIAS_HEAD },
    [HL_ROLE_HEAD_NORM]  = { "head.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_LM_HEAD]    = { "lm_head", "V", "E", HL_BIAS_HEAD },

    [HL_ROLE_ATTN_NORM]      = { "attn.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_ATTN_Q]         = { "attn.q", "Q", "D", HL_BIAS_QKV },
    [HL_ROLE_ATTN_K]         = { "attn.k", "K", "D", HL_BIAS_QKV },
    [HL_ROLE_ATTN_V]         = { "attn.v", "K", "D", HL_BIAS_QKV },
    [HL_ROLE_Q_NORM]         = { "attn.q_norm", "q", NULL, HL_BIAS_QK_NORM },
    [HL_ROLE_K_NORM]         = { "attn.k_norm", "k", NULL, HL_BIAS_QK_NORM },
    [HL_ROLE_SINKS]          = { "attn.sinks", "H", NULL, 0 },
    [HL_ROLE_ATTN_O]         = { "attn.o", "D", "Q", HL_BIAS_O },
    [HL_ROLE_ATTN_POST_NORM] = { "attn.post_norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_MLP_NORM]       = { "mlp.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_MLP_GATE]       = { "mlp.gate", "F", "D", HL_BIAS_MLP },
    [HL_ROLE_MLP_UP]         = { "mlp.up", "F", "D", HL_BIAS_MLP },
    [HL_ROLE_MLP_DOWN]       = { "mlp.down", "D", "F", HL_BIAS_MLP },
    [HL_ROLE_XIELU_P]        = { "mlp.xielu.p", "1", NULL, 0 },
    [HL_ROLE_XIELU_N]        = { "mlp.xielu.n", "1", NULL, 0 },
    [HL_ROLE_XIELU_B]        = { "mlp.xielu.b", "1", NULL, 0 },
    [HL_ROLE_XIELU_E]        = { "mlp.xielu.e", "1", NULL, 0 },
    [HL_ROLE_ROUTER]         = { "router", "X", "D", HL_BIAS_ROUTER },
    [HL_ROLE_EXPERT_GATE]    = { "expert.gate", "F", "D", HL_BIAS_EXPERTS },
    [HL_ROLE_EXPERT_UP]      = { "expert.up", "F", "D", HL_BIAS_EXPERTS },
    [HL_ROLE_EXPERT_DOWN]    = { "expert.down", "D", "F", HL_BIAS_EXPERTS },
    [HL_ROLE_SHARED_ROUTER]  = { "shared.router", "1", "D", 0 },
    [HL_ROLE_SHARED_GATE]    = { "shared.gate", "S", "D", 0 },
    [HL_ROLE_SHARED_UP]      = { "shared.up", "S", "D", 0 },
    [HL_ROLE_SHARED_DOWN]    = { "shared.down", "D", "S", 0 },
    [HL_ROLE_MLP_POST_NORM]  = { "mlp.post_norm", "D", NULL, HL_BIAS_NORM },

    [HL_ROLE_ATTN_QKV]       = { "attn.qkv", "QKK", "D", HL_BIAS_QKV },
    [HL_ROLE_MLP_GATE_UP]    = { "mlp.gate_up", "FF", "D", HL_BIAS_MLP },
    [HL_ROLE_EXPERT_GATE_UP] = { "expert.gate_up", "FF", "D", HL_BIAS_EXPERTS },
};

const char *hl_role_name(hl_role role)
{
    return shapes[role].name;
}

bool hl_role_is_of_layer(hl_role role)
{
    return role >= HL_FIRST_LAYER_ROLE;
}

bool hl_role_is_vector(hl_role role)
{
    return shapes[role].columns == NULL;
}

hl_role hl_role_fused(hl_role role)
{
    switch (role) {
    case HL_ROLE_ATTN_Q:
    case HL_ROLE_ATTN_K:
    case HL_ROLE_ATTN_V:
        return HL_ROLE_ATTN_QKV;
    case HL_ROLE_MLP_GATE:
    case HL_ROLE_MLP_UP:
        return HL_ROLE_MLP_GATE_UP;
    case HL_ROLE_EXPERT_GATE:
    case HL_ROLE_EXPERT_UP:
        return HL_ROLE_EXPERT_GATE_UP;
    default:
        return role;
    }
}

/* ------------------------------------------------------------------- shapes */

static int64_t size_of_letter(char letter, const hl_config *config, const hl_layer_config *layer)
{
    bool all_heads = config->qk_norm == HL_HEAD_NORM_ALL;

    switch (letter) {
    case 'V':
        return config->d_vocab;
    case 'D':
        return config->d_model;
    case 'E':
        return config->d_embed;
    case 'P':
        return config->n_ctx;
    case 'T':
        return config->n_token_types;
    case 'Q':
        return layer->n_heads * layer->d_head;
    case 'K':
        return layer->n_kv_heads * layer->d_head;
    case 'H':
        return layer->n_heads;
    case 'd':
        return layer->d_head;
    case 'q':
        return all_heads ? layer->n_heads * layer->d_head : layer->d_head;
    case 'k':
        return all_heads ? layer->n_kv_heads * layer->d_head : layer->d_head;
    case 'F':
        return layer->d_mlp;
    case 'X':
        return layer->n_experts;
    case 'S':
        return config->d_shared;
    default:
        return 1;
    }
}

static const hl_layer_config *layer_of(const hl_config *config, int64_t layer)
{
    static const hl_layer_config none = { 0 };
    return layer >= 0 ? &config->layers[layer] : &none;
}

int64_t hl_role_rows(hl_role role, const hl_config *config, int64_t layer)
{
    int64_t rows = 0;
    for (const char *letter = shapes[role].rows; *letter != '\0'; letter++)
        rows += size_of_letter(*letter, config, layer_of(config, layer));
    return rows;
}

int64_t hl_role_columns(hl_role role, const hl_config *config, int64_t layer)
{
    if (shapes[role].columns == NULL)
        return 1;
    return size_of_letter(*shapes[role].columns, config, layer_of(config, layer));
}

int64_t hl_role_parts(hl_role role, const hl_config *config, int64_t layer)
{
    const hl_layer_config *at   = layer_of(config, layer);
    bool                   each = config->qk_norm == HL_HEAD_NORM_EACH;

    switch (role) {
    case HL_ROLE_EXPERT_GATE:
    case HL_ROLE_EXPERT_UP:
    case HL_ROLE_EXPERT_DOWN:
        return at->n_experts;
    case HL_ROLE_Q_NORM:
        return each ? at->n_heads : 1;
    case HL_ROLE_K_NORM:
        return each ? at->n_kv_heads : 1;
    default:
        return 1;
    }
}

/* --------------------------------------------------------------------- needs */

static hl_role_need required_if(bool condition)
{
    return condition ? HL_ROLE_REQUIRED : HL_ROLE_ABSENT;
}

static hl_role_need model_need(hl_role role, const hl_config *config)
{
    switch (role) {
    case HL_ROLE_EMBED_IN:
    case HL_ROLE_EMBED_OUT:
        return required_if(config->d_embed != config->d_model);
    case HL_ROLE_POSITION:
        return required_if(config->position == HL_POSITION_LEARNED);
    case HL_ROLE_TOKEN_TYPE:
        return required_if(config->n_token_types > 0);
    case HL_ROLE_EMBED_NORM:
        return required_if(config->embed_norm);
    case HL_ROLE_FINAL_NORM:
        return required_if(!config->no_final_norm && !config->norm_plain);
    case HL_ROLE_HEAD_DENSE:
    case HL_ROLE_HEAD_NORM:
        return config->is_encoder ? HL_ROLE_OPTIONAL : HL_ROLE_ABSENT;
    case HL_ROLE_LM_HEAD:
        if (config->headless)
            return HL_ROLE_OPTIONAL;
        return required_if(!config->tied);
    default:
        return HL_ROLE_REQUIRED;
    }
}

static hl_role_need attention_need(hl_role role, const hl_config *config, int64_t layer)
{
    bool pre  = config->norm_place == HL_NORM_PRE || config->norm_place == HL_NORM_SANDWICH;
    bool post = config->norm_place != HL_NORM_PRE;

    if (config->layers[layer].n_heads == 0)
        return HL_ROLE_ABSENT;
    switch (role) {
    case HL_ROLE_ATTN_K:
    case HL_ROLE_ATTN_V:
        return required_if(hl_config_own_kv_heads(config, layer) > 0);
    case HL_ROLE_ATTN_NORM:
        return required_if(pre && !config->norm_plain && !(config->first_norm_plain && layer == 0));
    case HL_ROLE_ATTN_POST_NORM:
        return required_if(post && !config->norm_plain);
    case HL_ROLE_Q_NORM:
        return required_if(config->qk_norm != HL_HEAD_NORM_NONE);
    case HL_ROLE_K_NORM:
        return required_if(config->qk_norm != HL_HEAD_NORM_NONE &&
                           hl_config_own_kv_heads(config, layer) > 0);
    case HL_ROLE_SINKS:
        return required_if(config->sinks);
    default:
        return HL_ROLE_REQUIRED;
    }
}

static hl_role_need mlp_need(hl_role role, const hl_config *config, int64_t layer)
{
    bool pre     = config->norm_place == HL_NORM_PRE || config->norm_place == HL_NORM_SANDWICH;
    bool post    = config->norm_place != HL_NORM_PRE;
    bool shared  = config->residual == HL_RESIDUAL_PARALLEL_SHARED;
    bool mixture = config->layers[layer].n_experts > 0;

    if (config->layers[layer].d_mlp == 0)
        return HL_ROLE_ABSENT;
    switch (role) {
    case HL_ROLE_MLP_NORM:
        return required_if(pre && !shared && !config->norm_plain);
    case HL_ROLE_MLP_POST_NORM:
        return required_if(post && !config->norm_plain);
    case HL_ROLE_MLP_GATE:
        return required_if(config->gated && !mixture);
    case HL_ROLE_MLP_UP:
    case HL_ROLE_MLP_DOWN:
        return required_if(!mixture);
    case HL_ROLE_XIELU_P:
    case HL_ROLE_XIELU_N:
    case HL_ROLE_XIELU_B:
    case HL_ROLE_XIELU_E: /* GGUF has them in its metadata */
        return config->activation == HL_ACTIVATION_XIELU ? HL_ROLE_OPTIONAL : HL_ROLE_ABSENT;
    case HL_ROLE_EXPERT_GATE:
        return required_if(config->gated && mixture);
    case HL_ROLE_ROUTER:
    case HL_ROLE_EXPERT_UP:
    case HL_ROLE_EXPERT_DOWN:
        return required_if(mixture);
    default: /* the shared expert */
        return required_if(mixture && config->d_shared > 0);
    }
}

hl_role_need hl_role_weight_need(hl_role role, const hl_config *config, int64_t layer)
{
    if (!hl_role_is_of_layer(role))
        return model_need(role, config);
    if (role <= HL_ROLE_ATTN_POST_NORM)
        return attention_need(role, config, layer);
    return mlp_need(role, config, layer);
}

hl_role_need hl_role_bias_need(hl_role role, const hl_config *config)
{
    if (shapes[role].bias == 0)
        return HL_ROLE_ABSENT;
    /* Parts of an encoder's head may be missing, with or without biases. */
    if (config->is_encoder && role >= HL_ROLE_HEAD_DENSE && role <= HL_ROLE_LM_HEAD)
        return HL_ROLE_OPTIONAL;
    return required_if((config->biases & shapes[role].bias) != 0);
}
