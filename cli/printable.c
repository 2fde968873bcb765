/* printable.c - replacing what would break a terminal or a JSON string. */
#include "printable.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* No byte becomes more than four. */
enum { GROWTH = 4 };

/* The length of the character at the start, 0 if it is not valid; then *bad is how many
 * bytes of it are the beginning of one, and at least 1. */
static size_t character_length(const char *bytes, size_t n_bytes, size_t *bad)
{
    const unsigned char *b      = (const unsigned char *)bytes;
    size_t               length = b[0] < 0x80   ? 1
                                  : b[0] < 0xc2 ? 0
                                  : b[0] < 0xe0 ? 2
                                  : b[0] < 0xf0 ? 3
                                  : b[0] < 0xf5 ? 4
                                                : 0;
    unsigned char        low    = b[0] == 0xe0 ? 0xa0 : b[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char        high   = b[0] == 0xed ? 0x9f : b[0] == 0xf4 ? 0x8f : 0xbf;

    *bad = 1;
    for (size_t i = 1; i < length; i++) {
        *bad = i;
        if (i >= n_bytes || b[i] < low || b[i] > high)
            return 0;
        low  = 0x80;
        high = 0xbf;
    }
    return length;
}

/* The characters that are shown by others: C0, delete, C1. */
static size_t replace_character(char *out, const char *character, size_t length)
{
    unsigned char first  = (unsigned char)character[0];
    unsigned char second = length == 2 ? (unsigned char)character[1] : 0;

    if (first == ' ')
        return (size_t)sprintf(out, "·");
    if (first == '\t')
        return (size_t)sprintf(out, "→");
    if (first == '\n')
        return (size_t)sprintf(out, "↵");
    if (first < 0x20 || first == 0x7f)
        return (size_t)sprintf(out, "\\x%02x", first);
    if (first == 0xc2 && second < 0xa0)
        return (size_t)sprintf(out, "\\x%02x", second);
    memcpy(out, character, length);
    return length;
}

static char *convert(size_t *n_out, const char *bytes, size_t n_bytes, bool visible)
{
    char  *out  = hl_memory_take(GROWTH * n_bytes + 1);
    size_t used = 0;

    for (size_t at = 0; out != NULL && at < n_bytes;) {
        size_t bad    = 1;
        size_t length = character_length(bytes + at, n_bytes - at, &bad);
        if (length == 0) {
            memcpy(out + used, "\xef\xbf\xbd", 3);
            used += 3;
            at += bad;
        } else if (visible) {
            char   shown[8];
            size_t n_shown = replace_character(shown, bytes + at, length);
            memcpy(out + used, shown, n_shown);
            used += n_shown;
            at += length;
        } else {
            memcpy(out + used, bytes + at, length);
            used += length;
            at += length;
        }
    }
    if (out != NULL)
        out[used] = '\0';
    *n_out = used;
    return out;
}

char *hl_printable_utf8(size_t *n_out, const char *bytes, size_t n_bytes)
{
    return convert(n_out, bytes, n_bytes, false);
}

char *hl_printable_text(const char *bytes, size_t n_bytes)
{
    size_t length;
    return convert(&length, bytes, n_bytes, true);
}

size_t hl_printable_width(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}
