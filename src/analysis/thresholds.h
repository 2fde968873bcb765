/* thresholds.h - the numbers that rules compare with, and their defaults. */
#ifndef HL_ANALYSIS_THRESHOLDS_H
#define HL_ANALYSIS_THRESHOLDS_H

#include "headlight.h"

/* NULL: the default. */
double hl_threshold_of(const hl_thresholds *thresholds, hl_threshold which);

#endif
