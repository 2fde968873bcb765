/* test_verify_case.c - invalid golden cases. */
#include "measure/verify_case.h"

#include "verify_support.h"

#define ODD_DIM CASES "odd_dim.safetensors" /* B 1, Hq 2, Hkv 1, Sq Sk 19, D Dv 7 */

/* Checks that the edited case is refused with a message that has these words. */
static void assert_refused(const case_edit *edit, const char *words)
{
    hl_verify_case *golden = NULL;
    const char     *path   = edited_case(ODD_DIM, edit);

    assert_fails(HL_BAD_INPUT, words, hl_verify_case_open(&golden, path));
    assert_null(golden);
    assert_non_null(strstr(hl_error_message(), path));
}

static void reads_all_parts(void **state)
{
    hl_verify_case *golden = NULL;
    (void)state;

    assert_ok(hl_verify_case_open(&golden, CASES "masked_rows.safetensors"));
    assert_int_equal(golden->problem.n_batch, 2);
    assert_int_equal(golden->problem.d_head, 32);
    assert_int_equal(golden->problem.flags,
                     HL_ATTENTION_CAUSAL | HL_ATTENTION_WINDOW_LEFT | HL_ATTENTION_SCALE);
    assert_int_equal(golden->problem.window_left, 3);
    assert_int_equal(golden->problem.key_length[0], 40);
    assert_int_equal(golden->problem.key_length[1], 12);
    assert_true(golden->has_upstream);
    assert_true(golden->max_score > 6.98 && golden->max_score < 6.99);
    assert_non_null(golden->expected[HL_VERIFY_ENTROPY]);
    assert_null(golden->expected[HL_VERIFY_SEGMENT_MASS]);
    hl_verify_case_close(golden);
}

static void refuses_what_is_missing(void **state)
{
    (void)state;
    assert_refused(&(case_edit){ .drop = "q" }, "tensor 'q' is missing");
    assert_refused(&(case_edit){ .drop = "k" }, "tensor 'k' is missing");
    assert_refused(&(case_edit){ .drop = "v" }, "tensor 'v' is missing");
    assert_refused(&(case_edit){ .options = "" }, "no metadata key 'case'");
}

static void refuses_other_shapes(void **state)
{
    static const float numbers[2 * 19 * 8];
    hl_tensor          wide = { "q", HL_DTYPE_F32, 4, { 1, 2, 19, 8 }, numbers, sizeof numbers };
    hl_tensor          flat = { "k", HL_DTYPE_F32, 2, { 19, 7 }, numbers, 19 * 7 * 4 };
    hl_tensor          gate = { "gates", HL_DTYPE_F32, 1, { 3 }, numbers, 12 };
    hl_tensor          lse = { "lse", HL_DTYPE_F64, 3, { 1, 1, 19 }, numbers, 19 * sizeof(double) };
    (void)state;

    assert_refused(&(case_edit){ .replace = &wide },
                   "tensor 'q' has shape [1,2,19,8], the case says [1,2,19,7]");
    assert_refused(&(case_edit){ .replace = &flat },
                   "tensor 'k' has shape [19,7], the case says [1,1,19,7]");
    assert_refused(&(case_edit){ .replace = &gate },
                   "tensor 'gates' has shape [3], the case says [2]");
    assert_refused(&(case_edit){ .replace = &lse },
                   "tensor 'lse' has shape [1,1,19], the case says [1,2,19]");
}

static void refuses_other_dtypes(void **state)
{
    static const int64_t numbers[2 * 19 * 7];
    hl_tensor            q   = { "q", HL_DTYPE_I64, 4, { 1, 2, 19, 7 }, numbers, sizeof numbers };
    hl_tensor            top = { "argmax", HL_DTYPE_I32, 3, { 1, 2, 19 }, numbers, 2 * 19 * 4 };
    hl_tensor            lse = { "lse", HL_DTYPE_I64, 3, { 1, 2, 19 }, numbers, 2 * 19 * 8 };
    hl_tensor            up  = { "grad_lse", HL_DTYPE_F64, 3, { 1, 2, 19 }, numbers, 2 * 19 * 8 };
    (void)state;

    assert_refused(&(case_edit){ .replace = &q },
                   "tensor 'q' has dtype I64, wanted F32 or F16 or BF16 or F64");
    assert_refused(&(case_edit){ .replace = &top }, "tensor 'argmax' has dtype I32, wanted I64");
    assert_refused(&(case_edit){ .replace = &lse },
                   "tensor 'lse' has dtype I64, wanted F32 or F64");
    assert_refused(&(case_edit){ .replace = &up }, "tensor 'grad_lse' has dtype F64, wanted F32");
}

#define SIZES "\"B\":1,\"Hq\":2,\"Hkv\":1,\"Sq\":19,\"Sk\":19,\"D\":7,\"Dv\":7"

static void refuses_absurd_options(void **state)
{
    static const struct {
        const char *options;
        const char *words;
    } bad[] = {
        { "{\"B\":1,\"Hq\":", "JSON" },
        { "[1,2]", "not a JSON object" },
        { "{}", "'B' is missing" },
        { "{\"B\":0,\"Hq\":2,\"Hkv\":1,\"Sq\":19,\"Sk\":19,\"D\":7,\"Dv\":7}",
          "'B' is 0, wanted 1 to 1048576" },
        { "{\"B\":1,\"Hq\":2,\"Hkv\":1,\"Sq\":-19,\"Sk\":19,\"D\":7,\"Dv\":7}",
          "'Sq' is -19, wanted 0 to" },
        { "{\"B\":1,\"Hq\":2,\"Hkv\":1,\"Sq\":19,\"Sk\":9000000000000000000,\"D\":7,\"Dv\":7}",
          "'Sk' is 9000000000000000000" },
        { "{\"B\":1,\"Hq\":2,\"Hkv\":1,\"Sq\":19,\"Sk\":19,\"D\":577,\"Dv\":7}",
          "'D' is 577, wanted 1 to 576" },
        { "{\"B\":1,\"Hq\":2,\"Hkv\":1,\"Sq\":19,\"Sk\":19,\"D\":7}", "'Dv' is missing" },
        { "{\"B\":1,\"Hq\":3,\"Hkv\":2,\"Sq\":19,\"Sk\":19,\"D\":7,\"Dv\":7}",
          "'Hq' is 3, not a multiple of 'Hkv', 2" },
        { "{\"B\":1048576,\"Hq\":2,\"Hkv\":1,\"Sq\":0,\"Sk\":0,\"D\":7,\"Dv\":7}",
          "'B' times 'Hq' is 2097152" },
        { "{\"B\":\"one\",\"Hq\":2,\"Hkv\":1,\"Sq\":19,\"Sk\":19,\"D\":7,\"Dv\":7}", "'B'" },
        { "{" SIZES ",\"causal\":1}", "'causal'" },
        { "{" SIZES ",\"window_left\":-1}", "'window_left' is -1, wanted 0 to" },
        { "{" SIZES ",\"softcap\":-2.0}", "'softcap' is -2, wanted 0 to" },
        { "{" SIZES ",\"scale\":1e300}", "'scale' is 1e+300" },
        { "{" SIZES ",\"max_score\":1e30}", "'max_score' is 1e+30, wanted 0 to 1e+06" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(&(case_edit){ .options = bad[i].options }, bad[i].words);
}

static void refuses_absurd_numbers(void **state)
{
    int64_t   too_long = 20, negative = -1, far_away = INT64_MAX;
    int64_t   numbers[19] = { 0, 8 };
    float     sinks[2]    = { 0 };
    hl_tensor tensor      = { "key_length", HL_DTYPE_I64, 1, { 1 }, &too_long, 8 };
    hl_tensor segments    = { "segments", HL_DTYPE_I64, 1, { 19 }, numbers, sizeof numbers };
    hl_tensor dsinks      = { "dsinks", HL_DTYPE_F32, 1, { 2 }, sinks, sizeof sinks };
    (void)state;

    assert_refused(&(case_edit){ .replace = &tensor },
                   "tensor 'key_length' holds 20 at 0, wanted 0 to 19");
    tensor.data = &negative;
    assert_refused(&(case_edit){ .replace = &tensor }, "holds -1 at 0");
    tensor.name = "query_start";
    tensor.data = &far_away;
    assert_refused(&(case_edit){ .replace = &tensor }, "tensor 'query_start' holds 92233720368547");
    assert_refused(&(case_edit){ .replace = &segments },
                   "tensor 'segments' holds 8 at 1, wanted 0 to 7");
    assert_refused(&(case_edit){ .replace = &dsinks }, "expects 'dsinks' but has no sinks");
}

static void refuses_segments_that_disagree(void **state)
{
    static const double mass[2 * 19 * 2];
    int64_t             numbers[19] = { 0, 1, 2 };
    hl_tensor           segments = { "segments", HL_DTYPE_I64, 1, { 19 }, numbers, sizeof numbers };
    hl_tensor       two = { "segment_mass", HL_DTYPE_F64, 4, { 1, 2, 19, 2 }, mass, sizeof mass };
    hl_verify_case *golden = NULL;
    (void)state;

    assert_refused(&(case_edit){ .replace = &two }, "expects 'segment_mass' but has no segments");
    assert_ok(
        hl_verify_case_open(&golden, edited_case(ODD_DIM, &(case_edit){ .replace = &segments })));
    assert_int_equal(golden->problem.n_segments, 3);
    hl_verify_case_close(golden);

    two.shape[3]       = 0;
    two.n_bytes        = 0;
    hl_tensor   both[] = { segments, two };
    const char *path   = new_case("{" SIZES "}", both, 2);
    assert_int_equal(hl_verify_case_open(&golden, path), HL_BAD_INPUT);
}

static void refuses_files_that_are_not_cases(void **state)
{
    static const uint8_t junk[] = "this is not a safetensors file at all";
    hl_verify_case      *golden = NULL;
    (void)state;

    assert_int_equal(hl_verify_case_parse(&golden, junk, sizeof junk, "junk"), HL_BAD_INPUT);
    assert_int_equal(hl_verify_case_parse(&golden, junk, 0, "nothing"), HL_BAD_INPUT);
    assert_int_equal(hl_verify_case_open(&golden, "/nowhere/case.safetensors"), HL_NOT_FOUND);
    assert_null(golden);
}

/* Real cases, truncated at any place, are refused without a crash. */
static void refuses_truncated_cases(void **state)
{
    static uint8_t  bytes[16384];
    hl_verify_case *golden = NULL;
    FILE           *file   = fopen(ODD_DIM, "rb");
    (void)state;

    assert_non_null(file);
    size_t n_bytes = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_in_range(n_bytes, 10000, sizeof bytes - 1);
    assert_ok(hl_verify_case_parse(&golden, bytes, n_bytes, "whole"));
    hl_verify_case_close(golden);
    for (size_t length = 0; length < n_bytes; length += 37)
        assert_int_equal(hl_verify_case_parse(&golden, bytes, length, "part"), HL_BAD_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_parts),
        cmocka_unit_test(refuses_what_is_missing),
        cmocka_unit_test(refuses_other_shapes),
        cmocka_unit_test(refuses_other_dtypes),
        cmocka_unit_test(refuses_absurd_options),
        cmocka_unit_test(refuses_absurd_numbers),
        cmocka_unit_test(refuses_segments_that_disagree),
        cmocka_unit_test(refuses_files_that_are_not_cases),
        cmocka_unit_test(refuses_truncated_cases),
    };
    return cmocka_run_group_tests_name("verify_case", tests, make_scratch, remove_scratch);
}
