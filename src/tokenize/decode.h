/* decode.h - from pieces back to text.
 *
 * A decoder is a list of steps; each takes a list of strings (at first one for
 * each token) and makes another.  In the end they are joined. */
#ifndef HL_TOKENIZE_DECODE_H
#define HL_TOKENIZE_DECODE_H

#include "base/buffer.h"
#include "base/json_reader.h"
#include "tokenize/budget.h"
#include "tokenize/pattern.h"

typedef enum hl_decode_kind {
    HL_DECODE_BYTE_LEVEL = 0, /* characters to the bytes they stand for; joins        */
    HL_DECODE_METASPACE,      /* content (▁) to spaces, none at the very start        */
    HL_DECODE_WORDPIECE,      /* spaces between words; content is the prefix "##"     */
    HL_DECODE_BYTE_FALLBACK,  /* <0xNN> to bytes                                      */
    HL_DECODE_FUSE,           /* joins                                                */
    HL_DECODE_STRIP,          /* up to start and stop characters `content` off        */
    HL_DECODE_REPLACE,        /* pattern or content, by other                         */
    HL_DECODE_SUFFIX,         /* content (</w>) to spaces, but for the last           */
    HL_DECODE_CTC,            /* repeats out, content (<pad>) out, other (|) to space */
} hl_decode_kind;

typedef struct hl_decode_step {
    hl_decode_kind kind;
    hl_bytes       content; /* owned, with other and pattern */
    hl_bytes       other;
    hl_pattern    *pattern;
    bool           cleanup;    /* WORDPIECE, CTC: no space before punctuation */
    bool           keep_first; /* METASPACE: at the very start too */
    size_t         start;
    size_t         stop;
} hl_decode_step;

typedef struct hl_decoder {
    hl_decode_step *steps;
    size_t          n_steps;
    size_t          capacity;
    bool            present; /* false: pieces are joined with spaces */
} hl_decoder;

/* Appends a step that owns nothing yet; what it is to own goes to where it lies then, *out. */
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

/* The text of the pieces, which are used up.  The budget bounds every list of strings on the way
 * and the text; NULL: nothing does. */
hl_status hl_decoder_run(hl_buffer *out, const hl_decoder *decoder, hl_strings *pieces,
                         hl_budget *budget);

#endif
