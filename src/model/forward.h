/* forward.h - the inside of the forward pass: what a session has on its device, and who does what.
 *
 * A chunk goes through the blocks of a model by the operations of kernels/device.h alone, in the
 * memory of the session's device.
 *
 *     forward.c            one chunk through all blocks
 *     forward_inputs.c     what a chunk reads beside weights and cache
 *     blocks.c             a block: its halves, their norms, MLPs and experts
 *     forward_attention.c  the attention branch, whole rows of it
 *     forward_ends.c       embedding; final norm, logits, lens and losses; draws
 *     observer.c           what is told of a layer, and to whom
 *     session_memory.c     which device, and all memory
 *     session_weights.c    the weights, as products want them
 *
 * Where a device is near, a layer is told when it has run, of the rows that it worked with.  Else
 * layers alternate between two lanes of memory for what is told, so that one layer's rows are
 * copied and looked at while the next is computed; and a step of decoding, few rows and nothing but
 * their statistics wanted, keeps those of all layers until the end instead, and is recorded so that it
 * can be replayed. */
#ifndef HL_MODEL_FORWARD_H
#define HL_MODEL_FORWARD_H

#include "kernels/device.h"
#include "model/blocks.h"
#include "model/session.h"

/* Memory handed out in order from one block; while base is NULL it is only counted. */
typedef struct hl_arena {
    uint8_t *base;
    size_t   used;
    bool     is_beyond; /* more was asked for than can be counted */
} hl_arena;

/* (a, b) items of `size` bytes. */
void *hl_arena_take(hl_arena *arena, int64_t a, int64_t b, size_t size);

/* ------------------------------------------------------------------- weights */

/* Several maps of one input lie one after the other as one. */
typedef struct hl_device_map {
    void   *weight; /* (n_out, n_in) of T; NULL: the model has none */
    float  *bias;   /* (n_out) or NULL */
    int64_t n_out;
    int64_t n_in;
} hl_device_map;

/* All on the device; a norm's numbers stand one after the other where heads have their own. */
typedef struct hl_device_vector {
    float *weight;
    float *bias;
} hl_device_vector;

typedef struct hl_device_layer {
    hl_device_map    qkv;
    hl_device_map    o;
    hl_device_map    up; /* the gate's rows first, if it is gated */
    hl_device_map    down;
    hl_device_map    router;
    hl_device_map    experts_up; /* all experts' */
    hl_device_map    experts_down;
    hl_device_map    shared_router;
    hl_device_map    shared_up;
    hl_device_map    shared_down;
    hl_device_vector attn_norm, attn_post_norm, mlp_norm, mlp_post_norm;
    hl_device_vector q_norm, k_norm;
    hl_device_vector sinks;
} hl_device_layer;

/* Of a role that is a norm of blocks. */
static inline const hl_device_vector *hl_device_norm_role(const hl_device_layer *layer,
                                                          hl_role                role)
{
    return role == HL_ROLE_ATTN_NORM        ? &layer->attn_norm
           : role == HL_ROLE_MLP_NORM       ? &layer->mlp_norm
           : role == HL_ROLE_ATTN_POST_NORM ? &layer->attn_post_norm
                                            : &layer->mlp_post_norm;
}

typedef struct hl_device_weights {
    hl_device_layer *layers; /* (n_layers) on the host */
    hl_device_map    embed, embed_in, position, token_type, embed_out, head_dense, lm_head;
    hl_device_vector embed_norm, final_norm, head_norm;
    float           *alibi_slopes; /* (H) or NULL */
    float           *key_bias;     /* (H, S) or NULL; both are the session's own */
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

/* Memory of the device, and of the host what is copied of it. */
typedef struct hl_device_pair {
    void *device;
    void *host;
} hl_device_pair;

/* What the tap's plan asks for: runs, then log_n, inverse and inverse_other of (N) rows. */
typedef struct hl_device_plan {
    hl_device_pair runs;    /* (max_runs) hl_run */
    hl_device_pair numbers; /* (3, N) doubles */
    int64_t        n_runs;
    uint64_t       version; /* of what is there; 0: nothing */
} hl_device_plan;

/* What is told of one layer. */
typedef struct hl_device_lane {
    hl_device_pair statistics;      /* see hl_device_place_statistics */
    int64_t       *argmax;          /* of the same rows; NULL: this device does not say */
    hl_device_pair kept[HL_N_KEPT]; /* floats: all rows, or the tap's */
    hl_device_pair pattern;         /* (B, H, n_patterns, S) */
    hl_device_pair exact;           /* (B, H, n_patterns) */
    hl_device_pair items;           /* (B, H, n_patterns, 3) */
    hl_device_plan plan;
    hl_device_pair sums;      /* see place_sums of observer.c */
    bool           is_summed; /* they stand for statistics */
    hl_device_pair likeness;  /* see place_likeness of observer.c */
    hl_device_pair places;    /* (B, n_patterns) hl_pattern_place */
    double        *kernels;   /* of heads, to work in: the device's alone */
    int64_t        n_runs;    /* of sums */
    hl_device_pair lens;      /* tops, entropies and gaps of (N) rows */
    int64_t        layer;     /* -1: nothing is under way */
    uint32_t       kinds;     /* those of `kept` that are, a bit each */
} hl_device_lane;

/* Rows of the chunk, on the device. */
typedef struct hl_device_rows {
    float   *x;      /* (N, D) the residual stream */
    void    *normed; /* (N, D) of T */
    void    *branch; /* (N, D) what attention gives */
    void    *mlp;    /* (N, D) what the MLP gives */
    void    *qkv;    /* (N, (H + 2 K) d) */
    void    *z;      /* (N, H d) */
    void    *up;     /* (N, 2 F) */
    void    *active; /* (N, F) */
    void    *shared; /* (N, D) of the expert that all use */
    float   *router; /* (N, n_experts), and (N) of the shared expert behind them */
    void    *work;   /* of experts */
    int64_t *chosen; /* (N, n_experts_used), on a near device, and their weights */
    float   *shares;
    double  *scores;             /* (threads, S) of whole rows; on a near device */
    void    *embedded;           /* (N, d_embed) where that is not D */
    float   *cosine[HL_N_ROPES]; /* (N, n_dims/2) */
    float   *sine[HL_N_ROPES];
    float   *last;     /* (logit_rows, D) rows of x, gathered */
    void    *hidden;   /* (logit_rows, D or d_embed) of T */
    void    *narrow;   /* the same */
    float   *plain;    /* (logit_rows, D) what the final norm gives, as floats */
    float   *logits;   /* (logit_rows, V) */
    int32_t *flag;     /* (2) some number of the stream, some logit is none */
    uint8_t *segments; /* (sequences, S) */
} hl_device_rows;

/* What a chunk reads beside weights and cache: on the device, in one block with its host copy. */
typedef struct hl_device_inputs {
    hl_device_pair block;
    size_t         used;

    hl_device_places places;
    const int64_t   *ends;    /* (B) keys that exist */
    const int64_t   *tokens;  /* (N) */
    const int64_t   *types;   /* (N) */
    const int64_t   *targets; /* (N) where losses are wanted */
    const int64_t   *last;    /* (n_last) the last row of each sequence, -1: not in this chunk */
    int64_t          n_last;
    int64_t         *last_of; /* (n_last) which of what is fed it is of; on the host */
    const int64_t   *kept;    /* (sequences) of which row of rows.logits its last logits are; -1: of
                               * none.  NULL: nobody draws */
    const int64_t   *sampled; /* (n_sampled) rows that the tap names, -1: none; NULL: all */
    int64_t          n_sampled;
    const float     *frequencies[HL_N_ROPES]; /* (B, n_dims/2) */
    const float     *gates;                   /* (L, H), with gates_each (B, L, H); NULL: ones */
    bool             gates_differ;
    int64_t          n_keys; /* no sequence has more: a bound that seldom changes */
} hl_device_inputs;

/* The last logits of all sequences, and what draws from them say and hear, for each. */
typedef struct hl_device_picks {
    float         *logits; /* (sequences, V) */
    void          *work;
    hl_device_pair rules;
    hl_device_pair results;
    hl_device_pair candidates; /* (sequences, HL_PICK_CANDIDATES) */
    hl_device_pair repeated;   /* (sequences, words of bits) */
} hl_device_picks;

/* A step of decoding that was recorded, and what it was recorded for. */
typedef struct hl_device_step {
    hl_device_graph *graph; /* NULL: none yet */
    int64_t          n_batch;
    int64_t          n_rows;
    int64_t          n_keys;
    int64_t          n_segments;
    bool             is_watched;
    bool             has_gates;
    bool             gates_differ;
    int64_t         *sequences; /* (B) */
} hl_device_step;

/* What is watched of a block. */
typedef struct hl_device_watch {
    hl_attention_result statistics; /* all NULL: nobody */
    hl_device_lane     *lane;       /* NULL: nothing but these */
} hl_device_watch;

/* What is said of a row of logits: top, loss, divergence, entropy and gap, as so many floats. */
enum { HL_SAID_FLOATS = 8 };

enum { HL_STEP_ROWS = 64, HL_DEVICE_STEPS = 4 };

typedef struct hl_device_session {
    const hl_device_ops *ops;
    hl_device           *device;
    hl_dtype             dtype; /* T */
    size_t               size;  /* bytes of one */
    hl_dtype             cache_dtype;
    hl_device_weights    weights;
    hl_device_rows       rows;
    hl_device_inputs     inputs;
    hl_device_lane       lanes[HL_DEVICE_LANES];
    int64_t              max_runs; /* of a lane's plan; 0: rows are never summed */
    float               *gram;     /* (L, H, d, d) what plans gave, of layers that has_gram names */
    bool                *has_gram; /* (L) on the host */
    float               *followed; /* (B, n_sampled, D) the stream as the last block left it */
    hl_device_pair       all_statistics; /* of a step: (L) blocks of step_bytes */
    size_t               step_bytes;     /* of the step at hand */
    int64_t              step_rows;      /* no step has more */
    hl_device_pair       ends;           /* rows at the end on their way out: see forward_ends.c */
    hl_device_kept       kept;           /* (sequences, n_kept) rows of logits, or none */
    hl_device_attention *parts;          /* (B) on the host: the problems of a chunk */
    int64_t             *pattern_rows;   /* (B, n_patterns) on the host: whole rows of the chunk */
    hl_device_watch      watch;          /* what is wanted of the block at hand */
    hl_device_picks      picks;
    int64_t             *tops;       /* (B) the likeliest tokens after all sequences, or NULL */
    int32_t             *flag;       /* rows.flag on the host */
    int64_t              logit_rows; /* logits are made for so many rows at a time */
    int64_t              n_patterns; /* whole rows of the chunk at hand */
    const void          *pending[2]; /* what is to be added to x before it is next read */
    hl_device_step       steps[HL_DEVICE_STEPS];
    int                  next_step;                              /* the oldest */
    bool                 has_weights;                            /* of an earlier session */
    void                *weight_block, *cache_block, *row_block; /* the device's; weights only
                                                                  * until the model has them */
    void                *host_block;
} hl_device_session;

/* -------------------------------------------------------------------- calls */

/* session_memory.c: the device of this name; NULL: the one that the model or the environment names, else
 * the CPU. */
typedef struct hl_device_choice {
    const hl_device_ops *ops;
    hl_dtype             dtype;
} hl_device_choice;
hl_status hl_device_choose(hl_device_choice *out, const hl_model *model, const char *name);
/* All memory that the options ask for; while session->counting, only how much it is. */
hl_status hl_session_plan(hl_session *session);
void      hl_session_release(hl_session *session);
/* Wraps a failure of the device in a message of its own. */
hl_status hl_device_checked(const hl_device_session *d, hl_status status, const char *what);

/* session_weights.c: lays all weights out in the arena and, where it has memory and they are not
 * there, fills them; on a near device, where they are stored.  And what positions add to
 * scores, which depends on the session. */
hl_status hl_device_load_weights(hl_session *session, hl_arena *arena, bool is_there);
hl_status hl_device_load_biases(hl_session *session, hl_arena *arena);

/* forward_inputs.c */
size_t    hl_device_inputs_bytes(const hl_session *session);
hl_status hl_device_put_inputs(hl_session *session, const hl_chunk *chunk);

/* forward.c */
hl_status hl_forward(hl_session *session, const hl_chunk *chunk);
/* Does anything need the residual stream after the last block? */
bool hl_forward_needs_end(const hl_session *session, const hl_chunk *chunk);

/* blocks.c: the stream through a block; of the last one only what somebody needs. */
hl_status hl_block_run(hl_session *session, const hl_chunk *chunk, int64_t layer);
/* What a branch gives for `input`, (N, D) of the compute type: rows.branch or rows.mlp. */
hl_status hl_block_branch(hl_session *session, const hl_chunk *chunk, int64_t layer,
                          hl_branch branch, const void *input);
/* out (n_rows, n_out) = x W' + b; out of out_dtype, both packed. */
hl_status         hl_device_multiply(const hl_session *session, void *out, hl_dtype out_dtype,
                                     const void *x, const hl_device_map *map,
                                     const hl_device_places *places);
hl_device_experts hl_device_experts_of(const hl_session *session, int64_t layer,
                                       const hl_device_places *places);
hl_norm           hl_device_norm_of(const hl_session *session, const hl_device_vector *vector);
/* out = norm(x), both (N, n) of one type; in the order of operations. */
hl_status hl_device_norm_rows(const hl_session *session, void *out, const void *x, hl_dtype dtype,
                              const hl_device_vector *vector, const hl_device_places *places);
/* x with all that is pending added. */
hl_status hl_device_settle(const hl_session *session);

/* forward_attention.c: rows.branch = A(input). */
hl_status hl_forward_attention(hl_session *session, const hl_chunk *chunk, int64_t layer,
                               const void *input);
/* What the operator is asked for a layer, of fed sequences [first, first + n), whose caches follow
 * each other. */
hl_attention hl_forward_problem(const hl_session *session, const hl_chunk *chunk, int64_t layer,
                                int64_t first, int64_t n);
/* d->pattern_rows of this chunk, and how many there are (of each sequence). */
int64_t hl_forward_pattern_rows(const hl_session *session, const hl_chunk *chunk);
/* Whole rows at the tap's positions into the lane; after the operator. */
hl_status hl_forward_patterns(hl_session *session, const hl_chunk *chunk, int64_t layer,
                              hl_device_lane *lane);

/* forward_ends.c */
hl_status hl_forward_embed(hl_session *session, const hl_chunk *chunk);
/* Lens of x into the lane. */
hl_status hl_forward_lens(hl_session *session, const hl_chunk *chunk, hl_device_lane *lane);
/* Final norm, logits, lens of all rows to the tap. */
hl_status hl_forward_final(hl_session *session, const hl_chunk *chunk);
/* Logits of each sequence's last row, or the likeliest token: made, sent and, once lane 0 has
 * arrived, received into session->last and tops.  With more rows than fit at a time (on a near
 * device), all of it in turns. */
hl_status hl_forward_make_last(hl_session *session, const hl_chunk *chunk);
hl_status hl_forward_send_last(hl_session *session, const hl_chunk *chunk);
hl_status hl_forward_receive_last(hl_session *session, const hl_chunk *chunk);

/* forward_ends.c: the memory of draws; the last logits of what was fed into picks.logits; hl_session_look
 * of pick.h. */
struct hl_pick;
void      hl_device_plan_picks(hl_session *session, hl_arena *rows, hl_arena *host);
hl_status hl_device_look(hl_session *session, struct hl_pick *picks, int64_t n);

/* observer.c: the parts of a block of statistics for so many rows and heads. */
hl_attention_result hl_device_place_statistics(void *block, int64_t count, int64_t n_segments);
size_t              hl_device_statistics_bytes(int64_t count, int64_t n_segments);
size_t              hl_device_sums_bytes(const hl_session *session, int64_t n_runs);
size_t              hl_device_likeness_bytes(const hl_session *session);
/* Are norms, products and distances of heads made on the device (hl_likeness)? */
bool hl_device_compares(const hl_session *session, const hl_chunk *chunk);
/* A block with all that the tap wants of it, in a lane. */
hl_status hl_observe_block(hl_session *session, const hl_chunk *chunk, int64_t layer, int lane);
/* In the middle of a block that is watched. */
hl_status hl_observe_middle(hl_session *session, const hl_chunk *chunk);
/* Waits for a lane's layer and tells it; nothing where none is under way. */
hl_status hl_observe_tell(hl_session *session, const hl_chunk *chunk, int lane);
/* The embedded rows: on their way before the first block is issued, told after it. */
hl_status hl_observe_embedded(hl_session *session, const hl_chunk *chunk);
hl_status hl_observe_tell_embedded(hl_session *session, const hl_chunk *chunk);
/* All layers of a step, whose statistics have arrived. */
hl_status hl_observe_tell_steps(hl_session *session, const hl_chunk *chunk);

#endif
