/* test_numbers.c - basic statistics against closed forms and against NumPy's results. */
#include "analysis_support.h"

#include "analysis/cluster.h"
#include "analysis/numbers.h"
#include "measure/perplexity.h"

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

/* ---------------------------------------------------------------- intervals */

/* scipy.stats.t: ppf(0.975, v), and 2 sf(1.7, v). */
static void test_student(void **state)
{
    static const double known[][3] = {
        { 1.0, 12.706204736174694, 0.3385060546606654 },
        { 2.5, 3.5746548420036817, 0.20561221715988381 },
        { 3.0, 3.1824463052837078, 0.18769064155341003 },
        { 7.0, 2.364624251592784, 0.1329288967825552 },
        { 31.0, 2.039513446396408, 0.09914485827904662 },
        { 63.7, 1.9979108690536687, 0.09400926056380818 },
        { 500.0, 1.9647198374673676, 0.08975282406981028 },
        { 1e6, 1.959966356814107, 0.08913123649034883 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_near(hl_student_quantile(0.95, known[i][0]), known[i][1], 1e-10 * known[i][1]);
        assert_near(hl_student_p_value(1.7, known[i][0]), known[i][2], 1e-11);
        assert_near(hl_student_p_value(-1.7, known[i][0]), known[i][2], 1e-11);
    }
    assert_near(hl_student_quantile(0.99, 4.0), 4.604094871349992, 1e-10);
    assert_near(hl_student_p_value(0.0, 5.0), 1.0, CLOSE);
    assert_true(isnan(hl_student_quantile(0.95, 0.0)) && isnan(hl_student_p_value(NAN, 3.0)));
}

/* The jackknife's error of a mean is the textbook's: the sample's spread over sqrt(n - 1).  Numbers
 * that lie evenly about their mean have no skewness, so the interval is mean -+ t s. */
static void test_mean_interval(void **state)
{
    enum { N = 8 };
    double values[2 * N], column[N], *left = NULL;

    (void)state;
    for (int i = 0; i < N; i++) {
        column[i] = values[2 * i] = (double)i;
        values[2 * i + 1]         = i % 4 == 0 ? NAN : 3.0; /* what is missing pulls no mean */
    }
    hl_unit_rows rows = { .values = values, .n_rows = N, .n_columns = 2, .n_groups = N };
    assert_ok(hl_left_out(&left, &rows));
    hl_interval got   = hl_left_out_interval(left, &rows, HL_SCALE_PLAIN);
    double      error = sqrt(hl_variance(column, N) / (N - 1));
    assert_near(got.error, error, CLOSE);
    assert_near(got.low, 3.5 - 2.364624251592784 * error, 1e-9);
    assert_near(got.high, 3.5 + 2.364624251592784 * error, 1e-9);
    assert_int_equal(got.n, N);
    got = hl_left_out_interval(left + N + 1, &rows, HL_SCALE_PLAIN);
    assert_int_equal(got.n, 6);
    assert_near(got.low, 3.0, CLOSE);
    assert_near(got.high, 3.0, CLOSE);
    hl_free(left);
}

/* Weights make a mean of rows a ratio of sums, and groups are left out whole. */
static void test_groups_are_left_out_whole(void **state)
{
    const double  values[]  = { 1.0, 2.0, 4.0, 8.0, 16.0, 32.0 };
    const double  weights[] = { 1.0, 3.0, 1.0, 1.0, 2.0, 2.0 };
    const int64_t groups[]  = { 0, 0, 1, 2, 2, 3 };
    double       *left      = NULL;

    (void)state;
    hl_unit_rows rows = { .values    = values,
                          .weights   = weights,
                          .groups    = groups,
                          .n_rows    = 6,
                          .n_columns = 1,
                          .n_groups  = 4 };
    assert_ok(hl_left_out(&left, &rows));
    assert_near(left[0], (4.0 + 8.0 + 32.0 + 64.0) / 6.0, CLOSE);
    assert_near(left[2], (1.0 + 6.0 + 4.0 + 64.0) / 7.0, CLOSE);
    assert_near(left[4], (1.0 + 6.0 + 4.0 + 8.0 + 32.0 + 64.0) / 10.0, CLOSE);
    hl_free(left);
}

static void test_few_units_have_no_interval(void **state)
{
    const double without[] = { 1.0, 2.0, 3.0, NAN };
    char         reason[80];

    (void)state;
    hl_interval got = hl_jackknife(2.0, without, 4, HL_SCALE_PLAIN, HL_UNITS_WINDOWS);
    assert_true(isnan(got.low) && isnan(got.high) && isnan(got.error));
    hl_interval_reason(reason, sizeof reason, &got);
    assert_string_equal(reason, "3 windows: an interval needs 4 or more");
    got = hl_no_interval(1, HL_UNITS_DOCUMENTS);
    hl_interval_reason(reason, sizeof reason, &got);
    assert_string_equal(reason, "1 document: an interval needs 4 or more");
    got = hl_jackknife(2.0, (double[]){ 1.0, 2.0, 3.0, 2.0 }, 4, HL_SCALE_PLAIN, HL_UNITS_SPANS);
    hl_interval_reason(reason, sizeof reason, &got);
    assert_string_equal(reason, "");
}

/* Bounded numbers keep within their bounds, and their intervals hold them. */
static void test_scales(void **state)
{
    const double without[] = { 0.02, 0.05, 0.2, 0.01, 0.04 };
    const struct {
        hl_error_scale scale;
        double         value, low, high;
    } cases[] = { { HL_SCALE_POSITIVE, 0.06, 0.0, INFINITY },
                  { HL_SCALE_SHARE, 0.06, 0.0, 1.0 },
                  { HL_SCALE_CORRELATION, 0.06, -1.0, 1.0 } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hl_interval got =
            hl_jackknife(cases[i].value, without, 5, cases[i].scale, HL_UNITS_WINDOWS);
        assert_true(got.low >= cases[i].low && got.low < cases[i].value);
        assert_true(got.high <= cases[i].high && got.high > cases[i].value);
    }
}

/* The upper end of a KL allows for a share u of unseen units, five times as far off as the largest one
 * seen: by all units with one left out, and by sums over units of the same length. */
static void test_unseen_units(void **state)
{
    const double  units[] = { 0.5, 0.1, 0.3, 0.2, 0.9 };
    double        without[5], sum = 2.0, mean = 0.4;
    hl_ratio_sums sums = { 0 }, none = { 0 };
    double        u = 1.0 - pow(0.05, 1.0 / 5.0);
    (void)state;

    for (int i = 0; i < 5; i++) {
        without[i] = (sum - units[i]) / 4.0;
        hl_ratio_add(&sums, 7.0 * units[i], 7.0);
    }
    hl_interval plain = hl_jackknife(mean, without, 5, HL_SCALE_POSITIVE, HL_UNITS_WINDOWS);
    hl_interval kl    = hl_jackknife(mean, without, 5, HL_SCALE_KL, HL_UNITS_WINDOWS);
    hl_interval ratio = hl_ratio_interval(&sums, &none, HL_SCALE_KL);
    double      more  = 5.0 * u * (0.9 - mean);
    assert_near(kl.low, plain.low, CLOSE);
    assert_near(kl.high, mean + sqrt((plain.high - mean) * (plain.high - mean) + more * more),
                CLOSE);
    assert_near(ratio.low, kl.low, CLOSE);
    assert_near(ratio.high, kl.high, CLOSE);
    /* Units that are all alike have no interval to speak of. */
    for (int i = 0; i < 5; i++)
        without[i] = 0.4;
    kl = hl_jackknife(mean, without, 5, HL_SCALE_KL, HL_UNITS_WINDOWS);
    assert_near(kl.high, 0.4, CLOSE);
}

/* Welch: two errors of one unit of variance each with 3 degrees of freedom have 6 together. */
static void test_errors_add_up(void **state)
{
    (void)state;
    hl_error sum = hl_error_add((hl_error){ 1.0, 3.0, 0.0, 0.0 }, (hl_error){ 1.0, 3.0, 0.0, 0.0 });
    assert_near(sum.variance, 2.0, CLOSE);
    assert_near(sum.freedom, 6.0, CLOSE);
    assert_near(hl_error_add(sum, (hl_error){ 0.0, 5.0, 0.0, 0.0 }).freedom, 6.0, CLOSE);
}

/* With no difference, p below 0.05 must come about one time in twenty. */
static void test_false_alarms(void **state)
{
    enum { N = 6, TRIALS = 2000 };
    hl_random random  = { 17 };
    int       n_false = 0;

    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        double values[N], *left = NULL;
        for (int i = 0; i < N; i++)
            values[i] = uniform(&random) + uniform(&random) - 1.0;
        hl_unit_rows rows = { .values = values, .n_rows = N, .n_columns = 1, .n_groups = N };
        assert_ok(hl_left_out(&left, &rows));
        n_false +=
            hl_error_p_value(left[N], hl_jackknife_error(left[N], left, N, HL_SCALE_PLAIN)) < 0.05;
        hl_free(left);
    }
    assert_in_range(n_false, 70, 130); /* 100 and three standard errors of it */
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
        cmocka_unit_test(test_student),
        cmocka_unit_test(test_mean_interval),
        cmocka_unit_test(test_groups_are_left_out_whole),
        cmocka_unit_test(test_few_units_have_no_interval),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_unseen_units),
        cmocka_unit_test(test_errors_add_up),
        cmocka_unit_test(test_false_alarms),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
