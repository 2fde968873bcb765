/* utf8.h - UTF-8, one character at a time, and which characters are safe to show.
 *
 * "Valid" means what RFC 3629 says: no overlong forms, no surrogates, nothing
 * beyond U+10FFFF.
 *
 * Names of tensors, metadata, tokens and file names come from files that anybody may have made.
 * A terminal obeys some characters: it moves its cursor, changes its title, or reorders a line.
 * So everything that is shown of them, in error messages, tables, log lines and texts, goes
 * through hl_printable (headlight.h) first. */
#ifndef HL_BASE_UTF8_H
#define HL_BASE_UTF8_H

#include "headlight/base.h"

#define HL_UTF8_REPLACEMENT 0xfffdU

/* The offset of the first byte that is not part of a valid character; n_bytes if
 * the whole text is valid. */
size_t hl_utf8_find_bad(const char *text, size_t n_bytes);

/* The length of the valid character at the start of the text, 1 to 4; 0 if the
 * text does not start with one (or is empty). */
size_t hl_utf8_length(const char *text, size_t n_bytes);

/* Writes 1 to 4 bytes and returns their number. */
size_t hl_utf8_encode(char out[4], uint32_t code_point);

/* The number of bytes, 0 to 3, at the end of the text that begin a character
 * whose other bytes may still follow. */
size_t hl_utf8_incomplete(const char *text, size_t n_bytes);

/* The character at text[*at], in valid text; moves *at past it. */
static inline uint32_t hl_utf8_next(const char *text, size_t *at)
{
    const unsigned char *b = (const unsigned char *)text + *at;

    if (b[0] < 0x80) {
        *at += 1;
        return b[0];
    }
    if (b[0] < 0xe0) {
        *at += 2;
        return (b[0] & 0x1fU) << 6 | (b[1] & 0x3fU);
    }
    if (b[0] < 0xf0) {
        *at += 3;
        return (b[0] & 0x0fU) << 12 | (b[1] & 0x3fU) << 6 | (b[2] & 0x3fU);
    }
    *at += 4;
    return (b[0] & 0x07U) << 18 | (b[1] & 0x3fU) << 12 | (b[2] & 0x3fU) << 6 | (b[3] & 0x3fU);
}

static inline bool hl_utf8_is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* The number of characters of a valid text. */
size_t hl_utf8_count(const char *text, size_t n_bytes);

/* ------------------------------------------------------------------------------ text to be shown */

/* True for controls (C0, DEL, C1 and bidirectional), which a terminal would obey instead of
 * showing, and for invisible characters: soft hyphens, zero-width spaces, byte order marks and
 * line separators.  False for joiners (U+200C, U+200D): emoji and several scripts need them. */
bool hl_character_is_unseen(uint32_t c);

#endif
