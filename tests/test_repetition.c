/* test_repetition.c - loops of any period, repeated suffixes and distinct n-grams, against definitions
 * written out by brute force. */
#include "support.h"

#include <math.h>

#include "base/hash.h"
#include "headlight/trace.h"

enum { MOST = 400 };

/* Pseudo-random ids below `n_ids`; the stream is a hash, so that it never repeats. */
static int64_t draw(uint64_t seed, int64_t i, int64_t n_ids)
{
    return (int64_t)(hl_hash_pair(seed, (uint64_t)i) % (uint64_t)n_ids);
}

static bool same(const int64_t *a, const int64_t *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static double brute_distinct(const int64_t *ids, int64_t n_tokens, int64_t n)
{
    int64_t n_new = 0, count = n_tokens - n + 1;

    for (int64_t i = 0; i < count; i++) {
        bool seen = false;
        for (int64_t j = 0; j < i; j++)
            seen = seen || same(ids + i, ids + j, n);
        n_new += !seen;
    }
    return count < 1 ? (double)NAN : (double)n_new / (double)count;
}

static int64_t brute_suffix(const int64_t *ids, int64_t n)
{
    for (int64_t length = n - 1; length > 0; length--) {
        for (int64_t at = 0; at + length < n; at++) {
            if (same(ids + at, ids + n - length, length))
                return length;
        }
    }
    return 0;
}

static void the_definitions_hold(void **state)
{
    int64_t       ids[60];
    hl_repetition found;
    (void)state;

    for (uint64_t seed = 0; seed < 300; seed++) {
        int64_t n = (int64_t)(seed % 60), n_ids = 2 + (int64_t)(seed % 5);

        for (int64_t i = 0; i < n; i++)
            ids[i] = draw(seed, i, n_ids);
        assert_ok(hl_repetition_of(&found, ids, n));
        assert_int_equal(found.n_tokens, n);
        for (int k = 1; k <= HL_N_DISTINCT; k++) {
            double wanted = brute_distinct(ids, n, k);
            assert_true(isnan(wanted) ? isnan(found.distinct[k - 1])
                                      : found.distinct[k - 1] == wanted);
        }
        assert_int_equal(found.suffix, brute_suffix(ids, n));
        if (found.suffix > 0)
            assert_true(same(ids + n - found.suffix, ids + n - found.suffix - found.distance,
                             found.suffix));
    }
}

/* Free tokens, then a loop of every period, then free tokens again. */
static void loops_of_all_periods_are_found(void **state)
{
    int64_t       ids[MOST];
    hl_repetition found;
    (void)state;

    for (int64_t period = 1; period <= HL_LOOP_MAX_PERIOD; period++) {
        int64_t n_loop = 3 * period + period / 2;

        for (int64_t i = 0; i < MOST; i++)
            ids[i] = draw((uint64_t)period, i >= 50 && i < 50 + n_loop ? 50 + (i - 50) % period : i,
                          1000000);
        assert_ok(hl_repetition_of(&found, ids, MOST));
        assert_int_equal(found.period, period);
        assert_int_equal(found.first, 50);
        assert_int_equal(found.loop_tokens, n_loop);
        /* One token less than three periods is not a loop. */
        ids[50 + 3 * period - 1] = -1;
        assert_ok(hl_repetition_of(&found, ids, MOST));
        assert_int_equal(found.period, 0);
        assert_int_equal(found.first, -1);
        assert_int_equal(found.loop_tokens, 0);
    }
}

static void short_and_free_texts(void **state)
{
    int64_t       ids[MOST];
    hl_repetition found;
    (void)state;

    assert_ok(hl_repetition_of(&found, NULL, 0));
    assert_true(found.suffix == 0 && found.period == 0 && isnan(found.distinct[0]));
    for (int64_t i = 0; i < MOST; i++)
        ids[i] = draw(1, i, 1000000);
    assert_ok(hl_repetition_of(&found, ids, MOST));
    assert_true(found.suffix == 0 && found.distance == 0 && found.period == 0);
    assert_true(found.distinct[0] == 1.0 && found.distinct[3] == 1.0);
    /* A period that is too long for a loop is still a repeated suffix. */
    for (int64_t i = 0; i < MOST; i++)
        ids[i] = draw(1, i % 65, 1000000);
    assert_ok(hl_repetition_of(&found, ids, MOST));
    assert_int_equal(found.period, 0);
    assert_int_equal(found.suffix, MOST - 65);
    assert_int_equal(found.distance, 65);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_definitions_hold),
        cmocka_unit_test(loops_of_all_periods_are_found),
        cmocka_unit_test(short_and_free_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
