/* pre_names.h - the names that GGUF files give to pre-tokenizers. */
#ifndef HL_TOKENIZE_PRE_NAMES_H
#define HL_TOKENIZE_PRE_NAMES_H

#include "headlight.h"

#define HL_MAX_PRE_PATTERNS 6

typedef struct hl_pre {
    const char *names;                             /* separated by spaces */
    const char *patterns[HL_MAX_PRE_PATTERNS + 1]; /* applied in turn; NULL ends them */
    bool        ignore_merges;
    bool        add_bos; /* what is usual */
} hl_pre;

/* NULL if the name is not known. */
const hl_pre *hl_pre_find(const char *name);
/* The other way: what splits by just these expressions (n_patterns).  NULL if it has no name. */
const hl_pre *hl_pre_match(const char *const *patterns, size_t n_patterns, bool ignore_merges);

#endif
