/* route_views.c - one prompt, seen from inside the model: the lens, and attention maps.
 *
 * Views run one at a time in separate sessions, beside the engine.  They take cores from texts that
 * are being made, but do not block them. */
#include <string.h>

#include "base/status.h"
#include "headlight/view.h"
#include "measure/view.h"
#include "serve/server.h"
#include "serve/texts.h"

#define MAX_CELLS   (INT64_C(1) << 18) /* limit of cells of a lens */
#define MAX_NUMBERS (INT64_C(1) << 21) /* limit of numbers in maps */
#define MAX_MAPS    16

/* The parsed request for a view. */
typedef struct view_request {
    hl_served_prompts prompts;
    hl_head_list     *heads; /* NULL: no heads were named */
    hl_gates         *gates; /* NULL: no head is disabled */
    int64_t           begin;
    int64_t           end;
} view_request;

/* ------------------------------------------------------------------------- requests */

/* Reads "input", a text or ids, or "messages". */
static hl_status read_input(view_request *out, hl_look *look)
{
    const hl_server *server   = look->server;
    const json_t    *messages = hl_look_member(look, "messages");
    const json_t    *input    = hl_look_member(look, "input");

    if ((input == NULL) == (messages == NULL))
        return hl_fail(HL_BAD_INPUT, "wanted either input or messages");
    HL_NEED(hl_served_prompts_read(
        &out->prompts, input != NULL ? input : messages, messages != NULL,
        &(hl_prompt_reader){ server->model, server->tokenizer, look->exchange, NULL }));
    if (out->prompts.count == 1)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "input has %lld texts, wanted one", (long long)out->prompts.count);
}

static hl_status check_length(const view_request *request, const hl_server *server)
{
    int64_t n_tokens = request->prompts.items[0].n_tokens;
    int64_t n_ctx    = hl_engine_n_ctx(server->engine);

    if (n_tokens <= n_ctx)
        return HL_OK;
    return hl_fail(HL_LIMIT, "the text has %lld tokens; at most %lld are allowed",
                   (long long)n_tokens, (long long)n_ctx);
}

static hl_status read_request(view_request *out, hl_look *look)
{
    static const char *const known[] = { "model", "input", "messages", "heads",
                                         "off",   "begin", "end",      NULL };
    const hl_model          *model   = look->server->model;
    const json_t            *value   = NULL;

    HL_NEED(hl_look_check(look, known));
    HL_NEED(hl_json_get_int(&out->begin, look->root, "begin", "request"));
    HL_NEED(hl_json_get_int(&out->end, look->root, "end", "request"));
    value = hl_look_member(look, "heads");
    if (value != NULL && !(json_is_array(value) && json_array_size(value) == 0))
        HL_NEED(hl_wire_heads(&out->heads, value, model, "heads"));
    value = hl_look_member(look, "off");
    if (value != NULL)
        HL_NEED(hl_wire_gates(&out->gates, value, model, "off"));
    HL_NEED(read_input(out, look));
    return check_length(out, look->server);
}

static void release(view_request *request)
{
    hl_served_prompts_release(&request->prompts);
    hl_head_list_free(request->heads);
    hl_gates_free(request->gates);
}

static const float *gates_of(const view_request *request)
{
    return request->gates != NULL ? request->gates->values : NULL;
}

static hl_prompt prompt_of(const hl_server *server, const view_request *request)
{
    return (hl_prompt){ .tokens    = request->prompts.items[0].tokens,
                        .n_tokens  = request->prompts.items[0].n_tokens,
                        .tokenizer = server->tokenizer };
}

/* ------------------------------------------------------------------------------- JSON */

static json_t *token_list(const hl_view_token *tokens, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < n; i++)
        hl_json_add(&list, json_pack("{s:I, s:s, s:b}", "id", (json_int_t)tokens[i].id, "text",
                                     tokens[i].text, "marked", tokens[i].is_marked));
    return list;
}

/* Rows end with the last visible token. */
static json_t *map_of(const hl_token_view *view, const hl_token_map *map)
{
    int64_t n         = view->n_tokens;
    json_t *attention = json_array();

    for (int64_t row = 0; row < n; row++)
        hl_json_add(&attention,
                    hl_wire_numbers(map->attention + row * n, 0, view->is_causal ? row + 1 : n));
    return json_pack("{s:s, s:I, s:o, s:o}", "name", map->name, "heads", (json_int_t)map->n_heads,
                     "entropy", hl_wire_numbers(map->entropy, 0, n), "attention", attention);
}

static json_t *tokens_json(const hl_token_view *view)
{
    json_t *maps = json_array();

    for (int64_t i = 0; i < view->n_maps; i++)
        hl_json_add(&maps, map_of(view, &view->maps[i]));
    return json_pack("{s:s, s:s, s:I, s:I, s:b, s:o, s:o}", "object", "headlight.tokens", "family",
                     view->family, "layers", (json_int_t)view->n_layers, "heads",
                     (json_int_t)view->n_heads, "causal", view->is_causal, "tokens",
                     token_list(view->tokens, view->n_tokens), "maps", maps);
}

static json_t *lens_layer(const hl_lens_view *view, int64_t row)
{
    int64_t              n       = view->n_tokens;
    const hl_view_token *guesses = view->guesses + row * n;
    json_t              *top = json_array(), *text = json_array();

    for (int64_t i = 0; i < n; i++) {
        hl_json_add(&top, json_integer(guesses[i].id));
        hl_json_add(&text, hl_json_text(guesses[i].text, strlen(guesses[i].text)));
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "layer", (json_int_t)row, "top", top, "text", text,
                     "entropy", hl_wire_numbers(view->entropy + row * n, 0, n));
}

static json_t *lens_json(const hl_lens_view *view)
{
    json_t *rows = json_array();

    for (int64_t row = 0; row <= view->n_layers; row++)
        hl_json_add(&rows, lens_layer(view, row));
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o}", "object", "headlight.lens", "family",
                     view->family, "layers", (json_int_t)view->n_layers, "vocabulary",
                     (json_int_t)view->d_vocab, "first", (json_int_t)view->first, "tokens",
                     token_list(view->tokens, view->n_tokens), "lens", rows);
}

/* ----------------------------------------------------------------------------- looking */

static hl_status look_tokens(json_t **out, hl_server *server, const view_request *request)
{
    HL_CLOSED(hl_token_view_free) hl_token_view *view   = NULL;
    hl_prompt                                    prompt = prompt_of(server, request);
    int64_t n_maps = request->heads != NULL ? request->heads->n_heads : 0;

    if (n_maps > MAX_MAPS || prompt.n_tokens * prompt.n_tokens > MAX_NUMBERS / (n_maps + 1))
        return hl_fail(HL_BAD_INPUT,
                       "%lld maps of %lld tokens are too much for one answer; at most %d heads and "
                       "%lld numbers are allowed",
                       (long long)n_maps, (long long)prompt.n_tokens, MAX_MAPS,
                       (long long)MAX_NUMBERS);
    HL_NEED(hl_token_view_new(
        &view, server->model, &prompt,
        &(hl_token_view_options){ .insets    = n_maps > 0 ? request->heads->heads : NULL,
                                  .n_insets  = n_maps,
                                  .gates     = gates_of(request),
                                  .n_threads = server->options.n_threads }));
    *out = tokens_json(view);
    return HL_OK;
}

static hl_status look_lens(json_t **out, hl_server *server, const view_request *request)
{
    HL_CLOSED(hl_lens_view_free) hl_lens_view *view   = NULL;
    hl_prompt                                  prompt = prompt_of(server, request);
    int64_t n_rows = hl_model_get_info(server->model)->n_layers + 1;

    if (prompt.n_tokens > MAX_CELLS / n_rows)
        return hl_fail(HL_BAD_INPUT, "%lld tokens in %lld layers are too many for one answer",
                       (long long)prompt.n_tokens, (long long)n_rows);
    HL_NEED(hl_lens_view_new(&view, server->model, &prompt,
                             &(hl_lens_view_options){ .begin     = request->begin,
                                                      .end       = request->end,
                                                      .gates     = gates_of(request),
                                                      .n_threads = server->options.n_threads }));
    *out = lens_json(view);
    return HL_OK;
}

typedef hl_status (*view_function)(json_t **out, hl_server *server, const view_request *request);

static hl_status answer_view(json_t **out, hl_look *look, view_function view)
{
    HL_SCOPED(release) view_request request = { 0 };

    HL_NEED(read_request(&request, look));
    HL_NEED(hl_look_turn(look));
    return view(out, look->server, &request);
}

hl_status hl_serve_tokens(json_t **out, hl_look *look)
{
    return answer_view(out, look, look_tokens);
}

hl_status hl_serve_lens(json_t **out, hl_look *look)
{
    return answer_view(out, look, look_lens);
}
