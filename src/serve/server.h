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
    hl_server_options   options; /* with defaults filled in; texts are the caller's or below */
    char               *host;
    char          **tokens; /* (n_tokens) any of which a request must bring; 0: none is needed */
    size_t          n_tokens;
    char           *model_name;
    char          **names;
    hl_host_rules   hosts;
    int64_t         end_ids[2]; /* (n_end_ids) that the tokenizer knows */
    int             n_end_ids;
    int64_t         started; /* seconds since 1970 */
    hl_engine      *engine;
    hl_http        *http;
    hl_metrics     *metrics;
    hl_looking      looking;
    pthread_mutex_t lock; /* of what follows */
    bool            is_draining;
    uint64_t        n_requests;  /* for ids and seeds */
    int64_t        *n_under_way; /* (n_tokens) requests at work with each token */
};

bool hl_server_is_draining(hl_server *server);
/* 0, 1, 2, ... */
uint64_t hl_server_next_number(hl_server *server);
/* The number of requests that can be at work at once, of any kind. */
int64_t hl_server_max_work(const hl_server *server);

/* An answer with a JSON body; takes the tree.  NULL is out of memory. */
void hl_server_answer(hl_exchange *exchange, int status, json_t *tree);
/* An error as OpenAI writes it; param and code may be NULL. */
void hl_server_refuse(hl_exchange *exchange, int status, const char *param, const char *code,
                      const char *message);
/* The same for a failed call, with its message. */
void hl_server_fail(hl_exchange *exchange, hl_status failure, const hl_wire_fault *fault);
/* What HTTP says of a failure. */
int hl_server_status(hl_status failure);

/* The body as JSON; false: it is none, and that was answered. */
bool hl_server_body(json_t **out, hl_exchange *exchange);

/* A view or a measurement that is asked for.  The request is read first, then it has its turn. */
typedef struct hl_look {
    hl_server    *server;
    hl_exchange  *exchange;
    const json_t *root; /* the body */
    hl_wire_fault fault;
    hl_looker     place;
} hl_look;

/* *out is the answer.  Calls hl_look_turn before it takes much time or memory. */
typedef hl_status (*hl_look_function)(json_t **out, hl_look *look);
/* As hl_looking_enter. */
hl_status hl_look_turn(hl_look *look);
/* HL_CANCELLED once the client is gone: for what reports its progress. */
hl_status hl_look_go_on(hl_look *look);
/* Is it an object of these members alone (NULL ends the list)? */
hl_status hl_look_check(hl_look *look, const char *const *known);
/* A member; the fault is its, until the next is read.  NULL: there is none, or it is null. */
const json_t *hl_look_member(hl_look *look, const char *name);

/* Which request goes where, and who may make it: the calls of a hl_http_handler, whose context is a
 * hl_server. */
void hl_routes_head(void *server, hl_exchange *exchange);
void hl_routes_malformed(void *server, hl_exchange *exchange, int status, const char *message);
void hl_routes_request(void *server, hl_exchange *exchange);
void hl_routes_worked(void *server, hl_exchange *exchange);
void hl_routes_answered(void *server, hl_exchange *exchange, int status);

/* The routes, by the table in routes.c; each answers on a thread of its own, but for those that
 * only read a few numbers. */
void      hl_serve_completions(void *server, hl_exchange *exchange);
void      hl_serve_chat(void *server, hl_exchange *exchange);
hl_status hl_serve_measure(json_t **out, hl_look *look);
hl_status hl_serve_lens(json_t **out, hl_look *look);
hl_status hl_serve_tokens(json_t **out, hl_look *look);
hl_status hl_serve_rank(json_t **out, hl_look *look);
hl_status hl_serve_evaluate(json_t **out, hl_look *look);

#endif
