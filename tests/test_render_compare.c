/* test_render_compare.c - two models side by side: maps of known patterns, dots for heads that
 * differ, layouts of any shape, the time for a large model, and clear errors. */
#include "render_profile.h"

#include <time.h>

#include "render/figure.h"

typedef struct pair {
    hl_profile    *profiles[2];
    hl_patterns    patterns[2];
    hl_comparison *found;
    hl_compared    sides[2];
} pair;

/* Head h of A attends to itself only, head h of B to all tokens equally. */
static void fill_patterns(hl_patterns *p, int64_t n_layers, int64_t n_heads, int64_t n, bool even)
{
    *p = (hl_patterns){ n_layers, n_heads, n, calloc((size_t)n, sizeof *p->tokens),
                        calloc((size_t)(n_layers * n_heads * n * n), sizeof *p->values) };
    for (int64_t i = 0; i < n_layers * n_heads * n; i++) {
        for (int64_t key = 0; key <= i % n; key++)
            p->values[i * n + key] = even ? 1.0f / (float)(i % n + 1) : key == i % n ? 1.0f : 0.0f;
    }
}

static void make_pair(pair *p, int64_t n_layers, int64_t n_heads, int64_t n_tokens)
{
    *p             = (pair){ 0 };
    p->profiles[0] = make_other_profile(n_layers, n_heads, 6, -1, 1.0f);
    p->profiles[1] = make_other_profile(n_layers, n_heads, 6, -1, 0.5f);
    assert_ok(hl_compare(&p->found, p->profiles[0], p->profiles[1], NULL));
    for (int i = 0; i < 2; i++) {
        p->sides[i] = (hl_compared){ i == 0 ? "A: dense" : "B: sparse", p->profiles[i], NULL };
        if (n_tokens == 0)
            continue;
        fill_patterns(&p->patterns[i], n_layers, n_heads, n_tokens, i == 1);
        p->sides[i].patterns = &p->patterns[i];
    }
}

static void free_pair(pair *p)
{
    for (int i = 0; i < 2; i++) {
        hl_profile_free(p->profiles[i]);
        free(p->patterns[i].tokens);
        free(p->patterns[i].values);
    }
    hl_comparison_free(p->found);
}

static void check_layout(int64_t n_layers, int64_t n_heads, int64_t n_tokens, double width)
{
    pair       p;
    hl_canvas *canvas = NULL;
    hl_figure  figure;
    char       name[96];

    snprintf(name, sizeof name, "%d x %d, %d tokens, width %g", (int)n_layers, (int)n_heads,
             (int)n_tokens, width);
    make_pair(&p, n_layers, n_heads, n_tokens);
    if (width == 0.0)
        width = hl_comparison_width(&p.sides[0]);
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_figure_open(&figure, canvas, "Two", &(hl_draw_options){ .width = width }));
    assert_ok(hl_figure_comparison(&figure, p.sides, p.found));
    check_texts(canvas, name);
    box_of(canvas, "B \u2212 A");
    box_of(canvas, "A: dense");
    hl_canvas_close(canvas);
    free_pair(&p);
}

static void test_layouts(void **state)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 2, 3 }, { 8, 8 }, { 12, 16 }, { 24, 40 } };
    static const double  widths[]    = { 0.0, 240.0, 480.0, 900.0 };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int k = 0; k < 4; k++) {
            check_layout(shapes[i][0], shapes[i][1], 3, widths[k]);
            check_layout(shapes[i][0], shapes[i][1], 0, widths[k]);
        }
    }
}

/* Every head that differs has a dot, and no other; text has another color on a dark page. */
static void test_dots(void **state)
{
    const char *path    = in_folder(*state, "dots.svg");
    size_t      n_bytes = 0;
    int64_t     n_dots  = 0;
    pair        p;

    make_pair(&p, 3, 4, 0);
    assert_int_equal(p.found->n_significant, 6);
    assert_ok(hl_draw_comparison(&p.sides[0], &p.sides[1], p.found, path,
                                 &(hl_draw_options){ .theme = HL_THEME_DARK }));
    char *svg = read_whole(path, &n_bytes);
    for (char *at = svg; (at = strstr(at, "fill=\"#1c1e24\"")) != NULL; at++)
        n_dots++;
    assert_int_equal(n_dots, 6);
    assert_non_null(strstr(svg, "B \u2212 A: 6 of 12 heads differ"));
    /* L2H3 has 3 nats in A and half of that in B, for rows that see 25 to 32 keys. */
    assert_non_null(strstr(svg, "<title>L2H3 A 0.89"));
    assert_non_null(strstr(svg, "<title>L2H3 B 0.44"));
    assert_non_null(strstr(svg, "<title>L2H3 B \u2212 A -0.44"));
    free(svg);
    free_pair(&p);
}

/* A's maps have diagonals of the darkest blue, B's do not; the maps' sizes are checked. */
static void test_maps(void **state)
{
    const char *path     = in_folder(*state, "maps.png");
    const char *svg_path = in_folder(*state, "maps.svg");
    hl_color    dark     = hl_map_color(HL_MAP_BLUES, 1.0);
    hl_figure   figure;
    hl_canvas  *canvas  = NULL;
    size_t      n_bytes = 0;
    pair        p;

    make_pair(&p, 2, 4, 8);
    hl_draw_options options = { .width = 480.0, .dpi = 72.0 };
    assert_ok(hl_draw_comparison(&p.sides[0], &p.sides[1], p.found, path, &options));
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_figure_open(&figure, canvas, "T", &options));
    hl_map_block block;
    hl_map_block_plan(&block, &figure, &p.sides[0], (480.0 - 32.0 - 14.0) / 2.0);
    /* Eight cells of each of A's eight maps, and the first of B's rows, which sees only itself. The
     * last step of the key is 16 x 7 points at most. */
    double cell = block.map / 8.0, wanted = 8.0 * (8.0 + 1.0) * cell * cell;
    assert_near((double)count_pixels(path, dark), wanted + 16.0, 0.15 * wanted + 20.0);
    hl_canvas_close(canvas);

    assert_ok(hl_draw_comparison(&p.sides[0], &p.sides[1], p.found, svg_path, &options));
    char *svg = read_whole(svg_path, &n_bytes);
    assert_non_null(strstr(svg, "<title>A: dense L1H3, H 3.00, self \u2013"));
    assert_non_null(strstr(svg, "<title>B: sparse L1H3, H 1.50"));
    assert_non_null(strstr(svg, ">L1H2</text>"));
    free(svg);
    free_pair(&p);
}

/* The page of the largest model that the figure is designed for. */
static void test_large(void **state)
{
    const char *path     = in_folder(*state, "large.png");
    const char *svg_path = in_folder(*state, "large.svg");
    size_t      n_bytes  = 0;
    hl_figure   figure;
    hl_canvas  *canvas = NULL;
    pair        p;

    make_pair(&p, 12, 16, 32);
    clock_t before = clock();
    assert_ok(hl_draw_comparison(&p.sides[0], &p.sides[1], p.found, path, NULL));
    double png = (double)(clock() - before) / CLOCKS_PER_SEC;
    before     = clock();
    assert_ok(hl_draw_comparison(&p.sides[0], &p.sides[1], p.found, svg_path, NULL));
    double svg = (double)(clock() - before) / CLOCKS_PER_SEC;
    free(read_whole(svg_path, &n_bytes));
    print_message("# 12 x 16 x 2 maps: PNG in %.2f s, SVG of %zu bytes in %.2f s\n", png, n_bytes,
                  svg);
    assert_true(SANITIZED || (png < 3.0 && svg < 3.0));
    /* At least 40 pixels at 144 dpi. */
    double width = hl_comparison_width(&p.sides[0]);
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_figure_open(&figure, canvas, "T", &(hl_draw_options){ .width = width }));
    hl_map_block block;
    hl_map_block_plan(&block, &figure, &p.sides[0], hl_figure_inner_width(&figure));
    assert_true(block.map * 2.0 >= 40.0 && block.named && block.lines[0] > 0);
    hl_canvas_close(canvas);
    free_pair(&p);
}

static void test_errors(void **state)
{
    const char *path = in_folder(*state, "x.svg");
    pair        p, q;

    make_pair(&p, 2, 2, 4);
    make_pair(&q, 2, 3, 4);
    assert_fails(HL_BAD_ARGUMENT, "different numbers of layers or heads",
                 hl_draw_comparison(&p.sides[0], &q.sides[1], p.found, path, NULL));
    hl_compared bare = { "bare", p.profiles[1], NULL };
    assert_fails(HL_BAD_ARGUMENT, "the maps of one model are missing",
                 hl_draw_comparison(&p.sides[0], &bare, p.found, path, NULL));
    hl_compared mixed = { "mixed", p.profiles[1], &q.patterns[1] };
    assert_fails(HL_BAD_ARGUMENT, "of other models than the profiles",
                 hl_draw_comparison(&p.sides[0], &mixed, p.found, path, NULL));
    p.patterns[1].tokens[2] = 7;
    assert_fails(HL_BAD_ARGUMENT, "different tokens",
                 hl_draw_comparison(&p.sides[0], &p.sides[1], p.found, path, NULL));
    assert_null(fopen(path, "rb"));
    free_pair(&p);
    free_pair(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts), cmocka_unit_test(test_dots),   cmocka_unit_test(test_maps),
        cmocka_unit_test(test_large),   cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests_name("render_compare", tests, open_folder, close_folder);
}
