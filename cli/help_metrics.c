/* help_metrics.c - what every number means, a few lines each; doc/metrics.md says it at length. */
#include "help_metrics.h"

#include <stdio.h>

#include "headlight.h"
#include "screen.h"

enum { NAME_WIDTH = 17 };

static void print_line(const char *name, const char *text)
{
    printf("  %-*s", NAME_WIDTH, name);
    hl_print_wrapped(text, 2 + NAME_WIDTH);
}

void hl_help_metrics(void)
{
    for (size_t i = 0; hl_definition_at(i) != NULL; i++) {
        const hl_definition *entry = hl_definition_at(i);

        if (entry->text == NULL)
            printf("%s%s\n", i > 0 ? "\n" : "", entry->name);
        else
            print_line(entry->name, entry->text);
    }
}
