/* test_pattern_sums.c - sums of a complete row, against plain loops. */
#include "support.h"

#include <math.h>

#include "kernels/pattern_sums.h"

enum { MOST_KEYS = 3000 };

static uint64_t state = 11;

static double uniform(void)
{
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (double)(state >> 11) * 0x1p-53;
}

/* Makes weights that decrease by `sharpness`, 0 for hidden keys, with a sum of 1; the first key has
 * its own share. */
static void make_row(float *p, hl_visible_keys keys, double sharpness)
{
    double sum = 0.0;

    memset(p, 0, MOST_KEYS * sizeof *p);
    for (int64_t key = 0; key < keys.end; key++) {
        if (hl_visible_has(keys, key))
            p[key] = (float)exp(-sharpness * uniform());
        sum += (double)p[key];
    }
    for (int64_t key = 0; key < keys.end; key++)
        p[key] = (float)((double)p[key] / sum);
}

static int compare_falling(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x < y) - (x > y);
}

/* Sorts all weights; returns how many are needed. */
static int32_t plain_k90(const float *p, int64_t begin, int64_t end)
{
    static float sorted[MOST_KEYS];
    double       total = 0.0;
    double       sum   = 0.0;
    int32_t      n     = 0;

    for (int64_t key = begin; key < end; key++)
        total += (double)p[key];
    memcpy(sorted, p + begin, (size_t)(end - begin) * sizeof *sorted);
    qsort(sorted, (size_t)(end - begin), sizeof *sorted, compare_falling);
    while (sum < HL_KEPT_SHARE * total)
        sum += (double)sorted[n++];
    return n;
}

static int32_t plain_edges(const float *p, int64_t begin, int64_t end, double total)
{
    int32_t n = 0;

    for (int64_t key = begin; key < end; key++)
        n += (double)p[key] > HL_EDGE * total;
    return n;
}

static void check_row(const float *p, const hl_pattern_place *place)
{
    static float    scratch[MOST_KEYS];
    hl_pattern_sums sums;
    hl_visible_keys keys  = place->keys;
    int64_t         first = hl_visible_from(keys, 0);
    int64_t         begin = first == 0 ? 1 : first;
    double          total = 0.0;
    int64_t         top   = begin;

    for (int64_t key = begin; key < keys.end; key++) {
        total += (double)p[key];
        top = p[key] > p[top] ? key : top;
    }
    hl_pattern_sum(&sums, p, place, scratch);
    assert_true(fabs(sums.total - total) < 1e-12);
    assert_int_equal(sums.top, top);
    assert_true(sums.peak == p[top]);
    assert_true(sums.first == (first == 0 ? p[0] : 0.0f));
    assert_int_equal(sums.k90[0], plain_k90(p, first, keys.end));
    assert_int_equal(sums.k90[1], plain_k90(p, begin, keys.end));
    assert_int_equal(sums.n_edges[0], plain_edges(p, first, keys.end, 1.0));
    assert_int_equal(sums.n_edges[1], plain_edges(p, begin, keys.end, total));
    for (int i = 0; i <= 2 * HL_BAND; i++) {
        int64_t key = place->position - HL_BAND + i;
        assert_true(sums.near_by[i] == (hl_visible_has(keys, key) ? p[key] : 0.0f));
    }
}

static void test_rows(void **unused)
{
    static float p[MOST_KEYS];
    (void)unused;

    for (int i = 0; i < 400; i++) {
        int64_t          n     = 2 + (int64_t)(uniform() * (MOST_KEYS - 2));
        hl_pattern_place place = { .keys = { .end = n }, .position = n - 1 };

        if (i % 3 == 1) /* with a window */
            place.keys.begin = (int64_t)(uniform() * (double)(n - 2));
        if (i % 3 == 2) { /* with first keys before the window */
            place.keys.kept  = n / 4;
            place.keys.begin = n / 2;
        }
        make_row(p, place.keys, i % 7 * 4.0);
        check_row(p, &place);
    }
}

/* A NaN makes the total NaN, and nothing is counted. */
static void test_not_a_number(void **unused)
{
    float            p[8]  = { 0.5f, 0.25f, NAN, 0.25f };
    hl_pattern_place place = { .keys = { .end = 4 }, .position = 3 };
    float            scratch[8];
    hl_pattern_sums  sums;
    (void)unused;

    hl_pattern_sum(&sums, p, &place, scratch);
    assert_true(isnan(sums.total));
    assert_int_equal(sums.k90[0], 0);
    p[2] = 0.0f;
    p[0] = INFINITY;
    hl_pattern_sum(&sums, p, &place, scratch);
    assert_true(sums.total == 0.5 && isinf(sums.first));
    assert_int_equal(sums.n_edges[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_not_a_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
