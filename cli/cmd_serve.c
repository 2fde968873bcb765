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
#include "input.h"
#include "options.h"
#include "shared_options.h"
#include "values.h"

typedef struct serve_request {
    hl_common         common;
    hl_arguments      arguments;
    const char       *host;
    const char       *token;
    const char       *token_file;
    const char       *tokenizer_path;
    const char       *model_name;
    const char       *cache;
    const char       *activations;
    hl_option_list    names;
    int64_t           port;
    int64_t           n_slots;
    int64_t           n_queue;
    int64_t           n_ctx;
    int64_t           max_body;
    int64_t           max_connections;
    int64_t           max_per_peer;
    int64_t           max_per_token;
    double            request_seconds;
    double            stall_seconds;
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
    if (request->token != NULL && request->token_file != NULL)
        return hl_options_refuse(usage, "--token and --token-file exclude each other");
    if (request->token != NULL && request->token[0] == '\0')
        return hl_options_refuse(usage, "--token: an empty token keeps nobody out");
    return HL_OPTIONS_GO_ON;
}

static int parse_request(serve_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "port", 'p', HL_OPTION_INT, &request->port, "N",
          "where to listen (7700); 0: any free one", 0, 65535 },
        { "host", 0, HL_OPTION_TEXT, &request->host, "ADDRESS",
          "the address (127.0.0.1); others need a token", 0, 0 },
        { "token", 0, HL_OPTION_TEXT, &request->token, "T",
          "requests must bring it: Authorization: Bearer T", 0, 0 },
        { "token-file", 0, HL_OPTION_TEXT, &request->token_file, "FILE",
          "tokens from a file, one per line, unseen by ps", 0, 0 },
        { "allow-host", 0, HL_OPTION_LIST, &request->names, "NAME",
          "a name that the server may be asked for by; repeated", 0, 0 },
        { "name", 0, HL_OPTION_TEXT, &request->model_name, "ID",
          "what clients call the model (its file's name)", 0, 0 },
        { "slots", 0, HL_OPTION_INT, &request->n_slots, "N", "texts that are made at once (8)", 1,
          256 },
        { "queue", 0, HL_OPTION_INT, &request->n_queue, "N",
          "requests that may wait for a slot (4 a slot)", 1, 1 << 16 },
        { "context", 0, HL_OPTION_INT, &request->n_ctx, "N",
          "tokens of a text (the model's, at most 4096)", 1, 1 << 30 },
        { "cache", 0, HL_OPTION_CHOICE, &request->cache, "f32|f16", "type of keys and values (f32)",
          0, 0 },
        { "activations", 0, HL_OPTION_CHOICE, &request->activations, "exact|int8",
          "what quantised weights are multiplied with (exact)", 0, 0 },
        { "max-body", 0, HL_OPTION_INT, &request->max_body, "KIB",
          "of a request, at most so many KiB (4096)", 1, 1 << 20 },
        { "max-connections", 0, HL_OPTION_INT, &request->max_connections, "N",
          "beyond, the longest idle one is closed (512)", 1, 1 << 16 },
        { "max-per-peer", 0, HL_OPTION_INT, &request->max_per_peer, "N",
          "requests under way from one address (half of all; of this machine: all)", 1, 1 << 16 },
        { "max-per-token", 0, HL_OPTION_INT, &request->max_per_token, "N",
          "requests under way with one token (half of all; with one token: all)", 1, 1 << 16 },
        { "request-timeout", 0, HL_OPTION_NUMBER, &request->request_seconds, "S",
          "seconds for a request to come whole (30)", 0, 3600 },
        { "stall-timeout", 0, HL_OPTION_NUMBER, &request->stall_seconds, "S",
          "seconds that a reader may keep us waiting (30)", 0, 3600 },
        { "drain-timeout", 0, HL_OPTION_NUMBER, &request->drain_seconds, "S",
          "seconds to finish after SIGTERM (30)", 0, 3600 },
        { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
          "use this one instead of the model's own", 0, 0 },
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
        .options = options,
    };

    request->port          = 7700;
    request->drain_seconds = 30.0;
    request->cache         = "f32";
    request->activations   = "exact";
    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);
    return code != HL_OPTIONS_GO_ON ? code : check_request(request, &usage);
}

static int fail(hl_status status)
{
    hl_complain("serve", "%s", hl_explain(status));
    return hl_exit_for(status);
}

/* -------------------------------------------------------------------------- opening */

/* One token per line; at least one. */
static int read_token(serving *s)
{
    if (s->request->token_file == NULL)
        return HL_EXIT_OK;
    int code = hl_input_read(&s->token, s->request->token_file, "serve");
    if (code != HL_EXIT_OK)
        return code;
    if (s->token.bytes[strspn(s->token.bytes, "\r\n")] == '\0') {
        hl_complain("serve", "%s has no token", s->request->token_file);
        return HL_EXIT_INPUT;
    }
    s->request->token = s->token.bytes;
    return HL_EXIT_OK;
}

static int open_model(serving *s)
{
    const char *path   = s->request->arguments.items[0];
    hl_status   status = hl_model_open(&s->model, path);

    if (status == HL_OK)
        status =
            hl_gate_options_apply(s->model, &s->request->gates, "serve", s->request->common.quiet);
    if (status != HL_OK)
        return fail(status);
    const hl_model_info *info = hl_model_get_info(s->model);
    if (info->is_encoder) {
        hl_complain("serve", "%s is an encoder (%s): it sees whole texts and writes none", path,
                    info->family);
        return HL_EXIT_INPUT;
    }
    const char *own = info->tokenizer_path;
    status          = hl_tokenizer_open(
                 &s->tokenizer, s->request->tokenizer_path != NULL ? s->request->tokenizer_path : own);
    if (status == HL_NOT_FOUND && s->request->tokenizer_path == NULL) {
        hl_complain("serve", "%s (--tokenizer PATH gives one)", hl_error_message());
        return HL_EXIT_INPUT;
    }
    return status == HL_OK ? HL_EXIT_OK : fail(status);
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
    hl_server_options    options = {
           .host        = request->host,
           .port        = request->port == 0 ? -1 : (int32_t)request->port,
           .token       = request->token,
           .names       = request->names.items,
           .n_names     = (size_t)request->names.count,
           .model_name  = request->model_name,
           .n_slots     = request->n_slots,
           .n_queue     = request->n_queue,
           .n_ctx       = request->n_ctx,
           .n_threads   = (int32_t)request->common.n_threads,
           .cache_dtype = strcmp(request->cache, "f16") == 0 ? HL_DTYPE_F16 : HL_DTYPE_F32,
           .activations =
            strcmp(request->activations, "int8") == 0 ? HL_ACTIVATIONS_INT8 : HL_ACTIVATIONS_EXACT,
           .seed            = (uint64_t)request->common.seed,
           .max_body_bytes  = (size_t)request->max_body << 10,
           .max_connections = request->max_connections,
           .max_per_peer    = request->max_per_peer,
           .max_per_token   = request->max_per_token,
           .request_seconds = request->request_seconds,
           .stall_seconds   = request->stall_seconds,
    };

    raise_file_limit();
    hl_status status = hl_server_open(&s->server, s->model, s->tokenizer, &options);
    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

/* -------------------------------------------------------------------------- serving */

/* "[::1]" of an address with colons in it. */
static void announce(const serving *s)
{
    const char *host  = s->request->host != NULL ? hl_shown(s->request->host) : "127.0.0.1";
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

int hl_command_serve(int argc, char **argv)
{
    serve_request    request = { 0 };
    serving          s       = { .request = &request };
    struct sigaction hang_up = { 0 };
    sigset_t         signals;
    int              which = 0;
    int              code  = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) /* nohup */
        sigaddset(&signals, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    code = read_token(&s);
    if (code == HL_EXIT_OK)
        code = open_model(&s);
    if (code == HL_EXIT_OK) {
        pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before there are threads to inherit it */
        code = open_server(&s);
    }
    if (code == HL_EXIT_OK) {
        announce(&s);
        sigwait(&signals, &which);
        drain(&s, &signals);
        hl_memory_forget(); /* a request that found no memory was answered: nothing is incomplete */
    }
    hl_server_close(s.server);
    hl_tokenizer_close(s.tokenizer);
    hl_model_close(s.model);
    hl_input_free(&s.token);
    return code;
}
