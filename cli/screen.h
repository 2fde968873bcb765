/* screen.h - what a terminal can show: colors, numbers as colors, text in columns. */
#ifndef HL_CLI_SCREEN_H
#define HL_CLI_SCREEN_H

#include <stdio.h>

#include "headlight.h"

/* -------------------------------------------- color, where somebody can see it */

/* Escape sequences; all "" where --color never says so and, unless it says otherwise, where the stream is
 * not a terminal, where NO_COLOR is set (no-color.org), and on a terminal that cannot. */
typedef struct hl_colors {
    const char *bold;
    const char *dim;
    const char *good;
    const char *bad;
    const char *plain; /* ends any of them */
} hl_colors;

hl_colors hl_terminal_colors(FILE *stream);

/* What --color says, for the rest of the process: "auto", "always", "never", "256" or "truecolor". */
void hl_terminal_choose(const char *wanted);

/* How many colors the stream gets: what was chosen, else what it can show. */
hl_depth hl_terminal_depth(FILE *stream);

/* How many columns the terminal has; 80 where there is none. */
int hl_terminal_width(FILE *stream);

/* --------------------------------------------------------- a number as a color */

/* Dark for little, light for much, as in pictures.  Escape sequences: what follows has this share's
 * color as background, with text on it that can be read, or as the color of its text; nothing
 * where the depth is none. */
void hl_shade_background(FILE *stream, hl_depth depth, double share);
void hl_shade_text(FILE *stream, hl_depth depth, double share);
void hl_shade_end(FILE *stream, hl_depth depth);

/* ------------------------------------------------------------- text in columns */

/* Prints the text from column `start` on, where the line is already, and breaks it between words
 * so that it ends before column 80; later lines begin at `start` too. */
void hl_print_wrapped(const char *text, int start);

#endif
