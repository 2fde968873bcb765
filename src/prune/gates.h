/* gates.h - names of heads, for whoever reads them in other places than a list. */
#ifndef HL_PRUNE_GATES_H
#define HL_PRUNE_GATES_H

#include "base/memory.h"
#include "headlight/prune.h"

HL_CLOSES(hl_gates_free, hl_gates)
HL_CLOSES(hl_head_list_free, hl_head_list)
HL_CLOSES(hl_ranking_free, hl_ranking)
HL_CLOSES(hl_gradients_free, hl_gradients)

/* What "L5H1" (one head) or "L5" (all of the layer, .head -1) says, of a word of n_bytes.
 * HL_BAD_ARGUMENT, with the word and what the model has, for what is no head of it. */
hl_status hl_head_parse(hl_head *out, const hl_model *model, const char *word, size_t n_bytes);

/* How many heads a layer of the model has, in 0 .. info->n_heads. */
int64_t hl_heads_of(const hl_model *model, int64_t layer);

#endif
