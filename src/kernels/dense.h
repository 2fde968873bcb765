/* dense.h - the operations between one attention and the next, one row at a time.
 *
 *     norm       a row of the residual stream, or one head of q or k
 *     rotate     RoPE on one head
 *     activate   the middle of an MLP, gated or not
 *     dot        rows of x times rows of a weight:        y = W x
 *     combine    rows of a transposed weight, weighted:   y += x W
 *     dots_exact dot products in double
 *     exp_exact  exponentials in double, and the sums of a softmax
 *     conv       a causal convolution of each channel
 *     scan       one head of a recurrence whose state is a matrix
 *     predict, correct, match   the rows of several residual streams
 *
 * Each back end has one table of these functions.  They use no threads: linear.h and the forward
 * pass divide the rows.  dense_scalar.c is the definition. */
#ifndef HL_KERNELS_DENSE_H
#define HL_KERNELS_DENSE_H

#include "headlight/base.h"

typedef enum hl_norm_kind {
    HL_NORM_LAYER = 0, /* (x - mean) / sqrt(variance + eps) * w (+ b) */
    HL_NORM_RMS,       /* x / sqrt(mean of squares + eps) * w         */
} hl_norm_kind;

typedef struct hl_norm {
    hl_norm_kind kind;
    float        eps;
    const float *weight; /* (n); NULL: ones   */
    const float *bias;   /* (n); NULL: zeros  */
} hl_norm;

/* How q and k are normalized, between their projection and RoPE. */
typedef enum hl_head_norm {
    HL_HEAD_NORM_NONE = 0,
    HL_HEAD_NORM_SHARED, /* each head, with weights (d) for all heads */
    HL_HEAD_NORM_EACH,   /* each head, with weights (heads, d) */
    HL_HEAD_NORM_ALL,    /* all heads of a row together, with weights (heads d) */
} hl_head_norm;

typedef enum hl_activation {
    HL_ACTIVATION_GELU = 0, /* the exact formula, by erf */
    HL_ACTIVATION_GELU_TANH,
    HL_ACTIVATION_GELU_QUICK, /* x sigmoid(1.702 x) */
    HL_ACTIVATION_SILU,
    HL_ACTIVATION_RELU,
    HL_ACTIVATION_RELU_SQUARED,
    /* g = min(gate, limit), u = clamp(up, +-limit): (u + 1) g sigmoid(1.702 g) */
    HL_ACTIVATION_SWIGLU_CLAMPED,
    /* x > 0: p x^2 + b x; else n (expm1(min(x, e)) - x) + b x */
    HL_ACTIVATION_XIELU,
    HL_ACTIVATION_SIGMOID,     /* of the gates of attention and mixers, not of MLPs */
    HL_ACTIVATION_SILU_SCALED, /* b x sigmoid(a x) */
    HL_N_ACTIVATIONS
} hl_activation;

/* The numbers of an activation: the limit of SWIGLU_CLAMPED; p, n, b and e of XIELU; a and b of
 * SILU_SCALED. */
#define HL_ACTIVATION_NUMBERS 4

/* out[i * out_stride + j] = x_i . w_j for i < n_rows and j < n_weights.  A result does not depend
 * on the numbers of rows. */
typedef struct hl_dot {
    float             *out;
    int64_t            out_stride;
    const float       *x; /* (n_rows, n), rows x_stride apart */
    int64_t            x_stride;
    int64_t            n_rows;
    const void *const *w;     /* (n_weights), each (n) of dtype */
    hl_dtype           dtype; /* F32, F16, BF16, aligned to their elements, or a block type */
    int64_t            n_weights;
    int64_t            n;
} hl_dot;

/* out += x[0] w_0 + x[1] w_1 + ... over n_rows rows of w, for each of n_outs outputs.  A result
 * does not depend on n_outs. */
typedef struct hl_combine {
    float       *out; /* (n_outs, n), out_stride apart */
    int64_t      out_stride;
    const float *x; /* (n_outs, n_rows), x_stride apart */
    int64_t      x_stride;
    int64_t      n_outs;
    int64_t      n_rows;
    const void  *w; /* (n_rows, n) of dtype F32, F16 or BF16, rows w_stride elements apart */
    int64_t      w_stride;
    hl_dtype     dtype;
    int64_t      n;
} hl_combine;

/* Sums over the outcomes of a softmax; each has the weight w = e^z. */
typedef struct hl_exact_sums {
    double sum;     /* w     */
    double dot;     /* w z   */
    double dot2;    /* w z^2 */
    double squares; /* w^2   */
} hl_exact_sums;

/* A convolution of each channel over the last `width` rows of one sequence:
 *
 *     u_t   = x_t * times_t
 *     out_t = act(bias + sum of weight[j] u_(t - width + 1 + j) over j) * after_t
 *
 * with zeros before the sequence.  `state` has the width - 1 rows of u before row 0, and then those
 * before the next row; if the sequence begins here, it is only written. */
typedef struct hl_conv {
    float       *out; /* (n_rows, n), rows out_stride apart */
    int64_t      out_stride;
    const float *x;     /* (n_rows, n), rows x_stride apart, like times and after */
    const float *times; /* NULL: ones */
    const float *after; /* NULL: ones */
    int64_t      x_stride;
    const float *weight; /* (width, n), rows stride apart, like the state's */
    const float *bias;   /* (n) or NULL */
    float       *state;  /* (width - 1, n) */
    int64_t      stride;
    int64_t      width;
    int64_t      n_rows;
    int64_t      n;
    bool         begins;
    bool         is_silu; /* act is SiLU; else the identity */
} hl_conv;

#define HL_MAX_CONV  8   /* the largest width of a convolution */
#define HL_MAX_STATE 256 /* the largest d_state of a recurrence */

typedef enum hl_scan_kind {
    HL_SCAN_SSM = 0, /* Mamba-2: one decay per head and row */
    HL_SCAN_CHANNEL, /* Mamba-1: one decay per channel, entry of the state and row */
    HL_SCAN_DELTA,   /* the gated delta rule */
} hl_scan_kind;

/* One head of one sequence.  Its state S is (d_state, d_head).  With k, q the row's (d_state) and
 * x its (d_head), each row t does, in this order:
 *
 *     dt        = clamp(softplus(dt_scale dt_t + dt_bias), dt_low, dt_high)
 *     SSM       S = e^(a dt) S + k (dt x)';           out = S' q + skip x
 *     CHANNEL   S = e^(a_ij dt_j) S_ij + k_i dt_j x_j, with a dt per channel j; out = S' q + skip x
 *     DELTA     k = k / |k|, q = q / (|q| sqrt(d_state)), with |v|^2 = sum of v^2 + 1e-6
 *               S = e^(a dt) S;  S = S + sigmoid(beta) k (x - S' k)';             out = S' q
 *
 * If the sequence begins here, S is only written. */
typedef struct hl_scan {
    hl_scan_kind kind;
    float       *out; /* (n_rows, d_head), rows out_stride apart */
    int64_t      out_stride;
    const float *x; /* (n_rows, d_head) */
    int64_t      x_stride;
    const float *k; /* (n_rows, d_state) */
    const float *q;
    int64_t      k_stride; /* of q, too */
    const float *dt;       /* (n_rows); CHANNEL: (n_rows, d_head) */
    const float *beta;     /* (n_rows), DELTA */
    int64_t      dt_stride;
    int64_t      beta_stride;
    float        dt_scale;
    float        dt_low;
    float        dt_high;
    const float *a;       /* (1); CHANNEL: (d_state, d_head), rows state_stride apart */
    const float *dt_bias; /* (1), or NULL: 0; CHANNEL: (d_head) */
    const float *skip;    /* (1), or NULL: 0; CHANNEL: (d_head) */
    float       *state;   /* (d_state, d_head), rows state_stride apart */
    int64_t      state_stride;
    int64_t      d_state;
    int64_t      d_head;
    int64_t      n_rows;
    bool         begins;
} hl_scan;

/* A row of each of several residual streams x_0, x_1, ..., stride apart. */
typedef struct hl_streams {
    float       *x; /* (n_streams, n) */
    int64_t      stride;
    float       *kept; /* (n) */
    const float *coefficients;
    int64_t      n_streams;
    int64_t      n;
} hl_streams;

#define HL_MAX_STREAMS 8

typedef struct hl_dense {
    /* out and x may be the same. */
    void (*norm)(float *out, const float *x, int64_t n, const hl_norm *norm);
    /* Rotates n_pairs pairs of x: (2i, 2i+1) if interleaved, else (i, i + n_pairs). */
    void (*rotate)(float *x, const float *cosine, const float *sine, int64_t n_pairs,
                   bool interleaved);
    /* x = act(x) * up; up may be NULL (ones), except for SWIGLU_CLAMPED.  numbers
     * (HL_ACTIVATION_NUMBERS). */
    void (*activate)(float *x, const float *up, int64_t n, hl_activation activation,
                     const float *numbers);
    /* x = max(0, x - mean - deviations * standard deviation): keeps the largest values of a row. */
    void (*sparsify)(float *x, int64_t n, float deviations);
    void (*dot)(const hl_dot *dot);
    void (*combine)(const hl_combine *combine);
    /* out[i] = q . k_i for n_keys rows of k (n), `stride` apart, with all arithmetic in double.
     * Other results are checked against these. */
    void (*dots_exact)(double *out, const double *q, const float *k, int64_t stride, int64_t n_keys,
                       int64_t n);
    /* Replaces x[i] by w = e^(x[i] - shift), to two units in the last place, for x[i] <= shift.
     * Below 1e-307 it is 0.  Nonzero weights, with z = x[i] - shift, are added to `sums`. */
    void (*exp_exact)(hl_exact_sums *sums, double *x, double shift, int64_t n);
    void (*conv)(const hl_conv *conv);
    /* x_a += sum of coefficients[a][b] x_b over b, for all a at once; then kept = x_0. */
    void (*predict)(const hl_streams *streams);
    /* With d = x_0 - kept: x_0 = kept, and then x_a += (1 + coefficients[a]) d for all a. */
    void (*correct)(const hl_streams *streams);
    /* out += x * rms(like) / rms(x), where mean squares of x below 1e-5 count as that. */
    void (*match)(float *out, const float *x, const float *like, int64_t n);
    void (*scan)(const hl_scan *scan);
    /* n_steps times n_chains independent multiply-adds, for the peak rate. */
    float (*multiply_adds)(float start, int64_t n_steps);
    int64_t n_chains;
} hl_dense;

extern const hl_dense hl_dense_scalar;
extern const hl_dense hl_dense_avx2;
extern const hl_dense hl_dense_avx512;
extern const hl_dense hl_dense_neon;

#endif
