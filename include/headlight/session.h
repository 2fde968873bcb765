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
 * A session is a model at work: the keys and values of every sequence so far, and all the memory
 * that a pass needs.  Feeding tokens appends them: first a whole prompt, later one token at a time.
 * The tap receives the model's intermediate results layer by layer, one chunk of rows at a time;
 * only requested results are computed.  Positions count from 0 in each sequence.
 *
 * A session is for one thread at a time; several sessions of one model may run at once, each in
 * its own thread. A feed calls its tap on the thread that feeds. */

typedef struct hl_session hl_session;
struct hl_observer; /* internal to the library: kernels/row_sums.h */
struct hl_observed;

/* What a session can report in addition to the statistics of rows. */
enum {
    HL_WANT_Q           = 1 << 0, /* queries as used in the scores: after norm and RoPE */
    HL_WANT_K           = 1 << 1,
    HL_WANT_V           = 1 << 2,
    HL_WANT_Z           = 1 << 3, /* each head's output, after its gate and before the output
                                   * projection */
    HL_WANT_RESID_PRE   = 1 << 4,
    HL_WANT_RESID_MID   = 1 << 5,
    HL_WANT_RESID_POST  = 1 << 6,
    HL_WANT_PATTERN     = 1 << 7, /* complete attention rows, at chosen positions */
    HL_WANT_LENS        = 1 << 8, /* final norm and unembedding after every block */
    HL_WANT_HIDDEN      = 1 << 9, /* output of the final norm */
    HL_WANT_LOGITS      = 1 << 10,
    HL_WANT_LAST_LOGITS = 1 << 11, /* logits of each sequence's last row, for hl_session_logits */
    HL_WANT_LAST_TOP    = 1 << 12, /* most likely token after each sequence's last row, for
                                    * hl_session_top. A device copies eight bytes for it, not a
                                    * row of logits */
    HL_WANT_LOSSES      = 1 << 13, /* -log p of hl_feed.targets, and the most likely tokens; a
                                    * device does not copy logits to the host for them */
    HL_WANT_LAST_DRAW   = 1 << 14, /* a token can be sampled after each sequence's last row, as
                                    * hl_generator does. A device keeps the logits and copies
                                    * only the candidates that the sampler chooses among */
    /* KL divergence from rows that were kept (hl_feed.keeps_logits), in nats. The session
     * reserves memory for the logits of n_kept tokens of every sequence where it runs; on the
     * CPU, twice that */
    HL_WANT_DIVERGENCE = 1 << 15,
};

/* How weights are multiplied on the CPU.  F32 is exact up to the rounding of f32 sums, and the
 * definition.  BF16 rounds both sides of a product to bf16 where a sequence has more than 8 rows;
 * it needs AVX-512 BF16.  INT8 multiplies stored blocks with activations of 8 bits, one scale per
 * 32 values; weights that are not in blocks, and types without such a kernel, stay exact.
 * Attention, norms and statistics are computed in f32 in every mode.  DEFAULT is the mode of
 * hl_math_select.  doc/performance.md says what each mode costs and gains. */
typedef enum hl_math {
    HL_MATH_DEFAULT = 0,
    HL_MATH_F32,
    HL_MATH_BF16,
    HL_MATH_INT8,
    HL_MATH_COUNT
} hl_math;

/* Sets the mode of sessions that name none: DEFAULT is HEADLIGHT_MATH in the environment, else F32.
 * Fails if this CPU lacks its instructions. */
HL_API hl_status hl_math_select(hl_math math);
/* "f32", "bf16" or "int8". */
HL_API const char *hl_math_name(hl_math math);
/* Whether sessions with hl_session_options.repack may copy weights (true).  The program's --no-repack
 * says no. */
HL_API void hl_repack_allow(bool allowed);

/* Rates of some threads. */
typedef struct hl_machine_rates {
    double gflops;    /* multiply-adds in f32, 10^9 operations per second */
    double gigabytes; /* memory that decoding can read, 10^9 bytes per second */
} hl_machine_rates;

/* This machine, and what is used on it. */
typedef struct hl_machine {
    char             cpu[64];
    char             instructions[64]; /* such as "AVX2 AVX-512 VNNI" */
    int32_t          n_cores;
    int32_t          quota_cores;    /* cores that the control group allows; 0: no quota */
    int32_t          n_threads;      /* threads of sessions */
    int64_t          cache_bytes[3]; /* levels 1 to 3; 0: not known */
    int64_t          free_bytes;     /* memory that this process may use; 0: not known */
    const char      *backend;
    const char      *products; /* what multiplies long texts */
    bool             has_math[HL_MATH_COUNT];
    hl_machine_rates one; /* of one thread */
    hl_machine_rates all; /* of n_threads threads */
} hl_machine;

/* Measures the machine, for about a tenth of a second; n_threads 0: all cores. */
HL_API hl_status hl_machine_probe(hl_machine *out, int32_t n_threads);

typedef struct hl_session_options {
    int64_t  n_ctx;       /* largest number of tokens per sequence; 0: the default
                                 * (HL_DEFAULT_CTX) */
    int64_t  n_batch;     /* number of sequences; 0: 1 */
    int64_t  n_chunk;     /* rows of a sequence that are computed together; 0: 512 */
    int64_t  n_patterns;  /* largest number of positions for HL_WANT_PATTERN; 0: none. A
                                 * feed of fewer sequences may name more positions per sequence,
                                 * up to the same total */
    uint32_t wants;       /* HL_WANT_...: everything that feeds may request */
    hl_dtype cache_dtype; /* type of cached keys and values: F32 or F16 */
    int32_t  n_threads;   /* 0: all cores */
    bool     beyond_ctx;  /* n_ctx may exceed the model's, where the model can compute that */
    hl_math  math;
    bool     steady; /* a row's bytes do not depend on what shares its batch, not even if a
                            * sequence has only a few rows left */
    int64_t  n_rows; /* rows of all sequences that are computed together; 0: n_batch times
                            * n_chunk. With a smaller number, only feeds of some sequences
                            * (hl_feed.sequences) are sure to fit */
    const char
           *device; /* name as in hl_model_set_device; NULL: the model's; must outlive the call  */
    int64_t n_sampled; /* largest number of positions per sequence in hl_tap.sampled_positions;
                        * taps must then set these. 0: none */
    int64_t n_kept;    /* largest number of rows per sequence that a feed may keep for
                        * HL_WANT_DIVERGENCE; 0: n_ctx; -1: none, if rows are compared with those
                        * of another session */
    /* Feeds keep the residual streams that layers stream_every, 2 stream_every, ... read, where
     * the session runs: n_ctx rows of every sequence, by position.  hl_feed.first_layer can then
     * be one of these layers without hl_feed.stream.  0: none are kept. */
    int64_t stream_every;
    /* For sessions of many long feeds on the CPU: weights are copied in the order in which long texts
     * are multiplied, after a few feeds, instead of being packed in each.  The copies count as
     * work_bytes; together they take at most an eighth of the machine's memory, and less where
     * hl_memory_limit leaves less. */
    bool repack;
} hl_session_options;

/* Rows of one layer.  All pointers are borrowed and valid during the callback; NULL where not
 * requested. */
typedef struct hl_layer_rows {
    int64_t        layer;
    int64_t        n_batch;
    int64_t        n_rows; /* rows per sequence; the last ones may be padding */
    int64_t        n_heads;
    int64_t        n_kv_heads;
    int64_t        d_head;
    int64_t        d_model;
    const int64_t *sequences; /* (n_batch) numbers of these sequences in the session; NULL: the
                               * rows belong to no sequence */
    const int64_t *start;     /* (n_batch) the position of row 0 */
    const int64_t *lengths;   /* (n_batch) number of non-padding rows */

    const hl_attention_result *rows;       /* statistics, (n_batch, n_heads, n_rows) each; argmax
                                            * is missing on a device */
    int64_t                    n_segments; /* segments in rows->segment_mass; 0: the feed had no
                                            * segments */

    /* The arrays q, k, v, z and resid_* hold all rows.  On a device they may hold only the rows
     * that the tap's sampled_positions name: their second dimension is then n_sampled, in that
     * order. */
    int64_t      n_sampled;  /* number of sampled rows; 0: all rows */
    const float *q;          /* (n_batch, n_rows, n_heads,    d_head) */
    const float *k;          /* (n_batch, n_rows, n_kv_heads, d_head) */
    const float *v;          /* (n_batch, n_rows, n_kv_heads, d_head) */
    const float *z;          /* (n_batch, n_rows, n_heads,    d_head) */
    const float *resid_pre;  /* (n_batch, n_rows, d_model) */
    const float *resid_mid;  /* (n_batch, n_rows, d_model); NULL where both branches read
                              * resid_pre */
    const float *resid_post; /* (n_batch, n_rows, d_model) */

    const float   *pattern;      /* (n_batch, n_heads, n_patterns, n_keys) probabilities */
    const int64_t *pattern_rows; /* (n_patterns), or (n_batch, n_patterns) with patterns_differ:
                                  * the rows of this chunk that `pattern` holds; -1: none */
    bool           patterns_differ;
    int64_t        n_patterns;
    int64_t        n_keys;

    const int64_t *lens_top; /* (n_batch, n_rows) most likely token before this layer */
    const float   *lens_entropy;
    const float   *lens_gap; /* difference between the largest and the second largest logit */

    /* Additional data for the tap's observer; internal to the library. */
    const struct hl_observed *observed;
} hl_layer_rows;

/* Final results of rows of one sequence. */
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
    const double  *losses; /* (n_rows) -log p of the feed's targets; NaN where there is no target
                            * or a logit is NaN */
    const int64_t *tops;   /* (n_rows) the most likely token, the lowest id if several are equal;
                            * present if losses are */
    /* (n_rows) sum p (log p - log q), where p is the kept distribution of the same sequence and
     * position, and q is this row's.  Exactly 0 where the logits are the same. */
    const double *divergence;
} hl_final_rows;

/* Callbacks that receive intermediate results of a feed.  Any result of a callback other than
 * HL_OK ends the feed with that status. */
typedef struct hl_tap {
    void *context;
    hl_status (*layer)(void *context, const hl_layer_rows *rows);
    hl_status (*final)(void *context, const hl_final_rows *rows);
    /* Receives the embeddings, before the first block, as the resid_post of layer -1, without
     * heads. */
    hl_status (*embedded)(void *context, const hl_layer_rows *rows);
    uint32_t       wants;             /* HL_WANT_...: a subset of those that the session was
                                       * opened with */
    const int64_t *pattern_positions; /* (n_pattern_positions) in increasing order */
    int64_t        n_pattern_positions;
    bool           patterns_differ; /* each sequence has its own positions: pattern_positions is
                                     * (n_batch, n_pattern_positions), in increasing order per
                                     * sequence, filled up with -1 */
    const bool    *pattern_heads;   /* (n_layers, n_heads of the model) heads whose rows are
                                     * requested; hl_layer_rows.pattern is undefined for the others;
                                     * NULL: all heads */
    /* Positions (n_batch, n_sampled_positions), -1 for none, if only some rows of HL_WANT_Q to
     * HL_WANT_RESID_POST are needed.  A device then copies these rows alone
     * (hl_layer_rows.n_sampled), and always reports resid_post.  NULL: all rows are reported. */
    const int64_t            *sampled_positions;
    int64_t                   n_sampled_positions;
    const struct hl_observer *observer; /* internal to the library; set to NULL */
} hl_tap;

/* Replaces outputs of heads of one layer. */
typedef struct hl_patch {
    int64_t      layer;
    const float *z;     /* (n_batch, n_tokens, n_heads, d_head) as HL_WANT_Z reports them */
    const bool  *heads; /* (n_heads) heads to replace; NULL: all */
} hl_patch;

typedef struct hl_feed {
    const int64_t *tokens; /* (n_batch, n_tokens) */
    int64_t        n_tokens;
    const int64_t *lengths;     /* (n_batch) tokens per sequence, before padding; NULL: n_tokens
                                 * each */
    const int64_t *token_types; /* (n_batch, n_tokens); NULL: 0 */
    const int64_t *targets;     /* (n_batch, n_tokens) token that each row should predict, for
                                 * HL_WANT_LOSSES; -1: none */
    const float   *gates;       /* (n_layers, n_heads) factors of the heads' outputs; NULL: the
                                 * model's gates */
    const uint8_t *segments;    /* (n_batch, n_ctx) for rows' segment_mass; NULL: none */
    int64_t        n_segments;
    const hl_tap  *tap; /* receives intermediate results; NULL: none */
    /* The residual stream (n_batch, n_tokens, d_model) that layer `first_layer` reads: its
     * resid_pre, or the resid_post of the previous layer.  Lower layers are not run and keep
     * their keys and values; a feed that starts at a lower layer must not follow before a
     * rewind.  With first_layer = n_layers only the final norm and the output head are run.
     * NULL: the stream that the session kept for the same positions
     * (hl_session_options.stream_every), or for layer 0 the token embeddings. */
    const float *stream;
    int64_t      first_layer;
    /* A part of the model: n_layers layers from first_layer on, of which the first is left at once
     * for its MLP with from_mid (`stream` is then its resid_mid), and the last ends after its
     * attention with to_mid.  Neither is possible where both branches read resid_pre.  The final
     * norm and the output head are not run.  n_layers 0: all layers, and the end. */
    int64_t n_layers;
    bool    from_mid;
    bool    to_mid;
    /* Heads whose outputs are replaced, before the output projection.  On the CPU alone. */
    const hl_patch *patches; /* (n_patches) */
    int64_t         n_patches;
    /* Feeds only these sequences of the session, in increasing order.  n_batch is then
     * n_sequences in the shapes of this struct, except that of `segments`, and in what the tap
     * receives; other sequences cost nothing.  All get n_tokens tokens, without `lengths`, and
     * the rows of each are the same bytes whatever is fed with it.  NULL: all sequences. */
    const int64_t *sequences; /* (n_sequences) */
    int64_t        n_sequences;
    /* (n_sequences) gates for each of `sequences`.  NULL, for the array or for an entry:
     * `gates`. */
    const float *const *gates_each;
    /* With HL_WANT_DIVERGENCE: keeps the logits of these rows, replacing all that their sequence
     * kept earlier.  Later feeds are compared with them.  The divergence of the kept rows
     * themselves is 0. */
    bool keeps_logits;
    /* The session whose kept rows these rows are compared with.  It must have a model with the
     * same number of tokens, be on the same device, and not be running.  NULL: this session's
     * own rows. */
    const hl_session *kept_by;
} hl_feed;

/* Sets where the model's sessions run by default: "cpu"; "cuda", an NVIDIA GPU in bf16;
 * "cuda:f16"; "cuda:f32".  NULL: HEADLIGHT_DEVICE in the environment, else the CPU.  Fails with
 * HL_NOT_FOUND, and a message that says what is missing, if there is no such device.  On a
 * device K and V are stored in the type it computes in, whatever cache_dtype is, and a row's
 * result may depend on what shares its batch.  Call this from one thread, before the model's
 * sessions are opened. */
HL_API hl_status hl_model_set_device(hl_model *model, const char *name);
/* Returns HL_OK if sessions can run on a device of this name. */
HL_API hl_status hl_device_check(const char *name);

/* Opens a session.  It borrows the model, which must outlive the session. */
HL_API hl_status hl_session_open(hl_session **out, const hl_model *model,
                                 const hl_session_options *options);
HL_API void      hl_session_close(hl_session *session);
/* Appends tokens to sequences.  After a failure the sequences have their previous lengths.  An
 * encoder is different: it sees a whole sequence at once and keeps nothing. */
HL_API hl_status hl_session_feed(hl_session *session, const hl_feed *feed);
/* hl_session_length returns the number of tokens of a sequence; hl_session_rewind shortens the
 * sequence to `length` tokens (0: empty). */
HL_API int64_t   hl_session_length(const hl_session *session, int64_t sequence);
HL_API hl_status hl_session_rewind(hl_session *session, int64_t sequence, int64_t length);
/* Returns the most likely token after the last one of a sequence, the lowest id if several are
 * equal; -1 without HL_WANT_LAST_TOP. */
HL_API int64_t hl_session_top(const hl_session *session, int64_t sequence);
/* Returns the logits (d_vocab) after the last token of a sequence; NULL without
 * HL_WANT_LAST_LOGITS. */
HL_API const float *hl_session_logits(const hl_session *session, int64_t sequence);
/* Memory of a session in addition to the mapped weights.  All of it is allocated when the
 * session opens.  The peak of a process is therefore weights + cache + work, plus what the
 * kernels use while they run (under 1 MiB per thread) and OpenBLAS's own buffers. */
typedef struct hl_session_memory {
    int64_t n_ctx;       /* context length in use, after defaults are applied */
    size_t  cache_bytes; /* keys and values; only this grows with n_ctx */
    size_t  work_bytes;  /* everything else; grows with n_chunk, n_threads and the requested
                          * outputs */
} hl_session_memory;

/* Computes exactly how much memory hl_session_open would allocate with these options, without
 * allocating it. */
HL_API hl_status hl_session_measure(hl_session_memory *out, const hl_model *model,
                                    const hl_session_options *options);
/* Returns the bytes that the session holds in addition to the mapped weights, including the
 * cache. */
HL_API size_t hl_session_bytes(const hl_session *session, size_t *cache_bytes);

/* Names of places in a model, as TransformerLens spells them: "blocks.5.attn.hook_pattern",
 * "blocks.5.hook_resid_pre", ...  hl_hook_name writes up to n_bytes bytes and returns the length
 * of the complete name. */
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
