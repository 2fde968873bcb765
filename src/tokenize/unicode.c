/* unicode.c - utf8proc behind our names. */
#include "tokenize/unicode.h"

#include <utf8proc.h>

static bool is_whitespace(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

static bool is_ascii_punctuation(uint32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

static bool is_mark(utf8proc_category_t category)
{
    return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
           category == UTF8PROC_CATEGORY_ME;
}

static bool is_word(uint32_t c, utf8proc_category_t category)
{
    return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
           is_mark(category) || category == UTF8PROC_CATEGORY_ND ||
           category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_PC || c == 0x200c ||
           c == 0x200d;
}

bool hl_char_is(hl_char_class wanted, uint32_t code_point)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code_point);

    switch (wanted) {
    case HL_CHAR_WHITESPACE:
        return is_whitespace(code_point);
    case HL_CHAR_PUNCTUATION:
        return is_ascii_punctuation(code_point) ||
               (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
    case HL_CHAR_NUMERIC:
        return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
    case HL_CHAR_CONTROL:
        return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
               category == UTF8PROC_CATEGORY_CO;
    case HL_CHAR_MARK:
        return is_mark(category);
    case HL_CHAR_ACCENT:
        return category == UTF8PROC_CATEGORY_MN;
    case HL_CHAR_WORD:
        return is_word(code_point, category);
    case HL_CHAR_LETTER:
        return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    case HL_CHAR_UPPER:
        return category == UTF8PROC_CATEGORY_LU;
    case HL_CHAR_LOWER:
        return category == UTF8PROC_CATEGORY_LL;
    case HL_CHAR_TITLE:
        return category == UTF8PROC_CATEGORY_LT;
    case HL_CHAR_DECIMAL:
        return category == UTF8PROC_CATEGORY_ND;
    case HL_CHAR_PRINTABLE:
        return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_SO;
    }
    return false;
}

size_t hl_char_lowercase(uint32_t out[2], uint32_t code_point)
{
    if (code_point == 0x130) { /* this letter alone has a lower case of two characters */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)code_point);
    return 1;
}

/* Letters whose upper case has several characters; the ligatures lose their own character. */
static const struct {
    uint32_t letter;
    uint32_t upper[3];
} special_cases[] = {
    { 0xdf, { 'S', 'S' } },        { 0x149, { 0x2bc, 'N' } },     { 0x1f0, { 'J', 0x30c } },
    { 0xfb00, { 'F', 'F' } },      { 0xfb01, { 'F', 'I' } },      { 0xfb02, { 'F', 'L' } },
    { 0xfb03, { 'F', 'F', 'I' } }, { 0xfb04, { 'F', 'F', 'L' } }, { 0xfb05, { 'S', 'T' } },
    { 0xfb06, { 'S', 'T' } },      { 0x587, { 0x535, 0x552 } },
};

size_t hl_char_uppercase(uint32_t out[3], uint32_t code_point, bool title)
{
    for (size_t i = 0; i < sizeof special_cases / sizeof *special_cases; i++) {
        size_t n = 0;
        if (special_cases[i].letter != code_point)
            continue;
        for (; n < 3 && special_cases[i].upper[n] != 0; n++) {
            uint32_t c = special_cases[i].upper[n];
            out[n]     = title && n > 0 ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)c) : c;
        }
        return n;
    }
    out[0] = (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)code_point)
                              : utf8proc_toupper((utf8proc_int32_t)code_point));
    return 1;
}

size_t hl_char_decompose(uint32_t out[HL_MAX_DECOMPOSITION], uint32_t code_point, bool compatible)
{
    utf8proc_int32_t  parts[HL_MAX_DECOMPOSITION];
    int               boundary = 0;
    utf8proc_option_t options  = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;

    if (compatible)
        options |= UTF8PROC_COMPAT;
    utf8proc_ssize_t count = utf8proc_decompose_char((utf8proc_int32_t)code_point, parts,
                                                     HL_MAX_DECOMPOSITION, options, &boundary);
    if (count < 1 || count > HL_MAX_DECOMPOSITION) {
        out[0] = code_point;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < count; i++)
        out[i] = (uint32_t)parts[i];
    return (size_t)count;
}

int hl_char_combining_class(uint32_t code_point)
{
    return utf8proc_get_property((utf8proc_int32_t)code_point)->combining_class;
}

bool hl_char_compose(uint32_t *out, uint32_t base, uint32_t follower)
{
    utf8proc_int32_t pair[2] = { (utf8proc_int32_t)base, (utf8proc_int32_t)follower };

    if (utf8proc_normalize_utf32(pair, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE) != 1)
        return false;
    *out = (uint32_t)pair[0];
    return true;
}

bool hl_char_grapheme_break(uint32_t left, uint32_t right, int32_t *state)
{
    utf8proc_int32_t seen = *state;
    bool             broken =
        utf8proc_grapheme_break_stateful((utf8proc_int32_t)left, (utf8proc_int32_t)right, &seen);
    *state = seen;
    return broken;
}
