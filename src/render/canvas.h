/* canvas.h - one way to draw, for all file formats.
 *
 *     HL_CLOSED(hl_canvas_close) hl_canvas *canvas = NULL;
 *     HL_NEED(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
 *     hl_canvas_page(canvas, 480.0, 320.0, white);      once, before anything is drawn
 *     hl_canvas_rectangle(canvas, box, blue);
 *     hl_canvas_text(canvas, 240, 20, "Layers", &style);
 *     HL_NEED(hl_canvas_write(canvas, "figure.svg"));
 *
 * Lengths are points, 1/72 inch; x goes right and y down from the upper left corner.
 * A canvas keeps its first error and ignores later calls; hl_canvas_write reports the error. Text
 * is measured by pango for all formats, so that their layouts agree. */
#ifndef HL_RENDER_CANVAS_H
#define HL_RENDER_CANVAS_H

#include "base/memory.h"
#include "headlight/render.h"
#include "render/palette.h"

typedef struct hl_canvas hl_canvas;

typedef enum hl_format {
    HL_FORMAT_SVG = 0,
    HL_FORMAT_PNG,
    HL_FORMAT_PDF,
} hl_format;

typedef struct hl_point {
    double x;
    double y;
} hl_point;

typedef struct hl_box {
    double x;
    double y;
    double width;
    double height;
} hl_box;

typedef struct hl_stroke {
    hl_color color;
    double   width;
    double   dash; /* length of dashes and gaps; 0: a solid line */
} hl_stroke;

/* dpi applies to PNG only. */
hl_status hl_canvas_open(hl_canvas **out, hl_format format, double dpi);
void      hl_canvas_page(hl_canvas *canvas, double width, double height, hl_color background);
/* Writes to a temporary name, then renames. */
hl_status hl_canvas_write(hl_canvas *canvas, const char *path);
void      hl_canvas_close(hl_canvas *canvas);
HL_CLOSES(hl_canvas_close, hl_canvas)

/* ---------------------------------------------------------------------- shapes */

void hl_canvas_rectangle(hl_canvas *canvas, hl_box box, hl_color fill);
void hl_canvas_outline(hl_canvas *canvas, hl_box box, const hl_stroke *stroke);
void hl_canvas_polygon(hl_canvas *canvas, const hl_point *points, int64_t n_points, hl_color fill);
void hl_canvas_polyline(hl_canvas *canvas, const hl_point *points, int64_t n_points,
                        const hl_stroke *stroke);
/* Draws separate lines; points (n_segments, 2). */
void hl_canvas_segments(hl_canvas *canvas, const hl_point *points, int64_t n_segments,
                        const hl_stroke *stroke);
void hl_canvas_line(hl_canvas *canvas, hl_point from, hl_point to, const hl_stroke *stroke);
/* Hatches the box with lines that rise to the right, `spacing` apart. */
void hl_canvas_hatch(hl_canvas *canvas, hl_box box, double spacing, const hl_stroke *stroke);

/* Groups what is drawn until the matching end, under a title that SVG shows on hover. */
void hl_canvas_begin(hl_canvas *canvas, const char *title);
void hl_canvas_end(hl_canvas *canvas);

/* A grid of colored cells: the bulk of most figures, which SVG writes compactly. */
typedef struct hl_cell_grid {
    hl_box  box;
    int64_t n_across;
    int64_t n_down;
    double  gap; /* width of the space between cells */
    /* Returns the color of a cell; false: the cell is left out. */
    bool (*color)(hl_color *out, const void *context, int64_t across, int64_t down);
    /* Writes the title of a cell, "" for none. NULL: no cell has a title. */
    void (*title)(char *out, size_t n_bytes, const void *context, int64_t across, int64_t down);
    const void *context;
} hl_cell_grid;

void hl_canvas_cells(hl_canvas *canvas, const hl_cell_grid *grid);
/* Draws a color map in `n_steps`, rising to the right or upwards. */
void hl_canvas_ramp(hl_canvas *canvas, hl_box box, hl_map map, int n_steps, bool upwards);
/* Returns the box of a cell, without the gap. */
hl_box hl_cell_box(const hl_cell_grid *grid, int64_t across, int64_t down);

/* ------------------------------------------------------------------------ text */

typedef enum hl_anchor { HL_ANCHOR_START = 0, HL_ANCHOR_MIDDLE, HL_ANCHOR_END } hl_anchor;
/* The part of the letters that is at the point: the baseline, the middle or the top of a
 * capital. */
typedef enum hl_stand { HL_STAND_BASE = 0, HL_STAND_MIDDLE, HL_STAND_TOP } hl_stand;

typedef struct hl_text_style {
    hl_color  color;
    double    size;
    bool      bold;
    hl_anchor anchor;
    hl_stand  stand;
    double    degrees; /* rotation around the point, counter-clockwise */
} hl_text_style;

void hl_canvas_text(hl_canvas *canvas, double x, double y, const char *text,
                    const hl_text_style *style);
/* Returns the advance width of a text; works before and after the page size is known. */
double hl_canvas_text_width(hl_canvas *canvas, const char *text, const hl_text_style *style);

#endif
