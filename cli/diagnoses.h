/* diagnoses.h - diagnoses in options and output, for all commands that diagnose. */
#ifndef HL_CLI_DIAGNOSES_H
#define HL_CLI_DIAGNOSES_H

#include <jansson.h>
#include <stdbool.h>

#include "headlight.h"
#include "options.h"
#include "screen.h"

/* --------------------------------------------------- --fail-on and --threshold */

/* Returns true if `name` is one of the words of "a,b", or if the list is "any".  NULL lists
 * nothing. */
bool hl_diagnosis_is_listed(const char *list, const char *name);

/* Returns HL_EXIT_OK if every word of the list is a diagnosis, or if the list is "any". A
 * misspelled name must not pass as a healthy model: otherwise prints a message and returns the exit
 * status. */
int hl_diagnosis_list_check(const char *list, const hl_usage *usage);

/* Sets thresholds from options such as "sink-mass=0.4". Returns HL_EXIT_OK, or the exit status
 * after a message. */
int hl_threshold_options_set(hl_thresholds *thresholds, const hl_option_list *given,
                             const hl_usage *usage);

/* ------------------------------------ diagnoses in full, in brief, and as JSON */

/* Prints each diagnosis of a profile with rule, value and threshold. Those found (all with
 * `verbose`) also get heads, counter-evidence and mitigation. */
void hl_diagnoses_print(const hl_diagnoses *found, const hl_profile *profile, const char *path,
                        bool verbose);
/* Prints one line per diagnosis. */
void hl_diagnoses_print_brief(const hl_diagnoses *found, const hl_colors *colors);
/* Returns an array of objects; the caller owns it. */
json_t *hl_diagnoses_json(const hl_diagnoses *found);

/* ------------------------------------------------------------------ the summary */

/* Prints the sentences of a summary, each from the beginning of a line. */
hl_status hl_summary_print(const hl_summary *summary);
/* Returns an array of { "text", "parts": [{ "text", "shows" }] }; the caller owns it. */
json_t *hl_summary_json(const hl_summary *summary);

#endif
