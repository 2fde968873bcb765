/* metrics.h - what a server counts, and Prometheus' text of it. */
#ifndef HL_SERVE_METRICS_H
#define HL_SERVE_METRICS_H

#include "generate/engine.h"
#include "headlight/base.h"
#include "serve/http.h"

typedef struct hl_metrics hl_metrics;

hl_status hl_metrics_new(hl_metrics **out);
void      hl_metrics_free(hl_metrics *metrics);

/* From any thread.  A route's name is static. */
void hl_metrics_answered(hl_metrics *metrics, const char *route, int status);
/* Seconds from a request to the first token of its text. */
void hl_metrics_first_token(hl_metrics *metrics, double seconds);
/* Mean entropy of attention of a generated token; NaN: not known. */
void hl_metrics_token(hl_metrics *metrics, double attention_entropy);

/* Everything, in the text format of Prometheus; released with hl_free, NULL when memory is out. */
char *hl_metrics_text(hl_metrics *metrics, const hl_engine_counts *engine,
                      const hl_http_counts *http, int64_t n_looking);

#endif
