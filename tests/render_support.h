/* render_support.h - what the tests of src/render share: layouts, and files read back. */
#ifndef HL_TESTS_RENDER_SUPPORT_H
#define HL_TESTS_RENDER_SUPPORT_H

#include "analysis_support.h"

#include <cairo.h>
#include <string.h>

#include "render/canvas_backend.h"
#include "render/figure.h"

static inline bool boxes_touch(hl_box a, hl_box b)
{
    return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height &&
           b.y < a.y + a.height;
}

/* Checks that no text leaves the page and that no two touch. */
static inline void check_texts(const hl_canvas *canvas, const char *name)
{
    hl_box page = { 0.0, 0.0, canvas->width, canvas->height };

    for (int64_t i = 0; i < (int64_t)canvas->n_texts; i++) {
        hl_box box = canvas->texts[i].box;
        if (box.x < 0.0 || box.y < 0.0 || box.x + box.width > page.width ||
            box.y + box.height > page.height)
            fail_msg("%s: '%s' leaves the page", name, canvas->texts[i].text);
        for (int64_t k = 0; k < i; k++) {
            if (boxes_touch(box, canvas->texts[k].box))
                fail_msg("%s: '%s' touches '%s'", name, canvas->texts[i].text,
                         canvas->texts[k].text);
        }
    }
    assert_true((int64_t)canvas->n_texts > 4);
}

/* Returns where a text was placed; the test fails if it was not. */
static inline hl_box box_of(const hl_canvas *canvas, const char *text)
{
    for (int64_t i = 0; i < (int64_t)canvas->n_texts; i++) {
        if (strcmp(canvas->texts[i].text, text) == 0)
            return canvas->texts[i].box;
    }
    fail_msg("'%s' is nowhere", text);
    return (hl_box){ 0 };
}

static inline char *read_whole(const char *path, size_t *n_bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 8 << 20);

    assert_non_null(file);
    assert_non_null(text);
    *n_bytes = fread(text, 1, (8 << 20) - 1, file);
    fclose(file);
    return text;
}

/* Counts the pixels of a PNG that have exactly this color. */
static inline int64_t count_pixels(const char *path, hl_color wanted)
{
    cairo_surface_t *image  = cairo_image_surface_create_from_png(path);
    int64_t          n_same = 0;

    assert_int_equal(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
    const unsigned char *bytes  = cairo_image_surface_get_data(image);
    int                  stride = cairo_image_surface_get_stride(image);
    for (int y = 0; y < cairo_image_surface_get_height(image); y++) {
        for (int x = 0; x < cairo_image_surface_get_width(image); x++) {
            uint32_t pixel = 0;
            memcpy(&pixel, bytes + y * stride + 4 * x, 4);
            n_same += (pixel & 0xffffffU) ==
                      ((uint32_t)wanted.red << 16 | (uint32_t)wanted.green << 8 | wanted.blue);
        }
    }
    cairo_surface_destroy(image);
    return n_same;
}

#endif
