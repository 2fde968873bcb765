/* threads.h - how many threads to use, and work shared out among them.
 *
 *     static void norm_rows(void *context, int64_t first, int64_t end, int member) { ... }
 *
 *     hl_parallel(n_threads, n_rows, 0, norm_rows, &job);
 *
 * The items of a call, rows or heads or panels, are taken in runs of `grain` by whoever is
 * there.  A thread that comes late finds nothing left and nobody waits for it, so on a
 * machine with one free core the caller does everything by itself.  A call costs a
 * microsecond or two: decoding a token is some sixty of them.
 *
 * Threads are kept for the next call.  While the machine is idle they look out for it for half
 * a millisecond before they sleep; on a machine where others want the cores they sleep at once
 * (threads.c has the numbers).  Calls from several threads at a time each have threads of
 * their own; a call from inside `work` runs on the calling thread alone.  Where the system
 * grants fewer threads than asked for, fewer do the work: nothing here fails. */
#ifndef HL_BASE_THREADS_H
#define HL_BASE_THREADS_H

#include "headlight/base.h"

#define HL_MAX_THREADS 1024

/* `wanted` if positive.  Else OMP_NUM_THREADS where it is set, else the cores that this
 * process may run on, or fewer where its control group's quota pays for fewer.  Never below 1
 * nor above HL_MAX_THREADS. */
int hl_threads(int32_t wanted);
/* The default from what it depends on: OMP_NUM_THREADS or NULL, cores, the quota in cores or 0. */
int hl_threads_chosen(const char *wanted, int n_cores, int quota);

/* Items [first, end).  `member` counts from 0, the caller, to n_threads - 1: each value is one
 * thread's for the whole call. */
typedef void (*hl_parallel_work)(void *context, int64_t first, int64_t end, int member);

/* work(context, ...) for every item in [0, n_items), at most n_threads at a time; returns when
 * all are done.  `grain` is the number of items of a run; 0: four runs per thread. */
void hl_parallel(int n_threads, int64_t n_items, int64_t grain, hl_parallel_work work,
                 void *context);

/* Makes the threads that `n_callers` simultaneous calls need, now and not at their first call.
 * Returns the number of threads, the callers included, that the smallest call will have:
 * n_threads, or fewer where the system grants no more. */
int hl_parallel_reserve(int n_callers, int n_threads);

/* For a thread that has lowered its own priority, before its first call: its calls have threads of
 * their own kind, which inherit that priority, and which no other calls have. */
void hl_parallel_background(void);

#endif
