/* test_version.c - the library's version and build information. */
#include "support.h"

static void version_is_three_numbers(void **state)
{
    (void)state;
    int  major, minor, patch;
    char rest;
    assert_int_equal(sscanf(hl_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3);
}

static void header_and_library_have_one_version(void **state)
{
    (void)state;
    char text[64];
    snprintf(text, sizeof text, "%d.%d.%d", HL_VERSION_MAJOR, HL_VERSION_MINOR, HL_VERSION_PATCH);
    assert_string_equal(HL_VERSION_STRING, text);
    assert_string_equal(hl_version(), HL_VERSION_STRING);
    assert_int_equal(HL_VERSION_NUMBER,
                     10000 * HL_VERSION_MAJOR + 100 * HL_VERSION_MINOR + HL_VERSION_PATCH);
    /* Each number has two digits, so 0.99.99 is less than 1.0.0. */
    assert_true(HL_VERSION_MINOR < 100 && HL_VERSION_PATCH < 100);
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
        cmocka_unit_test(header_and_library_have_one_version),
        cmocka_unit_test(build_info_names_version_and_back_ends),
    };
    return cmocka_run_group_tests_name("version", tests, NULL, NULL);
}
