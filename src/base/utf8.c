/* utf8.c - checks and writes UTF-8, and replaces characters that must not reach a terminal. */
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------------------ characters */

/* The lead byte decides the length and, for four of them, a narrower range of
 * the second byte (which is what excludes overlong forms and surrogates). */
size_t hl_utf8_length(const char *text, size_t n_bytes)
{
    const unsigned char *b = (const unsigned char *)text;

    if (n_bytes == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    size_t length = b[0] >= 0xc2 && b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    if (b[0] < 0xc2 || b[0] > 0xf4 || n_bytes < length)
        return 0;

    unsigned char low  = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;
    if (b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if (!hl_utf8_is_continuation(text[i]))
            return 0;
    }
    return length;
}

size_t hl_utf8_find_bad(const char *text, size_t n_bytes)
{
    size_t at = 0;

    while (at < n_bytes) {
        uint64_t eight;
        if (n_bytes - at >= sizeof eight) { /* eight ASCII characters at a time */
            memcpy(&eight, text + at, sizeof eight);
            if ((eight & 0x8080808080808080U) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t length = hl_utf8_length(text + at, n_bytes - at);
        if (length == 0)
            return at;
        at += length;
    }
    return n_bytes;
}

size_t hl_utf8_encode(char out[4], uint32_t code_point)
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        out[0] = (char)(0xc0 | code_point >> 6);
        out[1] = (char)(0x80 | (code_point & 0x3f));
        return 2;
    }
    if (code_point < 0x10000) {
        out[0] = (char)(0xe0 | code_point >> 12);
        out[1] = (char)(0x80 | (code_point >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code_point & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code_point >> 18);
    out[1] = (char)(0x80 | (code_point >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code_point >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code_point & 0x3f));
    return 4;
}

/* A cut character becomes valid when it is completed with the smallest continuation that its lead
 * byte allows.  That distinguishes it from invalid bytes. */
size_t hl_utf8_incomplete(const char *text, size_t n_bytes)
{
    for (size_t back = 1; back <= 3 && back <= n_bytes; back++) {
        char          filled[4] = { '\x80', '\x80', '\x80', '\x80' };
        unsigned char lead      = (unsigned char)text[n_bytes - back];

        if (hl_utf8_is_continuation((char)lead))
            continue;
        if (lead < 0xc2)
            return 0;
        size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
        filled[1]     = lead == 0xe0 ? '\xa0' : lead == 0xf0 ? '\x90' : '\x80';
        memcpy(filled, text + n_bytes - back, back);
        return back < length && hl_utf8_length(filled, length) == length ? back : 0;
    }
    return 0;
}

/* ------------------------------------------------------------------------------ text to be shown */

/* Replacements:
 *
 *     invalid UTF-8           U+FFFD, one per longest valid beginning of a character
 *     below U+0100            \x1b
 *     others                  \u202e, as JSON writes them
 *
 * In a token, a space, a tab and a line end are shown as visible signs.  In JSON every replacement
 * is an escape that a JSON reader turns back into the character, so nothing is lost. */

/* True for a character that a terminal obeys instead of showing, line ends and tabs included. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

bool hl_character_is_unseen(uint32_t c)
{
    return is_control(c) || c == 0xad || c == 0x200b || c == 0x2028 || c == 0x2029 ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb);
}

enum { SIGN_BYTES = 8 };

/* The replacement of a character; NULL if it stays unchanged. */
static const char *sign_of(char room[SIGN_BYTES], uint32_t c, hl_printable_kind kind)
{
    bool is_space = c == '\n' || c == '\t';

    if (kind == HL_PRINTABLE_TOKEN && (c == ' ' || is_space))
        return c == ' ' ? "\u00b7" : c == '\t' ? "\u2192" : "\u21b5";
    if (kind == HL_PRINTABLE_UTF8 || (kind == HL_PRINTABLE_LINES && is_space))
        return NULL;
    if (kind == HL_PRINTABLE_JSON && c < 0x20) /* such characters are layout here: inside strings
                                                * they are already escaped */
        return NULL;
    bool is_replaced = kind == HL_PRINTABLE_LINES || kind == HL_PRINTABLE_JSON
                           ? is_control(c)
                           : hl_character_is_unseen(c);
    if (!is_replaced)
        return NULL;
    snprintf(room, SIGN_BYTES, c < 0x100 && kind != HL_PRINTABLE_JSON ? "\\x%02x" : "\\u%04x",
             (unsigned)(c & 0xffff));
    return room;
}

/* The number of bytes at the start that begin a character whose other bytes are invalid. */
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
            needed + n_sign < n_out) { /* the text ends before a sign that does not fit */
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

size_t hl_utf8_count(const char *text, size_t n_bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < n_bytes; i++)
        count += !hl_utf8_is_continuation(text[i]);
    return count;
}
