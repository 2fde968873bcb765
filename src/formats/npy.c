/* npy.c - reading NumPy's .npy files.
 *
 *     6 bytes   93 'N' 'U' 'M' 'P' 'Y'
 *     2 bytes   version: 1.0, 2.0 or 3.0
 *     length    size of the header; u16 in version 1, u32 in 2 and 3, little-endian
 *     header    a Python dictionary in ASCII (3: UTF-8), then spaces and a newline
 *               {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *     data      to the end of the file
 *
 * descr has the byte order ('<' little, '|' irrelevant, '>' big), a letter for the kind, and the
 * size of an element in bytes.  Only simple elements in C order and little-endian are read; for
 * other arrays the message says what is not supported. */
#include "formats/npy.h"

#include <string.h>

#include "base/file.h"
#include "base/json_reader.h"
#include "base/memory.h"
#include "base/status.h"

#define MAGIC_BYTES 6
#define MAX_HEADER  65536

struct hl_npy {
    hl_file   file; /* {0} if the bytes are the caller's */
    hl_tensor tensor;
};

typedef struct header_parser {
    const char *text;
    size_t      n_bytes;
    size_t      at;
    const char *where;
    hl_tensor  *tensor;
    bool        has_descr;
    bool        has_order;
    bool        has_shape;
    bool        fortran;
} header_parser;

bool hl_npy_is(const uint8_t *bytes, size_t n_bytes)
{
    return n_bytes >= MAGIC_BYTES && memcmp(bytes, "\x93NUMPY", MAGIC_BYTES) == 0;
}

/* ----------------------------------------------------------------- the header */

static hl_status bad_header(const header_parser *p, const char *wanted)
{
    return hl_fail(HL_BAD_INPUT, "%s: header, at %zu: wanted %s", p->where, p->at, wanted);
}

static void skip_spaces(header_parser *p)
{
    while (p->at < p->n_bytes && (p->text[p->at] == ' ' || p->text[p->at] == '\n'))
        p->at++;
}

/* Skips a character if it comes next. */
static bool accept(header_parser *p, char c)
{
    skip_spaces(p);
    if (p->at >= p->n_bytes || p->text[p->at] != c)
        return false;
    p->at++;
    return true;
}

static bool accept_word(header_parser *p, const char *word)
{
    size_t length = strlen(word);

    skip_spaces(p);
    if (p->n_bytes - p->at < length || memcmp(p->text + p->at, word, length) != 0)
        return false;
    p->at += length;
    return true;
}

/* Parses 'text' or "text", without escapes. */
static hl_status parse_string(hl_bytes *out, header_parser *p)
{
    char quote = accept(p, '\'') ? '\'' : accept(p, '"') ? '"' : '\0';

    if (quote == '\0')
        return bad_header(p, "a string");
    const char *begin = p->text + p->at;
    const char *end   = memchr(begin, quote, p->n_bytes - p->at);
    if (end == NULL)
        return bad_header(p, "the end of a string");
    *out = (hl_bytes){ begin, (size_t)(end - begin) };
    p->at += out->n_bytes + 1;
    return HL_OK;
}

static hl_status parse_descr(header_parser *p)
{
    static const struct {
        const char *descr;
        hl_dtype    dtype;
    } kinds[] = {
        { "<f4", HL_DTYPE_F32 }, { "<f8", HL_DTYPE_F64 }, { "<f2", HL_DTYPE_F16 },
        { "<i4", HL_DTYPE_I32 }, { "<i8", HL_DTYPE_I64 }, { "<i2", HL_DTYPE_I16 },
        { "<u4", HL_DTYPE_U32 }, { "<u8", HL_DTYPE_U64 }, { "<u2", HL_DTYPE_U16 },
        { "|i1", HL_DTYPE_I8 },  { "|u1", HL_DTYPE_U8 },  { "|b1", HL_DTYPE_BOOL },
    };
    hl_bytes descr;

    skip_spaces(p);
    if (p->at < p->n_bytes && p->text[p->at] == '[')
        return hl_fail(HL_UNSUPPORTED, "%s: a structured array, wanted plain numbers", p->where);
    HL_NEED(parse_string(&descr, p));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (hl_bytes_equal(descr, kinds[i].descr)) {
            p->tensor->dtype = kinds[i].dtype;
            p->has_descr     = true;
            return HL_OK;
        }
    }
    return hl_fail(HL_UNSUPPORTED,
                   "%s: elements of type '%.*s', wanted little-endian f2, f4, f8, i1 to i8, u1 to "
                   "u8 or b1",
                   p->where, (int)(descr.n_bytes < 32 ? descr.n_bytes : 32), descr.data);
}

static hl_status parse_order(header_parser *p)
{
    p->fortran = accept_word(p, "True");
    if (!p->fortran && !accept_word(p, "False"))
        return bad_header(p, "True or False");
    p->has_order = true;
    return HL_OK;
}

static hl_status parse_size(int64_t *out, header_parser *p)
{
    size_t begin = p->at;

    for (*out = 0; p->at < p->n_bytes; p->at++) {
        unsigned digit = (unsigned)p->text[p->at] - '0';
        if (digit > 9)
            break;
        if (*out > (INT64_MAX - 9) / 10)
            return bad_header(p, "a smaller number");
        *out = *out * 10 + digit;
    }
    return p->at > begin ? HL_OK : bad_header(p, "a number");
}

/* Parses "()", "(3,)", "(3, 4)". */
static hl_status parse_shape(header_parser *p)
{
    hl_tensor *tensor = p->tensor;

    if (!accept(p, '('))
        return bad_header(p, "'('");
    p->has_shape = true;
    while (!accept(p, ')')) {
        if (tensor->n_dims == HL_MAX_TENSOR_DIMS)
            return hl_fail(HL_BAD_INPUT, "%s: more than %d dimensions", p->where,
                           HL_MAX_TENSOR_DIMS);
        HL_NEED(parse_size(&tensor->shape[tensor->n_dims], p));
        tensor->n_dims++;
        bool comma = accept(p, ',');
        if (!comma && (p->at >= p->n_bytes || p->text[p->at] != ')'))
            return bad_header(p, "',' or ')'");
    }
    return HL_OK;
}

static hl_status parse_entry(header_parser *p)
{
    hl_bytes key;

    HL_NEED(parse_string(&key, p));
    if (!accept(p, ':'))
        return bad_header(p, "':'");
    if (hl_bytes_equal(key, "descr") && !p->has_descr)
        return parse_descr(p);
    if (hl_bytes_equal(key, "fortran_order") && !p->has_order)
        return parse_order(p);
    if (hl_bytes_equal(key, "shape") && !p->has_shape)
        return parse_shape(p);
    return bad_header(p, "the keys descr, fortran_order and shape, once each");
}

static hl_status parse_header(header_parser *p)
{
    if (!accept(p, '{'))
        return bad_header(p, "'{'");
    while (!accept(p, '}')) {
        HL_NEED(parse_entry(p));
        bool comma = accept(p, ',');
        skip_spaces(p);
        if (!comma && (p->at >= p->n_bytes || p->text[p->at] != '}'))
            return bad_header(p, "',' or '}'");
    }
    skip_spaces(p);
    if (p->at < p->n_bytes)
        return bad_header(p, "nothing more");
    if (!p->has_descr || !p->has_order || !p->has_shape)
        return bad_header(p, "descr, fortran_order and shape");
    if (p->fortran && p->tensor->n_dims > 1)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: stored in Fortran order (save numpy.ascontiguousarray of it)",
                       p->where);
    return HL_OK;
}

/* -------------------------------------------------------------------- the file */

/* Finds where the header begins and how long it is. */
static hl_status find_header(size_t *begin, size_t *length, const uint8_t *bytes, size_t n_bytes,
                             const char *where)
{
    if (!hl_npy_is(bytes, n_bytes))
        return hl_fail(HL_BAD_INPUT, "%s: not a .npy file", where);
    unsigned version = n_bytes > MAGIC_BYTES ? bytes[MAGIC_BYTES] : 0;
    if (version < 1 || version > 3)
        return hl_fail(HL_UNSUPPORTED, "%s: .npy version %u, wanted 1 to 3", where, version);
    *begin = version == 1 ? 10 : 12;
    if (n_bytes < *begin)
        return hl_fail(HL_BAD_INPUT, "%s: %zu bytes, wanted at least %zu", where, n_bytes, *begin);
    *length = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (version > 1)
        *length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (*length > n_bytes - *begin || *length > MAX_HEADER)
        return hl_fail(HL_BAD_INPUT, "%s: a header of %zu bytes in a file of %zu, at most %d",
                       where, *length, n_bytes, MAX_HEADER);
    return HL_OK;
}

static hl_status parse(hl_tensor *tensor, const uint8_t *bytes, size_t n_bytes, const char *where)
{
    size_t begin = 0, length = 0, needed = 0;

    HL_NEED(find_header(&begin, &length, bytes, n_bytes, where));
    header_parser p = {
        .text = (const char *)bytes + begin, .n_bytes = length, .where = where, .tensor = tensor
    };
    tensor->name = "";
    HL_NEED(parse_header(&p));
    HL_NEED(hl_fail_within(hl_tensor_bytes(&needed, tensor), "%s", where));
    tensor->data    = bytes + begin + length;
    tensor->n_bytes = n_bytes - begin - length;
    if (tensor->n_bytes != needed)
        return hl_fail(HL_BAD_INPUT, "%s: %zu bytes of data, the shape asks for %zu", where,
                       tensor->n_bytes, needed);
    return HL_OK;
}

hl_status hl_npy_parse(hl_npy **out, const uint8_t *bytes, size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_npy_close) hl_npy *file = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&file, 1));
    HL_NEED(parse(&file->tensor, bytes, n_bytes, where));
    *out = hl_taken(&file);
    return HL_OK;
}

hl_status hl_npy_open(hl_npy **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    HL_NEED(hl_npy_parse(out, file.bytes, file.n_bytes, path));
    (*out)->file = file;
    file         = (hl_file){ 0 };
    return HL_OK;
}

void hl_npy_close(hl_npy *file)
{
    if (file == NULL)
        return;
    hl_file_unmap(&file->file);
    hl_free(file);
}

const hl_tensor *hl_npy_tensor(const hl_npy *file)
{
    return &file->tensor;
}
