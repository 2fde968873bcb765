/* diagnose_options.h - --fail-on and --threshold, for all commands that diagnose. */
#ifndef HL_CLI_DIAGNOSE_OPTIONS_H
#define HL_CLI_DIAGNOSE_OPTIONS_H

#include <stdbool.h>

#include "headlight.h"
#include "options.h"

/* Is `name` one of the words of "a,b", or is the list "any"?  NULL lists nothing. */
bool hl_diagnosis_is_listed(const char *list, const char *name);

/* HL_OPTIONS_GO_ON if every word of the list is a diagnosis, or the whole of it "any" (a typing
 * error must not pass for health); else the exit status after a complaint. */
int hl_diagnosis_list_check(const char *list, const hl_usage *usage);

/* "sink-mass=0.4", of each that was given; as above. */
int hl_threshold_options_set(hl_thresholds *thresholds, const hl_option_list *given,
                             const hl_usage *usage);

#endif
