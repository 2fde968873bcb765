/* canvas_backend.h - the functions of a format; used by canvas*.c only.
 *
 * Back ends get finished geometry: text is placed by its baseline, hatching is segments, nothing is
 * NaN. They write to canvas->output, in `finish` at the latest, and report errors with
 * hl_canvas_fail. */
#ifndef HL_RENDER_CANVAS_BACKEND_H
#define HL_RENDER_CANVAS_BACKEND_H

#include "base/buffer.h"
#include "render/canvas.h"

/* ------------------------------------------------------------------------ text */

/* Measures text with pango and draws it with cairo (canvas_cairo.c). Fonts come from fontconfig,
 * which substitutes another font for characters that the first lacks (Chinese, Arabic, emoji). The
 * first is Liberation Sans, which is as wide as Arial and Helvetica, so an SVG looks alike where a
 * browser has those. */
#define HL_FONT_FAMILIES "Liberation Sans, Arial, Helvetica, sans-serif"

typedef struct hl_typesetter hl_typesetter;

/* Fails with HL_NOT_FOUND if the system has no font at all. */
hl_status hl_typesetter_open(hl_typesetter **out);
void      hl_typesetter_close(hl_typesetter *typesetter);

/* Size of a text, relative to the start of its baseline: the advance, and the box of the ink, whose
 * y is mostly negative. */
typedef struct hl_text_extents {
    double advance;
    hl_box ink;
} hl_text_extents;

/* Bytes that are not valid UTF-8 are measured (and drawn) as U+FFFD. */
hl_text_extents hl_typesetter_measure(hl_typesetter *typesetter, const char *text, double size,
                                      bool bold);

/* Returns the number of drawn characters that no font has: they appear as boxes with their
 * codes. */
int64_t hl_typesetter_unknown(const hl_typesetter *typesetter);

/* --------------------------------------------------------------------- formats */

/* Functions that a format does not need are NULL: begin together with end, and stop. */
typedef struct hl_backend {
    void (*start)(hl_canvas *canvas);
    void (*rectangle)(hl_canvas *canvas, hl_box box, hl_color fill);
    void (*polygon)(hl_canvas *canvas, const hl_point *points, int64_t n_points, hl_color fill);
    void (*polyline)(hl_canvas *canvas, const hl_point *points, int64_t n_points, bool closed,
                     const hl_stroke *stroke);
    void (*segments)(hl_canvas *canvas, const hl_point *points, int64_t n_segments,
                     const hl_stroke *stroke);
    void (*text)(hl_canvas *canvas, hl_point at, const char *text, const hl_text_style *style);
    void (*begin)(hl_canvas *canvas, const char *title);
    void (*end)(hl_canvas *canvas);
    void (*cells)(hl_canvas *canvas, const hl_cell_grid *grid);
    void (*finish)(hl_canvas *canvas);
    void (*stop)(hl_canvas *canvas); /* releases `state`; must work at any time */
} hl_backend;

extern const hl_backend hl_backend_svg;
extern const hl_backend hl_backend_png;
extern const hl_backend hl_backend_pdf;

typedef struct hl_placed_text {
    char  *text;
    hl_box box; /* bounding box of the letters' ink */
} hl_placed_text;

struct hl_canvas {
    const hl_backend *backend;
    void             *state; /* owned by the back end */
    hl_text           output;
    hl_status         status; /* the first error */
    hl_typesetter    *typesetter;
    double            dpi;
    bool              started;
    double            width;
    double            height;
    hl_color          background;
    hl_placed_text   *texts; /* (n_texts) texts placed so far, for checks of the layout */
    size_t            n_texts;
    size_t            text_room;
};

/* Keeps the status if it is the first error. */
void hl_canvas_fail(hl_canvas *canvas, hl_status status);

#endif
