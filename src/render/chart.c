/* chart.c - frames with two axes of numbers. */
#include "render/chart.h"

#include <math.h>

/* --------------------------------------------------------------------------- points */

hl_point hl_chart_point(const hl_chart *chart, double x, double y)
{
    return (hl_point){
        chart->box.x + chart->box.width * hl_axis_share(&chart->x, x),
        chart->box.y + chart->box.height * (1.0 - hl_axis_share(&chart->y, y)),
    };
}

bool hl_chart_has(const hl_chart *chart, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!chart->x.logarithmic || x > 0.0) &&
           (!chart->y.logarithmic || y > 0.0);
}

/* ----------------------------------------------------------------------------- axes */

void hl_chart_grid(const hl_chart *chart)
{
    hl_canvas *canvas = chart->figure->canvas;
    hl_box     box    = chart->box;
    hl_stroke  axis   = hl_figure_axis_stroke(chart->figure);
    hl_stroke  grid   = { chart->figure->theme->grid, 0.5, 0.0 };
    double     bottom = box.y + box.height;

    for (int64_t i = 0; i <= chart->y.n_steps; i++) {
        double y = hl_chart_point(chart, chart->x.low, hl_axis_tick(&chart->y, i)).y;
        hl_canvas_line(canvas, (hl_point){ box.x, y }, (hl_point){ box.x + box.width, y }, &grid);
    }
    for (int64_t i = 0; i <= chart->x.n_steps; i++) {
        double x = hl_chart_point(chart, hl_axis_tick(&chart->x, i), chart->y.low).x;
        hl_canvas_line(canvas, (hl_point){ x, bottom }, (hl_point){ x, bottom + 3.0 }, &axis);
    }
    hl_canvas_line(canvas, (hl_point){ box.x, bottom }, (hl_point){ box.x + box.width, bottom },
                   &axis);
}

double hl_chart_left(const hl_chart *chart)
{
    return HL_TEXT_NORMAL + 6.0 + hl_figure_label_width(chart->figure, &chart->y) + 5.0;
}

void hl_chart_label_y(const hl_chart *chart, const char *name)
{
    hl_canvas    *canvas = chart->figure->canvas;
    hl_text_style small  = hl_figure_small(chart->figure, HL_ANCHOR_END, HL_STAND_MIDDLE);
    hl_text_style normal = hl_figure_normal(chart->figure, HL_ANCHOR_MIDDLE, HL_STAND_BASE);
    double        last   = INFINITY;
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= chart->y.n_steps; i++) {
        double   tick = hl_axis_tick(&chart->y, i);
        hl_point at   = hl_chart_point(chart, chart->x.low, tick);
        if (last - at.y < HL_TEXT_SMALL + 2.0)
            continue;
        hl_canvas_text(canvas, (hl_point){ chart->box.x - 5.0, at.y },
                       hl_axis_label(room, &chart->y, tick), &small);
        last = at.y;
    }
    if (name == NULL)
        return;
    normal.degrees = 90.0;
    hl_canvas_text(canvas,
                   (hl_point){ chart->box.x - hl_chart_left(chart) + HL_TEXT_NORMAL,
                               chart->box.y + chart->box.height / 2.0 },
                   name, &normal);
}

void hl_chart_label_x(const hl_chart *chart, const char *name)
{
    hl_canvas    *canvas = chart->figure->canvas;
    hl_text_style small  = hl_figure_small(chart->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    hl_text_style normal = hl_figure_normal(chart->figure, HL_ANCHOR_MIDDLE, HL_STAND_TOP);
    double        bottom = chart->box.y + chart->box.height;
    double        free   = -INFINITY; /* where the last label ends */
    char          room[HL_NUMBER_BYTES];

    for (int64_t i = 0; i <= chart->x.n_steps; i++) {
        double      tick  = hl_axis_tick(&chart->x, i);
        double      x     = hl_chart_point(chart, tick, chart->y.low).x;
        const char *label = hl_axis_label(room, &chart->x, tick);
        double      half  = hl_canvas_text_width(canvas, label, &small) / 2.0;
        if (x - half < free + 5.0)
            continue;
        hl_canvas_text(canvas, (hl_point){ x, bottom + 6.0 }, label, &small);
        free = x + half;
    }
    if (name != NULL)
        hl_canvas_text(canvas, (hl_point){ chart->box.x + chart->box.width / 2.0, bottom + 18.0 },
                       name, &normal);
}

/* ---------------------------------------------------------------------------- marks */

/* Circles are octagons: at such sizes the same. */
void hl_canvas_mark(hl_canvas *canvas, hl_point at, hl_mark mark, double radius, hl_colour colour)
{
    static const struct {
        int      n;
        hl_point corners[8];
    } shapes[] = {
        [HL_MARK_CIRCLE]  = { 8,
                              { { 0.95, 0.39 },
                                { 0.39, 0.95 },
                                { -0.39, 0.95 },
                                { -0.95, 0.39 },
                                { -0.95, -0.39 },
                                { -0.39, -0.95 },
                                { 0.39, -0.95 },
                                { 0.95, -0.39 } } },
        [HL_MARK_SQUARE]  = { 4,
                              { { 0.85, 0.85 },
                                { -0.85, 0.85 },
                                { -0.85, -0.85 },
                                { 0.85, -0.85 } } },
        [HL_MARK_DIAMOND] = { 4, { { 1.2, 0.0 }, { 0.0, 1.2 }, { -1.2, 0.0 }, { 0.0, -1.2 } } },
        [HL_MARK_UP]      = { 3, { { 0.0, -1.2 }, { 1.1, 0.8 }, { -1.1, 0.8 } } },
        [HL_MARK_DOWN]    = { 3, { { 0.0, 1.2 }, { 1.1, -0.8 }, { -1.1, -0.8 } } },
    };
    hl_point points[8];

    for (int i = 0; i < shapes[mark].n; i++)
        points[i] = (hl_point){ at.x + radius * shapes[mark].corners[i].x,
                                at.y + radius * shapes[mark].corners[i].y };
    hl_canvas_polygon(canvas, points, shapes[mark].n, colour);
}
