/* report_parts.h - the parts of a report's data, made of numbers, arrays and texts as JSON.
 *
 *     hl_report_out out = { 0 };
 *     json_t *means = json_object();
 *     hl_json_put(&means, "entropy", hl_report_f32(&out, values, 2, (int64_t[]){ 8, 8 }));
 *     ... check out.status, and that `means` is not NULL ...
 *     json_decref(means);
 *
 * A function that fails stores its status in `out` and returns NULL, as it also does when memory
 * runs out.  hl_json_put turns an object into NULL if a part of it is NULL, so one check at the end
 * is enough. doc/report.md describes the arrays. */
#ifndef HL_RENDER_REPORT_PARTS_H
#define HL_RENDER_REPORT_PARTS_H

#include "base/json.h"
#include "headlight/report.h"

/* --------------------------------------------------------------------- pieces */

typedef struct hl_report_out {
    hl_status status; /* the first status that was not HL_OK */
} hl_report_out;

/* Keeps the first failure; returns true as long as there was none. */
bool hl_report_check(hl_report_out *out, hl_status status);

/* All values are new references, NULL after a failure. */

/* Accepts any NUL-terminated bytes; a NULL pointer becomes null. */
json_t *hl_report_text(const char *text);
/* [L, H] */
json_t *hl_report_head(int64_t layer, int64_t head);
/* The heads that show a finding: [{"layer", "head", "value"}, ...]. */
json_t *hl_report_heads(const hl_diagnosis *item);
/* A plain list of numbers. */
json_t *hl_report_numbers(const double *values, int64_t n);

/* Packs the values into an array; shape (n_dims). f16 keeps 11 bits. u8 divides low to high into
 * 254 even steps, with NaN for missing values; its error is at most (high - low) / 508. */
json_t *hl_report_f32(hl_report_out *out, const double *values, int n_dims, const int64_t *shape);
json_t *hl_report_f16(hl_report_out *out, const double *values, int n_dims, const int64_t *shape);
json_t *hl_report_u8(hl_report_out *out, const double *values, int n_dims, const int64_t *shape,
                     double low, double high);
/* Packs bytes unchanged. */
json_t *hl_report_bytes(hl_report_out *out, const uint8_t *bytes, int n_dims, const int64_t *shape);

/* ---------------------------------------------------------------------- parts */

/* All return new references, or NULL after a failure that `out` remembers. */

/* report_profile.c: the measurements and diagnoses; locking comes from the trace if there is
 * one. */
/* Returns {"entropy": {"name", "unit", "text"}, ...} for what the page shows at each "?". */
json_t *hl_report_definitions(void);
json_t *hl_report_profile_json(hl_report_out *out, const hl_report *report, int64_t index);
/* report_prompt.c: one prompt, and a generated text. */
json_t *hl_report_tokens_json(hl_report_out *out, const hl_prompt_maps *maps);
json_t *hl_report_lens_json(hl_report_out *out, const hl_lens_view *lens);
json_t *hl_report_trace_json(hl_report_out *out, const hl_trace *trace, double threshold);
/* report_tables.c: what other commands print with --json. */
json_t *hl_report_compare_json(hl_report_out *out, const hl_report *report);
json_t *hl_report_sweep_json(hl_report_out *out, const hl_report *report);

#endif
