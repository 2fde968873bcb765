/* weights_read.c - a weight as plain numbers, row by row.
 *
 * The definition of what a hl_weight means.  Fast code converts panels of rows at a
 * time and must agree with this. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "kernels/quant.h"
#include "model/weights.h"

/* The values of FP4 (E2M1); bit 3 is the sign. */
static const float fp4_values[16] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                      -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };

/* A row of MXFP4 in two tensors: 16 bytes hold 32 values, neighbours share a byte,
 * the first in its low half; the scale is a power of two. */
static void read_mxfp4_row(float *out, const hl_weight *weight, int64_t stored)
{
    int64_t        n_blocks = weight->n_columns / 32;
    const uint8_t *bytes    = (const uint8_t *)weight->data + stored * n_blocks * 16;
    const uint8_t *scales   = (const uint8_t *)weight->scales + stored * n_blocks;

    for (int64_t i = 0; i < weight->n_columns / 2; i++) {
        float scale    = ldexpf(1.0f, scales[i / 16] - 127);
        out[2 * i]     = scale * fp4_values[bytes[i] & 15];
        out[2 * i + 1] = scale * fp4_values[bytes[i] >> 4];
    }
}

/* Elements `at`, `at` + step, ... of a matrix of plain elements. */
static hl_status read_column(float *out, const hl_weight *weight, int64_t at, int64_t step)
{
    size_t n_bytes = hl_dtype_block_of(weight->dtype).n_bytes;

    for (int64_t i = 0; i < weight->n_columns; i++) {
        const uint8_t *element = (const uint8_t *)weight->data + (size_t)(at + i * step) * n_bytes;
        hl_status      status  = hl_dtype_to_f32(&out[i], element, weight->dtype, 1);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}

hl_status hl_weight_read_row(float *out, const hl_weight *weight, int64_t row)
{
    hl_status status = HL_OK;
    int64_t   stored = hl_weight_row(weight, row);

    if (weight->scales != NULL) {
        read_mxfp4_row(out, weight, stored);
    } else if (weight->transposed) {
        status = read_column(out, weight, stored, weight->n_stored);
    } else {
        hl_dtype_block block   = hl_dtype_block_of(weight->dtype);
        size_t         n_bytes = (size_t)weight->n_columns / block.n_values * block.n_bytes;
        status                 = hl_dequantise(out, weight->dtype,
                                               (const uint8_t *)weight->data + (size_t)stored * n_bytes,
                                               (size_t)weight->n_columns);
    }
    for (int64_t i = 0; weight->plus_one && i < weight->n_columns; i++)
        out[i] += 1.0f;
    return status;
}

hl_status hl_weight_read(float *out, const hl_weight *weight)
{
    for (int64_t row = 0; row < weight->n_rows; row++) {
        hl_status status = hl_weight_read_row(out + row * weight->n_columns, weight, row);
        if (status != HL_OK)
            return status;
    }
    return HL_OK;
}
