/* http_parts.h - the inside of http.h: what http.c, http_connection.c and exchange.c share. */
#ifndef HL_SERVE_HTTP_PARTS_H
#define HL_SERVE_HTTP_PARTS_H

#include <poll.h>
#include <pthread.h>

#include "serve/framing.h"
#include "serve/http.h"

/* ---------------------------------------------------------------- exchange.c */

typedef enum hl_exchange_state {
    HL_EXCHANGE_READING = 0, /* the request is not here yet */
    HL_EXCHANGE_WORKING,     /* a thread makes the answer */
    HL_EXCHANGE_ANSWERED,    /* `answer` is there */
    HL_EXCHANGE_STREAMING,   /* the pipe is open */
} hl_exchange_state;

/* Whoever sends the answer. */
typedef struct hl_exchange_owner {
    void *context;
    void (*wake)(void *context); /* there is something to send.  From any thread */
    /* The work is done, and the answer about to be seen; NULL: there was no work.  May be called
     * more than once. */
    void (*end)(hl_exchange *exchange);
    double stall_seconds;
} hl_exchange_owner;

struct hl_exchange {
    hl_exchange_owner   owner;
    hl_http            *http;
    const hl_http_head *head; /* while handler.head runs; its values end with a NUL */
    struct hl_peer     *peer; /* who asks */
    hl_request          request;
    size_t              room;        /* of its body */
    bool                was_at_work; /* a thread answers, or has */
    bool                is_counted;  /* among the exchanges at work; http.c's lock guards it */

    hl_exchange_function work;
    void                *context;

    pthread_mutex_t   lock; /* of what follows */
    pthread_cond_t    wake;
    hl_exchange_state state;
    hl_answer         answer;
    const char       *stream_type;
    char             *pipe; /* (HL_HTTP_PIPE) from the thread at work; NULL before it is needed */
    size_t            n_pipe;
    bool              is_ended;
    double            ended_at; /* by base/machine.h */
    bool              is_whole;
    bool              is_gone;
    bool              is_stalled;
    double            full_since;   /* when the writer began to wait for room; 0: it does not */
    double            full_seconds; /* that it has waited before that */
    bool              is_woken;
    int               n_holders; /* who still use it */
};

hl_status hl_exchange_new(hl_exchange **out, hl_http *http, const char *method, const char *path);
void      hl_exchange_hold(hl_exchange *exchange);
/* The last one frees it. */
void hl_exchange_release(hl_exchange *exchange);

/* The body grows; what is beyond `most` is counted and dropped.  False: memory is out. */
bool hl_exchange_receive(hl_exchange *exchange, const char *bytes, size_t n_bytes, size_t most);

/* The other side is gone: whoever waits shall know. */
void hl_exchange_lose(hl_exchange *exchange);
/* Its reader is so slow that it must go: the stream is over. */
void hl_exchange_stall(hl_exchange *exchange);
/* Has its reader been too slow for a stream that waits, or for the rest of one that ended? */
bool hl_exchange_is_late(hl_exchange *exchange);
/* For how many seconds the thread at work has waited for its reader, all together. */
double hl_exchange_full_seconds(hl_exchange *exchange);

/* Takes up to n_bytes out of the pipe.  0: none yet; -1: the end; -2: it broke off. */
int64_t hl_exchange_read(hl_exchange *exchange, char *out, size_t n_bytes);

/* --------------------------------------------------------------- connections */

/* All connections from one address; of IPv6, from one network of 2^64 addresses. */
typedef struct hl_peer {
    struct hl_peer *next;
    unsigned char   key[16];
    bool            is_near; /* this machine itself */
    int64_t         n_connections;
    int64_t         n_working;
} hl_peer;

/* As http.c describes them. */
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
    double                since;   /* of the state */
    bool                  is_over; /* to be closed */

    char        *in; /* (n_in of in_room) bytes that came and were not understood yet */
    size_t       n_in;
    size_t       in_room;
    size_t       n_seen;   /* bytes of it that were looked at for a whole head */
    hl_exchange *exchange; /* the request that is read, made or sent; NULL: there is none */
    hl_http_body body;
    size_t       n_dropped;  /* while LINGERING */
    bool         keeps_open; /* for another request */

    char  *out; /* (n_out) the head of an answer or a piece of a stream */
    size_t n_out;
    size_t at_out; /* what of it is sent */
    size_t at_body;
    bool   has_body; /* the answer does: not for HEAD */
    bool   is_stream;
    bool   is_chunked;
    bool   is_last; /* `out` has the end of the stream */
    bool   is_head; /* the method is HEAD */
    int    minor;   /* of the request's HTTP/1.x */
} hl_connection;

struct hl_http {
    hl_http_options options;
    int             listener;
    int             wake[2];   /* a pipe: a byte in it wakes the thread */
    bool            is_woken;  /* this and the next three are read and written as atomic ones */
    bool            is_quiet;  /* connections close behind their answers */
    bool            is_losing; /* all exchanges are to be lost */
    bool            is_closing;
    pthread_t       thread;
    bool            has_thread;
    int32_t         port;
    char            address[128]; /* as text */
    bool            is_any;

    /* The thread's. */
    hl_connection  list;   /* a ring through this head; who changes its state goes to the end */
    struct pollfd *polled; /* (n_polled) */
    size_t         n_polled;
    double         accept_after; /* the system had no descriptor left before */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t  idle; /* no thread is at work */
    int64_t         n_threads;
    hl_peer        *peers;
    hl_http_counts  counts;
    int64_t         n_through; /* exchanges that were at work and whose answer is not sent yet */
};

/* ------------------------------------------------------------------------ http.c */

/* Wakes the thread; the context is a hl_http.  From any thread. */
void hl_http_wake(void *http);
/* A new state, from now on; the connection goes to the end of the list. */
void hl_connection_enter(hl_http *http, hl_connection *c, hl_connection_state state);
/* The exchange is done with: its answer was sent, or will never be. */
void hl_connection_leave(hl_http *http, hl_connection *c, bool sent);

/* ------------------------------------------------------------- http_connection.c */

/* Bytes are there to be read. */
void hl_connection_receive(hl_http *http, hl_connection *c);
/* Takes requests out of what has come, and answers them, as far as that goes without waiting. */
void hl_connection_read(hl_http *http, hl_connection *c);
/* Begins to send if the exchange that is at work has an answer by now. */
void hl_connection_proceed(hl_http *http, hl_connection *c);
/* Sends until the socket is full or there is no more. */
void hl_connection_send(hl_http *http, hl_connection *c);
/* Is there anything to send that the socket did not take? */
bool hl_connection_has_unsent(const hl_connection *c);
/* Reads bytes of a client that has its answer, and forgets them. */
void hl_connection_drop(hl_connection *c);

#endif
