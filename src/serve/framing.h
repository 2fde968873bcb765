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
 * same bytes (request smuggling).  So nothing that RFC 9112 leaves to the reader's good will is
 * read here: a line ends with CR LF, a name is followed by its colon, no field is folded, a length
 * is given once and in one way, and each field that decides who asks, or what, comes at most once.
 * Everything else is refused, and a refused connection is closed.
 *
 * The functions are pure: bytes in, spans of the same bytes out. */
#ifndef HL_SERVE_FRAMING_H
#define HL_SERVE_FRAMING_H

#include "headlight/base.h"

enum {
    HL_HTTP_HEADER_BYTES = 32768, /* of a head, the request line and the final empty line too */
    HL_HTTP_MAX_FIELDS   = 100,
    HL_HTTP_MAX_TARGET   = 8192, /* bytes of path and query */
    HL_HTTP_MAX_QUERY    = 100,  /* arguments of a query; no route has any */
    HL_HTTP_MAX_COOKIES  = 200,  /* other programs on the same machine may have set some */
    HL_HTTP_MAX_EXTRA    = 4096, /* bytes of all chunk extensions and trailers of a body */
};

/* A part of somebody else's bytes, without a NUL behind it. */
typedef struct hl_http_text {
    const char *at;
    size_t      n;
} hl_http_text;

typedef struct hl_http_field {
    hl_http_text name;
    hl_http_text value; /* without the blanks around it */
} hl_http_field;

typedef struct hl_http_head {
    size_t        n_bytes; /* of the whole head */
    hl_http_text  method;
    hl_http_text  path;  /* from its '/' to before the '?' */
    int           minor; /* 0 or 1, of HTTP/1.x */
    bool          keeps_open;
    bool          is_chunked;
    bool          has_body; /* chunked, or longer than 0 bytes */
    bool          wants_continue;
    uint64_t      length; /* of a body that is not chunked */
    hl_http_field fields[HL_HTTP_MAX_FIELDS];
    int           n_fields;
    const char   *fault; /* why it was refused.  Static, without quotes */
} hl_http_head;

/* 200: the head is whole and right.  0: it is right so far.  Else the status of the refusal, with
 * head->fault; the connection cannot be used any more. */
int hl_http_head_read(hl_http_head *out, const char *bytes, size_t n_bytes);

/* The value of the first field of this name, upper or lower case; {NULL, 0}: there is none. */
hl_http_text hl_http_head_field(const hl_http_head *head, const char *name);

typedef struct hl_http_body {
    bool        is_chunked;
    bool        is_done;
    int         status;   /* 0, or that of the refusal */
    const char *fault;    /* as in hl_http_head */
    uint64_t    left;     /* bytes of the body, or of this chunk, that are still to come */
    size_t      n_extra;  /* bytes so far of chunk extensions and trailers */
    int         place;    /* in a chunked body: a state of framing.c */
    int         n_digits; /* of the size of this chunk, so far */
} hl_http_body;

hl_http_body hl_http_body_begin(const hl_http_head *head);
/* Reads on: returns how many bytes it used, of which *data (n_data) are the body's.  Call it again
 * with the rest until that is empty, or the body is_done, or has a status. */
size_t hl_http_body_read(const char **data, size_t *n_data, hl_http_body *body, const char *bytes,
                         size_t n_bytes);

#endif
