/* measure_ahead.h - batches of windows, each read while the one before is worked on.
 *
 *     hl_ahead_new(&ahead, windows, true);
 *     while (hl_ahead_take(&batch, ahead) == HL_OK && batch.n_windows > 0) {
 *         ... windows stand behind this batch: their place, their progress ...
 *         hl_ahead_begin(ahead);
 *         ... work; the windows must be left alone ...
 *     }
 *     hl_ahead_free(ahead);
 */
#ifndef HL_MEASURE_MEASURE_AHEAD_H
#define HL_MEASURE_MEASURE_AHEAD_H

#include "measure/window.h"

typedef struct hl_ahead hl_ahead;

/* Borrows the windows.  in_thread: false has each batch read when it is taken. */
hl_status hl_ahead_new(hl_ahead **out, hl_windows *windows, bool in_thread);
/* The next batch begins to be read. */
void hl_ahead_begin(hl_ahead *ahead);
/* It, or what went wrong; as hl_windows_next, borrowed until the take after the next. */
hl_status hl_ahead_take(hl_batch *out, hl_ahead *ahead);
/* Waits for what is being read. */
void hl_ahead_free(hl_ahead *ahead);

#endif
