/* fuzz_framing.c - arbitrary bytes as requests on one connection, in process, without sockets.
 *
 * Requests are parsed from the input one after another, as a connection does.  The promises: an
 * accepted head determines the end of its body in one way only; the result does not depend on how
 * the bytes were cut into packets; nothing is read beyond the bytes. */
#include <string.h>
#include <strings.h>

#include "fuzz.h"
#include "serve/framing.h"

static hl_http_head head, again; /* too large for the stack of a fuzzer under ASan */

/* Counts the fields of this name. */
static int count_fields(const char *name)
{
    int n = 0;

    for (int i = 0; i < head.n_fields; i++)
        n += head.fields[i].name.n == strlen(name) &&
                     strncasecmp(head.fields[i].name.at, name, head.fields[i].name.n) == 0
                 ? 1
                 : 0;
    return n;
}

static void check_head(const char *bytes, size_t n_bytes)
{
    size_t cut =
        head.n_bytes > 0 ? (size_t)(unsigned char)bytes[head.n_bytes / 2] % head.n_bytes : 0;

    PROMISE(head.n_bytes <= n_bytes && head.n_bytes <= HL_HTTP_HEADER_BYTES);
    PROMISE(memcmp(bytes + head.n_bytes - 4, "\r\n\r\n", 4) == 0);
    PROMISE(head.path.n > 0 && head.path.at[0] == '/');
    PROMISE(count_fields("Host") <= 1 && (head.minor == 0 || count_fields("Host") == 1));
    PROMISE(count_fields("Content-Length") + count_fields("Transfer-Encoding") <= 1);
    PROMISE(head.is_chunked == (count_fields("Transfer-Encoding") == 1));
    PROMISE(!head.is_chunked || head.length == 0);
    for (int i = 0; i < head.n_fields; i++) {
        PROMISE(memchr(head.fields[i].value.at, '\0', head.fields[i].value.n) == NULL);
        PROMISE(memchr(head.fields[i].name.at, ' ', head.fields[i].name.n) == NULL);
    }
    PROMISE(hl_http_head_read(&again, bytes, cut) == 0); /* a part of a valid head is incomplete,
                                                          * but not invalid */
    PROMISE(hl_http_head_read(&again, bytes, head.n_bytes) == 200);
    PROMISE(again.n_bytes == head.n_bytes && again.n_fields == head.n_fields);
}

typedef struct body_result {
    size_t   n_used;
    size_t   n_data;
    uint64_t hash;
    int      status;
    bool     is_done;
} body_result;

/* Reads the body, `step` bytes at a time. */
static body_result read_body(const char *bytes, size_t n_bytes, size_t step)
{
    hl_http_body body = hl_http_body_begin(&head);
    body_result  got  = { .hash = 14695981039346656037u };

    while (!body.is_done && body.status == 0 && got.n_used < n_bytes) {
        const char *data   = NULL;
        size_t      n_data = 0;
        size_t      left   = n_bytes - got.n_used;
        size_t      most   = left < step ? left : step;
        size_t      used   = hl_http_body_read(&data, &n_data, &body, bytes + got.n_used, most);

        PROMISE(used <= most && (used > 0 || body.status != 0) && n_data <= used);
        for (size_t i = 0; i < n_data; i++)
            got.hash = (got.hash ^ (unsigned char)data[i]) * 1099511628211u;
        got.n_used += used;
        got.n_data += n_data;
    }
    PROMISE(body.status == 0 || (body.status >= 400 && body.status < 500 && body.fault != NULL));
    got.status  = body.status;
    got.is_done = body.is_done;
    return got;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t n_bytes)
{
    const char *bytes = (const char *)input;

    while (n_bytes > 0) {
        int status = hl_http_head_read(&head, bytes, n_bytes);

        if (status != 200) {
            PROMISE(status == 0 || (status >= 400 && status < 600 && head.fault != NULL));
            PROMISE(status != 0 || n_bytes < HL_HTTP_HEADER_BYTES);
            return 0;
        }
        check_head(bytes, n_bytes);
        bytes += head.n_bytes;
        n_bytes -= head.n_bytes;
        body_result whole = read_body(bytes, n_bytes, n_bytes + 1);
        body_result drops = read_body(bytes, n_bytes, 1 + head.n_bytes % 7);
        PROMISE(whole.n_used == drops.n_used && whole.n_data == drops.n_data &&
                whole.hash == drops.hash && whole.status == drops.status &&
                whole.is_done == drops.is_done);
        PROMISE(!whole.is_done || head.is_chunked || whole.n_data == head.length);
        if (!whole.is_done)
            return 0;
        bytes += whole.n_used;
        n_bytes -= whole.n_used;
    }
    return 0;
}
