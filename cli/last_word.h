/* last_word.h - the last words of texts, to be foretold as LAMBADA asks. */
#ifndef HL_CLI_LAST_WORD_H
#define HL_CLI_LAST_WORD_H

#include <stdbool.h>

#include "headlight.h"

/* Tokens [first, first + count) of an encoding are the last word of its text, all those that end
 * within it.  False where nothing stands before the word. */
bool hl_last_word_find(size_t *first, size_t *count, const hl_encoding *encoding, const char *text,
                       size_t n_bytes);

typedef struct hl_last_words {
    hl_word_text *items;     /* (count) */
    hl_encoding **encodings; /* (count) whose tokens they are */
    int64_t       count;
} hl_last_words;

/* Of the first `most` (0: all) texts of a file, which are whole files or lines of JSONL.  Texts
 * of one word are left out.  HL_EXIT_OK, or the exit status after a complaint. */
int  hl_last_words_read(hl_last_words *out, const char *path, const hl_tokenizer *tokenizer,
                        hl_around around, int64_t most, const char *command);
void hl_last_words_free(hl_last_words *words);

#endif
