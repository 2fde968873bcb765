/* metrics.h - what a server counts, written in the text format of Prometheus. */
#ifndef HL_SERVE_METRICS_H
#define HL_SERVE_METRICS_H

#include "generate/engine.h"
#include "headlight/base.h"
#include "serve/http.h"

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

#endif
