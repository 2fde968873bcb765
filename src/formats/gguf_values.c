/* gguf_values.c - the metadata of a GGUF file as numbers, texts and arrays.
 *
 * Writers disagree about types (a head count may be u32, i32 or u64, and one number
 * or one a layer), so a getter asks for what it needs and takes any type that holds
 * it without loss.  What is read here was measured when the file was opened: values
 * lie inside the file, and arrays are as long as they say. */
#include <string.h>

#include "base/status.h"
#include "formats/gguf.h"

#define ARRAY_HEADER 12 /* u32 type, u64 count */

static const struct {
    const char *name;
    size_t      n_bytes; /* 0: it says itself */
} types[HL_GGUF_N_TYPES] = {
    [HL_GGUF_U8] = { "a u8", 1 },     [HL_GGUF_I8] = { "an i8", 1 },
    [HL_GGUF_U16] = { "a u16", 2 },   [HL_GGUF_I16] = { "an i16", 2 },
    [HL_GGUF_U32] = { "a u32", 4 },   [HL_GGUF_I32] = { "an i32", 4 },
    [HL_GGUF_F32] = { "an f32", 4 },  [HL_GGUF_BOOL] = { "a boolean", 1 },
    [HL_GGUF_TEXT] = { "a text", 0 }, [HL_GGUF_ARRAY] = { "an array", 0 },
    [HL_GGUF_U64] = { "a u64", 8 },   [HL_GGUF_I64] = { "an i64", 8 },
    [HL_GGUF_F64] = { "an f64", 8 },
};

size_t hl_gguf_type_bytes(hl_gguf_type type)
{
    return (unsigned)type < HL_GGUF_N_TYPES ? types[type].n_bytes : 0;
}

bool hl_gguf_text_is(hl_gguf_text text, const char *word)
{
    return text.n_bytes == strlen(word) && memcmp(text.bytes, word, text.n_bytes) == 0;
}

/* ------------------------------------------------------------------ numbers */

#define LOAD(type, bytes)                                                                          \
    type x;                                                                                        \
    memcpy(&x, bytes, sizeof x)

/* False for what is no integer, and for a u64 that is too large. */
static bool load_int(int64_t *out, hl_gguf_type type, const uint8_t *bytes)
{
    switch (type) {
    case HL_GGUF_U8:
        *out = bytes[0];
        return true;
    case HL_GGUF_I8:
        *out = bytes[0] < 128 ? bytes[0] : bytes[0] - 256;
        return true;
    case HL_GGUF_U16: {
        LOAD(uint16_t, bytes);
        *out = x;
        return true;
    }
    case HL_GGUF_I16: {
        LOAD(int16_t, bytes);
        *out = x;
        return true;
    }
    case HL_GGUF_U32: {
        LOAD(uint32_t, bytes);
        *out = x;
        return true;
    }
    case HL_GGUF_I32: {
        LOAD(int32_t, bytes);
        *out = x;
        return true;
    }
    case HL_GGUF_U64:
    case HL_GGUF_I64: {
        LOAD(int64_t, bytes);
        *out = x;
        return type == HL_GGUF_I64 || x >= 0;
    }
    default:
        return false;
    }
}

/* An integer, or a boolean as 0 or 1. */
static bool load_int_or_bool(int64_t *out, hl_gguf_type type, const uint8_t *bytes)
{
    if (type != HL_GGUF_BOOL)
        return load_int(out, type, bytes);
    *out = bytes[0] != 0;
    return true;
}

static bool load_float(double *out, hl_gguf_type type, const uint8_t *bytes)
{
    int64_t integer = 0;

    if (type == HL_GGUF_F32) {
        LOAD(float, bytes);
        *out = (double)x;
        return true;
    }
    if (type == HL_GGUF_F64) {
        LOAD(double, bytes);
        *out = x;
        return true;
    }
    if (!load_int(&integer, type, bytes))
        return false;
    *out = (double)integer;
    return true;
}

/* A text begins with its length. */
static hl_gguf_text load_text(const uint8_t *bytes)
{
    LOAD(uint64_t, bytes);
    return (hl_gguf_text){ (const char *)bytes + sizeof x, (size_t)x };
}

static hl_gguf_array load_array(const uint8_t *bytes, const uint64_t *starts)
{
    uint32_t type;
    uint64_t count;

    memcpy(&type, bytes, sizeof type);
    memcpy(&count, bytes + sizeof type, sizeof count);
    return (hl_gguf_array){ .type   = (hl_gguf_type)type,
                            .count  = (size_t)count,
                            .bytes  = bytes + ARRAY_HEADER,
                            .starts = starts };
}

/* ------------------------------------------------------------------ getters */

static hl_status wrong_type(const hl_gguf *file, const hl_gguf_value *value, const char *wanted)
{
    return hl_fail(HL_BAD_INPUT, "%s: key '%s' is %s, wanted %s", hl_gguf_where(file), value->key,
                   types[value->type].name, wanted);
}

hl_status hl_gguf_get_int(int64_t *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value  = hl_gguf_find_value(file, key);
    int64_t              number = 0;

    if (value == NULL)
        return HL_OK;
    if (!load_int(&number, value->type, value->bytes))
        return wrong_type(file, value, "an integer below 2^63");
    *out = number;
    return HL_OK;
}

hl_status hl_gguf_get_float(double *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value  = hl_gguf_find_value(file, key);
    double               number = 0.0;

    if (value == NULL)
        return HL_OK;
    if (!load_float(&number, value->type, value->bytes))
        return wrong_type(file, value, "a number");
    *out = number;
    return HL_OK;
}

hl_status hl_gguf_get_bool(bool *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = hl_gguf_find_value(file, key);

    if (value == NULL)
        return HL_OK;
    if (value->type != HL_GGUF_BOOL)
        return wrong_type(file, value, "a boolean");
    *out = value->bytes[0] != 0;
    return HL_OK;
}

hl_status hl_gguf_get_text(hl_gguf_text *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = hl_gguf_find_value(file, key);

    if (value == NULL)
        return HL_OK;
    if (value->type != HL_GGUF_TEXT)
        return wrong_type(file, value, "a text");
    *out = load_text(value->bytes);
    return HL_OK;
}

hl_status hl_gguf_get_array(hl_gguf_array *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = hl_gguf_find_value(file, key);

    if (value == NULL)
        return HL_OK;
    if (value->type != HL_GGUF_ARRAY)
        return wrong_type(file, value, "an array");
    *out = load_array(value->bytes, value->starts);
    return HL_OK;
}

/* One number for all of out. */
static hl_status repeat_int(int64_t *out, size_t count, const hl_gguf *file,
                            const hl_gguf_value *value)
{
    int64_t number = 0;

    if (!load_int_or_bool(&number, value->type, value->bytes))
        return wrong_type(file, value, "an integer below 2^63, or an array of them");
    for (size_t i = 0; i < count; i++)
        out[i] = number;
    return HL_OK;
}

hl_status hl_gguf_get_ints(int64_t *out, size_t count, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = hl_gguf_find_value(file, key);

    if (value == NULL)
        return HL_OK;
    if (value->type != HL_GGUF_ARRAY)
        return repeat_int(out, count, file, value);
    hl_gguf_array array = load_array(value->bytes, value->starts);
    if (array.count != count)
        return hl_fail(HL_BAD_INPUT, "%s: key '%s' has %zu elements, wanted %zu",
                       hl_gguf_where(file), key, array.count, count);
    for (size_t i = 0; i < count; i++) {
        if (!hl_gguf_array_int(&out[i], &array, i))
            return hl_fail(HL_BAD_INPUT, "%s: key '%s': element %zu is not an integer below 2^63",
                           hl_gguf_where(file), key, i);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- elements */

/* Where an element begins.  Inner arrays have no index: walk from the first. */
static const uint8_t *element(const hl_gguf_array *array, size_t index)
{
    size_t size = hl_gguf_type_bytes(array->type);

    if (size != 0)
        return array->bytes + index * size;
    if (array->starts != NULL)
        return array->bytes + array->starts[index];

    const uint8_t *at = array->bytes;
    for (size_t i = 0; i < index; i++) {
        size_t n_bytes = 0;
        /* It was measured before, inside the file, so no end is needed now. */
        if (hl_gguf_measure(&n_bytes, array->type, at, SIZE_MAX - (uintptr_t)at) != HL_OK)
            break;
        at += n_bytes;
    }
    return at;
}

bool hl_gguf_array_int(int64_t *out, const hl_gguf_array *array, size_t index)
{
    return index < array->count && load_int_or_bool(out, array->type, element(array, index));
}

bool hl_gguf_array_float(double *out, const hl_gguf_array *array, size_t index)
{
    return index < array->count && load_float(out, array->type, element(array, index));
}

bool hl_gguf_array_text(hl_gguf_text *out, const hl_gguf_array *array, size_t index)
{
    if (index >= array->count || array->type != HL_GGUF_TEXT)
        return false;
    *out = load_text(element(array, index));
    return true;
}

bool hl_gguf_array_array(hl_gguf_array *out, const hl_gguf_array *array, size_t index)
{
    if (index >= array->count || array->type != HL_GGUF_ARRAY)
        return false;
    *out = load_array(element(array, index), NULL);
    return true;
}
