/* input.h - text from a file or from standard input: whole, by line, or as documents. */
#ifndef HL_CLI_INPUT_H
#define HL_CLI_INPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "headlight.h"

typedef struct hl_input {
    char  *bytes; /* NUL-terminated; the NUL is not counted */
    size_t n_bytes;
    size_t room; /* allocated bytes; they count for --max-memory */
} hl_input;

/* Reads a whole file, up to the length that it had at first; "-" is standard input. Pipes and
 * devices are bounded. Returns HL_EXIT_OK, or the exit status after a message in the name of
 * `command`; then out is empty. */
int hl_input_read(hl_input *out, const char *path, const char *command);
/* Replaces `line` with the next line of standard input, including its end. An empty result means
 * the end of the input. */
int  hl_input_read_line(hl_input *line, const char *command);
void hl_input_free(hl_input *input);

/* Finds the folder of the bundled models and texts: below the current folder or, relative to the
 * program, in its source tree or in share/ of an installation.  NULL: not found. */
const char *hl_bundled_models(char out[PATH_MAX]);

/* ------------------------------------------------------------------- documents */

typedef struct hl_input_document {
    char       *name; /* "emma.txt", "news.jsonl:12" */
    const char *text;
    size_t      n_bytes;
} hl_input_document;

typedef struct hl_input_documents {
    hl_input_document *items;
    int                count;
    const char        *command; /* name of the command, for messages */
    /* The texts borrow from these fields. */
    hl_input input;
    void    *lines; /* JSON values of jansson */
} hl_input_documents;

/* A file is one document, and so is each line of a file that ends in .jsonl or .ndjson: an object
 * with "text". "-" is standard input. Returns HL_EXIT_OK, or the exit status after a message. */
int  hl_input_documents_read(hl_input_documents *out, const char *path, const char *command);
void hl_input_documents_free(hl_input_documents *documents);

/* --------------------------------------- last words, to be predicted as in LAMBADA */

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
