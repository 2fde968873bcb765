/* roles.c - the shape of every role, and which models need it.
 *
 * The families' tables only name tensors.  The description determines which of them must exist: a
 * block with parallel branches and one norm has no MLP_NORM, a layer without experts no router.
 * Both questions are answered here, once for all families. */
#include "model/roles.h"

#include <string.h>

typedef struct role_shape {
    const char *name;
    const char *rows;    /* sum of letters of roles.h */
    const char *columns; /* NULL: the role is a vector */
    uint32_t    bias;    /* HL_BIAS_... that decides whether it has a bias */
} role_shape;

/* In lower case: the sizes of the norms of q and k, which depend on the kind of norm. */
static const role_shape shapes[HL_N_STORED_ROLES] = {
    [HL_ROLE_EMBED]       = { "embed", "V", "E", 0 },
    [HL_ROLE_PLE_EMBED]   = { "ple.embed", "W", "Y", 0 },
    [HL_ROLE_PLE_IN]      = { "ple.in", "Y", "D", 0 },
    [HL_ROLE_PLE_IN_NORM] = { "ple.in_norm", "Z", NULL, 0 },
    [HL_ROLE_EMBED_IN]    = { "embed.in", "D", "E", 0 },
    [HL_ROLE_STREAM_IN]   = { "stream.in", "D", "D", 0 },
    [HL_ROLE_STREAM_OUT]  = { "stream.out", "D", "D", 0 },
    [HL_ROLE_POSITION]    = { "embed.position", "P", "D", 0 },
    [HL_ROLE_TOKEN_TYPE]  = { "embed.token_type", "T", "D", 0 },
    [HL_ROLE_EMBED_NORM]  = { "embed.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_FINAL_NORM]  = { "final_norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_EMBED_OUT]   = { "embed.out", "E", "D", 0 },
    [HL_ROLE_HEAD_DENSE]  = { "head.dense", "D", "D", HL_BIAS_HEAD },
    [HL_ROLE_HEAD_NORM]   = { "head.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_LM_HEAD]     = { "lm_head", "V", "E", HL_BIAS_HEAD },

    [HL_ROLE_STREAM_ROUTER_NORM] = { "stream.router_norm", "D", NULL, 0 },
    [HL_ROLE_STREAM_ROUTER]      = { "stream.router", "A", "D", 0 },
    [HL_ROLE_STREAM_PREDICT]     = { "stream.predict", "O", "A", 0 },
    [HL_ROLE_STREAM_CORRECT]     = { "stream.correct", "A", "A", 0 },
    [HL_ROLE_STREAM_SCALE]       = { "stream.scale", "D", NULL, 0 },
    [HL_ROLE_LAUREL_IN]          = { "laurel.in", "L", "D", 0 },
    [HL_ROLE_LAUREL_OUT]         = { "laurel.out", "D", "L", 0 },
    [HL_ROLE_LAUREL_NORM]        = { "laurel.norm", "D", NULL, 0 },
    [HL_ROLE_ATTN_NORM]          = { "attn.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_ATTN_Q]             = { "attn.q", "Q", "D", HL_BIAS_QKV },
    [HL_ROLE_ATTN_K]             = { "attn.k", "K", "D", HL_BIAS_QKV },
    [HL_ROLE_ATTN_V]             = { "attn.v", "K", "D", HL_BIAS_QKV },
    [HL_ROLE_ATTN_GATE]          = { "attn.gate", "Q", "D", HL_BIAS_QKV },
    [HL_ROLE_Q_NORM]             = { "attn.q_norm", "q", NULL, HL_BIAS_QK_NORM },
    [HL_ROLE_K_NORM]             = { "attn.k_norm", "k", NULL, HL_BIAS_QK_NORM },
    [HL_ROLE_SINKS]              = { "attn.sinks", "H", NULL, 0 },
    [HL_ROLE_LATENT_QUERY]       = { "latent.query", "a", "D", HL_BIAS_QKV },
    [HL_ROLE_LATENT_QUERY_NORM]  = { "latent.query_norm", "a", NULL, 0 },
    [HL_ROLE_LATENT_Q]           = { "latent.q", "u", "y", 0 },
    [HL_ROLE_LATENT_ROPE]        = { "latent.rope", "r", "D", HL_BIAS_QKV },
    [HL_ROLE_LATENT]             = { "latent", "l", "D", HL_BIAS_QKV },
    [HL_ROLE_LATENT_NORM]        = { "latent.norm", "l", NULL, 0 },
    [HL_ROLE_LATENT_K]           = { "latent.k", "l", "o", 0 },
    [HL_ROLE_LATENT_V]           = { "latent.v", "v", "l", 0 },
    [HL_ROLE_INDEX_Q]            = { "index.q", "t", "a", 0 },
    [HL_ROLE_INDEX_K]            = { "index.k", "p", "D", 0 },
    [HL_ROLE_INDEX_K_NORM]       = { "index.k_norm", "p", NULL, HL_BIAS_INDEX },
    [HL_ROLE_INDEX_WEIGHTS]      = { "index.weights", "x", "D", 0 },
    [HL_ROLE_ATTN_Z_NORM]        = { "attn.z_norm", "Q", NULL, 0 },
    [HL_ROLE_ATTN_O]             = { "attn.o", "D", "Q", HL_BIAS_O },
    [HL_ROLE_ATTN_POST_NORM]     = { "attn.post_norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_MIX_IN]             = { "mixer.in", "M", "D", HL_BIAS_MIX_IN },
    [HL_ROLE_MIX_Q]              = { "mixer.q", "G", "D", 0 },
    [HL_ROLE_MIX_K]              = { "mixer.k", "G", "D", 0 },
    [HL_ROLE_MIX_V]              = { "mixer.v", "I", "D", 0 },
    [HL_ROLE_MIX_Z]              = { "mixer.z", "I", "D", 0 },
    [HL_ROLE_MIX_B]              = { "mixer.b", "h", "D", 0 },
    [HL_ROLE_MIX_A]              = { "mixer.a", "h", "D", 0 },
    [HL_ROLE_MIX_CONV]           = { "mixer.conv", "C", "w", HL_BIAS_CONV },
    [HL_ROLE_MIX_X]              = { "mixer.x", "B", "I", 0 },
    [HL_ROLE_MIX_DT]             = { "mixer.dt", "I", "R", 0 },
    [HL_ROLE_MIX_DT_NORM]        = { "mixer.dt_norm", "R", NULL, 0 },
    [HL_ROLE_MIX_K_NORM]         = { "mixer.k_norm", "N", NULL, 0 },
    [HL_ROLE_MIX_Q_NORM]         = { "mixer.q_norm", "N", NULL, 0 },
    [HL_ROLE_MIX_DT_BIAS]        = { "mixer.dt_bias", "j", NULL, 0 },
    [HL_ROLE_MIX_DECAY]          = { "mixer.decay", "j", "i", 0 },
    [HL_ROLE_MIX_SKIP]           = { "mixer.skip", "j", NULL, 0 },
    [HL_ROLE_MIX_NORM]           = { "mixer.norm", "n", NULL, 0 },
    [HL_ROLE_MIX_OUT]            = { "mixer.out", "D", "I", HL_BIAS_MIX_OUT },
    [HL_ROLE_MLP_NORM]           = { "mlp.norm", "D", NULL, HL_BIAS_NORM },
    [HL_ROLE_MLP_GATE]           = { "mlp.gate", "F", "D", HL_BIAS_MLP },
    [HL_ROLE_MLP_UP]             = { "mlp.up", "F", "D", HL_BIAS_MLP },
    [HL_ROLE_MLP_DOWN]           = { "mlp.down", "D", "F", HL_BIAS_MLP },
    [HL_ROLE_MLP_INNER_NORM]     = { "mlp.inner_norm", "F", NULL, 0 },
    [HL_ROLE_XIELU_P]            = { "mlp.xielu.p", "1", NULL, 0 },
    [HL_ROLE_XIELU_N]            = { "mlp.xielu.n", "1", NULL, 0 },
    [HL_ROLE_XIELU_B]            = { "mlp.xielu.b", "1", NULL, 0 },
    [HL_ROLE_XIELU_E]            = { "mlp.xielu.e", "1", NULL, 0 },
    [HL_ROLE_ROUTER]             = { "router", "X", "D", HL_BIAS_ROUTER },
    [HL_ROLE_ROUTER_CORRECTION]  = { "router.correction", "X", NULL, 0 },
    [HL_ROLE_EXPERT_GATE]        = { "expert.gate", "F", "D", HL_BIAS_EXPERTS },
    [HL_ROLE_EXPERT_UP]          = { "expert.up", "F", "D", HL_BIAS_EXPERTS },
    [HL_ROLE_EXPERT_DOWN]        = { "expert.down", "D", "F", HL_BIAS_EXPERTS },
    [HL_ROLE_SHARED_ROUTER]      = { "shared.router", "1", "D", 0 },
    [HL_ROLE_SHARED_GATE]        = { "shared.gate", "S", "D", HL_BIAS_SHARED },
    [HL_ROLE_SHARED_UP]          = { "shared.up", "S", "D", HL_BIAS_SHARED },
    [HL_ROLE_SHARED_DOWN]        = { "shared.down", "D", "S", HL_BIAS_SHARED },
    [HL_ROLE_ROUTER_NORM]        = { "router.norm", "D", NULL, 0 },
    [HL_ROLE_EXPERT_SCALE]       = { "expert.scale", "X", NULL, 0 },
    [HL_ROLE_EXPERT_NORM]        = { "expert.norm", "D", NULL, 0 },
    [HL_ROLE_EXPERT_POST_NORM]   = { "expert.post_norm", "D", NULL, 0 },
    [HL_ROLE_SHARED_POST_NORM]   = { "shared.post_norm", "D", NULL, 0 },
    [HL_ROLE_PLE_GATE]           = { "ple.gate", "Z", "D", 0 },
    [HL_ROLE_PLE_OUT]            = { "ple.out", "D", "Z", 0 },
    [HL_ROLE_PLE_NORM]           = { "ple.norm", "D", NULL, 0 },
    [HL_ROLE_LAYER_SCALE]        = { "layer.scale", "1", NULL, 0 },
    [HL_ROLE_MLP_POST_NORM]      = { "mlp.post_norm", "D", NULL, HL_BIAS_NORM },

    [HL_ROLE_ATTN_QKV]        = { "attn.qkv", "QKK", "D", HL_BIAS_QKV },
    [HL_ROLE_MLP_GATE_UP]     = { "mlp.gate_up", "FF", "D", HL_BIAS_MLP },
    [HL_ROLE_EXPERT_GATE_UP]  = { "expert.gate_up", "FF", "D", HL_BIAS_EXPERTS },
    [HL_ROLE_SHARED_GATE_UP]  = { "shared.gate_up", "SS", "D", HL_BIAS_SHARED },
    [HL_ROLE_ATTN_Q_GATE]     = { "attn.q_gate", "QQ", "D", HL_BIAS_QKV },
    [HL_ROLE_MIX_QKV]         = { "mixer.qkv", "GGI", "D", 0 },
    [HL_ROLE_MIX_QKVZ]        = { "mixer.qkvz", "GGII", "D", 0 },
    [HL_ROLE_LATENT_AND_ROPE] = { "latent.and_rope", "lr", "D", HL_BIAS_QKV },
    [HL_ROLE_LATENT_KV]       = { "latent.kv", "b", "l", 0 },
    [HL_ROLE_MIX_BA]          = { "mixer.ba", "hh", "D", 0 },
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

bool hl_role_is_floats(hl_role role)
{
    return hl_role_is_vector(role) || role == HL_ROLE_MIX_CONV || role == HL_ROLE_MIX_DECAY ||
           role == HL_ROLE_STREAM_PREDICT || role == HL_ROLE_STREAM_CORRECT;
}

bool hl_role_holds(hl_role stored, hl_role role)
{
    static const struct {
        hl_role stored;
        hl_role first; /* the stored tensor holds all roles from `first` to `last` */
        hl_role last;
    } fused[] = {
        { HL_ROLE_ATTN_QKV, HL_ROLE_ATTN_Q, HL_ROLE_ATTN_V },
        { HL_ROLE_ATTN_Q_GATE, HL_ROLE_ATTN_Q, HL_ROLE_ATTN_Q },
        { HL_ROLE_ATTN_Q_GATE, HL_ROLE_ATTN_GATE, HL_ROLE_ATTN_GATE },
        { HL_ROLE_MLP_GATE_UP, HL_ROLE_MLP_GATE, HL_ROLE_MLP_UP },
        { HL_ROLE_EXPERT_GATE_UP, HL_ROLE_EXPERT_GATE, HL_ROLE_EXPERT_UP },
        { HL_ROLE_SHARED_GATE_UP, HL_ROLE_SHARED_GATE, HL_ROLE_SHARED_UP },
        { HL_ROLE_MIX_QKV, HL_ROLE_MIX_Q, HL_ROLE_MIX_V },
        { HL_ROLE_MIX_QKVZ, HL_ROLE_MIX_Q, HL_ROLE_MIX_Z },
        { HL_ROLE_MIX_BA, HL_ROLE_MIX_B, HL_ROLE_MIX_A },
        { HL_ROLE_LATENT_AND_ROPE, HL_ROLE_LATENT_ROPE, HL_ROLE_LATENT },
        { HL_ROLE_LATENT_KV, HL_ROLE_LATENT_K, HL_ROLE_LATENT_V },
    };

    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
        if (stored == fused[i].stored && role >= fused[i].first && role <= fused[i].last)
            return true;
    }
    return stored == role;
}

/* ------------------------------------------------------------------- shapes */

/* The letters of mixers. */
static int64_t size_in_mixer(char letter, const hl_config *config, const hl_layer_config *layer)
{
    const hl_mixer_config *mixer = &config->mixer;
    int64_t                inner = mixer->n_heads * mixer->d_head;
    int64_t                keys  = mixer->n_groups * mixer->d_state;
    bool                   each  = layer->mixer == HL_MIXER_MAMBA;

    switch (letter) {
    case 'I':
        return inner;
    case 'G':
        return keys;
    case 'C':
        return mixer->n_channels;
    case 'w':
        return mixer->width;
    case 'h':
        return mixer->n_heads;
    case 'N':
        return mixer->d_state;
    case 'R':
        return mixer->d_step;
    case 'n':
        return layer->mixer == HL_MIXER_DELTA ? mixer->d_head : inner;
    case 'M':
        return layer->mixer == HL_MIXER_CONV     ? 3 * inner
               : layer->mixer == HL_MIXER_MAMBA2 ? 2 * (inner + keys) + mixer->n_heads
                                                 : 2 * inner;
    case 'B':
        return mixer->d_step + 2 * mixer->d_state;
    case 'j':
        return each ? inner : mixer->n_heads;
    default: /* i */
        return each ? mixer->d_state : 1;
    }
}

/* The letters of latent attention; 0: not one of them. */
static int64_t size_in_latent(char letter, const hl_config *config, const hl_layer_config *layer)
{
    const hl_latent_config *latent = &config->latent;

    switch (letter) {
    case 'l':
        return latent->d_latent;
    case 'r':
        return latent->d_rope;
    case 'o':
        return latent->d_nope;
    case 'v':
        return latent->d_value;
    case 'a':
        return latent->d_query;
    case 'u':
        return layer->n_heads * (latent->d_nope + latent->d_rope);
    case 'y':
        return latent->d_query > 0 ? latent->d_query : config->d_model;
    case 'b':
        return layer->n_heads * (latent->d_nope + latent->d_value);
    case 'x':
        return latent->n_index_heads;
    case 'p':
        return latent->d_index;
    case 't':
        return latent->n_index_heads * latent->d_index;
    default:
        return 0;
    }
}

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
    case 'W':
        return config->d_ple_vocab;
    case 'Z':
        return config->d_ple;
    case 'Y':
        return config->n_layers * config->d_ple;
    case 'A':
        return config->n_streams;
    case 'O':
        return config->n_streams * config->n_streams;
    case 'L':
        return config->d_laurel;
    case '1':
        return 1;
    default:
        return strchr("lrovauybxpt", letter) != NULL ? size_in_latent(letter, config, layer)
                                                     : size_in_mixer(letter, config, layer);
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
    case HL_ROLE_STREAM_IN:
    case HL_ROLE_STREAM_OUT:
        return config->n_streams - 1;
    case HL_ROLE_LATENT_K:
    case HL_ROLE_LATENT_V:
        return at->n_heads;
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
    case HL_ROLE_PLE_EMBED:
    case HL_ROLE_PLE_IN:
    case HL_ROLE_PLE_IN_NORM:
        return required_if(config->d_ple > 0);
    case HL_ROLE_STREAM_IN:
    case HL_ROLE_STREAM_OUT:
        return required_if(config->n_streams > 1);
    case HL_ROLE_EMBED_IN:
    case HL_ROLE_EMBED_OUT:
        return required_if(config->d_embed != config->d_model);
    case HL_ROLE_POSITION:
        if (config->sinusoids)
            return HL_ROLE_OPTIONAL; /* made when the model opens */
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

static hl_role_need latent_need(hl_role role, const hl_config *config)
{
    const hl_latent_config *latent = &config->latent;

    if (latent->d_latent == 0)
        return HL_ROLE_ABSENT;
    if (role == HL_ROLE_LATENT_QUERY || role == HL_ROLE_LATENT_QUERY_NORM)
        return required_if(latent->d_query > 0);
    if (role >= HL_ROLE_INDEX_Q && role <= HL_ROLE_INDEX_WEIGHTS)
        return required_if(latent->n_top > 0);
    return HL_ROLE_REQUIRED;
}

static hl_role_need attention_need(hl_role role, const hl_config *config, int64_t layer)
{
    bool pre  = config->norm_place == HL_NORM_PRE || config->norm_place == HL_NORM_SANDWICH;
    bool post = config->norm_place != HL_NORM_PRE;

    if (config->layers[layer].n_heads == 0 &&
        (config->layers[layer].mixer == HL_MIXER_NONE ||
         (role != HL_ROLE_ATTN_NORM && role != HL_ROLE_ATTN_POST_NORM)))
        return HL_ROLE_ABSENT;
    if (role >= HL_ROLE_LATENT_QUERY && role <= HL_ROLE_INDEX_WEIGHTS)
        return latent_need(role, config);
    if (config->latent.d_latent > 0 && role >= HL_ROLE_ATTN_Q && role <= HL_ROLE_ATTN_V)
        return HL_ROLE_ABSENT;
    switch (role) {
    case HL_ROLE_ATTN_K:
    case HL_ROLE_ATTN_V:
        return required_if(hl_config_own_kv_heads(config, layer) > 0);
    case HL_ROLE_ATTN_GATE:
        return required_if(config->attn_gated);
    case HL_ROLE_ATTN_Z_NORM:
        return required_if(config->inner_norms);
    case HL_ROLE_ATTN_NORM:
        return required_if(pre && !config->norm_plain && !(config->first_norm_plain && layer == 0));
    case HL_ROLE_ATTN_POST_NORM:
        return required_if(post && !config->norm_plain);
    case HL_ROLE_Q_NORM:
        return required_if(config->layers[layer].qk_norm != HL_HEAD_NORM_NONE &&
                           !config->qk_norm_plain);
    case HL_ROLE_K_NORM:
        return required_if(config->layers[layer].qk_norm != HL_HEAD_NORM_NONE &&
                           !config->qk_norm_plain && hl_config_own_kv_heads(config, layer) > 0);
    case HL_ROLE_SINKS:
        return required_if(config->sinks);
    default:
        return HL_ROLE_REQUIRED;
    }
}

static hl_role_need mixer_need(hl_role role, const hl_config *config, int64_t layer)
{
    hl_mixer mixer = config->layers[layer].mixer;
    bool     delta = mixer == HL_MIXER_DELTA;
    bool     scans = delta || mixer == HL_MIXER_MAMBA2 || mixer == HL_MIXER_MAMBA;

    switch (role) {
    case HL_ROLE_MIX_CONV:
    case HL_ROLE_MIX_OUT:
        return required_if(mixer != HL_MIXER_NONE);
    case HL_ROLE_MIX_IN:
        return required_if(mixer != HL_MIXER_NONE && !delta);
    case HL_ROLE_MIX_DT_BIAS:
    case HL_ROLE_MIX_DECAY:
        return required_if(scans);
    case HL_ROLE_MIX_SKIP:
        return required_if(scans && !delta);
    case HL_ROLE_MIX_NORM:
        return required_if(scans && config->mixer.n_norms > 0);
    case HL_ROLE_MIX_X:
    case HL_ROLE_MIX_DT:
    case HL_ROLE_MIX_DT_NORM:
    case HL_ROLE_MIX_K_NORM:
    case HL_ROLE_MIX_Q_NORM:
        return required_if(mixer == HL_MIXER_MAMBA);
    default: /* q, k, v, z, b, a */
        return required_if(delta);
    }
}

static hl_role_need mlp_need(hl_role role, const hl_config *config, int64_t layer)
{
    bool pre     = config->norm_place == HL_NORM_PRE || config->norm_place == HL_NORM_SANDWICH;
    bool post    = config->norm_place != HL_NORM_PRE;
    bool shared  = config->residual == HL_RESIDUAL_PARALLEL_SHARED;
    bool mixture = config->layers[layer].n_experts > 0;

    if (role == HL_ROLE_LAYER_SCALE)
        return config->layers_scaled ? HL_ROLE_OPTIONAL : HL_ROLE_ABSENT;
    if (role >= HL_ROLE_PLE_GATE && role <= HL_ROLE_PLE_NORM)
        return required_if(config->d_ple > 0);
    if (config->layers[layer].d_mlp == 0)
        return HL_ROLE_ABSENT;
    switch (role) {
    case HL_ROLE_ROUTER_NORM:
    case HL_ROLE_EXPERT_SCALE:
    case HL_ROLE_EXPERT_NORM:
    case HL_ROLE_EXPERT_POST_NORM:
    case HL_ROLE_SHARED_POST_NORM:
        return required_if(mixture && config->experts_apart);
    case HL_ROLE_MLP_NORM:
        return required_if(pre && !shared && !config->norm_plain);
    case HL_ROLE_MLP_POST_NORM:
        return required_if(post && !config->norm_plain);
    case HL_ROLE_MLP_INNER_NORM:
        return required_if(config->inner_norms && !mixture);
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
    case HL_ROLE_ROUTER_CORRECTION:
        return required_if(mixture && config->router.has_correction);
    case HL_ROLE_ROUTER:
    case HL_ROLE_EXPERT_UP:
    case HL_ROLE_EXPERT_DOWN:
        return required_if(mixture);
    case HL_ROLE_SHARED_ROUTER:
        return required_if(mixture && config->d_shared > 0 && config->shared_gated);
    case HL_ROLE_SHARED_GATE:
        return required_if(mixture && config->d_shared > 0 && config->gated);
    default: /* the shared expert */
        return required_if(mixture && config->d_shared > 0);
    }
}

static hl_role_need stream_need(hl_role role, const hl_config *config)
{
    if (role >= HL_ROLE_LAUREL_IN)
        return required_if(config->d_laurel > 0);
    if (role == HL_ROLE_STREAM_SCALE)
        return required_if(config->n_streams > 1 && config->streams_scaled);
    return required_if(config->n_streams > 1);
}

hl_role_need hl_role_weight_need(hl_role role, const hl_config *config, int64_t layer)
{
    if (!hl_role_is_of_layer(role))
        return model_need(role, config);
    if (role <= HL_ROLE_LAUREL_NORM)
        return stream_need(role, config);
    if (role <= HL_ROLE_ATTN_POST_NORM)
        return attention_need(role, config, layer);
    if (role <= HL_ROLE_MIX_OUT)
        return mixer_need(role, config, layer);
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

/* f (W (i x) + b) is computed as f i (W x + b / i): factors of a branch's input and of its result are
 * applied together. */
double hl_role_bias_factor(hl_role role, const hl_config *config)
{
    switch (role) {
    case HL_ROLE_ATTN_Q:
    case HL_ROLE_ATTN_K:
    case HL_ROLE_ATTN_V:
        return 1.0 / config->attn_in_factor;
    case HL_ROLE_MIX_IN:
        return 1.0 / config->mixer.in_factor;
    case HL_ROLE_MIX_OUT:
        return config->mixer.out_factor;
    case HL_ROLE_MLP_DOWN:
        return config->mlp_out_factor;
    default:
        return 1.0;
    }
}
