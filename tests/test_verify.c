/* test_verify.c - golden attention cases on every back end, and whether a wrong number is noticed:
 * a verification that cannot fail is useless. */
#include <glob.h>
#include <math.h>

#include "base/dtype.h"
#include "verify_support.h"

static const hl_verify_entry *find_entry(const hl_verify_report *report, const char *output)
{
    for (size_t i = 0; i < report->n_entries; i++) {
        if (strcmp(report->entries[i].output, output) == 0)
            return &report->entries[i];
    }
    return NULL;
}

/* ------------------------------------------------------------ golden cases */

static void assert_passes(const char *path)
{
    hl_verify_report *report = NULL;

    if (hl_verify_attention(&report, path, NULL) != HL_OK)
        fail_msg("%s", hl_error_message());
    for (size_t i = 0; i < report->n_entries; i++) {
        const hl_verify_entry *entry = &report->entries[i];
        if (!entry->passed)
            print_error("%s: %s on %s: error %g, allowed %g\n", report->name, entry->output,
                        entry->backend, entry->error, entry->tolerance);
    }
    assert_true(report->n_entries > 0);
    assert_true(report->passed);
    hl_verify_report_free(report);
}

/* Returns the number of cases in a folder, which must all pass. */
static size_t verify_folder(const char *folder)
{
    char   pattern[512];
    glob_t found;
    size_t n_cases = 0;

    snprintf(pattern, sizeof pattern, "%s/*.safetensors", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return 0;
    for (n_cases = 0; n_cases < found.gl_pathc; n_cases++)
        assert_passes(found.gl_pathv[n_cases]);
    globfree(&found);
    return n_cases;
}

static void kept_cases_pass(void **state)
{
    (void)state;
    assert_int_equal(verify_folder(CASES), 17);
}

static void shared_cases_pass(void **state)
{
    const char *shared = getenv("HEADLIGHT_SHARED");
    char        folder[256];
    (void)state;

    snprintf(folder, sizeof folder, "%s/golden/attention", shared != NULL ? shared : "../shared");
    if (access(folder, R_OK) != 0)
        skip();
    assert_true(verify_folder(folder) >= 29);
}

static void every_backend_is_run(void **state)
{
    hl_verify_report  *report = NULL;
    const char *const *names  = hl_backend_names();
    (void)state;

    assert_ok(hl_verify_attention(&report, CASES "one.safetensors", NULL));
    assert_string_equal(report->name, "one");
    assert_int_equal(report->n_entries % 14, 0); /* `one` has 14 outputs */
    for (size_t i = 0; i < report->n_entries / 14; i++)
        assert_string_equal(report->entries[14 * i].backend, names[i]);
    assert_null(names[report->n_entries / 14]);
    hl_verify_report_free(report);
}

/* ---------------------------------------------------------- wrong numbers */

/* Runs the scalar back end; exactly `output` must exceed its tolerance, in this element (-1:
 * any). */
static void assert_only_fails(const char *path, const char *output, int64_t element)
{
    hl_verify_report *report = NULL;

    assert_ok(hl_verify_attention(&report, path, &(hl_verify_options){ .backend = "scalar" }));
    assert_false(report->passed);
    for (size_t i = 0; i < report->n_entries; i++) {
        bool is_it = strcmp(report->entries[i].output, output) == 0;
        if (report->entries[i].passed == is_it)
            fail_msg("%s: error %g, allowed %g, tampered with: %s", report->entries[i].output,
                     report->entries[i].error, report->entries[i].tolerance, output);
        if (is_it && element >= 0)
            assert_int_equal(report->entries[i].worst, element);
    }
    hl_verify_report_free(report);
}

/* Changes the middle element of one expected tensor by twice the tolerance. */
static void tamper(const char *source, const hl_verify_entry *entry)
{
    hl_safetensors  *file = NULL;
    static double    numbers[1 << 16];
    static uint8_t   bytes[8 << 16];
    const hl_tensor *before = NULL;
    double           scale  = 0.0;

    assert_ok(hl_safetensors_open(&file, source));
    before = hl_safetensors_find(file, entry->output);
    if (before == NULL && strcmp(entry->output, "self") == 0)
        before = hl_safetensors_find(file, "diagonal"); /* golden files name it so */
    assert_non_null(before);
    size_t count = (size_t)hl_tensor_count(before);
    assert_in_range(count, 1, (1 << 16) - 1);
    assert_ok(hl_dtype_to_f64(numbers, before->data, before->dtype, count));
    for (size_t i = 0; i < count; i++)
        scale = fmax(scale, fabs(numbers[i]));
    numbers[count / 2] += 2.0 * entry->tolerance * (entry->relative ? scale : 1.0);
    assert_ok(hl_dtype_from_f64(bytes, before->dtype, numbers, count));

    hl_tensor after = *before;
    after.data      = bytes;
    assert_only_fails(edited_case(source, &(case_edit){ .replace = &after }), entry->output,
                      (int64_t)count / 2);
    hl_safetensors_close(file);
}

static void tamper_with_all(const char *source)
{
    hl_verify_report *report = NULL;

    assert_ok(hl_verify_attention(&report, source, &(hl_verify_options){ .backend = "scalar" }));
    for (size_t i = 0; i < report->n_entries; i++) {
        if (strcmp(report->entries[i].output, "argmax") != 0)
            tamper(source, &report->entries[i]);
    }
    hl_verify_report_free(report);
}

static void wrong_values_are_noticed(void **state)
{
    (void)state;
    tamper_with_all(CASES "segments.safetensors");
    tamper_with_all(CASES "gated.safetensors");
    tamper_with_all(CASES "sink_window.safetensors");
}

static void expected_nan_is_noticed(void **state)
{
    double    nan   = NAN;
    hl_tensor first = { "first", HL_DTYPE_F64, 3, { 1, 1, 1 }, &nan, sizeof nan };
    (void)state;

    assert_only_fails(edited_case(CASES "one.safetensors", &(case_edit){ .replace = &first }),
                      "first", -1);
}

/* -inf where the row is not blind; masked_rows has it where rows are. */
static void infinities_are_compared(void **state)
{
    double    minus_infinity = -INFINITY;
    hl_tensor lse = { "lse", HL_DTYPE_F64, 3, { 1, 1, 1 }, &minus_infinity, sizeof(double) };
    (void)state;

    assert_only_fails(edited_case(CASES "one.safetensors", &(case_edit){ .replace = &lse }), "lse",
                      -1);
}

/* ------------------------------------------------------------------ arg-max */

/* Makes one row over three keys whose scores are `k`; the case expects key `wanted`. */
static double argmax_error(const float k[3], int64_t wanted, double max_score)
{
    static const float one[3]    = { 1.0f, 1.0f, 1.0f };
    hl_verify_report  *report    = NULL;
    char               text[200] = "";
    hl_tensor          tensors[] = {
                 { "q", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, one, 4 },
                 { "k", HL_DTYPE_F32, 4, { 1, 1, 3, 1 }, k, 12 },
                 { "v", HL_DTYPE_F32, 4, { 1, 1, 3, 1 }, one, 12 },
                 { "argmax", HL_DTYPE_I64, 3, { 1, 1, 1 }, &wanted, 8 },
    };

    snprintf(text, sizeof text,
             "{\"B\":1,\"Hq\":1,\"Hkv\":1,\"Sq\":1,\"Sk\":3,\"D\":1,\"Dv\":1,\"max_score\":%g}",
             max_score);
    const char *path = new_case(text, tensors, 4);
    assert_ok(hl_verify_attention(&report, path, &(hl_verify_options){ .backend = "scalar" }));
    double error = report->entries[0].error;
    assert_int_equal(report->passed, error <= report->entries[0].tolerance);
    hl_verify_report_free(report);
    return error;
}

static void argmax_may_differ_only_in_a_tie(void **state)
{
    const float tied[3]  = { 2.0f, 2.0f, 1.0f };
    const float close[3] = { 2.0f, 2.0000005f, 1.0f };
    (void)state;

    assert_true(argmax_error(tied, 0, 2.0) == 0.0);
    assert_true(argmax_error(tied, 1, 2.0) == 0.0);
    assert_true(argmax_error(close, 0, 2.0) > 4e-7);
    assert_true(argmax_error(close, 0, 2.0) < 8.0 / 16777216.0 * 2.0);
    assert_true(argmax_error(tied, 2, 2.0) == 1.0);
    assert_true(isinf(argmax_error(tied, -1, 2.0)));
    assert_true(isinf(argmax_error(tied, 3, 2.0)));
}

/* -------------------------------------------------------------- zero sizes */

static void empty_sizes_pass(void **state)
{
    static const float  none[1];
    static const float  q[2]         = { 1.0f, 2.0f };
    static const double blind_lse[2] = { -INFINITY, -INFINITY };
    static const float  zeros[2];
    hl_tensor           no_queries[] = {
                  { "q", HL_DTYPE_F32, 4, { 1, 1, 0, 1 }, none, 0 },
                  { "k", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, q, 4 },
                  { "v", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, q, 4 },
                  { "grad_out", HL_DTYPE_F32, 4, { 1, 1, 0, 1 }, none, 0 },
                  { "out", HL_DTYPE_F32, 4, { 1, 1, 0, 1 }, none, 0 },
                  { "dk", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, zeros, 4 },
                  { "dv", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, zeros, 4 },
    };
    hl_tensor no_keys[] = {
        { "q", HL_DTYPE_F32, 4, { 1, 1, 2, 1 }, q, 8 },
        { "k", HL_DTYPE_F32, 4, { 1, 1, 0, 1 }, none, 0 },
        { "v", HL_DTYPE_F32, 4, { 1, 1, 0, 1 }, none, 0 },
        { "grad_out", HL_DTYPE_F32, 4, { 1, 1, 2, 1 }, q, 8 },
        { "lse", HL_DTYPE_F64, 3, { 1, 1, 2 }, blind_lse, 16 },
        { "out", HL_DTYPE_F32, 4, { 1, 1, 2, 1 }, zeros, 8 },
        { "dq", HL_DTYPE_F32, 4, { 1, 1, 2, 1 }, zeros, 8 },
    };
    (void)state;

    assert_passes(
        new_case("{\"B\":1,\"Hq\":1,\"Hkv\":1,\"Sq\":0,\"Sk\":1,\"D\":1,\"Dv\":1}", no_queries, 7));
    assert_passes(
        new_case("{\"B\":1,\"Hq\":1,\"Hkv\":1,\"Sq\":2,\"Sk\":0,\"D\":1,\"Dv\":1}", no_keys, 7));
}

/* ------------------------------------------------------------------ writing */

static void assert_stored(const hl_safetensors *written, const char *name, hl_dtype dtype)
{
    const hl_tensor *tensor = hl_safetensors_find(written, name);

    if (tensor == NULL)
        fail_msg("%s was not written", name);
    assert_int_equal(tensor->dtype, dtype);
}

/* Written results are the computed ones, to the bit: as expected values of the case they give an
 * error of 0. */
static void writing_keeps_every_bit(void **state)
{
    char              path[256];
    const char       *source  = CASES "gated.safetensors";
    hl_safetensors   *written = NULL;
    hl_verify_report *report  = NULL;
    hl_verify_options options = { .backend = "scalar", .n_threads = 1 };
    (void)state;

    snprintf(path, sizeof path, "%s", scratch("written"));
    options.write_path = path;
    assert_ok(hl_verify_attention(&report, source, &options));
    hl_verify_report_free(report);
    options.write_path = NULL;

    assert_ok(hl_safetensors_open(&written, path));
    assert_int_equal(hl_safetensors_count(written), 15);
    assert_non_null(strstr(hl_safetensors_metadata(written, "case"), "\"Hkv\": 2"));
    assert_stored(written, "entropy", HL_DTYPE_F64);
    assert_stored(written, "argmax", HL_DTYPE_I64);
    assert_stored(written, "out", HL_DTYPE_F32);
    assert_stored(written, "dq", HL_DTYPE_F32);
    assert_stored(written, "dgates", HL_DTYPE_F64);
    for (size_t i = 0; i < hl_safetensors_count(written); i++) {
        const hl_tensor *tensor = hl_safetensors_at(written, i);
        const char      *again  = edited_case(source, &(case_edit){ .replace = tensor });
        assert_ok(hl_verify_attention(&report, again, &options));
        assert_true(find_entry(report, tensor->name)->error == 0.0);
        hl_verify_report_free(report);
    }
    hl_safetensors_close(written);
}

/* Results are written even if an error exceeds its tolerance, or if the case expects nothing. */
static void writing_needs_no_success(void **state)
{
    char              path[256];
    const float       one      = 1.0f;
    double            wrong    = 5.0;
    hl_verify_report *report   = NULL;
    hl_tensor         lse      = { "lse", HL_DTYPE_F64, 3, { 1, 1, 1 }, &wrong, sizeof wrong };
    hl_tensor         inputs[] = {
                { "q", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, &one, 4 },
                { "k", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, &one, 4 },
                { "v", HL_DTYPE_F32, 4, { 1, 1, 1, 1 }, &one, 4 },
    };
    const char *options_text = "{\"B\":1,\"Hq\":1,\"Hkv\":1,\"Sq\":1,\"Sk\":1,\"D\":1,\"Dv\":1}";
    (void)state;

    snprintf(path, sizeof path, "%s", scratch("written"));
    const hl_verify_options options = { .write_path = path };
    remove(path);
    const char *tampered = edited_case(CASES "one.safetensors", &(case_edit){ .replace = &lse });
    assert_ok(hl_verify_attention(&report, tampered, &options));
    assert_false(report->passed);
    hl_verify_report_free(report);
    assert_int_equal(access(path, R_OK), 0);

    remove(path);
    const char *bare = new_case(options_text, inputs, 3);
    assert_int_equal(hl_verify_attention(&report, bare, NULL), HL_BAD_INPUT);
    assert_null(report);
    assert_ok(hl_verify_attention(&report, bare, &options));
    hl_verify_report_free(report);
    assert_int_equal(access(path, R_OK), 0);
}

/* ----------------------------------------------------------------- arguments */

static hl_status leave_as_it_is(void *context, hl_model *model)
{
    (void)context, (void)model;
    return HL_OK;
}

static void arguments_are_checked(void **state)
{
    hl_verify_report *report = NULL;
    (void)state;

    assert_int_equal(hl_verify_attention(&report, NULL, NULL), HL_BAD_ARGUMENT);
    assert_int_equal(hl_verify_attention(&report, "/nowhere/at.all", NULL), HL_NOT_FOUND);
    assert_int_equal(hl_verify_attention(&report, CASES "one.safetensors",
                                         &(hl_verify_options){ .backend = "abacus" }),
                     HL_NOT_FOUND);
    assert_non_null(strstr(hl_error_message(), "abacus"));
    assert_null(report);
    hl_verify_report_free(NULL);
    assert_fails(HL_BAD_ARGUMENT,
                 "one.safetensors: 'n_chunk' applies to models only, and this is not a model",
                 hl_verify(&report, CASES "one.safetensors", &(hl_verify_options){ .n_chunk = 3 }));
    assert_fails(
        HL_BAD_ARGUMENT, "'decode' applies to models only",
        hl_verify(&report, CASES "one.safetensors", &(hl_verify_options){ .decode = true }));
    assert_fails(HL_BAD_ARGUMENT, "'prepare' applies to models only",
                 hl_verify(&report, CASES "one.safetensors",
                           &(hl_verify_options){ .prepare = leave_as_it_is }));
}

static void backend_choice_is_put_back(void **state)
{
    const char       *before = hl_backend_name();
    hl_verify_report *report = NULL;
    (void)state;

    assert_ok(hl_verify_attention(&report, CASES "one.safetensors",
                                  &(hl_verify_options){ .backend = "scalar" }));
    assert_string_equal(hl_backend_name(), before);
    hl_verify_report_free(report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_cases_pass),
        cmocka_unit_test(shared_cases_pass),
        cmocka_unit_test(every_backend_is_run),
        cmocka_unit_test(wrong_values_are_noticed),
        cmocka_unit_test(expected_nan_is_noticed),
        cmocka_unit_test(infinities_are_compared),
        cmocka_unit_test(argmax_may_differ_only_in_a_tie),
        cmocka_unit_test(empty_sizes_pass),
        cmocka_unit_test(writing_keeps_every_bit),
        cmocka_unit_test(writing_needs_no_success),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(backend_choice_is_put_back),
    };
    return cmocka_run_group_tests_name("verify", tests, make_scratch, remove_scratch);
}
