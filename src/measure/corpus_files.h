/* corpus_files.h - from the names a user gives to the list of files that are meant. */
#ifndef HL_MEASURE_CORPUS_FILES_H
#define HL_MEASURE_CORPUS_FILES_H

#include "headlight.h"
#include "measure/corpus_source.h"

typedef struct hl_text_files {
    hl_text_file *items;
    size_t        count;
    size_t        capacity;
    int64_t       n_skipped;
    char         *first_skipped; /* NULL: none */
} hl_text_files;

/* Appends the files that an input stands for (headlight.h has the rules).  HL_NOT_FOUND
 * where there is no such file, HL_BAD_INPUT for a folder or pattern with nothing to read. */
hl_status hl_text_files_add(hl_text_files *files, const char *input, hl_text_format format);
void      hl_text_files_free(hl_text_files *files);

#endif
