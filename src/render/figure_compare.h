/* figure_compare.h - the attention of all heads of a model as small maps, a row of them for a layer;
 * hl_draw_comparison is in headlight.h.
 *
 * Every map has the head's name above it and metrics below, as far as its width has room for them,
 * the same ones under all.  A shade stands for the root of a weight: a row gives out 1 in all, and
 * most of it may go to one key. */
#ifndef HL_RENDER_FIGURE_COMPARE_H
#define HL_RENDER_FIGURE_COMPARE_H

#include "render/figure.h"

enum { HL_BLOCK_METRICS = 4, HL_BLOCK_LINES = 2 };

typedef struct hl_map_block {
    hl_figure         *figure;
    const hl_compared *side;
    double             step;                  /* from a map to the next */
    double             map;                   /* its width and height */
    double             down;                  /* from a row of maps to the next */
    double             height;                /* of all, with the model's name */
    bool               named;                 /* the heads' names have room */
    int                lines[HL_BLOCK_LINES]; /* how many metrics each line has, in order */
} hl_map_block;

/* How the maps of a side lie within a width; knows their height then. */
void hl_map_block_plan(hl_map_block *out, hl_figure *figure, const hl_compared *side, double width);

#endif
