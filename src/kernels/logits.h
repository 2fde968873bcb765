/* logits.h - what a row of logits says: the likeliest token, and how sure the model is.
 *
 * All sums are in double and centered on the largest logit, as in row_state.h. */
#ifndef HL_KERNELS_LOGITS_H
#define HL_KERNELS_LOGITS_H

#include "headlight/base.h"

typedef struct hl_logits_row {
    int64_t top;        /* the likeliest token; the lowest of equals */
    double  lse;        /* log of the sum of exp: log p(token) = logit - lse */
    double  entropy;    /* of the next token, in nats */
    double  varentropy; /* variance of -log p */
} hl_logits_row;

/* The index of the largest of n >= 1 logits; the lowest of equals. */
int64_t hl_logits_top(const float *logits, int64_t n);
/* log of the sum of exp; NaN where a logit is. */
double hl_logits_lse(const float *logits, int64_t n);
/* The same, around the largest, which is known. */
double hl_logits_lse_around(int64_t top, const float *logits, int64_t n);
/* -log p of a token, and the likeliest one; NaN where a logit is. */
double hl_logits_loss(int64_t *top, const float *logits, int64_t n, int64_t token);
/* A logit of -inf is a token that cannot be. */
hl_logits_row hl_logits_read(const float *logits, int64_t n);
/* HL_BAD_INPUT, naming the token, where a logit is NaN or +inf or all are -inf. */
hl_status hl_logits_check(const float *logits, int64_t n);

#endif
