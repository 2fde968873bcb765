/* test_dense_agreement.c - every back end's rows against the scalar ones.
 *
 * Random rows have sizes of 0, 1 and ragged ones.  The scalar functions keep their sums in double;
 * the tolerance is the error of float sums of that length. */
#include "support.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

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

static const float numbers[HL_ACTIVATION_NUMBERS] = { 3.0f, 0.7f, 0.5f, -1e-6f };

static void compare_activation(const hl_dense *dense, int64_t n, hl_activation activation)
{
    float seen[MAX_ROW + 1], wanted[MAX_ROW + 1] = { 0 }, up[MAX_ROW];
    bool  gated = activation == HL_ACTIVATION_SWIGLU_CLAMPED || n % 2 == 0;

    fill(wanted, n);
    fill(up, n);
    for (int64_t i = 0; i < n; i++) /* large values as well */
        wanted[i] *= i % 5 == 0 ? 30.0f : 1.0f;
    memcpy(seen, wanted, sizeof seen);
    seen[n] = 12345.0f;
    hl_dense_scalar.activate(wanted, gated ? up : NULL, n, activation, numbers);
    dense->activate(seen, gated ? up : NULL, n, activation, numbers);
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

static void sparse_rows_agree(void **state)
{
    static const float deviations[] = { -1.0f, 0.0f, 0.5244f, 1.6449f };
    (void)state;

    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES * 4; i++) {
            float   seen[MAX_ROW + 1], wanted[MAX_ROW + 1] = { 0 };
            int64_t n = sizes[i % N_SIZES];

            fill(wanted, n);
            memcpy(seen, wanted, sizeof seen);
            seen[n] = 12345.0f;
            hl_dense_scalar.sparsify(wanted, n, deviations[i / N_SIZES]);
            dense_of(*name)->sparsify(seen, n, deviations[i / N_SIZES]);
            expect_close(seen, wanted, n, 1e-6, "sparsify");
        }
    }
    assert_ok(hl_backend_select(NULL));
}

enum { STREAMS = 4, STREAM_ROOM = MAX_ROW + 1 };

/* The streams of one row, and the row that is kept; each ends with a value that must stay. */
typedef struct stream_rows {
    float x[STREAMS * STREAM_ROOM];
    float kept[STREAM_ROOM];
} stream_rows;

static void fill_streams(stream_rows *rows, int64_t n)
{
    fill(rows->x, STREAMS * STREAM_ROOM);
    fill(rows->kept, STREAM_ROOM);
    for (int s = 0; s < STREAMS; s++)
        rows->x[s * STREAM_ROOM + n] = 12345.0f;
    rows->kept[n] = 12345.0f;
}

static void mix_streams(const hl_dense *dense, stream_rows *rows, const float *coefficients,
                        int64_t n)
{
    hl_streams streams = { .x            = rows->x,
                           .stride       = STREAM_ROOM,
                           .kept         = rows->kept,
                           .coefficients = coefficients,
                           .n_streams    = STREAMS,
                           .n            = n };

    dense->predict(&streams);
    for (int64_t i = 0; i < n; i++) /* what a block changes */
        rows->x[i] += 0.25f * (float)(i % 7);
    dense->correct(&streams);
}

static void streams_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES; i++) {
            stream_rows seen, wanted;
            float       coefficients[STREAMS * STREAMS];

            fill_streams(&wanted, sizes[i]);
            fill(coefficients, STREAMS * STREAMS);
            seen = wanted;
            mix_streams(&hl_dense_scalar, &wanted, coefficients, sizes[i]);
            mix_streams(dense_of(*name), &seen, coefficients, sizes[i]);
            for (int s = 0; s < STREAMS; s++)
                expect_close(seen.x + s * STREAM_ROOM, wanted.x + s * STREAM_ROOM, sizes[i], 1e-5,
                             "streams");
            expect_close(seen.kept, wanted.kept, sizes[i], 1e-5, "streams, kept");
        }
    }
    assert_ok(hl_backend_select(NULL));
}

static void matched_rows_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < 2 * N_SIZES; i++) {
            float   seen[MAX_ROW + 1], wanted[MAX_ROW + 1], x[MAX_ROW + 1], like[MAX_ROW + 1];
            int64_t n = sizes[i % N_SIZES];

            fill(wanted, MAX_ROW + 1);
            fill(x, MAX_ROW + 1);
            fill(like, MAX_ROW + 1);
            for (int64_t j = 0; j < n && i >= N_SIZES; j++)
                x[j] *= 1e-4f; /* so small that its own length does not count */
            wanted[n] = 12345.0f;
            memcpy(seen, wanted, sizeof seen);
            hl_dense_scalar.match(wanted, x, like, n);
            dense_of(*name)->match(seen, x, like, n);
            expect_close(seen, wanted, n, 1e-6, "match");
        }
    }
    assert_ok(hl_backend_select(NULL));
}

/* Two streams: x_0 = 1 + 2 * 1 + 3 * 10 = 33, x_1 = 10 + 4 * 1 + 5 * 10 = 64; a block adds 2, of which
 * the first gets 1 + 0.5 times and the second 1 - 2 times. */
static void streams_follow_their_formula(void **state)
{
    float      x[2] = { 1.0f, 10.0f }, kept = 0.0f;
    hl_streams s       = { .x = x, .stride = 1, .kept = &kept, .n_streams = 2, .n = 1 };
    float      like[2] = { 3.0f, 4.0f }, row[2] = { 0.6f, 0.8f }, out[2] = { 1.0f, 0.0f };
    (void)state;

    s.coefficients = (const float[]){ 2.0f, 3.0f, 4.0f, 5.0f };
    hl_dense_scalar.predict(&s);
    assert_float_equal(x[0], 33.0, 0.0);
    assert_float_equal(x[1], 64.0, 0.0);
    assert_float_equal(kept, 33.0, 0.0);
    x[0] += 2.0f;
    s.coefficients = (const float[]){ 0.5f, -2.0f };
    hl_dense_scalar.correct(&s);
    assert_float_equal(x[0], 36.0, 0.0);
    assert_float_equal(x[1], 62.0, 0.0);
    hl_dense_scalar.match(out, row, like, 2);
    assert_float_equal(out[0], 4.0, 1e-6);
    assert_float_equal(out[1], 4.0, 1e-6);
}

/* Of a normal distribution, a share of 30% is more than 0.5244 deviations above the mean. */
static void a_sparse_row_keeps_its_largest(void **state)
{
    float x[] = { 1, 2, 3, 4, 5, 6, 7, 8 }; /* mean 4.5, deviation sqrt(5.25) */
    (void)state;

    hl_dense_scalar.sparsify(x, 8, 1.0f);
    for (int i = 0; i < 6; i++)
        assert_true(x[i] == 0.0f);
    assert_true(fabs((double)x[6] - (7.0 - 4.5 - sqrt(5.25))) <= 1e-6);
    assert_true(fabs((double)x[7] - (8.0 - 4.5 - sqrt(5.25))) <= 1e-6);
}

static void activations_keep_what_is_not_a_number(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int activation = 0; activation < HL_N_ACTIVATIONS; activation++) {
            float x = NAN, up = 1.0f;
            if (activation == HL_ACTIVATION_RELU || activation == HL_ACTIVATION_RELU_SQUARED)
                continue; /* 0 or NaN, depending on the instruction set */
            dense_of(*name)->activate(&x, &up, 1, activation, numbers);
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

/* n_weights rows of n values, in blocks or not, MAX_BYTES apart. */
enum { MAX_WEIGHTS = 9, MAX_DOT = 1024, LONG_DOT = 2 * 4096 + 768, MAX_BYTES = 4 * MAX_DOT };

static void store_weights(uint8_t *out, hl_dtype dtype, int64_t n)
{
    hl_dtype_block block   = hl_dtype_block_of(dtype);
    size_t         n_bytes = (size_t)n / block.n_values * block.n_bytes;
    float          values[MAX_DOT];

    fill(values, n);
    if (hl_quantize(out, dtype, values, (size_t)n) == HL_OK)
        return;
    for (size_t i = 0; i < n_bytes; i++) /* scales of f16 are then 0.0004 to 1.8 */
        out[i] = (uint8_t)(16 + (random_value() + 4.0f) * 5.0f);
}

/* Errors against double, in units of the sum of |x w|. */
typedef struct dot_errors {
    double ours;
    double plain; /* error of floats added one after another */
} dot_errors;

static void measure_dot(dot_errors *errors, float seen, const float *x, const float *w, int64_t n)
{
    double exact = 0.0, size = 0.0;
    float  plain = 0.0f;

    for (int64_t i = 0; i < n; i++) {
        exact += (double)x[i] * w[i];
        size += fabs((double)x[i] * w[i]);
        plain += x[i] * w[i];
    }
    if (n == 0)
        assert_true(seen == 0.0f);
    if (size == 0.0)
        return;
    errors->ours  = fmax(errors->ours, fabs(seen - exact) / size);
    errors->plain = fmax(errors->plain, fabs(plain - exact) / size);
    assert_true(isfinite(seen));
}

static void check_dot(dot_errors *errors, const hl_dense *dense, hl_dtype dtype, int64_t n,
                      int64_t n_rows, int64_t n_weights)
{
    static float   x[MAX_ROWS * MAX_DOT], w[MAX_DOT];
    static uint8_t stored[MAX_WEIGHTS * MAX_BYTES];
    const void    *at[MAX_WEIGHTS];
    float          seen[MAX_ROWS * (MAX_WEIGHTS + 1)];
    hl_dot         dot = { seen, MAX_WEIGHTS + 1, x, MAX_DOT, n_rows, at, dtype, n_weights, n };

    fill(x, MAX_ROWS * MAX_DOT);
    for (int64_t i = 0; i < MAX_ROWS * (MAX_WEIGHTS + 1); i++)
        seen[i] = 12345.0f;
    for (int64_t j = 0; j < n_weights; j++) {
        at[j] = stored + (j * 5 % MAX_WEIGHTS) * MAX_BYTES; /* rows at any distance */
        store_weights((uint8_t *)at[j], dtype, n);
    }
    dense->dot(&dot);
    for (int64_t j = 0; j < n_weights; j++) {
        assert_ok(hl_dequantize(w, dtype, at[j], (size_t)n));
        for (int64_t row = 0; row < n_rows; row++)
            measure_dot(errors, seen[row * (MAX_WEIGHTS + 1) + j], x + row * MAX_DOT, w, n);
    }
    for (int64_t row = 0; row < n_rows; row++)
        assert_true(seen[row * (MAX_WEIGHTS + 1) + n_weights] == 12345.0f);
}

/* For every type: at most twice the error of plain float sums.  (Q4_0 starts from -8 x, which on
 * the four lanes of NEON comes close to that.) */
static void dots_are_accurate(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_dense *dense = dense_of(*name);

        for (hl_dtype dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
            dot_errors errors  = { 0 };
            int64_t    n_block = (int64_t)hl_dtype_block_of(dtype).n_values;

            if (!hl_dtype_is_block(dtype) && dtype > HL_DTYPE_BF16)
                continue;
            for (int i = 0; i < 4 * MAX_WEIGHTS; i++) {
                int64_t n = n_block == 1 ? sizes[i % N_SIZES] : i % 5 * n_block;
                check_dot(&errors, dense, dtype, n, i % 4, i % (MAX_WEIGHTS + 1));
            }
            check_dot(&errors, dense, dtype, MAX_DOT, 2, MAX_WEIGHTS);
            if (!(errors.ours <= 2.0 * errors.plain))
                fail_msg("%s, %s: an error of %.2g, plain sums have %.2g", *name,
                         hl_dtype_name(dtype), errors.ours, errors.plain);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

/* Rows that are longer than what a kernel multiplies at a time. */
static void long_dots_are_accurate(void **state)
{
    enum { N_X = 5 };
    static float   x[N_X * LONG_DOT], w[LONG_DOT];
    static uint8_t stored[4 * LONG_DOT];
    const void    *at = stored;
    (void)state;

    fill(x, N_X * LONG_DOT);
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (hl_dtype dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
            dot_errors errors  = { 0 };
            size_t     n_block = hl_dtype_block_of(dtype).n_values;
            int64_t    n       = LONG_DOT - (n_block == 32 ? 32 : (n_block == 1 ? 5 : 0));
            float      seen[N_X];

            if (!hl_dtype_is_block(dtype) && dtype > HL_DTYPE_BF16)
                continue;
            for (int64_t first = 0; first < LONG_DOT; first += 256) {
                hl_dtype_block block = hl_dtype_block_of(dtype);
                store_weights(stored + first / (int64_t)block.n_values * block.n_bytes, dtype, 256);
            }
            dense_of(*name)->dot(&(hl_dot){ seen, 1, x, LONG_DOT, N_X, &at, dtype, 1, n });
            assert_ok(hl_dequantize(w, dtype, stored, (size_t)n));
            for (int64_t row = 0; row < N_X; row++)
                measure_dot(&errors, seen[row], x + row * LONG_DOT, w, n);
            if (!(errors.ours <= 2.0 * errors.plain))
                fail_msg("%s, %s: an error of %.2g, plain sums have %.2g", *name,
                         hl_dtype_name(dtype), errors.ours, errors.plain);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

/* The result does not depend on the other rows of a call, to the bit. */
static void dots_do_not_depend_on_company(void **state)
{
    enum { N_X = 7 };
    static float   x[N_X * MAX_DOT];
    static uint8_t stored[MAX_WEIGHTS * MAX_BYTES];
    (void)state;

    fill(x, N_X * MAX_DOT);
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (hl_dtype type = 0; type < HL_DTYPE_COUNT; type++) {
            const void *at[MAX_WEIGHTS];
            float       all[N_X * MAX_WEIGHTS], one;
            hl_dot      dot = { all, MAX_WEIGHTS, x, MAX_DOT, N_X, at, type, MAX_WEIGHTS, 768 };

            if (!hl_dtype_is_block(type) && type > HL_DTYPE_BF16)
                continue;

            for (int j = 0; j < MAX_WEIGHTS; j++) {
                at[j] = stored + j * MAX_BYTES;
                store_weights((uint8_t *)at[j], type, 768);
            }
            dense_of(*name)->dot(&dot);
            for (int j = 0; j < N_X * MAX_WEIGHTS; j++) {
                dense_of(*name)->dot(&(hl_dot){ &one, 1, x + j / MAX_WEIGHTS * MAX_DOT, MAX_DOT, 1,
                                                &at[j % MAX_WEIGHTS], type, 1, 768 });
                assert_memory_equal(&one, &all[j], sizeof one);
            }
        }
    }
    assert_ok(hl_backend_select(NULL));
}

static void compare_combine(const hl_dense *dense, int64_t n, int64_t n_rows, hl_dtype dtype)
{
    static float x[MAX_ROWS], w[MAX_ROWS * MAX_ROW], stored[MAX_ROWS * MAX_ROW];
    float        seen[MAX_ROW + 1], wanted[MAX_ROW + 1] = { 0 };
    hl_combine   combine = { .out      = wanted,
                             .x        = x,
                             .n_outs   = 1,
                             .n_rows   = n_rows,
                             .w        = stored,
                             .w_stride = MAX_ROW,
                             .dtype    = dtype,
                             .n        = n };

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

/* Outputs that are computed together are the same as single ones, to the bit. */
static void combinations_do_not_depend_on_company(void **state)
{
    enum { N_OUTS = 6, N = 37, ROWS = 19 };
    static float x[N_OUTS * ROWS], w[ROWS * N], stored[ROWS * N];
    (void)state;

    fill(x, N_OUTS * ROWS);
    fill(w, ROWS * N);
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int type = 0; type < 3; type++) {
            float      all[N_OUTS * (N + 1)] = { 0 }, one[N_OUTS * (N + 1)] = { 0 };
            hl_combine combine = { all, N + 1, x, ROWS, N_OUTS, ROWS, stored, N, dtypes[type], N };

            store(stored, dtypes[type], w, ROWS * N);
            dense_of(*name)->combine(&combine);
            combine.n_outs = 1;
            for (int i = 0; i < N_OUTS; i++) {
                combine.out = one + i * (N + 1);
                combine.x   = x + i * ROWS;
                dense_of(*name)->combine(&combine);
            }
            assert_memory_equal(one, all, sizeof all);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

static void combinations_agree(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_SIZES * MAX_ROWS * 3; i++) {
            int64_t n_rows = i / N_SIZES % MAX_ROWS;
            compare_combine(dense_of(*name), sizes[i % N_SIZES], n_rows, dtypes[i % 3]);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

static void exact_dots_agree(void **state)
{
    enum { N_KEYS = 6 }; /* a group of four keys, and two single ones */
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_dense *dense = dense_of(*name);
        for (int i = 0; i < N_SIZES * N_KEYS; i++) {
            int64_t n = sizes[i % N_SIZES], stride = n + 3, n_keys = 1 + i / N_SIZES;
            double  q[MAX_ROW], seen[N_KEYS], wanted[N_KEYS];
            float   k[N_KEYS * (MAX_ROW + 3)];

            fill(k, N_KEYS * stride);
            for (int64_t j = 0; j < n; j++)
                q[j] = (double)random_value() / 3.0;
            dense->dots_exact(seen, q, k, stride, n_keys, n);
            hl_dense_scalar.dots_exact(wanted, q, k, stride, n_keys, n);
            for (int64_t key = 0; key < n_keys; key++) {
                double size = 0.0;
                for (int64_t j = 0; j < n; j++)
                    size += fabs(q[j] * (double)k[key * stride + j]);
                if (!(fabs(seen[key] - wanted[key]) <= 1e-14 * size))
                    fail_msg("%s, %lld: %.17g, wanted %.17g", *name, (long long)n, seen[key],
                             wanted[key]);
            }
        }
    }
    assert_ok(hl_backend_select(NULL));
}

/* Sums over n outcomes of the weights w; nothing cancels, since all z are at most 0. */
static void check_sums(const char *name, const hl_exact_sums *seen, const double *x, double shift,
                       int n)
{
    long double wanted[4] = { 0.0L };
    double      values[]  = { seen->sum, seen->dot, seen->dot2, seen->squares };

    for (int i = 0; i < n; i++) {
        long double z = (long double)(x[i] - shift), w = expl(z);
        wanted[0] += w;
        wanted[1] += w * z;
        wanted[2] += w * z * z;
        wanted[3] += w * w;
    }
    for (int i = 0; i < 4; i++) {
        if (!(fabsl((long double)values[i] - wanted[i]) <= 1e-14L * fabsl(wanted[i])))
            fail_msg("%s: sum %d of %d is %.17g, wanted %.17g", name, i, n, values[i],
                     (double)wanted[i]);
    }
}

/* Compared with long double, within two units in the last place, as the header states. */
static void exact_exponentials_agree(void **state)
{
    enum { N = 4099 };
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_dense *dense = dense_of(*name);
        hl_exact_sums   sums  = { 0 };
        double          x[N], y[N];

        for (int i = 0; i < N; i++)
            x[i] = i < 64 ? 3.0 - ldexp(1.0, -i) : 3.0 - 706.0 * (double)(i - 64) / N;
        memcpy(y, x, sizeof y);
        dense->exp_exact(&sums, y, 3.0, N);
        check_sums(*name, &sums, x, 3.0, N);
        for (int i = 0; i < N; i++) {
            long double wanted = expl((long double)(x[i] - 3.0));
            if (!(fabsl((long double)y[i] - wanted) <= 0x1p-51L * wanted))
                fail_msg("%s: e^%.17g is %.17g, wanted %.17g", *name, x[i] - 3.0, y[i],
                         (double)wanted);
        }
    }
    assert_ok(hl_backend_select(NULL));
}

static void exact_exponentials_at_the_ends(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_dense *dense = dense_of(*name);
        double          x[]   = { 7.0, (double)-INFINITY, -1e6, 7.0, (double)NAN };
        hl_exact_sums   sums  = { 1.0, 0.0, 0.0, 1.0 };
        double          zero  = (double)-INFINITY;

        dense->exp_exact(&sums, x, 7.0, 4);
        assert_true(sums.sum == 3.0 && sums.dot == 0.0 && sums.dot2 == 0.0 && sums.squares == 3.0);
        dense->exp_exact(&sums, &zero, 7.0, 1);
        assert_true(zero == 0.0 && sums.sum == 3.0 && sums.dot == 0.0);
        dense->exp_exact(&sums, x + 4, 7.0, 1);
        assert_true(x[0] == 1.0 && x[1] == 0.0 && x[2] == 0.0 && x[3] == 1.0 && isnan(x[4]));
        assert_true(isnan(sums.sum));
    }
    assert_ok(hl_backend_select(NULL));
}

/* ------------------------------------------------------ mixers with a state */

enum { MIX_ROWS = 67, MIX_WIDTH = 70, MIX_STATE = 70 };

/* Numbers around 0 for a scan whose state does not grow. */
static void fill_small(float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = random_value() / 4.0f;
}

/* Runs rows in two calls, divided at `cut`, so that the state goes from one to the other. */
static void conv_twice(const hl_dense *dense, hl_conv c, float *out, float *state, int64_t cut)
{
    c.out   = out;
    c.state = state;
    c.n_rows -= cut;
    if (cut > 0) {
        hl_conv first = c;

        first.n_rows = cut;
        dense->conv(&first);
        c.begins = false;
    }
    c.out += cut * c.out_stride;
    c.x += cut * c.x_stride;
    c.times = c.times != NULL ? c.times + cut * c.x_stride : NULL;
    c.after = c.after != NULL ? c.after + cut * c.x_stride : NULL;
    dense->conv(&c);
}

static void compare_conv(const hl_dense *dense, int64_t n, int64_t width, int64_t n_rows, bool bare)
{
    static float x[MIX_ROWS * 3 * MIX_WIDTH], weight[HL_MAX_CONV * MIX_WIDTH], bias[MIX_WIDTH];
    static float seen[MIX_ROWS * MIX_WIDTH + 1], wanted[MIX_ROWS * MIX_WIDTH];
    static float states[2][HL_MAX_CONV * MIX_WIDTH + 1], first[HL_MAX_CONV * MIX_WIDTH];
    int64_t      n_state = (width - 1) * n;

    fill(x, n_rows * 3 * n);
    fill(weight, width * n);
    fill(bias, n);
    fill(first, n_state);
    for (int begins = 0; begins < 2; begins++) {
        hl_conv c = { .out_stride = n,
                      .x          = x,
                      .times      = bare ? x + n : NULL,
                      .after      = bare ? x + 2 * n : NULL,
                      .x_stride   = 3 * n,
                      .weight     = weight,
                      .bias       = bare ? NULL : bias,
                      .stride     = n,
                      .width      = width,
                      .n_rows     = n_rows,
                      .n          = n,
                      .begins     = begins,
                      .is_silu    = !bare };

        for (int i = 0; i < 2; i++) {
            memcpy(states[i], first, (size_t)n_state * sizeof *first);
            states[i][n_state] = 12345.0f;
        }
        seen[n_rows * n] = 12345.0f;
        conv_twice(&hl_dense_scalar, c, wanted, states[0], 0);
        conv_twice(dense, c, seen, states[1], begins ? 0 : n_rows / 3);
        expect_close(seen, wanted, n_rows * n, 2e-5, "conv");
        expect_close(states[1], states[0], n_state, 1e-6, "conv's state");
    }
}

static void scan_twice(const hl_dense *dense, hl_scan s, float *out, float *state, int64_t cut)
{
    s.out   = out;
    s.state = state;
    s.n_rows -= cut;
    if (cut > 0) {
        hl_scan first = s;

        first.n_rows = cut;
        dense->scan(&first);
        s.begins = false;
    }
    s.out += cut * s.out_stride;
    s.x += cut * s.x_stride;
    s.k += cut * s.k_stride;
    s.q += cut * s.k_stride;
    s.dt += cut * s.dt_stride;
    s.beta += cut * s.beta_stride;
    dense->scan(&s);
}

static void compare_scan(const hl_dense *dense, hl_scan_kind kind, int64_t d_state, int64_t d_head,
                         int64_t n_rows)
{
    static float x[MIX_ROWS * MIX_WIDTH], kq[MIX_ROWS * 2 * MIX_STATE], dt[MIX_ROWS * MIX_WIDTH];
    static float beta[MIX_ROWS], a[MIX_STATE * MIX_WIDTH], bias[MIX_WIDTH], skip[MIX_WIDTH];
    static float seen[MIX_ROWS * MIX_WIDTH + 1], wanted[MIX_ROWS * MIX_WIDTH];
    static float states[2][MIX_STATE * MIX_WIDTH + 1], first[MIX_STATE * MIX_WIDTH];
    bool         each    = kind == HL_SCAN_CHANNEL;
    int64_t      n_state = d_state * d_head, n_dt = each ? d_head : 1;

    fill_small(x, n_rows * d_head);
    fill_small(kq, n_rows * 2 * d_state);
    fill(dt, n_rows * n_dt);
    fill(beta, n_rows);
    fill(bias, n_dt);
    fill(skip, n_dt);
    fill_small(first, n_state);
    for (int64_t i = 0; i < n_state; i++)
        a[i] = -0.02f - fabsf(random_value());
    for (int begins = 0; begins < 2; begins++) {
        hl_scan s = { .kind         = kind,
                      .out_stride   = d_head,
                      .x            = x,
                      .x_stride     = d_head,
                      .k            = kq,
                      .q            = kq + d_state,
                      .k_stride     = 2 * d_state,
                      .dt           = dt,
                      .beta         = beta,
                      .dt_stride    = n_dt,
                      .beta_stride  = 1,
                      .dt_scale     = 0.8f,
                      .dt_low       = 0.01f,
                      .dt_high      = begins ? INFINITY : 1.5f,
                      .a            = a,
                      .dt_bias      = bias,
                      .skip         = kind == HL_SCAN_DELTA ? NULL : skip,
                      .state_stride = d_head,
                      .d_state      = d_state,
                      .d_head       = d_head,
                      .n_rows       = n_rows,
                      .begins       = begins };

        for (int i = 0; i < 2; i++) {
            memcpy(states[i], first, (size_t)n_state * sizeof *first);
            states[i][n_state] = 12345.0f;
        }
        seen[n_rows * d_head] = 12345.0f;
        scan_twice(&hl_dense_scalar, s, wanted, states[0], 0);
        scan_twice(dense, s, seen, states[1], begins ? 0 : n_rows / 2);
        expect_close(seen, wanted, n_rows * d_head, 3e-5, "scan");
        expect_close(states[1], states[0], n_state, 3e-5, "scan's state");
    }
}

static void mixers_agree(void **state)
{
    static const int64_t widths[] = { 1, 7, 16, 31, 64, MIX_WIDTH };
    static const int64_t rows[]   = { 1, 2, 5, 64, MIX_ROWS };
    (void)state;

    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_dense *dense = dense_of(*name);

        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
                for (int64_t width = 1; width <= HL_MAX_CONV; width++)
                    compare_conv(dense, widths[i], width, rows[j], width % 2 == 1);
                for (hl_scan_kind kind = HL_SCAN_SSM; kind <= HL_SCAN_DELTA; kind++) {
                    compare_scan(dense, kind, 1, widths[i], rows[j]);
                    compare_scan(dense, kind, 12, widths[i], rows[j]);
                    compare_scan(dense, kind, MIX_STATE, widths[i], rows[j]);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_agree),
        cmocka_unit_test(rotations_agree),
        cmocka_unit_test(activations_agree),
        cmocka_unit_test(sparse_rows_agree),
        cmocka_unit_test(streams_agree),
        cmocka_unit_test(matched_rows_agree),
        cmocka_unit_test(streams_follow_their_formula),
        cmocka_unit_test(a_sparse_row_keeps_its_largest),
        cmocka_unit_test(activations_keep_what_is_not_a_number),
        cmocka_unit_test(dots_are_accurate),
        cmocka_unit_test(long_dots_are_accurate),
        cmocka_unit_test(dots_do_not_depend_on_company),
        cmocka_unit_test(combinations_agree),
        cmocka_unit_test(combinations_do_not_depend_on_company),
        cmocka_unit_test(exact_dots_agree),
        cmocka_unit_test(exact_exponentials_agree),
        cmocka_unit_test(exact_exponentials_at_the_ends),
        cmocka_unit_test(mixers_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
