/* shade.h - a number as a colour: dark for little, light for much.
 *
 * The colours run from violet over blue, teal and green to yellow with evenly rising
 * lightness, so that they keep their order in grey and for colour-blind readers. */
#ifndef HL_CLI_SHADE_H
#define HL_CLI_SHADE_H

#include <stdbool.h>
#include <stdio.h>

typedef enum hl_depth {
    HL_DEPTH_NONE = 0, /* not a terminal, NO_COLOR is set, or too few colours */
    HL_DEPTH_256,
    HL_DEPTH_TRUE,
} hl_depth;

/* What the stream can show.  `wanted` is "auto", "never", "256" or "truecolor". */
hl_depth hl_shade_depth(FILE *stream, const char *wanted);

typedef struct hl_rgb {
    unsigned char red;
    unsigned char green;
    unsigned char blue;
} hl_rgb;

/* share is from 0 to 1, and is brought there where it is not.  With 256 colours there are nine. */
hl_rgb hl_shade(double share, hl_depth depth);
/* Does black text stand out on it better than white? */
bool hl_shade_is_light(hl_rgb colour);

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
