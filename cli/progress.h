/* progress.h - how far long work has come, for whoever is watching.
 *
 *     hl_progress progress;
 *     hl_progress_start(&progress, stderr, "measuring", common.quiet);
 *     ... hl_progress_update(&progress, share_done, n_tokens) ...   as often as one likes
 *     hl_progress_end(&progress);                                   and before any other output
 *
 * One line that is written over itself some ten times a second:
 *
 *     measuring  ━━━━━━━━━━━━━━━━━────────────────  52%  1.2 M tokens  8.4 k/s  2:05 left
 *
 * Nothing at all where the stream is not a terminal, or with --quiet. */
#ifndef HL_CLI_PROGRESS_H
#define HL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "headlight.h"

typedef struct hl_progress {
    FILE       *stream; /* NULL: nobody watches */
    const char *what;   /* borrowed */
    double      began;  /* seconds on a clock of its own, as the next */
    double      drawn;
    double      first_share; /* where work began: not 0 if it goes on from a saved state */
    int64_t     first_tokens;
    bool        has_first;
    bool        is_shown;
} hl_progress;

void hl_progress_start(hl_progress *progress, FILE *stream, const char *what, bool quiet);
/* share: 0 to 1.  n_tokens: so far. */
void hl_progress_update(hl_progress *progress, double share, int64_t n_tokens);
/* Removes the line.  An update brings it back. */
void hl_progress_end(hl_progress *progress);

/* For hl_measure_options, with a hl_progress as context: HL_CANCELLED after Ctrl-C. */
hl_status hl_progress_measured(void *progress, const hl_measure_progress *seen);

/* What the line says. */
typedef struct hl_progress_view {
    const char *what;
    double      share;
    int64_t     n_tokens;
    double      rate;    /* tokens a second; not above 0: not known yet */
    double      seconds; /* left; below 0: not known yet */
} hl_progress_view;

/* The line, in at most `width` columns; what does not fit is left out, the bar first and the
 * time left last.  Returns its length in bytes. */
size_t hl_progress_format(char *out, size_t n_bytes, const hl_progress_view *view, int width);

#endif
