/* test_utf8.c - valid text, the place of the first error, encoding and decoding. */
#include "support.h"

#include "base/utf8.h"

static void every_character_survives(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char   bytes[4];
        size_t at = 0;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        size_t length = hl_utf8_encode(bytes, c);
        assert_int_equal(hl_utf8_length(bytes, length), length);
        assert_int_equal(hl_utf8_length(bytes, length - 1), 0); /* incomplete, or empty */
        assert_int_equal(hl_utf8_next(bytes, &at), c);
        assert_int_equal(at, length);
    }
}

/* Every sequence of up to three bytes, and the limits of four bytes. */
static void lengths_agree_with_the_definition(void **state)
{
    (void)state;
    static const unsigned char bad[][4] = {
        { 0x80 },
        { 0xc0, 0x80 },
        { 0xc1, 0xbf },
        { 0xe0, 0x9f, 0xbf },
        { 0xed, 0xa0, 0x80 },
        { 0xed, 0xbf, 0xbf },
        { 0xf0, 0x8f, 0xbf, 0xbf },
        { 0xf4, 0x90, 0x80, 0x80 },
        { 0xf5, 0x80, 0x80, 0x80 },
        { 0xff },
        { 0xe2, 0x28, 0xa1 },
        { 0xe2, 0x82, 0x28 },
        { 0xf0, 0x9f, 0x98, 0x28 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hl_utf8_length((const char *)bad[i], 4), 0);
    for (unsigned lead = 0x80; lead < 0x100; lead++) {
        for (unsigned second = 0; second < 0x100; second++) {
            const char two[] = { (char)lead, (char)second };
            bool       valid = lead >= 0xc2 && lead < 0xe0 && (second & 0xc0) == 0x80;
            assert_int_equal(hl_utf8_length(two, 2), valid ? 2 : 0);
        }
    }
}

static void the_first_bad_byte_is_found(void **state)
{
    (void)state;
    char text[64];

    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, 'a', sizeof text);
        assert_int_equal(hl_utf8_find_bad(text, n), n);
        for (size_t at = 0; at < n; at++) {
            text[at] = '\xff';
            assert_int_equal(hl_utf8_find_bad(text, n), at);
            text[at] = 'a';
        }
    }
    assert_int_equal(hl_utf8_find_bad("ab\xe2\x82", 4), 2);
    assert_int_equal(hl_utf8_find_bad("12345678\xe2\x82\xac", 11), 11);
}

static void a_cut_character_is_told_from_rubbish(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t      incomplete;
    } cases[] = {
        { "", 0 },
        { "a", 0 },
        { "a\xe2", 1 },
        { "a\xe2\x82", 2 },
        { "a\xe2\x82\xac", 0 },
        { "\xf0", 1 },
        { "\xf0\x9f", 2 },
        { "\xf0\x9f\x98", 3 },
        { "\xf0\x9f\x98\x80", 0 },
        { "\xc3", 1 },
        { "\xc3\xa9", 0 },
        { "\xc0", 0 },
        { "\xff", 0 },
        { "\x80", 0 },
        { "\x80\x80\x80\x80", 0 },
        { "\xed\xa0", 0 }, /* a surrogate cannot be completed */
        { "\xe0\x80", 0 }, /* nor an overlong form */
        { "\xf4\x90", 0 },
        { "\xf4\x8f", 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(hl_utf8_incomplete(cases[i].text, strlen(cases[i].text)),
                         cases[i].incomplete);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_survives),
        cmocka_unit_test(lengths_agree_with_the_definition),
        cmocka_unit_test(the_first_bad_byte_is_found),
        cmocka_unit_test(a_cut_character_is_told_from_rubbish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
