/* shade.h - a number as a colour of the terminal: dark for little, light for much, as in
 * pictures. */
#ifndef HL_CLI_SHADE_H
#define HL_CLI_SHADE_H

#include <stdio.h>

#include "headlight.h"

/* Escape sequences: what follows has this share's colour as background, with text on it that can be
 * read, or as the colour of its text; nothing where the depth is none. */
void hl_shade_background(FILE *stream, hl_depth depth, double share);
void hl_shade_text(FILE *stream, hl_depth depth, double share);
/* The same for tokens of a text, blue for little to red for much. */
void hl_shade_strip(FILE *stream, hl_depth depth, double share);
void hl_shade_end(FILE *stream, hl_depth depth);

/* How many columns the terminal has; 80 where there is none. */
int hl_terminal_width(FILE *stream);

#endif
