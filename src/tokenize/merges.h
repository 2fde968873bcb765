/* merges.h - which pairs of pieces become one, and in which order. */
#ifndef HL_TOKENIZE_MERGES_H
#define HL_TOKENIZE_MERGES_H

#include "headlight.h"

typedef struct hl_merge {
    uint64_t pair; /* left id in the upper half, right id in the lower; all ones: empty */
    uint32_t rank; /* lower goes first */
    int32_t  id;   /* what they become */
} hl_merge;

typedef struct hl_merges {
    hl_merge *slots; /* (n_slots) a hash table, at most half full */
    size_t    n_slots;
    size_t    count;
    uint64_t  n_added;  /* one pair may be added twice */
    uint64_t  n_probes; /* slots looked at for that */
} hl_merges;

/* Of two merges of one pair the later counts. */
hl_status hl_merges_add(hl_merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t id);
void      hl_merges_free(hl_merges *merges);

/* NULL if the two do not merge. */
const hl_merge *hl_merges_find(const hl_merges *merges, int32_t left, int32_t right);

#endif
