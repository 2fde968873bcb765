/* test_render_tokens.c - pictures of prompts with known numbers: shades, bins, labels that stay on
 * the page and do not touch, notes, and clear errors. */
#include "token_view_support.h"

#include <time.h>

#include "render/token_cells.h"

/* ------------------------------------------------------------------------------ bins */

static void test_bins(void **state)
{
    hl_token_view *view  = make(10, 1, true);
    hl_token_cells cells = { 0 };

    (void)state;
    assert_ok(hl_token_cells_new(&cells, view, &view->maps[0], 0, 10, 4));
    assert_int_equal(cells.bin, 3);
    assert_int_equal(cells.n, 4); /* 3 + 3 + 3 + 1 */
    for (int64_t row = 0; row < 4; row++) {
        double sum = 0.0;
        for (int64_t column = 0; column < 4; column++)
            sum += hl_token_cells_at(&cells, row, column);
        assert_near(sum, 1.0, 1e-6);
    }
    /* Rows 3, 4, 5 on keys 3, 4, 5: 1 of 4, 2 of 5 and 3 of 6 shares of a half. */
    assert_near(hl_token_cells_at(&cells, 1, 1), (0.5 / 4 + 0.5 * 2 / 5 + 0.5 * 3 / 6) / 3, 1e-6);
    assert_near(hl_token_cells_at(&cells, 3, 3), 0.5 / 10, 1e-6);
    assert_near(cells.entropy[1], 4.0 * 4 / 10, 1e-6);
    assert_int_equal(hl_token_cells_token(&cells, 3), 9);
    assert_true(hl_token_cells_has(&cells, 1, 1) && !hl_token_cells_has(&cells, 1, 2));
    hl_token_cells_free(&cells);
    unmake(view);
}

/* --------------------------------------------------------------------------- colors */

/* Checks the stroke of a title's cell: the last color named before it. */
static void assert_color_before(const char *svg, const char *title, hl_color color)
{
    const char *at = strstr(svg, title), *before = NULL;
    char        wanted[32];

    if (at == NULL)
        fail_msg("no title '%s'", title);
    for (const char *s = svg; (s = strstr(s, "stroke=\"#")) != NULL && s < at; s++)
        before = s;
    assert_non_null(before);
    snprintf(wanted, sizeof wanted, "stroke=\"#%02x%02x%02x\"", color.red, color.green, color.blue);
    assert_memory_equal(before, wanted, strlen(wanted));
}

static void check_colors(const char *path, hl_attention_scale scale, hl_theme theme)
{
    hl_token_view  *view    = make(6, 1, true);
    hl_token_figure options = { .scale = scale, .draw = { .theme = theme } };
    hl_map          map     = theme == HL_THEME_DARK ? HL_MAP_BLUES_DARK : HL_MAP_BLUES;
    size_t          n_bytes = 0;

    assert_ok(hl_draw_tokens(view, path, &options));
    char *svg = read_whole(path, &n_bytes);
    for (int64_t row = 0; row < 6; row++) {
        char title[128];
        for (int64_t key = 0; key <= row; key++) {
            double value = (double)attention_of(row, key, row + 1);
            double share = scale == HL_ATTENTION_ROOT ? sqrt(value) : value;
            snprintf(title, sizeof title, "<title>%d %s \u2192 %d %s: %.3f</title>", (int)row,
                     row == 4 ? "&lt;|im_start|&gt;" : words[row], (int)key,
                     key == 4 ? "&lt;|im_start|&gt;" : words[key], value);
            assert_color_before(svg, title, hl_map_color(map, share));
        }
        snprintf(title, sizeof title, "<title>%d %s: %.3f nats</title>", (int)row,
                 row == 4 ? "&lt;|im_start|&gt;" : words[row], 4.0 * (double)row / 6.0);
        assert_color_before(
            svg, title, hl_map_color(HL_MAP_DIFFERENCE, (double)view->maps[0].entropy[row] / 4.0));
    }
    assert_null(strstr(svg, "0 The \u2192 1 ")); /* a token does not see the next one */
    assert_non_null(strstr(svg, "Bold: special"));
    free(svg);
    unmake(view);
}

static void test_colors(void **state)
{
    check_colors(in_folder(*state, "root.svg"), HL_ATTENTION_ROOT, HL_THEME_LIGHT);
    check_colors(in_folder(*state, "linear.svg"), HL_ATTENTION_LINEAR, HL_THEME_DARK);
}

/* Red, except for a blue cell and one that is left out. */
static bool red_and_blue(hl_color *out, const void *context, int64_t across, int64_t down)
{
    const hl_color red = { 255, 0, 0 }, blue = { 0, 0, 255 };

    (void)context;
    *out = across == 2 && down == 0 ? blue : red;
    return !(across == 1 && down == 1);
}

/* Runs of one color are one stroke, but no cell is lost or painted twice. */
static void test_plain_cells(void **state)
{
    hl_color     white = { 255, 255, 255 };
    hl_cell_grid grid  = {
         .box = { 0.0, 0.0, 30.0, 20.0 }, .n_across = 3, .n_down = 2, .color = red_and_blue
    };
    hl_canvas *canvas  = NULL;
    size_t     n_bytes = 0;

    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    hl_canvas_page(canvas, 30.0, 20.0, white);
    hl_canvas_cells(canvas, &grid);
    assert_ok(hl_canvas_write(canvas, in_folder(*state, "plain.svg")));
    hl_canvas_close(canvas);
    char *svg = read_whole(in_folder(*state, "plain.svg"), &n_bytes);
    assert_non_null(strstr(svg, "<path stroke=\"#ff0000\" d=\"M0 0h2M0 1h1M2 1h1\"/>"));
    assert_non_null(strstr(svg, "<path stroke=\"#0000ff\" d=\"M2 0h1\"/>"));
    free(svg);
}

/* ---------------------------------------------------------------------------- layout */

static void check_layout(int64_t n_tokens, int64_t n_maps, bool is_causal, double width,
                         int64_t zoom_begin, int64_t zoom_end)
{
    hl_token_view  *view    = make(n_tokens, n_maps, is_causal);
    hl_token_figure options = { .draw       = { .width = width },
                                .zoom_begin = zoom_begin,
                                .zoom_end   = zoom_end };
    hl_canvas      *canvas  = NULL;
    char            name[128];

    snprintf(name, sizeof name, "%d tokens, %d maps, width %g, zoom %d:%d", (int)n_tokens,
             (int)n_maps, width, (int)zoom_begin, (int)zoom_end);
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_token_figure_draw(canvas, view, &options));
    check_texts(canvas, name);
    box_of(canvas, "Key (is attended to)");
    box_of(canvas, "Row entropy (nats)");
    box_of(canvas, "Attention");
    hl_canvas_close(canvas);
    unmake(view);
}

static void test_layouts(void **state)
{
    static const int64_t sizes[]  = { 1, 2, 16, 45, 60, 130, 300, 1200 };
    static const double  widths[] = { 240.0, 480.0, 900.0 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int w = 0; w < 3; w++) {
            int64_t n = sizes[i];
            check_layout(n, 1, true, widths[w], 0, 0);
            check_layout(n, 6, n != 16, widths[w], n / 2, n / 2 + 1 + n / 5);
            check_layout(n, 3, true, widths[w], 0, 0);
        }
    }
}

/* A row's label is at the height of its row, and every token has one if there is room. */
static void test_labels(void **state)
{
    hl_token_view *view   = make(12, 1, true);
    hl_canvas     *canvas = NULL;
    hl_box         last   = { 0 };

    (void)state;
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_token_figure_draw(canvas, view, NULL));
    for (int i = 0; i < 12; i++) {
        hl_box box      = { 0 };
        int    n_labels = 0;
        for (int64_t k = 0; k < (int64_t)canvas->n_texts; k++) {
            const char *text = canvas->texts[k].text;
            /* Long labels are cut. */
            if (strcmp(text, words[i]) == 0 || (i == 5 && strncmp(text, "\u00b7incomp", 8) == 0 &&
                                                strstr(text, "\u2026") != NULL)) {
                box = n_labels == 0 ? canvas->texts[k].box : box;
                n_labels++;
            }
        }
        if (n_labels != 2)
            fail_msg("'%s' has %d labels, wanted 2", words[i], n_labels);
        if (i > 0) /* rows come first */
            assert_true(box.y + box.height / 2.0 > last.y + last.height / 2.0);
        last = box;
    }
    hl_canvas_close(canvas);
    unmake(view);
}

/* Labels are cut between characters. */
static void test_cuts(void **state)
{
    hl_canvas    *canvas = NULL;
    hl_text_style style  = { .size = 7.0 };
    char          room[16];

    (void)state;
    assert_string_equal(hl_figure_copy(room, 6, "\u4f60\u597d"), "\u4f60");
    assert_string_equal(hl_figure_copy(room, 7, "\u4f60\u597d"), "\u4f60\u597d");
    assert_string_equal(hl_figure_copy(room, 16, ""), "");
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    hl_figure figure = { .canvas = canvas };
    double    most   = hl_canvas_text_width(canvas, "ab\u2026", &style) + 0.01;
    strcpy(room, "abcdef");
    hl_figure_shorten(&figure, room, sizeof room, most, &style);
    assert_string_equal(room, "ab\u2026");
    strcpy(room, "abe\u0301cdef"); /* a letter and its accent are not separated */
    hl_figure_shorten(&figure, room, sizeof room, most, &style);
    assert_string_equal(room, "ab\u2026");
    strcpy(room, "abc");
    hl_figure_shorten(&figure, room, sizeof room, 100.0, &style);
    assert_string_equal(room, "abc");
    hl_figure_shorten(&figure, room, sizeof room, 0.0, &style); /* an ellipsis remains */
    assert_string_equal(room, "\u2026");
    hl_canvas_close(canvas);
}

static void test_captions(void **state)
{
    hl_token_view *view    = make(600, 1, true);
    const char    *path    = in_folder(*state, "bins.svg");
    size_t         n_bytes = 0;

    assert_ok(hl_draw_tokens(view, path, NULL));
    char *svg = read_whole(path, &n_bytes);
    assert_non_null(strstr(svg, "A cell is 3 \u00d7"));
    assert_in_range(n_bytes, 1000, 250000);
    free(svg);
    unmake(view);
}

/* ----------------------------------------------------------------------------- notes */

static void test_notes(void **state)
{
    hl_token_view *view    = make(16, 1, true);
    const hl_note  notes[] = { { "one", 8, 2 },
                               { "another one", 8, 3 },
                               { "at the end", 15, 15 },
                               { "at the beginning", 0, 0 } };
    hl_canvas     *canvas  = NULL;

    (void)state;
    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(
        hl_token_figure_draw(canvas, view, &(hl_token_figure){ .notes = notes, .n_notes = 4 }));
    check_texts(canvas, "notes");
    for (int i = 0; i < 4; i++)
        box_of(canvas, notes[i].text);
    hl_canvas_close(canvas);

    hl_note far      = { "x", 3, 16 },
            huge     = { "A note that is far longer than the map that it should stand "
                             "in, and so has no place anywhere on it, not even in its "
                             "smallest corner",
                         1, 1 };
    const char *path = in_folder(*state, "x.svg");
    assert_fails(HL_BAD_ARGUMENT, "is at row 3, column 16; tokens are 0 to 15",
                 hl_draw_tokens(view, path, &(hl_token_figure){ .notes = &far, .n_notes = 1 }));
    assert_fails(HL_BAD_ARGUMENT, "no room for the note 'A note",
                 hl_draw_tokens(view, path, &(hl_token_figure){ .notes = &huge, .n_notes = 1 }));
    assert_null(fopen(path, "rb"));
    unmake(view);
}

/* -------------------------------------------------------------- formats, odd numbers */

static void test_png(void **state)
{
    const char     *path    = in_folder(*state, "tokens.png");
    hl_token_view  *view    = make(4, 1, true);
    hl_token_figure options = { .draw = { .dpi = 72.0 } };

    assert_ok(hl_draw_tokens(view, path, &options));
    /* Row 1, key 1 is the only cell with a quarter: 26 points minus the gaps. */
    int64_t n_same = count_pixels(path, hl_map_color(HL_MAP_BLUES, sqrt(0.25)));
    assert_in_range(n_same, 23 * 23, 27 * 27 + 60);
    unmake(view);
}

static uint32_t pixel_at(cairo_surface_t *image, int x, int y)
{
    uint32_t pixel = 0;

    memcpy(&pixel,
           cairo_image_surface_get_data(image) + y * cairo_image_surface_get_stride(image) + 4 * x,
           4);
    return pixel & 0xffffffU;
}

/* Counts pixels between two white ones that are not white. */
static int count_seams(const char *path)
{
    cairo_surface_t *image = cairo_image_surface_create_from_png(path);
    int              count = 0;

    for (int y = 1; y + 1 < cairo_image_surface_get_height(image); y++) {
        for (int x = 1; x + 1 < cairo_image_surface_get_width(image); x++) {
            bool down =
                pixel_at(image, x, y - 1) == 0xffffff && pixel_at(image, x, y + 1) == 0xffffff;
            bool across =
                pixel_at(image, x - 1, y) == 0xffffff && pixel_at(image, x + 1, y) == 0xffffff;
            count += (down || across) && pixel_at(image, x, y) != 0xffffff;
        }
    }
    cairo_surface_destroy(image);
    return count;
}

static bool all_white(hl_color *out, const void *context, int64_t across, int64_t down)
{
    (void)context;
    (void)across;
    (void)down;
    *out = (hl_color){ 255, 255, 255 };
    return true;
}

/* Cells that touch leave no seam, wherever their edges are. */
static void test_seams(void **state)
{
    const char    *path  = in_folder(*state, "seams.png");
    const hl_color black = { 0, 0, 0 };

    for (int i = 0; i < 100; i++) {
        hl_canvas   *canvas = NULL;
        double       side   = 80.0 + i / 10.0;
        hl_cell_grid grid   = { .box      = { 10.0 + i / 70.0, 10.0 + i / 30.0, side, side },
                                .n_across = 32,
                                .n_down   = 32,
                                .color    = all_white };
        assert_ok(hl_canvas_open(&canvas, HL_FORMAT_PNG, 72.0));
        hl_canvas_page(canvas, 120.0, 120.0, black);
        hl_canvas_cells(canvas, &grid);
        assert_ok(hl_canvas_write(canvas, path));
        hl_canvas_close(canvas);
        assert_int_equal(count_seams(path), 0);
    }
}

/* A page that ends within a pixel fills that pixel. */
/* ----------------------------------------------------------------------------- fonts */

static void count_warning(void *count, hl_log_level level, const char *message)
{
    assert_int_equal(level, HL_LOG_WARNING);
    *(int *)count += strstr(message, "no installed font has ") != NULL;
}

/* Returns whether any installed font has this character. */
static bool font_has(const char *code)
{
    char  command[128], line[256];
    FILE *pipe  = NULL;
    bool  found = false;

    snprintf(command, sizeof command, "fc-list ':charset=%s' 2>/dev/null", code);
    pipe = popen(command, "r");
    if (pipe != NULL) {
        found = fgets(line, sizeof line, pipe) != NULL;
        pclose(pipe);
    }
    return found;
}

/* Tokens of every script are drawn with glyphs, not as boxes, in both formats that have glyphs. */
static void test_scripts(void **state)
{
    static const char *const codes[]   = { "4f60", "3053", "c548", "645", "5d0", "1f642", "1f468" };
    static const char *const formats[] = { "scripts.png", "scripts.pdf" };
    hl_token_view           *view      = make(N_WORDS + 2, 1, true);
    int                      n_boxes   = 0;

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (!font_has(codes[i])) {
            unmake(view);
            skip(); /* tools/deps has not been run */
        }
    }
    free(view->tokens[N_WORDS].text);
    free(view->tokens[N_WORDS + 1].text);
    view->tokens[N_WORDS].text     = strdup("\uc548\ub155");
    view->tokens[N_WORDS + 1].text = strdup("\u05e9\u05dc\u05d5\u05dd");
    hl_log_set(count_warning, &n_boxes, HL_LOG_WARNING);
    for (int i = 0; i < 2; i++)
        assert_ok(hl_draw_tokens(view, in_folder(*state, formats[i]), NULL));
    assert_int_equal(n_boxes, 0);
    /* A character that no font has is reported. */
    free(view->tokens[0].text);
    view->tokens[0].text = strdup("\U000e1234");
    assert_ok(hl_draw_tokens(view, in_folder(*state, formats[0]), NULL));
    assert_int_equal(n_boxes, 1);
    hl_log_set(NULL, NULL, HL_LOG_WARNING);
    unmake(view);
}

static void test_edges(void **state)
{
    const char    *path   = in_folder(*state, "edges.png");
    const hl_color paper  = { 200, 210, 220 };
    hl_canvas     *canvas = NULL;

    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_PNG, 100.0));
    hl_canvas_page(canvas, 50.2, 60.3, paper); /* 61 points high: 69.7 x 84.7 */
    assert_ok(hl_canvas_write(canvas, path));
    hl_canvas_close(canvas);
    assert_int_equal(count_pixels(path, paper), 70 * 85);
}

static void test_same_bytes(void **state)
{
    static const char *const names[] = { "same.svg", "same.png", "same.pdf" };
    hl_token_view           *view    = make(20, 3, false);

    for (int i = 0; i < 3; i++) {
        size_t sizes[2];
        char  *files[2];
        for (int k = 0; k < 2; k++) {
            assert_ok(hl_draw_tokens(view, in_folder(*state, names[i]), NULL));
            files[k] = read_whole(in_folder(*state, names[i]), &sizes[k]);
        }
        assert_int_equal(sizes[0], sizes[1]);
        assert_memory_equal(files[0], files[1], sizes[0]);
        free(files[0]);
        free(files[1]);
    }
    unmake(view);
}

/* A NaN is crossed out and reported; the rest is drawn. */
static void test_nan(void **state)
{
    const char    *path    = in_folder(*state, "nan.svg");
    hl_token_view *view    = make(5, 1, true);
    size_t         n_bytes = 0;
    int            n_odd   = 0;

    view->maps[0].attention[3 * 5 + 1] = NAN;
    view->maps[0].entropy[3]           = NAN;
    assert_ok(hl_draw_tokens(view, path, NULL));
    char *svg = read_whole(path, &n_bytes);
    for (const char *at = svg; (at = strstr(at, "<title>not a number</title>")) != NULL; at++)
        n_odd++;
    assert_int_equal(n_odd, 2);
    assert_null(strstr(svg, "nan"));
    free(svg);

    /* If all values are NaN, there is still a figure. */
    for (int i = 0; i < 25; i++)
        view->maps[0].attention[i] = NAN;
    for (int i = 0; i < 5; i++)
        view->maps[0].entropy[i] = NAN;
    assert_ok(hl_draw_tokens(view, path, NULL));
    unmake(view);
}

static void test_errors(void **state)
{
    static const int64_t spans[][2] = { { 3, 3 }, { 4, 2 }, { -1, 3 }, { 0, 9 } };
    hl_token_view       *view       = make(8, 1, true);
    char                *text       = NULL;

    for (int i = 0; i < 4; i++) {
        hl_token_figure options = { .zoom_begin = spans[i][0], .zoom_end = spans[i][1] };
        assert_fails(HL_BAD_ARGUMENT, "wanted tokens A:B with 0 <= A < B <= 8",
                     hl_draw_tokens(view, in_folder(*state, "x.svg"), &options));
        assert_fails(HL_BAD_ARGUMENT, "wanted tokens A:B",
                     hl_print_tokens(&text, view, &options, NULL));
        assert_null(text);
    }
    assert_fails(HL_BAD_ARGUMENT, "must end in .svg",
                 hl_draw_tokens(view, in_folder(*state, "x.gif"), NULL));
    assert_fails(HL_BAD_ARGUMENT, "--unit: pictures of a prompt are in nats",
                 hl_draw_tokens(view, in_folder(*state, "x.svg"),
                                &(hl_token_figure){ .draw = { .unit = HL_UNIT_BITS } }));
    unmake(view);
}

static void test_time(void **state)
{
    hl_token_view *view   = make(2048, 5, true);
    clock_t        before = clock();

    assert_ok(hl_draw_tokens(view, in_folder(*state, "long.png"),
                             &(hl_token_figure){ .zoom_begin = 2000, .zoom_end = 2040 }));
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    print_message("# 2048 tokens, 5 maps: PNG in %.2f s\n", seconds);
    assert_true(SANITIZED || seconds < 3.0);
    unmake(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bins),        cmocka_unit_test(test_colors),
        cmocka_unit_test(test_plain_cells), cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_labels),      cmocka_unit_test(test_captions),
        cmocka_unit_test(test_cuts),        cmocka_unit_test(test_notes),
        cmocka_unit_test(test_png),         cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_seams),       cmocka_unit_test(test_edges),
        cmocka_unit_test(test_nan),         cmocka_unit_test(test_errors),
        cmocka_unit_test(test_time),        cmocka_unit_test(test_scripts),
    };

    return cmocka_run_group_tests_name("render_tokens", tests, open_folder, close_folder);
}
