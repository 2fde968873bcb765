/* headlight/render.h - pictures of what was measured.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_RENDER_H
#define HEADLIGHT_RENDER_H

#include "analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
