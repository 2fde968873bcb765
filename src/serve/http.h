/* http.h - requests in, answers out: HTTP/1.1 over sockets.
 *
 *     hl_http_open(&http, &(hl_http_options){ .handler = { .request = answer } });
 *     hl_http_start(http);
 *     ...
 *     void answer(void *context, hl_exchange *exchange)
 *     {
 *         hl_exchange_answer(exchange, &(hl_answer){ .status = 200, .body = text });
 *     }
 *
 * An exchange is one request and its answer.  One thread, the server's, uses all sockets and calls
 * the handler, which must never block.  A handler that needs time requests a thread
 * (hl_exchange_work), which sends the answer at once or as a stream of bytes:
 *
 *     socket  <-  server's thread  <-  pipe of HL_HTTP_PIPE bytes  <-  the thread at work
 *
 * A client that reads too slowly fills the pipe, and only its own thread waits.  If all threads at
 * work wait for their clients when a new request arrives, the one that has waited longest is cut.
 *
 * All input has a limit: sockets, headers, bodies, threads at work, and the time for each of
 * these. */
#ifndef HL_SERVE_HTTP_H
#define HL_SERVE_HTTP_H

#include "base/memory.h"
#include "headlight/base.h"

typedef struct hl_http     hl_http;
typedef struct hl_exchange hl_exchange;

#define HL_HTTP_PIPE 16384

typedef struct hl_http_handler {
    void *context;
    /* The head of a request has arrived. Answering here refuses the request before its body is
     * read. */
    void (*head)(void *context, hl_exchange *exchange);
    /* The client sent something that is not a request. The handler answers with this status and
     * message; the connection is closed afterwards. */
    void (*malformed)(void *context, hl_exchange *exchange, int status, const char *message);
    /* The whole request has arrived. The handler answers it or calls hl_exchange_work. */
    void (*request)(void *context, hl_exchange *exchange);
    /* Called once per call of hl_exchange_work, from any thread: either that call failed, or the
     * work is done and its answer is about to be sent. */
    void (*worked)(void *context, hl_exchange *exchange);
    /* The answer's status is known. */
    void (*answered)(void *context, hl_exchange *exchange, int status);
} hl_http_handler;

typedef struct hl_http_options {
    const char *host; /* an address or a host name */
    int32_t     port; /* 0: any free port */
    size_t      max_body_bytes;
    int64_t     max_connections;
    int64_t     max_work; /* limit of exchanges at work */
    /* Limit of exchanges at work for one address. 0: half of max_work; for this machine's own
     * addresses, all of max_work. */
    int64_t         max_per_peer;
    double          request_seconds; /* time limit for a request to arrive completely */
    double          stall_seconds;   /* time that a stream waits for a client that does not read */
    hl_http_handler handler;
} hl_http_options;

/* Binds the address. Fails with HL_IO and the system's reason if it cannot, and with HL_LIMIT if
 * the process may not open enough files. Nothing is answered before hl_http_start. */
hl_status hl_http_open(hl_http **out, const hl_http_options *options);
hl_status hl_http_start(hl_http *http);
int32_t   hl_http_port(const hl_http *http);
/* Returns the address that it listens on, as text, and whether that means all addresses. */
const char *hl_http_address(const hl_http *http, bool *is_any);
/* From now on, connections are closed after their answers. New ones are still accepted so that they
 * get an answer. */
void hl_http_quiesce(hl_http *http);
/* Waits up to `seconds` for exchanges at work and for their answers to be sent, then cuts the
 * remaining ones. The handler must not begin new work. */
void hl_http_drain(hl_http *http, double seconds);
/* Drains with a timeout of 0 and frees everything. Accepts NULL. */
void hl_http_close(hl_http *http);
HL_CLOSES(hl_http_close, hl_http)

typedef struct hl_http_counts {
    int64_t n_connections; /* number of connections now */
    int64_t n_working;     /* number of exchanges at work now */
    int64_t n_late;        /* connections cut because they were too slow */
    int64_t n_many;        /* connections cut because there were too many */
    int64_t n_stalled;     /* streams cut because the client did not read them */
} hl_http_counts;

hl_http_counts hl_http_count(hl_http *http);

/* ------------------------------------------------------------------- exchanges */

/* A request, as the handler sees it. */
typedef struct hl_request {
    char  *method;
    char  *path;
    char  *body; /* (n_body), NUL-terminated; NULL: there is no body, or it has not arrived yet */
    size_t n_body;
    size_t
        n_dropped; /* bytes dropped of a body over the size limit; such a body is not kept at all */
    int tag;       /* free for the handler; initially 0 */
    /* free for the handler: the account that the request is charged to; initially -1 */
    int account;
} hl_request;

/* Borrowed from the exchange. */
hl_request *hl_exchange_request(hl_exchange *exchange);
/* Only valid in `head`. Returns NULL if there is no such field. */
const char *hl_exchange_header(const hl_exchange *exchange, const char *name);

typedef struct hl_answer {
    int         status;
    const char *type; /* NULL: application/json */
    char       *body; /* from hl_alloc; the exchange takes ownership. NULL: empty */
    size_t      n_bytes;
    const char *header; /* name of one additional header, static; or NULL */
    const char *value;
} hl_answer;

/* Call it once per exchange, unless the exchange begins a stream. */
void hl_exchange_answer(hl_exchange *exchange, const hl_answer *answer);

/* Calls work(context, exchange) on a thread of its own. Fails with HL_BUSY if too many exchanges
 * are at work, in total or for this address. Only valid in `request`. */
typedef void (*hl_exchange_function)(void *context, hl_exchange *exchange);
hl_status hl_exchange_work(hl_exchange *exchange, hl_exchange_function work, void *context);

/* Begins a stream of bytes with status 200. Call it from the thread at work. */
void hl_exchange_begin(hl_exchange *exchange, const char *type);
/* Returns false if the client no longer reads. */
bool hl_exchange_write(hl_exchange *exchange, const void *bytes, size_t n_bytes);
/* Ends the stream. If it is not whole, the client can see that it was cut off. */
void hl_exchange_end(hl_exchange *exchange, bool whole);

/* Has the client hung up, or been disconnected? */
bool hl_exchange_is_gone(hl_exchange *exchange);
/* Waits for hl_exchange_wake, until the client is gone, or for `seconds`. A wake since the last
 * wait counts. */
void hl_exchange_wait(hl_exchange *exchange, double seconds);
/* May be called from any thread while the work is in progress. */
void hl_exchange_wake(hl_exchange *exchange);

#endif
