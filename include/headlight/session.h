/* headlight/session.h - running a model, and the tap that reports its rows.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_SESSION_H
#define HEADLIGHT_SESSION_H

#include "attention.h"
#include "model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------- running a model
 *
 *     hl_session *session = NULL;
 *     hl_session_options options = { .n_ctx = 1024 };
 *     hl_tap  tap  = { .layer = print_entropies };
 *     hl_feed feed = { .tokens = tokens, .n_tokens = n_tokens, .tap = &tap };
 *     if (hl_session_open(&session, model, &options) != HL_OK ||
 *         hl_session_feed(session, &feed) != HL_OK)
 *         fprintf(stderr, "%s\n", hl_error_message());
 *     hl_session_close(session);
 *
 * A session is a model at work: the keys and values of every sequence so far, and
 * all the memory that a pass needs.  Feeding tokens appends them: once a whole
 * prompt, later a token at a time.  What the model does on the way goes to the
 * tap, layer by layer, a chunk of rows at a time; only what is wanted is computed.
 * Tokens that were fed count from position 0 in each sequence.
 *
 * A session is for one thread at a time; several sessions of one model may be at work at once, each in
 * a thread of its own.  A feed calls its tap on the thread that feeds. */

typedef struct hl_session hl_session;
struct hl_observer; /* the library's own: kernels/row_sums.h */
struct hl_observed;

/* What a session can be asked for beside the statistics of rows. */
enum {
    HL_WANT_Q           = 1 << 0, /* as they meet: after norm and RoPE */
    HL_WANT_K           = 1 << 1,
    HL_WANT_V           = 1 << 2,
    HL_WANT_Z           = 1 << 3, /* each head's output, gated, before the projection */
    HL_WANT_RESID_PRE   = 1 << 4,
    HL_WANT_RESID_MID   = 1 << 5,
    HL_WANT_RESID_POST  = 1 << 6,
    HL_WANT_PATTERN     = 1 << 7, /* whole rows, at chosen positions */
    HL_WANT_LENS        = 1 << 8, /* final norm and unembedding after every block */
    HL_WANT_HIDDEN      = 1 << 9, /* what the final norm gives */
    HL_WANT_LOGITS      = 1 << 10,
    HL_WANT_LAST_LOGITS = 1 << 11, /* of each sequence's last row; hl_session_logits has them */
    HL_WANT_LAST_TOP    = 1 << 12, /* the likeliest token after it; hl_session_top.  On a device
                                    * that is eight bytes to copy, not a row of logits */
    HL_WANT_LOSSES      = 1 << 13, /* -log p of hl_feed.targets, and the likeliest tokens; no row
                                    * of logits leaves a device for them */
    HL_WANT_LAST_DRAW   = 1 << 14, /* a token can be drawn after it, as hl_generator does.  On a
                                    * device that leaves logits there, and copies what the sampler
                                    * chooses among */
    HL_WANT_DIVERGENCE  = 1 << 15, /* KL of rows that were kept (hl_feed.keeps_logits), in nats.
                                    * There is room for logits of n_kept tokens of every
                                    * sequence, where the session runs; on the CPU twice */
};

/* What stored blocks of Q8_0, Q4_0, Q4_K and Q6_K are multiplied with where few rows are
 * (a step of decoding, up to 8 rows of a sequence).  INT8 rounds activations to 8 bits,
 * 32 to a scale: a core then gets through Q8_0 1.4 times and through the others twice as fast, if
 * memory lets it.  On models/demo, decoding 512 tokens of two texts, the entropies of
 * attention rows move by 0.007 nats in the mean and 0.2 at most; as Q8_0 the weights
 * themselves move them by 0.003 and 0.07, as Q4_0 by 0.04 and 0.9.  So it is for
 * generating text, and EXACT for measuring.  Other types, and CPUs without AVX2, take
 * no notice. */
typedef enum hl_activations {
    HL_ACTIVATIONS_EXACT = 0,
    HL_ACTIVATIONS_INT8,
    HL_ACTIVATIONS_COUNT
} hl_activations;

typedef struct hl_session_options {
    int64_t        n_ctx;       /* most tokens of a sequence; 0: the default (HL_DEFAULT_CTX) */
    int64_t        n_batch;     /* sequences; 0: 1 */
    int64_t        n_chunk;     /* rows of a sequence that are worked on together; 0: 512 */
    int64_t        n_patterns;  /* most positions that HL_WANT_PATTERN may name; 0: none.  A feed
                                 * of fewer sequences may name more: as many in all */
    uint32_t       wants;       /* all that feeds may ask for */
    hl_dtype       cache_dtype; /* of keys and values: F32 or F16 */
    int32_t        n_threads;   /* 0: all cores */
    bool           beyond_ctx;  /* n_ctx may exceed the model's, where that can be computed */
    hl_activations activations;
    bool           steady; /* a row's bytes do not depend on what shares its batch, not even
                            * where a sequence has but a few rows left */
    int64_t        n_rows; /* rows that are worked on together, of all sequences; 0: n_batch times
                            * n_chunk.  With fewer, feeds of all sequences may not fit: for
                            * hl_feed.sequences */
    const char
           *device;    /* as hl_model_set_device's; NULL: what that chose.  Must outlive the call */
    int64_t n_sampled; /* most positions of a sequence that hl_tap.sampled_positions may name;
                            * taps must then name them.  0: none */
    int64_t n_kept;    /* most rows of a sequence that a feed may keep, where HL_WANT_DIVERGENCE is
                         * wanted; 0: n_ctx, -1: none, for rows that are compared with another
                         * session's */
    /* Feeds leave the residual streams that layers stream_every, 2 stream_every, ... read, where the
     * session runs: n_ctx rows of every sequence, by position.  hl_feed.first_layer can then be one
     * of these without hl_feed.stream.  0: none. */
    int64_t stream_every;
} hl_session_options;

/* One layer's rows.  Borrowed for the call; NULL where not wanted. */
typedef struct hl_layer_rows {
    int64_t        layer;
    int64_t        n_batch;
    int64_t        n_rows; /* of every sequence; the last may be padding */
    int64_t        n_heads;
    int64_t        n_kv_heads;
    int64_t        d_head;
    int64_t        d_model;
    const int64_t *sequences; /* (n_batch) which of the session's they are; NULL: of none */
    const int64_t *start;     /* (n_batch) the position of row 0 */
    const int64_t *lengths;   /* (n_batch) how many rows are no padding */

    const hl_attention_result *rows;       /* statistics: (n_batch, n_heads, n_rows) each; on a
                                            * device without argmax */
    int64_t                    n_segments; /* of rows->segment_mass; 0: the feed had no segments */

    /* q to resid_post hold all rows, or, on a device, those that the tap's sampled_positions name:
     * then their second dimension is n_sampled, in that order. */
    int64_t      n_sampled;  /* 0: all rows */
    const float *q;          /* (n_batch, n_rows, n_heads,    d_head) */
    const float *k;          /* (n_batch, n_rows, n_kv_heads, d_head) */
    const float *v;          /* (n_batch, n_rows, n_kv_heads, d_head) */
    const float *z;          /* (n_batch, n_rows, n_heads,    d_head) */
    const float *resid_pre;  /* (n_batch, n_rows, d_model) */
    const float *resid_mid;  /* ... ; NULL where both branches read resid_pre */
    const float *resid_post; /* ... */

    const float   *pattern;      /* (n_batch, n_heads, n_patterns, n_keys) probabilities */
    const int64_t *pattern_rows; /* (n_patterns) the rows of this chunk that they are, or
                                  * (n_batch, n_patterns) with patterns_differ; -1: none */
    bool           patterns_differ;
    int64_t        n_patterns;
    int64_t        n_keys;

    const int64_t *lens_top; /* (n_batch, n_rows) the likeliest token before this layer */
    const float   *lens_entropy;
    const float   *lens_gap; /* how far ahead of the second it is, in logits */

    /* What the tap's observer is told beside all this; for the library itself. */
    const struct hl_observed *observed;
} hl_layer_rows;

/* What comes out at the end, of rows of one sequence. */
typedef struct hl_final_rows {
    int64_t        sequence;
    int64_t        start; /* the position of row 0 */
    int64_t        n_rows;
    int64_t        d_model;
    int64_t        d_vocab;
    const float   *hidden;   /* (n_rows, d_model) */
    const float   *logits;   /* (n_rows, d_vocab) */
    const int64_t *lens_top; /* (n_rows) */
    const float   *lens_entropy;
    const float   *lens_gap;
    const double  *losses; /* (n_rows) -log p of the feed's targets; NaN where there is none, and
                            * where a logit is */
    const int64_t *tops;   /* (n_rows) with losses: the likeliest token, the lowest of equals */
    /* (n_rows) sum p (log p - log q): p is what was kept for the same sequence and position, q this
     * row's.  Exactly 0 where the logits are the same */
    const double *divergence;
} hl_final_rows;

/* Anything but HL_OK from a callback ends the feed with that status. */
typedef struct hl_tap {
    void *context;
    hl_status (*layer)(void *context, const hl_layer_rows *rows);
    hl_status (*final)(void *context, const hl_final_rows *rows);
    /* The embeddings, before the first block: as the resid_post of layer -1, without heads. */
    hl_status (*embedded)(void *context, const hl_layer_rows *rows);
    uint32_t       wants;             /* HL_WANT_..., of those the session was opened with */
    const int64_t *pattern_positions; /* (n_pattern_positions) rising */
    int64_t        n_pattern_positions;
    bool           patterns_differ; /* each sequence has its own: (n_batch, n_pattern_positions),
                                     * each rising, -1 where it has no more */
    const bool *pattern_heads; /* (n_layers, n_heads of the model) those whose rows are wanted; of
                                * others hl_layer_rows.pattern holds nothing; NULL: all are */
    /* Where of HL_WANT_Q to HL_WANT_RESID_POST only some rows are needed: (n_batch,
     * n_sampled_positions) positions, -1 for none.  A device copies these alone:
     * hl_layer_rows.n_sampled; NULL: all rows are told.  resid_post is then told in any case. */
    const int64_t            *sampled_positions;
    int64_t                   n_sampled_positions;
    const struct hl_observer *observer; /* for the library itself; NULL */
} hl_tap;

typedef struct hl_feed {
    const int64_t *tokens; /* (n_batch, n_tokens) */
    int64_t        n_tokens;
    const int64_t *lengths;     /* (n_batch) the rest is padding; NULL: n_tokens each */
    const int64_t *token_types; /* (n_batch, n_tokens); NULL: 0 */
    const int64_t *targets;     /* (n_batch, n_tokens) what each row should foretell, for
                                 * HL_WANT_LOSSES; -1: nothing */
    const float   *gates;       /* (n_layers, n_heads) multiply heads' outputs; NULL: the model's */
    const uint8_t *segments;    /* (n_batch, n_ctx) for rows' segment_mass; NULL: none */
    int64_t        n_segments;
    const hl_tap  *tap; /* NULL: nobody listens */
    /* The residual stream that layer `first_layer` reads, as its tap's resid_pre or the
     * resid_post of the layer before: (n_batch, n_tokens, d_model).  The layers below are not
     * run, and keep the keys and values that they had; so a feed that starts lower must not
     * follow before a rewind.  n_layers: the end alone.  NULL: what the session has kept of the same
     * positions (hl_session_options.stream_every), or for layer 0 the tokens' embeddings. */
    const float *stream;
    int64_t      first_layer;
    /* Some sequences of the session only, rising: n_batch is then n_sequences in the shapes
     * above, but for `segments`, and in what the tap gets; others cost nothing.  All get
     * n_tokens, without `lengths`, and the rows of each are the same bytes whatever is fed with
     * it.  NULL: all. */
    const int64_t *sequences; /* (n_sequences) */
    int64_t        n_sequences;
    /* (n_sequences) what `gates` is, of each of `sequences`; NULL, here or there: `gates`. */
    const float *const *gates_each;
    /* Where the tap wants HL_WANT_DIVERGENCE: the logits of these rows are kept, in the place of all
     * that their sequence had, and later feeds are compared with them.  They diverge by 0. */
    bool keeps_logits;
    /* Whose rows these are compared with: another session's, of a model that knows as many tokens,
     * on the same device, at rest meanwhile.  NULL: the session's own. */
    const hl_session *kept_by;
} hl_feed;

/* Where sessions of a model run whose options do not say otherwise: "cpu"; "cuda", an NVIDIA GPU in
 * bf16; "cuda:f16", "cuda:f32".  NULL: HEADLIGHT_DEVICE in the environment, else the CPU.  Fails with
 * HL_NOT_FOUND, saying what is missing, where there is no such device.  On a device K and V are kept
 * in the type it computes in, whatever cache_dtype says, and what a row comes out as may depend on what
 * shares its batch.  Before the model's sessions are opened, by one thread. */
HL_API hl_status hl_model_set_device(hl_model *model, const char *name);
/* HL_OK where sessions can run on a device of this name. */
HL_API hl_status hl_device_check(const char *name);

/* Borrows the model, which must outlive the session. */
HL_API hl_status hl_session_open(hl_session **out, const hl_model *model,
                                 const hl_session_options *options);
HL_API void      hl_session_close(hl_session *session);
/* After a failure the sequences are as long as before, but for the encoder's: an
 * encoder sees a whole sequence at once and keeps nothing. */
HL_API hl_status hl_session_feed(hl_session *session, const hl_feed *feed);
/* How many tokens a sequence has, and back to fewer (0: an empty one). */
HL_API int64_t   hl_session_length(const hl_session *session, int64_t sequence);
HL_API hl_status hl_session_rewind(hl_session *session, int64_t sequence, int64_t length);
/* The likeliest token after the last of a sequence, the lowest of equals; -1 without
 * HL_WANT_LAST_TOP. */
HL_API int64_t hl_session_top(const hl_session *session, int64_t sequence);
/* (d_vocab) after the last token of a sequence; NULL without HL_WANT_LAST_LOGITS. */
HL_API const float *hl_session_logits(const hl_session *session, int64_t sequence);
/* What a session holds beside the mapped weights, all of it allocated when it opens: so
 * the peak of a process is weights + cache + work, and what the kernels take while they
 * run, under 1 MiB a thread, and OpenBLAS for its own buffers. */
typedef struct hl_session_memory {
    int64_t n_ctx;       /* what the options' became */
    size_t  cache_bytes; /* keys and values; the one thing that grows with n_ctx */
    size_t  work_bytes;  /* all else; grows with n_chunk, n_threads and what is wanted */
} hl_session_memory;

/* What hl_session_open would hold with these options, exactly, without holding it. */
HL_API hl_status hl_session_measure(hl_session_memory *out, const hl_model *model,
                                    const hl_session_options *options);
/* Bytes that the session holds beside the mapped weights, the cache among them. */
HL_API size_t hl_session_bytes(const hl_session *session, size_t *cache_bytes);

/* "blocks.5.attn.hook_pattern", "blocks.5.hook_resid_pre", ... : what researchers
 * call a place in a model.  Writes up to n_bytes and returns the length it has. */
typedef enum hl_hook {
    HL_HOOK_Q = 0,
    HL_HOOK_K,
    HL_HOOK_V,
    HL_HOOK_Z,
    HL_HOOK_ATTN_SCORES,
    HL_HOOK_PATTERN,
    HL_HOOK_ENTROPY,
    HL_HOOK_RESID_PRE,
    HL_HOOK_RESID_MID,
    HL_HOOK_RESID_POST,
    HL_N_HOOKS
} hl_hook;
HL_API size_t hl_hook_name(char *out, size_t n_bytes, hl_hook hook, int64_t layer);

#ifdef __cplusplus
}
#endif
#endif
