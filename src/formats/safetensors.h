/* safetensors.h - reading and writing safetensors files.
 *
 * The file is mapped; tensors are found by name and their bytes are borrowed
 * from the mapping.  Every count, size and offset is checked when the file is
 * opened, so the fields of a hl_tensor can be trusted. */
#ifndef HL_FORMATS_SAFETENSORS_H
#define HL_FORMATS_SAFETENSORS_H

#include "base/file.h"
#include "base/memory.h"
#include "formats/tensors.h"
#include "headlight/base.h"

#define HL_SAFETENSORS_MAX_HEADER 100000000 /* bytes; the reference implementation's limit */
#define HL_SAFETENSORS_METADATA   "__metadata__"

typedef struct hl_safetensors hl_safetensors;

hl_status hl_safetensors_open(hl_safetensors **out, const char *path);
/* Parses bytes in memory that outlives the object; `where` names them in messages. */
hl_status hl_safetensors_parse(hl_safetensors **out, const uint8_t *bytes, size_t n_bytes,
                               const char *where);
void      hl_safetensors_close(hl_safetensors *file);
HL_CLOSES(hl_safetensors_close, hl_safetensors)

/* The path, for messages.  Borrowed. */
const char *hl_safetensors_where(const hl_safetensors *file);
/* Tensors in the order of their data.  Borrowed from the file. */
size_t           hl_safetensors_count(const hl_safetensors *file);
const hl_tensor *hl_safetensors_at(const hl_safetensors *file, size_t index);
/* NULL if there is no such tensor. */
const hl_tensor *hl_safetensors_find(const hl_safetensors *file, const char *name);
/* The value of a key of __metadata__; NULL if absent.  Borrowed. */
const char *hl_safetensors_metadata(const hl_safetensors *file, const char *key);

/* Writing: add tensors (their data is borrowed until written) and metadata (copied), then call
 * hl_safetensors_write, which sorts them, writes to a temporary name, syncs and renames.  The
 * writer keeps its first error and hl_safetensors_write reports it. */
typedef struct hl_safetensors_writer hl_safetensors_writer;

hl_status hl_safetensors_writer_new(hl_safetensors_writer **out);
void      hl_safetensors_add(hl_safetensors_writer *writer, const hl_tensor *tensor);
void hl_safetensors_add_metadata(hl_safetensors_writer *writer, const char *key, const char *value);
/* Replaces hl_safetensors_write when the data does not fit in memory.  It writes the header and
 * reserves room for all tensors, whose data may be NULL.  The caller then writes each tensor with
 * hl_writer_write_at, at hl_safetensors_offset, in any order, and finishes the file. */
hl_status hl_safetensors_begin(hl_writer **out, hl_safetensors_writer *writer, const char *path);
/* Like hl_safetensors_begin, in an open file.  The caller closes the file, also on failure. */
hl_status hl_safetensors_begin_in(hl_writer *file, hl_safetensors_writer *writer, const char *path);
/* The offset in the file of an added tensor's data; call it after hl_safetensors_begin. */
size_t hl_safetensors_offset(const hl_safetensors_writer *writer, const char *name);
/* Does not free the writer. */
hl_status hl_safetensors_write(hl_safetensors_writer *writer, const char *path);
void      hl_safetensors_writer_free(hl_safetensors_writer *writer);
HL_CLOSES(hl_safetensors_writer_free, hl_safetensors_writer)

#endif
