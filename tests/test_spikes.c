/* test_spikes.c - scores of spikes, compared with a second implementation of the definition. */
#include "analysis_support.h"
#include "support.h"

#include <math.h>

#include "analysis/numbers.h"

enum { N_VALUES = 23, N_LEARNED = 40, N_SCORED = 200 };

/* Draws a roughly normal number around 0.5. */
static float draw(hl_random *random)
{
    double sum = 0.0;
    for (int i = 0; i < 12; i++)
        sum += (double)(hl_random_next(random) >> 11) * 0x1p-53;
    return (float)(0.5 + 0.05 * (sum - 6.0));
}

/* Draws a row in which head 7 does not exist. */
static void draw_row(float row[N_VALUES], hl_random *random)
{
    for (int i = 0; i < N_VALUES; i++)
        row[i] = i == 7 ? NAN : draw(random);
}

/* ------------------------------------------------------------- the definition */

typedef struct plain {
    double center[N_VALUES + 1];
    double sigma[N_VALUES + 1];
} plain;

static double plain_mean(const plain *p, const float row[N_VALUES])
{
    double z[N_VALUES];
    double sum   = 0.0;
    int    count = 0;

    for (int i = 0; i < N_VALUES; i++)
        z[i] = ((double)row[i] - p->center[i]) / p->sigma[i];
    count = (int)hl_sort(z, N_VALUES); /* sorts NaN last */
    assert_int_equal(count, 22);       /* two values are trimmed on either side */
    for (int i = 2; i < 20; i++)
        sum += z[i];
    return sum / 18.0;
}

static void plain_learn(plain *p, float rows[][N_VALUES], int n_rows)
{
    double values[N_LEARNED], work[N_LEARNED];

    for (int i = 0; i <= N_VALUES; i++) {
        for (int row = 0; row < n_rows; row++)
            values[row] = i < N_VALUES ? (double)rows[row][i] : plain_mean(p, rows[row]);
        hl_robust robust = hl_robust_spread(values, n_rows, work);
        p->center[i]     = robust.median;
        p->sigma[i]      = robust.sigma > 0.01 ? robust.sigma : 0.01;
    }
}

static double plain_score(plain *p, const float row[N_VALUES])
{
    double mean  = plain_mean(p, row);
    double score = (mean - p->center[N_VALUES]) / p->sigma[N_VALUES];

    for (int i = 0; i <= N_VALUES; i++) {
        double x     = i < N_VALUES ? (double)row[i] : mean;
        double moved = fmax(-3.0 * p->sigma[i], fmin(3.0 * p->sigma[i], x - p->center[i]));
        if (i == 7)
            continue;
        p->sigma[i] =
            fmax(0.01, p->sigma[i] + (fabs(moved) * sqrt(acos(-1.0) / 2.0) - p->sigma[i]) / 64.0);
        p->center[i] += moved / 64.0;
    }
    return score;
}

/* Compares scores of values that are multiples of `grain`, or any numbers. */
static void check_scores(float grain)
{
    hl_random  random = { 5 };
    hl_spikes *spikes = NULL;
    plain      p      = { 0 };
    float      rows[N_LEARNED][N_VALUES];
    float      row[N_VALUES];

    assert_ok(hl_spikes_new(&spikes, N_VALUES, 0));
    for (int i = 0; i < N_LEARNED; i++) {
        draw_row(rows[i], &random);
        for (int j = 0; j < N_VALUES && grain > 0.0f; j++)
            rows[i][j] = grain * roundf(rows[i][j] / grain);
        hl_spikes_learn(spikes, rows[i]);
    }
    plain_learn(&p, rows, N_LEARNED);
    for (int i = 0; i < N_SCORED; i++) {
        draw_row(row, &random);
        for (int j = 0; j < N_VALUES; j++) {
            row[j] += i % 50 == 49 ? 0.1f : 0.0f; /* some rows have spikes */
            row[j] = grain > 0.0f ? grain * roundf(row[j] / grain) : row[j];
        }
        assert_near(hl_spikes_score(spikes, row), plain_score(&p, row), 1e-9);
    }
    hl_spikes_free(spikes);
}

static void scores_are_as_defined(void **state)
{
    (void)state;
    check_scores(0.0f);
}

/* Values that repeat have equal ranks. */
static void scores_of_values_that_repeat(void **state)
{
    (void)state;
    check_scores(0.25f);
    check_scores(0.02f);
}

/* -------------------------------------------------------------- what it is for */

static hl_spikes *learned(hl_random *random, int64_t n_back)
{
    hl_spikes *spikes = NULL;
    float      row[N_VALUES];

    assert_ok(hl_spikes_new(&spikes, N_VALUES, n_back));
    for (int i = 0; i < N_LEARNED; i++) {
        draw_row(row, random);
        hl_spikes_learn(spikes, row);
    }
    return spikes;
}

/* All heads rise by two sigma, which each of them does alone from time to time. */
static void a_common_rise_is_a_spike_and_hides_none(void **state)
{
    hl_random  random = { 11 };
    hl_spikes *spikes = learned(&random, 0);
    float      row[N_VALUES];
    int        n_false = 0;
    (void)state;

    for (int i = 0; i < N_SCORED; i++) {
        bool rises = i % 20 >= 18; /* two rows in sequence */
        draw_row(row, &random);
        for (int j = 0; rises && j < N_VALUES; j++)
            row[j] += 0.1f;
        double score = hl_spikes_score(spikes, row);
        if (rises)
            assert_true(score > HL_SPIKE_THRESHOLD);
        else
            n_false += score > HL_SPIKE_THRESHOLD;
    }
    assert_in_range(n_false, 0, 3);
    hl_spikes_free(spikes);
}

/* A slow drift is followed: what has become usual is not a spike. */
static void a_drift_is_none(void **state)
{
    hl_random  random = { 12 };
    hl_spikes *spikes = learned(&random, 0);
    float      row[N_VALUES];
    (void)state;

    for (int i = 0; i < 1000; i++) {
        draw_row(row, &random);
        for (int j = 0; j < N_VALUES; j++)
            row[j] += 0.0002f * (float)i; /* four sigma in the end */
        double score = hl_spikes_score(spikes, row);
        if (i >= 900)
            assert_true(score < 4.0);
    }
    hl_spikes_free(spikes);
}

static void going_back_forgets(void **state)
{
    hl_random  random = { 13 };
    hl_spikes *spikes = learned(&random, 8);
    float      rows[30][N_VALUES];
    double     scores[30];
    (void)state;

    for (int i = 0; i < 30; i++) {
        draw_row(rows[i], &random);
        scores[i] = hl_spikes_score(spikes, rows[i]);
    }
    hl_spikes_rewind(spikes, 5);
    hl_spikes_rewind(spikes, 3);
    for (int i = 22; i < 30; i++)
        assert_true(hl_spikes_score(spikes, rows[i]) == scores[i]);
    hl_spikes_rewind(spikes, 100); /* only as far as states are remembered */
    assert_true(hl_spikes_score(spikes, rows[22]) == scores[22]);
    hl_spikes_free(spikes);
}

static void too_early_to_say(void **state)
{
    hl_random  random = { 14 };
    hl_spikes *spikes = NULL;
    float      row[N_VALUES];
    (void)state;

    assert_ok(hl_spikes_new(&spikes, N_VALUES, 4));
    for (int i = 0; i < 40; i++) {
        draw_row(row, &random);
        assert_int_equal(isnan(hl_spikes_score(spikes, row)), i < HL_SPIKE_MIN_ROWS);
    }
    hl_spikes_free(spikes);
}

/* Heads that never change have no spread of their own. */
static void constant_heads_give_numbers(void **state)
{
    hl_spikes *spikes = NULL;
    float      row[N_VALUES];
    (void)state;

    assert_ok(hl_spikes_new(&spikes, N_VALUES, 0));
    for (int i = 0; i < N_VALUES; i++)
        row[i] = 0.25f;
    for (int i = 0; i < HL_SPIKE_MIN_ROWS; i++)
        hl_spikes_learn(spikes, row);
    assert_near(hl_spikes_score(spikes, row), 0.0, 1e-12);
    row[0] = row[1] = 0.3f; /* trimming removes two of 23 */
    assert_near(hl_spikes_score(spikes, row), 0.0, 1e-9);
    hl_spikes_free(spikes);
}

static void bad_sizes_are_refused(void **state)
{
    hl_spikes *spikes = NULL;
    (void)state;

    assert_fails(HL_BAD_ARGUMENT, "0 values", hl_spikes_new(&spikes, 0, 0));
    assert_fails(HL_BAD_ARGUMENT, "-1 steps back", hl_spikes_new(&spikes, 1, -1));
    assert_null(spikes);
    hl_spikes_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_as_defined),
        cmocka_unit_test(scores_of_values_that_repeat),
        cmocka_unit_test(a_common_rise_is_a_spike_and_hides_none),
        cmocka_unit_test(a_drift_is_none),
        cmocka_unit_test(going_back_forgets),
        cmocka_unit_test(too_early_to_say),
        cmocka_unit_test(constant_heads_give_numbers),
        cmocka_unit_test(bad_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
