/* rank.h - the inside of hl_rank. */
#ifndef HL_PRUNE_RANK_H
#define HL_PRUNE_RANK_H

#include "headlight.h"

/* The product of the Frobenius norms of a head's rows of W_Q, W_K and W_V and of its columns of
 * W_O: *out (n_layers, n_heads), released with hl_free.  Heads that share keys and values have
 * the same W_K and W_V. */
hl_status hl_rank_weights(double **out, const hl_model *model);

#endif
