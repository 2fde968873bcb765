/* diagnose.h - one function per check; diagnose.c has their list and the frame in which they run.
 *
 * A check fills in what it found: verdict, value, threshold, errors, heads and texts.  The value is
 * the size of the effect and the threshold the smallest one that matters; `errors` says how sure the
 * effect is and is asked second.  Texts grow in hl_text and are handed over by the frame, which
 * then adds what is usual (usual.c) and what the causes may be (causes.c). */
#ifndef HL_ANALYSIS_DIAGNOSE_H
#define HL_ANALYSIS_DIAGNOSE_H

#include "base/buffer.h"
#include "base/memory.h"
#include "headlight/analysis.h"
#include "stats/profile.h"

/* Returns the number that a rule compares with. If `thresholds` is NULL, it is the default. */
double hl_threshold_of(const hl_thresholds *thresholds, hl_threshold which);

typedef struct hl_examination {
    const hl_profile    *profile;
    const hl_profile    *before; /* earlier profile; NULL if there is none */
    const hl_trace      *trace;  /* NULL if there is none */
    const hl_thresholds *thresholds;
    hl_diagnosis        *result;
    hl_text              rule;
    hl_text              finding;
    hl_text              against;
    hl_text              measure;
    hl_text              usual;
    int64_t              n_counted; /* heads that can be judged (hl_head_is_sound) */
    int64_t              n_broken;  /* heads that have rows but cannot be judged */
} hl_examination;

/* Adds a head to those that show the finding. */
hl_status hl_shown_by_add(hl_diagnosis *diagnosis, int64_t layer, int64_t head, double value);
/* Sorts these heads by value. */
void hl_shown_by_sort(hl_diagnosis *diagnosis, bool highest_first);
/* For qsort: lowest values first. Equal values are ordered by layer and head, so the order is
 * the same on every machine. */
int hl_shown_by_compare(const void *left, const void *right);
HL_CLOSES(hl_diagnoses_free, hl_diagnoses)
HL_CLOSES(hl_summary_free, hl_summary)

/* Records that the check was not run and what it needs; returns HL_OK. */
hl_status hl_examination_not_run(hl_examination *e, const char *needs, const char *how);

/* Records that the check was not run because no head has rows, or most rows are not finite. */
hl_status hl_examination_no_rows(hl_examination *e);

static inline double hl_limit(const hl_examination *e, hl_threshold which)
{
    return hl_threshold_of(e->thresholds, which);
}

/* Are most of the head's rows finite? If not, the others do not describe its attention: a run
 * that has diverged is neither collapsed nor overloaded. */
bool hl_head_is_sound(const hl_profile *profile, int64_t layer, int64_t head);
/* Adds to the text that heads with broken rows were left out. */
void hl_examination_say_broken(const hl_examination *e, hl_text *text);

/* diagnose_entropy.c */
hl_status hl_diagnose_collapse(hl_examination *e);
hl_status hl_diagnose_overload(hl_examination *e);
hl_status hl_diagnose_flat(hl_examination *e);
hl_status hl_diagnose_drift(hl_examination *e);
/* diagnose_locking.c */
hl_status hl_diagnose_locking(hl_examination *e);
/* diagnose_heads.c */
hl_status hl_diagnose_broken(hl_examination *e);
hl_status hl_diagnose_redundancy(hl_examination *e);
hl_status hl_diagnose_inactive(hl_examination *e);
hl_status hl_observe_sinks(hl_examination *e);
hl_status hl_observe_previous(hl_examination *e);
hl_status hl_observe_alike(hl_examination *e);
hl_status hl_observe_alike_sinks(hl_examination *e);

/* Two checkpoints of a model on the same text: how far attention fell from the earlier to the
 * later one. */
typedef struct hl_fall {
    double drop;        /* of the mean normalized entropy; negative if it rose */
    double errors;      /* the drop in robust standard deviations of the sequences; NaN: unknown */
    double loss_rise;   /* nats per token; NaN if the loss was not measured in both */
    double newly_sharp; /* share of heads that have become one-hot */
} hl_fall;

/* Is the fall a collapse? Attention that sharpens while the loss falls is learning. It is a
 * collapse if the loss rose, and either the mean fell (by collapse-drop and collapse-errors) or a
 * share of the heads became one-hot (collapse-new). If the loss is unknown, both must hold. */
bool hl_fall_is_collapse(const hl_fall *fall, const hl_thresholds *thresholds);

/* usual.c: adds how large the value of a check is in released models of the profile's kind. */
void hl_usual_say(hl_text *out, const hl_profile *profile, size_t check);

/* Causes whose evidence is added later, from a second text. */
#define HL_CAUSE_OVERFITTING "overfitting"
#define HL_CAUSE_VANISHING   "vanishing gradients"

/* causes.c: adds the possible causes of an alarm that was found, with the evidence in the
 * profiles. */
hl_status hl_causes_add(hl_diagnosis *result, const hl_examination *frame);
void      hl_causes_release(hl_diagnosis *result);

hl_status hl_find_row_loop(hl_row_loop *out, const float *rows, int64_t n_tokens, int64_t n_values,
                           const hl_thresholds *thresholds);

#endif
