/* test_numbers.c - basic statistics against closed forms and against NumPy's results. */
#include "analysis_support.h"

#include "analysis/cluster.h"
#include "analysis/numbers.h"

#define CLOSE 1e-13

static void test_moments(void **state)
{
    const double values[] = { 3.5, -1, NAN, 4.25, 1.5, 9, 2.75, 6 };
    double       sorted[8];

    (void)state;
    assert_near(hl_mean(values, 8), 3.7142857142857144, CLOSE);
    assert_near(hl_variance(values, 8), 8.793367346938776, CLOSE);
    memcpy(sorted, values, sizeof sorted);
    assert_int_equal(hl_sort(sorted, 8), 7);
    /* numpy.quantile of the seven numbers. */
    assert_near(hl_sorted_quantile(sorted, 7, 0.025), -0.625, CLOSE);
    assert_near(hl_sorted_quantile(sorted, 7, 0.3), 2.5, CLOSE);
    assert_near(hl_sorted_quantile(sorted, 7, 0.5), 3.5, CLOSE);
    assert_near(hl_sorted_quantile(sorted, 7, 0.975), 8.55, CLOSE);
    assert_near(hl_sorted_quantile(sorted, 7, 1.0), 9.0, CLOSE);
    assert_true(isnan(hl_mean(values + 2, 1)));
    assert_true(isnan(hl_sorted_quantile(sorted, 0, 0.5)));
}

static void test_robust(void **state)
{
    /* One outlier changes neither: the distances from 3 are 2 1 0 1 997. */
    const double values[] = { 1, 2, 3, 4, 1000 };
    double       work[5];
    hl_robust    spread = hl_robust_spread(values, 5, work);

    (void)state;
    assert_near(spread.median, 3.0, 0.0);
    assert_near(spread.sigma, 1.4826, CLOSE);
}

/* By numpy 2.4: np.quantile([1, 2, 4, 8, 16], q), whose method is linear. */
static void test_quantiles(void **state)
{
    static const double sorted[]    = { 1, 2, 4, 8, 16 };
    static const double wanted[][2] = {
        { 0.0, 1.0 }, { 0.1, 1.4 },   { 0.25, 2.0 },   { 0.3, 2.4 },  { 0.5, 4.0 },
        { 0.6, 5.6 }, { 0.85, 11.2 }, { 0.975, 15.2 }, { 1.0, 16.0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        assert_near(hl_sorted_quantile(sorted, 5, wanted[i][0]), wanted[i][1], CLOSE);
    assert_near(hl_sorted_quantile(sorted, 4, 0.5), 3.0, CLOSE); /* between two values */
    assert_near(hl_sorted_quantile(sorted, 1, 0.7), 1.0, 0.0);
    assert_true(isnan(hl_sorted_quantile(sorted, 0, 0.5)));
}

static void test_spearman(void **state)
{
    const double x[] = { 1, 2, 2, 3, 5, 5, 5, 9, NAN, 4 };
    const double y[] = { 2, 1, 4, 4, 3, 8, 6, 7, 0, NAN };
    double       up[6], wild[6], result = 0;

    (void)state;
    assert_ok(hl_spearman(&result, x, y, 10));
    assert_near(result, 0.7347919231675695, CLOSE); /* the correlation of NumPy's ranks */
    for (int i = 0; i < 6; i++) {
        up[i]   = i;
        wild[i] = exp(-3.0 * i);
    }
    assert_ok(hl_spearman(&result, up, wild, 6));
    assert_near(result, -1.0, CLOSE);
    assert_ok(hl_spearman(&result, up, (double[]){ 7, 7, 7, 7, 7, 7 }, 6));
    assert_true(isnan(result));
    assert_ok(hl_spearman(&result, up, wild, 1));
    assert_true(isnan(result));
}

/* Without ties: 1 - 6 sum d^2 / (n (n^2 - 1)). */
static void test_spearman_formula(void **state)
{
    hl_random random = { 7 };
    double    x[40], y[40], rank_x[40], rank_y[40], squares = 0, result = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        x[i] = uniform(&random);
        y[i] = x[i] + uniform(&random);
    }
    assert_ok(hl_ranks(rank_x, x, 40));
    assert_ok(hl_ranks(rank_y, y, 40));
    for (int i = 0; i < 40; i++)
        squares += (rank_x[i] - rank_y[i]) * (rank_x[i] - rank_y[i]);
    assert_ok(hl_spearman(&result, x, y, 40));
    assert_near(result, 1.0 - 6.0 * squares / (40.0 * (1600.0 - 1.0)), 1e-12);
}

static void test_parabola(void **state)
{
    const double x[] = { 0, .25, .5, .75, 1.0, NAN, 1.5, 4 };
    const double y[] = { 2.5, 1.25, 1.5, 0.75, 2, 5, 3.25, -1.0 };
    hl_parabola  fit = hl_fit_parabola(x, y, 8);

    (void)state;
    assert_near(fit.constant, 1.432717979370698, 1e-12); /* from numpy.polyfit */
    assert_near(fit.linear, 1.0604441583521103, 1e-12);
    assert_near(fit.quadratic, -0.41056293775959085, 1e-12);

    /* Values far from 0, where powers of x lose digits. */
    double far[5], bow[5];
    for (int i = 0; i < 5; i++) {
        far[i] = 1e6 + i;
        bow[i] = 3.0 * i * i - 2.0 * i + 1.0;
    }
    assert_near(hl_fit_parabola(far, bow, 5).quadratic, 3.0, 1e-9);
    assert_true(isnan(hl_fit_parabola(x, y, 2).quadratic));
    assert_true(isnan(hl_fit_parabola((double[]){ 1, 1, 2, 2 }, y, 4).quadratic));
}

static void test_distances_of_distributions(void **state)
{
    const int64_t p[64] = { 1, 2, 3, 4 }, q[64] = { 40, 0, 40, 20 };
    const int64_t left[64] = { 5, 0 }, right[64] = { 0, 1 }, none[64] = { 0 };

    (void)state;
    assert_near(hl_histogram_variation(p, q), 0.4, CLOSE);
    assert_near(hl_histogram_divergence(p, q), 0.13807448754178941, CLOSE);
    assert_near(hl_histogram_variation(left, right), 1.0, CLOSE);
    assert_near(hl_histogram_divergence(left, right), log(2.0), CLOSE);
    assert_near(hl_histogram_divergence(p, p), 0.0, 0.0);
    assert_true(isnan(hl_histogram_variation(left, none)));
    assert_true(isnan(hl_histogram_divergence(none, right)));
}

static void test_false_discovery(void **state)
{
    /* Ten p-values and their corrections by NumPy, in another order. */
    const double p[]    = { .216, .001, .042, NAN, .039, .074, .008, .205, .041, .06, .212 };
    const double want[] = { .216, .01,  .084, NAN, .084, .10571428571428572,
                            .04,  .216, .084, .1,  .216 };
    double       q[11];

    (void)state;
    assert_ok(hl_false_discovery(q, p, 11));
    for (int i = 0; i < 11; i++) {
        if (isnan(want[i]))
            assert_true(isnan(q[i]));
        else
            assert_near(q[i], want[i], CLOSE);
    }
}

/* --------------------------------------------------------------- assignment */

/* Returns the smallest cost over all ways to assign a different column to each row. */
static double brute_force(const double *cost, int n_rows, int n_columns, int row, unsigned taken)
{
    double least = INFINITY;

    if (row == n_rows)
        return 0.0;
    for (int column = 0; column < n_columns; column++) {
        if ((taken >> column & 1) == 0)
            least = fmin(least,
                         cost[row * n_columns + column] +
                             brute_force(cost, n_rows, n_columns, row + 1, taken | 1u << column));
    }
    return least;
}

static void test_assignment(void **state)
{
    hl_random random = { 3 };

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        int      n_rows    = 1 + (int)hl_random_below(&random, 6);
        int      n_columns = n_rows + (int)hl_random_below(&random, 3);
        double   cost[64], total = 0;
        int64_t  columns[8];
        unsigned taken = 0;

        for (int i = 0; i < n_rows * n_columns; i++) /* many ties, and negative ones */
            cost[i] = trial % 2 ? uniform(&random) : (double)hl_random_below(&random, 5) - 2.0;
        assert_ok(hl_assign(columns, cost, n_rows, n_columns));
        for (int row = 0; row < n_rows; row++) {
            assert_int_equal(taken >> columns[row] & 1, 0);
            taken |= 1u << columns[row];
            total += cost[row * n_columns + columns[row]];
        }
        assert_near(total, brute_force(cost, n_rows, n_columns, 0, 0), 1e-12);
    }
}

static void test_assignment_finds_a_permutation(void **state)
{
    enum { N = 128 };
    static double cost[N * N];
    int64_t       columns[N];
    hl_random     random = { 11 };

    (void)state;
    for (int row = 0; row < N; row++) {
        for (int column = 0; column < N; column++)
            cost[row * N + column] = column == (37 * row + 5) % N ? 0.0 : 0.01 + uniform(&random);
    }
    assert_ok(hl_assign(columns, cost, N, N));
    for (int row = 0; row < N; row++)
        assert_int_equal(columns[row], (37 * row + 5) % N);
}

/* ---------------------------------------------------------------- bootstrap */

static void test_bootstrap_error(void **state)
{
    enum { N = 200, R = 4000 };
    static double values[N * 2], draws[2 * R];
    hl_random     random = { 5 };

    (void)state;
    for (int i = 0; i < N; i++) {
        values[2 * i]     = uniform(&random);
        values[2 * i + 1] = i % 4 == 0 ? NAN : 3.0;
    }
    double column[N];
    for (int i = 0; i < N; i++)
        column[i] = values[2 * i];
    assert_ok(hl_bootstrap_means(draws, values, N, 2, R, 1));
    hl_interval got = hl_bootstrap_interval(draws, R, 0.95);

    /* The bootstrap's standard error of a mean has a closed form: the sample's deviation over
     * sqrt(n). */
    double error = sqrt(hl_variance(column, N) / N);
    assert_near(got.error, error, 0.05 * error);
    assert_near(got.low, hl_mean(column, N) - 1.96 * error, 0.15 * error);
    assert_near(got.high, hl_mean(column, N) + 1.96 * error, 0.15 * error);
    for (int i = 0; i < R; i++) /* missing values do not change a mean */
        assert_near(draws[R + i], 3.0, CLOSE);
}

static void test_bootstrap_seed(void **state)
{
    const double values[] = { 1, 2, 4, 8, 16, 32 };
    double       a[100], b[100], c[100];

    (void)state;
    assert_ok(hl_bootstrap_means(a, values, 6, 1, 100, 9));
    assert_ok(hl_bootstrap_means(b, values, 6, 1, 100, 9));
    assert_ok(hl_bootstrap_means(c, values, 6, 1, 100, 10));
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
}

static void test_bootstrap_p_value(void **state)
{
    double draws[99];

    (void)state;
    for (int i = 0; i < 99; i++)
        draws[i] = i < 9 ? -1.0 : 1.0;
    assert_near(hl_bootstrap_p_value(draws, 99), 2.0 * 10 / 100, CLOSE);
    for (int i = 0; i < 99; i++)
        draws[i] = 1.0;
    assert_near(hl_bootstrap_p_value(draws, 99), 2.0 * 1 / 100, CLOSE);
    for (int i = 0; i < 99; i++)
        draws[i] = 0.0;
    assert_near(hl_bootstrap_p_value(draws, 99), 1.0, CLOSE);
    assert_true(isnan(hl_bootstrap_p_value((double[]){ NAN }, 1)));
}

/* Without a difference, p is below 0.05 about one time in twenty. */
static void test_bootstrap_false_alarms(void **state)
{
    enum { N = 40, TRIALS = 400, R = 400 };
    hl_random random  = { 17 };
    int       n_false = 0;

    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        double values[N], draws[R];
        for (int i = 0; i < N; i++)
            values[i] = uniform(&random) + uniform(&random) - 1.0;
        assert_ok(hl_bootstrap_means(draws, values, N, 1, R, (uint64_t)trial));
        n_false += hl_bootstrap_p_value(draws, R) < 0.05;
    }
    assert_in_range(n_false, 8, 40);
}

static void test_random(void **state)
{
    hl_random random    = { 0 };
    int       counts[7] = { 0 };

    (void)state;
    assert_int_equal(hl_random_next(&random),
                     0xe220a8397b1dcdafu); /* SplitMix64's first number for seed 0 */
    for (int i = 0; i < 70000; i++)
        counts[hl_random_below(&random, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 9600, 10400);
    assert_int_equal(hl_random_below(&random, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_robust),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_spearman),
        cmocka_unit_test(test_spearman_formula),
        cmocka_unit_test(test_parabola),
        cmocka_unit_test(test_distances_of_distributions),
        cmocka_unit_test(test_false_discovery),
        cmocka_unit_test(test_assignment),
        cmocka_unit_test(test_assignment_finds_a_permutation),
        cmocka_unit_test(test_bootstrap_error),
        cmocka_unit_test(test_bootstrap_seed),
        cmocka_unit_test(test_bootstrap_p_value),
        cmocka_unit_test(test_bootstrap_false_alarms),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
