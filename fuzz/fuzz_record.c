/* fuzz_record.c - arbitrary bytes as a line of a JSONL file and as a line of token ids.
 *
 * They are accepted or refused with a message.  An accepted record is a text whose spans are inside
 * it, on whole characters, or a chat whose messages have a role and a content; accepted ids are all
 * below the limit. */
#include "base/utf8.h"
#include "fuzz.h"
#include "measure/corpus_parts.h"

enum { N_VOCAB = 1000 };

static bool is_border(hl_bytes text, size_t at)
{
    return at == text.n_bytes || !hl_utf8_is_continuation(text.data[at]);
}

static void check_record(hl_bytes line, const char *field)
{
    hl_record record;

    if (hl_record_parse(&record, line, field, "fuzz") != HL_OK) {
        refused(record.value);
        return;
    }
    for (size_t i = 0; i < record.n_spans; i++) {
        hl_span span = record.spans[i].span;
        PROMISE(span.begin <= span.end && span.end <= record.text.n_bytes);
        PROMISE(is_border(record.text, span.begin) && is_border(record.text, span.end));
        PROMISE(record.spans[i].type != NULL);
    }
    for (size_t i = 0; i < json_array_size(record.chat); i++)
        PROMISE(json_is_string(json_object_get(json_array_get(record.chat, i), "role")));
    PROMISE((record.text.data == NULL) == (record.chat != NULL));
    PROMISE(hl_record_bytes(&record) <= line.n_bytes); /* unescaping never makes a text longer */
    PROMISE(hl_record_hash(&record) == hl_record_hash(&record));
    hl_record_free(&record);
}

static void check_ids(hl_bytes line)
{
    hl_ids ids = { 0 };

    if (hl_ids_of_line(&ids, line, N_VOCAB, "fuzz") == HL_OK) {
        for (size_t i = 0; i < ids.count; i++)
            PROMISE(ids.items[i] >= 0 && ids.items[i] < N_VOCAB);
    } else {
        PROMISE(hl_error_message()[0] != '\0');
    }
    hl_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    hl_bytes line = { (const char *)bytes, n_bytes };

    check_record(line, NULL);
    check_record(line, "body");
    check_ids(line);
    return 0;
}
