/* quant.c - checks before decoding, the scalar decoders in a table by type, and the two quantizers.
 *
 * Both quantizers find one scale d for 32 values and store it as f16, but divide
 * by the d that has not been rounded: GGML's reference does, and a model
 * written here must have the bytes that its tools would have written.
 *
 *     Q8_0   d = max|x| / 127      q = x / d, ties away from zero
 *     Q4_0   d = x_max / -8        q = x / d + 8.5, cut to 0 .. 15
 *
 * where x_max is the x of largest magnitude, with its sign: it becomes -8, the
 * one end of the range that has no counterpart. */
#include "kernels/quant.h"

#include <math.h>

#include "base/dtype.h"
#include "base/status.h"
#include "kernels/kernels.h"
#include "kernels/quant_decoders.h"

#define BLOCK_VALUES 32

static hl_status count_blocks(size_t *out, hl_dtype dtype, size_t n_values)
{
    hl_dtype_block block = hl_dtype_block_of(dtype);

    if (block.n_values == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%d is not a dtype", (int)dtype);
    if (n_values % block.n_values != 0)
        return hl_fail(HL_BAD_ARGUMENT, "%zu values are not a multiple of %s's %zu", n_values,
                       hl_dtype_name(dtype), block.n_values);
    *out = n_values / block.n_values;
    return HL_OK;
}

hl_status hl_dequantize(float *out, hl_dtype dtype, const void *source, size_t n_values)
{
    const hl_kernels *kernels  = NULL;
    size_t            n_blocks = 0;

    HL_NEED(count_blocks(&n_blocks, dtype, n_values));
    if (!hl_dtype_is_block(dtype) && dtype != HL_DTYPE_F16 && dtype != HL_DTYPE_BF16)
        return hl_dtype_to_f32(out, source, dtype, n_values);
    HL_NEED(hl_kernels_current(&kernels));
    kernels->dequantize(out, dtype, source, n_blocks);
    return HL_OK;
}

/* --------------------------------------------------------------- decoding */

/* 16-bit floats are blocks of one value. */
static void loop_f16(float *y, const uint8_t *b, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++)
        y[i] = f16_at(b + 2 * i);
}

static void loop_bf16(float *y, const uint8_t *b, size_t n_values)
{
    for (size_t i = 0; i < n_values; i++)
        y[i] = hl_bf16_to_f32(hl_read_u16(b + 2 * i));
}

HL_EACH_BLOCK_TYPE(HL_BLOCK_LOOP)

static const hl_block_loop loops[HL_DTYPE_COUNT] = HL_BLOCK_TABLE;

void hl_dequantize_scalar(float *out, hl_dtype dtype, const void *source, size_t n_blocks)
{
    loops[dtype](out, source, n_blocks);
}

/* ------------------------------------------------------------- quantizing */

/* C leaves it undefined to convert NaN or a number out of range.  This function defines it, so that
 * a non-finite weight damages no more than its block. */
static int to_integer(float value, int low, int high)
{
    if (!(value > (float)low)) /* also true for NaN */
        return low;
    return value < (float)high ? (int)value : high;
}

static void store_half(uint8_t *out, float value)
{
    uint16_t bits = hl_f32_to_f16(value);

    out[0] = (uint8_t)bits;
    out[1] = (uint8_t)(bits >> 8);
}

/* Returns the value of largest magnitude, with its sign; the first of equals. */
static float largest(const float x[BLOCK_VALUES])
{
    float largest = 0.0f;

    for (int i = 0; i < BLOCK_VALUES; i++) {
        if (fabsf(x[i]) > fabsf(largest))
            largest = x[i];
    }
    return largest;
}

static float reciprocal(float d)
{
    return d != 0.0f ? 1.0f / d : 0.0f;
}

static void quantize_q8_0(uint8_t *out, const float *x)
{
    float d       = fabsf(largest(x)) / 127.0f;
    float inverse = reciprocal(d);

    store_half(out, d);
    for (int i = 0; i < BLOCK_VALUES; i++)
        out[2 + i] = (uint8_t)to_integer(roundf(x[i] * inverse), -128, 127);
}

static void quantize_q4_0(uint8_t *out, const float *x)
{
    float d       = largest(x) / -8.0f;
    float inverse = reciprocal(d);

    store_half(out, d);
    for (int i = 0; i < BLOCK_VALUES / 2; i++) {
        int low    = to_integer(x[i] * inverse + 8.5f, 0, 15);
        int high   = to_integer(x[i + BLOCK_VALUES / 2] * inverse + 8.5f, 0, 15);
        out[2 + i] = (uint8_t)(low | high << 4);
    }
}

hl_status hl_quantize(void *out, hl_dtype dtype, const float *source, size_t n_values)
{
    size_t n_blocks = 0;
    size_t n_bytes  = hl_dtype_block_of(dtype).n_bytes;

    HL_NEED(count_blocks(&n_blocks, dtype, n_values));
    if (!hl_dtype_is_block(dtype))
        return hl_dtype_from_f32(out, dtype, source, n_values);
    if (dtype != HL_DTYPE_Q8_0 && dtype != HL_DTYPE_Q4_0)
        return hl_fail(HL_UNSUPPORTED, "nothing here quantizes to %s; Q8_0 and Q4_0 can be written",
                       hl_dtype_name(dtype));
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t     *block = (uint8_t *)out + i * n_bytes;
        const float *x     = source + i * BLOCK_VALUES;
        if (dtype == HL_DTYPE_Q8_0)
            quantize_q8_0(block, x);
        else
            quantize_q4_0(block, x);
    }
    return HL_OK;
}
