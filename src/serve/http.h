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
 * An exchange is one request and its answer.  One thread, the server's, speaks to all sockets and
 * calls the handler; it must never be kept waiting.  What takes time asks for a thread
 * (hl_exchange_work) and answers from there, at once or as a stream of bytes:
 *
 *     socket  <-  server's thread  <-  pipe of HL_HTTP_PIPE bytes  <-  the thread at work
 *
 * A reader that is too slow fills the pipe, and with it only its own thread waits.  Where all
 * threads at work wait for readers and somebody new asks, the one that has waited for longest is
 * cut.
 *
 * Everything that comes in has a limit: sockets, headers, bodies, threads at work, the time
 * that each of these may take. */
#ifndef HL_SERVE_HTTP_H
#define HL_SERVE_HTTP_H

#include "base/memory.h"
#include "headlight/base.h"

typedef struct hl_http     hl_http;
typedef struct hl_exchange hl_exchange;

#define HL_HTTP_PIPE 16384

typedef struct hl_http_handler {
    void *context;
    /* The head of a request is here; may answer, which refuses it before its body is read. */
    void (*head)(void *context, hl_exchange *exchange);
    /* What came is not a request: answers with this status and message.  Connections are closed
     * behind it. */
    void (*malformed)(void *context, hl_exchange *exchange, int status, const char *message);
    /* All of it is here: answers, or calls hl_exchange_work. */
    void (*request)(void *context, hl_exchange *exchange);
    /* Once for each call of hl_exchange_work: it failed, or the work is done and its answer about
     * to be sent.  From any thread. */
    void (*worked)(void *context, hl_exchange *exchange);
    /* The answer's status is known. */
    void (*answered)(void *context, hl_exchange *exchange, int status);
} hl_http_handler;

typedef struct hl_http_options {
    const char     *host; /* an address or a name */
    int32_t         port; /* 0: any that is free */
    size_t          max_body_bytes;
    int64_t         max_connections;
    int64_t         max_work;        /* exchanges at work */
    int64_t         max_per_peer;    /* exchanges at work for one address; 0: half of max_work,
                                      * and all of them for this machine's own addresses */
    double          request_seconds; /* for a request to come whole */
    double          stall_seconds;   /* that a stream waits for its reader */
    hl_http_handler handler;
} hl_http_options;

/* Takes the address; HL_IO with the system's reason where it cannot, HL_LIMIT where the process may
 * not open enough files.  Nobody is answered before hl_http_start. */
hl_status hl_http_open(hl_http **out, const hl_http_options *options);
hl_status hl_http_start(hl_http *http);
int32_t   hl_http_port(const hl_http *http);
/* The address it listens at, as text, and whether that stands for all addresses. */
const char *hl_http_address(const hl_http *http, bool *is_any);
/* From now on connections are closed behind their answers.  New ones are still accepted, so that
 * they can be told. */
void hl_http_quiesce(hl_http *http);
/* Waits for exchanges at work and for their answers to be sent, for `seconds`; those that are left
 * then are cut.  The handler must begin no more work. */
void hl_http_drain(hl_http *http, double seconds);
/* Drains for no time, then ends.  Accepts NULL. */
void hl_http_close(hl_http *http);
HL_CLOSES(hl_http_close, hl_http)

typedef struct hl_http_counts {
    int64_t n_connections; /* now */
    int64_t n_working;     /* now */
    int64_t n_late;        /* connections cut because they were too slow */
    int64_t n_many;        /* connections cut because there were too many */
    int64_t n_stalled;     /* streams cut because nobody read them */
} hl_http_counts;

hl_http_counts hl_http_count(hl_http *http);

/* ------------------------------------------------------------------- exchanges */

/* What is asked. */
typedef struct hl_request {
    char  *method;
    char  *path;
    char  *body; /* (n_body) and a NUL behind them; NULL: it has none, or not yet */
    size_t n_body;
    size_t
        n_dropped; /* bytes of a body that is longer than it may be: then there is none to read */
    int tag;       /* the handler's own number; at first 0 */
    int account;   /* another: on whose account the request is; at first -1 */
} hl_request;

/* Borrowed from the exchange. */
hl_request *hl_exchange_request(hl_exchange *exchange);
/* In `head` only; NULL: there is none. */
const char *hl_exchange_header(const hl_exchange *exchange, const char *name);

typedef struct hl_answer {
    int         status;
    const char *type; /* NULL: application/json */
    char       *body; /* of hl_alloc; goes to the exchange.  NULL: empty */
    size_t      n_bytes;
    const char *header; /* one more, static: its name, */
    const char *value;
} hl_answer;

/* Once for an exchange, unless it begins a stream. */
void hl_exchange_answer(hl_exchange *exchange, const hl_answer *answer);

/* Calls work(context, exchange) on a thread of its own.  HL_BUSY: too many are at work, or too many
 * for this address.  In `request` only. */
typedef void (*hl_exchange_function)(void *context, hl_exchange *exchange);
hl_status hl_exchange_work(hl_exchange *exchange, hl_exchange_function work, void *context);

/* From the thread at work.  A stream of bytes with status 200, to its end. */
void hl_exchange_begin(hl_exchange *exchange, const char *type);
/* False: there is nobody to read it any more. */
bool hl_exchange_write(hl_exchange *exchange, const void *bytes, size_t n_bytes);
/* Whole, or else the reader is told that it is not. */
void hl_exchange_end(hl_exchange *exchange, bool whole);

/* Has the other side hung up, or been cut? */
bool hl_exchange_is_gone(hl_exchange *exchange);
/* Waits for hl_exchange_wake, or until the other side is gone, or for `seconds`; a wake that came
 * since the last wait counts. */
void hl_exchange_wait(hl_exchange *exchange, double seconds);
/* From any thread, while the work goes on. */
void hl_exchange_wake(hl_exchange *exchange);

#endif
