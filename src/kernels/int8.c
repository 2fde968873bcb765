/* int8.c - quantizes activations to 8 bits and defines products with them.
 *
 * Quantizing is written so that a compiler makes vectors of it: the largest magnitude is found on
 * the bits of the floats, which sort as integers do, and 1.5 * 2^23 is added so that
 * the nearest integer ends up in the low bits. */
#include "kernels/int8.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/quant.h"

bool hl_int8_has(hl_dtype dtype)
{
    switch (dtype) {
    case HL_DTYPE_Q4_0:
    case HL_DTYPE_Q4_1:
    case HL_DTYPE_Q5_0:
    case HL_DTYPE_Q5_1:
    case HL_DTYPE_Q8_0:
    case HL_DTYPE_Q3_K:
    case HL_DTYPE_Q4_K:
    case HL_DTYPE_Q5_K:
    case HL_DTYPE_Q6_K:
    case HL_DTYPE_IQ4_NL:
    case HL_DTYPE_IQ4_XS:
    case HL_DTYPE_TQ1_0:
    case HL_DTYPE_TQ2_0:
    case HL_DTYPE_MXFP4:
        return true;
    default:
        return false;
    }
}

static int32_t largest_bits(const float x[HL_INT8_BLOCK])
{
    int32_t bits[HL_INT8_BLOCK], largest = 0;

    memcpy(bits, x, sizeof bits);
    for (int i = 0; i < HL_INT8_BLOCK; i++) {
        int32_t magnitude = bits[i] & INT32_MAX;
        largest           = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

static void round_values(int8_t q[HL_INT8_BLOCK], const float x[HL_INT8_BLOCK], float inverse)
{
    const float offset = 12582912.0f; /* 1.5 * 2^23, bits 0x4b400000 */
    float       shifted[HL_INT8_BLOCK];
    int32_t     bits[HL_INT8_BLOCK];

    for (int i = 0; i < HL_INT8_BLOCK; i++)
        shifted[i] = x[i] * inverse + offset;
    memcpy(bits, shifted, sizeof bits);
    for (int i = 0; i < HL_INT8_BLOCK; i++)
        q[i] = (int8_t)(bits[i] - 0x4b400000);
}

static void quantize_block(int8_t q[HL_INT8_BLOCK], float *scale, float *sum, int32_t run_sums[2],
                           const float x[HL_INT8_BLOCK])
{
    const float least = 1e-30f; /* below this, 127 / x could overflow */
    int32_t     bits  = largest_bits(x);
    float       largest;

    memcpy(&largest, &bits, sizeof largest);
    if (!isfinite(largest) || largest < least) {
        memset(q, 0, HL_INT8_BLOCK);
        run_sums[0] = run_sums[1] = 0;
        *scale = *sum = isfinite(largest) ? 0.0f : NAN;
        return;
    }
    round_values(q, x, 127.0f / largest);
    for (int run = 0; run < 2; run++) {
        int32_t total = 0;
        for (int i = 0; i < HL_INT8_RUN; i++)
            total += q[run * HL_INT8_RUN + i];
        run_sums[run] = total;
    }
    *scale = largest / 127.0f;
    *sum   = *scale * (float)(run_sums[0] + run_sums[1]);
}

void hl_int8_quantize(int8_t *q, float *scales, float *sums, int32_t *run_sums, const float *x,
                      int64_t n)
{
    for (int64_t i = 0; i < n / HL_INT8_BLOCK; i++)
        quantize_block(q + i * HL_INT8_BLOCK, &scales[i], &sums[i], run_sums + 2 * i,
                       x + i * HL_INT8_BLOCK);
}

/* ------------------------------------------------------------- the definition */

static float dot_row(const int8_t *q, const float *scales, const void *w, hl_dtype dtype, int64_t n)
{
    enum { MAX_BLOCK = 256 };
    hl_dtype_block block = hl_dtype_block_of(dtype);
    int64_t        size  = (int64_t)block.n_values;
    float          values[MAX_BLOCK];
    double         sum = 0.0;

    for (int64_t first = 0; first < n; first += size) {
        hl_dequantize_scalar(values, dtype, (const uint8_t *)w + first / size * block.n_bytes, 1);
        for (int64_t i = first; i < first + size; i++)
            sum += (double)scales[i / HL_INT8_BLOCK] * q[i] * (double)values[i - first];
    }
    return (float)sum;
}

void hl_int8_dot_scalar(const hl_int8_dot *d)
{
    for (int64_t row = 0; row < d->n_rows; row++) {
        for (int64_t j = 0; j < d->n_weights; j++)
            d->out[row * d->out_stride + j] =
                dot_row(d->q + row * d->n, d->scales + row * (d->n / HL_INT8_BLOCK), d->w[j],
                        d->dtype, d->n);
    }
}
