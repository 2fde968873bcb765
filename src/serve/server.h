/* server.h - the inside of hl_server: what all routes share. */
#ifndef HL_SERVE_SERVER_H
#define HL_SERVE_SERVER_H

#include <pthread.h>

#include "base/memory.h"
#include "generate/engine.h"
#include "headlight/base.h"
#include "headlight/serve.h"
#include "serve/http.h"
#include "serve/wire.h"

/* ---------------------------------------------------------------- counters */

/* What a server counts, written in the text format of Prometheus. */
typedef struct hl_metrics hl_metrics;

hl_status hl_metrics_new(hl_metrics **out);
void      hl_metrics_free(hl_metrics *metrics);

/* Counts an answer.  May be called from any thread. The name of a route must be static. */
void hl_metrics_answered(hl_metrics *metrics, const char *route, int status);
/* Records the seconds from a request to the first token of its text. */
void hl_metrics_first_token(hl_metrics *metrics, double seconds);
/* Records the mean attention entropy of a generated token; NaN if it is not known. */
void hl_metrics_token(hl_metrics *metrics, double attention_entropy);

/* Returns all metrics in the text format of Prometheus, to be released with hl_free; NULL if out of
 * memory. */
char *hl_metrics_text(hl_metrics *metrics, const hl_engine_counts *engine,
                      const hl_http_counts *http, int64_t n_looking);

/* ---------------------------------------------------------------- security */

/* Who may send requests: host names, origins and tokens.
 *
 * Every page that is open in a browser on the machine can reach a server on 127.0.0.1.  Two checks
 * refuse these pages.  A page of another site is named in the Origin header.  If another site's
 * name was made to resolve to 127.0.0.1 (DNS rebinding), the browser takes this server for that
 * site's own, but the name is in the Host header.
 *
 * All functions are pure; the bytes that they take are untrusted. */

/* The host names that a server answers to. */
typedef struct hl_host_rules {
    const char        *bound; /* the address that it listens on, as text */
    const char *const *names; /* (n_names) additional names given by the owner */
    size_t             n_names;
    /* It listens on all addresses: numeric addresses are allowed, as they cannot be rebound. */
    bool any_address;
} hl_host_rules;

/* Checks a Host header: a name or address, with an optional port that is ignored. NULL (no header)
 * is not allowed. */
bool hl_host_is_allowed(const hl_host_rules *rules, const char *host);

/* Checks an Origin header: it must be absent, or http(s):// followed by exactly the Host. */
bool hl_origin_is_allowed(const char *origin, const char *host);

/* Checks an Authorization header of the form "Bearer TOKEN". Takes the same time wherever the token
 * differs, so timing reveals at most its length. */
bool hl_token_is_right(const char *authorization, const char *token);

/* Returns true if this address is reachable from this machine only. */
bool hl_address_is_loopback(const char *address);

/* -------------------------------------------------- views and measurements */

/* The queue of views and measurements, which share the model with the texts being made.
 *
 *     hl_looker looker = { .exchange = exchange };
 *     status = hl_looking_enter(&server->looking, &looker);
 *     if (status == HL_OK)
 *         ... a session of its own ...
 *     hl_looking_leave(&server->looking, &looker);
 *
 * A view or a measurement takes a session's memory and all cores.  One of them works at a time, in
 * the order of arrival; a few may wait, and later ones are refused.  A client that disconnects
 * leaves the queue at once.  The working one has a lower priority than the engine, so it hardly
 * slows the texts that are being made. */

#define HL_LOOKING_MOST 8 /* limit of requests at work or waiting */

typedef struct hl_looker {
    hl_exchange      *exchange;
    bool              is_in; /* in the queue */
    struct hl_looker *next;
} hl_looker;

typedef struct hl_looking {
    pthread_mutex_t lock;
    hl_looker      *first; /* the request that is being worked on */
    int64_t         count;
} hl_looking;

void hl_looking_init(hl_looking *looking);
void hl_looking_destroy(hl_looking *looking);

/* Creates the threads that views and measurements share at once, instead of at the first request.
 * Returns their number including the caller: n_threads, or fewer if the system grants no more. */
int hl_looking_reserve(int n_threads);

/* Waits for its turn. Fails with HL_BUSY if too many are waiting and with HL_CANCELLED if the
 * client is gone. The priority of the calling thread stays low afterwards. */
hl_status hl_looking_enter(hl_looking *looking, hl_looker *looker);
/* Must follow every enter, whatever it returned. */
void hl_looking_leave(hl_looking *looking, hl_looker *looker);
/* Returns the number of requests at work or waiting. */
int64_t hl_looking_count(hl_looking *looking);

/* -------------------------------------------------------------- the server */

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
