/* headlight/render.h - pictures of what was measured.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_RENDER_H
#define HEADLIGHT_RENDER_H

#include "analysis.h"
#include "view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- colors
 *
 * Lightness changes evenly from one end of a map to the other, or from the middle to both ends.
 * The order of the colors is therefore visible in gray printing and with color blindness. */

typedef struct hl_color {
    uint8_t red;
    uint8_t green;
    uint8_t blue;
} hl_color;

typedef enum hl_map {
    HL_MAP_ENTROPY = 0, /* dark violet over blue, teal and green to light yellow */
    HL_MAP_BLUES,       /* near white to dark blue; dark is high */
    HL_MAP_DIFFERENCE,  /* blue, near white at 0.5, red */
    HL_MAP_BLUES_DARK,  /* near black to light blue, for dark pages */
} hl_map;

/* Number of colors of a map; color 0 is that of share 0. */
enum { HL_MAP_LEVELS = 256 };

/* Returns the color of a share.  Values outside 0 to 1 are clamped; NaN has no color. */
HL_API hl_color hl_map_color(hl_map map, double share);

/* The number of colors of a terminal. */
typedef enum hl_depth {
    HL_DEPTH_NONE = 0, /* no colors, or the output is not a terminal */
    HL_DEPTH_256,
    HL_DEPTH_TRUE,
} hl_depth;

/* Escape sequences.  After them, the text has the map's color as its background, with a readable
 * text color, or as the color of the text, until hl_terminal_end.  With 256 colors a map has nine
 * levels. All three are "" if the depth is HL_DEPTH_NONE; the first two return `out`. */
enum { HL_ESCAPE_BYTES = 40 };
HL_API const char *hl_terminal_cell(char out[HL_ESCAPE_BYTES], hl_depth depth, hl_map map,
                                    double share);
HL_API const char *hl_terminal_text(char out[HL_ESCAPE_BYTES], hl_depth depth, hl_map map,
                                    double share);
HL_API const char *hl_terminal_end(hl_depth depth);

/* ---------------------------------------------------------------- pictures
 *
 *     hl_draw_options options = { .theme = HL_THEME_DARK };
 *     hl_draw(profile, "heatmap", "heads.svg", &options);
 *
 * Each file holds one figure; its extension selects the format: .svg, .png or .pdf. */

typedef enum hl_theme { HL_THEME_LIGHT = 0, HL_THEME_DARK } hl_theme;

typedef enum hl_entropy_unit {
    HL_UNIT_NATS = 0,
    HL_UNIT_BITS,
    HL_UNIT_NORMALIZED, /* H / ln n, for rows that see at least 16 keys */
} hl_entropy_unit;

typedef enum hl_scale {
    HL_SCALE_CONTINUOUS = 0,
    HL_SCALE_CLASSES, /* six classes, with limits at 0.5, 1, 1.5, 2 and 2.5 nats; heatmap only */
} hl_scale;

typedef struct hl_draw_options {
    const char     *title;   /* NULL: the figure's default title; "": no title */
    const char     *caption; /* text before the profile's own caption, such as the name of the
                              * corpus */
    hl_theme        theme;
    hl_entropy_unit unit;
    hl_scale        scale;
    double          width; /* points, 240 to 2000; 0: 480 */
    double          dpi;   /* resolution of PNG, 24 to 1200; 0: 144 */
    uint64_t        seed;  /* random seed of clustering */
    /* Marks of the heatmap.  Lists are "L5H1,L7", where L7 stands for all heads of layer 7. */
    const char *pruned;         /* drawn hatched, as are heads without output; NULL: only those */
    const char *candidates;     /* drawn outlined, with their place in the list; NULL: n_candidates
                                 * applies */
    int64_t     n_candidates;   /* number of heads to outline, lowest output norm first */
    bool candidates_by_entropy; /* outline heads of highest entropy first; in our sweeps, removing
                                 * these cost more than a random order (doc/sweep.md) */
} hl_draw_options;

/* The names of the figures, and one line on each; NULL past the last. */
HL_API const char *hl_figure_name(size_t index);
HL_API const char *hl_figure_summary(size_t index);

/* Draws a figure.  The options may be NULL.  Returns HL_BAD_ARGUMENT for an unknown figure, format
 * or width; HL_BAD_INPUT if the profile does not hold what the figure shows. */
HL_API hl_status hl_draw(const hl_profile *profile, const char *figure, const char *path,
                         const hl_draw_options *options);

/* -------------------------------------------------------------- two models
 *
 * With patterns, the figure shows the attention of every head of A and of B as small maps, their
 * metrics under them, and the differences of their entropies below.  Without patterns, it shows the
 * entropies of A, those of B, and the differences. */

typedef struct hl_compared {
    const char        *name;
    const hl_profile  *profile;
    const hl_patterns *patterns; /* of this model on the same tokens as the other's; NULL for both
                                  * models or for neither */
} hl_compared;

/* Draws two models.  `found` is the comparison of the two profiles.  The default width has room for
 * 16 heads side by side; the options may be NULL.  Returns HL_BAD_ARGUMENT if the two differ in
 * shape or tokens. */
HL_API hl_status hl_draw_comparison(const hl_compared *a, const hl_compared *b,
                                    const hl_comparison *found, const char *path,
                                    const hl_draw_options *options);

/* ------------------------------------------------------------------ curves
 *
 *     hl_curve  lines[]  = { { .name = "entropy", .n = 9, .x = ratios, .y = perplexities },
 *                            { .name = "random", .n = 9, .x = ratios, .y = medians,
 *                              .low = least, .high = most, .kind = HL_CURVE_CHANCE } };
 *     hl_curves figure   = { .title = "Pruning by entropy", .x_name = "Heads removed",
 *                            .y_name = "Perplexity", .curves = lines, .n_curves = 2 };
 *     hl_draw_curves(&figure, "sweep.svg", NULL);
 *
 * One number as a function of another, or a time series.  Names stand at the right ends of the
 * lines. */

typedef enum hl_curve_kind {
    HL_CURVE_LINE = 0, /* a curve with its own color and mark */
    HL_CURVE_CHANCE,   /* gray: the curve that others are compared with */
    HL_CURVE_LEVEL,    /* gray, dashed, without marks: for example, the level before a change */
} hl_curve_kind;

/* All pointers are borrowed.  A value that is not finite is a gap; x must increase. */
typedef struct hl_curve {
    const char   *name;
    int64_t       n;
    const double *x;         /* (n) */
    const double *y;         /* (n) */
    const double *low;       /* (n) lower limit of a pale band around the line; NULL: none */
    const double *high;      /* (n) */
    const double *inner_low; /* (n) lower limit of a darker band, for example quartiles; NULL:
                              * none */
    const double *inner_high;
    hl_curve_kind kind;
} hl_curve;

typedef struct hl_curves {
    const char     *title;
    const char     *x_name;
    const char     *y_name;
    const char     *what;       /* first words of the caption; NULL: none */
    const char     *band;       /* meaning of the pale bands, such as "range of 10 seeds"; NULL: not
                                 * stated */
    const char     *inner_band; /* meaning of the darker bands; NULL: not stated */
    const hl_curve *curves;     /* (n_curves) */
    int64_t         n_curves;
    bool            log_x;
    bool            log_y;
} hl_curves;

/* Draws the curves.  Returns HL_BAD_ARGUMENT as hl_draw does, and for options of heatmaps (unit,
 * scale, pruned, candidates); HL_BAD_INPUT if there are no points, or if a logarithmic axis has no
 * place for one of them. */
HL_API hl_status hl_draw_curves(const hl_curves *curves, const char *path,
                                const hl_draw_options *options);

/* ----------------------------------------------------------------- scatter
 *
 * One panel per ranker, with a point for each head: the ranker's score, and the cost of disabling
 * the head.  The panels share their y axis. */

typedef struct hl_scatter_panel {
    const char   *name;
    const double *x;   /* (n_points) */
    const double *y;   /* (n_points) */
    double        rho; /* Spearman's rho; NaN: not shown */
    double        rho_low;
    double        rho_high;
} hl_scatter_panel;

typedef struct hl_scatter {
    const char             *title;
    const char             *x_name;
    const char             *y_name;
    const char             *what; /* first words of the caption; NULL: none */
    int64_t                 n_points;
    const char *const      *names;  /* (n_points) titles of the points in SVG; NULL: none */
    const hl_scatter_panel *panels; /* (n_panels) */
    int64_t                 n_panels;
} hl_scatter;

/* Draws the panels; returns errors as hl_draw_curves does. */
HL_API hl_status hl_draw_scatter(const hl_scatter *scatter, const char *path,
                                 const hl_draw_options *options);

/* ----------------------------------------------------- pictures of a prompt */

/* How probabilities become colors.  A row sums to 1, so on a long prompt nearly all values are
 * small: their square roots are easier to distinguish.  The color bar shows the scale. */
typedef enum hl_attention_scale {
    HL_ATTENTION_ROOT = 0,
    HL_ATTENTION_LINEAR,
} hl_attention_scale;

/* A text with an arrow to the cell where token `row` attends to token `column`. */
typedef struct hl_note {
    const char *text;
    int64_t     row;
    int64_t     column;
} hl_note;

typedef struct hl_token_figure {
    hl_draw_options    draw; /* unit and scale must be 0 */
    hl_attention_scale scale;
    int64_t            zoom_begin; /* first token of [begin, end), which is drawn again and larger;
                                    * both 0: none */
    int64_t            zoom_end;
    const hl_note     *notes;
    int64_t            n_notes;
} hl_token_figure;

/* Draws a map of all tokens, with the entropy of every row beside it and the zoomed tokens and the
 * insets below it.  If there are too many tokens, several share a cell, and the caption says so.
 * The options may be NULL.  Returns HL_BAD_ARGUMENT for tokens that do not exist and for notes that
 * do not fit. */
HL_API hl_status hl_draw_tokens(const hl_token_view *view, const char *path,
                                const hl_token_figure *options);

/* Draws the lens, with layers upward and tokens across: each cell holds the most likely next token,
 * and its color is the entropy.  What exceeds the width continues below.  Returns HL_BAD_ARGUMENT
 * if the options have a unit or a scale; HL_LIMIT if the page would be higher than 4000 points. */
HL_API hl_status hl_draw_lens(const hl_lens_view *view, const char *path,
                              const hl_draw_options *options);

/* Token views and lenses for a terminal.  Release the texts with hl_free.  If tokens are zoomed,
 * only they are shown; notes become footnotes, and insets small maps below. */
typedef struct hl_print_options {
    int      width; /* number of columns, at least 40; 0: 80 */
    hl_depth depth;
    hl_theme theme; /* theme of the terminal's background */
} hl_print_options;

HL_API hl_status hl_print_tokens(char **out, const hl_token_view *view,
                                 const hl_token_figure *options, const hl_print_options *print);
HL_API hl_status hl_print_lens(char **out, const hl_lens_view *view, const hl_print_options *print);

#ifdef __cplusplus
}
#endif
#endif
