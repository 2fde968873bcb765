/* heads.c - a list of heads before there is a model to ask. */
#include "heads.h"

#include <string.h>

bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad)
{
    *out = (hl_head_choices){ 0 };
    for (*bad = text;; (*bad)++) {
        size_t  length = strcspn(*bad, ",");
        hl_head head;

        if (out->count == HL_MOST_HEADS || !hl_head_read(&head, *bad, length))
            return false;
        out->items[out->count++] = (hl_head_choice){ head.layer, head.head };
        *bad += length;
        if (**bad == '\0')
            return true;
    }
}
