/* canvas.c - the parts that all formats share: checks, hatching, placing text, writing. */
#include "render/canvas.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "render/canvas_backend.h"

/* ---------------------------------------------------------------- life of a canvas */

void hl_canvas_fail(hl_canvas *canvas, hl_status status)
{
    if (canvas->status == HL_OK)
        canvas->status = status;
}

hl_status hl_canvas_open(hl_canvas **out, hl_format format, double dpi)
{
    static const hl_backend *const        backends[] = { &hl_backend_svg, &hl_backend_png,
                                                         &hl_backend_pdf };
    HL_CLOSED(hl_canvas_close) hl_canvas *canvas     = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&canvas, 1));
    canvas->backend = backends[format];
    canvas->dpi     = dpi;
    HL_NEED(hl_typesetter_open(&canvas->typesetter));
    *out = hl_taken(&canvas);
    return HL_OK;
}

void hl_canvas_close(hl_canvas *canvas)
{
    if (canvas == NULL)
        return;
    if (canvas->started && canvas->backend->stop != NULL)
        canvas->backend->stop(canvas);
    for (size_t i = 0; i < canvas->n_texts; i++)
        hl_free(canvas->texts[i].text);
    hl_free(canvas->texts);
    hl_text_free(&canvas->output);
    hl_typesetter_close(canvas->typesetter);
    hl_free(canvas);
}

void hl_canvas_page(hl_canvas *canvas, double width, double height, hl_color background)
{
    assert(!canvas->started);
    if (canvas->status != HL_OK)
        return;
    canvas->width      = width;
    canvas->height     = ceil(height); /* A height of whole points: otherwise the last row would be
                                        * half a pixel. */
    canvas->background = background;
    canvas->started    = true;
    canvas->backend->start(canvas);
    hl_canvas_rectangle(canvas, (hl_box){ 0.0, 0.0, canvas->width, canvas->height }, background);
}

hl_status hl_canvas_write(hl_canvas *canvas, const char *path)
{
    hl_writer *writer = NULL;

    if (canvas->status == HL_OK)
        canvas->backend->finish(canvas);
    hl_canvas_fail(canvas, canvas->output.status);
    if (canvas->status == HL_OK)
        hl_canvas_fail(canvas, hl_writer_open(&writer, path));
    if (canvas->status != HL_OK)
        return canvas->status;
    int64_t n_unknown = hl_typesetter_unknown(canvas->typesetter);
    if (n_unknown > 0) /* the picture is complete except for some labels */
        hl_log(HL_LOG_WARNING,
               "%s: no installed font has %lld of its characters; boxes with their codes are drawn "
               "instead (Debian: fonts-wqy-microhei for Chinese, Japanese and Korean, "
               "fonts-symbola for emoji)",
               path, (long long)n_unknown);
    hl_writer_write(writer, canvas->output.bytes, canvas->output.n_bytes);
    return hl_writer_finish(writer);
}

/* --------------------------------------------------------------------------- shapes */

static bool can_draw(const hl_canvas *canvas)
{
    return canvas->status == HL_OK && canvas->started;
}

void hl_canvas_rectangle(hl_canvas *canvas, hl_box box, hl_color fill)
{
    if (can_draw(canvas))
        canvas->backend->rectangle(canvas, box, fill);
}

void hl_canvas_outline(hl_canvas *canvas, hl_box box, const hl_stroke *stroke)
{
    const hl_point corners[] = {
        { box.x, box.y },
        { box.x + box.width, box.y },
        { box.x + box.width, box.y + box.height },
        { box.x, box.y + box.height },
    };

    if (can_draw(canvas))
        canvas->backend->polyline(canvas, corners, 4, true, stroke);
}

void hl_canvas_polygon(hl_canvas *canvas, const hl_point *points, int64_t n_points, hl_color fill)
{
    if (can_draw(canvas) && n_points > 2)
        canvas->backend->polygon(canvas, points, n_points, fill);
}

void hl_canvas_polyline(hl_canvas *canvas, const hl_point *points, int64_t n_points,
                        const hl_stroke *stroke)
{
    if (can_draw(canvas) && n_points > 1)
        canvas->backend->polyline(canvas, points, n_points, false, stroke);
}

void hl_canvas_segments(hl_canvas *canvas, const hl_point *points, int64_t n_segments,
                        const hl_stroke *stroke)
{
    if (can_draw(canvas) && n_segments > 0)
        canvas->backend->segments(canvas, points, n_segments, stroke);
}

void hl_canvas_line(hl_canvas *canvas, hl_point from, hl_point to, const hl_stroke *stroke)
{
    const hl_point ends[] = { from, to };

    hl_canvas_segments(canvas, ends, 1, stroke);
}

void hl_canvas_hatch(hl_canvas *canvas, hl_box box, double spacing, const hl_stroke *stroke)
{
    enum { BATCH = 64 };
    hl_point ends[2 * BATCH];
    int64_t  n_lines = 0;
    double   step    = spacing * sqrt(2.0); /* distance along a side, for lines at 45 degrees */
    int64_t  n_all   = (int64_t)((box.width + box.height) / step + 0.5);

    for (int64_t i = 0; i < n_all; i++) {
        /* The line x + y = c, in coordinates of the box with y downward, runs from the lower left
         * to the upper right: it enters at the left or lower side and leaves at the upper or right
         * one. */
        double c    = ((double)i + 0.5) * step;
        double low  = fmax(0.0, c - box.height);
        double high = fmin(box.width, c);

        ends[2 * n_lines]       = (hl_point){ box.x + low, box.y + c - low };
        ends[2 * n_lines++ + 1] = (hl_point){ box.x + high, box.y + c - high };
        if (n_lines == BATCH) {
            hl_canvas_segments(canvas, ends, n_lines, stroke);
            n_lines = 0;
        }
    }
    hl_canvas_segments(canvas, ends, n_lines, stroke);
}

void hl_canvas_begin(hl_canvas *canvas, const char *title)
{
    if (can_draw(canvas) && canvas->backend->begin != NULL)
        canvas->backend->begin(canvas, title);
}

void hl_canvas_end(hl_canvas *canvas)
{
    if (can_draw(canvas) && canvas->backend->end != NULL)
        canvas->backend->end(canvas);
}

hl_box hl_cell_box(const hl_cell_grid *grid, int64_t across, int64_t down)
{
    double width  = grid->box.width / (double)grid->n_across;
    double height = grid->box.height / (double)grid->n_down;

    return (hl_box){
        grid->box.x + (double)across * width + grid->gap / 2.0,
        grid->box.y + (double)down * height + grid->gap / 2.0,
        width - grid->gap,
        height - grid->gap,
    };
}

void hl_canvas_cells(hl_canvas *canvas, const hl_cell_grid *grid)
{
    if (can_draw(canvas) && grid->n_across > 0 && grid->n_down > 0)
        canvas->backend->cells(canvas, grid);
}

typedef struct ramp {
    hl_map map;
    int    n_steps;
    bool   upwards;
} ramp;

static bool ramp_color(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const ramp *r    = context;
    double      last = r->n_steps - 1.0;

    *out = hl_map_color(r->map, r->upwards ? 1.0 - (double)down / last : (double)across / last);
    return true;
}

void hl_canvas_ramp(hl_canvas *canvas, hl_box box, hl_map map, int n_steps, bool upwards)
{
    ramp         r    = { map, n_steps, upwards };
    hl_cell_grid grid = { .box      = box,
                          .n_across = upwards ? 1 : n_steps,
                          .n_down   = upwards ? n_steps : 1,
                          .color    = ramp_color,
                          .context  = &r };

    hl_canvas_cells(canvas, &grid);
}

/* ----------------------------------------------------------------------------- text */

double hl_canvas_text_width(hl_canvas *canvas, const char *text, const hl_text_style *style)
{
    return hl_typesetter_measure(canvas->typesetter, text, style->size, style->bold).advance;
}

/* Returns the smallest upright box around a rotated one; x and y of `box` are relative to `at`. */
static hl_box turned(hl_point at, hl_box box, double degrees)
{
    double angle = degrees * 3.14159265358979323846 / 180.0;
    double low_x = INFINITY, low_y = INFINITY, high_x = -INFINITY, high_y = -INFINITY;

    for (int corner = 0; corner < 4; corner++) {
        double x = box.x + (corner % 2) * box.width;
        double y = box.y + (corner / 2) * box.height; /* NOLINT(bugprone-integer-division) */
        double u = at.x + x * cos(angle) + y * sin(angle);
        double v = at.y - x * sin(angle) + y * cos(angle);
        low_x    = fmin(low_x, u);
        low_y    = fmin(low_y, v);
        high_x   = fmax(high_x, u);
        high_y   = fmax(high_y, v);
    }
    return (hl_box){ low_x, low_y, high_x - low_x, high_y - low_y };
}

static hl_status note_text(hl_canvas *canvas, const char *text, hl_box box)
{
    HL_NEED(HL_GROW(&canvas->texts, &canvas->text_room, canvas->n_texts, 1));
    hl_placed_text *placed = &canvas->texts[canvas->n_texts];
    placed->box            = box;
    hl_status status       = hl_strdup(&placed->text, text);
    canvas->n_texts += status == HL_OK;
    return status;
}

void hl_canvas_text(hl_canvas *canvas, double x, double y, const char *text,
                    const hl_text_style *style)
{
    /* Height of capitals in most sans-serif fonts, as a share of the font size. */
    static const double capital = 0.72;
    static const double lift[]  = { 0.0, capital / 2.0, capital };
    static const double back[]  = { 0.0, 0.5, 1.0 };

    if (!can_draw(canvas) || text[0] == '\0')
        return;
    double angle = style->degrees * 3.14159265358979323846 / 180.0;
    double down  = lift[style->stand] * style->size;

    hl_point        base = { x + down * sin(angle), y + down * cos(angle) };
    hl_text_extents extents =
        hl_typesetter_measure(canvas->typesetter, text, style->size, style->bold);
    extents.ink.x -= back[style->anchor] * extents.advance;
    hl_canvas_fail(canvas, note_text(canvas, text, turned(base, extents.ink, style->degrees)));
    canvas->backend->text(canvas, base, text, style);
}
