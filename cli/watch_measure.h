/* watch_measure.h - a checkpoint and a text to a profile. */
#ifndef HL_CLI_WATCH_MEASURE_H
#define HL_CLI_WATCH_MEASURE_H

#include <stdbool.h>

#include "headlight.h"

typedef struct hl_watch_measure {
    const char              *tokenizer_path; /* NULL: the checkpoint's own */
    const hl_corpus_options *corpus;
    hl_window_options        windows;
    uint64_t                 seed;
    bool                     nll;
    int32_t                  n_threads;
    bool                     quiet; /* no progress, nothing of what was passed over */
} hl_watch_measure;

/* *text gets the corpus's hash.  *is_whole: the files could be read, so that what went wrong after
 * that is the model's fault (weights that are no numbers), and waiting does not mend it.
 * HL_CANCELLED after Ctrl-C. */
hl_status hl_watch_measure_checkpoint(hl_profile **out, uint64_t *text, bool *is_whole,
                                      const char *path, const hl_watch_measure *how);

#endif
