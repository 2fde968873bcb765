/* test_attention_memory.c - memory grows with the number of keys, not with its square: 32768 keys,
 * which would have 4 GiB of scores, take less than 64 MiB. */
#include "support.h"

#include "../bench/memory_probe.h"

static void long_rows_need_little_memory(void **state)
{
    (void)state;
    /* A sanitizer's own memory would be counted; the scalar back end would take minutes. */
    if (SANITIZED || strcmp(hl_backend_name(), "scalar") == 0)
        skip();
    long kib = hl_memory_probe(32768, 64);
    if (kib < 0)
        skip();
    print_message("# %ld KiB beyond inputs and outputs\n", kib);
    assert_true(kib < 64 * 1024);
}

/* Doubling the number of keys must not multiply the memory by four. */
static void memory_does_not_grow_with_the_square(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    long kib = hl_memory_probe(4096, 8);
    if (kib < 0)
        skip();
    assert_true(kib < 16 * 1024); /* the matrix would take 64 MiB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_rows_need_little_memory),
        cmocka_unit_test(memory_does_not_grow_with_the_square),
    };
    return cmocka_run_group_tests_name("attention_memory", tests, NULL, NULL);
}
