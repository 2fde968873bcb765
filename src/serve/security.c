/* security.c - Host, Origin and Authorization, by comparison. */
#include "serve/server.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

/* DNS has no longer names, so longer ones are refused. */
#define MAX_HOST_BYTES 255

/* ------------------------------------------------------------------------ Host */

/* Extracts the name of "name", "name:port", "[::1]" or "[::1]:port", without brackets. Returns
 * false for other forms. */
static bool split_host(char name[MAX_HOST_BYTES + 1], const char *host)
{
    bool        bracketed = host[0] == '[';
    const char *begin     = host + (bracketed ? 1 : 0);
    size_t      n_bytes   = strcspn(begin, bracketed ? "]" : ":");
    const char *rest      = begin + n_bytes;

    if (bracketed && *rest++ != ']')
        return false;
    if (n_bytes == 0 || n_bytes > MAX_HOST_BYTES)
        return false;
    if (*rest == ':')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (*rest != '\0')
        return false;
    memcpy(name, begin, n_bytes);
    name[n_bytes] = '\0';
    return true;
}

static bool is_address(const char *text)
{
    unsigned char bytes[16];

    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

bool hl_address_is_loopback(const char *address)
{
    unsigned char bytes[16];

    if (inet_pton(AF_INET, address, bytes) == 1)
        return bytes[0] == 127;
    return inet_pton(AF_INET6, address, bytes) == 1 &&
           memcmp(bytes, &in6addr_loopback, sizeof bytes) == 0;
}

bool hl_host_is_allowed(const hl_host_rules *rules, const char *host)
{
    char name[MAX_HOST_BYTES + 1];

    if (host == NULL || !split_host(name, host))
        return false;
    if (strcasecmp(name, "localhost") == 0 || hl_address_is_loopback(name))
        return true;
    if (strcasecmp(name, rules->bound) == 0 || (rules->any_address && is_address(name)))
        return true;
    for (size_t i = 0; i < rules->n_names; i++) {
        if (strcasecmp(name, rules->names[i]) == 0)
            return true;
    }
    return false;
}

/* ---------------------------------------------------------------------- Origin */

bool hl_origin_is_allowed(const char *origin, const char *host)
{
    if (origin == NULL)
        return true;
    if (host == NULL)
        return false;
    if (strncmp(origin, "http://", 7) == 0)
        return strcasecmp(origin + 7, host) == 0;
    /* A browser sends https if a proxy in front of this server handles TLS. */
    return strncmp(origin, "https://", 8) == 0 && strcasecmp(origin + 8, host) == 0;
}

/* ----------------------------------------------------------------------- token */

bool hl_token_is_right(const char *authorization, const char *token)
{
    static const char scheme[] = "Bearer ";
    size_t            n_scheme = sizeof scheme - 1;
    size_t            n_token  = strlen(token);

    if (authorization == NULL || strncasecmp(authorization, scheme, n_scheme) != 0)
        return false;
    const char            *given   = authorization + n_scheme;
    size_t                 n_given = strlen(given);
    volatile unsigned char differs = n_given == n_token ? 0 : 1;

    /* The number of steps depends on the given text only, not on the token. */
    for (size_t i = 0; i < n_given; i++) {
        unsigned char wanted = (unsigned char)token[i < n_token ? i : 0];
        differs              = (unsigned char)(differs | ((unsigned char)given[i] ^ wanted));
    }
    return n_token > 0 && differs == 0;
}
