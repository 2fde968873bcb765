/* map_block.h - the attention of all heads of a model as small maps, a row of them for a layer.
 *
 *     hl_map_block block;
 *     hl_map_block_plan(&block, figure, side, width);     knows its height then
 *     ...
 *     HL_TRY(hl_map_block_draw(&block, at));
 *
 * Every map has the head's name above it and metrics below, as far as its width has room for them,
 * the same ones under all.  A shade stands for the root of a weight: a row gives out 1 in all, and
 * most of it may go to one key. */
#ifndef HL_RENDER_MAP_BLOCK_H
#define HL_RENDER_MAP_BLOCK_H

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

void hl_map_block_plan(hl_map_block *out, hl_figure *figure, const hl_compared *side, double width);
hl_status hl_map_block_draw(const hl_map_block *block, hl_point at);
/* "H mean entropy (nats), D0 ..." of the metrics that are shown, for the caption. */
void hl_map_block_legend(char *out, size_t n_bytes, const hl_map_block *block);
/* A ramp of the shades with its ends named, that ends at the right of `right`. */
void hl_map_block_key(hl_figure *figure, hl_point right);

#endif
