/* normalize.h - changes to a text before it is split.
 *
 * A normalizer is a list of steps; nested sequences of a tokenizer.json are
 * flattened when it is read (pipeline_json.c). */
#ifndef HL_TOKENIZE_NORMALIZE_H
#define HL_TOKENIZE_NORMALIZE_H

#include "base/buffer.h"
#include "base/json_reader.h"
#include "tokenize/mapped_text.h"
#include "tokenize/pattern.h"

typedef enum hl_normalize_kind {
    HL_NORMALIZE_FORM, /* compose, compatible                            */
    HL_NORMALIZE_LOWERCASE,
    HL_NORMALIZE_REMOVE,  /* removes the characters of a class              */
    HL_NORMALIZE_CLEAN,   /* BERT: drops controls, makes all spaces plain   */
    HL_NORMALIZE_CHINESE, /* BERT: spaces around ideographs                 */
    HL_NORMALIZE_NMT,     /* drops some controls, makes others spaces       */
    HL_NORMALIZE_STRIP,   /* removes white space: left, right               */
    HL_NORMALIZE_PREPEND, /* puts content before the text                   */
    HL_NORMALIZE_REPLACE, /* replaces pattern or needle by content          */
    HL_NORMALIZE_CHARSMAP,
    HL_NORMALIZE_BYTE_LEVEL, /* spells bytes as GPT-2 does                     */
} hl_normalize_kind;

/* SentencePiece's precompiled rules. */
typedef struct hl_charsmap hl_charsmap;

typedef struct hl_normalize_step {
    hl_normalize_kind kind;
    bool              compose;
    bool              compatible;
    bool              left;
    bool              right;
    int               char_class; /* an hl_char_class */
    hl_bytes          needle;     /* owned, like content, pattern and charsmap */
    hl_bytes          content;
    hl_pattern       *pattern;
    hl_charsmap      *charsmap;
} hl_normalize_step;

typedef struct hl_normalizer {
    hl_normalize_step *steps;
    size_t             n_steps;
    size_t             capacity;
} hl_normalizer;

/* Appends a step that owns nothing yet.  *out points to the stored step; the caller then stores in
 * it what it will own. */
hl_status hl_normalizer_add(hl_normalize_step **out, hl_normalizer *normalizer,
                            hl_normalize_step step);
void      hl_normalizer_free(hl_normalizer *normalizer);

/* Normalizes *text.  Changed text is stored in the builders, which take turns. */
hl_status hl_normalizer_run(hl_mapped_text *text, const hl_normalizer *normalizer,
                            hl_mapped_text_builder builders[2], hl_matcher *matcher);

/* --------------------------------------------------- SentencePiece's rules */

/* Creates rules from their binary form, which is copied, or from its base64. */
hl_status hl_charsmap_new(hl_charsmap **out, const uint8_t *blob, size_t n_bytes);
hl_status hl_charsmap_from_base64(hl_charsmap **out, const char *text);
void      hl_charsmap_free(hl_charsmap *map);
HL_CLOSES(hl_charsmap_free, hl_charsmap)
/* Appends the binary rules that the map was made from. */
hl_status hl_charsmap_write(hl_buffer *out, const hl_charsmap *map);

hl_status hl_charsmap_apply(hl_mapped_text *out, hl_mapped_text_builder *builder,
                            const hl_mapped_text *text, const hl_charsmap *map);

#endif
