/* heads.c - parsing lists of heads. */
#include "heads.h"

#include <ctype.h>
#include <stdlib.h>

/* A letter of either case and a number of at most six digits behind it. */
static bool take(int64_t *out, const char **at, char letter)
{
    char *end = NULL;

    if (toupper((unsigned char)**at) != letter || !isdigit((unsigned char)(*at)[1]))
        return false;
    *out      = strtol(*at + 1, &end, 10);
    bool fits = end - *at <= 7;
    *at       = end;
    return fits;
}

bool hl_heads_parse(hl_head_choices *out, const char *text, const char **bad)
{
    const char *at = text;

    *out = (hl_head_choices){ 0 };
    do {
        hl_head_choice choice = { .head = -1 };
        *bad                  = at;
        if (out->count == HL_MOST_HEADS || !take(&choice.layer, &at, 'L'))
            return false;
        if (toupper((unsigned char)*at) == 'H' && !take(&choice.head, &at, 'H'))
            return false;
        if (*at != ',' && *at != '\0')
            return false;
        out->items[out->count++] = choice;
    } while (*at++ == ',');
    return true;
}
