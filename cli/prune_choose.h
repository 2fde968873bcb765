/* prune_choose.h - which heads headlight prune takes. */
#ifndef HL_CLI_PRUNE_CHOOSE_H
#define HL_CLI_PRUNE_CHOOSE_H

#include "headlight.h"

typedef struct hl_prune_choice {
    const char        *heads; /* "L5H1,L7", or NULL and what follows */
    hl_ranker          ranker;
    const char        *profile_path; /* NULL: measure the texts */
    const char *const *texts;        /* (n_texts) */
    size_t             n_texts;
    const char        *tokenizer_path; /* NULL: the model's */
    hl_window_options  windows;
    int64_t            n_steps; /* of --iterative; 0: at once */
    hl_choice          choice;
    bool               groups; /* query heads of a K/V head go together */
    uint64_t           seed;
    int32_t            n_threads;
    bool               quiet;
} hl_prune_choice;

/* Is the model to be written with all of its heads? */
bool hl_prune_takes_none(const hl_prune_choice *choice);
/* Released with hl_head_list_free.  *used is the ranker, AUTO where there was nothing to rank.  The model's gates are used on the way, and open again
 * afterwards. */
hl_status hl_prune_choose(hl_head_list **out, hl_ranker *used, hl_model *model,
                          const hl_prune_choice *choice);

#endif
