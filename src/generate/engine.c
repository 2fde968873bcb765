/* engine.c - the functions that callers use: an engine is opened, given jobs, drained and closed.
 * A job has copies of its options and a ring of events.  engine_worker.c runs the jobs.
 *
 * All memory is allocated when a job is made.  The worker fills places after the last event without
 * holding the mutex, as no other thread touches them, and then counts them in.  A reader releases
 * an event when it asks for the next. */
#include "generate/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/locks.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/status.h"
#include "generate/engine_parts.h"
#include "model/model.h"

enum {
    DEFAULT_SLOTS  = 8,
    QUEUE_PER_SLOT = 4,
    MAX_QUEUE      = 1 << 20,
    MAX_EVENTS     = 1 << 20,
    LANE_SLOTS     = 4,  /* from this number of slots on, short texts have one more sequence */
    LONG_EVENTS    = 32, /* events of a long text that may wait to be taken */
};

/* ----------------------------------------------------------- a job's options */

static hl_status check_prompt(const hl_engine *engine, const hl_job_options *options)
{
    if (options->tokens == NULL || options->n_tokens < 1)
        return hl_fail(HL_BAD_ARGUMENT, "job: a prompt of %lld tokens, wanted 1 or more",
                       (long long)options->n_tokens);
    if (options->n_tokens > engine->options.n_ctx)
        return hl_fail(HL_LIMIT,
                       "the prompt has %lld tokens, but the context has room for only %lld",
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
            return hl_fail(HL_BAD_ARGUMENT, "job: gate [%lld] is not a number", (long long)i);
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
        return hl_fail(HL_BAD_ARGUMENT, "job: rows are 0x%x, wanted bits of 0x%x",
                       (unsigned)options->rows, (unsigned)known);
    return check_heads(engine, options);
}

static hl_status copy(void **out, const void *from, size_t count, size_t size)
{
    if (from == NULL)
        return HL_OK;
    HL_NEED(hl_alloc(out, count, size));
    memcpy(*out, from, count * size);
    return HL_OK;
}
#define COPY(out, from, count) copy((void **)(out), from, (size_t)(count), sizeof **(out))

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The largest number of tokens that the text can have. */
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

/* ------------------------------------------------------------ a job's events */

static int64_t count_bits(uint32_t bits)
{
    return __builtin_popcount(bits);
}

/* Allocates at most as many events as the job can have. */
static hl_status make_events(hl_job *job)
{
    const hl_config *config   = job->engine->config;
    int64_t          longest  = longest_text(job);
    int64_t          all      = longest - (job->options.echo_prompt ? 0 : job->options.n_tokens);
    int64_t          n_events = job->engine->options.n_events;
    int64_t          n_values = count_bits(job->options.rows) * config->n_layers * config->n_heads;
    int64_t          n_patterns = job->options.n_pattern_heads * longest;
    int64_t          n_top      = job->options.n_top;

    /* A text whose events all fit never waits for its reader.  For a longer text few events are
     * kept, so that an absent reader is noticed soon. */
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

/* ------------------------------------------------------- jobs made and freed */

static hl_status open_draft(hl_job *job)
{
    const hl_job_options *options  = &job->options;
    hl_generate_options   generate = { .sample     = options->sample,
                                       .max_tokens = options->max_tokens,
                                       .ignore_end = options->ignore_end,
                                       .end_ids    = options->end_ids,
                                       .n_end_ids  = options->n_end_ids };

    HL_NEED(hl_draft_open(&job->draft, job->engine->session, &generate));
    return hl_draft_accept(&job->draft, options->tokens, options->n_tokens);
}

static hl_status job_new(hl_job **out, hl_engine *engine, const hl_job_options *options)
{
    HL_CLOSED(hl_job_destroy) hl_job *job = NULL;

    *out = NULL;
    HL_NEED(check_options(engine, options));
    HL_NEED(HL_ALLOC_ZEROED(&job, 1));
    hl_condition_init(&job->news);
    job->engine = engine;
    job->slot   = -1;
    HL_NEED(copy_options(job, options, engine->config));
    HL_NEED(make_events(job));
    HL_NEED(open_draft(job));
    *out = hl_taken(&job);
    return HL_OK;
}

void hl_job_destroy(hl_job *job)
{
    if (job == NULL)
        return;
    pthread_cond_destroy(&job->news);
    hl_sampler_free(job->draft.sampler);
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

/* -------------------------------------------------------------- events taken */

/* Releases the event that the caller has borrowed.  A job that had no room can continue. */
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

/* Reports the next event or the end of the job.  The caller holds the mutex. */
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

    HL_LOCKED(&engine->mutex);
    let_go(job);
    while (!has_news(job) && seconds > 0.0 && hl_condition_wait(&job->news, &engine->mutex, until))
        continue;
    return tell(out, job);
}

/* ----------------------------------------------- an engine opened and closed */

/* Fills in the options that do not depend on the session. */
static hl_status complete_options(hl_engine_options *options)
{
    options->n_slots = options->n_slots != 0 ? options->n_slots : DEFAULT_SLOTS;
    options->n_queue = options->n_queue != 0 ? options->n_queue : QUEUE_PER_SLOT * options->n_slots;
    options->n_chunk = options->n_chunk != 0 ? options->n_chunk : HL_ENGINE_CHUNK;
    options->n_events = options->n_events != 0 ? options->n_events : HL_ENGINE_EVENTS;
    HL_NEED(hl_check_count("engine: n_slots", options->n_slots, 1, HL_ENGINE_MAX_SLOTS));
    HL_NEED(hl_check_count("engine: n_queue", options->n_queue, 1, MAX_QUEUE));
    HL_NEED(hl_check_count("engine: n_chunk", options->n_chunk, 1, MAX_EVENTS / 2));
    HL_NEED(hl_check_count("engine: n_events", options->n_events, 1, MAX_EVENTS));
    /* A chunk of a prompt completes all its events at once, while one may still be borrowed. */
    if (options->n_events < options->n_chunk + 2)
        options->n_events = options->n_chunk + 2;
    return HL_OK;
}

static hl_status open_session(hl_engine *engine)
{
    hl_engine_options *options = &engine->options;
    hl_session_options session = {
        .n_ctx      = options->n_ctx,
        .n_batch    = engine->n_sequences,
        .n_chunk    = options->n_chunk,
        .n_patterns = (options->n_chunk + engine->n_sequences - 1) / engine->n_sequences,
        .n_rows = options->n_chunk > engine->n_sequences ? options->n_chunk : engine->n_sequences,
        .wants  = HL_WANT_LAST_DRAW | HL_WANT_LOGITS | HL_WANT_PATTERN,
        .cache_dtype = options->cache_dtype,
        .n_threads   = options->n_threads,
        .beyond_ctx  = options->beyond_ctx,
        .math        = options->math,
    };

    if (engine->config->is_encoder)
        return hl_fail(HL_UNSUPPORTED, "%s is an encoder (%s): it cannot generate text",
                       engine->model->path, engine->config->family);
    HL_NEED(hl_session_open(&engine->session, engine->model, &session));
    options->n_ctx   = engine->session->options.n_ctx;
    options->n_chunk = engine->session->options.n_chunk;
    return HL_OK;
}

static hl_status allocate(hl_engine *engine)
{
    size_t n_slots     = (size_t)engine->n_sequences;
    size_t n_ctx       = (size_t)engine->options.n_ctx;
    size_t n_chunk     = (size_t)engine->options.n_chunk;
    size_t n_cells     = (size_t)(engine->config->n_layers * engine->config->n_heads);
    size_t n_positions = n_chunk > n_slots ? n_chunk : n_slots;

    HL_NEED(HL_ALLOC_ZEROED(&engine->slots, n_slots));
    for (size_t i = 0; i < n_slots; i++) {
        HL_NEED(HL_ALLOC(&engine->slots[i].tokens, n_ctx));
        HL_NEED(HL_ALLOC(&engine->slots[i].gates, n_cells));
    }
    HL_NEED(hl_alloc_zeroed((void **)&engine->segments, n_slots, n_ctx));
    HL_NEED(HL_ALLOC_ZEROED(&engine->pattern_heads, n_cells));
    HL_NEED(HL_ALLOC(&engine->positions, n_positions));
    HL_NEED(HL_ALLOC(&engine->fed, n_slots));
    HL_NEED(HL_ALLOC(&engine->sequences, n_slots));
    HL_NEED(HL_ALLOC(&engine->step_tokens, n_slots));
    HL_NEED(HL_ALLOC(&engine->gates_each, n_slots));
    return HL_ALLOC(&engine->picks, n_slots);
}

hl_status hl_engine_open(hl_engine **out, const hl_model *model, const hl_engine_options *options)
{
    HL_CLOSED(hl_engine_close) hl_engine *engine = NULL;

    *out = NULL;
    if (model == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "engine: model is NULL");
    HL_NEED(HL_ALLOC_ZEROED(&engine, 1));
    pthread_mutex_init(&engine->mutex, NULL);
    hl_condition_init(&engine->wake);
    hl_condition_init(&engine->done);
    engine->model     = model;
    engine->config    = model->config;
    engine->queue_end = &engine->queue;
    if (options != NULL)
        engine->options = *options;
    HL_NEED(complete_options(&engine->options));
    engine->n_sequences = engine->options.n_slots + (engine->options.n_slots >= LANE_SLOTS ? 1 : 0);
    HL_NEED(open_session(engine));
    HL_NEED(allocate(engine));
    engine->counts.n_slots = engine->options.n_slots;
    if (pthread_create(&engine->thread, NULL, hl_engine_worker, engine) != 0)
        return hl_fail(HL_NO_MEMORY, "engine: the system refuses another thread");
    engine->has_thread = true;
    *out               = hl_taken(&engine);
    return HL_OK;
}

static void stop_worker(hl_engine *engine)
{
    if (!engine->has_thread)
        return;
    pthread_mutex_lock(&engine->mutex);
    engine->is_closing = true;
    pthread_cond_signal(&engine->wake);
    pthread_mutex_unlock(&engine->mutex);
    pthread_join(engine->thread, NULL);
}

void hl_engine_close(hl_engine *engine)
{
    if (engine == NULL)
        return;
    stop_worker(engine);
    hl_session_close(engine->session);
    for (int64_t i = 0; engine->slots != NULL && i < engine->n_sequences; i++) {
        hl_free(engine->slots[i].tokens);
        hl_free(engine->slots[i].gates);
    }
    hl_free(engine->slots);
    hl_free(engine->segments);
    hl_free(engine->pattern_heads);
    hl_free(engine->positions);
    hl_free(engine->fed);
    hl_free(engine->sequences);
    hl_free(engine->step_tokens);
    hl_free((void *)engine->gates_each);
    hl_free(engine->picks);
    pthread_cond_destroy(&engine->done);
    pthread_cond_destroy(&engine->wake);
    pthread_mutex_destroy(&engine->mutex);
    hl_free(engine);
}

int64_t hl_engine_n_ctx(const hl_engine *engine)
{
    return engine->options.n_ctx;
}

/* ----------------------------------------------------------- jobs in and out */

/* Whether there is a place for one more job.  The caller holds the mutex. */
static hl_status check_place(hl_engine *engine, const hl_job *job)
{
    int64_t n_jobs = engine->counts.n_queued + engine->counts.n_running;
    int64_t most   = engine->options.n_slots + engine->options.n_queue;

    /* Long texts never take the last places, which are for short ones. */
    if (job->is_short && engine->n_sequences > engine->options.n_slots)
        most += HL_ENGINE_SHORT_PLACES;

    if (engine->is_draining || engine->is_closing)
        return hl_fail(HL_CANCELLED, "the server is shutting down");
    if (n_jobs < most)
        return HL_OK;
    engine->counts.n_refused++;
    return hl_fail(
        HL_BUSY,
        "the server is full: %lld texts are being generated and %lld are waiting; try again later",
        (long long)engine->counts.n_running, (long long)engine->counts.n_queued);
}

static hl_status enqueue(hl_engine *engine, hl_job *job)
{
    HL_LOCKED(&engine->mutex);
    hl_status status = check_place(engine, job);

    if (status == HL_OK) {
        *engine->queue_end = job;
        engine->queue_end  = &job->next;
        engine->counts.n_queued++;
        engine->counts.n_submitted++;
        pthread_cond_signal(&engine->wake);
    }
    return status;
}

hl_status hl_engine_submit(hl_job **out, hl_engine *engine, const hl_job_options *options)
{
    HL_CLOSED(hl_job_destroy) hl_job *job = NULL;

    *out = NULL;
    HL_NEED(job_new(&job, engine, options));
    HL_NEED(enqueue(engine, job));
    *out = hl_taken(&job);
    return HL_OK;
}

void hl_job_cancel(hl_job *job)
{
    hl_engine *engine = job->engine;

    HL_LOCKED(&engine->mutex);
    if (job->state != HL_JOB_OVER) {
        job->is_cancelled = true;
        pthread_cond_signal(&engine->wake);
        pthread_cond_broadcast(&job->news);
    }
}

void hl_job_free(hl_job *job)
{
    if (job == NULL)
        return;
    hl_engine *engine = job->engine;

    hl_job_cancel(job);
    pthread_mutex_lock(&engine->mutex);
    while (job->is_notifying)
        pthread_cond_wait(&job->news, &engine->mutex);
    /* Set only now: the worker may end the job during the wait above, and would then free it. */
    job->is_abandoned = true;
    bool is_over      = job->state == HL_JOB_OVER;
    pthread_mutex_unlock(&engine->mutex);
    if (is_over)
        hl_job_destroy(job);
}

/* ------------------------------------------------------------------ draining */

int64_t hl_engine_cancel_all(hl_engine *engine)
{
    int64_t n = 0;

    for (int64_t i = 0; i < engine->n_sequences; i++) {
        if (engine->slots[i].job != NULL) {
            engine->slots[i].job->is_cancelled = true;
            n++;
        }
    }
    for (hl_job *job = engine->queue; job != NULL; job = job->next, n++)
        job->is_cancelled = true;
    pthread_cond_signal(&engine->wake);
    return n;
}

/* Counts the jobs that are not over.  The caller holds the mutex. */
static int64_t count_jobs(const hl_engine *engine)
{
    return engine->counts.n_queued + engine->counts.n_running + engine->counts.n_parked;
}

void hl_engine_drain(hl_engine *engine, double seconds, int64_t *n_cancelled)
{
    double  until = hl_clock_seconds() + seconds;
    int64_t n     = 0;

    pthread_mutex_lock(&engine->mutex);
    engine->is_draining = true;
    while (count_jobs(engine) > 0 && hl_condition_wait(&engine->done, &engine->mutex, until))
        continue;
    n = hl_engine_cancel_all(engine);
    while (count_jobs(engine) > 0)
        pthread_cond_wait(&engine->done, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
    if (n_cancelled != NULL)
        *n_cancelled = n;
}

void hl_engine_count(hl_engine_counts *out, hl_engine *engine)
{
    HL_LOCKED(&engine->mutex);
    *out = engine->counts;
}
