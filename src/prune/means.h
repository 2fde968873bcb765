/* means.h - what a pruned head wrote on average, kept as a bias.
 *
 * Instead of nothing a removed head can leave its mean: with m_h the mean of its output
 * over a text and W_h its slice of the output projection, the sum of W_h m_h over the
 * pruned heads of a layer is added to the layer's output bias.
 *
 * A model without such biases can get them.  A family whose layers may have them says so in one
 * word of config.json, attention_bias, and then wants all four: those of q, k and v are zeros, that
 * of the output is the sum of means.  In a GGUF file the output's alone is enough, where the
 * architecture has a name for it. */
#ifndef HL_PRUNE_MEANS_H
#define HL_PRUNE_MEANS_H

#include "base/memory.h"
#include "headlight/export.h"
#include "model/head_plan.h"
#include "model/model.h"

/* Sets the biases of the plan, of layers that lose heads, and of all where the model has no
 * output biases yet; means (n_layers, n_heads, d_head)
 * are those of hl_head_means. */
hl_status hl_means_to_biases(hl_head_plan *plan, const hl_model *model, const float *means);

/* Is there a place for means, without or with new biases?  HL_UNSUPPORTED, with the reason, if
 * not. */
hl_status hl_new_biases_check(const hl_config *config, hl_prune_form form);

typedef struct hl_new_biases {
    hl_tensor *tensors; /* (n) names and data are ours */
    size_t     n;
} hl_new_biases;

/* Of a Hugging Face folder, all layers, sizes by the plan, whose own biases must be of all
 * layers; *out begins as zeros and is released in any case.  None where the model has biases
 * already. */
hl_status hl_new_biases_make(hl_new_biases *out, const hl_model *model, const hl_head_plan *plan);
void      hl_new_biases_free(hl_new_biases *biases);

#endif
