/* unigram.h - SentencePiece's unigram model: the most probable way to cut a word. */
#ifndef HL_TOKENIZE_UNIGRAM_H
#define HL_TOKENIZE_UNIGRAM_H

#include "base/buffer.h"
#include "tokenize/budget.h"
#include "tokenize/tokens.h"
#include "tokenize/vocab.h"

typedef struct hl_unigram hl_unigram;

/* The vocabulary is borrowed; scores (n_ids) are copied.  unknown may be -1. */
hl_status hl_unigram_new(hl_unigram **out, const hl_vocab *vocab, const double *scores,
                         int32_t unknown, bool byte_fallback);
void      hl_unigram_free(hl_unigram *unigram);
HL_CLOSES(hl_unigram_free, hl_unigram)

/* Scratch memory for encoding; starts as {0}.  Reuse it from one word to the next. */
typedef struct hl_unigram_space {
    struct hl_unigram_step *steps;
    size_t                  capacity;
    hl_tokens               backwards;
} hl_unigram_space;

void hl_unigram_space_free(hl_unigram_space *space);

/* Appends the tokens of a word, which begins at byte `at` of the text. */
hl_status hl_unigram_encode(hl_tokens *out, const hl_unigram *unigram, hl_unigram_space *space,
                            const char *word, size_t n_bytes, size_t at, hl_budget *budget);

#endif
