/* test_compare.c - two profiles: pairs, false discoveries, ranks and matching. */
#include "made_profile.h"

#include "analysis/compare_parts.h"
#include "analysis/numbers.h"

static hl_comparison *compare(const made_model *a, const made_model *b)
{
    hl_profile    *left  = made_profile(a);
    hl_profile    *right = made_profile(b);
    hl_comparison *found = NULL;

    assert_ok(hl_compare(&found, left, right, NULL));
    hl_profile_free(left);
    hl_profile_free(right);
    return found;
}

static double number_in(const hl_sheet *table, int64_t row, const char *column)
{
    assert_true(hl_sheet_find(table, column) >= 0);
    return hl_sheet_number(table, row, hl_sheet_find(table, column));
}

/* On the diagonal and off it: heads of known kinds, and the sign test in closed form. */
static void test_diagonal(void **state)
{
    made_model a = healthy_model(), b = healthy_model();

    (void)state;
    /* 48 heads: in A 24 look at themselves and 24 at the token before, in B 6 and 42. */
    for (int i = 0; i < M_LAYERS * M_HEADS; i++) {
        a.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = i % 2 == 0 ? MADE_SELF : MADE_PREVIOUS, .strength = 0.9 };
        b.heads[i / M_HEADS][i % M_HEADS] =
            (made_head){ .kind = i % 8 == 0 ? MADE_SELF : MADE_PREVIOUS, .strength = 0.9 };
    }
    hl_comparison  *found = compare(&a, &b);
    const hl_sheet *table = hl_comparison_table(found, "diagonal");
    assert_string_equal(hl_sheet_text(table, 0, 0), "heads dominated by the diagonal");
    assert_near(number_in(table, 0, "a"), 24, 0.0);
    assert_near(number_in(table, 0, "b"), 6, 0.0);
    assert_near(number_in(table, 0, "change_percent"), -75.0, 1e-9);
    assert_string_equal(hl_sheet_text(table, 6, 0),
                        "heads with weights above 0.5 off the diagonal in most rows");
    assert_near(number_in(table, 6, "a"), 24, 0.0);
    assert_near(number_in(table, 6, "b"), 42, 0.0);
    assert_near(number_in(table, 7, "b"), 42.0 / 48.0, 0.01);
    /* All 24 heads above chance look at themselves: a fair split; 18 heads look there less. */
    assert_near(hl_sheet_fact(table, "sign test over heads, A above chance: p"), 1.0, 1e-9);
    assert_near(hl_sheet_fact(table, "heads with less"), 18, 0.0);
    assert_near(hl_sheet_fact(table, "sign test over heads, A against B: p"),
                2.0 / (double)(1 << 18), 1e-12);
    /* One line per layer and metric, with the layer's own change. */
    table = hl_comparison_table(found, "layer_metrics");
    assert_int_equal(hl_sheet_n_rows(table) % M_LAYERS, 0);
    for (int64_t row = 0; row < hl_sheet_n_rows(table); row++) {
        if (strcmp(hl_sheet_text(table, row, hl_sheet_find(table, "metric")), "self_top") == 0)
            assert_near(number_in(table, row, "change_percent"), -75.0, 1e-6);
    }
    assert_int_equal(hl_sheet_n_rows(hl_comparison_table(found, "peaks")), 20);
    /* All pairs: 28 in each layer. */
    table = hl_comparison_table(found, "pairs");
    assert_int_equal(hl_sheet_n_rows(table), 28 * M_LAYERS);
    assert_near(number_in(table, 0, "similarity_a"),
                number_in(table, 0, "similarity_b") - number_in(table, 0, "difference"), 1e-12);
    hl_comparison_free(found);

    /* Where no weight is above 0.5, none is off the diagonal. */
    for (int i = 0; i < M_LAYERS * M_HEADS; i++)
        b.heads[i / M_HEADS][i % M_HEADS] = (made_head){ .kind = MADE_LOCAL, .strength = 0.5 };
    found = compare(&a, &b);
    table = hl_comparison_table(found, "diagonal");
    assert_near(number_in(table, 6, "b"), 0, 0.0);
    assert_true(number_in(table, 7, "b") < 0.1); /* the first rows see few keys */
    hl_comparison_free(found);

    assert_near(hl_sign_test(8, 2), 2.0 * (1 + 10 + 45) / 1024.0, 1e-12);
    assert_near(hl_sign_test(2, 8), hl_sign_test(8, 2), 0.0);
    assert_near(hl_sign_test(5, 5), 1.0, 0.0);
    assert_true(isnan(hl_sign_test(0, 0)));
    assert_near(hl_change_percent(-2.0, -1.0), 50.0, 0.0);
    assert_true(isnan(hl_change_percent(0.0, 1.0)));
}

/* The peaks of each side, highest first. */
static void test_peaks(void **state)
{
    made_model a = healthy_model(), b = healthy_model();

    (void)state;
    a.heads[3][2]         = (made_head){ .kind = MADE_PREVIOUS, .strength = 0.99 };
    b.heads[4][5]         = (made_head){ .kind = MADE_CONTENT, .strength = 0.995 };
    hl_comparison  *found = compare(&a, &b);
    const hl_sheet *table = hl_comparison_table(found, "peaks");
    assert_near(number_in(table, 0, "layer"), 3, 0.0);
    assert_near(number_in(table, 0, "head"), 2, 0.0);
    assert_string_equal(hl_sheet_text(table, 10, hl_sheet_find(table, "side")), "B");
    assert_near(number_in(table, 10, "layer"), 4, 0.0);
    assert_near(number_in(table, 10, "head"), 5, 0.0);
    assert_true(number_in(table, 10, "peak") > 0.98 && number_in(table, 10, "peak_other") < 0.9);
    hl_comparison_free(found);
}

static void test_itself(void **state)
{
    made_model     model = healthy_model();
    hl_comparison *found = compare(&model, &model);

    (void)state;
    assert_int_equal(found->kind, HL_COMPARE_SAME_TOKENS);
    assert_true(found->same_model);
    assert_int_equal(found->n_shared, 12);
    assert_int_equal(found->n_heads, M_LAYERS * M_HEADS);
    assert_int_equal(found->n_significant, 0);
    for (int row = 0; row < 3; row++) {
        assert_near(number_in(found->ranks, row, "spearman"), 1.0, 1e-12);
        assert_near(number_in(found->ranks, row, "top_10"), 1.0, 0.0);
    }
    for (int64_t row = 0; row < hl_sheet_n_rows(found->metrics); row++) {
        double most = number_in(found->metrics, row, "most_change");
        assert_true(isnan(most) || most == 0.0);
    }
    for (int64_t row = 0; row < hl_sheet_n_rows(found->heads); row++) {
        assert_near(number_in(found->heads, row, "variation"), 0.0, 0.0);
        assert_near(number_in(found->heads, row, "divergence"), 0.0, 0.0);
        assert_near(number_in(found->heads, row, "p"), 1.0, 0.0);
    }
    assert_near(hl_sheet_fact(found->matching, "moved"), 0.0, 0.0);
    for (size_t i = 0; hl_comparison_table_name(i) != NULL; i++) {
        bool is_rows = strcmp(hl_comparison_table_name(i), "rows") == 0; /* this table is not made
                                                                          * from profiles */
        assert_true((hl_comparison_table(found, hl_comparison_table_name(i)) == NULL) == is_rows);
    }
    assert_null(hl_comparison_table(found, "nothing"));
    hl_comparison_free(found);
}

/* Five heads change a little, less than sequences differ from each other: pairs find exactly
 * these. */
static void test_pairs_find_small_changes(void **state)
{
    made_model a = healthy_model();
    made_model b = healthy_model();

    (void)state;
    b.hash = 1;
    for (int i = 0; i < 5; i++) {
        made_head *head                    = &b.heads[i][(6 - i) % M_HEADS];
        head->kind                         = MADE_CONTENT;
        a.heads[i][(6 - i) % M_HEADS].kind = MADE_CONTENT;
        head->strength += 0.01;
    }
    hl_comparison *found = compare(&a, &b);
    assert_false(found->same_model);
    assert_int_equal(found->kind, HL_COMPARE_SAME_TOKENS);
    assert_int_equal(found->n_significant, 5);
    for (int i = 0; i < 5; i++) {
        int64_t row = i * M_HEADS + (6 - i) % M_HEADS;
        assert_near(number_in(found->heads, row, "significant"), 1.0, 0.0);
        assert_true(number_in(found->heads, row, "difference") < 0.0);
        assert_true(number_in(found->heads, row, "high") < 0.0);
        assert_near(number_in(found->differences, row, "normalized"),
                    number_in(found->heads, row, "difference"), 1e-15);
    }
    hl_comparison_free(found);

    /* On other texts the same change is hidden by the difference between the texts. */
    b.first_sequence = 1000;
    found            = compare(&a, &b);
    assert_int_equal(found->kind, HL_COMPARE_APART);
    assert_int_equal(found->n_shared, 0);
    assert_true(found->n_significant < 5);
    hl_comparison_free(found);
}

static void test_two_texts(void **state)
{
    made_model a = healthy_model();
    made_model b = healthy_model();

    (void)state;
    b.first_sequence     = 500;
    hl_comparison *found = compare(&a, &b);
    assert_int_equal(found->kind, HL_COMPARE_TWO_TEXTS);
    assert_true(number_in(found->ranks, 1, "spearman") > 0.95);
    assert_true(number_in(found->ranks, 1, "low") > 0.9);
    assert_true(number_in(found->ranks, 1, "low") <= number_in(found->ranks, 1, "high"));
    hl_comparison_free(found);
}

/* Training permutes heads: head h of A is head (3 h + l) mod 8 of B. */
static void test_matching(void **state)
{
    made_model a = healthy_model();
    made_model b = healthy_model();

    (void)state;
    for (int l = 0; l < M_LAYERS; l++) {
        for (int h = 0; h < M_HEADS; h++)
            b.heads[l][(3 * h + l) % M_HEADS] = a.heads[l][h];
    }
    hl_comparison *found = compare(&a, &b);
    for (int row = 0; row < M_LAYERS * M_HEADS; row++) {
        int l = row / M_HEADS, h = row % M_HEADS;
        assert_near(number_in(found->matching, row, "head_b"), (3 * h + l) % M_HEADS, 0.0);
        assert_near(number_in(found->matching, row, "distance"), 0.0, 1e-9);
    }
    assert_true(hl_sheet_fact(found->matching, "mean distance by index") > 0.05);
    hl_comparison_free(found);
}

static void test_layers(void **state)
{
    made_model a = healthy_model();
    made_model b = healthy_model();

    (void)state;
    for (int h = 0; h < M_HEADS; h++)
        b.heads[2][h].strength += 0.1;
    hl_comparison *found = compare(&a, &b);
    assert_true(number_in(found->layers, 2, "high") < 0.0);
    assert_near(number_in(found->layers, 1, "difference"), 0.0, 0.0);
    hl_comparison_free(found);
}

/* Two layers of two heads, which are swapped in the second layer. */
static void test_rows_match_heads(void **state)
{
    made_model       model        = healthy_model();
    hl_comparison   *found        = compare(&model, &model);
    int64_t          heads[]      = { 2, 2 };
    double           variation[]  = { 0.1, 0.5, 0.5, 0.2, 0.9, 0.1, 0.3, 0.8 };
    double           divergence[] = { 0.01, 0.02, 0.03, 0.04 };
    double           sequences[]  = { 0.05, 0.2, 0.9, 0.8, 0.15, 0.2, 0.9, 0.8,
                                      0.05, 0.2, 0.9, 0.8, 0.15, 0.2, 0.9, 0.8 };
    hl_row_distances rows         = { .n_layers     = 2,
                                      .n_heads      = 2,
                                      .n_sequences  = 4,
                                      .n_rows       = 16,
                                      .heads        = heads,
                                      .variation    = variation,
                                      .divergence   = divergence,
                                      .of_sequences = sequences };
    (void)state;

    assert_ok(hl_comparison_add_rows(found, &rows, NULL));
    const hl_sheet *table = hl_comparison_table(found, "rows");
    assert_int_equal(hl_sheet_n_rows(table), 4);
    assert_near(number_in(table, 0, "partner"), 0.0, 0.0);
    assert_near(number_in(table, 2, "partner"), 1.0, 0.0);
    assert_near(number_in(table, 3, "partner"), 0.0, 0.0);
    assert_near(number_in(table, 2, "variation"), 0.9, 0.0);
    assert_near(number_in(table, 2, "variation_matched"), 0.1, 0.0);
    /* The standard error is sqrt(0.01 / 3 / 4) about a mean of 0.1; the upper end is exponential. */
    double half = 3.1824463052837078 * sqrt(0.01 / 12.0);
    assert_near(number_in(table, 0, "low"), 0.1 - half, 1e-9);
    assert_near(number_in(table, 0, "high"), 0.1 * exp(half / 0.1), 1e-9);
    assert_near(number_in(table, 3, "divergence"), 0.04, 0.0);
    assert_near(hl_sheet_fact(table, "moved"), 2.0, 0.0);
    assert_near(hl_sheet_fact(table, "mean variation"), 0.5, 1e-12);
    assert_near(hl_sheet_fact(table, "mean variation matched"), 0.175, 1e-12);
    hl_comparison_free(found);
}

static void test_other_shapes(void **state)
{
    made_model     a = healthy_model(), b = healthy_model();
    hl_comparison *found = NULL;

    (void)state;
    b.n_heads         = 7;
    hl_profile *left  = made_profile(&a);
    hl_profile *right = made_profile(&b);
    assert_fails(HL_BAD_INPUT, "6 layers of 8 heads, the second 6 of 7",
                 hl_compare(&found, left, right, NULL));
    assert_null(found);
    hl_profile_free(left);
    hl_profile_free(right);
    hl_comparison_free(NULL);
}

/* Total variation and Jensen-Shannon divergence of histograms. */
static void test_histograms(void **state)
{
    int64_t p[64] = { 0 }, q[64] = { 0 };

    (void)state;
    p[3]  = 10;
    q[3]  = 5;
    q[60] = 5;
    assert_near(hl_histogram_variation(p, q), 0.5, 1e-15);
    assert_near(hl_histogram_divergence(p, q),
                0.5 * log(1.0 / 0.75) + 0.5 * (0.5 * log(0.5 / 0.75) + 0.5 * log(2.0)), 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diagonal),   cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_itself),     cmocka_unit_test(test_pairs_find_small_changes),
        cmocka_unit_test(test_two_texts),  cmocka_unit_test(test_matching),
        cmocka_unit_test(test_layers),     cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_histograms), cmocka_unit_test(test_rows_match_heads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
