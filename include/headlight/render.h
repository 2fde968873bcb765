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
 * Lightness runs evenly from one end of a map to the other (or to both, from the middle), so
 * that the order of colors survives gray printing and every kind of color blindness. */

typedef struct hl_color {
    uint8_t red;
    uint8_t green;
    uint8_t blue;
} hl_color;

typedef enum hl_map {
    HL_MAP_ENTROPY = 0, /* dark violet over blue, teal and green to light yellow */
    HL_MAP_BLUES,       /* near white to dark blue: much is dark */
    HL_MAP_DIFFERENCE,  /* blue, near white at 0.5, red */
    HL_MAP_BLUES_DARK,  /* for dark pages: near black to light blue */
} hl_map;

/* A map has so many colors; share 0 is the first. */
enum { HL_MAP_LEVELS = 256 };

/* share is from 0 to 1, and is brought there where it is not; NaN has no color. */
HL_API hl_color hl_map_color(hl_map map, double share);

/* How many colors a terminal has. */
typedef enum hl_depth {
    HL_DEPTH_NONE = 0, /* none, or nobody is watching */
    HL_DEPTH_256,
    HL_DEPTH_TRUE,
} hl_depth;

/* Escape sequences: what follows has the map's color behind it, with text on it that can be
 * read, or as the color of its text; until hl_terminal_end.  With 256 colors a map has nine.
 * All are "" where the depth is none; the first two return `out`. */
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
 * One figure a file; its ending says which format: .svg, .png or .pdf. */

typedef enum hl_theme { HL_THEME_LIGHT = 0, HL_THEME_DARK } hl_theme;

typedef enum hl_entropy_unit {
    HL_UNIT_NATS = 0,
    HL_UNIT_BITS,
    HL_UNIT_NORMALIZED, /* H / ln n, of rows that see at least 16 keys */
} hl_entropy_unit;

typedef enum hl_scale {
    HL_SCALE_CONTINUOUS = 0,
    HL_SCALE_CLASSES, /* under 0.5 nats, to 1, to 1.5, to 2, to 2.5, over it; heatmap only */
} hl_scale;

typedef struct hl_draw_options {
    const char     *title;   /* NULL: the figure's own; "": none */
    const char     *caption; /* before what the profile says of itself: which corpus, say */
    hl_theme        theme;
    hl_entropy_unit unit;
    hl_scale        scale;
    double          width; /* points, 240 to 2000; 0: 480 */
    double          dpi;   /* of PNG, 24 to 1200; 0: 144 */
    uint64_t        seed;  /* of the bootstrap */
    /* Marks of the heatmap.  Lists are "L5H1,L7", where L7 is all of layer 7. */
    const char *pruned;         /* hatched, as are heads that write nothing; NULL: only those */
    const char *candidates;     /* outlined, with their place in the list; NULL: the following */
    int64_t     n_candidates;   /* the number of heads to outline, lowest output norm first */
    bool candidates_by_entropy; /* highest entropy first instead, which cost more than a random
                                 * order in our sweeps (doc/sweep.md) */
} hl_draw_options;

/* The names of the figures, and a line on each; NULL past the last. */
HL_API const char *hl_figure_name(size_t index);
HL_API const char *hl_figure_summary(size_t index);

/* The options may be NULL.  HL_BAD_ARGUMENT if there is no such figure, format or width;
 * HL_BAD_INPUT if the profile does not hold what the figure shows. */
HL_API hl_status hl_draw(const hl_profile *profile, const char *figure, const char *path,
                         const hl_draw_options *options);

/* -------------------------------------------------------------- two models
 *
 * With patterns: the attention of every head of A and of B as small maps, their metrics under
 * them, and the differences of their entropies below.  Without: those of A, of B, and the
 * differences. */

typedef struct hl_compared {
    const char        *name;
    const hl_profile  *profile;
    const hl_patterns *patterns; /* of both, on the same tokens, or NULL of both */
} hl_compared;

/* `found` is of the two profiles.  A width of 0 is one that 16 heads side by side can be read
 * at; options may be NULL.  HL_BAD_ARGUMENT if the sides differ in shape or tokens. */
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
 * Sweeps of one number over another, and series in time.  Names stand at the right, at the ends
 * of the lines. */

typedef enum hl_curve_kind {
    HL_CURVE_LINE = 0, /* a color and a mark of its own */
    HL_CURVE_CHANCE,   /* gray: what the others are to be held against */
    HL_CURVE_LEVEL,    /* gray, dashed, without marks: how it was before, say */
} hl_curve_kind;

/* Borrowed, all of it.  What is not a finite number is a gap; x rises. */
typedef struct hl_curve {
    const char   *name;
    int64_t       n;
    const double *x;         /* (n) */
    const double *y;         /* (n) */
    const double *low;       /* (n) a pale band around the line; NULL: none */
    const double *high;      /* (n) */
    const double *inner_low; /* (n) a darker band within it: quartiles, say; NULL: none */
    const double *inner_high;
    hl_curve_kind kind;
} hl_curve;

typedef struct hl_curves {
    const char     *title;
    const char     *x_name;
    const char     *y_name;
    const char     *what;       /* the caption begins with it; NULL: nothing */
    const char     *band;       /* what the pale bands are, "range of 10 seeds"; NULL: not said */
    const char     *inner_band; /* and the darker ones */
    const hl_curve *curves;     /* (n_curves) */
    int64_t         n_curves;
    bool            log_x;
    bool            log_y;
} hl_curves;

/* HL_BAD_ARGUMENT as hl_draw; HL_BAD_INPUT if there is no point, or one that a logarithmic axis
 * has no place for. */
HL_API hl_status hl_draw_curves(const hl_curves *curves, const char *path,
                                const hl_draw_options *options);

/* ----------------------------------------------------------------- scatter
 *
 * Small multiples of points: what each of several rankers says of a head, against what the
 * loss of that head costs.  The panels share their y axis. */

typedef struct hl_scatter_panel {
    const char   *name;
    const double *x;   /* (n_points) */
    const double *y;   /* (n_points) */
    double        rho; /* Spearman's, and its interval; NaN: not said */
    double        rho_low;
    double        rho_high;
} hl_scatter_panel;

typedef struct hl_scatter {
    const char             *title;
    const char             *x_name;
    const char             *y_name;
    const char             *what; /* the caption begins with it; NULL: nothing */
    int64_t                 n_points;
    const char *const      *names;  /* (n_points) for SVG's titles; NULL: none */
    const hl_scatter_panel *panels; /* (n_panels) */
    int64_t                 n_panels;
} hl_scatter;

/* As hl_draw_curves. */
HL_API hl_status hl_draw_scatter(const hl_scatter *scatter, const char *path,
                                 const hl_draw_options *options);

/* ----------------------------------------------------- pictures of a prompt */

/* How probabilities become shades.  A row has one mass to give, so on a long prompt all but a
 * few cells are small: roots tell those apart, and the color bar says so. */
typedef enum hl_attention_scale {
    HL_ATTENTION_ROOT = 0,
    HL_ATTENTION_LINEAR,
} hl_attention_scale;

/* Words with an arrow to the cell where token `row` looks at token `column`. */
typedef struct hl_note {
    const char *text;
    int64_t     row;
    int64_t     column;
} hl_note;

typedef struct hl_token_figure {
    hl_draw_options    draw; /* without unit and scale, which must be 0 */
    hl_attention_scale scale;
    int64_t            zoom_begin; /* tokens [begin, end) once more and larger; both 0: none */
    int64_t            zoom_end;
    const hl_note     *notes;
    int64_t            n_notes;
} hl_token_figure;

/* A map of all tokens with the entropy of every row beside it, the zoomed tokens and the insets
 * below.  More tokens than can be told apart share cells, and the caption says so.  The options
 * may be NULL.  HL_BAD_ARGUMENT of tokens that are not there and of notes without room. */
HL_API hl_status hl_draw_tokens(const hl_token_view *view, const char *path,
                                const hl_token_figure *options);

/* Layers up, tokens across: in every cell the likeliest next token, its color the entropy.  What
 * does not fit into the width goes on below.  HL_BAD_ARGUMENT of a unit or a scale in the options;
 * HL_LIMIT if that would make the page higher than 4000 points. */
HL_API hl_status hl_draw_lens(const hl_lens_view *view, const char *path,
                              const hl_draw_options *options);

/* The same for a terminal; texts are released with hl_free.  Of a token view the zoomed tokens
 * alone are shown, where there are any; notes become footnotes, and insets small maps below. */
typedef struct hl_print_options {
    int      width; /* columns, from 40 on; 0: 80 */
    hl_depth depth;
    hl_theme theme; /* of what is behind the text */
} hl_print_options;

HL_API hl_status hl_print_tokens(char **out, const hl_token_view *view,
                                 const hl_token_figure *options, const hl_print_options *print);
HL_API hl_status hl_print_lens(char **out, const hl_lens_view *view, const hl_print_options *print);

#ifdef __cplusplus
}
#endif
#endif
