/* test_version.c - what the library says about itself. */
#include "support.h"

static void version_is_three_numbers(void **state)
{
    (void)state;
    int  major, minor, patch;
    char rest;
    assert_int_equal(sscanf(hl_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3);
}

static void build_info_names_version_and_back_ends(void **state)
{
    (void)state;
    const char *info = hl_build_info();
    assert_non_null(strstr(info, hl_version()));
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        if (strstr(strstr(info, "back ends:"), *name) == NULL)
            fail_msg("'%s' is not in '%s'", *name, info);
    }
    assert_null(strchr(info, '\n'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_is_three_numbers),
        cmocka_unit_test(build_info_names_version_and_back_ends),
    };
    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
