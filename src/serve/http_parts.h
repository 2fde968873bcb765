/* http_parts.h - internals of http.h, shared by http.c, http_connection.c and exchange.c. */
#ifndef HL_SERVE_HTTP_PARTS_H
#define HL_SERVE_HTTP_PARTS_H

#include <poll.h>
#include <pthread.h>

#include "serve/framing.h"
#include "serve/http.h"

/* ---------------------------------------------------------------- exchange.c */

typedef enum hl_exchange_state {
    HL_EXCHANGE_READING = 0, /* the request has not arrived completely */
    HL_EXCHANGE_WORKING,     /* a thread is making the answer */
    HL_EXCHANGE_ANSWERED,    /* `answer` is set */
    HL_EXCHANGE_STREAMING,   /* the pipe is open */
} hl_exchange_state;

/* The side that sends the answer. */
typedef struct hl_exchange_owner {
    void *context;
    /* Reports that there is something to send. Called from any thread. */
    void (*wake)(void *context);
    /* Called when the work is done and the answer is about to become visible; may be called more
     * than once. NULL: there was no work. */
    void (*end)(hl_exchange *exchange);
    double stall_seconds;
} hl_exchange_owner;

struct hl_exchange {
    hl_exchange_owner   owner;
    hl_http            *http;
    const hl_http_head *head; /* set while handler.head runs; its values are NUL-terminated */
    struct hl_peer     *peer; /* the client's address */
    hl_request          request;
    size_t              room;        /* allocated bytes of the request's body */
    bool                was_at_work; /* a thread is or was making the answer */
    /* counts among the exchanges at work; guarded by the lock of hl_http */
    bool is_counted;

    hl_exchange_function work;
    void                *context;

    pthread_mutex_t   lock; /* guards the fields below */
    pthread_cond_t    wake;
    hl_exchange_state state;
    hl_answer         answer;
    const char       *stream_type;
    /* (HL_HTTP_PIPE) written by the thread at work; NULL until it is needed */
    char  *pipe;
    size_t n_pipe;
    bool   is_ended;
    double ended_at; /* on the clock of base/machine.h */
    bool   is_whole;
    bool   is_gone;
    bool   is_stalled;
    double full_since;   /* when the writer began to wait for room; 0: it is not waiting */
    double full_seconds; /* total of the writer's earlier waits */
    bool   is_woken;
    int    n_holders; /* reference count */
};

hl_status hl_exchange_new(hl_exchange **out, hl_http *http, const char *method, const char *path);
void      hl_exchange_hold(hl_exchange *exchange);
/* The last holder frees the exchange. */
void hl_exchange_release(hl_exchange *exchange);

/* Appends to the body; bytes beyond `most` are counted and dropped. Returns false if out of
 * memory. */
bool hl_exchange_receive(hl_exchange *exchange, const char *bytes, size_t n_bytes, size_t most);

/* Reports to all waiting threads that the client is gone. */
void hl_exchange_lose(hl_exchange *exchange);
/* Ends the stream because its client reads too slowly. */
void hl_exchange_stall(hl_exchange *exchange);
/* Has the client been too slow, for a stream that waits or for the rest of one that ended? */
bool hl_exchange_is_late(hl_exchange *exchange);
/* Returns the total time, in seconds, that the thread at work has waited for the client. */
double hl_exchange_full_seconds(hl_exchange *exchange);

/* Takes up to n_bytes out of the pipe. Returns 0 if it is empty for now, -1 at the end, and -2 if
 * the stream was cut off. */
int64_t hl_exchange_read(hl_exchange *exchange, char *out, size_t n_bytes);

/* --------------------------------------------------------------- connections */

/* All connections from one address; for IPv6, from one /64 network. */
typedef struct hl_peer {
    struct hl_peer *next;
    unsigned char   key[16];
    bool            is_near; /* a connection from this machine itself */
    int64_t         n_connections;
    int64_t         n_working;
} hl_peer;

/* The states are described in http.c. */
typedef enum hl_connection_state {
    HL_CONNECTION_READING = 0,
    HL_CONNECTION_WORKING,
    HL_CONNECTION_SENDING,
    HL_CONNECTION_LINGERING,
} hl_connection_state;

typedef struct hl_connection {
    struct hl_connection *next;
    struct hl_connection *previous;
    int                   socket;
    hl_peer              *peer;
    hl_connection_state   state;
    double                since;   /* time at which the connection entered its state */
    bool                  is_over; /* the connection is to be closed */

    char        *in; /* (n_in of in_room) bytes received and not yet parsed */
    size_t       n_in;
    size_t       in_room;
    size_t       n_seen;   /* bytes of `in` already searched for the end of the head */
    hl_exchange *exchange; /* the request being read, worked on or answered; NULL: none */
    hl_http_body body;
    size_t       n_dropped;  /* bytes dropped while LINGERING */
    bool         keeps_open; /* stays open for another request */

    char  *out; /* (n_out) the head of an answer or a part of a stream */
    size_t n_out;
    size_t at_out; /* bytes of `out` already sent */
    size_t at_body;
    bool   has_body; /* The answer has a body; false for HEAD. */
    bool   is_stream;
    bool   is_chunked;
    bool   is_last; /* `out` contains the end of the stream */
    bool   is_head; /* the method is HEAD */
    int    minor;   /* minor version of the request's HTTP/1.x */
} hl_connection;

struct hl_http {
    hl_http_options options;
    int             listener;
    int             wake[2];   /* a pipe; a byte in it wakes the server thread */
    bool            is_woken;  /* This field and the next three are accessed atomically. */
    bool            is_quiet;  /* connections close after their answers */
    bool            is_losing; /* all exchanges are to be dropped */
    bool            is_closing;
    pthread_t       thread;
    bool            has_thread;
    int32_t         port;
    char            address[128]; /* the address as text */
    bool            is_any;

    /* The fields up to the lock belong to the server thread. */
    /* A ring through this head; a connection that changes its state moves to the end. */
    hl_connection  list;
    struct pollfd *polled; /* (n_polled) */
    size_t         n_polled;
    /* No accept before this time, because the system had no free descriptor. */
    double accept_after;

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t  idle; /* signaled when no thread is at work */
    int64_t         n_threads;
    hl_peer        *peers;
    hl_http_counts  counts;
    /* exchanges that were at work and whose answer has not been sent yet */
    int64_t n_through;
};

/* ------------------------------------------------------------------------ http.c */

/* Wakes the server thread; the context is a hl_http. May be called from any thread. */
void hl_http_wake(void *http);
/* Enters a new state now and moves the connection to the end of the list. */
void hl_connection_enter(hl_http *http, hl_connection *c, hl_connection_state state);
/* Releases the exchange: its answer was sent, or never will be. */
void hl_connection_leave(hl_http *http, hl_connection *c, bool sent);

/* ------------------------------------------------------------- http_connection.c */

/* Reads from the socket. Call it when bytes are available. */
void hl_connection_receive(hl_http *http, hl_connection *c);
/* Parses requests out of the received bytes and answers them, as far as possible without
 * waiting. */
void hl_connection_read(hl_http *http, hl_connection *c);
/* Begins to send if the exchange at work has an answer by now. */
void hl_connection_proceed(hl_http *http, hl_connection *c);
/* Sends until the socket is full or nothing is left. */
void hl_connection_send(hl_http *http, hl_connection *c);
/* Is there anything to send that the socket has not accepted yet? */
bool hl_connection_has_unsent(const hl_connection *c);
/* Reads and discards bytes of a client that already has its answer. */
void hl_connection_drop(hl_connection *c);

#endif
