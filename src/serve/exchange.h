/* exchange.h - the inside of an exchange, for http.c and exchange.c. */
#ifndef HL_SERVE_EXCHANGE_H
#define HL_SERVE_EXCHANGE_H

#include <pthread.h>

#include "serve/http.h"

typedef enum hl_exchange_state {
    HL_EXCHANGE_READING = 0, /* the request is not here yet */
    HL_EXCHANGE_WORKING,     /* a thread makes the answer */
    HL_EXCHANGE_ANSWERED,    /* `answer` is there */
    HL_EXCHANGE_STREAMING,   /* the pipe is open */
} hl_exchange_state;

/* How a sleeping exchange is woken on the server's thread. */
typedef struct hl_exchange_owner {
    void *connection;
    void (*resume)(void *connection);
    double stall_seconds;
} hl_exchange_owner;

struct hl_exchange {
    hl_exchange_owner owner;
    hl_http          *http;
    void             *native; /* the HTTP library's connection, for headers */
    char             *method;
    char             *path;
    char             *body;
    size_t            n_body;
    size_t            room;
    size_t            n_dropped; /* bytes of a body that is too long */
    int               tag;
    bool              is_through;    /* its request came whole: counted until its answer is read */
    bool              was_suspended; /* a thread answers, or has */

    hl_exchange_function work;
    void                *context;

    pthread_mutex_t   lock; /* of what follows */
    pthread_cond_t    wake;
    hl_exchange_state state;
    hl_answer         answer;
    const char       *stream_type;
    char             *pipe; /* (HL_HTTP_PIPE) from the thread at work; NULL before it is needed */
    size_t            n_pipe;
    bool              is_asleep; /* the connection is, until there is something to send */
    bool              is_ended;
    double            ended_at; /* by base/clock.h */
    bool              is_whole;
    bool              is_gone;
    bool              is_stalled;
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
/* A hl_connection_look: loses it if the other side has hung up; true: its reader is too slow. */
bool hl_exchange_look(void *exchange, bool has_hung_up);

/* Takes up to n_bytes out of the pipe.  0: none yet, and the connection is to sleep (is_asleep
 * is set); -1: the end; -2: it broke off.  `sleep` is called before anybody can wake it. */
int64_t hl_exchange_read(hl_exchange *exchange, char *out, size_t n_bytes,
                         void (*sleep)(void *connection));

#endif
