/* diagnose_heads.c - redundant, inactive, resting and broken heads. */
#include <math.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

/* What a profile does not hold: the loss without the first heads that were found. */
static void ask_for_ablation(hl_examination *e)
{
    enum { NAMED = 4 };
    const hl_diagnosis *result = e->result;

    hl_text_addf(&e->measure, "the loss without them: headlight eval with --off ");
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
    hl_status status  = HL_OK;
    int64_t   n_heads = hl_profile_n_heads(e->profile);
    double   *fair    = NULL;
    double    least   = NAN;
    int64_t   where   = -1;

    HL_TRY(hl_grid_means(&fair, e->profile, HL_Q_FAIR));
    for (int64_t layer = 0; layer < hl_profile_n_layers(e->profile); layer++) {
        double spread = sqrt(hl_variance(fair + layer * n_heads, n_heads));
        if (!isnan(spread) && (where < 0 || spread < least)) {
            least = spread;
            where = layer;
        }
    }
    if (where >= 0)
        hl_text_addf(&e->against,
                     "Screen: the heads of layer %lld differ least, by %.4f in fair entropy. ",
                     (long long)where, least);

done:
    hl_free(fair);
    return status;
}

hl_status hl_diagnose_redundancy(hl_examination *e)
{
    hl_status     status = HL_OK;
    hl_diagnosis *result = e->result;
    pair_count    pairs;

    result->threshold = hl_limit(e, HL_T_REDUNDANCY_SIMILARITY);
    hl_text_addf(&e->rule,
                 "two heads of a layer whose sampled rows have a similarity (1 - mean total "
                 "variation) of at least %g, on all keys and on the keys beside the first; "
                 "confirmed where ablation costs less than 0.005 nats",
                 result->threshold);
    HL_NEED(list_pairs(&pairs, e));
    HL_NEED(add_screen(e));
    if (pairs.n_sinks > 0)
        hl_text_addf(&e->against,
                     "Not counted: %lld pair%s alike only in resting on the first key. ",
                     (long long)pairs.n_sinks, pairs.n_sinks == 1 ? "" : "s");
    result->value = pairs.most;
    if (pairs.n_measured == 0) {
        status = hl_examination_not_run(e, "sampled rows of two heads of a layer",
                                        "measure the model itself: rows are sampled as it runs");
        return status;
    }
    hl_shown_by_sort(result, true);
    drop_repeats(result);
    if (pairs.n_redundant == 0) {
        hl_text_addf(&e->finding, "the most alike of %lld pairs: %.3f", (long long)pairs.n_measured,
                     pairs.most);
        return status;
    }
    result->verdict = HL_VERDICT_FOUND;
    ask_for_ablation(e);
    hl_text_addf(&e->against, "Ablation is not measured: the pairs are candidates.");
    return status;
}

/* ----------------------------------------------------------------- inactive */

hl_status hl_diagnose_inactive(hl_examination *e)
{
    hl_status     status     = HL_OK;
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
        result->value = fmin(result->value, norm); /* passes the first NaN over */
        if (norm < result->threshold)
            HL_NEED(hl_shown_by_add(result, layer, head, norm));
    }
    hl_shown_by_sort(result, false);
    if (n_measured == 0) {
        status = hl_examination_not_run(e, "the norms of what heads write",
                                        "measure the model itself: maps alone do not have them");
        return status;
    }
    hl_text_addf(&e->finding, "%lld of %lld heads; lowest relative output norm: %.3f",
                 (long long)result->n_heads, (long long)n_measured, result->value);
    if (result->n_heads > 0) {
        result->verdict = HL_VERDICT_FOUND;
        hl_text_addf(&e->against, "A small norm can still matter where a later norm scales it up: "
                                  "ablation is not measured.");
        ask_for_ablation(e);
    }
    return status;
}

/* -------------------------------------------------------------------- sinks */

/* The mean over the listed heads of their median normalised entropy without the first key. */
static double entropy_elsewhere(const hl_examination *e)
{
    double  sum   = 0.0;
    int64_t count = 0;

    for (int64_t i = 0; i < e->result->n_heads; i++) {
        double median = hl_profile_quantile(e->profile, e->result->heads[i].layer,
                                            e->result->heads[i].head, HL_HIST_NOSINK, 0.5);
        if (!isnan(median)) {
            sum += median;
            count++;
        }
    }
    return count > 0 ? sum / (double)count : NAN;
}

hl_status hl_diagnose_sinks(hl_examination *e)
{
    hl_status     status = HL_OK;
    hl_diagnosis *result = e->result;

    result->threshold = hl_limit(e, HL_T_SINK_MASS);
    hl_text_addf(&e->rule, "a mean attention of more than %g to the first key", result->threshold);
    HL_EACH_HEAD(e->profile, layer, head)
    {
        double first = hl_profile_mean(e->profile, layer, head, HL_Q_FIRST);

        result->value = fmax(result->value, first); /* passes NaN over */
        if (first > result->threshold)
            HL_NEED(hl_shown_by_add(result, layer, head, first));
    }
    hl_shown_by_sort(result, true);
    if (isnan(result->value)) {
        status = hl_examination_not_run(e, "rows that see the first key, and none was counted",
                                        "measure the model on a longer text");
        return status;
    }
    hl_text_addf(&e->finding, "%lld of %lld heads; highest: %.3f", (long long)result->n_heads,
                 (long long)e->n_counted, result->value);
    if (result->n_heads > 0) {
        result->verdict = HL_VERDICT_FOUND;
        hl_text_addf(&e->against,
                     "Most trained decoders have such heads. Without the first key their median "
                     "normalised entropy is %.2f.",
                     entropy_elsewhere(e));
    }
    return status;
}

/* ------------------------------------------------------------------- broken */

static void say_where(hl_examination *e, const hl_shown_by *at)
{
    int64_t document = 0, token = 0;

    hl_text_addf(&e->finding, "L%lldH%lld: %.0f rows", (long long)at->layer, (long long)at->head,
                 at->value);
    if (hl_profile_broken_place(&document, &token, e->profile, at->layer, at->head))
        hl_text_addf(&e->finding, ", the first in document %lld at token %lld", (long long)document,
                     (long long)token);
}

hl_status hl_diagnose_broken(hl_examination *e)
{
    hl_diagnosis *result = e->result;
    double        total  = 0.0;
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
        hl_text_addf(&e->finding, "%.0f rows are not finite; %lld heads have no valid row", total,
                     (long long)n_dead);
    if (result->n_heads > 0) {
        hl_text_addf(&e->finding, "; ");
        say_where(e, &result->heads[0]);
    }
    return HL_OK;
}
