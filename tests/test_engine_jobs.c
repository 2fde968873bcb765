/* test_engine_jobs.c - everything that can happen to a job in an engine. */
#include "engine_support.h"

#include <pthread.h>
#include <unistd.h>

/* -------------------------------------------------------------- on their way */

/* A text that continues until the context is full. */
static const int64_t  start[3] = { 5, 17, 200 };
static hl_job_options endless(void)
{
    return (hl_job_options){ .tokens = start, .n_tokens = 3, .ignore_end = true };
}

/* Submits a job whose events are not taken, so that it pauses in its slot. */
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
    /* One job is freed while it waits for a slot, and one while it has a slot. */
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

/* A paused job continues where it was when its events are taken, with the same result. */
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
    assert_true(counts_of(engine).n_generated_tokens <= quick.n + CHUNK + 2);
    take_all(&slow, idle, hl_model_get_info(model));
    assert_same_transcript(&slow, &quick);
    hl_job_free(idle);
    hl_job_free(busy);
    hl_engine_close(engine);
    hl_model_close(model);
}

/* An unread text leaves its slot to a waiting job.  When it is read at last, it is fed again and
 * has the same bytes: echoed prompts, samplers, gates, rows and patterns. */
static void an_unread_text_leaves_its_slot(void **state)
{
    static transcript alone, late, quick;
    hl_model         *model = open_model(LLAMA);
    hl_engine *engine = open_engine(model, (hl_engine_options){ .n_slots = 1, .n_events = 1 });
    (void)state;

    for (int i = 0; i < 6; i++) {
        request        r;
        hl_job_options options = endless();

        make_request(&r, i);
        r.options.max_tokens  = 60;
        r.options.n_tokens    = 20 + 10 * i;
        r.options.echo_prompt = i >= 4;
        for (int64_t k = 0; k < r.options.n_tokens; k++)
            r.prompt[k] = 2 + (k * 7 + i) % 200;
        hl_job *job = submit(engine, &r.options);
        take_all(&alone, job, hl_model_get_info(model));
        hl_job_free(job);

        hl_job *idle   = submit(engine, &r.options);
        hl_job *waits  = submit(engine, &options);
        int64_t before = counts_of(engine).n_parkings;
        take_all(&quick, waits, hl_model_get_info(model));
        assert_int_equal(quick.n, N_CTX - 3 + 1);
        assert_int_equal(counts_of(engine).n_parkings, before + 1);
        assert_int_equal(counts_of(engine).n_parked, 1);
        take_all(&late, idle, hl_model_get_info(model));
        assert_same_transcript(&late, &alone);
        assert_int_equal(counts_of(engine).n_parked, 0);
        hl_job_free(waits);
        hl_job_free(idle);
    }
    hl_engine_close(engine);
    hl_model_close(model);
}

/* A parked job can be cancelled, drained and closed like any other. */
static void parked_jobs_end(void **state)
{
    static transcript t;
    hl_model         *model   = open_model(LLAMA);
    hl_engine_options small   = { .n_slots = 1, .n_events = 1 };
    hl_job_options    options = endless();
    int64_t           n_cut   = 0;
    (void)state;

    for (int way = 0; way < 2; way++) {
        hl_engine *engine = open_engine(model, small);
        hl_job    *idle   = submit(engine, &options);
        hl_job    *waits  = submit(engine, &options);

        take_all(&t, waits, hl_model_get_info(model));
        assert_int_equal(counts_of(engine).n_parked, 1);
        if (way == 0)
            hl_job_cancel(idle);
        hl_engine_drain(engine, 0.0, &n_cut);
        assert_int_equal(n_cut, way == 0 ? n_cut : 1);
        assert_int_equal(counts_of(engine).n_parked, 0);
        assert_int_equal(counts_of(engine).n_cancelled, 1);
        hl_job_free(idle);
        hl_job_free(waits);
        hl_engine_close(engine);
    }
    hl_model_close(model);
}

/* If long texts take all slots, a short text is generated at once, beside them. */
static void a_short_text_has_its_lane(void **state)
{
    static transcript t;
    hl_model         *model = open_model(LLAMA);
    hl_engine        *engine =
        open_engine(model, (hl_engine_options){ .n_slots = 4, .n_queue = 1, .n_events = 1 });
    hl_job_options options = endless();
    hl_job        *jobs[5];
    (void)state;

    for (int i = 0; i < 5; i++)
        jobs[i] = submit(engine, &options);
    options.max_tokens = 5;
    for (int i = 0; i < 3; i++) { /* the queue is full, but not for short texts */
        hl_job *job = submit(engine, &options);
        take_all(&t, job, hl_model_get_info(model));
        assert_int_equal(t.n, 5);
        hl_job_free(job);
    }
    for (int i = 0; i < 5; i++)
        hl_job_free(jobs[i]);
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

    assert_fails(HL_BUSY, "1 texts are being generated and 2 are waiting",
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

/* Closing an engine ends its jobs, and waiting threads are notified. */
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

/* Jobs are freed even while their worker calls `notify`. */
static void jobs_can_be_freed_at_any_time(void **state)
{
    uint32_t       random = 5;
    hl_model      *model  = open_model(LLAMA);
    hl_engine     *engine = open_engine(model, (hl_engine_options){ .n_slots = 3, .n_queue = 240 });
    hl_job_options options = endless();
    (void)state;

    /* A freed job keeps its place until the worker sees it, so the queue has room for all of
     * them. */
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

/* The worker is blocked in the notification of one job until two others wait: a long prompt, and
 * then a short one. */
typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t  opens;
    bool            is_open;
    char            order[8]; /* jobs in the order of their first notification */
} gate;

typedef struct named {
    gate *gate;
    char  name;
} named;

static void hear_in_order(void *context)
{
    named *n = context;

    pthread_mutex_lock(&n->gate->mutex);
    while (!n->gate->is_open)
        pthread_cond_wait(&n->gate->opens, &n->gate->mutex);
    if (strchr(n->gate->order, n->name) == NULL)
        n->gate->order[strlen(n->gate->order)] = n->name;
    pthread_mutex_unlock(&n->gate->mutex);
}

static void prompts_are_fed_in_the_order_they_came(void **state)
{
    static transcript t;
    static int64_t    text[6 * CHUNK];
    hl_model         *model  = open_model(LLAMA);
    hl_engine        *engine = open_engine(model, (hl_engine_options){ .n_slots = 3 });
    gate              g      = { .is_open = false };
    named             names[3];
    hl_job           *jobs[3];
    (void)state;

    pthread_mutex_init(&g.mutex, NULL);
    pthread_cond_init(&g.opens, NULL);
    for (int i = 0; i < 3; i++) {
        names[i]               = (named){ &g, "abc"[i] };
        hl_job_options options = { .tokens     = text,
                                   .n_tokens   = i == 1 ? 6 * CHUNK : 3,
                                   .max_tokens = 1,
                                   .ignore_end = true,
                                   .notify     = hear_in_order,
                                   .context    = &names[i] };
        jobs[i]                = submit(engine, &options);
        while (i == 0 && counts_of(engine).n_generated_tokens == 0)
            usleep(100);
    }
    pthread_mutex_lock(&g.mutex);
    g.is_open = true;
    pthread_cond_broadcast(&g.opens);
    pthread_mutex_unlock(&g.mutex);
    for (int i = 0; i < 3; i++) {
        take_all(&t, jobs[i], hl_model_get_info(model));
        assert_int_equal(t.n, 1);
        hl_job_free(jobs[i]);
    }
    assert_string_equal(g.order, "abc");
    hl_engine_close(engine);
    hl_model_close(model);
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
    assert_fails(HL_LIMIT, "129 tokens, but the context has room for only 128",
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
        cmocka_unit_test(a_cancelled_job_frees_its_slot),
        cmocka_unit_test(a_slow_reader_stops_only_itself),
        cmocka_unit_test(an_unread_text_leaves_its_slot),
        cmocka_unit_test(parked_jobs_end),
        cmocka_unit_test(a_short_text_has_its_lane),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(a_drain_waits_and_then_cancels),
        cmocka_unit_test(who_waits_hears_of_the_end),
        cmocka_unit_test(news_can_be_told),
        cmocka_unit_test(jobs_can_be_freed_at_any_time),
        cmocka_unit_test(prompts_are_fed_in_the_order_they_came),
        cmocka_unit_test(impossible_jobs_are_refused),
    };
    return cmocka_run_group_tests_name("engine_jobs", tests, NULL, NULL);
}
