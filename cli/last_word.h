/* last_word.h - the last words of texts, to be predicted as in LAMBADA. */
#ifndef HL_CLI_LAST_WORD_H
#define HL_CLI_LAST_WORD_H

#include <stdbool.h>

#include "headlight.h"

/* Finds the tokens [first, first + count) of an encoding that form the last word of its text: all
 * tokens that end within it. Returns false if nothing precedes the word. */
bool hl_last_word_find(size_t *first, size_t *count, const hl_encoding *encoding, const char *text,
                       size_t n_bytes);

typedef struct hl_last_words {
    hl_word_text *items;     /* (count) */
    hl_encoding **encodings; /* (count) the encodings that own the tokens */
    int64_t       count;
} hl_last_words;

/* Reads the first `most` (0: all) texts of a file, which is one text or JSONL. Texts of a single
 * word are left out. Returns HL_EXIT_OK, or the exit status after a message. */
int  hl_last_words_read(hl_last_words *out, const char *path, const hl_tokenizer *tokenizer,
                        hl_around around, int64_t most, const char *command);
void hl_last_words_free(hl_last_words *words);

#endif
