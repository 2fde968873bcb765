/* test_path.c - names of files and folders, and whether they exist. */
#include "support.h"

#include "base/file.h"
#include "base/memory.h"

static void a_path_is_joined(void **state)
{
    char *path = NULL;
    (void)state;

    assert_ok(hl_path_join(&path, "models/demo", "config.json"));
    assert_string_equal(path, "models/demo/config.json");
    hl_free(path);
}

static void a_name_stands_behind_the_last_slash(void **state)
{
    (void)state;
    assert_string_equal(hl_path_name("models/demo/config.json"), "config.json");
    assert_string_equal(hl_path_name("config.json"), "config.json");
    assert_string_equal(hl_path_name("models/"), "");
}

static void what_is_there_exists_and_what_cannot_be_looked_at_may(void **state)
{
    const char *here = new_folder();
    (void)state;

    write_file(in_folder(here, "file"), "x", 1);
    assert_true(hl_path_exists(here));
    assert_true(hl_path_exists(in_folder(here, "file")));
    assert_false(hl_path_exists(in_folder(here, "other")));
    assert_true(hl_path_exists(in_folder(here, "file/below"))); /* ENOTDIR */
    assert_true(hl_path_is_folder(here));
    assert_false(hl_path_is_folder(in_folder(here, "file")));
    assert_false(hl_path_is_folder(in_folder(here, "other")));
    remove_folder(here);
}

static void an_ending_is_at_the_end(void **state)
{
    (void)state;
    assert_true(hl_ends_with("model.gguf", ".gguf"));
    assert_true(hl_ends_with(".gguf", ".gguf"));
    assert_true(hl_ends_with("model", ""));
    assert_false(hl_ends_with("gguf", ".gguf"));
    assert_false(hl_ends_with("model.gguf.json", ".gguf"));
    assert_false(hl_ends_with("model.GGUF", ".gguf"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_is_joined),
        cmocka_unit_test(a_name_stands_behind_the_last_slash),
        cmocka_unit_test(what_is_there_exists_and_what_cannot_be_looked_at_may),
        cmocka_unit_test(an_ending_is_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
