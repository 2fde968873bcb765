/* safetensors.c - reading safetensors files.  (safetensors_write.c writes them.)
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
 * The file is not trusted.  Each number is checked against the size of the file before it
 * is used, and each product for overflow; afterwards a hl_tensor can be believed. */
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

#define LENGTH_BYTES 8

struct hl_safetensors {
    hl_file           file; /* nothing if the bytes are the caller's */
    char             *where;
    json_t           *header;  /* names and metadata are borrowed from it */
    hl_tensor        *tensors; /* (n_tensors) in the order of their data */
    const hl_tensor **by_name; /* (n_tensors) sorted by name */
    size_t            n_tensors;
};

/* ------------------------------------------------------------------ header */

/* Find the header in the file: its text and where the data begins. */
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

/* __metadata__ maps strings to strings. */
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

/* An element of a JSON array that must be an integer >= 0. */
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
    for (int i = 0; i < tensor->n_dims; i++) {
        hl_status status = get_natural(&tensor->shape[i], shape, (size_t)i, "shape");
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

/* data_offsets, which must lie inside the data and fit dtype and shape. */
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

static hl_status read_tensor(hl_tensor *tensor, const char *name, const json_t *entry,
                             const uint8_t *data, size_t n_data, const char *where)
{
    hl_status status = HL_OK;

    tensor->name = name;
    if (!json_is_object(entry))
        status = hl_fail(HL_BAD_INPUT, "not described by an object");
    if (status == HL_OK)
        status = read_dtype(tensor, entry);
    if (status == HL_OK)
        status = read_shape(tensor, entry);
    if (status == HL_OK)
        status = read_place(tensor, entry, data, n_data);
    if (status != HL_OK)
        hl_fail_within(status, "%s: tensor '%s'", where, name);
    return status;
}

/* ------------------------------------------------------------- all tensors */

/* By place; an empty tensor comes before the one that starts where it lies. */
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

static int compare_name(const void *left, const void *right)
{
    const hl_tensor *const *a = left;
    const hl_tensor *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

/* Sorted by place, each tensor must begin where the one before it ended, and
 * the last must end with the data. */
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

/* Fill in tensors and by_name from the parsed header. */
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
        HL_NEED(read_tensor(tensor, name, entry, data, n_data, file->where));
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, compare_place);
    HL_NEED(check_cover(file, data, n_data));
    for (size_t i = 0; i < file->n_tensors; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->n_tensors, sizeof *file->by_name, compare_name);
    return HL_OK;
}

hl_status hl_safetensors_parse(hl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                               const char *where)
{
    hl_status       status = HL_OK;
    hl_safetensors *file   = NULL;
    const char     *text   = NULL;
    size_t          n_text = 0;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&file, 1));
    HL_TRY(hl_strdup(&file->where, where));
    HL_TRY(locate_header(&text, &n_text, bytes, n_bytes, where));
    HL_TRY(hl_json_parse(&file->header, text, n_text, where));
    HL_TRY(check_metadata(file->header, where));
    HL_TRY(read_tensors(file, bytes + LENGTH_BYTES + n_text, n_bytes - LENGTH_BYTES - n_text));
    *out = file;
    file = NULL;

done:
    hl_safetensors_close(file);
    return status;
}

hl_status hl_safetensors_open(hl_safetensors **out, const char *path)
{
    hl_status status = HL_OK;
    hl_file   file   = { 0 };

    *out = NULL;
    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_safetensors_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };

done:
    hl_file_unmap(&file);
    return status;
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
    hl_tensor               wanted = { .name = name };
    const hl_tensor        *key    = &wanted;
    const hl_tensor *const *found =
        bsearch(&key, file->by_name, file->n_tensors, sizeof *file->by_name, compare_name);
    return found != NULL ? *found : NULL;
}

const char *hl_safetensors_metadata(const hl_safetensors *file, const char *key)
{
    const json_t *metadata = json_object_get(file->header, HL_SAFETENSORS_METADATA);
    return json_string_value(json_object_get(metadata, key));
}
