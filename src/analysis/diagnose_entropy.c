/* diagnose_entropy.c - attention that is too sharp, too even, the same in all layers, or
 * different from an earlier profile's. */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

/* ----------------------------------------------------------------- collapse */

/* Which tokens the collapsed heads look at. */
typedef struct split {
    int64_t n_sink;
    int64_t n_positional;
    int64_t n_content;
} split;

static split split_heads(const hl_examination *e)
{
    split counts = { 0, 0, 0 };

    for (int64_t i = 0; i < e->result->n_heads; i++) {
        const hl_shown_by *at    = &e->result->heads[i];
        double             first = hl_profile_mean(e->profile, at->layer, at->head, HL_Q_FIRST);
        double             self  = hl_profile_mean(e->profile, at->layer, at->head, HL_Q_SELF);
        double previous          = hl_profile_mean(e->profile, at->layer, at->head, HL_Q_PREVIOUS);

        if (first > hl_limit(e, HL_T_SINK_MASS))
            counts.n_sink++;
        else if (self >= 0.4 || previous >= 0.4)
            counts.n_positional++;
        else
            counts.n_content++;
    }
    return counts;
}

/* A head counts as collapsed if its rows are one-hot, without counting the first key. */
static bool is_collapsed(const hl_profile *profile, int64_t layer, int64_t head, double limit)
{
    return hl_profile_quantile(profile, layer, head, HL_HIST_NORMALIZED_NOSINK, 0.5) < limit &&
           hl_head_is_sound(profile, layer, head);
}

static double share_collapsed(const hl_profile *profile, double limit)
{
    int64_t n_all = 0, n_collapsed = 0;

    HL_EACH_HEAD(profile, layer, head)
    {
        n_all += hl_head_is_sound(profile, layer, head);
        n_collapsed += is_collapsed(profile, layer, head, limit);
    }
    return n_all > 0 ? (double)n_collapsed / (double)n_all : (double)NAN;
}

/* Returns the rise of the loss since the earlier profile of the same text. */
static double loss_rise(const hl_examination *e)
{
    if (!hl_same_text(e->profile, e->before))
        return (double)NAN;
    return hl_profile_nll(e->profile).mean - hl_profile_nll(e->before).mean;
}

bool hl_fall_is_collapse(const hl_fall *fall, const hl_thresholds *thresholds)
{
    bool fell = fall->drop >= hl_threshold_of(thresholds, HL_T_COLLAPSE_DROP) &&
                fall->errors > hl_threshold_of(thresholds, HL_T_COLLAPSE_ERRORS);
    bool sharp = fall->newly_sharp >= hl_threshold_of(thresholds, HL_T_COLLAPSE_NEW);

    if (isnan(fall->loss_rise))
        return fell && sharp;
    return fall->loss_rise > 0.0 && (fell || sharp);
}

/* Computes how far the mean fell since `before`. If that is unknown, .drop is NaN and `against`
 * gets the reason. */
static hl_status find_fall(hl_fall *out, hl_examination *e)
{
    double   sharp = hl_limit(e, HL_T_COLLAPSE_ENTROPY);
    hl_level before, now;

    if (!hl_same_setting(e->profile, e->before, "context")) {
        hl_text_addf(&e->against,
                     "Not compared with the earlier profile, which has another context. ");
        return HL_OK;
    }
    HL_NEED(hl_level_of(&before, e->before));
    HL_NEED(hl_level_of(&now, e->profile));
    *out = (hl_fall){ .drop      = before.median - now.mean,
                      .errors    = hl_level_fall(&before, &now),
                      .loss_rise = loss_rise(e),
                      .newly_sharp =
                          share_collapsed(e->profile, sharp) - share_collapsed(e->before, sharp) };
    if (isnan(out->errors))
        hl_text_addf(&e->against,
                     "Not compared with the earlier profile, which has too few sequences. ");
    return HL_OK;
}

static hl_status list_collapsed(hl_examination *e)
{
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double median =
            hl_profile_quantile(e->profile, layer, head, HL_HIST_NORMALIZED_NOSINK, 0.5);

        if (is_collapsed(e->profile, layer, head, hl_limit(e, HL_T_COLLAPSE_ENTROPY)))
            HL_NEED(hl_shown_by_add(e->result, layer, head, median));
    }
    hl_shown_by_sort(e->result, false);
    return HL_OK;
}

static void explain_collapse(hl_examination *e, const hl_fall *fall)
{
    split counts = split_heads(e);

    hl_text_addf(&e->finding, "%lld of %lld heads (%.0f%%)", (long long)e->result->n_heads,
                 (long long)e->n_counted, 100.0 * e->result->value);
    if (e->result->n_heads > 0)
        hl_text_addf(&e->finding, ": %lld sink, %lld positional, %lld content",
                     (long long)counts.n_sink, (long long)counts.n_positional,
                     (long long)counts.n_content);
    if (!isnan(fall->errors)) {
        hl_text_addf(&e->finding,
                     "; since the earlier profile the mean normalized entropy %s %.3f (%.1f robust "
                     "standard deviations)",
                     fall->drop >= 0.0 ? "fell by" : "rose by", fabs(fall->drop),
                     fabs(fall->errors));
        if (!isnan(fall->loss_rise))
            hl_text_addf(&e->finding, " and the loss %s %.3f nats",
                         fall->loss_rise > 0.0 ? "rose by" : "fell by", fabs(fall->loss_rise));
        hl_text_addf(&e->finding, "; %.0f%% of heads became one-hot",
                     100.0 * fmax(fall->newly_sharp, 0.0));
        if (fall->drop > 0.0 && fall->loss_rise <= 0.0)
            hl_text_addf(&e->against, "Attention that sharpens while the loss falls is learning. ");
    }
    if (counts.n_sink + counts.n_positional > 0)
        hl_text_addf(&e->against,
                     "%lld of these are sink or positional heads, which are focused by nature. ",
                     (long long)(counts.n_sink + counts.n_positional));
    if (hl_profile_nll(e->profile).count > 0)
        hl_text_addf(&e->against, "Loss on this text: %.3f nats per token.",
                     hl_profile_nll(e->profile).mean);
}

hl_status hl_diagnose_collapse(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    hl_fall       fall   = { NAN, NAN, NAN, NAN };

    hl_text_addf(
        &e->rule,
        "more than %.0f%% of heads with a median normalized entropy, first token excluded, "
        "under %g; or, since an earlier profile of the same text, a loss that rose while "
        "the mean normalized entropy fell by at least %g and %g robust standard "
        "deviations, or at least %.0f%% of heads came under %g (both, if the losses are "
        "not known)",
        100.0 * hl_limit(e, HL_T_COLLAPSE_SHARE), hl_limit(e, HL_T_COLLAPSE_ENTROPY),
        hl_limit(e, HL_T_COLLAPSE_DROP), hl_limit(e, HL_T_COLLAPSE_ERRORS),
        100.0 * hl_limit(e, HL_T_COLLAPSE_NEW), hl_limit(e, HL_T_COLLAPSE_ENTROPY));
    HL_NEED(list_collapsed(e));
    if (e->before != NULL)
        HL_NEED(find_fall(&fall, e));
    result->threshold = hl_limit(e, HL_T_COLLAPSE_SHARE);
    if (e->n_counted == 0 || e->n_broken > e->n_counted)
        return hl_examination_no_rows(e);
    hl_examination_say_broken(e, &e->against);
    result->value  = (double)result->n_heads / (double)e->n_counted;
    result->errors = fall.errors;
    bool many      = result->value > result->threshold;
    bool fell      = hl_fall_is_collapse(&fall, e->thresholds);
    explain_collapse(e, &fall);
    if (many || fell)
        result->verdict = HL_VERDICT_FOUND;
    if (fell && !many && fall.drop >= hl_limit(e, HL_T_COLLAPSE_DROP)) {
        result->value     = fall.drop;
        result->threshold = hl_limit(e, HL_T_COLLAPSE_DROP);
        result->unit      = "fall of the mean normalized entropy";
    } else if (fell && !many) {
        result->value     = fall.newly_sharp;
        result->threshold = hl_limit(e, HL_T_COLLAPSE_NEW);
        result->unit      = "share of heads that became one-hot";
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- overload */

/* Returns the standard deviation of a head's normalized entropy over sequences; NaN for fewer
 * than two. */
static double change_of(const double *values, int64_t n_sequences, int64_t size, int64_t place)
{
    double  mean = 0.0, square = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < n_sequences; i++) {
        double value = values[i * size + place];
        if (isnan(value))
            continue;
        count++;
        double step = value - mean;
        mean += step / (double)count;
        square += step * (value - mean);
    }
    return count > 1 ? sqrt(square / (double)count) : NAN;
}

/* Lists the overloaded heads of a profile. *known: the profile holds several sequences, so their
 * differences could be tested. */
static hl_status list_overloaded(hl_diagnosis *result, bool *known, const hl_examination *e,
                                 const hl_profile *profile)
{
    int64_t          n_sequences = hl_profile_n_sequences(profile);
    int64_t          n_heads     = hl_profile_n_heads(profile);
    HL_FREED double *values      = NULL;

    *known = false;
    HL_NEED(hl_grid_sequences(&values, profile, HL_Q_NORMALIZED));
    HL_EACH_HEAD(profile, layer, head)
    {
        double median = hl_profile_quantile(profile, layer, head, HL_HIST_NORMALIZED, 0.5);
        double change =
            change_of(values, n_sequences, hl_grid_size(profile), layer * n_heads + head);

        *known = *known || !isnan(change);
        if (median >= hl_limit(e, HL_T_OVERLOAD_ENTROPY) &&
            hl_head_is_sound(profile, layer, head) &&
            !(change >= hl_limit(e, HL_T_OVERLOAD_CHANGE)))
            HL_NEED(hl_shown_by_add(result, layer, head, median));
    }
    hl_shown_by_sort(result, true);
    return HL_OK;
}

/* Computes the share of overloaded heads in the earlier profile. */
static hl_status compare_overload(hl_examination *e)
{
    hl_diagnosis other  = { 0 };
    bool         known  = false;
    int64_t      n_all  = 0;
    hl_status    status = list_overloaded(&other, &known, e, e->before);

    HL_EACH_HEAD(e->before, layer, head)
    n_all += hl_head_is_sound(e->before, layer, head);
    if (status == HL_OK && n_all > 0)
        hl_text_addf(&e->against, "In the other profile %lld of %lld heads (%.0f%%). ",
                     (long long)other.n_heads, (long long)n_all,
                     100.0 * (double)other.n_heads / (double)n_all);
    hl_free(other.heads);
    return status;
}

hl_status hl_diagnose_overload(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    bool          known  = false;

    hl_text_addf(&e->rule,
                 "more than %.0f%% of heads with a median normalized entropy of at least %g that "
                 "differs between sequences by less than %g",
                 100.0 * hl_limit(e, HL_T_OVERLOAD_SHARE), hl_limit(e, HL_T_OVERLOAD_ENTROPY),
                 hl_limit(e, HL_T_OVERLOAD_CHANGE));
    HL_NEED(list_overloaded(result, &known, e, e->profile));
    result->threshold = hl_limit(e, HL_T_OVERLOAD_SHARE);
    if (e->n_counted == 0 || e->n_broken > e->n_counted)
        return hl_examination_no_rows(e);
    hl_examination_say_broken(e, &e->against);
    result->value = (double)result->n_heads / (double)e->n_counted;
    if (result->value > result->threshold)
        result->verdict = HL_VERDICT_FOUND;
    hl_text_addf(&e->finding, "%lld of %lld heads (%.0f%%)", (long long)result->n_heads,
                 (long long)e->n_counted, 100.0 * result->value);
    if (!known)
        hl_text_addf(&e->against,
                     "Change between inputs is unknown: there are fewer than two sequences. ");
    if (e->before != NULL) {
        HL_NEED(compare_overload(e));
    } else {
        hl_text_addf(&e->against, "Not compared with random weights.");
        hl_text_addf(&e->measure, "give headlight diagnose a second profile: the same text, and "
                                  "the same architecture with random weights");
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- flat */

static void explain_flat(hl_examination *e, const hl_layer_shape *shape)
{
    int64_t idlest = -1; /* block with the least influence */
    double  least  = NAN;

    for (int64_t layer = 0; layer < hl_profile_n_layers(e->profile); layer++) {
        double influence = hl_profile_block_influence(e->profile, layer);
        if (influence < least || (isnan(least) && !isnan(influence))) {
            least  = influence;
            idlest = layer;
        }
    }
    char name[HL_HEAD_NAME_BYTES];
    hl_text_addf(&e->finding, "range %.4f over %lld layers, standard error per layer %.4f",
                 shape->range, (long long)shape->n_measured, shape->error);
    if (shape->minimum >= 0)
        hl_text_addf(&e->finding, "; lowest in layer %s",
                     hl_layer_word(name, e->profile, shape->minimum));
    hl_text_addf(&e->finding, "; shape: %s", hl_shape_name(shape->kind));
    if (!isnan(shape->spearman))
        hl_text_addf(&e->against, "Rank correlation with depth %.2f. ", shape->spearman);
    if (idlest >= 0)
        hl_text_addf(&e->against, "Least block influence: %.3f in layer %s.", least,
                     hl_layer_word(name, e->profile, idlest));
    else
        hl_text_addf(&e->against, "Block influence was not measured.");
}

hl_status hl_diagnose_flat(hl_examination *e)
{
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *layers = NULL;
    double                                             least  = hl_limit(e, HL_T_FLAT_RANGE);
    double                                             errors = hl_limit(e, HL_T_FLAT_ERRORS);
    hl_quantity                                        of     = HL_Q_NORMALIZED;

    hl_text_addf(&e->rule,
                 "the layers' mean normalized entropies range over less than %g; a larger range "
                 "counts only if it is at least %g standard errors of a layer",
                 least, errors);
    HL_NEED(hl_layer_profile_new(&layers, e->profile, of, errors));
    if (isnan(layers->shape.range)) { /* no row sees 16 keys */
        of = HL_Q_ENTROPY;
        hl_layer_profile_free(hl_taken(&layers));
        HL_NEED(hl_layer_profile_new(&layers, e->profile, of, errors));
        e->result->unit = "nats";
    }
    e->result->value     = layers->shape.range;
    e->result->threshold = least;
    e->result->errors    = layers->shape.range / layers->shape.error;
    if (e->n_broken > e->n_counted)
        return hl_examination_no_rows(e);
    if (hl_profile_n_layers(e->profile) < 2)
        return hl_examination_not_run(e, "at least 2 layers", "one layer has no profile");
    if (isnan(layers->shape.range) || isnan(layers->shape.error)) {
        char needs[80] = "4 windows of text in every layer";

        if (hl_profile_n_sequences(e->profile) < HL_MIN_UNITS)
            snprintf(needs, sizeof needs, "at least %d windows of text; the profile has %lld",
                     HL_MIN_UNITS, (long long)hl_profile_n_sequences(e->profile));
        return hl_examination_not_run(
            e, needs, "measure the model on a longer text, or with a shorter --context");
    }
    if (layers->shape.range >= least && layers->shape.range < errors * layers->shape.error) {
        char needs[120];

        snprintf(needs, sizeof needs, "more text: the range of %.3f is %.1f standard errors",
                 layers->shape.range, e->result->errors);
        return hl_examination_not_run(e, needs, "measure the model on a longer text");
    }
    e->result->verdict = layers->shape.range < least ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND;
    explain_flat(e, &layers->shape);
    return HL_OK;
}

/* -------------------------------------------------------------------- drift */

/* Lists the heads that changed since the earlier profile, the largest change first. */
static hl_status list_moved(double *furthest, hl_examination *e)
{
    *furthest = NAN;
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double moved = hl_profile_mean(e->profile, layer, head, HL_Q_NORMALIZED) -
                       hl_profile_mean(e->before, layer, head, HL_Q_NORMALIZED);

        *furthest = fmax(*furthest, fabs(moved)); /* fmax ignores NaN */
        if (fabs(moved) >= hl_limit(e, HL_T_DRIFT_ENTROPY))
            HL_NEED(hl_shown_by_add(e->result, layer, head, fabs(moved)));
    }
    hl_shown_by_sort(e->result, true);
    return HL_OK;
}

static bool same_shape(const hl_profile *a, const hl_profile *b)
{
    bool same = hl_profile_n_layers(a) == hl_profile_n_layers(b) &&
                hl_profile_n_heads(a) == hl_profile_n_heads(b);

    for (int64_t layer = 0; same && layer < hl_profile_n_layers(a); layer++)
        same = hl_profile_heads_of(a, layer) == hl_profile_heads_of(b, layer);
    return same;
}

hl_status hl_diagnose_drift(hl_examination *e)
{
    static const char how[] = "measure the model before and after on the same text with --nll, and "
                              "give headlight diagnose both profiles";
    hl_diagnosis     *result = e->result;
    double            least  = hl_limit(e, HL_T_DRIFT_LOSS);
    double            furthest;

    result->threshold = hl_limit(e, HL_T_DRIFT_ENTROPY);
    hl_text_addf(&e->rule,
                 "since an earlier profile of the same text the loss rose by at least %g nats, and "
                 "the normalized entropy of a head changed by at least %g",
                 least, result->threshold);
    if (e->before == NULL)
        return hl_examination_not_run(e, "an earlier profile of the same text, with the loss", how);
    if (!same_shape(e->profile, e->before) || !hl_same_text(e->profile, e->before))
        return hl_examination_not_run(e, "two profiles of the same heads on the same text", how);
    double rise = loss_rise(e);
    HL_NEED(list_moved(&furthest, e));
    if (isnan(rise) || isnan(furthest))
        return hl_examination_not_run(e, "finite losses and entropies in both profiles", how);
    result->value = furthest;
    result->verdict =
        rise >= least && result->n_heads > 0 ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND;
    hl_text_addf(&e->finding,
                 "the loss %s %.3f nats; %lld of %lld heads changed, the furthest by %.3f",
                 rise > 0.0 ? "rose by" : "fell by", fabs(rise), (long long)result->n_heads,
                 (long long)e->n_counted, furthest);
    if (result->verdict == HL_VERDICT_NOT_FOUND && result->n_heads > 0) {
        hl_text_addf(&e->against, "Heads change while a model learns: the loss decides.");
        result->value = NAN; /* another part of the rule decided, so the value would mislead */
    }
    return HL_OK;
}
