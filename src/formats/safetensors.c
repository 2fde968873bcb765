/* safetensors.c - reading and writing safetensors files.
 *
 *     offset  size      what
 *     0       8         N, the size of the header, little-endian
 *     8       N         the header: JSON in UTF-8, starts with '{', may end in spaces
 *     8 + N   the rest  the tensors' bytes, row-major, little-endian
 *
 *     { "__metadata__": { "key": "value", ... },
 *       "name": { "dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24] }, ... }
 *
 * data_offsets [begin, end) count from the end of the header.  Sorted by begin
 * the tensors must cover the data exactly: no hole, no overlap, nothing left
 * over.  A scalar has shape []; a tensor of zero bytes is legal.
 *
 * The file is not trusted.  Each number is checked against the size of the file before it is used,
 * and each product for overflow; afterwards a hl_tensor can be trusted. */
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define LENGTH_BYTES 8

struct hl_safetensors {
    hl_file           file; /* empty if the bytes are the caller's */
    char             *where;
    json_t           *header;  /* names and metadata are borrowed from it */
    hl_tensor        *tensors; /* (n_tensors) in the order of their data */
    const hl_tensor **by_name; /* (n_tensors) sorted by name */
    size_t            n_tensors;
};

/* ------------------------------------------------------------------ header */

/* Finds the header in the file: its text, and where the data begins. */
static hl_status locate_header(const char **text, size_t *n_text, const uint8_t *bytes,
                               size_t n_bytes, const char *where)
{
    uint64_t length = 0;

    if (n_bytes < LENGTH_BYTES)
        return hl_fail(HL_BAD_INPUT, "%s: %zu bytes, a safetensors file has at least %d", where,
                       n_bytes, LENGTH_BYTES);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | bytes[i];
    if (length > HL_SAFETENSORS_MAX_HEADER)
        return hl_fail(HL_BAD_INPUT,
                       "%s: a header of %llu bytes, at most %d (is this a safetensors file?)",
                       where, (unsigned long long)length, HL_SAFETENSORS_MAX_HEADER);
    if (length > n_bytes - LENGTH_BYTES)
        return hl_fail(HL_BAD_INPUT, "%s: truncated: a header of %llu bytes in a file of %zu bytes",
                       where, (unsigned long long)length, n_bytes);
    if (length == 0 || bytes[LENGTH_BYTES] != '{')
        return hl_fail(HL_BAD_INPUT, "%s: the header does not start with '{'", where);
    *text   = (const char *)bytes + LENGTH_BYTES;
    *n_text = (size_t)length;
    return HL_OK;
}

/* Checks that __metadata__ maps strings to strings. */
static hl_status check_metadata(json_t *header, const char *where)
{
    json_t     *metadata = json_object_get(header, HL_SAFETENSORS_METADATA);
    const char *key;
    json_t     *value;

    if (metadata == NULL)
        return HL_OK;
    if (!json_is_object(metadata))
        return hl_fail(HL_BAD_INPUT, "%s: " HL_SAFETENSORS_METADATA " is not an object", where);
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return hl_fail(HL_BAD_INPUT, "%s: " HL_SAFETENSORS_METADATA " '%s' is not a string",
                           where, key);
    }
    return HL_OK;
}

/* ------------------------------------------------------------- one tensor */

/* Reads an element of a JSON array, which must be an integer >= 0. */
static hl_status get_natural(int64_t *out, const json_t *array, size_t index, const char *what)
{
    const json_t *value = json_array_get(array, index);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return hl_fail(HL_BAD_INPUT, "%s [%zu] is not an integer >= 0", what, index);
    *out = json_integer_value(value);
    return HL_OK;
}

static hl_status read_dtype(hl_tensor *tensor, const json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (name == NULL)
        return hl_fail(HL_BAD_INPUT, "dtype is missing or not a string");
    if (!hl_dtype_parse(&tensor->dtype, name))
        return hl_fail(HL_BAD_INPUT, "dtype '%s' is not known", name);
    return HL_OK;
}

static hl_status read_shape(hl_tensor *tensor, const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return hl_fail(HL_BAD_INPUT, "shape is missing or not an array");
    if (json_array_size(shape) > HL_MAX_TENSOR_DIMS)
        return hl_fail(HL_BAD_INPUT, "shape has %zu dimensions, at most %d", json_array_size(shape),
                       HL_MAX_TENSOR_DIMS);

    tensor->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->n_dims; i++)
        HL_NEED(get_natural(&tensor->shape[i], shape, (size_t)i, "shape"));
    return HL_OK;
}

/* Reads data_offsets, which must lie inside the data and match dtype and shape. */
static hl_status read_place(hl_tensor *tensor, const json_t *entry, const uint8_t *data,
                            size_t n_data)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t       begin   = 0;
    int64_t       end     = 0;
    size_t        needed  = 0;

    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return hl_fail(HL_BAD_INPUT, "data_offsets is missing or not an array of two");
    HL_NEED(get_natural(&begin, offsets, 0, "data_offsets"));
    HL_NEED(get_natural(&end, offsets, 1, "data_offsets"));
    if (begin > end || (uint64_t)end > n_data)
        return hl_fail(HL_BAD_INPUT, "data_offsets [%lld, %lld] lie outside the data of %zu bytes",
                       (long long)begin, (long long)end, n_data);
    HL_NEED(hl_tensor_bytes(&needed, tensor));
    if ((uint64_t)(end - begin) != needed)
        return hl_fail(HL_BAD_INPUT, "data_offsets span %lld bytes, dtype and shape need %zu",
                       (long long)(end - begin), needed);
    tensor->data    = data + begin;
    tensor->n_bytes = needed;
    return HL_OK;
}

static hl_status read_tensor(hl_tensor *tensor, const json_t *entry, const uint8_t *data,
                             size_t n_data)
{
    if (!json_is_object(entry))
        return hl_fail(HL_BAD_INPUT, "not described by an object");
    HL_NEED(read_dtype(tensor, entry));
    HL_NEED(read_shape(tensor, entry));
    return read_place(tensor, entry, data, n_data);
}

/* ------------------------------------------------------------- all tensors */

/* Orders by place; an empty tensor comes before the one that starts at the same place. */
static int compare_place(const void *left, const void *right)
{
    const hl_tensor *a    = left;
    const hl_tensor *b    = right;
    uintptr_t        a_at = (uintptr_t)a->data;
    uintptr_t        b_at = (uintptr_t)b->data;
    if (a_at != b_at)
        return a_at < b_at ? -1 : 1;
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes < b->n_bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Checks that each tensor, in the order of places, begins where the one before it ends, and that
 * the last ends with the data. */
static hl_status check_cover(const hl_safetensors *file, const uint8_t *data, size_t n_data)
{
    size_t covered = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const hl_tensor *tensor = &file->tensors[i];
        size_t           begin  = (size_t)((const uint8_t *)tensor->data - data);
        if (begin != covered)
            return hl_fail(HL_BAD_INPUT, "%s: tensor '%s' begins at %zu, wanted %zu (%s)",
                           file->where, tensor->name, begin, covered,
                           begin > covered ? "a hole before it" : "it overlaps another");
        covered += tensor->n_bytes;
    }
    if (covered != n_data)
        return hl_fail(HL_BAD_INPUT, "%s: %zu bytes of data, the tensors fill only %zu",
                       file->where, n_data, covered);
    return HL_OK;
}

/* Fills in tensors and by_name from the parsed header. */
static hl_status read_tensors(hl_safetensors *file, const uint8_t *data, size_t n_data)
{
    size_t      n_keys = json_object_size(file->header);
    const char *name;
    json_t     *entry;

    HL_NEED(HL_ALLOC_ZEROED(&file->tensors, n_keys));
    HL_NEED(HL_ALLOC(&file->by_name, n_keys));
    json_object_foreach(file->header, name, entry) {
        if (strcmp(name, HL_SAFETENSORS_METADATA) == 0)
            continue;
        hl_tensor *tensor = &file->tensors[file->n_tensors++];
        tensor->name      = name;
        HL_NEED(hl_fail_within(read_tensor(tensor, entry, data, n_data), "%s: tensor '%s'",
                               file->where, name));
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, compare_place);
    HL_NEED(check_cover(file, data, n_data));
    for (size_t i = 0; i < file->n_tensors; i++)
        file->by_name[i] = &file->tensors[i];
    hl_tensors_sort(file->by_name, file->n_tensors);
    return HL_OK;
}

hl_status hl_safetensors_parse(hl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                               const char *where)
{
    const char                                     *text   = NULL;
    size_t                                          n_text = 0;
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file   = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&file, 1));
    HL_NEED(hl_strdup(&file->where, where));
    HL_NEED(locate_header(&text, &n_text, bytes, n_bytes, where));
    HL_NEED(hl_json_parse(&file->header, text, n_text, where));
    HL_NEED(check_metadata(file->header, where));
    HL_NEED(read_tensors(file, bytes + LENGTH_BYTES + n_text, n_bytes - LENGTH_BYTES - n_text));
    *out = hl_taken(&file);
    return HL_OK;
}

hl_status hl_safetensors_open(hl_safetensors **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_safetensors_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };
    return HL_OK;
}

void hl_safetensors_close(hl_safetensors *file)
{
    if (file == NULL)
        return;
    json_decref(file->header);
    hl_free(file->by_name);
    hl_free(file->tensors);
    hl_free(file->where);
    hl_file_unmap(&file->file);
    hl_free(file);
}

/* ----------------------------------------------------------------- lookup */

const char *hl_safetensors_where(const hl_safetensors *file)
{
    return file->where;
}

size_t hl_safetensors_count(const hl_safetensors *file)
{
    return file->n_tensors;
}

const hl_tensor *hl_safetensors_at(const hl_safetensors *file, size_t index)
{
    return index < file->n_tensors ? &file->tensors[index] : NULL;
}

const hl_tensor *hl_safetensors_find(const hl_safetensors *file, const char *name)
{
    return hl_tensors_among(file->by_name, file->n_tensors, name);
}

const char *hl_safetensors_metadata(const hl_safetensors *file, const char *key)
{
    const json_t *metadata = json_object_get(file->header, HL_SAFETENSORS_METADATA);
    return json_string_value(json_object_get(metadata, key));
}

/* ----------------------------------------------------------------- writing
 *
 * Tensors are stored with the widest elements first, then by name.  The header is padded with
 * spaces to a multiple of eight bytes.  Every tensor then starts at a multiple of its element
 * size, and the same tensors give the same bytes in whatever order they were added.
 *
 * Functions that add return no status: the writer keeps the first error, with its message, and
 * hl_safetensors_write reports it. */

#define HEADER_ALIGNMENT 8

struct hl_safetensors_writer {
    hl_tensor    *tensors; /* (capacity), n_tensors used; names are owned */
    size_t        n_tensors;
    size_t        capacity;
    size_t        n_header; /* bytes before the data, once it has been written */
    json_t       *metadata;
    hl_kept_error error;
};

hl_status hl_safetensors_writer_new(hl_safetensors_writer **out)
{
    HL_CLOSED(hl_safetensors_writer_free) hl_safetensors_writer *writer = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&writer, 1));
    writer->metadata = json_object();
    if (writer->metadata == NULL)
        return hl_fail(HL_NO_MEMORY, "out of memory");
    *out = hl_taken(&writer);
    return HL_OK;
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

/* --------------------------------------------------------- writing: adding */

/* Checks that the tensor's size is correct. */
static hl_status check_tensor(const hl_tensor *tensor)
{
    size_t needed = 0;

    if (hl_tensor_bytes(&needed, tensor) != HL_OK)
        return HL_BAD_ARGUMENT; /* the message is already set */
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
    HL_NEED(HL_GROW(&writer->tensors, &writer->capacity, writer->n_tensors, 1));
    HL_NEED(hl_strdup(&name, tensor->name));
    writer->tensors[writer->n_tensors]      = *tensor;
    writer->tensors[writer->n_tensors].name = name;
    writer->n_tensors++;
    return HL_OK;
}

void hl_safetensors_add(hl_safetensors_writer *writer, const hl_tensor *tensor)
{
    hl_status status = writer->error.status;

    if (status != HL_OK)
        return;
    if (tensor->name == NULL)
        status = hl_fail(HL_BAD_ARGUMENT, "a tensor cannot be called NULL");
    else if (strcmp(tensor->name, HL_SAFETENSORS_METADATA) == 0)
        status = hl_fail(HL_BAD_ARGUMENT, "tensor '%s': a tensor cannot be called %s", tensor->name,
                         tensor->name);
    else
        status = hl_fail_within(append(writer, tensor), "tensor '%s'", tensor->name);
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
    hl_status status = HL_OK;
    if (json_object_get(writer->metadata, key) != NULL)
        status = hl_fail(HL_BAD_ARGUMENT, "metadata '%s' was already added", key);
    else if (!is_utf8(key) || !is_utf8(value))
        status = hl_fail(HL_BAD_ARGUMENT, "metadata '%s' is not valid UTF-8", key);
    else if (json_object_set_new(writer->metadata, key, json_string(value)) != 0)
        status = hl_fail(HL_NO_MEMORY, "out of memory for metadata '%s'", key);
    hl_keep_error(&writer->error, status);
}

/* ------------------------------------------------------- writing: the file */

/* Orders as the file does: wide elements first, then by name. */
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

/* Returns { "dtype": ..., "shape": [...], "data_offsets": [begin, end] }, or NULL without memory.
 * jansson's "o" takes ownership of a reference, also on failure. */
static json_t *describe(const hl_tensor *tensor, size_t begin)
{
    json_t *shape = json_array();

    for (int i = 0; i < tensor->n_dims; i++)
        hl_json_add(&shape, json_integer(tensor->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", hl_dtype_name(tensor->dtype), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + tensor->n_bytes));
}

/* Builds the header as a JSON object, in the order of the file. */
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

/* Writes length, header and padding; returns the number of bytes. */
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

/* Sorts the tensors and writes the header to the file; `path` names it in messages. */
static hl_status begin_file(hl_writer *file, hl_safetensors_writer *writer, const char *path)
{
    HL_CLOSED(json_decref) json_t *header = json_object();
    HL_FREED char                 *text   = NULL;

    if (writer->n_tensors > 0)
        qsort(writer->tensors, writer->n_tensors, sizeof *writer->tensors, compare_order);
    HL_NEED(hl_fail_within(build_header(header, writer), "%s", path));
    text = hl_json_dump(header, JSON_COMPACT);
    if (text == NULL)
        return hl_fail(HL_NO_MEMORY, "%s: out of memory for the header", path);
    size_t n_text = strlen(text);
    if (n_text > HL_SAFETENSORS_MAX_HEADER - HEADER_ALIGNMENT)
        return hl_fail(HL_LIMIT, "%s: a header of %zu bytes, at most %d", path, n_text,
                       HL_SAFETENSORS_MAX_HEADER);
    writer->n_header = write_header(file, text, n_text);
    return HL_OK;
}

hl_status hl_safetensors_begin_in(hl_writer *file, hl_safetensors_writer *writer, const char *path)
{
    HL_NEED(hl_fail_within(hl_fail_kept(&writer->error), "%s", path));
    HL_NEED(begin_file(file, writer, path));
    hl_writer_reserve(file, hl_safetensors_offset(writer, NULL));
    return hl_writer_check(file);
}

hl_status hl_safetensors_begin(hl_writer **out, hl_safetensors_writer *writer, const char *path)
{
    HL_CLOSED(hl_writer_abandon) hl_writer *file = NULL;

    *out = NULL;
    HL_NEED(hl_writer_open(&file, path));
    HL_NEED(hl_safetensors_begin_in(file, writer, path));
    *out = hl_taken(&file);
    return HL_OK;
}

/* For an unknown name, this returns the end of the file. */
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
    HL_CLOSED(hl_writer_abandon) hl_writer *file = NULL;

    HL_NEED(hl_fail_within(hl_fail_kept(&writer->error), "%s", path));
    HL_NEED(hl_fail_within(check_data(writer), "%s", path));
    HL_NEED(hl_writer_open(&file, path));
    HL_NEED(begin_file(file, writer, path));
    for (size_t i = 0; i < writer->n_tensors; i++)
        hl_writer_write(file, writer->tensors[i].data, writer->tensors[i].n_bytes);
    return hl_writer_finish(hl_taken(&file));
}
