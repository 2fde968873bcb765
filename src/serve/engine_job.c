/* engine_job.c - a job: copies of its options, and a ring of events.
 *
 * All memory is taken when a job is made.  The worker fills places behind the last event without
 * holding the mutex, as nobody else touches them, and then counts them in; whoever takes
 * events lets go of one by asking for the next. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "serve/engine_parts.h"

enum { LONG_EVENTS = 32 }; /* that wait to be taken, of a long text */

/* -------------------------------------------------------------------- options */

static hl_status check_prompt(const hl_engine *engine, const hl_job_options *options)
{
    if (options->tokens == NULL || options->n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "job: a prompt of %lld tokens, wanted 1 or more",
                       (long long)options->n_tokens);
    if (options->n_tokens > engine->options.n_ctx)
        return hl_fail(HL_LIMIT, "the prompt has %lld tokens, but the context has room for %lld",
                       (long long)options->n_tokens, (long long)engine->options.n_ctx);
    for (int64_t i = 0; i < options->n_tokens; i++) {
        HL_NEED(hl_check_count("job: a token", options->tokens[i], 0, engine->config->d_vocab - 1));
        if (options->kinds != NULL)
            HL_NEED(
                hl_check_count("job: the kind of a token", options->kinds[i], 0, HL_N_KINDS - 1));
    }
    return HL_OK;
}

static hl_status check_heads(const hl_engine *engine, const hl_job_options *options)
{
    const hl_config *config = engine->config;

    HL_NEED(
        hl_check_count("job: n_pattern_heads", options->n_pattern_heads, 0, HL_JOB_MAX_PATTERNS));
    for (int i = 0; i < options->n_pattern_heads; i++) {
        hl_head head = options->pattern_heads[i];

        HL_NEED(hl_check_count("job: the layer of a head", head.layer, 0, config->n_layers - 1));
        HL_NEED(
            hl_check_count("job: a head", head.head, 0, config->layers[head.layer].n_heads - 1));
    }
    for (int64_t i = 0; options->gates != NULL && i < config->n_layers * config->n_heads; i++) {
        if (!isfinite(options->gates[i]))
            return hl_fail(HL_BAD_ARGUMENT, "job: gate [%lld] is no number", (long long)i);
    }
    return HL_OK;
}

static hl_status check_options(const hl_engine *engine, const hl_job_options *options)
{
    uint32_t known = ((1u << HL_N_TRACE_ROWS) - 1) & ~HL_JOB_ROWS(HL_TRACE_CHANGE);
    int64_t  most =
        engine->config->d_vocab < HL_JOB_MAX_TOP ? engine->config->d_vocab : HL_JOB_MAX_TOP;

    HL_NEED(check_prompt(engine, options));
    HL_NEED(hl_check_count("job: max_tokens", options->max_tokens, 0, INT64_MAX));
    HL_NEED(hl_check_count("job: n_end_ids", options->n_end_ids, 0, INT32_MAX));
    HL_NEED(hl_check_count("job: n_top", options->n_top, 0, most));
    if ((options->rows & ~known) != 0)
        HL_NEED(hl_fail(HL_BAD_ARGUMENT, "job: rows are 0x%x, wanted bits of 0x%x",
                        (unsigned)options->rows, (unsigned)known));
    return check_heads(engine, options);
}

static hl_status copy(void **out, const void *from, size_t count, size_t size)
{
    hl_status status = from != NULL ? hl_alloc(out, count, size) : HL_OK;

    if (from != NULL && status == HL_OK)
        memcpy(*out, from, count * size);
    return status;
}
#define COPY(out, from, count) copy((void **)(out), from, (size_t)(count), sizeof **(out))

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How long the text can become. */
static int64_t longest_text(const hl_job *job)
{
    int64_t room = job->engine->options.n_ctx - job->options.n_tokens + 1;
    int64_t most = job->options.max_tokens != 0 ? job->options.max_tokens : room;

    return job->options.n_tokens + (job->options.prompt_only ? 0 : least_of(room, most));
}

static hl_status copy_options(hl_job *job, const hl_job_options *options, const hl_config *config)
{
    job->options = *options;
    HL_NEED(HL_ALLOC(&job->tokens, (size_t)longest_text(job) + 1));
    memcpy(job->tokens, options->tokens, (size_t)options->n_tokens * sizeof *job->tokens);
    HL_NEED(COPY(&job->kinds, options->kinds, options->n_tokens));
    HL_NEED(COPY(&job->end_ids, options->end_ids, options->n_end_ids));
    HL_NEED(COPY(&job->gates, options->gates, config->n_layers * config->n_heads));
    HL_NEED(COPY(&job->pattern_heads, options->pattern_heads, options->n_pattern_heads));
    job->options.tokens        = job->tokens;
    job->options.kinds         = job->kinds;
    job->options.end_ids       = job->end_ids;
    job->options.gates         = job->gates;
    job->options.pattern_heads = job->pattern_heads;
    return HL_OK;
}

/* --------------------------------------------------------------------- events */

static int64_t count_bits(uint32_t bits)
{
    return __builtin_popcount(bits);
}

/* No more events than the job can have. */
static hl_status make_events(hl_job *job)
{
    const hl_config *config   = job->engine->config;
    int64_t          longest  = longest_text(job);
    int64_t          all      = longest - (job->options.echo_prompt ? 0 : job->options.n_tokens);
    int64_t          n_events = job->engine->options.n_events;
    int64_t          n_values = count_bits(job->options.rows) * config->n_layers * config->n_heads;
    int64_t          n_patterns = job->options.n_pattern_heads * longest;
    int64_t          n_top      = job->options.n_top;

    /* A text whose events all fit never waits for its reader.  Of a longer one few are kept, so
     * that it shows soon when nobody reads it. */
    job->is_short = longest - job->options.n_tokens <= HL_ENGINE_SHORT && all <= n_events;
    if (all > n_events && !job->options.echo_prompt)
        n_events = least_of(n_events, LONG_EVENTS);
    n_events      = least_of(n_events, all > 0 ? all : 1);
    job->n_events = n_events;
    HL_NEED(HL_ALLOC_ZEROED(&job->events, (size_t)n_events));
    HL_NEED(hl_alloc((void **)&job->values, (size_t)n_events, (size_t)n_values * sizeof(float)));
    HL_NEED(
        hl_alloc((void **)&job->patterns, (size_t)n_events, (size_t)n_patterns * sizeof(float)));
    HL_NEED(hl_alloc((void **)&job->top, (size_t)n_events, (size_t)n_top * sizeof(hl_job_top)));
    for (int64_t i = 0; i < n_events; i++) {
        job->events[i].values   = job->values + i * n_values;
        job->events[i].patterns = job->patterns + i * n_patterns;
        job->events[i].top      = job->top + i * n_top;
    }
    return HL_OK;
}

int64_t hl_job_room(const hl_job *job)
{
    return job->n_events - job->n_ready;
}

hl_event_slot *hl_job_place(const hl_job *job, int64_t i)
{
    return &job->events[(job->first_event + i) % job->n_events];
}

const float *hl_job_event_rows(const hl_job_event *event, hl_trace_rows which, int64_t n_layers,
                               int64_t n_heads)
{
    uint32_t bit = HL_JOB_ROWS(which);

    if ((event->rows & bit) == 0)
        return NULL;
    return event->values + count_bits(event->rows & (bit - 1)) * n_layers * n_heads;
}

/* ------------------------------------------------------------- made and freed */

static hl_status make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed != 0 ? hl_fail(HL_NO_MEMORY, "job: no condition variable") : HL_OK;
}

hl_status hl_job_new(hl_job **out, hl_engine *engine, const hl_job_options *options)
{
    hl_status status = HL_OK;
    hl_job   *job    = NULL;

    *out = NULL;
    HL_TRY(check_options(engine, options));
    HL_TRY(HL_ALLOC_ZEROED(&job, 1));
    status = make_condition(&job->news);
    if (status != HL_OK) {
        hl_free(job);
        return status;
    }
    job->engine = engine;
    job->slot   = -1;
    HL_TRY(copy_options(job, options, engine->config));
    HL_TRY(make_events(job));
    HL_TRY(hl_sampler_new(&job->sampler, engine->config->d_vocab, &options->sample));
    for (int64_t i = 0; i < options->n_tokens; i++)
        HL_TRY(hl_sampler_accept(job->sampler, options->tokens[i]));
    *out = job;
    job  = NULL;

done:
    hl_job_destroy(job);
    return status;
}

void hl_job_destroy(hl_job *job)
{
    if (job == NULL)
        return;
    pthread_cond_destroy(&job->news);
    hl_sampler_free(job->sampler);
    hl_free(job->tokens);
    hl_free(job->kinds);
    hl_free(job->end_ids);
    hl_free(job->gates);
    hl_free(job->pattern_heads);
    hl_free(job->events);
    hl_free(job->values);
    hl_free(job->patterns);
    hl_free(job->top);
    hl_free(job);
}

/* --------------------------------------------------------------------- taking */

/* The event that was looked at is done with; a job that had no room goes on. */
static void let_go(hl_job *job)
{
    if (!job->has_lent)
        return;
    job->has_lent = false;
    job->first    = (job->first + 1) % job->n_events;
    job->n_ready--;
    pthread_cond_signal(&job->engine->wake);
}

static bool has_news(const hl_job *job)
{
    return job->n_ready > 0 || job->is_cancelled || job->state == HL_JOB_OVER;
}

/* What there is to say; under the mutex. */
static hl_status tell(hl_job_event *out, hl_job *job)
{
    *out = (hl_job_event){ .kind = HL_JOB_NOTHING };
    if (job->n_ready > 0) {
        *out          = job->events[job->first].event;
        job->has_lent = true;
        return HL_OK;
    }
    if (job->failure != HL_OK)
        return hl_fail(job->failure, "%s", job->message);
    if (has_news(job))
        *out = (hl_job_event){ .kind = HL_JOB_END, .cancelled = job->is_cancelled };
    return HL_OK;
}

hl_status hl_job_wait(hl_job_event *out, hl_job *job, double seconds)
{
    hl_engine *engine = job->engine;
    double     until  = hl_clock_seconds() + seconds;

    pthread_mutex_lock(&engine->mutex);
    let_go(job);
    while (!has_news(job) && seconds > 0.0 && hl_engine_wait(engine, &job->news, until))
        continue;
    hl_status status = tell(out, job);
    pthread_mutex_unlock(&engine->mutex);
    return status;
}
