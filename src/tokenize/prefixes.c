/* prefixes.c - a sorted list of strings, searched byte by byte. */
#include "tokenize/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tokenize/buffer.h"

hl_status hl_prefixes_add(hl_prefixes *set, hl_bytes text, int32_t id)
{
    if (text.n_bytes == 0)
        return HL_OK;
    hl_status status = HL_GROW(&set->items, &set->capacity, set->count, 1);
    if (status == HL_OK)
        set->items[set->count++] = (hl_prefix){ text, id };
    return status;
}

static int compare_text(hl_bytes a, hl_bytes b)
{
    size_t common = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    int    order  = memcmp(a.data, b.data, common);
    return order != 0 ? order : (a.n_bytes > b.n_bytes) - (a.n_bytes < b.n_bytes);
}

static int compare(const void *left, const void *right)
{
    const hl_prefix *a     = left;
    const hl_prefix *b     = right;
    int              order = compare_text(a->text, b->text);
    return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

void hl_prefixes_sort(hl_prefixes *set)
{
    size_t kept = 0;

    if (set->count > 0)
        qsort(set->items, set->count, sizeof *set->items, compare);
    for (size_t i = 0; i < set->count; i++) {
        if (i + 1 < set->count && compare_text(set->items[i].text, set->items[i + 1].text) == 0)
            continue;
        set->items[kept++] = set->items[i];
    }
    set->count = kept;
    size_t at  = 0;
    for (unsigned byte = 0; byte <= 256; byte++) {
        while (at < kept && (unsigned char)set->items[at].text.data[0] < byte)
            at++;
        set->first[byte] = (uint32_t)at;
    }
}

void hl_prefixes_free(hl_prefixes *set)
{
    hl_free(set->items);
    *set = (hl_prefixes){ 0 };
}

hl_prefix_walk hl_prefixes_begin(const hl_prefixes *set)
{
    return (hl_prefix_walk){ .low = 0, .high = set->count };
}

/* The first string in [low, high) whose byte at `depth` is at least `byte`.  All of them
 * agree before it; one that ends there sorts first. */
static size_t lower_bound(const hl_prefixes *set, const hl_prefix_walk *walk, int byte)
{
    size_t low  = walk->low;
    size_t high = walk->high;

    while (low < high) {
        size_t   middle = low + (high - low) / 2;
        hl_bytes text   = set->items[middle].text;
        int      seen   = walk->depth < text.n_bytes ? (unsigned char)text.data[walk->depth] : -1;
        if (seen < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool hl_prefixes_step(const hl_prefixes *set, hl_prefix_walk *walk, char byte)
{
    unsigned char wanted = (unsigned char)byte;

    if (walk->depth == 0) {
        walk->low  = set->first[wanted];
        walk->high = set->first[wanted + 1U];
    } else {
        size_t low = lower_bound(set, walk, wanted);
        walk->low  = low;
        walk->high = lower_bound(set, walk, wanted + 1);
    }
    walk->depth++;
    return walk->low < walk->high;
}

int32_t hl_prefixes_match(const hl_prefixes *set, const hl_prefix_walk *walk)
{
    const hl_prefix *first = &set->items[walk->low];
    return first->text.n_bytes == walk->depth ? first->id : -1;
}
