/* sweep_figure.h - a sweep's tables as figures. */
#ifndef HL_CLI_SWEEP_FIGURE_H
#define HL_CLI_SWEEP_FIGURE_H

#include "headlight.h"

/* Ratio against the rise of the loss, or against perplexity on a logarithmic axis. */
hl_status hl_sweep_draw_curves(const hl_sweep *sweep, const char *path, const char *model,
                               bool perplexity);
/* Each ranker's score of every head against what that head alone costs. */
hl_status hl_sweep_draw_scatter(const hl_sweep *sweep, const char *path, const char *model);

#endif
