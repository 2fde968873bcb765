/* corpus_ids.c - token ids from lines of JSON, safetensors and .npy. */
#include "measure/corpus_ids.h"

#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/status.h"
#include "tokenize/buffer.h"

/* ------------------------------------------------------------------- one number */

static bool is_integer(hl_dtype dtype)
{
    return dtype >= HL_DTYPE_I8 && dtype <= HL_DTYPE_U64;
}

/* Element `index` of an integer tensor; what is beyond int64 comes back negative. */
static int64_t read_integer(const hl_tensor *tensor, int64_t index)
{
    size_t         size      = hl_dtype_bits(tensor->dtype) / 8;
    const uint8_t *bytes     = (const uint8_t *)tensor->data + (size_t)index * size;
    bool           is_signed = tensor->dtype <= HL_DTYPE_I64;
    uint64_t       value     = 0;
    uint64_t       sign      = 0; /* the top bit */

    for (size_t i = 0; i < size; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
        sign = (uint64_t)0x80 << (8 * i);
    }
    return (int64_t)(is_signed ? (value ^ sign) - sign : value);
}

static hl_status put_id(hl_ids *ids, int64_t id, int64_t n_vocab, const char *where)
{
    if (id < 0 || id >= n_vocab)
        return hl_fail(HL_BAD_INPUT, "%s: token %zu is %lld, wanted 0 to %lld", where, ids->count,
                       (long long)id, (long long)n_vocab - 1);
    hl_status status = HL_GROW(&ids->items, &ids->capacity, ids->count, 1);
    if (status == HL_OK)
        ids->items[ids->count++] = (int32_t)id;
    return status;
}

void hl_ids_free(hl_ids *ids)
{
    hl_free(ids->items);
    *ids = (hl_ids){ 0 };
}

uint64_t hl_ids_hash(const int32_t *ids, size_t n_ids)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, 2);
    for (size_t i = 0; i < n_ids; i++) {
        uint32_t id       = (uint32_t)ids[i];
        uint8_t  bytes[4] = { (uint8_t)id, (uint8_t)(id >> 8), (uint8_t)(id >> 16),
                              (uint8_t)(id >> 24) };
        hl_hash_add(&hasher, bytes, sizeof bytes);
    }
    return hl_hash_end(&hasher);
}

/* ----------------------------------------------------------------------- tables */

static hl_status check_lengths(hl_id_table *table)
{
    const hl_tensor *lengths = table->lengths;

    if (lengths == NULL)
        return HL_OK;
    if (!is_integer(lengths->dtype) || lengths->n_dims != 1 || lengths->shape[0] != table->n_rows)
        return hl_fail(HL_BAD_INPUT, "%s: 'lengths' is not %lld integers, one for each row",
                       table->path, (long long)table->n_rows);
    for (int64_t row = 0; row < table->n_rows; row++) {
        int64_t length = read_integer(lengths, row);
        if (length < 0 || length > table->n_columns)
            return hl_fail(HL_BAD_INPUT, "%s: length %lld of row %lld, wanted 0 to %lld",
                           table->path, (long long)length, (long long)row,
                           (long long)table->n_columns);
    }
    return HL_OK;
}

static hl_status check_table(hl_id_table *table)
{
    const hl_tensor *tokens = table->tokens;

    if (tokens == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: no tensor 'tokens' in it", table->path);
    if (!is_integer(tokens->dtype))
        return hl_fail(HL_BAD_INPUT, "%s: token ids of type %s, wanted integers", table->path,
                       hl_dtype_name(tokens->dtype));
    if (tokens->n_dims != 1 && tokens->n_dims != 2)
        return hl_fail(HL_BAD_INPUT, "%s: token ids of %d dimensions, wanted 1 or 2", table->path,
                       tokens->n_dims);
    table->n_rows    = tokens->n_dims == 2 ? tokens->shape[0] : 1;
    table->n_columns = tokens->shape[tokens->n_dims - 1];
    return check_lengths(table);
}

hl_status hl_id_table_open(hl_id_table *out, bool *is_table, const char *path)
{
    hl_status status = HL_OK;

    *out      = (hl_id_table){ .path = path };
    *is_table = true;
    if (hl_ends_with(path, ".npy")) {
        HL_NEED(hl_npy_open(&out->npy, path));
        out->tokens = hl_npy_tensor(out->npy);
    } else if (hl_ends_with(path, ".safetensors")) {
        HL_NEED(hl_safetensors_open(&out->safetensors, path));
        out->tokens  = hl_safetensors_find(out->safetensors, "tokens");
        out->lengths = hl_safetensors_find(out->safetensors, "lengths");
    } else {
        *is_table = false;
        return status;
    }
    HL_NEED(check_table(out));
    return status;
}

void hl_id_table_close(hl_id_table *table)
{
    hl_npy_close(table->npy);
    hl_safetensors_close(table->safetensors);
    *table = (hl_id_table){ 0 };
}

hl_status hl_ids_of_row(hl_ids *out, const hl_id_table *table, int64_t row, int64_t n_vocab)
{
    int64_t length = table->lengths != NULL ? read_integer(table->lengths, row) : table->n_columns;
    char    where[256];

    out->count = 0;
    hl_name_line(where, sizeof where, table->path, (uint64_t)row + 1);
    for (int64_t i = 0; i < length; i++) {
        int64_t   id     = read_integer(table->tokens, row * table->n_columns + i);
        hl_status status = put_id(out, id, n_vocab, where);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

hl_status hl_documents_add_rows(hl_documents *documents, const hl_id_table *table, int64_t n_vocab)
{
    hl_status status = HL_OK;
    hl_ids    ids    = { 0 };

    if (table->n_rows >= UINT32_MAX)
        return hl_fail(HL_LIMIT, "%s: %lld rows, at most %u", table->path, (long long)table->n_rows,
                       UINT32_MAX - 1);
    for (int64_t row = 0; row < table->n_rows; row++) {
        HL_TRY(hl_ids_of_row(&ids, table, row, n_vocab));
        hl_document document = { .at      = (uint64_t)row,
                                 .n_bytes = ids.count * sizeof *ids.items,
                                 .hash    = hl_ids_hash(ids.items, ids.count),
                                 .line    = (uint32_t)row + 1 };
        HL_TRY(hl_documents_add(documents, &document));
    }

done:
    hl_ids_free(&ids);
    return status;
}

/* ------------------------------------------------------------------------ lines */

hl_status hl_ids_of_line(hl_ids *out, hl_bytes line, int64_t n_vocab, const char *where)
{
    hl_status      status = HL_OK;
    hl_json_reader reader = { 0 };
    bool           more   = true;
    int64_t        id     = 0;

    out->count = 0;
    HL_TRY(hl_json_reader_open(&reader, line.data, line.n_bytes, where));
    if (hl_json_peek(&reader) != '[')
        HL_TRY(hl_fail(HL_BAD_INPUT, "%s: wanted an array of token ids", where));
    HL_TRY(hl_json_enter(&reader, '['));
    for (;;) {
        HL_TRY(hl_json_next(&reader, ']', &more));
        if (!more)
            break;
        HL_TRY(hl_json_read_int(&reader, &id));
        HL_TRY(put_id(out, id, n_vocab, where));
    }
    HL_TRY(hl_json_reader_finish(&reader));

done:
    hl_json_reader_close(&reader);
    return status;
}

static hl_status add_id_line(hl_documents *documents, hl_ids *ids, const hl_line *line,
                             int64_t n_vocab, const char *path)
{
    char where[256];

    hl_name_line(where, sizeof where, path, line->number);
    if (line->number > UINT32_MAX)
        return hl_fail(HL_LIMIT, "%s: more than %u lines", where, UINT32_MAX);
    hl_status status = hl_ids_of_line(ids, line->bytes, n_vocab, where);
    if (status != HL_OK)
        return status;
    hl_document document = { .at       = line->at,
                             .n_stored = line->bytes.n_bytes,
                             .n_bytes  = ids->count * sizeof *ids->items,
                             .hash     = hl_ids_hash(ids->items, ids->count),
                             .line     = (uint32_t)line->number };
    return hl_documents_add(documents, &document);
}

hl_status hl_documents_add_id_lines(hl_documents *documents, const hl_text_source *source,
                                    int64_t n_vocab)
{
    hl_status      status = HL_OK;
    hl_line_reader reader = { 0 };
    hl_ids         ids    = { 0 };
    hl_line        line;
    bool           more = true;

    HL_TRY(hl_line_reader_open(&reader, source));
    for (;;) {
        HL_TRY(hl_line_reader_next(&line, &more, &reader));
        if (!more)
            break;
        if (!hl_is_blank(line.bytes))
            HL_TRY(add_id_line(documents, &ids, &line, n_vocab, source->path));
    }

done:
    hl_ids_free(&ids);
    hl_line_reader_close(&reader);
    return status;
}
