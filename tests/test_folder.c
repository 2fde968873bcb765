/* test_folder.c - folders that appear completely or not at all. */
#include "support.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

static void put(const hl_folder *folder, const char *name, const char *text)
{
    char *path = NULL;

    assert_ok(hl_folder_join(&path, folder, name));
    write_file(path, text, strlen(text));
    hl_free(path);
}

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

static void a_folder_appears_when_it_is_finished(void **state)
{
    const char *here   = new_folder();
    hl_folder  *folder = NULL;
    size_t      n_bytes;
    (void)state;

    assert_ok(hl_folder_create(&folder, in_folder(here, "x/")));
    put(folder, "one", "1");
    put(folder, "two", "22");
    assert_false(exists(in_folder(here, "x")));
    assert_ok(hl_folder_finish(&folder));
    assert_null(folder);
    assert_int_equal(count_files(here), 1);
    char *text = read_file(in_folder(here, "x/two"), &n_bytes);
    assert_string_equal(text, "22");
    free(text);
    remove_folder(in_folder(here, "x"));
    remove_folder(here);
}

static void an_abandoned_one_is_gone(void **state)
{
    const char *here   = new_folder();
    hl_folder  *folder = NULL;
    (void)state;

    assert_ok(hl_folder_create(&folder, in_folder(here, "x")));
    put(folder, "one", "1");
    hl_folder_abandon(folder);
    hl_folder_abandon(NULL);
    assert_int_equal(count_files(here), 0);
    remove_folder(here);
}

static void two_at_once_do_not_meet(void **state)
{
    const char *here  = new_folder();
    hl_folder  *first = NULL, *second = NULL;
    (void)state;

    assert_ok(hl_folder_create(&first, in_folder(here, "x")));
    assert_ok(hl_folder_create(&second, in_folder(here, "x")));
    put(first, "one", "1");
    put(second, "one", "2");
    assert_ok(hl_folder_finish(&first));
    /* The second folder is too late, and the first stays unchanged. */
    assert_fails(HL_IO, "renaming into place", hl_folder_finish(&second));
    hl_folder_abandon(second);
    assert_int_equal(count_files(here), 1);
    remove_folder(in_folder(here, "x"));
    remove_folder(here);
}

static void nothing_is_replaced(void **state)
{
    const char *here   = new_folder();
    hl_folder  *folder = NULL;
    (void)state;

    write_file(in_folder(here, "file"), "", 0);
    assert_int_equal(symlink("nowhere", in_folder(here, "link")), 0);
    assert_fails(HL_BAD_ARGUMENT, "exists already", hl_folder_create(&folder, here));
    assert_fails(HL_BAD_ARGUMENT, "exists already",
                 hl_folder_create(&folder, in_folder(here, "file")));
    assert_fails(HL_BAD_ARGUMENT, "exists already",
                 hl_folder_create(&folder, in_folder(here, "link")));
    assert_fails(HL_NOT_FOUND, "cannot create", hl_folder_create(&folder, in_folder(here, "no/x")));
    assert_fails(HL_BAD_ARGUMENT, "empty", hl_folder_create(&folder, ""));
    assert_null(folder);
    remove_folder(here);
}

static void files_are_copied(void **state)
{
    const char *here = new_folder();
    size_t      n_bytes;
    (void)state;

    write_file(in_folder(here, "a"), "text\0more", 9);
    assert_ok(hl_file_copy(in_folder(here, "b"), in_folder(here, "a")));
    char *copy = read_file(in_folder(here, "b"), &n_bytes);
    assert_int_equal(n_bytes, 9);
    assert_memory_equal(copy, "text\0more", 9);
    free(copy);
    assert_fails(HL_NOT_FOUND, "nothing",
                 hl_file_copy(in_folder(here, "c"), in_folder(here, "nothing")));
    assert_int_equal(count_files(here), 2);
    remove_folder(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_appears_when_it_is_finished),
        cmocka_unit_test(an_abandoned_one_is_gone),
        cmocka_unit_test(two_at_once_do_not_meet),
        cmocka_unit_test(nothing_is_replaced),
        cmocka_unit_test(files_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
