/* pattern.h - single rows of the attention matrix, the plain way, in double.
 *
 * The fused kernels never build such rows.  They are for pictures and comparisons at chosen rows,
 * and `verify` checks the fused statistics against them. */
#ifndef HL_KERNELS_PATTERN_H
#define HL_KERNELS_PATTERN_H

#include "headlight/attention.h"

/* The statistics of one row, named as in hl_attention_result. */
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

/* Computes the probabilities of row (batch, head, row), rounded to float at the end: out (n_keys),
 * 0 for hidden keys.  A learned sink takes part but has no entry.  The problem must be complete:
 * strides and flags filled in.  scores (n_keys) is scratch; statistics may be NULL. */
hl_status hl_attention_pattern(float *out, double *scores, hl_pattern_row *statistics,
                               const hl_attention *problem, int64_t batch, int64_t head,
                               int64_t row);

#endif
