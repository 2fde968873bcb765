/* write.h - the two ways a pruned model is written; hl_prune_write chooses. */
#ifndef HL_PRUNE_WRITE_H
#define HL_PRUNE_WRITE_H

#include "headlight.h"
#include "model/head_plan.h"
#include "model/model.h"

/* All heads of the plan that are not KEPT, as {"0":[1,2]}: for metadata.  Release with
 * hl_free. */
hl_status hl_prune_heads_text(char **out, const hl_model *model, const hl_head_plan *plan);

/* A Hugging Face folder, its shapes changed or not as the plan says.  *loads gets who opens
 * it.  (write_folder.c) */
hl_status hl_prune_write_folder(const char **loads, const hl_model *model, const hl_head_plan *plan,
                                const char *path);
/* The type for the matrices of a GGUF file, as hl_gguf_export_new takes it. */
hl_dtype hl_prune_gguf_dtype(const hl_prune_options *options);
/* A GGUF file; the plan has no heads GONE yet and may get some.  Fills in who opens it,
 * what became of the vocabulary, and which types were written.  (write_gguf.c) */
hl_status hl_prune_write_gguf(hl_prune_report *report, const hl_model *model, hl_head_plan *plan,
                              const hl_prune_options *options, const char *path);

#endif
