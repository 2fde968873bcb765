/* test_positions.c - the curve by position, and its intervals for sequences of different
 * lengths. */
#include "profile_support.h"

#include "analysis/grid.h"

/* Adds a sequence of `length` rows; from row 15 on, all have this entropy, in every head. */
static void add_flat(hl_profile *profile, uint64_t hash, int64_t length, float entropy)
{
    made_sequence m;

    make_sequence(&m, 1);
    m.hash   = hash;
    m.length = length;
    for (int i = 0; i < P_LAYERS * P_HEADS; i++) {
        for (int row = 15; row < P_ROWS; row++)
            m.values[i / P_HEADS][HL_Q_ENTROPY][i % P_HEADS][row] = entropy;
    }
    add_made(profile, &m);
}

/* Six sequences have nine rows of 1 nat in bucket 4 and six have two rows of 2.  Of twelve drawn, k
 * are short, with a binomial distribution: 2.5% is at k = 3, near k = 2 and 4, and 97.5% is at k =
 * 9, near 8 and 10.  Rows are weighted, not sequences: ((12 - k) * 9 * 1 + k * 2 * 2) / ((12 - k) *
 * 9 + k * 2). */
static double drawn(int k)
{
    return ((12 - k) * 9 + k * 4) / (double)((12 - k) * 9 + k * 2);
}

static void draws_weigh_rows(void **state)
{
    hl_profile       *profile = new_made_profile();
    hl_position_curve curve;
    (void)state;

    for (uint64_t i = 0; i < 12; i++)
        add_flat(profile, i, i % 2 == 0 ? P_ROWS : 17, i % 2 == 0 ? 1.0f : 2.0f);
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_ENTROPY, 0));
    assert_int_equal(curve.n_buckets, 7);
    assert_true(curve.has_intervals);
    assert_true(fabs(curve.means[4] - drawn(6)) < 1e-6);
    assert_true(curve.lows[4] >= drawn(2) - 1e-6 && curve.lows[4] <= drawn(4) + 1e-6);
    assert_true(curve.highs[4] >= drawn(8) - 1e-6 && curve.highs[4] <= drawn(10) + 1e-6);
    /* Bucket 3 is the same in all sequences; bucket 5 is empty. */
    assert_true(fabs(curve.lows[3] - curve.highs[3]) < 1e-6);
    assert_true(fabs(curve.means[3] - curve.highs[3]) < 1e-6);
    assert_true(isnan(curve.means[5]) && isnan(curve.lows[5]));
    hl_profile_free(profile);
}

static void normalized_has_a_curve_of_its_own(void **state)
{
    hl_profile       *profile = new_made_profile();
    hl_position_curve curve;
    double            wanted = 0.0;
    (void)state;

    add_flat(profile, 1, P_ROWS, 1.0f);
    add_flat(profile, 2, P_ROWS, 2.0f);
    for (int row = 15; row < P_ROWS; row++)
        wanted += 1.0 / log(row + 1.0) / (P_ROWS - 15);
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_NORMALIZED, 0));
    assert_true(isnan(curve.means[3]) && isnan(curve.highs[3])); /* fewer than 16 keys */
    assert_true(fabs(curve.means[4] - 1.5 * wanted) < 1e-6);
    /* Either sequence is drawn twice with a probability of a quarter. */
    assert_true(fabs(curve.lows[4] - wanted) < 1e-6);
    assert_true(fabs(curve.highs[4] - 2.0 * wanted) < 1e-6);
    hl_profile_free(profile);
}

static void one_sequence_is_not_sure_of_anything(void **state)
{
    hl_profile       *profile = new_made_profile();
    hl_position_curve curve;
    (void)state;

    add_flat(profile, 1, P_ROWS, 1.0f);
    add_flat(profile, 2, 15, 1.0f); /* has no row in bucket 4 */
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_ENTROPY, 0));
    assert_true(curve.means[4] == 1.0 && isnan(curve.lows[4]) && !isnan(curve.lows[3]));
    hl_profile_free(profile);
    profile = new_made_profile();
    add_flat(profile, 1, P_ROWS, 1.0f);
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_ENTROPY, 0));
    assert_false(curve.has_intervals);
    hl_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_weigh_rows),
        cmocka_unit_test(normalized_has_a_curve_of_its_own),
        cmocka_unit_test(one_sequence_is_not_sure_of_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
