/* test_cli_values.c - names and numbers as the program prints them, and JSON objects by type. */
#include "support.h"

#include <math.h>

#include "values.h"

static void check_json(json_t *object, const char *wanted)
{
    char *text = json_dumps(object, JSON_COMPACT);

    assert_non_null(text);
    assert_string_equal(text, wanted);
    free(text);
    json_decref(object);
}

static void members_have_their_types(void **state)
{
    (void)state;
    const char *none  = NULL;
    bool        yes   = true;
    size_t      size  = 7;
    int64_t     whole = -3;

    check_json(HL_OBJECT(HL_IS("yes", yes), HL_IS("size", size), HL_IS("whole", whole),
                         HL_IS("real", 0.5), HL_IS("text", "a"), HL_IS("array", json_array())),
               "{\"yes\":true,\"size\":7,\"whole\":-3,\"real\":0.5,\"text\":\"a\",\"array\":[]}");
    /* NaN and invalid text are null; a NULL JSON value adds no member. */
    check_json(HL_OBJECT(HL_IS("nan", (double)NAN), HL_IS("none", none),
                         HL_IS("missing", (json_t *)NULL), HL_IS("last", 1)),
               "{\"nan\":null,\"none\":null,\"last\":1}");
}

static void names_and_numbers(void **state)
{
    (void)state;
    char label[HL_HEAD_LABEL_BYTES];

    assert_string_equal(hl_head_label(label, 3, 12), "L3H12");
    assert_string_equal(hl_base_name("a/b/c.profile"), "c.profile");
    assert_string_equal(hl_base_name("models/demo//"), "demo");
    assert_string_equal(hl_base_name("demo"), "demo");
    assert_string_equal(hl_grouped(0), "0");
    assert_string_equal(hl_grouped(999), "999");
    assert_string_equal(hl_grouped(1234567), "1,234,567");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_have_their_types),
        cmocka_unit_test(names_and_numbers),
    };

    return cmocka_run_group_tests_name("cli_values", tests, NULL, NULL);
}
