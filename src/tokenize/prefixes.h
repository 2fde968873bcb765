/* prefixes.h - which strings of a set does a text start with?
 *
 *     hl_prefix_walk walk = hl_prefixes_begin(&set);
 *     while (i < n && hl_prefixes_step(&set, &walk, text[i++])) {
 *         int32_t id = hl_prefixes_match(&set, &walk);
 *         if (id >= 0) ... text[0 .. i) is that string ...
 *     }
 *
 * The set is a sorted list.  The strings with a common beginning are neighbours
 * in it, so that a walk is a range that narrows with every byte: no trie, and
 * no memory beyond one pointer and one id a string. */
#ifndef HL_TOKENIZE_PREFIXES_H
#define HL_TOKENIZE_PREFIXES_H

#include "base/json_reader.h"
#include "headlight.h"

typedef struct hl_prefix {
    hl_bytes text; /* borrowed */
    int32_t  id;
} hl_prefix;

typedef struct hl_prefixes {
    hl_prefix *items; /* (count) sorted */
    size_t     count;
    size_t     capacity;
    uint32_t   first[257]; /* where the strings with this first byte begin */
} hl_prefixes;

/* Adds a string (none may be empty), then sorts them all; of equal ones the last stays. */
hl_status hl_prefixes_add(hl_prefixes *set, hl_bytes text, int32_t id);
void      hl_prefixes_sort(hl_prefixes *set);
void      hl_prefixes_free(hl_prefixes *set);

typedef struct hl_prefix_walk {
    size_t low;
    size_t high;
    size_t depth; /* bytes so far */
} hl_prefix_walk;

hl_prefix_walk hl_prefixes_begin(const hl_prefixes *set);
/* False when no string goes on with this byte. */
bool hl_prefixes_step(const hl_prefixes *set, hl_prefix_walk *walk, char byte);
/* The id of the string that ends here; -1 if none does. */
int32_t hl_prefixes_match(const hl_prefixes *set, const hl_prefix_walk *walk);

#endif
