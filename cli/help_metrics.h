/* help_metrics.h - `headlight help metrics`: what every number means. */
#ifndef HL_CLI_HELP_METRICS_H
#define HL_CLI_HELP_METRICS_H

void hl_help_metrics(void);

#endif
