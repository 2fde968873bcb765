/* screen.h - what a terminal can show: colors, numbers as colors, text in columns. */
#ifndef HL_CLI_SCREEN_H
#define HL_CLI_SCREEN_H

#include <stdio.h>

#include "headlight.h"

/* -------------------------------------------- color, where somebody can see it */

/* Escape sequences. All are "" if --color is never. Unless --color says otherwise, they are also ""
 * if the stream is not a terminal, if NO_COLOR is set (no-color.org), and on a terminal without
 * colors. */
typedef struct hl_colors {
    const char *bold;
    const char *dim;
    const char *good;
    const char *bad;
    const char *plain; /* resets any of them */
} hl_colors;

hl_colors hl_terminal_colors(FILE *stream);

/* Sets the value of --color for the whole process: "auto", "always", "never", "256" or
 * "truecolor". */
void hl_terminal_choose(const char *wanted);

/* Returns the color depth for the stream: the chosen one, otherwise what it can show. */
hl_depth hl_terminal_depth(FILE *stream);

/* Returns the number of columns of the terminal; 80 if it is not a terminal. */
int hl_terminal_width(FILE *stream);

/* --------------------------------------------------------- a number as a color */

/* A share as a color, dark for low and light for high, as in figures. hl_shade_background sets the
 * background, with readable text on it; hl_shade_text sets the color of the text. They write
 * nothing if the depth is none. */
void hl_shade_background(FILE *stream, hl_depth depth, double share);
void hl_shade_text(FILE *stream, hl_depth depth, double share);
void hl_shade_end(FILE *stream, hl_depth depth);

/* ------------------------------------------------------------- text in columns */

/* Prints the text from column `start`, where the cursor already is, and breaks it between words so
 * that lines end before column 80; later lines also begin at `start`. */
void hl_print_wrapped(const char *text, int start);

#endif
