/* test_linear.c - products with stored weights, against plain loops. */
#include "support.h"

#include <math.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/threads.h"
#include "kernels/gemm.h"
#include "kernels/int8.h"
#include "kernels/kernels.h"
#include "kernels/linear.h"
#include "kernels/quant.h"

enum { MAX_ROWS = 300, MAX_COLUMNS = 512, MAX_X = 40 };

static uint64_t random_state = 11;

static float random_value(void)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (float)((double)(random_state >> 11) / 9007199254740992.0 * 2.0 - 1.0);
}

/* A stored matrix and what it is multiplied with. */
typedef struct problem {
    hl_matrix      matrix;
    float         *bias;
    hl_linear_rows rows;
    int64_t        n_rows[2];
    hl_math        math;
} problem;

/* Any bytes are valid blocks, but few of these have values of a sensible size. */
static void *make_stored(hl_dtype dtype, int64_t n_values)
{
    size_t n_bytes =
        (size_t)n_values / hl_dtype_block_of(dtype).n_values * hl_dtype_block_of(dtype).n_bytes;
    uint8_t *bytes  = malloc(n_bytes + 1);
    float   *values = malloc((size_t)n_values * sizeof *values);

    assert_true(bytes != NULL && values != NULL);
    for (int64_t i = 0; i < n_values; i++)
        values[i] = random_value();
    if (hl_quantize(bytes, dtype, values, (size_t)n_values) != HL_OK) {
        for (size_t i = 0; i < n_bytes; i++)
            bytes[i] = (uint8_t)(17 + i * 7 % 31);
    }
    free(values);
    return bytes;
}

static problem make_problem(hl_matrix matrix, int64_t first_rows, int64_t second_rows)
{
    problem p = { .matrix = matrix, .n_rows = { first_rows, second_rows } };
    int64_t n = first_rows > second_rows ? first_rows : second_rows;

    p.matrix.data = make_stored(matrix.dtype, matrix.n_stored * matrix.n_columns);
    p.bias        = malloc((size_t)(matrix.n_rows + 1) * sizeof *p.bias);
    p.rows        = (hl_linear_rows){ .out_stride = matrix.n_rows + 3,
                                      .x_stride   = matrix.n_columns + 5,
                                      .n_batch    = 2,
                                      .batch_rows = n };
    float *x      = malloc((size_t)(2 * n * p.rows.x_stride + 1) * sizeof *x);
    p.rows.out    = malloc((size_t)(2 * n * p.rows.out_stride + 1) * sizeof *p.rows.out);
    assert_true(p.bias != NULL && x != NULL && p.rows.out != NULL);
    for (int64_t i = 0; i < matrix.n_rows; i++)
        p.bias[i] = random_value();
    for (int64_t i = 0; i < 2 * n * p.rows.x_stride; i++)
        x[i] = random_value();
    p.rows.x = x;
    return p;
}

static void free_problem(problem *p)
{
    free((void *)p->matrix.data);
    free(p->bias);
    free((void *)p->rows.x);
    free(p->rows.out);
}

/* Runs the product on n_threads threads. */
static void run(problem *p, int n_threads)
{
    static int8_t   q[2 * MAX_X * MAX_COLUMNS];
    static uint16_t bf16[sizeof q];
    static float    scales[sizeof q / HL_INT8_BLOCK], sums[sizeof q / HL_INT8_BLOCK];
    static int32_t  run_sums[sizeof q / HL_INT8_RUN];
    hl_linear_low   low  = { p->math, sizeof q, bf16, q, scales, sums, run_sums };
    int64_t         n    = hl_linear_scratch(&p->matrix);
    hl_linear_pool  pool = { .n_threads     = n_threads,
                             .scratch       = malloc((size_t)(n_threads * n) * sizeof(float)),
                             .thread_floats = n };

    p->rows.n_rows = p->n_rows;
    for (int64_t i = 0; i < 2 * p->rows.batch_rows * p->rows.out_stride; i++)
        p->rows.out[i] = 777.0f;
    assert_non_null(pool.scratch);
    pool.low = p->math > HL_MATH_F32 ? &low : NULL;
    assert_ok(hl_linear(&p->rows, &p->matrix, p->bias, &pool));
    free(pool.scratch);
}

static void check_row(const problem *p, const float *w, int64_t row)
{
    for (int64_t i = 0; i < 2 * p->rows.batch_rows; i++) {
        const float *x   = p->rows.x + i * p->rows.x_stride;
        float        out = p->rows.out[i * p->rows.out_stride + row];
        double       sum = p->bias[row], size = fabs(sum);

        if (i % p->rows.batch_rows >= p->n_rows[i / p->rows.batch_rows]) {
            assert_true(out == 777.0f); /* padding is not written */
            continue;
        }
        for (int64_t j = 0; j < p->matrix.n_columns; j++) {
            sum += (double)x[j] * w[j];
            size += fabs((double)x[j] * w[j]);
        }
        if (!(fabs(out - sum) <= 1e-6 * size))
            fail_msg("%s: row %lld of x, %lld of W: %.9g, wanted %.9g",
                     hl_dtype_name(p->matrix.dtype), (long long)i, (long long)row, out, sum);
    }
}

static void check(hl_matrix matrix, int64_t first_rows, int64_t second_rows)
{
    static float w[MAX_COLUMNS];
    problem      p = make_problem(matrix, first_rows, second_rows);

    run(&p, 2);
    for (int64_t row = 0; row < matrix.n_rows; row++) {
        assert_ok(hl_matrix_read_row(w, &p.matrix, row));
        check_row(&p, w, row);
    }
    free_problem(&p);
}

static hl_matrix plain(hl_dtype dtype, int64_t n_rows, int64_t n_columns)
{
    return (hl_matrix){ .dtype     = dtype,
                        .n_rows    = n_rows,
                        .n_columns = n_columns,
                        .n_stored  = n_rows,
                        .block     = n_rows > 0 ? n_rows : 1,
                        .stride    = n_rows };
}

static void every_type_is_multiplied(void **state)
{
    (void)state;
    for (hl_dtype dtype = 0; dtype < HL_DTYPE_COUNT; dtype++) {
        if (!hl_dtype_is_block(dtype) && dtype > HL_DTYPE_BF16)
            continue;
        check(plain(dtype, 35, 256), 1, 0);
        check(plain(dtype, 35, 512), 3, 12);
    }
}

static void ragged_sizes(void **state)
{
    static const int64_t sizes[] = { 1, 2, 7, 31, 64, 193, 257 };
    (void)state;

    for (int i = 0; i < 49; i++) {
        check(plain(HL_DTYPE_F32, sizes[i % 7], sizes[i / 7]), 1, 9);
        check(plain(HL_DTYPE_F16, sizes[i % 7], sizes[i / 7]), 8, 0);
    }
    check(plain(HL_DTYPE_BF16, 0, 5), 2, 2);
}

/* Rows are found by heads for q, k and v; gate and up in turn; rotary pairs; Conv1D. */
static void rows_are_found(void **state)
{
    hl_matrix by_heads = { .dtype     = HL_DTYPE_F16,
                           .n_rows    = 64,
                           .n_columns = 48,
                           .n_stored  = 192,
                           .first     = 16,
                           .block     = 16,
                           .stride    = 48 };
    hl_matrix by_turns = { .dtype     = HL_DTYPE_BF16,
                           .n_rows    = 50,
                           .n_columns = 48,
                           .n_stored  = 100,
                           .first     = 1,
                           .block     = 1,
                           .stride    = 2 };
    hl_matrix in_pairs = { .dtype     = HL_DTYPE_F32,
                           .n_rows    = 64,
                           .n_columns = 48,
                           .n_stored  = 64,
                           .block     = 64,
                           .stride    = 64,
                           .pairs     = 16 };
    (void)state;

    for (int64_t n = 1; n < 20; n += 9) {
        check(by_heads, n, 2);
        check(by_turns, n, 2);
        check(in_pairs, n, 2);
        by_heads.transposed = by_turns.transposed = in_pairs.transposed = n == 1;
    }
    hl_matrix conv = { .dtype      = HL_DTYPE_F32,
                       .n_rows     = 300,
                       .n_columns  = 65,
                       .n_stored   = 900,
                       .first      = 300,
                       .block      = 300,
                       .stride     = 300,
                       .transposed = true };
    check(conv, 1, 30);
    conv.dtype = HL_DTYPE_F16;
    check(conv, 4, 30);
}

/* Weights at an odd address, as in some files. */
static void unaligned(void **state)
{
    static float w[MAX_COLUMNS];
    (void)state;

    for (int i = 0; i < 8; i++) {
        problem p =
            make_problem(plain(i % 2 == 0 ? HL_DTYPE_F16 : HL_DTYPE_F32, 290, 8), 1 + i / 4 * 9, 2);
        uint8_t *aligned = (uint8_t *)p.matrix.data;
        size_t   n_bytes = 290 * 8 * (i % 2 == 0 ? 2 : 4);

        memmove(aligned + 1, aligned, n_bytes);
        p.matrix.data       = aligned + 1;
        p.matrix.transposed = i / 2 % 2 == 1;
        run(&p, 1 + i % 3);
        for (int64_t row = 0; row < p.matrix.n_rows; row++) {
            assert_ok(hl_matrix_read_row(w, &p.matrix, row));
            check_row(&p, w, row);
        }
        p.matrix.data = aligned;
        free_problem(&p);
    }
}

/* The bits do not depend on what shares the batch, nor on the number of threads. */
static void rows_do_not_depend_on_company(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int64_t n      = i % 2 == 0 ? 5 : 25;
        problem p      = make_problem(plain(i < 2 ? HL_DTYPE_F16 : HL_DTYPE_Q8_0, 290, 96), n, 30);
        size_t  count  = (size_t)(n * p.rows.out_stride);
        float  *before = malloc(count * sizeof *before);

        assert_non_null(before);
        p.math = i >= 2 ? HL_MATH_INT8 : HL_MATH_F32;
        run(&p, 1);
        memcpy(before, p.rows.out, count * sizeof *before);
        run(&p, 3);
        assert_memory_equal(before, p.rows.out, count * sizeof *before);
        p.n_rows[1] = 2;
        run(&p, 2);
        assert_memory_equal(before, p.rows.out, count * sizeof *before);
        free(before);
        free_problem(&p);
    }
}

/* Sums of products of bf16 numbers: exact where both sides are such numbers. */
static void products_of_bf16(void **state)
{
    static float w[MAX_COLUMNS];
    (void)state;

    if (hl_math_check(HL_MATH_BF16) != HL_OK)
        skip();
    for (int i = 0; i < 8; i++) {
        static const hl_dtype types[]   = { HL_DTYPE_BF16, HL_DTYPE_F32, HL_DTYPE_F16,
                                            HL_DTYPE_Q8_0 };
        int64_t               n_columns = types[i % 4] == HL_DTYPE_Q8_0 ? 96 : 67 + i;
        problem p = make_problem(plain(types[i % 4], 290, n_columns), 9 + i, i % 2 * 30);
        float  *x = (float *)p.rows.x;

        for (int64_t k = 0; k < 2 * p.rows.batch_rows * p.rows.x_stride; k++)
            x[k] = hl_bf16_to_f32(hl_f32_to_bf16(x[k]));
        p.math = HL_MATH_BF16;
        run(&p, 1 + i % 3);
        for (int64_t row = 0; row < p.matrix.n_rows; row++) {
            assert_ok(hl_matrix_read_row(w, &p.matrix, row));
            for (int64_t k = 0; k < n_columns; k++)
                w[k] = hl_bf16_to_f32(hl_f32_to_bf16(w[k]));
            check_row(&p, w, row);
        }
        free_problem(&p);
    }
}

/* A product of many rows has the same bytes from a copy of the weights, in every mode, and the copy is
 * made only after some products. */
static void a_copy_changes_nothing(void **state)
{
    static const hl_dtype types[] = { HL_DTYPE_F32,  HL_DTYPE_F16,  HL_DTYPE_BF16, HL_DTYPE_Q8_0,
                                      HL_DTYPE_Q4_0, HL_DTYPE_Q4_K, HL_DTYPE_Q6_K, HL_DTYPE_Q2_K };
    int                   n_made  = 0;
    (void)state;

    for (int i = 0; i < 8 * 3 * 2; i++) {
        hl_matrix   matrix = plain(types[i % 8], 290, i % 8 < 3 ? 67 : 256);
        hl_repacked copy   = { 0 };
        int64_t     n_strips;

        matrix.transposed = i / 24 == 1 && i % 8 < 3;
        problem p         = make_problem(matrix, 9 + i, 5);
        p.math            = (hl_math)(HL_MATH_F32 + i / 8 % 3);
        int64_t n_floats  = hl_repacked_floats(&n_strips, &copy.math, &p.matrix, p.math);
        size_t  n_bytes   = (size_t)(2 * p.rows.batch_rows * p.rows.out_stride) * sizeof(float);
        if (n_floats == 0 || hl_math_check(p.math) != HL_OK) {
            free_problem(&p);
            continue;
        }
        run(&p, 1 + i % 3);
        float *wanted = malloc(n_bytes);
        assert_non_null(wanted);
        memcpy(wanted, p.rows.out, n_bytes);
        assert_int_equal(n_strips, 7);
        assert_ok(HL_ALLOC(&copy.room, (size_t)n_floats));
        assert_ok(HL_ALLOC(&copy.strips, (size_t)n_strips));
        p.matrix.repacked = &copy;
        for (int round = 0; round < HL_REPACK_AFTER + 2; round++) {
            assert_true(copy.is_made == (round > HL_REPACK_AFTER));
            run(&p, 1 + round % 3);
            assert_memory_equal(p.rows.out, wanted, n_bytes);
        }
        n_made++;
        hl_free(copy.room);
        hl_free(copy.strips);
        free(wanted);
        free_problem(&p);
    }
    if (n_made == 0)
        skip();
}

/* Several products of one x in one call have the same bits as single ones. */
static void products_together(void **state)
{
    static const hl_dtype types[] = { HL_DTYPE_Q8_0, HL_DTYPE_F32, HL_DTYPE_Q5_K };
    hl_linear_product     products[3];
    problem               parts[3];
    float                *together[3];
    float                 scratch[2 * 513 * 256];
    hl_linear_pool        pool = { .n_threads = 2, .scratch = scratch };
    (void)state;

    pool.thread_floats = sizeof scratch / sizeof *scratch / 2;
    for (int i = 0; i < 3; i++) {
        parts[i] = make_problem(plain(types[i], 290 - 100 * i, 256), 3, 1);
        if (i > 0) { /* all parts share x */
            free((void *)parts[i].rows.x);
            parts[i].rows.x = parts[0].rows.x;
        }
        run(&parts[i], 1);
        size_t count = (size_t)(2 * parts[i].rows.batch_rows * parts[i].rows.out_stride);
        together[i]  = malloc(count * sizeof(float));
        products[i]  = (hl_linear_product){ parts[i].rows, &parts[i].matrix, parts[i].bias };
        products[i].rows.out = memcpy(together[i], parts[i].rows.out, count * sizeof(float));
        for (int64_t row = 0; row < parts[i].matrix.n_rows; row++)
            together[i][row] = 777.0f; /* row 0 of sequence 0 must be written again */
    }
    assert_true(hl_linear_scratch(&parts[0].matrix) <= pool.thread_floats);
    assert_ok(hl_linear_all(products, 3, &pool));
    for (int i = 0; i < 3; i++) {
        size_t count = (size_t)(2 * parts[i].rows.batch_rows * parts[i].rows.out_stride);
        assert_memory_equal(together[i], parts[i].rows.out, count * sizeof(float));
        free(together[i]);
        parts[i].rows.x = i < 2 ? NULL : parts[i].rows.x;
        free_problem(&parts[i]);
    }
}

/* If 8 bits hold x exactly, results equal those of floats.  A long sequence in the same batch, and
 * types without such products, use floats. */
static void activations_of_8_bits(void **state)
{
    static const hl_dtype types[] = { HL_DTYPE_Q8_0, HL_DTYPE_Q4_0, HL_DTYPE_Q4_K,
                                      HL_DTYPE_Q6_K, HL_DTYPE_Q5_K, HL_DTYPE_F16,
                                      HL_DTYPE_Q4_1, HL_DTYPE_Q2_K, HL_DTYPE_IQ4_XS };
    static float          w[MAX_COLUMNS];
    (void)state;

    for (int i = 0; i < 18; i++) {
        problem p = make_problem(plain(types[i % 9], 291, 512), 1 + i / 9 * 7, i % 2 * 12);
        float  *x = (float *)p.rows.x;

        for (int64_t k = 0; k < 2 * p.rows.batch_rows * p.rows.x_stride; k++)
            x[k] = roundf(x[k] * 126.0f) / 64.0f;
        for (int64_t k = 0; k < 2 * p.rows.batch_rows * p.rows.x_stride; k++) /* the largest value
                                                                               * in each 32 is
                                                                               * 127 */
            x[k] = k % p.rows.x_stride % 32 == 5 ? 127.0f / 64.0f : x[k];
        p.math = HL_MATH_INT8;
        run(&p, 1 + i % 3);
        for (int64_t row = 0; row < p.matrix.n_rows; row++) {
            assert_ok(hl_matrix_read_row(w, &p.matrix, row));
            check_row(&p, w, row);
        }
        free_problem(&p);
    }
}

/* Two values per byte, neighbors, with separate scales. */
static void mxfp4_in_two_tensors(void **state)
{
    uint8_t   bytes[2 * 16] = { 0x21, 0xf9, 0x07 }, scales[2] = { 127, 129 };
    hl_matrix matrix = { .data      = bytes,
                         .scales    = scales,
                         .dtype     = HL_DTYPE_U8,
                         .n_rows    = 2,
                         .n_columns = 32,
                         .n_stored  = 2,
                         .block     = 2,
                         .stride    = 2 };
    float     row[32];
    (void)state;

    bytes[16] = 0x52;
    assert_ok(hl_matrix_read_row(row, &matrix, 0));
    assert_true(row[0] == 0.5f && row[1] == 1.0f && row[2] == -0.5f && row[3] == -6.0f);
    assert_true(row[4] == 6.0f && row[5] == 0.0f && row[31] == 0.0f);
    assert_ok(hl_matrix_read_row(row, &matrix, 1));
    assert_true(row[0] == 4.0f && row[1] == 12.0f);
}

/* With OpenBLAS and without. */
static void both_products_agree(void **state)
{
    static float a[21 * 70], b[70 * 70], with[21 * 70], without[21 * 70];
    (void)state;

    for (int i = 0; i < 21 * 70; i++)
        a[i] = random_value();
    for (int i = 0; i < 70 * 70; i++)
        b[i] = random_value();
    for (int i = 0; i < 8; i++) {
        hl_gemm_operands o = { .c            = with,
                               .c_stride     = 70,
                               .a            = a,
                               .a_stride     = 70,
                               .b            = b,
                               .b_stride     = 70,
                               .b_transposed = i % 2 == 0,
                               .m            = 1 + i * 20 / 7,
                               .n            = 70 - i,
                               .k            = 64 + i % 3 };
        hl_gemm(&o);
        o.c = without;
        hl_gemm_plain(&o);
        for (int64_t j = 0; j < o.m * 70; j++) {
            if (j % 70 < o.n && !(fabsf(with[j] - without[j]) < 1e-5f))
                fail_msg("[%lld] is %.8g with %s, %.8g without", (long long)j, with[j],
                         hl_gemm_name(), without[j]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_multiplied),
        cmocka_unit_test(ragged_sizes),
        cmocka_unit_test(rows_are_found),
        cmocka_unit_test(unaligned),
        cmocka_unit_test(rows_do_not_depend_on_company),
        cmocka_unit_test(products_of_bf16),
        cmocka_unit_test(activations_of_8_bits),
        cmocka_unit_test(a_copy_changes_nothing),
        cmocka_unit_test(products_together),
        cmocka_unit_test(mxfp4_in_two_tensors),
        cmocka_unit_test(both_products_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
