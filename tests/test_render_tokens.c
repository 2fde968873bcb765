/* test_render_tokens.c - pictures of prompts whose numbers are known: shades, bins, labels
 * that neither leave the page nor touch, notes, and clear errors. */
#include "render_support.h"

#include <math.h>
#include <time.h>

#include "render/note.h"
#include "render/terminal.h"
#include "render/token_cells.h"
#include "render/token_figure.h"
#include "render/token_panel.h"

/* Of many lengths and scripts; some are none. */
static const char *const words[] = {
    "The",
    "\u00b7cat",
    "\u00b7sat",
    "\u23ce\u23ce",
    "<|im_start|>",
    "\u00b7incomprehensibilities",
    "\u4f60\u597d",
    "\u0645\u0631\u062d\u0628\u0627",
    "\U0001f642",
    "\u21e5",
    "\\xe4",
    "g\u0308\u00c5\u0302",
    ",",
    "\u00b7\u00b7\u00b7\u00b7\u00b7\u00b7",
    "\u3053\u3093\u306b\u3061\u306f\u3001\u4e16\u754c",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
};

enum { N_WORDS = sizeof words / sizeof *words };

/* Row i puts half of its mass on the first token and the rest evenly on all it sees. */
static float attention_of(int64_t row, int64_t key, int64_t n_seen)
{
    (void)row;
    return 0.5f / (float)n_seen + (key == 0 ? 0.5f : 0.0f);
}

static hl_token_view *make(int64_t n_tokens, int64_t n_maps, bool is_causal)
{
    hl_token_view *view = calloc(1, sizeof *view);

    *view =
        (hl_token_view){ .family = "made", .n_layers = 3, .n_heads = 4, .is_causal = is_causal };
    view->n_tokens = n_tokens;
    view->n_maps   = n_maps;
    view->tokens   = calloc((size_t)n_tokens, sizeof *view->tokens);
    view->maps     = calloc((size_t)n_maps, sizeof *view->maps);
    for (int64_t i = 0; i < n_tokens; i++)
        view->tokens[i] = (hl_view_token){ i, strdup(words[i % N_WORDS]), i % N_WORDS == 4 };
    for (int64_t m = 0; m < n_maps; m++) {
        hl_token_map *map = &view->maps[m];
        snprintf(map->name, sizeof map->name, "L%dH%d", (int)(m / 4), (int)(m % 4));
        map->n_heads   = 1;
        map->attention = calloc((size_t)(n_tokens * n_tokens), sizeof *map->attention);
        map->entropy   = calloc((size_t)n_tokens, sizeof *map->entropy);
        for (int64_t row = 0; row < n_tokens; row++) {
            int64_t n_seen    = is_causal ? row + 1 : n_tokens;
            map->entropy[row] = 4.0f * (float)row / (float)n_tokens;
            for (int64_t key = 0; key < n_seen; key++)
                map->attention[row * n_tokens + key] = attention_of(row, key, n_seen);
        }
    }
    return view;
}

static void unmake(hl_token_view *view)
{
    for (int64_t i = 0; i < view->n_tokens; i++)
        free(view->tokens[i].text);
    for (int64_t i = 0; i < view->n_maps; i++) {
        free(view->maps[i].attention);
        free(view->maps[i].entropy);
    }
    free(view->tokens);
    free(view->maps);
    free(view);
}

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

/* --------------------------------------------------------------------------- colours */

/* The stroke that a title's cell has: the last colour named before it. */
static void assert_colour_before(const char *svg, const char *title, hl_colour colour)
{
    const char *at = strstr(svg, title), *before = NULL;
    char        wanted[32];

    if (at == NULL)
        fail_msg("no title '%s'", title);
    for (const char *s = svg; (s = strstr(s, "stroke=\"#")) != NULL && s < at; s++)
        before = s;
    assert_non_null(before);
    snprintf(wanted, sizeof wanted, "stroke=\"#%02x%02x%02x\"", colour.red, colour.green,
             colour.blue);
    assert_memory_equal(before, wanted, strlen(wanted));
}

static void check_colours(const char *path, hl_attention_scale scale, hl_theme theme)
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
            assert_colour_before(svg, title, hl_map_colour(map, share));
        }
        snprintf(title, sizeof title, "<title>%d %s: %.3f nats</title>", (int)row,
                 row == 4 ? "&lt;|im_start|&gt;" : words[row], 4.0 * (double)row / 6.0);
        assert_colour_before(
            svg, title, hl_map_colour(HL_MAP_DIFFERENCE, (double)view->maps[0].entropy[row] / 4.0));
    }
    assert_null(strstr(svg, "0 The \u2192 1 ")); /* a token does not see the next */
    assert_non_null(strstr(svg, "Bold: special"));
    free(svg);
    unmake(view);
}

static void test_colours(void **state)
{
    check_colours(in_folder(*state, "root.svg"), HL_ATTENTION_ROOT, HL_THEME_LIGHT);
    check_colours(in_folder(*state, "linear.svg"), HL_ATTENTION_LINEAR, HL_THEME_DARK);
}

/* Runs of one colour are one stroke, but no cell is lost or painted twice. */
static void test_plain_cells(void **state)
{
    hl_colour       white = { 255, 255, 255 }, red = { 255, 0, 0 }, blue = { 0, 0, 255 };
    const hl_colour colours[] = { red, red, blue, red, red, red };
    const bool      drawn[]   = { true, true, true, true, false, true };
    hl_cell_grid    grid      = { .box      = { 0.0, 0.0, 30.0, 20.0 },
                                  .n_across = 3,
                                  .n_down   = 2,
                                  .colours  = colours,
                                  .drawn    = drawn };
    hl_canvas      *canvas    = NULL;
    size_t          n_bytes   = 0;

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

/* A row's label is level with its row, and every token has one where there is room. */
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
        for (int64_t k = 0; k < hl_canvas_n_texts(canvas); k++) {
            const char *text = hl_canvas_text_at(canvas, k);
            /* Long ones are cut. */
            if (strcmp(text, words[i]) == 0 || (i == 5 && strncmp(text, "\u00b7incomp", 8) == 0 &&
                                                strstr(text, "\u2026") != NULL)) {
                box = n_labels == 0 ? hl_canvas_text_box(canvas, k) : box;
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

/* Cuts are between characters. */
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
    strcpy(room, "abe\u0301cdef"); /* a letter and its accent stay together */
    hl_figure_shorten(&figure, room, sizeof room, most, &style);
    assert_string_equal(room, "ab\u2026");
    strcpy(room, "abc");
    hl_figure_shorten(&figure, room, sizeof room, 100.0, &style);
    assert_string_equal(room, "abc");
    hl_figure_shorten(&figure, room, sizeof room, 0.0, &style); /* something is left to see */
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
    assert_non_null(strstr(svg, "A cell is 3 \u00d7 3 tokens"));
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
    assert_fails(HL_BAD_ARGUMENT, "row 3, column 16, but tokens are 0 to 15",
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
    /* Row 1, key 1 is the only cell with a quarter: 26 points less the gaps. */
    int64_t n_same = count_pixels(path, hl_map_colour(HL_MAP_BLUES, sqrt(0.25)));
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

/* Pixels that are not white between two that are. */
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

/* Cells that touch leave no seam, wherever their edges fall. */
static void test_seams(void **state)
{
    const char     *path  = in_folder(*state, "seams.png");
    const hl_colour black = { 0, 0, 0 }, white = { 255, 255, 255 };
    hl_colour       colours[32 * 32];

    for (int i = 0; i < 32 * 32; i++)
        colours[i] = white;
    for (int i = 0; i < 100; i++) {
        hl_canvas   *canvas = NULL;
        double       side   = 80.0 + i / 10.0;
        hl_cell_grid grid   = { .box      = { 10.0 + i / 70.0, 10.0 + i / 30.0, side, side },
                                .n_across = 32,
                                .n_down   = 32,
                                .colours  = colours };
        assert_ok(hl_canvas_open(&canvas, HL_FORMAT_PNG, 72.0));
        hl_canvas_page(canvas, 120.0, 120.0, black);
        hl_canvas_cells(canvas, &grid);
        assert_ok(hl_canvas_write(canvas, path));
        hl_canvas_close(canvas);
        assert_int_equal(count_seams(path), 0);
    }
}

/* A page that ends within a pixel fills it. */
/* ----------------------------------------------------------------------------- fonts */

static void count_warning(void *count, hl_log_level level, const char *message)
{
    assert_int_equal(level, HL_LOG_WARNING);
    *(int *)count += strstr(message, "no font here has ") != NULL;
}

/* Has any font here this character? */
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

/* Tokens of every script are drawn, and not as boxes, in both formats that have glyphs. */
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
    /* A character that no font has, being none, is noticed. */
    free(view->tokens[0].text);
    view->tokens[0].text = strdup("\U000e1234");
    assert_ok(hl_draw_tokens(view, in_folder(*state, formats[0]), NULL));
    assert_int_equal(n_boxes, 1);
    hl_log_set(NULL, NULL, HL_LOG_WARNING);
    unmake(view);
}

static void test_edges(void **state)
{
    const char     *path   = in_folder(*state, "edges.png");
    const hl_colour paper  = { 200, 210, 220 };
    hl_canvas      *canvas = NULL;

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

/* What is not a number is crossed out and said to be so; the rest is drawn. */
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

    /* And if nothing is: still a figure. */
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
    assert_fails(HL_BAD_ARGUMENT, "ends in .svg",
                 hl_draw_tokens(view, in_folder(*state, "x.gif"), NULL));
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

/* -------------------------------------------------------------------------- terminal */

static void test_columns(void **state)
{
    static const struct {
        const char *text;
        int         width;
    } cases[] = { { "abc", 3 },         { "\u4f60\u597d", 4 }, { "e\u0301", 1 },
                  { "\U0001f642", 2 },  { "\xff", 1 },         { "", 0 },
                  { "\u0645\u0631", 2 } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hl_terminal_width_of(cases[i].text), cases[i].width);
    hl_output output = { 0 };
    hl_terminal_put(&output, "abcdef", 4, HL_ALIGN_LEFT);
    hl_terminal_put(&output, "ab", 4, HL_ALIGN_RIGHT);
    hl_terminal_put(&output, "\u4f60\u597d\u5417", 4, HL_ALIGN_LEFT); /* two and a half fit */
    hl_output_add(&output, "", 1);
    assert_string_equal(output.bytes, "abc\u2026  ab\u4f60\u2026 ");
    hl_output_free(&output);
}

static void test_print_plain(void **state)
{
    hl_token_view *view = make(5, 1, true);
    char          *text = NULL;

    (void)state;
    assert_ok(hl_print_tokens(&text, view, NULL, &(hl_print_options){ .width = 60 }));
    assert_string_equal(text, "made, 5 tokens; L0H0\n"
                              "\n"
                              "                    0  1  2  3  4\n"
                              "   0 The           99               0.00\n"
                              "   1 \u00b7cat          75 25            0.80\n"
                              "   2 \u00b7sat          66 16 16         1.60\n"
                              "   3 \u23ce\u23ce            62 12 12 12      2.40\n"
                              "   4*<|im_start|>  60 10 10 10 10   3.20\n"
                              "\n"
                              "Figures: hundredths of the row's attention, rounded down.\n"
                              "At the right: entropy of the row, nats\n"
                              "* special and template tokens.\n");
    hl_free(text);
    view->maps[0].attention[6] = NAN;
    view->maps[0].entropy[1]   = NAN;
    assert_ok(hl_print_tokens(&text, view, &(hl_token_figure){ .zoom_begin = 1, .zoom_end = 3 },
                              &(hl_print_options){ .width = 60 }));
    assert_non_null(strstr(text, "   1 \u00b7cat           -         -\n"));
    hl_free(text);
    unmake(view);
}

/* Both rows of a map of two tokens, to the byte. */
static void test_print_colours(void **state)
{
    static const char *const wanted[] = {
        [HL_DEPTH_256] =
            "\n   0 The          \033[38;5;231m\033[48;5;18m 99\033[0m    "
            "\033[38;5;231m\033[48;5;25m  0.00\033[0m\n"
            "   1 \u00b7cat         \033[38;5;231m\033[48;5;25m 75\033[0m"
            "\033[38;5;16m\033[48;5;75m 25\033[0m \033[38;5;231m\033[48;5;124m  2.00\033[0m\n",
        [HL_DEPTH_TRUE] = "\n   0 The          \033[38;5;231m\033[48;2;21;49;103m 99\033[0m    "
                          "\033[38;5;231m\033[48;2;4;93;167m  0.00\033[0m\n"
                          "   1 \u00b7cat         \033[38;5;231m\033[48;2;32;72;139m 75\033[0m"
                          "\033[38;5;16m\033[48;2;88;145;217m 25\033[0m "
                          "\033[38;5;231m\033[48;2;155;53;36m  2.00\033[0m\n",
    };
    hl_token_view *view = make(2, 1, true);
    char          *text = NULL, dark[64];
    hl_colour      c    = hl_map_colour(HL_MAP_BLUES_DARK, sqrt(0.25));

    (void)state;
    for (hl_depth depth = HL_DEPTH_256; depth <= HL_DEPTH_TRUE; depth++) {
        assert_ok(
            hl_print_tokens(&text, view, NULL, &(hl_print_options){ 60, depth, HL_THEME_LIGHT }));
        if (strstr(text, wanted[depth]) == NULL)
            fail_msg("'%s' has no '%s'", text, wanted[depth]);
        hl_free(text);
    }
    assert_ok(hl_print_tokens(&text, view, NULL,
                              &(hl_print_options){ 60, HL_DEPTH_TRUE, HL_THEME_DARK }));
    snprintf(dark, sizeof dark, "\033[48;2;%d;%d;%dm 25\033[0m", c.red, c.green, c.blue);
    assert_non_null(strstr(text, dark));
    hl_free(text);
    unmake(view);
}

/* Signs before figures, and the notes below; also where there is nothing to look at. */
static void test_print_notes(void **state)
{
    const hl_note   notes[] = { { "first", 2, 0 }, { "unseen", 1, 3 }, { "late", 4, 4 } };
    hl_token_figure figure  = { .notes = notes, .n_notes = 3 };
    hl_token_view  *view    = make(5, 1, true);
    char           *text    = NULL;

    (void)state;
    assert_ok(hl_print_tokens(&text, view, &figure, &(hl_print_options){ .width = 60 }));
    assert_non_null(strstr(text, "   1 \u00b7cat          75 25   \u00b2        0.80\n"));
    assert_non_null(strstr(text, "   2 \u00b7sat         \u00b966 16 16         1.60\n"));
    assert_non_null(strstr(text, " 10 10 10\u00b310   3.20\n"));
    assert_non_null(strstr(text, "\n\u00b9 first: 2 \u00b7sat looks at 0 The, 0.667\n"
                                 "\u00b2 unseen: 1 \u00b7cat looks at 3 \u23ce\u23ce, 0.000\n"
                                 "\u00b3 late: 4 <|im_start|> looks at 4 <|im_start|>, 0.100\n"));
    hl_free(text);
    /* A cell that is one column wide has the sign alone. */
    unmake(view);
    view = make(50, 1, true);
    assert_ok(hl_print_tokens(&text, view, &figure, &(hl_print_options){ .width = 80 }));
    assert_non_null(strstr(text, "   2 \u00b7sat         \u00b911 "));
    hl_free(text);
    figure.notes = &(hl_note){ "far", 50, 0 };
    assert_fails(HL_BAD_ARGUMENT, "note 'far': row 50, column 0, but tokens are 0 to 49",
                 hl_print_tokens(&text, view, &figure, NULL));
    unmake(view);
}

static void test_print_insets(void **state)
{
    hl_token_view *view = make(3, 4, true);
    char          *text = NULL;

    (void)state;
    assert_ok(hl_print_tokens(&text, view, NULL, &(hl_print_options){ .width = 60 }));
    assert_non_null(strstr(text, "\n\nInsets, in tenths:\n"
                                 "\n"
                                 "     L0H1  L0H2  L0H3\n"
                                 "   0 9     9     9  \n"
                                 "   1 72    72    72 \n"
                                 "   2 611   611   611\n"));
    hl_free(text);
    unmake(view);
    for (int64_t n_tokens = 20; n_tokens <= 300; n_tokens += 140) { /* two, one, one in bins */
        view = make(n_tokens, 3, true);
        assert_ok(hl_print_tokens(&text, view, NULL, &(hl_print_options){ .width = 60 }));
        const char *second = strstr(strstr(text, "Insets"), "L0H2");
        assert_true((second[-1] == ' ') && (strchr(second, '\n') != NULL));
        assert_true((strstr(text, "L0H1                  L0H2\n") != NULL) == (n_tokens == 20));
        for (char *line = strtok(strstr(text, "Insets"), "\n"); line; line = strtok(NULL, "\n"))
            assert_true(hl_terminal_width_of(line) <= 60);
        hl_free(text);
        unmake(view);
    }
}

/* No line of any view is wider than the page. */
static void test_print_widths(void **state)
{
    static const int64_t sizes[] = { 1, 17, 26, 27, 60, 300, 2048 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hl_token_view *view = make(sizes[i], 1, i % 2 == 0);
        for (int width = 40; width <= 120; width += 40) {
            char *text = NULL;
            assert_ok(hl_print_tokens(&text, view, NULL, &(hl_print_options){ .width = width }));
            int n_lines = 0;
            for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
                bool is_sentence = strstr(line, "attention") != NULL;
                if (hl_terminal_width_of(line) > width && !is_sentence)
                    fail_msg("%d tokens, width %d: '%s'", (int)sizes[i], width, line);
                n_lines++;
            }
            assert_in_range(n_lines, 4, width);
            hl_free(text);
        }
        unmake(view);
    }
}

static int set_up(void **state)
{
    *state = (void *)(uintptr_t)new_folder();
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bins),         cmocka_unit_test(test_colours),
        cmocka_unit_test(test_plain_cells),  cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_labels),       cmocka_unit_test(test_captions),
        cmocka_unit_test(test_cuts),         cmocka_unit_test(test_notes),
        cmocka_unit_test(test_png),          cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_seams),        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_nan),          cmocka_unit_test(test_errors),
        cmocka_unit_test(test_time),         cmocka_unit_test(test_columns),
        cmocka_unit_test(test_print_plain),  cmocka_unit_test(test_print_colours),
        cmocka_unit_test(test_print_widths), cmocka_unit_test(test_print_notes),
        cmocka_unit_test(test_print_insets), cmocka_unit_test(test_scripts),
    };

    return cmocka_run_group_tests_name("render_tokens", tests, set_up, tear_down);
}
