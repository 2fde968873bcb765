/* prune_timing.h - for prune: what was gained, by running both models side by side. */
#ifndef HL_CLI_PRUNE_TIMING_H
#define HL_CLI_PRUNE_TIMING_H

#include <jansson.h>

#include "headlight.h"

typedef struct hl_timing {
    bool          done;
    hl_speed_pair pair;
    size_t        files_before; /* bytes on disk */
    size_t        files_after;
} hl_timing;

/* Times the model and the one that was written at `path`. */
hl_status hl_timing_take(hl_timing *out, const hl_model *model, const char *before,
                         const char *path, int32_t n_threads);
void      hl_timing_print(const hl_timing *timing);
json_t   *hl_timing_json(const hl_timing *timing); /* NULL: not done */

#endif
