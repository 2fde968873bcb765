/* logits.h - statistics of a row of logits: the most likely token, and how certain the model is.
 *
 * All sums are in double and centered on the largest logit, as in row_state.h. */
#ifndef HL_KERNELS_LOGITS_H
#define HL_KERNELS_LOGITS_H

#include "headlight/base.h"

typedef struct hl_logits_row {
    int64_t top;        /* the most likely token; the lowest of equals */
    double  lse;        /* log of the sum of exp: log p(token) = logit - lse */
    double  entropy;    /* entropy of the next token, in nats */
    double  varentropy; /* variance of -log p */
} hl_logits_row;

/* The index of the largest of n >= 1 logits; the lowest of equals. */
int64_t hl_logits_top(const float *logits, int64_t n);
/* log of the sum of exp; NaN if a logit is NaN. */
double hl_logits_lse(const float *logits, int64_t n);
/* As hl_logits_lse, if the index of the largest logit is known. */
double hl_logits_lse_around(int64_t top, const float *logits, int64_t n);
/* A logit of -inf means that the token is impossible. */
hl_logits_row hl_logits_read(const float *logits, int64_t n);
/* Fails with HL_BAD_INPUT, naming the token, if a logit is NaN or +inf or all are -inf. */
hl_status hl_logits_check(const float *logits, int64_t n);

#endif
