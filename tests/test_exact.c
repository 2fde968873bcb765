/* test_exact.c - sums that do not depend on order: against long double, in any order, and at the
 * largest values that fit. */
#include "support.h"

#include <math.h>

#include "stats/exact.h"

enum { N = 20000 };

static double values[N];

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return *state >> 11;
}

static void make_values(double scale)
{
    uint64_t state = 7;

    for (int i = 0; i < N; i++)
        values[i] = ((double)next(&state) * 0x1p-53 - 0.25) * scale;
}

static hl_sums sum_up(int first, int step)
{
    hl_sums sums = { 0 };

    for (int i = 0; i < N; i++)
        hl_sums_add(&sums, values[(first + (int64_t)i * step) % N]);
    return sums;
}

static void sums_are_those_of_long_double(void **state)
{
    (void)state;
    for (int power = -20; power <= 22; power += 3) {
        long double sum     = 0.0L;
        long double squares = 0.0L;

        make_values(ldexp(1.0, power));
        hl_sums sums = sum_up(0, 1);
        for (int i = 0; i < N; i++) {
            sum += (long double)values[i];
            squares += (long double)values[i] * (long double)values[i];
        }
        double mean = hl_wide_mean(sums.sum, sums.count);
        /* A value has an error of at most half a unit; a mean has no more. */
        assert_true(fabsl((long double)mean - sum / N) <= 0x1p-41L + fabsl(sum / N) * 0x1p-50L);
        double square = hl_wide_mean(sums.squares, sums.count);
        assert_true(fabsl((long double)square - squares / N) <= 0x1p-41L + squares / N * 0x1p-50L);
    }
}

static void order_and_parts_do_not_matter(void **state)
{
    (void)state;
    make_values(40.0);
    hl_sums whole = sum_up(0, 1);
    hl_sums other = sum_up(11, 7919); /* 7919 and N have no common divisor */
    hl_sums parts = { 0 };

    for (int part = 0; part < 3; part++) {
        hl_sums one = { 0 };
        for (int i = part; i < N; i += 3)
            hl_sums_add(&one, values[i]);
        parts.sum += one.sum;
        parts.squares += one.squares;
        parts.count += one.count;
    }
    assert_true(whole.sum == other.sum && whole.squares == other.squares);
    assert_true(whole.sum == parts.sum && whole.squares == parts.squares);
    assert_int_equal(whole.count, parts.count);
}

static void what_does_not_fit_is_seen(void **state)
{
    (void)state;
    assert_true(hl_fixed_fits(nextafter(0x1p23, 0.0)));
    assert_true(hl_fixed_fits(-1e6));
    assert_false(hl_fixed_fits(0x1p23));
    assert_false(hl_fixed_fits((double)NAN));
    assert_false(hl_fixed_fits((double)-INFINITY));
}

static void the_largest_sums_fit(void **state)
{
    (void)state;
    double  largest = nextafter(0x1p23, 0.0);
    hl_wide sum     = (hl_wide)hl_fixed(-largest) * HL_MAX_COUNT;
    hl_wide squares = hl_fixed_square(largest) * (hl_wide)HL_MAX_COUNT;

    assert_true(sum < 0 && sum / HL_MAX_COUNT == hl_fixed(-largest));
    assert_true(squares > 0 && squares / HL_MAX_COUNT == hl_fixed_square(largest));
    assert_true(fabs(hl_wide_mean(squares, HL_MAX_COUNT) / (largest * largest) - 1.0) < 1e-15);
    assert_true(hl_unit(1.0) * HL_MAX_COUNT == (int64_t)1 << 62);
}

static void squares_have_no_step(void **state)
{
    (void)state;
    /* From 2^11 on, squares do not fit in 64 bits. */
    for (double value = 0x1p11 - 1.0; value < 0x1p11 + 1.0; value += 0.01)
        assert_true(fabs((double)hl_fixed_square(value) / HL_FIXED_ONE - value * value) < 1e-8);
}

static void nothing_has_no_mean(void **state)
{
    (void)state;
    assert_true(isnan(hl_wide_mean(0, 0)) && isnan(hl_unit_mean(0, 0)));
    assert_true(hl_variance_of(1.0, 1.0 - 1e-16) == 0.0);
}

/* Blocks of small values give exactly the same sums, with 64-bit integers: for values of either
 * sign, for values halfway between two multiples of 2^-40, and for the largest ones allowed. */
static void blocks_of_small_values_are_the_same(void **state)
{
    (void)state;
    for (int power = -45; power <= 5; power++) {
        make_values(ldexp(1.0, power));
        for (int i = 0; i < N; i += 3)
            values[i] = rint(values[i] * 0x1p41) * 0x1p-41;
        for (int i = 1; i < N && power == 5; i += 3)
            values[i] = i % 2 == 0 ? 32.0 - 0x1p-48 : -32.0 + 0x1p-48;
        for (int first = 0; first + HL_SMALL_COUNT <= N; first += HL_SMALL_COUNT) {
            for (int64_t n = 0; n <= HL_SMALL_COUNT; n = 3 * n + 1) {
                hl_sums wanted = { 0 };
                hl_sums seen   = hl_sums_of_small(values + first, n);
                for (int64_t i = 0; i < n; i++)
                    hl_sums_add(&wanted, values[first + i]);
                assert_true(seen.sum == wanted.sum && seen.squares == wanted.squares);
                assert_int_equal(seen.count, wanted.count);
            }
        }
    }
    for (int i = 0; i < HL_SMALL_COUNT; i++)
        values[i] = 32.0 - 0x1p-48;
    hl_sums sums = hl_sums_of_small(values, HL_SMALL_COUNT);
    assert_true(sums.squares == HL_SMALL_COUNT * hl_fixed_square(values[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_long_double),
        cmocka_unit_test(order_and_parts_do_not_matter),
        cmocka_unit_test(what_does_not_fit_is_seen),
        cmocka_unit_test(the_largest_sums_fit),
        cmocka_unit_test(squares_have_no_step),
        cmocka_unit_test(blocks_of_small_values_are_the_same),
        cmocka_unit_test(nothing_has_no_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
