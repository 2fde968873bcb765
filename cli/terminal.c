/* terminal.c - is anybody watching, and do they like color? */
#include "terminal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *chosen = "auto";

void hl_terminal_choose(const char *wanted)
{
    chosen = wanted;
}

static bool is_color_terminal(FILE *stream)
{
    const char *no_color = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");

    return (no_color == NULL || no_color[0] == '\0') && terminal != NULL &&
           strcmp(terminal, "dumb") != 0 && isatty(fileno(stream));
}

hl_colours hl_terminal_colours(FILE *stream)
{
    bool is_auto = strcmp(chosen, "auto") == 0;

    if (strcmp(chosen, "never") == 0 || (is_auto && !is_color_terminal(stream)))
        return (hl_colours){ "", "", "", "", "" };
    return (hl_colours){ .bold  = "\033[1m",
                         .dim   = "\033[2m",
                         .good  = "\033[32m",
                         .bad   = "\033[1;31m",
                         .plain = "\033[0m" };
}

hl_depth hl_terminal_depth(FILE *stream)
{
    const char *terminal = getenv("TERM");
    const char *colors   = getenv("COLORTERM");
    bool        is_true =
        colors != NULL && (strcmp(colors, "truecolor") == 0 || strcmp(colors, "24bit") == 0);

    if (strcmp(chosen, "truecolor") == 0)
        return HL_DEPTH_TRUE;
    if (strcmp(chosen, "256") == 0)
        return HL_DEPTH_256;
    if (strcmp(chosen, "always") == 0)
        return is_true ? HL_DEPTH_TRUE : HL_DEPTH_256;
    if (strcmp(chosen, "never") == 0 || !is_color_terminal(stream))
        return HL_DEPTH_NONE;
    if (is_true)
        return HL_DEPTH_TRUE;
    return strstr(terminal, "256color") != NULL ? HL_DEPTH_256 : HL_DEPTH_NONE;
}
