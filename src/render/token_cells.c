/* token_cells.c - binning a token map, and finding room for notes on it. */
#include "render/token_cells.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"

static int64_t last_of(const hl_token_cells *cells, int64_t cell)
{
    int64_t end = cells->begin + (cell + 1) * cells->bin;

    return end < cells->end ? end : cells->end;
}

int64_t hl_token_cells_token(const hl_token_cells *cells, int64_t cell)
{
    return cells->begin + cell * cells->bin;
}

double hl_token_cells_place(const hl_token_cells *cells, double token)
{
    return (token - (double)cells->begin) / (double)(cells->n * cells->bin);
}

bool hl_token_cells_has(const hl_token_cells *cells, int64_t row, int64_t column)
{
    return !cells->view->is_causal || column <= row;
}

double hl_token_cells_at(const hl_token_cells *cells, int64_t row, int64_t column)
{
    return cells->values[row * cells->n + column];
}

static void fill_row(hl_token_cells *cells, const hl_token_map *map, int64_t row)
{
    int64_t first = hl_token_cells_token(cells, row), end = last_of(cells, row);
    double  share = 1.0 / (double)(end - first);
    double *out   = cells->values + row * cells->n;

    for (int64_t token = first; token < end; token++) {
        const float *attention = map->attention + token * cells->view->n_tokens;
        cells->entropy[row] += share * (double)map->entropy[token];
        for (int64_t column = 0; column < cells->n; column++) {
            double mass = 0.0; /* attention of the token to the keys of the cell */
            for (int64_t key = hl_token_cells_token(cells, column); key < last_of(cells, column);
                 key++)
                mass += (double)attention[key];
            out[column] += share * mass;
        }
    }
}

hl_status hl_token_cells_new(hl_token_cells *out, const hl_token_view *view,
                             const hl_token_map *map, int64_t begin, int64_t end, int64_t most)
{
    int64_t bin = (end - begin + most - 1) / most;

    *out = (hl_token_cells){
        .view = view, .begin = begin, .end = end, .bin = bin, .n = (end - begin + bin - 1) / bin
    };
    HL_NEED(HL_ALLOC_ZEROED(&out->values, (size_t)((out->n + 1) * out->n)));
    out->entropy = out->values + out->n * out->n;
    for (int64_t row = 0; row < out->n; row++)
        fill_row(out, map, row);
    return HL_OK;
}

void hl_token_cells_free(hl_token_cells *cells)
{
    hl_free(cells->values);
    *cells = (hl_token_cells){ 0 };
}

double hl_attention_share(hl_attention_scale scale, double value)
{
    return scale == HL_ATTENTION_LINEAR ? value : sqrt(fmax(value, 0.0));
}

double hl_token_view_top(const hl_token_view *view)
{
    double top = NAN;

    for (int64_t map = 0; map < view->n_maps; map++) {
        for (int64_t i = 0; i < view->n_tokens; i++)
            top = fmax(top, (double)view->maps[map].entropy[i]); /* fmax skips NaN */
    }
    return top;
}

/* ---------------------------------------------------------------------- notes */

/* Notes are placed by trying every place of a fine grid over the area.  The best place covers no
 * other note, is near its target but not on it, and preferably covers nothing drawn. */
#define PADDING 3.0
#define NEAR    20.0 /* least distance, so that the arrow is visible */
#define COVERED 0.3  /* cost of covering cells, as a share of the area's width */
#define HEAD    4.5  /* size of the arrow's head */

enum { N_TRIED = 40 };

static hl_point middle_of(hl_box box)
{
    return (hl_point){ box.x + box.width / 2.0, box.y + box.height / 2.0 };
}

/* Returns the point of a box that is nearest to another. */
static hl_point nearest(hl_box box, hl_point to)
{
    return (hl_point){ fmin(fmax(to.x, box.x), box.x + box.width),
                       fmin(fmax(to.y, box.y), box.y + box.height) };
}

static double distance(hl_point a, hl_point b)
{
    return hypot(a.x - b.x, a.y - b.y);
}

/* Returns the cost of a place; INFINITY if it is not possible. */
static double cost_of(const hl_notes *notes, hl_box box, hl_point target)
{
    double far  = distance(nearest(box, target), target);
    double step = notes->staircase;

    for (int i = 0; i < notes->n_taken; i++) {
        hl_box other = notes->taken[i];
        if (box.x < other.x + other.width && other.x < box.x + box.width &&
            box.y < other.y + other.height && other.y < box.y + box.height)
            return INFINITY;
    }
    /* Does the box reach down to cells? */
    bool covers = step == 0.0 || floor((box.y + box.height - notes->area.y) / step) >=
                                     floor((box.x - notes->area.x) / step);
    return fabs(far - NEAR) + (covers ? COVERED * notes->area.width : 0.0);
}

static double find_place(hl_box *out, const hl_notes *notes, hl_box box, hl_point target)
{
    double least = INFINITY;
    hl_box area  = notes->area;

    for (int i = 0; i <= N_TRIED * N_TRIED + 2 * N_TRIED; i++) {
        hl_box tried = box;
        tried.x      = area.x + (area.width - box.width) * (i % (N_TRIED + 1)) / N_TRIED;
        /* NOLINTNEXTLINE(bugprone-integer-division) */
        tried.y     = area.y + (area.height - box.height) * (i / (N_TRIED + 1)) / N_TRIED;
        double cost = cost_of(notes, tried, target);
        if (cost < least) {
            least = cost;
            *out  = tried;
        }
    }
    return least;
}

static void draw_arrow(const hl_figure *figure, hl_point from, hl_point to, hl_color color)
{
    double    length = fmax(distance(from, to), 1e-6);
    double    x = (to.x - from.x) / length, y = (to.y - from.y) / length;
    hl_point  neck   = { to.x - HEAD * x, to.y - HEAD * y };
    hl_stroke stroke = { color, 0.9, 0.0 };

    const hl_point head[] = { to,
                              { neck.x - 0.45 * HEAD * y, neck.y + 0.45 * HEAD * x },
                              { neck.x + 0.45 * HEAD * y, neck.y - 0.45 * HEAD * x } };
    hl_canvas_line(figure->canvas, from, neck, &stroke);
    hl_canvas_polygon(figure->canvas, head, 3, color);
}

hl_status hl_notes_check(const hl_note *notes, int64_t n_notes, int64_t n_tokens)
{
    if (n_notes > HL_MOST_NOTES)
        return hl_fail(HL_BAD_ARGUMENT, "%lld notes given; at most %d", (long long)n_notes,
                       (int)HL_MOST_NOTES);
    for (int64_t i = 0; i < n_notes; i++) {
        if (notes[i].row < 0 || notes[i].row >= n_tokens || notes[i].column < 0 ||
            notes[i].column >= n_tokens)
            return hl_fail(HL_BAD_ARGUMENT,
                           "note '%s' is at row %lld, column %lld; tokens are 0 to %lld",
                           notes[i].text, (long long)notes[i].row, (long long)notes[i].column,
                           (long long)(n_tokens - 1));
    }
    return HL_OK;
}

void hl_notes_keep(hl_notes *notes, hl_box target)
{
    notes->taken[notes->n_taken++] = target;
}

hl_status hl_notes_draw(hl_notes *notes, const char *text, hl_box target)
{
    hl_figure    *figure = notes->figure;
    hl_color      color  = figure->theme->series[1];
    hl_text_style style  = hl_figure_normal(figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    hl_stroke     stroke = { color, 0.9, 0.0 };
    hl_box box = { 0.0, 0.0, hl_canvas_text_width(figure->canvas, text, &style) + 2.0 * PADDING,
                   HL_TEXT_NORMAL + 2.0 * PADDING };

    if (box.width > notes->area.width || box.height > notes->area.height ||
        isinf(find_place(&box, notes, box, middle_of(target))))
        return hl_fail(HL_BAD_ARGUMENT,
                       "no room for the note '%s'; use a larger --width or a shorter note", text);
    notes->taken[notes->n_taken++] = box;
    hl_canvas_outline(figure->canvas, target, &stroke);
    hl_point from = nearest(box, middle_of(target));
    draw_arrow(figure, from, nearest(target, from), color);
    hl_canvas_rectangle(figure->canvas, box, figure->theme->background);
    hl_canvas_outline(figure->canvas, box, &stroke);
    hl_canvas_text(figure->canvas, box.x + PADDING, box.y + box.height / 2.0, text, &style);
    return HL_OK;
}
