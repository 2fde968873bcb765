/* test_render.c - figures of profiles with known numbers: colors, labels that stay on the page and
 * do not touch, formats that others can read, and clear errors. */
#include "render_profile.h"
#include "render_support.h"

#include <time.h>

#include "render/figure.h"

/* ------------------------------------------------------------------------ colors */

static double distance(hl_oklab a, hl_oklab b)
{
    return sqrt((a.l - b.l) * (a.l - b.l) + (a.a - b.a) * (a.a - b.a) + (a.b - b.b) * (a.b - b.b));
}

static void test_maps_are_even(void **state)
{
    static const hl_map maps[] = { HL_MAP_ENTROPY, HL_MAP_BLUES };

    (void)state;
    for (int m = 0; m < 2; m++) {
        double whole = 0.0;
        for (int i = 0; i < 16; i++)
            whole += distance(hl_oklab_of(hl_map_color(maps[m], i / 16.0)),
                              hl_oklab_of(hl_map_color(maps[m], (i + 1) / 16.0)));
        for (int i = 0; i < 16; i++) {
            hl_oklab a = hl_oklab_of(hl_map_color(maps[m], i / 16.0));
            hl_oklab b = hl_oklab_of(hl_map_color(maps[m], (i + 1) / 16.0));
            assert_near(distance(a, b), whole / 16.0, 0.3 * whole / 16.0);
            assert_true(maps[m] == HL_MAP_ENTROPY ? b.l > a.l + 0.03 : b.l < a.l - 0.03);
        }
    }
    for (int i = 0; i <= 8; i++)
        assert_near(hl_oklab_of(hl_map_color(HL_MAP_DIFFERENCE, i / 16.0)).l,
                    hl_oklab_of(hl_map_color(HL_MAP_DIFFERENCE, 1.0 - i / 16.0)).l, 0.01);
}

/* Linear light of a color's channel, as in WCAG 2. */
static double linear(uint8_t channel)
{
    double share = channel / 255.0;
    return share <= 0.04045 ? share / 12.92 : pow((share + 0.055) / 1.055, 2.4);
}

static double contrast(hl_color a, hl_color b)
{
    double x = 0.2126 * linear(a.red) + 0.7152 * linear(a.green) + 0.0722 * linear(a.blue);
    double y = 0.2126 * linear(b.red) + 0.7152 * linear(b.green) + 0.0722 * linear(b.blue);
    return (fmax(x, y) + 0.05) / (fmin(x, y) + 0.05);
}

/* A color as seen without one kind of cone: Machado, Oliveira and Fernandes (2009), severity 1. */
static hl_color seen_without(hl_color color, int cones)
{
    static const double eyes[3][3][3] = {
        { { 1, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } },
        { { 0.152286, 1.052583, -0.204868 },
          { 0.114503, 0.786281, 0.099216 },
          { -0.003882, -0.048116, 1.051998 } },
        { { 0.367322, 0.860646, -0.227968 },
          { 0.280085, 0.672501, 0.047413 },
          { -0.011820, 0.042940, 0.968881 } },
    };
    double  in[3] = { linear(color.red), linear(color.green), linear(color.blue) };
    uint8_t out[3];

    for (int i = 0; i < 3; i++) {
        const double *row   = eyes[cones][i];
        double        light = row[0] * in[0] + row[1] * in[1] + row[2] * in[2];
        light               = fmin(fmax(light, 0.0), 1.0);
        light  = light <= 0.0031308 ? 12.92 * light : 1.055 * pow(light, 1 / 2.4) - 0.055;
        out[i] = (uint8_t)lround(255.0 * light);
    }
    return (hl_color){ out[0], out[1], out[2] };
}

/* In both themes, text is readable, lines are visible, and everybody can tell series apart. */
static void test_themes(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        const hl_theme_colors *theme = hl_theme_colors_of(t == 0 ? HL_THEME_LIGHT : HL_THEME_DARK);

        assert_true(contrast(theme->text, theme->background) >= 7.0);
        assert_true(contrast(theme->muted, theme->background) >= 4.5);
        assert_true(contrast(theme->axis, theme->background) >= 3.0);
        assert_true(contrast(theme->series[3], theme->background) >= 4.5);
        for (int i = 0; i < HL_N_SERIES * HL_N_SERIES * 3; i++) {
            hl_color a = theme->series[i / 3 % HL_N_SERIES];
            hl_color b = theme->series[i / 3 / HL_N_SERIES];
            double   d =
                distance(hl_oklab_of(seen_without(a, i % 3)), hl_oklab_of(seen_without(b, i % 3)));
            assert_true(contrast(a, theme->background) >= 3.0);
            if (i / 3 % HL_N_SERIES < i / 3 / HL_N_SERIES && d < 0.1)
                fail_msg("theme %d, series %d and %d, eyes %d: %.3f apart", t, i / 3 % HL_N_SERIES,
                         i / 3 / HL_N_SERIES, i % 3, d);
        }
    }
}

/* Ottosson's own example: white is 1, 0, 0, and sRGB red is 0.628, 0.225, 0.126. */
/* Halfway between bright colors there are some that no screen can show: they lose chroma, and keep
 * the lightness and the hue. */
static void test_mixing_keeps_lightness(void **state)
{
    int n_lost = 0;

    (void)state;
    for (int pair = 0; pair < 64; pair++) {
        hl_color a  = { pair & 1 ? 255 : 0, pair & 2 ? 255 : 0, pair & 4 ? 255 : 0 };
        hl_color b  = { pair & 8 ? 255 : 0, pair & 16 ? 255 : 0, pair & 32 ? 255 : 0 };
        hl_oklab la = hl_oklab_of(a), lb = hl_oklab_of(b), seen = hl_oklab_of(hl_mix(a, b, 0.5));
        hl_oklab wanted = { 0.5 * (la.l + lb.l), 0.5 * (la.a + lb.a), 0.5 * (la.b + lb.b) };
        double   chroma = hypot(seen.a, seen.b), whole = hypot(wanted.a, wanted.b);

        assert_near(seen.l, wanted.l, 0.004); /* the precision of 8 bits */
        assert_near(seen.a * wanted.b, seen.b * wanted.a, 0.004);
        assert_true(chroma < whole + 0.006);
        n_lost += chroma < whole - 0.02;
    }
    assert_true(n_lost > 0);
}

static void test_oklab(void **state)
{
    hl_oklab white = hl_oklab_of((hl_color){ 255, 255, 255 });
    hl_oklab red   = hl_oklab_of((hl_color){ 255, 0, 0 });

    (void)state;
    assert_near(white.l, 1.0, 1e-4);
    assert_near(white.a, 0.0, 1e-4);
    assert_near(red.l, 0.628, 1e-3);
    assert_near(red.a, 0.225, 1e-3);
    assert_near(red.b, 0.126, 1e-3);
}

/* The color before a cell's title in the SVG is the map's. */
static void test_cell_colors(void **state)
{
    const char *path    = in_folder(*state, "cells.svg");
    hl_profile *profile = make_profile(6, 8, 1, 13);
    size_t      n_bytes = 0;

    assert_ok(hl_draw(profile, "heatmap", path, NULL));
    char *svg = read_whole(path, &n_bytes);
    for (int64_t place = 0; place < 48; place++) {
        char     title[64], wanted[32];
        double   value = (double)entropy_of(place, 48);
        hl_color color = hl_map_color(HL_MAP_ENTROPY, value / 3.0);

        snprintf(title, sizeof title, "<title>L%dH%d ", (int)(place / 8), (int)(place % 8));
        snprintf(wanted, sizeof wanted, "stroke=\"#%02x%02x%02x\"", color.red, color.green,
                 color.blue);
        char *at = strstr(svg, title), *before = NULL;
        assert_non_null(at);
        if (place == 13) {
            assert_memory_equal(at + strlen(title), "not measured", 12);
            continue;
        }
        assert_near(strtod(at + strlen(title), NULL), value, 6e-4);
        for (char *s = svg; (s = strstr(s, "stroke=\"#")) != NULL && s < at; s++)
            before = s;
        assert_non_null(before);
        assert_memory_equal(before, wanted, strlen(wanted));
    }
    assert_non_null(strstr(svg, "made &lt;&amp;&gt;, 6 layers"));
    assert_non_null(strstr(svg, "hatched ones"));
    free(svg);
    hl_profile_free(profile);
}

/* ------------------------------------------------------------------------- layout */

static void check_layouts(int64_t n_layers, int64_t n_heads, const hl_draw_options *options)
{
    hl_profile *profile = make_profile(n_layers, n_heads, 2, -1);

    for (size_t i = 0; hl_figure_name(i) != NULL; i++) {
        char       name[128];
        hl_canvas *canvas = NULL;
        snprintf(name, sizeof name, "%s %d x %d, width %g", hl_figure_name(i), (int)n_layers,
                 (int)n_heads, options->width);
        assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
        assert_ok(hl_figure_draw(canvas, profile, hl_figure_name(i), options));
        check_texts(canvas, name);
        hl_canvas_close(canvas);
    }
    hl_profile_free(profile);
}

static void test_layouts(void **state)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 1, 32 }, { 24, 1 }, { 12, 12 }, { 128, 128 } };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_layouts(shapes[i][0], shapes[i][1], &(hl_draw_options){ .width = 240.0 });
        check_layouts(shapes[i][0], shapes[i][1], &(hl_draw_options){ .width = 480.0 });
        check_layouts(shapes[i][0], shapes[i][1],
                      &(hl_draw_options){ .width = 480.0, .scale = HL_SCALE_CLASSES });
        check_layouts(shapes[i][0], shapes[i][1],
                      &(hl_draw_options){ .width                 = 300.0,
                                          .pruned                = "L0",
                                          .n_candidates          = 200,
                                          .candidates_by_entropy = true });
    }
}

/* -------------------------------------------------------------------------- marks */

static hl_canvas *draw_marked(const hl_profile *profile, const char *figure,
                              const hl_draw_options *options)
{
    hl_canvas *canvas = NULL;

    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_figure_draw(canvas, profile, figure, options));
    return canvas;
}

/* Entropy rises with the place, so candidates go down from L5H7; a list determines its own order.
 * Ranks from 9 on cannot be confused with the numbers of layers and heads. */
static void test_candidates(void **state)
{
    hl_profile *profile = make_profile(6, 8, 1, -1);
    hl_canvas  *canvas  = draw_marked(
          profile, "heatmap",
          &(hl_draw_options){ .pruned = "L5H7", .n_candidates = 12, .candidates_by_entropy = true });
    hl_box ninth = box_of(canvas, "9"), last = box_of(canvas, "12");

    (void)state;
    /* L5H7 is removed: after 7 more heads of layer 5, L4H7 is the eighth. */
    assert_near(ninth.x + ninth.width / 2.0, last.x + last.width / 2.0, 1.5);
    double cell = (last.y - ninth.y) / 3.0;
    assert_true(cell > 30.0 && cell < 57.0);
    hl_canvas_close(canvas);
    canvas =
        draw_marked(profile, "heatmap", &(hl_draw_options){ .candidates = "L0,L3H2,L3H2,L1H4" });
    hl_box on_l3 = box_of(canvas, "9"), on_l1 = box_of(canvas, "10");
    assert_near(on_l3.x - on_l1.x, 2.0 * 56.0, 4.0); /* the largest size of cells */
    assert_near(on_l3.y - on_l1.y, 2.0 * cell, 3.0);
    hl_canvas_close(canvas);
    hl_profile_free(profile);
}

/* By default the lowest output norms come first; a profile without norms is refused. */
static void test_candidates_by_norm(void **state)
{
    hl_profile     *profile = make_profile(6, 8, 1, -1);
    hl_canvas      *canvas  = NULL;
    hl_draw_options options = { .n_candidates = 12 };

    (void)state;
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_fails(HL_BAD_INPUT, "needs output norms, which this profile does not have",
                 hl_figure_draw(canvas, profile, "heatmap", &options));
    hl_canvas_close(canvas);
    for (int64_t place = 0; place < 48; place++) /* the highest entropies have the highest norms */
        hl_profile_norm(profile, -1, place / 8, place % 8, 1.0 + (double)(place % 8));
    canvas       = draw_marked(profile, "heatmap", &options);
    hl_box ninth = box_of(canvas, "9"), tenth = box_of(canvas, "10");
    hl_canvas_close(canvas);
    /* Head 0 has the lowest norm in all six layers, then head 1: the 9th and 10th are L2H1 and
     * L3H1. */
    assert_near(ninth.y, tenth.y, 1.5);
    assert_true(tenth.x - ninth.x > 30.0);
    options.candidates_by_entropy = true;
    canvas                        = draw_marked(profile, "heatmap", &options);
    ninth = box_of(canvas, "9"), tenth = box_of(canvas, "10"); /* L4H7 and L4H6 are in the same
                                                                * layer */
    assert_near(ninth.x + ninth.width / 2.0, tenth.x + tenth.width / 2.0, 1.5);
    hl_canvas_close(canvas);
    hl_profile_free(profile);
}

/* Hatching covers a part of a cell's color, but not all. */
static void test_pruned(void **state)
{
    const char     *path    = in_folder(*state, "pruned.png");
    hl_profile     *profile = make_profile(3, 4, 1, -1);
    hl_draw_options options = { .width = 360.0, .dpi = 72.0 };
    hl_color        color   = hl_map_color(HL_MAP_ENTROPY, 5.0 / 11.0);

    assert_ok(hl_draw(profile, "heatmap", path, &options));
    int64_t whole  = count_pixels(path, color);
    options.pruned = "L1H1";
    assert_ok(hl_draw(profile, "heatmap", path, &options));
    int64_t hatched = count_pixels(path, color);
    assert_true(hatched < 0.8 * (double)whole && hatched > 0.1 * (double)whole);
    options.pruned = "L1H2"; /* the neighbor is not hatched */
    assert_ok(hl_draw(profile, "heatmap", path, &options));
    assert_int_equal(count_pixels(path, color), whole);
    options.pruned = "L1H1,L3H0";
    assert_fails(HL_BAD_ARGUMENT, "'L3H0' is not a head: wanted L0H0 to L2H3",
                 hl_draw(profile, "heatmap", path, &options));
    static const char *const bad[] = { "L1H4", "H1", "L", "L1H", "L0H0;L1H0", "L99999999999H0" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.pruned = bad[i];
        assert_fails(HL_BAD_ARGUMENT, "is not a head", hl_draw(profile, "heatmap", path, &options));
    }
    hl_profile_free(profile);
}

/* One head of layer 1 is broken: layers and variance have a mark there, and all captions say so. */
static void test_diagnoses(void **state)
{
    hl_profile *profile = make_profile(6, 8, 2, 13);
    size_t      n_bytes = 0;

    for (int i = 0; i < 4; i++) {
        static const char *const figures[] = { "layers", "variance", "positions", "histograms" };
        const char              *path      = in_folder(*state, "marks.svg");
        assert_ok(hl_draw(profile, figures[i], path, NULL));
        char *svg  = read_whole(path, &n_bytes);
        char *mark = strstr(svg, "<title>dead-or-broken: ");
        assert_non_null(strstr(svg, "dead-or-broken"));
        assert_true((mark != NULL) == (i < 2));
        if (i < 2) {
            assert_memory_equal(mark, "<title>dead-or-broken: 12% of layer 1<", 37);
            assert_null(strstr(mark + 1, "<title>dead-or-broken: "));
        }
        free(svg);
    }
    hl_profile_free(profile);
}

/* The curve by position has an interval if there are several windows. */
static void test_positions(void **state)
{
    const char *path    = in_folder(*state, "positions.svg");
    size_t      n_bytes = 0;

    for (int n_sequences = 3; n_sequences <= 4; n_sequences++) {
        hl_profile *profile = make_profile(3, 4, n_sequences, -1);

        assert_ok(hl_draw(profile, "positions", path, NULL));
        char *svg = read_whole(path, &n_bytes);
        assert_non_null(strstr(svg, "half of the heads"));
        assert_true((strstr(svg, ">95% interval<") != NULL) == (n_sequences == 4));
        free(svg);
        hl_profile_free(profile);
    }
}

/* ------------------------------------------------------------------------ formats */

static void test_png(void **state)
{
    const char     *path    = in_folder(*state, "heads.png");
    hl_profile     *profile = make_profile(3, 4, 1, -1);
    hl_draw_options options = { .width = 360.0, .dpi = 72.0, .theme = HL_THEME_DARK };
    hl_color        wanted  = hl_map_color(HL_MAP_ENTROPY, 5.0 / 11.0);

    assert_ok(hl_draw(profile, "heatmap", path, &options));
    cairo_surface_t *image = cairo_image_surface_create_from_png(path);
    assert_int_equal(cairo_surface_status(image), CAIRO_STATUS_SUCCESS);
    assert_int_equal(cairo_image_surface_get_width(image), 360);
    uint32_t corner = 0;
    memcpy(&corner, cairo_image_surface_get_data(image), 4);
    assert_int_equal(corner & 0xffffffU, 0x16181dU);
    cairo_surface_destroy(image);
    /* One cell has that color, and so do one or two lines of the color bar. */
    int64_t n_same = count_pixels(path, wanted);
    assert_true(n_same > 1500 && n_same < 56 * 56 + 200);
    hl_profile_free(profile);
}

static void test_same_bytes(void **state)
{
    static const char *const endings[] = { "svg", "png", "pdf" };
    hl_profile              *profile   = make_profile(3, 4, 3, -1);

    for (int i = 0; i < 3; i++) {
        char   name[16];
        size_t sizes[2];
        char  *files[2];
        snprintf(name, sizeof name, "same.%s", endings[i]);
        for (int k = 0; k < 2; k++) {
            if (i == 2 && k == 1) /* a date would differ here */
                nanosleep(&(struct timespec){ 1, 100000000 }, NULL);
            assert_ok(hl_draw(profile, "layers", in_folder(*state, name), NULL));
            files[k] = read_whole(in_folder(*state, name), &sizes[k]);
        }
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(files[0], files[1], sizes[0]);
        free(files[0]);
        free(files[1]);
    }
    hl_profile_free(profile);
}

static double seconds_to_draw(const hl_profile *profile, const char *path, double dpi)
{
    clock_t before = clock();

    assert_ok(hl_draw(profile, "heatmap", path, &(hl_draw_options){ .dpi = dpi }));
    return (double)(clock() - before) / CLOCKS_PER_SEC;
}

static void test_large(void **state)
{
    const char *path    = in_folder(*state, "large.svg");
    hl_profile *profile = make_profile(80, 64, 1, -1);
    size_t      n_bytes = 0;

    double svg = seconds_to_draw(profile, path, 0.0);
    double png = seconds_to_draw(profile, in_folder(*state, "large.png"), 300.0);
    free(read_whole(path, &n_bytes));
    print_message("# 80 x 64: SVG of %zu bytes in %.3f s, PNG at 300 dpi in %.3f s\n", n_bytes, svg,
                  png);
    assert_in_range(n_bytes, 100000, 250000);
    assert_true(SANITIZED || (svg < 0.3 && png < 1.0));
    hl_profile_free(profile);
}

/* ------------------------------------------------------------------------- errors */

static void test_errors(void **state)
{
    hl_profile *profile = make_profile(2, 2, 1, -1), *empty = make_profile(2, 2, 0, -1);
    const char *path = in_folder(*state, "x.svg");

    for (size_t i = 0; hl_figure_name(i) != NULL; i++)
        assert_fails(HL_BAD_INPUT, "has no row", hl_draw(empty, hl_figure_name(i), path, NULL));
    assert_fails(HL_BAD_ARGUMENT, "no figure is called 'pie'", hl_draw(profile, "pie", path, NULL));
    assert_fails(HL_BAD_ARGUMENT, "must end in .svg",
                 hl_draw(profile, "heatmap", in_folder(*state, "x.gif"), NULL));
    assert_fails(HL_BAD_ARGUMENT, "width is 10",
                 hl_draw(profile, "heatmap", path, &(hl_draw_options){ .width = 10.0 }));
    assert_fails(HL_BAD_ARGUMENT, "needs --unit nats",
                 hl_draw(profile, "heatmap", path,
                         &(hl_draw_options){ .unit = HL_UNIT_BITS, .scale = HL_SCALE_CLASSES }));
    assert_true(hl_draw(profile, "heatmap", in_folder(*state, "none/x.svg"), NULL) != HL_OK);
    assert_null(fopen(path, "rb"));
    hl_profile_free(profile);
    hl_profile_free(empty);
}

static void test_axis(void **state)
{
    hl_axis axis = hl_axis_around(0.0, 4.2, 5);
    char    room[HL_NUMBER_BYTES];

    (void)state;
    assert_near(axis.high, 5.0, 1e-12);
    assert_int_equal(axis.n_steps, 5);
    assert_string_equal(hl_axis_label(room, &axis, -2.0), "\u22122");
    axis = hl_axis_around(0.0, 0.013, 5);
    assert_near(axis.step, 0.005, 1e-12);
    assert_string_equal(hl_axis_label(room, &axis, axis.high), "0.015");
    assert_int_equal(hl_label_every(3.0, 14.0), 5);
}

static void test_inner_axis(void **state)
{
    hl_axis axis = hl_axis_within(0.07, 0.93, 5);

    (void)state;
    assert_near(axis.low, 0.07, 1e-12);
    assert_near(hl_axis_tick(&axis, 0), 0.2, 1e-12);
    assert_near(hl_axis_tick(&axis, axis.n_steps), 0.8, 1e-12);
    assert_near(hl_axis_share(&axis, 0.93), 1.0, 1e-12);
    axis = hl_axis_within(-3.0, -3.0, 5);
    assert_true(axis.low <= -3.0 && axis.high >= -3.0 && axis.high > axis.low);
}

static void check_log(double low, double high, double first, double second, double last)
{
    hl_axis axis = hl_axis_log(low, high, 5);

    assert_near(hl_axis_tick(&axis, 0), first, 1e-9 * first);
    assert_near(hl_axis_tick(&axis, 1), second, 1e-9 * second);
    assert_near(hl_axis_tick(&axis, axis.n_steps), last, 1e-9 * last);
    assert_near(hl_axis_share(&axis, axis.low), 0.0, 1e-12);
    assert_near(hl_axis_share(&axis, axis.high), 1.0, 1e-12);
    assert_near(hl_axis_share(&axis, sqrt(axis.low * axis.high)), 0.5, 1e-12);
}

static void test_log_axis(void **state)
{
    char room[HL_NUMBER_BYTES];

    (void)state;
    check_log(21.0, 430.0, 20.0, 50.0, 500.0);
    check_log(0.03, 0.4, 0.02, 0.05, 0.5);
    check_log(1.0, 1e5, 1.0, 10.0, 1e5);
    check_log(0.004, 900.0, 0.001, 0.01, 1000.0);
    check_log(21.0, 24.0, 21.0, 22.0, 24.0); /* the range is too short for rungs */
    hl_axis axis = hl_axis_log(0.02, 50.0, 5);
    assert_string_equal(hl_axis_label(room, &axis, 0.02), "0.02");
    assert_string_equal(hl_axis_label(room, &axis, 50.0), "50");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oklab),         cmocka_unit_test(test_mixing_keeps_lightness),
        cmocka_unit_test(test_maps_are_even), cmocka_unit_test(test_axis),
        cmocka_unit_test(test_inner_axis),    cmocka_unit_test(test_log_axis),
        cmocka_unit_test(test_cell_colors),   cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_png),           cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_large),         cmocka_unit_test(test_errors),
        cmocka_unit_test(test_candidates),    cmocka_unit_test(test_candidates_by_norm),
        cmocka_unit_test(test_pruned),        cmocka_unit_test(test_diagnoses),
        cmocka_unit_test(test_positions),     cmocka_unit_test(test_themes),
    };

    return cmocka_run_group_tests_name("render", tests, open_folder, close_folder);
}
