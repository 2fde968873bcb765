/* figure_compare.c - two models side by side.
 *
 *     A  [] [] [] []     with patterns: a map a head         |      A      |      B      |#
 *        [] [] [] []     without: the entropies as           | ####  ##    | ####  ##    |#
 *     B  [] [] [] []     heatmaps  ----------------------->  | ## ####     | ## ####     |#
 *        [] [] [] []
 *     differences of every layer with intervals | metric  A  B  B - A
 *     and of every head, with a dot where the   | ...
 *     bootstrap says that it is one             | ...                                    */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/grid.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/chart.h"
#include "render/map_block.h"

#define PART_GAP      14.0
#define HEADING       16.0
#define LAYERS_HEIGHT 40.0
#define LAYERS_GAP    8.0
#define TABLE_LINE    10.5
#define TABLE_WIDTH   150.0
#define BAR_GAP       8.0
#define KEY_HEIGHT    12.0 /* above maps that stand side by side */
#define BESIDE_STEP   38.0 /* from one map to the next, at least: two metrics a line */
#define BELOW_STEP    36.0
#define WIDEST_BESIDE 700.0

typedef struct compare_figure {
    hl_figure           *figure;
    const hl_compared   *sides; /* (2) */
    const hl_comparison *found;
    int64_t              n_layers;
    int64_t              n_heads;
    double              *values[3];   /* (n_layers, n_heads) normalised entropy of A, B; B - A */
    bool                *significant; /* (n_layers, n_heads) */
    hl_colour           *colours;     /* (n_heads, n_layers) */
    bool                *drawn;
    hl_axis              scale;      /* of entropy */
    hl_axis              difference; /* as far below 0 as above */
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
        return hl_fail(HL_BAD_ARGUMENT, "there are patterns of one model only");
    if (a == NULL)
        return HL_OK;
    if (a->n_layers != hl_profile_n_layers(sides[0].profile) || a->n_layers != b->n_layers ||
        a->n_heads != hl_profile_n_heads(sides[0].profile) || a->n_heads != b->n_heads)
        return hl_fail(HL_BAD_ARGUMENT, "the patterns are not of the profiles' models");
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

/* What the bootstrap says of every head. */
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
        HL_NEED(hl_grid_means(&f->values[i], f->sides[i].profile, HL_Q_FAIR));
    HL_NEED(HL_ALLOC(&f->values[2], size));
    HL_NEED(HL_ALLOC(&f->significant, size));
    HL_NEED(HL_ALLOC(&f->colours, size));
    HL_NEED(HL_ALLOC(&f->drawn, size));
    read_heads(f);
    for (size_t i = 0; i < size; i++)
        most = fmax(most, fabs(f->values[2][i])); /* passes NaN over */
    f->scale      = hl_axis_around(0.0, 1.0, 5);
    f->difference = hl_axis_around(-fmax(most, 1e-3), fmax(most, 1e-3), 4);
    return HL_OK;
}

/* --------------------------------------------------------------------------- heatmaps */

typedef struct panel {
    const compare_figure *f;
    const double         *values;
    const char           *what; /* for titles */
} panel;

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const panel *p     = context;
    int64_t      head  = p->f->n_heads - 1 - down;
    double       value = p->values[across * p->f->n_heads + head];
    char         name[HL_HEAD_NAME_BYTES];

    snprintf(out, n_bytes, "%s %s%.3f", hl_head_name(name, across, head), p->what, value);
}

static double panel_height(const compare_figure *f, double width)
{
    return fmin(fmax(width / (double)f->n_layers * (double)f->n_heads, 60.0), fmax(width, 60.0));
}

/* Layers across, heads up, as in the heatmap. */
static void draw_panel(compare_figure *f, const panel *p, hl_box box, hl_map map,
                       const hl_axis *axis)
{
    hl_cell_grid grid  = { box, f->n_layers, f->n_heads, 0.0, f->colours, f->drawn, cell_title, p };
    hl_stroke    frame = hl_figure_axis_stroke(f->figure);

    for (int64_t i = 0; i < f->n_layers * f->n_heads; i++) {
        int64_t layer = i % f->n_layers, head = f->n_heads - 1 - i / f->n_layers;
        double  value = p->values[layer * f->n_heads + head];
        f->drawn[i]   = !isnan(value);
        f->colours[i] = hl_map_colour(map, f->drawn[i] ? hl_axis_share(axis, value) : 0.0);
    }
    hl_canvas_cells(f->figure->canvas, &grid);
    hl_canvas_outline(f->figure->canvas, box, &frame);
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
            hl_canvas_mark(f->figure->canvas, at, HL_MARK_CIRCLE, radius,
                           (hl_colour){ 28, 30, 36 });
    }
}

static void heading(const compare_figure *f, hl_point at, const char *text, double room)
{
    hl_text_style style = hl_figure_normal(f->figure, HL_ANCHOR_START, HL_STAND_TOP);

    style.bold   = true;
    double width = hl_canvas_text_width(f->figure->canvas, text, &style);
    if (width > room)
        style.size *= room / width;
    hl_canvas_text(f->figure->canvas, at, text, &style);
}

/* ------------------------------------------------------- A and B without patterns */

/* Of one of the two heatmaps. */
static double pair_width(const compare_figure *f)
{
    double used = hl_figure_indices_width(f->figure, f->n_heads, NULL) + PART_GAP + BAR_GAP +
                  hl_figure_colour_bar_width(f->figure, &f->scale);

    return fmin((hl_figure_inner_width(f->figure) - used) / 2.0, 40.0 * (double)f->n_layers);
}

static double pair_height(const compare_figure *f)
{
    return HEADING + panel_height(f, pair_width(f)) + HL_INDICES_HEIGHT;
}

static void draw_pair(compare_figure *f, hl_point at)
{
    double width  = pair_width(f);
    double height = panel_height(f, width);
    double left   = at.x + hl_figure_indices_width(f->figure, f->n_heads, NULL);

    for (int i = 0; i < 2; i++) {
        panel  p   = { f, f->values[i], i == 0 ? "A " : "B " };
        hl_box box = { left + i * (width + PART_GAP), at.y + HEADING, width, height };
        draw_panel(f, &p, box, HL_MAP_ENTROPY, &f->scale);
        heading(f, (hl_point){ box.x, at.y }, f->sides[i].name, width);
        hl_figure_indices_across(f->figure, box, f->n_layers, "Layer");
        if (i == 0)
            hl_figure_indices_up(f->figure, box, f->n_heads, NULL, "Head");
    }
    hl_figure_colour_bar(f->figure,
                         (hl_box){ left + 2.0 * width + PART_GAP + BAR_GAP, at.y + HEADING, 0.0,
                                   fmin(height, 150.0) },
                         HL_MAP_ENTROPY, &f->scale, "Normalised entropy");
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
                  hl_figure_colour_bar_width(f->figure, &f->difference) +
                  (is_narrow(f) ? 0.0 : PART_GAP + TABLE_WIDTH);

    return fmin(hl_figure_inner_width(f->figure) - used, 20.0 * (double)f->n_layers);
}

static const struct {
    const char *row; /* of the comparison's metrics */
    const char *name;
} table[] = {
    { "entropy", "entropy (nats)" },
    { "fair", "normalised" },
    { "nosink", "without key 0 (nats)" },
    { "peak", "peak" },
    { "diagonal", "diagonal D0" },
    { "previous_sampled", "previous D1" },
    { "band", "band of 4" },
    { "sink", "sink" },
    { "diagonal_top", "diagonal is top" },
    { "content", "content" },
    { "edges", "edges kept" },
    { "k90", "keys for 90%" },
};
enum { N_TABLE = sizeof table / sizeof *table };

static double differences_height(const compare_figure *f)
{
    return HEADING + LAYERS_HEIGHT + LAYERS_GAP + panel_height(f, strip_width(f)) +
           HL_INDICES_HEIGHT;
}

static double strip_height(const compare_figure *f)
{
    double maps = differences_height(f), numbers = TABLE_LINE * (N_TABLE + 1);

    return is_narrow(f) ? maps + PART_GAP + numbers : fmax(maps, numbers);
}

/* A dot for every layer's difference, and a line as long as its interval. */
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
                           fmin(1.8, 0.3 * box.width / (double)f->n_layers), line.colour);
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
        style.colour = f->figure->theme->text;
    hl_canvas_text(f->figure->canvas, (hl_point){ right, y }, text, &style);
}

/* Means over heads. */
static void draw_table(const compare_figure *f, hl_point at)
{
    static const char *const heads[] = { "A", "B", "B \u2212 A" };
    const hl_sheet          *sheet   = f->found->metrics;
    hl_text_style            name    = hl_figure_small(f->figure, HL_ANCHOR_START, HL_STAND_TOP);
    hl_text_style            head    = hl_figure_small(f->figure, HL_ANCHOR_END, HL_STAND_TOP);
    const double             right[] = { at.x + 96.0, at.x + 121.0, at.x + TABLE_WIDTH };

    head.bold = true;
    for (int i = 0; i < 3; i++)
        hl_canvas_text(f->figure->canvas, (hl_point){ right[i], at.y }, heads[i], &head);
    for (int i = 0; i < N_TABLE; i++) {
        double y = at.y + TABLE_LINE * (i + 1);
        hl_canvas_text(f->figure->canvas, (hl_point){ at.x, y }, table[i].name, &name);
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
    panel  p      = { f, f->values[2], "B \u2212 A " };
    hl_box box    = { left, top + LAYERS_HEIGHT + LAYERS_GAP, width, height };
    double bar    = left + width + BAR_GAP;
    char   text[128];

    snprintf(text, sizeof text, "B \u2212 A: %lld of %lld heads differ",
             (long long)f->found->n_significant, (long long)f->found->n_heads);
    heading(f, (hl_point){ left, at.y }, text, width);
    draw_layers(f, (hl_box){ left, top, width, LAYERS_HEIGHT });
    draw_panel(f, &p, box, HL_MAP_DIFFERENCE, &f->difference);
    draw_significant(f, box);
    hl_figure_indices_across(f->figure, box, f->n_layers, "Layer");
    hl_figure_indices_up(f->figure, box, f->n_heads, NULL, "Head");
    hl_figure_colour_bar(f->figure, (hl_box){ bar, box.y, 0.0, fmin(height, 150.0) },
                         HL_MAP_DIFFERENCE, &f->difference, "");
    if (is_narrow(f))
        draw_table(f, (hl_point){ at.x, at.y + differences_height(f) + PART_GAP });
    else
        draw_table(
            f, (hl_point){ bar + hl_figure_colour_bar_width(f->figure, &f->difference) + PART_GAP,
                           at.y });
}

/* ------------------------------------------------------------------------- the figure */

static void describe(char *out, size_t n_bytes, const compare_figure *f)
{
    bool        mapped      = f->sides[0].patterns != NULL;
    char        legend[320] = "";
    char        maps[512]   = "Normalised entropy of A and B.";
    const char *test        = f->found->kind == HL_COMPARE_SAME_TOKENS ? "sequences drawn in pairs"
                                                                       : "the two drawn apart";

    if (mapped) {
        hl_map_block_legend(legend, sizeof legend, &f->blocks[0]);
        snprintf(maps, sizeof maps,
                 "Attention of every head on %lld tokens, the same for both: rows look, columns "
                 "are looked at; the %s, the more, by the root of the weight. %s",
                 (long long)f->sides[0].patterns->n_tokens, hl_figure_more(f->figure), legend);
    }
    snprintf(
        out, n_bytes,
        "%s Below, the difference of normalised entropy of layers, with 95%% intervals, and "
        "of heads: a dot where it is one (bootstrap, %s; false discovery under 5%%). The table has "
        "means over all heads. n\u00a0=\u00a0%lld and %lld tokens, %lld windows in "
        "common.",
        maps, test, (long long)hl_profile_n_tokens(f->sides[0].profile),
        (long long)hl_profile_n_tokens(f->sides[1].profile), (long long)f->found->n_shared);
}

/* Side by side where the maps are then wide enough, or else one below the other. */
static bool are_beside(const compare_figure *f)
{
    return hl_figure_inner_width(f->figure) >= 2.0 * BESIDE_STEP * (double)f->n_heads + PART_GAP;
}

/* Returns how high the maps are together. */
static double plan_maps(compare_figure *f)
{
    double inner = hl_figure_inner_width(f->figure);
    double width = are_beside(f) ? (inner - PART_GAP) / 2.0 : inner;

    for (int i = 0; i < 2; i++)
        hl_map_block_plan(&f->blocks[i], f->figure, &f->sides[i], width);
    return are_beside(f) ? KEY_HEIGHT + f->blocks[0].height
                         : 2.0 * f->blocks[0].height + PART_GAP / 2.0;
}

static hl_status draw_maps(const compare_figure *f, hl_box box)
{
    double   down   = are_beside(f) ? KEY_HEIGHT : 0.0;
    hl_point first  = { box.x, box.y + down };
    hl_point second = are_beside(f)
                          ? (hl_point){ box.x + (box.width + PART_GAP) / 2.0, first.y }
                          : (hl_point){ box.x, first.y + f->blocks[0].height + PART_GAP / 2.0 };

    HL_NEED(hl_map_block_draw(&f->blocks[0], first));
    HL_NEED(hl_map_block_draw(&f->blocks[1], second));
    hl_map_block_key(f->figure, (hl_point){ box.x + box.width, box.y });
    return HL_OK;
}

static hl_status draw(compare_figure *f)
{
    bool   mapped = f->sides[0].patterns != NULL;
    double above  = mapped ? plan_maps(f) : pair_height(f);
    char   what[1024];

    describe(what, sizeof what, f);
    hl_box box = hl_figure_begin(f->figure, above + PART_GAP + strip_height(f), what);
    if (mapped)
        HL_NEED(draw_maps(f, box));
    else
        draw_pair(f, (hl_point){ box.x, box.y });
    draw_strip(f, (hl_point){ box.x, box.y + above + PART_GAP });
    return HL_OK;
}

hl_status hl_figure_comparison(hl_figure *figure, const hl_compared sides[2],
                               const hl_comparison *found)
{
    hl_status      status = HL_OK;
    compare_figure f      = { .figure = figure, .sides = sides, .found = found };

    HL_TRY(check_sides(sides));
    f.n_layers = hl_profile_n_layers(sides[0].profile);
    f.n_heads  = hl_profile_n_heads(sides[0].profile);
    HL_TRY(read_values(&f));
    HL_TRY(draw(&f));

done:
    for (int i = 0; i < 3; i++)
        hl_free(f.values[i]);
    hl_free(f.significant);
    hl_free(f.colours);
    hl_free(f.drawn);
    return status;
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
    hl_status         status   = HL_OK;
    hl_canvas        *canvas   = NULL;
    const hl_compared sides[2] = { *a, *b };
    hl_draw_options   wide     = options != NULL ? *options : (hl_draw_options){ 0 };
    hl_figure         figure;

    if (wide.width == 0.0)
        wide.width = hl_comparison_width(a);
    HL_TRY(hl_figure_canvas(&canvas, path, &wide));
    HL_TRY(hl_figure_open(&figure, canvas, "Attention of two models", &wide));
    HL_TRY(hl_figure_comparison(&figure, sides, found));
    HL_TRY(hl_canvas_write(canvas, path));

done:
    hl_canvas_close(canvas);
    return status;
}
