/* corpus_ids.h - documents that come as token ids: lines of JSON, or a table. */
#ifndef HL_MEASURE_CORPUS_IDS_H
#define HL_MEASURE_CORPUS_IDS_H

#include "base/json_reader.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "headlight.h"
#include "measure/corpus_index.h"

typedef struct hl_ids {
    int32_t *items;
    size_t   count;
    size_t   capacity;
} hl_ids;

/* `tokens` (n_rows, n_columns) of a .safetensors or .npy file; rows may be shorter. */
typedef struct hl_id_table {
    hl_npy          *npy;
    hl_safetensors  *safetensors;
    const char      *path; /* borrowed */
    const hl_tensor *tokens;
    const hl_tensor *lengths; /* (n_rows); NULL: n_columns each */
    int64_t          n_rows;
    int64_t          n_columns;
} hl_id_table;

/* *is_table is false, and nothing is opened, for a file of another kind. */
hl_status hl_id_table_open(hl_id_table *out, bool *is_table, const char *path);
void      hl_id_table_close(hl_id_table *table);

/* The ids of a row, and of a line that is a JSON array: all from 0 to n_vocab - 1. */
hl_status hl_ids_of_row(hl_ids *out, const hl_id_table *table, int64_t row, int64_t n_vocab);
hl_status hl_ids_of_line(hl_ids *out, hl_bytes line, int64_t n_vocab, const char *where);
void      hl_ids_free(hl_ids *ids);
uint64_t  hl_ids_hash(const int32_t *ids, size_t n_ids);

/* A document for each row or line. */
hl_status hl_documents_add_rows(hl_documents *documents, const hl_id_table *table, int64_t n_vocab);
hl_status hl_documents_add_id_lines(hl_documents *documents, const hl_text_source *source,
                                    int64_t n_vocab);

#endif
