/* added.h - tokens that are found in the text before the model sees it, such as "<|endoftext|>".
 *
 * Tokens that are not `normalized` are looked for in the text as given, the others
 * after normalizing.  The leftmost match counts, and of several matches that start
 * at the same place, the longest. */
#ifndef HL_TOKENIZE_ADDED_H
#define HL_TOKENIZE_ADDED_H

#include "tokenize/mapped_text.h"
#include "tokenize/normalize.h"
#include "tokenize/vocab.h"

typedef struct hl_added_token {
    int32_t  id;
    hl_bytes content;     /* owned */
    bool     single_word; /* matches only with no letter beside it  */
    bool     strip_left;  /* also consumes white space before it    */
    bool     strip_right; /* also consumes white space after it     */
    bool     normalized;
    bool     special;
} hl_added_token;

typedef struct hl_added {
    hl_added_token *items;
    size_t          count;
    size_t          capacity;
    hl_prefixes     as_given; /* ids are indices of items */
    hl_prefixes     after_normalizing;
} hl_added;

/* Copies the content. */
hl_status hl_added_add(hl_added *added, hl_added_token token);
/* Call after the last token is added: normalizes the `normalized` tokens, and sorts all. */
hl_status hl_added_finish(hl_added *added, const hl_normalizer *normalizer);
void      hl_added_free(hl_added *added);

/* A stretch of text: an added token, or (item -1) text between added tokens. */
typedef struct hl_stretch {
    hl_span span;
    int     item;
} hl_stretch;

typedef struct hl_stretches {
    hl_stretch *items;
    size_t      count;
    size_t      capacity;
} hl_stretches;

/* Limits where special tokens are recognized. */
typedef struct hl_added_filter {
    bool                plain; /* recognize them nowhere */
    const hl_chat_part *parts; /* recognize only in the template's parts; NULL: anywhere */
    size_t              n_parts;
} hl_added_filter;

/* Cuts a text into stretches: in order, adjacent, and never empty. */
hl_status hl_added_split(hl_stretches *out, const hl_added *added, const hl_prefixes *set,
                         const hl_mapped_text *text, const hl_added_filter *filter,
                         hl_budget *budget);

#endif
