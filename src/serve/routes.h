/* routes.h - which request goes where, and who may make it. */
#ifndef HL_SERVE_ROUTES_H
#define HL_SERVE_ROUTES_H

#include "serve/http.h"

/* The calls of a hl_http_handler; the context is a hl_server. */
void hl_routes_head(void *server, hl_exchange *exchange);
void hl_routes_malformed(void *server, hl_exchange *exchange, int status, const char *message);
void hl_routes_request(void *server, hl_exchange *exchange);
void hl_routes_worked(void *server, hl_exchange *exchange);
void hl_routes_answered(void *server, hl_exchange *exchange, int status);

#endif
