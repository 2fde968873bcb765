/* means.h - the mean output of removed heads, kept as a bias.
 *
 * A removed head can be replaced by its mean: with m_h the mean of its output over a text and W_h its
 * slice of the output projection, the sum of W_h m_h over the removed heads of a layer is added to
 * the layer's output bias.
 *
 * A model without output biases can get them.  In config.json, a family whose layers may have biases
 * has the key attention_bias, which requires four per layer: those of q, k and v are zeros, that of
 * the output is the sum of means.  A GGUF file needs only the output's, if the architecture has a
 * name for it. */
#ifndef HL_PRUNE_MEANS_H
#define HL_PRUNE_MEANS_H

#include "base/memory.h"
#include "headlight/export.h"
#include "model/head_plan.h"
#include "model/model.h"

/* Sets the plan's biases for layers that lose heads, and for all layers if the model has no output
 * biases yet. means (n_layers, n_heads, d_head) come from hl_head_means. */
hl_status hl_means_to_biases(hl_head_plan *plan, const hl_model *model, const float *means);

/* Can the model store the means, with or without new biases? Fails with HL_UNSUPPORTED and the
 * reason if not. */
hl_status hl_new_biases_check(const hl_config *config, hl_prune_form form);

typedef struct hl_new_biases {
    hl_tensor *tensors; /* (n) owns its names and data */
    size_t     n;
} hl_new_biases;

/* Makes new biases for all layers of a Hugging Face folder, with the plan's sizes; the plan must
 * have biases for all layers. Makes none if the model already has biases. *out starts zeroed and
 * must be released whatever this returns. */
hl_status hl_new_biases_make(hl_new_biases *out, const hl_model *model, const hl_head_plan *plan);
void      hl_new_biases_free(hl_new_biases *biases);

#endif
