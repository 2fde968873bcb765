/* gates.h - heads of a model; lists and gates of them are in headlight/prune.h. */
#ifndef HL_PRUNE_GATES_H
#define HL_PRUNE_GATES_H

#include "base/memory.h"
#include "headlight/prune.h"
#include "model/config.h"

HL_CLOSES(hl_gates_free, hl_gates)
HL_CLOSES(hl_head_list_free, hl_head_list)
HL_CLOSES(hl_ranking_free, hl_ranking)
HL_CLOSES(hl_gradients_free, hl_gradients)
/* Returns HL_BAD_INPUT for fewer than two tokens.  The options may be NULL. */
hl_status hl_head_moments_take(hl_head_moments **out, const hl_model *model,
                               const hl_corpus *corpus, const hl_moments_options *options);

void hl_head_moments_free(hl_head_moments *moments);
HL_CLOSES(hl_head_moments_free, hl_head_moments)

/* Parses, from memory, the JSON that hl_gates_load reads; `where` names it in messages. */
hl_status hl_gates_parse(hl_gates **out, const hl_model *model, const char *text, size_t n_bytes,
                         const char *where);
/* Returns HL_BAD_ARGUMENT for a head that a model of this shape does not have. */
hl_status hl_head_check(const hl_config *config, hl_head head);
/* Returns the number of heads of a layer, from 0 to info->n_heads. */
int64_t hl_heads_of(const hl_model *model, int64_t layer);

/* Counts the most heads that can be removed within the limits of a choice; its ratio and count are
 * ignored. */
hl_status hl_ranking_room(int64_t *out, const hl_ranking *ranking, const hl_choice *choice);

#endif
