/* sweep_figure.h - a sweep's tables as figures. */
#ifndef HL_CLI_SWEEP_FIGURE_H
#define HL_CLI_SWEEP_FIGURE_H

#include "headlight.h"

typedef struct hl_sweep_figure {
    const hl_sweep        *sweep;
    const char            *model; /* its name */
    const hl_draw_options *how;
} hl_sweep_figure;

/* Ratio against the rise of the loss, or against perplexity on a logarithmic axis. */
hl_status hl_sweep_draw_curves(const hl_sweep_figure *figure, const char *path, bool perplexity);
/* Each ranker's score of every head against what that head alone costs. */
hl_status hl_sweep_draw_scatter(const hl_sweep_figure *figure, const char *path);

#endif
