/* tensors_hash.c - which model is this?
 *
 * Each tensor is hashed by itself: name, dtype, shape, bytes.  The model's hash is
 * the sum of those, so that neither the order of tensors nor the files they lie in
 * matter, and threads can share the work.  Every byte is read: two checkpoints of one
 * training run differ in all tensors, but a pruned or edited copy may differ in a few. */
#include "base/hash.h"
#include "base/threads.h"
#include "formats/tensors.h"

#include <string.h>

uint64_t hl_tensor_hash(const hl_tensor *tensor)
{
    const char *dtype = hl_dtype_name(tensor->dtype);
    hl_hasher   hasher;

    hl_hash_start(&hasher, 0);
    hl_hash_add(&hasher, tensor->name, strlen(tensor->name) + 1);
    hl_hash_add(&hasher, dtype, strlen(dtype) + 1);
    hl_hash_add_u64(&hasher, (uint64_t)tensor->n_dims);
    for (int i = 0; i < tensor->n_dims; i++)
        hl_hash_add_u64(&hasher, (uint64_t)tensor->shape[i]);
    hl_hash_add(&hasher, tensor->data, tensor->n_bytes);
    return hl_hash_end(&hasher);
}

uint64_t hl_tensors_hash(const hl_tensors *tensors, int32_t n_threads)
{
    int64_t  n_tensors = (int64_t)hl_tensors_count(tensors);
    uint64_t hash      = (uint64_t)n_tensors;

#pragma omp parallel for schedule(dynamic) num_threads(hl_threads(n_threads)) reduction(+ : hash)
    for (int64_t i = 0; i < n_tensors; i++)
        hash += hl_tensor_hash(hl_tensors_at(tensors, (size_t)i));
    return hash;
}
