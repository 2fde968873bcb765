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

/* Six sequences with nine rows of 1 nat and six with two rows of 2 in bucket 4.  Rows count, not
 * sequences: with a long one left out the mean is (45 + 24) / 57, with a short one (54 + 20) / 64. */
static void rows_have_weight(void **state)
{
    hl_profile       *profile = new_made_profile();
    hl_position_curve curve;
    const double      mean = (54.0 + 24.0) / 66.0,
                 squares = 6.0 * pow(69.0 / 57.0 - mean, 2.0) + 6.0 * pow(74.0 / 64.0 - mean, 2.0);
    (void)state;

    for (uint64_t i = 0; i < 12; i++)
        add_flat(profile, i, i % 2 == 0 ? P_ROWS : 17, i % 2 == 0 ? 1.0f : 2.0f);
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_ENTROPY));
    assert_int_equal(curve.n_buckets, 7);
    assert_true(curve.has_intervals);
    assert_true(fabs(curve.means[4] - mean) < 1e-6);
    /* t of 11 degrees of freedom; on one side there may be more, for the skewness. */
    double half = 2.200985 * sqrt(11.0 / 12.0 * squares);
    assert_true(fabs(fmin(mean - curve.lows[4], curve.highs[4] - mean) - half) < 1e-4);
    /* Bucket 3 is the same in all of them; nothing is in bucket 5. */
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
    add_flat(profile, 3, P_ROWS, 1.0f);
    add_flat(profile, 4, P_ROWS, 2.0f);
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_NORMALIZED));
    assert_true(isnan(curve.means[3]) && isnan(curve.highs[3])); /* fewer than 16 keys */
    assert_true(fabs(curve.means[4] - 1.5 * wanted) < 1e-6);
    /* Of 1, 1, 2 and 2 the standard error is sqrt(1 / 3 / 4). */
    double half = 3.182446 * sqrt(1.0 / 12.0) * wanted;
    assert_true(fabs(curve.lows[4] - (1.5 * wanted - half)) < 1e-5);
    assert_true(fabs(curve.highs[4] - (1.5 * wanted + half)) < 1e-5);
    hl_profile_free(profile);
}

static void few_sequences_have_no_interval(void **state)
{
    hl_profile       *profile = new_made_profile();
    hl_position_curve curve;
    (void)state;

    for (uint64_t i = 1; i <= 3; i++)
        add_flat(profile, i, P_ROWS, 1.0f);
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_ENTROPY));
    assert_false(curve.has_intervals);
    add_flat(profile, 4, 15, 1.0f); /* has no row in bucket 4 */
    assert_ok(hl_position_curve_read(&curve, profile, HL_Q_ENTROPY));
    assert_true(curve.means[4] == 1.0 && isnan(curve.lows[4]) && !isnan(curve.lows[3]));
    hl_profile_free(profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_weight),
        cmocka_unit_test(normalized_has_a_curve_of_its_own),
        cmocka_unit_test(few_sequences_have_no_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
