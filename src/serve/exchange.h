/* exchange.h - the inside of an exchange, for http.c and exchange.c. */
#ifndef HL_SERVE_EXCHANGE_H
#define HL_SERVE_EXCHANGE_H

#include <pthread.h>

#include "serve/framing.h"
#include "serve/http.h"

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
    char               *method;
    char               *path;
    char               *body;
    size_t              n_body;
    size_t              room;
    size_t              n_dropped; /* bytes of a body that is too long */
    int                 tag;
    int                 account;     /* the handler's own number of who pays; -1 at first */
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
    double            ended_at; /* by base/clock.h */
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

#endif
