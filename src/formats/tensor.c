/* tensor.c - the size of one tensor.  (tensors.c: those of a model.) */
#include "formats/tensors.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"

int64_t hl_tensor_count(const hl_tensor *tensor)
{
    int64_t count = 1;
    for (int i = 0; i < tensor->n_dims; i++)
        count *= tensor->shape[i];
    return count;
}

/* The product of the dimensions and `unit`, which are checked on the way. */
static hl_status multiply_out(size_t *out, const hl_tensor *tensor, size_t unit)
{
    if (tensor->n_dims < 0 || tensor->n_dims > HL_MAX_TENSOR_DIMS)
        return hl_fail(HL_BAD_INPUT, "%d dimensions, wanted 0 to %d", tensor->n_dims,
                       HL_MAX_TENSOR_DIMS);
    for (int i = 0; i < tensor->n_dims; i++) {
        int64_t size = tensor->shape[i];
        if (size < 0 || (uint64_t)size > SIZE_MAX || !hl_size_multiply(&unit, unit, (size_t)size))
            return hl_fail(HL_BAD_INPUT, "dimension %d is %lld: negative, or the size overflows", i,
                           (long long)size);
    }
    *out = unit;
    return HL_OK;
}

/* Elements may be smaller than a byte, but a tensor ends on one. */
static hl_status bytes_of_elements(size_t *out, const hl_tensor *tensor)
{
    size_t    n_bits = 0;
    hl_status status = multiply_out(&n_bits, tensor, hl_dtype_bits(tensor->dtype));

    if (status != HL_OK)
        return status;
    if (n_bits % 8 != 0)
        return hl_fail(HL_BAD_INPUT, "%zu bits of %s do not fill whole bytes", n_bits,
                       hl_dtype_name(tensor->dtype));
    *out = n_bits / 8;
    return HL_OK;
}

/* Every row is a number of whole blocks.  A block has fewer bytes than four for
 * each of its values, so counting each value as four is what must not overflow. */
static hl_status bytes_of_blocks(size_t *out, const hl_tensor *tensor)
{
    hl_dtype_block block   = hl_dtype_block_of(tensor->dtype);
    size_t         n_four  = 0;
    hl_status      status  = multiply_out(&n_four, tensor, 4);
    int64_t        n_inner = tensor->n_dims > 0 ? tensor->shape[tensor->n_dims - 1] : 1;

    if (status != HL_OK)
        return status;
    if ((uint64_t)n_inner % block.n_values != 0)
        return hl_fail(HL_BAD_INPUT, "rows of %lld elements are not a multiple of %s's %zu",
                       (long long)n_inner, hl_dtype_name(tensor->dtype), block.n_values);
    *out = n_four / 4 / block.n_values * block.n_bytes;
    return HL_OK;
}

hl_status hl_tensor_bytes(size_t *out, const hl_tensor *tensor)
{
    if (hl_dtype_is_block(tensor->dtype))
        return bytes_of_blocks(out, tensor);
    if (hl_dtype_bits(tensor->dtype) == 0)
        return hl_fail(HL_BAD_INPUT, "%d is not a dtype", (int)tensor->dtype);
    return bytes_of_elements(out, tensor);
}
