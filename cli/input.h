/* input.h - text from a file or from standard input: whole, by line, or as the documents that lie in
 * it. */
#ifndef HL_CLI_INPUT_H
#define HL_CLI_INPUT_H

#include <stddef.h>

typedef struct hl_input {
    char  *bytes; /* with a NUL behind it that is not counted */
    size_t n_bytes;
    size_t room; /* of the bytes: they count for --max-memory */
} hl_input;

/* All of a file, as long as it is at first; "-" is standard input.  Pipes and devices are bounded.
 * HL_EXIT_OK, or the exit status after a complaint in the name of `command`; then out is empty. */
int hl_input_read(hl_input *out, const char *path, const char *command);
/* The next line of standard input, with its end, in place of what was there; none is left where it
 * comes out empty. */
int  hl_input_read_line(hl_input *line, const char *command);
void hl_input_free(hl_input *input);

/* ------------------------------------------------------------------- documents */

typedef struct hl_input_document {
    char       *name; /* "emma.txt", "news.jsonl:12" */
    const char *text;
    size_t      n_bytes;
} hl_input_document;

typedef struct hl_input_documents {
    hl_input_document *items;
    int                count;
    const char        *command; /* that complains */
    /* What the texts are borrowed from. */
    hl_input input;
    void    *lines; /* jansson's */
} hl_input_documents;

/* A file is one document, and so is each line of a file that ends in .jsonl or .ndjson: an object
 * with "text".  "-" is standard input.  HL_EXIT_OK, or the exit status after a complaint. */
int  hl_input_documents_read(hl_input_documents *out, const char *path, const char *command);
void hl_input_documents_free(hl_input_documents *documents);

#endif
