/* corpus_documents.c - one pass over all files: check, hash, remember where.
 *
 * A document is a text file, a line of a JSONL file, or token ids: a line of JSON, or a row of
 * a table in a safetensors or .npy file. */
#include "measure/corpus_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "tokenize/jinja.h"

#define STEP 256 /* number of characters between two remembered places */

/* ------------------------------------------------------------ records: spans */

/* The bytes at which every STEP-th character of a text begins. */
typedef struct char_places {
    hl_bytes text;
    size_t  *places; /* (n_chars / STEP + 1) */
    size_t   n_chars;
} char_places;

static size_t count_chars(hl_bytes text)
{
    size_t count = 0;

    for (size_t i = 0; i < text.n_bytes; i++)
        count += !hl_utf8_is_continuation(text.data[i]);
    return count;
}

static hl_status find_places(char_places *out, hl_bytes text)
{
    *out = (char_places){ .text = text, .n_chars = count_chars(text) };

    HL_NEED(HL_ALLOC(&out->places, out->n_chars / STEP + 1));
    size_t at = 0;
    for (size_t i = 0; i < out->n_chars; i++) {
        if (i % STEP == 0)
            out->places[i / STEP] = at;
        hl_utf8_next(text.data, &at);
    }
    if (out->n_chars % STEP == 0)
        out->places[out->n_chars / STEP] = at;
    return HL_OK;
}

/* Returns the byte at which a character begins. */
static size_t place_of(const char_places *places, size_t character)
{
    size_t at = places->places[character / STEP];

    for (size_t i = character / STEP * STEP; i < character; i++)
        hl_utf8_next(places->text.data, &at);
    return at;
}

static hl_status parse_span(hl_record_span *out, const json_t *value, const char_places *places,
                            size_t index, const char *where)
{
    int64_t start = -1, end = -1;

    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s: span %zu is %s, wanted an object", where, index,
                       hl_json_kind(value));
    HL_NEED(hl_json_get_int(&start, value, "start", where));
    HL_NEED(hl_json_get_int(&end, value, "end", where));
    HL_NEED(hl_json_get_string(&out->type, value, "type", where));
    if (out->type == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: span %zu has no 'type'", where, index);
    if (start < 0 || end < start || (uint64_t)end > places->n_chars)
        return hl_fail(HL_BAD_INPUT, "%s: span %zu: characters %lld to %lld of a text of %zu",
                       where, index, (long long)start, (long long)end, places->n_chars);
    out->span = (hl_span){ place_of(places, (size_t)start), place_of(places, (size_t)end) };
    return HL_OK;
}

static hl_status parse_spans(hl_record *record, const char *where)
{
    hl_status     status = HL_OK;
    char_places   places = { 0 };
    const json_t *spans  = json_object_get(record->value, "spans");

    if (spans == NULL || json_is_null(spans))
        return HL_OK;
    if (!json_is_array(spans))
        return hl_fail(HL_BAD_INPUT, "%s: 'spans' is %s, wanted an array", where,
                       hl_json_kind(spans));
    HL_TRY(find_places(&places, record->text));
    HL_TRY(HL_ALLOC_ZEROED(&record->spans, json_array_size(spans)));
    for (size_t i = 0; i < json_array_size(spans); i++) {
        HL_TRY(parse_span(&record->spans[i], json_array_get(spans, i), &places, i, where));
        record->n_spans++;
    }

done:
    hl_free(places.places);
    return status;
}

/* ------------------------------------------------------------ records: chats */

/* What a message holds beside a text: white space between members does not count. */
static hl_status check_content(const json_t *content, size_t message, const char *where)
{
    if (content != NULL && !json_is_null(content) && !json_is_string(content) &&
        !json_is_array(content))
        return hl_fail(HL_BAD_INPUT, "%s: message %zu: 'content' is %s, wanted a string", where,
                       message, hl_json_kind(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        if (!json_is_string(json_object_get(json_array_get(content, i), "text")))
            return hl_fail(HL_UNSUPPORTED, "%s: message %zu: a part of its content is not text",
                           where, message);
    }
    return HL_OK;
}

static hl_status check_message(hl_record *record, const json_t *value, size_t index,
                               const char *where)
{
    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s: message %zu is %s, wanted an object", where, index,
                       hl_json_kind(value));
    const char *role = json_string_value(json_object_get(value, "role"));
    if (role == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: message %zu has no 'role'", where, index);
    record->has_tool = record->has_tool || hl_chat_role_of(role) == HL_ROLE_TOOL;
    return check_content(json_object_get(value, "content"), index, where);
}

static hl_status parse_messages(hl_record *record, const json_t *messages, const char *where)
{
    if (json_object_get(record->value, "spans") != NULL)
        return hl_fail(HL_UNSUPPORTED, "%s: 'spans' are of a text, and this is a chat", where);
    for (size_t i = 0; i < json_array_size(messages); i++)
        HL_NEED(check_message(record, json_array_get(messages, i), i, where));
    record->chat = messages;
    return HL_OK;
}

hl_status hl_record_variables(json_t **out, const hl_record *record)
{
    static const char *const names[]   = { "tools", "documents" };
    json_t                  *kwargs    = json_object_get(record->value, "chat_template_kwargs");
    json_t                  *variables = json_is_object(kwargs) ? json_copy(kwargs) : json_object();

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(record->value, names[i]);
        if (value != NULL)
            hl_json_put(&variables, names[i], json_incref(value));
    }
    *out = variables;
    return variables != NULL ? HL_OK
                             : hl_fail(HL_NO_MEMORY, "no memory for a template's variables");
}

/* --------------------------------------------------------- records: the line */

static hl_status parse_value(hl_record *record, const char *field, const char *where)
{
    const char   *wanted = field != NULL ? field : "text";
    const json_t *object = record->value;

    if (!json_is_object(object))
        return hl_fail(HL_BAD_INPUT, "%s: is %s, wanted an object", where, hl_json_kind(object));
    const json_t *value = json_object_get(object, wanted);
    if (value == NULL && field == NULL)
        value = json_object_get(object, "messages");
    if (value == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: no '%s'%s in this line", where, wanted,
                       field == NULL ? " and no 'messages'" : "");
    if (json_is_array(value))
        return parse_messages(record, value, where);
    if (!json_is_string(value))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %s, wanted a string or an array of messages",
                       where, wanted, hl_json_kind(value));
    record->text = (hl_bytes){ json_string_value(value), json_string_length(value) };
    return parse_spans(record, where);
}

hl_status hl_record_parse(hl_record *out, hl_bytes line, const char *field, const char *where)
{
    *out             = (hl_record){ 0 };
    hl_status status = hl_json_parse(&out->value, line.data, line.n_bytes, where);

    if (status == HL_OK)
        status = parse_value(out, field, where);
    if (status != HL_OK)
        hl_record_free(out);
    return status;
}

void hl_record_free(hl_record *record)
{
    hl_free(record->spans);
    json_decref(record->value);
    *record = (hl_record){ 0 };
}

/* Adds the text of a message.  Messages with nothing but a role and a text are hashed by these two;
 * other members count as compact JSON with sorted keys. */
static size_t add_message(hl_hasher *hasher, const json_t *message)
{
    const char    *role    = json_string_value(json_object_get(message, "role"));
    const json_t  *value   = json_object_get(message, "content");
    const char    *content = json_string_value(value);
    HL_FREED char *all     = NULL;
    size_t         n_bytes = 0;

    hl_hash_add(hasher, role, strlen(role) + 1);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *part = json_object_get(json_array_get(value, i), "text");
        hl_hash_add(hasher, json_string_value(part), json_string_length(part));
        n_bytes += json_string_length(part);
    }
    if (content != NULL)
        hl_hash_add(hasher, content, strlen(content));
    hl_hash_add(hasher, "", 1);
    n_bytes += content != NULL ? strlen(content) : 0;
    if (json_object_size(message) > 2 &&
        (all = hl_json_dump(message, JSON_COMPACT | JSON_SORT_KEYS)) != NULL) {
        hl_hash_add(hasher, all, strlen(all));
        n_bytes += strlen(all);
    }
    return n_bytes;
}

static uint64_t hash_chat(size_t *n_bytes, const hl_record *record)
{
    hl_hasher                      hasher;
    HL_CLOSED(json_decref) json_t *variables = NULL;

    *n_bytes = 0;
    hl_hash_start(&hasher, 1);
    for (size_t i = 0; i < json_array_size(record->chat); i++)
        *n_bytes += add_message(&hasher, json_array_get(record->chat, i));
    if (hl_record_variables(&variables, record) == HL_OK && json_object_size(variables) > 0) {
        HL_FREED char *text = hl_json_dump(variables, JSON_COMPACT | JSON_SORT_KEYS);
        hl_hash_add(&hasher, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
    }
    return hl_hash_end(&hasher);
}

uint64_t hl_record_hash(const hl_record *record)
{
    size_t n_bytes = 0;

    return record->chat != NULL ? hash_chat(&n_bytes, record)
                                : hl_hash(record->text.data, record->text.n_bytes, 0);
}

size_t hl_record_bytes(const hl_record *record)
{
    size_t n_bytes = record->text.n_bytes;

    if (record->chat != NULL)
        (void)hash_chat(&n_bytes, record);
    return n_bytes;
}

/* ----------------------------------------------------------------- documents */

#define BLOCK     ((size_t)1 << 18)
#define MAX_CARRY 3 /* largest number of bytes of a character that continues in the next block */

void hl_name_line(char *out, size_t n_bytes, const char *path, uint64_t line)
{
    char number[24] = "";

    if (line > 0)
        snprintf(number, sizeof number, ":%llu", (unsigned long long)line);
    /* A path that is too long is shortened at its start, which says less than its end. */
    size_t room   = n_bytes - 1 - strlen(number);
    size_t length = strlen(path);
    snprintf(out, n_bytes, "%s%s", length > room ? path + (length - room) : path, number);
}

/* Adds a document; one without text is only counted as empty. */
static hl_status documents_add(hl_documents *documents, const hl_document *document)
{
    if (document->n_bytes == 0) {
        documents->n_empty++;
        return HL_OK;
    }
    hl_status status = HL_GROW(&documents->items, &documents->capacity, documents->count, 1);
    if (status == HL_OK)
        documents->items[documents->count++] = *document;
    return status;
}

void hl_documents_free(hl_documents *documents)
{
    hl_free(documents->items);
    *documents = (hl_documents){ 0 };
}

/* --------------------------------------------------------------- a text file */

typedef struct text_check {
    const hl_text_source *source;
    char                 *block;   /* (MAX_CARRY + BLOCK) */
    size_t                n_carry; /* bytes at the start of the block that were read before */
    uint64_t              at;      /* offset of block[0] in the file */
    uint64_t              n_lines; /* number of line ends before the block */
    hl_hasher             hasher;
} text_check;

static uint64_t count_lines(const char *text, size_t n_bytes)
{
    uint64_t count = 0;

    for (size_t i = 0; i < n_bytes; i++)
        count += text[i] == '\n';
    return count;
}

/* Guesses, by its first bytes, what a file that is not text may be. */
static const char *guess(const hl_text_source *source)
{
    static const struct {
        const char *start;
        const char *what;
    } kinds[] = {
        { "\xff\xfe", " (UTF-16? convert it to UTF-8)" },
        { "\xfe\xff", " (UTF-16? convert it to UTF-8)" },
        { "\x1f\x8b", " (gzip? unpack it: zcat FILE | headlight ... -)" },
        { "\xfd\x37", " (xz? unpack it: xzcat FILE | headlight ... -)" },
        { "\x28\xb5", " (zstd? unpack it: zstdcat FILE | headlight ... -)" },
    };
    char start[2];

    if (source->n_bytes < 2 || hl_text_source_read(start, source, 0, 2) != HL_OK)
        return "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (memcmp(start, kinds[i].start, 2) == 0)
            return kinds[i].what;
    }
    return "";
}

static hl_status not_utf8(const text_check *check, size_t bad)
{
    return hl_fail(HL_BAD_INPUT, "%s: line %llu, byte %llu: 0x%02x is not UTF-8%s",
                   check->source->path,
                   (unsigned long long)(check->n_lines + count_lines(check->block, bad) + 1),
                   (unsigned long long)(check->at + bad), (unsigned char)check->block[bad],
                   guess(check->source));
}

/* Checks the next n_bytes of the file, after the bytes that were carried over. */
static hl_status check_block(text_check *check, size_t n_bytes, bool last)
{
    char  *fresh  = check->block + check->n_carry;
    size_t n_held = check->n_carry + n_bytes;

    HL_NEED(hl_text_source_read(fresh, check->source, check->at + check->n_carry, n_bytes));
    hl_hash_add(&check->hasher, fresh, n_bytes);
    size_t n_cut = last ? 0 : hl_utf8_incomplete(check->block, n_held);
    size_t bad   = hl_utf8_find_bad(check->block, n_held - n_cut);
    if (bad < n_held - n_cut)
        return not_utf8(check, bad);
    check->n_lines += count_lines(check->block, n_held - n_cut);
    check->at += n_held - n_cut;
    memmove(check->block, check->block + n_held - n_cut, n_cut);
    check->n_carry = n_cut;
    return HL_OK;
}

hl_status hl_documents_add_text(hl_documents *documents, const hl_text_source *source,
                                uint32_t file)
{
    hl_status  status = HL_OK;
    text_check check  = { .source = source };
    size_t     mark   = 0;

    HL_TRY(hl_text_source_mark(&mark, source));
    HL_TRY(HL_ALLOC(&check.block, MAX_CARRY + BLOCK));
    check.at = mark;
    hl_hash_start(&check.hasher, 0);
    for (uint64_t left = source->n_bytes - mark; left > 0;) {
        size_t n_bytes = left < BLOCK ? (size_t)left : BLOCK;
        left -= n_bytes;
        HL_TRY(check_block(&check, n_bytes, left == 0));
    }
    hl_document document = { .at       = mark,
                             .n_stored = source->n_bytes - mark,
                             .n_bytes  = source->n_bytes - mark,
                             .hash     = hl_hash_end(&check.hasher),
                             .file     = file };
    HL_TRY(documents_add(documents, &document));

done:
    hl_free(check.block);
    return status;
}

/* ------------------------------------------------------------- lines of JSON */

static hl_status add_line(hl_documents *documents, hl_types *types, const hl_line *line,
                          uint32_t file, const char *field, const char *where)
{
    HL_SCOPED(hl_record_free) hl_record record = { 0 };

    if (line->number > UINT32_MAX)
        return hl_fail(HL_LIMIT, "%s: more than %u lines", where, UINT32_MAX);
    HL_NEED(hl_record_parse(&record, line->bytes, field, where));
    for (size_t i = 0; i < record.n_spans; i++)
        HL_NEED(hl_types_need(types, record.spans[i].type, where));
    types->has_chat = types->has_chat || record.chat != NULL;
    if (record.has_tool)
        HL_NEED(hl_types_need(types, "tool", where));
    hl_document document = { .at       = line->at,
                             .n_stored = line->bytes.n_bytes,
                             .n_bytes  = hl_record_bytes(&record),
                             .hash     = hl_record_hash(&record),
                             .file     = file,
                             .line     = (uint32_t)line->number };
    return documents_add(documents, &document);
}

hl_status hl_documents_add_lines(hl_documents *documents, hl_types *types,
                                 const hl_text_source *source, uint32_t file, const char *field)
{
    HL_SCOPED(hl_line_reader_close) hl_line_reader reader = { 0 };

    hl_line line;
    bool    more = true;
    char    where[256];

    HL_NEED(hl_line_reader_open(&reader, source));
    for (;;) {
        HL_NEED(hl_line_reader_next(&line, &more, &reader));
        if (!more)
            break;
        if (hl_is_blank(line.bytes))
            continue;
        hl_name_line(where, sizeof where, source->path, line.number);
        HL_NEED(add_line(documents, types, &line, file, field, where));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ sampling */

typedef struct sample_key {
    uint64_t key;
    size_t   index;
} sample_key;

/* Documents of equal content have equal keys; choosing either of them gives the same
 * measurements. */
static int compare_keys(const void *a, const void *b)
{
    const sample_key *left = a, *right = b;

    if (left->key != right->key)
        return left->key < right->key ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

static int compare_indices(const void *a, const void *b)
{
    const sample_key *left = a, *right = b;
    return left->index < right->index ? -1 : left->index > right->index;
}

hl_status hl_documents_sample(hl_documents *documents, int64_t n_sample, uint64_t seed)
{
    size_t      count = documents->count;
    sample_key *keys  = NULL;

    if ((uint64_t)n_sample >= count)
        return HL_OK;
    HL_NEED(HL_ALLOC(&keys, count));
    for (size_t i = 0; i < count; i++)
        keys[i] = (sample_key){ hl_hash_pair(seed, documents->items[i].hash), i };
    qsort(keys, count, sizeof *keys, compare_keys);
    qsort(keys, (size_t)n_sample, sizeof *keys, compare_indices);
    for (size_t i = 0; i < (size_t)n_sample; i++)
        documents->items[i] = documents->items[keys[i].index]; /* keys[i].index >= i, so no item is
                                                                * overwritten before it is read */
    documents->count = (size_t)n_sample;
    hl_free(keys);
    return HL_OK;
}

/* ----------------------------------------------------------------- token ids */

static bool is_integer(hl_dtype dtype)
{
    return dtype >= HL_DTYPE_I8 && dtype <= HL_DTYPE_U64;
}

/* Reads an element of an integer tensor; values beyond int64 become negative. */
static int64_t read_integer(const hl_tensor *tensor, int64_t index)
{
    size_t         size      = hl_dtype_bits(tensor->dtype) / 8;
    const uint8_t *bytes     = (const uint8_t *)tensor->data + (size_t)index * size;
    bool           is_signed = tensor->dtype <= HL_DTYPE_I64;
    uint64_t       value     = 0;
    uint64_t       sign      = 0; /* the highest bit */

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
        ids->items[ids->count++] = id;
    return status;
}

void hl_ids_free(hl_ids *ids)
{
    hl_free(ids->items);
    *ids = (hl_ids){ 0 };
}

uint64_t hl_ids_hash(const int64_t *ids, size_t n_ids)
{
    hl_hasher hasher;

    hl_hash_start(&hasher, 2);
    for (size_t i = 0; i < n_ids; i++)
        hl_hash_add_u32(&hasher, (uint32_t)ids[i]);
    return hl_hash_end(&hasher);
}

/* ------------------------------------------------------- tables of token ids */

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
        return HL_OK;
    }
    HL_NEED(check_table(out));
    return HL_OK;
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
        int64_t id = read_integer(table->tokens, row * table->n_columns + i);
        HL_NEED(put_id(out, id, n_vocab, where));
    }
    return HL_OK;
}

hl_status hl_documents_add_rows(hl_documents *documents, const hl_id_table *table, int64_t n_vocab)
{
    HL_SCOPED(hl_ids_free) hl_ids ids = { 0 };

    if (table->n_rows >= UINT32_MAX)
        return hl_fail(HL_LIMIT, "%s: %lld rows, at most %u", table->path, (long long)table->n_rows,
                       UINT32_MAX - 1);
    for (int64_t row = 0; row < table->n_rows; row++) {
        HL_NEED(hl_ids_of_row(&ids, table, row, n_vocab));
        hl_document document = { .at      = (uint64_t)row,
                                 .n_bytes = ids.count * sizeof *ids.items,
                                 .hash    = hl_ids_hash(ids.items, ids.count),
                                 .line    = (uint32_t)row + 1 };
        HL_NEED(documents_add(documents, &document));
    }
    return HL_OK;
}

/* -------------------------------------------------------- lines of token ids */

hl_status hl_ids_of_line(hl_ids *out, hl_bytes line, int64_t n_vocab, const char *where)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };

    int64_t id = 0;

    out->count = 0;
    HL_NEED(hl_json_reader_open(&reader, line.data, line.n_bytes, where));
    if (hl_json_peek(&reader) != '[')
        return hl_fail(HL_BAD_INPUT, "%s: wanted an array of token ids", where);
    HL_NEED(hl_json_enter(&reader, '['));
    while (hl_json_next(&reader, ']')) {
        HL_NEED(hl_json_read_int(&reader, &id));
        HL_NEED(put_id(out, id, n_vocab, where));
    }
    return hl_json_reader_finish(&reader);
}

static hl_status add_id_line(hl_documents *documents, hl_ids *ids, const hl_line *line,
                             int64_t n_vocab, const char *path)
{
    char where[256];

    hl_name_line(where, sizeof where, path, line->number);
    if (line->number > UINT32_MAX)
        return hl_fail(HL_LIMIT, "%s: more than %u lines", where, UINT32_MAX);
    HL_NEED(hl_ids_of_line(ids, line->bytes, n_vocab, where));
    hl_document document = { .at       = line->at,
                             .n_stored = line->bytes.n_bytes,
                             .n_bytes  = ids->count * sizeof *ids->items,
                             .hash     = hl_ids_hash(ids->items, ids->count),
                             .line     = (uint32_t)line->number };
    return documents_add(documents, &document);
}

hl_status hl_documents_add_id_lines(hl_documents *documents, const hl_text_source *source,
                                    int64_t n_vocab)
{
    HL_SCOPED(hl_line_reader_close) hl_line_reader reader = { 0 };
    HL_SCOPED(hl_ids_free) hl_ids                  ids    = { 0 };

    hl_line line;
    bool    more = true;

    HL_NEED(hl_line_reader_open(&reader, source));
    for (;;) {
        HL_NEED(hl_line_reader_next(&line, &more, &reader));
        if (!more)
            break;
        if (!hl_is_blank(line.bytes))
            HL_NEED(add_id_line(documents, &ids, &line, n_vocab, source->path));
    }
    return HL_OK;
}
