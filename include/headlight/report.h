/* headlight/report.h - everything that was found, as one interactive page.
 * Part of headlight.h, which see for the conventions. */
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
 * One HTML file that needs no network: the page that is built into the library, and as JSON in it
 * all that is given here.  doc/report.md describes that JSON. */

typedef struct hl_report_profile {
    const char       *name; /* not NULL */
    const hl_profile *profile;
} hl_report_profile;

/* Borrowed, all of it; what is NULL or 0 is not in the report. */
typedef struct hl_report {
    const char *title;
    const hl_report_profile
                         *profiles; /* (n_profiles) all of one shape; the first two are compared */
    int64_t               n_profiles;
    const hl_model_info  *model; /* of which the first profile is: adds what profiles lack */
    const hl_prompt_maps *maps;
    const hl_lens_view   *lens;
    const hl_trace       *trace;
    double                spike_threshold; /* 0: HL_SPIKE_THRESHOLD */
    const char *compare_path; /* what `headlight compare --json` printed, instead of comparing */
    const char *sweep_path;   /* what `headlight sweep --json` printed */
    uint64_t    seed;         /* of the bootstrap */
} hl_report;

/* Writes all of it or nothing.  HL_BAD_ARGUMENT if there is nothing to report; HL_BAD_INPUT, saying
 * what differs, if the parts have not the same layers and heads. */
HL_API hl_status hl_report_write(const hl_report *report, const char *path);

#ifdef __cplusplus
}
#endif
#endif
