/* utf8.c - checking and writing UTF-8. */
#include "base/utf8.h"

#include <string.h>

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

/* A cut character, filled up with the smallest continuation that its lead byte
 * allows, would be valid: that is how to tell it from rubbish. */
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
