/* heatmap.c - every head as a cell: layers across, heads up, as pictures and the page have it.
 *
 *     up to 25 layers    3 columns a cell, hundredths:   " 07 43 99"
 *     up to 37           2 columns a cell, tenths; only with colors
 *     up to 75           1 column a cell; only with colors
 *     more               blocks of layers, one below the other
 *
 * Text goes over to blocks at once, as long as they take no more lines than a page has; then to tenths
 * in one column.  More heads than lines: each line is the mean of several heads.
 *
 * Figures are rounded down, so that 99 is anything from 0.99 to 1.  The page is 80 columns,
 * of which the head's name takes five. */
#include "heatmap.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { LABEL = 5, GROUP = 8, MOST_LINES = 64 };

/* --------------------------------------------------------------- the layout */

/* How many cells fit into the room; text in one column has a gap after every eight cells. */
static int64_t cells_in(int64_t room, int cell, hl_depth depth)
{
    int64_t n = room / cell;

    if (depth == HL_DEPTH_NONE && cell == 1)
        n -= n / (GROUP + 1);
    return n > 1 ? n : 1;
}

hl_heatmap_layout hl_heatmap_choose(int64_t n_layers, int64_t n_heads, int width, hl_depth depth)
{
    int64_t room    = width - LABEL;
    int     binned  = (int)((n_heads + MOST_LINES - 1) / MOST_LINES);
    int64_t n_lines = binned > 0 ? (n_heads + binned - 1) / binned : 0;
    int     cell    = 3;

    if (depth != HL_DEPTH_NONE) {
        while (cell > 1 && n_layers > cells_in(room, cell, depth))
            cell--;
    } else {
        int64_t most     = cells_in(room, cell, depth);
        int64_t n_blocks = (n_layers + most - 1) / most;
        if (n_blocks > 1 && n_blocks * n_lines > MOST_LINES)
            cell = 1;
    }
    int64_t most     = cells_in(room, cell, depth);
    int64_t n_blocks = n_layers > 0 ? (n_layers + most - 1) / most : 1;
    int64_t n_across = (n_layers + n_blocks - 1) / n_blocks;

    /* Blocks that end at a multiple of eight are easier to count through. */
    if (n_blocks > 1 && (n_across + GROUP - 1) / GROUP * GROUP <= most)
        n_across = (n_across + GROUP - 1) / GROUP * GROUP;
    return (hl_heatmap_layout){ cell, n_across, binned > 0 ? binned : 1 };
}

/* The mean of the heads that a cell stands for; NaN where none was measured.  *exists: are there
 * such heads? */
static double cell_value(bool *exists, const hl_heatmap *map, int binned, int64_t layer,
                         int64_t first)
{
    double  sum   = 0.0;
    int64_t count = 0;

    *exists = first < map->n_in_layer[layer];
    for (int64_t head = first; head < first + binned && head < map->n_in_layer[layer]; head++) {
        double value = map->values[layer * map->n_heads + head];
        sum += isnan(value) ? 0.0 : value;
        count += !isnan(value);
    }
    return count > 0 ? sum / (double)count : NAN;
}

/* ------------------------------------------------------------------ headings */

/* The number of every eighth layer (or of every one, where there is room) above its cell. */
static void print_ticks(int64_t begin, int64_t end, int cell, bool gaps)
{
    int64_t at   = 0;
    int64_t step = cell > 2 ? 1 : GROUP;

    printf("%-*s", LABEL, "L");
    for (int64_t layer = begin; layer < end; layer += step) {
        char    number[24];
        int     length = snprintf(number, sizeof number, "%lld", (long long)layer);
        int64_t place  = cell * (layer - begin) + (gaps ? (layer - begin) / GROUP : 0);

        if (cell > 1) /* above the figure, which stands to the right of its cell */
            place += cell - (cell > 2 ? length : 1);
        at += printf("%*s%s", (int)(place > at ? place - at : 0), "", number);
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

static void print_cell(const hl_heatmap *map, hl_heatmap_layout layout, int64_t layer, int64_t head)
{
    bool   exists = false;
    double value  = cell_value(&exists, map, layout.binned, layer, head);
    double share  = value / map->top;

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

static void print_block(const hl_heatmap *map, hl_heatmap_layout layout, int64_t begin, int64_t end)
{
    bool    gaps = map->depth == HL_DEPTH_NONE && layout.cell == 1;
    int64_t last = (map->n_heads - 1) / layout.binned * layout.binned;

    print_ticks(begin, end, layout.cell, gaps);
    for (int64_t head = last; head >= 0; head -= layout.binned) {
        char label[24];

        snprintf(label, sizeof label, "H%lld", (long long)head);
        printf("%-*s", LABEL, label);
        for (int64_t layer = begin; layer < end; layer++) {
            if (gaps && layer > begin && (layer - begin) % GROUP == 0)
                printf(" ");
            print_cell(map, layout, layer, head);
        }
        printf("\n");
    }
}

void hl_heatmap_print(const hl_heatmap *map)
{
    hl_heatmap_layout layout =
        hl_heatmap_choose(map->n_layers, map->n_heads, map->width, map->depth);

    for (int64_t begin = 0; begin < map->n_layers; begin += layout.n_across) {
        int64_t end = begin + layout.n_across;

        if (begin > 0)
            printf("\n");
        print_block(map, layout, begin, end < map->n_layers ? end : map->n_layers);
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
