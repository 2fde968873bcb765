/* test_engine.c - many jobs at once: each as a generator writes it alone, to the byte; and all
 * that can happen to a job on its way. */
#include "model_support.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "serve/engine.h"

#define LLAMA "tests/data/families/llama3"
#define NEOX  "tests/data/families/gpt_neox"

enum { N_JOBS = 16, N_CTX = 128, CHUNK = 16, MAX_TEXT = 160, D_VOCAB = 256, MAX_CELLS = 64 };

#define ALL_ROWS (((1u << HL_N_TRACE_ROWS) - 1) & ~HL_JOB_ROWS(HL_TRACE_CHANGE))

/* -------------------------------------------------------------------- requests */

typedef struct request {
    int64_t        prompt[N_CTX];
    float          gates[MAX_CELLS];
    hl_head        heads[2];
    hl_job_options options; /* its pointers are into this */
} request;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Number `index`: lengths, samplers, gates and wishes of all sorts. */
static void make_request(request *r, int index)
{
    uint32_t random = (uint32_t)index * 7919u + 1;

    *r                    = (request){ 0 };
    r->options.tokens     = r->prompt;
    r->options.n_tokens   = 1 + next_random(&random) % 70;
    r->options.max_tokens = 1 + next_random(&random) % 25;
    r->options.ignore_end = true;
    for (int64_t i = 0; i < r->options.n_tokens; i++)
        r->prompt[i] = 2 + next_random(&random) % (D_VOCAB - 2);
    if (index % 3 == 1)
        r->options.sample = (hl_sample_options){
            .temperature = 0.9, .top_k = 40, .repeat_penalty = 1.1, .seed = (uint64_t)index
        };
    if (index % 4 == 2) {
        for (int i = 0; i < MAX_CELLS; i++)
            r->gates[i] = i % 5 == 0 ? 0.0f : 1.0f;
        r->options.gates = r->gates;
    }
    if (index % 2 == 1) {
        r->options.n_top           = 5;
        r->options.rows            = ALL_ROWS;
        r->heads[0]                = (hl_head){ 2, 3 };
        r->heads[1]                = (hl_head){ 0, 1 };
        r->options.pattern_heads   = r->heads;
        r->options.n_pattern_heads = 2;
    }
}

static hl_engine *open_engine(const hl_model *model, hl_engine_options options)
{
    hl_engine *engine = NULL;

    options.n_ctx     = options.n_ctx != 0 ? options.n_ctx : N_CTX;
    options.n_chunk   = CHUNK;
    options.n_threads = options.n_threads != 0 ? options.n_threads : 2;
    assert_ok(hl_engine_open(&engine, model, &options));
    return engine;
}

static hl_job *submit(hl_engine *engine, const hl_job_options *options)
{
    hl_job *job = NULL;
    assert_ok(hl_engine_submit(&job, engine, options));
    return job;
}

/* ----------------------------------------------------------------- transcripts */

/* All that a job said. */
typedef struct transcript {
    int64_t      n;
    hl_generated tokens[MAX_TEXT];
    int64_t      positions[MAX_TEXT];
    bool         from_prompt[MAX_TEXT];
    uint64_t     hash; /* of what events point to */
    bool         cancelled;
} transcript;

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(1099511628211);
    return hash;
}

static void note(transcript *t, const hl_job_event *event, const hl_model_info *info)
{
    int64_t n_values = __builtin_popcount(event->rows) * info->n_layers * info->n_heads;

    assert_true(t->n < MAX_TEXT);
    t->tokens[t->n]      = event->token;
    t->positions[t->n]   = event->position;
    t->from_prompt[t->n] = event->from_prompt;
    t->n++;
    t->hash = hash_bytes(t->hash, event->top, sizeof *event->top * (size_t)event->n_top);
    t->hash = hash_bytes(t->hash, event->values, sizeof(float) * (size_t)n_values);
    t->hash = hash_bytes(t->hash, event->patterns,
                         sizeof(float) * (size_t)(event->n_patterns * event->n_keys));
}

/* Takes what there is within `seconds`; true: it is over. */
static bool take(transcript *t, hl_job *job, double seconds, const hl_model_info *info)
{
    hl_job_event event;

    assert_ok(hl_job_wait(&event, job, seconds));
    if (event.kind == HL_JOB_TOKEN)
        note(t, &event, info);
    t->cancelled = event.cancelled;
    return event.kind == HL_JOB_END;
}

static void take_all(transcript *t, hl_job *job, const hl_model_info *info)
{
    *t = (transcript){ 0 };
    while (!take(t, job, 60.0, info))
        continue;
}

/* To the bit, but for what pads a struct. */
static void assert_same_tokens(const hl_generated *a, const hl_generated *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(a[i].id, b[i].id);
        assert_memory_equal(&a[i], &b[i], offsetof(hl_generated, stop));
        assert_int_equal(a[i].stop, b[i].stop);
    }
}

static void assert_same_transcript(const transcript *a, const transcript *b)
{
    assert_int_equal(a->n, b->n);
    assert_same_tokens(a->tokens, b->tokens, a->n);
    for (int64_t i = 0; i < a->n; i++)
        assert_int_equal(a->positions[i], b->positions[i]);
    assert_true(a->hash == b->hash);
}

/* -------------------------------------------------------------- jobs together */

static void shuffle(int *order, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int other    = (int)(next_random(&seed) % (uint32_t)(i + 1));
        int kept     = order[i];
        order[i]     = order[other];
        order[other] = kept;
    }
}

/* All requests through one engine, in an order of their own. */
static void run_jobs(transcript *out, const hl_model *model, const request *requests, int n_slots,
                     int n_threads, uint32_t seed)
{
    hl_engine *engine = open_engine(
        model,
        (hl_engine_options){ .n_slots = n_slots, .n_queue = N_JOBS, .n_threads = n_threads });
    hl_job *jobs[N_JOBS];
    int     order[N_JOBS], n_left = N_JOBS;
    bool    is_over[N_JOBS] = { false };

    shuffle(order, N_JOBS, seed);
    for (int i = 0; i < N_JOBS; i++) {
        out[order[i]]  = (transcript){ 0 };
        jobs[order[i]] = submit(engine, &requests[order[i]].options);
        if (i % 5 == 4)
            usleep(2000);
    }
    while (n_left > 0) {
        for (int i = 0; i < N_JOBS; i++) {
            if (is_over[i])
                continue;
            is_over[i] = take(&out[i], jobs[i], 0.001, hl_model_get_info(model));
            n_left -= is_over[i] ? 1 : 0;
        }
    }
    for (int i = 0; i < N_JOBS; i++)
        hl_job_free(jobs[i]);
    hl_engine_close(engine);
}

/* What a generator makes of the request. */
static void generate(transcript *out, const hl_model *model, const request *r)
{
    hl_session         *session   = NULL;
    hl_generator       *generator = NULL;
    hl_generated        token     = { 0 };
    hl_generate_options options   = { .sample     = r->options.sample,
                                      .max_tokens = r->options.max_tokens,
                                      .ignore_end = r->options.ignore_end,
                                      .gates      = r->options.gates };

    *out = (transcript){ 0 };
    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){
            .n_ctx = N_CTX, .n_chunk = CHUNK, .n_threads = 1, .wants = HL_WANT_LAST_LOGITS }));
    assert_ok(hl_generator_open(&generator, session, &options));
    assert_ok(hl_generator_prompt(generator, r->prompt, r->options.n_tokens));
    while (token.stop == HL_STOP_NONE) {
        assert_ok(hl_generator_next(&token, generator));
        out->tokens[out->n++] = token;
    }
    hl_generator_close(generator);
    hl_session_close(session);
}

static void each_job_is_as_if_alone(void **state)
{
    static request    requests[N_JOBS];
    static transcript first[N_JOBS], again[N_JOBS], alone;
    const char *const models[] = { LLAMA, NEOX };
    (void)state;

    for (int i = 0; i < N_JOBS; i++)
        make_request(&requests[i], i);
    for (int m = 0; m < 2; m++) {
        hl_model *model = open_model(models[m]);

        run_jobs(first, model, requests, 5, 2, 1);
        run_jobs(again, model, requests, 1, 1, 2);
        for (int i = 0; i < N_JOBS; i++) {
            generate(&alone, model, &requests[i]);
            assert_same_transcript(&first[i], &again[i]);
            assert_int_equal(first[i].n, alone.n);
            assert_same_tokens(first[i].tokens, alone.tokens, alone.n);
            for (int64_t k = 0; k < alone.n; k++)
                assert_int_equal(first[i].positions[k], requests[i].options.n_tokens + k);
        }
        hl_model_close(model);
    }
}

/* ---------------------------------------------------------------------- events */

typedef struct all_logits {
    float logits[N_CTX][D_VOCAB];
} all_logits;

static hl_status keep_logits(void *context, const hl_final_rows *rows)
{
    all_logits *all = context;

    memcpy(all->logits[rows->start], rows->logits, sizeof all->logits[0] * (size_t)rows->n_rows);
    return HL_OK;
}

static double logprob_of(const float *logits, int64_t token)
{
    double sum = 0.0;

    for (int i = 0; i < D_VOCAB; i++)
        sum += exp((double)logits[i]);
    return (double)logits[token] - log(sum);
}

/* The likeliest of those that are not among the first n. */
static int64_t next_best(const float *logits, const hl_job_top *top, int n)
{
    int64_t best = -1;

    for (int64_t token = 0; token < D_VOCAB; token++) {
        bool is_listed = false;
        for (int i = 0; i < n; i++)
            is_listed = is_listed || top[i].token == token;
        if (!is_listed && (best < 0 || logits[token] > logits[best]))
            best = token;
    }
    return best;
}

static void assert_event_by_logits(const hl_job_event *event, const float *logits)
{
    assert_true(fabs(event->token.logprob - logprob_of(logits, event->token.id)) < 1e-9);
    assert_int_equal(event->n_top, 7);
    for (int i = 0; i < event->n_top; i++) {
        assert_int_equal(event->top[i].token, next_best(logits, event->top, i));
        assert_true(fabs(event->top[i].logprob - logprob_of(logits, event->top[i].token)) < 1e-9);
    }
}

/* Every number of the rows that led to the tokens, against a trace of the same text. */
static void assert_event_by_trace(const hl_job_event *event, const hl_trace *trace)
{
    for (int which = 0; which < HL_N_TRACE_ROWS; which++) {
        const float *rows = hl_job_event_rows(event, (hl_trace_rows)which, 3, 4);

        assert_true((rows == NULL) == (which == HL_TRACE_CHANGE));
        for (int cell = 0; rows != NULL && cell < 12; cell++) {
            double wanted =
                hl_trace_row(trace, event->position, cell / 4, cell % 4, (hl_trace_rows)which);
            assert_true(isnan(wanted) ? isnan(rows[cell]) : (double)rows[cell] == wanted);
        }
    }
}

/* A row of attention that the event brings: probabilities whose entropy is the one given. */
static void assert_pattern(const hl_job_event *event, int pattern, int64_t layer, int64_t head)
{
    const float *p       = event->patterns + pattern * event->n_keys;
    const float *values  = hl_job_event_rows(event, HL_TRACE_ENTROPY, 3, 4);
    double       entropy = 0.0, sum = 0.0;

    for (int64_t key = 0; key < event->n_keys; key++) {
        sum += p[key];
        entropy -= p[key] > 0.0f ? (double)p[key] * log((double)p[key]) : 0.0;
    }
    assert_true(fabs(sum - 1.0) < 1e-5);
    assert_true(fabs(entropy - (double)values[layer * 4 + head]) < 1e-4);
}

/* A trace of the text, made by a tracer on a session of its own, and the logits of all rows. */
static hl_tracer *trace_text(all_logits *logits, const hl_model *model, const int64_t *text,
                             const uint8_t *kinds, int64_t n)
{
    hl_tracer  *tracer  = NULL;
    hl_session *session = NULL;
    hl_tap      tap;

    assert_ok(
        hl_tracer_open(&tracer, model, &(hl_tracer_options){ .n_ctx = N_CTX, .no_change = true }));
    assert_ok(hl_session_open(
        &session, model,
        &(hl_session_options){
            .n_ctx = N_CTX, .n_chunk = CHUNK, .n_threads = 1, .wants = HL_WANT_LOGITS }));
    assert_ok(hl_tracer_prompt(tracer, text, kinds, n));
    tap = *hl_tracer_tap(tracer);
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens     = text,
                                                   .n_tokens   = n,
                                                   .segments   = hl_tracer_segments(tracer),
                                                   .n_segments = HL_N_KINDS,
                                                   .tap        = &tap }));
    assert_ok(hl_session_rewind(session, 0, 0));
    tap = (hl_tap){ .context = logits, .final = keep_logits, .wants = HL_WANT_LOGITS };
    assert_ok(hl_session_feed(session, &(hl_feed){ .tokens = text, .n_tokens = n, .tap = &tap }));
    hl_session_close(session);
    return tracer;
}

static void prompts_can_be_scored(void **state)
{
    static request    r;
    static all_logits logits;
    uint8_t           kinds[N_CTX];
    hl_model         *model  = open_model(LLAMA);
    hl_engine        *engine = open_engine(model, (hl_engine_options){ .n_slots = 2 });
    hl_job_event      event;
    int64_t           n = 0;
    (void)state;

    make_request(&r, 5);
    r.options.n_tokens = 2 * CHUNK + 7;
    for (int64_t i = 0; i < r.options.n_tokens; i++)
        r.prompt[i] = 2 + i * i * 31 % 250;
    for (int i = 0; i < N_CTX; i++)
        kinds[i] = i % 3 == 0 ? HL_KIND_SPECIAL : HL_KIND_PROMPT;
    r.options.kinds       = kinds;
    r.options.n_top       = 7;
    r.options.echo_prompt = true;
    r.options.prompt_only = true;
    hl_tracer *tracer     = trace_text(&logits, model, r.prompt, kinds, r.options.n_tokens);
    hl_job    *job        = submit(engine, &r.options);
    while (hl_job_wait(&event, job, 60.0) == HL_OK && event.kind == HL_JOB_TOKEN) {
        assert_int_equal(event.position, n);
        assert_int_equal(event.token.id, r.prompt[n]);
        assert_true(event.from_prompt);
        assert_int_equal(event.n_keys, n);
        if (n == 0) {
            assert_true(isnan(event.token.logprob) && event.n_top == 0);
        } else {
            assert_event_by_logits(&event, logits.logits[n - 1]);
            assert_event_by_trace(&event, hl_tracer_trace(tracer));
            assert_pattern(&event, 0, 2, 3);
            assert_pattern(&event, 1, 0, 1);
        }
        n++;
    }
    assert_int_equal(event.kind, HL_JOB_END);
    assert_int_equal(n, r.options.n_tokens);
    hl_job_free(job);
    hl_engine_close(engine);
    hl_tracer_close(tracer);
    hl_model_close(model);
}

/* With its prompt before it, a text is the one that it is without. */
static void an_echo_changes_nothing(void **state)
{
    static request    r;
    static transcript plain, echoed;
    hl_model         *model  = open_model(NEOX);
    hl_engine        *engine = open_engine(model, (hl_engine_options){ .n_slots = 2 });
    (void)state;

    make_request(&r, 3);
    hl_job *job = submit(engine, &r.options);
    take_all(&plain, job, hl_model_get_info(model));
    hl_job_free(job);
    r.options.echo_prompt = true;
    job                   = submit(engine, &r.options);
    take_all(&echoed, job, hl_model_get_info(model));
    hl_job_free(job);
    assert_int_equal(echoed.n, plain.n + r.options.n_tokens);
    for (int64_t i = 0; i < echoed.n; i++)
        assert_int_equal(echoed.from_prompt[i], i < r.options.n_tokens);
    assert_same_tokens(echoed.tokens + r.options.n_tokens, plain.tokens, plain.n);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* --------------------------------------------------------------- used again */

/* A conversation: each prompt begins with the one before and what was answered. */
static void kept_prompts_are_the_same_bytes(void **state)
{
    static transcript kept, fresh;
    hl_model         *model = open_model(LLAMA);
    hl_engine        *engines[2];
    int64_t           text[N_CTX], n_text = 2 * CHUNK + 5, n_reused = 0;
    (void)state;

    for (int i = 0; i < 2; i++)
        engines[i] =
            open_engine(model, (hl_engine_options){ .n_slots = 2, .keep_nothing = i == 1 });
    for (int64_t i = 0; i < n_text; i++)
        text[i] = 3 + i * 7 % 200;
    for (int turn = 0; turn < 3; turn++) {
        hl_job_options options = {
            .tokens = text, .n_tokens = n_text, .max_tokens = 14, .ignore_end = true
        };
        hl_job_counts counts;
        hl_job       *job = submit(engines[0], &options);

        take_all(&kept, job, hl_model_get_info(model));
        hl_job_count(&counts, job);
        assert_int_equal(counts.n_reused, turn == 0 ? 0 : n_reused);
        assert_int_equal(counts.n_generated, 14);
        assert_true(counts.first_seconds > 0.0 && counts.first_seconds <= counts.seconds);
        hl_job_free(job);
        job = submit(engines[1], &options);
        take_all(&fresh, job, hl_model_get_info(model));
        hl_job_count(&counts, job);
        assert_int_equal(counts.n_reused, 0);
        hl_job_free(job);
        assert_same_transcript(&kept, &fresh);
        n_reused = n_text / CHUNK * CHUNK;
        for (int64_t i = 0; i < kept.n; i++)
            text[n_text++] = kept.tokens[i].id;
        text[n_text++] = 9;
    }
    hl_engine_close(engines[0]);
    hl_engine_close(engines[1]);
    hl_model_close(model);
}

/* -------------------------------------------------------------- on their way */

/* A text that goes on until the context is full. */
static const int64_t  start[3] = { 5, 17, 200 };
static hl_job_options endless(void)
{
    return (hl_job_options){ .tokens = start, .n_tokens = 3, .ignore_end = true };
}

static hl_engine_counts counts_of(hl_engine *engine)
{
    hl_engine_counts counts;
    hl_engine_count(&counts, engine);
    return counts;
}

/* Nobody takes its events, so it pauses in its slot. */
static hl_job *submit_stuck(hl_engine *engine)
{
    hl_job_options options = endless();
    hl_job        *job     = submit(engine, &options);
    hl_job_event   event;

    assert_ok(hl_job_wait(&event, job, 60.0));
    assert_int_equal(event.kind, HL_JOB_TOKEN);
    return job;
}

static void a_cancelled_job_frees_its_slot(void **state)
{
    static transcript t;
    hl_model         *model = open_model(LLAMA);
    hl_engine     *engine  = open_engine(model, (hl_engine_options){ .n_slots = 1, .n_events = 1 });
    hl_job        *stuck   = submit_stuck(engine);
    hl_job_options options = endless();
    hl_job_event   event;
    (void)state;

    options.max_tokens = 4;
    hl_job *other      = submit(engine, &options);
    assert_ok(hl_job_wait(&event, other, 0.05));
    assert_int_equal(event.kind, HL_JOB_NOTHING);
    assert_int_equal(counts_of(engine).n_queued, 1);
    hl_job_cancel(stuck);
    take_all(&t, other, hl_model_get_info(model));
    assert_int_equal(t.n, 4);
    assert_false(t.cancelled);
    take_all(&t, stuck, hl_model_get_info(model));
    assert_true(t.cancelled);
    hl_job_free(other);
    hl_job_free(stuck);
    /* One that is freed while it waits for a slot, and one in its slot. */
    stuck = submit_stuck(engine);
    hl_job_free(submit(engine, &options));
    hl_job_free(stuck);
    other = submit(engine, &options);
    take_all(&t, other, hl_model_get_info(model));
    assert_int_equal(t.n, 4);
    hl_job_free(other);
    assert_int_equal(counts_of(engine).n_cancelled, 3);
    assert_int_equal(counts_of(engine).n_finished, 2);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* It goes on where it was as soon as somebody takes its events, and is none the worse for it. */
static void a_slow_reader_stops_only_itself(void **state)
{
    static transcript slow, quick;
    hl_model         *model = open_model(LLAMA);
    hl_engine     *engine  = open_engine(model, (hl_engine_options){ .n_slots = 2, .n_events = 1 });
    hl_job_options options = endless();
    (void)state;

    hl_job *idle = submit(engine, &options);
    hl_job *busy = submit(engine, &options);
    take_all(&quick, busy, hl_model_get_info(model));
    assert_int_equal(quick.n, N_CTX - 3 + 1);
    assert_int_equal(quick.tokens[quick.n - 1].stop, HL_STOP_CONTEXT);
    hl_job_counts counts;
    hl_job_count(&counts, idle);
    assert_true(counts.n_generated <= CHUNK + 2);
    take_all(&slow, idle, hl_model_get_info(model));
    assert_same_transcript(&slow, &quick);
    hl_job_free(idle);
    hl_job_free(busy);
    hl_engine_close(engine);
    hl_model_close(model);
}

static void a_full_queue_says_so(void **state)
{
    hl_model  *model = open_model(LLAMA);
    hl_engine *engine =
        open_engine(model, (hl_engine_options){ .n_slots = 1, .n_queue = 2, .n_events = 1 });
    hl_job_options options = endless();
    hl_job *jobs[3] = { submit_stuck(engine), submit(engine, &options), submit(engine, &options) };
    hl_job *more    = NULL;
    (void)state;

    assert_fails(HL_BUSY, "1 texts are under way and 2 wait",
                 hl_engine_submit(&more, engine, &options));
    assert_null(more);
    assert_int_equal(counts_of(engine).n_refused, 1);
    for (int i = 0; i < 3; i++)
        hl_job_free(jobs[i]);
    hl_engine_close(engine);
    hl_model_close(model);
}

static void a_drain_waits_and_then_cancels(void **state)
{
    static transcript t;
    hl_model         *model = open_model(LLAMA);
    hl_engine     *engine  = open_engine(model, (hl_engine_options){ .n_slots = 2, .n_events = 1 });
    hl_job_options options = endless();
    int64_t        n       = -1;
    hl_job        *more    = NULL;
    (void)state;

    options.max_tokens = 3;
    hl_job *jobs[3] = { submit(engine, &options), submit_stuck(engine), submit(engine, &options) };
    hl_engine_drain(engine, 0.2, &n);
    assert_int_equal(n, 1);
    for (int i = 0; i < 3; i++) {
        take_all(&t, jobs[i], hl_model_get_info(model));
        assert_int_equal(t.cancelled, i == 1);
        assert_true(i == 1 || t.n == 3);
        hl_job_free(jobs[i]);
    }
    assert_fails(HL_CANCELLED, "shutting down", hl_engine_submit(&more, engine, &options));
    assert_int_equal(counts_of(engine).n_running, 0);
    hl_engine_drain(engine, 0.0, &n);
    assert_int_equal(n, 0);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* An engine that is closed ends the jobs that it has: who waits hears of it. */
static void *close_engine(void *engine)
{
    usleep(20000);
    hl_engine_drain(engine, 0.0, NULL);
    return NULL;
}

static void who_waits_hears_of_the_end(void **state)
{
    static transcript t;
    pthread_t         thread;
    hl_model         *model = open_model(LLAMA);
    hl_engine     *engine  = open_engine(model, (hl_engine_options){ .n_slots = 1, .n_events = 1 });
    hl_job_options options = endless();
    hl_job        *stuck   = submit_stuck(engine);
    hl_job        *waiting = submit(engine, &options);
    (void)state;

    assert_int_equal(pthread_create(&thread, NULL, close_engine, engine), 0);
    take_all(&t, waiting, hl_model_get_info(model));
    assert_true(t.cancelled && t.n == 0);
    pthread_join(thread, NULL);
    hl_job_free(waiting);
    hl_job_free(stuck);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* ---------------------------------------------------------------------- notify */

typedef struct listener {
    pthread_mutex_t mutex;
    pthread_cond_t  heard;
    int             n_heard;
} listener;

static void hear(void *context)
{
    listener *l = context;

    pthread_mutex_lock(&l->mutex);
    l->n_heard++;
    pthread_cond_signal(&l->heard);
    pthread_mutex_unlock(&l->mutex);
}

/* A reader that never blocks in hl_job_wait. */
static void news_can_be_told(void **state)
{
    static transcript t;
    listener          l       = { .n_heard = 0 };
    hl_model         *model   = open_model(LLAMA);
    hl_engine        *engine  = open_engine(model, (hl_engine_options){ .n_slots = 2 });
    hl_job_options    options = endless();
    hl_job_event      event   = { 0 };
    (void)state;

    pthread_mutex_init(&l.mutex, NULL);
    pthread_cond_init(&l.heard, NULL);
    options.max_tokens = 20;
    options.notify     = hear;
    options.context    = &l;
    t                  = (transcript){ 0 };
    hl_job *job        = submit(engine, &options);
    while (event.kind != HL_JOB_END) {
        pthread_mutex_lock(&l.mutex);
        while (l.n_heard == 0)
            pthread_cond_wait(&l.heard, &l.mutex);
        l.n_heard = 0;
        pthread_mutex_unlock(&l.mutex);
        do {
            assert_ok(hl_job_wait(&event, job, 0.0));
            if (event.kind == HL_JOB_TOKEN)
                note(&t, &event, hl_model_get_info(model));
        } while (event.kind == HL_JOB_TOKEN);
    }
    assert_int_equal(t.n, 20);
    hl_job_free(job);
    hl_engine_close(engine);
    hl_model_close(model);
}

static void hear_slowly(void *context)
{
    (void)context;
    usleep(300);
}

/* Also while its worker is telling of news. */
static void jobs_can_be_freed_at_any_time(void **state)
{
    uint32_t       random = 5;
    hl_model      *model  = open_model(LLAMA);
    hl_engine     *engine = open_engine(model, (hl_engine_options){ .n_slots = 3, .n_queue = 240 });
    hl_job_options options = endless();
    (void)state;

    /* A job that is freed has its place until the worker sees it: there is room for all of them. */
    options.notify = hear_slowly;
    for (int i = 0; i < 60; i++) {
        hl_job *jobs[4];

        for (int k = 0; k < 4; k++) {
            options.max_tokens = 1 + next_random(&random) % 6;
            jobs[k]            = submit(engine, &options);
        }
        for (int k = 0; k < 4; k++) {
            usleep(next_random(&random) % 1200);
            hl_job_free(jobs[k]);
        }
    }
    hl_engine_drain(engine, 60.0, NULL);
    assert_int_equal(counts_of(engine).n_finished + counts_of(engine).n_cancelled, 240);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* ------------------------------------------------------------------- exclusive */

static hl_status work(void *context)
{
    int *n = context;

    return ++*n < 3 ? HL_OK : hl_model_open(&(hl_model *){ NULL }, "/nowhere/at/all");
}

static void work_runs_between_steps(void **state)
{
    static transcript t;
    hl_model         *model   = open_model(LLAMA);
    hl_engine        *engine  = open_engine(model, (hl_engine_options){ .n_slots = 2 });
    hl_job_options    options = endless();
    hl_job           *job     = submit(engine, &options);
    int               n       = 0;
    (void)state;

    assert_ok(hl_engine_exclusive(engine, work, &n));
    assert_ok(hl_engine_exclusive(engine, work, &n));
    assert_fails(HL_NOT_FOUND, "/nowhere/at/all", hl_engine_exclusive(engine, work, &n));
    assert_int_equal(n, 3);
    take_all(&t, job, hl_model_get_info(model));
    assert_int_equal(t.n, N_CTX - 3 + 1);
    hl_job_free(job);
    hl_engine_drain(engine, 1.0, NULL);
    assert_fails(HL_CANCELLED, "shutting down", hl_engine_exclusive(engine, work, &n));
    hl_engine_close(engine);
    hl_model_close(model);
}

/* --------------------------------------------------------------------- damage */

/* A copy of NEOX whose embedding of one token is no number. */
static void damage(const char *folder, int64_t token)
{
    size_t          n_bytes;
    char           *bytes = read_file(in_folder(NEOX, "config.json"), &n_bytes);
    hl_safetensors *file  = NULL;

    write_file(in_folder(folder, "config.json"), bytes, n_bytes);
    free(bytes);
    bytes = read_file(in_folder(NEOX, "model.safetensors"), &n_bytes);
    assert_ok(hl_safetensors_parse(&file, (const uint8_t *)bytes, n_bytes, "model"));
    const hl_tensor *tensor = hl_safetensors_find(file, "gpt_neox.embed_in.weight");
    assert_non_null(tensor);
    size_t at = (size_t)((const char *)tensor->data - bytes);
    at += (size_t)token * (tensor->n_bytes / D_VOCAB);
    hl_safetensors_close(file);
    memset(bytes + at, 0xff, 4); /* NaN in F32, and twice in F16 and BF16 */
    write_file(in_folder(folder, "model.safetensors"), bytes, n_bytes);
    free(bytes);
}

static bool has_token(const transcript *t, const request *r, int64_t token)
{
    for (int64_t i = 0; i < r->options.n_tokens; i++) {
        if (r->prompt[i] == token)
            return true;
    }
    for (int64_t i = 0; i + 1 < t->n; i++) { /* the last one is not fed */
        if (t->tokens[i].id == token)
            return true;
    }
    return false;
}

/* Those who meet the broken token fail, when they do; all others write what they would have. */
static void one_failure_is_no_others(void **state)
{
    static request    requests[N_JOBS];
    static transcript whole[N_JOBS];
    const char       *folder = new_folder();
    hl_model         *model  = open_model(NEOX);
    int               n_bad  = 0;
    hl_job           *jobs[N_JOBS];
    (void)state;

    for (int i = 0; i < N_JOBS; i++) {
        make_request(&requests[i], i);
        requests[i].options.n_tokens   = 2;
        requests[i].options.max_tokens = 12;
    }
    run_jobs(whole, model, requests, 4, 2, 3);
    int64_t broken = whole[0].tokens[3].id; /* in the middle of the first text */
    hl_model_close(model);
    damage(folder, broken);
    model             = open_model(folder);
    hl_engine *engine = open_engine(model, (hl_engine_options){ .n_slots = 8, .n_queue = N_JOBS });
    for (int i = 0; i < N_JOBS; i++)
        jobs[i] = submit(engine, &requests[i].options);
    for (int i = 0; i < N_JOBS; i++) {
        transcript   t = { 0 };
        hl_job_event event;
        hl_status    status;

        while ((status = hl_job_wait(&event, jobs[i], 60.0)) == HL_OK && event.kind == HL_JOB_TOKEN)
            note(&t, &event, hl_model_get_info(model));
        if (has_token(&whole[i], &requests[i], broken)) {
            n_bad++;
            assert_int_equal(status, HL_BAD_INPUT);
            assert_non_null(strstr(hl_error_message(), "gpt_neox.embed_in.weight"));
            assert_int_equal(hl_job_wait(&event, jobs[i], 0.0), HL_BAD_INPUT);
            assert_same_tokens(t.tokens, whole[i].tokens, t.n);
        } else {
            assert_int_equal(status, HL_OK);
            assert_same_transcript(&t, &whole[i]);
        }
        hl_job_free(jobs[i]);
    }
    assert_true(n_bad >= 1 && n_bad < N_JOBS);
    assert_int_equal(counts_of(engine).n_failed, n_bad);
    hl_engine_close(engine);
    hl_model_close(model);
    remove_folder(folder);
}

/* --------------------------------------------------------------------- refused */

static void impossible_jobs_are_refused(void **state)
{
    hl_model      *model      = open_model(LLAMA);
    hl_engine     *engine     = open_engine(model, (hl_engine_options){ .n_slots = 1 });
    int64_t        unknown[2] = { 1, D_VOCAB }, many[N_CTX + 1] = { 0 };
    float          gates[MAX_CELLS] = { [3] = NAN };
    hl_job_options options;
    hl_job        *job = NULL;
    (void)state;

    options = (hl_job_options){ .tokens = unknown };
    assert_fails(HL_BAD_ARGUMENT, "0 tokens", hl_engine_submit(&job, engine, &options));
    options.n_tokens = 2;
    assert_fails(HL_BAD_ARGUMENT, "a token is 256, wanted 0 to 255",
                 hl_engine_submit(&job, engine, &options));
    options = (hl_job_options){ .tokens = many, .n_tokens = N_CTX + 1 };
    assert_fails(HL_LIMIT, "129 tokens, but the context has room for 128",
                 hl_engine_submit(&job, engine, &options));
    options            = endless();
    options.max_tokens = -1;
    assert_fails(HL_BAD_ARGUMENT, "max_tokens", hl_engine_submit(&job, engine, &options));
    options       = endless();
    options.n_top = 21;
    assert_fails(HL_BAD_ARGUMENT, "n_top is 21, wanted 0 to 20",
                 hl_engine_submit(&job, engine, &options));
    options      = endless();
    options.rows = HL_JOB_ROWS(HL_TRACE_CHANGE);
    assert_fails(HL_BAD_ARGUMENT, "rows are 0x4", hl_engine_submit(&job, engine, &options));
    options                 = endless();
    options.pattern_heads   = &(hl_head){ 0, 4 };
    options.n_pattern_heads = 1;
    assert_fails(HL_BAD_ARGUMENT, "a head is 4, wanted 0 to 3",
                 hl_engine_submit(&job, engine, &options));
    options       = endless();
    options.gates = gates;
    assert_fails(HL_BAD_ARGUMENT, "gate [3]", hl_engine_submit(&job, engine, &options));
    options                    = endless();
    options.sample.temperature = -1.0;
    assert_int_equal(hl_engine_submit(&job, engine, &options), HL_BAD_ARGUMENT);
    assert_null(job);
    assert_int_equal(counts_of(engine).n_submitted, 0);
    hl_engine_close(engine);
    assert_fails(HL_BAD_ARGUMENT, "n_slots is 1000, wanted 1 to 256",
                 hl_engine_open(&engine, model, &(hl_engine_options){ .n_slots = 1000 }));
    hl_engine_close(NULL);
    hl_job_free(NULL);
    hl_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_job_is_as_if_alone),
        cmocka_unit_test(prompts_can_be_scored),
        cmocka_unit_test(an_echo_changes_nothing),
        cmocka_unit_test(kept_prompts_are_the_same_bytes),
        cmocka_unit_test(a_cancelled_job_frees_its_slot),
        cmocka_unit_test(a_slow_reader_stops_only_itself),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(a_drain_waits_and_then_cancels),
        cmocka_unit_test(who_waits_hears_of_the_end),
        cmocka_unit_test(news_can_be_told),
        cmocka_unit_test(jobs_can_be_freed_at_any_time),
        cmocka_unit_test(work_runs_between_steps),
        cmocka_unit_test(one_failure_is_no_others),
        cmocka_unit_test(impossible_jobs_are_refused),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
