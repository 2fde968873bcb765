/* write.h - a pruned model as a folder; hl_prune_write is in headlight.h. */
#ifndef HL_PRUNE_WRITE_H
#define HL_PRUNE_WRITE_H

#include "headlight/export.h"
#include "headlight/model.h"
#include "model/head_plan.h"
#include "model/model.h"

/* Returns all heads of the plan that are not KEPT as {"0":[1,2]}, for metadata. Release it with
 * hl_free. */
hl_status hl_prune_heads_text(char **out, const hl_model *model, const hl_head_plan *plan);

/* Writes a Hugging Face folder; the plan says whether shapes change. *loads is set to the software
 * that can open it. (write_folder.c) */
hl_status hl_prune_write_folder(const char **loads, const hl_model *model, const hl_head_plan *plan,
                                const char *path);

/* Writes the GGUF file that the model was opened from, with zeros for the plan's heads, none of which is
 * GONE. (write_folder.c) */
hl_status hl_prune_copy_gguf(hl_prune_report *report, const hl_model *model,
                             const hl_head_plan *plan, const char *path);

/* Computes the bytes of tensors that hl_prune_write would write, without writing them.  Exact for
 * folders; approximate for GGUF files if a cut goes through blocks.  Of the options only the form is
 * used; the path, which may be NULL, determines it as in hl_prune_write. */
hl_status hl_prune_size(size_t *tensor_bytes, const hl_model *model, const hl_head_list *heads,
                        const hl_prune_options *options, const char *path);

#endif
