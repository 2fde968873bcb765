/* test_print_tokens.c - views of prompts in a terminal: columns, shades, notes. */
#include "token_view_support.h"

#include "render/print.h"

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
    hl_text output = { 0 };
    hl_terminal_put(&output, "abcdef", 4, HL_ALIGN_LEFT);
    hl_terminal_put(&output, "ab", 4, HL_ALIGN_RIGHT);
    hl_terminal_put(&output, "\u4f60\u597d\u5417", 4, HL_ALIGN_LEFT); /* two and a half characters
                                                                       * fit */
    hl_text_add(&output, "", 1);
    assert_string_equal(output.bytes, "abc\u2026  ab\u4f60\u2026 ");
    hl_text_free(&output);
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
                              "Numbers: % of the row's attention, rounded down.\n"
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

/* Compares both rows of a map of two tokens, byte by byte. */
static void test_print_colors(void **state)
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
    hl_color       c    = hl_map_color(HL_MAP_BLUES_DARK, sqrt(0.25));

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

/* Signs before figures, and the notes below, also for cells without attention. */
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
    /* A cell of one column shows only the sign. */
    unmake(view);
    view = make(50, 1, true);
    assert_ok(hl_print_tokens(&text, view, &figure, &(hl_print_options){ .width = 80 }));
    assert_non_null(strstr(text, "   2 \u00b7sat         \u00b911 "));
    hl_free(text);
    figure.notes = &(hl_note){ "far", 50, 0 };
    assert_fails(HL_BAD_ARGUMENT, "note 'far' is at row 50, column 0; tokens are 0 to 49",
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
    for (int64_t n_tokens = 20; n_tokens <= 300; n_tokens += 140) { /* cells of two columns, of one,
                                                                     * and bins of one */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),      cmocka_unit_test(test_print_plain),
        cmocka_unit_test(test_print_colors), cmocka_unit_test(test_print_widths),
        cmocka_unit_test(test_print_notes),  cmocka_unit_test(test_print_insets),
    };

    return cmocka_run_group_tests_name("print_tokens", tests, open_folder, close_folder);
}
