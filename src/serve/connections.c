/* connections.c - the list of sockets, and the thread that looks after it. */
#include "serve/connections.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#define ROUND_SECONDS 0.1

typedef enum connection_state { WAITING = 0, WORKING, ANSWERING } connection_state;

struct hl_connection {
    hl_connection     *next;
    hl_connection     *previous;
    int                socket;
    connection_state   state;
    double             since; /* of the state */
    bool               is_cut;
    hl_connection_look look; /* of WORKING */
    void              *context;
};

struct hl_connections {
    hl_connections_options options;
    hl_connections_counts  counts;
    pthread_mutex_t        lock;
    pthread_cond_t         wake; /* the thread, to end */
    pthread_t              thread;
    bool                   ends;
    hl_connection          list; /* a ring through this head, the newest entry before it */
};

/* ---------------------------------------------------------------------- rounds */

static void cut(hl_connection *connection)
{
    connection->is_cut = true;
    shutdown(connection->socket, SHUT_RDWR);
}

/* Reset, or closed behind all that was sent; what is only looked at stays for its reader. */
static bool has_hung_up(const hl_connection *connection)
{
    struct pollfd look = { .fd = connection->socket };
    char          byte;

    if (poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0)
        return true;
    return recv(connection->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void look_at(hl_connections *connections, hl_connection *connection, double now)
{
    const hl_connections_options *options = &connections->options;
    double                        waited  = now - connection->since;

    if (connection->is_cut)
        return;
    if (connection->state == WORKING) {
        if (connection->look(connection->context, has_hung_up(connection)))
            cut(connection);
    } else if (waited > (connection->state == WAITING ? options->request_seconds
                                                      : options->answer_seconds)) {
        connections->counts.n_late++;
        cut(connection);
    }
}

static void *watch(void *context)
{
    hl_connections *connections = context;
    struct timespec until;

    pthread_mutex_lock(&connections->lock);
    while (!connections->ends) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)(ROUND_SECONDS * 1e9);
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&connections->wake, &connections->lock, &until);
        double now = hl_clock_seconds();
        for (hl_connection *at = connections->list.next; at != &connections->list; at = at->next)
            look_at(connections, at, now);
    }
    pthread_mutex_unlock(&connections->lock);
    return NULL;
}

/* ------------------------------------------------------------ open and close */

hl_status hl_connections_open(hl_connections **out, const hl_connections_options *options)
{
    hl_connections *made   = NULL;
    hl_status       status = HL_ALLOC_ZEROED(&made, 1);

    *out = NULL;
    if (status != HL_OK)
        return status;
    made->options   = *options;
    made->list.next = made->list.previous = &made->list;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->wake, NULL);
    if (pthread_create(&made->thread, NULL, watch, made) != 0) {
        pthread_cond_destroy(&made->wake);
        pthread_mutex_destroy(&made->lock);
        hl_free(made);
        return hl_fail(HL_LIMIT, "no thread can be started");
    }
    *out = made;
    return HL_OK;
}

void hl_connections_close(hl_connections *connections)
{
    if (connections == NULL)
        return;
    pthread_mutex_lock(&connections->lock);
    connections->ends = true;
    pthread_cond_signal(&connections->wake);
    pthread_mutex_unlock(&connections->lock);
    pthread_join(connections->thread, NULL);
    pthread_cond_destroy(&connections->wake);
    pthread_mutex_destroy(&connections->lock);
    hl_free(connections);
}

/* ----------------------------------------------------------------- the entries */

/* The first in the list that waits has waited for longest: who begins to wait goes to the end. */
static void cut_longest_waiting(hl_connections *connections)
{
    for (hl_connection *at = connections->list.next; at != &connections->list; at = at->next) {
        if (at->state == WAITING && !at->is_cut) {
            connections->counts.n_many++;
            cut(at);
            return;
        }
    }
}

static void link_last(hl_connections *connections, hl_connection *connection)
{
    connection->next           = &connections->list;
    connection->previous       = connections->list.previous;
    connection->previous->next = connection;
    connection->next->previous = connection;
}

static void unlink_entry(hl_connection *connection)
{
    connection->previous->next = connection->next;
    connection->next->previous = connection->previous;
}

hl_connection *hl_connections_add(hl_connections *connections, int socket)
{
    hl_connection *made = NULL;

    if (HL_ALLOC_ZEROED(&made, 1) != HL_OK)
        return NULL;
    made->socket = socket;
    made->since  = hl_clock_seconds();
    pthread_mutex_lock(&connections->lock);
    if (connections->counts.n_open >= connections->options.most)
        cut_longest_waiting(connections);
    link_last(connections, made);
    connections->counts.n_open++;
    pthread_mutex_unlock(&connections->lock);
    return made;
}

void hl_connections_remove(hl_connections *connections, hl_connection *connection)
{
    if (connection == NULL)
        return;
    pthread_mutex_lock(&connections->lock);
    unlink_entry(connection);
    connections->counts.n_open--;
    pthread_mutex_unlock(&connections->lock);
    hl_free(connection);
}

static void enter(hl_connections *connections, hl_connection *connection, connection_state state,
                  hl_connection_look look, void *context)
{
    if (connection == NULL)
        return;
    pthread_mutex_lock(&connections->lock);
    connection->state   = state;
    connection->since   = hl_clock_seconds();
    connection->look    = look;
    connection->context = context;
    unlink_entry(connection);
    link_last(connections, connection);
    pthread_mutex_unlock(&connections->lock);
}

void hl_connection_wait(hl_connections *connections, hl_connection *connection)
{
    enter(connections, connection, WAITING, NULL, NULL);
}

void hl_connection_work(hl_connections *connections, hl_connection *connection,
                        hl_connection_look look, void *context)
{
    enter(connections, connection, WORKING, look, context);
}

void hl_connection_answer(hl_connections *connections, hl_connection *connection)
{
    enter(connections, connection, ANSWERING, NULL, NULL);
}

void hl_connections_lose_all(hl_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    for (hl_connection *at = connections->list.next; at != &connections->list; at = at->next) {
        if (at->state == WORKING)
            at->look(at->context, true);
    }
    pthread_mutex_unlock(&connections->lock);
}

hl_connections_counts hl_connections_count(hl_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    hl_connections_counts counts = connections->counts;
    pthread_mutex_unlock(&connections->lock);
    return counts;
}
