/* write.h - a pruned model as a folder; hl_prune_write is in headlight.h. */
#ifndef HL_PRUNE_WRITE_H
#define HL_PRUNE_WRITE_H

#include "headlight/model.h"
#include "model/head_plan.h"
#include "model/model.h"

/* All heads of the plan that are not KEPT, as {"0":[1,2]}: for metadata.  Release with
 * hl_free. */
hl_status hl_prune_heads_text(char **out, const hl_model *model, const hl_head_plan *plan);

/* A Hugging Face folder, its shapes changed or not as the plan says.  *loads gets who opens
 * it.  (write_folder.c) */
hl_status hl_prune_write_folder(const char **loads, const hl_model *model, const hl_head_plan *plan,
                                const char *path);

#endif
