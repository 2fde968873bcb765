/* pattern.h - single rows of the attention matrix, the plain way, in double.
 *
 * What the fused kernels never build: for pictures and comparisons at chosen
 * rows, and as the truth that `verify` holds the fused statistics against. */
#ifndef HL_KERNELS_PATTERN_H
#define HL_KERNELS_PATTERN_H

#include "headlight/attention.h"

/* What one row comes to; as hl_attention_result. */
typedef struct hl_pattern_row {
    double lse;
    double entropy;
    double renyi2;
    double varentropy;
    double peak;
    double self;
    double previous;
    double first;
    double max_score; /* the largest |score| */
} hl_pattern_row;

/* The probabilities of row (batch, head, row), rounded in the end: out (n_keys), 0 where hidden; a
 * learned sink takes part but has no place.  The problem must be complete: strides
 * and flags filled in.  scores (n_keys) are for the work; statistics may be NULL. */
hl_status hl_attention_pattern(float *out, double *scores, hl_pattern_row *statistics,
                               const hl_attention *problem, int64_t batch, int64_t head,
                               int64_t row);

#endif
