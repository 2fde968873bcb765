/* diagnose.c - the list of all checks, the frame in which each of them runs, and the thresholds that they
 * compare with. */
#include "analysis/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/grid.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"

/* --------------------------------------------------------------- thresholds */

static const struct {
    const char *name;
    double      value;
} defaults[HL_N_THRESHOLDS] = {
    [HL_T_COLLAPSE_SHARE]        = { "collapse-share", 0.5 },
    [HL_T_COLLAPSE_ENTROPY]      = { "collapse-entropy", 0.05 },
    [HL_T_COLLAPSE_DROP]         = { "collapse-drop", 0.1 },
    [HL_T_COLLAPSE_ERRORS]       = { "collapse-errors", 4.0 },
    [HL_T_COLLAPSE_NEW]          = { "collapse-new", 0.2 },
    [HL_T_OVERLOAD_SHARE]        = { "overload-share", 0.9 },
    [HL_T_OVERLOAD_ENTROPY]      = { "overload-entropy", 0.9 },
    [HL_T_OVERLOAD_CHANGE]       = { "overload-change", 0.05 },
    [HL_T_LOCKING_WINDOW]        = { "locking-window", 64.0 },
    [HL_T_LOCKING_CHANGE]        = { "locking-change", 0.05 },
    [HL_T_LOCKING_SPREAD]        = { "locking-spread", 0.01 },
    [HL_T_LOCKING_LOOP]          = { "locking-loop", 0.02 },
    [HL_T_LOCKING_TOKENS]        = { "locking-tokens", 32.0 },
    [HL_T_FLAT_RANGE]            = { "flat-range", HL_LAYERS_DIFFER },
    [HL_T_FLAT_ERRORS]           = { "flat-errors", 2.0 },
    [HL_T_REDUNDANCY_SHARE]      = { "redundancy-share", 0.5 },
    [HL_T_REDUNDANCY_SIMILARITY] = { "redundancy-similarity", 0.9 },
    [HL_T_INACTIVE_NORM]         = { "inactive-norm", 0.1 },
    [HL_T_DRIFT_LOSS]            = { "drift-loss", 0.05 },
    [HL_T_DRIFT_ENTROPY]         = { "drift-entropy", 0.1 },
    [HL_T_SINK_MASS]             = { "sink-mass", 0.3 },
    [HL_T_PREVIOUS_MASS]         = { "previous-mass", 0.4 },
    [HL_T_BROKEN_ROWS]           = { "broken-rows", 0.0 },
};

hl_thresholds hl_thresholds_default(void)
{
    hl_thresholds all;

    for (int i = 0; i < HL_N_THRESHOLDS; i++)
        all.values[i] = defaults[i].value;
    return all;
}

const char *hl_threshold_name(size_t index)
{
    return index < HL_N_THRESHOLDS ? defaults[index].name : NULL;
}

double hl_threshold_of(const hl_thresholds *thresholds, hl_threshold which)
{
    return thresholds != NULL ? thresholds->values[which] : defaults[which].value;
}

hl_status hl_threshold_set(hl_thresholds *thresholds, const char *name, double value)
{
    for (int i = 0; i < HL_N_THRESHOLDS; i++) {
        if (strcmp(name, defaults[i].name) != 0)
            continue;
        if (!isfinite(value) || value < 0.0)
            return hl_fail(HL_BAD_ARGUMENT, "threshold %s: %g is not a number of at least 0", name,
                           value);
        thresholds->values[i] = value;
        return HL_OK;
    }
    return hl_fail(HL_BAD_ARGUMENT, "no threshold is called '%s'", name);
}

/* ----------------------------------------------------- what diagnoses share */

hl_status hl_shown_by_add(hl_diagnosis *diagnosis, int64_t layer, int64_t head, double value)
{
    HL_NEED(HL_GROW_ONE(&diagnosis->heads, diagnosis->n_heads));
    diagnosis->heads[diagnosis->n_heads++] = (hl_shown_by){ layer, head, value };
    return HL_OK;
}

int hl_shown_by_compare(const void *left, const void *right)
{
    const hl_shown_by *a = left;
    const hl_shown_by *b = right;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return (a->head > b->head) - (a->head < b->head);
}

static int compare_falling(const void *left, const void *right)
{
    const hl_shown_by *a = left;
    const hl_shown_by *b = right;

    return a->value != b->value ? (a->value > b->value ? -1 : 1) : hl_shown_by_compare(left, right);
}

void hl_shown_by_sort(hl_diagnosis *diagnosis, bool highest_first)
{
    if (diagnosis->n_heads > 1)
        qsort(diagnosis->heads, (size_t)diagnosis->n_heads, sizeof *diagnosis->heads,
              highest_first ? compare_falling : hl_shown_by_compare);
}

bool hl_head_is_sound(const hl_profile *profile, int64_t layer, int64_t head)
{
    int64_t n_good = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count;

    return n_good > 0 && n_good >= hl_profile_broken(profile, layer, head);
}

void hl_examination_say_broken(const hl_examination *e, hl_text *text)
{
    if (e->n_broken > 0)
        hl_text_addf(text, "%lld heads are left out: most of their rows are NaN or infinite. ",
                     (long long)e->n_broken);
}

hl_status hl_examination_not_run(hl_examination *e, const char *needs, const char *how)
{
    e->result->verdict = HL_VERDICT_NOT_RUN;
    hl_text_addf(&e->finding, "needs %s", needs);
    hl_text_addf(&e->measure, "%s", how);
    return HL_OK;
}

hl_status hl_examination_no_rows(hl_examination *e)
{
    char needs[96];

    if (e->n_broken == 0)
        return hl_examination_not_run(e, "rows of attention; the profile has none",
                                      "measure the model on a longer text");
    snprintf(needs, sizeof needs, "finite attention: most rows of %lld heads are NaN or infinite",
             (long long)e->n_broken);
    return hl_examination_not_run(e, needs, "first fix what dead-or-broken found");
}

/* ----------------------------------------------------------------- the list */

static const struct {
    const char *name;
    const char *evidence;
    const char *source;
    const char *mitigation;
    hl_status (*examine)(hl_examination *e);
    const char   *unit;
    hl_check_kind kind;
    bool          below; /* low values are bad */
} diagnoses[HL_N_DIAGNOSES] = {
    /* This check comes first, because the others need finite rows. */
    { "dead-or-broken", "literature", "Shannon 1948: H is at most ln n",
      "The weights or the file are damaged: download the file again, or look at the layer below.",
      hl_diagnose_broken, "rows", HL_CHECK_ALARM, false },
    { "entropy-collapse", "literature", "Zhai et al. 2023",
      "In training: an entropy regularizer (the backward pass gives its gradient), spectral "
      "reparametrization or QK-norm, a lower learning rate. At inference: a higher attention "
      "temperature. A higher sampling temperature, as often advised, changes which token is drawn, "
      "not attention.",
      hl_diagnose_collapse, "share of heads", HL_CHECK_ALARM, false },
    { "entropic-overload", "literature", "Jha and Reagen 2024",
      "Use norms before the blocks (pre-norm, RMSNorm); check that gradients reach queries and "
      "keys; drop documents of high perplexity from the data (headlight eval --per-document lists "
      "them); check that the text is from the domain the model was trained on.",
      hl_diagnose_overload, "share of heads", HL_CHECK_ALARM, false },
    { "attention-locking", "heuristic", "",
      "For a text that repeats itself: a repetition penalty or another sampling temperature. For "
      "still attention: a sliding window that keeps the first token, scaled RoPE frequencies, or "
      "dropping old keys from the cache.",
      hl_diagnose_locking, "total variation", HL_CHECK_ALARM, true },
    { "flat-profile", "heuristic", "",
      "Prune the deep layers, or train them again; look at their block influence first.",
      hl_diagnose_flat, "normalized entropy", HL_CHECK_ALARM, true },
    { "head-redundancy", "literature", "Michel et al. 2019", "Prune the weaker head of each pair.",
      hl_diagnose_redundancy, "share of heads", HL_CHECK_ALARM, false },
    { "inactive-heads", "literature", "Bondarenko et al. 2023",
      "Prune them: they write almost nothing.", hl_diagnose_inactive,
      "output norm relative to the layer's mean", HL_CHECK_ALARM, true },
    { "sink-heads", "literature", "Xiao et al. 2023", "", hl_observe_sinks, "share of heads",
      HL_CHECK_OBSERVATION, false },
    { "head-drift", "heuristic", "",
      "Look at what was done between the two profiles, at these heads first: restore their "
      "weights, "
      "quantize them less, or go back to the earlier checkpoint with a lower learning rate.",
      hl_diagnose_drift, "normalized entropy", HL_CHECK_ALARM, false },
    { "previous-token-heads", "literature", "Elhage et al. 2021", "", hl_observe_previous,
      "share of heads", HL_CHECK_OBSERVATION, false },
    { "alike-heads", "literature", "Michel et al. 2019", "", hl_observe_alike, "share of heads",
      HL_CHECK_OBSERVATION, false },
    { "alike-sinks", "literature", "Xiao et al. 2023", "", hl_observe_alike_sinks, "share of heads",
      HL_CHECK_OBSERVATION, false },
};

static hl_status examine(hl_diagnosis *result, size_t which, const hl_examination *frame)
{
    hl_examination e = *frame;

    *result = (hl_diagnosis){
        .name       = diagnoses[which].name,
        .evidence   = diagnoses[which].evidence,
        .source     = diagnoses[which].source,
        .mitigation = diagnoses[which].mitigation,
        .kind       = diagnoses[which].kind,
        .unit       = diagnoses[which].unit,
        .below      = diagnoses[which].below,
        .value      = NAN,
        .threshold  = NAN,
        .errors     = NAN,
    };
    e.result         = result;
    hl_status status = diagnoses[which].examine(&e);
    if (e.profile != NULL)
        hl_usual_say(&e.usual, e.profile, which);
    /* All texts are finished even after an error, because finishing releases memory. */
    const hl_status ends[] = { status,
                               hl_text_finish(&result->rule, &e.rule),
                               hl_text_finish(&result->finding, &e.finding),
                               hl_text_finish(&result->against, &e.against),
                               hl_text_finish(&result->measure, &e.measure),
                               hl_text_finish(&result->usual, &e.usual) };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        HL_NEED(ends[i]);
    return hl_causes_add(result, frame);
}

static void release(hl_diagnosis *item)
{
    hl_free(item->rule);
    hl_free(item->finding);
    hl_free(item->against);
    hl_free(item->measure);
    hl_free(item->usual);
    hl_free(item->heads);
    hl_causes_release(item);
}

void hl_diagnoses_free(hl_diagnoses *found)
{
    for (int i = 0; found != NULL && i < HL_N_DIAGNOSES; i++)
        release(&found->items[i]);
    hl_free(found);
}

hl_status hl_diagnose(hl_diagnoses **out, const hl_profile *profile, const hl_profile *before,
                      const hl_thresholds *thresholds)
{
    HL_CLOSED(hl_diagnoses_free) hl_diagnoses *found = NULL;
    hl_examination frame = { .profile = profile, .before = before, .thresholds = thresholds };

    *out = NULL;
    HL_EACH_HEAD(profile, layer, head)
    {
        bool sound = hl_head_is_sound(profile, layer, head);

        frame.n_counted += sound;
        frame.n_broken += !sound && hl_profile_broken(profile, layer, head) > 0;
    }
    HL_NEED(HL_ALLOC_ZEROED(&found, 1));
    for (size_t i = 0; i < HL_N_DIAGNOSES; i++)
        HL_NEED(examine(&found->items[i], i, &frame));
    *out = hl_taken(&found);
    return HL_OK;
}

hl_status hl_diagnose_trace(hl_diagnoses *found, const hl_trace *trace,
                            const hl_thresholds *thresholds)
{
    hl_examination frame = { .trace = trace, .thresholds = thresholds };

    for (size_t i = 0; i < HL_N_DIAGNOSES; i++) {
        if (diagnoses[i].examine != hl_diagnose_locking)
            continue;
        release(&found->items[i]);
        HL_NEED(examine(&found->items[i], i, &frame));
    }
    return HL_OK;
}

const char *hl_diagnosis_name(size_t index)
{
    return index < HL_N_DIAGNOSES ? diagnoses[index].name : NULL;
}

hl_check_kind hl_diagnosis_kind(size_t index)
{
    return index < HL_N_DIAGNOSES ? diagnoses[index].kind : HL_CHECK_ALARM;
}

const char *hl_verdict_name(hl_verdict verdict)
{
    static const char *const names[] = { "not found", "found", "not run" };

    return names[verdict];
}
