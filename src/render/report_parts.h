/* report_parts.h - the parts of a report's data, and the pieces that they are made of: numbers, arrays
 * and texts as JSON.
 *
 *     hl_report_out out = { 0 };
 *     json_t *means = json_object();
 *     hl_json_put(&means, "H", hl_report_f32(&out, values, 2, (int64_t[]){ 8, 8 }));
 *     ... out.status, and is `means` still there? ...
 *     json_decref(means);
 *
 * What fails is remembered in `out`, and gives NULL, as memory that ran out does; hl_json_put makes
 * NULL of what that would be part of, so that the caller looks once, at the end.  doc/report.md says
 * what the arrays look like. */
#ifndef HL_RENDER_REPORT_PARTS_H
#define HL_RENDER_REPORT_PARTS_H

#include "base/json.h"
#include "headlight/report.h"

/* --------------------------------------------------------------------- pieces */

typedef struct hl_report_out {
    hl_status status; /* the first that was not HL_OK */
} hl_report_out;

/* Keeps the first failure; true while there was none. */
bool hl_report_check(hl_report_out *out, hl_status status);

/* All values are new references, NULL after a failure. */

/* Any bytes that end with NUL; NULL is null. */
json_t *hl_report_text(const char *text);
/* [L, H] */
json_t *hl_report_head(int64_t layer, int64_t head);
/* A plain list of numbers. */
json_t *hl_report_numbers(const double *values, int64_t n);

/* Packed arrays of the values; shape (n_dims).  f16: to 11 bits.  u8: evenly from low to high in 254
 * steps, NaN where there is none, to within (high - low) / 508. */
json_t *hl_report_f32(hl_report_out *out, const double *values, int n_dims, const int64_t *shape);
json_t *hl_report_f16(hl_report_out *out, const double *values, int n_dims, const int64_t *shape);
json_t *hl_report_u8(hl_report_out *out, const double *values, int n_dims, const int64_t *shape,
                     double low, double high);
/* Bytes as they are. */
json_t *hl_report_bytes(hl_report_out *out, const uint8_t *bytes, int n_dims, const int64_t *shape);

/* ---------------------------------------------------------------------- parts */

/* All give new references, or NULL after a failure that `out` remembers. */

/* report_profile.c: what was measured, with diagnoses; locking comes from the trace if there is
 * one. */
json_t *hl_report_profile_json(hl_report_out *out, const hl_report *report, int64_t index);
/* report_prompt.c: one prompt; a text as it was generated. */
json_t *hl_report_tokens_json(hl_report_out *out, const hl_prompt_maps *maps);
json_t *hl_report_lens_json(hl_report_out *out, const hl_lens_view *lens);
json_t *hl_report_trace_json(hl_report_out *out, const hl_trace *trace, double threshold);
/* report_tables.c: what other commands print with --json. */
json_t *hl_report_compare_json(hl_report_out *out, const hl_report *report);
json_t *hl_report_sweep_json(hl_report_out *out, const hl_report *report);

#endif
