/* progress.h - a line that says how far long work has come: on standard error, where it is a
 * terminal, and nowhere else. */
#ifndef HL_CLI_PROGRESS_H
#define HL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hl_progress {
    const char *unit; /* "tokens" */
    bool        shown;
    double      begin; /* seconds */
    double      last;
} hl_progress;

/* `quiet` keeps it silent. */
void hl_progress_start(hl_progress *progress, const char *unit, bool quiet);
/* At most ten times a second something is drawn. */
void hl_progress_update(hl_progress *progress, int64_t done, int64_t total);
/* Leaves an empty line to go on in. */
void hl_progress_finish(hl_progress *progress);

#endif
