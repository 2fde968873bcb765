/* server.h - the inside of hl_server: what all routes share. */
#ifndef HL_SERVE_SERVER_H
#define HL_SERVE_SERVER_H

#include <pthread.h>

#include "base/memory.h"
#include "generate/engine.h"
#include "headlight/serve.h"
#include "serve/http.h"
#include "serve/looking.h"
#include "serve/metrics.h"
#include "serve/security.h"
#include "serve/wire.h"

HL_CLOSES(hl_server_close, hl_server)

struct hl_server {
    const hl_model     *model;
    const hl_tokenizer *tokenizer;
    /* defaults are filled in */
    hl_server_options options;
    char             *host;
    /* (n_tokens) a request must bring one of them; none: no token is needed */
    char          **tokens;
    size_t          n_tokens;
    char           *model_name;
    char          **names;
    hl_host_rules   hosts;
    int64_t         end_ids[2]; /* (n_end_ids) the end tokens that the tokenizer knows */
    int             n_end_ids;
    int64_t         started; /* seconds since 1970 */
    hl_engine      *engine;
    hl_http        *http;
    hl_metrics     *metrics;
    hl_looking      looking;
    pthread_mutex_t lock; /* guards the fields below */
    bool            is_draining;
    uint64_t        n_requests;  /* source of ids and seeds */
    int64_t        *n_under_way; /* (n_tokens) requests at work with each token */
};

bool hl_server_is_draining(hl_server *server);
/* Returns 0, 1, 2, ...: a number per request. */
uint64_t hl_server_next_number(hl_server *server);
/* The number of requests that can be at work at once, of any kind. */
int64_t hl_server_max_work(const hl_server *server);

/* Answers with a JSON body and takes ownership of the tree. A NULL tree means out of memory. */
void hl_server_answer(hl_exchange *exchange, int status, json_t *tree);
/* Answers with an error in OpenAI's format; param and code may be NULL. */
void hl_server_refuse(hl_exchange *exchange, int status, const char *param, const char *code,
                      const char *message);
/* Answers with an error for a failed call, with that call's message. */
void hl_server_fail(hl_exchange *exchange, hl_status failure, const hl_wire_fault *fault);
/* Returns the HTTP status for a failure. */
int hl_server_status(hl_status failure);

/* Parses the body as JSON. Returns false if it is not valid JSON; that has then been answered. */
bool hl_server_body(json_t **out, hl_exchange *exchange);

/* A request for a view or a measurement. It is parsed first, then waits for its turn. */
typedef struct hl_look {
    hl_server    *server;
    hl_exchange  *exchange;
    const json_t *root; /* the body */
    hl_wire_fault fault;
    hl_looker     place;
} hl_look;

/* *out is the answer. Must call hl_look_turn before it uses much time or memory. */
typedef hl_status (*hl_look_function)(json_t **out, hl_look *look);
/* Waits for the request's turn, as hl_looking_enter does. */
hl_status hl_look_turn(hl_look *look);
/* A progress callback: returns HL_CANCELLED once the client is gone. */
hl_status hl_look_go_on(hl_look *look);
/* Checks that the body is an object with no members other than these (NULL ends the list). */
hl_status hl_look_check(hl_look *look, const char *const *known);
/* Returns a member, or NULL if it is missing or null. Faults are attributed to it until the next
 * member is read. */
const json_t *hl_look_member(hl_look *look, const char *name);

/* Routing and access control: the calls of a hl_http_handler, whose context is a hl_server. */
void hl_routes_head(void *server, hl_exchange *exchange);
void hl_routes_malformed(void *server, hl_exchange *exchange, int status, const char *message);
void hl_routes_request(void *server, hl_exchange *exchange);
void hl_routes_worked(void *server, hl_exchange *exchange);
void hl_routes_answered(void *server, hl_exchange *exchange, int status);

/* The routes, listed in the table of routes.c. Each answers on a thread of its own, except those
 * that only read a few numbers. */
void      hl_serve_completions(void *server, hl_exchange *exchange);
void      hl_serve_chat(void *server, hl_exchange *exchange);
hl_status hl_serve_measure(json_t **out, hl_look *look);
hl_status hl_serve_lens(json_t **out, hl_look *look);
hl_status hl_serve_tokens(json_t **out, hl_look *look);
hl_status hl_serve_rank(json_t **out, hl_look *look);
hl_status hl_serve_evaluate(json_t **out, hl_look *look);
hl_status hl_serve_frontier(json_t **out, hl_look *look);

#endif
