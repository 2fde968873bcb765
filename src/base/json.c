/* json.c - jansson with our limits and our messages.
 *
 * jansson already refuses bad UTF-8, NUL in strings, integers beyond 64 bits and
 * trailing text.  Two things are added: duplicate keys are refused (which of the
 * two would count?), and nesting is measured before parsing, so that a file of a
 * million brackets costs a scan and not a million stack frames. */
#include "base/json.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define MAX_DEPTH 64 /* model configurations and tokenizers stay below 16 */

/* How deep brackets nest, strings aside; for text that is not JSON, whatever
 * comes out: the parser will object. */
static size_t nesting_depth(const char *text, size_t n_bytes)
{
    size_t depth = 0, deepest = 0;
    bool   in_string = false;

    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++; /* whatever it escapes does not end the string */
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

hl_status hl_json_parse(json_t **out, const char *text, size_t n_bytes, const char *where)
{
    json_error_t error;

    *out         = NULL;
    size_t depth = nesting_depth(text, n_bytes);
    if (depth > MAX_DEPTH)
        return hl_fail(HL_BAD_INPUT, "%s: JSON nested %zu deep, at most %d", where, depth,
                       MAX_DEPTH);
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (*out != NULL)
        return HL_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return hl_fail(HL_NO_MEMORY, "%s: out of memory for %zu bytes of JSON", where, n_bytes);
    return hl_fail(HL_BAD_INPUT, "%s: JSON line %d, column %d: %s", where, error.line, error.column,
                   error.text);
}

/* ----------------------------------------------------------------- getters */

const char *hl_json_kind(const json_t *value)
{
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
