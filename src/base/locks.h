/* locks.h - a mutex held to the end of a scope, and condition variables that wait with a deadline.
 *
 *     HL_LOCKED(&server->lock);
 *     return server->is_draining;
 *
 * The returned value is read before the mutex is released. */
#ifndef HL_BASE_LOCKS_H
#define HL_BASE_LOCKS_H

#include <pthread.h>
#include <time.h>

#include "base/machine.h"
#include "base/memory.h"

static inline pthread_mutex_t *hl_locked(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void hl_unlock_at(pthread_mutex_t **held)
{
    pthread_mutex_unlock(*held);
}

#define HL_LOCKED(mutex)                                                                           \
    HL_SCOPED(hl_unlock_at) __attribute__((unused)) pthread_mutex_t *hl_held = hl_locked(mutex)

/* A condition variable whose deadlines use hl_clock_seconds. */
static inline void hl_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Waits, under the mutex, at most until `until` by hl_clock_seconds; false if that has passed. */
static inline bool hl_condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                     double until)
{
    double          now = hl_clock_seconds();
    struct timespec when;

    if (now >= until)
        return false;
    until        = until < now + 1e6 ? until : now + 1e6; /* the deadline is moved nearer to avoid
                                                           * overflow; callers wait in loops */
    when.tv_sec  = (time_t)until;
    when.tv_nsec = (long)((until - (double)when.tv_sec) * 1e9);
    pthread_cond_timedwait(condition, mutex, &when);
    return true;
}

#endif
