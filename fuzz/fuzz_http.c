/* fuzz_http.c - arbitrary bytes sent to a server.
 *
 * Each input goes over its own socket to one server, which keeps running.  The reply is empty or an
 * HTTP answer below 500; only a busy server may answer with its own status. */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

enum { N_CONTEXT = 32, BUSY = 503 };

static hl_model     *model; /* opened once, all of them */
static hl_tokenizer *tokenizer;
static hl_server    *server;

static void close_all(void)
{
    hl_server_close(server);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
}

static void open_once(void)
{
    hl_server_options options = { .port            = -1,
                                  .token           = "t",
                                  .n_slots         = 2,
                                  .n_ctx           = N_CONTEXT,
                                  .n_threads       = 1,
                                  .model_name      = "m",
                                  .max_body_bytes  = 4096,
                                  .request_seconds = 0.5 };

    if (server != NULL)
        return;
    PROMISE(hl_model_open(&model, "tests/data/families/llama3") == HL_OK);
    PROMISE(hl_tokenizer_open(&tokenizer, "tests/data/tokenizers/small-bpe") == HL_OK);
    PROMISE(hl_server_open(&server, model, tokenizer, &options) == HL_OK);
    atexit(close_all);
}

static int dial(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port   = htons((uint16_t)hl_server_port(server)) };
    int                caller  = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    PROMISE(caller >= 0);
    PROMISE(connect(caller, (struct sockaddr *)&address, sizeof address) == 0);
    return caller;
}

/* Sends all bytes; the server may close the connection before it has read them. */
static void send_all(int caller, const uint8_t *bytes, size_t n_bytes)
{
    while (n_bytes > 0) {
        ssize_t n = send(caller, bytes, n_bytes, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        bytes += n;
        n_bytes -= (size_t)n;
    }
    shutdown(caller, SHUT_WR);
}

static void check_answer(int caller)
{
    char    answer[256]; /* beginning of the answer; the rest is read and dropped */
    char    rest[65536];
    size_t  used = 0;
    ssize_t n;
    int     status = 0;

    while (used < sizeof answer - 1 &&
           (n = recv(caller, answer + used, sizeof answer - 1 - used, 0)) > 0)
        used += (size_t)n;
    answer[used] = '\0';
    while (recv(caller, rest, sizeof rest, 0) > 0)
        ;
    if (used > 0)
        PROMISE(sscanf(answer, "HTTP/1.%*1d %3d", &status) == 1 && status >= 100 &&
                (status < 500 || status == BUSY || status == 501 || status == 505));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    open_once();
    int caller = dial();
    send_all(caller, bytes, n_bytes);
    check_answer(caller);
    close(caller);
    return 0;
}
