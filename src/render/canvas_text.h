/* canvas_text.h - text by pango: how large it is, and drawing it with cairo.
 *
 * Fonts come from fontconfig, which has another one for what the first lacks (Chinese,
 * Arabic, emoji).  The first is Liberation Sans, which is as wide as Arial and Helvetica,
 * so that an SVG looks alike where a browser has those. */
#ifndef HL_RENDER_CANVAS_TEXT_H
#define HL_RENDER_CANVAS_TEXT_H

#include "headlight.h"
#include "render/canvas.h"

#define HL_FONT_FAMILIES "Liberation Sans, Arial, Helvetica, sans-serif"

typedef struct hl_typesetter hl_typesetter;

/* HL_NOT_FOUND if the system has no font at all. */
hl_status hl_typesetter_open(hl_typesetter **out);
void      hl_typesetter_close(hl_typesetter *typesetter);

/* Around the start of the base line: how far it goes on, and the ink, whose y is mostly
 * negative. */
typedef struct hl_text_extents {
    double advance;
    hl_box ink;
} hl_text_extents;

/* Text that is not UTF-8 is measured (and drawn) with U+FFFD for what is not. */
hl_text_extents hl_typesetter_measure(hl_typesetter *typesetter, const char *text, double size,
                                      bool bold);

/* Characters that were drawn and that no font has: boxes with their codes in them. */
int64_t hl_typesetter_unknown(const hl_typesetter *typesetter);

/* Draws with the colour of `cairo`, a cairo_t, its base line starting at the current point. */
void hl_typesetter_draw(hl_typesetter *typesetter, void *cairo, const char *text, double size,
                        bool bold);

#endif
