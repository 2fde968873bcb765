/* sweep_state.h - the results from which an interrupted sweep resumes: named lists in a file.
 *
 *     HL_NEED(hl_sweep_state_new(&state, path, key));
 *     if (resume)
 *         HL_NEED(hl_sweep_state_load(state));
 *     const double *kept = hl_sweep_state_get(state, "score.entropy", n);    NULL: not there
 *     HL_NEED(hl_sweep_state_put(state, "score.entropy", scores, n));
 *     HL_NEED(hl_sweep_state_save(state));
 *
 * The file is safetensors: one F64 tensor per list, and in the metadata a key with everything that the
 * numbers depend on.  It is written under another name and renamed, so that it is always complete. */
#ifndef HL_PRUNE_SWEEP_STATE_H
#define HL_PRUNE_SWEEP_STATE_H

#include "base/memory.h"
#include "headlight/base.h"

typedef struct hl_sweep_state hl_sweep_state;

/* path NULL: save and load do nothing. Both strings are copied. */
hl_status hl_sweep_state_new(hl_sweep_state **out, const char *path, const char *key);
void      hl_sweep_state_free(hl_sweep_state *state);
HL_CLOSES(hl_sweep_state_free, hl_sweep_state)
/* A missing file is an empty state; a file with another key fails with HL_BAD_INPUT. */
hl_status hl_sweep_state_load(hl_sweep_state *state);
hl_status hl_sweep_state_save(const hl_sweep_state *state);
/* Stores a copy; replaces an existing list of this name. */
hl_status hl_sweep_state_put(hl_sweep_state *state, const char *name, const double *values,
                             int64_t count);
/* Borrowed until the next put; NULL if there is no list of that name and length. */
const double *hl_sweep_state_get(const hl_sweep_state *state, const char *name, int64_t count);

#endif
