/* mapped_text.h - text that remembers where it came from.
 *
 * Normalizing changes text, but tokens must point into what the user gave.  So
 * every byte of a hl_mapped_text has an origin: the span of original bytes that it
 * stands for, always whole characters.
 *
 *     original    C a f é           (é is two bytes, 3..5)
 *     normalized  c a f e           the last byte has origin 3..5
 *
 * As long as nothing changed there is no table (align is NULL), and the origin
 * of a byte is simply its own character, `origin` bytes further on.
 *
 * A change is written with a hl_transform, one character at a time, in the same
 * terms as the reference implementation, so that both give the same origins:
 *
 *     put(c,  0)   c replaces the next character
 *     put(c, +1)   c is inserted; it shares the origin of what came before
 *     put(c, -n)   c replaces the next character and n more disappear */
#ifndef HL_TOKENIZE_MAPPED_TEXT_H
#define HL_TOKENIZE_MAPPED_TEXT_H

#include "headlight/tokenizer.h"
#include "tokenize/budget.h"

#define HL_MAX_MAPPED_TEXT 0x7fffffffU /* bytes of one text */

typedef struct hl_origin {
    uint32_t begin;
    uint32_t end;
} hl_origin;

/* A view of a text.  It is valid UTF-8, except for the raw bytes that pretokenize.c puts back. */
typedef struct hl_mapped_text {
    const char      *bytes;
    size_t           n_bytes;
    const hl_origin *align; /* (n_bytes), or NULL: nothing changed */
    size_t           origin;
    const char      *original; /* the text that origins are offsets in */
} hl_mapped_text;

/* Text under construction. */
typedef struct hl_mapped_text_builder {
    char      *bytes;
    hl_origin *align; /* (capacity) */
    size_t     n_bytes;
    size_t     bytes_capacity;
    size_t     align_capacity;
    hl_budget *budget; /* bounds the text; NULL: the only bound is HL_MAX_MAPPED_TEXT */
} hl_mapped_text_builder;

void hl_mapped_text_builder_free(hl_mapped_text_builder *builder);
/* Appends bytes that all have one origin. */
hl_status hl_mapped_text_builder_add(hl_mapped_text_builder *builder, const char *bytes,
                                     size_t n_bytes, hl_origin origin);
/* Appends a part of a text with its origins. */
hl_status hl_mapped_text_builder_copy(hl_mapped_text_builder *builder, const hl_mapped_text *from,
                                      size_t begin, size_t end);
/* The text that has been built from another text. */
hl_mapped_text hl_mapped_text_built(const hl_mapped_text_builder *builder,
                                    const hl_mapped_text         *from);

/* The part [begin, end) of a text. */
hl_mapped_text hl_mapped_text_slice(const hl_mapped_text *text, size_t begin, size_t end);
/* The original bytes that the (non-empty) part [begin, end) stands for. */
hl_span hl_mapped_text_origin(const hl_mapped_text *text, size_t begin, size_t end);

/* The text as given, or, if it is not valid UTF-8, a copy in `builder` with every invalid byte
 * replaced by U+FFFD.  Such a stand-in is recognized by its origin, which is one byte long. */
hl_status hl_mapped_text_from_bytes(hl_mapped_text *out, hl_mapped_text_builder *builder,
                                    const char *bytes, size_t n_bytes);
/* True if the character at this byte is a stand-in for an invalid byte. */
bool hl_mapped_text_is_stand_in(const hl_mapped_text *text, size_t at);

typedef struct hl_transform {
    const hl_mapped_text   *from;
    size_t                  at; /* the next byte of from that has not been consumed */
    hl_mapped_text_builder *to; /* emptied by hl_transform_begin */
    hl_status               status;
} hl_transform;

hl_transform hl_transform_begin(const hl_mapped_text *from, hl_mapped_text_builder *to);
void         hl_transform_put(hl_transform *transform, uint32_t code_point, int change);
/* Copies everything up to byte `end` of the old text unchanged. */
void hl_transform_keep(hl_transform *transform, size_t end);
/* Drops n_characters at the start of the old text. */
void hl_transform_drop(hl_transform *transform, size_t n_characters);
/* The transformed text, or the old one if nothing changed. */
hl_status hl_transform_end(hl_mapped_text *out, const hl_transform *transform);

#endif
