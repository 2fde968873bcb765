/* test_json.c - what the parser refuses, and the messages of getters. */
#include "support.h"

#include "base/fault.h"
#include "base/json.h"
#include "base/memory.h"

static json_t *parse(const char *text)
{
    json_t *value = NULL;
    assert_ok(hl_json_parse(&value, text, strlen(text), "test"));
    assert_non_null(value);
    return value;
}

static void refuse(const char *text, size_t n_bytes, const char *fragment)
{
    json_t *value = (json_t *)&value;
    assert_fails(HL_BAD_INPUT, fragment, hl_json_parse(&value, text, n_bytes, "x.json"));
    assert_fails(HL_BAD_INPUT, "x.json: ", hl_json_parse(&value, text, n_bytes, "x.json"));
    assert_null(value);
}
#define refuse_text(text, fragment) refuse(text, strlen(text), fragment)

static void any_value_is_accepted(void **state)
{
    (void)state;
    const char *texts[] = {
        "{}", "[]", " 1 ", "\"a\"", "null", "true\n", "{\"a\": [1, 2.5, {}]}  "
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        json_decref(parse(texts[i]));
}

static void bad_text_is_refused_with_its_place(void **state)
{
    (void)state;
    refuse_text("", "");
    refuse_text("{\n\"a\": 1,\n}", "line 3");
    refuse_text("{\"a\": 1} x", "something after the end");
    refuse_text("{\"a\": 1, \"a\": 2}", "duplicate");
    refuse_text("[NaN]", "line 1");
    refuse_text("{\"a\": 9223372036854775808}", "9223372036854775808 is not an integer of 64 bits");
    refuse_text("\"\\u0000\"", "\\u0000");
    refuse("\"a\0b\"", 5, "line 1");
    refuse_text("\"\xff\"", "not UTF-8");
    refuse_text("\"\xc3\"", "not UTF-8");
    refuse_text("\"\xed\xa0\x80\"", "not UTF-8"); /* a surrogate encoded in UTF-8 */
    refuse_text("[\"\\ud800\"]", "line 1");
}

/* Strings in lines may hold NUL, but keys may not. */
static void lines_may_have_nul(void **state)
{
    static const char text[] = "{\"s\": \"a\\u0000b\"}\n{\"a\\u0000b\": 1}";
    hl_json_lines     lines  = { .at = text, .end = text + strlen(text), .where = "test" };
    const char       *s      = NULL;
    json_t           *value  = NULL;
    (void)state;

    lines.with_nul = true;
    assert_ok(hl_json_lines_next(&value, &lines));
    assert_int_equal(json_string_length(json_object_get(value, "s")), 3);
    assert_fails(HL_BAD_INPUT, "test: 's' has NUL", hl_json_get_string(&s, value, "s", "test"));
    json_decref(value);
    assert_fails(HL_BAD_INPUT, "test, line 2: JSON line 1", hl_json_lines_next(&value, &lines));
    assert_null(value);
}

typedef struct event_log {
    char   text[256];
    size_t n;
    size_t most; /* stops after this number of events */
} event_log;

static hl_status note(void *context, const hl_json_event *event)
{
    static const char kinds[] = "nbirt[{.";
    event_log        *seen    = context;

    seen->n += (size_t)snprintf(seen->text + seen->n, sizeof seen->text - seen->n, "%s%c",
                                event->key != NULL ? event->key : "", kinds[event->type]);
    if (event->type == HL_JSON_INT || event->type == HL_JSON_BOOL)
        seen->n += (size_t)snprintf(seen->text + seen->n, sizeof seen->text - seen->n, "%d",
                                    (int)event->integer);
    if (event->type == HL_JSON_REAL)
        assert_true(event->real == 2.5);
    if (event->type == HL_JSON_TEXT)
        assert_memory_equal(event->text, "a\0b", event->n_bytes + 1);
    return seen->most-- > 0 ? HL_OK : HL_CANCELLED;
}

/* Events arrive in order, after the whole text has been checked. */
static void events_come_in_order(void **state)
{
    static const char text[] =
        "{\"x\": [1, 2.5, \"a\\u0000b\"], \"y\": {}, \"b\": true, \"f\": false, \"n\": null}";
    event_log seen = { .most = 100 }, few = { .most = 2 }, none = { .most = 100 };
    (void)state;

    assert_ok(hl_json_walk(text, strlen(text), "test", note, &seen));
    assert_string_equal(seen.text, "{x[i1rt.y{.bb1fb0nn.");
    assert_int_equal(hl_json_walk(text, strlen(text), "test", note, &few), HL_CANCELLED);
    assert_string_equal(few.text, "{x[i1");
    assert_fails(HL_BAD_INPUT, "test: JSON line 1", hl_json_walk(text, 20, "test", note, &none));
    assert_int_equal(none.n, 0);
}

/* Makes `depth` brackets, opened and closed. */
static size_t nest(char *out, size_t depth)
{
    memset(out, '[', depth);
    memset(out + depth, ']', depth);
    return 2 * depth;
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    char   *text  = malloc(2000000);
    json_t *value = NULL;

    assert_non_null(text);
    assert_ok(hl_json_parse(&value, text, nest(text, 64), "test"));
    json_decref(value);
    refuse(text, nest(text, 65), "nested 65 deep, at most 64");
    refuse(text, nest(text, 1000000), "nested 1000000 deep");
    free(text);
}

static void brackets_in_strings_do_not_nest(void **state)
{
    (void)state;
    char text[512] = "\"\\\"";
    memset(text + 3, '[', 400);
    strcpy(text + 403, "\\\\\"");
    json_decref(parse(text));
}

static void getters_read_what_is_there(void **state)
{
    (void)state;
    json_t     *object = parse("{\"i\": -5, \"d\": 2.5, \"b\": true, \"s\": \"text\"}");
    int64_t     i      = 0;
    double      d      = 0;
    bool        b      = false;
    const char *s      = NULL;

    assert_ok(hl_json_get_int(&i, object, "i", "test"));
    assert_int_equal(i, -5);
    assert_ok(hl_json_get_double(&d, object, "d", "test"));
    assert_true(d == 2.5);
    assert_ok(hl_json_get_double(&d, object, "i", "test")); /* an integer is accepted as a number */
    assert_true(d == -5.0);
    assert_ok(hl_json_get_bool(&b, object, "b", "test"));
    assert_true(b);
    assert_ok(hl_json_get_string(&s, object, "s", "test"));
    assert_string_equal(s, "text");
    json_decref(object);
}

static void missing_and_null_leave_the_default(void **state)
{
    (void)state;
    json_t     *object = parse("{\"n\": null}");
    const char *keys[] = { "n", "missing" };
    for (int k = 0; k < 2; k++) {
        int64_t     i = 7;
        double      d = 7;
        bool        b = true;
        const char *s = "seven";
        assert_ok(hl_json_get_int(&i, object, keys[k], "test"));
        assert_ok(hl_json_get_double(&d, object, keys[k], "test"));
        assert_ok(hl_json_get_bool(&b, object, keys[k], "test"));
        assert_ok(hl_json_get_string(&s, object, keys[k], "test"));
        assert_true(i == 7 && d == 7.0 && b);
        assert_string_equal(s, "seven");
    }
    json_decref(object);
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    json_t *object =
        parse("{\"i\": 5, \"d\": 2.5, \"b\": true, \"s\": \"t\", \"a\": [], \"o\": {}}");
    int64_t     i = 7;
    double      d = 7;
    bool        b = true;
    const char *s = "seven";

    assert_fails(HL_BAD_INPUT, "x.json: 'd' is a number with a fraction, wanted an integer",
                 hl_json_get_int(&i, object, "d", "x.json"));
    assert_fails(HL_BAD_INPUT, "'s' is a string, wanted a number",
                 hl_json_get_double(&d, object, "s", "x.json"));
    assert_fails(HL_BAD_INPUT, "'i' is an integer, wanted a boolean",
                 hl_json_get_bool(&b, object, "i", "x.json"));
    assert_fails(HL_BAD_INPUT, "'b' is a boolean, wanted a string",
                 hl_json_get_string(&s, object, "b", "x.json"));
    assert_fails(HL_BAD_INPUT, "'a' is an array", hl_json_get_int(&i, object, "a", "x.json"));
    assert_fails(HL_BAD_INPUT, "'o' is an object", hl_json_get_int(&i, object, "o", "x.json"));
    assert_true(i == 7 && d == 7.0 && b);
    assert_string_equal(s, "seven");
    json_decref(object);
    assert_string_equal(hl_json_kind(NULL), "missing");
}

/* ------------------------------------------------------------------------ out of memory */

static void *failing_malloc(size_t n_bytes)
{
    return hl_fault(HL_FAULT_MEMORY) ? NULL : malloc(n_bytes);
}

/* If an allocation fails, the error is always HL_NO_MEMORY, never HL_BAD_INPUT. */
static void no_memory_is_not_bad_text(void **state)
{
    static const char text[] =
        "{\"a long enough key\": \"a string that is longer than any first buffer: \\u00e9\","
        " \"b\": [1, 2.5, true, null, {\"c\": \"d\"}]}";
    json_t *value = NULL;
    bool    fired = true;
    int64_t nth   = 1;
    (void)state;

    json_set_alloc_funcs(failing_malloc, free);
    for (; fired; nth++) {
        hl_fault_arm(HL_FAULT_MEMORY, nth, false);
        hl_status status = hl_json_parse(&value, text, sizeof text - 1, "x.json");
        hl_fault_disarm(&fired);
        assert_int_equal(status, fired ? HL_NO_MEMORY : HL_OK);
        assert_true((value == NULL) == fired);
    }
    assert_true(nth > 10);

    char *whole = hl_json_dump(value, JSON_COMPACT);
    assert_non_null(whole);
    for (fired = true, nth = 1; fired; nth++) {
        hl_fault_arm(HL_FAULT_MEMORY, nth, false);
        char *written = hl_json_dump(value, JSON_COMPACT);
        hl_fault_disarm(&fired);
        assert_true((written == NULL) == fired);
        if (written != NULL)
            assert_string_equal(written, whole);
        hl_free(written);
    }
    hl_free(whole);
    json_decref(value);
    json_set_alloc_funcs(malloc, free);
}

static void what_lacks_a_part_is_nothing(void **state)
{
    json_t *object = json_object(), *array = json_array();
    (void)state;

    hl_json_put(&object, "a", json_integer(1));
    hl_json_add(&array, json_true());
    assert_int_equal(json_object_size(object) + json_array_size(array), 2);
    hl_json_add(&array, NULL);
    assert_null(array);
    hl_json_add(&array, json_true()); /* a NULL array stays NULL */
    assert_null(array);
    hl_json_put(&object, "b", array);
    assert_null(object);
    assert_null(hl_json_dump(object, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_value_is_accepted),
        cmocka_unit_test(bad_text_is_refused_with_its_place),
        cmocka_unit_test(lines_may_have_nul),
        cmocka_unit_test(events_come_in_order),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(brackets_in_strings_do_not_nest),
        cmocka_unit_test(getters_read_what_is_there),
        cmocka_unit_test(missing_and_null_leave_the_default),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(no_memory_is_not_bad_text),
        cmocka_unit_test(what_lacks_a_part_is_nothing),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
