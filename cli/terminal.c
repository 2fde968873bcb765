/* terminal.c - is anybody watching, and do they like colour? */
#include "terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

hl_colours hl_terminal_colours(FILE *stream)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal  = getenv("TERM");

    if ((no_colour != NULL && no_colour[0] != '\0') || terminal == NULL ||
        strcmp(terminal, "dumb") == 0 || !isatty(fileno(stream)))
        return (hl_colours){ "", "", "", "", "" };
    return (hl_colours){ .bold  = "\033[1m",
                         .dim   = "\033[2m",
                         .good  = "\033[32m",
                         .bad   = "\033[1;31m",
                         .plain = "\033[0m" };
}
