/* team.c - one counter to take shares from, and how members wait.
 *
 * A run is published by one store to `ticket`, which holds three numbers:
 *
 *     bits 42..63   the run
 *     bits 21..41   how many shares it has
 *     bits  0..20   the next share that nobody has
 *
 * Adding 1 takes a share.  As the old value tells at once which one and of how many,
 * who comes too late sees it from that value alone.  A taken share keeps its run
 * alive: `work` and `context` are not replaced before `n_done` has counted it.
 *
 * Between runs a member looks at the ticket for about a tenth of a millisecond, then
 * it sleeps.  Going to sleep and publishing must not miss each other: the member
 * counts itself in before its last look, the caller publishes before it looks at the
 * count. */
#include "base/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "base/status.h"

enum {
    SHARE_BITS = 21,
    PATIENCE   = 2000, /* looks before a member sleeps, or the caller lets others run */
};
#define SHARE_MASK ((UINT64_C(1) << SHARE_BITS) - 1)

typedef struct member {
    hl_team  *team;
    pthread_t thread;
    int       index;
} member;

struct hl_team {
    _Atomic uint64_t ticket;
    _Atomic int64_t  n_done;
    hl_team_work     work;
    void            *context;

    _Atomic int     n_asleep;
    _Atomic bool    is_closing;
    pthread_mutex_t mutex;
    pthread_cond_t  published;

    member *members; /* (n_members) without the caller */
    int     n_members;
};

/* --------------------------------------------------------------------- shares */

static void look_away(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t run_of(uint64_t ticket)
{
    return ticket >> (2 * SHARE_BITS);
}

static bool has_shares(uint64_t ticket)
{
    return (ticket & SHARE_MASK) < (ticket >> SHARE_BITS & SHARE_MASK);
}

/* Takes shares until none is left. */
static void help(hl_team *team, int index)
{
    while (has_shares(atomic_load_explicit(&team->ticket, memory_order_relaxed))) {
        uint64_t ticket = atomic_fetch_add_explicit(&team->ticket, 1, memory_order_acq_rel);
        if (!has_shares(ticket))
            return;
        team->work(team->context, (int64_t)(ticket & SHARE_MASK), index);
        atomic_fetch_add_explicit(&team->n_done, 1, memory_order_release);
    }
}

/* -------------------------------------------------------------------- members */

static bool is_news(const hl_team *team, uint64_t run)
{
    return run_of(atomic_load(&team->ticket)) != run || atomic_load(&team->is_closing);
}

static void sleep_until_news(hl_team *team, uint64_t run)
{
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add(&team->n_asleep, 1);
    while (!is_news(team, run))
        pthread_cond_wait(&team->published, &team->mutex);
    atomic_fetch_sub(&team->n_asleep, 1);
    pthread_mutex_unlock(&team->mutex);
}

static void *member_main(void *argument)
{
    const member *self = argument;
    hl_team      *team = self->team;
    uint64_t      run  = 0;

    while (!atomic_load(&team->is_closing)) {
        for (int i = 0; i < PATIENCE && !is_news(team, run); i++)
            look_away();
        if (!is_news(team, run))
            sleep_until_news(team, run);
        run = run_of(atomic_load(&team->ticket));
        help(team, self->index);
    }
    return NULL;
}

static void wake_members(hl_team *team)
{
    if (atomic_load(&team->n_asleep) == 0)
        return;
    pthread_mutex_lock(&team->mutex);
    pthread_cond_broadcast(&team->published);
    pthread_mutex_unlock(&team->mutex);
}

/* ---------------------------------------------------------------------- whole */

hl_status hl_team_open(hl_team **out, int n_threads)
{
    hl_status status = HL_OK;
    hl_team  *team   = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&team, 1));
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->published, NULL);
    HL_TRY(HL_ALLOC_ZEROED(&team->members, (size_t)(n_threads > 1 ? n_threads - 1 : 1)));
    for (int i = 1; i < n_threads; i++) {
        member *next = &team->members[team->n_members];

        *next = (member){ .team = team, .index = i };
        if (pthread_create(&next->thread, NULL, member_main, next) != 0)
            break; /* fewer will do */
        team->n_members++;
    }
    *out = team;
    team = NULL;

done:
    hl_team_close(team);
    return status;
}

void hl_team_close(hl_team *team)
{
    if (team == NULL)
        return;
    atomic_store(&team->is_closing, true);
    wake_members(team);
    for (int i = 0; i < team->n_members; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->published);
    pthread_mutex_destroy(&team->mutex);
    hl_free(team->members);
    hl_free(team);
}

void hl_team_run(hl_team *team, int64_t n_shares, hl_team_work work, void *context)
{
    uint64_t run = run_of(atomic_load(&team->ticket)) + 1;

    team->work    = work;
    team->context = context;
    atomic_store(&team->n_done, 0);
    atomic_store(&team->ticket, run << (2 * SHARE_BITS) | (uint64_t)n_shares << SHARE_BITS);
    wake_members(team);
    help(team, 0);
    for (int i = 0; atomic_load_explicit(&team->n_done, memory_order_acquire) < n_shares; i++) {
        look_away();
        if (i > PATIENCE)
            sched_yield();
    }
}
