/* heatmap.c - a grid of numbers, as wide as the page allows.
 *
 *     up to 25 heads     3 columns a cell, hundredths:   " 07 43 99"
 *     up to 37           2 columns a cell, tenths; only with colours
 *     up to 75           1 column a cell; in text tenths, in tens
 *     up to 150          colour: half a column a cell
 *     more               cells are the mean of several heads
 *
 * Figures are rounded down, so that 99 is anything from 0.99 to 1.  The page is 80 columns,
 * of which the layer's name takes five. */
#include "heatmap.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { LABEL = 5, GROUP = 8 };

/* --------------------------------------------------------------- the layout */

/* Text in one column has a gap after every eight cells. */
static int64_t width_of_digits(int64_t n_cells)
{
    return n_cells + (n_cells > 0 ? (n_cells - 1) / GROUP : 0);
}

hl_heatmap_layout hl_heatmap_choose(int64_t n_columns, int width, hl_depth depth)
{
    int64_t room = width - LABEL;

    if (3 * n_columns <= room)
        return (hl_heatmap_layout){ 3, 1, 1 };
    if (depth != HL_DEPTH_NONE && 2 * n_columns <= room)
        return (hl_heatmap_layout){ 2, 1, 1 };
    if (depth != HL_DEPTH_NONE && n_columns <= room)
        return (hl_heatmap_layout){ 1, 1, 1 };
    int per_column = depth != HL_DEPTH_NONE ? 2 : 1;
    int binned     = 1;
    while (true) {
        int64_t n_cells = (n_columns + binned - 1) / binned;
        int64_t needed  = depth != HL_DEPTH_NONE ? (n_cells + 1) / 2 : width_of_digits(n_cells);
        if (needed <= room || n_cells <= 1)
            return (hl_heatmap_layout){ 1, per_column, binned };
        binned++;
    }
}

/* The mean of the heads that a cell stands for; NaN where none was measured.  *exists: are there
 * such heads? */
static double cell_value(bool *exists, const hl_heatmap *map, hl_heatmap_layout layout, int64_t row,
                         int64_t cell)
{
    double  sum   = 0.0;
    int64_t count = 0;
    int64_t first = cell * layout.binned;

    *exists = first < map->n_in_row[row];
    for (int64_t i = first; i < first + layout.binned && i < map->n_in_row[row]; i++) {
        double value = map->values[row * map->n_columns + i];
        sum += isnan(value) ? 0.0 : value;
        count += !isnan(value);
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* ------------------------------------------------------------------ headings */

/* The number of every eighth head (or of every one, where there is room) above its cell. */
static void print_ticks(int64_t n_cells, hl_heatmap_layout layout, bool gaps)
{
    int64_t at   = 0;
    int64_t step = layout.cell > 2 ? 1 : (int64_t)GROUP * layout.per_column;

    printf("%*s", LABEL, "");
    for (int64_t cell = 0; cell < n_cells; cell += step) {
        char    number[24];
        int     length = snprintf(number, sizeof number, "%lld", (long long)(cell * layout.binned));
        int64_t place  = layout.cell * (cell / layout.per_column) + (gaps ? cell / GROUP : 0);

        if (layout.cell > 1) /* above the figure, which stands to the right of its cell */
            place += layout.cell - (layout.cell > 2 ? length : 1);
        at += printf("%*s%s", (int)(place - at), "", number);
    }
    printf("\n");
}

/* --------------------------------------------------------------------- cells */

/* " 07": hundredths of the top in three columns, tenths in fewer; rounded down. */
static void print_figure(double share, int cell)
{
    int hundredths = (int)floor(fmin(fmax(share, 0.0), 0.9999) * 100.0 + 1e-9);

    if (cell > 2)
        printf("%*s%02d", cell - 2, "", hundredths);
    else
        printf("%*d", cell, hundredths / 10);
}

static void print_cell(const hl_heatmap *map, hl_heatmap_layout layout, int64_t row, int64_t cell)
{
    bool   exists = false;
    double value  = cell_value(&exists, map, layout, row, cell);
    double share  = value / map->top;

    if (map->depth == HL_DEPTH_NONE && layout.cell == 1 && cell > 0 && cell % GROUP == 0)
        printf(" ");
    if (!exists || isnan(value)) {
        printf("%*s", layout.cell, exists ? "-" : "");
        return;
    }
    if (map->depth == HL_DEPTH_NONE) {
        print_figure(share, layout.cell);
        return;
    }
    hl_shade_background(stdout, map->depth, share);
    if (layout.cell == 1)
        printf(" ");
    else
        print_figure(share, layout.cell);
    hl_shade_end(stdout, map->depth);
}

/* Two heads in one column: the left half as text, the right half as its background. */
static void print_halves(const hl_heatmap *map, hl_heatmap_layout layout, int64_t row, int64_t cell)
{
    bool   left_exists = false, right_exists = false;
    double left  = cell_value(&left_exists, map, layout, row, cell);
    double right = cell_value(&right_exists, map, layout, row, cell + 1);

    if (isnan(left) && isnan(right)) {
        printf("%s", left_exists ? "-" : " ");
        return;
    }
    if (!isnan(right))
        hl_shade_background(stdout, map->depth, right / map->top);
    if (!isnan(left))
        hl_shade_text(stdout, map->depth, left / map->top);
    printf("%s", isnan(left) ? " " : "▌");
    hl_shade_end(stdout, map->depth);
}

void hl_heatmap_print(const hl_heatmap *map)
{
    hl_heatmap_layout layout  = hl_heatmap_choose(map->n_columns, map->width, map->depth);
    int64_t           n_cells = (map->n_columns + layout.binned - 1) / layout.binned;
    bool              plain   = map->depth == HL_DEPTH_NONE;

    print_ticks(n_cells, layout, plain && layout.cell == 1);
    for (int64_t row = 0; row < map->n_rows; row++) {
        char label[24];

        snprintf(label, sizeof label, "L%lld", (long long)row);
        printf("%-*s", LABEL, label);
        for (int64_t cell = 0; cell < n_cells; cell += layout.per_column) {
            if (layout.per_column == 2)
                print_halves(map, layout, row, cell);
            else
                print_cell(map, layout, row, cell);
        }
        printf("\n");
    }
}

/* ---------------------------------------------------------------- spark line */

void hl_spark_print(const double *values, int64_t n_values, int width, hl_depth depth, double low,
                    double high)
{
    static const char *const bars[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    int64_t                  binned = (n_values + width - 1) / width;

    for (int64_t first = 0; first < n_values; first += binned) {
        double  sum   = 0.0;
        int64_t count = 0;
        for (int64_t i = first; i < first + binned && i < n_values; i++) {
            sum += isnan(values[i]) ? 0.0 : values[i];
            count += !isnan(values[i]);
        }
        double mean  = count > 0 ? sum / (double)count : NAN;
        double share = high > low ? (mean - low) / (high - low) : 0.5;
        if (isnan(mean)) {
            printf("-");
            continue;
        }
        hl_shade_text(stdout, depth, 0.2 + 0.5 * share); /* to be seen on black and on white */
        printf("%s", bars[(int)fmin(7.0, floor(8.0 * share))]);
        hl_shade_end(stdout, depth);
    }
}
