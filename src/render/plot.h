/* plot.h - lines, bands, dots and bars over things that stand in a row: layers, positions.
 *
 *     hl_plot plot = { figure, n_layers, axis };
 *     HL_TRY(hl_plot_begin(&plot, 200.0, &words));
 *     hl_plot_band(&plot, lows, highs, colour);
 *     hl_plot_grid(&plot);                        bands lie under it, the rest above
 *     hl_plot_line(&plot, means, &stroke);
 *
 * NaN is a gap.  Memory for points is the plot's, from begin to end. */
#ifndef HL_RENDER_PLOT_H
#define HL_RENDER_PLOT_H

#include "render/diagnosis_marks.h"
#include "render/figure.h"

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
