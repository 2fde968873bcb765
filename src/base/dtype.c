/* dtype.c - the table of element types, and conversions by bit arithmetic.
 *
 *     type   sign exponent mantissa   bias
 *     f32    1    8        23         127
 *     bf16   1    8        7          127     the upper half of an f32
 *     f16    1    5        10         15
 *
 * Magnitudes (the bits without the sign) are in numeric order: adding one to the
 * largest mantissa carries into the exponent, and infinity follows the largest
 * finite number.  Rounding is therefore a shift and a carry. */
#include "base/dtype.h"

#include <math.h>
#include <string.h>

#include "base/status.h"

/* ------------------------------------------------------------------- names */

#define NO_ID UINT32_MAX /* GGML does not have the type */

static const struct {
    const char    *name;
    size_t         bits; /* bits per element; 0: a block type */
    hl_dtype_block block;
    uint32_t       ggml_id;
} dtypes[HL_DTYPE_COUNT] = {
    [HL_DTYPE_F32]         = { "F32", 32, { 1, 4 }, 0 },
    [HL_DTYPE_F16]         = { "F16", 16, { 1, 2 }, 1 },
    [HL_DTYPE_BF16]        = { "BF16", 16, { 1, 2 }, 30 },
    [HL_DTYPE_F64]         = { "F64", 64, { 1, 8 }, 28 },
    [HL_DTYPE_I8]          = { "I8", 8, { 1, 1 }, 24 },
    [HL_DTYPE_I16]         = { "I16", 16, { 1, 2 }, 25 },
    [HL_DTYPE_I32]         = { "I32", 32, { 1, 4 }, 26 },
    [HL_DTYPE_I64]         = { "I64", 64, { 1, 8 }, 27 },
    [HL_DTYPE_U8]          = { "U8", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_U16]         = { "U16", 16, { 1, 2 }, NO_ID },
    [HL_DTYPE_U32]         = { "U32", 32, { 1, 4 }, NO_ID },
    [HL_DTYPE_U64]         = { "U64", 64, { 1, 8 }, NO_ID },
    [HL_DTYPE_BOOL]        = { "BOOL", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_F8_E4M3]     = { "F8_E4M3", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_F8_E5M2]     = { "F8_E5M2", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_F8_E8M0]     = { "F8_E8M0", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8, { 1, 1 }, NO_ID },
    [HL_DTYPE_F4]          = { "F4", 4, { 2, 1 }, NO_ID },
    [HL_DTYPE_F6_E2M3]     = { "F6_E2M3", 6, { 4, 3 }, NO_ID },
    [HL_DTYPE_F6_E3M2]     = { "F6_E3M2", 6, { 4, 3 }, NO_ID },
    [HL_DTYPE_C64]         = { "C64", 64, { 1, 8 }, NO_ID },
    [HL_DTYPE_Q4_0]        = { "Q4_0", 0, { 32, 18 }, 2 },
    [HL_DTYPE_Q4_1]        = { "Q4_1", 0, { 32, 20 }, 3 },
    [HL_DTYPE_Q5_0]        = { "Q5_0", 0, { 32, 22 }, 6 },
    [HL_DTYPE_Q5_1]        = { "Q5_1", 0, { 32, 24 }, 7 },
    [HL_DTYPE_Q8_0]        = { "Q8_0", 0, { 32, 34 }, 8 },
    [HL_DTYPE_Q2_K]        = { "Q2_K", 0, { 256, 84 }, 10 },
    [HL_DTYPE_Q3_K]        = { "Q3_K", 0, { 256, 110 }, 11 },
    [HL_DTYPE_Q4_K]        = { "Q4_K", 0, { 256, 144 }, 12 },
    [HL_DTYPE_Q5_K]        = { "Q5_K", 0, { 256, 176 }, 13 },
    [HL_DTYPE_Q6_K]        = { "Q6_K", 0, { 256, 210 }, 14 },
    [HL_DTYPE_IQ1_S]       = { "IQ1_S", 0, { 256, 50 }, 19 },
    [HL_DTYPE_IQ2_XXS]     = { "IQ2_XXS", 0, { 256, 66 }, 16 },
    [HL_DTYPE_IQ2_XS]      = { "IQ2_XS", 0, { 256, 74 }, 17 },
    [HL_DTYPE_IQ2_S]       = { "IQ2_S", 0, { 256, 82 }, 22 },
    [HL_DTYPE_IQ3_XXS]     = { "IQ3_XXS", 0, { 256, 98 }, 18 },
    [HL_DTYPE_IQ3_S]       = { "IQ3_S", 0, { 256, 110 }, 21 },
    [HL_DTYPE_IQ4_NL]      = { "IQ4_NL", 0, { 32, 18 }, 20 },
    [HL_DTYPE_IQ4_XS]      = { "IQ4_XS", 0, { 256, 136 }, 23 },
    [HL_DTYPE_TQ1_0]       = { "TQ1_0", 0, { 256, 54 }, 34 },
    [HL_DTYPE_TQ2_0]       = { "TQ2_0", 0, { 256, 66 }, 35 },
    [HL_DTYPE_MXFP4]       = { "MXFP4", 0, { 32, 17 }, 39 },
    [HL_DTYPE_IQ1_M]       = { "IQ1_M", 0, { 256, 56 }, 29 },
    [HL_DTYPE_Q1_0]        = { "Q1_0", 0, { 128, 18 }, 41 },
    [HL_DTYPE_Q2_0]        = { "Q2_0", 0, { 64, 18 }, 42 },
};

static bool is_dtype(hl_dtype dtype)
{
    return (unsigned)dtype < HL_DTYPE_COUNT;
}

const char *hl_dtype_name(hl_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].name : "?";
}

size_t hl_dtype_bits(hl_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].bits : 0;
}

hl_dtype_block hl_dtype_block_of(hl_dtype dtype)
{
    return is_dtype(dtype) ? dtypes[dtype].block : (hl_dtype_block){ 0, 0 };
}

bool hl_dtype_is_block(hl_dtype dtype)
{
    return is_dtype(dtype) && dtypes[dtype].bits == 0;
}

bool hl_dtype_parse_any(hl_dtype *out, const char *name)
{
    for (int i = 0; i < HL_DTYPE_COUNT; i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (hl_dtype)i;
            return true;
        }
    }
    return false;
}

bool hl_dtype_parse(hl_dtype *out, const char *name)
{
    hl_dtype dtype;

    if (!hl_dtype_parse_any(&dtype, name) || hl_dtype_is_block(dtype))
        return false;
    *out = dtype;
    return true;
}

bool hl_dtype_from_ggml(hl_dtype *out, uint32_t id)
{
    for (int i = 0; i < HL_DTYPE_COUNT; i++) {
        if (dtypes[i].ggml_id == id && id != NO_ID) {
            *out = (hl_dtype)i;
            return true;
        }
    }
    return false;
}

bool hl_dtype_to_ggml(uint32_t *out, hl_dtype dtype)
{
    if (!is_dtype(dtype) || dtypes[dtype].ggml_id == NO_ID)
        return false;
    *out = dtypes[dtype].ggml_id;
    return true;
}

/* ------------------------------------------------------------- one element */

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* value / 2^shift to the nearest integer, ties to even; 0 < shift < 32. */
static uint32_t shift_and_round(uint32_t value, unsigned shift)
{
    uint32_t half  = 1U << (shift - 1);
    uint32_t whole = value >> shift;
    uint32_t rest  = value & (2 * half - 1);
    if (rest > half || (rest == half && (whole & 1) != 0))
        whole++;
    return whole;
}

float hl_bf16_to_f32(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t hl_f32_to_bf16(float value)
{
    uint32_t bits = float_bits(value);

    /* Rounding a NaN could carry it into infinity; keep it and make it quiet. */
    if (isnan(value))
        return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)shift_and_round(bits, 16);
}

float hl_f16_to_f32(uint16_t bits)
{
    uint32_t sign     = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 0x1f;
    uint32_t mantissa = bits & 0x3ff;

    if (exponent == 0) { /* zero and subnormal: mantissa * 2^-24, exact in f32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    if (exponent == 0x1f) /* infinity and NaN */
        return float_from_bits(sign | 0x7f800000 | (mantissa << 13));
    return float_from_bits(sign | ((exponent + 127 - 15) << 23) | (mantissa << 13));
}

/* The f16 subnormal nearest to a magnitude below 2^-14, in units of 2^-24. */
static uint32_t f16_subnormal(uint32_t magnitude)
{
    uint32_t exponent = magnitude >> 23;
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;

    /* The value is mantissa * 2^(exponent - 150).  24 bits shifted by 25 or
     * more are below one half. */
    if (exponent < 126 - 24)
        return 0;
    return shift_and_round(mantissa, 126 - exponent);
}

uint16_t hl_f32_to_f16(float value)
{
    uint32_t bits      = float_bits(value);
    uint32_t sign      = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7fffffff;

    if (isnan(value)) /* the upper payload bits, made quiet */
        return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
    if (magnitude >= float_bits(0x1p16f)) /* below that, rounding itself may carry to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < float_bits(0x1p-14f))
        return (uint16_t)(sign | f16_subnormal(magnitude));
    return (uint16_t)(sign | shift_and_round(magnitude - ((127U - 15U) << 23), 13));
}

/* Rounds to the f32 next toward zero with its last bit set ("to odd") unless
 * the value is an f32.  A second rounding to f16 or bf16 then gives the same result
 * as one rounding from the double: the odd bit records on which side of a tie the
 * value was. */
static float round_to_odd(double value)
{
    float nearest = (float)value;
    if ((double)nearest == value || isnan(value))
        return nearest;
    if (fabs((double)nearest) > fabs(value))
        nearest = nextafterf(nearest, 0.0f);
    return float_from_bits(float_bits(nearest) | 1);
}

/* ----------------------------------------------------------------- arrays
 *
 * The loop is the same for every element type.  Either side may be unaligned, so
 * elements are copied in and out; compilers turn the copies into plain loads and stores. */

#define LOAD(element, type, expression)                                                            \
    case HL_DTYPE_##element:                                                                       \
        for (size_t i = 0; i < count; i++) {                                                       \
            type x;                                                                                \
            memcpy(&x, (const char *)source + i * sizeof x, sizeof x);                             \
            out[i] = (expression);                                                                 \
        }                                                                                          \
        return HL_OK;

/* The body of hl_dtype_to_f32 and hl_dtype_to_f64; `real` is the type of their results. */
#define LOAD_BY_DTYPE(real)                                                                        \
    switch (dtype) {                                                                               \
        LOAD(F32, float, (real)x)                                                                  \
        LOAD(F16, uint16_t, hl_f16_to_f32(x))                                                      \
        LOAD(BF16, uint16_t, hl_bf16_to_f32(x))                                                    \
        LOAD(F64, double, (real)x)                                                                 \
        LOAD(I8, int8_t, (real)x)                                                                  \
        LOAD(I16, int16_t, (real)x)                                                                \
        LOAD(I32, int32_t, (real)x)                                                                \
        LOAD(I64, int64_t, (real)x)                                                                \
        LOAD(U8, uint8_t, (real)x)                                                                 \
        LOAD(U16, uint16_t, (real)x)                                                               \
        LOAD(U32, uint32_t, (real)x)                                                               \
        LOAD(U64, uint64_t, (real)x)                                                               \
        LOAD(BOOL, uint8_t, (real)(x != 0))                                                        \
    default:                                                                                       \
        return hl_fail(HL_UNSUPPORTED, "elements of type %s cannot be converted to numbers",       \
                       hl_dtype_name(dtype));                                                      \
    }

hl_status hl_dtype_to_f32(float *out, const void *source, hl_dtype dtype,
                          size_t count){ LOAD_BY_DTYPE(float) }

hl_status hl_dtype_to_f64(double *out, const void *source, hl_dtype dtype, size_t count)
{
    LOAD_BY_DTYPE(double)
}

#define STORE(element, type, expression)                                                           \
    case HL_DTYPE_##element:                                                                       \
        for (size_t i = 0; i < count; i++) {                                                       \
            type x = (expression);                                                                 \
            memcpy((char *)out + i * sizeof x, &x, sizeof x);                                      \
        }                                                                                          \
        return HL_OK;

/* The body of hl_dtype_from_f32 and hl_dtype_from_f64.  `narrow` converts a source element to
 * f32 on its way to 16 bits, without rounding it twice. */
#define STORE_BY_DTYPE(narrow)                                                                     \
    switch (dtype) {                                                                               \
        STORE(F32, float, (float)source[i])                                                        \
        STORE(F16, uint16_t, hl_f32_to_f16(narrow(source[i])))                                     \
        STORE(BF16, uint16_t, hl_f32_to_bf16(narrow(source[i])))                                   \
        STORE(F64, double, (double)source[i])                                                      \
    default:                                                                                       \
        return hl_fail(HL_UNSUPPORTED, "numbers cannot be stored as elements of type %s",          \
                       hl_dtype_name(dtype));                                                      \
    }

hl_status hl_dtype_from_f32(void *out, hl_dtype dtype, const float *source,
                            size_t count){ STORE_BY_DTYPE(/* f32 is copied without conversion */) }

hl_status hl_dtype_from_f64(void *out, hl_dtype dtype, const double *source, size_t count)
{
    STORE_BY_DTYPE(round_to_odd)
}
