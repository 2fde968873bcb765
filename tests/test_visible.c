/* test_visible.c - the keys that a row sees, compared with the definition key by key. */
#include "support.h"

#include "base/visible.h"

enum { N_POSITIONS = 9, FURTHEST = 7 };

static bool is_seen(const hl_reach *reach, int64_t n_keys, int64_t position, int64_t key)
{
    int64_t block = reach->window_block;
    bool    left  = block > 0 && position >= 0 ? key >= 0 && key / block >= position / block
                                               : key >= position - reach->window_left;

    return key >= 0 && key < n_keys && key <= position + reach->window_right &&
           (left || key < reach->window_sink);
}

static void check_row(const hl_reach *reach, int64_t n_keys, int64_t position)
{
    hl_visible_keys keys  = hl_visible_join(hl_reach_keys(reach, n_keys, position));
    int64_t         next  = hl_visible_from(keys, 0);
    int64_t         count = 0;

    assert_true(keys.kept == 0 || keys.kept < keys.begin);
    for (int64_t key = -1; key <= n_keys; key++) {
        bool seen = is_seen(reach, n_keys, position, key);

        assert_int_equal(hl_visible_has(keys, key), seen);
        if (seen) {
            assert_int_equal(next, key);
            next = hl_visible_from(keys, key + 1);
            count++;
        }
    }
    assert_true(next >= keys.end);
    assert_int_equal(hl_visible_count(keys), count);
}

/* Rows before the first key and after the last, windows wider than the number of keys, first keys
 * within the window, next to it and apart from it. */
static void rows_see_what_the_definition_says(void **state)
{
    (void)state;

    for (int64_t n_keys = 0; n_keys < 6; n_keys++) {
        for (int64_t position = -2; position < N_POSITIONS; position++) {
            for (int64_t code = 0; code < FURTHEST * FURTHEST * FURTHEST; code++) {
                hl_reach reach = { code % FURTHEST, code / FURTHEST % FURTHEST,
                                   code / FURTHEST / FURTHEST, 0 };

                check_row(&reach, n_keys, position);
                reach.window_block = reach.window_left + 1;
                check_row(&reach, n_keys, position);
                reach.window_block = 0;
                reach.window_left  = HL_REACH_ALL;
                check_row(&reach, n_keys, position);
                reach.window_right = HL_REACH_ALL;
                check_row(&reach, n_keys, position);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_see_what_the_definition_says) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
