/* route_about.c - what is served: the model, the server's health and numbers, the page. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/path.h"
#include "base/status.h"
#include "model/model.h"
#include "render/page.h"
#include "serve/server.h"

/* -------------------------------------------------------------------------- models */

static json_t *model_json(const hl_server *server)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", server->model_name, "object", "model", "created",
                     (json_int_t)server->started, "owned_by", "headlight");
}

void hl_serve_models(void *context, hl_exchange *exchange)
{
    hl_server_answer(exchange, 200,
                     json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(context)));
}

void hl_serve_one_model(void *context, hl_exchange *exchange)
{
    const hl_server *server = context;
    const char      *id     = hl_exchange_path(exchange) + strlen("/v1/models/");

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
            hl_json_add(&list, json_pack("{s:I, s:I, s:I}", "n_heads", (json_int_t)layer.n_heads,
                                         "n_kv_heads", (json_int_t)layer.n_kv_heads, "window",
                                         (json_int_t)layer.window));
    }
    return list;
}

/* The dtype that holds the most bytes. */
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

/* Where the model lies, for commands that a reader copies.  Whoever may come from another machine
 * learns its last part alone. */
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

void hl_serve_model(void *context, hl_exchange *exchange)
{
    hl_server           *server = context;
    const hl_model_info *info   = hl_model_get_info(server->model);
    bool                 known  = false;
    hl_chat_format       chat   = hl_tokenizer_chat_format(server->tokenizer, &known);
    json_t              *root   = json_pack(
                       "{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "object", "headlight.model",
                       "id", server->model_name, "family", info->family, "format", info->format, "dtype",
                       main_dtype(server->model), "n_layers", (json_int_t)info->n_layers, "n_heads",
                       (json_int_t)info->n_heads, "n_kv_heads", (json_int_t)info->n_kv_heads, "d_model",
                       (json_int_t)info->d_model, "d_vocab", (json_int_t)info->d_vocab, "n_params",
                       (json_int_t)info->n_params, "n_ctx", (json_int_t)hl_engine_n_ctx(server->engine));

    hl_json_put(&root, "layers", layer_list(server->model));
    hl_json_put(&root, "slots", json_integer(hl_engine_n_slots(server->engine)));
    hl_json_put(&root, "chat",
                json_pack("{s:s, s:b}", "format", hl_chat_format_name(chat), "known", known));
    hl_json_put(&root, "path", path_json(server));
    hl_json_put(&root, "version", json_string(hl_version()));
    hl_server_answer(exchange, 200, root);
}

/* ------------------------------------------------------------------ health and numbers */

void hl_serve_health(void *context, hl_exchange *exchange)
{
    hl_server *server   = context;
    bool       draining = hl_server_is_draining(server);

    hl_server_answer(exchange, draining ? 503 : 200,
                     json_pack("{s:s}", "status", draining ? "draining" : "ok"));
}

void hl_serve_metrics(void *context, hl_exchange *exchange)
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

/* ---------------------------------------------------------------------------- the page */

/* It asks nobody but this server, and nobody may put it into a frame. */
static const char policy[] =
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; connect-src 'self'; worker-src blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

/* Without data: then it asks the server. */
void hl_serve_page(void *context, hl_exchange *exchange)
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

void hl_serve_nothing(void *context, hl_exchange *exchange)
{
    (void)context;
    hl_exchange_answer(exchange, &(hl_answer){ .status = 204 });
}
