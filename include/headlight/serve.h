/* headlight/serve.h - a server: OpenAI's interface with entropy, and the live page.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_SERVE_H
#define HEADLIGHT_SERVE_H

#include "session.h"
#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ servers
 *
 *     hl_server *server = NULL;
 *     if (hl_server_open(&server, model, tokenizer, &(hl_server_options){ .n_slots = 8 }) == HL_OK)
 *         printf("http://127.0.0.1:%d/\n", (int)hl_server_port(server));
 *     ...
 *     hl_server_drain(server, 30.0, NULL);
 *     hl_server_close(server);
 *
 * It answers from threads of its own until it is closed, and uses model and tokenizer in them: other
 * threads may do so too, but not change the model's gates.  Any thread may drain and close the server,
 * one of them at a time; a signal handler may not.  doc/serve.md has the interface, and what keeps
 * strangers out. */

typedef struct hl_server hl_server;

typedef struct hl_server_options {
    const char        *host;  /* where to listen; NULL: "127.0.0.1" */
    int32_t            port;  /* 0: 7700; -1: any that is free */
    const char        *token; /* that requests must bring: one token per line, any of which will do.
                               * NULL: none, at a loopback address only */
    const char *const *names; /* (n_names) under which it may be asked for, beside its address */
    size_t             n_names;
    const char        *model_name; /* NULL: the last part of the model's path */
    int64_t            n_slots;    /* texts at once; 0: 8 */
    int64_t            n_queue;    /* requests that wait for one; 0: 4 for each slot */
    int64_t            n_ctx;      /* tokens of a text; 0: the default (HL_DEFAULT_CTX) */
    int32_t            n_threads;  /* 0: all cores */
    hl_dtype           cache_dtype;
    hl_math            math;
    uint64_t           seed;            /* of requests that bring none: each takes the next */
    size_t             max_body_bytes;  /* 0: 4 MiB */
    int64_t            max_connections; /* 0: 512, or what the system allows */
    int64_t            max_per_peer;    /* requests under way from one address (of IPv6: from one
                                         * /64 network); 0: half of all that fit, and all of them for
                                         * loopback addresses */
    int64_t            max_per_token; /* requests under way with one token; 0: half of all that fit,
                                       * and all of them where there is one token */
    double             request_seconds; /* for a request to come whole; 0: 30 */
    double             stall_seconds;   /* that a reader may keep a text waiting; 0: 30 */
} hl_server_options;

/* Borrows model and tokenizer.  HL_BAD_ARGUMENT for another address than a loopback's without a
 * token; HL_IO where the port is taken; HL_UNSUPPORTED of encoders. */
HL_API hl_status hl_server_open(hl_server **out, const hl_model *model,
                                const hl_tokenizer *tokenizer, const hl_server_options *options);
HL_API int32_t   hl_server_port(const hl_server *server);
/* Takes no new requests and waits up to `seconds` for the ones there are; *n_cut (may be NULL) had
 * to be cut short. */
HL_API void hl_server_drain(hl_server *server, double seconds, int64_t *n_cut);
/* Cuts what is under way.  Accepts NULL. */
HL_API void hl_server_close(hl_server *server);

#ifdef __cplusplus
}
#endif
#endif
