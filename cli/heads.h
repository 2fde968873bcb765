/* heads.h - heads as people write them: L3H1. */
#ifndef HL_CLI_HEADS_H
#define HL_CLI_HEADS_H

#include <stdbool.h>

#include "headlight.h"

enum { HL_MOST_HEADS = 256 };

typedef struct hl_head_choices {
    hl_head_choice items[HL_MOST_HEADS];
    int64_t        count;
} hl_head_choices;

/* "L3H1,L5" (all heads of layer 5); false if it is not that, and then *bad is where. */
bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad);

#endif
