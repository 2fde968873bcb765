/* gguf.h - reading and writing GGUF files, the format of llama.cpp.
 *
 *     int64_t                           n_layers = 0;
 *     hl_bytes                          family   = { 0 };
 *     HL_CLOSED(hl_gguf_close) hl_gguf *file     = NULL;
 *
 *     HL_NEED(hl_gguf_open(&file, "model.gguf"));
 *     HL_NEED(hl_gguf_get_text(&family, file, "general.architecture"));
 *     HL_NEED(hl_gguf_get_int(&n_layers, file, "llama.block_count"));
 *     const hl_tensor *embedding = hl_gguf_find(file, "token_embd.weight");
 *
 * The file is mapped: texts, arrays and tensors are borrowed from the mapping.
 * Every count, size and offset is checked when the file is opened.  Shapes are
 * given outermost first, the reverse of how the file stores them. */
#ifndef HL_FORMATS_GGUF_H
#define HL_FORMATS_GGUF_H

#include "base/buffer.h"
#include "formats/tensors.h"
#include "headlight/base.h"

#define HL_GGUF_MAX_KEYS    65536
#define HL_GGUF_MAX_TENSORS 131072
#define HL_GGUF_MAX_DIMS    4
#define HL_GGUF_MAX_NAME    64                  /* bytes of a tensor's name */
#define HL_GGUF_ALIGNMENT   "general.alignment" /* a power of two */

#define HL_GGUF_DEFAULT_ALIGNMENT 32
#define HL_GGUF_MAX_ALIGNMENT     65536

/* Value types, with the numbers that the file uses. */
typedef enum hl_gguf_type {
    HL_GGUF_U8 = 0,
    HL_GGUF_I8,
    HL_GGUF_U16,
    HL_GGUF_I16,
    HL_GGUF_U32,
    HL_GGUF_I32,
    HL_GGUF_F32,
    HL_GGUF_BOOL,
    HL_GGUF_TEXT,
    HL_GGUF_ARRAY,
    HL_GGUF_U64,
    HL_GGUF_I64,
    HL_GGUF_F64,
    HL_GGUF_N_TYPES
} hl_gguf_type;

/* An array in the metadata; read its elements with hl_gguf_array_int and its siblings. */
typedef struct hl_gguf_array {
    hl_gguf_type    type; /* type of the elements */
    size_t          count;
    const uint8_t  *bytes;  /* the first element; unaligned */
    const uint64_t *starts; /* (count) offsets of texts or arrays; NULL for numbers */
} hl_gguf_array;

/* A key and its value as the file stores it, for copying to another file. */
typedef struct hl_gguf_value {
    const char     *key;
    hl_gguf_type    type;
    const uint8_t  *bytes;
    size_t          n_bytes;
    const uint64_t *starts; /* as in hl_gguf_array */
} hl_gguf_value;

/* ------------------------------------------------------------------ reading */

typedef struct hl_gguf hl_gguf;

hl_status hl_gguf_open(hl_gguf **out, const char *path);
/* Parses bytes in memory that outlives the object; `where` names them in messages. */
hl_status hl_gguf_parse(hl_gguf **out, const uint8_t *bytes, size_t n_bytes, const char *where);
void      hl_gguf_close(hl_gguf *file);
HL_CLOSES(hl_gguf_close, hl_gguf)

/* The path, for messages.  Borrowed. */
const char *hl_gguf_where(const hl_gguf *file);
/* The version of the format: 2 or 3. */

/* Tensors in the order of the file.  Borrowed. */
size_t           hl_gguf_count(const hl_gguf *file);
const hl_tensor *hl_gguf_at(const hl_gguf *file, size_t index);
/* NULL if there is no such tensor. */
const hl_tensor *hl_gguf_find(const hl_gguf *file, const char *name);

/* Metadata in the order of the file.  Borrowed. */
size_t               hl_gguf_n_values(const hl_gguf *file);
const hl_gguf_value *hl_gguf_value_at(const hl_gguf *file, size_t index);
/* NULL if there is no such key. */
const hl_gguf_value *hl_gguf_find_value(const hl_gguf *file, const char *key);

/* The value of a key.  A missing key leaves *out unchanged and is not an error; a
 * wrong type is HL_BAD_INPUT.  An integer may be stored as any integer type, a
 * float as any number. */
hl_status hl_gguf_get_int(int64_t *out, const hl_gguf *file, const char *key);
hl_status hl_gguf_get_float(double *out, const hl_gguf *file, const char *key);
hl_status hl_gguf_get_bool(bool *out, const hl_gguf *file, const char *key);
hl_status hl_gguf_get_text(hl_bytes *out, const hl_gguf *file, const char *key);
hl_status hl_gguf_get_array(hl_gguf_array *out, const hl_gguf *file, const char *key);

/* One element, in constant time; false if the index is out of range or the element has another
 * type.  Booleans are integers 0 and 1. */
bool hl_gguf_array_int(int64_t *out, const hl_gguf_array *array, size_t index);
bool hl_gguf_array_float(double *out, const hl_gguf_array *array, size_t index);
bool hl_gguf_array_text(hl_bytes *out, const hl_gguf_array *array, size_t index);

/* Bytes per value of this type; 0 for texts and arrays. */
size_t hl_gguf_type_bytes(hl_gguf_type type);
/* The number of bytes that a value of this type takes, among the n_bytes at `bytes`. */
hl_status hl_gguf_measure(size_t *out, hl_gguf_type type, const uint8_t *bytes, size_t n_bytes);

/* ------------------------------------------------------------------ writing
 *
 * Add metadata (copied) and tensors (data borrowed until written), then write.
 * The file is written under a temporary name, synced and renamed.  Metadata and
 * tensors are stored in the order in which they were added.  The writer keeps its
 * first error and hl_gguf_write reports it.  The key general.alignment sets the
 * alignment of the tensors. */

typedef struct hl_gguf_writer hl_gguf_writer;

hl_status hl_gguf_writer_new(hl_gguf_writer **out);
void      hl_gguf_writer_free(hl_gguf_writer *writer);
HL_CLOSES(hl_gguf_writer_free, hl_gguf_writer)

/* `type` is an integer type here, and a float type in hl_gguf_add_float. */
void hl_gguf_add_int(hl_gguf_writer *writer, const char *key, hl_gguf_type type, int64_t value);
void hl_gguf_add_float(hl_gguf_writer *writer, const char *key, hl_gguf_type type, double value);
void hl_gguf_add_bool(hl_gguf_writer *writer, const char *key, bool value);
void hl_gguf_add_text(hl_gguf_writer *writer, const char *key, const char *text);
/* Adds an array of numbers in C's types: int32_t for HL_GGUF_I32, and so on. */
void hl_gguf_add_numbers(hl_gguf_writer *writer, const char *key, hl_gguf_type type,
                         const void *elements, size_t count);
void hl_gguf_add_texts(hl_gguf_writer *writer, const char *key, const hl_bytes *texts,
                       size_t count);
/* Adds a value in the file's encoding, for copying and for arrays of arrays. */
void hl_gguf_add_value(hl_gguf_writer *writer, const hl_gguf_value *value);
void hl_gguf_add_tensor(hl_gguf_writer *writer, const hl_tensor *tensor);
/* Does not free the writer. */
hl_status hl_gguf_write(hl_gguf_writer *writer, const char *path);

#endif
