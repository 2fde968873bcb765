/* sweep_print.h - a sweep for people and for programs. */
#ifndef HL_CLI_SWEEP_PRINT_H
#define HL_CLI_SWEEP_PRINT_H

#include "headlight.h"

/* Exit codes, after a complaint. */
int hl_sweep_print(const hl_sweep *sweep, const char *model);
int hl_sweep_print_json(const hl_sweep *sweep, const char *model);
int hl_sweep_print_table(const hl_sweep *sweep, const char *name, hl_sheet_format format);

#endif
