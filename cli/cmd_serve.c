/* cmd_serve.c - headlight serve: a model behind an OpenAI-compatible interface, with entropy; and
 * headlight try, which measures a bundled text first and opens the page in a browser.
 *
 * Only this thread takes signals, with sigwait: the first INT, TERM or HUP drains the server, a
 * second one ends it at once.  PIPE is ignored, so that a closed log ends no text. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
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
#include "progress.h"
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
    const char       *command; /* "serve" or "try" */
    bool              no_browser;
    int64_t           max_tokens; /* to measure first */
} serve_request;

typedef struct serving {
    serve_request *request;
    hl_input       token; /* access tokens, read from their file */
    hl_model      *model;
    hl_tokenizer  *tokenizer;
    hl_server     *server;
    /* Only for try: */
    char            bundled[PATH_MAX]; /* folder of the bundled models and texts */
    char           *path;              /* the model that was found */
    hl_profile     *profile;
    hl_prompt_maps *maps;
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
    const char          *command = request->command;
    const char          *path    = s->path != NULL ? s->path : request->arguments.items[0];

    HL_CALL(command, hl_model_options_open(&s->model, path, request->common.device, &request->gates,
                                           command, request->common.quiet));
    HL_PASS(hl_model_must_write(s->model, path, command));
    return hl_tokenizer_needed(&s->tokenizer, s->model, request->tokenizer_path, command);
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
    options.profile        = s->profile;
    options.maps           = s->maps;
    raise_file_limit();
    return hl_finish(request->command,
                     hl_server_open(&s->server, s->model, s->tokenizer, &options));
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
        fprintf(stderr, "headlight %s: listening at %s (Ctrl-C stops it)\n", s->request->command,
                hl_shown(s->path != NULL ? s->path : s->request->arguments.items[0]));
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
        fprintf(stderr, "headlight %s: finishing running texts; Ctrl-C again stops at once\n",
                s->request->command);
    signal(SIGINT, end_at_once);
    signal(SIGTERM, end_at_once);
    signal(SIGHUP, SIG_IGN); /* a closed terminal sends it more than once */
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    hl_server_drain(s->server, s->request->drain_seconds, &n_cut);
    if (n_cut > 0 && !s->request->common.quiet)
        fprintf(stderr, "headlight %s: %lld text%s stopped before the end\n", s->request->command,
                (long long)n_cut, n_cut == 1 ? "" : "s");
}

/* ----------------------------------------------------------- what try does before and after */

enum { FIRST_CONTEXT = 256, FIRST_SEEN = 256, FIRST_CELLS = 400000 };

/* Measures the bundled text, and looks where in its beginning each head is most active. */
static hl_status measure_first(serving *s, const char *path)
{
    const serve_request *request  = s->request;
    hl_corpus_options    texts    = { .inputs = &path, .n_inputs = 1 };
    hl_corpus           *corpus   = NULL;
    hl_progress_bar      progress = { 0 };
    hl_measure_options   options  = { .windows   = { .n_ctx      = FIRST_CONTEXT,
                                                     .max_tokens = request->max_tokens },
                                      .progress  = hl_progress_show,
                                      .context   = &progress,
                                      .n_threads = request->common.n_threads };
    int64_t              n_ctx    = hl_model_get_info(s->model)->n_ctx;

    if (n_ctx > 0 && n_ctx < FIRST_CONTEXT)
        options.windows.n_ctx = n_ctx;
    HL_NEED(hl_corpus_open(&corpus, s->model, s->tokenizer, &texts));
    hl_progress_start(&progress, stderr, "measuring", request->common.quiet);
    hl_status status = hl_measure(&s->profile, s->model, s->tokenizer, corpus, &options);
    hl_progress_end(&progress);
    hl_corpus_close(corpus);
    return status;
}

static hl_status see_first(serving *s, const char *text, size_t n_bytes)
{
    hl_encoding           *encoding = NULL;
    int64_t                n_ctx    = hl_model_get_info(s->model)->n_ctx;
    hl_prompt_maps_options options  = { .most_cells = FIRST_CELLS,
                                        .n_threads  = s->request->common.n_threads };

    HL_NEED(hl_tokenizer_encode(&encoding, s->tokenizer, text, n_bytes,
                                &(hl_encode_options){ .add_special = true }));
    int64_t n = (int64_t)encoding->n_tokens < FIRST_SEEN ? (int64_t)encoding->n_tokens : FIRST_SEEN;
    hl_prompt prompt = { .tokens    = encoding->ids,
                         .n_tokens  = n_ctx > 0 && n > n_ctx ? n_ctx : n,
                         .tokenizer = s->tokenizer };
    hl_status status = hl_prompt_maps_new(&s->maps, s->model, &prompt, &options);
    hl_encoding_free(encoding);
    return status;
}

static int look_first(serving *s)
{
    HL_KEPT(hl_input_free) hl_input text = { 0 };
    char                            path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/text/alice.txt", s->bundled) >= PATH_MAX)
        return hl_give_up(HL_EXIT_INPUT, "try", "the name of the folder is too long");
    HL_CALL("try", measure_first(s, path));
    HL_PASS(hl_input_read(&text, path, "try"));
    HL_CALL("try", see_first(s, text.bytes, text.n_bytes < 8192 ? text.n_bytes : 8192));
    return HL_EXIT_OK;
}

extern char **environ;

/* Asks the desktop to open the page; without one, the address that was printed is enough. */
static void open_browser(int port)
{
    const char                *program = getenv("BROWSER");
    char                       url[64];
    posix_spawn_file_actions_t files;
    pid_t                      id;

    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    if (program == NULL || program[0] == '\0')
        program = "xdg-open";
    char *const argv[] = { (char *)program, url, NULL };
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    signal(SIGCHLD, SIG_IGN); /* nobody waits for it */
    if (posix_spawnp(&id, program, &files, NULL, argv, environ) != 0)
        fprintf(stderr, "headlight try: no browser was found; open the address above\n");
    posix_spawn_file_actions_destroy(&files);
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
    if (s->path != NULL)
        HL_PASS(look_first(s));
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* now, so that all threads inherit it */
    HL_PASS(open_server(s));
    announce(s);
    if (s->path != NULL && !s->request->no_browser)
        open_browser((int)hl_server_port(s->server));
    sigwait(&signals, &which);
    drain(s, &signals);
    hl_memory_forget(); /* requests without memory were answered with an error, so no output is
                         * incomplete */
    return HL_EXIT_OK;
}

static void close_all(serving *s)
{
    hl_server_close(s->server);
    hl_prompt_maps_free(s->maps);
    hl_profile_free(s->profile);
    hl_tokenizer_close(s->tokenizer);
    hl_model_close(s->model);
    hl_input_free(&s->token);
    hl_free(s->path);
}

int hl_command_serve(int argc, char **argv)
{
    serve_request request = { .port = 7700, .drain_seconds = 30.0, .command = "serve" };
    serving       s       = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    int code = serve(&s);
    close_all(&s);
    return code;
}

/* -------------------------------------------------------------------------------- try */

static int parse_try(serve_request *request, int argc, char **argv)
{
    const hl_option table[] = {
        HL_INT("port", 'p', &request->port, "N", "port; without it, any free one", 0, 65535),
        HL_INT("max-tokens", 0, &request->max_tokens, "N", "tokens to measure (1024)", 1, 1 << 20),
        HL_FLAG("no-browser", 0, &request->no_browser, "print the address only"),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "try",
        .arguments = "[MODEL]",
        .text =
            "Measures a bundled text with the model, starts 'headlight serve' on a free port and\n"
            "opens the page in a browser.  MODEL is a path, or the name of a model in the\n"
            "Hugging Face cache, in Ollama's folder or in LM Studio's; without it, the bundled\n"
            "demo model is shown.",
        .options = table,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->arguments.count > 1)
        return hl_options_refuse(&usage, "give one MODEL, or none; got %d",
                                 request->arguments.count);
    return HL_EXIT_OK;
}

int hl_command_try(int argc, char **argv)
{
    serve_request request = { .drain_seconds = 1.0, .command = "try", .max_tokens = 1024 };
    serving       s       = { .request = &request };
    char          demo[PATH_MAX];

    HL_PASS(parse_try(&request, argc, argv));
    const char *folder = hl_bundled_models(s.bundled);
    if (folder == NULL)
        return hl_give_up(HL_EXIT_INPUT, "try",
                          "share/headlight/models was not found beside the program");
    if (folder != s.bundled)
        snprintf(s.bundled, sizeof s.bundled, "%s", folder);
    snprintf(demo, sizeof demo, "%.*s/demo", PATH_MAX - 8, s.bundled);
    HL_CALL("try", hl_model_find(&s.path,
                                 request.arguments.count > 0 ? request.arguments.items[0] : demo));
    if (request.arguments.count > 0 && strcmp(s.path, request.arguments.items[0]) != 0)
        request.options.model_name = request.arguments.items[0]; /* Ollama's files have no names */
    int code = serve(&s);
    close_all(&s);
    return code;
}
