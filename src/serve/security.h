/* security.h - who may send requests: host names, origins and tokens.
 *
 * Every page that is open in a browser on the machine can reach a server on 127.0.0.1.  Two checks
 * refuse these pages.  A page of another site is named in the Origin header.  If another site's
 * name was made to resolve to 127.0.0.1 (DNS rebinding), the browser takes this server for that
 * site's own, but the name is in the Host header.
 *
 * All functions are pure; the bytes that they take are untrusted. */
#ifndef HL_SERVE_SECURITY_H
#define HL_SERVE_SECURITY_H

#include "headlight/base.h"

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

#endif
