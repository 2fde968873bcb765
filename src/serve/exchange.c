/* exchange.c - one request and its answer, between the thread that makes it and the one that sends
 * it.
 *
 * Two threads share an exchange and its lock.  The thread at work wakes the sender after every
 * change, and the sender checks the exchange after every wake, so no change is missed. */
#include "serve/http_parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buffer.h"
#include "base/locks.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"

/* ---------------------------------------------------------------- life and death */

static void free_exchange(hl_exchange *exchange)
{
    if (exchange == NULL)
        return;
    hl_free(exchange->request.method);
    hl_free(exchange->request.path);
    hl_free(exchange->request.body);
    hl_free(exchange->pipe);
    hl_free(exchange->answer.body);
    pthread_cond_destroy(&exchange->wake);
    pthread_mutex_destroy(&exchange->lock);
    hl_free(exchange);
}

HL_CLOSES(free_exchange, hl_exchange)

hl_status hl_exchange_new(hl_exchange **out, hl_http *http, const char *method, const char *path)
{
    HL_CLOSED(free_exchange) hl_exchange *exchange = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&exchange, 1));
    pthread_mutex_init(&exchange->lock, NULL);
    hl_condition_init(&exchange->wake);
    exchange->http            = http;
    exchange->n_holders       = 1;
    exchange->request.account = -1;
    HL_NEED(hl_strdup(&exchange->request.method, method));
    HL_NEED(hl_strdup(&exchange->request.path, path));
    *out = hl_taken(&exchange);
    return HL_OK;
}

void hl_exchange_hold(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    exchange->n_holders++;
}

void hl_exchange_release(hl_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool is_last = --exchange->n_holders == 0;
    pthread_mutex_unlock(&exchange->lock);
    if (is_last)
        free_exchange(exchange);
}

/* --------------------------------------------------------------------- the request */

bool hl_exchange_receive(hl_exchange *exchange, const char *bytes, size_t n_bytes, size_t most)
{
    hl_request *request = &exchange->request;

    if (request->n_dropped > 0 || n_bytes > most - request->n_body) {
        request->n_dropped += n_bytes;
        return true;
    }
    if (HL_GROW(&request->body, &exchange->room, request->n_body, n_bytes + 1) != HL_OK)
        return false;
    memcpy(request->body + request->n_body, bytes, n_bytes);
    request->n_body += n_bytes;
    request->body[request->n_body] = '\0';
    return true;
}

hl_request *hl_exchange_request(hl_exchange *exchange)
{
    return &exchange->request;
}

const char *hl_exchange_header(const hl_exchange *exchange, const char *name)
{
    return exchange->head != NULL ? hl_http_head_field(exchange->head, name).at : NULL;
}

/* ---------------------------------------------------------------------- the answer */

/* Reports that there is something to send. Call it with the lock held. */
static void wake_owner(hl_exchange *exchange)
{
    if (exchange->was_at_work)
        exchange->owner.wake(exchange->owner.context);
}

/* Ends the work before the end of the answer becomes visible to the client. */
static void end_work(hl_exchange *exchange)
{
    if (exchange->owner.end != NULL)
        exchange->owner.end(exchange);
}

void hl_exchange_answer(hl_exchange *exchange, const hl_answer *answer)
{
    end_work(exchange);
    HL_LOCKED(&exchange->lock);
    exchange->answer = *answer;
    exchange->state  = HL_EXCHANGE_ANSWERED;
    wake_owner(exchange);
}

void hl_exchange_begin(hl_exchange *exchange, const char *type)
{
    HL_LOCKED(&exchange->lock);
    exchange->stream_type = type;
    exchange->state       = HL_EXCHANGE_STREAMING;
    wake_owner(exchange);
}

void hl_exchange_end(hl_exchange *exchange, bool whole)
{
    end_work(exchange);
    HL_LOCKED(&exchange->lock);
    exchange->is_ended = true;
    exchange->ended_at = hl_clock_seconds();
    exchange->is_whole = whole;
    wake_owner(exchange);
}

/* -------------------------------------------------------------------- the pipe */

/* Waits for room in the pipe, with the lock held. Returns false if there will be none. */
static bool wait_for_room(hl_exchange *exchange, double until)
{
    exchange->full_since = exchange->n_pipe == HL_HTTP_PIPE ? hl_clock_seconds() : 0.0;
    while (exchange->n_pipe == HL_HTTP_PIPE && !exchange->is_gone) {
        if (hl_condition_wait(&exchange->wake, &exchange->lock, until))
            continue;
        exchange->is_stalled = true;
        exchange->is_gone    = true;
        wake_owner(exchange);
    }
    if (exchange->full_since > 0.0)
        exchange->full_seconds += hl_clock_seconds() - exchange->full_since;
    exchange->full_since = 0.0;
    return !exchange->is_gone;
}

bool hl_exchange_write(hl_exchange *exchange, const void *bytes, size_t n_bytes)
{
    const char *from  = bytes;
    double      until = hl_clock_seconds() + exchange->owner.stall_seconds;
    bool        good  = true;

    HL_LOCKED(&exchange->lock);
    if (exchange->pipe == NULL && HL_ALLOC(&exchange->pipe, HL_HTTP_PIPE) != HL_OK)
        good = false;
    while (n_bytes > 0 && good && (good = wait_for_room(exchange, until))) {
        size_t room = HL_HTTP_PIPE - exchange->n_pipe;
        size_t n    = n_bytes < room ? n_bytes : room;

        memcpy(exchange->pipe + exchange->n_pipe, from, n);
        exchange->n_pipe += n;
        from += n;
        n_bytes -= n;
        wake_owner(exchange);
    }
    return good;
}

/* Takes bytes out of the pipe.  Call it with the lock held. */
static int64_t take(hl_exchange *exchange, char *out, size_t n_bytes)
{
    size_t n = exchange->n_pipe < n_bytes ? exchange->n_pipe : n_bytes;

    memcpy(out, exchange->pipe, n);
    memmove(exchange->pipe, exchange->pipe + n, exchange->n_pipe - n);
    exchange->n_pipe -= n;
    pthread_cond_broadcast(&exchange->wake);
    return (int64_t)n;
}

int64_t hl_exchange_read(hl_exchange *exchange, char *out, size_t n_bytes)
{
    int64_t n = 0;

    HL_LOCKED(&exchange->lock);
    if (exchange->is_stalled || (exchange->is_ended && !exchange->is_whole && !exchange->n_pipe)) {
        n = -2;
    } else if (exchange->n_pipe > 0) {
        n = take(exchange, out, n_bytes);
    } else if (exchange->is_ended) {
        n = -1;
    }
    return n;
}

/* ------------------------------------------------------------------ gone, and waiting */

void hl_exchange_lose(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    exchange->is_gone = true;
    pthread_cond_broadcast(&exchange->wake);
}

void hl_exchange_stall(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    exchange->is_stalled = true;
    exchange->is_gone    = true;
    pthread_cond_broadcast(&exchange->wake);
}

bool hl_exchange_is_late(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    double waited = exchange->is_ended ? hl_clock_seconds() - exchange->ended_at : 0.0;
    return exchange->is_stalled || waited > exchange->owner.stall_seconds;
}

double hl_exchange_full_seconds(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    double since = exchange->full_since;
    return exchange->full_seconds + (since > 0.0 ? hl_clock_seconds() - since : 0.0);
}

bool hl_exchange_is_gone(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    return exchange->is_gone;
}

void hl_exchange_wait(hl_exchange *exchange, double seconds)
{
    double until = hl_clock_seconds() + seconds;

    HL_LOCKED(&exchange->lock);
    while (!exchange->is_woken && !exchange->is_gone &&
           hl_condition_wait(&exchange->wake, &exchange->lock, until))
        continue;
    exchange->is_woken = false;
}

void hl_exchange_wake(hl_exchange *exchange)
{
    HL_LOCKED(&exchange->lock);
    exchange->is_woken = true;
    pthread_cond_broadcast(&exchange->wake);
}
