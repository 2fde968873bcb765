/* figure_compare.c - two models side by side.
 *
 *     A  [] [] [] []     with patterns: one map per head     |      A      |      B      |#
 *        [] [] [] []     without: the entropies as           | ####  ##    | ####  ##    |#
 *     B  [] [] [] []     heatmaps  ----------------------->  | ## ####     | ## ####     |#
 *        [] [] [] []
 *     differences of every layer with intervals | metric  A  B  B - A
 *     and of every head, with a dot where the   | ...
 *     difference is significant            | ... */
#include "render/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/grid.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/chart.h"

#define PART_GAP      14.0
#define HEADING       16.0
#define LAYERS_HEIGHT 40.0
#define LAYERS_GAP    8.0
#define TABLE_LINE    10.5
#define TABLE_WIDTH   150.0
#define BAR_GAP       8.0
#define KEY_HEIGHT    12.0 /* space above maps that stand side by side */
#define BESIDE_STEP   38.0 /* least distance between maps: room for two metrics per line */
#define BELOW_STEP    36.0
#define WIDEST_BESIDE 700.0

/* --------------------------------------------------------------------- small maps */

#define BLOCK_TITLE 16.0
#define NAME_SIZE   5.5
#define NAME_HEIGHT 7.5
#define LINE_HEIGHT 6.5
#define MAP_GAP     4.0
#define WORD_GAP    3.0

/* Few shades, so that neighbors in a row often have the same one and SVG needs fewer strokes. */
enum { N_SHADES = 16 };

/* ------------------------------------------------------------ small maps: metrics */

static const struct {
    const char    *name;
    const char    *widest;
    const char    *meaning;
    hl_number_from from;
    int            which;
} metrics[HL_BLOCK_METRICS] = {
    { "H", "H 0.00", "H: mean entropy (nats)", HL_FROM_ROWS, HL_Q_ENTROPY },
    { "self", "self .00", "self: mean attention of a token to itself", HL_FROM_PATTERN,
      HL_PM_SELF },
    { "sink", "sink .00", "sink: mean attention to the first token", HL_FROM_PATTERN, HL_PM_SINK },
    { "peak", "peak .00", "peak: mean of the rows' largest attention", HL_FROM_ROWS, HL_Q_PEAK },
};

/* Writes "H 1.23", "self .45" or "sink 1"; a dash for a value that was not measured. */
static void write_metric(char *out, size_t n_bytes, const hl_map_block *block, int64_t layer,
                         int64_t head, int metric)
{
    char   number[HL_NUMBER_BYTES] = "\u2013";
    double value = hl_head_number(block->side->profile, layer, head, metrics[metric].from,
                                  metrics[metric].which);

    if (!isnan(value))
        snprintf(number, sizeof number, "%.2f", value);
    /* Shares are written without a leading zero, ".45"; a value that rounds to 1 is "1". */
    const char *from = number;
    if (metric > 0 && number[0] == '0')
        from = number + 1;
    if (metric > 0 && number[0] == '1')
        number[1] = '\0';
    snprintf(out, n_bytes, "%s %s", metrics[metric].name, from);
}

/* ------------------------------------------------------------- small maps: layout */

static hl_text_style name_style(const hl_figure *figure)
{
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_START, HL_STAND_BASE);

    style.size = NAME_SIZE;
    return style;
}

static double metric_width(const hl_figure *figure, int metric)
{
    hl_text_style style = name_style(figure);

    return hl_canvas_text_width(figure->canvas, metrics[metric].widest, &style);
}

/* Chooses as many metrics as fit, line by line. */
static void plan_lines(hl_map_block *block)
{
    int next = 0;

    for (int line = 0; line < HL_BLOCK_LINES; line++) {
        double used        = 0.0;
        block->lines[line] = 0;
        while (next < HL_BLOCK_METRICS) {
            double width = metric_width(block->figure, next) + (used > 0.0 ? WORD_GAP : 0.0);
            if (used + width > block->step - 1.0)
                break;
            used += width;
            block->lines[line]++;
            next++;
        }
    }
}

static double name_height(const hl_map_block *block)
{
    return block->named ? NAME_HEIGHT : 0.0;
}

void hl_map_block_plan(hl_map_block *out, hl_figure *figure, const hl_compared *side, double width)
{
    int64_t n_heads  = hl_profile_n_heads(side->profile);
    int64_t n_layers = hl_profile_n_layers(side->profile);
    int     n_lines  = 0;

    hl_text_style style = name_style(figure);
    char          name[HL_HEAD_NAME_BYTES];

    hl_profile_head_name(name, side->profile, n_layers - 1, n_heads - 1);
    *out       = (hl_map_block){ .figure = figure, .side = side };
    out->step  = fmin((width + MAP_GAP) / (double)n_heads, 90.0);
    out->map   = fmax(out->step - MAP_GAP, 0.75 * out->step);
    out->named = hl_canvas_text_width(figure->canvas, name, &style) < out->step - 1.0;
    plan_lines(out);
    for (int line = 0; line < HL_BLOCK_LINES; line++)
        n_lines += out->lines[line] > 0;
    out->down   = name_height(out) + out->map + LINE_HEIGHT * n_lines + (out->step - out->map);
    out->height = BLOCK_TITLE + out->down * (double)n_layers;
}

/* Explains the metrics that are shown, for the caption: "H: mean entropy (nats), self: ...". */
static void write_legend(char *out, size_t n_bytes, const hl_map_block *block)
{
    int    n_shown = block->lines[0] + block->lines[1];
    size_t used    = 0;

    snprintf(out, n_bytes, "Rows of the grid are layers, columns are heads%s.",
             block->named ? "; widen the figure to show metrics"
                          : "; widen the figure to show names and metrics");
    for (int i = 0; i < n_shown && used < n_bytes; i++) {
        int added = snprintf(out + used, n_bytes - used, "%s%s", i == 0 ? "Under each map: " : ", ",
                             metrics[i].meaning);
        used += added > 0 ? (size_t)added : 0;
    }
    if (n_shown > 0 && used < n_bytes)
        snprintf(out + used, n_bytes - used, ". All values are over all measured tokens%s.",
                 n_shown < HL_BLOCK_METRICS ? "; widen the figure to show more" : "");
}

/* ------------------------------------------------------------ small maps: drawing */

static hl_color shade_of(const hl_figure *figure, double weight)
{
    return hl_map_color(hl_figure_blues(figure), floor(sqrt(weight) * N_SHADES + 0.5) / N_SHADES);
}

/* The pattern of one head: (n_tokens, n_tokens). */
typedef struct small_map {
    const hl_figure *figure;
    const float     *values;
    int64_t          n_tokens;
    hl_color         ground;
} small_map;

/* Cells with nearly no attention keep the background color. */
static bool map_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const small_map *map   = context;
    double           value = (double)map->values[down * map->n_tokens + across];

    *out = shade_of(map->figure, isnan(value) ? 0.0 : value);
    return out->red != map->ground.red || out->blue != map->ground.blue;
}

static void draw_metrics(const hl_map_block *block, int64_t layer, int64_t head, hl_point at)
{
    hl_text_style style = name_style(block->figure);
    int           next  = 0;
    char          text[HL_NUMBER_BYTES];

    for (int line = 0; line < HL_BLOCK_LINES; line++) {
        double x = at.x;
        for (int i = 0; i < block->lines[line]; i++, next++) {
            write_metric(text, sizeof text, block, layer, head, next);
            hl_canvas_text(block->figure->canvas, x, at.y + LINE_HEIGHT * (line + 1.0) - 0.5, text,
                           &style);
            x += metric_width(block->figure, next) + WORD_GAP;
        }
    }
}

static void write_title(char *out, size_t n_bytes, const hl_map_block *block, int64_t layer,
                        int64_t head)
{
    char name[HL_HEAD_NAME_BYTES], text[HL_NUMBER_BYTES];
    int  used = snprintf(out, n_bytes, "%s %s", block->side->name,
                         hl_profile_head_name(name, block->side->profile, layer, head));

    for (int i = 0; i < HL_BLOCK_METRICS && used >= 0 && (size_t)used < n_bytes; i++) {
        write_metric(text, sizeof text, block, layer, head, i);
        used += snprintf(out + used, n_bytes - (size_t)used, ", %s", text);
    }
}

static void draw_map(const hl_map_block *block, int64_t layer, int64_t head, hl_point at)
{
    const hl_patterns *patterns = block->side->patterns;
    int64_t            n        = patterns->n_tokens;
    hl_canvas         *canvas   = block->figure->canvas;
    hl_stroke          frame    = { block->figure->theme->grid, 0.4, 0.0 };
    hl_text_style      style    = name_style(block->figure);
    hl_box             box      = { at.x, at.y + name_height(block), block->map, block->map };
    small_map map = { block->figure, patterns->values + (layer * patterns->n_heads + head) * n * n,
                      n, shade_of(block->figure, 0.0) };
    hl_cell_grid grid = { box, n, n, 0.0, map_color, NULL, &map };
    char         name[HL_HEAD_NAME_BYTES], title[256];

    write_title(title, sizeof title, block, layer, head);
    style.color = block->figure->theme->text;
    if (block->named)
        hl_canvas_text(canvas, at.x, at.y + NAME_HEIGHT - 2.0,
                       hl_profile_head_name(name, block->side->profile, layer, head), &style);
    hl_canvas_begin(canvas, title);
    hl_canvas_rectangle(canvas, box, map.ground);
    hl_canvas_cells(canvas, &grid);
    hl_canvas_outline(canvas, box, &frame);
    hl_canvas_end(canvas);
    draw_metrics(block, layer, head, (hl_point){ at.x, box.y + block->map });
}

/* Draws a heading in bold, in a smaller size if the room is too small. */
static void heading(const hl_figure *figure, hl_point at, const char *text, double room)
{
    hl_text_style style = hl_figure_normal(figure, HL_ANCHOR_START, HL_STAND_TOP);

    style.bold   = true;
    double width = hl_canvas_text_width(figure->canvas, text, &style);
    if (width > room)
        style.size *= room / width;
    hl_canvas_text(figure->canvas, at.x, at.y, text, &style);
}

static void draw_block(const hl_map_block *block, hl_point at)
{
    heading(block->figure, at, block->side->name, 0.6 * hl_figure_inner_width(block->figure));
    HL_EACH_HEAD(block->side->profile, layer, head)
    draw_map(block, layer, head,
             (hl_point){ at.x + block->step * (double)head,
                         at.y + BLOCK_TITLE + block->down * (double)layer });
}

/* Draws a color ramp with names at its ends, which ends at `right`. */
static void draw_key(hl_figure *figure, hl_point right)
{
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_END, HL_STAND_MIDDLE);

    hl_canvas_ramp(figure->canvas, (hl_box){ right.x - 80.0, right.y, 72.0, 7.0 },
                   hl_figure_blues(figure), N_SHADES, false);
    hl_canvas_text(figure->canvas, right.x, right.y + 3.5, "1", &style);
    hl_canvas_text(figure->canvas, right.x - 84.0, right.y + 3.5, "attention 0", &style);
}

/* ----------------------------------------------------------------- the comparison */

typedef struct compare_figure {
    hl_figure           *figure;
    const hl_compared   *sides; /* (2) */
    const hl_comparison *found;
    int64_t              n_layers;
    int64_t              n_heads;
    double              *values[3];   /* (n_layers, n_heads) normalized entropy of A, of B, and B -
                                       * A */
    bool                *significant; /* (n_layers, n_heads) */
    hl_axis              scale;       /* axis of the entropies */
    hl_axis              difference;  /* axis of the differences, symmetric around 0 */
    hl_map_block         blocks[2];
} compare_figure;

/* --------------------------------------------------------------------------- numbers */

static hl_status check_sides(const hl_compared sides[2])
{
    const hl_patterns *a = sides[0].patterns, *b = sides[1].patterns;

    if (hl_profile_n_layers(sides[0].profile) != hl_profile_n_layers(sides[1].profile) ||
        hl_profile_n_heads(sides[0].profile) != hl_profile_n_heads(sides[1].profile))
        return hl_fail(HL_BAD_ARGUMENT, "A and B have different numbers of layers or heads");
    if ((a == NULL) != (b == NULL))
        return hl_fail(HL_BAD_ARGUMENT, "the maps of one model are missing");
    if (a == NULL)
        return HL_OK;
    if (a->n_layers != hl_profile_n_layers(sides[0].profile) || a->n_layers != b->n_layers ||
        a->n_heads != hl_profile_n_heads(sides[0].profile) || a->n_heads != b->n_heads)
        return hl_fail(HL_BAD_ARGUMENT, "the maps are of other models than the profiles");
    if (a->n_tokens != b->n_tokens ||
        memcmp(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens) != 0)
        return hl_fail(HL_BAD_ARGUMENT, "A and B saw different tokens: their maps cannot be "
                                        "compared");
    return HL_OK;
}

static double number_of(const hl_sheet *table, int64_t row, const char *column)
{
    return hl_sheet_number(table, row, hl_sheet_find(table, column));
}

/* Reads the test of every head. */
static void read_heads(compare_figure *f)
{
    const hl_sheet *heads = f->found->heads;

    for (int64_t i = 0; i < f->n_layers * f->n_heads; i++) {
        f->values[2][i]   = NAN;
        f->significant[i] = false;
    }
    for (int64_t row = 0; row < hl_sheet_n_rows(heads); row++) {
        int64_t place = (int64_t)number_of(heads, row, "layer") * f->n_heads +
                        (int64_t)number_of(heads, row, "head");
        f->values[2][place]   = number_of(heads, row, "difference");
        f->significant[place] = number_of(heads, row, "significant") > 0.0;
    }
}

static hl_status read_values(compare_figure *f)
{
    size_t size = (size_t)(f->n_layers * f->n_heads);
    double most = 0.0;

    for (int i = 0; i < 2; i++)
        HL_NEED(hl_grid_means(&f->values[i], f->sides[i].profile, HL_Q_NORMALIZED));
    HL_NEED(HL_ALLOC(&f->values[2], size));
    HL_NEED(HL_ALLOC(&f->significant, size));
    read_heads(f);
    for (size_t i = 0; i < size; i++)
        most = fmax(most, fabs(f->values[2][i])); /* fmax skips NaN */
    f->scale      = hl_axis_around(0.0, 1.0, 5);
    f->difference = hl_axis_around(-fmax(most, 1e-3), fmax(most, 1e-3), 4);
    return HL_OK;
}

/* --------------------------------------------------------------------------- heatmaps */

/* One of the two heatmaps: layers across, heads up. */
typedef struct panel {
    const compare_figure *f;
    const double         *values;
    const char           *what; /* quantity, for the cells' titles */
    hl_map                map;
    const hl_axis        *axis;
} panel;

static double panel_value(const panel *p, int64_t across, int64_t down)
{
    return p->values[across * p->f->n_heads + p->f->n_heads - 1 - down];
}

static bool cell_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const panel *p     = context;
    double       value = panel_value(p, across, down);

    *out = hl_map_color(p->map, hl_axis_share(p->axis, value));
    return !isnan(value);
}

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const panel *p = context;
    char         name[HL_HEAD_NAME_BYTES];

    snprintf(out, n_bytes, "%s %s%.3f",
             hl_profile_head_name(name, p->f->sides[0].profile, across, p->f->n_heads - 1 - down),
             p->what, panel_value(p, across, down));
}

static double panel_height(const compare_figure *f, double width)
{
    return fmin(fmax(width / (double)f->n_layers * (double)f->n_heads, 60.0), fmax(width, 60.0));
}

static void draw_panel(const panel *p, hl_box box)
{
    hl_canvas   *canvas = p->f->figure->canvas;
    hl_cell_grid grid   = { box, p->f->n_layers, p->f->n_heads, 0.0, cell_color, cell_title, p };
    hl_stroke    frame  = hl_figure_axis_stroke(p->f->figure);

    hl_canvas_cells(canvas, &grid);
    hl_figure_other_layers(p->f->figure, p->f->sides[0].profile, box);
    hl_canvas_outline(canvas, box, &frame);
}

static void draw_significant(const compare_figure *f, hl_box box)
{
    double width = box.width / (double)f->n_layers, height = box.height / (double)f->n_heads;
    double radius = fmin(1.3, 0.2 * fmin(width, height));

    for (int64_t i = 0; i < f->n_layers * f->n_heads; i++) {
        int64_t  layer = i / f->n_heads, head = i % f->n_heads;
        hl_point at = { box.x + ((double)layer + 0.5) * width,
                        box.y + box.height - ((double)head + 0.5) * height };
        if (f->significant[i])
            hl_canvas_mark(f->figure->canvas, at, HL_MARK_CIRCLE, radius, (hl_color){ 28, 30, 36 });
    }
}

/* ------------------------------------------------------- A and B without patterns */

/* Returns the width of one of the two heatmaps. */
static double pair_width(const compare_figure *f)
{
    double used = hl_figure_indices_width(f->figure, f->n_heads, NULL) + PART_GAP + BAR_GAP +
                  hl_figure_color_bar_width(f->figure, &f->scale);

    return fmin((hl_figure_inner_width(f->figure) - used) / 2.0, 40.0 * (double)f->n_layers);
}

static void draw_pair(compare_figure *f, hl_point at)
{
    double width  = pair_width(f);
    double height = panel_height(f, width);
    double left   = at.x + hl_figure_indices_width(f->figure, f->n_heads, NULL);

    for (int i = 0; i < 2; i++) {
        panel  p   = { f, f->values[i], i == 0 ? "A " : "B ", HL_MAP_ENTROPY, &f->scale };
        hl_box box = { left + i * (width + PART_GAP), at.y + HEADING, width, height };
        draw_panel(&p, box);
        heading(f->figure, (hl_point){ box.x, at.y }, f->sides[i].name, width);
        hl_figure_indices_across(f->figure, box, f->n_layers, "Layer");
        if (i == 0)
            hl_figure_indices_up(f->figure, box, f->n_heads, NULL, "Head");
    }
    hl_figure_color_bar(f->figure,
                        (hl_box){ left + 2.0 * width + PART_GAP + BAR_GAP, at.y + HEADING, 0.0,
                                  fmin(height, 150.0) },
                        HL_MAP_ENTROPY, &f->scale, "Normalized entropy");
}

/* ----------------------------------------------------------- the strip of differences */

/* On a narrow page the table stands below the differences, not beside them. */
static bool is_narrow(const compare_figure *f)
{
    return hl_figure_inner_width(f->figure) < 360.0;
}

static double strip_width(const compare_figure *f)
{
    double used = hl_figure_indices_width(f->figure, f->n_heads, NULL) + BAR_GAP +
                  hl_figure_color_bar_width(f->figure, &f->difference) +
                  (is_narrow(f) ? 0.0 : PART_GAP + TABLE_WIDTH);

    return fmin(hl_figure_inner_width(f->figure) - used, 20.0 * (double)f->n_layers);
}

static const struct {
    const char *row; /* row of the comparison's table of metrics */
    const char *name;
} table[] = {
    { "entropy", "entropy (nats)" },
    { "normalized", "normalized" },
    { "entropy_nosink", "without first token (nats)" },
    { "peak", "peak" },
    { "self_sampled", "self" },
    { "previous_sampled", "previous token" },
    { "band", "last 5 tokens" },
    { "sink", "sink" },
    { "self_top", "self is top" },
    { "content", "content" },
    { "edges", "edges (p > 0.001)" },
    { "k90", "keys for 90%" },
};
enum { N_TABLE = sizeof table / sizeof *table };

static double differences_height(const compare_figure *f)
{
    return HEADING + LAYERS_HEIGHT + LAYERS_GAP + panel_height(f, strip_width(f)) +
           HL_INDICES_HEIGHT;
}

/* Draws a dot for every layer's difference, and a line for its interval. */
static void draw_layers(const compare_figure *f, hl_box box)
{
    hl_canvas      *canvas = f->figure->canvas;
    const hl_sheet *layers = f->found->layers;
    hl_chart        chart  = {
                .figure = f->figure, .x = { .low = 0.0, .high = 1.0 }, .y = f->difference, .box = box
    };
    hl_stroke zero = hl_figure_axis_stroke(f->figure);
    hl_stroke line = { f->figure->theme->series[0], 1.2, 0.0 };

    chart.y.n_steps = 2;
    chart.y.step    = f->difference.high;
    chart.y.first   = -1;
    hl_chart_label_y(&chart, NULL);
    double middle = hl_chart_point(&chart, 0.0, 0.0).y;
    hl_canvas_line(canvas, (hl_point){ box.x, middle }, (hl_point){ box.x + box.width, middle },
                   &zero);
    for (int64_t row = 0; row < hl_sheet_n_rows(layers); row++) {
        double x     = (number_of(layers, row, "layer") + 0.5) / (double)f->n_layers;
        double value = number_of(layers, row, "difference");
        double low = number_of(layers, row, "low"), high = number_of(layers, row, "high");
        if (!isnan(low) && !isnan(high))
            hl_canvas_line(canvas, hl_chart_point(&chart, x, low), hl_chart_point(&chart, x, high),
                           &line);
        if (!isnan(value))
            hl_canvas_mark(canvas, hl_chart_point(&chart, x, value), HL_MARK_CIRCLE,
                           fmin(1.8, 0.3 * box.width / (double)f->n_layers), line.color);
    }
}

static void draw_cell(const compare_figure *f, double right, double y, double value, bool is_change)
{
    hl_text_style style = hl_figure_small(f->figure, HL_ANCHOR_END, HL_STAND_TOP);
    char          text[HL_NUMBER_BYTES];

    if (isnan(value))
        snprintf(text, sizeof text, "\u2013");
    else
        snprintf(text, sizeof text, "%s%.2f",
                 value < 0.0 ? "\u2212"
                 : is_change ? "+"
                             : "",
                 fabs(value));
    if (is_change)
        style.color = f->figure->theme->text;
    hl_canvas_text(f->figure->canvas, right, y, text, &style);
}

/* Draws the table of means over heads. */
static void draw_table(const compare_figure *f, hl_point at)
{
    static const char *const heads[] = { "A", "B", "B \u2212 A" };
    const hl_sheet          *sheet   = f->found->metrics;
    hl_text_style            name    = hl_figure_small(f->figure, HL_ANCHOR_START, HL_STAND_TOP);
    hl_text_style            head    = hl_figure_small(f->figure, HL_ANCHOR_END, HL_STAND_TOP);
    const double             right[] = { at.x + 96.0, at.x + 121.0, at.x + TABLE_WIDTH };

    head.bold = true;
    for (int i = 0; i < 3; i++)
        hl_canvas_text(f->figure->canvas, right[i], at.y, heads[i], &head);
    for (int i = 0; i < N_TABLE; i++) {
        double y = at.y + TABLE_LINE * (i + 1);
        hl_canvas_text(f->figure->canvas, at.x, y, table[i].name, &name);
        for (int64_t row = 0; row < hl_sheet_n_rows(sheet); row++) {
            if (strcmp(hl_sheet_text(sheet, row, hl_sheet_find(sheet, "metric")), table[i].row) !=
                0)
                continue;
            draw_cell(f, right[0], y, number_of(sheet, row, "a"), false);
            draw_cell(f, right[1], y, number_of(sheet, row, "b"), false);
            draw_cell(f, right[2], y, number_of(sheet, row, "difference"), true);
        }
    }
}

static void draw_strip(compare_figure *f, hl_point at)
{
    double width  = strip_width(f);
    double height = panel_height(f, width);
    double left   = at.x + hl_figure_indices_width(f->figure, f->n_heads, NULL);
    double top    = at.y + HEADING;
    panel  p      = { f, f->values[2], "B \u2212 A ", HL_MAP_DIFFERENCE, &f->difference };
    hl_box box    = { left, top + LAYERS_HEIGHT + LAYERS_GAP, width, height };
    double bar    = left + width + BAR_GAP;
    char   text[128];

    snprintf(text, sizeof text, "B \u2212 A: %lld of %lld heads differ",
             (long long)f->found->n_significant, (long long)f->found->n_heads);
    heading(f->figure, (hl_point){ left, at.y }, text, width);
    draw_layers(f, (hl_box){ left, top, width, LAYERS_HEIGHT });
    draw_panel(&p, box);
    draw_significant(f, box);
    hl_figure_indices_across(f->figure, box, f->n_layers, "Layer");
    hl_figure_indices_up(f->figure, box, f->n_heads, NULL, "Head");
    hl_figure_color_bar(f->figure, (hl_box){ bar, box.y, 0.0, fmin(height, 150.0) },
                        HL_MAP_DIFFERENCE, &f->difference, "");
    if (is_narrow(f))
        draw_table(f, (hl_point){ at.x, at.y + differences_height(f) + PART_GAP });
    else
        draw_table(
            f, (hl_point){ bar + hl_figure_color_bar_width(f->figure, &f->difference) + PART_GAP,
                           at.y });
}

/* ------------------------------------------------------------------------- the figure */

static void describe(char *out, size_t n_bytes, const compare_figure *f)
{
    bool        mapped      = f->sides[0].patterns != NULL;
    char        legend[320] = "";
    char        maps[640]   = "A and B, head by head.";
    const char *test        = f->found->kind == HL_COMPARE_SAME_TOKENS
                                  ? "Student's t, in pairs of sequences"
                                  : "Student's t, each text by itself";

    if (mapped) {
        write_legend(legend, sizeof legend, &f->blocks[0]);
        snprintf(maps, sizeof maps,
                 "Attention of every head on the same %lld tokens. In each map, rows are the "
                 "tokens that attend and columns the tokens attended to; color: "
                 "\u221aattention, %s is more. %s",
                 (long long)f->sides[0].patterns->n_tokens, hl_figure_more(f->figure), legend);
    }
    if (hl_figure_has_other_layers(f->sides[0].profile)) {
        size_t used = strlen(maps);
        snprintf(maps + used, sizeof maps - used, " %s", hl_figure_other_caption);
    }
    snprintf(out, n_bytes,
             "%s Below: difference of normalized entropy, B \u2212 A, by layer with 95%% "
             "intervals, and by head; a dot marks a significant difference (%s; false discovery "
             "rate under 5%%). The table has means over all heads. n\u00a0=\u00a0%lld and %lld "
             "tokens, %lld windows in common.",
             maps, test, (long long)hl_profile_n_tokens(f->sides[0].profile),
             (long long)hl_profile_n_tokens(f->sides[1].profile), (long long)f->found->n_shared);
}

/* With patterns, A and B are blocks of maps, side by side if these are then wide enough, otherwise
 * one below the other.  Without patterns they are two heatmaps. */
static void draw(compare_figure *f)
{
    bool   mapped  = f->sides[0].patterns != NULL;
    double inner   = hl_figure_inner_width(f->figure);
    bool   beside  = inner >= 2.0 * BESIDE_STEP * (double)f->n_heads + PART_GAP;
    double above   = HEADING + panel_height(f, pair_width(f)) + HL_INDICES_HEIGHT;
    double numbers = TABLE_LINE * (N_TABLE + 1), strip = differences_height(f);
    char   what[1280];

    strip = is_narrow(f) ? strip + PART_GAP + numbers : fmax(strip, numbers);
    for (int i = 0; i < 2 && mapped; i++)
        hl_map_block_plan(&f->blocks[i], f->figure, &f->sides[i],
                          beside ? (inner - PART_GAP) / 2.0 : inner);
    if (mapped)
        above =
            beside ? KEY_HEIGHT + f->blocks[0].height : 2.0 * f->blocks[0].height + PART_GAP / 2.0;
    describe(what, sizeof what, f);
    hl_box   box    = hl_figure_begin(f->figure, above + PART_GAP + strip, what);
    hl_point first  = { box.x, box.y + (beside ? KEY_HEIGHT : 0.0) };
    hl_point second = beside ? (hl_point){ box.x + (box.width + PART_GAP) / 2.0, first.y }
                             : (hl_point){ box.x, first.y + f->blocks[0].height + PART_GAP / 2.0 };
    if (mapped) {
        draw_block(&f->blocks[0], first);
        draw_block(&f->blocks[1], second);
        draw_key(f->figure, (hl_point){ box.x + box.width, box.y });
    } else {
        draw_pair(f, (hl_point){ box.x, box.y });
    }
    draw_strip(f, (hl_point){ box.x, box.y + above + PART_GAP });
}

static void free_figure(compare_figure *f)
{
    for (int i = 0; i < 3; i++)
        hl_free(f->values[i]);
    hl_free(f->significant);
}

hl_status hl_figure_comparison(hl_figure *figure, const hl_compared sides[2],
                               const hl_comparison *found)
{
    HL_SCOPED(free_figure)
    compare_figure f = { .figure   = figure,
                         .sides    = sides,
                         .found    = found,
                         .n_layers = hl_profile_n_layers(sides[0].profile),
                         .n_heads  = hl_profile_n_heads(sides[0].profile) };

    HL_NEED(check_sides(sides));
    figure->named = sides[0].profile;
    HL_NEED(read_values(&f));
    draw(&f);
    return HL_OK;
}

double hl_comparison_width(const hl_compared *side)
{
    double n_heads = side->patterns != NULL ? (double)side->patterns->n_heads : 0.0;
    double beside = 2.0 * BESIDE_STEP * n_heads + 48.0, below = BELOW_STEP * n_heads + 32.0;

    return fmin(fmax(beside <= WIDEST_BESIDE ? beside : below, 480.0), 2000.0);
}

hl_status hl_draw_comparison(const hl_compared *a, const hl_compared *b, const hl_comparison *found,
                             const char *path, const hl_draw_options *options)
{
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas   = NULL;
    const hl_compared                     sides[2] = { *a, *b };
    hl_draw_options wide = options != NULL ? *options : (hl_draw_options){ 0 };
    hl_figure       figure;

    if (wide.width == 0.0)
        wide.width = hl_comparison_width(a);
    HL_NEED(hl_figure_canvas(&canvas, path, &wide));
    HL_NEED(hl_figure_open(&figure, canvas, "Attention of two models", &wide));
    figure.key = "normalized";
    HL_NEED(hl_figure_comparison(&figure, sides, found));
    return hl_canvas_write(canvas, path);
}
