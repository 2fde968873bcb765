/* corpus_record.c - what a line of a JSONL file says. */
#include "measure/corpus_record.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define STEP 256 /* characters between two places that are remembered */

/* ----------------------------------------------------------------------- spans */

/* Where every STEP-th character of a text begins. */
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
    *out             = (char_places){ .text = text, .n_chars = count_chars(text) };
    hl_status status = HL_ALLOC(&out->places, out->n_chars / STEP + 1);

    if (status != HL_OK)
        return status;
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

/* The byte at which a character begins. */
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
        HL_NEED(hl_fail(HL_BAD_INPUT, "%s: span %zu has no 'type'", where, index));
    if (start < 0 || end < start || (uint64_t)end > places->n_chars)
        HL_NEED(hl_fail(HL_BAD_INPUT, "%s: span %zu: characters %lld to %lld of a text of %zu",
                        where, index, (long long)start, (long long)end, places->n_chars));
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

/* ----------------------------------------------------------------------- chats */

static hl_status add_part(char **text, size_t *n_bytes, const json_t *part, size_t message,
                          const char *where)
{
    const json_t *inner  = json_is_object(part) ? json_object_get(part, "text") : NULL;
    size_t        length = json_string_length(inner);

    if (!json_is_string(inner))
        return hl_fail(HL_UNSUPPORTED, "%s: message %zu: a part of its content is not text", where,
                       message);
    hl_status status = hl_realloc((void **)text, *n_bytes + 1, *n_bytes + length + 1, 1);
    if (status != HL_OK)
        return status;
    memcpy(*text + *n_bytes, json_string_value(inner), length + 1);
    *n_bytes += length;
    return HL_OK;
}

/* The content of a message as one string, which the caller owns. */
static hl_status read_content(char **out, const json_t *content, size_t message, const char *where)
{
    hl_status status  = HL_OK;
    size_t    n_bytes = 0;

    if (json_is_string(content))
        return hl_strdup(out, json_string_value(content));
    HL_NEED(hl_strdup(out, ""));
    if (content == NULL || json_is_null(content))
        return status;
    if (!json_is_array(content))
        HL_NEED(hl_fail(HL_BAD_INPUT, "%s: message %zu: 'content' is %s, wanted a string", where,
                        message, hl_json_kind(content)));
    for (size_t i = 0; i < json_array_size(content); i++)
        HL_NEED(add_part(out, &n_bytes, json_array_get(content, i), message, where));
    return status;
}

static hl_status parse_message(hl_record *record, const json_t *value, const char *where)
{
    hl_status status  = HL_OK;
    size_t    index   = record->n_messages;
    char     *content = NULL;

    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s: message %zu is %s, wanted an object", where, index,
                       hl_json_kind(value));
    const char *role = json_string_value(json_object_get(value, "role"));
    if (role == NULL)
        return hl_fail(HL_BAD_INPUT, "%s: message %zu has no 'role'", where, index);
    HL_TRY(read_content(&content, json_object_get(value, "content"), index, where));
    record->messages[record->n_messages++] = (hl_chat_message){ role, content };
    content                                = NULL;

done:
    hl_free(content);
    return status;
}

static hl_status parse_messages(hl_record *record, const json_t *messages, const char *where)
{
    if (json_object_get(record->value, "spans") != NULL)
        return hl_fail(HL_UNSUPPORTED, "%s: 'spans' are of a text, and this is a chat", where);
    HL_NEED(HL_ALLOC_ZEROED(&record->messages, json_array_size(messages)));
    for (size_t i = 0; i < json_array_size(messages); i++)
        HL_NEED(parse_message(record, json_array_get(messages, i), where));
    return HL_OK;
}

/* -------------------------------------------------------------------- the line */

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
    for (size_t i = 0; i < record->n_messages; i++)
        hl_free((void *)record->messages[i].content);
    hl_free(record->messages);
    hl_free(record->spans);
    json_decref(record->value);
    *record = (hl_record){ 0 };
}

uint64_t hl_record_hash(const hl_record *record)
{
    hl_hasher hasher;

    if (record->text.data != NULL)
        return hl_hash(record->text.data, record->text.n_bytes, 0);
    hl_hash_start(&hasher, 1);
    for (size_t i = 0; i < record->n_messages; i++) {
        const hl_chat_message *message = &record->messages[i];
        hl_hash_add(&hasher, message->role, strlen(message->role) + 1);
        hl_hash_add(&hasher, message->content, strlen(message->content) + 1);
    }
    return hl_hash_end(&hasher);
}

size_t hl_record_bytes(const hl_record *record)
{
    size_t n_bytes = record->text.n_bytes;

    for (size_t i = 0; i < record->n_messages; i++)
        n_bytes += strlen(record->messages[i].content);
    return n_bytes;
}
