/* test_row_distances.c - distances between two models' rows on the same tokens, against rows that
 * PyTorch computed: in the first layer of a model with twice the attention temperature, rows are
 * proportional to the square roots of the original ones. */
#include "model_support.h"

#include <math.h>
#include <string.h>

#include "formats/safetensors.h"

#define MODEL    "tests/data/families/llama3"
#define EXPECTED MODEL "/expected.safetensors"
enum { HEADS = 4, S = 32 };

typedef struct both {
    hl_model  *a;
    hl_model  *b;
    hl_corpus *corpus;
} both;

static both open_both(const char *b_path, double temperature)
{
    both two = { .a = open_model(MODEL), .b = open_model(b_path) };

    if (temperature > 0.0)
        assert_ok(hl_model_adjust(two.b, &(hl_adjustment){ .temperature = temperature }));
    assert_ok(
        hl_corpus_open(&two.corpus, two.a, NULL, &(hl_corpus_options){ .token_ids = EXPECTED }));
    return two;
}

static void close_both(both *two)
{
    hl_corpus_close(two->corpus);
    hl_model_close(two->a);
    hl_model_close(two->b);
}

static hl_row_distances *distances_of(const both *two, const hl_row_distance_options *options)
{
    hl_row_distances *out = NULL;

    assert_ok(hl_measure_row_distances(&out, two->a, two->b, two->corpus, options));
    return out;
}

/* Computes row `row` of head `head` to the power of `power`, normalized: out (S). */
static void golden_row(double *out, const hl_tensor *pattern, int head, int row, double power)
{
    double sum = 0.0;

    for (int key = 0; key < S; key++) {
        float value;
        memcpy(&value, (const float *)pattern->data + (head * S + row) * S + key, sizeof value);
        out[key] = value > 0.0F ? pow((double)value, power) : 0.0;
        sum += out[key];
    }
    for (int key = 0; key < S; key++)
        out[key] /= sum;
}

static double golden_variation(const hl_tensor *pattern, int a, int b)
{
    double sum = 0.0;

    for (int row = 1; row < S; row++) {
        double p[S], q[S];
        golden_row(p, pattern, a, row, 1.0);
        golden_row(q, pattern, b, row, 0.5);
        for (int key = 0; key < S; key++)
            sum += 0.5 * fabs(p[key] - q[key]);
    }
    return sum / (S - 1);
}

static double golden_divergence(const hl_tensor *pattern, int head)
{
    double sum = 0.0;

    for (int row = 1; row < S; row++) {
        double p[S], q[S];
        golden_row(p, pattern, head, row, 1.0);
        golden_row(q, pattern, head, row, 0.5);
        for (int key = 0; key <= row; key++) {
            double m = 0.5 * (p[key] + q[key]);
            sum += 0.5 * (p[key] * log(p[key] / m) + q[key] * log(q[key] / m));
        }
    }
    return sum / (S - 1);
}

static void rows_are_as_far_apart_as_others_say(void **state)
{
    both              two  = open_both(MODEL, 2.0);
    hl_safetensors   *file = NULL;
    hl_row_distances *seen =
        distances_of(&two, &(hl_row_distance_options){ .windows = { .n_ctx = S, .max_tokens = S },
                                                       .n_rows  = S });
    (void)state;

    assert_ok(hl_safetensors_open(&file, EXPECTED));
    const hl_tensor *pattern = hl_safetensors_find(file, "pattern0");
    assert_int_equal(seen->n_heads, HEADS);
    assert_int_equal(seen->n_rows, S - 1);
    assert_int_equal(seen->n_sequences, 1);
    for (int a = 0; a < HEADS; a++) {
        double divergence = golden_divergence(pattern, a);
        assert_true(divergence > 1e-3);
        assert_true(fabs(seen->divergence[a] - divergence) < 1e-6);
        for (int b = 0; b < HEADS; b++)
            assert_true(fabs(seen->variation[a * HEADS + b] - golden_variation(pattern, a, b)) <
                        1e-6);
        assert_true(fabs(seen->of_sequences[a] - seen->variation[a * HEADS + a]) < 1e-12);
    }
    hl_safetensors_close(file);
    hl_row_distances_free(seen);
    close_both(&two);
}

static void a_model_is_like_itself(void **state)
{
    both              two  = open_both(MODEL, 0.0);
    hl_row_distances *seen = distances_of(&two, NULL);
    (void)state;

    assert_int_equal(seen->n_sequences, 2);
    assert_int_equal(seen->n_rows, 2 * 8);
    for (int64_t cell = 0; cell < seen->n_layers * HEADS; cell++) {
        assert_true(seen->variation[cell * HEADS + cell % HEADS] == 0.0);
        assert_true(seen->variation[cell * HEADS + (cell + 1) % HEADS] > 0.0);
        assert_true(seen->divergence[cell] == 0.0);
    }
    hl_row_distances_free(seen);
    close_both(&two);
}

/* The sampled rows do not depend on threads, and the means are those of the sequences. */
static void threads_give_the_same_numbers(void **state)
{
    both              two = open_both(MODEL, 2.0);
    hl_row_distances *one = distances_of(&two, &(hl_row_distance_options){ .n_threads = 1 });
    hl_row_distances *all = distances_of(&two, &(hl_row_distance_options){ .n_threads = 2 });
    int64_t           n   = one->n_layers * HEADS;
    (void)state;

    for (int64_t cell = 0; cell < n; cell++) {
        double  mean = 0.5 * (one->of_sequences[cell] + one->of_sequences[n + cell]);
        int64_t own  = cell * HEADS + cell % HEADS;
        assert_true(fabs(one->variation[own] - mean) < 1e-12);
        assert_true(fabs(one->variation[own] - all->variation[own]) < 1e-6);
    }
    hl_row_distances_free(one);
    hl_row_distances_free(all);
    close_both(&two);
}

static void other_shapes_are_refused(void **state)
{
    both              two = open_both("models/demo", 0.0);
    hl_row_distances *out = NULL;
    (void)state;

    assert_fails(HL_BAD_INPUT, "3 layers of 4 heads, the second 8 of 8",
                 hl_measure_row_distances(&out, two.a, two.b, two.corpus, NULL));
    assert_null(out);
    assert_fails(HL_BAD_ARGUMENT, "two models",
                 hl_measure_row_distances(&out, two.a, NULL, two.corpus, NULL));
    close_both(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_far_apart_as_others_say),
        cmocka_unit_test(a_model_is_like_itself),
        cmocka_unit_test(threads_give_the_same_numbers),
        cmocka_unit_test(other_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
