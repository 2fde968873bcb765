/* framing.h - HTTP/1.1 requests from bytes: the head, and where the body ends.
 *
 *     hl_http_head head;
 *     int status = hl_http_head_read(&head, bytes, n_bytes);   0: more bytes are needed
 *     if (status == 200)
 *         ... head.n_bytes were the head, what follows is the body ...
 *     hl_http_body body = hl_http_body_begin(&head);
 *     while (!body.is_done && body.status == 0)
 *         n = hl_http_body_read(&data, &n_data, &body, bytes, n_bytes);
 *
 * Two programs that disagree on where a request ends can be made to see different requests in the
 * same bytes (request smuggling).  The forms that RFC 9112 only tolerates are therefore refused: a
 * line ends with CR LF, a colon follows a name directly, no field is folded, a length is given once
 * and in one way, and each field that decides who asks, or what is asked, occurs at most once. A
 * refused connection is closed.
 *
 * The functions are pure: they take bytes and return spans of the same bytes. */
#ifndef HL_SERVE_FRAMING_H
#define HL_SERVE_FRAMING_H

#include "headlight/base.h"

enum {
    /* limit of a head, including the request line and the final empty line */
    HL_HTTP_HEADER_BYTES = 32768,
    HL_HTTP_MAX_FIELDS   = 100,
    HL_HTTP_MAX_TARGET   = 8192, /* limit of path and query, in bytes */
    HL_HTTP_MAX_QUERY    = 100,  /* limit of query arguments; no route uses any */
    HL_HTTP_MAX_COOKIES  = 200,  /* Other programs on the same machine may have set cookies. */
    /* limit of all chunk extensions and trailers of a body, in bytes */
    HL_HTTP_MAX_EXTRA = 4096,
};

/* A slice of bytes that belong to somebody else; it is not NUL-terminated. */
typedef struct hl_http_text {
    const char *at;
    size_t      n;
} hl_http_text;

typedef struct hl_http_field {
    hl_http_text name;
    hl_http_text value; /* without surrounding blanks */
} hl_http_field;

typedef struct hl_http_head {
    size_t        n_bytes; /* length of the whole head */
    hl_http_text  method;
    hl_http_text  path;  /* from its '/' up to the '?' */
    int           minor; /* minor version: HTTP/1.0 or HTTP/1.1 */
    bool          keeps_open;
    bool          is_chunked;
    bool          has_body; /* true if the body is chunked or longer than 0 bytes */
    bool          wants_continue;
    uint64_t      length; /* Content-Length, for a body that is not chunked */
    hl_http_field fields[HL_HTTP_MAX_FIELDS];
    int           n_fields;
    const char   *fault; /* why the head was refused: a static text without quotes */
} hl_http_head;

/* Returns 200 if the head is complete and valid, and 0 if it is valid so far but incomplete.
 * Otherwise returns the status of the refusal and sets head->fault; the connection must be
 * closed. */
int hl_http_head_read(hl_http_head *out, const char *bytes, size_t n_bytes);

/* Returns the value of the first field of this name, ignoring case; {NULL, 0} if there is none. */
hl_http_text hl_http_head_field(const hl_http_head *head, const char *name);

typedef struct hl_http_body {
    bool        is_chunked;
    bool        is_done;
    int         status;   /* 0, or the status of the refusal */
    const char *fault;    /* as in hl_http_head */
    uint64_t    left;     /* bytes still to come, of the body or of the current chunk */
    size_t      n_extra;  /* bytes of chunk extensions and trailers so far */
    int         place;    /* in a chunked body: the parser's state, see framing.c */
    int         n_digits; /* digits read so far of this chunk's size */
} hl_http_body;

hl_http_body hl_http_body_begin(const hl_http_head *head);
/* Continues reading. Returns the number of bytes it consumed; *data (n_data) is the part of them
 * that belongs to the body. Call it again with the rest until nothing is left, the body is_done, or
 * it has a status. */
size_t hl_http_body_read(const char **data, size_t *n_data, hl_http_body *body, const char *bytes,
                         size_t n_bytes);

#endif
