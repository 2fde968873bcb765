/* screen.c - escape sequences and line ends. */
#include "screen.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* -------------------------------- is anybody watching, and do they like color? */

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

hl_colors hl_terminal_colors(FILE *stream)
{
    bool is_auto = strcmp(chosen, "auto") == 0;

    if (strcmp(chosen, "never") == 0 || (is_auto && !is_color_terminal(stream)))
        return (hl_colors){ "", "", "", "", "" };
    return (hl_colors){ .bold  = "\033[1m",
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

int hl_terminal_width(FILE *stream)
{
    struct winsize size = { 0 };

    if (isatty(fileno(stream)) && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    return 80;
}

/* --------------------------------------------------------- a number as a color */

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

/* ------------------------------------------------------------- text in columns */

enum { PAGE_WIDTH = 80 };

void hl_print_wrapped(const char *text, int start)
{
    int column = start;

    while (*text != '\0') {
        int length = (int)strcspn(text, " ");

        if (column > start && column + 1 + length > PAGE_WIDTH) {
            printf("\n%*s", start, "");
            column = start;
        } else if (column > start) {
            printf(" ");
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    printf("\n");
}
