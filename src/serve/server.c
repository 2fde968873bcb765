/* server.c - creates a server out of its engine, HTTP and routes. */
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/locks.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/threads.h"
#include "model/model.h"

#define DEFAULT_PORT        7700
#define DEFAULT_BODY        ((size_t)4 << 20)
#define DEFAULT_CONNECTIONS 512
#define DEFAULT_SECONDS     30.0
#define LAST_SECONDS        2.0 /* time for clients to read their answers at the end of a drain */

/* -------------------------------------------------------------------------- options */

static void fill_in(hl_server_options *options)
{
    if (options->host == NULL)
        options->host = "127.0.0.1";
    if (options->port == 0)
        options->port = DEFAULT_PORT;
    if (options->n_slots == 0)
        options->n_slots = 8;
    if (options->n_queue == 0)
        options->n_queue = 4 * options->n_slots;
    if (options->max_body_bytes == 0)
        options->max_body_bytes = DEFAULT_BODY;
    if (options->max_connections == 0)
        options->max_connections = DEFAULT_CONNECTIONS;
    if (options->request_seconds == 0.0)
        options->request_seconds = DEFAULT_SECONDS;
    if (options->stall_seconds == 0.0)
        options->stall_seconds = DEFAULT_SECONDS;
}

/* Uses the last part of the path, without trailing slashes. */
static hl_status name_model(char **out, const hl_model *model, const char *given)
{
    size_t n = strlen(model->path);

    if (given != NULL)
        return hl_strdup(out, given);
    while (n > 1 && model->path[n - 1] == '/')
        n--;
    size_t begin = n;
    while (begin > 0 && model->path[begin - 1] != '/')
        begin--;
    return hl_strndup(out, model->path + begin, n - begin);
}

/* Reads one token per line; empty lines are ignored. */
static hl_status copy_tokens(hl_server *server, const char *lines)
{
    hl_status status = HL_OK;
    size_t    most   = 1;

    if (lines == NULL)
        return HL_OK;
    for (const char *at = lines; *at != '\0'; at++)
        most += *at == '\n' ? 1 : 0;
    HL_NEED(HL_ALLOC_ZEROED(&server->tokens, most));
    HL_NEED(HL_ALLOC_ZEROED(&server->n_under_way, most));
    while (*lines != '\0') {
        size_t n = strcspn(lines, "\r\n");

        if (n > 0) {
            HL_NEED(hl_strndup(&server->tokens[server->n_tokens], lines, n));
            server->n_tokens++;
        }
        lines += n + (lines[n] != '\0' ? 1 : 0);
    }
    if (server->n_tokens == 0)
        status = hl_fail(HL_BAD_ARGUMENT, "the token must not be empty");
    return status;
}

static hl_status copy_texts(hl_server *server, const hl_server_options *options)
{
    HL_NEED(hl_strdup(&server->host, server->options.host));
    HL_NEED(copy_tokens(server, options->token));
    HL_NEED(HL_ALLOC_ZEROED(&server->names, options->n_names));
    for (size_t i = 0; i < options->n_names; i++)
        HL_NEED(hl_strdup(&server->names[i], options->names[i]));
    return name_model(&server->model_name, server->model, options->model_name);
}

static void find_ends(hl_server *server)
{
    static const hl_special which[2] = { HL_SPECIAL_EOS, HL_SPECIAL_EOT };

    for (int i = 0; i < 2; i++) {
        int64_t id = hl_tokenizer_special(server->tokenizer, which[i]);
        if (id >= 0)
            server->end_ids[server->n_end_ids++] = id;
    }
}

/* ------------------------------------------------------------------------------ parts */

static hl_status open_engine(hl_server *server)
{
    const hl_server_options *options = &server->options;

    return hl_engine_open(&server->engine, server->model,
                          &(hl_engine_options){ .n_slots     = options->n_slots,
                                                .n_queue     = options->n_queue,
                                                .n_ctx       = options->n_ctx,
                                                .n_threads   = options->n_threads,
                                                .cache_dtype = options->cache_dtype,
                                                .math        = options->math });
}

/* Creates all threads that computations will need before the first request, so that the server does
 * not discover under load that the system grants no more. */
static hl_status reserve_threads(const hl_server *server)
{
    int wanted  = hl_threads(server->options.n_threads);
    int granted = hl_parallel_reserve(1, wanted);
    int looking = granted == wanted ? hl_looking_reserve(wanted) : granted;

    if (granted == wanted && looking == wanted)
        return HL_OK;
    return hl_fail(HL_LIMIT,
                   "the system allows %d threads, but twice %d are needed (ulimit -u, ulimit -v, "
                   "TasksMax of systemd); use a smaller --threads",
                   granted < looking ? granted : looking, wanted);
}

/* Requires a token unless the address that was actually bound is reachable from this machine only.
 * Runs before the first request can arrive. */
static hl_status check_address(hl_server *server)
{
    const char *address = hl_http_address(server->http, &server->hosts.any_address);

    server->hosts.bound   = address;
    server->hosts.names   = (const char *const *)server->names;
    server->hosts.n_names = server->options.n_names;
    if (server->n_tokens > 0 || hl_address_is_loopback(address))
        return HL_OK;
    return hl_fail(
        HL_BAD_ARGUMENT,
        "%s can be reached from other machines, so a token is needed: --token or --token-file",
        address);
}

static hl_status open_http(hl_server *server)
{
    const hl_server_options *options = &server->options;

    return hl_http_open(&server->http,
                        &(hl_http_options){ .host           = server->host,
                                            .port           = options->port < 0 ? 0 : options->port,
                                            .max_body_bytes = options->max_body_bytes,
                                            .max_connections = options->max_connections,
                                            .max_work        = hl_server_max_work(server),
                                            .max_per_peer    = options->max_per_peer,
                                            .request_seconds = options->request_seconds,
                                            .stall_seconds   = options->stall_seconds,
                                            .handler         = { .context   = server,
                                                                 .head      = hl_routes_head,
                                                                 .malformed = hl_routes_malformed,
                                                                 .request   = hl_routes_request,
                                                                 .worked    = hl_routes_worked,
                                                                 .answered  = hl_routes_answered } });
}

/* --------------------------------------------------------------------- open and close */

hl_status hl_server_open(hl_server **out, const hl_model *model, const hl_tokenizer *tokenizer,
                         const hl_server_options *options)
{
    HL_CLOSED(hl_server_close) hl_server *server = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&server, 1));
    hl_looking_init(&server->looking);
    pthread_mutex_init(&server->lock, NULL);
    if (options != NULL)
        server->options = *options;
    fill_in(&server->options);
    server->model     = model;
    server->tokenizer = tokenizer;
    server->started   = (int64_t)time(NULL);
    HL_NEED(copy_texts(server, &server->options));
    find_ends(server);
    HL_NEED(hl_metrics_new(&server->metrics));
    HL_NEED(reserve_threads(server));
    HL_NEED(open_engine(server));
    HL_NEED(open_http(server));
    HL_NEED(check_address(server));
    HL_NEED(hl_http_start(server->http));
    *out = hl_taken(&server);
    return HL_OK;
}

int32_t hl_server_port(const hl_server *server)
{
    return hl_http_port(server->http);
}

bool hl_server_is_draining(hl_server *server)
{
    HL_LOCKED(&server->lock);
    return server->is_draining;
}

int64_t hl_server_max_work(const hl_server *server)
{
    return server->options.n_slots + server->options.n_queue + HL_ENGINE_SHORT_PLACES +
           HL_LOOKING_MOST;
}

uint64_t hl_server_next_number(hl_server *server)
{
    HL_LOCKED(&server->lock);
    return server->n_requests++;
}

static void start_draining(hl_server *server)
{
    HL_LOCKED(&server->lock);
    server->is_draining = true;
}

void hl_server_drain(hl_server *server, double seconds, int64_t *n_cut)
{
    double begun = hl_clock_seconds();

    start_draining(server);
    hl_http_quiesce(server->http);
    hl_engine_drain(server->engine, seconds, n_cut);
    double left = seconds - (hl_clock_seconds() - begun);
    hl_http_drain(server->http, left > LAST_SECONDS ? left : LAST_SECONDS);
}

void hl_server_close(hl_server *server)
{
    if (server == NULL)
        return;
    start_draining(server);
    hl_http_close(server->http);
    hl_engine_close(server->engine);
    hl_metrics_free(server->metrics);
    for (size_t i = 0; server->names != NULL && i < server->options.n_names; i++)
        hl_free(server->names[i]);
    hl_free(server->names);
    hl_free(server->model_name);
    for (size_t i = 0; i < server->n_tokens; i++)
        hl_free(server->tokens[i]);
    hl_free(server->tokens);
    hl_free(server->n_under_way);
    hl_free(server->host);
    hl_looking_destroy(&server->looking);
    pthread_mutex_destroy(&server->lock);
    hl_free(server);
}
