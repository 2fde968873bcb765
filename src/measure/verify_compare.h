/* verify_compare.h - how far an output is from what a golden case expects. */
#ifndef HL_MEASURE_VERIFY_COMPARE_H
#define HL_MEASURE_VERIFY_COMPARE_H

#include "headlight.h"
#include "measure/verify_case.h"
#include "measure/verify_outputs.h"

/* Fills in everything but the back end.  The case must expect this output. */
hl_status hl_verify_compare(hl_verify_entry *out, const hl_verify_outputs *ours,
                            const hl_verify_case *golden, hl_verify_output output);

#endif
