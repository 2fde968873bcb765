/* test_stop_words.c - words that end a text, wherever the text is cut into pieces. */
#include "support.h"

/* Feeds the text, cut after every byte whose bit is set; collects what is shown. */
static bool run(char *out, const char *const *words, size_t n_words, const char *text,
                unsigned cuts)
{
    hl_stop_words *stop   = NULL;
    size_t         length = strlen(text);
    size_t         from   = 0;
    size_t         used   = 0;
    bool           found  = false;
    const char    *shown;
    size_t         n_shown;

    assert_ok(hl_stop_words_new(&stop, words, n_words));
    for (size_t i = 0; i < length; i++) {
        if (i + 1 < length && (cuts >> i & 1) == 0)
            continue;
        assert_ok(hl_stop_words_push(&shown, &n_shown, &found, stop, text + from, i + 1 - from));
        memcpy(out + used, shown, n_shown);
        used += n_shown;
        from = i + 1;
    }
    assert_ok(hl_stop_words_finish(&shown, &n_shown, stop));
    memcpy(out + used, shown, n_shown);
    out[used + n_shown] = '\0';
    hl_stop_words_free(stop);
    return found;
}

static void cuts_do_not_matter(void **state)
{
    static const char *const words[] = { "aab", "b!", "éx" };
    static const struct {
        const char *text, *shown;
        bool        found;
    } cases[] = {
        { "aaab", "a", true },   { "xaabaab", "x", true },      { "aaxaa", "aaxaa", false },
        { "ab!aab", "a", true }, { "aab!", "", true },          { "oéyéxz", "oéy", true },
        { "b", "b", false },     { "aaaaaa", "aaaaaa", false },
    };
    char out[64];
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned cuts = 0; cuts < 1u << strlen(cases[i].text); cuts++) {
            assert_int_equal(run(out, words, 3, cases[i].text, cuts), cases[i].found);
            assert_string_equal(out, cases[i].shown);
        }
    }
}

static void only_beginnings_are_held_back(void **state)
{
    static const char *const words[] = { "\n\nUser:" };
    hl_stop_words           *stop    = NULL;
    const char              *shown;
    size_t                   n_shown;
    bool                     found;
    (void)state;

    assert_ok(hl_stop_words_new(&stop, words, 1));
    assert_ok(hl_stop_words_push(&shown, &n_shown, &found, stop, "Yes.\n\nUs", 8));
    assert_int_equal(n_shown, 4);
    assert_false(found);
    assert_ok(hl_stop_words_push(&shown, &n_shown, &found, stop, "ually", 5));
    assert_int_equal(n_shown, 9);
    assert_memory_equal(shown, "\n\nUsually", 9);
    assert_ok(hl_stop_words_push(&shown, &n_shown, &found, stop, "\n\nUser:x", 8));
    assert_int_equal(n_shown, 0);
    assert_true(found);
    assert_ok(hl_stop_words_push(&shown, &n_shown, &found, stop, "more", 4));
    assert_int_equal(n_shown, 0);
    assert_true(found);
    assert_ok(hl_stop_words_finish(&shown, &n_shown, stop));
    assert_int_equal(n_shown, 0);
    hl_stop_words_free(stop);
}

static void no_words_hold_nothing_back(void **state)
{
    char out[16];
    (void)state;
    assert_false(run(out, NULL, 0, "anything", 0x55));
    assert_string_equal(out, "anything");
}

static void an_empty_word_is_refused(void **state)
{
    static const char *const words[] = { "x", "" };
    hl_stop_words           *stop    = (hl_stop_words *)&stop;
    (void)state;
    assert_fails(HL_BAD_ARGUMENT, "stop word 1 is empty", hl_stop_words_new(&stop, words, 2));
    assert_null(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_do_not_matter),
        cmocka_unit_test(only_beginnings_are_held_back),
        cmocka_unit_test(no_words_hold_nothing_back),
        cmocka_unit_test(an_empty_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
