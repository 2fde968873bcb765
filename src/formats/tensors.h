/* tensors.h - named arrays, and all those of a model, whatever files hold them.
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
 * Files are told apart by what is in them.  Those of other kinds, and folders whose
 * config.json speaks of a quantization that is not read here, are refused with
 * HL_UNSUPPORTED and a message that says what they are and how to convert them.
 * Everything is mapped: opening costs no more than the headers. */
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
/* The number of bytes that dtype and shape ask for; HL_BAD_INPUT if they are
 * impossible, overflow, end inside a byte, or a row ends inside a block. */
hl_status hl_tensor_bytes(size_t *out, const hl_tensor *tensor);

/* Tensors by name: pointers (count) that are sorted, and what is found among them; NULL: nothing. */
void             hl_tensors_sort(const hl_tensor **by_name, size_t count);
const hl_tensor *hl_tensors_among(const hl_tensor *const *by_name, size_t count, const char *name);

/* --------------------------------------------------------- those of a model */

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
/* The files that were opened: shards, parts, or one. */
size_t hl_tensors_n_files(const hl_tensors *tensors);
/* Where the weights lie, and so what belongs to them: config.json, tokenizer.json.
 * Borrowed; "." for a file in the current folder. */
const char *hl_tensors_folder(const hl_tensors *tensors);

/* File by file, and in each in the order of its data or its list.  Borrowed. */
size_t           hl_tensors_count(const hl_tensors *tensors);
const hl_tensor *hl_tensors_at(const hl_tensors *tensors, size_t index);
/* The path of the file that one of them lies in, for messages; NULL where that is the only one that the
 * caller opened anyhow.  Borrowed. */
const char *hl_tensors_file_of(const hl_tensors *tensors, const hl_tensor *tensor);
/* NULL if there is no such tensor. */
const hl_tensor *hl_tensors_find(const hl_tensors *tensors, const char *name);

/* Of a tensor: name, dtype, shape and bytes.  Of all: the sum of theirs and their number, the
 * same however they are spread over files.  Reads every byte. */
uint64_t hl_tensor_hash(const hl_tensor *tensor);
uint64_t hl_tensors_hash(const hl_tensors *tensors, int32_t n_threads);

/* What holds the metadata; NULL for the other kinds.  Of a split GGUF the first
 * part.  Borrowed. */
const struct hl_gguf    *hl_tensors_gguf(const hl_tensors *tensors);
const struct hl_llama2c *hl_tensors_llama2c(const hl_tensors *tensors);

#endif
