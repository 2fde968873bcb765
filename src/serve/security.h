/* security.h - who may ask: names, origins and tokens of requests.
 *
 * A server on 127.0.0.1 is still reached by every page that is open in a browser on the
 * machine.  Two checks keep those out.  A page of another site says so in Origin.  And
 * a name of another site that was made to resolve to 127.0.0.1 (DNS rebinding), which the browser
 * takes for the site's own server, still stands in Host.
 *
 * All functions are pure and take bytes that nobody vouches for. */
#ifndef HL_SERVE_SECURITY_H
#define HL_SERVE_SECURITY_H

#include "headlight/base.h"

/* The names under which a server may be asked for. */
typedef struct hl_host_rules {
    const char        *bound; /* the address it listens at, as text */
    const char *const *names; /* (n_names) others, as given by its owner */
    size_t             n_names;
    bool               any_address; /* it listens at all addresses: those cannot be rebound */
} hl_host_rules;

/* A Host header: a name or address with, maybe, a port, of which nothing is asked.  NULL (there
 * was none) is not allowed. */
bool hl_host_is_allowed(const hl_host_rules *rules, const char *host);

/* An Origin header: none, or http(s):// and just what Host says. */
bool hl_origin_is_allowed(const char *origin, const char *host);

/* An Authorization header of "Bearer TOKEN".  Takes the same time wherever the token differs, and
 * tells nothing of it but, maybe, its length. */
bool hl_token_is_right(const char *authorization, const char *token);

/* Is this address one that only this machine can reach? */
bool hl_address_is_loopback(const char *address);

#endif
