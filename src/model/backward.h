/* backward.h - the gradient of the loss with respect to every head's gate.
 *
 *     hl_backward *backward = NULL;
 *     HL_TRY(hl_backward_open(&backward, model, n_ctx, n_threads));
 *     HL_TRY(hl_backward_run(gradient, &nll, backward, tokens, n_tokens, 1));
 *   done:
 *     hl_backward_close(backward);
 *
 * L is the mean negative log-likelihood of tokens first .. n_tokens - 1.  One forward pass keeps the
 * residual stream before every block; then the blocks come in reverse: each is run again
 * from its input, and the gradient goes back through it.  Gradients are taken of activations
 * only, never of weights, so memory is a stream a layer and a few rows.
 *
 *     backward.c            the loss, blocks and their norms, by the lines of config.h
 *     backward_attention.c  projections, norms of q and k, RoPE, the operator
 *     backward_mlp.c        plain, gated, mixtures of experts
 *     backward_dense.c      linear maps, norms, activations
 *
 * Letters: S n_tokens, D d_model, H heads, K K/V heads, d d_head, F the widest MLP. */
#ifndef HL_MODEL_BACKWARD_H
#define HL_MODEL_BACKWARD_H

#include "base/memory.h"
#include "headlight/session.h"
#include "model/forward.h"

#define HL_BACKWARD_PANEL 256 /* rows of a weight that are multiplied with at a time */

typedef struct hl_backward {
    hl_session      *session; /* one sequence, in one chunk */
    const hl_config *config;
    int64_t          n_ctx;
    int              n_threads;
    const hl_dense  *dense; /* of the back end in use; set by every run */

    /* Of the run. */
    const int64_t *tokens;
    int64_t        n_tokens; /* S */
    int64_t        first;    /* token that is scored */
    hl_tap         tap;
    hl_feed        feed;
    hl_chunk       chunk;
    int64_t        places[4];
    double         nll; /* sum */

    float *stream;   /* (n_layers, S, D) before each block */
    float *middle;   /* (S, D) between the halves of a block */
    float *grad;     /* (S, D) of the stream; starts after the last block */
    float *input;    /* (S, D) what the branch read */
    float *raw;      /* (S, D) what it gave, or the sum that a norm reads */
    float *d_branch; /* (S, D) of what the branch gave */
    float *d_input;  /* (S, D) of what it read */
    float *part;     /* (S, D) one of several parts of that */

    float *raw_q; /* (S, H d) before norm and RoPE */
    float *raw_k; /* (S, K d) */
    float *d_z;   /* (S, H d) */
    float *d_q;   /* (S, H d) */
    float *d_k;   /* (S, K d) */
    float *d_v;   /* (S, K d) */
    float *keys;  /* (2, K, n_ctx, d) gradients of keys and values, as the operator has them */
    float *sine;  /* (S, d / 2) of the angles, negated */

    float   *gate;    /* (S, F) before the activation */
    float   *up;      /* (S, F) */
    float   *d_gate;  /* (S, F) */
    float   *d_up;    /* (S, F) */
    float   *rows_x;  /* (S, D) of one expert: what its rows read, */
    float   *rows_y;  /* (S, D) gave, */
    float   *rows_dy; /* (S, D) and their gradients */
    float   *rows_dx; /* (S, D) */
    float   *router;  /* (S, n_experts) logits, then their gradients */
    float   *d_share; /* (S, n_experts_used) of the experts' weights */
    int64_t *members; /* (S) the rows that an expert gets */

    float *d_logits; /* (HL_LOGIT_ROWS, d_vocab) */
    float *d_hidden; /* (HL_LOGIT_ROWS, the wider of D and d_embed) */
    float *d_narrow; /* the same */

    float *panel;   /* (HL_BACKWARD_PANEL, the widest input of a weight) */
    float *partial; /* (S, that) */
} hl_backward;

/* HL_UNSUPPORTED for an encoder, which predicts no next token.  Borrows the model; gates are
 * those that the model has, else 1. */
hl_status hl_backward_open(hl_backward **out, const hl_model *model, int64_t n_ctx,
                           int32_t n_threads);
void      hl_backward_close(hl_backward *backward);
HL_CLOSES(hl_backward_close, hl_backward)
/* gradient (n_layers, n_heads) of the mean over the window, 0 where a layer has no such head;
 * *nll is that mean.  n_tokens from 2 to n_ctx, first from 1 to n_tokens - 1. */
hl_status hl_backward_run(double *gradient, double *nll, hl_backward *backward,
                          const int64_t *tokens, int64_t n_tokens, int64_t first);

/* backward_dense.c */

/* dx (n, columns of W) = dy (n, rows of W) W, or added to what is there. */
hl_status hl_backward_linear(const hl_backward *b, float *dx, const float *dy, int64_t n,
                             const hl_session_param *param, bool add);
/* dx (n) from dy (n) and the x that the norm read; dx may be dy. */
void hl_backward_norm(float *dx, const float *dy, const float *x, int64_t n, const hl_norm *norm);
/* The same for S rows of D. */
void hl_backward_norms(const hl_backward *b, float *dx, const float *dy, const float *x,
                       const hl_norm *norm);
/* Part `part` of a role as a norm. */
hl_norm hl_backward_norm_of(const hl_backward *b, hl_role role, int64_t layer, int64_t part);
/* From the gradient of act(gate) * up to those of gate and up, each (n); up and d_up may be
 * NULL.  d_gate holds the former and gets the latter. */
void hl_backward_activation(float *d_gate, float *d_up, const float *gate, const float *up,
                            int64_t n, hl_activation activation, float limit);
/* out (n, rows of W) = x W' + b. */
hl_status hl_backward_forward(const hl_backward *b, float *out, const float *x, int64_t n,
                              const hl_session_param *param);

/* d_input (S, D) from d_branch, for a branch that read `input`.  The session has just run it.
 * dgates (H of the layer). */
hl_status hl_backward_attention(hl_backward *b, float *dgates, int64_t layer);
hl_status hl_backward_mlp(hl_backward *b, int64_t layer);

#endif
