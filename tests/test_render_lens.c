/* test_render_lens.c - the lens, drawn and printed from known numbers. */
#include "render_support.h"

#include <math.h>

#include "render/print.h"

static const char *const words[] = {
    "the",          "\u00b7incomprehensibilities",
    "\u4f60\u597d", "\u0645\u0631\u062d\u0628\u0627",
    "\u23ce",       "<|endoftext|>",
    "\U0001f642",   "g\u0308",
};

enum { N_WORDS = sizeof words / sizeof *words, N_VOCAB = 4096 };

/* Returns entropies from 0 to ln 4096, which is 8.3. */
static float entropy_of(int64_t place, int64_t n_places)
{
    return (float)(log(N_VOCAB) * (double)place / (double)n_places);
}

static hl_lens_view *make(int64_t n_layers, int64_t n_tokens)
{
    hl_lens_view *view    = calloc(1, sizeof *view);
    int64_t       n_cells = (n_layers + 1) * n_tokens;

    *view         = (hl_lens_view){ .family   = "made",
                                    .n_layers = n_layers,
                                    .d_vocab  = N_VOCAB,
                                    .n_prompt = n_tokens + 10,
                                    .first    = 3,
                                    .n_tokens = n_tokens };
    view->tokens  = calloc((size_t)n_tokens, sizeof *view->tokens);
    view->guesses = calloc((size_t)n_cells, sizeof *view->guesses);
    view->entropy = calloc((size_t)n_cells, sizeof *view->entropy);
    for (int64_t i = 0; i < n_tokens; i++)
        view->tokens[i] = (hl_view_token){ i, strdup(words[i % N_WORDS]), i % N_WORDS == 5 };
    for (int64_t i = 0; i < n_cells; i++) {
        view->guesses[i] = (hl_view_token){ i, strdup(words[(i + 1) % N_WORDS]), i % 7 == 3 };
        view->entropy[i] = entropy_of(i, n_cells);
    }
    return view;
}

static void unmake(hl_lens_view *view)
{
    for (int64_t i = 0; i < view->n_tokens; i++)
        free(view->tokens[i].text);
    for (int64_t i = 0; i < (view->n_layers + 1) * view->n_tokens; i++)
        free(view->guesses[i].text);
    free(view->tokens);
    free(view->guesses);
    free(view->entropy);
    free(view);
}

/* -------------------------------------------------------------------------- pictures */

/* Does the figure say this?  A sentence may be cut into lines, each of them a <text>. */
static bool says(const char *svg, const char *sentence)
{
    char  *plain  = malloc(strlen(svg) + 1);
    size_t length = 0;
    bool   in_tag = false;

    assert_non_null(plain);
    for (const char *s = svg; *s != '\0'; s++) {
        in_tag    = *s == '<' || (in_tag && s[-1] != '>');
        char next = in_tag || *s == '\n' ? ' ' : *s;
        if (next != ' ' || (length > 0 && plain[length - 1] != ' '))
            plain[length++] = next;
    }
    plain[length] = '\0';
    bool found    = strstr(plain, sentence) != NULL;
    free(plain);
    return found;
}

/* Every cell has the color of its entropy, on an axis from 0 to 10, and its text. */
static void test_colors(void **state)
{
    hl_lens_view *view    = make(2, 3);
    const char   *path    = in_folder(*state, "lens.svg");
    size_t        n_bytes = 0;

    assert_ok(hl_draw_lens(view, path, NULL));
    char *svg = read_whole(path, &n_bytes);
    for (int64_t i = 0; i < 9; i++) {
        hl_color    color  = hl_map_color(HL_MAP_DIFFERENCE, (double)view->entropy[i] / 10.0);
        const char *before = NULL;
        char        title[160], wanted[32];
        /* Rows are numbered like layers; the lowest is that of the embeddings. */
        char after[16] = "embedding";
        if (i / 3 > 0)
            snprintf(after, sizeof after, "layer %d", (int)(i / 3) - 1);
        snprintf(title, sizeof title, "<title>%d %.27s, %s: ", (int)(3 + i % 3), words[i % 3],
                 after);
        const char *at = strstr(svg, title);
        if (at == NULL)
            fail_msg("no '%s'", title);
        for (const char *s = svg; (s = strstr(s, "stroke=\"#")) != NULL && s < at; s++)
            before = s;
        snprintf(wanted, sizeof wanted, "stroke=\"#%02x%02x%02x\"", color.red, color.green,
                 color.blue);
        assert_memory_equal(before, wanted, strlen(wanted));
    }
    assert_true(says(svg, "Tokens 3 to 5 of the prompt."));
    assert_true(says(svg, "Framed: the token that follows in the text."));
    assert_true(says(svg, "Logit lens: final norm and output head applied"));
    assert_non_null(strstr(svg, ">10</text>"));
    free(svg);
    unmake(view);
}

static hl_canvas *drawn(const hl_lens_view *view, double width)
{
    hl_canvas *canvas = NULL;

    assert_ok(hl_canvas_open(&canvas, HL_FORMAT_SVG, 0.0));
    assert_ok(hl_lens_figure_draw(canvas, view, &(hl_draw_options){ .width = width }));
    return canvas;
}

static void test_layouts(void **state)
{
    static const int64_t shapes[][2] = { { 1, 1 },   { 1, 12 }, { 8, 9 }, { 8, 10 },
                                         { 12, 60 }, { 80, 9 }, { 36, 7 } };
    static const double  widths[]    = { 240.0, 480.0, 1000.0 };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int w = 0; w < 3; w++) {
            hl_lens_view *view = make(shapes[i][0], shapes[i][1]);
            char          name[64];
            snprintf(name, sizeof name, "%d layers, %d tokens, width %g", (int)shapes[i][0],
                     (int)shapes[i][1], widths[w]);
            hl_canvas *canvas = drawn(view, widths[w]);
            check_texts(canvas, name);
            hl_canvas_close(canvas);
            unmake(view);
        }
    }
}

/* Layers are drawn upward from the embeddings, and every guess once. */
static void test_order(void **state)
{
    hl_lens_view *view   = make(3, 2);
    hl_canvas    *canvas = drawn(view, 480.0);

    (void)state;
    static const char *const labels[] = { "emb", "0", "1", "2" };
    for (int i = 1; i < 4; i++)
        assert_true(box_of(canvas, labels[i]).y < box_of(canvas, labels[i - 1]).y);
    for (int64_t i = 0; i < (int64_t)canvas->n_texts; i++)
        assert_string_not_equal(canvas->texts[i].text, "3");
    /* Guess 0 is words[1]; it is cut, since it is long. */
    int n_cut = 0;
    for (int64_t i = 0; i < (int64_t)canvas->n_texts; i++)
        n_cut += strncmp(canvas->texts[i].text, "\u00b7inc", 5) == 0 &&
                 strstr(canvas->texts[i].text, "\u2026") != NULL;
    assert_int_equal(n_cut, 2); /* once as guess, once as token */
    hl_canvas_close(canvas);
    unmake(view);
}

static void test_odd_numbers(void **state)
{
    hl_lens_view *view    = make(2, 3);
    const char   *path    = in_folder(*state, "nan.svg");
    size_t        n_bytes = 0;

    view->entropy[4] = NAN;
    assert_ok(hl_draw_lens(view, path, NULL));
    char *svg = read_whole(path, &n_bytes);
    assert_non_null(strstr(svg, "<title>not a number</title>"));
    assert_null(strstr(svg, "nan"));
    free(svg);
    unmake(view);

    view = make(80, 200);
    assert_fails(HL_LIMIT, "200 tokens do not fit on a page 480 points wide, which has room for",
                 hl_draw_lens(view, in_folder(*state, "x.svg"), NULL));
    assert_fails(HL_BAD_ARGUMENT, "--scale: pictures of a prompt have no classes",
                 hl_draw_lens(view, in_folder(*state, "x.svg"),
                              &(hl_draw_options){ .scale = HL_SCALE_CLASSES }));
    assert_null(fopen(in_folder(*state, "x.svg"), "rb"));
    unmake(view);
}

static void test_png(void **state)
{
    hl_lens_view *view = make(1, 2);
    const char   *path = in_folder(*state, "lens.png");

    assert_ok(hl_draw_lens(view, path, &(hl_draw_options){ .dpi = 72.0, .theme = HL_THEME_DARK }));
    /* The text covers some of the cell's 57 x 11 pixels; the bar has the color once. */
    int64_t n_same =
        count_pixels(path, hl_map_color(HL_MAP_DIFFERENCE, (double)view->entropy[2] / 10.0));
    assert_in_range(n_same, 400, 57 * 12 + 40);
    unmake(view);
}

/* -------------------------------------------------------------------------- terminal */

static void test_print_plain(void **state)
{
    hl_lens_view *view = make(1, 3);
    char         *text = NULL;

    (void)state;
    view->entropy[5] = NAN;
    assert_ok(hl_print_lens(&text, view, &(hl_print_options){ .width = 60 }));
    assert_string_equal(
        text,
        "made, 1 layers, tokens 3 to 5 of 13\n"
        "\n"
        "      the             \u00b7incomprehensi\u2026 \u4f60\u597d           \n"
        "   0 >\u23ce           4.2 <|endofte\u2026  5.5 \U0001f642            -\n"
        " emb  \u00b7incompre\u2026  0.0 \u4f60\u597d        1.4 \u0645\u0631\u062d\u0628\u0627    "
        "   2.8\n"
        "\n"
        "Top line: the input tokens.  Below: the most likely next token after each layer, from\n"
        "the embedding (emb) upwards; > marks predictions that match the text.\n"
        "Numbers: entropy over the vocabulary, nats.\n");
    hl_free(text);
    unmake(view);
}

static void test_print_colors(void **state)
{
    hl_lens_view *view  = make(1, 2);
    hl_color      color = hl_map_color(HL_MAP_DIFFERENCE, 0.0);
    char         *text  = NULL, wanted[128];

    (void)state;
    assert_ok(hl_print_lens(&text, view, &(hl_print_options){ .depth = HL_DEPTH_TRUE }));
    snprintf(wanted, sizeof wanted,
             " emb  \033[38;5;231m\033[48;2;%d;%d;%dm\u00b7incompre\u2026\033[0m ", color.red,
             color.green, color.blue);
    assert_non_null(strstr(text, wanted));
    hl_free(text);
    assert_ok(hl_print_lens(&text, view, &(hl_print_options){ .depth = HL_DEPTH_256 }));
    assert_non_null(strstr(text, " emb  \033[38;5;231m\033[48;5;25m\u00b7incompre\u2026\033[0m "));
    /* Halfway: the middle of nine colors. */
    assert_non_null(strstr(text, "\033[38;5;16m\033[48;5;255m"));
    hl_free(text);
    unmake(view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colors),       cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_order),        cmocka_unit_test(test_odd_numbers),
        cmocka_unit_test(test_png),          cmocka_unit_test(test_print_plain),
        cmocka_unit_test(test_print_colors),
    };

    return cmocka_run_group_tests_name("render_lens", tests, open_folder, close_folder);
}
