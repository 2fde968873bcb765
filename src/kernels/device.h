/* device.h - a device is a table of operations over its memory.
 *
 * Where kernels.h lets the CPU's instruction sets stand in for each other, this is what whole
 * models are made of: model/forward*.c and model/blocks.c are written over these operations alone.
 * There are two devices:
 *
 *     cpu    memory is the process's own, operations are the CPU's kernels (device_cpu.c)
 *     cuda   an NVIDIA GPU (cuda/), opened at run time by cuda.c
 *
 * and tests bring a third, plain and slow, that says what each operation means (hl_device_offer).
 *
 * A device is near (is_near) when its memory is the process's: then an operation is done when its
 * call returns, copies out need no transfer, and weights are read as they are stored.
 *
 * Letters: B sequences per chunk, C rows per sequence, N = B C, D d_model, H heads, K KV heads, d
 * d_head, S n_ctx, F d_mlp, V d_vocab.  Rows beyond a sequence's `lengths` are padding: they may be
 * computed, hold anything, and must never be written to a cache nor be read for another row.
 *
 * Types.  A session has one compute type, F32, BF16 or F16 ("T" below): that of weights, of what
 * products read and write, of q, k, v and the cache.  Products add up in f32.  The residual
 * stream, logits, biases, norm weights, angles and statistics are f32.  Integers are int64_t.
 *
 * Order.  Operations run in the order they are issued, and may return before they are done (a
 * stream).  Sizes and pointers are arguments on the host; what changes from one decoded token to
 * the next (tokens, positions, lengths, angles) is read from device memory, so that the same calls
 * can be recorded once and replayed.
 *
 * Arguments are checked by the driver; tables check only what a device itself limits.  A function
 * that fails returns a status and leaves the reason in error(), for this thread; a failed operation
 * may also show up in a later call.  One thread at a time uses a device. */
#ifndef HL_KERNELS_DEVICE_H
#define HL_KERNELS_DEVICE_H

#include "headlight/attention.h"
#include "kernels/dense.h"
#include "kernels/linear.h"
#include "kernels/pattern.h"
#include "kernels/pick.h"
#include "kernels/router.h"
#include "kernels/row_sums.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when anything below changes. */
#define HL_DEVICE_INTERFACE 10

/* An open device: its streams, library handles and scratch memory. */
typedef struct hl_device hl_device;
/* A recording of operations, which can be replayed. */
typedef struct hl_device_graph hl_device_graph;

/* The positions of a chunk's rows.  Row r of sequence b is row b C + r of every (N, ...) array. */
typedef struct hl_device_places {
    int64_t        n_batch;    /* B */
    int64_t        batch_rows; /* C */
    const int64_t *start;      /* (B) on the device: the position of row 0 */
    const int64_t *lengths;    /* (B) on the device: number of rows that are not padding */
    const int64_t *sequences;  /* (B) on the device: index of the sequence in the cache */
} hl_device_places;

/* A weight on a near device: the parts of a map one after the other, as they are stored.  There,
 * `weight`, `table`, `up` and `down` below point to a hl_stored_map; on other devices they point to
 * packed values of T in device memory. */
typedef struct hl_stored_part {
    const hl_matrix *matrix;
    const float     *bias; /* (n_rows) or NULL */
} hl_stored_part;

typedef struct hl_stored_map {
    int64_t        n_parts;
    hl_stored_part parts[];
} hl_stored_map;

/* ------------------------------------------------------------------ products */

/* out (N, n_out) = x W' + bias. */
typedef struct hl_device_linear {
    void        *out;       /* (N, n_out) of out_dtype, rows out_stride elements apart */
    hl_dtype     out_dtype; /* T, or F32 */
    int64_t      out_stride;
    const void  *x; /* (N, n_in) of T, rows x_stride elements apart */
    int64_t      x_stride;
    const void  *weight; /* (n_out, n_in) of T, packed */
    const float *bias;   /* (n_out) or NULL; a stored map has its own bias */
    hl_dtype     dtype;  /* T */
    int64_t      n_rows;
    int64_t      n_in;
    int64_t      n_out;
    /* The sequences of the rows.  A near device skips padding and multiplies each one by itself. */
    hl_device_places places;
} hl_device_linear;

/* A mixture of experts: each row goes through the n_used experts that router.h chooses by its
 * logits.
 *
 *     out (N, D) = sum over the chosen of  weight * expert(x),  added up by rising expert
 *
 * An expert is down(act(gate x) * (up x)), or down(act(up x)) if it is not gated.  If the rule
 * scales inputs, the sum is that of expert(weight * x). */
typedef struct hl_device_experts {
    void         *out;          /* (N, D) of T, overwritten */
    const void   *x;            /* (N, D) of T */
    const float  *router;       /* (N, n_experts) logits */
    const float  *correction;   /* (n_experts) if the rule has one */
    const float  *expert_scale; /* (n_experts) multiplies the weights of chosen experts; or NULL */
    hl_router     rule;
    const void   *up;        /* (n_experts, 2 F, D) of T, gate rows before up rows; (n_experts,
                              * F, D) if not gated */
    const float  *up_bias;   /* (n_experts, 2 F or F) or NULL */
    const void   *down;      /* (n_experts, D, F) of T */
    const float  *down_bias; /* (n_experts, D) or NULL */
    hl_dtype      dtype;
    int64_t       n_rows;
    int64_t       d_model;
    int64_t       d_expert; /* F */
    int64_t       n_experts;
    int64_t       n_used;
    bool          is_gated;
    hl_activation activation;
    float         limit;  /* of SWIGLU_CLAMPED; XIELU is not possible */
    void         *work;   /* experts_bytes() of device memory */
    int64_t      *chosen; /* (N, n_used) the experts of each row; only a near device writes them */
    float        *shares; /* (N, n_used) their weights; only a near device writes them */
    hl_device_places places;
} hl_device_experts;

/* out (N, n) += x, or sigmoid(logit[row]) * x: adds the expert that every row uses. */
typedef struct hl_device_add_gated {
    void            *out;   /* of T */
    const void      *x;     /* of T */
    const float     *logit; /* (N) or NULL */
    hl_dtype         dtype;
    int64_t          n_rows;
    int64_t          n;
    hl_device_places places;
} hl_device_add_gated;

/* ---------------------------------------------------------------- row by row */

/* out (N, n) = scale * table[token] (or `base`), plus rows of the position and type tables if these
 * are given.  Padding has no position, so its rows are left unchanged. */
typedef struct hl_device_embed {
    void            *out;       /* (N, n) of out_dtype, packed */
    hl_dtype         out_dtype; /* F32, or T */
    const void      *base;      /* (N, n) of T instead of table and scale, or NULL */
    const void      *table;     /* (V, n) of T */
    const int64_t   *tokens;    /* (N) on the device */
    int64_t          n_known;   /* tokens from this on read row 0; 0: all have rows of their own */
    float            scale;
    const void      *position_table; /* (positions, n) of T or NULL: row start + r */
    const void      *type_table;     /* (types, n) of T or NULL */
    const int64_t   *types;          /* (N) on the device */
    hl_dtype         dtype;
    int64_t          n;
    hl_device_places places;
} hl_device_embed;

/* A residual sum and the norm after it, in this order; each part is optional:
 *
 *     x   += add_scale * add[0];  x += add_scale * add[1]
 *     out  = norm(x)
 *     kept = norm(x), in f32
 *
 * out, kept and x may be the same memory if their types are the same. */
typedef struct hl_device_norm {
    void            *out; /* (N, n) of out_dtype, packed, or NULL */
    hl_dtype         out_dtype;
    float           *kept; /* (N, n) or NULL */
    void            *x;    /* (N, n) of x_dtype, packed; written only if something is added */
    hl_dtype         x_dtype;
    const void      *add[2]; /* (N, n) of `dtype`, or NULL */
    hl_dtype         dtype;  /* T */
    float            add_scale;
    bool             is_plain; /* norm(x) = x: a conversion */
    hl_norm          norm;     /* weight and bias on the device */
    int64_t          n_rows;
    int64_t          n;
    hl_device_places places;
} hl_device_norm;

/* cosine, sine (N, n_pairs) = factor * cos, sin of float(position) * frequency, with a factor and
 * frequencies of each sequence.  The product is rounded to float; the functions are computed in
 * double. */
typedef struct hl_device_angles {
    float           *cosine;
    float           *sine;
    const float     *frequencies; /* (B, n_pairs) on the device */
    const float     *factors;     /* (B) on the device */
    int64_t          n_pairs;
    hl_device_places places;
} hl_device_angles;

/* The steps from the projections to attention, in this order; each is optional:
 *
 *     v        is divided by its root mean square, head by head
 *     q, k     norms, unless norm_last
 *     q, k, v  clamped to +-limit
 *     q, k     RoPE
 *     q, k     norms, if norm_last
 *     q        *= 1 + temper log(1 + floor((position + temper_first) / temper_period))
 *
 * Then k and v go into the cache.  Row r of qkv holds H heads of q, K of k, K of v, with d values
 * each, and is also updated in place.  With K = 0 only q is there; with no_values there is no v. */
typedef struct hl_device_heads {
    void            *qkv;     /* (N, (H + 2 K) d) of T, packed */
    void            *k_cache; /* (sequences, K, S, d) of cache_dtype */
    void            *v_cache;
    hl_dtype         dtype;
    hl_dtype         cache_dtype; /* T; a near device's cache may have another type */
    int64_t          n_heads;
    int64_t          n_kv_heads;
    int64_t          d_head;
    int64_t          n_ctx; /* S */
    hl_head_norm     norm;
    hl_norm          q_norm; /* weight and bias on the device */
    hl_norm          k_norm;
    bool             norm_last;
    bool             no_values;
    bool             v_normed; /* with the epsilon of k_norm */
    float            limit;    /* 0: none */
    float            temper;   /* 0: none */
    int64_t          temper_first;
    int64_t          temper_period;
    const float     *cosine; /* (N, n_pairs) or NULL: no RoPE */
    const float     *sine;
    int64_t          n_pairs; /* the first 2 n_pairs values of d are rotated */
    bool             interleaved;
    hl_device_places places;
} hl_device_heads;

/* out (N, n) = act(gate) * up, for every activation of hl_dense.activate; out may be gate.  If it is
 * sparse, hl_dense.sparsify comes first, and gate may be overwritten. */
typedef struct hl_device_activate {
    void            *out;  /* (N, n) of T, packed */
    const void      *gate; /* (N, n) of T, rows x_stride apart */
    const void      *up;   /* (N, n) of T, rows x_stride apart; NULL: ones */
    int64_t          x_stride;
    hl_dtype         dtype;
    hl_activation    activation;
    float            numbers[HL_ACTIVATION_NUMBERS];
    bool             is_sparse;
    float            deviations;
    int64_t          n_rows;
    int64_t          n;
    hl_device_places places;
} hl_device_activate;

/* The keys that a row of sparse attention sees.  For key j up to the row's own position,
 *
 *     score_j = sum over H of  weight_h max(0, q_h . k_j)
 *
 * out (N, n_keys) is 0 for the n_top keys with the largest scores, of equal ones the first, and -inf
 * for the others and for keys after the row. */
typedef struct hl_device_select {
    float           *out;
    int64_t          n_keys; /* at least start + batch_rows */
    const void      *q;      /* (N, H, d) of T */
    const float     *weight; /* (N, H) */
    const void      *keys;   /* (sequences, S, d) of cache_dtype */
    hl_dtype         dtype;
    hl_dtype         cache_dtype;
    int64_t          n_heads;
    int64_t          d_head;
    int64_t          n_ctx; /* S */
    int64_t          n_top;
    hl_device_places places;
} hl_device_select;

/* x (N, H, d) *= gates[h]: disables heads where a norm stands between them and their projection. */
typedef struct hl_device_gate_heads {
    void            *x;           /* of T, packed */
    const float     *gates;       /* (H), or (B, H) gate_stride apart */
    int64_t          gate_stride; /* 0: the same for all sequences */
    hl_dtype         dtype;
    int64_t          n_heads;
    int64_t          d_head;
    hl_device_places places;
} hl_device_gate_heads;

/* out row i = row index[i] of x, or row i if index is NULL, gathered, packed and converted.  Rows
 * to be added to x, as in hl_device_norm, are added on the way, but x itself does not change. */
typedef struct hl_device_copy_rows {
    void          *out;
    hl_dtype       out_dtype;
    int64_t        out_stride;
    const void    *x;
    hl_dtype       x_dtype;
    int64_t        x_stride;
    const void    *add[2]; /* of add_dtype, rows x_stride elements apart, or NULL */
    hl_dtype       add_dtype;
    float          add_scale;
    const int64_t *index; /* (n_rows) on the device; a negative index leaves its row unchanged */
    int64_t        n_rows;
    int64_t        n;
} hl_device_copy_rows;

/* Between the blocks of a model with several residual streams, x_a = x + a stride. With coefficients
 * c = W tanh(logits), hl_dense.predict before a block, hl_dense.correct after it, which also gives
 *
 *     out = x_0 * scale */
typedef struct hl_device_streams {
    float       *x;    /* (n_streams, N, n), each stream packed */
    float       *kept; /* (N, n) */
    int64_t      stride;
    const float *logits; /* (N, n_streams) */
    const float *weight; /* predict: (n_streams^2, n_streams); correct: (n_streams, n_streams) */
    bool         corrects;
    void        *out;   /* (N, n) of T if it corrects, or NULL */
    const float *scale; /* (n) or NULL: ones */
    hl_dtype     dtype; /* T */
    int64_t      n_streams;
    int64_t      n;
    hl_device_places places;
} hl_device_streams;

/* hl_dense.match of each row, on zeros unless it adds. */
typedef struct hl_device_match {
    float           *out;  /* (N, n), packed as all */
    const float     *x;    /* (N, n) */
    const float     *like; /* (N, n) */
    bool             adds;
    int64_t          n;
    hl_device_places places;
} hl_device_match;

/* ------------------------------------------------------ mixers with a state */

/* States of a mixer lie in the order of sequences, `stride` floats apart.  A sequence whose first row
 * has position 0 begins with a state of zeros, whatever is stored. */

/* hl_conv for each sequence: x, times and after are (N, n) of T with rows x_stride apart, out (N, n)
 * is packed. */
typedef struct hl_device_conv {
    void            *out;
    const void      *x;
    const void      *times; /* or NULL */
    const void      *after; /* or NULL */
    int64_t          x_stride;
    const float     *weight; /* (width, n) */
    const float     *bias;   /* (n) or NULL */
    float           *state;  /* (sequences, width - 1, n) */
    int64_t          stride;
    int64_t          width;
    int64_t          n;
    bool             is_silu;
    hl_dtype         dtype;
    hl_device_places places;
} hl_device_conv;

/* hl_scan for each sequence and head; with HL_SCAN_CHANNEL there is one head.  A head reads group
 * head / (n_heads / n_groups) of k and q, or with is_tiled group head % n_groups. */
typedef struct hl_device_scan {
    hl_scan_kind     kind;
    void            *out;      /* (N, n_heads, d_head) of T, packed */
    const void      *x;        /* (N, n_heads, d_head) of T */
    const void      *k;        /* (N, n_groups, d_state) of T */
    const void      *q;        /* (N, n_groups, d_state) of T */
    const void      *dt;       /* (N, n_heads) of T; CHANNEL: (N, d_head) */
    const void      *beta;     /* (N, n_heads) of T, DELTA */
    int64_t          x_stride; /* elements between rows, in this array and the next */
    int64_t          k_stride;
    int64_t          dt_stride;
    int64_t          beta_stride;
    float            dt_scale;
    float            dt_low;
    float            dt_high;
    const float     *a;       /* (n_heads); CHANNEL: (d_state, d_head) */
    const float     *dt_bias; /* (n_heads), or NULL */
    const float     *skip;    /* (n_heads); CHANNEL: (d_head); or NULL */
    float           *state;   /* (sequences, n_heads, d_state, d_head) */
    int64_t          stride;
    int64_t          n_heads;
    int64_t          n_groups;
    bool             is_tiled;
    int64_t          d_state;
    int64_t          d_head;
    hl_dtype         dtype;
    hl_device_places places;
} hl_device_scan;

/* out = scale * norm(x * act(z)), or with norm_first scale * norm(x) * act(z).  The norm is an RMSNorm
 * of each of the row's groups of d_group values. x may be overwritten. */
typedef struct hl_device_gate {
    void            *out; /* (N, n) of T, packed; may be x if that is packed */
    void            *x;   /* (N, n) of T, rows x_stride apart */
    const void      *z;   /* (N, n) of T, rows z_stride apart; NULL: ones */
    int64_t          x_stride;
    int64_t          z_stride;
    hl_activation    activation; /* SILU or SIGMOID */
    float            z_scale;    /* z is multiplied by it */
    float            scale;
    bool             has_norm;
    bool             norm_first;
    int64_t          d_group; /* divides n */
    const float     *weight;  /* (n), or (d_group) with is_shared: one for all groups */
    bool             is_shared;
    float            eps;
    hl_dtype         dtype;
    int64_t          n_rows;
    int64_t          n;
    hl_device_places places;
} hl_device_gate;

/* ---------------------------------------------------------------- the end */

/* logits (count) *= scale, then softcap tanh(x / softcap) unless softcap is 0. */
typedef struct hl_device_cap {
    float  *x;
    int64_t count;
    float   scale;
    float   softcap;
} hl_device_cap;

/* Reference rows of logits, which later rows are compared with.  For a reference row a, p = exp(a -
 * lse a) and a later row x:
 *
 *     KL = sum p ((a - lse a) - (x - lse x)),
 *
 * which is exactly 0 where x = a. */
typedef struct hl_device_kept {
    float  *logits; /* (n_rows, n), or NULL: rows are neither kept nor compared */
    float  *p;      /* (n_rows, n) of p, kept by near devices only */
    double *lse;    /* (n_rows) */
    bool    puts;   /* store the rows as references, instead of comparing them */
} hl_device_kept;

/* Statistics of rows of logits, as defined by hl_logits_read and hl_logits_lse of logits.h. */
typedef struct hl_device_logits {
    const float   *logits; /* (n_rows, n) */
    int64_t        n_rows;
    int64_t        n;
    const int64_t *targets; /* (n_rows) on the device, for losses; negative: no target */
    int64_t       *top;     /* (n_rows) or NULL, like the arrays below; the lowest of equals */
    float         *entropy;
    float         *gap;    /* the largest logit minus the second */
    double        *losses; /* -log p of the target; NaN without a target and if a logit is NaN */
    int32_t       *flag;   /* gets |= 1 if a logit is NaN or infinite; may be NULL */
    hl_device_kept kept;
    double        *divergence; /* (n_rows) if rows are kept; 0 when they are stored */
} hl_device_logits;

/* Draws from rows of logits, as defined in pick.h. */
typedef struct hl_device_pick {
    hl_pick_result     *out;        /* (n_rows) */
    hl_pick_candidate  *candidates; /* (n_rows, HL_PICK_CANDIDATES) in any order */
    const float        *logits;     /* (any number of rows, n) */
    const hl_pick_rule *rules;      /* (n_rows) on the device; each names a row of `logits` */
    const uint32_t     *repeated;   /* (n_rows, (n + 31) / 32) one bit per token, lowest first,
                                     * set if the penalty applies; not read without a penalty */
    int64_t             n_rows;
    int64_t             n;
    void               *work; /* (n_rows, HL_PICK_WORK_BYTES) */
} hl_device_pick;

/* *flag |= 1 if a row that is not padding holds a NaN or an infinity. */
typedef struct hl_device_finite {
    int32_t         *flag; /* on the device */
    const float     *x;    /* (N, n) */
    int64_t          n;
    hl_device_places places;
} hl_device_finite;

/* ------------------------------------------------------------------- watching */

/* Whole rows of attention, computed after the operator has run on the same problem.  As
 * hl_attention_pattern, but double precision is optional. */
typedef struct hl_device_patterns {
    float              *out;        /* (n_items, out_stride), 0 where hidden, up to out_stride */
    int64_t             out_stride; /* at least problem->n_keys */
    hl_pattern_row     *statistics; /* (n_items) or NULL */
    const float        *lse;        /* (B, H, C) from the operator, precise enough unless
                                     * `statistics` is wanted; or NULL */
    const hl_attention *problem;    /* on the host, its pointers on the device */
    const int64_t      *items;      /* (n_items, 3) on the device: batch, head, row; sorted by
                                     * batch, then head, with as many items per head; a negative
                                     * row leaves its place in `out` unchanged */
    int64_t             n_items;
    double             *scores; /* (threads, problem->n_keys) scratch of a near device */
} hl_device_patterns;

/* Attention on fed sequences that are contiguous in the cache: hl_attention_forward with every
 * pointer of both structs on the device, query_start and key_length included.  The problem is
 * complete: strides, scale and flags are filled in, and no key_length exceeds n_keys. */
typedef struct hl_device_attention {
    hl_attention_result result;
    hl_attention        problem;
    bool                is_apart; /* results must not depend on the other sequences of the feed */
} hl_device_attention;

/* Sums of rows for a profile (kernels/row_sums.h).  log_n and the inverses are (B, C), for every
 * row of a sequence.  NORMALIZED is entropy * inverse, in double, and so is its histogram; the
 * histogram of ENTROPY_NOSINK uses inverse_other.  hl_bin_of chooses the bins.  A share of the
 * lookback is hl_share_of(mass), rounded to a whole number of 2^-22, ties to even. */
typedef struct hl_device_reduce {
    hl_run_sums               *sums;      /* (H, n_runs) */
    int64_t                   *histogram; /* (H, HL_N_HISTOGRAMS, 64), overwritten */
    int64_t                   *lookback;  /* (H, n_types, n_types), overwritten; or NULL */
    const hl_attention_result *rows;      /* on the host, its pointers on the device: (B, H, C) */
    const hl_run              *runs;      /* (n_runs) */
    int64_t                    n_runs;
    const double              *log_n;
    const double              *inverse;
    const double              *inverse_other;
    int64_t                    n_types; /* number of types in rows->segment_mass */
    int64_t                    n_heads;
    int64_t                    batch_rows; /* C */
} hl_device_reduce;

/* Compares rows of the stream before and after a block: influence = 1 - cos(kept, x), then kept =
 * x.  Rows with a negative index are left unchanged. */
typedef struct hl_device_follow {
    double        *influence; /* (n_rows), or NULL: rows are only kept */
    float         *kept;      /* (n_rows, n) */
    const float   *x;         /* (n_rows, n) */
    const int64_t *index;     /* (n_rows) */
    int64_t        n_rows;
    int64_t        n;
} hl_device_follow;

/* What the heads write, y = z W_h, computed from G = W_h W_h': the squares z G z', and how alike
 * the kernels z_i G z_j' of two heads are (formula in kernels/likeness.h).  A kernel has min(n,
 * kernel_rows) of a sequence's n rows, evenly spaced. */
typedef struct hl_device_outputs {
    double        *squares; /* (H, B, n_sampled) */
    double        *alike;   /* (B, H (H + 1) / 2) NaN if a kernel is not finite */
    double        *kernels; /* (B, H, kernel_rows^2 + kernel_rows + 1) scratch */
    const float   *z;       /* (B, n_sampled, H, d) */
    const float   *gram;    /* (H, d, d) */
    const int64_t *index;   /* (B, n_sampled) negative: the row does not exist */
    int64_t        n_batch;
    int64_t        n_sampled;
    int64_t        n_heads;
    int64_t        d_head;
    int64_t        kernel_rows;
} hl_device_outputs;

/* Half the sum of |p_a - p_b| for each pair of heads a < b, for each whole row. */
typedef struct hl_device_distances {
    double      *out; /* (B, n_patterns, H (H - 1) / 2) */
    const float *p;   /* (B, H, n_patterns, n_keys) */
    int64_t      n_batch;
    int64_t      n_heads;
    int64_t      n_patterns;
    int64_t      n_keys;
} hl_device_distances;

/* Sums over whole rows of attention (pattern_sums.h). */
typedef struct hl_device_pattern_sums {
    hl_pattern_sums        *out;    /* (B, n_patterns, H); all 0 for a row that is not looked at */
    const float            *p;      /* (B, H, n_patterns, n_keys) */
    const hl_pattern_place *places; /* (B, n_patterns) */
    int64_t                 n_batch;
    int64_t                 n_heads;
    int64_t                 n_patterns;
    int64_t                 n_keys;
} hl_device_pattern_sums;

/* ------------------------------------------------------------------ the table */

typedef struct hl_device_memory {
    size_t free_bytes;
    size_t total_bytes;
} hl_device_memory;

/* Copies to the host, and the work that prepares them, run beside later work in lanes.  Each lane
 * can be waited for by itself. */
enum { HL_DEVICE_LANES = 2 };

typedef struct hl_device_ops {
    int         interface; /* HL_DEVICE_INTERFACE */
    const char *name;
    bool        is_near; /* see above; put_values, draws and lane functions are then NULL */
    const char *(*error)(void);

    /* Returns HL_NOT_FOUND if there is no such device.  The pool has host threads and scratch for
     * devices that need them; it outlives the device. */
    hl_status (*open)(hl_device **out, const hl_linear_pool *pool);
    void (*close)(hl_device *device); /* waits for all operations first; NULL is allowed */
    hl_status (*memory)(hl_device *device, hl_device_memory *out);

    /* Allocates zeroed memory, or returns HL_NO_MEMORY; the caller reports the size. */
    hl_status (*alloc)(hl_device *device, void **out, size_t n_bytes);
    /* Frees memory of any device of this kind, open or closed: `device` may be NULL. */
    void (*free)(hl_device *device, void *block);
    /* Allocates host memory that is fast to copy to and from. */
    hl_status (*alloc_host)(hl_device *device, void **out, size_t n_bytes);
    void (*free_host)(hl_device *device, void *block);

    /* Copies in the order of operations.  Memory of alloc_host must stay unchanged until the next
     * wait; other memory has been read when the call returns. */
    hl_status (*copy_in)(hl_device *device, void *to, const void *from, size_t n_bytes);
    hl_status (*zero)(hl_device *device, void *to, size_t n_bytes);
    /* Copies after all operations issued so far, and beside those issued later: they must not write
     * `from` before arrived(lane). */
    hl_status (*copy_out)(hl_device *device, int lane, void *to, const void *from, size_t n_bytes);
    /* Waits for the lane's copies.  `wait` waits for everything. */
    hl_status (*arrived)(hl_device *device, int lane);
    hl_status (*wait)(hl_device *device);

    /* Converts whole blocks on the host, of any type that hl_dequantize reads, to `to` (n_values)
     * of to_dtype.  `from` has been read when the call returns. */
    hl_status (*put_values)(hl_device *device, void *to, hl_dtype to_dtype, const void *from,
                            hl_dtype from_dtype, int64_t n_values);

    hl_status (*linear)(hl_device *device, const hl_device_linear *linear);
    /* The bytes of device memory that experts() needs for this many rows; device may be NULL. */
    size_t (*experts_bytes)(hl_device *device, const hl_device_experts *experts);
    hl_status (*experts)(hl_device *device, const hl_device_experts *experts);
    hl_status (*add_gated)(hl_device *device, const hl_device_add_gated *add);
    hl_status (*embed)(hl_device *device, const hl_device_embed *embed);
    hl_status (*norm)(hl_device *device, const hl_device_norm *norm);
    hl_status (*angles)(hl_device *device, const hl_device_angles *angles);
    hl_status (*heads)(hl_device *device, const hl_device_heads *heads);
    hl_status (*activate)(hl_device *device, const hl_device_activate *activate);
    hl_status (*select)(hl_device *device, const hl_device_select *select);
    hl_status (*gate_heads)(hl_device *device, const hl_device_gate_heads *gates);
    hl_status (*copy_rows)(hl_device *device, const hl_device_copy_rows *copy);
    hl_status (*streams)(hl_device *device, const hl_device_streams *streams);
    hl_status (*match)(hl_device *device, const hl_device_match *match);
    hl_status (*conv)(hl_device *device, const hl_device_conv *conv);
    hl_status (*scan)(hl_device *device, const hl_device_scan *scan);
    hl_status (*gate)(hl_device *device, const hl_device_gate *gate);
    hl_status (*cap)(hl_device *device, const hl_device_cap *cap);
    hl_status (*logits)(hl_device *device, const hl_device_logits *logits);
    hl_status (*pick)(hl_device *device, const hl_device_pick *pick);
    hl_status (*finite)(hl_device *device, const hl_device_finite *finite);

    /* Attention on all sequences of a chunk, in n_parts problems of one or more sequences. */
    hl_status (*attention)(hl_device *device, const hl_device_attention *parts, int64_t n_parts);
    hl_status (*patterns)(hl_device *device, const hl_device_patterns *patterns);
    hl_status (*follow)(hl_device *device, const hl_device_follow *follow);
    /* These run in a lane, like copy_out: do not touch inputs and outputs until arrived(lane). */
    hl_status (*reduce)(hl_device *device, int lane, const hl_device_reduce *reduce);
    hl_status (*outputs)(hl_device *device, int lane, const hl_device_outputs *outputs);
    hl_status (*distances)(hl_device *device, int lane, const hl_device_distances *distances);
    hl_status (*pattern_sums)(hl_device *device, int lane, const hl_device_pattern_sums *sums);

    /* Operations between graph_begin and graph_end are recorded, not run.  Only operations, `zero`
     * and copies within lanes are allowed.  All four are NULL if the device records nothing. */
    hl_status (*graph_begin)(hl_device *device);
    hl_status (*graph_end)(hl_device *device, hl_device_graph **out);
    hl_status (*graph_run)(hl_device *device, const hl_device_graph *graph);
    void (*graph_free)(hl_device *device, hl_device_graph *graph);
} hl_device_ops;

/* Finds a device by name, "cpu" or "cuda".  HL_NOT_FOUND comes with the reason. */
hl_status hl_device_find(const hl_device_ops **out, const char *name);
/* Makes hl_device_find return `ops` for its name from now on.  For tests. */
void hl_device_offer(const hl_device_ops *ops);

extern const hl_device_ops hl_device_cpu;
/* The GPU (cuda.c).  Fails as hl_cuda_kernels of kernels.h does. */
hl_status hl_cuda_device_ops(const hl_device_ops **out);

#ifdef __cplusplus
}
#endif
#endif
