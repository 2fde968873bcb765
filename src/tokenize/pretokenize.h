/* pretokenize.h - splitting normalized text into words.
 *
 * A pre-tokenizer is a list of steps.  Each looks at the parts that the steps
 * before it made, every part as a text of its own, and splits them further;
 * some also change the text.  Sequences are flattened when a file is read. */
#ifndef HL_TOKENIZE_PRETOKENIZE_H
#define HL_TOKENIZE_PRETOKENIZE_H

#include "base/json_reader.h"
#include "tokenize/mapped_text.h"
#include "tokenize/pattern.h"

typedef enum hl_split_kind {
    HL_SPLIT_PATTERN = 0, /* at the matches of a regular expression    */
    HL_SPLIT_LITERAL,     /* at the occurrences of a string            */
    HL_SPLIT_CLASS,       /* at single characters of a class           */
    HL_SPLIT_LENGTH,      /* into parts of `length` characters         */
    HL_SPLIT_SCRIPT,      /* where the script changes                  */
    HL_SPLIT_METASPACE,   /* spaces become ▁ and start words           */
    HL_SPLIT_BYTE_LEVEL,  /* bytes are spelled as characters           */
} hl_split_kind;

/* What happens to a match.  The examples split "the-final--countdown" at "-". */
typedef enum hl_split_behavior {
    HL_SPLIT_REMOVED = 0,          /* the final countdown         */
    HL_SPLIT_ISOLATED,             /* the - final - - countdown   */
    HL_SPLIT_MERGED_WITH_PREVIOUS, /* the- final- - countdown     */
    HL_SPLIT_MERGED_WITH_NEXT,     /* the -final - -countdown     */
    HL_SPLIT_CONTIGUOUS,           /* the - final -- countdown    */
} hl_split_behavior;

typedef enum hl_prepend { HL_PREPEND_ALWAYS = 0, HL_PREPEND_FIRST, HL_PREPEND_NEVER } hl_prepend;

typedef struct hl_split_step {
    hl_split_kind     kind;
    hl_split_behavior behavior;
    bool              invert;  /* the text between matches counts as the match */
    hl_pattern       *pattern; /* owned */
    hl_bytes          literal; /* owned; METASPACE: the replacement of a space */
    int               char_class;
    size_t            length;
    hl_prepend        prepend;      /* METASPACE  */
    bool              split;        /* METASPACE  */
    bool              prefix_space; /* BYTE_LEVEL */
    bool              keep_bytes;   /* BYTE_LEVEL: do not spell bytes; the model takes them raw */
} hl_split_step;

typedef struct hl_pretokenizer {
    hl_split_step *steps;
    size_t         n_steps;
    size_t         capacity;
} hl_pretokenizer;

/* Appends a step that owns nothing yet.  *out points to the stored step; the caller then stores in
 * it what it will own. */
hl_status hl_pretokenizer_add(hl_split_step **out, hl_pretokenizer *pretokenizer,
                              hl_split_step step);
void      hl_pretokenizer_free(hl_pretokenizer *pretokenizer);

typedef struct hl_part {
    uint32_t begin;
    uint32_t end;
} hl_part;

typedef struct hl_parts {
    hl_part *items;
    size_t   count;
    size_t   capacity;
} hl_parts;

/* Scratch memory, reused from one text to the next; starts as {0}. */
typedef struct hl_split_space {
    hl_mapped_text_builder builders[2];
    hl_parts               parts[2];
} hl_split_space;

void hl_split_space_free(hl_split_space *space);

/* Splits *text into parts, in order and never empty.  If a step changes the text, *text is
 * replaced. *text and *out are valid until the space is used again. */
hl_status hl_pretokenizer_run(const hl_parts **out, hl_mapped_text *text,
                              const hl_pretokenizer *pre, hl_split_space *space,
                              hl_matcher *matcher);

/* The pattern that HL_SPLIT_SCRIPT needs. */
hl_status hl_script_pattern_new(hl_pattern **out);
/* The expression with which GPT-2 splits words. */
#define HL_GPT2_PATTERN                                                                            \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#endif
