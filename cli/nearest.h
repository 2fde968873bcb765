/* nearest.h - "did you mean ...?" */
#ifndef HL_CLI_NEAREST_H
#define HL_CLI_NEAREST_H

#include <stddef.h>

/* The number of letters to insert, remove, replace or swap with a neighbour to
 * get from one word to the other.  Long words count as far apart. */
size_t hl_word_distance(const char *a, const char *b);

/* Keeps the nearest word seen so far; starts as { .wanted = "vrify" }. */
typedef struct hl_nearest {
    const char *wanted;
    const char *word; /* NULL: nothing near enough to suggest */
    size_t      distance;
} hl_nearest;

void hl_nearest_offer(hl_nearest *nearest, const char *word);

#endif
