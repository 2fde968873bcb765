/* http.c - libmicrohttpd: one thread, epoll, connections that sleep while others work for them.
 *
 * The library calls handle_request several times for a request:
 *
 *     once          the head is here         -> handler.head, which may refuse
 *     for each piece of the body             -> hl_exchange_receive
 *     once more     the body is whole        -> handler.request
 *     and again     after each sleep         -> is there an answer now?
 *
 * A body that is too long is read to its end, up to MAX_DROPPED, and forgotten: a client that
 * still writes when its connection is closed would never see the answer. */
#include "serve/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "serve/connections.h"
#include "serve/exchange.h"

#define MAX_DROPPED     ((size_t)64 << 20)
#define STREAM_BLOCK    16384
#define SEND_BUFFER     131072 /* of a socket: what a slow reader can make the system hold */
#define SPARE_SOCKETS   64     /* beyond max_connections, for those that are being cut */
#define OTHER_FILES     64     /* that the process has open beside sockets */
#define ADDRESS_BYTES   128
#define DRAIN_STEP_NANO 20000000

struct hl_http {
    hl_http_options    options;
    struct MHD_Daemon *daemon;
    hl_connections    *connections;
    int                listener;
    int32_t            port;
    char               address[ADDRESS_BYTES];
    bool               is_any;
    pthread_mutex_t    lock; /* of what follows */
    pthread_cond_t     idle; /* nothing is at work */
    int64_t            n_working;
    int64_t            n_through; /* requests that came whole and whose answer is not read yet */
    int64_t            n_stalled;
    bool               is_quiet;
};

/* ------------------------------------------------------------------- responses */

static void sleep_connection(void *connection)
{
    MHD_suspend_connection(connection);
}

static void resume_connection(void *connection)
{
    MHD_resume_connection(connection);
}

static ssize_t read_stream(void *context, uint64_t position, char *out, size_t n_bytes)
{
    int64_t n = hl_exchange_read(context, out, n_bytes, sleep_connection);

    (void)position;
    if (n == -1)
        return MHD_CONTENT_READER_END_OF_STREAM;
    return n == -2 ? MHD_CONTENT_READER_END_WITH_ERROR : (ssize_t)n;
}

static void free_stream(void *context)
{
    hl_exchange_release(context);
}

static void add_headers(struct MHD_Response *response, const char *type, const hl_answer *answer)
{
    MHD_add_response_header(response, "Content-Type", type != NULL ? type : "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    if (answer != NULL && answer->header != NULL)
        MHD_add_response_header(response, answer->header, answer->value);
}

static enum MHD_Result send_answer(hl_exchange *exchange, struct MHD_Connection *connection,
                                   hl_connection *entry)
{
    hl_http             *http   = exchange->http;
    hl_answer           *answer = &exchange->answer;
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(answer->n_bytes, answer->body, hl_free);

    if (response == NULL)
        return MHD_NO;
    answer->body = NULL;
    add_headers(response, answer->type, answer);
    hl_connection_answer(http->connections, entry);
    enum MHD_Result result = MHD_queue_response(connection, (unsigned int)answer->status, response);
    MHD_destroy_response(response);
    http->options.handler.answered(http->options.handler.context, exchange, answer->status);
    return result;
}

static enum MHD_Result send_stream(hl_exchange *exchange, struct MHD_Connection *connection)
{
    hl_http *http = exchange->http;

    hl_exchange_hold(exchange); /* the response does, until free_stream */
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, exchange, free_stream);
    if (response == NULL) {
        hl_exchange_release(exchange);
        return MHD_NO;
    }
    add_headers(response, exchange->stream_type, NULL);
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    http->options.handler.answered(http->options.handler.context, exchange, MHD_HTTP_OK);
    return result;
}

/* ---------------------------------------------------------------------- requests */

static hl_connection *entry_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

static hl_exchange_state state_of(hl_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    hl_exchange_state state = exchange->state;
    pthread_mutex_unlock(&exchange->lock);
    return state;
}

/* What there is to send by now, if anything. */
static enum MHD_Result proceed(hl_exchange *exchange, struct MHD_Connection *connection)
{
    switch (state_of(exchange)) {
    case HL_EXCHANGE_ANSWERED:
        return send_answer(exchange, connection, entry_of(connection));
    case HL_EXCHANGE_STREAMING:
        return send_stream(exchange, connection);
    default:
        return MHD_YES;
    }
}

static enum MHD_Result begin_request(hl_http *http, struct MHD_Connection *connection,
                                     const char *url, const char *method, void **context)
{
    hl_exchange *exchange = NULL;

    if (hl_exchange_new(&exchange, http, method, url) != HL_OK)
        return MHD_NO;
    *context         = exchange;
    exchange->native = connection;
    exchange->owner  = (hl_exchange_owner){ .connection    = connection,
                                            .resume        = resume_connection,
                                            .stall_seconds = http->options.stall_seconds };
    http->options.handler.head(http->options.handler.context, exchange);
    return proceed(exchange, connection);
}

static enum MHD_Result finish_request(hl_http *http, hl_exchange *exchange,
                                      struct MHD_Connection *connection)
{
    if (exchange->was_suspended)
        return proceed(exchange, connection);
    exchange->is_through = true;
    pthread_mutex_lock(&http->lock);
    http->n_through++;
    pthread_mutex_unlock(&http->lock);
    hl_connection_work(http->connections, entry_of(connection), hl_exchange_look, exchange);
    http->options.handler.request(http->options.handler.context, exchange);
    /* One that was put to sleep comes again, maybe it has been woken already. */
    return exchange->was_suspended ? MHD_YES : proceed(exchange, connection);
}

static enum MHD_Result handle_request(void *context, struct MHD_Connection *connection,
                                      const char *url, const char *method, const char *version,
                                      const char *upload, size_t *n_upload, void **own)
{
    hl_http     *http     = context;
    hl_exchange *exchange = *own;

    (void)version;
    if (exchange == NULL)
        return begin_request(http, connection, url, method, own);
    if (*n_upload == 0)
        return finish_request(http, exchange, connection);
    bool good = hl_exchange_receive(exchange, upload, *n_upload, http->options.max_body_bytes);
    *n_upload = 0;
    return good && exchange->n_dropped <= MAX_DROPPED ? MHD_YES : MHD_NO;
}

/* An answer was read, or the connection broke off. */
static void end_request(void *context, struct MHD_Connection *connection, void **own,
                        enum MHD_RequestTerminationCode how)
{
    hl_http     *http     = context;
    hl_exchange *exchange = *own;

    *own = NULL;
    if (exchange == NULL)
        return;
    hl_connection_wait(http->connections, entry_of(connection));
    if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        hl_exchange_lose(exchange);
    if (exchange->is_through) {
        pthread_mutex_lock(&http->lock);
        http->n_through--;
        pthread_mutex_unlock(&http->lock);
    }
    hl_exchange_release(exchange);
}

static void note_connection(void *context, struct MHD_Connection *connection, void **own,
                            enum MHD_ConnectionNotificationCode what)
{
    hl_http                        *http = context;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    if (what == MHD_CONNECTION_NOTIFY_STARTED && info != NULL) {
        *own = hl_connections_add(http->connections, info->connect_fd);
    } else if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        hl_connections_remove(http->connections, *own);
        *own = NULL;
    }
}

const char *hl_exchange_header(const hl_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(exchange->native, MHD_HEADER_KIND, name);
}

/* -------------------------------------------------------------------------- work */

/* The reader of a stream never came back. */
static bool has_stalled(hl_exchange *exchange)
{
    pthread_mutex_lock(&exchange->lock);
    bool stalled = exchange->is_stalled;
    pthread_mutex_unlock(&exchange->lock);
    return stalled;
}

static void *run_work(void *context)
{
    hl_exchange *exchange = context;
    hl_http     *http     = exchange->http;

    exchange->work(exchange->context, exchange);
    bool stalled = has_stalled(exchange);
    hl_exchange_release(exchange);
    pthread_mutex_lock(&http->lock);
    http->n_stalled += stalled ? 1 : 0;
    if (--http->n_working == 0)
        pthread_cond_broadcast(&http->idle);
    pthread_mutex_unlock(&http->lock);
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

static void stop_counting_work(hl_http *http)
{
    pthread_mutex_lock(&http->lock);
    http->n_working--;
    pthread_mutex_unlock(&http->lock);
}

bool hl_exchange_work(hl_exchange *exchange, hl_exchange_function work, void *context)
{
    hl_http *http = exchange->http;

    pthread_mutex_lock(&http->lock);
    bool accepted = http->n_working < http->options.max_work;
    http->n_working += accepted ? 1 : 0;
    pthread_mutex_unlock(&http->lock);
    if (!accepted)
        return false;
    exchange->work          = work;
    exchange->context       = context;
    exchange->was_suspended = true;
    pthread_mutex_lock(&exchange->lock);
    exchange->state     = HL_EXCHANGE_WORKING;
    exchange->is_asleep = true;
    exchange->n_holders++;
    MHD_suspend_connection(exchange->native);
    pthread_mutex_unlock(&exchange->lock);
    if (start_thread(exchange))
        return true;
    hl_exchange_release(exchange);
    stop_counting_work(http);
    return false;
}

/* --------------------------------------------------------------------- listening */

/* A socket that listens at one address; -1 and errno otherwise. */
static int listen_at(const struct addrinfo *address)
{
    int one      = 1;
    int room     = SEND_BUFFER;
    int listener = socket(address->ai_family, address->ai_socktype | SOCK_CLOEXEC, 0);

    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &room, sizeof room); /* and those it accepts */
    if (bind(listener, address->ai_addr, address->ai_addrlen) == 0 &&
        listen(listener, SOMAXCONN) == 0)
        return listener;
    int error = errno;
    close(listener);
    errno = error;
    return -1;
}

static bool is_any_address(const char *address)
{
    return strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0;
}

/* Where it listens in fact, and at which port. */
static void note_address(hl_http *http)
{
    struct sockaddr_storage own = { 0 };
    socklen_t               n   = sizeof own;
    char                    port[16];

    if (getsockname(http->listener, (struct sockaddr *)&own, &n) == 0 &&
        getnameinfo((struct sockaddr *)&own, n, http->address, sizeof http->address, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        http->port = (int32_t)strtol(port, NULL, 10);
    http->is_any = is_any_address(http->address);
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
        return hl_fail(HL_NOT_FOUND, "%s is no address: %s", options->host, gai_strerror(failure));
    http->listener = listen_at(found);
    freeaddrinfo(found);
    if (http->listener < 0)
        return hl_fail(HL_IO, "cannot listen at %s port %d: %s", options->host, (int)options->port,
                       strerror(errno));
    note_address(http);
    return HL_OK;
}

/* No more sockets than the process may open. */
static int64_t bounded_connections(int64_t wanted)
{
    struct rlimit limit;
    int64_t       spare = SPARE_SOCKETS + OTHER_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        (int64_t)limit.rlim_cur > wanted + spare)
        return wanted;
    return (int64_t)limit.rlim_cur > 2 * spare ? (int64_t)limit.rlim_cur - spare : spare;
}

hl_status hl_http_start(hl_http *http)
{
    unsigned int flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;

    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle_request, http, MHD_OPTION_LISTEN_SOCKET, http->listener,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned int)(http->options.max_connections + SPARE_SOCKETS),
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HL_HTTP_HEADER_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, end_request, http, MHD_OPTION_NOTIFY_CONNECTION,
        note_connection, http, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (http->daemon == NULL)
        return hl_fail(HL_LIMIT, "the HTTP server cannot be started");
    http->listener = -1; /* the daemon's, from now on */
    return HL_OK;
}

/* ------------------------------------------------------------------ open and close */

hl_status hl_http_open(hl_http **out, const hl_http_options *options)
{
    hl_status status = HL_OK;
    hl_http  *http   = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&http, 1));
    pthread_mutex_init(&http->lock, NULL);
    pthread_cond_init(&http->idle, NULL);
    http->listener                = -1;
    http->options                 = *options;
    http->options.max_connections = bounded_connections(options->max_connections);
    HL_TRY(open_listener(http));
    HL_TRY(hl_connections_open(
        &http->connections, &(hl_connections_options){ .most = http->options.max_connections,
                                                       .request_seconds = options->request_seconds,
                                                       .answer_seconds = options->stall_seconds }));
    *out = http;
    http = NULL;

done:
    hl_http_close(http);
    return status;
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
    if (http->is_quiet || http->daemon == NULL)
        return;
    http->is_quiet = true;
    int listener   = MHD_quiesce_daemon(http->daemon);
    if (listener >= 0)
        close(listener);
}

static int64_t count_through(hl_http *http)
{
    pthread_mutex_lock(&http->lock);
    int64_t n = http->n_through;
    pthread_mutex_unlock(&http->lock);
    return n;
}

void hl_http_drain(hl_http *http, double seconds)
{
    double until = hl_clock_seconds() + seconds;

    hl_http_quiesce(http);
    while (count_through(http) > 0 && hl_clock_seconds() < until)
        nanosleep(&(struct timespec){ .tv_nsec = DRAIN_STEP_NANO }, NULL);
    hl_connections_lose_all(http->connections);
    pthread_mutex_lock(&http->lock);
    while (http->n_working > 0)
        pthread_cond_wait(&http->idle, &http->lock);
    pthread_mutex_unlock(&http->lock);
}

void hl_http_close(hl_http *http)
{
    if (http == NULL)
        return;
    if (http->daemon != NULL) {
        hl_http_drain(http, 0.0);
        MHD_stop_daemon(http->daemon);
    }
    if (http->listener >= 0)
        close(http->listener);
    hl_connections_close(http->connections);
    pthread_cond_destroy(&http->idle);
    pthread_mutex_destroy(&http->lock);
    hl_free(http);
}

hl_http_counts hl_http_count(hl_http *http)
{
    hl_connections_counts connections = hl_connections_count(http->connections);

    pthread_mutex_lock(&http->lock);
    hl_http_counts counts = { .n_connections = connections.n_open,
                              .n_working     = http->n_working,
                              .n_late        = connections.n_late,
                              .n_many        = connections.n_many,
                              .n_stalled     = http->n_stalled };
    pthread_mutex_unlock(&http->lock);
    return counts;
}
