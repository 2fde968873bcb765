/* attention_rows.h - moving rows between the caller's memory and the kernels'.
 *
 * The kernels work on float.  Rows of other types are converted on the way in,
 * a tile at a time; float rows that lie one after the other are used where they
 * are.  Padding up to a whole vector is zero. */
#ifndef HL_KERNELS_ATTENTION_ROWS_H
#define HL_KERNELS_ATTENTION_ROWS_H

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/simd.h"

/* n rounded up to whole vectors. */
static inline int64_t padded(int64_t n)
{
    return (n + VL - 1) / VL * VL;
}

static inline const void *row_address(const hl_rows *rows, int64_t batch, int64_t head, int64_t row)
{
    size_t size = hl_dtype_bits(rows->dtype) / 8;

    return (const uint8_t *)rows->data + (size_t)hl_rows_offset(rows, batch, head, row) * size;
}

/* One row of `width` elements as float, zero up to `stride`. */
static void load_row(float *out, int64_t stride, const void *source, hl_dtype dtype, int64_t width)
{
    const uint16_t *half  = (const uint16_t *)source;
    int64_t         whole = width / VL * VL;
    int64_t         d     = 0;

    if (dtype == HL_DTYPE_F32) {
        memcpy(out, source, (size_t)width * sizeof *out);
        d = width;
    } else if (dtype == HL_DTYPE_BF16) {
        for (; d < whole; d += VL)
            vf_store(out + d, vf_load_bf16(half + d));
    } else if (dtype == HL_DTYPE_F16) {
        for (; d < whole; d += VL)
            vf_store(out + d, vf_load_f16(half + d));
    }
    if (d < width) {
        size_t size = hl_dtype_bits(dtype) / 8;
        (void)hl_dtype_to_f32(out + d, (const uint8_t *)source + (size_t)d * size, dtype,
                              (size_t)(width - d));
    }
    for (d = width; d < stride; d++)
        out[d] = 0.0f;
}

/* n rows from `row` on, as (n, *stride).  Used in place where that is possible
 * and `multiple` divides the width (a reader that wants whole vectors passes
 * VL); else converted into `scratch` (n, padded(width)). */
static const float *load_rows(int64_t *stride, float *scratch, const hl_rows *rows, int64_t batch,
                              int64_t head, int64_t row, int64_t n, int64_t width, int64_t multiple)
{
    if (rows->dtype == HL_DTYPE_F32 && rows->row_stride == width && width % multiple == 0) {
        *stride = width;
        return (const float *)row_address(rows, batch, head, row);
    }
    *stride = padded(width);
    for (int64_t i = 0; i < n; i++)
        load_row(scratch + i * *stride, *stride, row_address(rows, batch, head, row + i),
                 rows->dtype, width);
    return scratch;
}

static void store_row(const hl_rows *rows, int64_t batch, int64_t head, int64_t row,
                      const float *values, int64_t width)
{
    void *target = (void *)(uintptr_t)row_address(rows, batch, head, row);

    if (rows->dtype == HL_DTYPE_F32)
        memcpy(target, values, (size_t)width * sizeof *values);
    else /* cannot fail: the dtype has been checked */
        (void)hl_dtype_from_f32(target, rows->dtype, values, (size_t)width);
}

/* Row `lane` of a panel, times `factor`, as one column of out (width, LANES). */
static void pack_lane(float *out, int lane, const hl_rows *rows, int64_t batch, int64_t head,
                      int64_t row, int64_t width, float factor)
{
    float values[HL_MAX_HEAD_DIM];

    load_row(values, width, row_address(rows, batch, head, row), rows->dtype, width);
    for (int64_t d = 0; d < width; d++)
        out[d * LANES + lane] = values[d] * factor;
}

#endif
