/* terminal.h - colour, where somebody can see it. */
#ifndef HL_CLI_TERMINAL_H
#define HL_CLI_TERMINAL_H

#include <stdio.h>

#include "headlight.h"

/* Escape sequences; all "" where --color never says so and, unless it says otherwise, where the stream is
 * not a terminal, where NO_COLOR is set (no-color.org), and on a terminal that cannot. */
typedef struct hl_colours {
    const char *bold;
    const char *dim;
    const char *good;
    const char *bad;
    const char *plain; /* ends any of them */
} hl_colours;

hl_colours hl_terminal_colours(FILE *stream);

/* What --color says, for the rest of the process: "auto", "always", "never", "256" or "truecolor". */
void hl_terminal_choose(const char *wanted);

/* How many colors the stream gets: what was chosen, else what it can show. */
hl_depth hl_terminal_depth(FILE *stream);

#endif
