/* tensors.h - named arrays, and all those of a model, whatever file holds them. */
#ifndef HL_FORMATS_TENSORS_H
#define HL_FORMATS_TENSORS_H

#include "headlight.h"

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

#endif
