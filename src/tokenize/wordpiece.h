/* wordpiece.h - WordPiece (BERT), and whole words (WordLevel). */
#ifndef HL_TOKENIZE_WORDPIECE_H
#define HL_TOKENIZE_WORDPIECE_H

#include "base/buffer.h"
#include "tokenize/budget.h"
#include "tokenize/tokens.h"
#include "tokenize/vocab.h"

typedef struct hl_wordpiece {
    const hl_vocab *vocab; /* borrowed */
    int32_t         unknown;
    hl_bytes        prefix;         /* prefix of pieces that do not begin a word; owned */
    size_t          max_characters; /* longer words are unknown */
    bool            whole_words;    /* WordLevel */
} hl_wordpiece;

/* Appends the tokens of a word, which begins at byte `at` of the text. */
hl_status hl_wordpiece_encode(hl_tokens *out, const hl_wordpiece *model, const char *word,
                              size_t n_bytes, size_t at, hl_budget *budget);

#endif
