/* decode.h - from pieces back to text.
 *
 * A decoder is a list of steps.  Each step turns a list of strings into another;
 * the first list has one string per token, and the last one is joined. */
#ifndef HL_TOKENIZE_DECODE_H
#define HL_TOKENIZE_DECODE_H

#include "base/buffer.h"
#include "base/json_reader.h"
#include "tokenize/budget.h"
#include "tokenize/pattern.h"

typedef enum hl_decode_kind {
    HL_DECODE_BYTE_LEVEL = 0, /* joins; characters become the bytes they stand for    */
    HL_DECODE_METASPACE,      /* content (▁) becomes a space, dropped at the start    */
    HL_DECODE_WORDPIECE,      /* puts spaces between words; content is the "##" prefix*/
    HL_DECODE_BYTE_FALLBACK,  /* <0xNN> becomes a byte                                */
    HL_DECODE_FUSE,           /* joins                                                */
    HL_DECODE_STRIP,          /* removes up to start and stop characters `content`    */
    HL_DECODE_REPLACE,        /* replaces pattern or content by other                 */
    HL_DECODE_SUFFIX,         /* content (</w>) becomes a space, except in the last string */
    HL_DECODE_CTC,            /* drops repeats and content (<pad>); `other` (|) becomes a space */
} hl_decode_kind;

typedef struct hl_decode_step {
    hl_decode_kind kind;
    hl_bytes       content; /* owned, like other and pattern */
    hl_bytes       other;
    hl_pattern    *pattern;
    bool           cleanup;    /* WORDPIECE, CTC: no space before punctuation */
    bool           keep_first; /* METASPACE: keep the space at the start */
    size_t         start;
    size_t         stop;
} hl_decode_step;

typedef struct hl_decoder {
    hl_decode_step *steps;
    size_t          n_steps;
    size_t          capacity;
    bool            present; /* false: pieces are joined with spaces */
} hl_decoder;

/* Appends a step that owns nothing yet.  *out points to the stored step; the caller then stores in
 * it what it will own. */
hl_status hl_decoder_add(hl_decode_step **out, hl_decoder *decoder, hl_decode_step step);
void      hl_decoder_free(hl_decoder *decoder);

/* A list of strings in one block; starts as {0}. */
typedef struct hl_strings {
    hl_buffer bytes;
    size_t   *ends; /* (count) */
    size_t    count;
    size_t    capacity;
} hl_strings;

hl_status hl_strings_add(hl_strings *strings, hl_bytes text);
void      hl_strings_free(hl_strings *strings);

/* Writes the text of the pieces, and uses up the list.  The budget bounds every intermediate list
 * of strings and the text; NULL: no bound. */
hl_status hl_decoder_run(hl_buffer *out, const hl_decoder *decoder, hl_strings *pieces,
                         hl_budget *budget);

#endif
