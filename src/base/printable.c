/* printable.c - what is written in place of characters that must not reach a terminal.
 *
 *     not UTF-8               U+FFFD, one for each longest beginning of a character
 *     below U+0100            \x1b
 *     others                  \u202e, as JSON writes them
 *
 * In a token a space, a tab and a line end are seen as signs.  In JSON every replacement is the
 * escape that a reader of JSON turns back into the character, so nothing is lost. */
#include "base/printable.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

bool hl_character_is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

bool hl_character_is_unseen(uint32_t c)
{
    return hl_character_is_control(c) || c == 0xad || c == 0x200b || c == 0x2028 || c == 0x2029 ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb);
}

enum { SIGN_BYTES = 8 };

/* What the character becomes; NULL where it stays as it is. */
static const char *sign_of(char room[SIGN_BYTES], uint32_t c, hl_printable_kind kind)
{
    bool is_space = c == '\n' || c == '\t';

    if (kind == HL_PRINTABLE_TOKEN && (c == ' ' || is_space))
        return c == ' ' ? "\u00b7" : c == '\t' ? "\u2192" : "\u21b5";
    if (kind == HL_PRINTABLE_UTF8 || (kind == HL_PRINTABLE_LINES && is_space))
        return NULL;
    if (kind == HL_PRINTABLE_JSON && c < 0x20) /* the layout; strings have theirs escaped already */
        return NULL;
    bool is_replaced = kind == HL_PRINTABLE_LINES || kind == HL_PRINTABLE_JSON
                           ? hl_character_is_control(c)
                           : hl_character_is_unseen(c);
    if (!is_replaced)
        return NULL;
    snprintf(room, SIGN_BYTES, c < 0x100 && kind != HL_PRINTABLE_JSON ? "\\x%02x" : "\\u%04x",
             (unsigned)(c & 0xffff));
    return room;
}

/* How many bytes at the start are the beginning of a character, of which the rest is wrong. */
static size_t bad_length(const char *bytes, size_t n_bytes)
{
    size_t length = n_bytes < 3 ? n_bytes : 3;

    while (length > 1 && hl_utf8_incomplete(bytes, length) != length)
        length--;
    return length;
}

size_t hl_printable(char *out, size_t n_out, const char *bytes, size_t n_bytes,
                    hl_printable_kind kind)
{
    size_t needed = 0, used = 0;

    for (size_t at = 0; at < n_bytes;) {
        char        room[SIGN_BYTES];
        size_t      next   = at;
        size_t      length = hl_utf8_length(bytes + at, n_bytes - at);
        const char *sign = length > 0 ? sign_of(room, hl_utf8_next(bytes, &next), kind) : "\ufffd";
        size_t      n_sign = sign != NULL ? strlen(sign) : length;

        if (needed == used &&
            needed + n_sign < n_out) { /* a sign that does not fit ends the text */
            memcpy(out + used, sign != NULL ? sign : bytes + at, n_sign);
            used += n_sign;
        }
        needed += n_sign;
        at += length > 0 ? length : bad_length(bytes + at, n_bytes - at);
    }
    if (n_out > 0)
        out[used] = '\0';
    return needed;
}
