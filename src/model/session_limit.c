/* session_limit.c - a refusal with numbers, before the kernel's without.
 *
 * What a session will hold is known to the byte before it opens (hl_session_measure).  Weights
 * are mapped, so that the kernel could drop and read them again, at the speed of the disk for
 * every token: they count as if they were held. */
#include "model/session_limit.h"

#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"

static size_t weight_bytes(const hl_model *model)
{
    size_t         sum = 0;
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) == HL_OK)
            sum += tensor.n_bytes;
    }
    return sum;
}

/* "1.5 GiB" */
static const char *as_bytes(char out[32], size_t n_bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double                   value   = (double)n_bytes;
    int                      unit    = 0;

    for (; value >= 1024.0 && unit < 6; unit++)
        value /= 1024.0;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return out;
}

hl_status hl_session_limit_check(const hl_model *model, const hl_session_options *options)
{
    char              sum[32], weights[32], cache[32], work[32], others[32], allowed[32];
    hl_session_memory memory;
    size_t            limit = hl_memory_limited_to(), before = hl_memory_held();

    if (limit == 0)
        return HL_OK;
    hl_status status = hl_session_measure(&memory, model, options);
    if (status != HL_OK)
        return status;
    size_t n_weights = weight_bytes(model);
    double wanted =
        (double)n_weights + (double)memory.cache_bytes + (double)memory.work_bytes + (double)before;
    if (wanted <= (double)limit)
        return HL_OK;
    return hl_fail(HL_LIMIT,
                   "%s: %s of memory for %lld tokens (weights %s, cache %s, work %s, held already "
                   "%s), at most %s: a shorter context takes less, and max-memory allows more",
                   model->path, as_bytes(sum, (size_t)wanted), (long long)memory.n_ctx,
                   as_bytes(weights, n_weights), as_bytes(cache, memory.cache_bytes),
                   as_bytes(work, memory.work_bytes), as_bytes(others, before),
                   as_bytes(allowed, limit));
}
