/* test_threads.c - the number of threads, and each one's own. */
#include "support.h"

#include <omp.h>

#include "base/threads.h"

static void wanted_is_used_within_bounds(void **state)
{
    (void)state;
    assert_int_equal(hl_threads(1), 1);
    assert_int_equal(hl_threads(3), 3);
    assert_int_equal(hl_threads(HL_MAX_THREADS), HL_MAX_THREADS);
    assert_int_equal(hl_threads(INT32_MAX), HL_MAX_THREADS);
}

static void default_is_what_openmp_would_use(void **state)
{
    (void)state;
    int before = omp_get_max_threads();
    omp_set_num_threads(5);
    assert_int_equal(hl_threads(0), 5);
    assert_int_equal(hl_threads(-7), 5);
    omp_set_num_threads(before);
    assert_int_equal(hl_threads(0), before < HL_MAX_THREADS ? before : HL_MAX_THREADS);
}

static void every_thread_has_an_index(void **state)
{
    (void)state;
    int seen[4]   = { 0 };
    int n_threads = 0;

    assert_int_equal(hl_thread_index(), 0);
#pragma omp parallel num_threads(4)
    {
        int index = hl_thread_index();
#pragma omp critical
        {
            n_threads = omp_get_num_threads();
            if (index >= 0 && index < 4)
                seen[index]++;
        }
    }
    for (int i = 0; i < n_threads; i++)
        assert_int_equal(seen[i], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wanted_is_used_within_bounds),
        cmocka_unit_test(default_is_what_openmp_would_use),
        cmocka_unit_test(every_thread_has_an_index),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
