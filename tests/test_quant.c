/* test_quant.c - blocks against values that the reference software read from them, and quantizers
 * against blocks computed by hand. */
#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "formats/safetensors.h"
#include "kernels/quant.h"

/* Written by gguf-py: 22 types.  The second file has IQ1_M, Q1_0 and Q2_0, with random and
 * quantized blocks, written by ggml's C code; gguf-py has only the first of these, and agrees. */
#define GOLDEN     "tests/data/quants/blocks.safetensors"
#define GOLDEN_LOW "tests/data/quants/blocks_low.safetensors"

/* --------------------------------------------------------------- decoding */

/* Checks every value of NAME.values, read from NAME.blocks, to the bit. */
static void check_golden(const hl_safetensors *file, const hl_tensor *blocks, const char *backend)
{
    hl_dtype dtype    = HL_DTYPE_COUNT;
    char     name[32] = "";

    snprintf(name, sizeof name, "%.*s", (int)strcspn(blocks->name, "."), blocks->name);
    assert_true(hl_dtype_parse_any(&dtype, name));
    strcat(name, ".values");
    const hl_tensor *values = hl_safetensors_find(file, name);
    assert_non_null(values);

    size_t count = (size_t)hl_tensor_count(values);
    float *seen  = malloc(count * sizeof *seen);
    assert_non_null(seen);
    assert_ok(hl_dequantize(seen, dtype, blocks->data, count));
    if (memcmp(seen, values->data, values->n_bytes) != 0)
        fail_msg("%s differs on %s", name, backend);
    free(seen);
}

static void check_golden_file(const char *path, size_t n_types)
{
    hl_safetensors *file   = NULL;
    size_t          n_read = 0;

    assert_ok(hl_safetensors_open(&file, path));
    for (const char *const *backend = hl_backend_names(); *backend != NULL; backend++) {
        assert_ok(hl_backend_select(*backend));
        n_read = 0;
        for (size_t i = 0; i < hl_safetensors_count(file); i++) {
            const hl_tensor *tensor = hl_safetensors_at(file, i);
            if (strstr(tensor->name, ".blocks") != NULL) {
                check_golden(file, tensor, *backend);
                n_read++;
            }
        }
        assert_int_equal(n_read, n_types);
    }
    assert_ok(hl_backend_select(NULL));
    hl_safetensors_close(file);
}

static void golden_blocks_are_read_to_the_bit(void **state)
{
    (void)state;
    check_golden_file(GOLDEN, 22);
    check_golden_file(GOLDEN_LOW, 3);
}

static void other_elements_are_converted(void **state)
{
    const int16_t integers[3] = { -1, 0, 300 };
    const float   floats[2]   = { 1.5f, -INFINITY };
    float         out[3];
    (void)state;

    assert_ok(hl_dequantize(out, HL_DTYPE_I16, integers, 3));
    assert_true(out[0] == -1.0f && out[1] == 0.0f && out[2] == 300.0f);
    assert_ok(hl_dequantize(out, HL_DTYPE_F32, floats, 2));
    assert_true(out[0] == 1.5f && out[1] == -INFINITY);
    assert_fails(HL_UNSUPPORTED, "C64", hl_dequantize(out, HL_DTYPE_C64, floats, 1));
}

static void broken_blocks_are_refused(void **state)
{
    uint8_t bytes[300] = { 0 };
    float   out[300];
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "33 values are not a multiple of Q4_0's 32",
                 hl_dequantize(out, HL_DTYPE_Q4_0, bytes, 33));
    assert_fails(HL_BAD_ARGUMENT, "128 values are not a multiple of Q4_K's 256",
                 hl_dequantize(out, HL_DTYPE_Q4_K, bytes, 128));
    assert_fails(HL_BAD_ARGUMENT, "is not a dtype", hl_dequantize(out, HL_DTYPE_COUNT, bytes, 1));
    assert_fails(HL_BAD_ARGUMENT, "not a multiple", hl_quantize(bytes, HL_DTYPE_Q8_0, out, 31));
    assert_fails(HL_UNSUPPORTED, "quantizes to Q4_K", hl_quantize(bytes, HL_DTYPE_Q4_K, out, 256));
}

/* -------------------------------------------------------------- quantizing */

/* 127 / 127 = 1 exactly: q is x, rounded half away from zero. */
static void q8_0_rounds_away_from_zero(void **state)
{
    float   x[32]     = { 127.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f, -127.0f, 0.49f };
    int8_t  wanted[8] = { 127, 1, -1, 2, 3, -3, -127, 0 };
    uint8_t block[34];
    (void)state;

    assert_ok(hl_quantize(block, HL_DTYPE_Q8_0, x, 32));
    assert_int_equal(block[0] | block[1] << 8, 0x3c00); /* 1.0 */
    for (int i = 0; i < 8; i++)
        assert_int_equal((int8_t)block[2 + i], wanted[i]);
}

/* The largest value is -8: d = 1.  q = x + 8.5, truncated; +8 does not fit and becomes 15. */
static void q4_0_maps_the_largest_to_minus_8(void **state)
{
    float   x[32]     = { -8.0f, 8.0f, 0.0f, 0.5f, -0.5f, -0.51f, 7.0f, -7.49f };
    uint8_t wanted[8] = { 0, 15, 8, 9, 8, 7, 15, 1 };
    uint8_t block[18];
    float   back[32];
    (void)state;

    assert_ok(hl_quantize(block, HL_DTYPE_Q4_0, x, 32));
    assert_int_equal(block[0] | block[1] << 8, 0x3c00);
    for (int i = 0; i < 8; i++)
        assert_int_equal(block[2 + i] & 15, wanted[i]);
    for (int i = 0; i < 16; i++)
        assert_int_equal(block[2 + i] >> 4, 8);

    for (int i = 0; i < 32; i++) /* with the other sign, d is negative */
        x[i] = -x[i];
    assert_ok(hl_quantize(block, HL_DTYPE_Q4_0, x, 32));
    assert_int_equal(block[0] | block[1] << 8, 0xbc00);
    assert_ok(hl_dequantize(back, HL_DTYPE_Q4_0, block, 32));
    assert_true(back[0] == 8.0f && back[2] == 0.0f);
}

/* Two blocks as gguf-py 0.19 writes them, to check the place of every nibble and byte, in the
 * second half of a block too. */
static void blocks_are_those_of_gguf_py(void **state)
{
    static const uint8_t q4_0[] = { 0x2a, 0xb8, 0x2d, 0xc8, 0x62, 0x1c, 0xb7, 0x51, 0xfb,
                                    0x96, 0x40, 0xea, 0x84, 0x3e, 0xc9, 0x73, 0x1d, 0xb7,
                                    0x0a, 0xb8, 0xa6, 0x40, 0xea, 0x84, 0x3f, 0xd9, 0x73,
                                    0x1d, 0xc8, 0x62, 0x0c, 0xa6, 0x51, 0xfb, 0x95, 0x3f };
    static const uint8_t q8_0[] = { 0x32, 0x28, 0xa9, 0x01, 0x59, 0xbc, 0x14, 0x6c, 0xd0, 0x27,
                                    0x7f, 0xe3, 0x3a, 0x9e, 0xf6, 0x4d, 0xb1, 0x09, 0x60, 0xc4,
                                    0x1c, 0x74, 0xd7, 0x2f, 0x93, 0xea, 0x42, 0xa6, 0xfd, 0x55,
                                    0xb9, 0x10, 0x68, 0xcc, 0x12, 0x28, 0x25, 0x7f, 0xde, 0x38,
                                    0x97, 0xf1, 0x4c, 0xab, 0x05, 0x60, 0xbe, 0x19, 0x73, 0xd2,
                                    0x2c, 0x8b, 0xe6, 0x40, 0x9f, 0xf9, 0x54, 0xb3, 0x0d, 0x67,
                                    0xc6, 0x21, 0x7b, 0xda, 0x34, 0x93, 0xee, 0x48 };
    float                x[64];
    uint8_t              blocks[2 * 34];
    (void)state;

    for (int i = 0; i < 64; i++)
        x[i] = (float)(((i * 23 + 7) % 64 - 29.7) / 8.0);
    assert_ok(hl_quantize(blocks, HL_DTYPE_Q4_0, x, 64));
    assert_memory_equal(blocks, q4_0, sizeof q4_0);
    assert_ok(hl_quantize(blocks, HL_DTYPE_Q8_0, x, 64));
    assert_memory_equal(blocks, q8_0, sizeof q8_0);
}

static void quantizing_what_was_read_changes_nothing(void **state)
{
    hl_safetensors *file = NULL;
    (void)state;

    assert_ok(hl_safetensors_open(&file, GOLDEN));
    const hl_tensor *blocks = hl_safetensors_find(file, "BF16.blocks");
    const hl_tensor *values = hl_safetensors_find(file, "BF16.values");
    uint8_t          again[512];
    float            aligned[256];
    memcpy(aligned, values->data, values->n_bytes);
    assert_ok(hl_quantize(again, HL_DTYPE_BF16, aligned, 256));
    assert_memory_equal(again, blocks->data, 512);
    hl_safetensors_close(file);
}

/* The error of a rounded value is at most half a step, d / 2, and a little more for rounding d
 * itself to f16. */
static void q8_0_is_near(void **state)
{
    float   x[320], back[320];
    uint8_t blocks[340];
    (void)state;

    for (int i = 0; i < 320; i++)
        x[i] = sinf((float)i) * expf((float)(i / 32));
    assert_ok(hl_quantize(blocks, HL_DTYPE_Q8_0, x, 320));
    assert_ok(hl_dequantize(back, HL_DTYPE_Q8_0, blocks, 320));
    for (int i = 0; i < 320; i++)
        assert_true(fabsf(back[i] - x[i]) < expf((float)(i / 32)) * 0.005f);
}

static void odd_numbers_do_no_harm(void **state)
{
    float   x[32]    = { NAN, INFINITY, -INFINITY, 1e-42f, 3e38f };
    float   tiny[32] = { 1e-44f, -1e-44f };
    float   none[32] = { 0 };
    uint8_t block[34];
    (void)state;

    assert_ok(hl_quantize(block, HL_DTYPE_Q8_0, x, 32));
    assert_ok(hl_quantize(block, HL_DTYPE_Q4_0, x, 32));
    assert_ok(hl_quantize(block, HL_DTYPE_Q8_0, tiny, 32));
    assert_ok(hl_quantize(block, HL_DTYPE_Q4_0, tiny, 32));
    assert_ok(hl_quantize(block, HL_DTYPE_Q8_0, none, 32));
    for (int i = 0; i < 34; i++)
        assert_int_equal(block[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_blocks_are_read_to_the_bit),
        cmocka_unit_test(other_elements_are_converted),
        cmocka_unit_test(broken_blocks_are_refused),
        cmocka_unit_test(q8_0_rounds_away_from_zero),
        cmocka_unit_test(q4_0_maps_the_largest_to_minus_8),
        cmocka_unit_test(blocks_are_those_of_gguf_py),
        cmocka_unit_test(quantizing_what_was_read_changes_nothing),
        cmocka_unit_test(q8_0_is_near),
        cmocka_unit_test(odd_numbers_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
