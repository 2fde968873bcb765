/* measure_ahead.c - the next batch is read while a device works on this one.
 *
 * Reading and tokenising take a few percent of the time a GPU needs for the same tokens, and
 * would leave it idle between batches.  On the CPU, which has no time to spare, a batch is read
 * when it is needed. */
#include "measure/measure_ahead.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/status.h"

struct hl_ahead {
    hl_windows   *windows;
    bool          in_thread; /* or when it is asked for */
    bool          is_running;
    pthread_t     thread;
    hl_batch      batch;
    hl_kept_error error; /* of the thread, whose own is gone with it */
};

hl_status hl_ahead_new(hl_ahead **out, hl_windows *windows, bool in_thread)
{
    HL_NEED(HL_ALLOC_ZEROED(out, 1));
    (*out)->windows   = windows;
    (*out)->in_thread = in_thread;
    return HL_OK;
}

static void *read_batch(void *context)
{
    hl_ahead *ahead = context;

    hl_keep_error(&ahead->error, hl_windows_next(&ahead->batch, ahead->windows));
    return NULL;
}

/* Where there is no thread to be had, the batch is read when it is asked for. */
void hl_ahead_begin(hl_ahead *ahead)
{
    ahead->is_running =
        ahead->in_thread && pthread_create(&ahead->thread, NULL, read_batch, ahead) == 0;
}

hl_status hl_ahead_take(hl_batch *out, hl_ahead *ahead)
{
    if (!ahead->is_running)
        return hl_windows_next(out, ahead->windows);
    pthread_join(ahead->thread, NULL);
    ahead->is_running = false;
    HL_NEED(hl_fail_kept(&ahead->error));
    *out = ahead->batch;
    return HL_OK;
}

void hl_ahead_free(hl_ahead *ahead)
{
    if (ahead == NULL)
        return;
    if (ahead->is_running)
        pthread_join(ahead->thread, NULL);
    hl_free(ahead);
}
