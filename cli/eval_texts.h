/* eval_texts.h - documents that are read whole: files, or lines of JSONL files. */
#ifndef HL_CLI_EVAL_TEXTS_H
#define HL_CLI_EVAL_TEXTS_H

#include <stddef.h>

#include "input.h"

typedef struct hl_eval_document {
    char       *name; /* "emma.txt", "news.jsonl:12" */
    const char *text;
    size_t      n_bytes;
} hl_eval_document;

typedef struct hl_eval_documents {
    hl_eval_document *items;
    int               count;
    const char       *command; /* that complains */
    /* What the texts are borrowed from. */
    hl_input input;
    void    *lines; /* jansson's */
} hl_eval_documents;

/* A file is one document, and so is each line of a file that ends in .jsonl or .ndjson: an object
 * with "text".  "-" is standard input.  HL_EXIT_OK, or the exit status after a complaint. */
int  hl_eval_documents_read(hl_eval_documents *out, const char *path, const char *command);
void hl_eval_documents_free(hl_eval_documents *documents);

#endif
