/* test_faults_serve.c - a server whose allocations and system calls fail in turn, while it opens
 * and while it answers each kind of request.
 *
 * A client gets the complete answer, an error in JSON (only a status if there is no memory for
 * that), or a closed connection.  The next client, without faults, gets the same bytes as
 * always. */
#include "fault_support.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#define MAX_ANSWER (1 << 20)

typedef struct fixture {
    hl_model     *model;
    hl_tokenizer *tokenizer;
    hl_server    *server;
} fixture;

typedef struct question {
    fixture    *f;
    const char *method;
    const char *path;
    const char *body;
    bool        streams; /* the answer is whole if it ends with [DONE] */
    bool        varies;  /* the body depends on the time: only the status is compared */
    bool        asked;
    uint64_t    wanted; /* hash of the expected answer */
} question;

static hl_server_options options(void)
{
    return (hl_server_options){ .port = -1, .n_slots = 2, .n_ctx = 32, .n_threads = 1 };
}

/* ------------------------------------------------------------------------- a client */

static char answer[MAX_ANSWER];

static int connect_to(const hl_server *server)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port   = htons((uint16_t)hl_server_port(server)) };
    struct timeval     limit   = { .tv_sec = 20 };
    int                client  = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(client >= 0);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), 0);
    return client;
}

/* Reads an answer until the server closes; false after 20 seconds without data. */
static bool exchange(const question *q)
{
    char   request[2048];
    size_t used   = 0;
    int    client = connect_to(q->f->server);
    int    length = snprintf(request, sizeof request,
                             "%s %s HTTP/1.0\r\nHost: 127.0.0.1\r\n"
                                "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                             q->method, q->path, strlen(q->body), q->body);
    bool   done   = false;

    (void)!send(client, request, (size_t)length, MSG_NOSIGNAL);
    for (ssize_t n = 1; !done && used < MAX_ANSWER - 1;) {
        n = recv(client, answer + used, MAX_ANSWER - 1 - used, 0);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        done = n <= 0;
        used += n > 0 ? (size_t)n : 0;
    }
    answer[used] = '\0';
    close(client);
    return done;
}

/* Hashes the body without names and times, which differ in each answer. */
static uint64_t hash_of_body(void)
{
    static const char *const changing[] = { "\"id\":\"", "\"created\":" };
    char                    *body       = strstr(answer, "\r\n\r\n");

    assert_non_null(body);
    for (size_t i = 0; i < sizeof changing / sizeof *changing; i++) {
        for (char *at = body; (at = strstr(at, changing[i])) != NULL;) {
            at += strlen(changing[i]);
            memset(at, ' ', strcspn(at, "\",}"));
        }
    }
    return hl_hash(body, strlen(body), 0);
}

static hl_status ask(void *context)
{
    question *q = context;

    if (!exchange(q)) {
        snprintf(message, sizeof message, "no answer at all");
        return HL_INTERNAL;
    }
    bool good  = strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 8, " 200", 4) == 0;
    bool whole = good && (!q->streams || strstr(answer, "[DONE]") != NULL);
    if (whole && !q->asked) {
        q->wanted = q->varies ? 0 : hash_of_body();
        q->asked  = true;
    }
    snprintf(message, sizeof message, "%.300s", answer[0] != '\0' ? answer : "closed");
    if (whole)
        return q->varies || hash_of_body() == q->wanted ? HL_OK : HL_INTERNAL;
    /* Without memory for the message of an error, only the status is sent. */
    bool explained =
        strstr(answer, "\"message\"") != NULL || strstr(answer, "Content-Length: 0\r\n");
    bool refused =
        strncmp(answer, "HTTP/1.", 7) == 0 && strncmp(answer + 8, " 5", 2) == 0 && explained;
    return refused || good || answer[0] == '\0' ? HL_NO_MEMORY : HL_INTERNAL;
}

/* After the fault, the server answers as usual. */
static void ask_again(void *context)
{
    char said[sizeof message];

    strcpy(said, message);
    if (ask(context) != HL_OK)
        PROBLEM("after '%.100s' the server says '%.200s'", said, message);
}

static void inject_question(fixture *f, const char *name, int64_t most, question q)
{
    q.f     = f;
    trial t = { .name = name, .run = ask, .after = ask_again, .context = &q, .most = most };
    inject(&t);
}

/* ----------------------------------------------------------------------------- tests */

static hl_status open_and_close(void *context)
{
    fixture          *f      = context;
    hl_server        *server = NULL;
    hl_server_options how    = options();
    hl_status         status = hl_server_open(&server, f->model, f->tokenizer, &how);

    snprintf(message, sizeof message, "%s", hl_error_message());
    hl_server_close(server);
    return status;
}

static void opening(void **state)
{
    trial t = { .name = "serve: open", .run = open_and_close, .context = *state };
    inject(&t);
}

static void short_questions(void **state)
{
    inject_question(*state, "GET /health", 0,
                    (question){ .method = "GET", .path = "/health", .body = "" });
    inject_question(*state, "GET /", 0, (question){ .method = "GET", .path = "/", .body = "" });
    inject_question(*state, "GET /v1/models", 0,
                    (question){ .method = "GET", .path = "/v1/models", .body = "" });
    inject_question(*state, "GET /v1/headlight/model", 0,
                    (question){ .method = "GET", .path = "/v1/headlight/model", .body = "" });
    inject_question(*state, "GET /metrics", 0,
                    (question){ .method = "GET", .path = "/metrics", .body = "", .varies = true });
}

static void texts(void **state)
{
    inject_question(*state, "POST /v1/completions", 0,
                    (question){ .method = "POST",
                                .path   = "/v1/completions",
                                .body =
                                    "{\"prompt\":\"He said\",\"max_tokens\":2,\"temperature\":0,"
                                    "\"logprobs\":2}" });
    inject_question(*state, "... as a stream", 0,
                    (question){ .method = "POST",
                                .path   = "/v1/completions",
                                .body =
                                    "{\"prompt\":\"He said\",\"max_tokens\":2,\"temperature\":0,"
                                    "\"stream\":true,\"headlight\":{\"rows\":[\"entropy\"]}}",
                                .streams = true });
    inject_question(*state, "POST /v1/chat/completions", 0,
                    (question){ .method = "POST",
                                .path   = "/v1/chat/completions",
                                .body   = "{\"messages\":[{\"role\":\"user\",\"content\":\"He\"}],"
                                          "\"max_tokens\":1,\"temperature\":0}" });
}

static void views(void **state)
{
    inject_question(*state, "POST /v1/measure", 50,
                    (question){ .method = "POST",
                                .path   = "/v1/measure",
                                .body   = "{\"input\":[\"He said so, and it was.\"]}" });
    inject_question(*state, "POST /v1/headlight/lens", 0,
                    (question){ .method = "POST",
                                .path   = "/v1/headlight/lens",
                                .body   = "{\"input\":\"He said\"}" });
    inject_question(*state, "POST /v1/headlight/tokens", 0,
                    (question){ .method = "POST",
                                .path   = "/v1/headlight/tokens",
                                .body   = "{\"input\":\"He said\"}" });
}

static int set_up(void **state)
{
    static fixture    f;
    hl_server_options how = options();

    *state = &f;
    inject_json();
    return hl_model_open(&f.model, "models/demo") != HL_OK ||
           hl_tokenizer_open(&f.tokenizer, "models/demo") != HL_OK ||
           hl_server_open(&f.server, f.model, f.tokenizer, &how) != HL_OK;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    hl_server_close(f->server);
    hl_tokenizer_close(f->tokenizer);
    hl_model_close(f->model);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening),
        cmocka_unit_test(short_questions),
        cmocka_unit_test(texts),
        cmocka_unit_test(views),
    };

    start_faults();
    return cmocka_run_group_tests_name("faults_serve", tests, set_up, tear_down);
}
