/* backward.h - the gradient of the loss with respect to every head's gate, and the norms of those
 * with respect to its rows of W_Q, W_K and W_V.
 *
 *     hl_backward *backward = NULL;
 *     HL_TRY(hl_backward_open(&backward, model, n_ctx, n_threads));
 *     HL_TRY(hl_backward_run(gradient, &nll, backward, tokens, n_tokens, 1));
 *   done:
 *     hl_backward_close(backward);
 *
 * L is the mean negative log-likelihood of tokens first .. n_tokens - 1.  One forward pass keeps
 * the residual stream before every block.  Then, in reverse order, each block is run again from
 * its input and the gradient is propagated back through it.  Gradients of weights are never kept:
 * of a head's rows of W_Q, W_K and W_V only the norm is, so memory is one stream per layer and a
 * few rows.
 *
 *     backward.c            the loss, blocks and their norms, by the lines of config.h
 *     backward_attention.c  projections, norms of q and k, RoPE, the operator
 *     backward_mlp.c        plain, gated, mixtures of experts
 *     backward_dense.c      linear maps, norms, activations
 *
 * Letters: S n_tokens, D d_model, H heads, K KV heads, d d_head, F the widest MLP. */
#ifndef HL_MODEL_BACKWARD_H
#define HL_MODEL_BACKWARD_H

#include "base/memory.h"
#include "headlight/session.h"
#include "model/forward.h"

#define HL_BACKWARD_PANEL 256 /* rows of a weight that are multiplied at a time */

typedef struct hl_backward {
    hl_session      *session; /* has one sequence, and takes it in one chunk */
    const hl_config *config;
    int64_t          n_ctx;
    int              n_threads;
    const hl_dense  *dense; /* table of the back end in use; set at the start of each run */

    /* Receives the gradients (S, D) of the loss with respect to what the attention of a layer writes,
     * before any norm, layer by layer from above; NULL: nobody asks.  Set by the caller. */
    hl_status (*outputs)(void *context, int64_t layer, const float *gradient);
    void *outputs_context;

    /* State of the current run. */
    const int64_t *tokens;
    int64_t        n_tokens; /* S */
    int64_t        first;    /* first token that is scored */
    hl_tap         tap;
    hl_feed        feed;
    hl_chunk       chunk;
    int64_t        places[4];
    double         nll;   /* sum over the scored tokens */
    int64_t        layer; /* whose block is gone through */

    float *stream;   /* (n_layers, S, D) before each block */
    float *middle;   /* (S, D) between the halves of a block */
    float *grad;     /* (S, D) gradient of the stream; starts after the last block */
    float *input;    /* (S, D) input of the branch */
    float *raw;      /* (S, D) output of the branch, or the sum that a norm reads */
    float *d_branch; /* (S, D) gradient of the branch's output */
    float *d_input;  /* (S, D) gradient of the branch's input */
    float *part;     /* (S, D) one of several terms of d_input */

    float *raw_q; /* (S, H d) before norm and RoPE */
    float *raw_k; /* (S, K d) */
    float *d_z;   /* (S, H d) */
    float *d_q;   /* (S, H d) */
    float *d_k;   /* (S, K d) */
    float *d_v;   /* (S, K d) */
    float *keys;  /* (2, K, n_ctx, d) gradients of keys and values, in the operator's layout */
    float *sine;  /* (S, d / 2) sines of the rotary angles, or negated ones */
    float *later; /* (n_layers, 2, S, K d) gradients of a layer's keys and values that later layers
                   * use; NULL: none does */

    double
          *weight_norms; /* (3, n_layers, n_heads) of the last run: Frobenius norms of the gradients
                           * of a head's rows of W_Q, and of its KV head's rows of W_K and W_V */
    float *turned;       /* (n_threads, d, S) gradient of a head's q, k or v, transposed */
    float *d_weight;     /* (n_threads, d, D) gradient of a head's rows */

    float   *gate;    /* (S, F) before the activation */
    float   *up;      /* (S, F) */
    float   *d_gate;  /* (S, F) */
    float   *d_up;    /* (S, F) */
    float   *rows_x;  /* (S, D) inputs of one expert's rows */
    float   *rows_y;  /* (S, D) outputs of one expert's rows */
    float   *rows_dy; /* (S, D) gradients of rows_y */
    float   *rows_dx; /* (S, D) gradients of rows_x */
    float   *router;  /* (S, n_experts) logits, then their gradients */
    float   *d_share; /* (S, n_experts_used) gradients of the experts' weights */
    int64_t *members; /* (S) rows that are routed to an expert */

    float *d_logits; /* (HL_LOGIT_ROWS, d_vocab) */
    float *d_hidden; /* (HL_LOGIT_ROWS, the wider of D and d_embed) */
    float *d_narrow; /* same shape as d_hidden */

    float *panel;   /* (HL_BACKWARD_PANEL, the widest input of a weight) */
    float *partial; /* (S, the widest input of a weight) */
} hl_backward;

/* HL_UNSUPPORTED, with the reason, for a model whose gradients are not computed. */
hl_status hl_backward_check(const hl_model *model);
/* HL_UNSUPPORTED for an encoder, which does not predict a next token.  Borrows the model; gates are
 * the model's, or 1 if it has none. */
hl_status hl_backward_open(hl_backward **out, const hl_model *model, int64_t n_ctx,
                           int32_t n_threads);
void      hl_backward_close(hl_backward *backward);
HL_CLOSES(hl_backward_close, hl_backward)
/* gradient (n_layers, n_heads) of the mean loss over the window, 0 where a layer has no such
 * head; *nll is that mean. n_tokens is 2 to n_ctx, first is 1 to n_tokens - 1. */
hl_status hl_backward_run(double *gradient, double *nll, hl_backward *backward,
                          const int64_t *tokens, int64_t n_tokens, int64_t first);

/* backward_dense.c */

/* dx (n, columns of W) = dy (n, rows of W) W; with `add`, it is added to dx. */
hl_status hl_backward_linear(const hl_backward *b, float *dx, const float *dy, int64_t n,
                             const hl_session_param *param, bool add);
/* dx (n) from dy (n) and the x that the norm read; dx may be dy. */
void hl_backward_norm(float *dx, const float *dy, const float *x, int64_t n, const hl_norm *norm);
/* hl_backward_norm for S rows of D. */
void hl_backward_norms(const hl_backward *b, float *dx, const float *dy, const float *x,
                       const hl_norm *norm);
/* Returns part `part` of a role as a norm. */
hl_norm hl_backward_norm_of(const hl_backward *b, hl_role role, int64_t layer, int64_t part);
/* Computes d_gate and d_up, each (n), from the gradient of act(gate) * up, which d_gate holds on
 * entry.  up and d_up may be NULL. */
void hl_backward_activation(float *d_gate, float *d_up, const float *gate, const float *up,
                            int64_t n, hl_activation activation, const float *numbers);
/* out (n, rows of W) = x W' + b. */
hl_status hl_backward_forward(const hl_backward *b, float *out, const float *x, int64_t n,
                              const hl_session_param *param);

/* Computes d_input (S, D) from d_branch, for a branch that read `input` and that the session has
 * just run. dgates (H of the layer). */
hl_status hl_backward_attention(hl_backward *b, float *dgates, int64_t layer);
hl_status hl_backward_mlp(hl_backward *b, int64_t layer);

#endif
