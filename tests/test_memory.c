/* test_memory.c - alignment, overflow, growing, copies of text, and the memory limit. */
#include "support.h"

#include "base/memory.h"

static void blocks_are_aligned_and_writable(void **state)
{
    (void)state;
    for (size_t n_bytes = 0; n_bytes < 300; n_bytes += 7) {
        char *block = NULL;
        assert_ok(HL_ALLOC(&block, n_bytes));
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % HL_ALIGNMENT, 0);
        memset(block, 1, n_bytes);
        hl_free(block);
    }
}

static void empty_blocks_are_unique(void **state)
{
    (void)state;
    int *a = NULL, *b = NULL;
    assert_ok(HL_ALLOC(&a, 0));
    assert_ok(HL_ALLOC_ZEROED(&b, 0));
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    hl_free(a);
    hl_free(b);
    hl_free(NULL);
}

static void zeroed_blocks_are_zero(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) { /* the second one reuses dirty memory */
        uint8_t *block = NULL;
        assert_ok(HL_ALLOC_ZEROED(&block, 4096));
        for (int i = 0; i < 4096; i++)
            assert_int_equal(block[i], 0);
        memset(block, 0xff, 4096);
        hl_free(block);
    }
}

static void overflow_and_exhaustion_are_reported(void **state)
{
    (void)state;
    void *block = &block;
    assert_fails(HL_NO_MEMORY, "4 bytes are more than", hl_alloc(&block, SIZE_MAX / 2, 4));
    assert_null(block);
    block = &block;
    assert_fails(HL_NO_MEMORY, "out of memory", hl_alloc(&block, SIZE_MAX / 4, 2));
    assert_null(block);
    block = &block;
    assert_fails(HL_NO_MEMORY, "", hl_alloc_zeroed(&block, SIZE_MAX / 2, 4));
    assert_null(block);
}

static void realloc_keeps_contents_or_the_block(void **state)
{
    (void)state;
    int *numbers = NULL;
    assert_ok(HL_ALLOC(&numbers, 100));
    for (int i = 0; i < 100; i++)
        numbers[i] = i;

    void *block = numbers;
    assert_ok(hl_realloc(&block, 100, 1000, sizeof(int)));
    assert_int_equal((uintptr_t)block % HL_ALIGNMENT, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(((int *)block)[i], i);

    void *before = block;
    assert_fails(HL_NO_MEMORY, "", hl_realloc(&block, 1000, SIZE_MAX / 2, sizeof(int)));
    assert_ptr_equal(block, before);
    assert_int_equal(((int *)block)[99], 99);

    assert_ok(hl_realloc(&block, 1000, 3, sizeof(int)));
    assert_int_equal(((int *)block)[2], 2);
    hl_free(block);

    block = NULL;
    assert_ok(hl_realloc(&block, 0, 5, sizeof(int)));
    assert_non_null(block);
    hl_free(block);
}

static void text_is_copied(void **state)
{
    (void)state;
    char *copy = NULL;
    assert_ok(hl_strdup(&copy, "head"));
    assert_string_equal(copy, "head");
    hl_free(copy);
    assert_ok(hl_strndup(&copy, "headlight", 4));
    assert_string_equal(copy, "head");
    hl_free(copy);
    assert_ok(hl_strndup(&copy, NULL, 0));
    assert_string_equal(copy, "");
    hl_free(copy);
    assert_fails(HL_NO_MEMORY, "text", hl_strndup(&copy, "x", SIZE_MAX));
    assert_null(copy);
}

static void sizes_overflow_honestly(void **state)
{
    (void)state;
    size_t out = 7;
    assert_true(hl_size_multiply(&out, 6, 7));
    assert_int_equal(out, 42);
    assert_true(hl_size_multiply(&out, SIZE_MAX, 0));
    assert_int_equal(out, 0);
    assert_false(hl_size_multiply(&out, SIZE_MAX / 2 + 1, 2));
    assert_int_equal(out, 0);
    assert_true(hl_size_add(&out, SIZE_MAX - 1, 1));
    assert_int_equal(out, SIZE_MAX);
    assert_false(hl_size_add(&out, SIZE_MAX, 1));
    assert_int_equal(out, SIZE_MAX);
}

static void what_is_held_is_counted(void **state)
{
    (void)state;
    size_t before = hl_memory_held();
    void  *a = NULL, *b = NULL;

    assert_ok(hl_alloc(&a, 1000, 100));
    assert_in_range(hl_memory_held() - before, 100000, 101000);
    assert_ok(hl_realloc(&a, 1000, 2000, 100));
    assert_in_range(hl_memory_held() - before, 200000, 201000);
    b = hl_memory_allocate(50000);
    assert_in_range(hl_memory_held() - before, 250000, 252000);
    assert_fails(HL_NO_MEMORY, "", hl_realloc(&a, 2000, SIZE_MAX / 200, 100));
    assert_in_range(hl_memory_held() - before, 250000, 252000);
    hl_free(a);
    hl_free(b);
    assert_int_equal(hl_memory_held(), before);
    assert_ok(hl_memory_reserve(5000)); /* memory of another library */
    assert_int_equal(hl_memory_held(), before + 5000);
    hl_memory_release(5000);
}

static void nothing_is_taken_beyond_the_bound(void **state)
{
    (void)state;
    size_t before = hl_memory_held();
    void  *block = NULL, *more = &more;
    char  *text = NULL;
    char   numbers[128];

    hl_memory_limit(before + 100000);
    assert_ok(hl_alloc(&block, 60000, 1));
    snprintf(numbers, sizeof numbers,
             "50000 more bytes of memory are needed beside the %zu in use, but the limit is %zu",
             hl_memory_held(), before + 100000);
    assert_fails(HL_NO_MEMORY, numbers, hl_alloc(&more, 50000, 1));
    assert_null(more);
    assert_fails(HL_NO_MEMORY, "70000 more bytes", hl_realloc(&block, 60000, 70000, 1));
    assert_fails(HL_NO_MEMORY, "needed beside", hl_memory_reserve(SIZE_MAX));
    assert_fails(HL_NO_MEMORY, "needed beside", hl_strndup(&text, block, 50000));
    assert_null(hl_memory_allocate(50000));
    hl_free(block);
    assert_ok(hl_alloc(&block, 60000, 1)); /* there is room again after the release */
    hl_free(block);
    hl_memory_limit(0);
    assert_ok(hl_alloc(&block, 200000, 1));
    hl_free(block);
    assert_int_equal(hl_memory_held(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_writable),
        cmocka_unit_test(empty_blocks_are_unique),
        cmocka_unit_test(zeroed_blocks_are_zero),
        cmocka_unit_test(overflow_and_exhaustion_are_reported),
        cmocka_unit_test(realloc_keeps_contents_or_the_block),
        cmocka_unit_test(text_is_copied),
        cmocka_unit_test(sizes_overflow_honestly),
        cmocka_unit_test(what_is_held_is_counted),
        cmocka_unit_test(nothing_is_taken_beyond_the_bound),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
