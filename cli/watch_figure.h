/* watch_figure.h - a series as a figure: entropies or the loss over training steps. */
#ifndef HL_CLI_WATCH_FIGURE_H
#define HL_CLI_WATCH_FIGURE_H

#include "headlight.h"

typedef struct hl_watch_figure {
    const hl_series       *series;
    const char            *name;    /* of the run */
    const char            *figure;  /* "entropy", "layers", "loss" */
    const char            *fail_on; /* which diagnoses are alarms, and marked */
    const hl_draw_options *how;
} hl_watch_figure;

/* Points are drawn by step, whatever their order in the series. */
hl_status hl_watch_draw(const hl_watch_figure *figure, const char *path);

#endif
