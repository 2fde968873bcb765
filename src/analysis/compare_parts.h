/* compare_parts.h - tables of a comparison that describe attention without tests on windows: the
 * diagonal, every metric by layer, the highest peaks, and pairs of heads. */
#ifndef HL_ANALYSIS_COMPARE_PARTS_H
#define HL_ANALYSIS_COMPARE_PARTS_H

#include "analysis/sheet.h"
#include "headlight/profile.h"

/* Returns the change from a to b in percent of a; NaN if a is 0. */
double hl_change_percent(double a, double b);

/* Two-sided sign test: returns the probability of a split at least as uneven as n_above against
 * n_below, if both sides are equally likely; NaN if both are 0. */
double hl_sign_test(int64_t n_above, int64_t n_below);

extern const char hl_diagonal_columns[], hl_layer_metric_columns[], hl_peak_columns[],
    hl_pair_columns[];
/* Both profiles must have the same layers and heads. */
hl_status hl_fill_diagonal(hl_sheet *table, const hl_profile *a, const hl_profile *b);
hl_status hl_fill_layer_metrics(hl_sheet *table, const hl_profile *a, const hl_profile *b);
hl_status hl_fill_peaks(hl_sheet *table, const hl_profile *a, const hl_profile *b);
hl_status hl_fill_pairs(hl_sheet *table, const hl_profile *a, const hl_profile *b);

/* Returns a metric of a head by its number, and the metric's name (NULL past the last). */
double      hl_compared_metric(const hl_profile *profile, int64_t layer, int64_t head, int metric);
const char *hl_compared_metric_name(int metric);

#endif
