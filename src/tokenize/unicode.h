/* unicode.h - properties of characters that a tokenizer needs.
 *
 * The answers come from utf8proc (Unicode 15), which only unicode.c uses.  Where
 * Rust's standard library, on which the reference implementation is built, differs,
 * this follows Rust. */
#ifndef HL_TOKENIZE_UNICODE_H
#define HL_TOKENIZE_UNICODE_H

#include "headlight/base.h"

typedef enum hl_char_class {
    HL_CHAR_WHITESPACE = 0, /* White_Space                               */
    HL_CHAR_PUNCTUATION,    /* ASCII punctuation, and all of category P  */
    HL_CHAR_NUMERIC,        /* category N                                */
    HL_CHAR_CONTROL,        /* Cc, Cf, Co                                */
    HL_CHAR_MARK,           /* category M                                */
    HL_CHAR_ACCENT,         /* Mn only                                   */
    HL_CHAR_WORD,           /* \w of a Unicode regular expression        */
    HL_CHAR_LETTER,         /* category L                                */
    HL_CHAR_UPPER,          /* Lu                                        */
    HL_CHAR_LOWER,          /* Ll                                        */
    HL_CHAR_TITLE,          /* Lt                                        */
    HL_CHAR_DECIMAL,        /* Nd                                        */
    HL_CHAR_PRINTABLE,      /* assigned; no control and no separator     */
} hl_char_class;

bool hl_char_is(hl_char_class wanted, uint32_t code_point);

/* The lowercase of a character: one or two characters. */
size_t hl_char_lowercase(uint32_t out[2], uint32_t code_point);

/* The uppercase of a character, or its form at the start of a title: one to three characters. */
size_t hl_char_uppercase(uint32_t out[3], uint32_t code_point, bool title);

/* Full decomposition, canonical or compatibility; 1 to HL_MAX_DECOMPOSITION characters. */
#define HL_MAX_DECOMPOSITION 32
size_t hl_char_decompose(uint32_t out[HL_MAX_DECOMPOSITION], uint32_t code_point, bool compatible);
int    hl_char_combining_class(uint32_t code_point);
/* The character that a base and its follower compose to; false if there is none. */
bool hl_char_compose(uint32_t *out, uint32_t base, uint32_t follower);

/* True if a grapheme (user-perceived character) ends between the two.  *state starts as 0. */
bool hl_char_grapheme_break(uint32_t left, uint32_t right, int32_t *state);

#endif
