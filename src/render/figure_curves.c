/* figure_curves.c - lines over a number: sweeps, and series in time.
 *
 *        |                            o  random
 *        |              o----o----o--/
 *        |      o----o-'         x----x  entropy        Names stand beside the ends of
 *        | o---'  x----x----x---'                       their lines, moved apart where they
 *        +--------------------------------              would touch, so that no legend
 *                 heads removed                         can cover a line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/chart.h"

#define PLOT_HEIGHT 210.0
#define NAME_LINE   9.5  /* smallest distance between two names */
#define NAME_GAP    12.0 /* space between the frame and the names */
#define NAMES_MOST  0.35 /* largest share of the width for names */
#define KEYS_ABOVE  18.0

enum { NAME_BYTES = 128, MARKED_MOST = 40 };

static const double band_shares[] = { 0.16, 0.34 }; /* opacity of the outer and of the inner band,
                                                     * in the curve's color */

/* A name at the right end of a line. */
typedef struct end_label {
    char     name[NAME_BYTES]; /* the name, shortened to the available width */
    hl_point from;             /* the end of the line that it names */
    double   y;
    hl_color color;
} end_label;

typedef struct curve_figure {
    hl_figure       *figure;
    const hl_curves *curves;
    hl_chart         chart;
    end_label       *ends;   /* (n_curves) */
    double          *wanted; /* (n_curves) best heights for the names */
    int64_t          n_ends;
} curve_figure;

/* --------------------------------------------------------------------------- ranges */

typedef struct extent {
    double low;
    double high;
} extent;

static void widen(extent *range, const double *values, const double *with, int64_t n)
{
    for (int64_t i = 0; values != NULL && i < n; i++) {
        if (!isfinite(with[i]) || !isfinite(values[i]))
            continue;
        range->low  = fmin(range->low, values[i]);
        range->high = fmax(range->high, values[i]);
    }
}

static hl_status make_axis(hl_axis *out, extent range, bool logarithmic, bool around,
                           const char *name)
{
    if (range.low > range.high)
        return hl_fail(HL_BAD_INPUT, "%s: no curve has a finite point", name);
    if (logarithmic && range.low <= 0.0)
        return hl_fail(HL_BAD_INPUT, "%s: a logarithmic axis cannot show %g", name, range.low);
    if (logarithmic)
        *out = hl_axis_log(range.low, range.high, 5);
    else
        *out = around ? hl_axis_around(range.low, range.high, 5)
                      : hl_axis_within(range.low, range.high, 8);
    return HL_OK;
}

static hl_status read_ranges(curve_figure *f)
{
    const hl_curves *all = f->curves;
    extent           x = { INFINITY, -INFINITY }, y = x;

    for (int64_t i = 0; i < all->n_curves; i++) {
        const hl_curve *curve = &all->curves[i];

        if (curve->n < 1 || curve->x == NULL || curve->y == NULL || curve->name == NULL)
            return hl_fail(HL_BAD_ARGUMENT,
                           "curve '%s' has %lld points, wanted at least 1 with x and y",
                           curve->name != NULL ? curve->name : "", (long long)curve->n);
        if ((curve->low == NULL) != (curve->high == NULL) ||
            (curve->inner_low == NULL) != (curve->inner_high == NULL))
            return hl_fail(HL_BAD_ARGUMENT, "curve '%s' has half a band", curve->name);
        widen(&x, curve->x, curve->y, curve->n);
        widen(&y, curve->y, curve->x, curve->n);
        widen(&y, curve->low, curve->y, curve->n);
        widen(&y, curve->high, curve->y, curve->n);
    }
    HL_NEED(make_axis(&f->chart.x, x, all->log_x, false, all->x_name));
    return make_axis(&f->chart.y, y, all->log_y, true, all->y_name);
}

/* ---------------------------------------------------------------------------- names */

/* Numbers the curves for their colors and marks; gray curves do not count. */
static int64_t line_number(const curve_figure *f, int64_t index)
{
    int64_t number = 0;

    for (int64_t i = 0; i < index; i++)
        number += f->curves->curves[i].kind == HL_CURVE_LINE;
    return number;
}

static hl_color curve_color(const curve_figure *f, int64_t index)
{
    return f->curves->curves[index].kind == HL_CURVE_LINE
               ? f->figure->theme->series[line_number(f, index) % HL_N_SERIES]
               : f->figure->theme->axis;
}

static double name_width(curve_figure *f)
{
    hl_text_style style  = hl_figure_small(f->figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double        most   = NAMES_MOST * hl_figure_inner_width(f->figure);
    double        widest = 0.0;

    for (int64_t i = 0; i < f->curves->n_curves; i++) {
        hl_figure_copy(f->ends[i].name, NAME_BYTES, f->curves->curves[i].name);
        hl_figure_shorten(f->figure, f->ends[i].name, NAME_BYTES, most, &style);
        widest = fmax(widest, hl_canvas_text_width(f->figure->canvas, f->ends[i].name, &style));
    }
    return widest;
}

static int by_height(const void *a, const void *b)
{
    const end_label *x = a, *y = b;

    return (x->y > y->y) - (x->y < y->y);
}

/* Spreads the run of touching names that ends with `last` evenly around the mean of their best
 * heights, `wanted` (n_ends). */
static void spread_run(end_label *ends, const double *wanted, int64_t last)
{
    int64_t first = last;
    double  sum   = wanted[last];

    ends[last].y = wanted[last];
    while (first > 0 && ends[first - 1].y + NAME_LINE > ends[first].y) {
        first--;
        sum += wanted[first];
        double middle = sum / (double)(last - first + 1);
        for (int64_t i = first; i <= last; i++)
            ends[i].y = middle + NAME_LINE * ((double)i - 0.5 * (double)(first + last));
    }
}

/* Places names as near to their lines as possible without touching each other or leaving the
 * frame. */
static void place_names(curve_figure *f)
{
    double top = f->chart.box.y, bottom = f->chart.box.y + f->chart.box.height;

    qsort(f->ends, (size_t)f->n_ends, sizeof *f->ends, by_height);
    for (int64_t i = 0; i < f->n_ends; i++)
        f->wanted[i] = f->ends[i].y;
    for (int64_t i = 0; i < f->n_ends; i++)
        spread_run(f->ends, f->wanted, i);
    for (int64_t i = 0; i < f->n_ends; i++) {
        f->ends[i].y = fmax(f->ends[i].y, top);
        top          = f->ends[i].y + NAME_LINE;
    }
    for (int64_t i = f->n_ends - 1; i >= 0; i--) {
        f->ends[i].y = fmin(f->ends[i].y, bottom);
        bottom       = f->ends[i].y - NAME_LINE;
    }
}

/* Finds the last point of every curve that has one; the names in `ends` are moved along. */
static void find_ends(curve_figure *f)
{
    f->n_ends = 0;
    for (int64_t i = 0; i < f->curves->n_curves; i++) {
        const hl_curve *curve = &f->curves->curves[i];
        int64_t         last  = curve->n - 1;
        while (last >= 0 && !hl_chart_has(&f->chart, curve->x[last], curve->y[last]))
            last--;
        if (last < 0)
            continue;
        end_label *end = &f->ends[f->n_ends++];
        if (end != &f->ends[i])
            memcpy(end->name, f->ends[i].name, NAME_BYTES);
        end->from  = hl_chart_point(&f->chart, curve->x[last], curve->y[last]);
        end->y     = end->from.y;
        end->color = curve_color(f, i);
    }
    place_names(f);
}

static void draw_names(const curve_figure *f)
{
    hl_text_style style = hl_figure_small(f->figure, HL_ANCHOR_START, HL_STAND_MIDDLE);
    double        right = f->chart.box.x + f->chart.box.width;

    for (int64_t i = 0; i < f->n_ends; i++) {
        const end_label *end    = &f->ends[i];
        const hl_point   path[] = { end->from,
                                    { right + 3.0, end->from.y },
                                    { right + NAME_GAP - 2.0, end->y } };
        hl_stroke stroke = { hl_mix(f->figure->theme->background, end->color, 0.6), 0.5, 0.0 };

        hl_canvas_polyline(f->figure->canvas, path, 3, &stroke);
        style.color = hl_mix(end->color, f->figure->theme->text, 0.3);
        hl_canvas_text(f->figure->canvas, right + NAME_GAP, end->y, end->name, &style);
    }
}

/* --------------------------------------------------------------------------- drawing */

static void draw_marks(curve_figure *f, int64_t index)
{
    const hl_curve *curve = &f->curves->curves[index];
    hl_color        color = curve_color(f, index);
    hl_mark         mark  = (hl_mark)(line_number(f, index) % HL_N_MARKS);
    char            title[NAME_BYTES + 64];

    for (int64_t i = 0; i < curve->n; i++) {
        if (!hl_chart_has(&f->chart, curve->x[i], curve->y[i]))
            continue;
        snprintf(title, sizeof title, "%.*s: %.4g, %.5g", NAME_BYTES - 1, curve->name, curve->x[i],
                 curve->y[i]);
        hl_canvas_begin(f->figure->canvas, title);
        hl_canvas_mark(f->figure->canvas, hl_chart_point(&f->chart, curve->x[i], curve->y[i]), mark,
                       2.2, color);
        hl_canvas_end(f->figure->canvas);
    }
}

static void draw_curve(curve_figure *f, int64_t index)
{
    const hl_curve *curve  = &f->curves->curves[index];
    bool            level  = curve->kind == HL_CURVE_LEVEL;
    hl_stroke       stroke = { curve_color(f, index), level || curve->n > MARKED_MOST ? 0.9 : 1.4,
                         level ? 3.0 : 0.0 };

    hl_chart_line(&f->chart, curve->x, curve->y, curve->n, &stroke);
    if (!level && curve->n <= MARKED_MOST)
        draw_marks(f, index);
}

static void draw_band(curve_figure *f, int64_t index, const double *low, const double *high,
                      double share)
{
    const hl_curve *curve = &f->curves->curves[index];

    hl_chart_band(&f->chart, curve->x, low, high, curve->n,
                  hl_mix(f->figure->theme->background, curve_color(f, index), share));
}

/* The drawing order is: all pale bands, all dark bands, the grid, lines. */
static void draw_curves(curve_figure *f)
{
    const hl_curve *curves = f->curves->curves;

    for (int64_t i = 0; i < f->curves->n_curves; i++)
        draw_band(f, i, curves[i].low, curves[i].high, band_shares[0]);
    for (int64_t i = 0; i < f->curves->n_curves; i++)
        draw_band(f, i, curves[i].inner_low, curves[i].inner_high, band_shares[1]);
    hl_chart_grid(&f->chart);
    for (int64_t i = 0; i < f->curves->n_curves; i++)
        draw_curve(f, i);
}

/* ------------------------------------------------------------------------ the figure */

static void lay_out(curve_figure *f)
{
    const hl_theme_colors *theme    = f->figure->theme;
    const char            *bands[2] = { f->curves->band, f->curves->inner_band };
    hl_key                 keys[2];
    int                    n_keys = 0;

    for (int i = 0; i < 2; i++) {
        if (bands[i] != NULL)
            keys[n_keys++] =
                (hl_key){ HL_KEY_BAND, hl_mix(theme->background, theme->axis, band_shares[i]),
                          bands[i] };
    }
    double names  = name_width(f);
    double above  = n_keys > 0 ? KEYS_ABOVE : 4.0;
    double left   = hl_chart_left(&f->chart);
    double height = fmax(PLOT_HEIGHT, NAME_LINE * (double)f->curves->n_curves);
    hl_box box    = hl_figure_begin(f->figure, above + height + HL_INDICES_HEIGHT,
                                 f->curves->what != NULL ? f->curves->what : "");

    f->chart.box =
        (hl_box){ box.x + left, box.y + above, box.width - left - NAME_GAP - names, height };
    hl_figure_keys(f->figure, (hl_point){ f->chart.box.x, box.y + 5.0 }, keys, n_keys);
}

static void free_figure(curve_figure *f)
{
    hl_chart_free(&f->chart);
    hl_free(f->ends);
    hl_free(f->wanted);
}

hl_status hl_figure_curves(hl_figure *figure, const hl_curves *curves)
{
    HL_SCOPED(free_figure)
    curve_figure f    = { .figure = figure, .curves = curves, .chart = { .figure = figure } };
    int64_t      most = 0;

    if (curves->n_curves < 1)
        return hl_fail(HL_BAD_ARGUMENT, "no curve to draw");
    HL_NEED(read_ranges(&f));
    for (int64_t i = 0; i < curves->n_curves; i++)
        most = curves->curves[i].n > most ? curves->curves[i].n : most;
    HL_NEED(hl_chart_room(&f.chart, most));
    HL_NEED(HL_ALLOC(&f.ends, (size_t)curves->n_curves));
    HL_NEED(HL_ALLOC(&f.wanted, (size_t)curves->n_curves));
    lay_out(&f);
    draw_curves(&f);
    find_ends(&f);
    draw_names(&f);
    hl_chart_label_x(&f.chart, curves->x_name);
    hl_chart_label_y(&f.chart, curves->y_name);
    return HL_OK;
}

hl_status hl_draw_curves(const hl_curves *curves, const char *path, const hl_draw_options *options)
{
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas = NULL;
    hl_figure                             figure;

    HL_NEED(hl_figure_canvas(&canvas, path, options));
    HL_NEED(hl_figure_open_plain(&figure, canvas, curves->title, "curves", options));
    HL_NEED(hl_figure_curves(&figure, curves));
    return hl_canvas_write(canvas, path);
}
