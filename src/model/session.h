/* session.h - the inside of a session: what the forward pass works with.
 *
 * Letters of shapes: B n_batch, of the session or of what is fed, C rows of a chunk, D d_model, H heads, K K/V heads,
 * d d_head, S n_ctx.  A chunk has the same number of rows C for every sequence,
 * of which lengths[b] count; the rest is padding that nothing reads.
 *
 *     session.c            opening, closing, questions; checking a feed and cutting it into chunks
 *     session_memory.c     all memory: planned, and taken or only counted
 *     session_weights.c    the weights, ready to multiply with
 *     forward.c            one chunk through all blocks, and what the tap gets
 *     forward_attention.c  the attention branch
 *     forward_mlp.c        the MLP branch, mixtures of experts
 *     forward_ends.c       embedding; final norm, logits and lens */
#ifndef HL_MODEL_SESSION_H
#define HL_MODEL_SESSION_H

#include "headlight/session.h"
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/pattern.h"
#include "model/config.h"
#include "model/kept.h"
#include "model/weights.h"

/* Logits are made for so many rows at a time. */
#define HL_LOGIT_ROWS 64

/* A linear map, or a vector (norm weight, sinks) where matrix.data is NULL. */
typedef struct hl_session_param {
    const hl_param *source; /* NULL: the model has none */
    hl_matrix       matrix;
    float          *vector; /* (n_rows) */
    float          *bias;   /* (n_rows) or NULL */
} hl_session_param;

/* Where a role's parts begin in session->params; -1: the model has none. */
typedef struct hl_session_index {
    int64_t first[HL_N_ROLES];
} hl_session_index;

/* Keys or values of one layer: (B, K, S, d). */
typedef struct hl_session_cache {
    void *k;
    void *v;
} hl_session_cache;

/* The angles of a chunk's rows, for one of the model's ropes: (B, C, n_dims/2). */
typedef struct hl_session_rope {
    float *cosine;
    float *sine;
    float *frequencies; /* (n_dims/2) */
} hl_session_rope;

/* Rows of the chunk that is being worked on. */
typedef struct hl_session_rows {
    float          *x;              /* (B, C, D) the residual stream */
    float          *normed;         /* (B, C, D) */
    float          *branch;         /* (B, C, D) what attention gives */
    float          *mlp;            /* (B, C, D) what the MLP gives */
    float          *pre;            /* (B, C, D) copies for the tap, or NULL */
    float          *mid;            /* (B, C, D) */
    float          *q;              /* (B, C, H d) */
    float          *k;              /* (B, C, K d) */
    float          *v;              /* (B, C, K d) */
    float          *z;              /* (B, C, H d) */
    float          *gate;           /* (B, C, d_mlp) */
    float          *up;             /* (B, C, d_mlp) */
    float          *router;         /* (C, n_experts)      of one sequence, as what follows */
    int64_t        *chosen;         /* (C, n_experts_used) */
    float          *weights;        /* (C, n_experts_used) */
    int64_t        *members;        /* (C) the rows that an expert gets, and */
    float          *member_weights; /* (C) with which weight */
    float          *gathered;       /* (C, D) */
    float          *expert;         /* (C, D) */
    float          *logits;         /* (HL_LOGIT_ROWS, d_vocab) */
    float          *hidden;         /* (HL_LOGIT_ROWS, D) */
    float          *embedded;       /* (B, C, d_embed) where that is not D */
    float          *narrow;         /* (HL_LOGIT_ROWS, d_embed) where that is not D */
    float          *last;           /* (B, d_vocab) */
    float          *pattern;        /* (B, H, n_patterns, S) */
    int64_t        *pattern_rows;   /* (B, n_patterns) */
    double         *scores;         /* (n_threads, S) */
    hl_pattern_row *exact;          /* (B, H, n_patterns) the statistics of patterns, in double */
    int64_t        *lens_top;       /* (B, C) */
    float          *lens_entropy;
    float          *lens_gap;
    double         *losses;     /* (HL_LOGIT_ROWS) */
    int64_t        *tops;       /* (HL_LOGIT_ROWS) */
    double         *divergence; /* (HL_LOGIT_ROWS) */
    hl_kept_logits  kept;
} hl_session_rows;

struct hl_device_session;

struct hl_session {
    const hl_model    *model;
    const hl_config   *config;
    const hl_weights  *weights;
    hl_session_options options; /* complete */
    const hl_dense    *dense;   /* of the back end in use; set by every feed */

    hl_session_param *params;
    int64_t           n_params;
    hl_session_index  of_model;
    hl_session_index *of_layer; /* (n_layers) */

    hl_session_cache *caches; /* (n_layers), or one for all layers of an encoder */
    int64_t          *length; /* (B) tokens so far */
    int64_t          *places; /* (4, B) start, lengths, ends and sequences of a chunk */
    hl_kept_range    *kept;   /* (B) positions whose logits are kept */
    hl_kept_streams   streams;

    hl_session_rope ropes[HL_N_ROPES];
    float          *alibi_slopes; /* (H) or NULL */
    float          *key_bias;     /* (H, S) or NULL */

    struct hl_device_session
        *device; /* NULL: the CPU; else what runs is there, and `caches`, `rows`
                                       * and `statistics` are as model/device.h says */

    hl_session_rows     rows;
    hl_attention_result statistics;
    hl_linear_pool      pool;
    hl_linear_int8      int8;     /* the pool's, where the options ask for it */
    bool                few_rows; /* the chunk is a step of decoding */
    bool               *searched; /* (n_layers + 1) for numbers that are none */

    bool   counting; /* nothing is allocated but tables: hl_session_measure */
    void **blocks;   /* all memory, for closing */
    size_t n_blocks;
    size_t max_blocks;
    size_t n_bytes;
    size_t cache_bytes;
};

/* What is being fed: a chunk of it. */
typedef struct hl_chunk {
    const hl_feed *feed;
    int64_t        n_batch;   /* B of what is fed */
    int64_t        offset;    /* of the chunk's first column in feed->tokens */
    int64_t        n_rows;    /* C */
    int64_t       *start;     /* (B) position of row 0 */
    int64_t       *lengths;   /* (B) rows that count */
    int64_t       *ends;      /* (B) start + lengths: keys that exist */
    int64_t       *sequences; /* (B) where their keys and values are */
} hl_chunk;

/* The part of a role; NULL where the model has none.  layer -1: of the model. */
const hl_session_param *hl_session_param_of(const hl_session *session, hl_role role, int64_t layer,
                                            int64_t part);

/* Memory that lives as long as the session; zeroed.  While counting it is NULL.  A table is
 * what opening itself reads: it is there in any case. */
hl_status hl_session_alloc(hl_session *session, void **out, int64_t count, size_t size);
hl_status hl_session_alloc_table(hl_session *session, void **out, int64_t count, size_t size);
#define HL_SESSION_ALLOC(session, pointer, count)                                                  \
    hl_session_alloc(session, (void **)(pointer), count, sizeof **(pointer))
#define HL_SESSION_TABLE(session, pointer, count)                                                  \
    hl_session_alloc_table(session, (void **)(pointer), count, sizeof **(pointer))

/* All that the options ask for, on the CPU or a device; session_memory.c. */
hl_status hl_session_plan(hl_session *session);

/* session_weights.c */
hl_status hl_session_load_weights(hl_session *session);
/* Which weight of a layer (-1: of the model) holds a NaN or an infinity?  HL_OK if
 * none does, else HL_BAD_INPUT with its name. */
hl_status hl_session_find_nan(const hl_session *session, int64_t layer);

/* The forward pass of one chunk; forward.c. */
hl_status hl_forward(hl_session *session, const hl_chunk *chunk);
/* What the tap is told of a layer, but for whole rows: from rows and statistics. */
void      hl_forward_describe(hl_layer_rows *out, const hl_session *session, const hl_chunk *chunk,
                              int64_t layer);
hl_status hl_forward_report_embedded(const hl_session *session, const hl_chunk *chunk);
/* Does anything need the residual stream after the last block? */
bool hl_forward_needs_end(const hl_session *session, const hl_chunk *chunk);

/* out (B, C, rows of the map) = x W' + b, for the rows that count. */
hl_status hl_forward_linear(const hl_session *session, const hl_chunk *chunk, float *out,
                            const float *x, const hl_session_param *param);
/* The same for some maps of one x at once; a part whose param is NULL is left out. */
typedef struct hl_forward_part {
    float                  *out;
    const hl_session_param *param;
} hl_forward_part;
hl_status hl_forward_linears(const hl_session *session, const hl_chunk *chunk, const float *x,
                             const hl_forward_part *parts, int n_parts);
/* out (B, C, D) = norm(x); a copy where the model has no such norm. */
void hl_forward_norm(const hl_session *session, const hl_chunk *chunk, float *out, const float *x,
                     const hl_session_param *param);
hl_norm hl_forward_norm_of(const hl_session *session, const hl_session_param *param);

/* Does a branch read n(x), by the role of that norm, or x itself? */
bool hl_forward_has_norm(const hl_config *config, hl_role role, int64_t layer);

/* branch = A(x), the whole attention branch without norms; forward_attention.c. */
hl_status hl_forward_attention(hl_session *session, const hl_chunk *chunk, int64_t layer,
                               const float *x);
/* What the operator is asked for a layer: queries in rows.q, keys and values in the cache. */
hl_attention hl_forward_problem(const hl_session *session, const hl_chunk *chunk, int64_t layer);
/* The whole rows at the tap's positions, which hl_forward_attention makes where they are wanted. */
void hl_forward_describe_patterns(hl_layer_rows *rows, const hl_session *session,
                                  const hl_chunk *chunk);
/* rows.pattern_rows of this chunk, and how many there are (of each sequence). */
int64_t hl_forward_pattern_rows(const hl_session *session, const hl_chunk *chunk);
/* cos and sin for every row of the chunk. */
void hl_forward_angles(hl_session *session, const hl_chunk *chunk);

/* mlp = M(x); forward_mlp.c. */
hl_status hl_forward_mlp(hl_session *session, const hl_chunk *chunk, int64_t layer, const float *x);

/* forward_ends.c */
hl_status hl_forward_embed(hl_session *session, const hl_chunk *chunk);
/* Lens of the residual stream x into rows.lens_top and rows.lens_entropy. */
hl_status hl_forward_lens(hl_session *session, const hl_chunk *chunk, const float *x);
/* Final norm, logits, lens, as far as they are wanted, to the tap. */
hl_status hl_forward_final(hl_session *session, const hl_chunk *chunk);

/* How many threads for a loop over so many values: a short one is over before another thread
 * has woken. */
static inline int hl_forward_threads(const hl_session *session, int64_t n_values)
{
    return n_values < 16 * 1024 ? 1 : session->pool.n_threads;
}

static inline uint32_t hl_chunk_wants(const hl_chunk *chunk)
{
    return chunk->feed->tap != NULL ? chunk->feed->tap->wants : 0;
}

/* Rows of the chunk in all, those that do not count among them: B C. */
static inline int64_t hl_chunk_rows(const hl_chunk *chunk)
{
    return chunk->n_batch * chunk->n_rows;
}

/* Kinds of tokens whose share of attention is wanted; 0: nobody asks. */
static inline int64_t hl_chunk_segments(const hl_chunk *chunk)
{
    return chunk->feed->segments != NULL ? chunk->feed->n_segments : 0;
}

/* How many sequences are fed, and which is number `index` of them. */
static inline int64_t hl_feed_count(const hl_session *session, const hl_feed *feed)
{
    return feed->sequences != NULL ? feed->n_sequences : session->options.n_batch;
}

static inline int64_t hl_feed_sequence(const hl_feed *feed, int64_t index)
{
    return feed->sequences != NULL ? feed->sequences[index] : index;
}

/* How many tokens the feed has for a sequence. */
static inline int64_t hl_feed_length(const hl_feed *feed, int64_t sequence)
{
    return feed->lengths != NULL ? feed->lengths[sequence] : feed->n_tokens;
}

/* The token that a row of the chunk should foretell; -1: none. */
static inline int64_t hl_chunk_target(const hl_chunk *chunk, int64_t sequence, int64_t row)
{
    const hl_feed *feed = chunk->feed;

    return feed->targets[sequence * feed->n_tokens + chunk->offset + row];
}

/* Whose kept rows the chunk's are, or are compared with. */
static inline const hl_session *hl_chunk_keeper(const hl_session *session, const hl_chunk *chunk)
{
    return chunk->feed->kept_by != NULL ? chunk->feed->kept_by : session;
}

/* Which of its (B, n_kept) rows is a row's. */
static inline int64_t hl_chunk_kept_row(const hl_session *keeper, const hl_chunk *chunk,
                                        int64_t sequence, int64_t row)
{
    int64_t which = chunk->sequences[sequence];

    return which * keeper->options.n_kept + chunk->start[sequence] + row -
           keeper->kept[which].begin;
}

/* The last row of the feed may lie in any of its chunks: is it in this one? */
static inline bool hl_chunk_has_last(const hl_chunk *chunk, int64_t sequence)
{
    int64_t length = chunk->lengths[sequence];

    return length > 0 && chunk->offset + length >= hl_feed_length(chunk->feed, sequence);
}

/* Does row `row` of (B, C) count? */
static inline bool hl_chunk_has(const hl_chunk *chunk, int64_t row)
{
    return row % chunk->n_rows < chunk->lengths[row / chunk->n_rows];
}

#endif
