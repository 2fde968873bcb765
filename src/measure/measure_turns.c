/* measure_turns.c - batch after batch, and on a device two at a time.
 *
 * A device has nothing to do while the host looks at the last layer of a batch and gets the next
 * one ready, and its kernels leave some of it idle between them.  So two batches are under way, each
 * with a session, a thread and a profile of its own:
 *
 *     first   ..batch 0..........|..batch 2..........|        \
 *     twin        ..batch 1..........|..batch 3..........|     merged
 *
 * Whoever is free takes the next batch.  Profiles merge to the same bytes in any order, so that
 * nothing depends on who took which.  They rest, and are merged, when the state is to be saved
 * and at the end.  Where the twin does not fit, the first is alone, as on the CPU. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "measure/measure.h"

typedef struct turns {
    hl_measuring   *m;       /* the first, whose windows are all's */
    hl_measuring   *twin;    /* NULL: there is none, or not yet */
    double          until;   /* when the state is to be saved */
    pthread_mutex_t mutex;   /* guards the windows, their place, and what follows */
    bool            is_over; /* no batch is left */
    int64_t         n_tokens;
    int64_t         n_sequences;
    hl_status       asked; /* by whoever hears of the progress: not HL_OK is to stop */
    hl_kept_error   error; /* the first, whose thread may be gone */
} turns;

/* ------------------------------------------------------------------------ batches */

/* Others read on while this one is worked with. */
static void copy_batch(hl_measuring *own)
{
    hl_batch *batch = &own->batch;
    size_t    n     = (size_t)batch->n_batch;
    size_t    rows  = n * (size_t)batch->context;

    memcpy(own->copy.tokens, batch->tokens, rows * sizeof *batch->tokens);
    memcpy(own->copy.types, batch->types, rows);
    memcpy(own->copy.places, batch->lengths, HL_BATCH_PLACES * n * sizeof *batch->lengths);
    memcpy(own->copy.hashes, batch->hashes, n * sizeof *batch->hashes);
    batch->tokens = own->copy.tokens;
    batch->types  = own->copy.types;
    batch->hashes = own->copy.hashes;
    hl_batch_set_places(batch, own->copy.places);
}

/* The next batch, behind which another begins to be read; under the mutex. */
static hl_status take_batch(turns *t, hl_measuring *own)
{
    hl_measuring *m = t->m;

    HL_NEED(hl_ahead_take(&own->batch, m->ahead));
    hl_windows_place(&m->place, m->windows);
    m->share   = hl_windows_progress(m->windows);
    t->is_over = own->batch.n_windows == 0;
    if (t->is_over)
        return HL_OK;
    if (t->m->in_pairs)
        copy_batch(own);
    hl_ahead_begin(m->ahead);
    return HL_OK;
}

/* False: there is nothing to do until the state has been saved, or at all. */
static bool take(turns *t, hl_measuring *own)
{
    pthread_mutex_lock(&t->mutex);
    bool goes_on = !t->is_over && t->asked == HL_OK && t->error.status == HL_OK &&
                   hl_clock_seconds() < t->until;
    if (goes_on)
        hl_keep_error(&t->error, take_batch(t, own));
    goes_on = goes_on && !t->is_over && t->error.status == HL_OK;
    pthread_mutex_unlock(&t->mutex);
    return goes_on;
}

static void work(turns *t, hl_measuring *own)
{
    int64_t   n_tokens    = hl_profile_n_tokens(own->profile);
    int64_t   n_sequences = hl_profile_all_sequences(own->profile);
    hl_status status      = hl_measure_batch(own);

    pthread_mutex_lock(&t->mutex);
    hl_keep_error(&t->error, status);
    t->n_tokens += hl_profile_n_tokens(own->profile) - n_tokens;
    t->n_sequences += hl_profile_all_sequences(own->profile) - n_sequences;
    hl_measure_progress progress = { .n_tokens    = t->n_tokens,
                                     .n_sequences = t->n_sequences,
                                     .share       = t->m->share };
    if (t->m->options.progress != NULL && t->error.status == HL_OK && t->asked == HL_OK)
        t->asked = t->m->options.progress(t->m->options.context, &progress);
    pthread_mutex_unlock(&t->mutex);
}

/* -------------------------------------------------------------------------- twins */

static void *run_twin(void *context)
{
    turns    *t      = context;
    hl_status status = t->twin == NULL ? hl_measure_twin_new(&t->twin, t->m) : HL_OK;

    if (status == HL_NO_MEMORY || status == HL_LIMIT) /* then the first goes on alone */
        return NULL;
    pthread_mutex_lock(&t->mutex);
    hl_keep_error(&t->error, status);
    pthread_mutex_unlock(&t->mutex);
    while (status == HL_OK && take(t, t->twin))
        work(t, t->twin);
    return NULL;
}

/* Both rest. */
static hl_status merge_twin(turns *t)
{
    hl_status   status = HL_OK;
    hl_profile *empty  = NULL;

    if (t->twin == NULL)
        return HL_OK;
    HL_TRY(hl_profile_new_like(&empty, t->m->profile));
    HL_TRY(hl_profile_merge(t->m->profile, t->twin->profile));
    hl_profile_free(t->twin->profile);
    t->twin->profile = empty;
    empty            = NULL;

done:
    hl_profile_free(empty);
    return status;
}

/* -------------------------------------------------------------------------- whole */

/* Until the state is to be saved, or all is done. */
static hl_status run_round(turns *t)
{
    pthread_t twin;
    bool      is_two = false;

    t->until = INFINITY; /* a round has a batch, however often the state is saved */
    if (take(t, t->m)) {
        t->until = hl_clock_seconds() + t->m->options.save_every;
        is_two =
            t->m->in_pairs && t->m->share < 1.0 && pthread_create(&twin, NULL, run_twin, t) == 0;
        do
            work(t, t->m);
        while (take(t, t->m));
    }
    if (is_two)
        pthread_join(twin, NULL);
    return t->error.status == HL_OK ? merge_twin(t) : hl_fail_kept(&t->error);
}

static hl_status run_rounds(turns *t)
{
    while (!t->is_over) {
        HL_NEED(run_round(t));
        if (!t->is_over || t->asked != HL_OK)
            HL_NEED(hl_measure_save(t->m));
        if (t->asked != HL_OK)
            return hl_fail(t->asked, "stopped after %lld tokens",
                           (long long)hl_profile_n_tokens(t->m->profile));
    }
    return HL_OK;
}

hl_status hl_measure_all(hl_measuring *m)
{
    turns t = { .m           = m,
                .n_tokens    = hl_profile_n_tokens(m->profile),
                .n_sequences = hl_profile_all_sequences(m->profile) };

    pthread_mutex_init(&t.mutex, NULL);
    hl_status status = run_rounds(&t);
    hl_measure_twin_free(t.twin);
    pthread_mutex_destroy(&t.mutex);
    return status;
}
