/* diagnose.h - one function a diagnosis; diagnose.c has the list, the frame and those of heads.
 *
 * Each fills in what it found: verdict, value, threshold, heads, and the four texts.
 * Texts grow in hl_text and are handed over by the frame. */
#ifndef HL_ANALYSIS_DIAGNOSE_H
#define HL_ANALYSIS_DIAGNOSE_H

#include "base/buffer.h"
#include "base/memory.h"
#include "headlight/analysis.h"
#include "stats/profile.h"

/* The number that a rule compares with; thresholds NULL: the default. */
double hl_threshold_of(const hl_thresholds *thresholds, hl_threshold which);

typedef struct hl_examination {
    const hl_profile    *profile;
    const hl_profile    *before; /* NULL: none */
    const hl_trace      *trace;  /* NULL: none */
    const hl_thresholds *thresholds;
    hl_diagnosis        *result;
    hl_text              rule;
    hl_text              finding;
    hl_text              against;
    hl_text              measure;
    int64_t              n_counted; /* heads that hl_head_is_sound says can be judged */
    int64_t              n_broken;  /* heads that have rows and cannot */
} hl_examination;

/* Adds a head that shows it. */
hl_status hl_shown_by_add(hl_diagnosis *diagnosis, int64_t layer, int64_t head, double value);
/* Sorts them: lowest values first, or highest. */
void hl_shown_by_sort(hl_diagnosis *diagnosis, bool highest_first);
/* For qsort: lowest values first, equal ones by layer and head, so that the order is the same
 * everywhere. */
int hl_shown_by_compare(const void *left, const void *right);
HL_CLOSES(hl_diagnoses_free, hl_diagnoses)

/* Says that the check did not run and what it needs; returns HL_OK. */
hl_status hl_examination_not_run(hl_examination *e, const char *needs, const char *how);

/* The same where no head has rows to judge by, or most have rows that are not finite. */
hl_status hl_examination_no_rows(hl_examination *e);

static inline double hl_limit(const hl_examination *e, hl_threshold which)
{
    return hl_threshold_of(e->thresholds, which);
}

/* Are most of the head's rows finite?  If not, what is left of them says nothing of its attention: a
 * run that has diverged is neither collapsed nor overloaded. */
bool hl_head_is_sound(const hl_profile *profile, int64_t layer, int64_t head);
/* Says in the finding, or in what speaks against it, that such heads were left out. */
void hl_examination_say_broken(const hl_examination *e, hl_text *text);

/* diagnose_entropy.c */
hl_status hl_diagnose_collapse(hl_examination *e);
hl_status hl_diagnose_overload(hl_examination *e);
hl_status hl_diagnose_locking(hl_examination *e);
hl_status hl_diagnose_flat(hl_examination *e);

#endif
