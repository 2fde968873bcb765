/* palette.h - colors of numbers (hl_map_color in headlight.h) and of everything else.
 *
 * The maps are formulas in Oklab (Ottosson 2020), a space in which equal distances look equal.
 * Lightness changes evenly, so the order of the colors is visible in gray printing and with color
 * blindness. */
#ifndef HL_RENDER_PALETTE_H
#define HL_RENDER_PALETTE_H

#include "headlight/render.h"

/* Lightness from 0 to 1, green-red, blue-yellow. */
typedef struct hl_oklab {
    double l;
    double a;
    double b;
} hl_oklab;

hl_oklab hl_oklab_of(hl_color color);
/* Mixes two colors; share 0 is a, 1 is b. */
hl_color hl_mix(hl_color a, hl_color b, double share);

/* Is dark text easier to read on this color than light text? */
bool hl_color_is_light(hl_color color);

enum { HL_N_SERIES = 8 };

typedef struct hl_theme_colors {
    hl_color background;
    hl_color text;
    hl_color muted; /* captions, ticks */
    hl_color axis;
    hl_color grid;
    hl_color bar;
    hl_color hatch;
    /* Colors of lines: they differ in lightness as well as in hue; number 3 can be used for
     * text. */
    hl_color series[HL_N_SERIES];
} hl_theme_colors;

const hl_theme_colors *hl_theme_colors_of(hl_theme theme);

/* Returns the color of a type of heads, the same in every figure; kind is a hl_head_kind of
 * analysis/head_kinds.h. */
hl_color hl_head_kind_color(hl_theme theme, int kind);

#endif
