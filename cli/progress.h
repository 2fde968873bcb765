/* progress.h - how far long work has come, for whoever is watching.
 *
 *     hl_progress_bar progress;
 *     hl_progress_start(&progress, stderr, "measuring", common.quiet);
 *     options.progress = hl_progress_show;
 *     options.context  = &progress;
 *     ... the call that takes long ...
 *     hl_progress_end(&progress);             before any other output
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

typedef struct hl_progress_bar {
    FILE       *stream; /* NULL: nobody watches */
    const char *what;   /* borrowed */
    double      began;  /* seconds on a clock of its own, as the next */
    double      drawn;
    double      first_share; /* where work began: not 0 if it goes on from a saved state */
    int64_t     first_tokens;
    bool        has_first;
    bool        is_shown;
} hl_progress_bar;

void hl_progress_start(hl_progress_bar *progress, FILE *stream, const char *what, bool quiet);
/* share: 0 to 1.  n_tokens: so far. */
void hl_progress_update(hl_progress_bar *progress, double share, int64_t n_tokens);
/* What the library reports, shown by a bar, its context; each stage has a bar of its own.
 * HL_CANCELLED once somebody asked the program to stop (hl_stop_asked). */
hl_status hl_progress_show(void *context, const hl_progress *progress);
/* Removes the line.  An update brings it back. */
void hl_progress_end(hl_progress_bar *progress);

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
