/* chart.h - frames and what is drawn in them: lines, bands, dots and bars; diagnoses below.
 *
 * The y of a chart is an axis of numbers; its x is one, too, or things in a row (layers, positions),
 * of which it is the number:
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
 *     hl_chart_grid(&row);                        bands lie under it, the rest above
 *     hl_chart_line(&row, NULL, means, n_layers, &stroke);
 *
 * NaN is a gap. */
#ifndef HL_RENDER_CHART_H
#define HL_RENDER_CHART_H

#include "render/figure.h"

/* ---------------------------------------------------------------------- charts */

typedef struct hl_chart {
    hl_figure *figure;
    int64_t    n; /* things in a row; 0: x is a number */
    hl_axis    x; /* of numbers */
    hl_axis    y;
    hl_box     box;
    hl_point  *points; /* room for lines and bands, of hl_chart_room */
} hl_chart;

/* Room for lines and bands of at most n points. */
hl_status hl_chart_room(hl_chart *chart, int64_t n);
void      hl_chart_free(hl_chart *chart);

/* Where a point is; and is it finite, and does a logarithmic axis have a place for it? */
hl_point hl_chart_point(const hl_chart *chart, double x, double y);
bool     hl_chart_has(const hl_chart *chart, double x, double y);

/* Lines at the ticks of y, and the axes; of a row the lowest line is the axis. */
void hl_chart_grid(const hl_chart *chart);
/* x (n) NULL: the numbers of the row's things. */
void hl_chart_line(hl_chart *chart, const double *x, const double *y, int64_t n,
                   const hl_stroke *stroke);
void hl_chart_band(hl_chart *chart, const double *x, const double *lows, const double *highs,
                   int64_t n, hl_color color);
void hl_chart_dot(const hl_chart *chart, double x, double y, double radius, hl_color color);
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

void hl_canvas_mark(hl_canvas *canvas, hl_point at, hl_mark mark, double radius, hl_color color);

/* ------------------------------------------------------------------- diagnoses */

/* What is wrong with a model, where in a figure it shows.
 *
 *     HL_SCOPED(hl_diagnosis_marks_free) hl_diagnosis_marks marks = { 0 };
 *     HL_NEED(hl_diagnosis_marks_read(&marks, figure->profile));
 *     ... hl_row_words.marks = &marks ... */
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

/* ------------------------------------------------------------------------ rows */

/* What is said around a row of things. */
typedef struct hl_row_words {
    const char        *x_name;
    const char        *y_name;
    const char *const *labels; /* (n) under the things; NULL: their numbers */
    const char        *what;   /* for the caption */
    bool               keyed;  /* there will be keys above the frame */
    /* Diagnoses, in a strip below the frame; NULL: none.  The things are layers. */
    const hl_diagnosis_marks *marks;
} hl_row_words;

/* The page of a figure that is one row, with its labels; room for points, too. */
hl_status hl_chart_begin(hl_chart *chart, double height, const hl_row_words *words);
void      hl_chart_bars(hl_chart *chart, const double *values, hl_color color);

/* A key above the frame, entry after entry: a sample of the line, band or dot, and its name. */
typedef enum hl_key_kind { HL_KEY_LINE = 0, HL_KEY_BAND, HL_KEY_DOT } hl_key_kind;
typedef struct hl_key {
    hl_key_kind kind;
    hl_color    color;
    const char *name;
} hl_key;
void hl_chart_keys(const hl_chart *chart, const hl_key *keys, int n_keys);
/* The same, beginning anywhere. */
void hl_figure_keys(hl_figure *figure, hl_point at, const hl_key *keys, int n_keys);

#endif
