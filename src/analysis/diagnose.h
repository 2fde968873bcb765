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
    hl_text              usual;
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

/* What is known of two checkpoints of a model on the same text: is the later one a collapse? */
typedef struct hl_fall {
    double drop;      /* fall of the mean normalized entropy; below 0: it rose */
    double errors;    /* the same in robust standard deviations of the sequences; NaN: not known */
    double loss_rise; /* nats per token; NaN: not measured on both */
    double newly_sharp; /* share of heads that count as collapsed now and did not before */
} hl_fall;

/* Attention that sharpens while the loss falls is learning, from random weights on.  It is a collapse if
 * the loss rose while the mean fell (by collapse-drop, and surely: by collapse-fall), or while a share of
 * the heads became one-hot (collapse-new).  Where losses are not known, both must hold. */
bool hl_fall_is_collapse(const hl_fall *fall, const hl_thresholds *thresholds);

/* usual.c: says how large the value of a check is in the released models of the profile's kind. */
void hl_usual_say(hl_text *out, const hl_profile *profile, size_t check);

/* Causes that evidence is added to later. */
#define HL_CAUSE_OVERFITTING "overfitting"
#define HL_CAUSE_VANISHING   "vanishing gradients"

/* causes.c: for an alarm that was found, its possible causes and what the examination's profiles say of
 * each. */
hl_status hl_causes_add(hl_diagnosis *result, const hl_examination *frame);
void      hl_causes_release(hl_diagnosis *result);

hl_status hl_find_row_loop(hl_row_loop *out, const float *rows, int64_t n_tokens, int64_t n_values,
                           const hl_thresholds *thresholds);

#endif
