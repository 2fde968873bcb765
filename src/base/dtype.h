/* dtype.h - element types: sizes, names, and conversion to and from float.
 *
 * Conversions round to nearest, ties to even, and keep infinities and NaN.
 * They are the readable definition; the kernels have vector versions. */
#ifndef HL_BASE_DTYPE_H
#define HL_BASE_DTYPE_H

#include "headlight.h"

/* Bits of one element; 0 for what is not a dtype. */
size_t hl_dtype_bits(hl_dtype dtype);
/* The dtype of a safetensors name; false if there is none. */
bool hl_dtype_parse(hl_dtype *out, const char *name);

float    hl_f16_to_f32(uint16_t bits);
uint16_t hl_f32_to_f16(float value);
float    hl_bf16_to_f32(uint16_t bits);
uint16_t hl_f32_to_bf16(float value);

/* Converts `count` elements of any of F32 F16 BF16 F64, the integers and BOOL;
 * source need not be aligned.  HL_UNSUPPORTED for the other dtypes. */
hl_status hl_dtype_to_f32(float *out, const void *source, hl_dtype dtype, size_t count);
hl_status hl_dtype_to_f64(double *out, const void *source, hl_dtype dtype, size_t count);
/* Stores as F32, F16, BF16 or F64. */
hl_status hl_dtype_from_f32(void *out, hl_dtype dtype, const float *source, size_t count);
hl_status hl_dtype_from_f64(void *out, hl_dtype dtype, const double *source, size_t count);

#endif
