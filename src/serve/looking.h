/* looking.h - the queue of views and measurements, which share the model with the texts being made.
 *
 *     hl_looker looker = { .exchange = exchange };
 *     status = hl_looking_enter(&server->looking, &looker);
 *     if (status == HL_OK)
 *         ... a session of its own ...
 *     hl_looking_leave(&server->looking, &looker);
 *
 * A view or a measurement takes a session's memory and all cores.  One of them works at a time, in
 * the order of arrival; a few may wait, and later ones are refused.  A client that disconnects
 * leaves the queue at once.  The working one has a lower priority than the engine, so it hardly
 * slows the texts that are being made. */
#ifndef HL_SERVE_LOOKING_H
#define HL_SERVE_LOOKING_H

#include <pthread.h>

#include "serve/http.h"

#define HL_LOOKING_MOST 8 /* limit of requests at work or waiting */

typedef struct hl_looker {
    hl_exchange      *exchange;
    bool              is_in; /* in the queue */
    struct hl_looker *next;
} hl_looker;

typedef struct hl_looking {
    pthread_mutex_t lock;
    hl_looker      *first; /* the request that is being worked on */
    int64_t         count;
} hl_looking;

void hl_looking_init(hl_looking *looking);
void hl_looking_destroy(hl_looking *looking);

/* Creates the threads that views and measurements share at once, instead of at the first request.
 * Returns their number including the caller: n_threads, or fewer if the system grants no more. */
int hl_looking_reserve(int n_threads);

/* Waits for its turn. Fails with HL_BUSY if too many are waiting and with HL_CANCELLED if the
 * client is gone. The priority of the calling thread stays low afterwards. */
hl_status hl_looking_enter(hl_looking *looking, hl_looker *looker);
/* Must follow every enter, whatever it returned. */
void hl_looking_leave(hl_looking *looking, hl_looker *looker);
/* Returns the number of requests at work or waiting. */
int64_t hl_looking_count(hl_looking *looking);

#endif
