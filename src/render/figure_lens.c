/* figure_lens.c - what a model would predict after each layer.
 *
 *       8 | the | sea | was |  |          Every cell holds the most likely next token;
 *       7 | a   | sea | is  |  | 8        its color is the entropy over the vocabulary:
 *     ... |     |     |     |  | 4        blue where the model is certain.  Correct tokens
 *       0 | .   | ,   | .   |  | 0        have a frame.  The embeddings are the bottom
 *           at    the   sea               row; what exceeds the width continues below.
 *
 *       8 | ... */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/figure.h"

#define COLUMN_LEAST 37.0
#define COLUMN_MOST  58.0
#define ROW_HEIGHT   12.0
#define INPUTS       15.0 /* height of the tokens below a panel */
#define PANEL_GAP    14.0
#define AXIS_NAME    12.0
#define LEGEND_GAP   16.0
#define BAR_LEAST    60.0
#define BAR_MOST     200.0
#define PADDING      2.0
#define MOST_HEIGHT  4000.0

enum { LABEL_BYTES = 160, TITLE_BYTES = 28, LENS_CAPTION_BYTES = 640 };

typedef struct lens_figure {
    hl_figure           figure;
    const hl_lens_view *view;
    hl_axis             axis;
    double              left;  /* space for the layers' names */
    double              width; /* width of a column */
    int64_t             n_rows;
    int64_t             n_across; /* columns per panel; the last panel may have fewer */
    int64_t             n_panels;
} lens_figure;

/* One panel: tokens [first, first + n). */
typedef struct lens_panel {
    const lens_figure *owner;
    int64_t            first;
    int64_t            n;
    hl_box             box; /* box of the panel's cells */
} lens_panel;

static int64_t place_of(const lens_panel *panel, int64_t across, int64_t down)
{
    const lens_figure *f = panel->owner;

    /* The last layer is on top. */
    return (f->n_rows - 1 - down) * f->view->n_tokens + panel->first + across;
}

/* ---------------------------------------------------------------------------- layout */

static double panel_height(const lens_figure *f)
{
    return ROW_HEIGHT * (double)f->n_rows + INPUTS;
}

static hl_status lay_out(lens_figure *f)
{
    int64_t n     = f->view->n_tokens;
    double  right = LEGEND_GAP + hl_figure_color_bar_width(&f->figure, &f->axis);

    f->left          = hl_figure_indices_width(&f->figure, f->n_rows, "emb");
    double  room     = hl_figure_inner_width(&f->figure) - f->left - right;
    int64_t n_across = (int64_t)fmax(1.0, floor(room / COLUMN_LEAST));
    int64_t n_most   = (int64_t)((MOST_HEIGHT - AXIS_NAME) / (panel_height(f) + PANEL_GAP));

    f->n_panels = (n + n_across - 1) / n_across;
    if (f->n_panels > n_most)
        return hl_fail(HL_LIMIT,
                       "%lld tokens do not fit on a page %.0f points wide, which has room for "
                       "%lld; show fewer (--zoom A:B) or use a larger --width",
                       (long long)n, f->figure.options.width, (long long)(n_most * n_across));
    /* All panels have about the same length. */
    f->n_across = (n + f->n_panels - 1) / f->n_panels;
    f->width    = fmin(COLUMN_MOST, room / (double)f->n_across);
    return HL_OK;
}

/* ----------------------------------------------------------------------------- cells */

static void cell_title(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down)
{
    const lens_panel   *panel = context;
    const hl_lens_view *view  = panel->owner->view;
    int64_t             place = place_of(panel, across, down);
    int64_t             token = panel->first + across;
    int64_t             layer = place / view->n_tokens - 1;
    char                read[TITLE_BYTES], guess[TITLE_BYTES], after[32] = "embedding";

    if (layer >= 0)
        snprintf(after, sizeof after, "layer %lld", (long long)layer);
    snprintf(out, n_bytes, "%lld %s, %s: %s %.3f nats", (long long)(view->first + token),
             hl_figure_copy(read, sizeof read, view->tokens[token].text), after,
             hl_figure_copy(guess, sizeof guess, view->guesses[place].text),
             (double)view->entropy[place]);
}

static bool cell_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const lens_panel *panel   = context;
    double            entropy = (double)panel->owner->view->entropy[place_of(panel, across, down)];

    *out = hl_map_color(HL_MAP_DIFFERENCE, hl_axis_share(&panel->owner->axis, entropy));
    return !isnan(entropy);
}

/* Draws a guess, with a frame if it is right: bold type alone would not be visible on a comma. */
static void draw_guess(const lens_panel *panel, hl_box box, int64_t place, hl_color behind)
{
    static const hl_color black = { 20, 22, 28 }, white = { 255, 255, 255 };
    const lens_figure    *f     = panel->owner;
    bool                  right = f->view->guesses[place].is_marked;
    hl_text_style         style = hl_figure_small(&f->figure, HL_ANCHOR_MIDDLE, HL_STAND_MIDDLE);
    char                  room[LABEL_BYTES];

    style.color = hl_color_is_light(behind) ? black : white;
    style.bold  = right;
    snprintf(room, sizeof room, "%s", f->view->guesses[place].text);
    hl_figure_shorten(&f->figure, room, sizeof room, box.width - 2.0 * PADDING, &style);
    hl_canvas_text(f->figure.canvas, box.x + box.width / 2.0, box.y + box.height / 2.0, room,
                   &style);
    if (right)
        hl_canvas_outline(f->figure.canvas,
                          (hl_box){ box.x + 0.6, box.y + 0.6, box.width - 1.2, box.height - 1.2 },
                          &(hl_stroke){ style.color, 0.8, 0.0 });
}

static void draw_cells(const lens_panel *panel)
{
    const lens_figure *f     = panel->owner;
    hl_stroke          hatch = { f->figure.theme->hatch, 0.6, 0.0 };
    hl_cell_grid grid = { panel->box, panel->n, f->n_rows, 0.8, cell_color, cell_title, panel };

    hl_canvas_cells(f->figure.canvas, &grid);
    for (int64_t i = 0; i < panel->n * f->n_rows; i++) {
        int64_t  across = i % panel->n, down = i / panel->n;
        hl_box   box = hl_cell_box(&grid, across, down);
        hl_color color;

        if (cell_color(&color, panel, across, down)) {
            draw_guess(panel, box, place_of(panel, across, down), color);
            continue;
        }
        hl_canvas_begin(f->figure.canvas, "not a number");
        hl_canvas_hatch(f->figure.canvas, box, 3.0, &hatch);
        hl_canvas_end(f->figure.canvas);
    }
}

static void draw_inputs(const lens_panel *panel)
{
    const lens_figure *f = panel->owner;
    char               room[LABEL_BYTES];

    for (int64_t i = 0; i < panel->n; i++) {
        const hl_view_token *token = &f->view->tokens[panel->first + i];
        hl_text_style        style = hl_figure_normal(&f->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);

        style.size = HL_TEXT_SMALL;
        if (token->is_marked) {
            style.bold  = true;
            style.color = f->figure.theme->series[3];
        }
        snprintf(room, sizeof room, "%s", token->text);
        hl_figure_shorten(&f->figure, room, sizeof room, f->width - 2.0 * PADDING, &style);
        hl_canvas_text(f->figure.canvas, panel->box.x + ((double)i + 0.5) * f->width,
                       panel->box.y + panel->box.height + 5.0, room, &style);
    }
}

static void draw_panel(lens_figure *f, int64_t index, hl_box page)
{
    lens_panel panel = { .owner = f, .first = index * f->n_across };
    double     top   = page.y + (double)index * (panel_height(f) + PANEL_GAP);

    panel.n   = f->view->n_tokens - panel.first < f->n_across ? f->view->n_tokens - panel.first
                                                              : f->n_across;
    panel.box = (hl_box){ page.x + f->left, top, f->width * (double)panel.n,
                          ROW_HEIGHT * (double)f->n_rows };
    draw_cells(&panel);
    draw_inputs(&panel);
    hl_figure_indices_up(&f->figure, panel.box, f->n_rows, "emb", "Layer");
}

/* ------------------------------------------------------------------------ the figure */

static void write_caption(char out[LENS_CAPTION_BYTES], const lens_figure *f)
{
    const hl_lens_view *view     = f->view;
    char                some[96] = "";
    bool                right    = false;

    for (int64_t i = 0; i < f->n_rows * view->n_tokens; i++)
        right = right || view->guesses[i].is_marked;
    if (view->n_tokens < view->n_prompt)
        snprintf(some, sizeof some, " Tokens %lld to %lld of the prompt.", (long long)view->first,
                 (long long)(view->first + view->n_tokens - 1));
    snprintf(
        out, LENS_CAPTION_BYTES,
        "Each cell is the most likely next token after a layer (emb: after the embedding). Color: "
        "entropy over the vocabulary.%s%s %s, %lld layer%s, vocabulary of %lld; "
        "n\u00a0=\u00a0%lld token%s.",
        right ? " Framed: the token that follows in the text." : "", some, view->family,
        (long long)view->n_layers, view->n_layers == 1 ? "" : "s", (long long)view->d_vocab,
        (long long)view->n_prompt, view->n_prompt == 1 ? "" : "s");
}

static void draw(lens_figure *f)
{
    hl_text_style name = hl_figure_normal(&f->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double height = (panel_height(f) + PANEL_GAP) * (double)f->n_panels - PANEL_GAP + AXIS_NAME;
    double bar    = fmin(fmax(ROW_HEIGHT * (double)f->n_rows, BAR_LEAST), BAR_MOST);
    double across = f->width * (double)f->n_across;
    char   caption[LENS_CAPTION_BYTES];

    write_caption(caption, f);
    hl_box page = hl_figure_begin(&f->figure, fmax(height, bar + AXIS_NAME), caption);
    for (int64_t i = 0; i < f->n_panels; i++)
        draw_panel(f, i, page);
    hl_canvas_text(f->figure.canvas, page.x + f->left + across / 2.0,
                   page.y + height - AXIS_NAME + 4.0, "Input token", &name);
    hl_figure_color_bar(&f->figure,
                        (hl_box){ page.x + f->left + across + LEGEND_GAP, page.y, 0.0, bar },
                        HL_MAP_DIFFERENCE, &f->axis, "Entropy (nats)");
}

hl_status hl_lens_figure_draw(hl_canvas *canvas, const hl_lens_view *view,
                              const hl_draw_options *options)
{
    lens_figure f = { .view = view, .n_rows = view->n_layers + 1 };

    HL_NEED(hl_figure_open_plain(&f.figure, canvas, "Prediction after each layer",
                                 "pictures of a prompt", options));
    f.figure.key = "lens";
    /* The scale covers all possible values, so that figures can be compared. */
    f.axis = hl_axis_around(0.0, log((double)(view->d_vocab > 2 ? view->d_vocab : 2)), 5);
    HL_NEED(lay_out(&f));
    draw(&f);
    return HL_OK;
}

hl_status hl_draw_lens(const hl_lens_view *view, const char *path, const hl_draw_options *options)
{
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas = NULL;

    HL_NEED(hl_figure_canvas(&canvas, path, options));
    HL_NEED(hl_lens_figure_draw(canvas, view, options));
    return hl_canvas_write(canvas, path);
}
