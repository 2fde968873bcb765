/* diagnose.c - the frame that each diagnosis is made in, those of heads (redundant, inactive, resting
 * and broken ones), the list of all, and the thresholds that they compare with. */
#include "analysis/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/grid.h"
#include "analysis/numbers.h"
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
    [HL_T_COLLAPSE_FALL]         = { "collapse-fall", 4.0 },
    [HL_T_OVERLOAD_SHARE]        = { "overload-share", 0.5 },
    [HL_T_OVERLOAD_ENTROPY]      = { "overload-entropy", 0.9 },
    [HL_T_OVERLOAD_CHANGE]       = { "overload-change", 0.05 },
    [HL_T_LOCKING_WINDOW]        = { "locking-window", 64.0 },
    [HL_T_LOCKING_CHANGE]        = { "locking-change", 0.05 },
    [HL_T_LOCKING_SPREAD]        = { "locking-spread", 0.01 },
    [HL_T_FLAT_ERRORS]           = { "flat-errors", 2.0 },
    [HL_T_REDUNDANCY_SIMILARITY] = { "redundancy-similarity", 0.9 },
    [HL_T_INACTIVE_NORM]         = { "inactive-norm", 0.1 },
    [HL_T_SINK_MASS]             = { "sink-mass", 0.3 },
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

/* What a profile does not hold: the loss without the first heads that were found. */
static void ask_for_ablation(hl_examination *e)
{
    enum { NAMED = 4 };
    const hl_diagnosis *result = e->result;

    hl_text_addf(&e->measure, "the loss with them disabled: headlight eval --off ");
    for (int64_t i = 0; i < result->n_heads && i < NAMED; i++)
        hl_text_addf(&e->measure, "%sL%lldH%lld", i > 0 ? "," : "",
                     (long long)result->heads[i].layer, (long long)result->heads[i].head);
}

/* --------------------------------------------------------------- redundancy */

/* Of two heads the one that writes less; the second where that is not known. */
static int64_t weaker(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    double norm_a = hl_profile_output_norm(profile, layer, a);
    double norm_b = hl_profile_output_norm(profile, layer, b);

    return norm_a < norm_b ? a : b;
}

typedef struct pair_count {
    int64_t n_measured;
    int64_t n_redundant;
    int64_t n_sinks; /* alike by the first key alone */
    double  most;    /* the largest similarity that counts; NaN: none */
} pair_count;

/* Lists the weaker head of each pair; says the first pairs in words. */
static hl_status list_pairs(pair_count *out, hl_examination *e)
{
    enum { SAID = 6 };
    double limit = hl_limit(e, HL_T_REDUNDANCY_SIMILARITY);

    *out = (pair_count){ .most = NAN };
    HL_EACH_HEAD(e->profile, layer, b)
    {
        for (int64_t a = 0; a < b; a++) {
            double all        = hl_profile_similarity(e->profile, layer, a, b);
            double similarity = hl_similarity_in_common(e->profile, layer, a, b);

            if (isnan(all) || !hl_head_is_sound(e->profile, layer, a) ||
                !hl_head_is_sound(e->profile, layer, b))
                continue;
            out->n_measured++;
            out->n_sinks += all >= limit && similarity < limit;
            out->most = fmax(out->most, similarity);
            if (similarity < limit)
                continue;
            if (out->n_redundant++ < SAID)
                hl_text_addf(&e->finding, "%sL%lldH%lld and H%lld (%.3f)",
                             out->n_redundant > 1 ? ", " : "", (long long)layer, (long long)a,
                             (long long)b, similarity);
            HL_NEED(hl_shown_by_add(e->result, layer, weaker(e->profile, layer, a, b), similarity));
        }
    }
    if (out->n_redundant > SAID)
        hl_text_addf(&e->finding, " and %lld pairs more", (long long)(out->n_redundant - SAID));
    return HL_OK;
}

/* A head that is the weaker one of several pairs is listed once. */
static void drop_repeats(hl_diagnosis *result)
{
    int64_t n_kept = 0;

    for (int64_t i = 0; i < result->n_heads; i++) {
        bool seen = false;
        for (int64_t j = 0; j < n_kept; j++)
            seen = seen || (result->heads[j].layer == result->heads[i].layer &&
                            result->heads[j].head == result->heads[i].head);
        if (!seen)
            result->heads[n_kept++] = result->heads[i];
    }
    result->n_heads = n_kept;
}

/* The screen: the layer whose heads have the most equal entropies. */
static hl_status add_screen(hl_examination *e)
{
    int64_t          n_heads    = hl_profile_n_heads(e->profile);
    HL_FREED double *normalized = NULL;
    double           least      = NAN;
    int64_t          where      = -1;

    HL_NEED(hl_grid_means(&normalized, e->profile, HL_Q_NORMALIZED));
    for (int64_t layer = 0; layer < hl_profile_n_layers(e->profile); layer++) {
        double spread = sqrt(hl_variance(normalized + layer * n_heads, n_heads));
        if (!isnan(spread) && (where < 0 || spread < least)) {
            least = spread;
            where = layer;
        }
    }
    if (where >= 0)
        hl_text_addf(
            &e->against,
            "The heads of layer %lld differ least: standard deviation %.4f in normalized entropy. ",
            (long long)where, least);
    return HL_OK;
}

static hl_status diagnose_redundancy(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    pair_count    pairs;

    result->threshold = hl_limit(e, HL_T_REDUNDANCY_SIMILARITY);
    hl_text_addf(&e->rule,
                 "two heads of a layer whose sampled rows have a similarity (1 - mean total "
                 "variation) of at least %g, with and without the first key; a pair is confirmed "
                 "only if disabling one head changes the loss by less than 0.005 nats",
                 result->threshold);
    HL_NEED(list_pairs(&pairs, e));
    HL_NEED(add_screen(e));
    if (pairs.n_sinks > 0)
        hl_text_addf(&e->against,
                     "Not counted: %lld pair%s similar only because both attend to the first key. ",
                     (long long)pairs.n_sinks, pairs.n_sinks == 1 ? "" : "s");
    result->value = pairs.most;
    if (pairs.n_measured == 0)
        return hl_examination_not_run(e, "sampled rows of two heads of a layer",
                                      "measure the model itself: rows are sampled while it runs");
    hl_shown_by_sort(result, true);
    drop_repeats(result);
    if (pairs.n_redundant == 0) {
        hl_text_addf(&e->finding, "highest similarity of %lld pairs: %.3f",
                     (long long)pairs.n_measured, pairs.most);
        return HL_OK;
    }
    result->verdict = HL_VERDICT_FOUND;
    ask_for_ablation(e);
    hl_text_addf(&e->against, "Ablation was not measured, so these pairs are candidates.");
    return HL_OK;
}

/* ----------------------------------------------------------------- inactive */

static hl_status diagnose_inactive(hl_examination *e)
{
    hl_diagnosis *result     = e->result;
    int64_t       n_measured = 0;

    result->threshold = hl_limit(e, HL_T_INACTIVE_NORM);
    hl_text_addf(&e->rule, "a head whose output norm is under %g of its layer's mean",
                 result->threshold);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double norm = hl_profile_output_norm(e->profile, layer, head);

        if (isnan(norm))
            continue;
        n_measured++;
        result->value = fmin(result->value, norm); /* passes the first NaN over */
        if (norm < result->threshold)
            HL_NEED(hl_shown_by_add(result, layer, head, norm));
    }
    hl_shown_by_sort(result, false);
    if (n_measured == 0)
        return hl_examination_not_run(
            e, "the output norms of heads",
            "measure the model itself: attention maps alone do not have them");
    hl_text_addf(&e->finding, "%lld of %lld heads; lowest relative output norm: %.3f",
                 (long long)result->n_heads, (long long)n_measured, result->value);
    if (result->n_heads > 0) {
        result->verdict = HL_VERDICT_FOUND;
        hl_text_addf(&e->against, "A head with a small norm can still matter, because a later norm "
                                  "layer may scale it up. Ablation was not measured.");
        ask_for_ablation(e);
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- sinks */

/* The mean over the listed heads of their median normalized entropy without the first key. */
static double entropy_elsewhere(const hl_examination *e)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < e->result->n_heads; i++) {
        double median =
            hl_profile_quantile(e->profile, e->result->heads[i].layer, e->result->heads[i].head,
                                HL_HIST_NORMALIZED_NOSINK, 0.5);
        sum += isnan(median) ? 0.0 : median;
        count += !isnan(median);
    }
    return count > 0 ? sum / (double)count : NAN;
}

static hl_status diagnose_sinks(hl_examination *e)
{
    hl_diagnosis *result = e->result;

    result->threshold = hl_limit(e, HL_T_SINK_MASS);
    hl_text_addf(&e->rule, "a head with a mean attention of more than %g to the first token",
                 result->threshold);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double first = hl_profile_mean(e->profile, layer, head, HL_Q_FIRST);

        result->value = fmax(result->value, first); /* passes NaN over */
        if (first > result->threshold)
            HL_NEED(hl_shown_by_add(result, layer, head, first));
    }
    hl_shown_by_sort(result, true);
    if (isnan(result->value))
        return hl_examination_not_run(e, "rows that see the first token; none was counted",
                                      "measure the model on a longer text");
    hl_text_addf(&e->finding, "%lld of %lld heads; highest: %.3f", (long long)result->n_heads,
                 (long long)e->n_counted, result->value);
    if (result->n_heads > 0) {
        result->verdict = HL_VERDICT_FOUND;
        hl_text_addf(&e->against,
                     "Most trained decoders have such heads. Without the first token their median "
                     "normalized entropy is %.2f.",
                     entropy_elsewhere(e));
    }
    return HL_OK;
}

/* ------------------------------------------------------------------- broken */

static hl_status diagnose_broken(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    double        total  = 0.0;
    int64_t       n_dead = 0;

    result->threshold = hl_limit(e, HL_T_BROKEN_ROWS);
    hl_text_addf(&e->rule,
                 "more than %g rows that are NaN, infinite, or have an entropy over ln n + 0.001; "
                 "or a head without a valid row",
                 result->threshold);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        int64_t broken = hl_profile_broken(e->profile, layer, head);
        int64_t good   = hl_profile_moments(e->profile, layer, head, HL_Q_ENTROPY).count;

        total += (double)broken;
        n_dead += good == 0;
        if (broken > 0 || good == 0)
            HL_NEED(hl_shown_by_add(result, layer, head, (double)broken));
    }
    hl_shown_by_sort(result, true);
    result->value = total;
    if (total > result->threshold || n_dead > 0)
        result->verdict = HL_VERDICT_FOUND;
    if (total <= result->threshold && n_dead > 0) { /* what decided */
        result->value     = (double)n_dead;
        result->threshold = 0.0;
    }
    if (result->n_heads == 0)
        hl_text_addf(&e->finding, "no NaN or Inf rows; all heads valid");
    else
        hl_text_addf(&e->finding, "%.0f NaN or Inf rows; %lld heads without a valid row", total,
                     (long long)n_dead);
    if (result->n_heads > 0) {
        const hl_shown_by *at       = &result->heads[0];
        int64_t            document = 0, token = 0;

        hl_text_addf(&e->finding, "; L%lldH%lld: %.0f rows", (long long)at->layer,
                     (long long)at->head, at->value);
        if (hl_profile_broken_place(&document, &token, e->profile, at->layer, at->head))
            hl_text_addf(&e->finding, ", the first in document %lld at token %lld",
                         (long long)document, (long long)token);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- the list */

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
      "The weights or the file are damaged: download the file again, or look at the layer below.",
      diagnose_broken, false },
    { "entropy-collapse", "literature", "Zhai et al. 2023",
      "In training: an entropy regularizer (the backward pass gives its gradient), spectral "
      "reparametrization or QK-norm, a lower learning rate. At inference: a higher attention "
      "temperature. A higher sampling temperature, as often advised, changes which token is drawn, "
      "not attention.",
      hl_diagnose_collapse, false },
    { "entropic-overload", "literature", "Jha and Reagen 2024",
      "Use norms before the blocks (pre-norm, RMSNorm); check that gradients reach queries and "
      "keys; drop documents of high perplexity from the data (headlight eval --per-document lists "
      "them); check that the text is from the domain the model was trained on.",
      hl_diagnose_overload, false },
    { "attention-locking", "heuristic", "",
      "A sliding window that keeps the first token, scaled RoPE frequencies, or dropping old keys "
      "from the cache.",
      hl_diagnose_locking, true },
    { "flat-profile", "heuristic", "",
      "Prune the deep layers, or train them again; look at their block influence first.",
      hl_diagnose_flat, true },
    { "head-redundancy", "literature", "Michel et al. 2019", "Prune the weaker head of each pair.",
      diagnose_redundancy, false },
    { "inactive-heads", "literature", "Bondarenko et al. 2023",
      "Prune them: they write almost nothing.", diagnose_inactive, true },
    { "sink-heads", "literature", "Xiao et al. 2023",
      "Keep one per layer, or prune with --by ablation; read their entropy without the first "
      "token.",
      diagnose_sinks, false },
};

static hl_status examine(hl_diagnosis *result, size_t which, const hl_examination *frame)
{
    hl_examination e = *frame;

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
    /* All four texts are finished in any case, since finishing releases what failed. */
    const hl_status ends[] = { diagnoses[which].examine(&e), hl_text_finish(&result->rule, &e.rule),
                               hl_text_finish(&result->finding, &e.finding),
                               hl_text_finish(&result->against, &e.against),
                               hl_text_finish(&result->measure, &e.measure) };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        HL_NEED(ends[i]);
    return HL_OK;
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

const char *hl_verdict_name(hl_verdict verdict)
{
    static const char *const names[] = { "not found", "found", "not run" };

    return names[verdict];
}
