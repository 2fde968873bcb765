/* config.h - one description that fits every supported model.
 *
 * A decoder or an encoder is a stack of blocks; what differs between families is where the norms
 * stand, how positions enter, how many heads there are and what the MLP looks like.  hl_config
 * describes all of this.  It comes from config.json, from the metadata of a GGUF file or from the
 * header of a llama2.c file; its users (weights, the forward pass, pruning) need not know which.
 *
 *     hl_config *config = NULL;
 *     HL_TRY(hl_config_parse(&config, text, n_bytes, "config.json"));
 *     ... config->layers[i].n_heads ...
 *   done:
 *     hl_config_free(config);
 *
 * In the tables that families are made of, zero means "default" or "none".  In a finished
 * description every number is final: scales are 1 if there is no scaling, sizes that follow from
 * others are filled in, and everything has been checked, so that products of sizes fit in 63 bits.
 *
 * One block, with x the residual stream, r = residual_scale, and A, M the branches
 * (attention, MLP):
 *
 *     PRE       x += r A(n1(x));          x += r M(n2(x))
 *     SANDWICH  x += r p1(A(n1(x)));      x += r p2(M(n2(x)))
 *     BRANCH    x += r p1(A(x));          x += r p2(M(x))
 *     POST      x  = p1(x + A(x));        x  = p2(x + M(x))
 *     PARALLEL, PARALLEL_SHARED (place PRE)
 *               x += A(n1(x)) + M(n2(x)), with n2 = n1 if it is shared
 *
 * n1, n2, p1, p2 are the roles ATTN_NORM, MLP_NORM, ATTN_POST_NORM and
 * MLP_POST_NORM of roles.h.
 *
 * Some models have several streams.  x_0 is the embedding e, and x_a = W_a e, as long as e.  A block
 * runs on one stream, which it predicts from all of them, and corrects the others by what it changed:
 *
 *     x_a += sum of C_ab(x_0) x_b over b;   y = block(x_0)
 *     x_a += (1 + c_a(y)) (y - x_0)
 *
 * with coefficients C and c from small maps.  At the end, x_0 and all U_a x_a, as long as x_0, are
 * averaged.  Where the rest of the library speaks of the stream, it means x_0. */
#ifndef HL_MODEL_CONFIG_H
#define HL_MODEL_CONFIG_H

#include "base/memory.h"
#include "formats/gguf.h"
#include "formats/llama2c.h"
#include "formats/tensors.h"
#include "headlight/attention.h"
#include "headlight/model.h"
#include "kernels/dense.h"
#include "kernels/router.h"

#define HL_MAX_LAYERS     1024
#define HL_MAX_EOS_TOKENS 16
#define HL_MAX_ROPE_PAIRS (HL_MAX_HEAD_DIM / 2)

typedef enum hl_norm_place {
    HL_NORM_PRE = 0,
    HL_NORM_POST,
    HL_NORM_BRANCH,
    HL_NORM_SANDWICH,
} hl_norm_place;

typedef enum hl_residual {
    HL_RESIDUAL_SEQUENTIAL = 0,
    HL_RESIDUAL_PARALLEL,        /* both branches read x, each through its norm */
    HL_RESIDUAL_PARALLEL_SHARED, /* both branches read x through the same norm */
} hl_residual;

typedef enum hl_position {
    HL_POSITION_NONE = 0,
    HL_POSITION_LEARNED,      /* a table, added to the embedding                */
    HL_POSITION_ROPE,         /* rotary; each layer says which one, or none */
    HL_POSITION_ALIBI,        /* score + slope * key position                   */
    HL_POSITION_ALIBI_FALCON, /* (q.k + bf16(slope * key position)) / sqrt(d_head) */
} hl_position;

/* The linear maps and norms that have a bias. */
enum {
    HL_BIAS_QKV     = 1 << 0,
    HL_BIAS_O       = 1 << 1,
    HL_BIAS_MLP     = 1 << 2,
    HL_BIAS_NORM    = 1 << 3,
    HL_BIAS_QK_NORM = 1 << 4,
    HL_BIAS_ROUTER  = 1 << 5,
    HL_BIAS_EXPERTS = 1 << 6,
    HL_BIAS_HEAD    = 1 << 7,
    HL_BIAS_CONV    = 1 << 8, /* mixers: the convolution    */
    HL_BIAS_MIX_IN  = 1 << 9, /* and both projections       */
    HL_BIAS_MIX_OUT = 1 << 10,
    HL_BIAS_SHARED  = 1 << 11, /* the expert that every row uses */
    HL_BIAS_INDEX   = 1 << 12, /* the norm of an indexer's keys */
};

/* ----------------------------------------------------------------- mixers */

/* What a layer has instead of attention, or beside it: a branch whose state has the same size
 * whatever the length of the text.  With u = n(x):
 *
 *     CONV    b, c, y = in(u);                  out(c * conv(b * y))
 *     DELTA   q, k, v, z, b, a = in(u); q, k, v = silu(conv(q, k, v));
 *             out(silu(z) * norm(scan(v, k, q, a, b)))
 *     MAMBA2  z, x, k, q, dt = in(u); x, k, q = silu(conv(x, k, q)); y = scan(x, k, q, dt);
 *             out(norm(y * silu(z))), in some models without the norm or silu(z) * norm(y)
 *     MAMBA   x, z = in(u); x = silu(conv(x)); dt, k, q = x_proj(x), each through a norm;
 *             out(silu(z) * scan(x, k, q, W dt))
 *
 * conv and scan are those of kernels/dense.h. */
typedef enum hl_mixer {
    HL_MIXER_NONE = 0,
    HL_MIXER_CONV,
    HL_MIXER_DELTA,
    HL_MIXER_MAMBA2,
    HL_MIXER_MAMBA,
} hl_mixer;

/* Parts of a MAMBA2 projection, which may each have a factor. */
enum { HL_MIX_Z = 0, HL_MIX_X, HL_MIX_K, HL_MIX_Q, HL_MIX_DT, HL_N_MIX_PARTS };

/* The sizes of all mixers of a model. */
typedef struct hl_mixer_config {
    hl_mixer kind;     /* of layers that do not attend; NONE: the family has none */
    int64_t  n_heads;  /* CONV, MAMBA: 1 */
    int64_t  d_head;   /* CONV, MAMBA: number of channels */
    int64_t  n_groups; /* number of different k and q; divides n_heads */
    int64_t  d_state;
    int64_t  n_channels; /* of the convolution */
    int64_t  width;      /* of the convolution: rows that it sees, its own included */
    int64_t  d_step;     /* MAMBA: rank of dt */
    int64_t  n_norms;    /* groups of the norm; DELTA: each head; 0: no norm */
    bool     is_tiled;   /* head h reads group h % n_groups; else h / (n_heads / n_groups) */
    bool     norm_first; /* the norm before the gate */
    double   dt_low;     /* limits of dt */
    double   dt_high;
    double   in_factor;               /* of the branch's input */
    double   factors[HL_N_MIX_PARTS]; /* of the parts of its first projection; in_factor included */
    double   out_factor;              /* of the branch's result */
} hl_mixer_config;

/* -------------------------------------------------------- latent attention */

/* Keys and values of all heads are linear maps of one row per position, which is what the cache
 * holds: a latent c, and a part k_rope of the key that is rotated.  With u = n(x), head h has
 *
 *     q_h = (nope, rope) = Q_h norm(A u), or Q_h u        k_h = (K_h c, k_rope)        v_h = V_h c
 *
 * and c = norm(C u).  As  nope . K_h c = K_h' nope . c,  attention runs on the latents themselves:
 * one key (k_rope, c) for all heads, whose second part is also the value, queries (rope, K_h' nope),
 * and V_h follows the softmax. */
typedef struct hl_latent_config {
    int64_t d_latent; /* of c; 0: ordinary attention */
    int64_t d_rope;
    int64_t d_nope;
    int64_t d_value;
    int64_t d_query; /* rank of A; 0: none */
    /* The indexer of sparse attention: a row sees the n_top keys with the largest
     *     sum over its heads of  weight_h relu(q_h . k)
     * with one key per position; 0: all keys. */
    int64_t n_top;
    int64_t n_index_heads;
    int64_t d_index;
} hl_latent_config;

/* ------------------------------------------------------------------- rope */

typedef enum hl_rope_kind {
    HL_ROPE_DEFAULT = 0,
    HL_ROPE_LINEAR,
    HL_ROPE_DYNAMIC,
    HL_ROPE_LLAMA3,
    HL_ROPE_YARN,
    HL_ROPE_LONGROPE,
    HL_ROPE_PROPORTIONAL, /* a share of the pairs turns, the others do not */
    HL_ROPE_FACTORS,      /* short_factors divide the frequencies (GGUF's rope_freqs) */
} hl_rope_kind;

/* rope.c turns this into frequencies. */
typedef struct hl_rope {
    hl_rope_kind kind;
    bool         interleaved; /* pairs (2i, 2i+1); else (i, i + n_dims/2)     */
    int64_t      n_dims;      /* number of dimensions of a head that are rotated: the first ones */
    double       base;        /* theta */
    double       factor;
    double       share;           /* proportional: of the pairs that turn */
    double       alpha;           /* the base is multiplied by alpha^(n / (n - 2)); 0: not */
    double       low_freq_factor; /* llama3 */
    double       high_freq_factor;
    double       beta_fast; /* yarn */
    double       beta_slow;
    bool         untruncated;      /* yarn: the ramp's ends are not rounded         */
    double       attention_factor; /* multiplies cos and sin; always filled in      */
    double       mscale_all;       /* yarn, latent attention: the scores' scale has a part of it */
    double       long_factor;      /* longrope: attention_factor beyond original_n_ctx */
    int64_t      original_n_ctx;   /* context length in training; n_ctx for dynamic */
    int64_t      n_factors;        /* entries of the two lists of factors: n_dims/2, or 0 */
    float        short_factors[HL_MAX_ROPE_PAIRS]; /* longrope, factors */
    float        long_factors[HL_MAX_ROPE_PAIRS];
} hl_rope;

/* An index into the ropes of hl_config; HL_ROPE_NONE rotates nothing. */
typedef enum hl_rope_choice {
    HL_ROPE_NONE = 0,
    HL_ROPE_MAIN,
    HL_ROPE_LOCAL, /* for local layers, in families with two kinds of layers */
    HL_N_ROPES
} hl_rope_choice;

/* ---------------------------------------------------------------- the whole */

typedef struct hl_layer_config {
    hl_mixer       mixer;
    int64_t        n_heads; /* 0: no attention in this layer */
    int64_t        n_kv_heads;
    int64_t        d_head;
    int64_t        d_mlp;        /* 0: no MLP; in a mixture, the size of one expert */
    int64_t        n_experts;    /* 0: a single MLP without a router */
    bool           is_local;     /* has a window: window_left, window_right and window_sink apply */
    int64_t        window_left;  /* keys before the row's own position */
    int64_t        window_right; /* keys after it; encoders only       */
    int64_t        window_sink;  /* number of first keys that stay visible */
    bool           window_blocks; /* a row sees its block of window_left + 1 positions instead */
    hl_rope_choice rope;
    hl_head_norm   qk_norm;
    double         attn_scale; /* multiplies q.k */
    double         scale;      /* of the stream after the layer; 0: not */
    double         deviations; /* if is_sparse: of the gate, values above mean + this times their
                                * standard deviation are kept, and reduced by it */
    bool           is_sparse;
    double         temper; /* q *= 1 + temper log(1 + floor((position + temper_first) /
                                * temper_period)), after RoPE; 0: not */
    float          numbers[HL_ACTIVATION_NUMBERS]; /* of the activation */
    /* Layer whose keys and values it uses: its own, or an earlier one.  An encoder keeps no keys
     * and values; all its layers share the place of the first. */
    int64_t kv_layer;
} hl_layer_config;

/* From generation_config.json; 0 and -1 mean that the file does not say. */
typedef struct hl_generation {
    int64_t bos_id;
    int64_t pad_id;
    int64_t eos_ids[HL_MAX_EOS_TOKENS];
    int     n_eos_ids;
    int64_t foreign_ids[HL_MAX_EOS_TOKENS + 2]; /* ids in the file that the vocabulary lacks */
    int     n_foreign_ids;
    bool    do_sample;
    double  temperature;
    double  top_p;
    int64_t top_k;
    double  repetition_penalty;
} hl_generation;

/* Members follow the order of a forward pass.  Padding does not matter: there is one per model. */
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
typedef struct hl_config {
    const char *family;     /* static */
    bool        is_encoder; /* every row sees every key */
    bool        is_part;    /* the text model of one that also sees or hears */

    int64_t n_layers;
    int64_t d_model;
    int64_t d_vocab;
    int64_t n_ctx;   /* 0: unknown, and not needed */
    int64_t n_heads; /* largest number in a layer; likewise n_kv_heads, d_head and d_mlp */
    int64_t n_kv_heads;
    int64_t d_head;
    int64_t d_mlp;

    /* Embedding. */
    hl_position position;
    int64_t     position_offset; /* rows of the stored table before position 0 */
    bool        sinusoids; /* the table is not stored: row p has the sines, then the cosines of
                                  * (p + position_offset) 10000^(-i / (d_model/2 - 1)) */
    int64_t     d_embed;   /* d_model, unless a projection follows */
    double      alibi_max; /* exponent of the last head's slope, 2^-alibi_max; 0: 8 */
    int64_t     n_token_types;
    bool        embed_norm;
    double      embed_scale;

    /* Per-layer inputs: with e = norm(W embedding) + table[token], each layer's d_ple of them,
     * a layer ends with  x += norm(out(act(gate x) * e)). */
    int64_t d_ple; /* 0: none */
    int64_t d_ple_vocab;
    bool    layers_scaled;
    int64_t d_ple_known; /* tokens from this on read the table's row 0; 0: all have rows */

    /* Several residual streams.  Per-layer inputs are then added to all but the first. */
    int64_t n_streams;
    bool    streams_scaled;
    int64_t
        d_laurel; /* rank of a map beside attention:  x = (x + A + n + norm(V U n)) / sqrt(2) with
                       * n = n1(x); 0: none */

    /* Blocks. */
    hl_norm_kind  norm;
    hl_norm_place norm_place;
    double        norm_eps;
    bool          norm_plain;       /* norms have neither weight nor bias */
    bool          first_norm_plain; /* the first block's n1 is the identity */
    hl_residual   residual;
    bool          residual_normed; /* bloom: the branch is added to n(x), not to x */
    double        residual_scale;
    hl_head_norm  qk_norm;       /* norm of q and k, with the kind and eps of all other norms */
    bool          qk_norm_last;  /* that norm follows RoPE */
    bool          qk_norm_plain; /* and has no weights */
    bool          v_normed;      /* heads of v are divided by their root mean square */
    double        qkv_limit;     /* before RoPE, q, k and v are clamped to +-this; 0: not */
    int64_t       temper_first;  /* for layers[].temper */
    int64_t       temper_period;
    bool          sinks;           /* learned sinks, one per head */
    double        attn_softcap;    /* 0: no soft-cap */
    double        attn_in_factor;  /* of attention's input; attn_scale has its part of q and k */
    double        attn_out_factor; /* of attention's result */
    bool          attn_gated;      /* what heads write is multiplied by a sigmoid: ATTN_GATE */
    bool          inner_norms;     /* bitnet: norms before the last map of each branch */
    hl_activation activation;
    double        activation_limit; /* SWIGLU_CLAMPED */
    double        mlp_out_factor;   /* of the MLP's result; SILU_SCALED has it, biases do not */
    bool          gated;            /* act(gate x) * (up x), else act(up x) */
    uint32_t      biases;           /* HL_BIAS_... */

    hl_mixer_config  mixer; /* of layers that have one */
    hl_latent_config latent;

    /* Mixture of experts. */
    int64_t   n_experts; /* number of experts; 0: no mixture */
    int64_t   n_experts_used;
    int64_t   d_expert;
    int64_t   n_shared;      /* number of experts that are always used, stored as one */
    int64_t   d_shared;      /* size of all shared experts together; 0: there are none */
    bool      shared_gated;  /* the shared experts have a sigmoid of a logit as weight; else 1 */
    bool      experts_apart; /* router and experts read the stream through norms of their own, and
                              * each result has a norm before both are added */
    int64_t   n_dense;       /* number of first layers without experts */
    hl_router router;
    bool      mxfp4; /* experts stored as blocks and scales */

    /* After the last block. */
    bool   no_final_norm;
    bool   tied;     /* the output head is the embedding */
    bool   headless; /* a base model without an output head */
    double logit_scale;
    double logit_softcap; /* 0: no soft-cap */

    hl_rope          ropes[HL_N_ROPES];
    hl_layer_config *layers; /* (n_layers) */
    hl_generation    generation;

    /* What families derive layers[] from; after that, layers[] is what counts. */
    double  attn_scale; /* 0: 1/sqrt(d_head) */
    double  temper;
    double  rotary_fraction;
    int64_t window;
    int64_t window_period; /* one layer out of this number is full: the last of each group */
    bool    full_first;    /* the first layer of each group is full, not the last */
} hl_config;

/* The number of KV heads that a layer computes: none if it uses those of an earlier layer. */
static inline int64_t hl_config_own_kv_heads(const hl_config *config, int64_t layer)
{
    const hl_layer_config *at = &config->layers[layer];

    return config->is_encoder || at->kv_layer == layer ? at->n_kv_heads : 0;
}

/* The size of a cached row of latent attention. */
static inline int64_t hl_latent_key_size(const hl_config *config)
{
    return config->latent.d_rope + config->latent.d_latent;
}

/* The context length: `asked`, or the default where it is 0 (headlight/model.h). */
static inline int64_t hl_config_ctx(const hl_config *config, int64_t asked)
{
    int64_t own =
        config->n_ctx > 0 && config->n_ctx < HL_DEFAULT_CTX ? config->n_ctx : HL_DEFAULT_CTX;

    return asked != 0 ? asked : own;
}

/* Parses the text of a config.json; `where` names it in messages. */
hl_status hl_config_parse(hl_config **out, const char *text, size_t n_bytes, const char *where);
/* Adds what generation_config.json says, overriding existing values. */
hl_status hl_config_parse_generation(hl_config *config, const char *text, size_t n_bytes,
                                     const char *where);
/* Reads the metadata of a GGUF file and the names of its tensors. */
hl_status hl_config_of_gguf(hl_config **out, const hl_gguf *file, const hl_tensors *tensors);
/* Reads the header of a llama2.c file, which is a Llama. */
hl_status hl_config_of_llama2c(hl_config **out, const hl_llama2c_config *header, const char *where);
void      hl_config_free(hl_config *config);
HL_CLOSES(hl_config_free, hl_config)

/* "gelu_tanh", ... ; static. */
const char *hl_activation_name(hl_activation activation);
const char *hl_rope_kind_name(hl_rope_kind kind);
/* "short convolution", ...; "" for none. */
const char *hl_mixer_name(hl_mixer mixer);
/* Floats of one sequence's state in a layer with this mixer: those of the convolution, rounded up,
 * then those of the recurrence. */
int64_t hl_mixer_conv_floats(const hl_config *config, hl_mixer mixer);
int64_t hl_mixer_state_floats(const hl_config *config, hl_mixer mixer);
bool    hl_config_has_mixer(const hl_config *config);
/* Gives a layer the model's mixer instead of attention; for the rules of families. */
void hl_config_put_mixer(hl_config *config, int64_t layer);

/* ------------------------------------------------------------- rotary positions */

struct hl_fields;

/* Reads the rotary parameters from a file. */
hl_status hl_rope_read_json(hl_config *config, const struct hl_fields *fields);
hl_status hl_rope_read_gguf(hl_config *config, const struct hl_fields *fields);
/* Fills in what follows from the parameters, once d_head and n_ctx are known. */
hl_status hl_rope_fill(hl_config *config, const struct hl_fields *fields);

/* out (n_dims/2): pair i at position p is rotated by p * out[i]; cos and sin are then multiplied
 * by the attention factor. n_positions is the final length of the sequence; only dynamic and
 * longrope depend on it. */
void   hl_rope_frequencies(float *out, const hl_rope *rope, int64_t n_positions);
double hl_rope_attention_factor(const hl_rope *rope, int64_t n_positions);

#endif
