/* token_panel.c - drawing one token map. */
#include "render/token_panel.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define LABEL_GAP  4.0
#define LABEL_LINE 1.3 /* how far apart they are at least, in sizes: 5.5 points are the least */
/* Above so many cells, SVG tells no values: they are too small to be pointed at. */
#define MOST_TITLES 4096

enum { LABEL_BYTES = 160, TITLE_BYTES = 32 };

/* ---------------------------------------------------------------------------- labels */

/* Is the character a part of the one before it: a mark, a joiner, a skin tone? */
static bool continues(const char *text)
{
    size_t   at = 0;
    uint32_t c  = hl_utf8_length(text, strlen(text)) > 0 ? hl_utf8_next(text, &at) : 0;

    return (c >= 0x300 && c <= 0x36f) || c == 0x200c || c == 0x200d ||
           (c >= 0xfe00 && c <= 0xfe0f) || (c >= 0x1f3fb && c <= 0x1f3ff);
}

/* Where the last character begins. */
static size_t step_back(const char *text, size_t length)
{
    do {
        length--;
        while (length > 0 && hl_utf8_is_continuation(text[length]))
            length--;
    } while (length > 0 && continues(text + length));
    return length;
}

void hl_figure_shorten(const hl_figure *figure, char *text, size_t n_bytes, double width,
                       const hl_text_style *style)
{
    static const char ellipsis[] = "\u2026";
    size_t            length     = strlen(text);

    if (length + sizeof ellipsis > n_bytes)
        length = step_back(text, n_bytes - sizeof ellipsis + 1);
    else if (hl_canvas_text_width(figure->canvas, text, style) <= width)
        return;
    do {
        length = length > 0 ? step_back(text, length) : 0;
        memcpy(text + length, ellipsis, sizeof ellipsis);
    } while (length > 0 && hl_canvas_text_width(figure->canvas, text, style) > width);
}

const char *hl_figure_copy(char *out, size_t n_bytes, const char *text)
{
    snprintf(out, n_bytes, "%s", text);
    out[strlen(out) - hl_utf8_incomplete(out, strlen(out))] = '\0';
    return out;
}

int64_t hl_panel_label_every(double cell)
{
    return hl_label_every(cell, HL_PANEL_LABEL_PITCH);
}

static hl_text_style label_style(const hl_token_panel *panel, double cell, bool is_marked)
{
    hl_text_style style = hl_figure_small(panel->figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    double        room  = cell * (double)hl_panel_label_every(cell) / LABEL_LINE;

    style.size = fmin(HL_TEXT_SMALL, room);
    if (is_marked) {
        style.bold   = true;
        style.colour = panel->figure->theme->series[3];
    }
    return style;
}

/* A token where each has its label; with its place where not; the place alone where several
 * tokens share a cell. */
static void label_of(char out[LABEL_BYTES], const hl_token_panel *panel, int64_t cell,
                     int64_t every, const hl_text_style *style)
{
    int64_t     token = hl_token_cells_token(panel->cells, cell);
    const char *text  = panel->cells->view->tokens[token].text;

    if (panel->cells->bin > 1)
        snprintf(out, LABEL_BYTES, "%lld", (long long)token);
    else if (every > 1)
        snprintf(out, LABEL_BYTES, "%lld %s", (long long)token, text);
    else
        snprintf(out, LABEL_BYTES, "%s", text);
    hl_figure_shorten(panel->figure, out, LABEL_BYTES, panel->label_most, style);
}

static bool is_marked(const hl_token_panel *panel, int64_t cell)
{
    int64_t token = hl_token_cells_token(panel->cells, cell);

    return panel->cells->bin == 1 && panel->cells->view->tokens[token].is_marked;
}

double hl_panel_label_room(const hl_token_panel *panel, double cell)
{
    int64_t every  = hl_panel_label_every(cell);
    double  widest = 0.0;
    char    room[LABEL_BYTES];

    for (int64_t i = 0; i < panel->cells->n; i += every) {
        hl_text_style style = label_style(panel, cell, is_marked(panel, i));
        label_of(room, panel, i, every, &style);
        widest = fmax(widest, hl_canvas_text_width(panel->figure->canvas, room, &style));
    }
    return widest + LABEL_GAP;
}

static double cell_size(const hl_token_panel *panel)
{
    return panel->box.width / (double)panel->cells->n;
}

void hl_panel_row_labels(const hl_token_panel *panel)
{
    double  cell  = cell_size(panel);
    int64_t every = hl_panel_label_every(cell);
    char    room[LABEL_BYTES];

    for (int64_t i = 0; i < panel->cells->n; i += every) {
        hl_text_style style = label_style(panel, cell, is_marked(panel, i));
        label_of(room, panel, i, every, &style);
        hl_canvas_text(
            panel->figure->canvas,
            (hl_point){ panel->box.x - LABEL_GAP, panel->box.y + ((double)i + 0.5) * cell }, room,
            &style);
    }
}

void hl_panel_column_labels(const hl_token_panel *panel, bool above)
{
    double  cell  = cell_size(panel);
    int64_t every = hl_panel_label_every(cell);
    double  y     = above ? panel->box.y - LABEL_GAP : panel->box.y + panel->box.height + LABEL_GAP;
    char    room[LABEL_BYTES];

    for (int64_t i = 0; i < panel->cells->n; i += every) {
        hl_text_style style = label_style(panel, cell, is_marked(panel, i));
        style.degrees       = 90.0;
        style.anchor        = above ? HL_ANCHOR_START : HL_ANCHOR_END;
        label_of(room, panel, i, every, &style);
        hl_canvas_text(panel->figure->canvas,
                       (hl_point){ panel->box.x + ((double)i + 0.5) * cell, y }, room, &style);
    }
}

/* ----------------------------------------------------------------------------- cells */

static void name_cell(char *out, size_t n_bytes, const hl_token_cells *cells, int64_t cell)
{
    int64_t token = hl_token_cells_token(cells, cell);
    char    text[TITLE_BYTES];

    if (cells->bin == 1)
        snprintf(out, n_bytes, "%lld %s", (long long)token,
                 hl_figure_copy(text, sizeof text, cells->view->tokens[token].text));
    else
        snprintf(out, n_bytes, "%lld\u2026", (long long)token);
}

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const hl_token_cells *cells = context;
    char                  who[64], whom[64];

    name_cell(who, sizeof who, cells, down);
    name_cell(whom, sizeof whom, cells, across);
    snprintf(out, n_bytes, "%s \u2192 %s: %.3f", who, whom, hl_token_cells_at(cells, down, across));
}

static void strip_title(char *out, size_t n_bytes, const void *context, int64_t across,
                        int64_t down)
{
    const hl_token_cells *cells = context;
    char                  who[64];

    (void)across;
    name_cell(who, sizeof who, cells, down);
    snprintf(out, n_bytes, "%s: %.3f nats", who, cells->entropy[down]);
}

/* What is not a number is not a shade either: it is crossed out. */
static void hatch_missing(const hl_token_panel *panel, const hl_cell_grid *grid, bool *missing)
{
    hl_stroke hatch = { panel->figure->theme->hatch, 0.6, 0.0 };

    for (int64_t i = 0; i < grid->n_across * grid->n_down; i++) {
        if (!missing[i])
            continue;
        hl_box box = hl_cell_box(grid, i % grid->n_across, i / grid->n_across);
        hl_canvas_begin(panel->figure->canvas, "not a number");
        hl_canvas_hatch(panel->figure->canvas, box, fmin(3.0, box.height / 2.0), &hatch);
        hl_canvas_end(panel->figure->canvas);
    }
}

static double gap_of(double cell)
{
    return cell >= 6.0 ? fmin(1.0, cell * 0.06) : 0.0;
}

static void draw_map(const hl_token_panel *panel, hl_colour *colours, bool *drawn, bool *missing)
{
    const hl_token_cells *cells = panel->cells;
    int64_t               n     = cells->n;
    hl_cell_grid grid = { panel->box, n, n, gap_of(cell_size(panel)), colours, drawn, NULL, cells };

    for (int64_t i = 0; i < n * n; i++) {
        double value = cells->values[i];
        bool   seen  = hl_token_cells_has(cells, i / n, i % n);

        drawn[i]   = seen && !isnan(value);
        missing[i] = seen && isnan(value);
        colours[i] = drawn[i] ? hl_map_colour(hl_figure_blues(panel->figure),
                                              hl_attention_share(panel->scale, value))
                              : (hl_colour){ 0 };
    }
    if (n * n <= MOST_TITLES)
        grid.title = cell_title;
    hl_canvas_cells(panel->figure->canvas, &grid);
    hatch_missing(panel, &grid, missing);
}

static void draw_strip(const hl_token_panel *panel, hl_colour *colours, bool *drawn, bool *missing)
{
    const hl_token_cells *cells = panel->cells;
    double                gap   = gap_of(cell_size(panel));
    /* The gap of cells is on all sides: wider by it, the strip has none at its own. */
    hl_box       box   = { panel->box.x + panel->box.width + HL_STRIP_GAP - gap / 2.0, panel->box.y,
                           panel->strip + gap, panel->box.height };
    hl_cell_grid grid  = { box, 1, cells->n, gap, colours, drawn, strip_title, cells };
    hl_stroke    frame = { panel->figure->theme->axis, 0.5, 0.0 }; /* the map's middle is pale */

    for (int64_t i = 0; i < cells->n; i++) {
        double value = cells->entropy[i];
        drawn[i]     = !isnan(value);
        missing[i]   = !drawn[i];
        colours[i]   = drawn[i]
                           ? hl_map_colour(HL_MAP_DIFFERENCE, hl_axis_share(panel->entropy, value))
                           : (hl_colour){ 0 };
    }
    hl_canvas_cells(panel->figure->canvas, &grid);
    hatch_missing(panel, &grid, missing);
    hl_canvas_outline(panel->figure->canvas,
                      (hl_box){ box.x + gap / 2.0, box.y, panel->strip, box.height }, &frame);
}

/* The corner that no token can see is left open: a causal map is outlined as a triangle. */
static void outline(const hl_token_panel *panel)
{
    hl_stroke      stroke   = { panel->figure->theme->axis, 0.5, 0.0 };
    hl_box         box      = panel->box;
    const hl_point corner[] = { { box.x, box.y },
                                { box.x, box.y + box.height },
                                { box.x + box.width, box.y + box.height } };

    if (panel->cells->view->is_causal)
        hl_canvas_polyline(panel->figure->canvas, corner, 3, &stroke);
    else
        hl_canvas_outline(panel->figure->canvas, box, &stroke);
}

hl_status hl_panel_draw(const hl_token_panel *panel)
{
    hl_status  status  = HL_OK;
    size_t     size    = (size_t)(panel->cells->n * panel->cells->n);
    hl_colour *colours = NULL;
    bool      *drawn   = NULL;
    bool      *missing = NULL;

    HL_TRY(HL_ALLOC(&colours, size));
    HL_TRY(HL_ALLOC(&drawn, size));
    HL_TRY(HL_ALLOC(&missing, size));
    draw_map(panel, colours, drawn, missing);
    if (panel->strip > 0.0)
        draw_strip(panel, colours, drawn, missing);
    outline(panel);

done:
    hl_free(colours);
    hl_free(drawn);
    hl_free(missing);
    return status;
}
