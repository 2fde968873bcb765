/* framing.c - request line, fields, lengths and chunks, byte by byte and strictly.
 *
 *     METHOD SP target SP HTTP/1.x CRLF
 *     name ":" blanks value blanks CRLF        any number of times
 *     CRLF
 *     body: none, Content-Length bytes, or chunks:
 *         hex size [";" extension] CRLF  bytes CRLF ... 0 CRLF  trailers  CRLF */
#include "serve/framing.h"

#include <string.h>
#include <strings.h>

#define MAX_METHOD 32
#define MAX_LENGTH (UINT64_C(1) << 62)
#define MAX_DIGITS 15 /* limit of digits of a chunk's size */

/* ---------------------------------------------------------------------- characters */

/* Bytes allowed in names of methods and fields. */
static bool is_token_byte(unsigned char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Bytes allowed in values and extensions: all but control characters. */
static bool is_value_byte(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static bool is_token(hl_http_text span)
{
    for (size_t i = 0; i < span.n; i++) {
        if (!is_token_byte((unsigned char)span.at[i]))
            return false;
    }
    return span.n > 0;
}

static bool equals(hl_http_text span, const char *text)
{
    return span.n == strlen(text) && strncasecmp(span.at, text, span.n) == 0;
}

static hl_http_text trim(const char *at, size_t n)
{
    while (n > 0 && is_blank(*at)) {
        at++;
        n--;
    }
    while (n > 0 && is_blank(at[n - 1]))
        n--;
    return (hl_http_text){ at, n };
}

static int refuse(hl_http_head *head, int status, const char *fault)
{
    head->fault = fault;
    return status;
}

/* --------------------------------------------------------------------------- lines */

typedef enum line_end { LINE_WHOLE, LINE_OPEN, LINE_BAD } line_end;

/* Takes the next line without its CR LF; *at moves past it. A single CR or LF is an error. */
static line_end next_line(hl_http_text *line, size_t *at, const char *bytes, size_t n_bytes)
{
    size_t end = *at;

    while (end < n_bytes && bytes[end] != '\r' && bytes[end] != '\n')
        end++;
    *line = (hl_http_text){ bytes + *at, end - *at };
    if (end == n_bytes || (bytes[end] == '\r' && end + 1 == n_bytes))
        return LINE_OPEN;
    if (bytes[end] == '\n' || bytes[end + 1] != '\n')
        return LINE_BAD;
    *at = end + 2;
    return LINE_WHOLE;
}

/* -------------------------------------------------------------------- request line */

static size_t count_byte(hl_http_text span, char wanted)
{
    size_t n = 0;

    for (size_t i = 0; i < span.n; i++)
        n += span.at[i] == wanted ? 1 : 0;
    return n;
}

static int read_target(hl_http_head *out, hl_http_text target)
{
    const char  *query = memchr(target.at, '?', target.n);
    hl_http_text rest  = { query, query != NULL ? (size_t)(target.at + target.n - query) : 0 };

    if (count_byte(rest, '&') >= HL_HTTP_MAX_QUERY)
        return refuse(out, 400, "the query has more than 100 arguments");
    if (target.n > HL_HTTP_MAX_TARGET)
        return refuse(out, 414, "the path is longer than 8192 bytes");
    for (size_t i = 0; i < target.n; i++) {
        if ((unsigned char)target.at[i] <= 0x20 || (unsigned char)target.at[i] >= 0x7f)
            return refuse(out, 400, "the path has a byte that must be percent-encoded");
    }
    if (target.n == 0 || target.at[0] != '/')
        return refuse(out, 400, "wanted a path that begins with a slash");
    out->path = (hl_http_text){ target.at, target.n - rest.n };
    return 0;
}

static int read_version(hl_http_head *out, hl_http_text version)
{
    if (version.n != 8 || memcmp(version.at, "HTTP/", 5) != 0 || version.at[6] != '.')
        return refuse(out, 400, "wanted METHOD PATH HTTP/1.1");
    if (version.at[5] != '1' || (version.at[7] != '0' && version.at[7] != '1'))
        return refuse(out, 505, "wanted HTTP/1.0 or HTTP/1.1");
    out->minor      = version.at[7] - '0';
    out->keeps_open = out->minor == 1;
    return 0;
}

static int read_request_line(hl_http_head *out, hl_http_text line)
{
    const char *first = memchr(line.at, ' ', line.n);
    const char *last  = line.at + line.n;

    while (last > line.at && *--last != ' ')
        continue;
    if (first == NULL || last == first)
        return refuse(out, 400, "wanted METHOD PATH HTTP/1.1");
    out->method          = (hl_http_text){ line.at, (size_t)(first - line.at) };
    hl_http_text target  = { first + 1, (size_t)(last - first - 1) };
    hl_http_text version = { last + 1, (size_t)(line.at + line.n - last - 1) };
    if (!is_token(out->method) || out->method.n > MAX_METHOD)
        return refuse(out, 400, "the method is not a word");
    int status = read_version(out, version);
    return status != 0 ? status : read_target(out, target);
}

/* ------------------------------------------------------------------------ fields */

static int read_field(hl_http_head *out, hl_http_text line)
{
    const char *colon = memchr(line.at, ':', line.n);

    if (is_blank(line.at[0]))
        return refuse(out, 400, "a header field is folded");
    if (colon == NULL)
        return refuse(out, 400, "a header field has no colon");
    hl_http_field field = { .name  = { line.at, (size_t)(colon - line.at) },
                            .value = trim(colon + 1, (size_t)(line.at + line.n - colon - 1)) };
    if (!is_token(field.name))
        return refuse(out, 400, "the name of a header field is not a word before its colon");
    for (size_t i = 0; i < field.value.n; i++) {
        if (!is_value_byte((unsigned char)field.value.at[i]))
            return refuse(out, 400, "the value of a header field has a control character");
    }
    if (out->n_fields == HL_HTTP_MAX_FIELDS)
        return refuse(out, 431, "there are more than 100 header fields");
    out->fields[out->n_fields++] = field;
    return 0;
}

hl_http_text hl_http_head_field(const hl_http_head *head, const char *name)
{
    for (int i = 0; i < head->n_fields; i++) {
        if (equals(head->fields[i].name, name))
            return head->fields[i].value;
    }
    return (hl_http_text){ NULL, 0 };
}

/* Is this word an element of a comma-separated list? */
static bool has_word(hl_http_text list, const char *word)
{
    size_t from = 0;

    for (size_t i = 0; i <= list.n; i++) {
        if (i < list.n && list.at[i] != ',')
            continue;
        if (equals(trim(list.at + from, i - from), word))
            return true;
        from = i + 1;
    }
    return false;
}

/* ---------------------------------------------------------------- what fields mean */

static int read_length(hl_http_head *out, hl_http_text digits)
{
    uint64_t length = 0;

    for (size_t i = 0; i < digits.n; i++) {
        if (digits.at[i] < '0' || digits.at[i] > '9')
            return refuse(out, 400, "Content-Length is not a number");
        if (length >= MAX_LENGTH / 10)
            return refuse(out, 413, "Content-Length is too large");
        length = 10 * length + (uint64_t)(digits.at[i] - '0');
    }
    if (digits.n == 0)
        return refuse(out, 400, "Content-Length is not a number");
    out->length   = length;
    out->has_body = length > 0;
    return 0;
}

static int read_coding(hl_http_head *out, hl_http_text coding)
{
    if (out->minor == 0)
        return refuse(out, 400, "Transfer-Encoding in a request of HTTP/1.0");
    if (!equals(coding, "chunked"))
        return refuse(out, 501, "wanted Transfer-Encoding: chunked");
    out->is_chunked = true;
    out->has_body   = true;
    return 0;
}

/* Refuses duplicates of fields whose values could contradict each other. */
static int check_repeats(hl_http_head *head)
{
    static const char *const single[] = { "Host",           "Content-Length", "Transfer-Encoding",
                                          "Content-Type",   "Authorization",  "Origin",
                                          "Sec-Fetch-Site", "Expect" };
    size_t                   cookies  = 0;

    for (size_t which = 0; which < sizeof single / sizeof *single; which++) {
        int n = 0;
        for (int i = 0; i < head->n_fields; i++)
            n += equals(head->fields[i].name, single[which]) ? 1 : 0;
        if (n > 1)
            return refuse(head, 400, "a header field that may come once comes twice");
    }
    for (int i = 0; i < head->n_fields; i++) {
        if (equals(head->fields[i].name, "Cookie"))
            cookies += 1 + count_byte(head->fields[i].value, ';');
    }
    if (cookies > HL_HTTP_MAX_COOKIES)
        return refuse(head, 431, "there are more than 200 cookies");
    return 0;
}

static int understand(hl_http_head *head)
{
    hl_http_text length = hl_http_head_field(head, "Content-Length");
    hl_http_text coding = hl_http_head_field(head, "Transfer-Encoding");
    hl_http_text expect = hl_http_head_field(head, "Expect");
    int          status = check_repeats(head);

    if (status != 0)
        return status;
    if (head->minor == 1 && hl_http_head_field(head, "Host").at == NULL)
        return refuse(head, 400, "there is no Host field");
    if (length.at != NULL && coding.at != NULL)
        return refuse(head, 400, "both Content-Length and Transfer-Encoding are given");
    if (length.at != NULL && (status = read_length(head, length)) != 0)
        return status;
    if (coding.at != NULL && (status = read_coding(head, coding)) != 0)
        return status;
    if (expect.at != NULL && !equals(expect, "100-continue"))
        return refuse(head, 417, "wanted Expect: 100-continue");
    head->wants_continue = expect.at != NULL && head->minor == 1 && head->has_body;
    for (int i = 0; i < head->n_fields; i++) {
        if (equals(head->fields[i].name, "Connection") && has_word(head->fields[i].value, "close"))
            head->keeps_open = false;
    }
    return 200;
}

/* ------------------------------------------------------------------------ the head */

/* Requests more bytes, unless there are too many already. */
static int wait_for_more(hl_http_head *out, size_t n_bytes)
{
    if (n_bytes < HL_HTTP_HEADER_BYTES)
        return 0;
    return refuse(out, 431, "the header is longer than 32768 bytes");
}

/* Checks a request line that has not ended yet. Without this check, a request line of megabytes
 * would be refused as a header that is too long. */
static int check_open_line(hl_http_head *out, hl_http_text line)
{
    const char  *query = memchr(line.at, '?', line.n);
    hl_http_text rest  = { query, query != NULL ? (size_t)(line.at + line.n - query) : 0 };

    if (count_byte(rest, '&') >= HL_HTTP_MAX_QUERY)
        return refuse(out, 400, "the query has more than 100 arguments");
    if (line.n > HL_HTTP_MAX_TARGET + MAX_METHOD)
        return refuse(out, 414, "the path is longer than 8192 bytes");
    return 0;
}

int hl_http_head_read(hl_http_head *out, const char *bytes, size_t n_bytes)
{
    size_t       n      = n_bytes < HL_HTTP_HEADER_BYTES ? n_bytes : HL_HTTP_HEADER_BYTES;
    size_t       at     = 0;
    int          status = 0;
    hl_http_text line   = { NULL, 0 };
    line_end     end;

    out->n_fields   = 0;
    out->fault      = NULL;
    out->is_chunked = out->has_body = out->wants_continue = out->keeps_open = false;
    out->length                                                             = 0;
    /* Some clients send an empty line after a body. */
    if (n >= 2 && bytes[0] == '\r' && bytes[1] == '\n')
        at = 2;
    end = next_line(&line, &at, bytes, n);
    if (end == LINE_OPEN) {
        status = check_open_line(out, line);
        return status != 0 ? status : wait_for_more(out, n_bytes);
    }
    if (end == LINE_BAD)
        return refuse(out, 400, "a line does not end with CR LF");
    if ((status = read_request_line(out, line)) != 0)
        return status;
    while ((end = next_line(&line, &at, bytes, n)) == LINE_WHOLE && line.n > 0) {
        if ((status = read_field(out, line)) != 0)
            return status;
    }
    if (end == LINE_BAD)
        return refuse(out, 400, "a line does not end with CR LF");
    if (end == LINE_OPEN)
        return wait_for_more(out, n_bytes);
    out->n_bytes = at;
    return understand(out);
}

/* ------------------------------------------------------------------------ the body */

/* States of the parser in a chunked body. */
enum {
    SIZE_FIRST, /* the first digit of a size */
    SIZE_MORE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_BEGIN, /* beginning of a line */
    TRAILER,
    TRAILER_LF,
    LAST_LF,
};

hl_http_body hl_http_body_begin(const hl_http_head *head)
{
    return (hl_http_body){ .is_chunked = head->is_chunked,
                           .is_done    = !head->has_body,
                           .left       = head->is_chunked ? 0 : head->length,
                           .place      = SIZE_FIRST };
}

static void fail_body(hl_http_body *body, const char *fault)
{
    body->status = 400;
    body->fault  = fault;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static void read_size_byte(hl_http_body *body, char c)
{
    int digit = hex_digit(c);

    if (digit >= 0 && body->n_digits == MAX_DIGITS)
        fail_body(body, "the size of a chunk is too large");
    else if (digit >= 0) {
        body->left  = 16 * body->left + (uint64_t)digit;
        body->place = SIZE_MORE;
        body->n_digits++;
    } else if (body->place == SIZE_MORE && c == ';')
        body->place = EXTENSION;
    else if (body->place == SIZE_MORE && c == '\r')
        body->place = SIZE_LF;
    else
        fail_body(body, "the size of a chunk is not a hexadecimal number");
}

/* Handles a byte that is framing and not content. */
static void read_frame_byte(hl_http_body *body, char c)
{
    switch (body->place) {
    case SIZE_FIRST:
    case SIZE_MORE:
        read_size_byte(body, c);
        return;
    case EXTENSION:
    case TRAILER:
        if (c == '\r')
            body->place = body->place == EXTENSION ? SIZE_LF : TRAILER_LF;
        else if (!is_value_byte((unsigned char)c))
            fail_body(body, "a chunk extension or trailer has a control character");
        return;
    case TRAILER_BEGIN:
        if (c == '\r')
            body->place = LAST_LF;
        else if (is_token_byte((unsigned char)c))
            body->place = TRAILER;
        else
            fail_body(body, "a trailer is not a header field");
        return;
    case DATA_CR:
        body->place = DATA_LF;
        if (c != '\r')
            fail_body(body, "a chunk is longer than its size");
        return;
    default: /* an LF is expected */
        if (c != '\n')
            fail_body(body, "a line of a chunked body does not end with CR LF");
        else if (body->place == SIZE_LF)
            body->place = body->left > 0 ? DATA : TRAILER_BEGIN;
        else if (body->place == DATA_LF) {
            body->place    = SIZE_FIRST;
            body->n_digits = 0;
        } else if (body->place == TRAILER_LF)
            body->place = TRAILER_BEGIN;
        else
            body->is_done = true;
    }
}

size_t hl_http_body_read(const char **data, size_t *n_data, hl_http_body *body, const char *bytes,
                         size_t n_bytes)
{
    size_t at = 0;

    *data   = bytes;
    *n_data = 0;
    while (body->is_chunked && at < n_bytes && !body->is_done && body->status == 0 &&
           body->place != DATA) {
        read_frame_byte(body, bytes[at++]);
        body->n_extra += body->place == EXTENSION || body->place == TRAILER ? 1 : 0;
        if (body->n_extra > HL_HTTP_MAX_EXTRA)
            fail_body(body, "chunk extensions and trailers are longer than 4096 bytes");
    }
    if (body->is_done || body->status != 0 || (body->is_chunked && body->place != DATA))
        return at;
    uint64_t n = n_bytes - at < body->left ? n_bytes - at : body->left;
    *data      = bytes + at;
    *n_data    = (size_t)n;
    body->left -= n;
    if (body->left == 0 && body->is_chunked)
        body->place = DATA_CR;
    else if (body->left == 0)
        body->is_done = true;
    return at + (size_t)n;
}
