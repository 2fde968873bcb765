/* figure.h - what all figures share: page, title, caption, color bar.
 *
 * A figure is a function from a profile to a drawing.  It knows how high it will be once
 * it has its numbers; hl_figure_begin then makes the page around it:
 *
 *     HL_NEED(hl_grid_means(&values, figure->profile, hl_figure_quantity(figure)));
 *     hl_box box = hl_figure_begin(figure, height, "What is seen.");
 *     ... draws within the box, on figure->canvas
 *
 * figure.c has the table of figures, and hl_draw. */
#ifndef HL_RENDER_FIGURE_H
#define HL_RENDER_FIGURE_H

#include "headlight/render.h"
#include "render/canvas.h"

/* -------------------- where an axis begins and ends, and which of its values get a label */

/* Ticks are evenly spaced. A logarithmic axis that is long enough has ticks at 1, 2 and 5 times
 * every power of ten, or at the powers alone. */
typedef enum hl_ticks { HL_TICKS_EVEN = 0, HL_TICKS_RUNGS, HL_TICKS_POWERS } hl_ticks;

typedef struct hl_axis {
    double   low;
    double   high;
    double   step;     /* distance of even ticks: 1, 2 or 5 times a power of ten */
    int64_t  n_steps;  /* number of ticks minus 1 */
    int      decimals; /* decimals of labels, for even ticks */
    int64_t  first; /* first tick: first * step, or the number of a rung (power) counted from 1 */
    hl_ticks ticks;
    bool     logarithmic;
} hl_axis;

/* Returns an axis from a multiple of the step at or below `low` to one at or above `high`, with
 * about `n_steps` steps. */
hl_axis hl_axis_around(double low, double high, int n_steps);
/* Returns an axis from exactly low to high, with the ticks that lie between. */
hl_axis hl_axis_within(double low, double high, int n_steps);
/* As hl_axis_within, on a logarithmic scale; 0 < low. */
hl_axis hl_axis_log(double low, double high, int n_steps);

double hl_axis_tick(const hl_axis *axis, int64_t index); /* index: 0 ... n_steps */
/* Returns 0 at the low end, 1 at the high end. */
double hl_axis_share(const hl_axis *axis, double value);

enum { HL_NUMBER_BYTES = 32 };
/* Writes a value with the axis' decimals and a real minus sign; returns `room`. */
const char *hl_axis_label(char room[HL_NUMBER_BYTES], const hl_axis *axis, double value);

/* Returns n such that every n-th of items `distance` apart can have a label `width` wide: 1, 2, 4,
 * 5, 8, 10, 16, 20 ... */
int64_t hl_label_every(double distance, double width);

/* ------------------------------------------------------------------------ figures */

typedef struct hl_figure {
    const hl_profile      *profile; /* NULL: the figure shows something other than a profile */
    const hl_profile      *named; /* with `profile` NULL, the one that names layers; may be NULL */
    const char            *default_title;
    const char            *key;     /* the definition in the caption, by its key; NULL: none */
    hl_draw_options        options; /* with defaults filled in */
    const hl_theme_colors *theme;
    hl_canvas             *canvas;
} hl_figure;

/* Draws a whole figure on a canvas that has no page yet; used by hl_draw and by tests. */
hl_status hl_figure_draw(hl_canvas *canvas, const hl_profile *profile, const char *name,
                         const hl_draw_options *options);

/* The first step of hl_draw and similar functions: opens a canvas for the path's extension, and a
 * figure on it without a profile. The options may replace the title. */
hl_status hl_figure_canvas(hl_canvas **out, const char *path, const hl_draw_options *options);
/* As hl_figure_open, for figures without a choice of units, classes or marked heads: options that
 * ask for them are refused.  `kind` names the figures, such as "curves". */
hl_status hl_figure_open_plain(hl_figure *out, hl_canvas *canvas, const char *title,
                               const char *kind, const hl_draw_options *options);
hl_status hl_figure_open(hl_figure *out, hl_canvas *canvas, const char *title,
                         const hl_draw_options *options);

/* Begins a page of `height` plus the space for title and caption. Returns the box of that height,
 * as wide as the page allows. `what` says in the caption what is shown. */
hl_box hl_figure_begin(hl_figure *figure, double height, const char *what);
/* Returns the width of the box that hl_figure_begin will return. */
double hl_figure_inner_width(const hl_figure *figure);

/* ------------------------------------------------------------------------ numbers */

/* The quantity whose means are shown, and the factor they are multiplied by. */
hl_quantity hl_figure_quantity(const hl_figure *figure);
double      hl_figure_factor(const hl_figure *figure);
/* Returns "nats", "bits" or ""; and "Entropy (nats)" or "Normalized entropy". */
const char *hl_figure_unit(const hl_figure *figure);
const char *hl_figure_unit_label(const hl_figure *figure);
/* Makes an axis from 0 to the largest value or, for normalized values, to 1. Fails with
 * HL_BAD_INPUT if no value is finite. */
hl_status hl_figure_scale(hl_axis *out, const hl_figure *figure, const double *values,
                          int64_t n_values);

/* -------------------------------------------------------------------------- pieces */

enum { HL_TEXT_SMALL = 7, HL_TEXT_NORMAL = 8, HL_TEXT_TITLE = 12 };

hl_text_style hl_figure_small(const hl_figure *figure, hl_anchor anchor, hl_stand stand);
hl_text_style hl_figure_normal(const hl_figure *figure, hl_anchor anchor, hl_stand stand);
hl_stroke     hl_figure_axis_stroke(const hl_figure *figure);

/* Shortens a text in place to a width, with an ellipsis; at least the ellipsis remains. */
void hl_figure_shorten(const hl_figure *figure, char *text, size_t n_bytes, double width,
                       const hl_text_style *style);
/* Copies as many whole characters as fit into n_bytes, including the NUL; returns `out`. */
const char *hl_figure_copy(char *out, size_t n_bytes, const char *text);

/* Returns the blue color map of the theme, where 0 is the page's background; and the word for a
 * high value in captions: "darker". */
hl_map      hl_figure_blues(const hl_figure *figure);
const char *hl_figure_more(const hl_figure *figure);

/* Returns the width of the widest label of an axis. */
double hl_figure_label_width(const hl_figure *figure, const hl_axis *axis);

/* Draws a color bar with the axis' labels to its right and a vertical name; it needs
 * hl_figure_color_bar_width. */
double hl_figure_color_bar_width(const hl_figure *figure, const hl_axis *axis);
void   hl_figure_color_bar(hl_figure *figure, hl_box box, hl_map map, const hl_axis *axis,
                           const char *name);

/* The parts of a color bar whose ticks may be uneven: the ramp, a tick at a share of its height,
 * and the name, `width` to the right of the box. */
void hl_figure_bar_frame(hl_figure *figure, hl_box box, hl_map map);
void hl_figure_bar_tick(hl_figure *figure, hl_box box, double share, const char *label);
void hl_figure_bar_name(hl_figure *figure, hl_box box, double width, const char *name);

/* The number of a layer or a head; where the axis is "Layer" and the profile has several sets of heads,
 * the name of the layer, "E3". */
const char *hl_figure_index_name(char room[HL_HEAD_NAME_BYTES], const hl_figure *figure,
                                 int64_t index, const char *axis);
/* Draws labels 0 ... n - 1 below (or left of) items that share the box' width (or its height, from
 * below) evenly; labels are thinned where they would touch. */
void hl_figure_indices_across(hl_figure *figure, hl_box box, int64_t n, const char *name);
/* `lowest` names an additional row below row 0; NULL: there is none. */
void hl_figure_indices_up(hl_figure *figure, hl_box box, int64_t n, const char *lowest,
                          const char *name);
/* Returns the space that hl_figure_indices_up needs left of the box, and hl_figure_indices_across
 * below it. */
double hl_figure_indices_width(const hl_figure *figure, int64_t n, const char *lowest);
#define HL_INDICES_HEIGHT 28.0

/* Draws the columns of layers without attention: gray, with a line. */
void              hl_figure_other_layers(hl_figure *figure, const hl_profile *profile, hl_box grid);
bool              hl_figure_has_other_layers(const hl_profile *profile);
extern const char hl_figure_other_caption[];

/* ------------------------------------------------------------------------- figures */

/* Figures without a profile, each in the named file. */
hl_status hl_figure_curves(hl_figure *figure, const hl_curves *curves);    /* figure_curves.c */
hl_status hl_figure_scatter(hl_figure *figure, const hl_scatter *scatter); /* figure_scatter.c */
/* If the options have no width, hl_comparison_width determines it. */
hl_status hl_figure_comparison(hl_figure *figure, const hl_compared sides[2], /* figure_compare.c */
                               const hl_comparison *found);
double    hl_comparison_width(const hl_compared *side);

/* Figures of a prompt, on a canvas that has no page yet; used by hl_draw_tokens, hl_draw_lens and
 * by tests. */
hl_status hl_token_figure_draw(hl_canvas *canvas, const hl_token_view *view, /* figure_tokens.c */
                               const hl_token_figure *options);
hl_status hl_lens_figure_draw(hl_canvas *canvas, const hl_lens_view *view, /* figure_lens.c */
                              const hl_draw_options *options);

/* Figures of a profile, listed in the table of figure.c. */
hl_status hl_figure_heatmap(hl_figure *figure); /* figure_heatmap.c */
hl_status hl_figure_layers(hl_figure *figure);  /* figure_profile.c */
hl_status hl_figure_variance(hl_figure *figure);
hl_status hl_figure_positions(hl_figure *figure);
hl_status hl_figure_histograms(hl_figure *figure);

/* -------------------------------------------------------------- small maps */

/* The attention of all heads of a model as small maps, one row of maps per
 * layer; hl_draw_comparison is in headlight.h.
 *
 * Every map has the head's name above it and metrics below, as many as the width allows, and the
 * same ones for all maps.  Colors are proportional to the square root of the attention: a row sums
 * to 1, and most of it may go to one key. */

enum { HL_BLOCK_METRICS = 4, HL_BLOCK_LINES = 2 };

typedef struct hl_map_block {
    hl_figure         *figure;
    const hl_compared *side;
    double             step;                  /* distance from one map to the next */
    double             map;                   /* width and height of a map */
    double             down;                  /* distance from one row of maps to the next */
    double             height;                /* total height, including the model's name */
    bool               named;                 /* there is room for the heads' names */
    int                lines[HL_BLOCK_LINES]; /* number of metrics per line, in order */
} hl_map_block;

/* Lays out the maps of one side within a width; sets their height. */
void hl_map_block_plan(hl_map_block *out, hl_figure *figure, const hl_compared *side, double width);

#endif
