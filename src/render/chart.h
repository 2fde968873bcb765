/* chart.h - frames and what is drawn in them: charts, plots, diagnoses.
 *
 * A chart has two axes of numbers:
 *
 *     hl_chart chart = { figure, hl_axis_within(0, 0.9, 5), hl_axis_log(12, 4000, 5), box };
 *     hl_chart_grid(&chart);
 *     hl_chart_label_y(&chart, "Perplexity");
 *     hl_chart_label_x(&chart, "Heads removed");
 *     hl_canvas_mark(canvas, hl_chart_point(&chart, 0.3, 24.0), HL_MARK_CIRCLE, 2.4, colour);
 *
 * A plot has lines, bands, dots and bars over things that stand in a row: layers, positions.
 *
 *     hl_plot plot = { figure, n_layers, axis };
 *     HL_TRY(hl_plot_begin(&plot, 200.0, &words));
 *     hl_plot_band(&plot, lows, highs, colour);
 *     hl_plot_grid(&plot);                        bands lie under it, the rest above
 *     hl_plot_line(&plot, means, &stroke);
 *
 * NaN is a gap.  Memory for points is the plot's, from begin to end. */
#ifndef HL_RENDER_CHART_H
#define HL_RENDER_CHART_H

#include "render/figure.h"

/* ---------------------------------------------------------------------- charts */

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

/* ------------------------------------------------------------------- diagnoses */

/* What is wrong with a model, where in a figure it shows.
 *
 *     hl_diagnosis_marks marks = { 0 };
 *     HL_TRY(hl_diagnosis_marks_read(&marks, figure->profile));
 *     ... hl_plot_words.marks = &marks ...
 *   done:
 *     hl_diagnosis_marks_free(&marks); */
typedef struct hl_diagnosis_marks {
    int64_t     n_layers;
    int         n_rows;                  /* diagnoses that hold */
    const char *names[HL_N_DIAGNOSES];   /* (n_rows) */
    int64_t     n_heads[HL_N_DIAGNOSES]; /* (n_rows) that show it; 0: it is of the whole model */
    double     *shares; /* (n_rows, n_layers) of the layer's heads; 1 everywhere of the whole
                         * model's */
} hl_diagnosis_marks;

hl_status hl_diagnosis_marks_read(hl_diagnosis_marks *out, const hl_profile *profile);
void      hl_diagnosis_marks_free(hl_diagnosis_marks *marks);
/* Does the one of this name hold? */
bool hl_diagnosis_marks_has(const hl_diagnosis_marks *marks, const char *name);
/* "Diagnoses: sink-heads (12 heads)." for captions; "" if there is none. */
void hl_diagnosis_marks_say(char *out, size_t n_bytes, const hl_diagnosis_marks *marks);

/* ----------------------------------------------------------------------- plots */

typedef struct hl_plot {
    hl_figure *figure;
    int64_t    n; /* things in a row */
    hl_axis    y;
    hl_box     box;    /* set by begin */
    hl_point  *points; /* (2 n) */
} hl_plot;

/* labels (n) under the things; NULL: their numbers. */
typedef struct hl_plot_words {
    const char        *x_name;
    const char        *y_name;
    const char *const *labels;
    const char        *what;  /* for the caption */
    bool               keyed; /* there will be keys above the frame */
    /* Diagnoses, in a strip below the frame; NULL: none.  The things are layers. */
    const hl_diagnosis_marks *marks;
} hl_plot_words;

hl_status hl_plot_begin(hl_plot *plot, double height, const hl_plot_words *words);
void      hl_plot_end(hl_plot *plot);

double hl_plot_x(const hl_plot *plot, int64_t index);
double hl_plot_y(const hl_plot *plot, double value);

void hl_plot_band(hl_plot *plot, const double *lows, const double *highs, hl_colour colour);
void hl_plot_grid(hl_plot *plot);
void hl_plot_line(hl_plot *plot, const double *values, const hl_stroke *stroke);
void hl_plot_bars(hl_plot *plot, const double *values, hl_colour colour);
void hl_plot_dot(hl_plot *plot, int64_t index, double value, double radius, hl_colour colour);

/* A key above the plot, entry after entry: a sample of the line, band or dot, and its name. */
typedef enum hl_key_kind { HL_KEY_LINE = 0, HL_KEY_BAND, HL_KEY_DOT } hl_key_kind;
typedef struct hl_key {
    hl_key_kind kind;
    hl_colour   colour;
    const char *name;
} hl_key;
void hl_plot_keys(hl_plot *plot, const hl_key *keys, int n_keys);
/* The same, beginning anywhere. */
void hl_figure_keys(hl_figure *figure, hl_point at, const hl_key *keys, int n_keys);

#endif
