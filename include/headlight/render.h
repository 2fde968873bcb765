/* headlight/render.h - pictures of what was measured.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_RENDER_H
#define HEADLIGHT_RENDER_H

#include "analysis.h"
#include "view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- colours
 *
 * Lightness runs evenly from one end of a map to the other (or to both, from the middle), so
 * that the order of colours survives grey printing and every kind of colour blindness. */

typedef struct hl_colour {
    uint8_t red;
    uint8_t green;
    uint8_t blue;
} hl_colour;

typedef enum hl_map {
    HL_MAP_ENTROPY = 0, /* dark violet over blue, teal and green to light yellow */
    HL_MAP_BLUES,       /* near white to dark blue: much is dark */
    HL_MAP_DIFFERENCE,  /* blue, near white at 0.5, red */
    HL_MAP_BLUES_DARK,  /* for dark pages: near black to light blue */
} hl_map;

/* A map has so many colours; share 0 is the first. */
enum { HL_MAP_LEVELS = 256 };

/* share is from 0 to 1, and is brought there where it is not; NaN has no colour. */
HL_API hl_colour hl_map_colour(hl_map map, double share);

/* How many colours a terminal has. */
typedef enum hl_depth {
    HL_DEPTH_NONE = 0, /* none, or nobody is watching */
    HL_DEPTH_256,
    HL_DEPTH_TRUE,
} hl_depth;

/* Escape sequences: what follows has the map's colour behind it, with text on it that can be
 * read, or as the colour of its text; until hl_terminal_end.  With 256 colours a map has nine.
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
    HL_UNIT_NORMALISED, /* H / ln n, of rows that see at least 16 keys */
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
} hl_draw_options;

/* The names of the figures, and a line on each; NULL past the last. */
HL_API const char *hl_figure_name(size_t index);
HL_API const char *hl_figure_summary(size_t index);

/* The options may be NULL.  HL_BAD_ARGUMENT if there is no such figure, format or width;
 * HL_BAD_INPUT if the profile does not hold what the figure shows. */
HL_API hl_status hl_draw(const hl_profile *profile, const char *figure, const char *path,
                         const hl_draw_options *options);

/* ----------------------------------------------------- pictures of a prompt */

/* How probabilities become shades.  A row has one mass to give, so on a long prompt all but a
 * few cells are small: roots tell those apart, and the colour bar says so. */
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
    hl_draw_options    draw; /* unit and scale are of no use here */
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

/* Layers up, tokens across: in every cell the likeliest next token, its colour the entropy.  What
 * does not fit into the width goes on below.  Of the options unit and scale are of no use.
 * HL_LIMIT if that would make the page higher than 4000 points. */
HL_API hl_status hl_draw_lens(const hl_lens_view *view, const char *path,
                              const hl_draw_options *options);

/* The same for a terminal; texts are released with hl_free.  Of a token view the zoomed tokens
 * alone are shown, where there are any; insets and notes are for pictures. */
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
