/* dtype.h - element types: sizes, names, and conversion to and from float.
 *
 * Conversions round to nearest, ties to even, and keep infinities and NaN.
 * They are the readable definition; the kernels have vector versions. */
#ifndef HL_BASE_DTYPE_H
#define HL_BASE_DTYPE_H

#include "headlight/base.h"

/* Bits per element.  0 for a block type, whose elements have no bits of their own, and for a
 * value that is not a dtype. */
size_t hl_dtype_bits(hl_dtype dtype);
/* The dtype of a safetensors name; false if there is none (block types have none). */
bool hl_dtype_parse(hl_dtype *out, const char *name);

/* The fewest elements that fill whole bytes: {1, 4} for F32, {2, 1} for F4,
 * {256, 144} for Q4_K; {0, 0} for a value that is not a dtype. */
typedef struct hl_dtype_block {
    size_t n_values;
    size_t n_bytes;
} hl_dtype_block;

hl_dtype_block hl_dtype_block_of(hl_dtype dtype);
/* True for GGUF's block types, such as Q4_0. */
bool hl_dtype_is_block(hl_dtype dtype);
/* Any dtype by its name; false if there is none. */
bool hl_dtype_parse_any(hl_dtype *out, const char *name);

/* GGML's number for a type, as GGUF stores it; false if there is none. */
bool hl_dtype_from_ggml(hl_dtype *out, uint32_t id);
bool hl_dtype_to_ggml(uint32_t *out, hl_dtype dtype);

float    hl_f16_to_f32(uint16_t bits);
uint16_t hl_f32_to_f16(float value);
float    hl_bf16_to_f32(uint16_t bits);
uint16_t hl_f32_to_bf16(float value);

/* Converts `count` elements of F32, F16, BF16, F64, any integer type or BOOL; source need not be
 * aligned.  HL_UNSUPPORTED for the other dtypes. */
hl_status hl_dtype_to_f32(float *out, const void *source, hl_dtype dtype, size_t count);
hl_status hl_dtype_to_f64(double *out, const void *source, hl_dtype dtype, size_t count);
/* Stores as F32, F16, BF16 or F64. */
hl_status hl_dtype_from_f32(void *out, hl_dtype dtype, const float *source, size_t count);
hl_status hl_dtype_from_f64(void *out, hl_dtype dtype, const double *source, size_t count);

#endif
