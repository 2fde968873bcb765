/* test_int8.c - 8-bit activations: how they are rounded, and their products. */
#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

enum { MAX_VALUES = 4608, MAX_ROWS = 9, MAX_WEIGHTS = 9, MAX_BYTES = 2 * MAX_VALUES };

/* Where a block's f16 scale and minimum stand. */
static const struct {
    hl_dtype dtype;
    size_t   scale;
    size_t   n_bytes;
} types[] = {
    { HL_DTYPE_Q8_0, 0, 2 },   { HL_DTYPE_Q4_0, 0, 2 },   { HL_DTYPE_Q4_1, 0, 4 },
    { HL_DTYPE_Q5_0, 0, 2 },   { HL_DTYPE_Q5_1, 0, 4 },   { HL_DTYPE_Q3_K, 108, 2 },
    { HL_DTYPE_Q4_K, 0, 4 },   { HL_DTYPE_Q5_K, 0, 4 },   { HL_DTYPE_Q6_K, 208, 2 },
    { HL_DTYPE_IQ4_NL, 0, 2 }, { HL_DTYPE_IQ4_XS, 0, 2 }, { HL_DTYPE_TQ1_0, 52, 2 },
    { HL_DTYPE_TQ2_0, 64, 2 },
};
enum { N_TYPES = sizeof types / sizeof *types };

static uint64_t random_state = 5;

static float random_value(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (float)((double)(random_state >> 11) / 9007199254740992.0 * 2.0 - 1.0);
}

/* ------------------------------------------------------------------ rounding */

static void nearest_of_255_values(void **state)
{
    float   x[MAX_VALUES], scales[MAX_VALUES / 32], sums[MAX_VALUES / 32];
    int32_t run_sums[MAX_VALUES / 16];
    int8_t  q[MAX_VALUES];
    (void)state;

    for (int i = 0; i < MAX_VALUES; i++)
        x[i] = random_value() * exp2f((float)(i / 32 - 16));
    hl_int8_quantize(q, scales, sums, run_sums, x, MAX_VALUES);
    for (int i = 0; i < MAX_VALUES; i++) {
        float scale = scales[i / 32];
        assert_true(fabsf(x[i] - scale * q[i]) <= 0.5001f * scale);
    }
    for (int block = 0; block < MAX_VALUES / 32; block++) {
        int sum = 0, largest = 0;
        for (int i = 32 * block; i < 32 * block + 32; i++) {
            sum += q[i];
            largest = abs(q[i]) > largest ? abs(q[i]) : largest;
        }
        assert_int_equal(largest, 127);
        assert_true(sums[block] == scales[block] * (float)sum);
        assert_int_equal(run_sums[2 * block] + run_sums[2 * block + 1], sum);
    }
}

static void zeros_and_no_numbers(void **state)
{
    static const float firsts[] = { 0.0f, 1e-40f, NAN, INFINITY, -INFINITY };
    (void)state;

    for (int i = 0; i < 5; i++) {
        float   x[32] = { firsts[i], 0.0f }, scale, sum;
        int32_t run_sums[2];
        int8_t  q[32];

        hl_int8_quantize(q, &scale, &sum, run_sums, x, 32);
        if (i < 2)
            assert_true(scale == 0.0f && sum == 0.0f);
        else
            assert_true(isnan(scale) && isnan(sum));
        for (int j = 0; j < 32; j++)
            assert_int_equal(q[j], 0);
    }
}

/* ------------------------------------------------------------------ products */

typedef struct problem {
    float       x[MAX_ROWS * MAX_VALUES];
    int8_t      q[MAX_ROWS * MAX_VALUES];
    float       scales[MAX_ROWS * MAX_VALUES / 32];
    float       sums[MAX_ROWS * MAX_VALUES / 32];
    int32_t     run_sums[MAX_ROWS * MAX_VALUES / 16];
    uint8_t     stored[MAX_WEIGHTS * MAX_BYTES];
    const void *w[MAX_WEIGHTS];
    float       out[MAX_ROWS * (MAX_WEIGHTS + 1)];
    hl_int8_dot dot;
} problem;

/* Makes random bytes, with scales of a sensible size. */
static void store_weights(uint8_t *out, hl_dtype dtype, int64_t n)
{
    hl_dtype_block block   = hl_dtype_block_of(dtype);
    size_t         n_bytes = (size_t)n / block.n_values * block.n_bytes;
    int            type    = 0;

    while (types[type].dtype != dtype)
        type++;

    for (size_t i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)((random_value() + 1.0f) * 127.99f);
    for (size_t i = 0; i < n_bytes; i += block.n_bytes) {
        for (size_t k = 0; k < types[type].n_bytes; k += 2) {
            uint16_t half = hl_f32_to_f16(0.01f * random_value());
            memcpy(out + i + types[type].scale + k, &half, sizeof half);
        }
    }
}

static void make_problem(problem *p, hl_dtype dtype, int64_t n, int64_t n_rows, int64_t n_weights)
{
    for (int64_t i = 0; i < n_rows * n; i++)
        p->x[i] = random_value();
    hl_int8_quantize(p->q, p->scales, p->sums, p->run_sums, p->x, n_rows * n);
    for (int64_t j = 0; j < n_weights; j++) {
        uint8_t *row = p->stored + j * 4 % MAX_WEIGHTS * MAX_BYTES;
        store_weights(row, dtype, n);
        p->w[j] = row;
    }
    for (int i = 0; i < MAX_ROWS * (MAX_WEIGHTS + 1); i++)
        p->out[i] = 777.0f;
    p->dot = (hl_int8_dot){ p->out, MAX_WEIGHTS + 1, p->q,      p->scales, p->sums, n_rows,
                            p->w,   dtype,           n_weights, n };
}

/* Errors against double, in units of the sum of |x w|. */
typedef struct errors {
    double ours;
    double plain; /* error of floats added one after another */
} errors;

static void measure(errors *e, const problem *p, int64_t row, int64_t j)
{
    float  w[MAX_VALUES], plain = 0.0f, seen = p->out[row * p->dot.out_stride + j];
    double exact = 0.0, size = 0.0;

    assert_ok(hl_dequantize(w, p->dot.dtype, p->w[j], (size_t)p->dot.n));
    for (int64_t i = 0; i < p->dot.n; i++) {
        int64_t at = row * p->dot.n + i;
        float   x  = p->scales[at / 32] * p->q[at];
        exact += (double)p->scales[at / 32] * p->q[at] * w[i];
        size += fabs((double)x * w[i]);
        plain += x * w[i];
    }
    assert_true(size > 0.0 || seen == 0.0f);
    if (size > 0.0) {
        e->ours  = fmax(e->ours, fabs(seen - exact) / size);
        e->plain = fmax(e->plain, fabs(plain - exact) / size);
    }
}

static void check_backend(const hl_kernels *kernels, hl_dtype dtype)
{
    static problem p;
    errors         e    = { 0 };
    int64_t        step = (int64_t)hl_dtype_block_of(dtype).n_values;

    for (int i = 0; i < 60; i++) {
        int64_t n = i == 7 ? MAX_VALUES : (i % 7 + i / 7 * 5) * step % 1280;
        make_problem(&p, dtype, n, i % (MAX_ROWS + 1), i % (MAX_WEIGHTS + 1));
        kernels->int8_dot(&p.dot);
        for (int64_t row = 0; row < p.dot.n_rows; row++) {
            for (int64_t j = 0; j < p.dot.n_weights; j++)
                measure(&e, &p, row, j);
            assert_true(p.out[row * p.dot.out_stride + p.dot.n_weights] == 777.0f);
        }
    }
    if (!(e.ours <= e.plain))
        fail_msg("%s, %s: an error of %.2g, plain sums have %.2g", kernels->name,
                 hl_dtype_name(dtype), e.ours, e.plain);
}

static const hl_kernels *kernels_of(const char *name)
{
    const hl_kernels *kernels = NULL;

    assert_ok(hl_backend_select(name));
    assert_ok(hl_kernels_current(&kernels));
    return kernels;
}

/* On every back end with such products, the error is at most that of plain float sums. */
static void products_are_accurate(void **state)
{
    (void)state;
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        for (int i = 0; i < N_TYPES && kernels_of(*name)->int8_dot != NULL; i++)
            check_backend(kernels_of(*name), types[i].dtype);
    }
    assert_ok(hl_backend_select(NULL));
}

static void check_alone(const hl_kernels *kernels, const problem *p, int64_t row, int64_t j)
{
    hl_int8_dot one = p->dot;
    float       alone;

    one.out = &alone;
    one.q += row * one.n;
    one.scales += row * one.n / HL_INT8_BLOCK;
    one.sums += row * one.n / HL_INT8_BLOCK;
    one.n_rows = one.n_weights = 1;
    one.w                      = &p->w[j];
    kernels->int8_dot(&one);
    assert_memory_equal(&alone, &p->out[row * p->dot.out_stride + j], sizeof alone);
}

/* The result does not depend on the other rows of a call, to the bit. */
static void rows_do_not_depend_on_company(void **state)
{
    static problem p;
    (void)state;

    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_kernels *kernels = kernels_of(*name);

        for (int i = 0; i < N_TYPES && kernels->int8_dot != NULL; i++) {
            make_problem(&p, types[i].dtype, 768, MAX_ROWS, MAX_WEIGHTS);
            kernels->int8_dot(&p.dot);
            for (int64_t row = 0; row < MAX_ROWS; row++) {
                for (int64_t j = 0; j < MAX_WEIGHTS; j++)
                    check_alone(kernels, &p, row, j);
            }
        }
    }
    assert_ok(hl_backend_select(NULL));
}

/* The largest integers of both sides do not overflow. */
static void extremes(void **state)
{
    static problem p;
    (void)state;

    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        const hl_kernels *kernels = kernels_of(*name);

        for (int i = 0; i < 2 * N_TYPES && kernels->int8_dot != NULL; i++) {
            float wanted;
            make_problem(&p, types[i / 2].dtype, 512, 1, 1);
            for (int64_t k = 0; k < 512; k++)
                p.x[k] = i % 2 == 0 ? 1.0f : -1.0f;
            hl_int8_quantize(p.q, p.scales, p.sums, p.run_sums, p.x, 512);
            memset(p.stored, i / 2 == 0 ? 0x80 : 0xff, MAX_BYTES);
            for (size_t at = types[i / 2].scale; at < MAX_BYTES - 4;
                 at += hl_dtype_block_of(types[i / 2].dtype).n_bytes)
                memset(p.stored + at, 0x20, types[i / 2].n_bytes);
            hl_int8_dot_scalar(&p.dot);
            wanted = p.out[0];
            kernels->int8_dot(&p.dot);
            assert_true(fabsf(p.out[0] - wanted) <= 1e-6f * fabsf(wanted));
        }
    }
    assert_ok(hl_backend_select(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearest_of_255_values),         cmocka_unit_test(zeros_and_no_numbers),
        cmocka_unit_test(products_are_accurate),         cmocka_unit_test(extremes),
        cmocka_unit_test(rows_do_not_depend_on_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
