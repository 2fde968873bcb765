/* tap.h - the seam between a model and whoever watches it.
 *
 * The types are public: hl_tap, hl_layer_rows and hl_final_rows of headlight.h.
 * Measuring, verifying, monitoring and serving are taps; the forward pass knows
 * nothing of statistics beyond a row.  tap.c has the names of places. */
#ifndef HL_MODEL_TAP_H
#define HL_MODEL_TAP_H

#include "headlight.h"

/* What a tap wants of n_batch sequences must be among what the session was opened with. */
hl_status hl_tap_check(const hl_tap *tap, const hl_session_options *options, int64_t n_batch);

#endif
