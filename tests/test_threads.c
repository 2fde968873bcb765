/* test_threads.c - the number of threads; every item is done once by any thread, also on machines
 * that are busy or grant no threads. */
#include "support.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/threads.h"

/* -------------------------------------------------------------------- how many */

static void wanted_is_used_within_bounds(void **state)
{
    (void)state;
    assert_int_equal(hl_threads(1), 1);
    assert_int_equal(hl_threads(3), 3);
    assert_int_equal(hl_threads(HL_MAX_THREADS), HL_MAX_THREADS);
    assert_int_equal(hl_threads(INT32_MAX), HL_MAX_THREADS);
    assert_in_range(hl_threads(0), 1, HL_MAX_THREADS);
    assert_int_equal(hl_threads(-7), hl_threads(0));
}

static void default_is_what_the_machine_allows(void **state)
{
    (void)state;
    assert_int_equal(hl_threads_chosen(NULL, 8, 0), 8);
    assert_int_equal(hl_threads_chosen(NULL, 8, 3), 3);
    assert_int_equal(hl_threads_chosen(NULL, 2, 16), 2);
    assert_int_equal(hl_threads_chosen("5", 2, 1), 5);
    assert_int_equal(hl_threads_chosen("5,2", 2, 1), 5); /* of nested levels, the first one
                                                          * counts */
    assert_int_equal(hl_threads_chosen("all", 4, 0), 4);
    assert_int_equal(hl_threads_chosen("-3", 4, 2), 2);
    assert_int_equal(hl_threads_chosen("99999999999", 4, 2), HL_MAX_THREADS);
    assert_int_equal(hl_threads_chosen(NULL, 0, 0), 1);
}

/* ----------------------------------------------------------------- every item once */

enum { MAX_ITEMS = 1000 };

typedef struct tally {
    _Atomic int done[MAX_ITEMS];
    _Atomic int n_runs;
    int         n_threads;
} tally;

static void count_items(void *context, int64_t first, int64_t end, int member)
{
    tally *t = context;

    assert(first >= 0 && first < end && end <= MAX_ITEMS && member >= 0 && member < t->n_threads);
    for (int64_t i = first; i < end; i++)
        atomic_fetch_add(&t->done[i], 1);
    atomic_fetch_add(&t->n_runs, 1);
}

static void check_call(int n_threads, int64_t n_items, int64_t grain)
{
    tally t;

    memset(&t, 0, sizeof t);
    t.n_threads = n_threads;
    hl_parallel(n_threads, n_items, grain, count_items, &t);
    for (int64_t i = 0; i < MAX_ITEMS; i++)
        assert_int_equal(t.done[i], i < n_items);
    if (n_threads > 1 && grain > 0 && n_items > grain)
        assert_int_equal(t.n_runs, (n_items + grain - 1) / grain);
}

static void every_item_once(void **state)
{
    (void)state;
    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        for (int64_t i = 0; i < 300; i++)
            check_call(n_threads, i * i % (MAX_ITEMS + 1), i % 4);
    }
    check_call(2, MAX_ITEMS, INT64_MAX);
    check_call(2, 0, 0);
    check_call(2, -1, 0);
}

/* After a pause the threads sleep; they are woken, or not needed. */
static void calls_after_a_pause(void **state)
{
    struct timespec pause = { 0, 3000000 };
    (void)state;

    for (int i = 0; i < 10; i++) {
        nanosleep(&pause, NULL);
        check_call(3, 100 + i, 1);
    }
}

/* An item that waits for another one to begin needs a second thread. */
static void wait_for_both(void *context, int64_t first, int64_t end, int member)
{
    _Atomic int *n_begun = context;
    (void)first;
    (void)end;
    (void)member;

    atomic_fetch_add(n_begun, 1);
    while (atomic_load(n_begun) < 2)
        sched_yield();
}

static void others_do_help(void **state)
{
    struct timespec pause = { 0, 5000000 };
    (void)state;

    for (int i = 0; i < 20; i++) {
        _Atomic int n_begun = 0;
        hl_parallel(2, 2, 1, wait_for_both, &n_begun);
        if (i % 4 == 0)
            nanosleep(&pause, NULL);
    }
}

/* The caller finishes long before the other thread: it sleeps, and is woken. */
static void take_long(void *context, int64_t first, int64_t end, int member)
{
    struct timespec pause = { 0, 20000000 };
    (void)end;

    wait_for_both(context, first, end, member);
    if (member != 0)
        nanosleep(&pause, NULL);
}

static void the_caller_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        _Atomic int n_begun = 0;
        hl_parallel(2, 2, 1, take_long, &n_begun);
    }
}

/* ------------------------------------------------------------------------ callers */

static void call_inside(void *context, int64_t first, int64_t end, int member)
{
    tally *all = context;
    (void)member;

    for (int64_t i = first; i < end; i++) {
        tally own = { .n_threads = 1 }; /* only the calling thread */
        hl_parallel(4, 50, 1, count_items, &own);
        for (int64_t j = 0; j < 50; j++)
            assert(own.done[j] == 1);
        atomic_fetch_add(&all->done[i], 1);
    }
}

static void calls_inside_calls(void **state)
{
    static tally t;
    (void)state;

    hl_parallel(3, 40, 1, call_inside, &t);
    for (int64_t i = 0; i < 40; i++)
        assert_int_equal(t.done[i], 1);
    check_call(3, 100, 1);
}

static void *call_often(void *argument)
{
    (void)argument;
    for (int64_t i = 0; i < 200; i++)
        check_call(2 + (int)(i % 2), i * 4, 1);
    return NULL;
}

static void callers_beside_each_other(void **state)
{
    pthread_t threads[4];
    (void)state;

    assert_int_equal(hl_parallel_reserve(4, 2), 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

/* ------------------------------------------------------------- fewer than asked for */

static void no_threads_are_granted(void **state)
{
    bool fired = false;
    (void)state;

    hl_fault_arm(HL_FAULT_CALL, 1, true);
    check_call(7, 500, 1);
    assert_int_equal(hl_parallel_reserve(2, 6), 1);
    hl_fault_disarm(&fired);
    assert_true(fired);
    hl_fault_arm(HL_FAULT_CALL, 3, true);
    assert_int_equal(hl_parallel_reserve(1, 9), 3);
    hl_fault_disarm(NULL);
    check_call(9, 500, 1);
}

/* The priorities of both threads of a call, which wait for each other. */
typedef struct priorities {
    _Atomic int n_begun;
    _Atomic int sum;
} priorities;

static void note_priority(void *context, int64_t first, int64_t end, int member)
{
    priorities *p = context;
    (void)first;
    (void)end;
    (void)member;

    atomic_fetch_add(&p->sum, getpriority(PRIO_PROCESS, 0));
    atomic_fetch_add(&p->n_begun, 1);
    while (atomic_load(&p->n_begun) < 2)
        usleep(100);
}

static void *call_nicely(void *context)
{
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 3);
    hl_parallel_background();
    hl_parallel(2, 2, 1, note_priority, context);
    return NULL;
}

/* Background calls and other calls do not share threads. */
static void the_background_keeps_its_threads(void **state)
{
    int base = getpriority(PRIO_PROCESS, 0);
    (void)state;

#ifdef __linux__ /* elsewhere a priority belongs to the whole process */
    if (base > 10)
        skip();
    for (int i = 0; i < 3; i++) {
        priorities plain = { 0 }, nice = { 0 };
        pthread_t  thread;

        hl_parallel(2, 2, 1, note_priority, &plain);
        assert_int_equal(atomic_load(&plain.sum), 2 * base);
        assert_int_equal(pthread_create(&thread, NULL, call_nicely, &nice), 0);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&nice.sum), 2 * (base + 3));
    }
#endif
}

/* ------------------------------------------------------------------ busy machines */

#ifdef __linux__

/* The times that threads waited for a core, as the library reads them from the kernel: this file
 * replaces its open (--wrap, in the Makefile). */
typedef enum kernel {
    KERNEL_AS_IT_IS,
    KERNEL_SILENT,
    KERNEL_EMPTY,
    KERNEL_STEADY,
    KERNEL_BUSY
} kernel;

static _Atomic int     kernel_says;
static _Atomic int     n_asked;
static _Atomic int64_t n_waits; /* waiting time that a busy kernel reports, in seconds */

static int open_made(const char *text)
{
    int ends[2];

    if (pipe(ends) != 0)
        return -1;
    if (write(ends[1], text, strlen(text)) < 0) {
        close(ends[0]);
        ends[0] = -1;
    }
    close(ends[1]);
    return ends[0];
}

static int open_schedstat(int says)
{
    char text[96] = "";

    atomic_fetch_add(&n_asked, 1);
    if (says == KERNEL_SILENT) {
        errno = ENOENT;
        return -1;
    }
    if (says == KERNEL_STEADY)
        return open_made("5000000000 5000000000 7\n");
    if (says == KERNEL_BUSY)
        snprintf(text, sizeof text, "5000000000 %lld000000000 7\n",
                 (long long)atomic_fetch_add(&n_waits, 1));
    return open_made(text);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

int __wrap_open(const char *path, int flags, ...)
{
    int     says = atomic_load(&kernel_says);
    mode_t  mode = 0;
    va_list rest;

    if (says != KERNEL_AS_IT_IS && strcmp(path, "/proc/thread-self/schedstat") == 0)
        return open_schedstat(says);
    va_start(rest, flags);
    if ((flags & O_CREAT) != 0)
        mode = va_arg(rest, mode_t);
    va_end(rest);
    return __real_open(path, flags, mode);
}

typedef struct long_wait {
    _Atomic bool is_begun;
    double       seconds; /* the caller's CPU time when it began to wait */
} long_wait;

static double processor_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The other thread takes two milliseconds; the caller has nothing to do during that time. */
static void keep_waiting(void *context, int64_t first, int64_t end, int member)
{
    long_wait *w = context;
    (void)first;
    (void)end;

    if (member != 0) {
        atomic_store(&w->is_begun, true);
        usleep(2000);
        return;
    }
    while (!atomic_load(&w->is_begun))
        usleep(50);
    w->seconds = processor_seconds();
}

/* Returns in how many of 40 waits the caller was spinning, with 200 us or more of CPU time, and not
 * asleep. */
static int patient_waits(int says)
{
    int n = 0;

    atomic_store(&kernel_says, says);
    atomic_store(&n_asked, 0);
    for (int i = 0; i < 80; i++) {
        long_wait w = { 0 };

        hl_parallel(2, 2, 1, keep_waiting, &w);
        n += i >= 40 &&
             processor_seconds() - w.seconds > 200e-6; /* the first waits only let the library read
                                                        * the kernel's times */
    }
    assert_true(atomic_load(&n_asked) > 0);
    atomic_store(&kernel_says, KERNEL_AS_IT_IS);
    return n;
}

/* Waiting threads spin for a while if the machine is idle or if this is unknown; they sleep if
 * others need the cores. */
static void the_kernel_says_who_waits(void **state)
{
    static const kernel ways[] = { KERNEL_SILENT, KERNEL_STEADY, KERNEL_EMPTY, KERNEL_STEADY };
    struct timespec     calm   = { 0, 600000000 };
    (void)state;

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        atomic_store(&kernel_says, KERNEL_SILENT);
        nanosleep(&calm, NULL); /* earlier waiting times are forgotten */
        int n = patient_waits(ways[i]);
        if (n < 10)
            fail_msg("%d of 40 waits were patient, way %d", n, (int)i);
    }
    int n = patient_waits(KERNEL_BUSY);
    if (n > 10)
        fail_msg("%d of 40 waits were patient on a busy machine", n);
    nanosleep(&calm, NULL);
    assert_true(patient_waits(KERNEL_SILENT) >= 10);
}

#endif

static void a_forked_child_has_threads_of_its_own(void **state)
{
    int status = 0;
    (void)state;

    check_call(2, 100, 1);
    pid_t child = fork();
    if (child == 0) {
        _Atomic int n_begun = 0;
        alarm(20);
        hl_parallel(2, 2, 1, wait_for_both, &n_begun);
        _exit(7);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wanted_is_used_within_bounds),
        cmocka_unit_test(default_is_what_the_machine_allows),
        cmocka_unit_test(every_item_once),
        cmocka_unit_test(calls_after_a_pause),
        cmocka_unit_test(others_do_help),
        cmocka_unit_test(the_caller_waits),
        cmocka_unit_test(calls_inside_calls),
        cmocka_unit_test(callers_beside_each_other),
        cmocka_unit_test(no_threads_are_granted),
        cmocka_unit_test(the_background_keeps_its_threads),
#ifdef __linux__
        cmocka_unit_test(the_kernel_says_who_waits),
#endif
        cmocka_unit_test(a_forked_child_has_threads_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
