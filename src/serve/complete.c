/* complete.c - texts for a request: one job of the engine per choice, streamed or at once.
 *
 *     body  ->  wire request  ->  prompts  ->  jobs
 *     engine: "there is something new"  ->  wakes this thread  ->  events  ->  replies
 *     replies  ->  chunks of a stream, or one object at the end
 *
 * This thread owns all of these.  When the client is gone it frees its jobs, and with them their
 * slots. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "serve/reply.h"
#include "serve/server.h"
#include "serve/texts.h"

#define WAIT_SECONDS 5.0
#define MAX_NUMBERS  (INT64_C(1) << 22) /* limit of numbers in an answer that is not a stream */
#define ID_BYTES     48
#define CLIENT_GONE  499 /* the status that other servers use; here it only appears in the metrics */

typedef struct choice {
    hl_reply_options options;
    hl_reply        *reply;
    hl_job          *job;
    bool             is_over;
} choice;

typedef struct completion {
    hl_server        *server;
    hl_exchange      *exchange;
    json_t           *root;
    hl_wire_request   request;
    hl_wire_fault     fault;
    hl_served_prompts prompts;
    choice            choices[HL_WIRE_MAX_CHOICES];
    int64_t           n_choices;
    int64_t           n_over;
    int64_t           created;
    double            begun;
    bool              has_first;
    char              id[ID_BYTES];
} completion;

/* ----------------------------------------------------------------------- preparing */

/* Answers that are not streams are held in memory completely, including their numbers. */
static hl_status check_size(const completion *c)
{
    const hl_model_info *info  = hl_model_get_info(c->server->model);
    int64_t              n_ctx = hl_engine_n_ctx(c->server->engine);
    int64_t              most  = c->request.max_tokens;
    int64_t              each  = 0;

    if (c->request.stream)
        return HL_OK;
    if (most < 0 || most > n_ctx || c->request.with_prompt)
        most = n_ctx;
    for (int which = 0; which < HL_WIRE_N_ROWS; which++)
        each += (c->request.rows & HL_JOB_ROWS(which)) != 0 ? info->n_layers * info->n_heads : 0;
    each += c->request.patterns != NULL ? c->request.patterns->n_heads * n_ctx : 0;
    if (each == 0 || most <= MAX_NUMBERS / each / c->n_choices)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT,
                   "%lld numbers for each of %lld tokens are too many for one answer; use stream, "
                   "or a smaller max_tokens",
                   (long long)each, (long long)most);
}

static hl_status make_choices(completion *c)
{
    int64_t n_places = c->server->options.n_slots + c->server->options.n_queue;

    c->n_choices = c->prompts.count * c->request.n;
    if (c->n_choices > HL_WIRE_MAX_CHOICES)
        return hl_fail(HL_BAD_INPUT, "%lld prompts times n = %lld are %lld texts, at most %d",
                       (long long)c->prompts.count, (long long)c->request.n,
                       (long long)c->n_choices, HL_WIRE_MAX_CHOICES);
    if (c->n_choices > n_places)
        return hl_fail(HL_BAD_INPUT, "%lld texts at once; this server has room for %lld",
                       (long long)c->n_choices, (long long)n_places);
    HL_NEED(check_size(c));
    for (int64_t i = 0; i < c->n_choices; i++) {
        choice *made  = &c->choices[i];
        made->options = (hl_reply_options){ .request   = &c->request,
                                            .prompt    = &c->prompts.items[i / c->request.n],
                                            .model     = c->server->model,
                                            .tokenizer = c->server->tokenizer,
                                            .index     = i };
        HL_NEED(hl_reply_new(&made->reply, &made->options));
    }
    return HL_OK;
}

static hl_status prepare(completion *c, bool is_chat)
{
    hl_server      *server  = c->server;
    hl_wire_context context = { .model = server->model, .model_name = server->model_name };
    uint64_t        number  = hl_server_next_number(server);

    HL_NEED(hl_wire_read(&c->request, &c->fault, c->root, is_chat, &context));
    if (!c->request.has_seed)
        c->request.sample.seed = server->options.seed + number * HL_WIRE_MAX_CHOICES;
    snprintf(c->fault.param, sizeof c->fault.param, "%s", is_chat ? "messages" : "prompt");
    HL_NEED(hl_served_prompts_read(&c->prompts, c->request.prompt, is_chat,
                                   &(hl_prompt_reader){ server->model, server->tokenizer,
                                                        c->exchange, c->request.variables }));
    HL_NEED(make_choices(c));
    c->created = (int64_t)time(NULL);
    snprintf(c->id, sizeof c->id, "%s-%llx%06llx", is_chat ? "chatcmpl" : "cmpl",
             (unsigned long long)server->started, (unsigned long long)number);
    return HL_OK;
}

/* ------------------------------------------------------------------------- jobs */

static void notify(void *context)
{
    hl_exchange_wake(context);
}

static hl_status check_length(const completion *c, const hl_served_prompt *prompt)
{
    int64_t n_ctx = hl_engine_n_ctx(c->server->engine);
    int64_t room  = c->request.max_tokens == 0 ? 0 : 1;

    if (prompt->n_tokens + room <= n_ctx)
        return HL_OK;
    return hl_fail(HL_LIMIT,
                   "This model's maximum context length is %lld tokens; the prompt has %lld",
                   (long long)n_ctx, (long long)prompt->n_tokens);
}

static hl_status submit(completion *c)
{
    for (int64_t i = 0; i < c->n_choices; i++) {
        hl_job_options job = hl_reply_job(&c->choices[i].options);

        HL_NEED(check_length(c, c->choices[i].options.prompt));
        job.sample.seed += (uint64_t)(i % c->request.n);
        job.end_ids   = c->server->end_ids;
        job.n_end_ids = c->server->n_end_ids;
        job.notify    = notify;
        job.context   = c->exchange;
        HL_NEED(hl_engine_submit(&c->choices[i].job, c->server->engine, &job));
    }
    return HL_OK;
}

static void note_token(completion *c, const hl_job_event *event)
{
    if (event->from_prompt)
        return;
    hl_metrics_token(c->server->metrics, event->token.attention_entropy);
    if (!c->has_first)
        hl_metrics_first_token(c->server->metrics, hl_clock_seconds() - c->begun);
    c->has_first = true;
}

/* ----------------------------------------------------------------------- what is sent */

static json_t *usage_of(const completion *c)
{
    int64_t n_prompt = 0, n_generated = 0;

    for (int64_t i = 0; i < c->prompts.count; i++)
        n_prompt += c->prompts.items[i].n_tokens;
    for (int64_t i = 0; i < c->n_choices; i++)
        n_generated += hl_reply_n_generated(c->choices[i].reply);
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)n_prompt, "completion_tokens",
                     (json_int_t)n_generated, "total_tokens", (json_int_t)(n_prompt + n_generated));
}

/* Takes ownership of choices, and of usage unless it is NULL. */
static json_t *envelope(const completion *c, json_t *choices, bool has_usage, json_t *usage)
{
    const char *object = !c->request.is_chat ? "text_completion"
                         : c->request.stream ? "chat.completion.chunk"
                                             : "chat.completion";
    json_t     *root   = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", object,
                                   "created", (json_int_t)c->created, "model", c->server->model_name,
                                   "system_fingerprint", hl_version(), "choices", choices);

    if (has_usage)
        hl_json_put(&root, "usage", usage);
    if (c->request.ignored != NULL)
        hl_json_put(&root, "ignored", json_incref(c->request.ignored));
    return root;
}

/* Sends one event of a stream. Returns false if the client is gone or memory is out. */
static bool send_event(completion *c, json_t *tree)
{
    char  *text = hl_wire_dump(tree);
    char  *line = NULL;
    size_t n    = text != NULL ? strlen(text) : 0;
    bool   good = text != NULL && HL_ALLOC(&line, n + 16) == HL_OK;

    if (good) {
        int length = snprintf(line, n + 16, "data: %s\n\n", text);
        good       = hl_exchange_write(c->exchange, line, (size_t)length);
    }
    hl_free(line);
    hl_free(text);
    return good;
}

static bool send_news(completion *c, choice *from)
{
    while (hl_reply_has_news(from->reply)) {
        json_t *choices = json_pack("[o]", hl_reply_take(from->reply));
        if (!send_event(c, envelope(c, choices, c->request.include_usage, json_null())))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------- running */

static hl_status end_choice(completion *c, choice *ended)
{
    ended->is_over = true;
    c->n_over++;
    hl_job_cancel(ended->job);
    return hl_reply_finish(ended->reply);
}

/* Handles one event of one job; *moved is false if there was none. */
static hl_status advance(bool *moved, completion *c, choice *at)
{
    hl_status    status = HL_OK;
    hl_job_event event  = { 0 };
    bool         over   = false;

    HL_NEED(hl_job_wait(&event, at->job, 0.0));
    if (event.kind == HL_JOB_NOTHING)
        return HL_OK;
    *moved = true;
    if (event.kind == HL_JOB_END && event.cancelled)
        return hl_fail(HL_CANCELLED, "the server is shutting down");
    if (event.kind == HL_JOB_TOKEN) {
        note_token(c, &event);
        HL_NEED(hl_reply_add(&over, at->reply, &event));
    }
    if (event.kind == HL_JOB_END || over)
        HL_NEED(end_choice(c, at));
    if (c->request.stream && !send_news(c, at))
        status = hl_fail(HL_IO, "the client closed the connection");
    return status;
}

/* Runs until all texts are complete. Fails with HL_IO if the client is gone. */
static hl_status run(completion *c)
{
    while (c->n_over < c->n_choices) {
        bool moved = false;

        for (int64_t i = 0; i < c->n_choices; i++) {
            HL_NEED(c->choices[i].is_over ? HL_OK : advance(&moved, c, &c->choices[i]));
        }
        if (hl_exchange_is_gone(c->exchange))
            return hl_fail(HL_IO, "the client closed the connection");
        if (!moved && c->n_over < c->n_choices)
            hl_exchange_wait(c->exchange, WAIT_SECONDS);
    }
    return HL_OK;
}

/* Frees jobs before the answer is sent, so that the client finds the slot free after reading it. */
static void free_jobs(completion *c)
{
    for (int64_t i = 0; i < c->n_choices; i++) {
        hl_job_free(c->choices[i].job);
        c->choices[i].job = NULL;
    }
}

/* A request that was valid when submitted and fails later is not the client's fault. */
static int status_of_run(hl_status failure)
{
    if (failure == HL_IO)
        return CLIENT_GONE;
    return failure == HL_CANCELLED ? hl_server_status(failure) : 500;
}

static void answer_stream(completion *c)
{
    hl_exchange_begin(c->exchange, "text/event-stream; charset=utf-8");
    hl_status status = run(c);
    bool      whole  = status == HL_OK;

    free_jobs(c);
    if (whole && c->request.include_usage)
        whole = send_event(c, envelope(c, json_array(), true, usage_of(c)));
    if (whole)
        whole = hl_exchange_write(c->exchange, "data: [DONE]\n\n", 14);
    if (status != HL_OK && status != HL_IO)
        send_event(c, hl_wire_error(status_of_run(status), hl_error_message(), NULL, NULL));
    hl_exchange_end(c->exchange, whole);
}

static void answer_whole(completion *c)
{
    hl_status status = run(c);

    free_jobs(c);
    if (status != HL_OK) {
        hl_server_refuse(c->exchange, status_of_run(status), NULL, NULL, hl_error_message());
        return;
    }
    json_t *choices = json_array();
    for (int64_t i = 0; i < c->n_choices; i++)
        hl_json_add(&choices, hl_reply_take(c->choices[i].reply));
    hl_server_answer(c->exchange, 200, envelope(c, choices, true, usage_of(c)));
}

static void release(completion *c)
{
    free_jobs(c);
    for (int64_t i = 0; i < c->n_choices; i++)
        hl_reply_free(c->choices[i].reply);
    hl_served_prompts_release(&c->prompts);
    hl_wire_request_release(&c->request);
    json_decref(c->root);
    hl_free(c);
}

static void complete(hl_server *server, hl_exchange *exchange, bool is_chat)
{
    completion *c = NULL;

    if (HL_ALLOC_ZEROED(&c, 1) != HL_OK) {
        hl_server_fail(exchange, HL_NO_MEMORY, NULL);
        return;
    }
    c->server   = server;
    c->exchange = exchange;
    c->begun    = hl_clock_seconds();
    if (hl_server_body(&c->root, exchange)) {
        hl_status status = prepare(c, is_chat);

        if (status == HL_OK)
            status = submit(c);
        if (status != HL_OK) {
            free_jobs(c);
            hl_server_fail(exchange, status, &c->fault);
        } else if (c->request.stream) {
            answer_stream(c);
        } else {
            answer_whole(c);
        }
    }
    release(c);
}

void hl_serve_completions(void *server, hl_exchange *exchange)
{
    complete(server, exchange, false);
}

void hl_serve_chat(void *server, hl_exchange *exchange)
{
    complete(server, exchange, true);
}
