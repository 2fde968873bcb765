/* report.h - the parts of a report's data, each made in a file of its own.
 *
 * All give new references, or NULL after a failure that `out` remembers. */
#ifndef HL_RENDER_REPORT_H
#define HL_RENDER_REPORT_H

#include "headlight.h"
#include "render/report_json.h"

/* Arrays of rows are half precision while they have no more numbers than this, bytes up to four
 * times as many, and left out beyond. */
enum { HL_REPORT_MOST_ROWS = 1 << 20 };

/* report_profile.c: what was measured, with diagnoses; locking comes from the trace if there is
 * one. */
json_t *hl_report_profile_json(hl_report_out *out, const hl_report *report, int64_t index);
/* report_diagnoses.c */
json_t *hl_report_diagnoses_json(hl_report_out *out, const hl_profile *profile,
                                 const hl_trace *trace);
/* report_prompt.c */
json_t *hl_report_tokens_json(hl_report_out *out, const hl_prompt_maps *maps);
json_t *hl_report_lens_json(hl_report_out *out, const hl_lens_view *lens);
/* report_trace.c */
json_t *hl_report_trace_json(hl_report_out *out, const hl_trace *trace, double threshold);
/* report_tables.c: what other commands print with --json. */
json_t *hl_report_compare_json(hl_report_out *out, const hl_report *report);
json_t *hl_report_sweep_json(hl_report_out *out, const hl_report *report);

/* Row entropies (n_layers, n_heads, n_tokens) in the form that their number allows; high is the most
 * that they can be.  NULL without a failure: too many. */
json_t *hl_report_rows(hl_report_out *out, const double *values, const int64_t shape[3],
                       double high);

#endif
