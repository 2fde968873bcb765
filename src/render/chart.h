/* chart.h - a frame with two axes of numbers, and marks in it.
 *
 *     hl_chart chart = { figure, hl_axis_within(0, 0.9, 5), hl_axis_log(12, 4000, 5), box };
 *     hl_chart_grid(&chart);
 *     hl_chart_label_y(&chart, "Perplexity");
 *     hl_chart_label_x(&chart, "Heads removed");
 *     hl_canvas_mark(canvas, hl_chart_point(&chart, 0.3, 24.0), HL_MARK_CIRCLE, 2.4, colour);
 *
 * plot.h is for things that stand in a row. */
#ifndef HL_RENDER_CHART_H
#define HL_RENDER_CHART_H

#include "render/figure.h"

typedef struct hl_chart {
    hl_figure *figure;
    hl_axis    x;
    hl_axis    y;
    hl_box     box;
} hl_chart;

/* Where a point is; and is it finite, and does a logarithmic axis have a place for it? */
hl_point hl_chart_point(const hl_chart *chart, double x, double y);
bool     hl_chart_has(const hl_chart *chart, double x, double y);

/* Lines at the ticks of y, and the axes. */
void hl_chart_grid(const hl_chart *chart);
/* Labels at the ticks; the name may be NULL.  They take hl_chart_left of room left of the box, and
 * HL_INDICES_HEIGHT below it. */
void   hl_chart_label_x(const hl_chart *chart, const char *name);
void   hl_chart_label_y(const hl_chart *chart, const char *name);
double hl_chart_left(const hl_chart *chart);

typedef enum hl_mark {
    HL_MARK_CIRCLE = 0,
    HL_MARK_SQUARE,
    HL_MARK_DIAMOND,
    HL_MARK_UP,
    HL_MARK_DOWN,
    HL_N_MARKS
} hl_mark;

void hl_canvas_mark(hl_canvas *canvas, hl_point at, hl_mark mark, double radius, hl_colour colour);

#endif
