/* headlight/serve.h - a server: OpenAI's interface with entropy, and the live page.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_SERVE_H
#define HEADLIGHT_SERVE_H

#include "profile.h"
#include "session.h"
#include "tokenizer.h"
#include "view.h"

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
 * A server answers from its own threads until it is closed.  They use the model and the tokenizer;
 * other threads may use these too, but must not change the model's gates.  Any one thread at a time
 * may drain or close the server, but not a signal handler.  doc/serve.md describes the interface
 * and access control. */

typedef struct hl_server hl_server;

typedef struct hl_server_options {
    const char        *host;  /* address to listen on; NULL: "127.0.0.1" */
    int32_t            port;  /* 0: 7700; -1: any free port */
    const char        *token; /* access tokens, one per line; a request must have one of them. NULL:
                               * requests need none, allowed only at a loopback address */
    const char *const *names; /* (n_names) host names that requests may use, in addition to the
                               * address */
    size_t             n_names;
    const char        *model_name; /* NULL: last part of the model's path */
    int64_t            n_slots;    /* largest number of texts generated at once; 0: 8 */
    int64_t            n_queue;    /* largest number of waiting requests; 0: 4 for each slot */
    int64_t            n_ctx;      /* largest number of tokens of a text; 0: the default
                                    * (HL_DEFAULT_CTX) */
    int32_t            n_threads;  /* 0: all cores */
    hl_dtype           cache_dtype;
    hl_math            math;
    uint64_t           seed;            /* seed of the first request without a seed; each later one
                                         * takes the next number */
    size_t             max_body_bytes;  /* largest request body; 0: 4 MiB */
    int64_t            max_connections; /* largest number of connections; 0: 512, or what the system
                                         * allows */
    int64_t            max_per_peer;    /* largest number of requests from one address (IPv6: from
                                         * one /64 network) at a time; 0: half of all that fit, or
                                         * all for loopback addresses */
    int64_t            max_per_token; /* largest number of requests with one access token at a time;
                                       * 0: half of all that fit, or all if there is only one
                                       * token */
    double             request_seconds; /* time in which a request must arrive completely; 0: 30 */
    /* What the live page shows at once: a profile of the model, and a text with the rows in which
     * each head is most active; NULL: the page begins with an empty prompt.  Borrowed. */
    const hl_profile     *profile;
    const hl_prompt_maps *maps;
    double                stall_seconds; /* time after which a client that does not read is
                                         * disconnected; 0: 30 */
} hl_server_options;

/* Opens a server.  It borrows model and tokenizer.  Returns HL_BAD_ARGUMENT for an address other
 * than loopback without a token; HL_IO if the port is in use; HL_UNSUPPORTED for encoders. */
HL_API hl_status hl_server_open(hl_server **out, const hl_model *model,
                                const hl_tokenizer *tokenizer, const hl_server_options *options);
HL_API int32_t   hl_server_port(const hl_server *server);
/* Accepts no more requests and waits up to `seconds` for the current ones.  *n_cut (may be NULL) is
 * the number of requests that were cut short. */
HL_API void hl_server_drain(hl_server *server, double seconds, int64_t *n_cut);
/* Closes the server and cuts all current requests short.  Accepts NULL. */
HL_API void hl_server_close(hl_server *server);

#ifdef __cplusplus
}
#endif
#endif
