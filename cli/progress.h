/* progress.h - a progress bar for long work.
 *
 *     hl_progress_bar progress;
 *     hl_progress_start(&progress, stderr, "measuring", common.quiet);
 *     options.progress = hl_progress_show;
 *     options.context  = &progress;
 *     ... the long call ...
 *     hl_progress_end(&progress);             before any other output
 *
 * The bar is one line that is rewritten about ten times per second:
 *
 *     measuring  ━━━━━━━━━━━━━━━━━────────────────  52%  1.2 M tokens  8.4 k/s  2:05 left
 *
 * Nothing is shown if the stream is not a terminal, or with --quiet. */
#ifndef HL_CLI_PROGRESS_H
#define HL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "headlight.h"

typedef struct hl_progress_bar {
    FILE       *stream; /* NULL: nothing is shown */
    const char *what;   /* borrowed */
    double      began;  /* seconds, on the bar's own clock */
    double      drawn;
    double      first_share; /* where the work began; above 0 if it continues from a saved state */
    int64_t     first_tokens;
    bool        has_first;
    bool        is_shown;
} hl_progress_bar;

void hl_progress_start(hl_progress_bar *progress, FILE *stream, const char *what, bool quiet);
/* Updates the bar: share is 0 to 1, n_tokens the number of tokens so far. */
void hl_progress_update(hl_progress_bar *progress, double share, int64_t n_tokens);
/* Shows the library's progress reports with a bar, which is the context; each stage has its own
 * bar. Returns HL_CANCELLED once a stop was requested (hl_stop_asked). */
hl_status hl_progress_show(void *context, const hl_progress *progress);
/* Removes the line. The next update shows it again. */
void hl_progress_end(hl_progress_bar *progress);

/* The content of the line. */
typedef struct hl_progress_view {
    const char *what;
    double      share;
    int64_t     n_tokens;
    double      rate;    /* tokens per second; 0 or less: not known yet */
    double      seconds; /* seconds left; below 0: not known yet */
} hl_progress_view;

/* Formats the line in at most `width` columns. What does not fit is left out: first the bar, last
 * the time left. Returns its length in bytes. */
size_t hl_progress_format(char *out, size_t n_bytes, const hl_progress_view *view, int width);

#endif
