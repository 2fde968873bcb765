/* safetensors_write.c - writing safetensors files (layout: safetensors.c).
 *
 * Tensors are stored with the widest elements first, then by name.  The header
 * is padded with spaces to a multiple of eight bytes.  Every tensor then starts
 * at a multiple of its element size, and the same tensors give the same bytes in
 * whatever order they were added.
 *
 * Adding never fails loudly: the writer keeps the first error, with its message,
 * and hl_safetensors_write reports it. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "formats/safetensors.h"

#define HEADER_ALIGNMENT 8

struct hl_safetensors_writer {
    hl_tensor    *tensors; /* (capacity), n_tensors used; names are our copies */
    size_t        n_tensors;
    size_t        capacity;
    size_t        n_header; /* bytes before the data, once it has been written */
    json_t       *metadata;
    hl_kept_error error;
};

hl_status hl_safetensors_writer_new(hl_safetensors_writer **out)
{
    hl_status              status = HL_OK;
    hl_safetensors_writer *writer = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&writer, 1));
    writer->metadata = json_object();
    if (writer->metadata == NULL)
        HL_TRY(hl_fail(HL_NO_MEMORY, "out of memory"));
    *out   = writer;
    writer = NULL;

done:
    hl_safetensors_writer_free(writer);
    return status;
}

void hl_safetensors_writer_free(hl_safetensors_writer *writer)
{
    if (writer == NULL)
        return;
    for (size_t i = 0; i < writer->n_tensors; i++)
        hl_free((void *)writer->tensors[i].name);
    hl_free(writer->tensors);
    json_decref(writer->metadata);
    hl_free(writer);
}

/* ------------------------------------------------------------------ adding */

/* Does the tensor say the truth about its size? */
static hl_status check_tensor(const hl_tensor *tensor)
{
    size_t needed = 0;

    if (hl_tensor_bytes(&needed, tensor) != HL_OK)
        return HL_BAD_ARGUMENT; /* its message stands */
    if (hl_dtype_is_block(tensor->dtype))
        return hl_fail(HL_BAD_ARGUMENT, "safetensors files hold no %s",
                       hl_dtype_name(tensor->dtype));
    if (tensor->n_bytes != needed)
        return hl_fail(HL_BAD_ARGUMENT, "%zu bytes of data, dtype and shape need %zu",
                       tensor->n_bytes, needed);
    return HL_OK;
}

static hl_status append(hl_safetensors_writer *writer, const hl_tensor *tensor)
{
    char *name = NULL;

    HL_NEED(check_tensor(tensor));
    if (writer->n_tensors == writer->capacity) {
        size_t capacity = writer->capacity > 0 ? 2 * writer->capacity : 16;
        void  *grown    = writer->tensors;
        HL_NEED(hl_realloc(&grown, writer->capacity, capacity, sizeof *writer->tensors));
        writer->tensors  = grown;
        writer->capacity = capacity;
    }
    HL_NEED(hl_strdup(&name, tensor->name));
    writer->tensors[writer->n_tensors]      = *tensor;
    writer->tensors[writer->n_tensors].name = name;
    writer->n_tensors++;
    return HL_OK;
}

void hl_safetensors_add(hl_safetensors_writer *writer, const hl_tensor *tensor)
{
    if (writer->error.status != HL_OK)
        return;
    hl_status status;
    if (tensor->name == NULL || strcmp(tensor->name, HL_SAFETENSORS_METADATA) == 0)
        status = hl_fail(HL_BAD_ARGUMENT, "a tensor cannot be called %s",
                         tensor->name != NULL ? tensor->name : "NULL");
    else
        status = append(writer, tensor);
    if (status != HL_OK && tensor->name != NULL)
        hl_fail_within(status, "tensor '%s'", tensor->name);
    hl_keep_error(&writer->error, status);
}

static bool is_utf8(const char *text)
{
    return hl_utf8_find_bad(text, strlen(text)) == strlen(text);
}

void hl_safetensors_add_metadata(hl_safetensors_writer *writer, const char *key, const char *value)
{
    if (writer->error.status != HL_OK)
        return;
    if (json_object_get(writer->metadata, key) != NULL)
        hl_keep_error(&writer->error,
                      hl_fail(HL_BAD_ARGUMENT, "metadata '%s' was already added", key));
    else if (!is_utf8(key) || !is_utf8(value))
        hl_keep_error(&writer->error,
                      hl_fail(HL_BAD_ARGUMENT, "metadata '%s' is not valid UTF-8", key));
    else if (json_object_set_new(writer->metadata, key, json_string(value)) != 0)
        hl_keep_error(&writer->error,
                      hl_fail(HL_NO_MEMORY, "out of memory for metadata '%s'", key));
}

/* ----------------------------------------------------------------- writing */

/* The order of the file: wide elements first, then by name. */
static int compare_order(const void *left, const void *right)
{
    const hl_tensor *a      = left;
    const hl_tensor *b      = right;
    size_t           a_bits = hl_dtype_bits(a->dtype);
    size_t           b_bits = hl_dtype_bits(b->dtype);
    if (a_bits != b_bits)
        return a_bits > b_bits ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* { "dtype": ..., "shape": [...], "data_offsets": [begin, end] }; NULL when
 * memory ran out.  jansson's "o" takes over a reference, also on failure. */
static json_t *describe(const hl_tensor *tensor, size_t begin)
{
    json_t *shape = json_array();
    for (int i = 0; shape != NULL && i < tensor->n_dims; i++) {
        if (json_array_append_new(shape, json_integer(tensor->shape[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", hl_dtype_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + tensor->n_bytes));
}

/* The header as a JSON object, in the order of the file. */
static hl_status build_header(json_t *header, const hl_safetensors_writer *writer)
{
    size_t begin = 0;

    if (json_object_size(writer->metadata) > 0 &&
        json_object_set(header, HL_SAFETENSORS_METADATA, writer->metadata) != 0)
        return hl_fail(HL_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < writer->n_tensors; i++) {
        const hl_tensor *tensor = &writer->tensors[i];
        if (json_object_get(header, tensor->name) != NULL)
            return hl_fail(HL_BAD_ARGUMENT, "tensor '%s' was added twice", tensor->name);
        if (!is_utf8(tensor->name))
            return hl_fail(HL_BAD_ARGUMENT, "tensor '%s': the name is not valid UTF-8",
                           tensor->name);
        if (json_object_set_new(header, tensor->name, describe(tensor, begin)) != 0)
            return hl_fail(HL_NO_MEMORY, "out of memory for tensor '%s'", tensor->name);
        if (!hl_size_add(&begin, begin, tensor->n_bytes) || begin > INT64_MAX)
            return hl_fail(HL_BAD_ARGUMENT, "the tensors are larger than a file can be");
    }
    return HL_OK;
}

/* Length, header, padding; how many bytes they are. */
static size_t write_header(hl_writer *file, const char *text, size_t n_text)
{
    size_t  n_padding = (HEADER_ALIGNMENT - n_text % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
    uint8_t length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)(n_text + n_padding) >> (8 * i));
    hl_writer_write(file, length, sizeof length);
    hl_writer_write(file, text, n_text);
    hl_writer_write(file, "        ", n_padding);
    return sizeof length + n_text + n_padding;
}

/* The header as text; the caller releases it with hl_free. */
static hl_status header_text(char **out, const hl_safetensors_writer *writer)
{
    json_t *header = json_object();

    hl_status status = build_header(header, writer);
    if (status == HL_OK)
        *out = hl_json_dump(header, JSON_COMPACT);
    if (status == HL_OK && *out == NULL)
        status = hl_fail(HL_NO_MEMORY, "out of memory for the header");
    json_decref(header);
    return status;
}

/* Sorts the tensors and writes the header to the file; `path` names it in messages. */
static hl_status begin_file(hl_writer *file, hl_safetensors_writer *writer, const char *path)
{
    hl_status status = HL_OK;
    char     *text   = NULL;

    if (writer->n_tensors > 0)
        qsort(writer->tensors, writer->n_tensors, sizeof *writer->tensors, compare_order);
    status = header_text(&text, writer);
    if (status != HL_OK)
        HL_TRY(hl_fail_within(status, "%s", path));
    size_t n_text = strlen(text);
    if (n_text > HL_SAFETENSORS_MAX_HEADER - HEADER_ALIGNMENT)
        HL_TRY(hl_fail(HL_LIMIT, "%s: a header of %zu bytes, at most %d", path, n_text,
                       HL_SAFETENSORS_MAX_HEADER));
    writer->n_header = write_header(file, text, n_text);

done:
    hl_free(text);
    return status;
}

hl_status hl_safetensors_begin_in(hl_writer *file, hl_safetensors_writer *writer, const char *path)
{
    hl_status status = HL_OK;

    if (writer->error.status != HL_OK)
        return hl_fail_within(hl_fail_kept(&writer->error), "%s", path);
    HL_NEED(begin_file(file, writer, path));
    hl_writer_reserve(file, hl_safetensors_offset(writer, NULL));
    HL_NEED(hl_writer_check(file));
    return status;
}

hl_status hl_safetensors_begin(hl_writer **out, hl_safetensors_writer *writer, const char *path)
{
    hl_status status = hl_writer_open(out, path);

    if (status == HL_OK)
        status = hl_safetensors_begin_in(*out, writer, path);
    if (status != HL_OK) {
        hl_writer_abandon(*out);
        *out = NULL;
    }
    return status;
}

/* The end of the file for a name that is not there. */
size_t hl_safetensors_offset(const hl_safetensors_writer *writer, const char *name)
{
    size_t offset = writer->n_header;

    for (size_t i = 0; i < writer->n_tensors; i++) {
        if (name != NULL && strcmp(writer->tensors[i].name, name) == 0)
            break;
        offset += writer->tensors[i].n_bytes;
    }
    return offset;
}

static hl_status check_data(const hl_safetensors_writer *writer)
{
    for (size_t i = 0; i < writer->n_tensors; i++) {
        const hl_tensor *tensor = &writer->tensors[i];
        if (tensor->data == NULL && tensor->n_bytes > 0)
            return hl_fail(HL_BAD_ARGUMENT, "tensor '%s': data is NULL", tensor->name);
    }
    return HL_OK;
}

hl_status hl_safetensors_write(hl_safetensors_writer *writer, const char *path)
{
    hl_writer *file = NULL;

    if (writer->error.status != HL_OK)
        return hl_fail_within(hl_fail_kept(&writer->error), "%s", path);
    hl_status status = check_data(writer);
    if (status != HL_OK)
        return hl_fail_within(status, "%s", path);
    status = hl_writer_open(&file, path);
    if (status == HL_OK)
        status = begin_file(file, writer, path);
    if (status != HL_OK) {
        hl_writer_abandon(file);
        return status;
    }
    for (size_t i = 0; i < writer->n_tensors; i++)
        hl_writer_write(file, writer->tensors[i].data, writer->tensors[i].n_bytes);
    return hl_writer_finish(file);
}
