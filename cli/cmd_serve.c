/* cmd_serve.c - headlight serve: a model behind an OpenAI-compatible interface, with entropy.
 *
 * Only this thread takes signals, with sigwait: the first INT, TERM or HUP drains the server, a
 * second one ends it at once.  PIPE is ignored, so that a closed log ends no text. */
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
    hl_server_options options;     /* options, except those that the members below set */
    const char       *token_file;
    const char       *tokenizer_path;
    enum { CACHE_F32, CACHE_F16 } cache;
    hl_option_list    names;
    int64_t           port;
    int64_t           max_body; /* in KiB */
    double            drain_seconds;
    hl_gate_arguments gates;
} serve_request;

typedef struct serving {
    serve_request *request;
    hl_input       token; /* access tokens, read from their file */
    hl_model      *model;
    hl_tokenizer  *tokenizer;
    hl_server     *server;
} serving;

/* ---------------------------------------------------------------------- the request */

static int check_request(const serve_request *request, const hl_usage *usage)
{
    if (request->arguments.count != 1)
        return hl_options_refuse(usage, "give one MODEL; got %d", request->arguments.count);
    if (request->options.token != NULL && request->token_file != NULL)
        return hl_options_refuse(usage, "--token and --token-file cannot be combined");
    if (request->options.token != NULL && request->options.token[0] == '\0')
        return hl_options_refuse(usage, "--token must not be empty");
    return HL_EXIT_OK;
}

static int parse_request(serve_request *request, int argc, char **argv)
{
    hl_server_options *options = &request->options;
    const hl_option    table[] = {
           HL_INT("port", 'p', &request->port, "N", "port (7700); 0: any free one", 0, 65535),
           HL_TEXT("host", 0, &options->host, "ADDRESS",
                   "address to listen on (127.0.0.1); any other needs a token"),
           HL_TEXT("token", 0, &options->token, "T", "require 'Authorization: Bearer T' in requests"),
           HL_TEXT("token-file", 0, &request->token_file, "FILE",
                   "read tokens from FILE, one per line (not visible in ps)"),
           HL_LIST("allow-host", 0, &request->names, "NAME",
                   "accept this name in the Host header (repeatable)"),
           HL_TEXT("name", 0, &options->model_name, "ID", "model name for clients (the file's name)"),
           HL_INT("slots", 0, &options->n_slots, "N", "texts generated at the same time (8)", 1, 256),
           HL_INT("queue", 0, &options->n_queue, "N", "requests that may wait for a slot (4 per slot)",
                  1, 1 << 16),
           HL_INT("context", 0, &options->n_ctx, "N",
                  "tokens per text (the model's context, at most 4096)", 1, 1 << 30),
           HL_ENUM("cache", 0, &request->cache, "f32|f16", "type of the KV cache (f32)"),
           HL_CHOICE("activations", 0, &request->activations, "exact|int8",
                     "the older spelling of --math f32|int8"),
           HL_INT("max-body", 0, &request->max_body, "KIB", "largest request body, KiB (4096)", 1,
                  1 << 20),
           HL_INT("max-connections", 0, &options->max_connections, "N",
                  "open connections; beyond, the longest idle one closes (512)", 1, 1 << 16),
           HL_INT("max-per-peer", 0, &options->max_per_peer, "N",
                  "active requests per address (half of all; this machine: all)", 1, 1 << 16),
           HL_INT("max-per-token", 0, &options->max_per_token, "N",
                  "active requests per token (half of all; one token: all)", 1, 1 << 16),
           HL_NUMBER("request-timeout", 0, &options->request_seconds, "S",
                     "seconds until a request must be complete (30)", 0, 3600),
           HL_NUMBER("stall-timeout", 0, &options->stall_seconds, "S",
                     "disconnect slow clients after S seconds (30)", 0, 3600),
           HL_NUMBER("drain-timeout", 0, &request->drain_seconds, "S",
                     "seconds for running texts to finish after SIGTERM (30)", 0, 3600),
           HL_TOKENIZER_OPTION(&request->tokenizer_path),
           HL_GATE_OPTIONS(&request->gates),
           { 0 },
    };
    const hl_usage usage = {
        .command   = "serve",
        .arguments = "MODEL",
        .text =
            "Serves a model over HTTP: OpenAI's /v1/completions and /v1/chat/completions, with\n"
            "the entropy of every head if a request asks for it; /v1/measure; the lens and the\n"
            "attention of a text; rankings of heads and what disabling them costs; /metrics and\n"
            "/health; and a live page at /.\n"
            "\n"
            "Texts of several clients are generated together; each comes out as it would alone.\n"
            "When the queue is full, requests get 429.  SIGTERM, SIGHUP and Ctrl-C finish\n"
            "running texts first.\n"
            "\n"
            "By default only this machine is answered, and no page of another site.  --host\n"
            "opens the server to others, and then needs a token.  See doc/serve.md.",
        .options = table,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* -------------------------------------------------------------------------- opening */

/* Reads one token per line; there must be at least one. */
static int read_token(serving *s)
{
    const char *path = s->request->token_file;

    if (path == NULL)
        return HL_EXIT_OK;
    HL_PASS(hl_input_read(&s->token, path, "serve"));
    if (s->token.bytes[strspn(s->token.bytes, "\r\n")] == '\0')
        return hl_give_up(HL_EXIT_INPUT, "serve", "%s: no token in this file", path);
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

/* Raises the limit of open files as far as the system allows. */
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

/* Prints the address, with brackets around one with colons: "[::1]". */
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
        fprintf(stderr, "headlight serve: listening at %s (Ctrl-C stops it)\n",
                hl_shown(s->request->arguments.items[0]));
}

/* Handles a second signal while texts are being finished. */
static void end_at_once(int number)
{
    (void)number;
    _exit(HL_EXIT_STOPPED);
}

static void drain(serving *s, const sigset_t *signals)
{
    int64_t n_cut = 0;

    if (!s->request->common.quiet)
        fprintf(stderr, "headlight serve: finishing running texts; Ctrl-C again stops at once\n");
    signal(SIGINT, end_at_once);
    signal(SIGTERM, end_at_once);
    signal(SIGHUP, SIG_IGN); /* a closed terminal sends it more than once */
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    hl_server_drain(s->server, s->request->drain_seconds, &n_cut);
    if (n_cut > 0 && !s->request->common.quiet)
        fprintf(stderr, "headlight serve: %lld text%s stopped before the end\n", (long long)n_cut,
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
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) /* not if nohup has
                                                                                  * set it to be
                                                                                  * ignored */
        sigaddset(&signals, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    HL_PASS(read_token(s));
    HL_PASS(open_model(s));
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* now, so that all threads inherit it */
    HL_PASS(open_server(s));
    announce(s);
    sigwait(&signals, &which);
    drain(s, &signals);
    hl_memory_forget(); /* requests without memory were answered with an error, so no output is
                         * incomplete */
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
