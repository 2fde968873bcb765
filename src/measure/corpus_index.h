/* corpus_index.h - the list of documents: where each lies, how long it is, what it holds.
 *
 * Made in one pass over the files, which also finds whatever is wrong with them. */
#ifndef HL_MEASURE_CORPUS_INDEX_H
#define HL_MEASURE_CORPUS_INDEX_H

#include "headlight.h"
#include "measure/corpus_source.h"
#include "measure/corpus_types.h"

typedef struct hl_document {
    uint64_t at;       /* of the file: its first byte, or that of its line */
    uint64_t n_stored; /* bytes there */
    uint64_t n_bytes;  /* of text */
    uint64_t hash;
    uint32_t file;
    uint32_t line; /* from 1; 0: the whole file */
} hl_document;

typedef struct hl_documents {
    hl_document *items;
    size_t       count;
    size_t       capacity;
    int64_t      n_empty;
} hl_documents;

/* One without text only counts as empty. */
hl_status hl_documents_add(hl_documents *documents, const hl_document *document);
void      hl_documents_free(hl_documents *documents);

/* A file as one document. */
hl_status hl_documents_add_text(hl_documents *documents, const hl_text_source *source,
                                uint32_t file);
/* Each line of a JSONL file, blank ones aside; their types go to the table. */
hl_status hl_documents_add_lines(hl_documents *documents, hl_types *types,
                                 const hl_text_source *source, uint32_t file, const char *field);

/* Keeps n_sample of them, or all if there are no more: those whose hashes with the seed are
 * smallest, in the order they had. */
hl_status hl_documents_sample(hl_documents *documents, int64_t n_sample, uint64_t seed);

/* "PATH:LINE", or "PATH" for line 0. */
void hl_name_line(char *out, size_t n_bytes, const char *path, uint64_t line);

#endif
