/* http.c - sockets: one thread that accepts, reads and sends, for all connections.
 *
 *     READING    bytes arrive until they are a complete request (framing.h)
 *     WORKING    an answer is being made; the thread checks that the client is still connected
 *     SENDING    an answer, or the pipe of a stream, is being sent
 *     LINGERING  the answer is sent and the connection is over, but the client may still be
 *                sending: its bytes are read and dropped, since closing with unread bytes resets
 *                the connection and could discard the answer
 *
 * A connection is read only in READING and LINGERING.  What a client sends before it has its answer
 * stays in the system's buffer, and requests are answered in their order.
 *
 * The thread polls all sockets, and a pipe through which threads at work report that there is
 * something to send.  Ten times per second it checks the clock and whether clients have disconnected.
 * A request must arrive completely within its time limit, and an answer must be read within its
 * own.
 *
 * A connection belongs to this thread alone.  A thread at work knows only its exchange, which
 * exists until both threads have released it, so a connection can be closed at any moment. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/locks.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "serve/http_parts.h"

#define LINGER_SECONDS  2.0
#define ROUND_SECONDS   0.1
#define SEND_BUFFER     131072 /* bounds what the system holds for a slow client */
#define OTHER_FILES     16     /* files that the server may open in addition to sockets */
#define LEAST_SOCKETS   16
#define ACCEPT_AT_ONCE  64
#define PATIENCE        0.5 /* a client must have delayed its stream this long to be cut */
#define DRAIN_STEP_NANO 20000000

/* ----------------------------------------------------------------------- waking */

void hl_http_wake(void *context)
{
    hl_http *http = context;

    if (!__atomic_exchange_n(&http->is_woken, true, __ATOMIC_SEQ_CST))
        (void)!write(http->wake[1], "", 1);
}

static void forget_wakes(hl_http *http)
{
    char bytes[64];

    while (read(http->wake[0], bytes, sizeof bytes) > 0)
        continue;
    /* This store comes last: a thread that finds the flag still set does not write a byte to the
     * pipe, but its event is handled after this. */
    __atomic_store_n(&http->is_woken, false, __ATOMIC_SEQ_CST);
}

/* ------------------------------------------------------------------------ peers */

static void find_key(unsigned char key[16], bool *is_near, const struct sockaddr_storage *from)
{
    static const unsigned char mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

    memset(key, 0, 16);
    *is_near = false;
    if (from->ss_family == AF_INET) {
        memcpy(key, mapped, sizeof mapped);
        memcpy(key + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        memcpy(key, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
        *is_near = memcmp(key, &in6addr_loopback, 16) == 0;
    }
    if (memcmp(key, mapped, sizeof mapped) == 0)
        *is_near = key[12] == 127;
    else
        memset(key + 8, 0, 8);
}

/* Returns the peer with one more connection; NULL if out of memory. */
static hl_peer *meet_peer(hl_http *http, const struct sockaddr_storage *from)
{
    unsigned char key[16];
    bool          is_near = false;
    hl_peer      *peer    = NULL;

    find_key(key, &is_near, from);
    HL_LOCKED(&http->lock);
    for (peer = http->peers; peer != NULL; peer = peer->next) {
        if (memcmp(peer->key, key, sizeof key) == 0 && peer->is_near == is_near)
            break;
    }
    if (peer == NULL && HL_ALLOC_ZEROED(&peer, 1) == HL_OK) {
        memcpy(peer->key, key, sizeof key);
        peer->is_near = is_near;
        peer->next    = http->peers;
        http->peers   = peer;
    }
    if (peer != NULL) {
        peer->n_connections++;
        http->counts.n_connections++;
    }
    return peer;
}

/* Call it with the lock held. */
static void forget_peer(hl_http *http, hl_peer *peer)
{
    hl_peer **at = &http->peers;

    if (peer->n_connections > 0 || peer->n_working > 0)
        return;
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    hl_free(peer);
}

/* ------------------------------------------------------------------ connections */

static void unlink_connection(hl_connection *c)
{
    c->previous->next = c->next;
    c->next->previous = c->previous;
}

static void link_last(hl_http *http, hl_connection *c)
{
    c->next           = &http->list;
    c->previous       = http->list.previous;
    c->previous->next = c;
    c->next->previous = c;
}

void hl_connection_enter(hl_http *http, hl_connection *c, hl_connection_state state)
{
    c->state = state;
    c->since = hl_clock_seconds();
    unlink_connection(c);
    link_last(http, c);
}

void hl_connection_leave(hl_http *http, hl_connection *c, bool sent)
{
    hl_exchange *exchange = c->exchange;

    c->exchange = NULL;
    hl_free(c->out);
    c->out   = NULL;
    c->n_out = c->at_out = 0;
    if (exchange == NULL)
        return;
    if (!sent)
        hl_exchange_lose(exchange);
    if (exchange->was_at_work) {
        HL_LOCKED(&http->lock);
        http->n_through--;
    }
    hl_exchange_release(exchange);
}

static void close_connection(hl_http *http, hl_connection *c)
{
    hl_connection_leave(http, c, false);
    unlink_connection(c);
    close(c->socket);
    pthread_mutex_lock(&http->lock);
    http->counts.n_connections--;
    c->peer->n_connections--;
    forget_peer(http, c->peer);
    pthread_mutex_unlock(&http->lock);
    hl_free(c->in);
    hl_free(c);
}

static void count_cut(hl_http *http, int64_t *count)
{
    HL_LOCKED(&http->lock);
    ++*count;
}

/* ------------------------------------------------------------------------- work */

/* Call it with the lock held. */
static void end_thread(hl_http *http)
{
    if (--http->n_threads == 0)
        pthread_cond_broadcast(&http->idle);
}

/* Ends the work of an exchange once, so that a client that has read its answer may send the next
 * request. */
static void end_work(hl_exchange *exchange)
{
    hl_http *http = exchange->http;

    pthread_mutex_lock(&http->lock);
    bool counts          = exchange->is_counted;
    exchange->is_counted = false;
    if (counts) {
        http->counts.n_working--;
        exchange->peer->n_working--;
        forget_peer(http, exchange->peer);
    }
    pthread_mutex_unlock(&http->lock);
    if (counts)
        http->options.handler.worked(http->options.handler.context, exchange);
}

static void *run_work(void *context)
{
    hl_exchange *exchange = context;
    hl_http     *http     = exchange->http;

    exchange->work(exchange->context, exchange);
    pthread_mutex_lock(&exchange->lock);
    bool stalled = exchange->is_stalled; /* the client of a stream never resumed reading */
    pthread_mutex_unlock(&exchange->lock);
    end_work(exchange);
    hl_exchange_release(exchange);
    HL_LOCKED(&http->lock);
    http->counts.n_stalled += stalled ? 1 : 0;
    end_thread(http);
    return NULL;
}

static bool start_thread(hl_exchange *exchange)
{
    pthread_attr_t attributes;
    pthread_t      thread;

    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool started = pthread_create(&thread, &attributes, run_work, exchange) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

/* Cuts the stream that has waited longest for its client. Returns false if no stream waits. */
static bool cut_slowest(hl_http *http)
{
    hl_connection *slowest = NULL;
    double         most    = PATIENCE;

    for (hl_connection *c = http->list.next; c != &http->list; c = c->next) {
        double waited =
            c->exchange != NULL && c->state == HL_CONNECTION_SENDING && c->is_stream && !c->is_over
                ? hl_exchange_full_seconds(c->exchange)
                : 0.0;
        if (waited > most) {
            slowest = c;
            most    = waited;
        }
    }
    if (slowest == NULL)
        return false;
    hl_exchange_stall(slowest->exchange);
    slowest->is_over = true;
    return true;
}

/* Counts one more exchange at work, if there is room. */
static hl_status count_work(hl_http *http, hl_peer *peer)
{
    int64_t   own    = http->options.max_per_peer;
    hl_status status = HL_OK;

    if (own == 0)
        own = peer->is_near ? http->options.max_work : (http->options.max_work + 1) / 2;
    pthread_mutex_lock(&http->lock);
    bool is_full = http->counts.n_working >= http->options.max_work;
    if (peer->n_working >= own && own < http->options.max_work)
        status =
            hl_fail(HL_BUSY, "%lld requests from this address are active; at most %lld are allowed",
                    (long long)peer->n_working, (long long)own);
    pthread_mutex_unlock(&http->lock);
    if (status != HL_OK)
        return status;
    /* The stream that is cut ends soon; until then one exchange more than the limit is at work. */
    if (is_full && !cut_slowest(http))
        return hl_fail(HL_BUSY, "all slots are busy and the queue is full; try again later");
    pthread_mutex_lock(&http->lock);
    http->counts.n_working++;
    http->n_threads++;
    http->n_through++;
    peer->n_working++;
    pthread_mutex_unlock(&http->lock);
    return HL_OK;
}

hl_status hl_exchange_work(hl_exchange *exchange, hl_exchange_function work, void *context)
{
    hl_http  *http   = exchange->http;
    hl_status status = count_work(http, exchange->peer);

    if (status != HL_OK) {
        http->options.handler.worked(http->options.handler.context, exchange);
        return status;
    }
    exchange->work        = work;
    exchange->context     = context;
    exchange->was_at_work = true;
    exchange->is_counted  = true;
    exchange->owner.end   = end_work;
    exchange->state       = HL_EXCHANGE_WORKING;
    hl_exchange_hold(exchange);
    if (start_thread(exchange))
        return HL_OK;
    exchange->was_at_work = false;
    hl_exchange_release(exchange);
    pthread_mutex_lock(&http->lock);
    http->n_through--;
    end_thread(http);
    pthread_mutex_unlock(&http->lock);
    end_work(exchange);
    return hl_fail(HL_BUSY, "the system refuses another thread; try again later");
}

/* -------------------------------------------------------------------- accepting */

/* Cuts the longest idle connection of the peer with the most connections. Returns false if all
 * connections are at work. */
static bool cut_longest_idle(hl_http *http)
{
    hl_connection *found = NULL;

    for (hl_connection *c = http->list.next; c != &http->list; c = c->next) {
        if (c->is_over)
            return true; /* a connection is already about to close */
        if ((c->state == HL_CONNECTION_READING || c->state == HL_CONNECTION_LINGERING) &&
            (found == NULL || c->peer->n_connections > found->peer->n_connections))
            found = c;
    }
    if (found == NULL)
        return false;
    close_connection(http, found);
    return true;
}

static void add_connection(hl_http *http, int socket, const struct sockaddr_storage *from)
{
    int            one  = 1;
    hl_connection *made = NULL;

    if (HL_ALLOC_ZEROED(&made, 1) != HL_OK || (made->peer = meet_peer(http, from)) == NULL) {
        hl_free(made);
        close(socket);
        return;
    }
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
    made->socket = socket;
    made->since  = hl_clock_seconds();
    link_last(http, made);
}

static void accept_some(hl_http *http)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        struct sockaddr_storage from = { 0 };
        socklen_t               n    = sizeof from;
        int                     got  = accept(http->listener, (struct sockaddr *)&from, &n);

        if (got < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED)
                http->accept_after = hl_clock_seconds() + ROUND_SECONDS;
            return;
        }
        if (http->counts.n_connections >= http->options.max_connections) {
            count_cut(http, &http->counts.n_many);
            if (!cut_longest_idle(http) && !cut_slowest(http)) {
                close(got);
                continue;
            }
        }
        add_connection(http, got, &from);
    }
}

/* ---------------------------------------------------------------------- the thread */

/* Detects a reset, or a close after everything was sent; peeked bytes stay in the socket. */
static bool has_hung_up(const hl_connection *c)
{
    char byte;

    return recv(c->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Applies the time limits of a connection's state. */
static void look_at(hl_http *http, hl_connection *c, double now)
{
    double waited = now - c->since;
    bool   late   = false;

    if (c->state == HL_CONNECTION_READING)
        late = waited > http->options.request_seconds;
    else if (c->state == HL_CONNECTION_LINGERING)
        c->is_over = c->is_over || waited > LINGER_SECONDS;
    else if (c->state == HL_CONNECTION_SENDING && !c->is_stream)
        late = waited > http->options.stall_seconds;
    else
        c->is_over = has_hung_up(c) || (c->is_stream && hl_exchange_is_late(c->exchange));
    if (late && !c->is_over) {
        c->is_over = true;
        count_cut(http, &http->counts.n_late);
    }
}

static void serve(hl_http *http, hl_connection *c, short events)
{
    bool broken = (events & (POLLERR | POLLHUP | POLLNVAL)) != 0;

    switch (c->state) {
    case HL_CONNECTION_READING:
        if (events != 0)
            hl_connection_receive(http, c);
        return;
    case HL_CONNECTION_LINGERING:
        if (events != 0)
            hl_connection_drop(c);
        return;
    case HL_CONNECTION_WORKING:
        hl_connection_proceed(http, c);
        break;
    case HL_CONNECTION_SENDING:
        break;
    }
    if (broken)
        c->is_over = true;
    if (c->state == HL_CONNECTION_SENDING)
        hl_connection_send(http, c);
    if (c->state == HL_CONNECTION_READING) /* handles bytes sent ahead of the answer */
        hl_connection_read(http, c);
}

static short wanted_events(const hl_connection *c)
{
    if (c->state == HL_CONNECTION_READING || c->state == HL_CONNECTION_LINGERING)
        return POLLIN;
    return c->state == HL_CONNECTION_SENDING && hl_connection_has_unsent(c) ? POLLOUT : 0;
}

/* Lists the listener, the wake pipe and all connections in their order; returns their number. There
 * is always room: a connection over the limit is closed in this round. */
static size_t list_sockets(hl_http *http)
{
    bool   open = hl_clock_seconds() >= http->accept_after;
    size_t n    = 2;

    http->polled[0] = (struct pollfd){ .fd = open ? http->listener : -1, .events = POLLIN };
    http->polled[1] = (struct pollfd){ .fd = http->wake[0], .events = POLLIN };
    for (hl_connection *c = http->list.next; c != &http->list && n < http->n_polled; c = c->next)
        http->polled[n++] = (struct pollfd){ .fd = c->socket, .events = wanted_events(c) };
    return n;
}

/* Closes connections that are over. If all exchanges are to be dropped, also closes those that have
 * one. */
static void close_ended(hl_http *http)
{
    bool is_losing = __atomic_load_n(&http->is_losing, __ATOMIC_SEQ_CST);

    for (hl_connection *c = http->list.next, *next; c != &http->list; c = next) {
        next = c->next;
        if (c->is_over || (is_losing && c->exchange != NULL))
            close_connection(http, c);
    }
}

/* Serves each polled connection once; their order in the list changes meanwhile. */
static void serve_all(hl_http *http, size_t n, bool is_round)
{
    double         now  = hl_clock_seconds();
    hl_connection *next = http->list.next;

    for (size_t i = 2; i < n; i++) {
        hl_connection *c = next;

        next = c->next;
        if (!c->is_over)
            serve(http, c, http->polled[i].revents);
        if (is_round && !c->is_over)
            look_at(http, c, now);
    }
}

static void *run(void *context)
{
    hl_http *http  = context;
    double   round = 0.0;

    while (!__atomic_load_n(&http->is_closing, __ATOMIC_SEQ_CST)) {
        size_t n = list_sockets(http);

        if (poll(http->polled, (nfds_t)n, (int)(ROUND_SECONDS * 1000)) < 0)
            continue;
        if (http->polled[1].revents != 0)
            forget_wakes(http);
        double now      = hl_clock_seconds();
        bool   is_round = now >= round;
        round           = is_round ? now + ROUND_SECONDS : round;
        serve_all(http, n, is_round);
        if (http->polled[0].revents != 0)
            accept_some(http);
        close_ended(http);
    }
    while (http->list.next != &http->list)
        close_connection(http, http->list.next);
    return NULL;
}

/* --------------------------------------------------------------------- listening */

/* Returns a socket that listens on one address; -1 and errno on failure. */
static int listen_at(const struct addrinfo *address)
{
    int one      = 1;
    int room     = SEND_BUFFER;
    int listener = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, 0);

    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    /* accepted sockets inherit it */
    setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    if (bind(listener, address->ai_addr, address->ai_addrlen) == 0 &&
        listen(listener, SOMAXCONN) == 0 && fcntl(listener, F_SETFL, O_NONBLOCK) == 0)
        return listener;
    int error = errno;
    close(listener);
    errno = error;
    return -1;
}

/* Records the actual address and port. */
static void note_address(hl_http *http)
{
    struct sockaddr_storage own = { 0 };
    socklen_t               n   = sizeof own;
    char                    port[16];

    if (getsockname(http->listener, (struct sockaddr *)&own, &n) == 0 &&
        getnameinfo((struct sockaddr *)&own, n, http->address, sizeof http->address, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        http->port = (int32_t)strtol(port, NULL, 10);
    http->is_any = strcmp(http->address, "0.0.0.0") == 0 || strcmp(http->address, "::") == 0;
}

static hl_status open_listener(hl_http *http)
{
    const hl_http_options *options = &http->options;
    struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    char             port[16];

    snprintf(port, sizeof port, "%d", (int)options->port);
    int failure = getaddrinfo(options->host, port, &hints, &found);
    if (failure != 0)
        return hl_fail(HL_NOT_FOUND, "%s is not an address: %s", options->host,
                       gai_strerror(failure));
    http->listener = listen_at(found);
    freeaddrinfo(found);
    if (http->listener < 0)
        return hl_fail(HL_IO, "cannot listen at %s port %d: %s", options->host, (int)options->port,
                       strerror(errno));
    note_address(http);
    return HL_OK;
}

static hl_status open_wakes(hl_http *http)
{
    if (pipe(http->wake) != 0) {
        http->wake[0] = http->wake[1] = -1;
        return hl_fail(HL_IO, "no pipe can be opened: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        fcntl(http->wake[i], F_SETFL, O_NONBLOCK);
        fcntl(http->wake[i], F_SETFD, FD_CLOEXEC);
    }
    return HL_OK;
}

/* Limits the connections to the number of files that the process may open; `wake` is the newest
 * descriptor. */
static hl_status bound_connections(hl_http *http)
{
    struct rlimit limit;
    int64_t       taken = (int64_t)http->wake[1] + 1 + OTHER_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return HL_OK;
    int64_t most = (int64_t)limit.rlim_cur - taken;
    if (most < LEAST_SOCKETS)
        return hl_fail(
            HL_LIMIT,
            "this process may open %lld files (ulimit -n); the server needs at least %lld",
            (long long)limit.rlim_cur, (long long)(taken + LEAST_SOCKETS));
    if (http->options.max_connections > most)
        http->options.max_connections = most;
    return HL_OK;
}

hl_status hl_http_start(hl_http *http)
{
    if (pthread_create(&http->thread, NULL, run, http) != 0)
        return hl_fail(HL_LIMIT, "the system refuses a thread for the HTTP server");
    http->has_thread = true;
    return HL_OK;
}

/* ------------------------------------------------------------------ open and close */

hl_status hl_http_open(hl_http **out, const hl_http_options *options)
{
    HL_CLOSED(hl_http_close) hl_http *http = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&http, 1));
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->idle, NULL);
    http->list.next = http->list.previous = &http->list;
    http->listener                        = -1;
    http->wake[0] = http->wake[1] = -1;
    http->options                 = *options;
    HL_NEED(open_listener(http));
    HL_NEED(open_wakes(http));
    HL_NEED(bound_connections(http));
    http->n_polled = (size_t)http->options.max_connections + ACCEPT_AT_ONCE + 2;
    HL_NEED(HL_ALLOC(&http->polled, http->n_polled));
    *out = hl_taken(&http);
    return HL_OK;
}

int32_t hl_http_port(const hl_http *http)
{
    return http->port;
}

const char *hl_http_address(const hl_http *http, bool *is_any)
{
    *is_any = http->is_any;
    return http->address;
}

void hl_http_quiesce(hl_http *http)
{
    __atomic_store_n(&http->is_quiet, true, __ATOMIC_SEQ_CST);
}

static int64_t count_through(hl_http *http)
{
    HL_LOCKED(&http->lock);
    return http->n_through;
}

void hl_http_drain(hl_http *http, double seconds)
{
    double until = hl_clock_seconds() + seconds;

    hl_http_quiesce(http);
    while (count_through(http) > 0 && hl_clock_seconds() < until)
        nanosleep(&(struct timespec){ .tv_nsec = DRAIN_STEP_NANO }, NULL);
    __atomic_store_n(&http->is_losing, true, __ATOMIC_SEQ_CST);
    hl_http_wake(http);
    HL_LOCKED(&http->lock);
    while (http->n_threads > 0)
        pthread_cond_wait(&http->idle, &http->lock);
}

void hl_http_close(hl_http *http)
{
    if (http == NULL)
        return;
    if (http->has_thread) {
        hl_http_drain(http, 0.0);
        __atomic_store_n(&http->is_closing, true, __ATOMIC_SEQ_CST);
        hl_http_wake(http);
        pthread_join(http->thread, NULL);
    }
    if (http->listener >= 0)
        close(http->listener);
    for (int i = 0; i < 2; i++) {
        if (http->wake[i] >= 0)
            close(http->wake[i]);
    }
    hl_free(http->polled);
    pthread_cond_destroy(&http->idle);
    pthread_mutex_destroy(&http->lock);
    hl_free(http);
}

hl_http_counts hl_http_count(hl_http *http)
{
    HL_LOCKED(&http->lock);
    hl_http_counts counts = http->counts;
    return counts;
}
