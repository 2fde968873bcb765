/* corpus_index.c - one pass over all files: check, hash, remember where. */
#include "measure/corpus_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "measure/corpus_record.h"
#include "tokenize/buffer.h"

#define BLOCK     ((size_t)1 << 18)
#define MAX_CARRY 3 /* bytes of a character whose rest is in the next block */

void hl_name_line(char *out, size_t n_bytes, const char *path, uint64_t line)
{
    char number[24] = "";

    if (line > 0)
        snprintf(number, sizeof number, ":%llu", (unsigned long long)line);
    /* A path that is too long loses its beginning, which says less than its end. */
    size_t room   = n_bytes - 1 - strlen(number);
    size_t length = strlen(path);
    snprintf(out, n_bytes, "%s%s", length > room ? path + (length - room) : path, number);
}

hl_status hl_documents_add(hl_documents *documents, const hl_document *document)
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

/* ---------------------------------------------------------------- a text file */

typedef struct text_check {
    const hl_text_source *source;
    char                 *block;   /* (MAX_CARRY + BLOCK) */
    size_t                n_carry; /* bytes at its start that were read before */
    uint64_t              at;      /* of block[0] in the file */
    uint64_t              n_lines; /* ends of lines before it */
    hl_hasher             hasher;
} text_check;

static uint64_t count_lines(const char *text, size_t n_bytes)
{
    uint64_t count = 0;

    for (size_t i = 0; i < n_bytes; i++)
        count += text[i] == '\n';
    return count;
}

/* What a file that is no text may be, by its first bytes. */
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

/* The next n_bytes of the file, behind what was carried over. */
static hl_status check_block(text_check *check, size_t n_bytes, bool last)
{
    char     *fresh  = check->block + check->n_carry;
    size_t    n_held = check->n_carry + n_bytes;
    hl_status status =
        hl_text_source_read(fresh, check->source, check->at + check->n_carry, n_bytes);

    if (status != HL_OK)
        return status;
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
    HL_TRY(hl_documents_add(documents, &document));

done:
    hl_free(check.block);
    return status;
}

/* -------------------------------------------------------------------- JSONL */

static hl_status add_line(hl_documents *documents, hl_types *types, const hl_line *line,
                          uint32_t file, const char *field, const char *where)
{
    hl_status status = HL_OK;
    hl_record record = { 0 };

    if (line->number > UINT32_MAX)
        return hl_fail(HL_LIMIT, "%s: more than %u lines", where, UINT32_MAX);
    HL_TRY(hl_record_parse(&record, line->bytes, field, where));
    for (size_t i = 0; i < record.n_spans; i++)
        HL_TRY(hl_types_need(types, record.spans[i].type, where));
    types->has_chat      = types->has_chat || record.n_messages > 0;
    hl_document document = { .at       = line->at,
                             .n_stored = line->bytes.n_bytes,
                             .n_bytes  = hl_record_bytes(&record),
                             .hash     = hl_record_hash(&record),
                             .file     = file,
                             .line     = (uint32_t)line->number };
    HL_TRY(hl_documents_add(documents, &document));

done:
    hl_record_free(&record);
    return status;
}

hl_status hl_documents_add_lines(hl_documents *documents, hl_types *types,
                                 const hl_text_source *source, uint32_t file, const char *field)
{
    hl_status      status = HL_OK;
    hl_line_reader reader = { 0 };
    hl_line        line;
    bool           more = true;
    char           where[256];

    HL_TRY(hl_line_reader_open(&reader, source));
    for (;;) {
        HL_TRY(hl_line_reader_next(&line, &more, &reader));
        if (!more)
            break;
        if (hl_is_blank(line.bytes))
            continue;
        hl_name_line(where, sizeof where, source->path, line.number);
        HL_TRY(add_line(documents, types, &line, file, field, where));
    }

done:
    hl_line_reader_close(&reader);
    return status;
}

/* ------------------------------------------------------------------- sampling */

typedef struct sample_key {
    uint64_t key;
    size_t   index;
} sample_key;

/* Documents of equal content have equal keys; which of them is taken makes no difference to
 * what is measured. */
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
    hl_status status = HL_ALLOC(&keys, count);
    if (status != HL_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        keys[i] = (sample_key){ hl_hash_pair(seed, documents->items[i].hash), i };
    qsort(keys, count, sizeof *keys, compare_keys);
    qsort(keys, (size_t)n_sample, sizeof *keys, compare_indices);
    for (size_t i = 0; i < (size_t)n_sample; i++)
        documents->items[i] = documents->items[keys[i].index]; /* keys[i].index >= i */
    documents->count = (size_t)n_sample;
    hl_free(keys);
    return HL_OK;
}
