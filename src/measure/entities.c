/* entities.c - names and numbers in a text, by how words begin.
 *
 * No dictionary and no grammar: the first word of a sentence counts as a name, and a name
 * that is not written with a capital letter does not. */
#include "measure/entities.h"

#include "base/utf8.h"
#include "tokenize/unicode.h"

/* The character at *at, past which it moves. */
static uint32_t next(const char *text, size_t end, size_t *at)
{
    if (hl_utf8_length(text + *at, end - *at) > 0)
        return hl_utf8_next(text, at);
    *at += 1;
    return HL_UTF8_REPLACEMENT;
}

/* Most characters are ASCII, and no table need be asked about them. */
static bool is_word(uint32_t c)
{
    if (c < 0x80)
        return (c | 0x20) - 'a' < 26 || c - '0' < 10 || c == '_';
    return hl_char_is(HL_CHAR_WORD, c);
}

static bool is_numeric(uint32_t c)
{
    return c < 0x80 ? c - '0' < 10 : hl_char_is(HL_CHAR_NUMERIC, c);
}

static bool is_capital(uint32_t c)
{
    if (c < 0x80)
        return c - 'A' < 26;
    uint32_t lower[2];
    size_t   count = hl_char_lowercase(lower, c);

    return count > 0 && lower[0] != c;
}

/* Does the text before end in the middle of a word? */
static bool ends_in_word(const char *text, size_t n_bytes)
{
    size_t at = n_bytes;

    while (at > 0 && n_bytes - at < 3 && hl_utf8_is_continuation(text[at - 1]))
        at--;
    if (at == 0)
        return false;
    at--;
    return is_word(next(text, n_bytes, &at));
}

bool hl_begins_entity(const char *text, size_t begin, size_t end)
{
    bool     in_word = ends_in_word(text, begin);
    size_t   at      = begin;
    uint32_t c       = 0;

    while (at < end) {
        c = next(text, end, &at);
        if (is_word(c))
            break;
        in_word = false;
    }
    if (in_word || !is_word(c))
        return false;
    bool found = is_capital(c) || is_numeric(c);
    while (!found && at < end) {
        c = next(text, end, &at);
        if (!is_word(c))
            break;
        found = is_numeric(c);
    }
    return found;
}
