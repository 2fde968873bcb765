/* headlight/attention.h - fused attention that measures its rows, forward and backward. Part of
 * headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_ATTENTION_H
#define HEADLIGHT_ATTENTION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------ attention that measures
 *
 * Calls keep no state: any number of threads may call at once, each with its own buffers.
 *
 * Fused attention.  In addition to the weighted values it reports statistics of each row of the
 * attention matrix, computed from running sums: memory grows with the number of keys, never with
 * its square.
 *
 * Row i of a sequence stands at position  p = query_start + i  and sees keys j
 *
 *     0 <= j < key_length,   j <= p                  if CAUSAL,
 *     j >= p - window_left  or  j < window_sink      if WINDOW_LEFT,
 *     j >= p - p % (window_left + 1)  or  j < window_sink, instead,   if also WINDOW_BLOCKS,
 *     j <= p + window_right                          if WINDOW_RIGHT.
 *
 * Its scores are s = scale * q.k, then softcap * tanh(s / softcap), then plus
 * alibi_slope * (j - p), then plus key_bias and row_bias.  With a learned sink the softmax has one
 * additional outcome, with score sinks[head] and without a value.  A row that sees no key has lse
 * and max_logit -inf, argmax -1, and zero in every other output.  A row with a score of NaN or +inf
 * has argmax -1 and
 * NaN in the other outputs, with two exceptions: keys that it does not see keep probability 0, and
 * entropy_nosink is finite if only the first key's score was not. */

/* A matrix of rows for every batch and head: element (b, h, r, d) lies at
 * data[b*batch_stride + h*head_stride + r*row_stride + d], strides counted in
 * elements.  All three strides zero means packed in the order (b, h, r, d). */
typedef struct hl_rows {
    void    *data; /* inputs are only read */
    hl_dtype dtype;
    int64_t  batch_stride;
    int64_t  head_stride;
    int64_t  row_stride;
} hl_rows;

enum {
    HL_ATTENTION_CAUSAL        = 1 << 0,
    HL_ATTENTION_WINDOW_LEFT   = 1 << 1, /* window_left applies */
    HL_ATTENTION_WINDOW_RIGHT  = 1 << 2, /* window_right applies */
    HL_ATTENTION_SCALE         = 1 << 3, /* scale applies, instead of 1/sqrt(d_head) */
    HL_ATTENTION_WINDOW_BLOCKS = 1 << 4, /* window_left + 1 is the size of a block */
};

#define HL_MAX_HEAD_DIM 576
#define HL_MAX_SEGMENTS 8

typedef struct hl_attention {
    int64_t n_batch;
    int64_t n_heads;    /* a multiple of n_kv_heads */
    int64_t n_kv_heads; /* head h reads KV head h / (n_heads / n_kv_heads) */
    int64_t n_queries;
    int64_t n_keys;
    int64_t d_head;  /* 1 .. HL_MAX_HEAD_DIM */
    int64_t d_value; /* 1 .. HL_MAX_HEAD_DIM */

    hl_rows q; /* (n_batch, n_heads,    n_queries, d_head)  */
    hl_rows k; /* (n_batch, n_kv_heads, n_keys,    d_head)  */
    hl_rows v; /* (n_batch, n_kv_heads, n_keys,    d_value) */

    uint32_t flags; /* HL_ATTENTION_... */
    double   scale;
    double   softcap; /* 0: none */
    int64_t  window_left;
    int64_t  window_right;
    int64_t  window_sink; /* number of first keys that stay visible outside the window; 0: none */

    const int64_t *query_start;  /* (n_batch); NULL: key_length - n_queries */
    const int64_t *key_length;   /* (n_batch); NULL: n_keys                 */
    const float   *alibi_slopes; /* (n_heads) */
    const float   *key_bias;     /* (n_heads, n_keys); -inf hides a key     */
    const float   *row_bias;     /* (n_batch, n_queries, n_keys), for all heads; likewise */
    const float   *sinks;        /* (n_heads) learned sink logits           */
    const float   *gates;        /* (n_heads) multiply each head's output   */

    /* A segment number below n_segments for every key.  segment_stride is 0
     * when all sequences share one row of numbers, else n_keys. */
    const uint8_t *segments; /* (n_batch or 1, n_keys) */
    int64_t        segment_stride;
    int64_t        n_segments; /* 0 .. HL_MAX_SEGMENTS */

    int32_t n_threads; /* 0: all cores this process may use */
} hl_attention;

/* Everything is optional.  Arrays are packed (n_batch, n_heads, n_queries). */
typedef struct hl_attention_result {
    hl_rows  out; /* (n_batch, n_heads, n_queries, d_value); .data NULL: not wanted */
    float   *lse;
    float   *entropy;        /* Shannon */
    float   *renyi2;         /* collision entropy */
    float   *varentropy;     /* variance of -log p under p */
    float   *entropy_nosink; /* Shannon, without the first key and renormalized; 0 if no other
                              * key is visible */
    float   *peak;           /* largest probability of a key */
    int64_t *argmax;         /* key with the largest probability; the lowest if several are equal */
    float   *self;           /* probability of the row's own position */
    float   *previous;       /* probability of the previous position */
    float   *first;          /* probability of the first key */
    float   *segment_mass;   /* (n_batch, n_heads, n_queries, n_segments) */
    float   *max_logit;      /* largest score of a key; -inf if no key is visible */
} hl_attention_result;

HL_API hl_status hl_attention_forward(hl_attention_result *result, const hl_attention *problem);

/* Inputs of the backward pass: upstream gradients, and the results of the forward pass (`out` as
 * it was returned, with gates applied).  grad_entropy and grad_lse may be NULL; entropy is read
 * only with grad_entropy. */
typedef struct hl_attention_upstream {
    hl_rows      grad_out;     /* shaped like out; .data NULL: zero */
    const float *grad_entropy; /* (n_batch, n_heads, n_queries) */
    const float *grad_lse;
    hl_rows      out;
    const float *lse;
    const float *entropy;
} hl_attention_upstream;

/* Gradients of the loss; each is optional.  dk and dv are overwritten, not added to. */
typedef struct hl_attention_gradient {
    hl_rows dq;     /* shaped like q */
    hl_rows dk;     /* shaped like k */
    hl_rows dv;     /* shaped like v */
    float  *dgates; /* (n_heads) */
    float  *dsinks; /* (n_heads) */
} hl_attention_gradient;

HL_API hl_status hl_attention_backward(hl_attention_gradient *gradient, const hl_attention *problem,
                                       const hl_attention_upstream *upstream);

/* The attention that each key receives: the sum over rows of its probability, in a second pass over
 * the scores, at about half the cost of the forward pass.  received is (n_batch, n_heads, n_keys),
 * lse what the forward pass of the same problem returned; v is not read.  The last n_last queries
 * count, or all if it is 0.  Keys that a row with an lse of NaN sees get NaN.  The same input gives
 * the same bytes with any number of threads. */
HL_API hl_status hl_attention_received(float *received, const hl_attention *problem,
                                       const float *lse, int64_t n_last);

/* ------------------------------------------------------------- back ends
 *
 * The kernels exist for several instruction sets; the best one that this CPU has is chosen when
 * first needed. HEADLIGHT_BACKEND=scalar|avx2|avx512|neon in the environment overrides that,
 * and so does hl_backend_select. The choice holds for the whole process, and applies to
 * everything computed from then on, including calls already running in other threads. */

/* Returns the names of the back ends that this build has and this CPU can run: the scalar
 * reference implementation first, the preferred one last.  The list is borrowed and
 * NULL-terminated. */
HL_API const char *const *hl_backend_names(void);
/* hl_backend_name returns the back end in use; hl_backend_select switches to another one (NULL:
 * choose automatically again).  "cuda", attention on an NVIDIA GPU, is not listed by
 * hl_backend_names: selecting it opens libheadlight_cuda.so, and fails with HL_NOT_FOUND if the
 * library or a GPU is missing. */
HL_API const char *hl_backend_name(void);
HL_API hl_status   hl_backend_select(const char *name);

#ifdef __cplusplus
}
#endif
#endif
