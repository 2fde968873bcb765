/* slices.h - the tensors of a model as they are once heads are pruned.
 *
 *     hl_slices *slices = NULL;
 *     HL_TRY(hl_slices_new(&slices, model, plan));
 *     for (size_t i = 0; i < hl_slices_count(slices); i++)
 *         hl_safetensors_add(writer, hl_slices_at(slices, i));
 *   done:
 *     hl_slices_free(slices);
 *
 * Tensors that no head is taken from are the model's own, byte for byte.  The others are
 * copies: memory for the output projections, and where heads are gone for q, k and v. */
#ifndef HL_PRUNE_SLICES_H
#define HL_PRUNE_SLICES_H

#include "headlight.h"
#include "model/head_plan.h"
#include "model/model.h"

typedef struct hl_slices hl_slices;

/* Borrows the model.  HL_UNSUPPORTED for what cannot be sliced: blocks of a GGUF file. */
hl_status hl_slices_new(hl_slices **out, const hl_model *model, const hl_head_plan *plan);
void      hl_slices_free(hl_slices *slices);

/* In the order of the model, without those that are gone.  Borrowed. */
size_t           hl_slices_count(const hl_slices *slices);
const hl_tensor *hl_slices_at(const hl_slices *slices, size_t index);

#endif
