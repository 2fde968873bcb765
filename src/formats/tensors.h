/* tensors.h - named arrays, and all arrays of a model, whatever its file format.
 *
 *     HL_CLOSED(hl_tensors_close) hl_tensors *weights = NULL;
 *     HL_NEED(hl_tensors_open(&weights, path));
 *     const hl_tensor *embedding = hl_tensors_find(weights, "model.embed_tokens.weight");
 *
 * The path may be
 *
 *     a Hugging Face folder     model.safetensors, or model.safetensors.index.json
 *                               and the shards that it lists
 *     a .safetensors file       by itself, or one shard of those
 *     a .gguf file              by itself, or one part of a split
 *     a llama2.c .bin           legacy or version 1
 *
 * The format is recognized from the contents of a file.  Other formats, and folders whose
 * config.json names a quantization that headlight cannot read, are refused with
 * HL_UNSUPPORTED and a message that says what they are and how to convert them.
 * Everything is mapped, so opening reads only the headers. */
#ifndef HL_FORMATS_TENSORS_H
#define HL_FORMATS_TENSORS_H

#include "base/memory.h"
#include "headlight/base.h"

#define HL_MAX_TENSOR_DIMS 8

/* A named array, row-major, little-endian.  `data` may be unaligned. */
typedef struct hl_tensor {
    const char *name;
    hl_dtype    dtype;
    int         n_dims;
    int64_t     shape[HL_MAX_TENSOR_DIMS];
    const void *data;
    size_t      n_bytes;
} hl_tensor;

/* The number of elements. */
int64_t hl_tensor_count(const hl_tensor *tensor);
/* The number of bytes that dtype and shape require.  HL_BAD_INPUT if they are
 * impossible, overflow, end inside a byte, or if a row ends inside a block. */
hl_status hl_tensor_bytes(size_t *out, const hl_tensor *tensor);

/* Sorts pointers to tensors (count) by name; finds a name among sorted ones, or returns NULL. */
void             hl_tensors_sort(const hl_tensor **by_name, size_t count);
const hl_tensor *hl_tensors_among(const hl_tensor *const *by_name, size_t count, const char *name);

/* ------------------------------------------------------- tensors of a model */

typedef enum hl_tensors_kind {
    HL_TENSORS_SAFETENSORS = 0,
    HL_TENSORS_GGUF,
    HL_TENSORS_LLAMA2C,
} hl_tensors_kind;

typedef struct hl_tensors hl_tensors;
struct hl_gguf;
struct hl_llama2c;

hl_status hl_tensors_open(hl_tensors **out, const char *path);
void      hl_tensors_close(hl_tensors *tensors);
HL_CLOSES(hl_tensors_close, hl_tensors)

hl_tensors_kind hl_tensors_kind_of(const hl_tensors *tensors);
/* The folder of the weights, which also has config.json and tokenizer.json.
 * Borrowed; "." for a file in the current folder. */
const char *hl_tensors_folder(const hl_tensors *tensors);

/* Tensors file by file, and within a file in the order of its data or its list.  Borrowed. */
size_t           hl_tensors_count(const hl_tensors *tensors);
const hl_tensor *hl_tensors_at(const hl_tensors *tensors, size_t index);
/* The path of the file that holds the tensor, for messages.  NULL if it is the only file and the
 * caller named it.  Borrowed. */
const char *hl_tensors_file_of(const hl_tensors *tensors, const hl_tensor *tensor);
/* NULL if there is no such tensor. */
const hl_tensor *hl_tensors_find(const hl_tensors *tensors, const char *name);

/* A tensor's hash covers its name, dtype, shape and bytes.  The hash of all tensors is the sum of
 * theirs and their number, so it does not depend on how they are split over files.  Both read
 * every byte. */
uint64_t hl_tensor_hash(const hl_tensor *tensor);
uint64_t hl_tensors_hash(const hl_tensors *tensors, int32_t n_threads);

/* The file that holds the metadata; NULL for the other formats.  For a split GGUF it is the first
 * part.  Borrowed. */
const struct hl_gguf    *hl_tensors_gguf(const hl_tensors *tensors);
const struct hl_llama2c *hl_tensors_llama2c(const hl_tensors *tensors);

/* ------------------------------- weight formats that headlight cannot read */

/* HL_UNSUPPORTED with a message if the file has a known format that headlight cannot read.
 * HL_OK means only that the format was not recognized as one of those. */
hl_status hl_foreign_check_file(const char *path, const uint8_t *bytes, size_t n_bytes);

/* Reads folder/config.json, if it exists, and refuses a quantization_config that
 * headlight cannot read. */
hl_status hl_foreign_check_folder(const char *folder);

/* Fails with the reason why a folder without safetensors has no readable weights; never HL_OK. */
hl_status hl_foreign_explain_folder(const char *folder);

/* Fails for a path that does not exist: the message says what was expected, and where the Hugging
 * Face cache has a model of that name.  Never HL_OK. */
hl_status hl_foreign_explain_missing(const char *path);

/* Finds a model of the Hugging Face cache: its folder, or its GGUF file where it is one; false if the
 * cache has none of that name.  `out` has PATH_MAX bytes. */
bool hl_hub_find(char *out, const char *name);

#endif
