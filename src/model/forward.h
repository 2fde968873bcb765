/* forward.h - the inside of the forward pass: a session's memory on its device, and its functions.
 *
 * A chunk goes through the blocks of a model by the operations of kernels/device.h alone, in the
 * memory of the session's device.
 *
 *     forward.c            one chunk through all blocks
 *     forward_inputs.c     what a chunk reads besides weights and cache
 *     blocks.c             a block: its halves, their norms, MLPs and experts
 *     forward_attention.c  the attention branch, whole rows of it
 *     forward_latent.c     latent attention: what comes before and after the operator
 *     forward_mixer.c      branches with a state, and the states of sequences
 *     forward_streams.c    several residual streams
 *     forward_ends.c       embedding; final norm, logits, lens and losses; draws
 *     observer.c           what is reported of a layer, and to whom
 *     session_memory.c     which device, and all memory
 *     session_weights.c    the weights, as products want them
 *
 * On a near device, a layer is reported as soon as it has run, from the rows it worked with.  On
 * other devices, layers alternate between two lanes of memory for reported values, so that one
 * layer's rows are copied and read while the next is computed.  A decoding step (few rows, of
 * which only statistics are wanted) keeps the statistics of all layers until the end instead, and
 * is recorded so that it can be replayed. */
#ifndef HL_MODEL_FORWARD_H
#define HL_MODEL_FORWARD_H

#include "kernels/device.h"
#include "model/blocks.h"
#include "model/session.h"

/* Memory handed out in order from one block.  While base is NULL, sizes are only counted. */
typedef struct hl_arena {
    uint8_t *base;
    size_t   used;
    bool     is_beyond; /* the total is too large to be counted */
} hl_arena;

/* Takes memory for (a, b) items of `size` bytes. */
void *hl_arena_take(hl_arena *arena, int64_t a, int64_t b, size_t size);

/* ------------------------------------------------------------------- weights */

/* A linear map on the device.  Maps of the same input may be stored as one, one after the other. */
typedef struct hl_device_map {
    void   *weight; /* (n_out, n_in) of T; NULL: the model does not have it */
    float  *bias;   /* (n_out) or NULL */
    int64_t n_out;
    int64_t n_in;
} hl_device_map;

/* A vector on the device.  If heads have their own norms, these are stored one after the other. */
typedef struct hl_device_vector {
    float *weight;
    float *bias;
} hl_device_vector;

/* The weights of a mixer; of each kind only some exist. */
typedef struct hl_device_mixer {
    hl_device_map    in; /* DELTA: q, k, v, z, b, a */
    hl_device_map    x;  /* MAMBA: dt, k, q */
    hl_device_map    dt;
    hl_device_map    out;
    hl_device_vector conv; /* (width, channels) */
    hl_device_vector decay, dt_bias, skip, norm;
    hl_device_vector dt_norm, k_norm, q_norm;
} hl_device_mixer;

/* The weights of latent attention. */
typedef struct hl_device_latent {
    hl_device_map    query; /* A */
    hl_device_vector query_norm;
    hl_device_map    q;
    hl_device_map    rope;
    hl_device_map    latent;
    hl_device_vector norm;
    hl_device_map    index_q, index_k, index_weights;
    hl_device_vector index_k_norm;
    hl_device_map   *k; /* (H) transposed, and v: on the host, by head */
    hl_device_map   *v;
} hl_device_latent;

typedef struct hl_device_layer {
    hl_device_mixer  mixer;
    hl_device_latent latent;
    hl_device_map    qkv;
    hl_device_map    attn_gate;
    hl_device_vector z_norm;
    hl_device_map    o;
    hl_device_map    up; /* for a gated MLP: the gate's rows first */
    hl_device_vector inner_norm;
    hl_device_map    down;
    hl_device_map    router;
    hl_device_map    experts_up; /* experts_up and experts_down: those of all experts */
    hl_device_map    experts_down;
    hl_device_map    shared_router;
    hl_device_map    shared_up;
    hl_device_map    shared_down;
    hl_device_vector attn_norm, attn_post_norm, mlp_norm, mlp_post_norm;
    hl_device_vector q_norm, k_norm;
    hl_device_vector sinks;
    hl_device_vector router_correction;
    hl_device_vector router_norm, expert_scale, expert_norm, expert_post_norm, shared_post_norm;
    hl_device_map    ple_gate, ple_out;
    hl_device_vector ple_norm;
    hl_device_map    stream_router;
    hl_device_vector stream_router_norm, stream_predict, stream_correct, stream_scale;
    hl_device_map    laurel_in, laurel_out;
    hl_device_vector laurel_norm;
} hl_device_layer;

/* The vector of a role, which must be one of the norms of a block. */
static inline const hl_device_vector *hl_device_norm_role(const hl_device_layer *layer,
                                                          hl_role                role)
{
    return role == HL_ROLE_ATTN_NORM        ? &layer->attn_norm
           : role == HL_ROLE_MLP_NORM       ? &layer->mlp_norm
           : role == HL_ROLE_ATTN_POST_NORM ? &layer->attn_post_norm
                                            : &layer->mlp_post_norm;
}

typedef struct hl_device_weights {
    hl_device_layer *layers;                 /* (n_layers) on the host */
    hl_device_map   *stream_in, *stream_out; /* (n_streams - 1) on the host; NULL: one stream */
    hl_device_map    ple_embed, ple_in;
    hl_device_vector ple_in_norm;
    hl_device_map    embed, embed_in, position, token_type, embed_out, head_dense, lm_head;
    hl_device_vector embed_norm, final_norm, head_norm;
    float           *alibi_slopes; /* (H) or NULL */
    float           *key_bias;     /* (H, S) or NULL; like alibi_slopes, owned by the session */
} hl_device_weights;

/* -------------------------------------------------------------------- memory */

/* Rows that a tap may want, in the order of HL_WANT_Q to HL_WANT_RESID_POST. */
enum {
    HL_KEPT_Q = 0,
    HL_KEPT_K,
    HL_KEPT_V,
    HL_KEPT_Z,
    HL_KEPT_PRE,
    HL_KEPT_MID,
    HL_KEPT_POST,
    HL_N_KEPT
};

/* Memory of the device, and the host memory that it is copied to or from. */
typedef struct hl_device_pair {
    void *device;
    void *host;
} hl_device_pair;

/* What the tap's plan asks for: runs of rows, and log_n, inverse and inverse_other of (N) rows. */
typedef struct hl_device_plan {
    hl_device_pair runs;    /* (max_runs) hl_run */
    hl_device_pair numbers; /* (3, N) doubles */
    int64_t        n_runs;
    uint64_t       version; /* version of the plan held here; 0: none */
} hl_device_plan;

/* What is reported about one layer. */
typedef struct hl_device_lane {
    hl_device_pair statistics;      /* see hl_device_place_statistics */
    int64_t       *argmax;          /* the most likely key of the same rows; NULL: not computed */
    hl_device_pair kept[HL_N_KEPT]; /* floats of all rows, or of those that the tap samples */
    hl_device_pair pattern;         /* (B, H, n_patterns, S) */
    hl_device_pair exact;           /* (B, H, n_patterns) */
    hl_device_pair full;  /* (B, H, n_patterns) of rows that see all keys, with an indexer */
    hl_device_pair items; /* (B, H, n_patterns, 3) */
    hl_device_plan plan;
    hl_device_pair sums;      /* see place_sums of observer.c */
    bool           is_summed; /* `sums` is used instead of `statistics` */
    hl_device_pair likeness;  /* see place_likeness of observer.c */
    hl_device_pair places;    /* (B, n_patterns) hl_pattern_place */
    double        *kernels;   /* kernels of heads; working memory, on the device only */
    int64_t        n_runs;    /* number of runs in `sums` */
    hl_device_pair lens;      /* tops, entropies and gaps of (N) rows */
    int64_t        layer;     /* layer being copied; -1: none */
    uint32_t       kinds;     /* bit i: kept[i] is being copied */
} hl_device_lane;

/* Rows of the chunk, on the device. */
typedef struct hl_device_rows {
    float       *x;             /* (N, D) the residual stream */
    int64_t      stride;        /* of several streams: values from one to the next */
    float       *predicted;     /* of several streams, (N, D) each: x before a block */
    float       *other;         /* another stream, mapped */
    float       *merged;        /* the average of all */
    const float *ended;         /* (N, D) what the final norm reads: hl_forward_merge */
    float       *stream_logits; /* (N, n_streams) */
    void        *laurel;        /* (N, d_laurel) */
    void        *normed;        /* (N, D) of T */
    void        *branch;        /* (N, D) output of attention */
    void        *mlp;           /* (N, D) output of the MLP */
    void        *qkv;           /* (N, (H + 2 K) d) */
    void        *z;             /* (N, H d) */
    void        *gate;          /* (N, H d) of gated attention, before its sigmoid */
    void        *index_q;       /* (N, n_index_heads, d_index) of an indexer */
    void        *index_k;       /* (N, d_index) */
    float       *index_weight;  /* (N, n_index_heads) */
    float       *index_bias;    /* (N, S) 0 for the keys that a row sees, -inf for others */
    void        *ple;           /* (N, n_layers d_ple) per-layer inputs */
    void        *ple_gate;      /* the same size: what is added to them, then gates of a layer */
    void        *ple_active;    /* (N, d_ple) */
    void        *query;         /* of latent attention: (N, d_query) what Q_h reads */
    void        *heads;         /* (N, H, d_nope + d_rope) queries before they are absorbed */
    void        *compressed;    /* (N, d_latent or d_rope) */
    void        *latent;        /* (N, d_rope + d_latent) the key */
    void        *latent_z;      /* (N, H, d_latent) what attention returns */
    void        *z_normed;      /* (N, H d) what ATTN_O reads, where a norm stands before it */
    void        *mix_in;        /* (N, width of the mixers' first projection) */
    void        *mix;           /* (N, channels) after the convolution */
    void    *mix_dt; /* (N, d_step + 2 d_state) of MAMBA, and after it (N, the same) after norms */
    void    *mix_step; /* (N, channels) dt of MAMBA */
    void    *mixed;    /* (N, inner width) what the mixers' last projection reads */
    void    *up;       /* (N, 2 F) */
    void    *active;   /* (N, F) */
    void    *shared;   /* (N, D) output of the shared expert */
    float   *router;   /* (N, n_experts) logits, then (N) for the shared expert */
    void    *work;     /* working memory of the experts */
    int64_t *chosen;   /* (N, n_experts_used) chosen experts; on a near device */
    float   *shares;
    double  *scores;             /* (threads, S) scores of whole rows; on a near device */
    void    *embedded;           /* (N, d_embed) where d_embed is not D */
    float   *cosine[HL_N_ROPES]; /* (N, n_dims/2) */
    float   *sine[HL_N_ROPES];
    float   *last;     /* (logit_rows, D) rows of x, gathered */
    void    *hidden;   /* (logit_rows, D or d_embed) of T */
    void    *narrow;   /* (logit_rows, D or d_embed) of T */
    float   *plain;    /* (logit_rows, D) output of the final norm, as floats */
    float   *logits;   /* (logit_rows, V) */
    int32_t *flag;     /* (2) is any value of the stream non-finite; is any logit */
    uint8_t *segments; /* (sequences, S) */
} hl_device_rows;

/* What a chunk reads besides weights and cache: on the device, in one block with a host copy. */
typedef struct hl_device_inputs {
    hl_device_pair block;
    size_t         used;

    hl_device_places places;
    const int64_t   *ends;    /* (B) number of keys of each sequence */
    const int64_t   *tokens;  /* (N) */
    const int64_t   *types;   /* (N) */
    const int64_t   *targets; /* (N) where losses are wanted */
    const int64_t   *last;    /* (n_last) the last row of each sequence; -1: not in this chunk */
    int64_t          n_last;
    int64_t         *last_of; /* (n_last) the fed sequence that it belongs to; on the host */
    const int64_t   *kept;    /* (sequences) The row of rows.logits that holds the sequence's
                               * last logits; -1: no row.  NULL: no draws are wanted. */
    const int64_t   *sampled; /* (n_sampled) rows that the tap samples, -1: unused; NULL: all */
    int64_t          n_sampled;
    const float     *frequencies[HL_N_ROPES]; /* (B, n_dims/2) */
    const float     *factors[HL_N_ROPES];     /* (B) of cosines and sines */
    const float     *gates;                   /* (L, H), or (B, L, H) with gates_each; or NULL */
    bool             gates_differ;
    int64_t          n_keys; /* upper bound on the keys of a sequence; it changes seldom */
} hl_device_inputs;

/* The last logits of all sequences, and the inputs and results of draws from them. */
typedef struct hl_device_picks {
    float         *logits; /* (sequences, V) */
    void          *work;
    hl_device_pair rules;
    hl_device_pair results;
    hl_device_pair candidates; /* (sequences, HL_PICK_CANDIDATES) */
    hl_device_pair repeated;   /* (sequences, words of bits) */
} hl_device_picks;

/* A recorded decoding step, and the conditions it was recorded for. */
typedef struct hl_device_step {
    hl_device_graph *graph; /* NULL: not recorded yet */
    int64_t          n_batch;
    int64_t          n_rows;
    int64_t          n_keys;
    int64_t          n_segments;
    bool             is_watched;
    bool             has_gates;
    bool             gates_differ;
    int64_t         *sequences; /* (B) */
} hl_device_step;

/* What is observed of the current block. */
typedef struct hl_device_watch {
    hl_attention_result statistics; /* all NULL: no statistics are wanted */
    hl_device_lane     *lane;       /* NULL: nothing but `statistics` is wanted */
} hl_device_watch;

/* Floats reported per row of logits: top, loss, divergence, entropy and gap, padded. */
enum { HL_SAID_FLOATS = 8 };

enum { HL_STEP_ROWS = 64, HL_DEVICE_STEPS = 4 };

typedef struct hl_device_session {
    const hl_device_ops *ops;
    hl_device           *device;
    hl_dtype             dtype; /* T */
    size_t               size;  /* bytes of one T */
    hl_dtype             cache_dtype;
    hl_device_weights    weights;
    hl_device_rows       rows;
    hl_device_inputs     inputs;
    hl_device_lane       lanes[HL_DEVICE_LANES];
    int64_t              max_runs; /* runs in a lane's plan at most; 0: rows are never summed */
    float               *gram;     /* (L, H, d, d) Gram matrices; valid if has_gram */
    bool                *has_gram; /* (L) on the host */
    float               *followed; /* (B, n_sampled, D) the stream after the last block */
    hl_device_pair       all_statistics; /* statistics of a decoding step: (L, step_bytes) */
    size_t               step_bytes;     /* block size of the current step */
    int64_t              step_rows;      /* largest number of rows of a step */
    hl_device_pair       ends;           /* results of the final layers: see forward_ends.c */
    hl_device_kept       kept;           /* (sequences, n_kept) rows of logits, or empty */
    hl_device_attention *parts;          /* (B) attention problems of a chunk; on the host */
    int64_t             *pattern_rows;   /* (B, n_patterns) whole rows of the chunk; on the host */
    hl_device_watch      watch;          /* what is observed of the current block */
    hl_device_picks      picks;
    int64_t             *tops;       /* (B) the most likely token after each sequence, or NULL */
    int32_t             *flag;       /* rows.flag on the host */
    int64_t              logit_rows; /* number of rows for which logits are computed at a time */
    int64_t              n_patterns; /* number of whole rows per sequence in the current chunk */
    const void          *pending[2]; /* outputs to be added to x before x is next read */
    hl_device_step       steps[HL_DEVICE_STEPS];
    int                  next_step;                              /* index of the oldest step,
                                                                  * which is replaced next */
    bool                 has_weights;                            /* the weights were already
                                                                  * loaded by an earlier session */
    void                *weight_block, *cache_block, *row_block; /* blocks on the device; the
                                                                  * model takes over weight_block */
    void                *host_block;
} hl_device_session;

/* -------------------------------------------------------------------- calls */

/* session_memory.c: finds the device of this name.  NULL: the one that the model or the
 * environment names, else the CPU. */
typedef struct hl_device_choice {
    const hl_device_ops *ops;
    hl_dtype             dtype;
} hl_device_choice;
hl_status hl_device_choose(hl_device_choice *out, const hl_model *model, const char *name);
/* Allocates all memory that the options ask for.  While session->counting, only counts it. */
hl_status hl_session_plan(hl_session *session);
void      hl_session_release(hl_session *session);
/* Adds to a failure of the device a message that says what was being done. */
hl_status hl_device_checked(const hl_device_session *d, hl_status status, const char *what);

/* session_weights.c: lays out all weights in the arena and fills them, where the arena has
 * memory and is_there is false.  On a near device, weights are used where they are stored. */
hl_status hl_device_load_weights(hl_session *session, hl_arena *arena, bool is_there);
hl_status hl_device_load_biases(hl_session *session, hl_arena *arena);

/* forward_inputs.c */
size_t    hl_device_inputs_bytes(const hl_session *session);
hl_status hl_device_put_inputs(hl_session *session, const hl_chunk *chunk);

/* forward.c: runs a chunk through the model. */
hl_status hl_forward(hl_session *session, const hl_chunk *chunk);
/* Does anything need the residual stream after the last block? */
bool hl_forward_needs_end(const hl_session *session, const hl_chunk *chunk);

/* blocks.c: runs a block.  Of the last one, computes only what is needed. */
hl_status hl_block_run(hl_session *session, const hl_chunk *chunk, int64_t layer);
/* Computes rows.branch or rows.mlp from a branch's `input`, (N, D) of the compute type. */
hl_status hl_block_branch(hl_session *session, const hl_chunk *chunk, int64_t layer,
                          hl_branch branch, const void *input);
/* rows.normed = the stream, with all pending outputs, through a norm. */
hl_status hl_block_norm(const hl_session *session, const hl_device_vector *vector);
/* rows.branch = norm(out(act(gate x) * the layer's inputs)), from x in rows.normed. */
hl_status hl_block_inputs(const hl_session *session, int64_t layer);
/* Ends a layer that has per-layer inputs, a scale or several streams. */
hl_status hl_block_end(hl_session *session, int64_t layer);
/* out (n_rows, n_out) = x W' + b; out of out_dtype, both packed. */
hl_status         hl_device_multiply(const hl_session *session, void *out, hl_dtype out_dtype,
                                     const void *x, const hl_device_map *map,
                                     const hl_device_places *places);
hl_device_experts hl_device_experts_of(const hl_session *session, int64_t layer,
                                       const hl_device_places *places);
hl_norm           hl_device_norm_of(const hl_session *session, const hl_device_vector *vector);
/* out = norm(x), both (N, n) of one dtype. */
hl_status hl_device_norm_wide(const hl_session *session, void *out, const void *x, hl_dtype dtype,
                              const hl_device_vector *vector, int64_t n,
                              const hl_device_places *places);
/* The same for rows of the stream, (N, D). */
hl_status hl_device_norm_rows(const hl_session *session, void *out, const void *x, hl_dtype dtype,
                              const hl_device_vector *vector, const hl_device_places *places);
/* Adds all pending outputs to x. */
hl_status hl_device_settle(const hl_session *session);

/* forward_attention.c: rows.branch = A(input). */
hl_status hl_forward_attention(hl_session *session, const hl_chunk *chunk, int64_t layer,
                               const void *input);
/* forward_latent.c: rows.qkv and the cached key from a branch's input, before attention; rows.z from
 * rows.latent_z, after it. */
hl_status hl_latent_make(const hl_session *session, int64_t layer, const void *input);
hl_status hl_latent_finish(const hl_session *session, int64_t layer);
/* forward_mixer.c: the result of a mixer, M(input): rows.branch, or rows.mlp in a layer that also
 * attends. */
hl_status hl_forward_mixer(hl_session *session, const hl_chunk *chunk, int64_t layer,
                           const void *input);
void     *hl_forward_mixed(const hl_session *session, int64_t layer);
/* forward_streams.c, for models with several streams: makes the others from the embedding. */
hl_status hl_forward_spread(const hl_session *session);
/* Predicts the stream that a block reads. */
hl_status hl_forward_predict(const hl_session *session, int64_t layer);
/* Corrects all streams, adds the layer's inputs to the others, and settles. */
hl_status hl_forward_correct(const hl_session *session, int64_t layer);
/* rows.mlp = n + norm(V U n) of a branch's input n. */
hl_status hl_forward_laurel(const hl_session *session, int64_t layer, const void *input);
/* Sets rows.ended to what the final norm reads: the stream with all pending outputs, or the average of
 * several. */
hl_status hl_forward_merge(const hl_session *session);
/* Before a feed: states of sequences that were rewound are those after their tokens again.  They
 * are copied, if the session kept them, and the tokens after that are fed again, by `run`. */
hl_status hl_states_recover(hl_session *session, const hl_feed *feed,
                            hl_status (*run)(hl_session *session, const hl_feed *feed));
/* Around a chunk: states are undefined until it has succeeded. */
void      hl_states_begin(hl_session *session, const hl_chunk *chunk);
hl_status hl_states_extend(hl_session *session, const hl_chunk *chunk);
/* The attention problem of a layer for the fed sequences [first, first + n), which are
 * contiguous. */
hl_attention hl_forward_problem(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                                int64_t first, int64_t n);
/* Does an indexer hide keys in this chunk? */
bool hl_forward_leaves_out(const hl_session *session, const hl_chunk *chunk);
/* Fills d->pattern_rows for this chunk and returns their number per sequence. */
int64_t hl_forward_pattern_rows(const hl_session *session, const hl_chunk *chunk);
/* Writes whole rows at the tap's positions to the lane; called after the operator. */
hl_status hl_forward_patterns(hl_session *session, const hl_chunk *chunk, int64_t layer,
                              hl_device_lane *lane);

/* forward_ends.c */
hl_status hl_forward_embed(hl_session *session, const hl_chunk *chunk);
/* Writes the lens of x to the lane. */
hl_status hl_forward_lens(hl_session *session, const hl_chunk *chunk, hl_device_lane *lane);
/* Computes final norm and logits, and reports the lens of all rows to the tap. */
hl_status hl_forward_final(hl_session *session, const hl_chunk *chunk);
/* Logits of each sequence's last row, or its most likely token: make computes them, send starts
 * the copy, and receive, once lane 0 has arrived, stores them in session->last and tops.  With
 * more rows than fit at a time (on a near device), make does all of it in turns. */
hl_status hl_forward_make_last(hl_session *session, const hl_chunk *chunk);
hl_status hl_forward_send_last(hl_session *session, const hl_chunk *chunk);
hl_status hl_forward_receive_last(hl_session *session, const hl_chunk *chunk);

/* forward_ends.c: hl_device_plan_picks plans the memory of draws, hl_device_look implements
 * hl_session_look of pick.h. */
struct hl_pick;
void      hl_device_plan_picks(hl_session *session, hl_arena *rows, hl_arena *host);
hl_status hl_device_look(hl_session *session, struct hl_pick *picks, int64_t n);

/* observer.c: the layout of a block of statistics for `count` rows and heads. */
hl_attention_result hl_device_place_statistics(void *block, int64_t count, int64_t n_segments);
size_t              hl_device_statistics_bytes(int64_t count, int64_t n_segments);
size_t              hl_device_sums_bytes(const hl_session *session, int64_t n_runs);
size_t              hl_device_likeness_bytes(const hl_session *session);
/* Does the device compute norms, products and distances of heads (hl_likeness)? */
bool hl_device_compares(const hl_session *session, const hl_chunk *chunk);
/* Runs a block and collects in a lane what the tap wants of it. */
hl_status hl_observe_block(hl_session *session, const hl_chunk *chunk, int64_t layer, int lane);
/* Called between the halves of an observed block. */
hl_status hl_observe_middle(hl_session *session, const hl_chunk *chunk);
/* Waits for a lane's layer and reports it to the tap; does nothing if the lane is idle. */
hl_status hl_observe_tell(hl_session *session, const hl_chunk *chunk, int lane);
/* The embedded rows: copied before the first block is issued, and reported after it. */
hl_status hl_observe_embedded(hl_session *session, const hl_chunk *chunk);
hl_status hl_observe_tell_embedded(hl_session *session, const hl_chunk *chunk);
/* Reports all layers of a decoding step, whose statistics have arrived. */
hl_status hl_observe_tell_steps(hl_session *session, const hl_chunk *chunk);

#endif
