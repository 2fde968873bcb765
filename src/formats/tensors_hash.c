/* tensors_hash.c - which model is this?
 *
 * Each tensor is hashed by itself: name, dtype, shape, bytes.  The model's hash is
 * the sum of those, so that neither the order of tensors nor the files they lie in
 * matter, and threads can share the work.  Every byte is read: two checkpoints of one
 * training run differ in all tensors, but a pruned or edited copy may differ in a few. */
#include "base/hash.h"
#include "base/threads.h"
#include "formats/tensors.h"

#include <stdatomic.h>
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

typedef struct hash_job {
    const hl_tensors *tensors;
    _Atomic(uint64_t) sum;
} hash_job;

static void hash_some(void *context, int64_t first, int64_t end, int member)
{
    hash_job *job = context;
    (void)member;

    for (int64_t i = first; i < end; i++)
        atomic_fetch_add(&job->sum, hl_tensor_hash(hl_tensors_at(job->tensors, (size_t)i)));
}

uint64_t hl_tensors_hash(const hl_tensors *tensors, int32_t n_threads)
{
    int64_t  n_tensors = (int64_t)hl_tensors_count(tensors);
    hash_job job       = { tensors, (uint64_t)n_tensors };

    hl_parallel(hl_threads(n_threads), n_tensors, 1, hash_some, &job);
    return atomic_load(&job.sum);
}
