/* test_json_reader.c - the pull reader: values, escapes, places of errors, and agreement with
 * jansson on what is valid JSON. */
#include "support.h"

#include "base/json.h"
#include "base/json_reader.h"

static hl_json_reader open_reader(const char *text)
{
    hl_json_reader reader;
    assert_ok(hl_json_reader_open(&reader, text, strlen(text), "x.json"));
    return reader;
}

static void an_object_is_walked(void **state)
{
    (void)state;
    hl_json_reader reader  = open_reader(" { \"a\" : 1 , \"b\":[ true,false ], \"c\":-2.5e1 } ");
    bool           flag    = false;
    int64_t        integer = 0;
    double         number  = 0;
    hl_bytes       key;

    assert_ok(hl_json_enter(&reader, '{'));
    assert_true(hl_json_next_key(&reader, &key));
    assert_true(hl_bytes_equal(key, "a"));
    assert_ok(hl_json_read_int(&reader, &integer));
    assert_int_equal(integer, 1);

    assert_true(hl_json_next_key(&reader, &key));
    assert_ok(hl_json_enter(&reader, '['));
    for (int i = 0; i < 2; i++) {
        assert_true(hl_json_next(&reader, ']'));
        assert_ok(hl_json_read_bool(&reader, &flag));
        assert_int_equal(flag, i == 0);
    }
    assert_false(hl_json_next(&reader, ']'));
    assert_int_equal(reader.status, HL_OK);

    assert_true(hl_json_next_key(&reader, &key));
    assert_ok(hl_json_read_double(&reader, &number));
    assert_true(number == -25.0);
    assert_false(hl_json_next_key(&reader, &key));
    assert_ok(hl_json_reader_finish(&reader));
    hl_json_reader_close(&reader);
}

static void strings_are_unescaped(void **state)
{
    (void)state;
    hl_json_reader reader =
        open_reader("\"plain\" \"q\\\" b\\\\ s\\/ \\b\\f\\n\\r\\t\" "
                    "\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\" \"a\\u0000b\" \"\"");
    hl_bytes text;

    assert_ok(hl_json_read_string(&reader, &text));
    assert_true(hl_bytes_equal(text, "plain"));
    assert_ok(hl_json_read_string(&reader, &text));
    assert_true(hl_bytes_equal(text, "q\" b\\ s/ \b\f\n\r\t"));
    assert_ok(hl_json_read_string(&reader, &text));
    assert_true(hl_bytes_equal(text, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
    assert_ok(hl_json_read_string(&reader, &text));
    assert_int_equal(text.n_bytes, 3);
    assert_memory_equal(text.data, "a\0b", 3);
    assert_ok(hl_json_read_string(&reader, &text));
    assert_int_equal(text.n_bytes, 0);
    hl_json_reader_close(&reader);
}

static void errors_name_the_place(void **state)
{
    (void)state;
    hl_json_reader reader = open_reader("{\n  \"a\": tru}");
    bool           flag;
    hl_bytes       key;

    assert_ok(hl_json_enter(&reader, '{'));
    assert_true(hl_json_next_key(&reader, &key));
    assert_fails(HL_BAD_INPUT, "x.json: JSON line 2, column 8: neither true nor false",
                 hl_json_read_bool(&reader, &flag));
    /* All later calls repeat the error. */
    assert_false(hl_json_next(&reader, '}'));
    assert_int_equal(reader.status, HL_BAD_INPUT);
    assert_int_equal(hl_json_reader_finish(&reader), HL_BAD_INPUT);
    hl_json_reader_close(&reader);
    assert_fails(HL_BAD_INPUT, "not UTF-8: byte 0xff",
                 hl_json_reader_open(&reader, "\"\xff\"", 3, "x.json"));
}

/* Skipping must accept and refuse the same texts as jansson. */
static void skipping_agrees_with_jansson(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}",
        "[]",
        "[1]",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "nul",
        "null",
        "true",
        "truex",
        "[true false]",
        "01",
        "-0",
        "-",
        "1.",
        ".5",
        "1.5e",
        "1e+5",
        "1e5",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"a\nb\"",
        "[[[[]]]]",
        "[[[]]",
        "]",
        "}",
        "{\"a\":[{\"b\":[1,2,{}]}]}",
        "",
        " ",
        "\"\\",
        "[1 2]",
        "{\"a\":1 \"b\":2}",
        "+1",
        "0x10",
        "[1e400]",
        "\"\\u00e9\"",
        "1 2",
        "[\"a\",\"b\"]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_error_t   error;
        json_t        *tree   = json_loads(texts[i], JSON_DECODE_ANY, &error);
        hl_json_reader reader = open_reader(texts[i]);
        hl_bytes       value;
        hl_status      status = hl_json_skip(&reader, &value);
        if (status == HL_OK)
            status = hl_json_reader_finish(&reader);
        /* jansson refuses numbers that overflow; here they are infinite. */
        if (strstr(texts[i], "e400") == NULL && (tree != NULL) != (status == HL_OK))
            fail_msg("'%s': jansson says %s, we say %s", texts[i], tree != NULL ? "yes" : "no",
                     hl_status_name(status));
        hl_json_reader_close(&reader);
        json_decref(tree);
    }
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    char           deep[200];
    hl_json_reader reader;
    hl_bytes       value;

    memset(deep, '[', sizeof deep);
    assert_ok(hl_json_reader_open(&reader, deep, sizeof deep, "x.json"));
    assert_fails(HL_BAD_INPUT, "nested deeper than 64", hl_json_skip(&reader, &value));
    hl_json_reader_close(&reader);
}

static void integers_must_be_integers(void **state)
{
    (void)state;
    static const char *const bad[] = { "1.5", "1e3", "9223372036854775808", "\"1\"", "true", "" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hl_json_reader reader = open_reader(bad[i]);
        int64_t        value;
        assert_int_equal(hl_json_read_int(&reader, &value), HL_BAD_INPUT);
        hl_json_reader_close(&reader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_is_walked),   cmocka_unit_test(strings_are_unescaped),
        cmocka_unit_test(errors_name_the_place), cmocka_unit_test(skipping_agrees_with_jansson),
        cmocka_unit_test(nesting_is_bounded),    cmocka_unit_test(integers_must_be_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
