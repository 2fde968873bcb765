/* diagnose_heads.c - checks of single heads: broken, inactive and alike ones, and those that look at the
 * first or at the previous token.
 *
 * Sink heads, previous-token heads and heads that are alike are observations: models in good order
 * have them (usual.c says how many).  That most heads of a model have a twin is an alarm. */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"

/* Suggests a measurement that a profile does not hold: the loss without the first heads that
 * were found. */
static void ask_for_ablation(hl_examination *e)
{
    enum { NAMED = 4 };
    const hl_diagnosis *result = e->result;
    char                name[HL_HEAD_NAME_BYTES];

    hl_text_addf(&e->measure, "the loss with them disabled: headlight eval --off ");
    for (int64_t i = 0; i < result->n_heads && i < NAMED; i++)
        hl_text_addf(
            &e->measure, "%s%s", i > 0 ? "," : "",
            hl_profile_head_name(name, e->profile, result->heads[i].layer, result->heads[i].head));
}

/* -------------------------------------------------------------- alike heads */

/* Returns the head of the pair that writes less; the second one if that is unknown. */
static int64_t weaker(const hl_profile *profile, int64_t layer, int64_t a, int64_t b)
{
    double norm_a = hl_profile_output_norm(profile, layer, a);
    double norm_b = hl_profile_output_norm(profile, layer, b);

    return norm_a < norm_b ? a : b;
}

typedef enum alike {
    ALIKE_TWINS, /* alike on all keys, and also without the first key */
    ALIKE_SINKS, /* alike only because both look at the first key */
} alike;

typedef struct pair_count {
    int64_t n_measured;
    int64_t n_alike;
    double  most; /* largest similarity without the first key; NaN if no pair has one */
} pair_count;

/* Lists the weaker head of each pair of this kind. If `said`, the finding names the first pairs. */
static hl_status list_pairs(pair_count *out, hl_examination *e, alike kind, bool said)
{
    enum { SAID = 6 };
    double limit = hl_limit(e, HL_T_REDUNDANCY_SIMILARITY);

    *out = (pair_count){ .most = NAN };
    HL_EACH_HEAD(e->profile, layer, b)
    {
        for (int64_t a = 0; a < b; a++) {
            char   name[HL_HEAD_NAME_BYTES];
            double all    = hl_profile_similarity(e->profile, layer, a, b);
            double beside = hl_similarity_in_common(e->profile, layer, a, b);

            if (isnan(all) || !hl_head_is_sound(e->profile, layer, a) ||
                !hl_head_is_sound(e->profile, layer, b))
                continue;
            out->n_measured++;
            out->most = fmax(out->most, beside); /* fmax ignores NaN */
            if (kind == ALIKE_TWINS ? beside < limit : all < limit || beside >= limit)
                continue;
            if (out->n_alike++ < SAID && said)
                hl_text_addf(&e->finding, "%s%s and H%lld (%.3f)", out->n_alike > 1 ? ", " : "",
                             hl_profile_head_name(name, e->profile, layer, a), (long long)b,
                             kind == ALIKE_TWINS ? beside : all);
            HL_NEED(hl_shown_by_add(e->result, layer, weaker(e->profile, layer, a, b),
                                    kind == ALIKE_TWINS ? beside : all));
        }
    }
    if (out->n_alike > SAID && said)
        hl_text_addf(&e->finding, " and %lld pairs more", (long long)(out->n_alike - SAID));
    return HL_OK;
}

/* Lists a head that is the weaker one of several pairs only once. */
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

/* Lists each head once; the value is their share of all heads. */
static hl_status find_alike(pair_count *pairs, hl_examination *e, alike kind, bool said)
{
    HL_NEED(list_pairs(pairs, e, kind, said));
    hl_shown_by_sort(e->result, true);
    drop_repeats(e->result);
    e->result->value =
        e->n_counted > 0 ? (double)e->result->n_heads / (double)e->n_counted : (double)NAN;
    if (pairs->n_measured > 0)
        return HL_OK;
    return hl_examination_not_run(e, "sampled rows of two heads of a layer",
                                  "measure the model itself: rows are sampled while it runs");
}

/* Adds the layer whose heads have the most similar entropies. */
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
    char name[HL_HEAD_NAME_BYTES];
    if (where >= 0)
        hl_text_addf(&e->against,
                     "The heads of layer %s differ least: standard deviation %.4f of their "
                     "normalized entropies.",
                     hl_layer_word(name, e->profile, where), least);
    return HL_OK;
}

hl_status hl_diagnose_redundancy(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    pair_count    pairs;

    result->threshold = hl_limit(e, HL_T_REDUNDANCY_SHARE);
    hl_text_addf(&e->rule,
                 "more than %.0f%% of heads have a stronger twin in their layer: sampled rows "
                 "with a similarity (1 - mean total variation) of at least %g, on all keys and on "
                 "the keys other than the first",
                 100.0 * result->threshold, hl_limit(e, HL_T_REDUNDANCY_SIMILARITY));
    HL_NEED(find_alike(&pairs, e, ALIKE_TWINS, false));
    HL_NEED(add_screen(e));
    if (pairs.n_measured == 0)
        return HL_OK;
    hl_text_addf(&e->finding, "%lld of %lld heads (%.0f%%); highest similarity of %lld pairs: %.3f",
                 (long long)result->n_heads, (long long)e->n_counted, 100.0 * result->value,
                 (long long)pairs.n_measured, pairs.most);
    if (!(result->value > result->threshold))
        return HL_OK;
    result->verdict = HL_VERDICT_FOUND;
    ask_for_ablation(e);
    return HL_OK;
}

hl_status hl_observe_alike(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    pair_count    pairs;

    result->threshold = 0.0;
    hl_text_addf(&e->rule,
                 "two heads of a layer whose sampled rows have a similarity (1 - mean total "
                 "variation) of at least %g, on all keys and on the keys other than the first; "
                 "the pair is confirmed if disabling one head changes the loss by less than "
                 "0.005 nats",
                 hl_limit(e, HL_T_REDUNDANCY_SIMILARITY));
    HL_NEED(find_alike(&pairs, e, ALIKE_TWINS, true));
    if (pairs.n_measured == 0)
        return HL_OK;
    if (pairs.n_alike == 0) {
        hl_text_addf(&e->finding, "highest similarity of %lld pairs: %.3f",
                     (long long)pairs.n_measured, pairs.most);
        return HL_OK;
    }
    result->verdict = HL_VERDICT_FOUND;
    ask_for_ablation(e);
    hl_text_addf(&e->against, "Ablation was not measured, so these pairs are candidates.");
    return HL_OK;
}

hl_status hl_observe_alike_sinks(hl_examination *e)
{
    pair_count pairs;

    e->result->threshold = 0.0;
    hl_text_addf(&e->rule,
                 "two heads of a layer whose sampled rows have a similarity of at least %g on all "
                 "keys, and less on the keys other than the first",
                 hl_limit(e, HL_T_REDUNDANCY_SIMILARITY));
    HL_NEED(find_alike(&pairs, e, ALIKE_SINKS, true));
    if (pairs.n_measured == 0)
        return HL_OK;
    if (pairs.n_alike == 0)
        hl_text_addf(&e->finding, "none of %lld pairs", (long long)pairs.n_measured);
    else
        e->result->verdict = HL_VERDICT_FOUND;
    return HL_OK;
}

/* ----------------------------------------------------------------- inactive */

hl_status hl_diagnose_inactive(hl_examination *e)
{
    hl_diagnosis *result     = e->result;
    int64_t       n_measured = 0;

    result->threshold = hl_limit(e, HL_T_INACTIVE_NORM);
    hl_text_addf(&e->rule, "what a head writes has a mean norm under %g of its layer's mean",
                 result->threshold);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double norm = hl_profile_output_norm(e->profile, layer, head);

        if (isnan(norm))
            continue;
        n_measured++;
        result->value = fmin(result->value, norm); /* fmin ignores NaN */
        if (norm < result->threshold)
            HL_NEED(hl_shown_by_add(result, layer, head, norm));
    }
    hl_shown_by_sort(result, false);
    if (n_measured == 0)
        return hl_examination_not_run(e, "the norms of what heads write",
                                      "measure the model itself: maps alone do not have them");
    hl_text_addf(&e->finding, "%lld of %lld heads; lowest relative output norm: %.3f",
                 (long long)result->n_heads, (long long)n_measured, result->value);
    if (result->n_heads > 0) {
        result->verdict = HL_VERDICT_FOUND;
        hl_text_addf(&e->against, "A small norm can still matter where a later norm scales it up: "
                                  "ablation is not measured.");
        ask_for_ablation(e);
    }
    return HL_OK;
}

/* ---------------------------------------------- the first and previous token */

/* Returns the mean, over the listed heads, of their median normalized entropy without the first
 * key. */
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

/* Lists the heads whose mean attention to one of the quantities self, previous, first is above a
 * limit. */
static hl_status find_looking(hl_examination *e, hl_quantity at, double limit, const char *key)
{
    hl_diagnosis *result  = e->result;
    double        highest = NAN;
    char          needs[96];

    result->threshold = 0.0;
    hl_text_addf(&e->rule, "heads with a mean attention of more than %g to the %s", limit, key);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double mean = hl_profile_mean(e->profile, layer, head, at);

        highest = fmax(highest, mean); /* fmax ignores NaN */
        if (mean > limit)
            HL_NEED(hl_shown_by_add(result, layer, head, mean));
    }
    hl_shown_by_sort(result, true);
    if (isnan(highest) || e->n_counted == 0) {
        snprintf(needs, sizeof needs, "rows that see the %s, and none was counted", key);
        return hl_examination_not_run(e, needs, "measure the model on a longer text");
    }
    result->value   = (double)result->n_heads / (double)e->n_counted;
    result->verdict = result->n_heads > 0 ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND;
    hl_text_addf(&e->finding, "%lld of %lld heads (%.0f%%); highest: %.3f",
                 (long long)result->n_heads, (long long)e->n_counted, 100.0 * result->value,
                 highest);
    return HL_OK;
}

hl_status hl_observe_sinks(hl_examination *e)
{
    HL_NEED(find_looking(e, HL_Q_FIRST, hl_limit(e, HL_T_SINK_MASS), "first key"));
    if (e->result->n_heads > 0)
        hl_text_addf(&e->against, "Without the first key their median normalized entropy is %.2f.",
                     entropy_elsewhere(e));
    return HL_OK;
}

hl_status hl_observe_previous(hl_examination *e)
{
    return find_looking(e, HL_Q_PREVIOUS, hl_limit(e, HL_T_PREVIOUS_MASS), "previous token");
}

/* ------------------------------------------------------------------- broken */

hl_status hl_diagnose_broken(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    double        total = 0.0, rows = 0.0;
    int64_t       n_dead = 0;

    result->threshold = hl_limit(e, HL_T_BROKEN_ROWS);
    hl_text_addf(&e->rule,
                 "more than %g rows that are not finite (NaN or infinity) or have an entropy over "
                 "ln n + 0.001; or a head without a single good row",
                 result->threshold);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        int64_t broken = hl_profile_broken(e->profile, layer, head);
        int64_t good   = hl_profile_moments(e->profile, layer, head, HL_Q_ENTROPY).count;

        total += (double)broken;
        rows += (double)(broken + good);
        n_dead += good == 0;
        if (broken > 0 || good == 0)
            HL_NEED(hl_shown_by_add(result, layer, head, (double)broken));
    }
    hl_shown_by_sort(result, true);
    result->value = total;
    if (total > result->threshold || n_dead > 0)
        result->verdict = HL_VERDICT_FOUND;
    if (total <= result->threshold && n_dead > 0) { /* dead heads decided, so their number is the
                                                     * value */
        result->value     = (double)n_dead;
        result->threshold = 0.0;
    }
    if (result->n_heads == 0)
        hl_text_addf(&e->finding, "no NaN or Inf rows; all heads valid");
    else
        hl_text_addf(&e->finding,
                     "%.0f NaN or Inf rows (%.2g%% of all); %lld heads without a valid row", total,
                     100.0 * total / fmax(rows, 1.0), (long long)n_dead);
    if (result->n_heads > 0) {
        const hl_shown_by *at       = &result->heads[0];
        int64_t            document = 0, token = 0;
        char               name[HL_HEAD_NAME_BYTES];

        hl_text_addf(&e->finding, "; %s: %.0f rows",
                     hl_profile_head_name(name, e->profile, at->layer, at->head), at->value);
        if (hl_profile_broken_place(&document, &token, e->profile, at->layer, at->head))
            hl_text_addf(&e->finding, ", the first in document %lld at token %lld",
                         (long long)document, (long long)token);
    }
    return HL_OK;
}
