/* test_row_state.c - the running sums against sums over complete distributions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/row_state.h"

enum { N = 200 };

/* Makes a fixed, irregular row of scores. */
static void fill(double *scores, double size, double offset)
{
    uint32_t state = 12345;
    for (int i = 0; i < N; i++) {
        state     = state * 1664525u + 1013904223u;
        scores[i] = size * ((double)(state >> 8) / 16777216.0 - 0.5) + offset;
    }
}

static hl_row_state push_all(const double *scores, int begin, int end)
{
    hl_row_state row = hl_row_state_empty();
    for (int i = begin; i < end; i++)
        row = hl_row_state_push(row, scores[i]);
    return row;
}

/* Expected results, computed from the probabilities. */
typedef struct plain {
    double lse, entropy, renyi2, varentropy;
} plain;

static plain plainly(const double *scores)
{
    plain  r   = { 0 };
    double max = -INFINITY, sum = 0.0, square = 0.0, second = 0.0;
    for (int i = 0; i < N; i++)
        max = fmax(max, scores[i]);
    for (int i = 0; i < N; i++)
        sum += exp(scores[i] - max);
    r.lse = max + log(sum);
    for (int i = 0; i < N; i++) {
        double p = exp(scores[i] - max) / sum;
        r.entropy -= p * log(p);
        second += p * log(p) * log(p);
        square += p * p;
    }
    r.renyi2     = -log(square);
    r.varentropy = second - r.entropy * r.entropy;
    return r;
}

static void near(double seen, double wanted, double tolerance)
{
    if (!(fabs(seen - wanted) <= tolerance))
        fail_msg("%.17g, wanted %.17g within %g", seen, wanted, tolerance);
}

static void matches(hl_row_state row, const double *scores, double tolerance)
{
    plain wanted = plainly(scores);
    near(hl_row_state_lse(row), wanted.lse, tolerance * fmax(1.0, fabs(wanted.lse)));
    near(hl_row_state_entropy(row), wanted.entropy, tolerance);
    near(hl_row_state_renyi2(row), wanted.renyi2, tolerance);
    near(hl_row_state_varentropy(row), wanted.varentropy, tolerance);
}

static void sums_give_the_entropies(void **unused)
{
    double scores[N];
    (void)unused;
    for (double size = 0.01; size < 200.0; size *= 7.0) {
        fill(scores, size, 0.0);
        matches(push_all(scores, 0, N), scores, 1e-11);
    }
}

static void pieces_merge_in_any_order(void **unused)
{
    double scores[N];
    (void)unused;
    fill(scores, 30.0, 0.0);
    for (int cut = 0; cut <= N; cut += 13) {
        hl_row_state a = push_all(scores, 0, cut);
        hl_row_state b = push_all(scores, cut, N);
        matches(hl_row_state_merge(a, b), scores, 1e-11);
        matches(hl_row_state_merge(b, a), scores, 1e-11);
    }
}

static void an_offset_changes_nothing_but_lse(void **unused)
{
    double       scores[N], moved[N];
    hl_row_state a, b;
    (void)unused;
    fill(scores, 4.0, 0.0);
    fill(moved, 4.0, 1e6);
    a = push_all(scores, 0, N);
    b = push_all(moved, 0, N);
    near(hl_row_state_entropy(b), hl_row_state_entropy(a), 1e-9);
    near(hl_row_state_renyi2(b), hl_row_state_renyi2(a), 1e-9);
    near(hl_row_state_lse(b) - 1e6, hl_row_state_lse(a), 1e-9);
}

static void an_empty_row_is_empty(void **unused)
{
    hl_row_state row = hl_row_state_empty();
    (void)unused;
    row = hl_row_state_push(row, -INFINITY);
    row = hl_row_state_merge(row, hl_row_state_empty());
    assert_true(hl_row_state_lse(row) == -INFINITY);
    assert_true(hl_row_state_entropy(row) == 0.0);
    assert_true(hl_row_state_renyi2(row) == 0.0);
    assert_true(hl_row_state_varentropy(row) == 0.0);
}

static void one_key_is_certain(void **unused)
{
    hl_row_state row = hl_row_state_push(hl_row_state_empty(), -3.5);
    (void)unused;
    assert_true(hl_row_state_lse(row) == -3.5);
    assert_true(hl_row_state_entropy(row) == 0.0);
    assert_true(hl_row_state_renyi2(row) == 0.0);
    assert_true(hl_row_state_varentropy(row) == 0.0);
    /* A key that is hidden, or infinitely far below, changes nothing. */
    row = hl_row_state_push(row, -INFINITY);
    row = hl_row_state_push(row, -1e300);
    assert_true(hl_row_state_entropy(row) == 0.0);
    assert_true(hl_row_state_varentropy(row) == 0.0);
}

static void equal_keys_are_uniform(void **unused)
{
    hl_row_state row = hl_row_state_empty();
    (void)unused;
    for (int i = 0; i < 64; i++)
        row = hl_row_state_push(row, 7.25);
    near(hl_row_state_entropy(row), log(64.0), 1e-14);
    near(hl_row_state_renyi2(row), log(64.0), 1e-14);
    near(hl_row_state_varentropy(row), 0.0, 1e-14);
}

/* One score of NaN or +inf makes the row invalid at any place; a hidden key (-inf) never does. */
static void what_is_not_finite_is_never_forgotten(void **unused)
{
    double       scores[N], bad[] = { NAN, INFINITY };
    const int    places[] = { 0, 1, N / 2, N - 1 };
    hl_row_state row;
    (void)unused;

    for (int i = 0; i < 8; i++) {
        fill(scores, 1e4, 0.0); /* so far apart that older sums become negligible */
        scores[places[i / 2]] = bad[i % 2];
        row                   = push_all(scores, 0, N);
        assert_true(isnan(hl_row_state_lse(row)) && isnan(hl_row_state_entropy(row)));
        assert_true(isnan(hl_row_state_renyi2(row)) && isnan(hl_row_state_varentropy(row)));
        row = hl_row_state_merge(push_all(scores, N / 2, N), push_all(scores, 0, N / 2));
        assert_true(isnan(hl_row_state_lse(row)) && isnan(hl_row_state_entropy(row)));
        scores[places[i / 2]] = -INFINITY;
        assert_true(isfinite(hl_row_state_lse(push_all(scores, 0, N))));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_give_the_entropies),
        cmocka_unit_test(pieces_merge_in_any_order),
        cmocka_unit_test(an_offset_changes_nothing_but_lse),
        cmocka_unit_test(an_empty_row_is_empty),
        cmocka_unit_test(one_key_is_certain),
        cmocka_unit_test(equal_keys_are_uniform),
        cmocka_unit_test(what_is_not_finite_is_never_forgotten),
    };
    return cmocka_run_group_tests_name("row state", tests, NULL, NULL);
}
