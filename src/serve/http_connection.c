/* http_connection.c - one connection: requests parsed from its bytes, answers sent to its
 * socket. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/buffer.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "serve/http_parts.h"

#define MAX_DROPPED   ((size_t)64 << 20) /* limit of a refused body that is still read, in bytes */
#define FIRST_INPUT   16384
#define HEAD_BYTES    2048 /* size of an answer's head */
#define STREAM_BLOCK  16384
#define CHUNK_BEGIN   8 /* bytes kept free for a chunk's size line */
#define CHUNK_END     2
#define STREAM_BUFFER 16384 /* smaller send buffer for streams */

/* --------------------------------------------------------------------- answers */

static const char *reason_of(int status)
{
    static const struct {
        int         status;
        const char *reason;
    } known[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].status == status)
            return known[i].reason;
    }
    return "Other";
}

/* Writes a date such as "Sun, 06 Nov 1994 08:49:37 GMT", in any locale. */
static void write_date(char *out, size_t room)
{
    static const char days[]   = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t            now      = time(NULL);
    struct tm         t        = { 0 };

    gmtime_r(&now, &t);
    snprintf(out, room, "%.3s, %02d %.3s %d %02d:%02d:%02d GMT", days + 3 * t.tm_wday, t.tm_mday,
             months + 3 * t.tm_mon, 1900 + t.tm_year, t.tm_hour, t.tm_min, t.tm_sec);
}

/* Writes the head of an answer. Returns false if out of memory. */
static bool write_head(hl_http *http, hl_connection *c, int status, const char *type,
                       const hl_answer *answer, size_t room)
{
    char date[64];
    char length[64] = "";
    int  n          = 0;

    if (HL_ALLOC(&c->out, room) != HL_OK)
        return false;
    if (__atomic_load_n(&http->is_quiet, __ATOMIC_SEQ_CST))
        c->keeps_open = false;
    write_date(date, sizeof date);
    if (c->is_stream && c->is_chunked)
        snprintf(length, sizeof length, "Transfer-Encoding: chunked\r\n");
    else if (!c->is_stream && status != 204)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", answer->n_bytes);
    n         = snprintf(c->out, HEAD_BYTES,
                         "HTTP/1.1 %d %s\r\nDate: %s\r\n%sContent-Type: %s\r\nCache-Control: no-store\r\n"
                                 "X-Content-Type-Options: nosniff\r\n"
                                 "Cross-Origin-Resource-Policy: same-origin\r\n%s%s%s%s%s\r\n",
                         status, reason_of(status), date, length, type != NULL ? type : "application/json",
                 answer->header != NULL ? answer->header : "", answer->header != NULL ? ": " : "",
                 answer->header != NULL ? answer->value : "", answer->header != NULL ? "\r\n" : "",
                 c->keeps_open ? "" : "Connection: close\r\n");
    c->n_out  = (size_t)n < HEAD_BYTES ? (size_t)n : HEAD_BYTES - 1;
    c->at_out = 0;
    return true;
}

static void tell_answered(hl_http *http, hl_connection *c, int status)
{
    http->options.handler.answered(http->options.handler.context, c->exchange, status);
}

static void begin_answer(hl_http *http, hl_connection *c)
{
    const hl_answer *answer = &c->exchange->answer;

    c->is_stream = false;
    c->at_body   = 0;
    c->has_body  = !c->is_head && answer->status != 204;
    c->is_over   = !write_head(http, c, answer->status, answer->type, answer, HEAD_BYTES);
    tell_answered(http, c, answer->status);
    hl_connection_enter(http, c, HL_CONNECTION_SENDING);
}

/* A short send buffer shows early that the client does not read. */
static void begin_stream(hl_http *http, hl_connection *c)
{
    int room = STREAM_BUFFER;

    setsockopt(c->socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    c->is_stream  = true;
    c->is_last    = false;
    c->is_chunked = c->minor == 1;
    c->keeps_open = c->keeps_open && c->is_chunked;
    c->is_over    = !write_head(http, c, 200, c->exchange->stream_type, &(hl_answer){ 0 },
                                CHUNK_BEGIN + STREAM_BLOCK + CHUNK_END);
    tell_answered(http, c, 200);
    hl_connection_enter(http, c, HL_CONNECTION_SENDING);
}

/* Moves the next part of a stream, framed, to `out`. Returns false if there is none yet, or if the
 * stream was cut off. */
static bool take_piece(hl_connection *c)
{
    int64_t n = hl_exchange_read(c->exchange, c->out + CHUNK_BEGIN, STREAM_BLOCK);

    c->at_out = c->n_out = 0;
    if (n == -2)
        c->is_over = true;
    if (n == 0 || n == -2)
        return false;
    if (n == -1) {
        c->is_last = true;
        if (c->is_chunked) {
            memcpy(c->out, "0\r\n\r\n", 5);
            c->n_out = 5;
        }
        return true;
    }
    c->at_out = CHUNK_BEGIN;
    c->n_out  = CHUNK_BEGIN + (size_t)n;
    if (c->is_chunked) {
        char size[CHUNK_BEGIN + 1];
        int  n_size = snprintf(size, sizeof size, "%x\r\n", (unsigned)n);

        c->at_out -= (size_t)n_size;
        memcpy(c->out + c->at_out, size, (size_t)n_size);
        memcpy(c->out + c->n_out, "\r\n", CHUNK_END);
        c->n_out += CHUNK_END;
    }
    return true;
}

/* Sends what the socket accepts. Returns false if it accepts no more now, or if the client is
 * gone. */
static bool send_some(hl_connection *c)
{
    const hl_answer *answer   = &c->exchange->answer;
    bool             both     = !c->is_stream && c->has_body;
    struct iovec     parts[2] = {
            { c->out + c->at_out, c->n_out - c->at_out },
            { both ? answer->body + c->at_body : NULL, both ? answer->n_bytes - c->at_body : 0 },
    };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = parts[1].iov_len > 0 ? 2 : 1 };
    ssize_t       n       = sendmsg(c->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0) {
        c->is_over = errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
        return false;
    }
    size_t first = (size_t)n < parts[0].iov_len ? (size_t)n : parts[0].iov_len;
    c->at_out += first;
    c->at_body += (size_t)n - first;
    return true;
}

bool hl_connection_has_unsent(const hl_connection *c)
{
    return c->at_out < c->n_out ||
           (!c->is_stream && c->has_body && c->at_body < c->exchange->answer.n_bytes);
}

/* The answer has been sent: waits for the next request, or closes. */
static void end_answer(hl_http *http, hl_connection *c)
{
    bool clean = c->body.is_done && c->n_in == 0;

    hl_connection_leave(http, c, true);
    if (c->keeps_open) {
        hl_connection_enter(http, c, HL_CONNECTION_READING);
        c->n_seen = 0;
        return;
    }
    if (clean) {
        c->is_over = true;
        return;
    }
    shutdown(c->socket, SHUT_WR);
    c->n_dropped = c->n_in;
    c->n_in      = 0;
    hl_connection_enter(http, c, HL_CONNECTION_LINGERING);
}

void hl_connection_send(hl_http *http, hl_connection *c)
{
    while (!c->is_over) {
        if (hl_connection_has_unsent(c)) {
            if (!send_some(c))
                return;
        } else if (!c->is_stream || c->is_last) {
            end_answer(http, c);
            return;
        } else if (!take_piece(c)) {
            return;
        }
    }
}

/* --------------------------------------------------------------------- requests */

/* Creates an exchange for the request. Returns false if out of memory; the connection is then
 * over. */
static bool new_exchange(hl_http *http, hl_connection *c, const char *method, const char *path)
{
    if (hl_exchange_new(&c->exchange, http, method, path) != HL_OK) {
        c->is_over = true;
        return false;
    }
    c->is_stream       = false;
    c->exchange->peer  = c->peer;
    c->exchange->owner = (hl_exchange_owner){ .context       = http,
                                              .wake          = hl_http_wake,
                                              .stall_seconds = http->options.stall_seconds };
    return true;
}

static void refuse_bytes(hl_http *http, hl_connection *c, int status, const char *fault)
{
    c->keeps_open   = false;
    c->is_head      = false;
    c->body.is_done = false; /* the end of the body is unknown */
    hl_connection_leave(http, c, false);
    if (!new_exchange(http, c, "", ""))
        return;
    http->options.handler.malformed(http->options.handler.context, c->exchange, status, fault);
    begin_answer(http, c);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes percent escapes of a path in place and terminates it with a NUL. Returns false for a
 * malformed path; an encoded NUL is malformed. */
static bool decode_path(hl_http_text path)
{
    char  *out = (char *)path.at; /* points into the connection's own buffer */
    size_t n   = 0;

    for (size_t i = 0; i < path.n; i++, n++) {
        int high = i + 2 < path.n && path.at[i] == '%' ? hex_value(path.at[i + 1]) : -1;
        int low  = i + 2 < path.n && path.at[i] == '%' ? hex_value(path.at[i + 2]) : -1;

        if (path.at[i] != '%') {
            out[n] = path.at[i];
            continue;
        }
        if (high < 0 || low < 0 || high + low == 0)
            return false;
        out[n] = (char)(16 * high + low);
        i += 2;
    }
    out[n] = '\0';
    return true;
}

/* Terminates the texts of the head with NULs. Each is followed by a byte that was already
 * parsed. */
static void end_texts(const hl_http_head *head)
{
    ((char *)head->method.at)[head->method.n] = '\0';
    for (int i = 0; i < head->n_fields; i++)
        ((char *)head->fields[i].value.at)[head->fields[i].value.n] = '\0';
}

/* Here the exchange has an answer unless it was put to work. */
void hl_connection_proceed(hl_http *http, hl_connection *c)
{
    hl_exchange *exchange = c->exchange;

    pthread_mutex_lock(&exchange->lock);
    hl_exchange_state state = exchange->state;
    pthread_mutex_unlock(&exchange->lock);
    if (state == HL_EXCHANGE_ANSWERED)
        begin_answer(http, c);
    else if (state == HL_EXCHANGE_STREAMING)
        begin_stream(http, c);
}

/* The request is complete, or too long. */
static void finish_request(hl_http *http, hl_connection *c)
{
    hl_connection_enter(http, c, HL_CONNECTION_WORKING);
    http->options.handler.request(http->options.handler.context, c->exchange);
    hl_connection_proceed(http, c);
}

static void begin_request(hl_http *http, hl_connection *c, const hl_http_head *head)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

    c->body       = hl_http_body_begin(head);
    c->keeps_open = head->keeps_open;
    c->minor      = head->minor;
    if (!decode_path(head->path)) {
        refuse_bytes(http, c, 400, "the path has an invalid percent-encoding");
        return;
    }
    end_texts(head);
    c->is_head = strcmp(head->method.at, "HEAD") == 0;
    bool good  = new_exchange(http, c, head->method.at, head->path.at);
    if (!good)
        return;
    c->exchange->head = head;
    http->options.handler.head(http->options.handler.context, c->exchange);
    c->exchange->head = NULL;
    /* the request was refused: its body is ignored */
    if (c->exchange->state == HL_EXCHANGE_ANSWERED) {
        c->keeps_open = c->keeps_open && c->body.is_done;
        begin_answer(http, c);
    } else if (!c->body.is_done && c->body.left > http->options.max_body_bytes) {
        c->exchange->request.n_dropped = 1;
        c->keeps_open                  = false;
        finish_request(http, c);
    } else if (head->wants_continue) {
        (void)!send(c->socket, go_on, sizeof go_on - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Reads the available part of the body from `at`; returns where it ends. */
static size_t read_body(hl_http *http, hl_connection *c, size_t at)
{
    hl_exchange *exchange = c->exchange;
    const char  *data     = NULL;
    size_t       n_data   = 0;
    bool         good     = true;

    while (!c->body.is_done && c->body.status == 0 && at < c->n_in && good &&
           exchange->request.n_dropped == 0) {
        at += hl_http_body_read(&data, &n_data, &c->body, c->in + at, c->n_in - at);
        good = hl_exchange_receive(exchange, data, n_data, http->options.max_body_bytes);
    }
    if (!good)
        c->is_over = true;
    else if (c->body.status != 0)
        refuse_bytes(http, c, c->body.status, c->body.fault);
    else if (exchange->request.n_dropped > 0) {
        c->keeps_open = false;
        finish_request(http, c);
    } else if (c->body.is_done)
        finish_request(http, c);
    return at;
}

/* Returns false if searching for a complete head is not yet worthwhile, so that single bytes do not
 * each cause a search. */
static bool may_be_whole(const hl_connection *c)
{
    return memchr(c->in + c->n_seen, '\n', c->n_in - c->n_seen) != NULL ||
           c->n_in >= 2 * c->n_seen || c->n_in >= HL_HTTP_HEADER_BYTES;
}

void hl_connection_read(hl_http *http, hl_connection *c)
{
    hl_http_head head;

    while (c->state == HL_CONNECTION_READING && c->n_in > 0 && !c->is_over) {
        size_t at = 0;

        if (c->exchange == NULL) {
            if (!may_be_whole(c))
                return;
            int status = hl_http_head_read(&head, c->in, c->n_in);
            c->n_seen  = c->n_in;
            if (status == 0)
                return;
            if (status == 200) {
                at = head.n_bytes;
                begin_request(http, c, &head);
            } else {
                refuse_bytes(http, c, status, head.fault);
            }
        }
        if (c->state == HL_CONNECTION_READING && !c->is_over)
            at = read_body(http, c, at);
        memmove(c->in, c->in + at, c->n_in - at);
        c->n_in -= at;
        c->n_seen = 0;
        if (c->state == HL_CONNECTION_SENDING)
            hl_connection_send(http, c);
    }
    if (c->n_in == 0) { /* an idle connection holds no memory */
        hl_free(c->in);
        c->in      = NULL;
        c->in_room = 0;
    }
}

/* Makes room for more bytes of a head; bodies are consumed as they arrive. */
static bool make_room(hl_connection *c)
{
    return c->n_in < c->in_room || (c->in_room < HL_HTTP_HEADER_BYTES &&
                                    HL_GROW(&c->in, &c->in_room, c->n_in, FIRST_INPUT) == HL_OK);
}

void hl_connection_receive(hl_http *http, hl_connection *c)
{
    if (!make_room(c)) {
        c->is_over = true;
        return;
    }
    ssize_t n = recv(c->socket, c->in + c->n_in, c->in_room - c->n_in, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    if (n <= 0) {
        c->is_over = true;
        return;
    }
    c->n_in += (size_t)n;
    hl_connection_read(http, c);
}

void hl_connection_drop(hl_connection *c)
{
    char    bytes[16384];
    ssize_t n = recv(c->socket, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n > 0)
        c->n_dropped += (size_t)n;
    c->is_over = n == 0 || c->n_dropped > MAX_DROPPED ||
                 (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}
