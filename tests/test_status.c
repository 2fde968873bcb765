/* test_status.c - messages: stored per thread, prefixed, cut, made safe to show. */
#include "support.h"

#include <pthread.h>

#include "base/status.h"

static void fail_stores_message_and_returns_status(void **state)
{
    (void)state;
    assert_int_equal(hl_fail(HL_LIMIT, "%s: %d seen, %d wanted", "x.gguf", 3, 4), HL_LIMIT);
    assert_string_equal(hl_error_message(), "x.gguf: 3 seen, 4 wanted");
}

static void prefix_goes_before_the_old_message(void **state)
{
    (void)state;
    hl_fail(HL_IO, "inner");
    assert_int_equal(hl_fail_within(HL_IO, "tensor '%s'", "w"), HL_IO);
    assert_string_equal(hl_error_message(), "tensor 'w': inner");
}

static void old_message_may_be_an_argument(void **state)
{
    (void)state;
    hl_fail(HL_IO, "first");
    hl_fail(HL_IO, "%s, then %s", hl_error_message(), "second");
    assert_string_equal(hl_error_message(), "first, then second");
}

static void long_message_is_cut_and_says_so(void **state)
{
    (void)state;
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    hl_fail(HL_IO, "%s", text);

    size_t length = strlen(hl_error_message());
    assert_int_equal(length, 1023);
    assert_string_equal(hl_error_message() + length - 4, "a...");
    hl_fail_within(HL_IO, "before");
    assert_int_equal(strncmp(hl_error_message(), "before: aaa", 11), 0);
}

static void control_characters_are_replaced(void **state)
{
    (void)state;
    hl_fail(HL_IO, "%s", "a\x1b[31m\n\x7f\xc3\xa9");
    assert_string_equal(hl_error_message(), "a\\x1b[31m\\x0a\\x7f\xc3\xa9");
    /* C1 and bidirectional controls too; a message of escapes only is cut between two of them. */
    hl_fail(HL_IO, "%s",
            "\xc2\x9b"
            "2J \u202e \u200f \u061c \xff");
    assert_string_equal(hl_error_message(), "\\x9b2J \\u202e \\u200f \\u061c \ufffd");
    char text[1000];
    memset(text, '\x1b', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    hl_fail(HL_IO, "%s", text);
    assert_int_equal(strlen(hl_error_message()), 1023);
    assert_null(strchr(hl_error_message(), '\x1b'));
}

static void *fail_elsewhere(void *seen)
{
    *(int *)seen = hl_error_message()[0]; /* a new thread has no message */
    hl_fail(HL_IO, "of the other thread");
    return NULL;
}

static void each_thread_has_its_own_message(void **state)
{
    (void)state;
    pthread_t thread;
    int       seen = -1;

    hl_fail(HL_IO, "of this thread");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(seen, '\0');
    assert_string_equal(hl_error_message(), "of this thread");
}

static void the_first_failure_is_kept(void **state)
{
    hl_kept_error kept = { 0 };
    (void)state;

    hl_fail(HL_IO, "something old");
    assert_int_equal(hl_fail_kept(&kept), HL_OK);
    hl_keep_error(&kept, HL_OK);
    assert_int_equal(kept.status, HL_OK);
    hl_keep_error(&kept, hl_fail(HL_LIMIT, "the first"));
    hl_keep_error(&kept, hl_fail(HL_IO, "the second"));
    hl_fail(HL_NOT_FOUND, "something new");
    assert_int_equal(hl_fail_kept(&kept), HL_LIMIT);
    assert_string_equal(hl_error_message(), "the first");
}

static void every_status_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = HL_OK; a <= HL_BUSY; a++) {
        assert_string_not_equal(hl_status_name((hl_status)a), "unknown status");
        for (int b = HL_OK; b < a; b++)
            assert_string_not_equal(hl_status_name((hl_status)a), hl_status_name((hl_status)b));
    }
    assert_string_equal(hl_status_name((hl_status)99), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_stores_message_and_returns_status),
        cmocka_unit_test(prefix_goes_before_the_old_message),
        cmocka_unit_test(old_message_may_be_an_argument),
        cmocka_unit_test(long_message_is_cut_and_says_so),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(each_thread_has_its_own_message),
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(every_status_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
