/* chart.h - frames and what is drawn in them: lines, bands, dots and bars; diagnoses below.
 *
 * The y of a chart is an axis of numbers.  Its x is an axis of numbers too, or the index of an item
 * in a row (layers, positions):
 *
 *     hl_chart chart = { figure, 0, hl_axis_within(0, 0.9, 5), hl_axis_log(12, 4000, 5), box };
 *     hl_chart_grid(&chart);
 *     hl_chart_label_y(&chart, "Perplexity");
 *     hl_chart_label_x(&chart, "Heads removed");
 *     hl_canvas_mark(canvas, hl_chart_point(&chart, 0.3, 24.0), HL_MARK_CIRCLE, 2.4, color);
 *
 *     HL_SCOPED(hl_chart_free) hl_chart row = { .figure = figure, .n = n_layers, .y = axis };
 *     HL_NEED(hl_chart_begin(&row, 200.0, &words));
 *     hl_chart_band(&row, NULL, lows, highs, n_layers, color);
 *     hl_chart_grid(&row);                        above bands, below everything else
 *     hl_chart_line(&row, NULL, means, n_layers, &stroke);
 *
 * NaN values leave a gap. */
#ifndef HL_RENDER_CHART_H
#define HL_RENDER_CHART_H

#include "render/figure.h"

/* ---------------------------------------------------------------------- charts */

typedef struct hl_chart {
    hl_figure *figure;
    int64_t    n; /* number of items in a row; 0: x is a number */
    hl_axis    x; /* axis of numbers */
    hl_axis    y;
    hl_box     box;
    hl_point  *points; /* room for lines and bands, from hl_chart_room */
} hl_chart;

/* Makes room for lines and bands of at most n points. */
hl_status hl_chart_room(hl_chart *chart, int64_t n);
void      hl_chart_free(hl_chart *chart);

/* Returns the position of a point, and whether the axes can show it: it must be finite and, on a
 * logarithmic axis, positive. */
hl_point hl_chart_point(const hl_chart *chart, double x, double y);
bool     hl_chart_has(const hl_chart *chart, double x, double y);

/* Draws lines at the ticks of y, and the axes. In a chart of a row the lowest line is the axis. */
void hl_chart_grid(const hl_chart *chart);
/* x (n); NULL: the indices of the row's items. */
void hl_chart_line(hl_chart *chart, const double *x, const double *y, int64_t n,
                   const hl_stroke *stroke);
void hl_chart_band(hl_chart *chart, const double *x, const double *lows, const double *highs,
                   int64_t n, hl_color color);
void hl_chart_dot(const hl_chart *chart, double x, double y, double radius, hl_color color);
/* Draws labels at the ticks; the name may be NULL. They need hl_chart_left to the left of the box
 * and HL_INDICES_HEIGHT below it. */
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

void hl_canvas_mark(hl_canvas *canvas, hl_point at, hl_mark mark, double radius, hl_color color);

/* ------------------------------------------------------------------- diagnoses */

/* The diagnoses found in a model, and the layers that they concern.
 *
 *     HL_SCOPED(hl_diagnosis_marks_free) hl_diagnosis_marks marks = { 0 };
 *     HL_NEED(hl_diagnosis_marks_read(&marks, figure->profile));
 *     ... hl_row_words.marks = &marks ... */
typedef struct hl_diagnosis_marks {
    int64_t     n_layers;
    int         n_rows;                /* number of diagnoses found */
    const char *names[HL_N_DIAGNOSES]; /* (n_rows) */
    /* (n_rows) number of heads concerned; 0: the whole model */
    int64_t n_heads[HL_N_DIAGNOSES];
    /* (n_rows, n_layers) share of the layer's heads; 1 if the whole model is concerned */
    double *shares;
} hl_diagnosis_marks;

hl_status hl_diagnosis_marks_read(hl_diagnosis_marks *out, const hl_profile *profile);
void      hl_diagnosis_marks_free(hl_diagnosis_marks *marks);
/* Was the diagnosis of this name found? */
bool hl_diagnosis_marks_has(const hl_diagnosis_marks *marks, const char *name);
/* Writes "Diagnoses: sink-heads (12 heads)." for captions; "" if there is none. */
void hl_diagnosis_marks_say(char *out, size_t n_bytes, const hl_diagnosis_marks *marks);

/* ------------------------------------------------------------------------ rows */

/* The texts around a row of items. */
typedef struct hl_row_words {
    const char        *x_name;
    const char        *y_name;
    const char *const *labels; /* (n) labels under the items; NULL: their indices */
    const char        *what;   /* what is shown, for the caption */
    bool               keyed;  /* leave room for keys above the frame */
    /* Diagnoses, shown in a strip below the frame; the items must be layers. NULL: none. */
    const hl_diagnosis_marks *marks;
} hl_row_words;

/* Begins the page of a figure that is one row, with its labels, and makes room for points. */
hl_status hl_chart_begin(hl_chart *chart, double height, const hl_row_words *words);
void      hl_chart_bars(hl_chart *chart, const double *values, hl_color color);

/* An entry of the key above the frame: a sample of the line, band or dot, and its name. */
typedef enum hl_key_kind { HL_KEY_LINE = 0, HL_KEY_BAND, HL_KEY_DOT } hl_key_kind;
typedef struct hl_key {
    hl_key_kind kind;
    hl_color    color;
    const char *name;
} hl_key;
void hl_chart_keys(const hl_chart *chart, const hl_key *keys, int n_keys);
/* Draws keys at any position. */
void hl_figure_keys(hl_figure *figure, hl_point at, const hl_key *keys, int n_keys);

#endif
