/* cmd_serve.c - headlight serve: a model behind an OpenAI-compatible interface, with entropy.
 *
 * Signals are taken by this thread alone, with sigwait: the first INT, TERM or HUP drains, a
 * second one ends at once.  PIPE is ignored: a log whose reader is gone ends nobody's text. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "shared_options.h"
#include "values.h"

typedef struct serve_request {
    hl_common         common;
    hl_arguments      arguments;
    const char       *activations; /* NULL: not given */
    hl_server_options options; /* but for what the next come to */
    const char       *token_file;
    const char       *tokenizer_path;
    enum { CACHE_F32, CACHE_F16 } cache;
    hl_option_list    names;
    int64_t           port;
    int64_t           max_body; /* KiB */
    double            drain_seconds;
    hl_gate_arguments gates;
} serve_request;

typedef struct serving {
    serve_request *request;
    hl_input       token; /* from its file */
    hl_model      *model;
    hl_tokenizer  *tokenizer;
    hl_server     *server;
} serving;

/* ---------------------------------------------------------------------- the request */

static int check_request(const serve_request *request, const hl_usage *usage)
{
    if (request->arguments.count != 1)
        return hl_options_refuse(usage, "wanted one model, got %d", request->arguments.count);
    if (request->options.token != NULL && request->token_file != NULL)
        return hl_options_refuse(usage, "--token and --token-file exclude each other");
    if (request->options.token != NULL && request->options.token[0] == '\0')
        return hl_options_refuse(usage, "--token: an empty token keeps nobody out");
    return HL_EXIT_OK;
}

static int parse_request(serve_request *request, int argc, char **argv)
{
    hl_server_options *options = &request->options;
    const hl_option    table[] = {
           HL_INT("port", 'p', &request->port, "N", "where to listen (7700); 0: any free one", 0,
                  65535),
           HL_TEXT("host", 0, &options->host, "ADDRESS",
                   "the address (127.0.0.1); others need a token"),
           HL_TEXT("token", 0, &options->token, "T",
                   "requests must bring it: Authorization: Bearer T"),
           HL_TEXT("token-file", 0, &request->token_file, "FILE",
                   "tokens from a file, one per line, unseen by ps"),
           HL_LIST("allow-host", 0, &request->names, "NAME",
                   "a name that the server may be asked for by; repeated"),
           HL_TEXT("name", 0, &options->model_name, "ID",
                   "what clients call the model (its file's name)"),
           HL_INT("slots", 0, &options->n_slots, "N", "texts that are made at once (8)", 1, 256),
           HL_INT("queue", 0, &options->n_queue, "N", "requests that may wait for a slot (4 a slot)",
                  1, 1 << 16),
           HL_INT("context", 0, &options->n_ctx, "N", "tokens of a text (the model's, at most 4096)",
                  1, 1 << 30),
           HL_ENUM("cache", 0, &request->cache, "f32|f16", "type of keys and values (f32)"),
           HL_CHOICE("activations", 0, &request->activations, "exact|int8",
                     "the older spelling of --math f32|int8"),
           HL_INT("max-body", 0, &request->max_body, "KIB", "largest request body, KiB (4096)", 1,
                  1 << 20),
           HL_INT("max-connections", 0, &options->max_connections, "N",
                  "beyond, the longest idle one is closed (512)", 1, 1 << 16),
           HL_INT("max-per-peer", 0, &options->max_per_peer, "N",
                  "requests under way from one address (half of all; of this machine: all)", 1,
                  1 << 16),
           HL_INT("max-per-token", 0, &options->max_per_token, "N",
                  "requests under way with one token (half of all; with one token: all)", 1, 1 << 16),
           HL_NUMBER("request-timeout", 0, &options->request_seconds, "S",
                     "seconds for a request to come whole (30)", 0, 3600),
           HL_NUMBER("stall-timeout", 0, &options->stall_seconds, "S",
                     "disconnect slow clients after S seconds (30)", 0, 3600),
           HL_NUMBER("drain-timeout", 0, &request->drain_seconds, "S",
                     "seconds to finish after SIGTERM (30)", 0, 3600),
           HL_TOKENIZER_OPTION(&request->tokenizer_path),
           HL_GATE_OPTIONS(&request->gates),
           { 0 },
    };
    const hl_usage usage = {
        .command   = "serve",
        .arguments = "MODEL",
        .text =
            "Serves a model over HTTP: OpenAI's /v1/completions and /v1/chat/completions, with\n"
            "the entropy of every head where a request asks for it; /v1/measure; the lens and\n"
            "the attention of a text; which heads could go, and what that costs; /metrics and\n"
            "/health; and a live page at /.\n"
            "\n"
            "Texts of several clients are made together, each as it would be alone.  A full\n"
            "queue answers 429.  SIGTERM, SIGHUP and Ctrl-C finish what is under way.\n"
            "\n"
            "Only this machine can ask, and no page of another site, unless --host says\n"
            "otherwise; then a token is needed.  doc/serve.md has all of it.",
        .options = table,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* -------------------------------------------------------------------------- opening */

/* One token per line; at least one. */
static int read_token(serving *s)
{
    const char *path = s->request->token_file;

    if (path == NULL)
        return HL_EXIT_OK;
    HL_PASS(hl_input_read(&s->token, path, "serve"));
    if (s->token.bytes[strspn(s->token.bytes, "\r\n")] == '\0')
        return hl_give_up(HL_EXIT_INPUT, "serve", "%s has no token", path);
    s->request->options.token = s->token.bytes;
    return HL_EXIT_OK;
}

static int open_model(serving *s)
{
    const serve_request *request = s->request;
    const char          *path    = request->arguments.items[0];

    HL_CALL("serve", hl_model_options_open(&s->model, path, request->common.device, &request->gates,
                                           "serve", request->common.quiet));
    HL_PASS(hl_model_must_write(s->model, path, "serve"));
    return hl_tokenizer_needed(&s->tokenizer, s->model, request->tokenizer_path, "serve");
}

/* As many open files as the system lets us have. */
static void raise_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int open_server(serving *s)
{
    const serve_request *request = s->request;
    hl_server_options    options = request->options;

    options.port           = request->port == 0 ? -1 : (int32_t)request->port;
    options.names          = request->names.items;
    options.n_names        = (size_t)request->names.count;
    options.n_threads      = request->common.n_threads;
    options.cache_dtype    = request->cache == CACHE_F16 ? HL_DTYPE_F16 : HL_DTYPE_F32;
    options.math           = hl_math_option(request->activations);
    options.seed           = request->common.seed;
    options.max_body_bytes = (size_t)request->max_body << 10;
    raise_file_limit();
    return hl_finish("serve", hl_server_open(&s->server, s->model, s->tokenizer, &options));
}

/* -------------------------------------------------------------------------- serving */

/* "[::1]" of an address with colons in it. */
static void announce(const serving *s)
{
    const char *asked = s->request->options.host;
    const char *host  = asked != NULL ? hl_shown(asked) : "127.0.0.1";
    bool        is_v6 = strchr(host, ':') != NULL;
    int         port  = (int)hl_server_port(s->server);

    if (s->request->common.json)
        printf("{\"url\": \"http://%s%s%s:%d/\", \"port\": %d}\n", is_v6 ? "[" : "", host,
               is_v6 ? "]" : "", port, port);
    else
        printf("http://%s%s%s:%d/\n", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
    fflush(stdout);
    if (!s->request->common.quiet && !s->request->common.json)
        fprintf(stderr, "headlight serve: %s; Ctrl-C ends it\n",
                hl_shown(s->request->arguments.items[0]));
}

/* A second signal while texts are being finished. */
static void end_at_once(int number)
{
    (void)number;
    _exit(HL_EXIT_STOPPED);
}

static void drain(serving *s, const sigset_t *signals)
{
    int64_t n_cut = 0;

    if (!s->request->common.quiet)
        fprintf(stderr, "headlight serve: finishing; once more ends it at once\n");
    signal(SIGINT, end_at_once);
    signal(SIGTERM, end_at_once);
    signal(SIGHUP, SIG_IGN); /* a terminal that closes says so more than once */
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    hl_server_drain(s->server, s->request->drain_seconds, &n_cut);
    if (n_cut > 0 && !s->request->common.quiet)
        fprintf(stderr, "headlight serve: %lld text%s cut short\n", (long long)n_cut,
                n_cut == 1 ? "" : "s");
}

static int serve(serving *s)
{
    struct sigaction hang_up = { 0 };
    sigset_t         signals;
    int              which = 0;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) /* nohup */
        sigaddset(&signals, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    HL_PASS(read_token(s));
    HL_PASS(open_model(s));
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads to inherit it */
    HL_PASS(open_server(s));
    announce(s);
    sigwait(&signals, &which);
    drain(s, &signals);
    hl_memory_forget(); /* a request that found no memory was answered: nothing is incomplete */
    return HL_EXIT_OK;
}

int hl_command_serve(int argc, char **argv)
{
    serve_request request = { .port = 7700, .drain_seconds = 30.0 };
    serving       s       = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    int code = serve(&s);
    hl_server_close(s.server);
    hl_tokenizer_close(s.tokenizer);
    hl_model_close(s.model);
    hl_input_free(&s.token);
    return code;
}
