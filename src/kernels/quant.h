/* quant.h - numbers to and from the types that weights are stored in.
 *
 *     HL_TRY(hl_dequantize(panel, tensor->dtype, row, d_model));
 *
 * Whole blocks only: n_values is a multiple of what the dtype's block holds.
 * Any bytes are valid blocks; what they mean may be infinite or not a number. */
#ifndef HL_KERNELS_QUANT_H
#define HL_KERNELS_QUANT_H

#include "headlight/base.h"

/* Converts from any block type, and from what hl_dtype_to_f32 reads.  `source` may be unaligned.
 * Uses the back end in use. */
hl_status hl_dequantize(float *out, hl_dtype dtype, const void *source, size_t n_values);

/* Converts to F32, F16, BF16, Q8_0 and Q4_0, rounded as GGML's reference does. */
hl_status hl_quantize(void *out, hl_dtype dtype, const float *source, size_t n_values);

/* The functions in the tables of kernels.h, for F16, BF16 and the block types. */
void hl_dequantize_scalar(float *out, hl_dtype dtype, const void *source, size_t n_blocks);
void hl_dequantize_avx2(float *out, hl_dtype dtype, const void *source, size_t n_blocks);

#endif
