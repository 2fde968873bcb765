/* json.c - text to jansson's values, with our limits and our messages.
 *
 * Values are jansson's, but its parser is not used.  When it runs out of memory for a longer
 * buffer, it continues with a string that has lost bytes, its closing quote among them, and then
 * copies beyond the end (2.14, load.c: lex_save ignores the result of strbuffer_append_byte).
 * json_reader.c reads the text, and this file makes values of what it finds.
 *
 * Refused in addition to invalid JSON: invalid UTF-8, NUL in keys, NUL in strings unless allowed,
 * integers beyond 64 bits, numbers beyond a double, text after the end, and duplicate keys, which
 * are ambiguous.
 * Nesting is measured before parsing, so that a file of a million brackets costs a scan and
 * not a million stack frames. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

/* The nesting depth of brackets outside strings.  Any number for text that is not JSON: the parser
 * will refuse it. */
static size_t nesting_depth(const char *text, size_t n_bytes)
{
    size_t depth = 0, deepest = 0;
    bool   in_string = false;

    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++; /* an escaped character does not end the string */
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && depth > 0)
            depth--;
        if (depth > deepest)
            deepest = depth;
    }
    return deepest;
}

/* ------------------------------------------------------------------- parsing */

static json_t *build(hl_json_reader *reader);

/* Passes the value on; if it is NULL, sets the reader's error. */
static json_t *made(hl_json_reader *reader, json_t *value)
{
    if (value == NULL && reader->status == HL_OK)
        reader->status = hl_fail(HL_NO_MEMORY, "%s: out of memory for %zu bytes of JSON",
                                 reader->where, reader->n_bytes);
    return value;
}

static json_t *build_string(hl_json_reader *reader)
{
    hl_bytes text;

    if (hl_json_read_string(reader, &text) != HL_OK)
        return NULL;
    if (reader->refuses_nul && memchr(text.data, '\0', text.n_bytes) != NULL) {
        hl_json_reader_fail(reader, "a string contains NUL (\\u0000)");
        return NULL;
    }
    return made(reader, json_stringn_nocheck(text.data, text.n_bytes)); /* checked UTF-8 */
}

/* An integer, unless its text has a fraction or an exponent. */
static json_t *build_number(hl_json_reader *reader)
{
    hl_json_reader ahead   = *reader;
    int64_t        integer = 0;
    double         real    = 0.0;
    hl_bytes       text;

    if (hl_json_skip(&ahead, &text) != HL_OK) {
        *reader = ahead;
        return NULL;
    }
    if (memchr(text.data, '.', text.n_bytes) == NULL &&
        memchr(text.data, 'e', text.n_bytes) == NULL &&
        memchr(text.data, 'E', text.n_bytes) == NULL)
        return hl_json_read_int(reader, &integer) == HL_OK ? made(reader, json_integer(integer))
                                                           : NULL;
    if (hl_json_read_double(reader, &real) != HL_OK)
        return NULL;
    if (!isfinite(real)) {
        hl_json_reader_fail(reader, "%.*s is beyond what a double holds", (int)text.n_bytes,
                            text.data);
        return NULL;
    }
    return made(reader, json_real(real));
}

static json_t *build_literal(hl_json_reader *reader)
{
    hl_bytes text;

    if (hl_json_skip(reader, &text) != HL_OK)
        return NULL;
    return hl_bytes_equal(text, "null") ? json_null() : json_boolean(hl_bytes_equal(text, "true"));
}

/* Python writes infinite numbers as Infinity, which JSON does not have.  They become objects, as
 * newer files write them, so that no reader takes them for a number. */
static json_t *build_infinity(hl_json_reader *reader)
{
    hl_bytes text;

    if (hl_json_skip(reader, &text) != HL_OK)
        return NULL;
    return made(reader, json_pack("{s:s%}", "__float__", text.data, text.n_bytes));
}

static json_t *build_array(hl_json_reader *reader)
{
    json_t *array = made(reader, json_array());

    hl_json_enter(reader, '[');
    while (hl_json_next(reader, ']')) {
        json_t *value = build(reader);
        if (value != NULL && json_array_append_new(array, value) != 0)
            made(reader, NULL);
    }
    return array;
}

/* Copies the key, because reading the value may overwrite it, and refuses a duplicate key. */
static void build_member(hl_json_reader *reader, json_t *object, hl_bytes key)
{
    HL_FREED char *name = NULL;

    if (memchr(key.data, '\0', key.n_bytes) != NULL)
        hl_json_reader_fail(reader, "a key contains NUL (\\u0000)");
    else
        reader->status = hl_strndup(&name, key.data, key.n_bytes);
    if (reader->status == HL_OK && json_object_get(object, name) != NULL)
        hl_json_reader_fail(reader, "duplicate object key \"%s\"", name);
    json_t *value = reader->status == HL_OK ? build(reader) : NULL;
    if (value != NULL && json_object_set_new_nocheck(object, name, value) != 0)
        made(reader, NULL);
}

static json_t *build_object(hl_json_reader *reader)
{
    json_t  *object = made(reader, json_object());
    hl_bytes key;

    hl_json_enter(reader, '{');
    while (hl_json_next_key(reader, &key))
        build_member(reader, object, key);
    return object;
}

/* Builds the next value; on failure NULL, with the reason in reader->status.  An incomplete
 * container is returned as well: hl_json_parse then releases the whole tree. */
static json_t *build(hl_json_reader *reader)
{
    switch (hl_json_peek(reader)) {
    case '{':
        return build_object(reader);
    case '[':
        return build_array(reader);
    case '"':
        return build_string(reader);
    case 't':
    case 'f':
    case 'n':
        return build_literal(reader);
    case 'I':
        return build_infinity(reader);
    case '\0':
        if (reader->at >= reader->n_bytes) {
            hl_json_reader_fail(reader, "the text ends where a value should be");
            return NULL;
        }
        /* fall through */
    default:
        return build_number(reader);
    }
}

static hl_status parse(json_t **out, const char *text, size_t n_bytes, const char *where,
                       bool refuses_nul)
{
    HL_SCOPED(hl_json_reader_close) hl_json_reader reader = { 0 };
    HL_CLOSED(json_decref) json_t                 *value  = NULL;

    *out         = NULL;
    size_t depth = nesting_depth(text, n_bytes);
    if (depth > HL_JSON_MOST_LEVELS)
        return hl_fail(HL_BAD_INPUT, "%s: JSON nested %zu deep, at most %d", where, depth,
                       HL_JSON_MOST_LEVELS);
    HL_NEED(hl_json_reader_open(&reader, text, n_bytes, where));
    reader.refuses_nul = refuses_nul;
    value              = build(&reader);
    HL_NEED(hl_json_reader_finish(&reader));
    *out = hl_taken(&value);
    return HL_OK;
}

hl_status hl_json_parse(json_t **out, const char *text, size_t n_bytes, const char *where)
{
    return parse(out, text, n_bytes, where, true);
}

hl_status hl_json_parse_file(json_t **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    return hl_json_parse(out, (const char *)file.bytes, file.n_bytes, path);
}

/* ------------------------------------------------------------------- events */

typedef struct walk {
    hl_status (*event)(void *context, const hl_json_event *event);
    void *context;
} walk;

static hl_status tell(const walk *w, const char *key, json_t *value);

static hl_status tell_members(const walk *w, json_t *object)
{
    const char *key = NULL;
    json_t     *value;

    json_object_foreach(object, key, value)
        HL_NEED(tell(w, key, value));
    return HL_OK;
}

/* Reports a value; for a container, also its members and its end. */
static hl_status tell(const walk *w, const char *key, json_t *value)
{
    static const hl_json_type types[] = {
        [JSON_OBJECT] = HL_JSON_OBJECT, [JSON_ARRAY] = HL_JSON_ARRAY, [JSON_STRING] = HL_JSON_TEXT,
        [JSON_INTEGER] = HL_JSON_INT,   [JSON_REAL] = HL_JSON_REAL,   [JSON_TRUE] = HL_JSON_BOOL,
        [JSON_FALSE] = HL_JSON_BOOL,    [JSON_NULL] = HL_JSON_NULL,
    };
    hl_json_event event = { .type    = types[json_typeof(value)],
                            .key     = key,
                            .integer = json_is_true(value) ? 1 : json_integer_value(value),
                            .real    = json_real_value(value),
                            .text    = json_string_value(value),
                            .n_bytes = json_string_length(value) };

    HL_NEED(w->event(w->context, &event));
    if (!json_is_object(value) && !json_is_array(value))
        return HL_OK;
    if (json_is_object(value))
        HL_NEED(tell_members(w, value));
    for (size_t i = 0; i < json_array_size(value); i++)
        HL_NEED(tell(w, NULL, json_array_get(value, i)));
    return w->event(w->context, &(hl_json_event){ .type = HL_JSON_END });
}

hl_status hl_json_walk(const char *text, size_t n_bytes, const char *where,
                       hl_status (*event)(void *context, const hl_json_event *event), void *context)
{
    HL_CLOSED(json_decref) json_t *value = NULL;

    HL_NEED(parse(&value, text, n_bytes, where, false));
    return tell(&(walk){ event, context }, NULL, value);
}

hl_status hl_json_lines_next(json_t **out, hl_json_lines *l)
{
    HL_CLOSED(json_decref) json_t *value = NULL;

    *out = NULL;
    l->number++;
    snprintf(l->place, sizeof l->place, "%.500s, line %" PRId64, l->where, l->number);
    if (l->at == l->end)
        return hl_fail(HL_BAD_INPUT, "%s: is missing", l->place);
    const char *stop = memchr(l->at, '\n', (size_t)(l->end - l->at));
    stop             = stop != NULL ? stop : l->end;
    HL_NEED(parse(&value, l->at, (size_t)(stop - l->at), l->place, !l->with_nul));
    if (!json_is_object(value))
        return hl_fail(HL_BAD_INPUT, "%s: is %s, wanted an object", l->place, hl_json_kind(value));
    l->at = stop < l->end ? stop + 1 : l->end;
    *out  = hl_taken(&value);
    return HL_OK;
}

/* ---------------------------------------------------------- building, writing */

json_t *hl_json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

const char *hl_json_number_text(char out[HL_JSON_NUMBER], double value, int n_digits)
{
    if (isfinite(value))
        snprintf(out, HL_JSON_NUMBER, "%.*g", n_digits, value);
    else
        snprintf(out, HL_JSON_NUMBER, "null");
    return out;
}

void hl_json_put(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

void hl_json_add(json_t **array, json_t *value)
{
    if (json_array_append_new(*array, value) == 0)
        return;
    json_decref(*array);
    *array = NULL;
}

static int append(const char *bytes, size_t n_bytes, void *context)
{
    hl_text *text = context;

    hl_text_add(text, bytes, n_bytes);
    return text->status == HL_OK ? 0 : -1;
}

char *hl_json_dump(const json_t *value, size_t flags)
{
    hl_text text  = { 0 };
    char   *whole = NULL;

    /* The text's own status is checked as well: jansson sometimes ignores append's result. */
    if (value != NULL && json_dump_callback(value, append, &text, flags) == 0)
        hl_text_finish(&whole, &text);
    hl_text_free(&text);
    return whole;
}

/* ----------------------------------------------------------------- getters */

const char *hl_json_kind(const json_t *value)
{
    if (value == NULL)
        return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "something else";
}

static hl_status wrong_type(const json_t *value, const char *key, const char *where,
                            const char *wanted)
{
    return hl_fail(HL_BAD_INPUT, "%s: '%s' is %s, wanted %s", where, key, hl_json_kind(value),
                   wanted);
}

/* object[key], or NULL when it is missing or null. */
static const json_t *present(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

hl_status hl_json_get_int(int64_t *out, const json_t *object, const char *key, const char *where)
{
    const json_t *value = present(object, key);
    if (value == NULL)
        return HL_OK;
    if (!json_is_integer(value))
        return wrong_type(value, key, where, "an integer");
    *out = json_integer_value(value);
    return HL_OK;
}

hl_status hl_json_get_double(double *out, const json_t *object, const char *key, const char *where)
{
    const json_t *value = present(object, key);
    if (value == NULL)
        return HL_OK;
    if (!json_is_number(value))
        return wrong_type(value, key, where, "a number");
    *out = json_number_value(value);
    return HL_OK;
}

hl_status hl_json_get_bool(bool *out, const json_t *object, const char *key, const char *where)
{
    const json_t *value = present(object, key);
    if (value == NULL)
        return HL_OK;
    if (!json_is_boolean(value))
        return wrong_type(value, key, where, "a boolean");
    *out = json_is_true(value);
    return HL_OK;
}

hl_status hl_json_get_string(const char **out, const json_t *object, const char *key,
                             const char *where)
{
    const json_t *value = present(object, key);
    if (value == NULL)
        return HL_OK;
    if (!json_is_string(value))
        return wrong_type(value, key, where, "a string");
    if (strlen(json_string_value(value)) != json_string_length(value))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' has NUL (\\u0000) in it", where, key);
    *out = json_string_value(value);
    return HL_OK;
}

json_t *hl_json_text(const char *bytes, size_t n_bytes)
{
    char  *text = NULL;
    size_t used = 0;

    if (hl_utf8_find_bad(bytes, n_bytes) == n_bytes)
        return json_stringn(bytes, n_bytes);
    if (hl_alloc((void **)&text, n_bytes, 3) != HL_OK)
        return NULL;
    for (size_t at = 0; at < n_bytes;) {
        size_t length = hl_utf8_length(bytes + at, n_bytes - at);

        if (length == 0)
            used += hl_utf8_encode(text + used, HL_UTF8_REPLACEMENT);
        else
            memcpy(text + used, bytes + at, length);
        used += length;
        at += length > 0 ? length : 1;
    }
    json_t *string = json_stringn(text, used);
    hl_free(text);
    return string;
}
