/* test_printable.c - foreign text: what reaches a terminal, and what does not. */
#include "support.h"

#include <jansson.h>

#include "base/utf8.h"

static void check(hl_printable_kind kind, const char *text, const char *wanted)
{
    char   out[256];
    size_t length = hl_printable(out, sizeof out, text, strlen(text), kind);

    assert_string_equal(out, wanted);
    assert_int_equal(length, strlen(wanted));
}

static void each_kind_replaces_what_it_says(void **state)
{
    (void)state;
    const char *text = "a b\t\n\r\x1b[1m\x7f\xc2\x9b\u061c\u200e\u202e\u2066\u200b\u00e9\U0001f642";

    check(
        HL_PRINTABLE_LINE, text,
        "a b\\x09\\x0a\\x0d\\x1b[1m\\x7f\\x9b\\u061c\\u200e\\u202e\\u2066\\u200b\u00e9\U0001f642");
    check(HL_PRINTABLE_LINES, text,
          "a b\t\n\\x0d\\x1b[1m\\x7f\\x9b\\u061c\\u200e\\u202e\\u2066\u200b\u00e9\U0001f642");
    check(HL_PRINTABLE_TOKEN, text,
          "a\u00b7b\u2192\u21b5\\x0d\\x1b[1m\\x7f\\x9b\\u061c\\u200e\\u202e\\u2066\\u200b\u00e9"
          "\U0001f642");
    check(HL_PRINTABLE_UTF8, text, text);
    check(HL_PRINTABLE_LINE, "\xff\xe2\x82z\xf0\x9f\x99\xc0\x80\xed\xa0\x80",
          "\ufffd\ufffdz\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd");
    check(HL_PRINTABLE_UTF8, "\xf0\x9f\x99", "\ufffd");
}

/* No character that a terminal obeys passes unchanged. */
static void no_control_passes(void **state)
{
    (void)state;
    static const hl_printable_kind kinds[] = { HL_PRINTABLE_LINE, HL_PRINTABLE_LINES,
                                               HL_PRINTABLE_TOKEN };
    for (uint32_t c = 0; c < 0x110000; c++) {
        bool is_c0   = c < 0x20 || c == 0x7f;
        bool is_c1   = c >= 0x80 && c < 0xa0;
        bool is_bidi = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                       (c >= 0x2066 && c <= 0x2069);
        char bytes[4], out[16];

        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t n_bytes = hl_utf8_encode(bytes, c);
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            bool   stays  = (c == '\n' || c == '\t') && kinds[i] == HL_PRINTABLE_LINES;
            size_t length = hl_printable(out, sizeof out, bytes, n_bytes, kinds[i]);

            assert_true(length < sizeof out && hl_utf8_find_bad(out, length) == length);
            if ((is_c0 || is_c1 || is_bidi) && !stays)
                assert_true(length > n_bytes && memcmp(out, bytes, n_bytes) != 0);
            else if (stays || !hl_character_is_unseen(c))
                assert_true(c == ' ' || (length == n_bytes && memcmp(out, bytes, n_bytes) == 0));
        }
    }
}

static void json_stays_the_same_value(void **state)
{
    (void)state;
    char    out[256];
    json_t *value  = json_pack("{s:s}", "k\u202e", "a\x1b\x7f\xc2\x9b\u2069\n\u00e9");
    char   *dumped = json_dumps(value, JSON_INDENT(1));

    hl_printable(out, sizeof out, dumped, strlen(dumped), HL_PRINTABLE_JSON);
    assert_string_equal(out, "{\n \"k\\u202e\": \"a\\u001B\\u007f\\u009b\\u2069\\n\u00e9\"\n}");
    json_t *again = json_loads(out, 0, NULL);
    assert_true(json_equal(value, again));
    json_decref(value);
    json_decref(again);
    free(dumped);
}

/* As with snprintf: a replacement is never cut, and what does not fit is counted. */
static void a_short_buffer_is_not_left(void **state)
{
    (void)state;
    const char *text = "a\x1b"
                       "b\u202e";
    char        out[16];

    for (size_t n = 0; n < 14; n++) {
        memset(out, 'Z', sizeof out);
        assert_int_equal(hl_printable(out, n, text, strlen(text), HL_PRINTABLE_LINE), 12);
        assert_string_equal(n > 0 ? out : "", n == 0    ? ""
                                              : n == 1  ? ""
                                              : n <= 5  ? "a"
                                              : n == 6  ? "a\\x1b"
                                              : n <= 12 ? "a\\x1bb"
                                                        : "a\\x1bb\\u202e");
        assert_int_equal(out[n], 'Z');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_replaces_what_it_says),
        cmocka_unit_test(no_control_passes),
        cmocka_unit_test(json_stays_the_same_value),
        cmocka_unit_test(a_short_buffer_is_not_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
