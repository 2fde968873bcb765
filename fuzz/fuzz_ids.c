/* fuzz_ids.c - arbitrary bytes as token ids: a .npy file, a .safetensors file, and lines.
 *
 * They are refused with a message.  Otherwise each row is refused, or has ids below the limit and
 * the length that the table gives. */
#include "fuzz_file.h"
#include "measure/corpus_parts.h"

enum { N_VOCAB = 1000, MAX_ROWS = 100 };

static void read_rows(const hl_id_table *table)
{
    hl_ids ids = { 0 };

    for (int64_t row = 0; row < table->n_rows && row < MAX_ROWS; row++) {
        if (hl_ids_of_row(&ids, table, row, N_VOCAB) != HL_OK) {
            PROMISE(hl_error_message()[0] != '\0');
            continue;
        }
        PROMISE((int64_t)ids.count <= table->n_columns);
        for (size_t i = 0; i < ids.count; i++)
            PROMISE(ids.items[i] >= 0 && ids.items[i] < N_VOCAB);
        (void)hl_ids_hash(ids.items, ids.count);
    }
    hl_ids_free(&ids);
}

static void read_lines(const char *path)
{
    hl_documents   documents = { 0 };
    hl_text_source source    = { 0 };
    hl_text_file   file      = { .path = (char *)path, .descriptor = -1 };

    PROMISE(hl_text_source_open(&source, &file) == HL_OK);
    if (hl_documents_add_id_lines(&documents, &source, N_VOCAB) != HL_OK)
        PROMISE(hl_error_message()[0] != '\0');
    hl_documents_free(&documents);
    hl_text_source_close(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static const char *const names[] = { "ids.npy", "ids.safetensors", "ids.jsonl" };

    for (int i = 0; i < 3; i++) {
        bool         is_table  = false;
        hl_id_table  table     = { 0 };
        hl_documents documents = { 0 };
        const char  *path      = fuzz_file(names[i], bytes, n_bytes);

        if (hl_id_table_open(&table, &is_table, path) == HL_OK) {
            PROMISE(is_table == (i < 2));
            read_rows(&table);
            if (is_table && table.n_rows < MAX_ROWS)
                (void)hl_documents_add_rows(&documents, &table, N_VOCAB);
            hl_documents_free(&documents);
        } else {
            PROMISE(hl_error_message()[0] != '\0');
        }
        hl_id_table_close(&table);
        if (i == 2)
            read_lines(path);
    }
    return 0;
}
