/* routes.c - the table of paths; checks before each request; answers in JSON; and the routes that
 * describe the server: the model, health and metrics, the page. */
#include "serve/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/json.h"
#include "base/locks.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "render/page.h"
#include "render/report_parts.h"

#define MAX_VALUES (1 << 17) /* limit of values in a request's JSON: 16 prompts of 8192 ids */

/* ------------------------------------------------------------------------- answers */

static void answer_text(hl_exchange *exchange, int status, char *body, const char *header,
                        const char *value)
{
    static const char fallback[] = "{\"error\":{\"message\":\"out of memory\",\"type\":"
                                   "\"server_error\",\"param\":null,\"code\":null}}";

    if (body == NULL) {
        status = 500;
        (void)hl_strdup(&body, fallback); /* if this fails, the answer is a status without a body */
    }
    hl_exchange_answer(exchange, &(hl_answer){ .status  = status,
                                               .body    = body,
                                               .n_bytes = body != NULL ? strlen(body) : 0,
                                               .header  = header,
                                               .value   = value });
}

void hl_server_answer(hl_exchange *exchange, int status, json_t *tree)
{
    answer_text(exchange, status, hl_wire_dump(tree), NULL, NULL);
}

void hl_server_refuse(hl_exchange *exchange, int status, const char *param, const char *code,
                      const char *message)
{
    const char *header = status == 401                    ? "WWW-Authenticate"
                         : status == 429 || status == 503 ? "Retry-After"
                                                          : NULL;

    answer_text(exchange, status, hl_wire_dump(hl_wire_error(status, message, param, code)), header,
                status == 401 ? "Bearer" : "1");
}

int hl_server_status(hl_status failure)
{
    switch (failure) {
    case HL_BUSY:
        return 429;
    case HL_CANCELLED:
        return 503;
    case HL_BAD_ARGUMENT:
    case HL_BAD_INPUT:
    case HL_LIMIT:
    case HL_UNSUPPORTED:
        return 400;
    case HL_NOT_FOUND:
        return 404;
    default:
        return 500;
    }
}

void hl_server_fail(hl_exchange *exchange, hl_status failure, const hl_wire_fault *fault)
{
    const char *param = fault != NULL && failure != HL_BUSY ? fault->param : NULL;
    const char *code  = failure == HL_BUSY    ? "rate_limit_exceeded"
                        : failure == HL_LIMIT ? "context_length_exceeded"
                        : fault != NULL       ? fault->code
                                              : NULL;

    hl_server_refuse(exchange, hl_server_status(failure), param, code,
                     failure == HL_NO_MEMORY ? "out of memory" : hl_error_message());
}

/* Returns an upper bound of the number of values in a JSON text, ignoring strings. */
static size_t count_values(const char *text, size_t n_bytes)
{
    size_t count     = 1;
    bool   in_string = false;

    for (size_t i = 0; i < n_bytes; i++) {
        if (in_string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            in_string = !in_string;
        else if (!in_string && strchr(",:[{", text[i]) != NULL && text[i] != '\0')
            count++;
    }
    return count;
}

/* A value of two bytes takes fifty in memory, so the number of values has its own limit. */
bool hl_server_body(json_t **out, hl_exchange *exchange)
{
    const hl_request *request  = hl_exchange_request(exchange);
    const char       *body     = request->body != NULL ? request->body : "";
    size_t            n_values = count_values(body, request->n_body);
    hl_status         status =
        n_values > MAX_VALUES
                    ? hl_fail(HL_BAD_INPUT, "request: %zu values, at most %d", n_values, MAX_VALUES)
                    : hl_json_parse(out, body, request->n_body, "request");

    if (status != HL_OK)
        hl_server_fail(exchange, status, NULL);
    return status == HL_OK;
}

/* ---------------------------------------------------- views and measurements */

hl_status hl_look_check(hl_look *look, const char *const *known)
{
    const char   *key;
    const json_t *value;

    if (!json_is_object(look->root))
        return hl_fail(HL_BAD_INPUT, "the request is %s, wanted an object",
                       hl_json_kind(look->root));
    json_object_foreach((json_t *)look->root, key, value) {
        size_t i = 0;
        while (known[i] != NULL && strcmp(key, known[i]) != 0)
            i++;
        if (known[i] == NULL) {
            snprintf(look->fault.param, sizeof look->fault.param, "%s", key);
            return hl_fail(HL_BAD_INPUT, "Unrecognized request argument supplied: %.40s", key);
        }
    }
    return HL_OK;
}

const json_t *hl_look_member(hl_look *look, const char *name)
{
    const json_t *value = json_object_get(look->root, name);

    snprintf(look->fault.param, sizeof look->fault.param, "%s", name);
    return json_is_null(value) ? NULL : value;
}

hl_status hl_look_turn(hl_look *look)
{
    look->fault.param[0] = '\0';
    look->place.exchange = look->exchange;
    return hl_looking_enter(&look->server->looking, &look->place);
}

hl_status hl_look_go_on(hl_look *look)
{
    if (hl_exchange_is_gone(look->exchange))
        return hl_fail(HL_CANCELLED, "the client closed the connection");
    return HL_OK;
}

/* ------------------------------------------------------------ routes: models */

static json_t *model_json(const hl_server *server)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", server->model_name, "object", "model", "created",
                     (json_int_t)server->started, "owned_by", "headlight");
}

static void serve_models(void *context, hl_exchange *exchange)
{
    hl_server_answer(exchange, 200,
                     json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(context)));
}

/* Serves /v1/models/ID. */
static void serve_one_model(void *context, hl_exchange *exchange)
{
    const hl_server *server = context;
    const char      *id     = hl_exchange_request(exchange)->path + strlen("/v1/models/");

    if (strcmp(id, server->model_name) == 0) {
        hl_server_answer(exchange, 200, model_json(server));
        return;
    }
    (void)hl_fail(HL_NOT_FOUND, "The model `%.200s` does not exist; this server has `%.200s`", id,
                  server->model_name);
    hl_server_refuse(exchange, 404, "model", "model_not_found", hl_error_message());
}

static json_t *layer_list(const hl_model *model)
{
    json_t       *list = json_array();
    hl_layer_info layer;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_layers; i++) {
        if (hl_model_get_layer(&layer, model, i) == HL_OK)
            hl_json_add(&list,
                        json_pack("{s:I, s:I, s:I, s:s}", "n_heads", (json_int_t)layer.n_heads,
                                  "n_kv_heads", (json_int_t)layer.n_kv_heads, "window",
                                  (json_int_t)layer.window, "mixer", layer.mixer));
    }
    return list;
}

/* Returns the dtype that holds the most bytes. */
static const char *main_dtype(const hl_model *model)
{
    size_t         bytes[HL_DTYPE_COUNT] = { 0 };
    hl_dtype       most                  = HL_DTYPE_F32;
    hl_tensor_info tensor;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_tensors; i++) {
        if (hl_model_get_tensor(&tensor, model, i) != HL_OK)
            continue;
        bytes[tensor.dtype] += tensor.n_bytes;
        if (bytes[tensor.dtype] > bytes[most])
            most = tensor.dtype;
    }
    return hl_dtype_name(most);
}

/* Returns the path of the model, for commands that the user copies. If clients may come from other
 * machines, returns only its last part. */
static json_t *path_json(const hl_server *server)
{
    bool  is_local    = hl_address_is_loopback(server->hosts.bound) && server->hosts.n_names == 0;
    char *whole       = realpath(server->model->path, NULL);
    const char *shown = server->model_name;

    if (whole != NULL)
        shown = is_local ? whole : hl_path_name(whole);
    json_t *text = hl_json_text(shown, strlen(shown));
    free(whole);
    return text;
}

/* Adds what the page shows at once, as in a report. */
static void put_first_look(const hl_server *server, json_t **root)
{
    hl_report_out     out    = { 0 };
    hl_report_profile about  = { .name = server->model_name, .profile = server->options.profile };
    hl_report         report = { .profiles   = &about,
                                 .n_profiles = 1,
                                 .model      = hl_model_get_info(server->model) };

    if (server->options.profile != NULL)
        hl_json_put(root, "profile", hl_report_profile_json(&out, &report, 0));
    if (server->options.maps != NULL)
        hl_json_put(root, "tokens", hl_report_tokens_json(&out, server->options.maps));
}

static void serve_model(void *context, hl_exchange *exchange)
{
    hl_server           *server = context;
    const hl_model_info *info   = hl_model_get_info(server->model);
    hl_chat_format       chat   = hl_tokenizer_chat_format(server->tokenizer);
    json_t              *root   = json_pack(
                       "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "object", "headlight.model",
                       "id", server->model_name, "family", info->family, "format", info->format, "dtype",
                       main_dtype(server->model), "n_layers", (json_int_t)info->n_layers, "n_heads",
                       (json_int_t)info->n_heads, "n_kv_heads", (json_int_t)info->n_kv_heads, "d_model",
                       (json_int_t)info->d_model, "d_vocab", (json_int_t)info->d_vocab, "n_params",
                       (json_int_t)info->n_params, "n_ctx", (json_int_t)hl_engine_n_ctx(server->engine));

    hl_json_put(&root, "layers", layer_list(server->model));
    hl_json_put(&root, "slots", json_integer(server->options.n_slots));
    hl_json_put(&root, "chat", json_pack("{s:s}", "format", hl_chat_format_name(chat)));
    hl_json_put(&root, "path", path_json(server));
    hl_json_put(&root, "version", json_string(hl_version()));
    hl_json_put(&root, "definitions", hl_report_definitions());
    put_first_look(server, &root);
    hl_server_answer(exchange, 200, root);
}

/* ------------------------------------------------ routes: health and numbers */

static void serve_health(void *context, hl_exchange *exchange)
{
    hl_server *server   = context;
    bool       draining = hl_server_is_draining(server);

    hl_server_answer(exchange, draining ? 503 : 200,
                     json_pack("{s:s}", "status", draining ? "draining" : "ok"));
}

static void serve_metrics(void *context, hl_exchange *exchange)
{
    hl_server       *server = context;
    hl_engine_counts engine = { 0 };
    hl_http_counts   http   = hl_http_count(server->http);

    hl_engine_count(&engine, server->engine);
    char *text =
        hl_metrics_text(server->metrics, &engine, &http, hl_looking_count(&server->looking));
    if (text == NULL)
        hl_server_fail(exchange, HL_NO_MEMORY, NULL);
    else
        hl_exchange_answer(exchange, &(hl_answer){ .status  = 200,
                                                   .type    = "text/plain; version=0.0.4",
                                                   .body    = text,
                                                   .n_bytes = strlen(text) });
}

/* ---------------------------------------------------------- routes: the page */

/* The page may only contact this server, and no other page may embed it in a frame. */
static const char policy[] =
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; connect-src 'self'; worker-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

/* The page is served without data, so it asks the server for it. */
static void serve_page(void *context, hl_exchange *exchange)
{
    static const char nothing[] = "null";
    size_t            n_nothing = sizeof nothing - 1;
    hl_page           page      = { 0 };
    char             *copy      = NULL;

    (void)context;
    if (hl_page_split(&page) != HL_OK ||
        HL_ALLOC(&copy, page.n_before + n_nothing + page.n_after) != HL_OK) {
        hl_server_fail(exchange, HL_NO_MEMORY, NULL);
        return;
    }
    memcpy(copy, page.before, page.n_before);
    memcpy(copy + page.n_before, nothing, n_nothing);
    memcpy(copy + page.n_before + n_nothing, page.after, page.n_after);
    hl_exchange_answer(exchange, &(hl_answer){ .status  = 200,
                                               .type    = "text/html; charset=utf-8",
                                               .body    = copy,
                                               .n_bytes = page.n_before + n_nothing + page.n_after,
                                               .header  = "Content-Security-Policy",
                                               .value   = policy });
}

/* Answers 204 to requests that browsers make on their own. */
static void serve_nothing(void *context, hl_exchange *exchange)
{
    (void)context;
    hl_exchange_answer(exchange, &(hl_answer){ .status = 204 });
}

/* ---------------------------------------------------------------- all routes */

typedef struct route {
    const char          *method; /* GET (which includes HEAD) or POST */
    const char          *path;
    hl_exchange_function serve;
    hl_look_function     look;     /* if `serve` is serve_look: the view or measurement */
    bool                 is_open;  /* requires no token */
    bool                 is_quick; /* answers on the server's own thread */
} route;

static void serve_look(void *context, hl_exchange *exchange);

#define OPEN(serve)  serve, NULL, true, true
#define QUICK(serve) serve, NULL, false, true
#define TEXTS(serve) serve, NULL, false, false
#define LOOK(look)   serve_look, look, false, false

static const route routes[] = {
    { "GET", "/", OPEN(serve_page) },
    { "GET", "/favicon.ico", OPEN(serve_nothing) },
    { "GET", "/health", OPEN(serve_health) },
    { "GET", "/metrics", QUICK(serve_metrics) },
    { "GET", "/v1/models", QUICK(serve_models) },
    { "GET", "/v1/models/*", QUICK(serve_one_model) },
    { "POST", "/v1/completions", TEXTS(hl_serve_completions) },
    { "POST", "/v1/chat/completions", TEXTS(hl_serve_chat) },
    { "POST", "/v1/measure", LOOK(hl_serve_measure) },
    { "GET", "/v1/headlight/model", QUICK(serve_model) },
    { "POST", "/v1/headlight/lens", LOOK(hl_serve_lens) },
    { "POST", "/v1/headlight/tokens", LOOK(hl_serve_tokens) },
    { "POST", "/v1/headlight/rank", LOOK(hl_serve_rank) },
    { "POST", "/v1/headlight/evaluate", LOOK(hl_serve_evaluate) },
    { "POST", "/v1/headlight/frontier", LOOK(hl_serve_frontier) },
};

enum { N_ROUTES = sizeof routes / sizeof *routes };

/* Returns the route found for a request. */
static const route *route_of(hl_exchange *exchange)
{
    return &routes[hl_exchange_request(exchange)->tag - 1];
}

/* Converts an answer to text before the next request begins to work, so that only one tree of
 * numbers exists at a time. */
static void serve_look(void *context, hl_exchange *exchange)
{
    hl_server                     *server = context;
    hl_look                        look   = { .server = server, .exchange = exchange };
    HL_CLOSED(json_decref) json_t *root   = NULL;
    json_t                        *answer = NULL;
    char                          *text   = NULL;

    if (!hl_server_body(&root, exchange))
        return;
    look.root        = root;
    hl_status status = route_of(exchange)->look(&answer, &look);
    if (status == HL_OK)
        text = hl_wire_dump(answer);
    hl_looking_leave(&server->looking, &look.place);
    if (status == HL_OK)
        answer_text(exchange, 200, text, NULL, NULL);
    else
        hl_server_fail(exchange, status, &look.fault);
}

/* -------------------------------------------------------------------- checks */

/* A pattern that ends with a star matches all longer paths with that prefix. */
static bool is_at(const char *path, const char *pattern)
{
    size_t n = strlen(pattern);

    if (pattern[n - 1] != '*')
        return strcmp(path, pattern) == 0;
    return strncmp(path, pattern, n - 1) == 0 && path[n - 1] != '\0';
}

/* Returns NULL if there is no route. *other, if not NULL, is then a route with this path and
 * another method. */
static const route *find_route(const hl_request *request, const route **other)
{
    const char *method = request->method;

    *other = NULL;
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    for (int i = 0; i < N_ROUTES; i++) {
        if (!is_at(request->path, routes[i].path))
            continue;
        *other = &routes[i];
        if (strcmp(method, routes[i].method) == 0)
            return &routes[i];
    }
    return NULL;
}

/* Checks Host and Origin. Returns false if the request was refused. */
static bool check_origin(const hl_server *server, hl_exchange *exchange)
{
    const char *host = hl_exchange_header(exchange, "Host");
    const char *site = hl_exchange_header(exchange, "Sec-Fetch-Site");

    if (!hl_host_is_allowed(&server->hosts, host)) {
        hl_server_refuse(exchange, 403, NULL, "wrong_host",
                         "the Host header names another server; start the server with --allow-host "
                         "NAME to accept it");
        return false;
    }
    if (!hl_origin_is_allowed(hl_exchange_header(exchange, "Origin"), host) ||
        (site != NULL && strcmp(site, "cross-site") == 0)) {
        hl_server_refuse(exchange, 403, NULL, "foreign_origin",
                         "requests from pages of other origins are refused");
        return false;
    }
    return true;
}

/* Compares all tokens, so that timing does not reveal which of them came close. */
static bool check_token(const hl_server *server, hl_exchange *exchange, const route *to)
{
    const char *given   = hl_exchange_header(exchange, "Authorization");
    int        *account = &hl_exchange_request(exchange)->account;

    for (size_t i = 0; i < server->n_tokens; i++) {
        if (hl_token_is_right(given, server->tokens[i]))
            *account = (int)i;
    }
    if (server->n_tokens == 0 || to->is_open || *account >= 0)
        return true;
    hl_server_refuse(exchange, 401, NULL, "invalid_api_key",
                     "missing or wrong token: send Authorization: Bearer TOKEN");
    return false;
}

/* A form on another site's page cannot declare its content as JSON. */
static bool check_type(hl_exchange *exchange, const route *to)
{
    static const char wanted[] = "application/json";
    const char       *type     = hl_exchange_header(exchange, "Content-Type");
    size_t            n        = sizeof wanted - 1;

    if (strcmp(to->method, "POST") != 0)
        return true;
    if (type != NULL && strncasecmp(type, wanted, n) == 0 && strchr(" \t;", type[n]) != NULL)
        return true;
    hl_server_refuse(exchange, 415, NULL, NULL, "wanted Content-Type: application/json");
    return false;
}

void hl_routes_head(void *context, hl_exchange *exchange)
{
    hl_server   *server = context;
    const route *other  = NULL;
    const route *to     = find_route(hl_exchange_request(exchange), &other);

    if (!check_origin(server, exchange))
        return;
    if (to == NULL && other != NULL)
        answer_text(exchange, 405,
                    hl_wire_dump(hl_wire_error(405, "this path needs another method", NULL, NULL)),
                    "Allow", strcmp(other->method, "GET") == 0 ? "GET, HEAD" : "POST");
    else if (to == NULL)
        hl_server_refuse(exchange, 404, NULL, "unknown_url", "no such path");
    else if (check_token(server, exchange, to) && check_type(exchange, to))
        hl_exchange_request(exchange)->tag = (int)(to - routes) + 1;
}

/* --------------------------------------------------------------------------- accounts */

/* Counts one more request in progress for this token, if its limit allows it. */
static hl_status open_account(hl_server *server, hl_exchange *exchange)
{
    int       token  = hl_exchange_request(exchange)->account;
    int64_t   all    = hl_server_max_work(server);
    int64_t   most   = server->options.max_per_token;
    hl_status status = HL_OK;

    if (token < 0)
        return HL_OK;
    if (most == 0)
        most = server->n_tokens > 1 ? (all + 1) / 2 : all;
    HL_LOCKED(&server->lock);
    if (server->n_under_way[token] >= most && most < all)
        status =
            hl_fail(HL_BUSY, "%lld requests with this token are active; at most %lld are allowed",
                    (long long)server->n_under_way[token], (long long)most);
    else
        server->n_under_way[token]++;
    return status;
}

void hl_routes_worked(void *context, hl_exchange *exchange)
{
    hl_server *server = context;
    int        token  = hl_exchange_request(exchange)->account;

    if (token < 0)
        return;
    HL_LOCKED(&server->lock);
    server->n_under_way[token]--;
}

static void begin_work(hl_server *server, hl_exchange *exchange)
{
    hl_status status = open_account(server, exchange);

    if (status == HL_OK)
        status = hl_exchange_work(exchange, route_of(exchange)->serve, server);
    if (status != HL_OK)
        hl_server_fail(exchange, status, NULL);
}

void hl_routes_malformed(void *context, hl_exchange *exchange, int status, const char *message)
{
    (void)context;
    hl_server_refuse(exchange, status, NULL, "malformed_request", message);
}

void hl_routes_request(void *context, hl_exchange *exchange)
{
    hl_server   *server = context;
    const route *to     = route_of(exchange);

    if (hl_exchange_request(exchange)->n_dropped > 0)
        hl_server_refuse(exchange, 413, NULL, NULL, "the body of the request is too long");
    else if (to->is_quick)
        to->serve(server, exchange);
    else if (hl_server_is_draining(server))
        hl_server_refuse(exchange, 503, NULL, NULL, "the server is shutting down");
    else
        begin_work(server, exchange);
}

void hl_routes_answered(void *context, hl_exchange *exchange, int status)
{
    hl_server *server = context;
    int        tag    = hl_exchange_request(exchange)->tag;

    hl_metrics_answered(server->metrics, tag > 0 ? routes[tag - 1].path : "refused", status);
}
