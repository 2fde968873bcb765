/* looking.c - a queue of exchanges; each one that leaves wakes the next. */
#include "serve/server.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/locks.h"
#include "base/status.h"
#include "base/threads.h"

#define WAIT_SECONDS 5.0
#define NICER        10 /* increment of nice; leaves a tenth of a core beside the engine */

void hl_looking_init(hl_looking *looking)
{
    *looking = (hl_looking){ 0 };
    pthread_mutex_init(&looking->lock, NULL);
}

void hl_looking_destroy(hl_looking *looking)
{
    pthread_mutex_destroy(&looking->lock);
}

/* Linux has a priority per thread, and new threads inherit it. Elsewhere it would apply to the
 * whole process. */
static void lower_priority(void)
{
#ifdef __linux__
    errno   = 0;
    int now = getpriority(PRIO_PROCESS, 0);

    if (errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, now + NICER);
#endif
    hl_parallel_background();
}

/* Starts the threads of views and measurements from a thread that has their priority. */
static void *reserve(void *n_threads)
{
    int *n = n_threads;

    lower_priority();
    *n = hl_parallel_reserve(1, *n);
    return NULL;
}

int hl_looking_reserve(int n_threads)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, reserve, &n_threads) != 0)
        return 0;
    pthread_join(thread, NULL);
    return n_threads;
}

static bool join(hl_looking *looking, hl_looker *looker)
{
    hl_looker **end = &looking->first;

    HL_LOCKED(&looking->lock);
    if (looking->count >= HL_LOOKING_MOST)
        return false;
    while (*end != NULL)
        end = &(*end)->next;
    *end          = looker;
    looker->is_in = true;
    looking->count++;
    return true;
}

static bool is_first(hl_looking *looking, const hl_looker *looker)
{
    HL_LOCKED(&looking->lock);
    return looking->first == looker;
}

hl_status hl_looking_enter(hl_looking *looking, hl_looker *looker)
{
    if (!join(looking, looker))
        return hl_fail(
            HL_BUSY,
            "the server is busy: %d views and measurements are already waiting; try again later",
            HL_LOOKING_MOST);
    while (!is_first(looking, looker) && !hl_exchange_is_gone(looker->exchange))
        hl_exchange_wait(looker->exchange, WAIT_SECONDS);
    if (hl_exchange_is_gone(looker->exchange))
        return hl_fail(HL_CANCELLED, "the client closed the connection");
    lower_priority();
    return HL_OK;
}

/* Wakes the next one under the lock: until then it cannot leave, and its exchange cannot end. */
void hl_looking_leave(hl_looking *looking, hl_looker *looker)
{
    hl_looker **at = &looking->first;

    if (!looker->is_in)
        return;
    HL_LOCKED(&looking->lock);
    bool was_first = looking->first == looker;
    while (*at != looker)
        at = &(*at)->next;
    *at           = looker->next;
    looker->is_in = false;
    looking->count--;
    if (was_first && looking->first != NULL)
        hl_exchange_wake(looking->first->exchange);
}

int64_t hl_looking_count(hl_looking *looking)
{
    HL_LOCKED(&looking->lock);
    return looking->count;
}
