/* watch_print.h - what is said of each checkpoint: to people, to programs, to a user's command. */
#ifndef HL_CLI_WATCH_PRINT_H
#define HL_CLI_WATCH_PRINT_H

#include <stdbool.h>

#include "headlight.h"

/* A line, with a heading before the first. */
void hl_watch_print_point(const hl_series_point *point, bool heading);
/* The series' own line of it. */
hl_status hl_watch_print_json(const hl_series *series, int64_t index);

/* Complains of every diagnosis of the list that is present; returns how many. */
int hl_watch_print_alarms(const hl_series_point *point, const char *fail_on);

/* Runs a user's command with { "alarms": [...], "point": {...} } as its input; what it prints goes
 * to standard error.  A command that fails is complained of. */
hl_status hl_watch_run_command(const char *command, double seconds, const hl_series *series,
                               int64_t index, const char *fail_on);
/* The same of a checkpoint that could not be measured: { "alarms": ["dead-or-broken"], "name",
 * "step", "problem" }. */
hl_status hl_watch_report_broken(const char *command, double seconds,
                                 const hl_checkpoint *checkpoint, const char *problem);

#endif
