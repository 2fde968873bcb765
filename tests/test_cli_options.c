/* test_cli_options.c - suggestions for misspelled words. */
#include "support.h"

#include "options.h"

/* Returns the word that is suggested for the typed one; NULL: none. */
static const char *nearest_of(const char *typed, const char *const *words)
{
    hl_nearest nearest = { .wanted = typed };

    for (; *words != NULL; words++)
        hl_nearest_offer(&nearest, *words);
    return nearest.word;
}
#define NEAREST(typed, ...) nearest_of(typed, (const char *const[]){ __VA_ARGS__, NULL })

/* One letter is inserted, removed, replaced, or swapped with its neighbor. */
static void a_word_of_two_letters_may_have_one_mistake(void **state)
{
    (void)state;
    assert_string_equal(NEAREST("ab", "abc"), "abc");
    assert_string_equal(NEAREST("ab", "b"), "b");
    assert_string_equal(NEAREST("ab", "ax"), "ax");
    assert_string_equal(NEAREST("ab", "ba"), "ba");
    assert_null(NEAREST("ab", "cd", "a123", "xay"));
}

static void a_third_of_the_letters_may_be_wrong(void **state)
{
    (void)state;
    assert_string_equal(NEAREST("measrue", "merge", "measure"), "measure");
    assert_string_equal(NEAREST("verfiy", "version", "verify"), "verify");
    assert_string_equal(NEAREST("xyzure", "measure", "xyzzy"),
                        "xyzzy"); /* 3 letters differ; 4 are too many */
    assert_null(NEAREST("xyzure", "measure"));
}

static void the_nearest_is_offered_and_of_equals_the_first(void **state)
{
    (void)state;
    assert_string_equal(NEAREST("show", "shown", "slow", "shew"), "shown");
    assert_string_equal(NEAREST("rnak", "bank", "rank"), "rank");
    assert_string_equal(NEAREST("gen", "get", "generate"), "get");        /* both differ in one
                                                                           * letter */
    assert_string_equal(NEAREST("gene", "tree", "generate"), "generate"); /* a beginning of a word
                                                                           * is near to it */
}

static void long_words_are_far(void **state)
{
    (void)state;
    assert_null(NEAREST("an-option-of-more-than-thirty-two-letters", "json"));
    assert_null(NEAREST("json", "an-option-of-more-than-thirty-two-letters"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_of_two_letters_may_have_one_mistake),
        cmocka_unit_test(a_third_of_the_letters_may_be_wrong),
        cmocka_unit_test(the_nearest_is_offered_and_of_equals_the_first),
        cmocka_unit_test(long_words_are_far),
    };
    return cmocka_run_group_tests_name("cli_nearest", tests, NULL, NULL);
}
