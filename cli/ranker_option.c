/* ranker_option.c - the ranker of a name, or the name that may have been meant. */
#include "ranker_option.h"

#include "nearest.h"

int hl_ranker_option(hl_ranker *out, const hl_usage *usage, const char *option, const char *name)
{
    hl_nearest nearest = { .wanted = name };

    if (hl_ranker_find(out, name) == HL_OK)
        return HL_OPTIONS_GO_ON;
    for (size_t i = 0; hl_ranker_name(i) != NULL; i++)
        hl_nearest_offer(&nearest, hl_ranker_name(i));
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--%s: no ranker is called '%s' (did you mean '%s'?)",
                                 option, name, nearest.word);
    return hl_options_refuse(
        usage, "--%s: no ranker is called '%s'; 'headlight rank --by list' lists them", option,
        name);
}
