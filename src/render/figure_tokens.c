/* figure_tokens.c - one prompt, with the attention of one head or of several.
 *
 *          key token                  Each row is a token that attends, each column a
 *          c o l u m n s              token that is attended to.  The strip shows the
 *       r  +----------+ #  | 1        entropy of each row, blue if it is low and red if
 *       o  |#         | #  | 0.5      it is high.  Below are the zoomed tokens, with
 *       w  |##        | #  | 0        lines from their place in the map, and the insets:
 *       s  |# #\_     | #             other heads, side by side.
 *          |#   ##\_  | #  | 3
 *          +---/---\--+ #  | 0
 *             /      \
 *          +--+  L0H1  L3H5 ...
 *          +--+  +---+ +---+ */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/token_cells.h"

/* Limits in each direction: smaller cells could not be distinguished on a page. */
enum { MOST_CELLS = 256, MOST_INSET_CELLS = 128, CAPTION_BYTES = 1024 };

#define NAME_ROOM   13.0 /* space for the name of an axis */
#define STRIP       8.0
#define LEGEND_GAP  18.0
#define CELL_MOST   26.0
#define MAP_LEAST   72.0
#define BARS_LEAST  150.0 /* height of two color bars, one above the other */
#define BARS_MOST   330.0
#define BAR_LABELS  14.0 /* distance from the left of a bar to its labels */
#define BAR_GAP     22.0
#define BELOW       26.0 /* space between the map and the parts below it */
#define ZOOM_GAP    24.0
#define SLACK       4.0 /* how much longer labels may get if that makes the map larger */
#define INSET_GAP   14.0
#define INSET_STRIP 3.0
#define INSET_NAME  12.0
#define INSET_LEAST 78.0
#define INSET_MOST  140.0

/* -------------------------------------------------------------------------- a map */

/* One token map on a canvas: cells, the strip of entropies, labels.  Its owner computes the layout
 * from the room that the labels need. */
typedef struct token_panel {
    hl_figure            *figure;
    const hl_token_cells *cells;
    hl_attention_scale    scale;
    const hl_axis        *entropy;    /* axis of the strip */
    hl_box                box;        /* box of the map, a square */
    double                strip;      /* width of the strip */
    double                label_most; /* largest width of labels */
} token_panel;

#define STRIP_GAP   2.5 /* space between map and strip */
#define LABEL_PITCH 7.2 /* smallest cell size at which every cell has a label */
#define LABEL_GAP   4.0
#define LABEL_LINE  1.3 /* least distance of labels in font sizes, which are at least 5.5 */
/* Above this number of cells, SVG holds no values: the cells are too small to point at. */
#define MOST_TITLES 4096

enum { LABEL_BYTES = 160, TITLE_BYTES = 32 };

/* ------------------------------------------------------------------ a map: labels */

/* Returns n such that every n-th cell has a label. */
static int64_t label_every(double cell)
{
    return hl_label_every(cell, LABEL_PITCH);
}

static hl_text_style label_style(const token_panel *panel, double cell, bool is_marked)
{
    hl_text_style style = hl_figure_small(panel->figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    double        room  = cell * (double)label_every(cell) / LABEL_LINE;

    style.size = fmin(HL_TEXT_SMALL, room);
    if (is_marked) {
        style.bold  = true;
        style.color = panel->figure->theme->series[3];
    }
    return style;
}

/* Writes the label of a cell: the token; with its position if not every cell has a label; only the
 * position if several tokens share a cell. */
static void label_of(char out[LABEL_BYTES], const token_panel *panel, int64_t cell, int64_t every,
                     const hl_text_style *style)
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

static bool is_marked(const token_panel *panel, int64_t cell)
{
    int64_t token = hl_token_cells_token(panel->cells, cell);

    return panel->cells->bin == 1 && panel->cells->view->tokens[token].is_marked;
}

/* Returns the space that labels of tokens need beside cells of this size. */
static double label_room(const token_panel *panel, double cell)
{
    int64_t every  = label_every(cell);
    double  widest = 0.0;
    char    room[LABEL_BYTES];

    for (int64_t i = 0; i < panel->cells->n; i += every) {
        hl_text_style style = label_style(panel, cell, is_marked(panel, i));
        label_of(room, panel, i, every, &style);
        widest = fmax(widest, hl_canvas_text_width(panel->figure->canvas, room, &style));
    }
    return widest + LABEL_GAP;
}

static double cell_size(const token_panel *panel)
{
    return panel->box.width / (double)panel->cells->n;
}

typedef enum label_side { LABELS_LEFT, LABELS_ABOVE, LABELS_BELOW } label_side;

static void draw_labels(const token_panel *panel, label_side side)
{
    hl_box  box   = panel->box;
    double  cell  = cell_size(panel);
    int64_t every = label_every(cell);
    char    room[LABEL_BYTES];

    for (int64_t i = 0; i < panel->cells->n; i += every) {
        hl_text_style style  = label_style(panel, cell, is_marked(panel, i));
        double        middle = ((double)i + 0.5) * cell;
        hl_point      at     = { box.x - LABEL_GAP, box.y + middle };

        if (side != LABELS_LEFT) {
            at =
                (hl_point){ box.x + middle, side == LABELS_ABOVE ? box.y - LABEL_GAP
                                                                 : box.y + box.height + LABEL_GAP };
            style.degrees = 90.0;
            style.anchor  = side == LABELS_ABOVE ? HL_ANCHOR_START : HL_ANCHOR_END;
        }
        label_of(room, panel, i, every, &style);
        hl_canvas_text(panel->figure->canvas, at.x, at.y, room, &style);
    }
}

/* ------------------------------------------------------------------- a map: cells */

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
    const hl_token_cells *cells = ((const token_panel *)context)->cells;
    char                  who[64], whom[64];

    name_cell(who, sizeof who, cells, down);
    name_cell(whom, sizeof whom, cells, across);
    snprintf(out, n_bytes, "%s \u2192 %s: %.3f", who, whom, hl_token_cells_at(cells, down, across));
}

static void strip_title(char *out, size_t n_bytes, const void *context, int64_t across,
                        int64_t down)
{
    const hl_token_cells *cells = ((const token_panel *)context)->cells;
    char                  who[64];

    (void)across;
    name_cell(who, sizeof who, cells, down);
    snprintf(out, n_bytes, "%s: %.3f nats", who, cells->entropy[down]);
}

/* Crosses out a cell that is NaN. */
static void hatch_cell(const token_panel *panel, const hl_cell_grid *grid, int64_t across,
                       int64_t down)
{
    hl_stroke hatch = { panel->figure->theme->hatch, 0.6, 0.0 };
    hl_box    box   = hl_cell_box(grid, across, down);

    hl_canvas_begin(panel->figure->canvas, "not a number");
    hl_canvas_hatch(panel->figure->canvas, box, fmin(3.0, box.height / 2.0), &hatch);
    hl_canvas_end(panel->figure->canvas);
}

static double gap_of(double cell)
{
    return cell >= 6.0 ? fmin(1.0, cell * 0.06) : 0.0;
}

static bool cell_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const token_panel *panel = context;
    double             value = hl_token_cells_at(panel->cells, down, across);

    if (!hl_token_cells_has(panel->cells, down, across) || isnan(value))
        return false;
    *out = hl_map_color(hl_figure_blues(panel->figure), hl_attention_share(panel->scale, value));
    return true;
}

static void draw_map(const token_panel *panel)
{
    const hl_token_cells *cells = panel->cells;
    int64_t               n     = cells->n;
    hl_cell_grid grid = { panel->box, n, n, gap_of(cell_size(panel)), cell_color, NULL, panel };

    if (n * n <= MOST_TITLES)
        grid.title = cell_title;
    hl_canvas_cells(panel->figure->canvas, &grid);
    for (int64_t i = 0; i < n * n; i++) {
        if (hl_token_cells_has(cells, i / n, i % n) && isnan(cells->values[i]))
            hatch_cell(panel, &grid, i % n, i / n);
    }
}

static bool strip_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const token_panel *panel = context;
    double             value = panel->cells->entropy[down];

    (void)across;
    *out = hl_map_color(HL_MAP_DIFFERENCE, hl_axis_share(panel->entropy, value));
    return !isnan(value);
}

static void draw_strip(const token_panel *panel)
{
    const hl_token_cells *cells = panel->cells;
    double                gap   = gap_of(cell_size(panel));
    /* Cells have a gap on all sides.  The box is larger by the gap, so that the strip has none at
     * its edge. */
    hl_box       box   = { panel->box.x + panel->box.width + STRIP_GAP - gap / 2.0, panel->box.y,
                           panel->strip + gap, panel->box.height };
    hl_cell_grid grid  = { box, 1, cells->n, gap, strip_color, strip_title, panel };
    hl_stroke    frame = { panel->figure->theme->axis, 0.5, 0.0 }; /* the frame is needed since the
                                                                    * middle of the color map is
                                                                    * pale */

    hl_canvas_cells(panel->figure->canvas, &grid);
    for (int64_t i = 0; i < cells->n; i++) {
        if (isnan(cells->entropy[i]))
            hatch_cell(panel, &grid, 0, i);
    }
    hl_canvas_outline(panel->figure->canvas,
                      (hl_box){ box.x + gap / 2.0, box.y, panel->strip, box.height }, &frame);
}

/* Draws the outline of the map, for a causal map a triangle. */
static void outline(const token_panel *panel)
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

static void draw_panel(const token_panel *panel)
{
    draw_map(panel);
    if (panel->strip > 0.0)
        draw_strip(panel);
    outline(panel);
}

/* --------------------------------------------------------------------- the figure */

enum { MOST_TICKS = 16 };

/* A color bar whose ticks may be uneven. */
typedef struct bar {
    const char *name;
    hl_map      map;
    int         n_ticks;
    double      shares[MOST_TICKS]; /* increasing */
    char        labels[MOST_TICKS][HL_NUMBER_BYTES];
} bar;

typedef struct token_figure {
    hl_figure            figure;
    const hl_token_view *view;
    hl_token_figure      options;
    hl_axis              entropy;
    bar                  bars[2];    /* bars of attention and of entropies */
    double               bars_width; /* width of the wider bar, so that the names are aligned */
    hl_token_cells       whole;
    hl_token_cells       zoomed; /* cells of the zoomed tokens; .n is 0 if none are */
    hl_token_cells      *insets; /* (n_insets) */
    int64_t              n_insets;
    token_panel          main;
    token_panel          zoom;
    double               inset_x; /* position of the first inset, relative to the figure's box */
    double               inset_y;
    double               inset_side;
    int64_t              n_across; /* number of insets per row */
} token_figure;

/* --------------------------------------------------------------------------- numbers */

static void make_bars(token_figure *f)
{
    static const double root[]    = { 0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0 };
    static const double linear[]  = { 0.0, 0.2, 0.4, 0.6, 0.8, 1.0 };
    bool                is_root   = f->options.scale == HL_ATTENTION_ROOT;
    hl_text_style       style     = hl_figure_small(&f->figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double              widest    = 0.0;
    bar                *attention = &f->bars[0], *entropy = &f->bars[1];

    *attention = (bar){ .name    = "Attention",
                        .map     = hl_figure_blues(&f->figure),
                        .n_ticks = is_root ? 7 : 6 };
    for (int i = 0; i < attention->n_ticks; i++) {
        double value         = is_root ? root[i] : linear[i];
        attention->shares[i] = hl_attention_share(f->options.scale, value);
        snprintf(attention->labels[i], sizeof attention->labels[i], "%g", value);
    }
    *entropy = (bar){ .name = "Row entropy (nats)", .map = HL_MAP_DIFFERENCE };
    for (int64_t i = 0; i <= f->entropy.n_steps && entropy->n_ticks < MOST_TICKS; i++) {
        double value                      = hl_axis_tick(&f->entropy, i);
        entropy->shares[entropy->n_ticks] = hl_axis_share(&f->entropy, value);
        hl_axis_label(entropy->labels[entropy->n_ticks++], &f->entropy, value);
    }
    for (const bar *b = attention; b <= entropy; b++) {
        for (int i = 0; i < b->n_ticks; i++)
            widest = fmax(widest, hl_canvas_text_width(f->figure.canvas, b->labels[i], &style));
    }
    f->bars_width = BAR_LABELS + widest + 5.0 + HL_TEXT_NORMAL;
}

static hl_status make_cells(token_figure *f)
{
    const hl_token_view *view = f->view;

    HL_NEED(hl_token_cells_new(&f->whole, view, &view->maps[0], 0, view->n_tokens, MOST_CELLS));
    if (f->options.zoom_end > 0)
        HL_NEED(hl_token_cells_new(&f->zoomed, view, &view->maps[0], f->options.zoom_begin,
                                   f->options.zoom_end, MOST_CELLS));
    HL_NEED(HL_ALLOC_ZEROED(&f->insets, (size_t)(view->n_maps - 1)));
    f->n_insets = view->n_maps - 1;
    for (int64_t i = 0; i < f->n_insets; i++)
        HL_NEED(hl_token_cells_new(&f->insets[i], view, &view->maps[1 + i], 0, view->n_tokens,
                                   MOST_INSET_CELLS));
    double top = hl_token_view_top(view);
    f->entropy = hl_axis_around(0.0, isnan(top) ? 1.0 : fmax(top, 0.5), 4);
    make_bars(f);
    return HL_OK;
}

/* ----------------------------------------------------------------------- color bars */

static void draw_bar(token_figure *f, hl_box box, const bar *b)
{
    double last = INFINITY; /* top of the label below */

    hl_figure_bar_frame(&f->figure, box, b->map);
    for (int i = 0; i < b->n_ticks; i++) {
        double y = box.y + box.height * (1.0 - b->shares[i]);
        if (last - y < HL_TEXT_SMALL + 2.0)
            continue;
        last = y;
        hl_figure_bar_tick(&f->figure, box, b->shares[i], b->labels[i]);
    }
    hl_figure_bar_name(&f->figure, box, f->bars_width, b->name);
}

static void draw_bars(token_figure *f)
{
    hl_box map    = f->main.box;
    double x      = map.x + map.width + STRIP_GAP + STRIP + LEGEND_GAP;
    double height = fmin(fmax(map.height, BARS_LEAST), BARS_MOST);
    double each   = (height - BAR_GAP) / 2.0;

    draw_bar(f, (hl_box){ x, map.y, 0.0, each }, &f->bars[0]);
    draw_bar(f, (hl_box){ x, map.y + each + BAR_GAP, 0.0, each }, &f->bars[1]);
}

/* ---------------------------------------------------------------------------- layout */

static token_panel panel_of(token_figure *f, const hl_token_cells *cells, double strip)
{
    return (token_panel){ .figure     = &f->figure,
                          .cells      = cells,
                          .scale      = f->options.scale,
                          .entropy    = &f->entropy,
                          .strip      = strip,
                          .label_most = fmin(64.0, 0.14 * hl_figure_inner_width(&f->figure)) };
}

/* Returns the side of a square as large as the room allows, but not larger than its cells need. */
static double side_of(const hl_token_cells *cells, double room)
{
    return fmin(room, fmax(CELL_MOST * (double)cells->n, MAP_LEAST));
}

/* Returns the side of a square with labels beside it.  The length of labels and their number depend
 * on each other: the first estimate assumes the longest label, the second the labels of the
 * first. */
static double side_of_labeled(double *labels, const token_panel *panel, double room)
{
    double n    = (double)panel->cells->n;
    double side = side_of(panel->cells, room - panel->label_most - 4.0);

    *labels       = label_room(panel, side / n);
    double larger = side_of(panel->cells, room - *labels - SLACK);
    double longer = label_room(panel, larger / n);
    if (longer > *labels + SLACK)
        return side;
    *labels = longer;
    return larger;
}

/* Lays out the main map; returns its height. */
static double lay_out_main(token_figure *f)
{
    double inner  = hl_figure_inner_width(&f->figure);
    double beside = STRIP_GAP + STRIP + LEGEND_GAP + f->bars_width;

    f->main       = panel_of(f, &f->whole, STRIP);
    double room   = inner - NAME_ROOM - beside;
    double labels = 0.0;
    double side   = side_of_labeled(&labels, &f->main, room);
    f->main.box   = (hl_box){ NAME_ROOM + labels, NAME_ROOM + labels, side, side };
    return NAME_ROOM + labels + fmax(side, BARS_LEAST);
}

/* Returns the room for the zoom: about half of the page beside insets, or more if every token then
 * has a label. */
static double zoom_room(const token_figure *f, bool insets_beside)
{
    double inner  = hl_figure_inner_width(&f->figure);
    double least  = insets_beside ? 0.52 * inner : 0.7 * inner;
    double beside = ZOOM_GAP + INSET_LEAST + STRIP_GAP + INSET_STRIP;
    double most   = insets_beside ? inner - beside : inner;
    double strip  = STRIP_GAP + STRIP;
    double wanted = f->main.box.x + LABEL_PITCH * (double)f->zoomed.n + 1.0 + strip;

    return fmin(fmax(least, wanted), fmax(most, least)) - strip;
}

/* The zoom is not left of the main map: its lines would cross the labels there. */
static double lay_out_zoom(token_figure *f, double top, bool insets_beside)
{
    double labels = 0.0;

    if (f->zoomed.n == 0)
        return 0.0;
    f->zoom     = panel_of(f, &f->zoomed, STRIP);
    double room = zoom_room(f, insets_beside);
    double side = side_of_labeled(&labels, &f->zoom, room);
    double left = fmax(labels, f->main.box.x);
    side        = fmin(side, room - left);
    labels      = label_room(&f->zoom, side / (double)f->zoomed.n);
    left        = fmax(labels, left);
    f->zoom.box = (hl_box){ left, top + BELOW, side, side };
    return BELOW + side + labels;
}

/* Lays out insets: as many per row as fit, as large as the row then allows and, if possible, not
 * higher than `height` together; returns their height. */
static double lay_out_insets(token_figure *f, double left, double top, double height)
{
    double  room = hl_figure_inner_width(&f->figure) - left;
    double  each = INSET_LEAST + STRIP_GAP + INSET_STRIP + INSET_GAP;
    int64_t most = (int64_t)fmax(1.0, floor((room + INSET_GAP) / each));

    if (f->n_insets == 0)
        return 0.0;
    /* All rows have about the same length. */
    int64_t n_rows = (f->n_insets + most - 1) / most;
    f->n_across    = (f->n_insets + n_rows - 1) / n_rows;
    f->inset_side  = fmin(INSET_MOST, (room + INSET_GAP) / (double)f->n_across - INSET_GAP -
                                          STRIP_GAP - INSET_STRIP);
    double lower   = (height - BELOW + INSET_GAP) / (double)n_rows - INSET_NAME - INSET_GAP;
    f->inset_side  = fmin(f->inset_side, fmax(lower, INSET_LEAST));
    f->inset_x     = left;
    f->inset_y     = top + BELOW;
    return BELOW + (double)n_rows * (INSET_NAME + f->inset_side + INSET_GAP) - INSET_GAP;
}

/* Lays out what is below the map and returns its height: the insets are beside the zoomed tokens,
 * or below them if they would be much higher there. */
static double lay_out_below(token_figure *f, double top)
{
    double zoom = lay_out_zoom(f, top, f->n_insets > 0);

    if (f->zoomed.n == 0 || f->n_insets == 0)
        return fmax(zoom, lay_out_insets(f, 0.0, top, INFINITY));
    double right  = f->zoom.box.x + f->zoom.box.width + STRIP_GAP + STRIP + ZOOM_GAP;
    double insets = lay_out_insets(f, right, top, zoom);
    if (insets <= 1.3 * zoom && f->inset_side > INSET_LEAST - 1.0) /* 1.3 allows for rounding */
        return fmax(zoom, insets);
    zoom = lay_out_zoom(f, top, false);
    return zoom + lay_out_insets(f, 0.0, top + zoom, INFINITY);
}

/* --------------------------------------------------------------------------- drawing */

static void draw_axis_names(token_figure *f)
{
    hl_box        map   = f->main.box;
    hl_text_style style = hl_figure_normal(&f->figure, HL_ANCHOR_START, HL_STAND_BASE);
    double        out   = label_room(&f->main, map.width / (double)f->whole.n) + 5.0;

    hl_canvas_text(f->figure.canvas, map.x, map.y - out, "Key (is attended to)", &style);
    style.degrees = 90.0;
    style.anchor  = HL_ANCHOR_END;
    hl_canvas_text(f->figure.canvas, map.x - out, map.y, "Query (attends)", &style);
}

/* Returns the box of tokens [begin, end) in the main map. */
static hl_box box_of(const token_figure *f, int64_t row, int64_t column, int64_t count)
{
    hl_box map    = f->main.box;
    double left   = hl_token_cells_place(&f->whole, (double)column);
    double top    = hl_token_cells_place(&f->whole, (double)row);
    double extent = hl_token_cells_place(&f->whole, (double)count);

    return (hl_box){ map.x + left * map.width, map.y + top * map.height, extent * map.width,
                     extent * map.height };
}

static void draw_zoom_lines(token_figure *f)
{
    hl_stroke      stroke  = { f->figure.theme->series[2], 1.0, 0.0 };
    hl_box         to      = f->zoom.box;
    hl_box         from    = box_of(f, f->options.zoom_begin, f->options.zoom_begin,
                                    f->options.zoom_end - f->options.zoom_begin);
    const hl_point lines[] = { { from.x, from.y + from.height },
                               { to.x, to.y },
                               { from.x + from.width, from.y + from.height },
                               { to.x + to.width, to.y } };

    hl_canvas_outline(f->figure.canvas, from, &stroke);
    hl_canvas_segments(f->figure.canvas, lines, 2, &stroke);
    hl_canvas_outline(f->figure.canvas, to, &stroke);
}

/* Writes "L3H1" at the left and the mean over rows, "1.52 nats", at the right. */
static void name_inset(token_figure *f, const hl_token_map *map, hl_point at)
{
    hl_text_style normal = hl_figure_normal(&f->figure, HL_ANCHOR_START, HL_STAND_TOP);
    hl_text_style small  = hl_figure_small(&f->figure, HL_ANCHOR_END, HL_STAND_TOP);
    double        sum    = 0.0;
    char          name[HL_VIEW_NAME_BYTES], mean[HL_NUMBER_BYTES] = "";

    for (int64_t i = 0; i < f->view->n_tokens; i++)
        sum += (double)map->entropy[i];
    if (!isnan(sum))
        snprintf(mean, sizeof mean, "%.2f nats", sum / (double)f->view->n_tokens);
    snprintf(name, sizeof name, "%s", map->name);
    double taken = hl_canvas_text_width(f->figure.canvas, mean, &small) + 5.0;
    hl_figure_shorten(&f->figure, name, sizeof name, f->inset_side - taken, &normal);
    hl_canvas_text(f->figure.canvas, at.x, at.y, name, &normal);
    hl_canvas_text(f->figure.canvas, at.x + f->inset_side, at.y + 0.5, mean, &small);
}

static void draw_insets(token_figure *f, hl_box page)
{
    double across = f->inset_side + STRIP_GAP + INSET_STRIP + INSET_GAP;
    double down   = INSET_NAME + f->inset_side + INSET_GAP;

    for (int64_t i = 0; i < f->n_insets; i++) {
        token_panel panel = panel_of(f, &f->insets[i], INSET_STRIP);
        double      x     = page.x + f->inset_x + across * (double)(i % f->n_across);
        int64_t     row   = i / f->n_across;
        double      y     = page.y + f->inset_y + down * (double)row;

        panel.box = (hl_box){ x, y + INSET_NAME, f->inset_side, f->inset_side };
        draw_panel(&panel);
        name_inset(f, &f->view->maps[1 + i], (hl_point){ x, y });
    }
}

static hl_status draw_notes(token_figure *f)
{
    hl_notes notes = { .figure = &f->figure,
                       .area   = f->main.box,
                       .staircase =
                           f->view->is_causal ? f->main.box.width / (double)f->whole.n : 0.0 };

    for (int64_t i = 0; i < f->options.n_notes; i++)
        hl_notes_keep(&notes, box_of(f, f->options.notes[i].row, f->options.notes[i].column, 1));
    for (int64_t i = 0; i < f->options.n_notes; i++)
        HL_NEED(hl_notes_draw(&notes, f->options.notes[i].text,
                              box_of(f, f->options.notes[i].row, f->options.notes[i].column, 1)));
    return HL_OK;
}

/* --------------------------------------------------------------------------- caption */

/* Writes the sentences that hold for this figure. */
static void write_caption(char out[CAPTION_BYTES], const token_figure *f)
{
    const hl_token_view *view      = f->view;
    int64_t              bin       = f->whole.bin;
    int64_t              every     = label_every(f->main.box.width / (double)f->whole.n);
    char                 bins[192] = "", zoom[96] = "", shared[96] = "", thinned[64] = "";

    bool marked = false;

    for (int64_t i = 0; i < view->n_tokens; i++)
        marked = marked || view->tokens[i].is_marked;
    if (bin > 1)
        snprintf(bins, sizeof bins,
                 " A cell is %lld \u00d7 %lld tokens: the attention to all its keys, averaged over "
                 "its rows; labels are positions.",
                 (long long)bin, (long long)bin);
    else if (every > 1)
        snprintf(thinned, sizeof thinned, " Labels: every %lld%s token, with its position.",
                 (long long)every, every == 2 ? "nd" : "th");
    if (f->zoomed.n > 0)
        snprintf(zoom, sizeof zoom, " Below: tokens %lld to %lld.",
                 (long long)f->options.zoom_begin, (long long)f->options.zoom_end - 1);
    if (f->n_insets > 0 && f->insets[0].bin > bin)
        snprintf(shared, sizeof shared, " Cells of the small maps are %lld \u00d7 %lld tokens.",
                 (long long)f->insets[0].bin, (long long)f->insets[0].bin);
    snprintf(out, CAPTION_BYTES,
             "Attention (%s) of each token (row) to each token it sees (column); %s is more%s. "
             "Strip: entropy of the row%s.%s%s%s%s%s %s, %lld layer%s \u00d7 %lld head%s; "
             "n\u00a0=\u00a0%lld token%s.",
             view->maps[0].name, hl_figure_more(&f->figure),
             f->options.scale == HL_ATTENTION_ROOT ? ", color: \u221aattention" : "",
             view->maps[0].n_heads > 1 ? ", mean of the heads\u2019" : "", bins, thinned, zoom,
             shared, bin == 1 && marked ? " Bold: special and template tokens." : "", view->family,
             (long long)view->n_layers, view->n_layers == 1 ? "" : "s", (long long)view->n_heads,
             view->n_heads == 1 ? "" : "s", (long long)view->n_tokens,
             view->n_tokens == 1 ? "" : "s");
}

/* ------------------------------------------------------------------------ the figure */

static hl_status draw(token_figure *f)
{
    char   caption[CAPTION_BYTES];
    double top    = lay_out_main(f);
    double height = top + lay_out_below(f, top);

    write_caption(caption, f);
    hl_box page = hl_figure_begin(&f->figure, height, caption);
    f->main.box.x += page.x;
    f->main.box.y += page.y;
    f->zoom.box.x += page.x;
    f->zoom.box.y += page.y;
    draw_panel(&f->main);
    draw_labels(&f->main, LABELS_LEFT);
    draw_labels(&f->main, LABELS_ABOVE);
    draw_axis_names(f);
    draw_bars(f);
    draw_insets(f, page);
    if (f->zoomed.n > 0) {
        draw_panel(&f->zoom);
        draw_labels(&f->zoom, LABELS_LEFT);
        draw_labels(&f->zoom, LABELS_BELOW);
        draw_zoom_lines(f);
    }
    return draw_notes(f);
}

static void free_figure(token_figure *f)
{
    hl_token_cells_free(&f->whole);
    hl_token_cells_free(&f->zoomed);
    for (int64_t i = 0; i < f->n_insets; i++)
        hl_token_cells_free(&f->insets[i]);
    hl_free(f->insets);
}

hl_status hl_token_figure_draw(hl_canvas *canvas, const hl_token_view *view,
                               const hl_token_figure *options)
{
    HL_SCOPED(free_figure) token_figure f = { .view = view };
    char                                title[HL_VIEW_NAME_BYTES + 16];

    f.options = options != NULL ? *options : (hl_token_figure){ 0 };
    snprintf(title, sizeof title, "Attention, %s", view->maps[0].name);
    HL_NEED(
        hl_figure_open_plain(&f.figure, canvas, title, "pictures of a prompt", &f.options.draw));
    f.figure.key  = "entropy";
    int64_t begin = f.options.zoom_begin, end = f.options.zoom_end;
    if ((begin != 0 || end != 0) && (begin < 0 || end <= begin || end > view->n_tokens))
        return hl_fail(HL_BAD_ARGUMENT, "zoom %lld:%lld: wanted tokens A:B with 0 <= A < B <= %lld",
                       (long long)begin, (long long)end, (long long)view->n_tokens);
    HL_NEED(hl_notes_check(f.options.notes, f.options.n_notes, view->n_tokens));
    HL_NEED(make_cells(&f));
    return draw(&f);
}

hl_status hl_draw_tokens(const hl_token_view *view, const char *path,
                         const hl_token_figure *options)
{
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas = NULL;

    HL_NEED(hl_figure_canvas(&canvas, path, options != NULL ? &options->draw : NULL));
    HL_NEED(hl_token_figure_draw(canvas, view, options));
    return hl_canvas_write(canvas, path);
}
