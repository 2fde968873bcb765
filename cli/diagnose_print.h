/* diagnose_print.h - diagnoses in full, in brief, and as JSON. */
#ifndef HL_CLI_DIAGNOSE_PRINT_H
#define HL_CLI_DIAGNOSE_PRINT_H

#include <jansson.h>

#include "headlight.h"
#include "screen.h"

/* Each with rule, value and threshold; those that are present, or all with `verbose`, with heads,
 * counter-evidence and mitigation. */
void hl_diagnoses_print(const hl_diagnoses *found, const char *path, bool verbose);
/* A line each. */
void hl_diagnoses_print_brief(const hl_diagnoses *found, const hl_colours *colours);
/* An array of objects; the caller owns it. */
json_t *hl_diagnoses_json(const hl_diagnoses *found);

#endif
