/* connections.h - every open socket of a server, and how long it may keep us waiting.
 *
 * The HTTP library tells when a socket opens and closes; this list remembers what each is
 * waiting for and a thread of its own looks at all of them a few times a second:
 *
 *     waiting    for a whole request: cut when it takes too long, however slowly bytes still
 *                come; and, the longest first, when there are too many sockets
 *     working    an answer is being made: is anybody still there to read it?
 *     answering  the last bytes are on their way: cut when they take too long
 *
 * Sockets are not closed here but shut down, and the HTTP library then finds them at their
 * end; so that nobody else's socket can be hit, entries leave the list before theirs is closed.
 */
#ifndef HL_SERVE_CONNECTIONS_H
#define HL_SERVE_CONNECTIONS_H

#include "headlight.h"

typedef struct hl_connections hl_connections;
typedef struct hl_connection  hl_connection;

typedef struct hl_connections_options {
    int64_t most;            /* sockets; with more the longest waiting one is cut */
    double  request_seconds; /* for a request to come whole, and between two of them */
    double  answer_seconds;  /* for the rest of an answer to be read */
} hl_connections_options;

/* Starts the thread. */
hl_status hl_connections_open(hl_connections **out, const hl_connections_options *options);
/* All connections must have been removed. */
void hl_connections_close(hl_connections *connections);

/* Waiting, from now on.  NULL where memory is out. */
hl_connection *hl_connections_add(hl_connections *connections, int socket);
void           hl_connections_remove(hl_connections *connections, hl_connection *connection);

void hl_connection_wait(hl_connections *connections, hl_connection *connection);
/* look(context, has_hung_up) is called in every round: has the other side closed?  True from it
 * cuts the connection. */
typedef bool (*hl_connection_look)(void *context, bool has_hung_up);
void hl_connection_work(hl_connections *connections, hl_connection *connection,
                        hl_connection_look look, void *context);
void hl_connection_answer(hl_connections *connections, hl_connection *connection);

/* Tells all that work that the other side is gone. */
void hl_connections_lose_all(hl_connections *connections);

typedef struct hl_connections_counts {
    int64_t n_open; /* now */
    int64_t n_late; /* cut since the beginning: a request or a reader was too slow, */
    int64_t n_many; /* or there were too many */
} hl_connections_counts;

hl_connections_counts hl_connections_count(hl_connections *connections);

#endif
