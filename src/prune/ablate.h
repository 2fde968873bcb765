/* ablate.h - the heads of a model one by one; hl_ablate is in headlight.h. */
#ifndef HL_PRUNE_ABLATE_H
#define HL_PRUNE_ABLATE_H

#include "headlight/sweep.h"

/* All heads by layer and head, to out if it is not NULL; returns how many. */
int64_t hl_model_heads(hl_head *out, const hl_model *model);
/* A setting a head, in that order: base (n_layers, n_heads; NULL: all 1) with it at 0, and
 * base itself as the last.  *out is (all heads + 1, n_layers, n_heads), released
 * with hl_free. */
hl_status hl_single_gates(float **out, const hl_model *model, const float *base);
/* How much more a token costs with each of these settings than with setting `base` (-1: the model
 * as it is), of an evaluation that has them first: out (n_layers, n_heads), NaN where there is no
 * head. */
void hl_single_rises(double *out, const hl_model *model, const hl_evaluation *found, int64_t base);

#endif
