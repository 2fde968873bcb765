/* metrics.c - counters under one lock, and their text. */
#include "serve/server.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/locks.h"
#include "base/memory.h"

enum { MAX_SERIES = 128, N_BUCKETS = 10 };

/* Upper bounds of the buckets of time to first token, in seconds. */
static const double buckets[N_BUCKETS] = { 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 };

typedef struct series {
    const char *route;
    int         status;
    int64_t     count;
} series;

struct hl_metrics {
    pthread_mutex_t lock;
    series          answers[MAX_SERIES]; /* (n_series) */
    int             n_series;
    int64_t         first_tokens[N_BUCKETS + 1];
    double          first_seconds;
    int64_t         n_entropies;
    double          entropy_sum;
};

hl_status hl_metrics_new(hl_metrics **out)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status == HL_OK)
        pthread_mutex_init(&(*out)->lock, NULL);
    return status;
}

void hl_metrics_free(hl_metrics *metrics)
{
    if (metrics == NULL)
        return;
    pthread_mutex_destroy(&metrics->lock);
    hl_free(metrics);
}

/* ----------------------------------------------------------------------- counting */

void hl_metrics_answered(hl_metrics *metrics, const char *route, int status)
{
    int i = 0;

    HL_LOCKED(&metrics->lock);
    while (i < metrics->n_series &&
           (metrics->answers[i].status != status || strcmp(metrics->answers[i].route, route) != 0))
        i++;
    if (i == metrics->n_series && i < MAX_SERIES)
        metrics->answers[metrics->n_series++] = (series){ .route = route, .status = status };
    if (i < MAX_SERIES)
        metrics->answers[i].count++;
}

void hl_metrics_first_token(hl_metrics *metrics, double seconds)
{
    int i = 0;

    while (i < N_BUCKETS && seconds > buckets[i])
        i++;
    HL_LOCKED(&metrics->lock);
    metrics->first_tokens[i]++;
    metrics->first_seconds += seconds;
}

void hl_metrics_token(hl_metrics *metrics, double attention_entropy)
{
    HL_LOCKED(&metrics->lock);
    if (isfinite(attention_entropy)) {
        metrics->n_entropies++;
        metrics->entropy_sum += attention_entropy;
    }
}

/* ---------------------------------------------------------------------------- text */

static void put_head(hl_text *out, const char *name, const char *type, const char *help)
{
    hl_text_addf(out, "# HELP headlight_%s %s\n# TYPE headlight_%s %s\n", name, help, name, type);
}

static void put(hl_text *out, const char *name, const char *type, const char *help, double value)
{
    put_head(out, name, type, help);
    hl_text_addf(out, "headlight_%s %.10g\n", name, value);
}

static void put_answers(hl_text *out, const hl_metrics *metrics)
{
    put_head(out, "requests_total", "counter", "Requests answered.");
    for (int i = 0; i < metrics->n_series; i++)
        hl_text_addf(out, "headlight_requests_total{route=\"%s\",code=\"%d\"} %lld\n",
                     metrics->answers[i].route, metrics->answers[i].status,
                     (long long)metrics->answers[i].count);
}

static void put_first_tokens(hl_text *out, const hl_metrics *metrics)
{
    static const char name[] = "time_to_first_token_seconds";
    int64_t           count  = 0;

    put_head(out, name, "histogram", "Seconds from a request to the first token of its text.");
    for (int i = 0; i < N_BUCKETS; i++) {
        count += metrics->first_tokens[i];
        hl_text_addf(out, "headlight_%s_bucket{le=\"%g\"} %lld\n", name, buckets[i],
                     (long long)count);
    }
    count += metrics->first_tokens[N_BUCKETS];
    hl_text_addf(out, "headlight_%s_bucket{le=\"+Inf\"} %lld\n", name, (long long)count);
    hl_text_addf(out, "headlight_%s_sum %.10g\nheadlight_%s_count %lld\n", name,
                 metrics->first_seconds, name, (long long)count);
}

static void put_engine(hl_text *out, const hl_engine_counts *engine)
{
    put(out, "slots", "gauge", "Texts that can be generated at once.", (double)engine->n_slots);
    put(out, "slots_busy", "gauge", "Texts being generated.", (double)engine->n_running);
    put(out, "queue_length", "gauge", "Texts waiting for a slot.", (double)engine->n_queued);
    put(out, "texts_parked", "gauge", "Texts without a slot until their clients catch up.",
        (double)engine->n_parked);
    put(out, "texts_parked_total", "counter", "Times a text gave its slot to another.",
        (double)engine->n_parkings);
    put(out, "texts_total", "counter", "Texts accepted.", (double)engine->n_submitted);
    put(out, "texts_cancelled_total", "counter", "Texts cancelled before their end.",
        (double)engine->n_cancelled);
    put(out, "texts_failed_total", "counter", "Texts that failed.", (double)engine->n_failed);
    put(out, "texts_refused_total", "counter", "Texts refused: the queue was full.",
        (double)engine->n_refused);
    put(out, "prompt_tokens_total", "counter", "Prompt tokens computed.",
        (double)engine->n_prompt_tokens);
    put(out, "prompt_tokens_reused_total", "counter", "Prompt tokens reused from a slot's cache.",
        (double)engine->n_reused_tokens);
    put(out, "generated_tokens_total", "counter", "Tokens generated.",
        (double)engine->n_generated_tokens);
    put(out, "steps_total", "counter", "Decode steps, each for all running texts.",
        (double)engine->n_steps);
    put(out, "prompt_seconds_total", "counter", "Seconds spent on prompts.",
        engine->prompt_seconds);
    put(out, "step_seconds_total", "counter", "Seconds spent on decode steps.",
        engine->step_seconds);
    put(out, "text_seconds_total", "counter",
        "Seconds from the first token of a text to its last, summed.", engine->text_seconds);
}

static void put_http(hl_text *out, const hl_http_counts *http)
{
    put(out, "connections", "gauge", "Open connections.", (double)http->n_connections);
    put(out, "requests_working", "gauge", "Active requests.", (double)http->n_working);
    put(out, "connections_late_total", "counter",
        "Connections closed because the client was too slow.", (double)http->n_late);
    put(out, "connections_crowded_total", "counter",
        "Connections closed because there were too many.", (double)http->n_many);
    put(out, "streams_stalled_total", "counter",
        "Streams closed because the client did not read them.", (double)http->n_stalled);
}

/* Returns the resident memory reported by the system; 0 if it reports none. */
static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long  size = 0, resident = 0;

    if (file == NULL)
        return 0.0;
    if (fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

char *hl_metrics_text(hl_metrics *metrics, const hl_engine_counts *engine,
                      const hl_http_counts *http, int64_t n_looking)
{
    hl_text text = { 0 };
    char   *out  = NULL;

    put_engine(&text, engine);
    put_http(&text, http);
    put(&text, "views", "gauge", "Views and measurements running or waiting.", (double)n_looking);
    pthread_mutex_lock(&metrics->lock);
    put_answers(&text, metrics);
    put_first_tokens(&text, metrics);
    put(&text, "attention_entropy_nats_sum", "counter",
        "Mean attention entropy of generated tokens, summed.", metrics->entropy_sum);
    put(&text, "attention_entropy_nats_count", "counter", "Tokens in that sum.",
        (double)metrics->n_entropies);
    pthread_mutex_unlock(&metrics->lock);
    hl_text_addf(&text,
                 "# TYPE process_resident_memory_bytes gauge\nprocess_resident_memory_bytes %.0f\n",
                 resident_bytes());
    (void)hl_text_finish(&out, &text); /* a failure leaves NULL */
    return out;
}
