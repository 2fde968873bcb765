/* test_render_curves.c - curves and scatter plots of known numbers: positions of points, names
 * beside their lines that touch nothing, gaps, logarithms, and clear errors. */
#include "render_support.h"

enum { N = 10, MANY = 12 };

typedef struct sweep {
    double    x[N];
    double    y[MANY][N];
    double    low[N], high[N], inner_low[N], inner_high[N];
    hl_curve  curves[MANY];
    hl_curves figure;
} sweep;

/* Makes perplexities that end close together, so that their names have to move apart. */
static void make_sweep(sweep *s, int n_curves)
{
    static const char *const names[MANY] = {
        "random",           "entropy",           "normalized entropy",
        "without the sink", "collision entropy", "output norm",
        "weights",          "gradient",          "entropy \u00d7 gradient",
        "sink share",       "ablation",          "unpruned",
    };

    *s = (sweep){ 0 };
    for (int i = 0; i < N; i++) {
        s->x[i] = i / 10.0;
        for (int k = 0; k < MANY; k++)
            s->y[k][i] = k == MANY - 1 ? 20.0 : 20.0 * exp(0.3 * i + 0.004 * k * i);
        s->low[i]        = s->y[0][i] * 0.7;
        s->high[i]       = s->y[0][i] * 1.5;
        s->inner_low[i]  = s->y[0][i] * 0.9;
        s->inner_high[i] = s->y[0][i] * 1.1;
    }
    for (int k = 0; k < n_curves; k++)
        s->curves[k] = (hl_curve){ .name = names[k], .n = N, .x = s->x, .y = s->y[k] };
    s->curves[0].kind       = HL_CURVE_CHANCE;
    s->curves[0].low        = s->low;
    s->curves[0].high       = s->high;
    s->curves[0].inner_low  = s->inner_low;
    s->curves[0].inner_high = s->inner_high;
    if (n_curves == MANY)
        s->curves[MANY - 1].kind = HL_CURVE_LEVEL;
    s->figure = (hl_curves){ .title      = "Perplexity after pruning",
                             .x_name     = "Heads removed",
                             .y_name     = "Perplexity",
                             .what       = "One line a ranker.",
                             .band       = "range of 10 random orders",
                             .inner_band = "middle half",
                             .curves     = s->curves,
                             .n_curves   = n_curves };
}

static hl_canvas *draw_on_canvas(const hl_curves *curves, const hl_draw_options *options)
{
    hl_canvas *canvas = NULL;
    hl_figure  figure;

    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_figure_open(&figure, canvas, curves->title, options));
    assert_ok(hl_figure_curves(&figure, curves));
    return canvas;
}

static void test_layouts(void **state)
{
    static const double widths[] = { 300.0, 480.0, 800.0 };
    static const int    counts[] = { 1, 4, MANY };
    sweep               s;

    (void)state;
    for (int i = 0; i < 18; i++) {
        make_sweep(&s, counts[i % 3]);
        s.figure.log_y    = i / 9 == 1;
        hl_canvas *canvas = draw_on_canvas(
            &s.figure, &(hl_draw_options){ .width = widths[i / 3 % 3], .theme = HL_THEME_DARK });
        check_texts(canvas, "curves");
        if (i / 3 % 3 > 0)
            box_of(canvas, "random");
        hl_canvas_close(canvas);
    }
}

/* Names keep the order of the lines' ends, and a long name is cut. */
static void test_names(void **state)
{
    double   y[3][2] = { { 1.0, 5.0 }, { 1.0, 5.01 }, { 1.0, 4.99 } };
    double   x[2]    = { 0.0, 1.0 };
    hl_curve lines[] = {
        { .name = "middle", .n = 2, .x = x, .y = y[0] },
        { .name = "upper", .n = 2, .x = x, .y = y[1] },
        { .name = "a name that is far too long to stand beside a line of any figure whatsoever, "
                  "since nobody would ever read to its end, which is here",
          .n    = 2,
          .x    = x,
          .y    = y[2] },
    };
    hl_curves figure = {
        .title = "T", .x_name = "x", .y_name = "y", .curves = lines, .n_curves = 3
    };
    hl_canvas *canvas = draw_on_canvas(&figure, NULL);
    int64_t    n_cut  = 0;

    (void)state;
    check_texts(canvas, "names");
    double middle = box_of(canvas, "middle").y, upper = box_of(canvas, "upper").y;
    assert_true(upper < middle - 5.0 && upper > middle - 20.0);
    for (int64_t i = 0; i < (int64_t)canvas->n_texts; i++)
        n_cut += strstr(canvas->texts[i].text, "\u2026") != NULL;
    assert_int_equal(n_cut, 1);
    hl_canvas_close(canvas);
}

/* Finds the path's d that follows a mark's title. */
static void point_of(double *x, double *y, const char *svg, const char *title)
{
    const char *at = strstr(svg, title);

    assert_non_null(at);
    at = strstr(at, "d=\"M");
    assert_non_null(at);
    char *end = NULL;
    *x        = strtod(at + 4, &end);
    *y        = strtod(end, NULL);
}

/* Equal ratios have equal distances, as do equal steps of x; every mark has its value. */
static void test_points(void **state)
{
    double    x[4] = { 0.0, 0.1, 0.2, 0.3 }, y[4] = { 10.0, 100.0, NAN, 1000.0 };
    hl_curve  line   = { .name = "<a&b>", .n = 4, .x = x, .y = y };
    hl_curves figure = {
        .title = "T", .x_name = "x", .y_name = "y", .curves = &line, .n_curves = 1, .log_y = true
    };
    const char *path = in_folder(*state, "points.svg");
    double      at[3][2];
    size_t      n_bytes = 0;

    assert_ok(hl_draw_curves(&figure, path, &(hl_draw_options){ .caption = "Alice" }));
    char *svg = read_whole(path, &n_bytes);
    point_of(&at[0][0], &at[0][1], svg, "<title>&lt;a&amp;b&gt;: 0, 10</title>");
    point_of(&at[1][0], &at[1][1], svg, "<title>&lt;a&amp;b&gt;: 0.1, 100</title>");
    point_of(&at[2][0], &at[2][1], svg, "<title>&lt;a&amp;b&gt;: 0.3, 1000</title>");
    assert_near(at[2][1] - at[1][1], at[1][1] - at[0][1], 0.03);
    assert_near(at[2][0] - at[0][0], 3.0 * (at[1][0] - at[0][0]), 0.05);
    assert_true(at[0][1] > at[1][1] + 50.0);
    assert_null(strstr(svg, "nan"));
    assert_non_null(strstr(svg, ">Alice.<"));
    free(svg);
}

/* The bands' colors are in the picture; the darker one covers less of it. */
static void test_bands(void **state)
{
    sweep       s;
    const char *path = in_folder(*state, "bands.png");

    make_sweep(&s, 2);
    s.figure.log_y = true;
    assert_ok(hl_draw_curves(&s.figure, path, &(hl_draw_options){ .dpi = 72.0 }));
    const hl_theme_colors *theme = hl_theme_colors_of(HL_THEME_LIGHT);
    int64_t                pale  = count_pixels(path, hl_mix(theme->background, theme->axis, 0.16));
    int64_t                dark  = count_pixels(path, hl_mix(theme->background, theme->axis, 0.34));
    assert_true(dark > 1000 && pale > dark);
}

static void test_one_point(void **state)
{
    double    one = 1.0, low = 0.5, high = 2.0;
    hl_curve  line   = { .name = "one", .n = 1, .x = &one, .y = &one, .low = &low, .high = &high };
    hl_curves figure = {
        .title = "T", .x_name = "x", .y_name = "y", .curves = &line, .n_curves = 1
    };

    (void)state;
    for (int i = 0; i < 4; i++) {
        figure.log_x      = i % 2 == 1;
        figure.log_y      = i / 2 == 1;
        hl_canvas *canvas = draw_on_canvas(&figure, NULL);
        check_texts(canvas, "one point");
        hl_canvas_close(canvas);
    }
}

static void test_curve_errors(void **state)
{
    sweep       s;
    const char *path = in_folder(*state, "x.svg");

    make_sweep(&s, 2);
    s.y[1][3]      = 0.0;
    s.figure.log_y = true;
    assert_fails(HL_BAD_INPUT, "Perplexity: a logarithmic axis cannot show 0",
                 hl_draw_curves(&s.figure, path, NULL));
    s.figure.log_y = false;
    assert_fails(HL_BAD_ARGUMENT, "must end in .svg", hl_draw_curves(&s.figure, "x.gif", NULL));
    assert_fails(HL_BAD_ARGUMENT, "unit: curves are in nats",
                 hl_draw_curves(&s.figure, path, &(hl_draw_options){ .unit = HL_UNIT_BITS }));
    assert_fails(HL_BAD_ARGUMENT, "scale: curves have no classes",
                 hl_draw_curves(&s.figure, path, &(hl_draw_options){ .scale = HL_SCALE_CLASSES }));
    assert_fails(HL_BAD_ARGUMENT, "curves have no marks",
                 hl_draw_curves(&s.figure, path, &(hl_draw_options){ .n_candidates = 3 }));
    s.curves[1].low = s.low;
    assert_fails(HL_BAD_ARGUMENT, "'entropy' has half a band",
                 hl_draw_curves(&s.figure, path, NULL));
    s.curves[1].n = 0;
    assert_fails(HL_BAD_ARGUMENT, "'entropy' has 0 points", hl_draw_curves(&s.figure, path, NULL));
    make_sweep(&s, 1);
    s.curves[0].low = s.curves[0].high = NULL;
    for (int i = 0; i < N; i++)
        s.y[0][i] = NAN;
    assert_fails(HL_BAD_INPUT, "no curve has a finite point",
                 hl_draw_curves(&s.figure, path, NULL));
    s.figure.n_curves = 0;
    assert_fails(HL_BAD_ARGUMENT, "no curve", hl_draw_curves(&s.figure, path, NULL));
}

/* ------------------------------------------------------------------------- scatter */

static void fill_scatter(double *x, double *y, int64_t n)
{
    hl_random random = { 0 };

    for (int64_t i = 0; i < n; i++) {
        x[i] = uniform(&random);
        y[i] = 0.3 * x[i] * x[i] + 0.1 * uniform(&random) - 0.02;
    }
}

static void test_scatter_layouts(void **state)
{
    enum { POINTS = 96, PANELS = 7 };
    static double    x[POINTS], y[POINTS];
    hl_scatter_panel panels[PANELS];
    hl_scatter       scatter = { .title    = "Scores and losses",
                                 .x_name   = "Score",
                                 .y_name   = "\u0394NLL (nats)",
                                 .what     = "Every dot is a head.",
                                 .n_points = POINTS,
                                 .panels   = panels };

    (void)state;
    fill_scatter(x, y, POINTS);
    for (int i = 0; i < PANELS; i++)
        panels[i] = (hl_scatter_panel){ i % 2 == 0 ? "entropy" : "entropy \u00d7 gradient",
                                        x,
                                        y,
                                        0.53,
                                        i % 3 == 0 ? NAN : 0.31,
                                        0.7 };
    for (int i = 0; i < 12; i++) {
        hl_canvas *canvas = NULL;
        hl_figure  figure;
        scatter.n_panels = i % 4 == 3 ? PANELS : i % 4 + 1;
        assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
        assert_ok(hl_figure_open(&figure, canvas, scatter.title,
                                 &(hl_draw_options){ .width = 240.0 + 200.0 * (i / 4) }));
        assert_ok(hl_figure_scatter(&figure, &scatter));
        check_texts(canvas, "scatter");
        box_of(canvas, "\u03c1 = +0.53");
        if (scatter.n_panels > 1)
            box_of(canvas, "\u03c1 = +0.53 (+0.31 to +0.70)");
        hl_canvas_close(canvas);
    }
}

/* A higher value is drawn higher, in every panel; NaN is left out. */
static void test_scatter_points(void **state)
{
    double             x[3] = { 1.0, 2.0, 3.0 }, y[2][3] = { { 0.0, 1.0, NAN }, { 1.0, 5.0, 2.0 } };
    static const char *names[]      = { "L0H0", "L0H1", "L0H2" };
    const hl_scatter_panel panels[] = { { "a", x, y[0], NAN, NAN, NAN },
                                        { "b", x, y[1], NAN, NAN, NAN } };
    hl_scatter             scatter  = { "T", "x", "y", NULL, 3, names, panels, 2 };
    const char            *path     = in_folder(*state, "scatter.svg");
    double                 a[2], b[2];
    size_t                 n_bytes = 0;

    assert_ok(hl_draw_scatter(&scatter, path, NULL));
    char *svg = read_whole(path, &n_bytes);
    point_of(&a[0], &a[1], svg, "<title>L0H1: 2, 1</title>");
    point_of(&b[0], &b[1], svg, "<title>L0H0: 1, 1</title>");
    assert_near(a[1], b[1], 0.011);
    assert_true(b[0] > a[0]);
    assert_null(strstr(svg, "nan"));
    free(svg);
    x[0] = x[1] = NAN;
    assert_fails(HL_BAD_INPUT, "a: no point is finite", hl_draw_scatter(&scatter, path, NULL));
    scatter.n_panels = 0;
    assert_fails(HL_BAD_ARGUMENT, "nothing to draw", hl_draw_scatter(&scatter, path, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts),         cmocka_unit_test(test_names),
        cmocka_unit_test(test_points),          cmocka_unit_test(test_bands),
        cmocka_unit_test(test_one_point),       cmocka_unit_test(test_curve_errors),
        cmocka_unit_test(test_scatter_layouts), cmocka_unit_test(test_scatter_points),
    };

    return cmocka_run_group_tests_name("render_curves", tests, open_folder, close_folder);
}
