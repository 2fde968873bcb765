/* threads.h - the number of threads to use, and work shared among them.
 *
 *     static void norm_rows(void *context, int64_t first, int64_t end, int member) { ... }
 *
 *     hl_parallel(n_threads, n_rows, 0, norm_rows, &job);
 *
 * The items of a call (rows, heads or panels) are taken in runs of `grain` by any thread that is
 * free.  A late thread finds nothing left and nobody waits for it, so on a machine with one free
 * core the caller does all the work.  A call costs a microsecond or two; decoding a token takes
 * about sixty calls.
 *
 * Threads are kept for the next call.  On an idle machine they spin for half a millisecond before
 * they sleep; on a machine whose cores are busy they sleep at once (threads.c has the numbers).
 * Simultaneous calls from several threads each have threads of their own; a call from inside
 * `work` runs on the calling thread alone.  Where the system grants fewer threads than requested,
 * fewer do the work: nothing here fails. */
#ifndef HL_BASE_THREADS_H
#define HL_BASE_THREADS_H

#include "headlight/base.h"

#define HL_MAX_THREADS 1024

/* `wanted` if positive.  Else OMP_NUM_THREADS where it is set, else the cores that this
 * process may run on, or fewer where its control group's quota pays for fewer.  Never below 1
 * nor above HL_MAX_THREADS. */
int hl_threads(int32_t wanted);
/* The default number of threads, computed from OMP_NUM_THREADS (or NULL), the number of cores, and
 * the quota in cores (or 0). */
int hl_threads_chosen(const char *wanted, int n_cores, int quota);

/* Does items [first, end).  `member` is between 0 (the caller) and n_threads - 1, and belongs to
 * one thread for the whole call. */
typedef void (*hl_parallel_work)(void *context, int64_t first, int64_t end, int member);

/* work(context, ...) for every item in [0, n_items), at most n_threads at a time; returns when
 * all are done.  `grain` is the number of items per run; 0: four runs per thread. */
void hl_parallel(int n_threads, int64_t n_items, int64_t grain, hl_parallel_work work,
                 void *context);

/* Starts the threads that `n_callers` simultaneous calls need now, not at their first call.
 * Returns the number of threads, the callers included, that the smallest call will have:
 * n_threads, or fewer where the system grants no more. */
int hl_parallel_reserve(int n_callers, int n_threads);

/* For a thread that has lowered its own priority; call it before the thread's first hl_parallel.
 * Its calls then use separate threads, which inherit that priority and serve no other calls. */
void hl_parallel_background(void);

#endif
