/* figure_compare.h - the attention of all heads of a model as small maps, one row of maps per
 * layer; hl_draw_comparison is in headlight.h.
 *
 * Every map has the head's name above it and metrics below, as many as the width allows, and the
 * same ones for all maps.  Colors are proportional to the square root of the attention: a row sums
 * to 1, and most of it may go to one key. */
#ifndef HL_RENDER_FIGURE_COMPARE_H
#define HL_RENDER_FIGURE_COMPARE_H

#include "render/figure.h"

enum { HL_BLOCK_METRICS = 4, HL_BLOCK_LINES = 2 };

typedef struct hl_map_block {
    hl_figure         *figure;
    const hl_compared *side;
    double             step;                  /* distance from one map to the next */
    double             map;                   /* width and height of a map */
    double             down;                  /* distance from one row of maps to the next */
    double             height;                /* total height, including the model's name */
    bool               named;                 /* there is room for the heads' names */
    int                lines[HL_BLOCK_LINES]; /* number of metrics per line, in order */
} hl_map_block;

/* Lays out the maps of one side within a width; sets their height. */
void hl_map_block_plan(hl_map_block *out, hl_figure *figure, const hl_compared *side, double width);

#endif
