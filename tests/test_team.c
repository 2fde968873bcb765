/* test_team.c - every share is done once, whoever does it. */
#include "support.h"

#include <assert.h>
#include <stdatomic.h>
#include <time.h>

#include "base/team.h"

enum { MAX_SHARES = 1000 };

typedef struct tally {
    _Atomic int done[MAX_SHARES];
    _Atomic int by_member[8];
    int         n_members;
} tally;

static void count_share(void *context, int64_t share, int member)
{
    tally *t = context;

    assert(share >= 0 && share < MAX_SHARES && member >= 0 && member < t->n_members);
    atomic_fetch_add(&t->done[share], 1);
    atomic_fetch_add(&t->by_member[member], 1);
}

static void check_run(hl_team *team, int n_members, int64_t n_shares)
{
    static tally t;

    memset(&t, 0, sizeof t);
    t.n_members = n_members;
    hl_team_run(team, n_shares, count_share, &t);
    for (int64_t i = 0; i < MAX_SHARES; i++)
        assert_int_equal(t.done[i], i < n_shares);
}

static void every_share_once(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        hl_team *team = NULL;

        assert_ok(hl_team_open(&team, n_threads));
        for (int64_t i = 0; i < 300; i++)
            check_run(team, n_threads, i * i % (MAX_SHARES + 1));
        hl_team_close(team);
    }
}

/* After a pause the members sleep; they are woken, or not needed. */
static void runs_after_a_pause(void **state)
{
    hl_team        *team  = NULL;
    struct timespec pause = { 0, 3000000 };
    (void)state;

    assert_ok(hl_team_open(&team, 3));
    for (int i = 0; i < 10; i++) {
        nanosleep(&pause, NULL);
        check_run(team, 3, 100 + i);
    }
    nanosleep(&pause, NULL);
    hl_team_close(team);
}

/* A share that waits for another to begin needs a second thread: it comes. */
static void wait_for_both(void *context, int64_t share, int member)
{
    _Atomic int *n_begun = context;
    (void)share;
    (void)member;

    atomic_fetch_add(n_begun, 1);
    while (atomic_load(n_begun) < 2)
        ;
}

static void others_do_help(void **state)
{
    hl_team    *team    = NULL;
    _Atomic int n_begun = 0;
    (void)state;

    assert_ok(hl_team_open(&team, 2));
    hl_team_run(team, 2, wait_for_both, &n_begun);
    hl_team_close(team);
    hl_team_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_share_once),
        cmocka_unit_test(runs_after_a_pause),
        cmocka_unit_test(others_do_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
