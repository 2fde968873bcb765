/* merges.c - a hash table from pairs of ids to merges.
 *
 * Open addressing with linear probing; an entry is 16 bytes, so that a lookup
 * touches one cache line. */
#include "tokenize/merges.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

#define FIRST_SLOTS 1024
#define EMPTY       UINT64_MAX
#define PROBES_EACH 64 /* on average; a fair table needs three */
#define PROBES_BASE (1U << 20)

static uint64_t join(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* The slot of the pair, or the empty one where it belongs; *n_probes grows by the number of slots
 * looked at. */
static size_t find_slot(const hl_merges *merges, uint64_t pair, uint64_t *n_probes)
{
    size_t   mask = merges->n_slots - 1;
    uint64_t hash = pair * 0x9e3779b97f4a7c15U;
    size_t   slot = (size_t)(hash ^ hash >> 32) & mask;

    for (++*n_probes; merges->slots[slot].pair != pair && merges->slots[slot].pair != EMPTY;
         ++*n_probes)
        slot = (slot + 1) & mask;
    return slot;
}

static hl_status grow(hl_merges *merges)
{
    if (2 * (merges->count + 1) <= merges->n_slots)
        return HL_OK;
    hl_merges grown  = { .n_slots  = merges->n_slots > 0 ? 2 * merges->n_slots : FIRST_SLOTS,
                         .count    = merges->count,
                         .n_added  = merges->n_added,
                         .n_probes = merges->n_probes };
    hl_status status = HL_ALLOC(&grown.slots, grown.n_slots);
    if (status != HL_OK)
        return status;
    memset(grown.slots, 0xff, grown.n_slots * sizeof *grown.slots);
    for (size_t i = 0; i < merges->n_slots; i++) {
        if (merges->slots[i].pair != EMPTY)
            grown.slots[find_slot(&grown, merges->slots[i].pair, &grown.n_probes)] =
                merges->slots[i];
    }
    hl_free(merges->slots);
    *merges = grown;
    return HL_OK;
}

hl_status hl_merges_add(hl_merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    hl_status status = grow(merges);
    if (status != HL_OK)
        return status;
    hl_merge *merge = &merges->slots[find_slot(merges, join(left, right), &merges->n_probes)];
    merges->n_added++;
    if (merges->n_probes > PROBES_EACH * merges->n_added + PROBES_BASE)
        return hl_fail(HL_BAD_INPUT, "%llu merges collide: %llu places were searched for them",
                       (unsigned long long)merges->n_added, (unsigned long long)merges->n_probes);
    if (merge->pair == EMPTY)
        merges->count++;
    *merge = (hl_merge){ join(left, right), rank, id };
    return HL_OK;
}

void hl_merges_free(hl_merges *merges)
{
    hl_free(merges->slots);
    *merges = (hl_merges){ 0 };
}

const hl_merge *hl_merges_find(const hl_merges *merges, int32_t left, int32_t right)
{
    if (merges->n_slots == 0)
        return NULL;
    uint64_t        n_probes = 0;
    const hl_merge *merge    = &merges->slots[find_slot(merges, join(left, right), &n_probes)];
    return merge->pair != EMPTY ? merge : NULL;
}
