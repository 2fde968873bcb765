/* figure_scatter.c - panels of points, each with its correlation.
 *
 * Panels share their y axis, so that a height means the same in all of them.  Each has its own x
 * axis, since rankers have different units. */
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "render/chart.h"

#define PANEL_LEAST  130.0 /* least width, including what stands left of the panel */
#define PANEL_GAP    14.0
#define PANEL_ABOVE  30.0 /* space for the name and the correlation */
#define PANEL_BELOW  16.0 /* space for the labels of x */
#define PANEL_HEIGHT 110.0
#define NAME_BELOW   16.0

typedef struct scatter_figure {
    hl_figure        *figure;
    const hl_scatter *scatter;
    hl_axis           y;
    int64_t           n_across;
    int64_t           n_down;
} scatter_figure;

/* -------------------------------------------------------------------------- ranges */

/* Makes an axis a little longer than the values need, so that no point lies on the frame. */
static hl_status axis_of(hl_axis *out, const double *values, const double *with, int64_t n,
                         const char *name)
{
    double low = INFINITY, high = -INFINITY;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]) || !isfinite(with[i]))
            continue;
        low  = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    if (low > high)
        return hl_fail(HL_BAD_INPUT, "%s: no point is finite", name);
    double more = high > low ? 0.04 * (high - low) : fmax(fabs(high), 1.0) * 0.04;
    *out        = hl_axis_within(low - more, high + more, 4);
    return HL_OK;
}

static hl_status read_heights(scatter_figure *f)
{
    const hl_scatter *s = f->scatter;

    for (int64_t i = 0; i < s->n_panels; i++) {
        hl_axis axis;
        HL_NEED(axis_of(&axis, s->panels[i].y, s->panels[i].x, s->n_points, s->panels[i].name));
        f->y.low  = i == 0 ? axis.low : fmin(f->y.low, axis.low);
        f->y.high = i == 0 ? axis.high : fmax(f->y.high, axis.high);
    }
    f->y = hl_axis_within(f->y.low, f->y.high, 4);
    return HL_OK;
}

/* ------------------------------------------------------------------------- drawing */

static void draw_heading(const hl_chart *chart, const hl_scatter_panel *panel)
{
    hl_text_style name = hl_figure_normal(chart->figure, HL_ANCHOR_START, HL_STAND_BASE);
    hl_text_style rho  = hl_figure_small(chart->figure, HL_ANCHOR_START, HL_STAND_BASE);
    char          text[96];

    name.bold    = true;
    double width = hl_canvas_text_width(chart->figure->canvas, panel->name, &name);
    if (width > chart->box.width)
        name.size *= chart->box.width / width;
    hl_canvas_text(chart->figure->canvas, chart->box.x, chart->box.y - 15.0, panel->name, &name);
    if (isnan(panel->rho))
        return;
    if (isnan(panel->rho_low) || isnan(panel->rho_high))
        snprintf(text, sizeof text, "\u03c1 = %+.2f", panel->rho);
    else
        snprintf(text, sizeof text, "\u03c1 = %+.2f (%+.2f to %+.2f)", panel->rho, panel->rho_low,
                 panel->rho_high);
    hl_canvas_text(chart->figure->canvas, chart->box.x, chart->box.y - 5.0, text, &rho);
}

static void draw_points(const hl_chart *chart, const scatter_figure *f,
                        const hl_scatter_panel *panel)
{
    hl_canvas        *canvas = f->figure->canvas;
    const hl_scatter *s      = f->scatter;
    double            radius = s->n_points > 400 ? 1.2 : 1.8;
    char              title[160];

    for (int64_t i = 0; i < s->n_points; i++) {
        if (!hl_chart_has(chart, panel->x[i], panel->y[i]))
            continue;
        snprintf(title, sizeof title, "%.64s: %.4g, %.4g", s->names != NULL ? s->names[i] : "",
                 panel->x[i], panel->y[i]);
        if (s->names != NULL)
            hl_canvas_begin(canvas, title);
        hl_canvas_mark(canvas, hl_chart_point(chart, panel->x[i], panel->y[i]), HL_MARK_CIRCLE,
                       radius, f->figure->theme->series[0]);
        if (s->names != NULL)
            hl_canvas_end(canvas);
    }
}

static hl_status draw_panel(const scatter_figure *f, int64_t index, hl_box box)
{
    const hl_scatter_panel *panel = &f->scatter->panels[index];
    hl_chart                chart = { .figure = f->figure, .y = f->y, .box = box };

    HL_NEED(axis_of(&chart.x, panel->x, panel->y, f->scatter->n_points, panel->name));
    hl_chart_grid(&chart);
    draw_points(&chart, f, panel);
    draw_heading(&chart, panel);
    hl_chart_label_x(&chart, NULL);
    if (index % f->n_across == 0)
        hl_chart_label_y(&chart, index / f->n_across == f->n_down / 2 ? f->scatter->y_name : NULL);
    return HL_OK;
}

static hl_status draw_panels(const scatter_figure *f, hl_box box)
{
    hl_chart      any   = { .figure = f->figure, .y = f->y };
    hl_text_style style = hl_figure_normal(f->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double        left  = hl_chart_left(&any);
    double width = (box.width - left - PANEL_GAP * (double)(f->n_across - 1)) / (double)f->n_across;
    double height = PANEL_ABOVE + PANEL_HEIGHT + PANEL_BELOW;

    for (int64_t i = 0; i < f->scatter->n_panels; i++) {
        int64_t across = i % f->n_across, down = i / f->n_across;
        hl_box  panel = { box.x + left + (double)across * (width + PANEL_GAP),
                          box.y + (double)down * height + PANEL_ABOVE - 6.0, width, PANEL_HEIGHT };
        HL_NEED(draw_panel(f, i, panel));
    }
    hl_canvas_text(f->figure->canvas, box.x + left + (box.width - left) / 2.0,
                   box.y + (double)f->n_down * height - 2.0, f->scatter->x_name, &style);
    return HL_OK;
}

hl_status hl_figure_scatter(hl_figure *figure, const hl_scatter *scatter)
{
    scatter_figure f   = { .figure = figure, .scatter = scatter };
    int64_t        fit = (int64_t)(hl_figure_inner_width(figure) / PANEL_LEAST);

    if (scatter->n_panels < 1 || scatter->n_points < 1)
        return hl_fail(HL_BAD_ARGUMENT, "nothing to draw: %lld panels of %lld points",
                       (long long)scatter->n_panels, (long long)scatter->n_points);
    f.n_across = scatter->n_panels < fit ? scatter->n_panels : fit;
    f.n_down   = (scatter->n_panels + f.n_across - 1) / f.n_across;
    HL_NEED(read_heights(&f));
    hl_box box = hl_figure_begin(
        figure, (double)f.n_down * (PANEL_ABOVE + PANEL_HEIGHT + PANEL_BELOW) + NAME_BELOW - 6.0,
        scatter->what != NULL ? scatter->what : "");
    return draw_panels(&f, box);
}

hl_status hl_draw_scatter(const hl_scatter *scatter, const char *path,
                          const hl_draw_options *options)
{
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas = NULL;
    hl_figure                             figure;

    HL_NEED(hl_figure_canvas(&canvas, path, options));
    HL_NEED(hl_figure_open_plain(&figure, canvas, scatter->title, "scatter plots", options));
    HL_NEED(hl_figure_scatter(&figure, scatter));
    return hl_canvas_write(canvas, path);
}
