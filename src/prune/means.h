/* means.h - what a pruned head wrote on average, kept as a bias.
 *
 * Instead of nothing a removed head can leave its mean: with m_h the mean of its output
 * over a text and W_h its slice of the output projection, the sum of W_h m_h over the
 * pruned heads of a layer is added to the layer's output bias. */
#ifndef HL_PRUNE_MEANS_H
#define HL_PRUNE_MEANS_H

#include "headlight.h"
#include "model/head_plan.h"
#include "model/model.h"

/* Sets the biases of the plan, of layers that lose heads, and of all where the model has no
 * output biases yet; means (n_layers, n_heads, d_head)
 * are those of hl_head_means. */
hl_status hl_means_to_biases(hl_head_plan *plan, const hl_model *model, const float *means);

#endif
