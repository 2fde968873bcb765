/* session.h - the inside of a session: weights, sequences, chunks.
 *
 * Letters of shapes: B n_batch (of the session or of what is fed), C rows of a chunk, D d_model, H
 * heads, K KV heads, d d_head, S n_ctx.  A chunk has the same number of rows C for every sequence;
 * lengths[b] of them count, and the rest is padding that is never read.
 *
 *     session.c          opening, closing, queries; checking a feed and cutting it into chunks
 *     session_memory.c   which device, and all memory: planned, and taken or only counted
 *     session_weights.c  the weights, ready to multiply with
 *     forward.h          one chunk through the model, on the session's device */
#ifndef HL_MODEL_SESSION_H
#define HL_MODEL_SESSION_H

#include "base/memory.h"
#include "headlight/session.h"
#include "kernels/linear.h"
#include "model/config.h"
#include "model/weights.h"

HL_CLOSES(hl_session_close, hl_session)

struct hl_session;
struct hl_chunk;

/* Positions for which a session keeps data for later feeds: rows of logits to compare with
 * (hl_device_kept of kernels/device.h), and residual streams to start from.
 *
 * Streams.  With hl_session_options.stream_every = n, every feed keeps the inputs of layers n, 2 n,
 * ... on the session's device.  A feed whose first layer is one of them starts from these rows.
 * Rows are indexed by position, like keys. */

/* A range of positions of a sequence for which something is kept. */
typedef struct hl_kept_range {
    int64_t begin;
    int64_t end;
} hl_kept_range;

static inline bool hl_kept_has(hl_kept_range range, int64_t start, int64_t count)
{
    return count == 0 || (start >= range.begin && start + count <= range.end);
}

typedef struct hl_kept_streams {
    float         *x;      /* (n_slots, B, S, D) on the device */
    hl_kept_range *ranges; /* (n_slots, B) positions that are stored */
    int64_t        n_slots;
} hl_kept_streams;

/* The slot of the stream that a layer reads; -1: it is not kept. */
int64_t hl_streams_slot(const struct hl_session *session, int64_t layer);
/* The address of the chunk's rows of a sequence in a slot. */
float *hl_streams_rows(const struct hl_session *session, const struct hl_chunk *chunk, int64_t slot,
                       int64_t b);
/* Checks that the feed can start at its first layer. */
hl_status hl_streams_check(const struct hl_session *session, const hl_feed *feed);
/* Marks the rows that the feed will overwrite as missing, until a chunk has been run. */
void hl_streams_begin(struct hl_session *session, const hl_feed *feed);
void hl_streams_extend(struct hl_session *session, const struct hl_chunk *chunk);

/* Number of rows for which logits are computed at a time. */
#define HL_LOGIT_ROWS 64

/* A linear map, or a vector (norm weight, sinks) where matrix.data is NULL. */
typedef struct hl_session_param {
    const hl_param *source; /* NULL: the model does not have it */
    hl_matrix       matrix;
    float          *vector; /* (n_rows) */
    float          *bias;   /* (n_rows) or NULL */
} hl_session_param;

/* The indices of a role's first parts in session->params; -1: the model does not have the role. */
typedef struct hl_session_index {
    int64_t first[HL_N_ROLES];
} hl_session_index;

/* Keys or values of one layer: (B, K, S, d). */
typedef struct hl_session_cache {
    void *k;
    void *v;
} hl_session_cache;

/* States of a layer's mixer (hl_mixer_state_floats): those of all sequences, and those kept for a
 * rewind. */
typedef struct hl_session_state {
    float *now;  /* (B, floats), NULL without a mixer */
    float *kept; /* (B, floats) */
} hl_session_state;

/* Sequences of a model with mixers.  A state cannot be shortened as a cache can: after a rewind it
 * is computed again from the tokens, from the kept position on if that was not passed. */
typedef struct hl_session_states {
    hl_session_state *layers; /* (n_layers) or NULL */
    int64_t          *at;     /* (B) number of tokens in the state; -1: unknown */
    int64_t          *kept;   /* (B) number of tokens in the kept state; 0: none */
    int32_t          *tokens; /* (B, n_ctx) */
} hl_session_states;

struct hl_device_session;

struct hl_session {
    const hl_model    *model;
    const hl_config   *config;
    const hl_weights  *weights;
    hl_session_options options; /* with all defaults filled in */

    hl_session_param *params;
    int64_t           n_params;
    hl_session_index  of_model;
    hl_session_index *of_layer; /* (n_layers) */

    hl_session_cache *caches; /* (n_layers), or one for all layers of an encoder */
    hl_session_states states;
    int64_t          *length; /* (B) number of tokens in each sequence */
    int64_t          *places; /* (4, B) start, lengths, ends and sequences of the current chunk */
    hl_kept_range    *kept;   /* (B) positions whose logits are kept */
    hl_kept_streams   streams;

    float *alibi_slopes; /* (H) or NULL */
    float *key_bias;     /* (H, S) or NULL */

    struct hl_device_session *device; /* everything on the session's device: see forward.h */
    float                    *last;   /* (B, d_vocab) logits after the last tokens, or NULL */

    hl_linear_pool pool;
    hl_linear_low  low;      /* buffers of the pool for rounded activations, if the options ask */
    bool          *searched; /* (n_layers + 1) weights already searched for non-finite values */

    bool   counting; /* only tables are allocated: hl_session_measure */
    void **blocks;   /* all memory, for closing */
    size_t n_blocks;
    size_t max_blocks;
    size_t n_bytes;
    size_t cache_bytes;
};

/* A chunk of what is being fed. */
typedef struct hl_chunk {
    const hl_feed *feed;
    int64_t        n_batch;   /* B: number of fed sequences */
    int64_t        offset;    /* column of feed->tokens where the chunk begins */
    int64_t        n_rows;    /* C */
    int64_t       *start;     /* (B) position of row 0 */
    int64_t       *lengths;   /* (B) rows that count */
    int64_t       *ends;      /* (B) start + lengths: number of keys */
    int64_t       *sequences; /* (B) cache sequences that hold their keys and values */
} hl_chunk;

/* A part of a role; NULL where the model does not have it.  Layer -1: a role of the whole model. */
const hl_session_param *hl_session_param_of(const hl_session *session, hl_role role, int64_t layer,
                                            int64_t part);

/* Allocates zeroed memory that lives as long as the session.  While counting, the result is
 * NULL, except for tables, which opening itself reads. */
hl_status hl_session_alloc(hl_session *session, void **out, int64_t count, size_t size);
hl_status hl_session_alloc_table(hl_session *session, void **out, int64_t count, size_t size);
#define HL_SESSION_ALLOC(session, pointer, count)                                                  \
    hl_session_alloc(session, (void **)(pointer), count, sizeof **(pointer))
#define HL_SESSION_TABLE(session, pointer, count)                                                  \
    hl_session_alloc_table(session, (void **)(pointer), count, sizeof **(pointer))

/* session_weights.c */
hl_status hl_session_load_weights(hl_session *session);
/* Searches the weights of a layer (-1: of the whole model) for NaN and infinity.  HL_BAD_INPUT,
 * naming the weight, if there is one. */
hl_status hl_session_find_nan(const hl_session *session, int64_t layer);

static inline uint32_t hl_chunk_wants(const hl_chunk *chunk)
{
    return chunk->feed->tap != NULL ? chunk->feed->tap->wants : 0;
}

/* Number of rows of the chunk, padding included: B C. */
static inline int64_t hl_chunk_rows(const hl_chunk *chunk)
{
    return chunk->n_batch * chunk->n_rows;
}

/* The layer that the feed ends before. */
static inline int64_t hl_chunk_end_layer(const hl_session *session, const hl_chunk *chunk)
{
    const hl_feed *feed = chunk->feed;

    return feed->n_layers > 0 ? feed->first_layer + feed->n_layers : session->config->n_layers;
}

/* Number of kinds of tokens whose share of attention is wanted; 0: not wanted. */
static inline int64_t hl_chunk_segments(const hl_chunk *chunk)
{
    return chunk->feed->segments != NULL ? chunk->feed->n_segments : 0;
}

/* The number of fed sequences, and the session's sequence with number `index` among them. */
static inline int64_t hl_feed_count(const hl_session *session, const hl_feed *feed)
{
    return feed->sequences != NULL ? feed->n_sequences : session->options.n_batch;
}

static inline int64_t hl_feed_sequence(const hl_feed *feed, int64_t index)
{
    return feed->sequences != NULL ? feed->sequences[index] : index;
}

/* The number of tokens that the feed has for a sequence. */
static inline int64_t hl_feed_length(const hl_feed *feed, int64_t sequence)
{
    return feed->lengths != NULL ? feed->lengths[sequence] : feed->n_tokens;
}

/* The token that a row of the chunk should predict; -1: not scored. */
static inline int64_t hl_chunk_target(const hl_chunk *chunk, int64_t sequence, int64_t row)
{
    const hl_feed *feed = chunk->feed;

    return feed->targets[sequence * feed->n_tokens + chunk->offset + row];
}

/* The session that keeps the chunk's rows of logits, or whose kept rows they are compared with. */
static inline const hl_session *hl_chunk_keeper(const hl_session *session, const hl_chunk *chunk)
{
    return chunk->feed->kept_by != NULL ? chunk->feed->kept_by : session;
}

/* The index of a row among the keeper's (B, n_kept) rows. */
static inline int64_t hl_chunk_kept_row(const hl_session *keeper, const hl_chunk *chunk,
                                        int64_t sequence, int64_t row)
{
    int64_t which = chunk->sequences[sequence];

    return which * keeper->options.n_kept + chunk->start[sequence] + row -
           keeper->kept[which].begin;
}

/* Does the chunk contain the last row of the feed for this sequence? */
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
