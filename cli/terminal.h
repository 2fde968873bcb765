/* terminal.h - colour, where somebody can see it. */
#ifndef HL_CLI_TERMINAL_H
#define HL_CLI_TERMINAL_H

#include <stdio.h>

/* Escape sequences; all "" where the stream is not a terminal, where NO_COLOR
 * is set (no-color.org), and on a terminal that cannot. */
typedef struct hl_colours {
    const char *bold;
    const char *dim;
    const char *good;
    const char *bad;
    const char *plain; /* ends any of them */
} hl_colours;

hl_colours hl_terminal_colours(FILE *stream);

#endif
