/* shade.c - the entropy map, printed; and what a terminal can show. */
#include "shade.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void hl_shade_background(FILE *stream, hl_depth depth, double share)
{
    char escape[HL_ESCAPE_BYTES];

    fputs(hl_terminal_cell(escape, depth, HL_MAP_ENTROPY, share), stream);
}

void hl_shade_text(FILE *stream, hl_depth depth, double share)
{
    char escape[HL_ESCAPE_BYTES];

    fputs(hl_terminal_text(escape, depth, HL_MAP_ENTROPY, share), stream);
}

void hl_shade_end(FILE *stream, hl_depth depth)
{
    fputs(hl_terminal_end(depth), stream);
}

/* ------------------------------------------------------------ the terminal */

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0';
}

static hl_depth guess_depth(FILE *stream)
{
    const char *terminal = getenv("TERM");
    const char *colours  = getenv("COLORTERM");

    if (is_set("NO_COLOR") || terminal == NULL || strcmp(terminal, "dumb") == 0 ||
        !isatty(fileno(stream)))
        return HL_DEPTH_NONE;
    if (colours != NULL && (strcmp(colours, "truecolor") == 0 || strcmp(colours, "24bit") == 0))
        return HL_DEPTH_TRUE;
    return strstr(terminal, "256color") != NULL ? HL_DEPTH_256 : HL_DEPTH_NONE;
}

hl_depth hl_shade_depth(FILE *stream, const char *wanted)
{
    if (strcmp(wanted, "truecolor") == 0)
        return HL_DEPTH_TRUE;
    if (strcmp(wanted, "256") == 0)
        return HL_DEPTH_256;
    return strcmp(wanted, "never") == 0 ? HL_DEPTH_NONE : guess_depth(stream);
}

int hl_terminal_width(FILE *stream)
{
    struct winsize size = { 0 };

    if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}
