/* canvas_cairo.c - PNG and PDF by cairo, and text by pango: the only file that uses either.
 *
 * PNG and PDF differ in the surface only.  pango measures text for all formats. */
#include <cairo-pdf.h>
#include <cairo.h>
#include <pango/pangocairo.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "render/canvas_backend.h"

/* -------------------------------------------------------------- letters, by pango */

struct hl_typesetter {
    PangoFontMap         *fonts;
    PangoContext         *context;
    PangoLayout          *layout;
    PangoFontDescription *font;
    int64_t               n_unknown;
};

void hl_typesetter_close(hl_typesetter *typesetter)
{
    if (typesetter == NULL)
        return;
    pango_font_description_free(typesetter->font); /* takes NULL */
    g_clear_object(&typesetter->layout);
    g_clear_object(&typesetter->context);
    g_clear_object(&typesetter->fonts);
    hl_free(typesetter);
}

/* Outlines are not fitted to pixels: otherwise widths would depend on the resolution. */
static void be_exact(PangoContext *context)
{
    cairo_font_options_t *options = cairo_font_options_create();

    cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
    pango_cairo_context_set_font_options(context, options);
    pango_context_set_round_glyph_positions(context, FALSE);
    cairo_font_options_destroy(options);
}

static void lay_out(hl_typesetter *typesetter, const char *text, double size, bool bold)
{
    char *valid = g_utf8_make_valid(text, -1);

    pango_font_description_set_absolute_size(typesetter->font, size * PANGO_SCALE);
    pango_font_description_set_weight(typesetter->font,
                                      bold ? PANGO_WEIGHT_BOLD : PANGO_WEIGHT_NORMAL);
    pango_layout_set_font_description(typesetter->layout, typesetter->font);
    pango_layout_set_text(typesetter->layout, valid, -1);
    g_free(valid);
}

HL_CLOSES(hl_typesetter_close, hl_typesetter)

hl_status hl_typesetter_open(hl_typesetter **out)
{
    HL_CLOSED(hl_typesetter_close) hl_typesetter *typesetter = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&typesetter, 1));
    /* A font map of its own: pango's default one belongs to the thread that made it. */
    typesetter->fonts = pango_cairo_font_map_new();
    pango_cairo_font_map_set_resolution(PANGO_CAIRO_FONT_MAP(typesetter->fonts), 72.0);
    typesetter->context = pango_font_map_create_context(typesetter->fonts);
    be_exact(typesetter->context);
    typesetter->layout = pango_layout_new(typesetter->context);
    typesetter->font   = pango_font_description_new();
    pango_font_description_set_family_static(typesetter->font, HL_FONT_FAMILIES);
    pango_layout_set_single_paragraph_mode(typesetter->layout, TRUE);
    /* A missing font is replaced by another one; if there is no font at all, pango draws boxes. */
    lay_out(typesetter, "A", 10.0, false);
    if (pango_layout_get_unknown_glyphs_count(typesetter->layout) > 0)
        return hl_fail(
            HL_NOT_FOUND,
            "no font is installed to draw letters with; install one, for example fonts-liberation");
    *out = hl_taken(&typesetter);
    return HL_OK;
}

hl_text_extents hl_typesetter_measure(hl_typesetter *typesetter, const char *text, double size,
                                      bool bold)
{
    PangoRectangle ink, logical;

    lay_out(typesetter, text, size, bold);
    pango_layout_get_extents(typesetter->layout, &ink, &logical);
    int base = pango_layout_get_baseline(typesetter->layout);
    return (hl_text_extents){
        .advance = (double)logical.width / PANGO_SCALE,
        .ink     = { (double)ink.x / PANGO_SCALE, (double)(ink.y - base) / PANGO_SCALE,
                     (double)ink.width / PANGO_SCALE, (double)ink.height / PANGO_SCALE },
    };
}

int64_t hl_typesetter_unknown(const hl_typesetter *typesetter)
{
    return typesetter->n_unknown;
}

/* ------------------------------------------------------------------ PNG and PDF */

#define POINTS_PER_INCH 72.0
/* cairo limits the sides of an image to 32767 pixels. */
#define MAX_PIXELS      30000.0
#define BYTES_PER_PIXEL 4

typedef struct cairo_state {
    cairo_surface_t *surface;
    cairo_t         *cairo;
    bool             is_pdf;
    size_t           n_pixel_bytes; /* bytes reserved for the pixels */
} cairo_state;

static cairo_t *pen_of(const hl_canvas *canvas)
{
    return ((const cairo_state *)canvas->state)->cairo;
}

static cairo_status_t add_bytes(void *output, const unsigned char *bytes, unsigned n_bytes)
{
    hl_text_add(output, bytes, n_bytes);
    return ((hl_text *)output)->status == HL_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static void note_error(hl_canvas *canvas, cairo_status_t error)
{
    if (canvas->output.status != HL_OK) /* cairo reports this as an error while writing */
        hl_canvas_fail(canvas, canvas->output.status);
    else if (error != CAIRO_STATUS_SUCCESS)
        hl_canvas_fail(canvas, hl_fail(error == CAIRO_STATUS_NO_MEMORY ? HL_NO_MEMORY : HL_INTERNAL,
                                       "drawing: %s", cairo_status_to_string(error)));
}

/* -------------------------------------------------------------------------- surfaces */

/* Counts the memory that cairo takes for pixels as held; *n_bytes is 0 for formats without
 * pixels. */
static hl_status reserve_pixels(size_t *n_bytes, const hl_canvas *canvas)
{
    double scale  = canvas->dpi / POINTS_PER_INCH;
    double width  = canvas->width * scale;
    double height = canvas->height * scale;

    *n_bytes = 0;
    if (width > MAX_PIXELS || height > MAX_PIXELS || width < 1.0 || height < 1.0)
        return hl_fail(HL_LIMIT,
                       "a picture of %.0f x %.0f pixels; each side must have 1 to %.0f pixels",
                       width, height, MAX_PIXELS);
    size_t    wanted = (size_t)(width + 1.0) * (size_t)(height + 1.0) * BYTES_PER_PIXEL;
    hl_status status = hl_memory_reserve(wanted);
    if (status == HL_OK)
        *n_bytes = wanted;
    return status;
}

static void set_color(cairo_t *cairo, hl_color color)
{
    cairo_set_source_rgb(cairo, color.red / 255.0, color.green / 255.0, color.blue / 255.0);
}

static void start(hl_canvas *canvas, bool is_pdf)
{
    cairo_state *state  = NULL;
    hl_status    status = HL_ALLOC_ZEROED(&state, 1);

    if (status == HL_OK && !is_pdf)
        status = reserve_pixels(&state->n_pixel_bytes, canvas);
    hl_canvas_fail(canvas, status);
    if (status != HL_OK) {
        hl_free(state);
        return;
    }
    double scale  = canvas->dpi / POINTS_PER_INCH;
    canvas->state = state;
    state->is_pdf = is_pdf;
    if (is_pdf) {
        state->surface = cairo_pdf_surface_create_for_stream(add_bytes, &canvas->output,
                                                             canvas->width, canvas->height);
        /* The date is left out, so that the same picture has the same bytes. */
        cairo_pdf_surface_set_metadata(state->surface, CAIRO_PDF_METADATA_CREATE_DATE, "");
    } else {
        state->surface =
            cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(canvas->width * scale + 0.5),
                                       (int)(canvas->height * scale + 0.5));
    }
    state->cairo = cairo_create(state->surface);
    /* Fills the whole surface, since the page may end within a pixel. */
    set_color(state->cairo, canvas->background);
    cairo_paint(state->cairo);
    if (!is_pdf)
        cairo_scale(state->cairo, scale, scale);
    cairo_set_line_join(state->cairo, CAIRO_LINE_JOIN_ROUND);
    note_error(canvas, cairo_status(state->cairo));
}

static void start_png(hl_canvas *canvas)
{
    start(canvas, false);
}

static void start_pdf(hl_canvas *canvas)
{
    start(canvas, true);
}

static void finish(hl_canvas *canvas)
{
    cairo_state *state = canvas->state;

    note_error(canvas, cairo_status(state->cairo));
    if (state->is_pdf)
        cairo_surface_finish(state->surface);
    else
        note_error(canvas,
                   cairo_surface_write_to_png_stream(state->surface, add_bytes, &canvas->output));
    note_error(canvas, cairo_surface_status(state->surface));
}

static void stop(hl_canvas *canvas)
{
    cairo_state *state = canvas->state;

    if (state == NULL)
        return;
    cairo_destroy(state->cairo);
    cairo_surface_destroy(state->surface);
    hl_memory_release(state->n_pixel_bytes);
    hl_free(state);
    canvas->state = NULL;
}

/* ---------------------------------------------------------------------------- shapes */

static void stroke_path(cairo_t *cairo, const hl_stroke *stroke)
{
    set_color(cairo, stroke->color);
    cairo_set_line_width(cairo, stroke->width);
    cairo_set_dash(cairo, &stroke->dash, stroke->dash > 0.0 ? 1 : 0, 0.0);
    cairo_stroke(cairo);
}

static void trace(cairo_t *cairo, const hl_point *points, int64_t n_points)
{
    cairo_move_to(cairo, points[0].x, points[0].y);
    for (int64_t i = 1; i < n_points; i++)
        cairo_line_to(cairo, points[i].x, points[i].y);
}

static void rectangle(hl_canvas *canvas, hl_box box, hl_color fill)
{
    cairo_t *cairo = pen_of(canvas);

    set_color(cairo, fill);
    cairo_rectangle(cairo, box.x, box.y, box.width, box.height);
    cairo_fill(cairo);
}

static void polygon(hl_canvas *canvas, const hl_point *points, int64_t n_points, hl_color fill)
{
    cairo_t *cairo = pen_of(canvas);

    trace(cairo, points, n_points);
    set_color(cairo, fill);
    cairo_fill(cairo);
}

static void polyline(hl_canvas *canvas, const hl_point *points, int64_t n_points, bool closed,
                     const hl_stroke *stroke)
{
    cairo_t *cairo = pen_of(canvas);

    trace(cairo, points, n_points);
    if (closed)
        cairo_close_path(cairo);
    stroke_path(cairo, stroke);
}

static void segments(hl_canvas *canvas, const hl_point *points, int64_t n_segments,
                     const hl_stroke *stroke)
{
    cairo_t *cairo = pen_of(canvas);

    for (int64_t i = 0; i < n_segments; i++)
        trace(cairo, points + 2 * i, 2);
    stroke_path(cairo, stroke);
}

/* If cells touch, smoothed edges would leave seams.  In PNG, cells therefore end at whole pixels.
 * In PDF, each cell extends a little under the next one; in PNG too, since an edge in the middle of
 * a pixel could, in cairo's 256ths of a pixel, be on neither side of it. */
static void cells(hl_canvas *canvas, const hl_cell_grid *grid)
{
    cairo_t *cairo  = pen_of(canvas);
    bool     is_pdf = ((cairo_state *)canvas->state)->is_pdf;
    double   under  = grid->gap > 0.0 ? 0.0 : is_pdf ? 0.2 : 0.02;

    cairo_save(cairo);
    cairo_rectangle(cairo, grid->box.x, grid->box.y, grid->box.width, grid->box.height);
    cairo_clip(cairo);
    cairo_set_antialias(cairo, CAIRO_ANTIALIAS_NONE);
    for (int64_t i = 0; i < grid->n_across * grid->n_down; i++) {
        int64_t  across = i % grid->n_across, down = i / grid->n_across;
        hl_box   box = hl_cell_box(grid, across, down);
        hl_color color;

        box.width += under;
        box.height += under;
        if (grid->color(&color, grid->context, across, down))
            rectangle(canvas, box, color);
    }
    cairo_restore(cairo);
}

/* --------------------------------------------------------------------------- text */

static void text(hl_canvas *canvas, hl_point at, const char *string, const hl_text_style *style)
{
    static const double back[]  = { 0.0, 0.5, 1.0 };
    cairo_t            *cairo   = pen_of(canvas);
    hl_typesetter      *letters = canvas->typesetter;
    double              width   = hl_canvas_text_width(canvas, string, style);

    cairo_save(cairo);
    cairo_translate(cairo, at.x, at.y);
    cairo_rotate(cairo, -style->degrees * 3.14159265358979323846 / 180.0);
    cairo_move_to(cairo, -back[style->anchor] * width, 0.0);
    set_color(cairo, style->color);
    lay_out(letters, string, style->size, style->bold);
    letters->n_unknown += pango_layout_get_unknown_glyphs_count(letters->layout);
    cairo_rel_move_to(cairo, 0.0,
                      -(double)pango_layout_get_baseline(letters->layout) / PANGO_SCALE);
    pango_cairo_show_layout(cairo, letters->layout);
    cairo_restore(cairo);
    cairo_new_path(cairo);
}

const hl_backend hl_backend_png = {
    start_png, rectangle, polygon, polyline, segments, text, NULL, NULL, cells, finish, stop,
};
const hl_backend hl_backend_pdf = {
    start_pdf, rectangle, polygon, polyline, segments, text, NULL, NULL, cells, finish, stop,
};
