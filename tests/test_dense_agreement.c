/* test_dense_agreement.c - every back end's rows against the scalar ones.
 *
 * Random rows of 0, 1 and ragged sizes.  The scalar functions keep their sums in
 * double; what is allowed is what float sums of that length lose. */
#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "kernels/kernels.h"

enum { MAX_ROW = 200, MAX_ROWS = 9 };

static const int64_t sizes[] = { 0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 65, 127, MAX_ROW };
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static uint64_t random_state = 7;

static float random_value(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (float)((double)(random_state >> 11) / 9007199254740992.0 * 8.0 - 4.0);
}

static void fill(float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = random_value();
}

static const hl_dense *dense_of(const char *backend)
{
    const hl_kernels *kernels = NULL;

    assert_ok(hl_backend_select(backend));
    assert_ok(hl_kernels_current(&kernels));
    return kernels->dense;
}

static void expect_close(const float *seen, const float *wanted, int64_t n, double tolerance,
                         const char *what)
{
    for (int64_t i = 0; i < n; i++) {
        double allowed = tolerance * fmax(1.0, fabs(wanted[i]));
        if (!(fabs((double)seen[i] - wanted[i]) <= allowed))
            fail_msg("%s of %lld: [%lld] is %.9g, wanted %.9g", what, (long long)n, (long long)i,
                     seen[i], wanted[i]);
    }
    assert_true(seen[n] == 12345.0f);
}

/* ------------------------------------------------------------------- norm */

static void compare_norm(const hl_dense *dense, int64_t n, hl_norm_kind kind, int parts)
{
    float   x[MAX_ROW], weight[MAX_ROW], bias[MAX_ROW];
    float   seen[MAX_ROW + 1], wanted[MAX_ROW + 1];
    hl_norm norm = { kind, 1e-5f, parts > 0 ? weight : NULL, parts > 1 ? bias : NULL };

    fill(x, n);
    fill(weight, n);
    fill(bias, n);
    seen[n] = 12345.0f;
    hl_dense_scalar.norm(wanted, x, n, &norm);
    dense->norm(seen, x, n, &norm);
    expect_close(seen, wanted, n, 4e-6, "norm");
}

static void norms_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES * 6; i++)
            compare_norm(dense_of(*name), sizes[i % N_SIZES], i / N_SIZES % 2, i / N_SIZES % 3);
    }
    assert_ok(hl_backend_select(NULL));
}

/* ------------------------------------------------------------------- rope */

static void compare_rotation(const hl_dense *dense, int64_t n_pairs, bool interleaved)
{
    float seen[MAX_ROW + 1], wanted[MAX_ROW + 1] = { 0 };
    float cosine[MAX_ROW], sine[MAX_ROW];

    fill(wanted, 2 * n_pairs);
    fill(cosine, n_pairs);
    fill(sine, n_pairs);
    memcpy(seen, wanted, sizeof seen);
    seen[2 * n_pairs] = 12345.0f;
    hl_dense_scalar.rotate(wanted, cosine, sine, n_pairs, interleaved);
    dense->rotate(seen, cosine, sine, n_pairs, interleaved);
    expect_close(seen, wanted, 2 * n_pairs, 2e-6, "rotate");
}

static void rotations_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES * 2; i++)
            compare_rotation(dense_of(*name), sizes[i % N_SIZES] / 2, i >= N_SIZES);
    }
    assert_ok(hl_backend_select(NULL));
}

/* ------------------------------------------------------------ activations */

static void compare_activation(const hl_dense *dense, int64_t n, hl_activation activation)
{
    float seen[MAX_ROW + 1], wanted[MAX_ROW + 1] = { 0 }, up[MAX_ROW];
    bool  gated = activation == HL_ACTIVATION_SWIGLU_CLAMPED || n % 2 == 0;

    fill(wanted, n);
    fill(up, n);
    for (int64_t i = 0; i < n; i++) /* far out as well */
        wanted[i] *= i % 5 == 0 ? 30.0f : 1.0f;
    memcpy(seen, wanted, sizeof seen);
    seen[n] = 12345.0f;
    hl_dense_scalar.activate(wanted, gated ? up : NULL, n, activation, 3.0f);
    dense->activate(seen, gated ? up : NULL, n, activation, 3.0f);
    expect_close(seen, wanted, n, 1e-6, "activate");
}

static void activations_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES * HL_N_ACTIVATIONS; i++)
            compare_activation(dense_of(*name), sizes[i % N_SIZES], i / N_SIZES);
    }
    assert_ok(hl_backend_select(NULL));
}

static void activations_keep_what_is_not_a_number(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int activation = 0; activation < HL_N_ACTIVATIONS; activation++) {
            float x = NAN, up = 1.0f;
            if (activation == HL_ACTIVATION_RELU || activation == HL_ACTIVATION_RELU_SQUARED)
                continue; /* 0 or NaN, as the instruction set has it */
            dense_of(*name)->activate(&x, &up, 1, activation, 7.0f);
            assert_true(isnan(x));
        }
    }
    assert_ok(hl_backend_select(NULL));
}

/* --------------------------------------------------------------- products */

static const hl_dtype dtypes[] = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_BF16 };

static void store(void *out, hl_dtype dtype, const float *values, int64_t n)
{
    assert_ok(hl_dtype_from_f32(out, dtype, values, (size_t)n));
}

static void compare_dot(const hl_dense *dense, int64_t n, int64_t n_rows, hl_dtype dtype)
{
    static float x[MAX_ROWS * MAX_ROW], w[MAX_ROW], stored[MAX_ROW];
    float        seen[MAX_ROWS + 1], wanted[MAX_ROWS + 1];
    hl_dot       dot = { wanted, 1, x, MAX_ROW, n_rows, stored, dtype, n };

    fill(x, MAX_ROWS * MAX_ROW);
    fill(w, n);
    store(stored, dtype, w, n);
    hl_dense_scalar.dot(&dot);
    dot.out      = seen;
    seen[n_rows] = 12345.0f;
    dense->dot(&dot);
    expect_close(seen, wanted, n_rows, 1e-4, "dot");
}

static void compare_combine(const hl_dense *dense, int64_t n, int64_t n_rows, hl_dtype dtype)
{
    static float x[MAX_ROWS], w[MAX_ROWS * MAX_ROW], stored[MAX_ROWS * MAX_ROW];
    float        seen[MAX_ROW + 1], wanted[MAX_ROW + 1] = { 0 };
    hl_combine   combine = { wanted, x, n_rows, stored, MAX_ROW, dtype, n };

    fill(x, MAX_ROWS);
    fill(w, MAX_ROWS * MAX_ROW);
    fill(wanted, n);
    memcpy(seen, wanted, sizeof seen);
    seen[n] = 12345.0f;
    store(stored, dtype, w, MAX_ROWS * MAX_ROW);
    hl_dense_scalar.combine(&combine);
    combine.out = seen;
    dense->combine(&combine);
    expect_close(seen, wanted, n, 1e-5, "combine");
}

static void products_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES * MAX_ROWS * 3; i++) {
            int64_t n_rows = i / N_SIZES % MAX_ROWS;
            compare_dot(dense_of(*name), sizes[i % N_SIZES], n_rows, dtypes[i % 3]);
            compare_combine(dense_of(*name), sizes[i % N_SIZES], n_rows, dtypes[i % 3]);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree),
        cmocka_unit_test(rotations_agree),
        cmocka_unit_test(activations_agree),
        cmocka_unit_test(activations_keep_what_is_not_a_number),
        cmocka_unit_test(products_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
