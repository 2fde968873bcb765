/* test_cluster.c - Ward's method against its definition, and measures of clusters against closed
 * forms. */
#include "analysis_support.h"

#include "analysis/cluster.h"

enum { N = 40, D = 3 };

/* Ward's definition: join the two groups with the smallest 2 n_a n_b / (n_a + n_b) times the
 * squared distance of their centers, until n_groups are left. */
static double plain_ward(int32_t labels[N], double points[N][D], int n_groups, int n)
{
    double height = 0.0;

    for (int i = 0; i < n; i++)
        labels[i] = i;
    for (int left = n; left > n_groups; left--) {
        double centers[N][D] = { 0 }, sizes[N] = { 0 };
        int    a = -1, b = -1;

        height = INFINITY;
        for (int i = 0; i < n; i++) {
            sizes[labels[i]] += 1.0;
            for (int k = 0; k < D; k++)
                centers[labels[i]][k] += points[i][k];
        }
        for (int i = 0; i < n; i++) {
            for (int j = 0; j < i; j++) {
                double apart = 0.0;
                if (sizes[i] == 0 || sizes[j] == 0)
                    continue;
                for (int k = 0; k < D; k++)
                    apart += pow(centers[i][k] / sizes[i] - centers[j][k] / sizes[j], 2.0);
                apart *= 2.0 * sizes[i] * sizes[j] / (sizes[i] + sizes[j]);
                if (apart < height) {
                    height = apart;
                    a      = j;
                    b      = i;
                }
            }
        }
        for (int i = 0; i < n; i++)
            labels[i] = labels[i] == b ? a : labels[i];
    }
    return sqrt(height);
}

static void test_ward(void **state)
{
    hl_random random = { 23 };
    double    points[N][D];
    float     distances[N * N];
    hl_merge  merges[N - 1];

    (void)state;
    for (int i = 0; i < N * D; i++)
        points[i / D][i % D] = uniform(&random);
    hl_distances(distances, &points[0][0], N, D);
    assert_ok(hl_ward(merges, distances, N));
    for (int n_groups = 1; n_groups < N; n_groups++) {
        int32_t ours[N], theirs[N];
        double  height = plain_ward(theirs, points, n_groups, N);
        double  same   = 0.0;

        assert_ok(hl_cut(ours, merges, N, n_groups));
        assert_ok(hl_adjusted_rand(&same, ours, theirs, N));
        assert_near(same, 1.0, 1e-12);
        assert_near(merges[N - 1 - n_groups].height, height, 1e-5 * height);
    }
}

static void test_cut_numbers_groups_in_order(void **state)
{
    const hl_merge merges[] = { { 1, 3, 0.1f }, { 0, 4, 0.2f }, { 0, 1, 3.0f }, { 0, 2, 9.0f } };
    int32_t        labels[5];

    (void)state;
    assert_ok(hl_cut(labels, merges, 5, 3));
    assert_memory_equal(labels, ((int32_t[]){ 0, 1, 2, 1, 0 }), sizeof labels);
    assert_ok(hl_cut(labels, merges, 5, 1));
    assert_memory_equal(labels, ((int32_t[]){ 0, 0, 0, 0, 0 }), sizeof labels);
    assert_ok(hl_cut(labels, merges, 5, 5));
    assert_memory_equal(labels, ((int32_t[]){ 0, 1, 2, 3, 4 }), sizeof labels);
}

static void test_adjusted_rand(void **state)
{
    const int32_t one[]   = { 0, 0, 1, 1, 2, 2, 2, 0 };
    const int32_t named[] = { 2, 2, 0, 0, 1, 1, 1, 2 };
    const int32_t flat[]  = { 0, 0, 0, 0, 0, 0, 0, 0 };
    double        index   = 0;

    (void)state;
    assert_ok(hl_adjusted_rand(&index, one, named, 8));
    assert_near(index, 1.0, 1e-12);
    /* Joint pairs 1, pairs 2 and 1, chance 2 * 1 / 6: (1 - 1/3) / (3/2 - 1/3). */
    assert_ok(hl_adjusted_rand(&index, (int32_t[]){ 0, 0, 1, 1 }, (int32_t[]){ 0, 0, 1, 2 }, 4));
    assert_near(index, 4.0 / 7.0, 1e-12);
    assert_ok(hl_adjusted_rand(&index, one, flat, 8));
    assert_near(index, 0.0, 1e-12);
    assert_ok(hl_adjusted_rand(&index, flat, flat, 8));
    assert_near(index, 1.0, 1e-12);
}

static void test_silhouette(void **state)
{
    /* Points on a line: 0, 1 | 10, 11, and one at 100. */
    const double  points[] = { 0, 1, 10, 11, 100 };
    const int32_t labels[] = { 0, 0, 1, 1, 2 };
    float         distances[25];
    double        width = 0;

    (void)state;
    hl_distances(distances, points, 5, 1);
    assert_ok(hl_silhouette(&width, distances, labels, 5, 3));
    double wanted = ((10.5 - 1) / 10.5 + (9.5 - 1) / 9.5 + (9.5 - 1) / 9.5 + (10.5 - 1) / 10.5) / 5;
    assert_near(width, wanted, 1e-6);
    assert_ok(hl_silhouette(&width, distances, (int32_t[]){ 0, 0, 0, 0, 0 }, 5, 1));
    assert_true(isnan(width));
}

/* Three groups that are far apart are found, with the widest silhouette, and in every trial.  One
 * group cut in three is not. */
static void test_stability(void **state)
{
    enum { HEAP = 20 };
    hl_random    random = { 2 };
    double       points[3 * HEAP][D];
    float        distances[9 * HEAP * HEAP];
    hl_merge     merges[3 * HEAP];
    int32_t      labels[3 * HEAP];
    hl_stability heaps, noise;
    double       widths[6];

    (void)state;
    for (int spread = 0; spread < 2; spread++) {
        for (int i = 0; i < 3 * HEAP; i++) {
            for (int k = 0; k < D; k++)
                points[i][k] = uniform(&random) + (spread == 0 && k == i / HEAP ? 5.0 : 0.0);
        }
        hl_distances(distances, &points[0][0], 3 * HEAP, D);
        assert_ok(hl_ward(merges, distances, 3 * HEAP));
        for (int k = 2; k <= 5; k++) {
            assert_ok(hl_cut(labels, merges, 3 * HEAP, k));
            assert_ok(hl_silhouette(&widths[k], distances, labels, 3 * HEAP, k));
        }
        assert_ok(hl_cut(labels, merges, 3 * HEAP, 3));
        assert_ok(hl_cluster_stability(spread == 0 ? &heaps : &noise, distances, labels, 3 * HEAP,
                                       3, 20, 1));
        if (spread == 0) {
            assert_true(widths[3] > widths[2] && widths[3] > widths[4] && widths[3] > widths[5]);
            for (int i = 0; i < 3 * HEAP; i++)
                assert_int_equal(labels[i], i / HEAP);
        }
    }
    assert_near(heaps.mean, 1.0, 0.0);
    assert_near(heaps.least, 1.0, 0.0);
    assert_true(noise.mean < 0.8 && noise.least < noise.mean);
}

static void test_few_points(void **state)
{
    float        none[1]   = { 0 };
    int32_t      labels[1] = { 7 };
    hl_merge     merges[1];
    hl_stability stable;

    (void)state;
    assert_ok(hl_ward(merges, none, 1));
    assert_ok(hl_cut(labels, merges, 1, 1));
    assert_int_equal(labels[0], 0);
    assert_ok(hl_cluster_stability(&stable, none, labels, 1, 1, 3, 0));
    assert_true(isnan(stable.mean));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ward),       cmocka_unit_test(test_cut_numbers_groups_in_order),
        cmocka_unit_test(test_silhouette), cmocka_unit_test(test_adjusted_rand),
        cmocka_unit_test(test_stability),  cmocka_unit_test(test_few_points),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
