/* quant_scalar.c - the decoders of quant_decoders.h, in a table by type. */
#include "base/dtype.h"
#include "kernels/quant.h"
#include "kernels/quant_decoders.h"

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

void hl_dequantise_scalar(float *out, hl_dtype dtype, const void *source, size_t n_blocks)
{
    loops[dtype](out, source, n_blocks);
}
