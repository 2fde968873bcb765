/* diagnose.c - the list of diagnoses, and the frame that each is made in. */
#include "analysis/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/grid.h"
#include "base/memory.h"
#include "base/status.h"

static const struct {
    const char *name;
    const char *evidence;
    const char *source;
    const char *mitigation;
    hl_status (*examine)(hl_examination *e);
    bool below; /* low values are the bad ones */
} diagnoses[HL_N_DIAGNOSES] = {
    /* First: where rows are not finite, the other diagnoses have less to go by, or nothing. */
    { "dead-or-broken", "literature", "Shannon 1948: H is at most ln n",
      "The weights or the file are damaged there: get the file again, or look at the layer below.",
      hl_diagnose_broken, false },
    { "entropy-collapse", "literature", "Zhai et al. 2023",
      "In training: an entropy regulariser (the backward pass gives its gradient), spectral "
      "reparametrisation or QK-norm, a lower learning rate. At inference: a higher attention "
      "temperature. A higher sampling temperature, as often advised, spreads the choice of the "
      "next "
      "token and leaves attention as it is.",
      hl_diagnose_collapse, false },
    { "entropic-overload", "literature", "Jha and Reagen 2024",
      "Norms before the blocks (pre-norm, RMSNorm); check that gradients reach the queries and "
      "keys; "
      "leave documents of high perplexity out of the data (headlight eval --per-document lists "
      "them); "
      "check that the text is of the domain that the model knows.",
      hl_diagnose_overload, false },
    { "attention-locking", "heuristic", "",
      "A sliding window that keeps the first token, scaled RoPE frequencies, or dropping old keys "
      "from the cache.",
      hl_diagnose_locking, true },
    { "flat-profile", "heuristic", "",
      "Prune or train the deep layers again; look at the block influence first.", hl_diagnose_flat,
      true },
    { "head-redundancy", "literature", "Michel et al. 2019", "Prune the weaker head of each pair.",
      hl_diagnose_redundancy, false },
    { "inactive-heads", "literature", "Bondarenko et al. 2023",
      "Prune them: what they write is next to nothing.", hl_diagnose_inactive, true },
    { "sink-heads", "literature", "Xiao et al. 2023",
      "Keep one a layer, or prune with ablation; read their entropy without the first key.",
      hl_diagnose_sinks, false },
};

/* -------------------------------------------------------------------- heads */

hl_status hl_shown_by_add(hl_diagnosis *diagnosis, int64_t layer, int64_t head, double value)
{
    /* Doubling: at 1, 2, 4, 8 ... the array is full. */
    if ((diagnosis->n_heads & (diagnosis->n_heads - 1)) == 0) {
        size_t    old    = (size_t)diagnosis->n_heads;
        hl_status status = hl_realloc((void **)&diagnosis->heads, old, old == 0 ? 1 : 2 * old,
                                      sizeof *diagnosis->heads);
        if (status != HL_OK)
            return status;
    }
    diagnosis->heads[diagnosis->n_heads++] = (hl_shown_by){ layer, head, value };
    return HL_OK;
}

static int compare_places(const hl_shown_by *a, const hl_shown_by *b)
{
    if (a->layer != b->layer)
        return a->layer < b->layer ? -1 : 1;
    return (a->head > b->head) - (a->head < b->head);
}

static int compare_rising(const void *left, const void *right)
{
    const hl_shown_by *a = left;
    const hl_shown_by *b = right;

    return a->value != b->value ? (a->value < b->value ? -1 : 1) : compare_places(a, b);
}

static int compare_falling(const void *left, const void *right)
{
    const hl_shown_by *a = left;
    const hl_shown_by *b = right;

    return a->value != b->value ? (a->value > b->value ? -1 : 1) : compare_places(a, b);
}

void hl_shown_by_sort(hl_diagnosis *diagnosis, bool highest_first)
{
    if (diagnosis->n_heads > 1)
        qsort(diagnosis->heads, (size_t)diagnosis->n_heads, sizeof *diagnosis->heads,
              highest_first ? compare_falling : compare_rising);
}

bool hl_head_is_sound(const hl_profile *profile, int64_t layer, int64_t head)
{
    int64_t n_good = hl_profile_moments(profile, layer, head, HL_Q_ENTROPY).count;

    return n_good > 0 && n_good >= hl_profile_broken(profile, layer, head);
}

void hl_examination_say_broken(const hl_examination *e, hl_text *text)
{
    if (e->n_broken > 0)
        hl_text_addf(text, "%lld heads are left out, as most of their rows are not finite. ",
                     (long long)e->n_broken);
}

static void count_heads(hl_examination *e)
{
    HL_EACH_HEAD(e->profile, layer, head)
    {
        bool sound = hl_head_is_sound(e->profile, layer, head);

        e->n_counted += sound;
        e->n_broken += !sound && hl_profile_broken(e->profile, layer, head) > 0;
    }
}

/* ---------------------------------------------------------------- the frame */

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
        return hl_examination_not_run(e, "rows of attention, and the profile has none",
                                      "measure the model on a longer text");
    snprintf(needs, sizeof needs, "finite attention: most rows of %lld heads are not finite",
             (long long)e->n_broken);
    return hl_examination_not_run(e, needs, "mend what dead-or-broken found first");
}

static hl_status examine(hl_diagnosis *result, size_t which, const hl_examination *frame)
{
    hl_status      status = HL_OK;
    hl_examination e      = *frame;

    *result = (hl_diagnosis){
        .name       = diagnoses[which].name,
        .evidence   = diagnoses[which].evidence,
        .source     = diagnoses[which].source,
        .mitigation = diagnoses[which].mitigation,
        .below      = diagnoses[which].below,
        .value      = NAN,
        .threshold  = NAN,
    };
    e.result = result;
    status   = diagnoses[which].examine(&e);
    /* All four are finished in any case, since finishing releases what failed. */
    hl_status rule    = hl_text_finish(&result->rule, &e.rule);
    hl_status finding = hl_text_finish(&result->finding, &e.finding);
    hl_status against = hl_text_finish(&result->against, &e.against);
    hl_status measure = hl_text_finish(&result->measure, &e.measure);
    HL_NEED(status);
    HL_NEED(rule);
    HL_NEED(finding);
    HL_NEED(against);
    HL_NEED(measure);
    return status;
}

static void release(hl_diagnosis *item)
{
    hl_free(item->rule);
    hl_free(item->finding);
    hl_free(item->against);
    hl_free(item->measure);
    hl_free(item->heads);
}

void hl_diagnoses_free(hl_diagnoses *found)
{
    if (found == NULL)
        return;
    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        release(&found->items[i]);
    hl_free(found);
}

hl_status hl_diagnose(hl_diagnoses **out, const hl_profile *profile, const hl_profile *before,
                      const hl_thresholds *thresholds)
{
    hl_status      status = HL_OK;
    hl_diagnoses  *found  = NULL;
    hl_examination frame  = { .profile = profile, .before = before, .thresholds = thresholds };

    *out = NULL;
    count_heads(&frame);
    HL_TRY(HL_ALLOC_ZEROED(&found, 1));
    for (size_t i = 0; i < HL_N_DIAGNOSES; i++)
        HL_TRY(examine(&found->items[i], i, &frame));
    *out  = found;
    found = NULL;

done:
    hl_diagnoses_free(found);
    return status;
}

hl_status hl_diagnose_trace(hl_diagnoses *found, const hl_trace *trace,
                            const hl_thresholds *thresholds)
{
    hl_examination frame  = { .trace = trace, .thresholds = thresholds };
    hl_status      status = HL_OK;

    for (size_t i = 0; i < HL_N_DIAGNOSES && status == HL_OK; i++) {
        if (diagnoses[i].examine != hl_diagnose_locking)
            continue;
        release(&found->items[i]);
        status = examine(&found->items[i], i, &frame);
    }
    return status;
}

const char *hl_diagnosis_name(size_t index)
{
    return index < HL_N_DIAGNOSES ? diagnoses[index].name : NULL;
}

const char *hl_verdict_name(hl_verdict verdict)
{
    static const char *const names[] = { "not found", "found", "not run" };

    return names[verdict];
}
