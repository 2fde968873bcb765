/* heatmap.h - layers across, heads up: a grid of numbers in the terminal. */
#ifndef HL_CLI_HEATMAP_H
#define HL_CLI_HEATMAP_H

#include <stdint.h>

#include "shade.h"

typedef struct hl_heatmap {
    const double  *values; /* (n_layers, n_heads); NaN: not measured */
    int64_t        n_layers;
    int64_t        n_heads;
    const int64_t *n_in_layer; /* (n_layers) heads that there are; the rest stays blank */
    double         top;        /* the value that gets the lightest color; 0 gets the darkest */
    hl_depth       depth;
    int            width; /* of the page */
} hl_heatmap;

/* Cells get narrower as there are more layers, then the layers go into blocks one below the other. */
void hl_heatmap_print(const hl_heatmap *map);

typedef struct hl_heatmap_layout {
    int     cell;     /* columns that a cell takes: 3, 2, 1 */
    int64_t n_across; /* layers of a block */
    int     binned;   /* heads whose mean a line shows */
} hl_heatmap_layout;
hl_heatmap_layout hl_heatmap_choose(int64_t n_layers, int64_t n_heads, int width, hl_depth depth);

/* A line of bars, one for each value, at most `width`; then means of neighbours. */
void hl_spark_print(const double *values, int64_t n_values, int width, hl_depth depth, double low,
                    double high);

#endif
