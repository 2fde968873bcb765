/* nearest.h - "did you mean ...?" */
#ifndef HL_CLI_NEAREST_H
#define HL_CLI_NEAREST_H

#include <stddef.h>

/* Keeps the nearest word seen so far; starts as { .wanted = "vrify" }. */
typedef struct hl_nearest {
    const char *wanted;
    const char *word; /* NULL: nothing near enough to suggest */
    size_t      distance;
} hl_nearest;

void hl_nearest_offer(hl_nearest *nearest, const char *word);

#endif
