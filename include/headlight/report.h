/* headlight/report.h - all results as one interactive page. Part of headlight.h, which see for the
 * conventions. */
#ifndef HEADLIGHT_REPORT_H
#define HEADLIGHT_REPORT_H

#include "analysis.h"
#include "view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ reports
 *
 *     hl_report_profile first  = { .name = "gpt2", .profile = profile };
 *     hl_report         report = { .profiles = &first, .n_profiles = 1 };
 *     hl_report_write(&report, "gpt2.html");
 *
 * One HTML file that needs no network: the page that is built into the library, with all data of
 * the report as JSON in it.  doc/report.md describes that JSON. */

typedef struct hl_report_profile {
    const char       *name; /* must not be NULL */
    const hl_profile *profile;
} hl_report_profile;

/* All pointers are borrowed.  A part that is NULL or 0 is not in the report. */
typedef struct hl_report {
    const char *title;
    const hl_report_profile
                         *profiles; /* (n_profiles) of the same shape; the first two are compared */
    int64_t               n_profiles;
    const hl_model_info  *model; /* model of the first profile; adds what profiles do not hold */
    const hl_prompt_maps *maps;
    const hl_lens_view   *lens;
    const hl_trace       *trace;
    double                spike_threshold; /* 0: HL_SPIKE_THRESHOLD */
    const char *compare_path; /* file with the output of `headlight compare --json`, used instead of
                               * comparing */
    const char *sweep_path;   /* file with the output of `headlight sweep --json` */
    uint64_t    seed;         /* random seed of clustering */
} hl_report;

/* Writes the page.  After a failure no file is left behind.  Returns HL_BAD_ARGUMENT if there is
 * nothing to report; HL_BAD_INPUT, with the difference, if the parts do not have the same layers
 * and heads. */
HL_API hl_status hl_report_write(const hl_report *report, const char *path);

#ifdef __cplusplus
}
#endif
#endif
