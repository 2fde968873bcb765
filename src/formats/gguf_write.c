/* gguf_write.c - writing GGUF files, version 3 (layout: gguf.c).
 *
 * Values are kept in the file's encoding; tensors are borrowed.  Functions that add return no
 * status: the writer keeps the first error, with its message, and hl_gguf_write reports it.  The
 * data of every tensor is padded to the alignment, also the last one's, as llama.cpp does. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/gguf.h"

#define VERSION      3
#define ARRAY_HEADER 12 /* u32 type, u64 count */

struct hl_gguf_writer {
    hl_gguf_value *values; /* (value_capacity), n_values used; keys and bytes are owned */
    size_t         n_values;
    size_t         value_capacity;
    hl_tensor     *tensors; /* (tensor_capacity), n_tensors used; names are owned */
    size_t         n_tensors;
    size_t         tensor_capacity;
    hl_kept_error  error;
};

hl_status hl_gguf_writer_new(hl_gguf_writer **out)
{
    return HL_ALLOC_ZEROED(out, 1);
}

void hl_gguf_writer_free(hl_gguf_writer *writer)
{
    if (writer == NULL)
        return;
    for (size_t i = 0; i < writer->n_values; i++) {
        hl_free((void *)writer->values[i].key);
        hl_free((void *)writer->values[i].bytes);
    }
    for (size_t i = 0; i < writer->n_tensors; i++)
        hl_free((void *)writer->tensors[i].name);
    hl_free(writer->values);
    hl_free(writer->tensors);
    hl_free(writer);
}

/* ----------------------------------------------------------------- metadata */

/* Takes ownership of `bytes`, also on failure. */
static hl_status append_value(hl_gguf_writer *writer, const char *key, hl_gguf_type type,
                              uint8_t *bytes, size_t n_bytes)
{
    HL_FREED uint8_t *held     = bytes;
    char             *key_copy = NULL;

    HL_NEED(HL_GROW(&writer->values, &writer->value_capacity, writer->n_values, 1));
    HL_NEED(hl_strdup(&key_copy, key));
    writer->values[writer->n_values++] = (hl_gguf_value){
        .key = key_copy, .type = type, .bytes = hl_taken(&held), .n_bytes = n_bytes
    };
    return HL_OK;
}

static hl_status append_copy(hl_gguf_writer *writer, const char *key, hl_gguf_type type,
                             const void *bytes, size_t n_bytes)
{
    uint8_t *copy = NULL;

    HL_NEED(HL_ALLOC(&copy, n_bytes));
    memcpy(copy, bytes, n_bytes);
    return append_value(writer, key, type, copy, n_bytes);
}

/* Whether the type can hold the value.  If so, the value's lowest bytes are stored. */
static bool fits(hl_gguf_type type, int64_t value)
{
    size_t n_bits = 8 * hl_gguf_type_bytes(type);

    switch (type) {
    case HL_GGUF_U8:
    case HL_GGUF_U16:
    case HL_GGUF_U32:
        return value >= 0 && value >> n_bits == 0;
    case HL_GGUF_U64:
        return value >= 0;
    case HL_GGUF_I8:
    case HL_GGUF_I16:
    case HL_GGUF_I32:
        return value >= -(INT64_C(1) << (n_bits - 1)) && value < INT64_C(1) << (n_bits - 1);
    default:
        return type == HL_GGUF_I64;
    }
}

void hl_gguf_add_int(hl_gguf_writer *writer, const char *key, hl_gguf_type type, int64_t value)
{
    uint8_t bytes[sizeof value];

    if (writer->error.status != HL_OK)
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    hl_keep_error(&writer->error,
                  fits(type, value)
                      ? append_copy(writer, key, type, bytes, hl_gguf_type_bytes(type))
                      : hl_fail(HL_BAD_ARGUMENT, "key '%s': %lld does not fit type %d", key,
                                (long long)value, (int)type));
}

void hl_gguf_add_float(hl_gguf_writer *writer, const char *key, hl_gguf_type type, double value)
{
    float     narrow = (float)value;
    hl_status status = writer->error.status;

    if (status != HL_OK)
        return;
    if (type == HL_GGUF_F32)
        status = append_copy(writer, key, type, &narrow, sizeof narrow);
    else if (type == HL_GGUF_F64)
        status = append_copy(writer, key, type, &value, sizeof value);
    else
        status = hl_fail(HL_BAD_ARGUMENT, "key '%s': type %d is not a float", key, (int)type);
    hl_keep_error(&writer->error, status);
}

void hl_gguf_add_bool(hl_gguf_writer *writer, const char *key, bool value)
{
    uint8_t byte = value;

    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error, append_copy(writer, key, HL_GGUF_BOOL, &byte, 1));
}

/* Stores a text in the file's encoding and returns the address after it. */
static uint8_t *put_text(uint8_t *at, hl_bytes text)
{
    uint64_t length = text.n_bytes;

    memcpy(at, &length, sizeof length);
    if (length > 0)
        memcpy(at + sizeof length, text.data, length);
    return at + sizeof length + length;
}

static hl_status append_text(hl_gguf_writer *writer, const char *key, hl_bytes text)
{
    uint8_t *bytes = NULL;

    HL_NEED(HL_ALLOC(&bytes, sizeof(uint64_t) + text.n_bytes));
    put_text(bytes, text);
    return append_value(writer, key, HL_GGUF_TEXT, bytes, sizeof(uint64_t) + text.n_bytes);
}

void hl_gguf_add_text(hl_gguf_writer *writer, const char *key, const char *text)
{
    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error, append_text(writer, key, (hl_bytes){ text, strlen(text) }));
}

/* *out gets the array's header, followed by room for its elements. */
static hl_status new_array(uint8_t **out, hl_gguf_type type, uint64_t count, size_t n_bytes)
{
    uint32_t number = (uint32_t)type;
    size_t   total  = 0;

    if (!hl_size_add(&total, n_bytes, sizeof number + sizeof count))
        return hl_fail(HL_BAD_ARGUMENT, "an array of %zu bytes", n_bytes);
    HL_NEED(HL_ALLOC(out, total));
    memcpy(*out, &number, sizeof number);
    memcpy(*out + sizeof number, &count, sizeof count);
    return HL_OK;
}

static hl_status append_numbers(hl_gguf_writer *writer, const char *key, hl_gguf_type type,
                                const void *elements, size_t count)
{
    size_t   n_bytes = 0;
    uint8_t *bytes   = NULL;

    if (hl_gguf_type_bytes(type) == 0 ||
        !hl_size_multiply(&n_bytes, count, hl_gguf_type_bytes(type)))
        return hl_fail(HL_BAD_ARGUMENT, "key '%s': %zu elements of type %d", key, count, (int)type);
    HL_NEED(new_array(&bytes, type, count, n_bytes));
    if (n_bytes > 0)
        memcpy(bytes + ARRAY_HEADER, elements, n_bytes);
    return append_value(writer, key, HL_GGUF_ARRAY, bytes, ARRAY_HEADER + n_bytes);
}

void hl_gguf_add_numbers(hl_gguf_writer *writer, const char *key, hl_gguf_type type,
                         const void *elements, size_t count)
{
    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error, append_numbers(writer, key, type, elements, count));
}

static hl_status append_texts(hl_gguf_writer *writer, const char *key, const hl_bytes *texts,
                              size_t count)
{
    size_t   n_bytes = 0;
    uint8_t *bytes   = NULL;

    for (size_t i = 0; i < count; i++)
        n_bytes += sizeof(uint64_t) + texts[i].n_bytes; /* no overflow: all are in memory */
    HL_NEED(new_array(&bytes, HL_GGUF_TEXT, count, n_bytes));
    uint8_t *at = bytes + ARRAY_HEADER;
    for (size_t i = 0; i < count; i++)
        at = put_text(at, texts[i]);
    return append_value(writer, key, HL_GGUF_ARRAY, bytes, ARRAY_HEADER + n_bytes);
}

void hl_gguf_add_texts(hl_gguf_writer *writer, const char *key, const hl_bytes *texts, size_t count)
{
    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error, append_texts(writer, key, texts, count));
}

void hl_gguf_add_value(hl_gguf_writer *writer, const hl_gguf_value *value)
{
    size_t n_bytes = 0;

    if (writer->error.status != HL_OK)
        return;
    hl_status status = hl_gguf_measure(&n_bytes, value->type, value->bytes, value->n_bytes);
    if (status == HL_OK && n_bytes != value->n_bytes)
        status = hl_fail(HL_BAD_INPUT, "%zu bytes, the value has %zu", value->n_bytes, n_bytes);
    if (status != HL_OK)
        status = hl_fail_within(HL_BAD_ARGUMENT, "key '%s'", value->key);
    else
        status = append_copy(writer, value->key, value->type, value->bytes, value->n_bytes);
    hl_keep_error(&writer->error, status);
}

/* ------------------------------------------------------------------ tensors */

/* Checks that the tensor's size is correct and that the format can hold it. */
static hl_status check_tensor(const hl_tensor *tensor)
{
    size_t   needed = 0;
    uint32_t id     = 0;

    if (hl_tensor_bytes(&needed, tensor) != HL_OK)
        return HL_BAD_ARGUMENT; /* the message is already set */
    if (!hl_dtype_to_ggml(&id, tensor->dtype))
        return hl_fail(HL_BAD_ARGUMENT, "GGUF files hold no %s", hl_dtype_name(tensor->dtype));
    if (tensor->n_dims > HL_GGUF_MAX_DIMS)
        return hl_fail(HL_BAD_ARGUMENT, "%d dimensions, at most %d", tensor->n_dims,
                       HL_GGUF_MAX_DIMS);
    if (tensor->n_bytes != needed)
        return hl_fail(HL_BAD_ARGUMENT, "%zu bytes of data, dtype and shape need %zu",
                       tensor->n_bytes, needed);
    if (tensor->data == NULL && tensor->n_bytes > 0)
        return hl_fail(HL_BAD_ARGUMENT, "data is NULL");
    return HL_OK;
}

static hl_status append_tensor(hl_gguf_writer *writer, const hl_tensor *tensor)
{
    char *name = NULL;

    HL_NEED(check_tensor(tensor));
    HL_NEED(HL_GROW(&writer->tensors, &writer->tensor_capacity, writer->n_tensors, 1));
    HL_NEED(hl_strdup(&name, tensor->name));
    writer->tensors[writer->n_tensors]      = *tensor;
    writer->tensors[writer->n_tensors].name = name;
    writer->n_tensors++;
    return HL_OK;
}

void hl_gguf_add_tensor(hl_gguf_writer *writer, const hl_tensor *tensor)
{
    if (writer->error.status == HL_OK)
        hl_keep_error(&writer->error,
                      hl_fail_within(append_tensor(writer, tensor), "tensor '%s'", tensor->name));
}

/* ------------------------------------------------------------------ writing */

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Checks that no two names are equal; sorts them. */
static hl_status check_unique(const char **names, size_t count, size_t max_bytes, const char *what)
{
    if (count > 0)
        qsort(names, count, sizeof *names, compare_texts);
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(names[i]);
        if (length == 0 || length > max_bytes)
            return hl_fail(HL_BAD_ARGUMENT, "%s '%s' has %zu bytes, wanted 1 to %zu", what,
                           names[i], length, max_bytes);
        if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            return hl_fail(HL_BAD_ARGUMENT, "%s '%s' was added twice", what, names[i]);
    }
    return HL_OK;
}

static hl_status check_names(const hl_gguf_writer *writer)
{
    size_t n_most = writer->n_values > writer->n_tensors ? writer->n_values : writer->n_tensors;
    HL_FREED const char **names = NULL;

    HL_NEED(HL_ALLOC(&names, n_most));
    for (size_t i = 0; i < writer->n_values; i++)
        names[i] = writer->values[i].key;
    HL_NEED(check_unique(names, writer->n_values, UINT16_MAX, "key"));
    for (size_t i = 0; i < writer->n_tensors; i++)
        names[i] = writer->tensors[i].name;
    return check_unique(names, writer->n_tensors, HL_GGUF_MAX_NAME, "tensor");
}

static hl_status find_alignment(size_t *out, const hl_gguf_writer *writer)
{
    uint32_t alignment = HL_GGUF_DEFAULT_ALIGNMENT;

    for (size_t i = 0; i < writer->n_values; i++) {
        if (strcmp(writer->values[i].key, HL_GGUF_ALIGNMENT) != 0)
            continue;
        if (writer->values[i].type != HL_GGUF_U32)
            return hl_fail(HL_BAD_ARGUMENT, HL_GGUF_ALIGNMENT " must be a u32");
        memcpy(&alignment, writer->values[i].bytes, sizeof alignment);
    }
    if (alignment == 0 || alignment > HL_GGUF_MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0)
        return hl_fail(HL_BAD_ARGUMENT, HL_GGUF_ALIGNMENT " is %u, wanted a power of two up to %d",
                       alignment, HL_GGUF_MAX_ALIGNMENT);
    *out = alignment;
    return HL_OK;
}

static void write_u32(hl_writer *file, uint32_t value)
{
    hl_writer_write(file, &value, sizeof value);
}

static void write_u64(hl_writer *file, uint64_t value)
{
    hl_writer_write(file, &value, sizeof value);
}

/* Returns the number of bytes written. */
static size_t write_text(hl_writer *file, const char *text)
{
    size_t length = strlen(text);

    write_u64(file, length);
    hl_writer_write(file, text, length);
    return sizeof(uint64_t) + length;
}

static size_t padding_of(size_t n_bytes, size_t alignment)
{
    return (alignment - n_bytes % alignment) % alignment;
}

static void write_padding(hl_writer *file, size_t n_bytes)
{
    static const uint8_t zeros[256];

    for (; n_bytes > sizeof zeros; n_bytes -= sizeof zeros)
        hl_writer_write(file, zeros, sizeof zeros);
    hl_writer_write(file, zeros, n_bytes);
}

/* Writes all but the data; returns the number of bytes. */
static size_t write_header(hl_writer *file, const hl_gguf_writer *writer, size_t alignment)
{
    size_t   written = 24;
    uint64_t offset  = 0;

    hl_writer_write(file, "GGUF", 4);
    write_u32(file, VERSION);
    write_u64(file, writer->n_tensors);
    write_u64(file, writer->n_values);
    for (size_t i = 0; i < writer->n_values; i++) {
        const hl_gguf_value *value = &writer->values[i];
        written += write_text(file, value->key) + sizeof(uint32_t) + value->n_bytes;
        write_u32(file, (uint32_t)value->type);
        hl_writer_write(file, value->bytes, value->n_bytes);
    }
    for (size_t i = 0; i < writer->n_tensors; i++) {
        const hl_tensor *tensor = &writer->tensors[i];
        uint32_t         id     = 0;

        written += write_text(file, tensor->name) + 16 + 8 * (size_t)tensor->n_dims;
        write_u32(file, (uint32_t)tensor->n_dims);
        for (int dim = tensor->n_dims - 1; dim >= 0; dim--)
            write_u64(file, (uint64_t)tensor->shape[dim]);
        hl_dtype_to_ggml(&id, tensor->dtype); /* cannot fail: checked before */
        write_u32(file, id);
        write_u64(file, offset);
        offset += tensor->n_bytes + padding_of(tensor->n_bytes, alignment);
    }
    return written;
}

hl_status hl_gguf_write(hl_gguf_writer *writer, const char *path)
{
    hl_writer *file      = NULL;
    size_t     alignment = 0;

    HL_NEED(hl_fail_within(hl_fail_kept(&writer->error), "%s", path));
    HL_NEED(hl_fail_within(check_names(writer), "%s", path));
    HL_NEED(hl_fail_within(find_alignment(&alignment, writer), "%s", path));
    HL_NEED(hl_writer_open(&file, path));
    size_t n_header = write_header(file, writer, alignment);
    write_padding(file, padding_of(n_header, alignment));
    for (size_t i = 0; i < writer->n_tensors; i++) {
        hl_writer_write(file, writer->tensors[i].data, writer->tensors[i].n_bytes);
        write_padding(file, padding_of(writer->tensors[i].n_bytes, alignment));
    }
    return hl_writer_finish(file);
}
