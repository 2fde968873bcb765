/* palette.h - colours: of numbers (hl_map_colour in headlight.h), and of everything else.
 *
 * The maps are formulas in Oklab (Ottosson 2020), a space in which equal distances look
 * alike: lightness runs evenly from one end to the other, so that the order of colours
 * survives grey printing and every kind of colour blindness. */
#ifndef HL_RENDER_PALETTE_H
#define HL_RENDER_PALETTE_H

#include "headlight/render.h"

/* Lightness 0 to 1, green-red, blue-yellow. */
typedef struct hl_oklab {
    double l;
    double a;
    double b;
} hl_oklab;

hl_oklab hl_oklab_of(hl_colour colour);
/* share 0: a, 1: b. */
hl_colour hl_mix(hl_colour a, hl_colour b, double share);

/* Is dark text easier to read on it than light? */
bool hl_colour_is_light(hl_colour colour);

enum { HL_N_SERIES = 8 };

typedef struct hl_theme_colours {
    hl_colour background;
    hl_colour text;
    hl_colour muted; /* captions, ticks */
    hl_colour axis;
    hl_colour grid;
    hl_colour bar;
    hl_colour hatch;
    /* Lines: told apart by lightness as well as by hue; 3 can be text. */
    hl_colour series[HL_N_SERIES];
} hl_theme_colours;

const hl_theme_colours *hl_theme_colours_of(hl_theme theme);

/* One type of heads, one color, whatever else is drawn: an hl_head_kind of analysis/head_kinds.h. */
hl_colour hl_head_kind_colour(hl_theme theme, int kind);

#endif
