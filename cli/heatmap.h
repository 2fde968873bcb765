/* heatmap.h - layers down, heads across: a grid of numbers in the terminal. */
#ifndef HL_CLI_HEATMAP_H
#define HL_CLI_HEATMAP_H

#include <stdint.h>

#include "shade.h"

typedef struct hl_heatmap {
    const double  *values; /* (n_rows, n_columns); NaN: not measured */
    int64_t        n_rows;
    int64_t        n_columns;
    const int64_t *n_in_row; /* (n_rows) columns that there are; the rest stays blank */
    double         top;      /* the value that gets the lightest colour; 0 gets the darkest */
    hl_depth       depth;
    int            width; /* of the page */
} hl_heatmap;

/* Cells get narrower as there are more: hundredths in three or two columns, colour or tenths in
 * one, two cells to a column (colour), the means of several (text). */
void hl_heatmap_print(const hl_heatmap *map);

/* How many columns cell and label take, and how many heads share a cell. */
typedef struct hl_heatmap_layout {
    int cell;       /* columns a cell takes: 3, 2, 1 */
    int per_column; /* heads in a cell of one column: 1, or 2 as halves */
    int binned;     /* heads whose mean a cell shows */
} hl_heatmap_layout;
hl_heatmap_layout hl_heatmap_choose(int64_t n_columns, int width, hl_depth depth);

/* A line of bars, one for each value, at most `width`; then means of neighbours. */
void hl_spark_print(const double *values, int64_t n_values, int width, hl_depth depth, double low,
                    double high);

#endif
