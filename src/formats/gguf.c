/* gguf.c - reading GGUF files.  (gguf_write.c writes them.)
 *
 *     "GGUF"
 *     u32     version: 2 or 3
 *     u64     n_tensors
 *     u64     n_values
 *     n_values times:   text key, u32 type, value
 *     n_tensors times:  text name, u32 n_dims, u64 dims[n_dims], u32 ggml type,
 *                       u64 offset
 *     padding to a multiple of the alignment: the data begin
 *
 *     text    u64 n_bytes, then the bytes; no NUL
 *     array   u32 type of the elements, u64 count, the elements; arrays may nest
 *     types   0..12 = u8 i8 u16 i16 u32 i32 f32 bool text array u64 i64 f64
 *
 * All little-endian, nothing aligned before the data.  dims[0] is the contiguous
 * one: a matrix that torch calls [out, in] has dims {in, out}.  Offsets count from
 * the beginning of the data and are multiples of the alignment, which is the
 * value of general.alignment, or 32.
 *
 * The file is not trusted.  Before anything is allocated, counts are compared with the rest of the
 * file, and with limits far above any model, since a file can be sparse: sixteen gigabytes of zeros
 * cost an attacker nothing.  Tensors may not overlap, but there may be holes.  The getters at the
 * end need no checks: by then, values are known to lie inside the file, and arrays to have their
 * stated length. */
#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

#define MAX_DEPTH        8          /* depth of arrays in arrays; 1 is usual */
#define MAX_KEY          65535      /* bytes */
#define MAX_INDEXED      (1U << 24) /* number of texts and inner arrays in the file */
#define MIN_VALUE_BYTES  13         /* an empty key, a type and a byte */
#define MIN_TENSOR_BYTES 24         /* an empty name, no dimensions, a type and an offset */
#define ARRAY_HEADER     12         /* u32 type, u64 count */

struct hl_gguf {
    hl_file               file; /* empty if the bytes are the caller's */
    char                 *where;
    hl_gguf_value        *values; /* (n_values) keys and starts are owned */
    const hl_gguf_value **by_key; /* (n_values) sorted by key */
    size_t                n_values;
    hl_tensor            *tensors; /* (n_tensors) names are owned */
    const hl_tensor     **by_name; /* (n_tensors) sorted by name */
    size_t                n_tensors;
};

/* ------------------------------------------------------------------- types */

static const struct {
    const char *name;
    size_t      n_bytes; /* 0: the value has its own length */
    char        kind;    /* 'u'nsigned or signed 'i'nteger, or another kind */
} types[HL_GGUF_N_TYPES] = {
    [HL_GGUF_U8] = { "a u8", 1, 'u' },     [HL_GGUF_I8] = { "an i8", 1, 'i' },
    [HL_GGUF_U16] = { "a u16", 2, 'u' },   [HL_GGUF_I16] = { "an i16", 2, 'i' },
    [HL_GGUF_U32] = { "a u32", 4, 'u' },   [HL_GGUF_I32] = { "an i32", 4, 'i' },
    [HL_GGUF_F32] = { "an f32", 4, 'f' },  [HL_GGUF_BOOL] = { "a boolean", 1, 'b' },
    [HL_GGUF_TEXT] = { "a text", 0, 't' }, [HL_GGUF_ARRAY] = { "an array", 0, 'a' },
    [HL_GGUF_U64] = { "a u64", 8, 'u' },   [HL_GGUF_I64] = { "an i64", 8, 'i' },
    [HL_GGUF_F64] = { "an f64", 8, 'f' },
};

size_t hl_gguf_type_bytes(hl_gguf_type type)
{
    return (unsigned)type < HL_GGUF_N_TYPES ? types[type].n_bytes : 0;
}

/* ------------------------------------------------------------------- cursor */

typedef struct cursor {
    const uint8_t *bytes;
    size_t         n_bytes;
    size_t         at;
    size_t         n_indexed; /* number of texts and inner arrays so far */
} cursor;

static size_t bytes_left(const cursor *c)
{
    return c->n_bytes - c->at;
}

/* Returns the next n_bytes and moves the cursor past them. */
static hl_status take(const uint8_t **out, cursor *c, uint64_t n_bytes)
{
    if (n_bytes > bytes_left(c))
        return hl_fail(HL_BAD_INPUT, "truncated: %llu bytes wanted at offset %zu of %zu",
                       (unsigned long long)n_bytes, c->at, c->n_bytes);
    *out = c->bytes + c->at;
    c->at += (size_t)n_bytes;
    return HL_OK;
}

static hl_status take_number(void *out, cursor *c, size_t n_bytes)
{
    const uint8_t *bytes = NULL;

    HL_NEED(take(&bytes, c, n_bytes));
    memcpy(out, bytes, n_bytes);
    return HL_OK;
}

static hl_status take_u32(uint32_t *out, cursor *c)
{
    return take_number(out, c, sizeof *out);
}

static hl_status take_u64(uint64_t *out, cursor *c)
{
    return take_number(out, c, sizeof *out);
}

static hl_status take_text(hl_bytes *out, cursor *c)
{
    const uint8_t *bytes   = NULL;
    uint64_t       n_bytes = 0;

    HL_NEED(take_u64(&n_bytes, c));
    HL_NEED(take(&bytes, c, n_bytes));
    *out = (hl_bytes){ (const char *)bytes, (size_t)n_bytes };
    return HL_OK;
}

/* Reads a key or a tensor's name: not empty, not too long, UTF-8 without NUL. */
static hl_status take_name(const char **out, cursor *c, size_t max_bytes, const char *what)
{
    hl_bytes text = { NULL, 0 };
    char    *copy = NULL;

    HL_NEED(hl_fail_within(take_text(&text, c), "%s", what));
    if (text.n_bytes == 0 || text.n_bytes > max_bytes)
        return hl_fail(HL_BAD_INPUT, "%s has %zu bytes, wanted 1 to %zu", what, text.n_bytes,
                       max_bytes);
    if (hl_utf8_find_bad(text.data, text.n_bytes) < text.n_bytes ||
        memchr(text.data, '\0', text.n_bytes) != NULL)
        return hl_fail(HL_BAD_INPUT, "%s is not valid UTF-8", what);
    HL_NEED(hl_strndup(&copy, text.data, text.n_bytes));
    *out = copy;
    return HL_OK;
}

/* ----------------------------------------------------------------- metadata */

static hl_status skip_array(cursor *c, int depth, uint64_t **starts);

/* Moves the cursor past a value. */
static hl_status skip_value(cursor *c, uint32_t type, int depth)
{
    const uint8_t *bytes = NULL;
    hl_bytes       text;

    if (type == HL_GGUF_TEXT)
        return take_text(&text, c);
    if (type == HL_GGUF_ARRAY)
        return skip_array(c, depth, NULL);
    if (type >= HL_GGUF_N_TYPES)
        return hl_fail(HL_BAD_INPUT, "type %u, the last known is %d", type, HL_GGUF_N_TYPES - 1);
    return take(&bytes, c, hl_gguf_type_bytes((hl_gguf_type)type));
}

/* Moves the cursor past the elements of an array of texts or arrays.  If starts is not NULL,
 * *starts gets the offset of each element from the first. */
static hl_status skip_elements(cursor *c, uint32_t type, uint64_t count, int depth,
                               uint64_t **starts)
{
    size_t begin = c->at;

    if (count > bytes_left(c) / sizeof(uint64_t)) /* each element starts with at least a u64 */
        return hl_fail(HL_BAD_INPUT, "truncated: an array of %llu in the last %zu bytes",
                       (unsigned long long)count, bytes_left(c));
    if (count > MAX_INDEXED - c->n_indexed)
        return hl_fail(HL_BAD_INPUT, "an array of %llu, at most %u texts and arrays in all",
                       (unsigned long long)count, MAX_INDEXED);
    c->n_indexed += (size_t)count;
    if (starts != NULL)
        HL_NEED(HL_ALLOC(starts, (size_t)count));
    for (uint64_t i = 0; i < count; i++) {
        if (starts != NULL)
            (*starts)[i] = c->at - begin;
        HL_NEED(skip_value(c, type, depth));
    }
    return HL_OK;
}

static hl_status skip_array(cursor *c, int depth, uint64_t **starts)
{
    const uint8_t *bytes   = NULL;
    uint32_t       type    = 0;
    uint64_t       count   = 0;
    size_t         n_bytes = 0;

    if (depth >= MAX_DEPTH)
        return hl_fail(HL_BAD_INPUT, "arrays nested more than %d deep", MAX_DEPTH);
    HL_NEED(take_u32(&type, c));
    HL_NEED(take_u64(&count, c));
    if (type == HL_GGUF_TEXT || type == HL_GGUF_ARRAY)
        return skip_elements(c, type, count, depth + 1, starts);
    if (type >= HL_GGUF_N_TYPES)
        return hl_fail(HL_BAD_INPUT, "an array of type %u, the last known is %d", type,
                       HL_GGUF_N_TYPES - 1);
    if (count > SIZE_MAX ||
        !hl_size_multiply(&n_bytes, (size_t)count, hl_gguf_type_bytes((hl_gguf_type)type)))
        return hl_fail(HL_BAD_INPUT, "an array of %llu: its size overflows",
                       (unsigned long long)count);
    return take(&bytes, c, n_bytes);
}

hl_status hl_gguf_measure(size_t *out, hl_gguf_type type, const uint8_t *bytes, size_t n_bytes)
{
    cursor    c      = { .bytes = bytes, .n_bytes = n_bytes };
    hl_status status = skip_value(&c, (uint32_t)type, 0);

    *out = c.at;
    return status;
}

/* Reads what follows the key.  The value owns what is allocated, also on failure. */
static hl_status read_value(hl_gguf_value *value, cursor *c)
{
    uint32_t  type   = 0;
    uint64_t *starts = NULL;

    HL_NEED(take_u32(&type, c));
    value->type      = (hl_gguf_type)type;
    value->bytes     = c->bytes + c->at;
    size_t    begin  = c->at;
    hl_status status = type == HL_GGUF_ARRAY ? skip_array(c, 0, &starts) : skip_value(c, type, 0);
    value->starts    = starts;
    value->n_bytes   = c->at - begin;
    HL_NEED(status);
    if (type == HL_GGUF_BOOL && value->bytes[0] > 1)
        return hl_fail(HL_BAD_INPUT, "a boolean of %d", value->bytes[0]);
    return HL_OK;
}

static int compare_keys(const void *left, const void *right)
{
    const hl_gguf_value *const *a = left;
    const hl_gguf_value *const *b = right;
    return strcmp((*a)->key, (*b)->key);
}

static hl_status read_values(hl_gguf *file, cursor *c, uint64_t n_values)
{
    HL_NEED(HL_ALLOC_ZEROED(&file->values, (size_t)n_values));
    HL_NEED(HL_ALLOC(&file->by_key, (size_t)n_values));
    for (uint64_t i = 0; i < n_values; i++) {
        hl_gguf_value *value = &file->values[file->n_values++];
        HL_NEED(take_name(&value->key, c, MAX_KEY, "a key"));
        HL_NEED(hl_fail_within(read_value(value, c), "key '%s'", value->key));
    }
    for (size_t i = 0; i < file->n_values; i++)
        file->by_key[i] = &file->values[i];
    qsort(file->by_key, file->n_values, sizeof *file->by_key, compare_keys);
    for (size_t i = 1; i < file->n_values; i++) {
        if (strcmp(file->by_key[i - 1]->key, file->by_key[i]->key) == 0)
            return hl_fail(HL_BAD_INPUT, "key '%s' is there twice", file->by_key[i]->key);
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ tensors */

/* The name of a type that headlight does not read. */
static const char *foreign_type(uint32_t id)
{
    static const struct {
        uint32_t    id;
        const char *name;
    } known[] = {
        { 4, "Q4_2" },        { 5, "Q4_3" },        { 9, "Q8_1" },      { 15, "Q8_K" },
        { 31, "Q4_0_4_4" },   { 32, "Q4_0_4_8" },   { 33, "Q4_0_8_8" }, { 36, "IQ4_NL_4_4" },
        { 37, "IQ4_NL_4_8" }, { 38, "IQ4_NL_8_8" }, { 40, "NVFP4" },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].id == id)
            return known[i].name;
    }
    return "unknown to this program";
}

/* dims[0] comes first in the file and last in the shape. */
static hl_status read_shape(hl_tensor *tensor, cursor *c)
{
    uint32_t n_dims = 0;
    uint64_t size   = 0;

    HL_NEED(take_u32(&n_dims, c));
    if (n_dims > HL_GGUF_MAX_DIMS)
        return hl_fail(HL_BAD_INPUT, "%u dimensions, at most %d", n_dims, HL_GGUF_MAX_DIMS);
    tensor->n_dims = (int)n_dims;
    for (int i = (int)n_dims - 1; i >= 0; i--) {
        HL_NEED(take_u64(&size, c));
        if (size > INT64_MAX)
            return hl_fail(HL_BAD_INPUT, "a dimension of %llu", (unsigned long long)size);
        tensor->shape[i] = (int64_t)size;
    }
    return HL_OK;
}

/* Reads everything but the name and the address, which is known only after the last tensor info;
 * until then *offset holds the offset. */
static hl_status read_info(hl_tensor *tensor, uint64_t *offset, cursor *c)
{
    uint32_t type = 0;

    HL_NEED(read_shape(tensor, c));
    HL_NEED(take_u32(&type, c));
    HL_NEED(take_u64(offset, c));
    if (!hl_dtype_from_ggml(&tensor->dtype, type))
        return hl_fail(HL_UNSUPPORTED, "its type %u (%s) is not read here", type,
                       foreign_type(type));
    return hl_tensor_bytes(&tensor->n_bytes, tensor);
}

static hl_status place(hl_tensor *tensor, uint64_t offset, const uint8_t *data, size_t n_data,
                       size_t alignment)
{
    if (offset % alignment != 0)
        return hl_fail(HL_BAD_INPUT, "tensor '%s': offset %llu is not a multiple of %zu",
                       tensor->name, (unsigned long long)offset, alignment);
    if (offset > n_data || tensor->n_bytes > n_data - offset)
        return hl_fail(HL_BAD_INPUT,
                       "tensor '%s': %zu bytes at offset %llu lie outside the data of %zu bytes",
                       tensor->name, tensor->n_bytes, (unsigned long long)offset, n_data);
    tensor->data = data + offset;
    return HL_OK;
}

static int compare_places(const void *left, const void *right)
{
    const hl_tensor *a      = *(const hl_tensor *const *)left;
    const hl_tensor *b      = *(const hl_tensor *const *)right;
    const char      *a_data = a->data, *b_data = b->data;

    if (a_data != b_data)
        return a_data < b_data ? -1 : 1;
    return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes); /* empty tensors first */
}

/* Checks that tensors neither overlap nor share a name.  Sorts by_name by address, then by name. */
static hl_status check_places_and_names(hl_gguf *file)
{
    for (size_t i = 0; i < file->n_tensors; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->n_tensors, sizeof *file->by_name, compare_places);
    for (size_t i = 1; i < file->n_tensors; i++) {
        const hl_tensor *one = file->by_name[i - 1], *next = file->by_name[i];
        if ((const char *)one->data + one->n_bytes > (const char *)next->data)
            return hl_fail(HL_BAD_INPUT, "tensor '%s' overlaps tensor '%s'", next->name, one->name);
    }
    hl_tensors_sort(file->by_name, file->n_tensors);
    for (size_t i = 1; i < file->n_tensors; i++) {
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return hl_fail(HL_BAD_INPUT, "tensor '%s' is there twice", file->by_name[i]->name);
    }
    return HL_OK;
}

static hl_status read_alignment(size_t *out, const hl_gguf *file)
{
    const hl_gguf_value *value     = hl_gguf_find_value(file, HL_GGUF_ALIGNMENT);
    uint32_t             alignment = HL_GGUF_DEFAULT_ALIGNMENT;

    if (value != NULL && value->type != HL_GGUF_U32)
        return hl_fail(HL_BAD_INPUT, HL_GGUF_ALIGNMENT " is not a u32");
    if (value != NULL)
        memcpy(&alignment, value->bytes, sizeof alignment);
    if (alignment == 0 || alignment > HL_GGUF_MAX_ALIGNMENT || (alignment & (alignment - 1)) != 0)
        return hl_fail(HL_BAD_INPUT, HL_GGUF_ALIGNMENT " is %u, wanted a power of two up to %d",
                       alignment, HL_GGUF_MAX_ALIGNMENT);
    *out = alignment;
    return HL_OK;
}

static hl_status read_tensors(hl_gguf *file, cursor *c, uint64_t n_tensors)
{
    size_t             alignment = 0;
    HL_FREED uint64_t *offsets   = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&file->tensors, (size_t)n_tensors));
    HL_NEED(HL_ALLOC(&file->by_name, (size_t)n_tensors));
    HL_NEED(HL_ALLOC(&offsets, (size_t)n_tensors));
    for (uint64_t i = 0; i < n_tensors; i++) {
        hl_tensor *tensor = &file->tensors[file->n_tensors++];
        HL_NEED(take_name(&tensor->name, c, HL_GGUF_MAX_NAME, "the name of a tensor"));
        HL_NEED(hl_fail_within(read_info(tensor, &offsets[i], c), "tensor '%s'", tensor->name));
    }

    HL_NEED(read_alignment(&alignment, file));
    size_t padding = (alignment - c->at % alignment) % alignment;
    size_t begin   = padding < bytes_left(c) ? c->at + padding : c->n_bytes;
    for (size_t i = 0; i < file->n_tensors; i++)
        HL_NEED(
            place(&file->tensors[i], offsets[i], c->bytes + begin, c->n_bytes - begin, alignment));
    return check_places_and_names(file);
}

/* --------------------------------------------------------------------- file */

static hl_status check_version(uint32_t version)
{
    if (version == 2 || version == 3)
        return HL_OK;
    if ((version & 0xffff) == 0 && version >> 24 != 0)
        return hl_fail(HL_UNSUPPORTED,
                       "a big-endian GGUF file (version %u); "
                       "convert it with gguf_convert_endian.py",
                       version >> 24);
    return hl_fail(HL_UNSUPPORTED, "GGUF version %u, wanted 2 or 3", version);
}

/* Reads everything before the metadata. */
static hl_status read_start(uint64_t *n_values, uint64_t *n_tensors, cursor *c)
{
    const uint8_t *magic   = NULL;
    uint32_t       version = 0;

    HL_NEED(take(&magic, c, 4));
    if (memcmp(magic, "GGUF", 4) != 0)
        return hl_fail(HL_BAD_INPUT, "not a GGUF file: it does not start with \"GGUF\"");
    HL_NEED(take_u32(&version, c));
    HL_NEED(check_version(version));
    HL_NEED(take_u64(n_tensors, c));
    HL_NEED(take_u64(n_values, c));
    if (*n_values > HL_GGUF_MAX_KEYS || *n_values > bytes_left(c) / MIN_VALUE_BYTES)
        return hl_fail(HL_BAD_INPUT, "%llu keys in %zu bytes, at most %d",
                       (unsigned long long)*n_values, bytes_left(c), HL_GGUF_MAX_KEYS);
    if (*n_tensors > HL_GGUF_MAX_TENSORS || *n_tensors > bytes_left(c) / MIN_TENSOR_BYTES)
        return hl_fail(HL_BAD_INPUT, "%llu tensors in %zu bytes, at most %d",
                       (unsigned long long)*n_tensors, bytes_left(c), HL_GGUF_MAX_TENSORS);
    return HL_OK;
}

static hl_status parse(hl_gguf *file, const uint8_t *bytes, size_t n_bytes)
{
    cursor   c         = { .bytes = bytes, .n_bytes = n_bytes };
    uint64_t n_values  = 0;
    uint64_t n_tensors = 0;

    HL_NEED(read_start(&n_values, &n_tensors, &c));
    HL_NEED(read_values(file, &c, n_values));
    return read_tensors(file, &c, n_tensors);
}

hl_status hl_gguf_parse(hl_gguf **out, const uint8_t *bytes, size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_gguf_close) hl_gguf *file = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&file, 1));
    HL_NEED(hl_strdup(&file->where, where));
    HL_NEED(hl_fail_within(parse(file, bytes, n_bytes), "%s", where));
    *out = hl_taken(&file);
    return HL_OK;
}

hl_status hl_gguf_open(hl_gguf **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_gguf_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };
    return HL_OK;
}

void hl_gguf_close(hl_gguf *file)
{
    if (file == NULL)
        return;
    for (size_t i = 0; i < file->n_values; i++) {
        hl_free((void *)file->values[i].key);
        hl_free((void *)file->values[i].starts);
    }
    for (size_t i = 0; i < file->n_tensors; i++)
        hl_free((void *)file->tensors[i].name);
    hl_free(file->values);
    hl_free(file->by_key);
    hl_free(file->tensors);
    hl_free(file->by_name);
    hl_free(file->where);
    hl_file_unmap(&file->file);
    hl_free(file);
}

/* ------------------------------------------------------------------- lookup */

const char *hl_gguf_where(const hl_gguf *file)
{
    return file->where;
}

size_t hl_gguf_count(const hl_gguf *file)
{
    return file->n_tensors;
}

const hl_tensor *hl_gguf_at(const hl_gguf *file, size_t index)
{
    return index < file->n_tensors ? &file->tensors[index] : NULL;
}

const hl_tensor *hl_gguf_find(const hl_gguf *file, const char *name)
{
    return hl_tensors_among(file->by_name, file->n_tensors, name);
}

size_t hl_gguf_n_values(const hl_gguf *file)
{
    return file->n_values;
}

const hl_gguf_value *hl_gguf_value_at(const hl_gguf *file, size_t index)
{
    return index < file->n_values ? &file->values[index] : NULL;
}

const hl_gguf_value *hl_gguf_find_value(const hl_gguf *file, const char *key)
{
    hl_gguf_value               wanted  = { .key = key };
    const hl_gguf_value        *pointer = &wanted;
    const hl_gguf_value *const *found =
        bsearch(&pointer, file->by_key, file->n_values, sizeof *file->by_key, compare_keys);
    return found != NULL ? *found : NULL;
}

/* ----------------------------------------------------- numbers of any type */

/* Returns false for types that are not integers, and for a u64 that is too large. */
static bool load_int(int64_t *out, hl_gguf_type type, const uint8_t *bytes)
{
    uint64_t bits    = 0;
    size_t   n_bytes = types[type].n_bytes;
    char     kind    = types[type].kind;

    if (kind != 'u' && kind != 'i')
        return false;
    memcpy(&bits, bytes, n_bytes);
    uint64_t sign = UINT64_C(1) << (8 * n_bytes - 1);
    if (kind == 'i') /* sign-extends shorter integers */
        bits = (bits ^ sign) - sign;
    *out = (int64_t)bits;
    return kind == 'i' || *out >= 0;
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
    float   narrow  = 0.0f;

    if (type == HL_GGUF_F64) {
        memcpy(out, bytes, sizeof *out);
    } else if (type == HL_GGUF_F32) {
        memcpy(&narrow, bytes, sizeof narrow);
        *out = (double)narrow;
    } else {
        if (!load_int(&integer, type, bytes))
            return false;
        *out = (double)integer;
    }
    return true;
}

/* A text is stored as its length and its bytes. */
static hl_bytes load_text(const uint8_t *bytes)
{
    uint64_t length;

    memcpy(&length, bytes, sizeof length);
    return (hl_bytes){ (const char *)bytes + sizeof length, (size_t)length };
}

/* ------------------------------------------------------------------ getters
 *
 * Writers disagree about types (a head count may be u32, i32 or u64, and one number or one per
 * layer), so a getter accepts any type that holds the value without loss. */

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

/* Finds a value of this type; NULL if the key is missing. */
static hl_status find_typed(const hl_gguf_value **out, const hl_gguf *file, const char *key,
                            hl_gguf_type type)
{
    *out = hl_gguf_find_value(file, key);
    return *out == NULL || (*out)->type == type ? HL_OK : wrong_type(file, *out, types[type].name);
}

hl_status hl_gguf_get_bool(bool *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = NULL;

    HL_NEED(find_typed(&value, file, key, HL_GGUF_BOOL));
    if (value != NULL)
        *out = value->bytes[0] != 0;
    return HL_OK;
}

hl_status hl_gguf_get_text(hl_bytes *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = NULL;

    HL_NEED(find_typed(&value, file, key, HL_GGUF_TEXT));
    if (value != NULL)
        *out = load_text(value->bytes);
    return HL_OK;
}

hl_status hl_gguf_get_array(hl_gguf_array *out, const hl_gguf *file, const char *key)
{
    const hl_gguf_value *value = NULL;
    uint32_t             type  = 0;
    uint64_t             count = 0;

    HL_NEED(find_typed(&value, file, key, HL_GGUF_ARRAY));
    if (value == NULL)
        return HL_OK;
    memcpy(&type, value->bytes, sizeof type);
    memcpy(&count, value->bytes + sizeof type, sizeof count);
    *out = (hl_gguf_array){ .type   = (hl_gguf_type)type,
                            .count  = (size_t)count,
                            .bytes  = value->bytes + ARRAY_HEADER,
                            .starts = value->starts };
    return HL_OK;
}

/* ----------------------------------------------------------------- elements */

/* The address of an element: numbers have a size, the others an index of where they start. */
static const uint8_t *element(const hl_gguf_array *array, size_t index)
{
    size_t size = hl_gguf_type_bytes(array->type);

    return array->bytes + (size != 0 ? index * size : array->starts[index]);
}

bool hl_gguf_array_int(int64_t *out, const hl_gguf_array *array, size_t index)
{
    return index < array->count && load_int_or_bool(out, array->type, element(array, index));
}

bool hl_gguf_array_float(double *out, const hl_gguf_array *array, size_t index)
{
    return index < array->count && load_float(out, array->type, element(array, index));
}

bool hl_gguf_array_text(hl_bytes *out, const hl_gguf_array *array, size_t index)
{
    if (index >= array->count || array->type != HL_GGUF_TEXT)
        return false;
    *out = load_text(element(array, index));
    return true;
}
