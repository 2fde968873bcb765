/* engine_worker.c - the worker, turn by turn.
 *
 *     jobs that were cancelled leave; jobs from the queue take free slots
 *     one piece of one prompt, of whoever has been here for longest
 *     one step of all whose prompts are done and who have room for an event
 *
 * The worker alone ends jobs, so that a job in its hands does not vanish.  Others only say what
 * they want, under the mutex, and wake it. */
#include "base/clock.h"
#include "base/status.h"
#include "serve/engine_parts.h"

/* ---------------------------------------------------------------------- ending */

/* Under the mutex. */
static void end_job(hl_engine *engine, hl_job *job)
{
    if (job->slot >= 0) {
        engine->slots[job->slot].job       = NULL;
        engine->slots[job->slot].last_used = engine->turn;
        engine->counts.n_running--;
    }
    if (job->fault != HL_OK)
        engine->counts.n_failed++;
    else if (job->is_cancelled)
        engine->counts.n_cancelled++;
    else
        engine->counts.n_finished++;
    job->failure = job->fault;
    job->state   = HL_JOB_OVER;
    if (job->drawn_first > 0.0)
        engine->counts.text_seconds += hl_clock_seconds() - job->drawn_first;
    pthread_cond_broadcast(&engine->done);
}

static bool is_complete(const hl_job *job)
{
    return job->fault != HL_OK || job->is_cancelled || job->stop != HL_STOP_NONE ||
           (job->options.prompt_only && !hl_engine_has_prompt(job));
}

/* What a turn made of a job; under the mutex. */
static void count_turn(hl_engine *engine, hl_job *job)
{
    int64_t n_new = job->n_drawn - job->n_counted;

    job->n_ready += job->n_completed;
    job->n_completed = 0;
    if (n_new > 0 && job->drawn_first == 0.0)
        job->drawn_first = hl_clock_seconds();
    job->n_counted = job->n_drawn;
    engine->counts.n_generated_tokens += n_new;
    if (is_complete(job))
        end_job(engine, job);
}

/* Everybody hears of it.  A job that is over may be gone afterwards. */
static void publish(hl_engine *engine, hl_job *job)
{
    pthread_mutex_lock(&engine->mutex);
    bool had = job->n_completed > 0;
    count_turn(engine, job);
    bool is_over      = job->state == HL_JOB_OVER;
    bool is_ownerless = is_over && job->is_abandoned;
    bool is_told      = (had || is_over) && job->options.notify != NULL && !job->is_abandoned;
    job->is_notifying = is_told;
    pthread_cond_broadcast(&job->news);
    pthread_mutex_unlock(&engine->mutex);

    if (is_told) {
        job->options.notify(job->options.context);
        pthread_mutex_lock(&engine->mutex);
        job->is_notifying = false;
        pthread_cond_broadcast(&job->news);
        pthread_mutex_unlock(&engine->mutex);
    }
    if (is_ownerless)
        hl_job_destroy(job);
}

/* ----------------------------------------------------------------------- turns */

/* The first job of the queue that was cancelled; under the mutex. */
static hl_job *unqueue_cancelled(hl_engine *engine)
{
    for (hl_job **at = &engine->queue; *at != NULL; at = &(*at)->next) {
        hl_job *job = *at;

        if (!job->is_cancelled)
            continue;
        *at = job->next;
        if (engine->queue_end == &job->next)
            engine->queue_end = at;
        engine->counts.n_queued--;
        return job;
    }
    return NULL;
}

static hl_job *find_cancelled(hl_engine *engine)
{
    for (int64_t i = 0; i < engine->options.n_slots; i++) {
        hl_job *job = engine->slots[i].job;
        if (job != NULL && job->is_cancelled)
            return job;
    }
    return unqueue_cancelled(engine);
}

static void end_cancelled(hl_engine *engine)
{
    hl_job *job = NULL;

    do {
        pthread_mutex_lock(&engine->mutex);
        job = find_cancelled(engine);
        pthread_mutex_unlock(&engine->mutex);
        if (job != NULL)
            publish(engine, job);
    } while (job != NULL);
}

/* From the queue to free slots. */
static void admit(hl_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    while (engine->queue != NULL && engine->counts.n_running < engine->options.n_slots) {
        hl_job *job = engine->queue;

        engine->queue = job->next;
        if (engine->queue == NULL)
            engine->queue_end = &engine->queue;
        hl_engine_take_slot(engine, job);
        job->state    = HL_JOB_RUNNING;
        job->admitted = hl_clock_seconds();
        engine->counts.n_queued--;
        engine->counts.n_running++;
        engine->counts.n_reused_tokens += job->n_fed; /* that the slot still has */
    }
    pthread_mutex_unlock(&engine->mutex);
}

/* Can it go on?  Under the mutex. */
static bool can_be_fed(const hl_job *job)
{
    if (hl_engine_has_prompt(job))
        return hl_job_room(job) >= hl_engine_prompt_events(job);
    return hl_job_room(job) >= 1;
}

/* From now on the places behind the last event are the worker's; under the mutex. */
static void take_places(hl_job *job)
{
    job->first_event = (job->first + job->n_ready) % job->n_events;
}

static hl_job *pick_prompt(hl_engine *engine)
{
    hl_job *oldest = NULL;

    pthread_mutex_lock(&engine->mutex);
    for (int64_t i = 0; i < engine->options.n_slots; i++) {
        hl_job *job = engine->slots[i].job;

        if (job != NULL && hl_engine_has_prompt(job) && can_be_fed(job) &&
            (oldest == NULL || job->admitted < oldest->admitted))
            oldest = job;
    }
    if (oldest != NULL)
        take_places(oldest);
    pthread_mutex_unlock(&engine->mutex);
    return oldest;
}

static void run_prompt(hl_engine *engine)
{
    hl_job *job    = pick_prompt(engine);
    double  before = hl_clock_seconds();

    if (job == NULL)
        return;
    hl_engine_feed_prompt(engine, job);
    pthread_mutex_lock(&engine->mutex);
    engine->counts.n_prompt_tokens += job->n_feed;
    engine->counts.prompt_seconds += hl_clock_seconds() - before;
    pthread_mutex_unlock(&engine->mutex);
    publish(engine, job);
}

static void pick_step(hl_engine *engine)
{
    engine->n_fed = 0;
    pthread_mutex_lock(&engine->mutex);
    for (int64_t i = 0; i < engine->options.n_slots; i++) {
        hl_job *job = engine->slots[i].job;

        if (job == NULL || hl_engine_has_prompt(job) || !can_be_fed(job))
            continue;
        take_places(job);
        engine->fed[engine->n_fed++] = job;
    }
    pthread_mutex_unlock(&engine->mutex);
}

static void run_step(hl_engine *engine)
{
    double before = hl_clock_seconds();

    pick_step(engine);
    if (engine->n_fed == 0)
        return;
    hl_engine_feed_step(engine);
    pthread_mutex_lock(&engine->mutex);
    engine->counts.n_steps++;
    engine->counts.step_seconds += hl_clock_seconds() - before;
    pthread_mutex_unlock(&engine->mutex);
    for (int64_t i = 0; i < engine->n_fed; i++)
        publish(engine, engine->fed[i]);
}

/* ---------------------------------------------------------------------- worker */

/* Under the mutex. */
static bool has_work(const hl_engine *engine)
{
    bool has_free = engine->counts.n_running < engine->options.n_slots;

    if (engine->is_closing || (engine->queue != NULL && has_free))
        return true;
    for (const hl_job *job = engine->queue; job != NULL; job = job->next) {
        if (job->is_cancelled)
            return true;
    }
    for (int64_t i = 0; i < engine->options.n_slots; i++) {
        const hl_job *job = engine->slots[i].job;
        if (job != NULL && (job->is_cancelled || can_be_fed(job)))
            return true;
    }
    return false;
}

/* False: it is over. */
static bool wait_for_work(hl_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    while (!has_work(engine))
        pthread_cond_wait(&engine->wake, &engine->mutex);
    bool goes_on = !engine->is_closing;
    pthread_mutex_unlock(&engine->mutex);
    engine->turn++;
    return goes_on;
}

void *hl_engine_worker(void *argument)
{
    hl_engine *engine = argument;

    while (wait_for_work(engine)) {
        end_cancelled(engine);
        admit(engine);
        run_prompt(engine);
        run_step(engine);
    }
    pthread_mutex_lock(&engine->mutex);
    hl_engine_cancel_all(engine);
    pthread_mutex_unlock(&engine->mutex);
    end_cancelled(engine);
    return NULL;
}
