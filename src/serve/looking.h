/* looking.h - who may look into the model beside the texts that are being made.
 *
 *     hl_looker looker = { .exchange = exchange };
 *     status = hl_looking_enter(&server->looking, &looker);
 *     if (status == HL_OK)
 *         ... a session of its own ...
 *     hl_looking_leave(&server->looking, &looker);
 *
 * Views and measurements take a session's memory and all cores.  So one of them works at a time,
 * in the order in which they came; a few wait, and whoever comes then is refused.  A client that
 * goes away leaves the queue at once.  The one that works has a lower priority than the engine: a text
 * that is being made loses little by it. */
#ifndef HL_SERVE_LOOKING_H
#define HL_SERVE_LOOKING_H

#include <pthread.h>

#include "serve/http.h"

#define HL_LOOKING_MOST 8 /* at work or waiting */

typedef struct hl_looker {
    hl_exchange      *exchange;
    bool              is_in; /* the queue */
    struct hl_looker *next;
} hl_looker;

typedef struct hl_looking {
    pthread_mutex_t lock;
    hl_looker      *first; /* the one that works */
    int64_t         count;
} hl_looking;

void hl_looking_init(hl_looking *looking);
void hl_looking_destroy(hl_looking *looking);

/* Makes the threads that views and measurements share out their work to, now and not at the first
 * of them.  Returns how many there are, the caller included: n_threads, or fewer where the system
 * grants no more. */
int hl_looking_reserve(int n_threads);

/* Waits for its turn.  HL_BUSY: too many do; HL_CANCELLED: the client is gone.  From a thread that
 * does nothing else any more: its priority stays low. */
hl_status hl_looking_enter(hl_looking *looking, hl_looker *looker);
/* After every enter, whatever it said. */
void hl_looking_leave(hl_looking *looking, hl_looker *looker);
/* Now, those that wait among them. */
int64_t hl_looking_count(hl_looking *looking);

#endif
