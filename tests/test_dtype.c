/* test_dtype.c - names, sizes, and all 16-bit floats.
 *
 * The reference is arithmetic in double precision: the value of a bit pattern follows from its
 * definition with ldexp, and the points where rounding changes are the midpoints of neighbors. */
#include "support.h"

#include <float.h>
#include <math.h>

#include "base/dtype.h"

#define N_PATTERNS 65536

/* A 16-bit format: how many bits its fields have, and our conversions. */
typedef struct format {
    hl_dtype dtype;
    int      mantissa_bits;
    int      bias;
    uint16_t infinity;
    float (*to_f32)(uint16_t);
    uint16_t (*from_f32)(float);
} format;

static const format formats[] = {
    { HL_DTYPE_F16, 10, 15, 0x7c00, hl_f16_to_f32, hl_f32_to_f16 },
    { HL_DTYPE_BF16, 7, 127, 0x7f80, hl_bf16_to_f32, hl_f32_to_bf16 },
};
#define N_FORMATS (sizeof formats / sizeof formats[0])

/* Returns the value of a pattern, by the definition of the format. */
static double meaning(const format *f, uint16_t bits)
{
    int    exponent = (bits & 0x7fff) >> f->mantissa_bits;
    int    mantissa = bits & ((1 << f->mantissa_bits) - 1);
    int    special  = f->infinity >> f->mantissa_bits;
    double magnitude;

    if (exponent == special)
        magnitude = mantissa == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        magnitude = ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
    else
        magnitude =
            ldexp(mantissa + (1 << f->mantissa_bits), exponent - f->bias - f->mantissa_bits);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/* Like meaning, but infinity counts as one step past the largest number, where rounding begins to
 * overflow. */
static double rounding_point(const format *f, uint16_t bits)
{
    if (bits != f->infinity)
        return meaning(f, bits);
    return 2 * meaning(f, (uint16_t)(bits - 1)) - meaning(f, (uint16_t)(bits - 2));
}

static void names_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < HL_DTYPE_COUNT; i++) {
        hl_dtype parsed = HL_DTYPE_COUNT;
        assert_true(hl_dtype_parse_any(&parsed, hl_dtype_name((hl_dtype)i)));
        assert_int_equal(parsed, i);
        /* Block types are not in safetensors, and their elements have no bits of their own. */
        assert_int_equal(hl_dtype_is_block(parsed), i >= HL_DTYPE_Q4_0);
        assert_int_equal(hl_dtype_parse(&parsed, hl_dtype_name((hl_dtype)i)), i < HL_DTYPE_Q4_0);
        assert_int_equal(hl_dtype_bits((hl_dtype)i) >= 4, i < HL_DTYPE_Q4_0);
    }
    hl_dtype untouched = HL_DTYPE_I8;
    assert_false(hl_dtype_parse(&untouched, "F31"));
    assert_false(hl_dtype_parse(&untouched, "f32"));
    assert_false(hl_dtype_parse(&untouched, ""));
    assert_int_equal(untouched, HL_DTYPE_I8);
    assert_string_equal(hl_dtype_name(HL_DTYPE_COUNT), "?");
    assert_string_equal(hl_dtype_name((hl_dtype)-1), "?");
    assert_int_equal(hl_dtype_bits(HL_DTYPE_COUNT), 0);
}

static void blocks_fill_whole_bytes(void **state)
{
    (void)state;
    for (int i = 0; i < HL_DTYPE_COUNT; i++) {
        hl_dtype_block block = hl_dtype_block_of((hl_dtype)i);
        if (hl_dtype_is_block((hl_dtype)i))
            assert_true(block.n_values >= 32 && block.n_values <= 256 &&
                        (block.n_values & (block.n_values - 1)) == 0);
        else
            assert_int_equal(block.n_values * hl_dtype_bits((hl_dtype)i), 8 * block.n_bytes);
    }
    assert_int_equal(hl_dtype_block_of(HL_DTYPE_Q4_K).n_bytes, 144);
    assert_int_equal(hl_dtype_block_of(HL_DTYPE_COUNT).n_values, 0);
    assert_false(hl_dtype_is_block(HL_DTYPE_COUNT));
}

static void ggml_numbers_round_trip(void **state)
{
    (void)state;
    hl_dtype dtype   = HL_DTYPE_COUNT;
    uint32_t id      = 0;
    int      n_known = 0;

    for (uint32_t i = 0; i < 64; i++) {
        if (!hl_dtype_from_ggml(&dtype, i))
            continue;
        assert_true(hl_dtype_to_ggml(&id, dtype));
        assert_int_equal(id, i);
        n_known++;
    }
    assert_int_equal(n_known, 32); /* 24 block types, 4 of floats, 4 of integers */
    assert_true(hl_dtype_from_ggml(&dtype, 12) && dtype == HL_DTYPE_Q4_K);
    assert_true(hl_dtype_from_ggml(&dtype, 29) && dtype == HL_DTYPE_IQ1_M);
    assert_true(hl_dtype_from_ggml(&dtype, 41) && dtype == HL_DTYPE_Q1_0);
    assert_true(hl_dtype_from_ggml(&dtype, 42) && dtype == HL_DTYPE_Q2_0);
    assert_false(hl_dtype_from_ggml(&dtype, 4)); /* Q4_2, which was withdrawn */
    assert_false(hl_dtype_from_ggml(&dtype, UINT32_MAX));
    assert_false(hl_dtype_to_ggml(&id, HL_DTYPE_BOOL));
    assert_false(hl_dtype_to_ggml(&id, HL_DTYPE_COUNT));
}

static void sizes_are_those_of_safetensors(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t      bits;
    } wanted[] = { { "F4", 4 },   { "F6_E2M3", 6 }, { "F6_E3M2", 6 },     { "BOOL", 8 },
                   { "U8", 8 },   { "I8", 8 },      { "F8_E4M3FNUZ", 8 }, { "I16", 16 },
                   { "F16", 16 }, { "BF16", 16 },   { "U32", 32 },        { "F32", 32 },
                   { "F64", 64 }, { "I64", 64 },    { "C64", 64 } };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        hl_dtype dtype;
        assert_true(hl_dtype_parse(&dtype, wanted[i].name));
        assert_int_equal(hl_dtype_bits(dtype), wanted[i].bits);
    }
}

static void every_pattern_means_what_it_should(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMATS; f++) {
        for (int i = 0; i < N_PATTERNS; i++) {
            double wanted = meaning(&formats[f], (uint16_t)i);
            float  value  = formats[f].to_f32((uint16_t)i);
            if (isnan(wanted))
                assert_true(isnan(value));
            else
                assert_true((double)value == wanted);
            assert_int_equal(signbit(value) != 0, i >= 0x8000);
        }
    }
}

static void every_pattern_survives_the_round_trip(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMATS; f++) {
        for (int i = 0; i < N_PATTERNS; i++) {
            float    value = formats[f].to_f32((uint16_t)i);
            uint16_t back  = formats[f].from_f32(value);
            if (isnan(value)) /* a NaN stays NaN and keeps its sign, but becomes quiet */
                assert_true(isnan(formats[f].to_f32(back)) && (back & 0x8000) == (i & 0x8000));
            else
                assert_int_equal(back, i);
        }
    }
}

/* For neighbors a < b, values below the midpoint are rounded to a, values above to b, and the
 * midpoint to the even one; the same holds for negative values. */
static void every_tie_goes_to_even(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMATS; f++) {
        for (uint16_t a = 0; a < formats[f].infinity; a++) {
            uint16_t b      = (uint16_t)(a + 1);
            uint16_t even   = (a & 1) == 0 ? a : b;
            double   middle = (meaning(&formats[f], a) + rounding_point(&formats[f], b)) / 2;
            float    tie    = (float)middle;

            assert_true((double)tie == middle); /* the midpoint is an f32 */
            assert_int_equal(formats[f].from_f32(tie), even);
            assert_int_equal(formats[f].from_f32(nextafterf(tie, 0.0f)), a);
            assert_int_equal(formats[f].from_f32(nextafterf(tie, INFINITY)), b);
            assert_int_equal(formats[f].from_f32(-tie), even | 0x8000);
            assert_int_equal(formats[f].from_f32(-nextafterf(tie, INFINITY)), b | 0x8000);
        }
    }
}

/* A double so close to a tie that f32 cannot represent the difference: rounding through f32 would
 * lose the side. */
static void doubles_are_rounded_once(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMATS; f++) {
        for (uint16_t a = 0; a < formats[f].infinity; a++) {
            double   middle = (meaning(&formats[f], a) + rounding_point(&formats[f], a + 1)) / 2;
            double   sources[4] = { nextafter(middle, 0.0), nextafter(middle, INFINITY),
                                    -nextafter(middle, 0.0), -nextafter(middle, INFINITY) };
            uint16_t out[4];
            assert_ok(hl_dtype_from_f64(out, formats[f].dtype, sources, 4));
            assert_int_equal(out[0], a);
            assert_int_equal(out[1], a + 1);
            assert_int_equal(out[2], a | 0x8000);
            assert_int_equal(out[3], (a + 1) | 0x8000);
        }
    }
}

static void extreme_doubles_keep_their_kind(void **state)
{
    (void)state;
    const double sources[] = {
        1e300, -1e300, 1e-300, -1e-300, INFINITY, -INFINITY, 0.0, -0.0, 1.5
    };
    const uint16_t f16[]  = { 0x7c00, 0xfc00, 0, 0x8000, 0x7c00, 0xfc00, 0, 0x8000, 0x3e00 };
    const uint16_t bf16[] = { 0x7f80, 0xff80, 0, 0x8000, 0x7f80, 0xff80, 0, 0x8000, 0x3fc0 };
    uint16_t       out[9];

    assert_ok(hl_dtype_from_f64(out, HL_DTYPE_F16, sources, 9));
    assert_memory_equal(out, f16, sizeof out);
    assert_ok(hl_dtype_from_f64(out, HL_DTYPE_BF16, sources, 9));
    assert_memory_equal(out, bf16, sizeof out);

    const double nan = NAN;
    assert_ok(hl_dtype_from_f64(out, HL_DTYPE_F16, &nan, 1));
    assert_true(isnan(hl_f16_to_f32(out[0])));
    assert_ok(hl_dtype_from_f64(out, HL_DTYPE_BF16, &nan, 1));
    assert_true(isnan(hl_bf16_to_f32(out[0])));
}

/* Stores one element of `dtype` at an odd address and reads it in both ways. */
#define check_load(element_type, dtype, value, wanted)                                             \
    do {                                                                                           \
        element_type element = (value);                                                            \
        char         bytes[sizeof element + 1];                                                    \
        float        single = -1;                                                                  \
        double       wide   = -1;                                                                  \
        memcpy(bytes + 1, &element, sizeof element);                                               \
        assert_ok(hl_dtype_to_f32(&single, bytes + 1, dtype, 1));                                  \
        assert_ok(hl_dtype_to_f64(&wide, bytes + 1, dtype, 1));                                    \
        assert_true(single == (float)(wanted));                                                    \
        assert_true(wide == (wanted));                                                             \
    } while (0)

static void every_number_type_is_read(void **state)
{
    (void)state;
    check_load(float, HL_DTYPE_F32, -2.5f, -2.5);
    check_load(double, HL_DTYPE_F64, 0.1, 0.1);
    check_load(uint16_t, HL_DTYPE_F16, 0xc100, -2.5);
    check_load(uint16_t, HL_DTYPE_BF16, 0xc020, -2.5);
    check_load(int8_t, HL_DTYPE_I8, -128, -128.0);
    check_load(int16_t, HL_DTYPE_I16, -32768, -32768.0);
    check_load(int32_t, HL_DTYPE_I32, INT32_MIN, -2147483648.0);
    check_load(int64_t, HL_DTYPE_I64, -(1LL << 53), -9007199254740992.0);
    check_load(uint8_t, HL_DTYPE_U8, 255, 255.0);
    check_load(uint16_t, HL_DTYPE_U16, 65535, 65535.0);
    check_load(uint32_t, HL_DTYPE_U32, UINT32_MAX, 4294967295.0);
    check_load(uint64_t, HL_DTYPE_U64, 1ULL << 63, 9223372036854775808.0);
    check_load(uint8_t, HL_DTYPE_BOOL, 0, 0.0);
    check_load(uint8_t, HL_DTYPE_BOOL, 2, 1.0);
}

static void arrays_are_converted_in_order(void **state)
{
    (void)state;
    const float source[] = { 1.0f, -2.0f, 0.5f };
    double      wide[3];
    uint16_t    half[3];
    float       back[3];

    assert_ok(hl_dtype_from_f32(wide, HL_DTYPE_F64, source, 3));
    assert_true(wide[0] == 1.0 && wide[1] == -2.0 && wide[2] == 0.5);
    assert_ok(hl_dtype_from_f32(half, HL_DTYPE_F16, source, 3));
    assert_ok(hl_dtype_to_f32(back, half, HL_DTYPE_F16, 3));
    assert_memory_equal(back, source, sizeof source);
    assert_ok(hl_dtype_from_f32(half, HL_DTYPE_BF16, source, 3));
    assert_ok(hl_dtype_to_f32(back, half, HL_DTYPE_BF16, 3));
    assert_memory_equal(back, source, sizeof source);
    assert_ok(hl_dtype_from_f64(back, HL_DTYPE_F32, wide, 3));
    assert_memory_equal(back, source, sizeof source);
}

static void other_types_are_refused_by_name(void **state)
{
    (void)state;
    float  single   = 0;
    double wide     = 0;
    char   bytes[8] = { 0 };
    assert_fails(HL_UNSUPPORTED, "F8_E4M3", hl_dtype_to_f32(&single, bytes, HL_DTYPE_F8_E4M3, 1));
    assert_fails(HL_UNSUPPORTED, "C64", hl_dtype_to_f64(&wide, bytes, HL_DTYPE_C64, 1));
    assert_fails(HL_UNSUPPORTED, "I32", hl_dtype_from_f32(bytes, HL_DTYPE_I32, &single, 1));
    assert_fails(HL_UNSUPPORTED, "BOOL", hl_dtype_from_f64(bytes, HL_DTYPE_BOOL, &wide, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_round_trip),
        cmocka_unit_test(blocks_fill_whole_bytes),
        cmocka_unit_test(ggml_numbers_round_trip),
        cmocka_unit_test(sizes_are_those_of_safetensors),
        cmocka_unit_test(every_pattern_means_what_it_should),
        cmocka_unit_test(every_pattern_survives_the_round_trip),
        cmocka_unit_test(every_tie_goes_to_even),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(extreme_doubles_keep_their_kind),
        cmocka_unit_test(every_number_type_is_read),
        cmocka_unit_test(arrays_are_converted_in_order),
        cmocka_unit_test(other_types_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("dtype", tests, NULL, NULL);
}
