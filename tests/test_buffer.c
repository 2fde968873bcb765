/* test_buffer.c - growing memory: its contents, when it moves, and the errors that texts keep. */
#include "support.h"

#include "base/buffer.h"

static void items_are_kept_while_they_grow(void **state)
{
    (void)state;
    int64_t *items    = NULL;
    size_t   capacity = 0;

    for (int64_t i = 0; i < 1000; i++) {
        assert_int_equal(HL_GROW(&items, &capacity, (size_t)i, 1), HL_OK);
        assert_true(capacity > (size_t)i);
        items[i] = i;
    }
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i);
    assert_true(capacity <= 2048);
    hl_free(items);
}

static void scratch_is_as_large_as_asked_and_never_null(void **state)
{
    (void)state;
    double *scratch  = NULL;
    size_t  capacity = 0;

    assert_int_equal(HL_GROW(&scratch, &capacity, 0, 0), HL_OK);
    assert_non_null(scratch);
    assert_int_equal(HL_GROW(&scratch, &capacity, 0, 1000), HL_OK);
    assert_int_equal(capacity, 1000);
    assert_int_equal(HL_GROW(&scratch, &capacity, 0, 1001), HL_OK);
    assert_int_equal(capacity, 1001);
    assert_int_equal(HL_GROW(&scratch, &capacity, 1001, SIZE_MAX), HL_NO_MEMORY);
    assert_int_equal(capacity, 1001);
    hl_free(scratch);
}

static void arrays_without_a_capacity_grow_by_one(void **state)
{
    (void)state;
    int *items = NULL;

    for (int i = 0; i < 100; i++) {
        assert_int_equal(HL_GROW_ONE(&items, i), HL_OK);
        items[i] = i;
    }
    for (int i = 0; i < 100; i++)
        assert_int_equal(items[i], i);
    hl_free(items);
}

static void buffers_refuse_more_than_the_most(void **state)
{
    (void)state;
    hl_buffer buffer = { .most = 5 };

    assert_int_equal(hl_buffer_append_text(&buffer, "abc"), HL_OK);
    assert_int_equal(hl_buffer_append_text(&buffer, "def"), HL_LIMIT);
    assert_string_equal(hl_error_message(), "makes 6 bytes or more, at most 5");
    assert_int_equal(hl_buffer_append_text(&buffer, "de"), HL_OK);
    assert_true(hl_bytes_equal(hl_buffer_bytes(&buffer), "abcde"));
    hl_buffer_free(&buffer);
    assert_true(hl_bytes_equal(hl_buffer_bytes(&buffer), ""));
}

static void texts_are_formatted_at_any_length(void **state)
{
    (void)state;
    hl_text text  = { 0 };
    char   *whole = NULL;

    for (int i = 0; i < 300; i++)
        hl_text_addf(&text, "%*d;", i, i);
    assert_int_equal(text.n_bytes, strlen(text.bytes));
    hl_text_add(&text, "\0z", 2);
    size_t n_bytes = text.n_bytes;
    assert_int_equal(hl_text_finish(&whole, &text), HL_OK);
    assert_null(text.bytes);
    assert_memory_equal(whole + n_bytes - 6, "299;\0z", 6);
    hl_free(whole);
    assert_int_equal(hl_text_finish(&whole, &text), HL_OK);
    assert_string_equal(whole, "");
    hl_free(whole);
}

static void texts_keep_their_first_error(void **state)
{
    (void)state;
    hl_text text  = { 0 };
    char   *whole = NULL;

    hl_text_add(&text, "a", 1);
    text.status = HL_BAD_INPUT;
    hl_text_addf(&text, "%d", 1);
    hl_text_add(&text, "b", 1);
    assert_string_equal(text.bytes, "a");
    assert_int_equal(hl_text_finish(&whole, &text), HL_BAD_INPUT);
    assert_null(whole);
    assert_null(text.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_kept_while_they_grow),
        cmocka_unit_test(scratch_is_as_large_as_asked_and_never_null),
        cmocka_unit_test(arrays_without_a_capacity_grow_by_one),
        cmocka_unit_test(buffers_refuse_more_than_the_most),
        cmocka_unit_test(texts_are_formatted_at_any_length),
        cmocka_unit_test(texts_keep_their_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
