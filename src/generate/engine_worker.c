/* engine_worker.c - the worker, turn by turn.
 *
 *     cancelled jobs leave; jobs that nobody reads leave if others wait; jobs from the
 *     queue take free slots
 *     one chunk of one prompt is fed: that of the job that has been in its slot longest
 *     one step is fed for all jobs whose prompts are done and that have room for an event
 *
 * Only the worker ends jobs, so that a job cannot vanish while the worker uses it.  Other threads
 * only make requests, under the mutex, and wake the worker. */
#include "base/locks.h"
#include "base/machine.h"
#include "base/status.h"
#include "generate/engine_parts.h"

/* Seconds that a job may be without room for events while others wait for its slot.  They are
 * summed from when it got the slot, so that a reader who takes an event now and then cannot keep
 * the slot either. */
#define PATIENCE 0.1

/* ---------------------------------------------------------------------- ending */

/* The caller holds the mutex. */
static void leave_slot(hl_engine *engine, hl_job *job)
{
    engine->slots[job->slot].job       = NULL;
    engine->slots[job->slot].last_used = engine->turn;
    engine->counts.n_running--;
    engine->n_long -= job->is_short ? 0 : 1;
    job->slot = -1;
}

/* The caller holds the mutex. */
static void end_job(hl_engine *engine, hl_job *job)
{
    if (job->slot >= 0)
        leave_slot(engine, job);
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
    return job->fault != HL_OK || job->is_cancelled || job->draft.stop != HL_STOP_NONE ||
           (job->options.prompt_only && !hl_engine_has_prompt(job));
}

/* Adds the results of a turn to the counts.  The caller holds the mutex. */
static void count_turn(hl_engine *engine, hl_job *job)
{
    int64_t n_new = job->draft.n_drawn - job->n_counted;

    job->n_ready += job->n_completed;
    job->n_completed = 0;
    if (n_new > 0 && job->drawn_first == 0.0)
        job->drawn_first = hl_clock_seconds();
    job->n_counted = job->draft.n_drawn;
    engine->counts.n_generated_tokens += n_new;
    if (is_complete(job))
        end_job(engine, job);
}

/* Makes the results of a turn visible to readers.  A job that is over may be freed by this call. */
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

/* Updates the counts for a job that leaves the queue.  The caller holds the mutex. */
static void uncount(hl_engine *engine, hl_job *job)
{
    if (job->is_parked)
        engine->counts.n_parked--;
    else
        engine->counts.n_queued--;
    job->is_parked = false;
}

static void unlink_job(hl_engine *engine, hl_job **at)
{
    hl_job *job = *at;

    *at = job->next;
    if (engine->queue_end == &job->next)
        engine->queue_end = at;
    job->next = NULL;
}

/* Takes the first cancelled job out of the queue.  The caller holds the mutex. */
static hl_job *unqueue_cancelled(hl_engine *engine)
{
    for (hl_job **at = &engine->queue; *at != NULL; at = &(*at)->next) {
        hl_job *job = *at;

        if (!job->is_cancelled)
            continue;
        unlink_job(engine, at);
        uncount(engine, job);
        return job;
    }
    return NULL;
}

static hl_job *find_cancelled(hl_engine *engine)
{
    for (int64_t i = 0; i < engine->n_sequences; i++) {
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

/* Whether the job can continue.  The caller holds the mutex. */
static bool can_be_fed(const hl_job *job)
{
    if (hl_engine_has_prompt(job))
        return hl_job_room(job) >= hl_engine_prompt_events(job);
    return hl_job_room(job) >= 1;
}

/* Finds the first job of the queue that could have a slot if one were free.  Returns the `next`
 * pointer that refers to it; that pointer is NULL if there is no such job.  One slot is reserved
 * for short texts.  The caller holds the mutex. */
static hl_job **find_next(hl_engine *engine)
{
    bool     any = engine->n_long < engine->options.n_slots;
    hl_job **at  = &engine->queue;

    while (*at != NULL && (!((*at)->is_short || any) ||
                           ((*at)->is_parked && 2 * hl_job_room(*at) < (*at)->n_events)))
        at = &(*at)->next;
    return at;
}

/* Moves jobs from the queue to free slots.  The caller holds the mutex. */
static void admit(hl_engine *engine)
{
    while (engine->counts.n_running < engine->n_sequences) {
        hl_job **at  = find_next(engine);
        hl_job  *job = *at;

        if (job == NULL)
            return;
        unlink_job(engine, at);
        uncount(engine, job);
        hl_engine_take_slot(engine, job);
        job->state       = HL_JOB_RUNNING;
        job->admitted    = hl_clock_seconds();
        job->stuck       = 0.0;
        job->stuck_since = 0.0;
        engine->counts.n_running++;
        engine->n_long += job->is_short ? 0 : 1;
        engine->counts.n_reused_tokens += job->n_fed; /* tokens that the slot still holds */
    }
}

/* --------------------------------------------------------------------- parking */

/* Whether some job waits for a slot that it cannot have.  The caller holds the mutex. */
static bool is_crowded(hl_engine *engine)
{
    int64_t n_ready = 0;

    for (const hl_job *job = engine->queue; job != NULL; job = job->next)
        n_ready += !job->is_parked || 2 * hl_job_room(job) >= job->n_events ? 1 : 0;
    return n_ready > 0 && (engine->n_long >= engine->options.n_slots ||
                           engine->counts.n_running >= engine->n_sequences);
}

/* Seconds without room for an event since the job got its slot.  The caller holds the mutex. */
static double stuck_seconds(hl_job *job, double now)
{
    if (can_be_fed(job)) {
        job->stuck += job->stuck_since > 0.0 ? now - job->stuck_since : 0.0;
        job->stuck_since = 0.0;
        return 0.0;
    }
    if (job->stuck_since == 0.0)
        job->stuck_since = now;
    return job->stuck + now - job->stuck_since;
}

/* Parks jobs that nobody reads, so that waiting jobs get their slots.  Returns the number of
 * seconds after which another job may have to be parked; 0: none.  The caller holds the mutex. */
static double park(hl_engine *engine)
{
    double now  = hl_clock_seconds();
    double next = 0.0;

    for (int64_t i = 0; i < engine->n_sequences; i++) {
        hl_job *job  = engine->slots[i].job;
        double  left = job != NULL ? PATIENCE - stuck_seconds(job, now) : PATIENCE;

        if (job == NULL || can_be_fed(job) || !is_crowded(engine))
            continue;
        if (left > 0.0) {
            next = next == 0.0 || left < next ? left : next;
            continue;
        }
        leave_slot(engine, job);
        job->state         = HL_JOB_QUEUED;
        job->is_parked     = true;
        *engine->queue_end = job;
        engine->queue_end  = &job->next;
        engine->counts.n_parked++;
        engine->counts.n_parkings++;
        admit(engine);
    }
    return next;
}

/* Decides which jobs have slots now. */
static void share_slots(hl_engine *engine)
{
    HL_LOCKED(&engine->mutex);
    admit(engine);
    (void)park(engine);
}

/* Reserves the places after the last event for the worker.  The caller holds the mutex. */
static void take_places(hl_job *job)
{
    job->first_event = (job->first + job->n_ready) % job->n_events;
}

static hl_job *pick_prompt(hl_engine *engine)
{
    hl_job *oldest = NULL;

    HL_LOCKED(&engine->mutex);
    for (int64_t i = 0; i < engine->n_sequences; i++) {
        hl_job *job = engine->slots[i].job;

        if (job != NULL && hl_engine_has_prompt(job) && can_be_fed(job) &&
            (oldest == NULL || job->admitted < oldest->admitted))
            oldest = job;
    }
    if (oldest != NULL)
        take_places(oldest);
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
    HL_LOCKED(&engine->mutex);
    for (int64_t i = 0; i < engine->n_sequences; i++) {
        hl_job *job = engine->slots[i].job;

        if (job == NULL || hl_engine_has_prompt(job) || !can_be_fed(job))
            continue;
        take_places(job);
        engine->fed[engine->n_fed++] = job;
    }
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

/* The caller holds the mutex. */
static bool has_work(hl_engine *engine)
{
    bool has_free = engine->counts.n_running < engine->n_sequences;

    if (engine->is_closing || (has_free && *find_next(engine) != NULL))
        return true;
    for (const hl_job *job = engine->queue; job != NULL; job = job->next) {
        if (job->is_cancelled)
            return true;
    }
    for (int64_t i = 0; i < engine->n_sequences; i++) {
        const hl_job *job = engine->slots[i].job;
        if (job != NULL && (job->is_cancelled || can_be_fed(job)))
            return true;
    }
    return false;
}

/* Returns false when the engine closes. */
static bool wait_for_work(hl_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    while (!has_work(engine)) {
        double seconds = park(engine);

        if (has_work(engine))
            break;
        if (seconds > 0.0)
            hl_condition_wait(&engine->wake, &engine->mutex, hl_clock_seconds() + seconds);
        else
            pthread_cond_wait(&engine->wake, &engine->mutex);
    }
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
        share_slots(engine);
        run_prompt(engine);
        run_step(engine);
    }
    pthread_mutex_lock(&engine->mutex);
    hl_engine_cancel_all(engine);
    pthread_mutex_unlock(&engine->mutex);
    end_cancelled(engine);
    return NULL;
}
