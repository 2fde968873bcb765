/* test_verify_blocks.c - files of quantized blocks: right, wrong and invalid ones. */
#include "verify_support.h"

#include <math.h>

#include "base/dtype.h"

#define GOLDEN "tests/data/quants/blocks.safetensors"

static const hl_verify_options scalar = { .backend = "scalar" };

static void golden_blocks_pass(void **state)
{
    hl_verify_report *report = NULL;
    (void)state;

    assert_ok(hl_verify(&report, GOLDEN, NULL));
    assert_true(report->passed);
    assert_string_equal(report->name, "blocks");
    assert_int_equal(report->n_entries % 22, 0);
    for (size_t i = 0; i < report->n_entries; i++)
        assert_true(report->entries[i].error == 0.0 && report->entries[i].tolerance == 0.0);
    assert_string_equal(report->entries[0].output, "Q4_0");
    assert_string_equal(report->entries[0].backend, "scalar");
    hl_verify_report_free(report);
    assert_ok(hl_verify(&report, "tests/data/quants/blocks_low.safetensors", NULL));
    assert_true(report->passed && report->n_entries > 0 && report->n_entries % 3 == 0);
    hl_verify_report_free(report);
}

static void attention_cases_are_still_run(void **state)
{
    hl_verify_report *report = NULL;
    (void)state;

    assert_ok(hl_verify(&report, CASES "one.safetensors", &scalar));
    assert_true(report->passed && report->n_entries == 14);
    hl_verify_report_free(report);
    assert_fails(HL_BAD_ARGUMENT, "path is NULL", hl_verify(&report, NULL, NULL));
    assert_fails(HL_BAD_ARGUMENT, "path is NULL", hl_verify_blocks(&report, NULL, NULL));
    assert_fails(HL_NOT_FOUND, "nothing.safetensors",
                 hl_verify(&report, "nothing.safetensors", NULL));
    assert_null(report);
}

/* One block of Q8_0 with d = 1; its values should be 0, 1, 2 ... */
static const uint8_t block[34] = { 0,  0x3c, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,
                                   10, 11,   12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                   22, 23,   24, 25, 26, 27, 28, 29, 30, 31 };

static hl_tensor blocks_named(const char *name)
{
    return (hl_tensor){ name, HL_DTYPE_U8, 2, { 1, 34 }, block, sizeof block };
}

/* Makes a file of one block and, unless it is NULL, one tensor of values. */
static const char *blocks_file(const hl_tensor *blocks, const hl_tensor *values)
{
    hl_tensor both[2] = { *blocks };

    if (values != NULL)
        both[1] = *values;
    return new_case("", both, values != NULL ? 2 : 1);
}

static void a_wrong_value_fails(void **state)
{
    float             values[32];
    hl_tensor         blocks   = blocks_named("Q8_0.blocks");
    hl_tensor         expected = { "Q8_0.values", HL_DTYPE_F32, 2, { 1, 32 }, values, 128 };
    hl_verify_report *report   = NULL;
    (void)state;

    for (int i = 0; i < 32; i++)
        values[i] = (float)i;
    assert_ok(hl_verify(&report, blocks_file(&blocks, &expected), &scalar));
    assert_true(report->passed && report->n_entries == 1);
    hl_verify_report_free(report);

    values[31] = nextafterf(31.0f, 0.0f);
    assert_ok(hl_verify(&report, blocks_file(&blocks, &expected), &scalar));
    assert_false(report->passed);
    assert_true(report->entries[0].error == 31.0 - (double)values[31]);
    hl_verify_report_free(report);

    values[31] = NAN;
    assert_ok(hl_verify(&report, blocks_file(&blocks, &expected), &scalar));
    assert_false(report->passed);
    assert_true(isinf(report->entries[0].error));
    hl_verify_report_free(report);
}

static void refuse(const hl_tensor *blocks, const hl_tensor *values, const char *fragment)
{
    hl_verify_report *report = NULL;

    assert_fails(HL_BAD_INPUT, fragment, hl_verify(&report, blocks_file(blocks, values), &scalar));
    assert_null(report);
}

static void nonsense_is_refused(void **state)
{
    static const float values[32] = { 0 };
    hl_tensor          blocks     = blocks_named("Q8_0.blocks");
    hl_tensor          expected   = { "Q8_0.values", HL_DTYPE_F32, 1, { 31 }, values, 124 };
    (void)state;

    refuse(&blocks, NULL, "no expected values");
    refuse(&blocks, &expected, "'Q8_0.values': 31 values of type F32, the blocks hold 32 of F32");
    expected = (hl_tensor){ "Q8_0.values", HL_DTYPE_I32, 1, { 32 }, values, 128 };
    refuse(&blocks, &expected, "of type I32");
    blocks = blocks_named("Q9_9.blocks");
    refuse(&blocks, NULL, "tensor 'Q9_9.blocks': no dtype has this name");
    blocks = blocks_named("a_name_that_is_very_long_indeed.blocks");
    refuse(&blocks, NULL, "no dtype has this name");
    blocks = blocks_named("Q4_0.blocks");
    refuse(&blocks, NULL, "rows of 34 bytes, a block of Q4_0 has 18");
    blocks         = blocks_named("Q8_0.blocks");
    blocks.n_dims  = 0;
    blocks.n_bytes = 1;
    refuse(&blocks, NULL, "rows of 0 bytes");
    blocks       = blocks_named("Q8_0.blocks");
    blocks.dtype = HL_DTYPE_I8;
    refuse(&blocks, NULL, "has dtype I8, wanted U8");
}

/* Written values are the ones that were read, to the bit, and pass as expected values. */
static void writing_stores_the_values(void **state)
{
    hl_safetensors   *golden = NULL, *written = NULL;
    hl_verify_report *report  = NULL;
    hl_verify_options options = { .write_path = scratch("written") };
    (void)state;

    assert_ok(hl_verify(&report, GOLDEN, &options));
    hl_verify_report_free(report);
    assert_ok(hl_safetensors_open(&golden, GOLDEN));
    assert_ok(hl_safetensors_open(&written, options.write_path));
    assert_int_equal(hl_safetensors_count(written), 22);
    for (size_t i = 0; i < hl_safetensors_count(written); i++) {
        const hl_tensor *ours   = hl_safetensors_at(written, i);
        const hl_tensor *theirs = hl_safetensors_find(golden, ours->name);
        assert_non_null(theirs);
        assert_int_equal(ours->n_bytes, theirs->n_bytes);
        assert_memory_equal(ours->shape, theirs->shape, sizeof(int64_t) * 2);
        assert_memory_equal(ours->data, theirs->data, ours->n_bytes);
    }
    hl_safetensors_close(golden);
    hl_safetensors_close(written);

    hl_tensor blocks = blocks_named("Q8_0.blocks"); /* written even though nothing is expected */
    options.backend  = "scalar";
    assert_ok(hl_verify(&report, blocks_file(&blocks, NULL), &options));
    assert_int_equal(report->n_entries, 0);
    hl_verify_report_free(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_blocks_pass),
        cmocka_unit_test(attention_cases_are_still_run),
        cmocka_unit_test(a_wrong_value_fails),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(writing_stores_the_values),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
