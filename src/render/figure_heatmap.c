/* figure_heatmap.c - every head as a cell: layers across, heads up, dark is focused.
 *
 *            layer mean                       Each part is laid out from what its
 *     +---------------------------+           labels measure; the grid gets the rest.
 *     |  |  | ||| | |  || || |||  |           Cells are square where that fits.
 *     +---------------------------+--------+
 *   h |                           | ====   | # 3
 *   e |         the grid          | ===    | # 2   color bar, or the classes
 *   a |                           | =====  | # 1
 *   d +---------------------------+--------+ # 0
 *                 layer            head mean                                        */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"
#include "headlight/prune.h"
#include "render/figure.h"

#define BARS           38.0 /* length of the longest bar at a side */
#define BARS_GAP       6.0
#define LEGEND_GAP     18.0
#define CELL_MOST      56.0
#define LOWEST_GRID    96.0
#define LOWEST_CLASSES 80.0
#define LEAST_RANKED   9.0 /* smallest cell that has room for a rank */
/* Above this number of cells, titles hold values only: SVG files stay below 250 kB for 80 x 64. */
#define FULL_TITLES 4096

enum { N_CLASSES = 6 };

/* ----------------------------------------------------------------- marked heads */

typedef struct head_marks {
    bool    *pruned; /* (n_layers, n_heads) pruned according to the options, or without output */
    int64_t *ranks;  /* (n_layers, n_heads) rank of candidates, from 1; 0: not a candidate */
    int64_t  n_pruned;
    int64_t  n_candidates;
} head_marks;

typedef void (*mark_head)(head_marks *marks, int64_t place);

static hl_status mark_list(head_marks *marks, const hl_profile *profile, const char *list,
                           mark_head mark)
{
    int64_t n_heads = hl_profile_n_heads(profile);
    hl_head named;
    char    first[HL_HEAD_NAME_BYTES], last[HL_HEAD_NAME_BYTES], layer[HL_HEAD_NAME_BYTES];

    while (*list != '\0') {
        size_t length = strcspn(list, ",");
        if (!hl_profile_head_find(&named, profile, list, length))
            return hl_fail(
                HL_BAD_ARGUMENT, "'%.*s' is not a head: wanted %s to %s, or %s for a layer",
                (int)length, list, hl_profile_head_name(first, profile, 0, 0),
                hl_profile_head_name(last, profile, hl_profile_n_layers(profile) - 1, n_heads - 1),
                hl_profile_head_name(layer, profile, 0, -1));
        for (int64_t head = 0; head < hl_profile_heads_of(profile, named.layer); head++) {
            if (named.head < 0 || head == named.head)
                mark(marks, named.layer * n_heads + head);
        }
        list += length + (list[length] == ',');
    }
    return HL_OK;
}

static void mark_pruned(head_marks *marks, int64_t place)
{
    marks->n_pruned += !marks->pruned[place];
    marks->pruned[place] = true;
}

static void mark_candidate(head_marks *marks, int64_t place)
{
    if (marks->ranks[place] == 0)
        marks->ranks[place] = ++marks->n_candidates;
}

/* Computes the pruning order; a higher value is removed earlier: lowest output norm first or, if
 * the options say so, highest entropy first.  out (grid), NaN for heads that a layer lacks. */
static hl_status order_heads(double **out, const hl_figure *figure)
{
    const hl_profile *profile = figure->profile;
    bool              any     = false;

    if (figure->options.candidates_by_entropy)
        return hl_grid_means(out, profile, hl_figure_quantity(figure));
    HL_NEED(hl_grid_means(out, profile, HL_Q_ENTROPY));
    HL_EACH_HEAD(profile, layer, head)
    {
        double norm = hl_profile_output_norm(profile, layer, head);

        (*out)[layer * hl_profile_n_heads(profile) + head] = -norm;
        any                                                = any || !isnan(norm);
    }
    if (!any)
        return hl_fail(HL_BAD_INPUT,
                       "--candidates N needs output norms, which this profile does not have; "
                       "measure again, name the heads, or add --candidates-by entropy");
    return HL_OK;
}

/* Marks the first candidate among the remaining heads; of equal ones, the first. */
static hl_status mark_first(head_marks *marks, const hl_figure *figure)
{
    HL_FREED double *values = NULL;

    HL_NEED(order_heads(&values, figure));
    for (int64_t rank = 0; rank < figure->options.n_candidates; rank++) {
        int64_t best = -1;
        for (int64_t i = 0; i < hl_grid_size(figure->profile); i++) {
            if (!isnan(values[i]) && !marks->pruned[i] && marks->ranks[i] == 0 &&
                (best < 0 || values[i] > values[best]))
                best = i;
        }
        if (best < 0)
            break;
        mark_candidate(marks, best);
    }
    return HL_OK;
}

/* Reads the heads that the options name.  HL_BAD_ARGUMENT for heads that the profile lacks. */
static hl_status read_marks(head_marks *out, const hl_figure *figure)
{
    const hl_draw_options *options = &figure->options;
    size_t                 size    = (size_t)hl_grid_size(figure->profile);

    HL_NEED(HL_ALLOC_ZEROED(&out->pruned, size));
    HL_NEED(HL_ALLOC_ZEROED(&out->ranks, size));
    /* A head without output has a gate of 0, or the same effect. */
    HL_EACH_HEAD(figure->profile, layer, head)
    {
        if (hl_profile_output_norm(figure->profile, layer, head) == 0.0)
            mark_pruned(out, layer * hl_profile_n_heads(figure->profile) + head);
    }
    if (options->pruned != NULL)
        HL_NEED(mark_list(out, figure->profile, options->pruned, mark_pruned));
    if (options->candidates != NULL)
        HL_NEED(mark_list(out, figure->profile, options->candidates, mark_candidate));
    else if (options->n_candidates > 0)
        HL_NEED(mark_first(out, figure));
    return HL_OK;
}

/* ------------------------------------------------------------------- the figure */

typedef struct heatmap {
    hl_figure *figure;
    int64_t    n_layers;
    int64_t    n_heads;
    double    *values; /* (n_layers, n_heads) in the figure's unit; NaN: not measured */
    double    *means;  /* (n_layers), followed by (n_heads) */
    hl_axis    axis;
    hl_box     grid;
    double     gap;

    head_marks marks;
} heatmap;

static double value_of(const heatmap *map, int64_t layer, int64_t head)
{
    return map->values[layer * map->n_heads + head];
}

/* --------------------------------------------------------------------------- colors */

static hl_color class_color(int class)
{
    return hl_map_color(HL_MAP_ENTROPY, class / (N_CLASSES - 1.0));
}

static hl_color color_of(const heatmap *map, double value)
{
    /* The classes are 0.5 nats wide, from class 0, below 0.5, to the last one, from 2.5 on. */
    if (map->figure->options.scale == HL_SCALE_CLASSES)
        return class_color((int)fmin(fmax(floor(value / 0.5), 0.0), N_CLASSES - 1.0));
    return hl_map_color(HL_MAP_ENTROPY, hl_axis_share(&map->axis, value));
}

/* Head 0 is at the bottom; the grid lists cells from the top. */
static bool cell_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const heatmap *map   = context;
    double         value = value_of(map, across, map->n_heads - 1 - down);

    if (isnan(value))
        return false;
    *out = color_of(map, value);
    return true;
}

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const heatmap *map   = context;
    int64_t        head  = map->n_heads - 1 - down;
    double         value = value_of(map, across, head);
    const char    *unit  = hl_figure_unit(map->figure);
    char           name[HL_HEAD_NAME_BYTES];

    if (map->n_layers * map->n_heads > FULL_TITLES)
        snprintf(out, n_bytes, "%.2f", value);
    else
        snprintf(out, n_bytes, "%s %.3f%s%s",
                 hl_profile_head_name(name, map->figure->profile, across, head), value,
                 unit[0] != '\0' ? " " : "", unit);
}

/* --------------------------------------------------------------------------- numbers */

static hl_status read_values(heatmap *map)
{
    int64_t          n_cells = map->n_layers * map->n_heads;
    HL_FREED double *column  = NULL; /* (n_layers) values of one head */

    HL_NEED(hl_grid_means(&map->values, map->figure->profile, hl_figure_quantity(map->figure)));
    HL_NEED(HL_ALLOC(&map->means, (size_t)(map->n_layers + map->n_heads)));
    HL_NEED(HL_ALLOC(&column, (size_t)map->n_layers));
    for (int64_t i = 0; i < n_cells; i++)
        map->values[i] *= hl_figure_factor(map->figure);
    HL_NEED(hl_figure_scale(&map->axis, map->figure, map->values, n_cells));
    for (int64_t layer = 0; layer < map->n_layers; layer++)
        map->means[layer] = hl_mean(map->values + layer * map->n_heads, map->n_heads);
    for (int64_t head = 0; head < map->n_heads; head++) {
        for (int64_t layer = 0; layer < map->n_layers; layer++)
            column[layer] = value_of(map, layer, head);
        map->means[map->n_layers + head] = hl_mean(column, map->n_layers);
    }
    return HL_OK;
}

/* ---------------------------------------------------------------------------- layout */

static const char *const class_names[] = { "< 0.5",      "0.5\u20131", "1\u20131.5",
                                           "1.5\u20132", "2\u20132.5", "> 2.5" };

/* Computes the size of the grid; its position is known once the page begins. */
static void lay_out(heatmap *map)
{
    hl_text_style style  = hl_figure_normal(map->figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    hl_canvas    *canvas = map->figure->canvas;
    double        left   = hl_figure_indices_width(map->figure, map->n_heads, NULL);
    double        legend = hl_figure_color_bar_width(map->figure, &map->axis);

    if (map->figure->options.scale == HL_SCALE_CLASSES)
        legend = fmax(14.0 + hl_canvas_text_width(canvas, class_names[3], &style),
                      hl_canvas_text_width(canvas, hl_figure_unit_label(map->figure), &style));
    double right = BARS_GAP + BARS + LEGEND_GAP + legend;
    double room  = hl_figure_inner_width(map->figure) - left - right;
    double width = fmin(room, CELL_MOST * (double)map->n_layers);
    double cell  = width / (double)map->n_layers;
    double most  = fmax(room, LOWEST_GRID);

    map->grid = (hl_box){ left, BARS + BARS_GAP, width,
                          fmin(fmax(cell * (double)map->n_heads, LOWEST_GRID), most) };
    /* A low grid with few heads does not need huge cells. */
    map->grid.height = fmin(map->grid.height, fmax(CELL_MOST, cell) * (double)map->n_heads);
    double least     = fmin(cell, map->grid.height / (double)map->n_heads);
    map->gap         = least >= 6.0 ? fmin(1.0, least * 0.06) : 0.0;
}

/* --------------------------------------------------------------------------- drawing */

static hl_cell_grid grid_of(const heatmap *map)
{
    return (hl_cell_grid){ map->grid,  map->n_layers, map->n_heads, map->gap,
                           cell_color, cell_title,    map };
}

/* The frame separates focused heads from a background that is dark too. */
static void draw_grid(heatmap *map)
{
    hl_canvas   *canvas = map->figure->canvas;
    hl_stroke    frame  = hl_figure_axis_stroke(map->figure);
    hl_stroke    hatch  = { map->figure->theme->hatch, 0.6, 0.0 };
    hl_cell_grid grid   = grid_of(map);

    hl_canvas_cells(canvas, &grid);
    hl_figure_other_layers(map->figure, map->figure->profile, map->grid);
    hl_canvas_outline(canvas, map->grid, &frame);
    for (int64_t i = 0; i < map->n_layers * map->n_heads; i++) {
        int64_t layer = i % map->n_layers, head = map->n_heads - 1 - i / map->n_layers;
        hl_box  box = hl_cell_box(&grid, layer, i / map->n_layers);
        char    name[HL_HEAD_NAME_BYTES];

        if (!isnan(value_of(map, layer, head)) ||
            head >= hl_profile_heads_of(map->figure->profile, layer))
            continue;
        hl_profile_head_name(name, map->figure->profile, layer, head);
        strncat(name, " not measured", sizeof name - strlen(name) - 1);
        hl_canvas_begin(canvas, name);
        hl_canvas_hatch(canvas, box, fmin(3.0, box.height / 2.0), &hatch);
        hl_canvas_outline(canvas, box, &hatch);
        hl_canvas_end(canvas);
    }
}

/* Draws an outline that is visible on any color, and the rank if there is room. */
static void draw_candidate(heatmap *map, hl_box box, int64_t rank, hl_color cell)
{
    double        side  = fmin(box.width, box.height);
    double        width = fmin(1.4, 0.14 * side);
    hl_stroke     dark  = { { 28, 30, 36 }, width, 0.0 };
    hl_stroke     light = { { 255, 255, 255 }, width, 0.0 };
    hl_text_style style = hl_figure_normal(map->figure, HL_ANCHOR_MIDDLE, HL_STAND_MIDDLE);
    hl_box        inner = { box.x + 1.5 * width, box.y + 1.5 * width, box.width - 3.0 * width,
                            box.height - 3.0 * width };
    char          text[HL_NUMBER_BYTES];

    hl_canvas_outline(
        map->figure->canvas,
        (hl_box){ box.x + 0.5 * width, box.y + 0.5 * width, box.width - width, box.height - width },
        &dark);
    hl_canvas_outline(map->figure->canvas, inner, &light);
    if (side < LEAST_RANKED)
        return;
    snprintf(text, sizeof text, "%lld", (long long)rank);
    style.size  = fmin(HL_TEXT_NORMAL, 0.5 * side);
    style.bold  = true;
    style.color = hl_oklab_of(cell).l > 0.6 ? dark.color : light.color;
    hl_canvas_text(map->figure->canvas, box.x + box.width / 2.0, box.y + box.height / 2.0, text,
                   &style);
}

static void draw_marks(heatmap *map)
{
    hl_cell_grid grid = grid_of(map);

    for (int64_t i = 0; i < map->n_layers * map->n_heads; i++) {
        int64_t layer = i % map->n_layers, down = i / map->n_layers;
        int64_t place = layer * map->n_heads + map->n_heads - 1 - down;
        hl_box  box   = hl_cell_box(&grid, layer, down);

        if (isnan(map->values[place]))
            continue;
        double side = fmin(box.width, box.height);
        /* The hatching has the page's color, over the cell's own: the head was measured before it
         * was removed. */
        if (map->marks.pruned[place])
            hl_canvas_hatch(
                map->figure->canvas, box, fmin(3.0, side / 2.0),
                &(hl_stroke){ map->figure->theme->background, fmin(1.1, 0.16 * side), 0.0 });
        if (map->marks.ranks[place] > 0)
            draw_candidate(map, box, map->marks.ranks[place], color_of(map, map->values[place]));
    }
}

/* Draws all bars as thick strokes of one path. */
static hl_status draw_bars(heatmap *map, const double *means, int64_t n, bool upright)
{
    HL_FREED hl_point *ends   = NULL;
    hl_box             grid   = map->grid;
    double             each   = (upright ? grid.width : grid.height) / (double)n;
    int64_t            n_bars = 0;
    hl_stroke          stroke = { map->figure->theme->bar,
                                  each - fmax(map->gap, each > 3.0 ? 0.15 * each : 0.0), 0.0 };

    HL_NEED(HL_ALLOC(&ends, 2 * (size_t)n));
    for (int64_t i = 0; i < n; i++) {
        double length = BARS * hl_axis_share(&map->axis, means[i]);
        double middle = ((double)i + 0.5) * each;
        double right  = grid.x + grid.width + BARS_GAP;
        if (isnan(length) || length <= 0.0)
            continue;
        hl_point from    = upright ? (hl_point){ grid.x + middle, grid.y - BARS_GAP }
                                   : (hl_point){ right, grid.y + grid.height - middle };
        ends[2 * n_bars] = from;
        ends[2 * n_bars++ + 1] =
            upright ? (hl_point){ from.x, from.y - length } : (hl_point){ from.x + length, from.y };
    }
    hl_canvas_segments(map->figure->canvas, ends, n_bars, &stroke);
    return HL_OK;
}

/* Draws the base lines of the bars, their scales and names. */
static void draw_bar_axes(heatmap *map)
{
    hl_canvas    *canvas = map->figure->canvas;
    hl_box        grid   = map->grid;
    double        base   = grid.y - BARS_GAP;
    double        right  = grid.x + grid.width + BARS_GAP;
    hl_stroke     stroke = hl_figure_axis_stroke(map->figure);
    hl_text_style end    = hl_figure_small(map->figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    hl_text_style under  = hl_figure_small(map->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style name   = hl_figure_small(map->figure, HL_ANCHOR_START, HL_STAND_BASE);
    char          zero[HL_NUMBER_BYTES], top[HL_NUMBER_BYTES];

    hl_axis_label(zero, &map->axis, map->axis.low);
    hl_axis_label(top, &map->axis, map->axis.high);
    hl_canvas_line(canvas, (hl_point){ grid.x, base }, (hl_point){ grid.x + grid.width, base },
                   &stroke);
    hl_canvas_line(canvas, (hl_point){ right, grid.y }, (hl_point){ right, grid.y + grid.height },
                   &stroke);
    hl_canvas_text(canvas, grid.x - 5.0, base, zero, &end);
    hl_canvas_text(canvas, grid.x - 5.0, base - BARS, top, &end);
    hl_canvas_text(canvas, right, grid.y + grid.height + 5.0, zero, &under);
    hl_canvas_text(canvas, right + BARS, grid.y + grid.height + 5.0, top, &under);
    hl_canvas_text(canvas, right, base, "layer mean", &name);
    hl_canvas_text(canvas, right + BARS / 2.0, grid.y + grid.height + 18.0, "head mean", &under);
}

static void draw_classes(heatmap *map, double x)
{
    hl_canvas    *canvas = map->figure->canvas;
    hl_text_style style  = hl_figure_normal(map->figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    hl_stroke     frame  = hl_figure_axis_stroke(map->figure);
    double        line   = fmin(16.0, fmax(12.0, (map->grid.height - 8.0) / (N_CLASSES + 1)));

    hl_canvas_text(canvas, x, map->grid.y + 4.0, hl_figure_unit_label(map->figure), &style);
    for (int i = 0; i < N_CLASSES; i++) {
        double y = map->grid.y + 4.0 + line * (N_CLASSES - i);
        hl_canvas_rectangle(canvas, (hl_box){ x, y - 5.0, 10.0, 10.0 }, class_color(i));
        hl_canvas_outline(canvas, (hl_box){ x, y - 5.0, 10.0, 10.0 }, &frame);
        hl_canvas_text(canvas, x + 14.0, y, class_names[i], &style);
    }
}

/* Describes the figure and its marks for the caption. */
static void describe(char *out, size_t n_bytes, const heatmap *map)
{
    const head_marks *marks   = &map->marks;
    bool              hatched = false;
    double            side =
        fmin(map->grid.width / (double)map->n_layers, map->grid.height / (double)map->n_heads);

    HL_EACH_HEAD(map->figure->profile, layer, head)
    hatched = hatched || isnan(value_of(map, layer, head));
    int used =
        snprintf(out, n_bytes,
                 "Mean attention entropy of every head: dark is focused, light is spread out%s.",
                 hatched ? ", hatched ones were not measured" : "");

    if (hl_figure_has_other_layers(map->figure->profile) && used > 0 && (size_t)used < n_bytes)
        used += snprintf(out + used, n_bytes - (size_t)used, " %s", hl_figure_other_caption);
    if (marks->n_pruned > 0 && used > 0 && (size_t)used < n_bytes)
        used += snprintf(out + used, n_bytes - (size_t)used, " Hatched: %lld removed head%s.",
                         (long long)marks->n_pruned, marks->n_pruned == 1 ? "" : "s");
    if (marks->n_candidates > 0 && used > 0 && (size_t)used < n_bytes)
        snprintf(out + used, n_bytes - (size_t)used, " Outlined: %lld candidate%s for pruning%s%s.",
                 (long long)marks->n_candidates, marks->n_candidates == 1 ? "" : "s",
                 map->figure->options.candidates != NULL      ? ""
                 : map->figure->options.candidates_by_entropy ? ", highest entropy first"
                                                              : ", lowest output norm first",
                 side - map->gap < LEAST_RANKED ? "; widen the figure to show their ranks" : "");
}

static hl_status draw(heatmap *map)
{
    double least = map->figure->options.scale == HL_SCALE_CLASSES ? LOWEST_CLASSES : 0.0;
    char   what[512];

    describe(what, sizeof what, map);
    hl_box box = hl_figure_begin(
        map->figure, map->grid.y + fmax(map->grid.height, least) + HL_INDICES_HEIGHT, what);

    map->grid.x += box.x;
    map->grid.y += box.y;
    draw_grid(map);
    draw_marks(map);
    HL_NEED(draw_bars(map, map->means, map->n_layers, true));
    HL_NEED(draw_bars(map, map->means + map->n_layers, map->n_heads, false));
    draw_bar_axes(map);
    hl_figure_indices_across(map->figure, map->grid, map->n_layers, "Layer");
    hl_figure_indices_up(map->figure, map->grid, map->n_heads, NULL, "Head");
    double x = map->grid.x + map->grid.width + BARS_GAP + BARS + LEGEND_GAP;
    if (map->figure->options.scale == HL_SCALE_CLASSES)
        draw_classes(map, x);
    else
        hl_figure_color_bar(map->figure,
                            (hl_box){ x, map->grid.y, 0.0, fmin(map->grid.height, 220.0) },
                            HL_MAP_ENTROPY, &map->axis, hl_figure_unit_label(map->figure));
    return HL_OK;
}

static void free_map(heatmap *map)
{
    hl_free(map->values);
    hl_free(map->means);
    hl_free(map->marks.pruned);
    hl_free(map->marks.ranks);
}

hl_status hl_figure_heatmap(hl_figure *figure)
{
    HL_SCOPED(free_map)
    heatmap map = { .figure   = figure,
                    .n_layers = hl_profile_n_layers(figure->profile),
                    .n_heads  = hl_profile_n_heads(figure->profile) };

    HL_NEED(read_values(&map));
    HL_NEED(read_marks(&map.marks, figure));
    lay_out(&map);
    return draw(&map);
}
