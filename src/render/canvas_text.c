/* canvas_text.c - the one file that knows pango. */
#include "render/canvas_text.h"

#include <pango/pangocairo.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

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
    if (typesetter->font != NULL)
        pango_font_description_free(typesetter->font);
    if (typesetter->layout != NULL)
        g_object_unref(typesetter->layout);
    if (typesetter->context != NULL)
        g_object_unref(typesetter->context);
    if (typesetter->fonts != NULL)
        g_object_unref(typesetter->fonts);
    hl_free(typesetter);
}

/* Outlines are not fitted to pixels, or widths would depend on the resolution. */
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

/* One missing font has another in its place; where there is none, pango would draw boxes. */
static hl_status check_fonts(hl_typesetter *typesetter)
{
    lay_out(typesetter, "A", 10.0, false);
    if (pango_layout_get_unknown_glyphs_count(typesetter->layout) > 0)
        return hl_fail(HL_NOT_FOUND, "there is no font here to draw letters with: install one, "
                                     "fonts-liberation for example");
    return HL_OK;
}

hl_status hl_typesetter_open(hl_typesetter **out)
{
    hl_status      status     = HL_OK;
    hl_typesetter *typesetter = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&typesetter, 1));
    /* A map of our own: the default one belongs to its thread. */
    typesetter->fonts = pango_cairo_font_map_new();
    pango_cairo_font_map_set_resolution(PANGO_CAIRO_FONT_MAP(typesetter->fonts), 72.0);
    typesetter->context = pango_font_map_create_context(typesetter->fonts);
    be_exact(typesetter->context);
    typesetter->layout = pango_layout_new(typesetter->context);
    typesetter->font   = pango_font_description_new();
    pango_font_description_set_family_static(typesetter->font, HL_FONT_FAMILIES);
    pango_layout_set_single_paragraph_mode(typesetter->layout, TRUE);
    HL_TRY(check_fonts(typesetter));
    *out       = typesetter;
    typesetter = NULL;

done:
    hl_typesetter_close(typesetter);
    return status;
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

void hl_typesetter_draw(hl_typesetter *typesetter, void *cairo, const char *text, double size,
                        bool bold)
{
    lay_out(typesetter, text, size, bold);
    typesetter->n_unknown += pango_layout_get_unknown_glyphs_count(typesetter->layout);
    double base = (double)pango_layout_get_baseline(typesetter->layout) / PANGO_SCALE;
    cairo_rel_move_to(cairo, 0.0, -base);
    pango_cairo_show_layout(cairo, typesetter->layout);
}
