/* threads.c - teams of threads, the counter from which they take runs of items, and how they wait.
 *
 * A call is published by one store to its team's `ticket`, which holds three numbers:
 *
 *     bits 42..63   the number of the call
 *     bits 21..41   the number of its runs
 *     bits  0..20   the next run that no thread has taken
 *
 * Adding 1 takes a run.  The old value holds both the run and the number of runs, so a late
 * thread sees from that value alone that nothing is left.  A taken run keeps its call alive:
 * `job` is not replaced before `n_done` has counted the run.
 *
 * A waiting thread spins on the ticket, or on `n_done`, for a while and then sleeps.  A wakeup
 * cannot be lost: a thread announces that it sleeps before its last look at the ticket, and the
 * publisher publishes before it looks for sleepers.
 *
 * The spinning time depends on the machine.  Waking a thread takes some 5 to 50 microseconds,
 * so on an idle machine it pays to spin for PATIENT_SECONDS.  On a busy machine a spinning
 * thread takes the core from the thread that it waits for, so there it sleeps sooner.  The
 * machine counts as busy when threads of this process are ready to run and no core is free for
 * them.  Linux sums that time for each thread, and each thread reads its own sum every
 * CHECK_SECONDS.
 *
 * Teams are kept in a list and lent to calls.  There are as many teams as there were
 * simultaneous calls at the busiest moment. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity; NOLINT(bugprone-reserved-identifier): the C library asks
                     * for it */
#endif
#include "base/threads.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/machine.h"

enum {
    RUN_BITS        = 21,
    RUNS_PER_THREAD = 4,
    LOOKS_PER_CLOCK = 32, /* number of checks between two readings of the clock */
    HASTY_LOOKS     = 64, /* number of checks before a thread sleeps on a busy machine: a few
                           * microseconds */
};
#define RUN_MASK        ((UINT64_C(1) << RUN_BITS) - 1)
#define PATIENT_SECONDS 500e-6 /* ten times the longest time that waking a thread takes */
/* Many scheduler slices: a program that runs for a few milliseconds now and then makes no machine
 * busy, and sleeping after every product costs a third of the speed of decoding. */
#define CHECK_SECONDS 80e-3
/* The machine is busy if a thread waits for a core during this share of CHECK_SECONDS.  Measured:
 * 0.1% on an idle machine, 20 to 50% beside two busy loops on two cores. */
#define BUSY_SHARE   0.15
#define CALM_SECONDS 0.5 /* after this time without waiting for a core, the machine is idle */

typedef struct work_items {
    hl_parallel_work work;
    void            *context;
    int64_t          n_items;
    int64_t          grain;
} work_items;

/* The caller and n_threads - 1 members, or fewer if the system granted fewer. */
typedef struct hl_team {
    _Atomic uint64_t ticket;
    _Atomic int64_t  n_done;
    work_items       job;

    _Atomic int     n_asleep;  /* number of sleeping members */
    _Atomic bool    is_waited; /* the caller sleeps */
    pthread_mutex_t mutex;
    pthread_cond_t  published;
    pthread_cond_t  finished;

    int             n_threads; /* the team serves only calls with this number of threads */
    int             n_members;
    struct hl_team *next;          /* next team in the list of free teams */
    bool            is_background; /* made by and for callers of hl_parallel_background */
} hl_team;

/* ------------------------------------------------------------- is it busy here? */

/* The time at which a thread last had to wait for a core; 0: never. */
static _Atomic double disturbed;

/* Seconds that the calling thread was ready to run but had no core; below 0: not known. */
static double seconds_delayed(void)
{
    char text[96] = "";
    int  file     = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return -1.0;
    ssize_t n = read(file, text, sizeof text - 1);
    close(file);
    long long on_core = 0, delayed = 0;
    return n > 0 && sscanf(text, "%lld %lld", &on_core, &delayed) == 2 ? (double)delayed * 1e-9
                                                                       : -1.0;
}

/* Reads the calling thread's waiting time from the kernel, every CHECK_SECONDS. */
static void notice_neighbors(void)
{
    static _Thread_local double checked, delayed;
    double                      now    = hl_clock_seconds();
    double                      passed = now - checked;

    if (passed < CHECK_SECONDS)
        return;
    double before = delayed;
    bool   is_old = passed > 1.0; /* the last reading is too old to compare with */
    delayed       = seconds_delayed();
    checked       = now;
    if (!is_old && before >= 0.0 && delayed - before > BUSY_SHARE * passed)
        atomic_store_explicit(&disturbed, now, memory_order_relaxed);
}

static bool is_busy(double now)
{
    double when = atomic_load_explicit(&disturbed, memory_order_relaxed);
    return when > 0.0 && now - when < CALM_SECONDS;
}

/* ------------------------------------------------------------------------ runs */

static void look_away(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Spins until is_over(team, what), for as long as spinning is worthwhile; false: gave up. */
static bool look_for(bool (*is_over)(const hl_team *team, uint64_t what), const hl_team *team,
                     uint64_t what)
{
    double now   = hl_clock_seconds();
    bool   hasty = is_busy(now);
    double until = now + PATIENT_SECONDS;

    do {
        for (int i = 0; i < (hasty ? HASTY_LOOKS : LOOKS_PER_CLOCK); i++) {
            if (is_over(team, what))
                return true;
            look_away();
        }
    } while (!hasty && hl_clock_seconds() < until);
    return is_over(team, what);
}

static uint64_t call_of(uint64_t ticket)
{
    return ticket >> (2 * RUN_BITS);
}

static uint64_t runs_of(uint64_t ticket)
{
    return ticket >> RUN_BITS & RUN_MASK;
}

static bool has_runs(uint64_t ticket)
{
    return (ticket & RUN_MASK) < runs_of(ticket);
}

/* True while the calling thread is inside `work`. */
static _Thread_local bool is_inside;

/* Takes and does runs until none is left. */
static void help(hl_team *team, int index)
{
    notice_neighbors();
    is_inside = true;
    while (has_runs(atomic_load_explicit(&team->ticket, memory_order_relaxed))) {
        uint64_t ticket = atomic_fetch_add(&team->ticket, 1);
        if (!has_runs(ticket))
            break;
        const work_items *job   = &team->job;
        int64_t           first = (int64_t)(ticket & RUN_MASK) * job->grain;
        int64_t end = job->n_items - first > job->grain ? first + job->grain : job->n_items;

        job->work(job->context, first, end, index);
        if (atomic_fetch_add(&team->n_done, 1) + 1 == (int64_t)runs_of(ticket) &&
            atomic_load(&team->is_waited)) {
            pthread_mutex_lock(&team->mutex);
            pthread_cond_signal(&team->finished);
            pthread_mutex_unlock(&team->mutex);
        }
    }
    is_inside = false;
}

/* --------------------------------------------------------------------- members */

static bool is_another_call(const hl_team *team, uint64_t call)
{
    return call_of(atomic_load(&team->ticket)) != call;
}

/* The argument of a new thread. */
typedef struct member {
    hl_team *team;
    int      index;
} member;

static void *member_main(void *argument)
{
    member   self = *(member *)argument;
    hl_team *team = self.team;
    uint64_t call = 0;

    free(argument);
    for (;;) {
        if (!look_for(is_another_call, team, call)) {
            pthread_mutex_lock(&team->mutex);
            atomic_fetch_add(&team->n_asleep, 1);
            while (!is_another_call(team, call))
                pthread_cond_wait(&team->published, &team->mutex);
            atomic_fetch_sub(&team->n_asleep, 1);
            pthread_mutex_unlock(&team->mutex);
        }
        call = call_of(atomic_load(&team->ticket));
        help(team, self.index);
    }
    return NULL;
}

static bool start_member(hl_team *team, int index)
{
    pthread_t thread;
    member   *self = malloc(sizeof *self);

    if (self == NULL)
        return false;
    *self = (member){ team, index };
    if (hl_fault(HL_FAULT_CALL) || pthread_create(&thread, NULL, member_main, self) != 0) {
        free(self);
        return false;
    }
    pthread_detach(thread);
    return true;
}

/* Members block signals, so that the program's own threads get them, except signals that the
 * thread itself causes (base/file.c). */
static void start_members(hl_team *team)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT };
    sigset_t         blocked, before;

    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&blocked, own[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    while (team->n_members < team->n_threads - 1 && start_member(team, team->n_members + 1))
        team->n_members++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ----------------------------------------------------------------------- teams */

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static hl_team        *free_teams;

/* The child of a fork has none of its parent's threads. */
static void forget_teams(void)
{
    pthread_mutex_init(&list_mutex, NULL);
    free_teams = NULL;
    is_inside  = false;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_teams);
}

/* True if the calling thread has called hl_parallel_background. */
static _Thread_local bool is_background;

void hl_parallel_background(void)
{
    is_background = true;
}

/* Teams live as long as the process, so they are not counted by hl_memory_held. */
static hl_team *new_team(int n_threads)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    hl_team              *team = calloc(1, sizeof *team);

    if (team == NULL)
        return NULL;
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->published, NULL);
    pthread_cond_init(&team->finished, NULL);
    team->n_threads     = n_threads;
    team->is_background = is_background;
    start_members(team);
    return team;
}

/* Takes the team that was used last, which is the most likely to be awake, or makes one.  NULL if
 * none can be made. */
static hl_team *take_team(int n_threads)
{
    hl_team *found = NULL;

    pthread_mutex_lock(&list_mutex);
    for (hl_team **at = &free_teams; *at != NULL && found == NULL; at = &(*at)->next) {
        if ((*at)->n_threads == n_threads && (*at)->is_background == is_background) {
            found = *at;
            *at   = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&list_mutex);
    return found != NULL ? found : new_team(n_threads);
}

static void give_back(hl_team *team)
{
    pthread_mutex_lock(&list_mutex);
    team->next = free_teams;
    free_teams = team;
    pthread_mutex_unlock(&list_mutex);
}

int hl_parallel_reserve(int n_callers, int n_threads)
{
    hl_team *taken = NULL;
    int      least = n_threads;

    for (int i = 0; i < n_callers && n_threads > 1; i++) {
        hl_team *next = take_team(n_threads);
        if (next == NULL || next->n_members + 1 < least)
            least = next != NULL ? next->n_members + 1 : 1;
        if (next != NULL) {
            next->next = taken;
            taken      = next;
        }
    }
    while (taken != NULL) {
        hl_team *next = taken->next;
        give_back(taken);
        taken = next;
    }
    return least;
}

/* ----------------------------------------------------------------------- calls */

static bool is_done(const hl_team *team, uint64_t n_runs)
{
    return atomic_load(&team->n_done) >= (int64_t)n_runs;
}

static void run_by(hl_team *team, const work_items *job, uint64_t n_runs)
{
    uint64_t call = call_of(atomic_load(&team->ticket)) + 1;

    team->job = *job;
    atomic_store(&team->n_done, 0);
    atomic_store(&team->ticket, call << (2 * RUN_BITS) | n_runs << RUN_BITS);
    if (atomic_load(&team->n_asleep) > 0) {
        pthread_mutex_lock(&team->mutex);
        if ((int64_t)n_runs > team->n_members)
            pthread_cond_broadcast(&team->published);
        for (uint64_t i = 1; i < n_runs && (int64_t)n_runs <= team->n_members; i++)
            pthread_cond_signal(&team->published);
        pthread_mutex_unlock(&team->mutex);
    }
    help(team, 0);
    if (look_for(is_done, team, n_runs))
        return;
    pthread_mutex_lock(&team->mutex);
    atomic_store(&team->is_waited, true);
    while (!is_done(team, n_runs))
        pthread_cond_wait(&team->finished, &team->mutex);
    atomic_store(&team->is_waited, false);
    pthread_mutex_unlock(&team->mutex);
}

void hl_parallel(int n_threads, int64_t n_items, int64_t grain, hl_parallel_work work,
                 void *context)
{
    int64_t even = (n_items - 1) / ((int64_t)RUNS_PER_THREAD * (n_threads > 0 ? n_threads : 1)) + 1;
    hl_team *team = NULL;

    if (n_items <= 0)
        return;
    /* Late threads count past the last run, so half of the counter's range is left for them. */
    if (grain <= 0 || (n_items - 1) / grain >= (int64_t)RUN_MASK / 2)
        grain = even;
    if (n_threads > 1 && n_items > grain && !is_inside)
        team = take_team(n_threads < HL_MAX_THREADS ? n_threads : HL_MAX_THREADS);
    if (team == NULL) {
        work(context, 0, n_items, 0);
        return;
    }
    run_by(team, &(work_items){ work, context, n_items, grain },
           (uint64_t)((n_items - 1) / grain) + 1);
    give_back(team);
}

/* ------------------------------------------------------------------- how many? */

static int cores(void)
{
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
#endif
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int hl_threads_chosen(const char *wanted, int n_cores, int quota)
{
    long n = wanted != NULL ? strtol(wanted, NULL, 10) : 0;

    if (n < 1)
        n = quota > 0 && quota < n_cores ? quota : n_cores;
    if (n < 1)
        return 1;
    return n < HL_MAX_THREADS ? (int)n : HL_MAX_THREADS;
}

static int default_threads;

static void choose_default(void)
{
    default_threads =
        hl_threads_chosen(getenv("OMP_NUM_THREADS"), cores(), hl_available_cores_below(""));
}

int hl_threads(int32_t wanted)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (wanted > 0)
        return wanted < HL_MAX_THREADS ? (int)wanted : HL_MAX_THREADS;
    pthread_once(&once, choose_default);
    return default_threads;
}
