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

/* Can rows be used where they lie?  `multiple` must divide their width: a reader that wants
 * whole vectors passes VL. */
static bool rows_in_place(const hl_rows *rows, int64_t width, int64_t multiple)
{
    return rows->dtype == HL_DTYPE_F32 && rows->row_stride == width && width % multiple == 0;
}

/* n rows from `row` on, as (n, *stride): in place where that is possible, else converted
 * into `scratch` (n, padded(width)). */
static const float *load_rows(int64_t *stride, float *scratch, const hl_rows *rows, int64_t batch,
                              int64_t head, int64_t row, int64_t n, int64_t width, int64_t multiple)
{
    if (rows_in_place(rows, width, multiple)) {
        *stride = width;
        return (const float *)hl_rows_at(rows, batch, head, row);
    }
    *stride = padded(width);
    for (int64_t i = 0; i < n; i++)
        load_row(scratch + i * *stride, *stride, hl_rows_at(rows, batch, head, row + i),
                 rows->dtype, width);
    return scratch;
}

static void store_row(const hl_rows *rows, int64_t batch, int64_t head, int64_t row,
                      const float *values, int64_t width)
{
    void     *target = hl_rows_at(rows, batch, head, row);
    uint16_t *half   = (uint16_t *)target;
    int64_t   whole  = width / VL * VL;
    int64_t   d      = 0;

    if (rows->dtype == HL_DTYPE_F32) {
        memcpy(target, values, (size_t)width * sizeof *values);
        return;
    }
    if (rows->dtype == HL_DTYPE_BF16)
        for (; d < whole; d += VL)
            vf_store_bf16(half + d, vf_load(values + d));
    else if (rows->dtype == HL_DTYPE_F16)
        for (; d < whole; d += VL)
            vf_store_f16(half + d, vf_load(values + d));
    size_t size = hl_dtype_bits(rows->dtype) / 8;
    (void)hl_dtype_from_f32((uint8_t *)target + (size_t)d * size, rows->dtype, values + d,
                            (size_t)(width - d));
}

/* LANES rows become the columns of out (width, LANES), times `factor`.  rows
 * (LANES, padded(width)) are floats. */
static void transpose_rows(float *out, const float *rows, int64_t width, float factor)
{
    int64_t stride = padded(width);

    for (int lane = 0; lane < LANES; lane += VL) {
        for (int64_t d = 0; d < width; d += VL) {
            vf block[VL];
            for (int i = 0; i < VL; i++)
                block[i] = vf_load(rows + (lane + i) * stride + d) * vf_set(factor);
            vf_transpose(block);
            for (int i = 0; i < VL && d + i < width; i++)
                vf_store(out + (d + i) * LANES + lane, block[i]);
        }
    }
}

#endif
