/* test_fault.c - calls fail when a fault is armed, and only then. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/memory.h"

static void only_the_nth_allocation_fails(void **state)
{
    bool fired = true;
    (void)state;

    hl_fault_arm(HL_FAULT_MEMORY, 3, false);
    for (int i = 1; i <= 5; i++) {
        void *block = NULL;
        assert_int_equal(hl_alloc(&block, 1, 8), i == 3 ? HL_NO_MEMORY : HL_OK);
        assert_true((block == NULL) == (i == 3));
        hl_free(block);
    }
    assert_int_equal(hl_fault_disarm(&fired), 5);
    assert_true(fired);

    hl_fault_arm(HL_FAULT_CALL, 1, false); /* for other kinds of faults, allocations do not count */
    void *block = NULL;
    assert_ok(hl_alloc(&block, 1, 8));
    hl_free(block);
    assert_int_equal(hl_fault_disarm(&fired), 0);
    assert_false(fired);
}

static void all_after_it_fail_too(void **state)
{
    char *copy = NULL;
    (void)state;

    hl_fault_arm(HL_FAULT_MEMORY, 2, true);
    assert_ok(hl_strdup(&copy, "a"));
    hl_free(copy);
    for (int i = 0; i < 3; i++)
        assert_fails(HL_NO_MEMORY, "out of memory: 2 bytes", hl_strdup(&copy, "a"));
    hl_fault_disarm(NULL);
    assert_ok(hl_strdup(&copy, "a"));
    hl_free(copy);
}

static void reads_and_writes_are_cut_or_interrupted(void **state)
{
    const char *folder = new_folder();
    char        path[128], bytes[4] = "";
    (void)state;

    snprintf(path, sizeof path, "%s/x", folder);
    int file = hl_sys_open(path, O_RDWR | O_CREAT, 0666);
    assert_true(file >= 0);
    hl_fault_arm(HL_FAULT_SHORT, 1, false);
    assert_int_equal(hl_sys_write(file, "abc", 3), 1);
    assert_int_equal(hl_sys_write(file, "bc", 2), 2);
    hl_fault_arm(HL_FAULT_INTERRUPTED, 1, false);
    assert_int_equal(hl_sys_pread(file, bytes, 3, 0), -1);
    assert_int_equal(errno, EINTR);
    assert_int_equal(hl_sys_pread(file, bytes, 3, 0), 3);
    assert_string_equal(bytes, "abc");
    hl_fault_arm(HL_FAULT_CALL, 1, false);
    assert_int_equal(hl_sys_write(file, "d", 1), -1);
    assert_int_equal(errno, ENOSPC);
    hl_fault_disarm(NULL);
    close(file);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_nth_allocation_fails),
        cmocka_unit_test(all_after_it_fail_too),
        cmocka_unit_test(reads_and_writes_are_cut_or_interrupted),
    };
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
