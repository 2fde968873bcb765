/* map_block.c - small maps of attention, one a head. */
#include "render/map_block.h"

#include <math.h>
#include <stdio.h>

#include "analysis/grid.h"
#include "base/memory.h"
#include "base/status.h"

#define BLOCK_TITLE 16.0
#define NAME_SIZE   5.5
#define NAME_HEIGHT 7.5
#define LINE_HEIGHT 6.5
#define MAP_GAP     4.0
#define WORD_GAP    3.0

/* So many shades: neighbours in a row often have the same one, and SVG needs fewer strokes. */
enum { N_SHADES = 16 };

/* --------------------------------------------------------------------------- metrics */

static const struct {
    const char *name;
    const char *widest;
    const char *meaning;
} metrics[HL_BLOCK_METRICS] = {
    { "H", "H 0.00", "H mean entropy (nats)" },
    { "D0", "D0 .00", "D0 mean weight of a token on itself" },
    { "sink", "sink .00", "sink that on the first token" },
    { "peak", "peak .00", "peak the mean of the rows' largest" },
};

static double metric_of(const hl_profile *profile, int64_t layer, int64_t head, int metric)
{
    switch (metric) {
    case 0:
        return hl_profile_mean(profile, layer, head, HL_Q_ENTROPY);
    case 1:
        return hl_profile_pattern(profile, layer, head, HL_PM_DIAGONAL, false).mean;
    case 2:
        return hl_profile_pattern(profile, layer, head, HL_PM_SINK, false).mean;
    default:
        return hl_profile_mean(profile, layer, head, HL_Q_PEAK);
    }
}

/* "H 1.23", "D0 .45", "sink 1"; a dash for what was not measured. */
static void write_metric(char *out, size_t n_bytes, int metric, double value)
{
    char number[HL_NUMBER_BYTES] = "\u2013";

    if (!isnan(value))
        snprintf(number, sizeof number, "%.2f", value);
    /* Shares lose their zero: "0.45" is ".45"; what rounds to 1 is "1". */
    const char *from = number;
    if (metric > 0 && number[0] == '0')
        from = number + 1;
    if (metric > 0 && number[0] == '1')
        number[1] = '\0';
    snprintf(out, n_bytes, "%s %s", metrics[metric].name, from);
}

/* ---------------------------------------------------------------------------- layout */

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

/* As many metrics as fit, line after line. */
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

static bool names_fit(const hl_map_block *block)
{
    hl_text_style style = name_style(block->figure);
    char          name[HL_HEAD_NAME_BYTES];

    hl_head_name(name, hl_profile_n_layers(block->side->profile) - 1,
                 hl_profile_n_heads(block->side->profile) - 1);
    return hl_canvas_text_width(block->figure->canvas, name, &style) < block->step - 1.0;
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

    *out       = (hl_map_block){ .figure = figure, .side = side };
    out->step  = fmin((width + MAP_GAP) / (double)n_heads, 90.0);
    out->map   = fmax(out->step - MAP_GAP, 0.75 * out->step);
    out->named = names_fit(out);
    plan_lines(out);
    for (int line = 0; line < HL_BLOCK_LINES; line++)
        n_lines += out->lines[line] > 0;
    out->down   = name_height(out) + out->map + LINE_HEIGHT * n_lines + (out->step - out->map);
    out->height = BLOCK_TITLE + out->down * (double)n_layers;
}

void hl_map_block_legend(char *out, size_t n_bytes, const hl_map_block *block)
{
    int    n_shown = block->lines[0] + block->lines[1];
    size_t used    = 0;

    snprintf(out, n_bytes, "Rows of maps are layers, columns heads%s.",
             block->named ? "; metrics have no room at this width"
                          : "; names and metrics have no room at this width");
    for (int i = 0; i < n_shown && used < n_bytes; i++) {
        int added = snprintf(out + used, n_bytes - used, "%s%s", i == 0 ? "Under each map: " : ", ",
                             metrics[i].meaning);
        used += added > 0 ? (size_t)added : 0;
    }
    if (n_shown > 0 && used < n_bytes)
        snprintf(out + used, n_bytes - used, "%s, of all measured tokens.",
                 n_shown < HL_BLOCK_METRICS ? "; more has no room at this width" : "");
}

/* --------------------------------------------------------------------------- drawing */

static hl_colour shade_of(const hl_figure *figure, double weight)
{
    return hl_map_colour(hl_figure_blues(figure), floor(sqrt(weight) * N_SHADES + 0.5) / N_SHADES);
}

/* What is as good as nothing is left as the ground. */
static void shade_map(hl_colour *colours, bool *drawn, const hl_figure *figure, const float *values,
                      int64_t n_cells)
{
    hl_colour ground = shade_of(figure, 0.0);

    for (int64_t i = 0; i < n_cells; i++) {
        colours[i] = shade_of(figure, isnan(values[i]) ? 0.0 : (double)values[i]);
        drawn[i]   = colours[i].red != ground.red || colours[i].blue != ground.blue;
    }
}

static void draw_metrics(const hl_map_block *block, int64_t layer, int64_t head, hl_point at)
{
    hl_text_style style = name_style(block->figure);
    int           next  = 0;
    char          text[HL_NUMBER_BYTES];

    for (int line = 0; line < HL_BLOCK_LINES; line++) {
        double x = at.x;
        for (int i = 0; i < block->lines[line]; i++, next++) {
            write_metric(text, sizeof text, next,
                         metric_of(block->side->profile, layer, head, next));
            hl_canvas_text(block->figure->canvas,
                           (hl_point){ x, at.y + LINE_HEIGHT * (line + 1.0) - 0.5 }, text, &style);
            x += metric_width(block->figure, next) + WORD_GAP;
        }
    }
}

static void write_title(char *out, size_t n_bytes, const hl_map_block *block, int64_t layer,
                        int64_t head)
{
    char name[HL_HEAD_NAME_BYTES], text[HL_NUMBER_BYTES];
    int  used = snprintf(out, n_bytes, "%s %s", block->side->name, hl_head_name(name, layer, head));

    for (int i = 0; i < HL_BLOCK_METRICS && used >= 0 && (size_t)used < n_bytes; i++) {
        write_metric(text, sizeof text, i, metric_of(block->side->profile, layer, head, i));
        used += snprintf(out + used, n_bytes - (size_t)used, ", %s", text);
    }
}

static void draw_map(const hl_map_block *block, int64_t layer, int64_t head, hl_point at,
                     const hl_cell_grid *cells)
{
    hl_canvas    *canvas = block->figure->canvas;
    hl_stroke     frame  = { block->figure->theme->grid, 0.4, 0.0 };
    hl_text_style style  = name_style(block->figure);
    hl_cell_grid  grid   = *cells;
    char          name[HL_HEAD_NAME_BYTES], title[256];

    write_title(title, sizeof title, block, layer, head);
    style.colour = block->figure->theme->text;
    if (block->named)
        hl_canvas_text(canvas, (hl_point){ at.x, at.y + NAME_HEIGHT - 2.0 },
                       hl_head_name(name, layer, head), &style);
    grid.box = (hl_box){ at.x, at.y + name_height(block), block->map, block->map };
    hl_canvas_begin(canvas, title);
    hl_canvas_rectangle(canvas, grid.box, shade_of(block->figure, 0.0));
    hl_canvas_cells(canvas, &grid);
    hl_canvas_outline(canvas, grid.box, &frame);
    hl_canvas_end(canvas);
    draw_metrics(block, layer, head, (hl_point){ at.x, grid.box.y + block->map });
}

static void draw_name(const hl_map_block *block, hl_point at)
{
    hl_text_style style = hl_figure_normal(block->figure, HL_ANCHOR_START, HL_STAND_TOP);

    style.bold   = true;
    double width = hl_canvas_text_width(block->figure->canvas, block->side->name, &style);
    double room  = 0.6 * hl_figure_inner_width(block->figure);
    if (width > room)
        style.size *= room / width;
    hl_canvas_text(block->figure->canvas, at, block->side->name, &style);
}

hl_status hl_map_block_draw(const hl_map_block *block, hl_point at)
{
    hl_status          status   = HL_OK;
    const hl_patterns *patterns = block->side->patterns;
    int64_t            n_cells  = patterns->n_tokens * patterns->n_tokens;
    hl_colour         *colours  = NULL;
    bool              *drawn    = NULL;

    HL_TRY(HL_ALLOC(&colours, (size_t)n_cells));
    HL_TRY(HL_ALLOC(&drawn, (size_t)n_cells));
    hl_cell_grid cells = { .n_across = patterns->n_tokens,
                           .n_down   = patterns->n_tokens,
                           .colours  = colours,
                           .drawn    = drawn };
    draw_name(block, at);
    HL_EACH_HEAD(block->side->profile, layer, head)
    {
        hl_point corner = { at.x + block->step * (double)head,
                            at.y + BLOCK_TITLE + block->down * (double)layer };
        shade_map(colours, drawn, block->figure,
                  patterns->values + (layer * patterns->n_heads + head) * n_cells, n_cells);
        draw_map(block, layer, head, corner, &cells);
    }

done:
    hl_free(colours);
    hl_free(drawn);
    return status;
}

void hl_map_block_key(hl_figure *figure, hl_point right)
{
    hl_text_style style = hl_figure_small(figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    hl_colour     colours[N_SHADES];
    hl_cell_grid  ramp = { .box      = { right.x - 80.0, right.y, 72.0, 7.0 },
                           .n_across = N_SHADES,
                           .n_down   = 1,
                           .colours  = colours };

    for (int i = 0; i < N_SHADES; i++)
        colours[i] = hl_map_colour(hl_figure_blues(figure), (double)i / (N_SHADES - 1));
    hl_canvas_cells(figure->canvas, &ramp);
    hl_canvas_text(figure->canvas, (hl_point){ right.x, right.y + 3.5 }, "1", &style);
    hl_canvas_text(figure->canvas, (hl_point){ right.x - 84.0, right.y + 3.5 }, "attention 0",
                   &style);
}
