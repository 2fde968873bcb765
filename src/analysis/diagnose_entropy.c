/* diagnose_entropy.c - collapse, overload, locking, and a flat profile. */
#include <math.h>
#include <stdio.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/memory.h"
#include "base/status.h"

/* ----------------------------------------------------------------- collapse */

/* What the collapsed heads collapsed onto. */
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

/* How far the mean fell since `before`, in robust standard deviations of its sequences; NaN where
 * that cannot be said, with the reason in `against`. */
static hl_status find_fall(double *out, hl_examination *e)
{
    hl_level before, now;

    *out = NAN;
    if (!hl_same_setting(e->profile, e->before, "context")) {
        hl_text_addf(&e->against,
                     "Not compared with the earlier profile, which has another context. ");
        return HL_OK;
    }
    HL_NEED(hl_level_of(&before, e->before));
    HL_NEED(hl_level_of(&now, e->profile));
    *out = hl_level_fall(&before, &now);
    if (isnan(*out))
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

        if (median < hl_limit(e, HL_T_COLLAPSE_ENTROPY) &&
            hl_head_is_sound(e->profile, layer, head))
            HL_NEED(hl_shown_by_add(e->result, layer, head, median));
    }
    hl_shown_by_sort(e->result, false);
    return HL_OK;
}

static void explain_collapse(hl_examination *e, double fall)
{
    split counts = split_heads(e);

    hl_text_addf(&e->finding, "%lld of %lld heads (%.0f%%)", (long long)e->result->n_heads,
                 (long long)e->n_counted, 100.0 * e->result->value);
    if (e->result->n_heads > 0)
        hl_text_addf(&e->finding, ": %lld sink, %lld positional, %lld content",
                     (long long)counts.n_sink, (long long)counts.n_positional,
                     (long long)counts.n_content);
    if (!isnan(fall))
        hl_text_addf(&e->finding, "; since the earlier profile the mean %s %.1f robust sigma",
                     fall >= 0.0 ? "fell by" : "rose by", fabs(fall));
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
    double        fall   = NAN;

    hl_text_addf(&e->rule,
                 "more than %.0f%% of heads with a median normalized entropy, first token "
                 "excluded, under %g; or since an earlier profile of the same context a fall of "
                 "the mean by more than %g robust sigma",
                 100.0 * hl_limit(e, HL_T_COLLAPSE_SHARE), hl_limit(e, HL_T_COLLAPSE_ENTROPY),
                 hl_limit(e, HL_T_COLLAPSE_FALL));
    HL_NEED(list_collapsed(e));
    if (e->before != NULL)
        HL_NEED(find_fall(&fall, e));
    result->threshold = hl_limit(e, HL_T_COLLAPSE_SHARE);
    if (e->n_counted == 0 || e->n_broken > e->n_counted)
        return hl_examination_no_rows(e);
    hl_examination_say_broken(e, &e->against);
    result->value = (double)result->n_heads / (double)e->n_counted;
    bool many     = result->value > result->threshold;
    bool fell     = fall > hl_limit(e, HL_T_COLLAPSE_FALL);
    explain_collapse(e, fall);
    if (many || fell)
        result->verdict = HL_VERDICT_FOUND;
    if (fell && !many) {
        result->value     = fall;
        result->threshold = hl_limit(e, HL_T_COLLAPSE_FALL);
    }
    return HL_OK;
}

/* ----------------------------------------------------------------- overload */

/* How much a head's normalized entropy differs between sequences; NaN of fewer than two. */
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

/* Lists the overloaded heads of a profile; *known: change between inputs could be looked at. */
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

/* The share of the same heads in the profile to compare with. */
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

/* ------------------------------------------------------------------ locking */

/* Has attention stopped moving while the model speaks?
 *
 * Windows slide a token at a time.  Locked is a window whose entropy keeps its level
 * (the drift over the window, |slope| times its length, and the spread are both under a
 * threshold) and whose rows hardly differ from the ones before; but only if the rows of
 * some window that ended before it began did move.  A model that never moved was
 * never free: that is collapse or overload, not locking. */

typedef struct window {
    double slope;
    double spread;
    double change;
} window;

/* The least-squares slope of values over their places. */
static double slope_of(const double *values, int64_t count)
{
    double middle = 0.5 * (double)(count - 1);
    double mean   = hl_mean(values, count);
    double xy = 0.0, xx = 0.0;

    for (int64_t i = 0; i < count; i++) {
        double x = (double)i - middle;
        xy += x * (values[i] - mean);
        xx += x * x;
    }
    return xx > 0.0 ? xy / xx : 0.0;
}

hl_status hl_find_locking(hl_locking *out, const double *entropy, const double *change,
                          int64_t n_tokens, const hl_thresholds *thresholds)
{
    int64_t length = (int64_t)hl_threshold_of(thresholds, HL_T_LOCKING_WINDOW);
    double  still  = hl_threshold_of(thresholds, HL_T_LOCKING_CHANGE);
    double  level  = hl_threshold_of(thresholds, HL_T_LOCKING_SPREAD);
    bool    moved  = false;

    *out = (hl_locking){ false, -1, NAN, NAN, NAN, 0 };
    if (length < 2)
        return hl_fail(HL_BAD_ARGUMENT, "locking-window is %lld tokens; at least 2 are needed",
                       (long long)length);
    for (int64_t first = 0; first + length <= n_tokens; first++) {
        window w = { slope_of(entropy + first, length), sqrt(hl_variance(entropy + first, length)),
                     hl_mean(change + first, length) };

        out->n_windows++;
        /* The window that ends where this one begins. */
        if (first >= length)
            moved = moved || hl_mean(change + first - length, length) >= still;
        if (moved && w.change < still && w.spread < level &&
            fabs(w.slope) * (double)length < level) {
            out->locked = true;
            out->first  = first;
            out->slope  = w.slope;
            out->spread = w.spread;
            out->change = w.change;
            return HL_OK;
        }
    }
    return HL_OK;
}

/* What hl_find_locking looks at: generated tokens, but those that have no row before. */
typedef struct decoded {
    double  *entropy;
    double  *change;
    int64_t *tokens; /* where they are in the trace */
    int64_t  n_tokens;
    int64_t  n_generated;
} decoded;

static void free_decoded(decoded *text)
{
    hl_free(text->entropy);
    hl_free(text->change);
    hl_free(text->tokens);
}

static hl_status read_decoded(decoded *out, const hl_trace *trace)
{
    size_t n = (size_t)hl_trace_n_tokens(trace);

    HL_NEED(HL_ALLOC(&out->entropy, n));
    HL_NEED(HL_ALLOC(&out->change, n));
    HL_NEED(HL_ALLOC(&out->tokens, n));
    for (int64_t token = 0; token < hl_trace_n_tokens(trace); token++) {
        double change = hl_trace_mean(trace, token, HL_TRACE_CHANGE);

        if (hl_trace_describe(trace, token).kind != HL_KIND_GENERATED)
            continue;
        out->n_generated++;
        if (isnan(change))
            continue;
        out->entropy[out->n_tokens]  = hl_trace_mean(trace, token, HL_TRACE_NORMALIZED);
        out->change[out->n_tokens]   = change;
        out->tokens[out->n_tokens++] = token;
    }
    return HL_OK;
}

/* Heads whose own rows were still in the window of these tokens. */
static hl_status list_locked(hl_examination *e, const int64_t *tokens, int64_t length)
{
    int64_t n_heads = hl_trace_n_heads(e->trace);

    for (int64_t i = 0; i < hl_trace_n_layers(e->trace) * n_heads; i++) {
        double sum = 0.0;
        for (int64_t j = 0; j < length; j++)
            sum += hl_trace_row(e->trace, tokens[j], i / n_heads, i % n_heads, HL_TRACE_CHANGE);
        if (sum / (double)length < e->result->threshold)
            HL_NEED(hl_shown_by_add(e->result, i / n_heads, i % n_heads, sum / (double)length));
    }
    hl_shown_by_sort(e->result, false);
    return HL_OK;
}

static hl_status find_locked(hl_examination *e, const decoded *text)
{
    hl_locking found;
    char       needs[96], how[96];
    int64_t    length = (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW);

    HL_NEED(hl_find_locking(&found, text->entropy, text->change, text->n_tokens, e->thresholds));
    if (text->n_tokens < 2 * length) {
        snprintf(needs, sizeof needs, "%lld generated tokens; the trace has %lld",
                 (long long)(2 * length + 1), (long long)text->n_generated);
        snprintf(how, sizeof how, "run headlight generate again with --max-tokens %lld and --trace",
                 (long long)(2 * length + 1));
        return hl_examination_not_run(e, needs, how);
    }
    e->result->value = found.change;
    for (int64_t first = 0; !found.locked && first + length <= text->n_tokens; first++)
        e->result->value = fmin(e->result->value, hl_mean(text->change + first, length));
    e->result->verdict = found.locked ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND;
    if (!found.locked) {
        hl_text_addf(&e->finding, "smallest change of rows in any of %lld windows: %.4f",
                     (long long)found.n_windows, e->result->value);
        if (e->result->value < e->result->threshold) {
            hl_text_addf(&e->finding, ", but there the entropy moves, or no earlier window moved");
            /* Another part of the rule decided: this number would mislead. */
            e->result->value = NAN;
        }
        return HL_OK;
    }
    hl_text_addf(&e->finding,
                 "from token %lld on rows change by %.4f; entropy drifts by %.4f and spreads by "
                 "%.4f",
                 (long long)text->tokens[found.first], found.change,
                 fabs(found.slope) * (double)length, found.spread);
    hl_text_addf(&e->against, "A text that repeats itself looks the same: read it at that place.");
    return list_locked(e, text->tokens + found.first, length);
}

hl_status hl_diagnose_locking(hl_examination *e)
{
    HL_SCOPED(free_decoded) decoded text = { 0 };

    hl_text_addf(&e->rule,
                 "in a generated text, after a window in which attention moved, a window of %g "
                 "tokens in which entropy drifts and spreads by less than %g and each row differs "
                 "from the one before by less than %g",
                 hl_limit(e, HL_T_LOCKING_WINDOW), hl_limit(e, HL_T_LOCKING_SPREAD),
                 hl_limit(e, HL_T_LOCKING_CHANGE));
    e->result->threshold = hl_limit(e, HL_T_LOCKING_CHANGE);
    if (e->trace == NULL) {
        char    needs[64], how[160];
        int64_t n_tokens = 2 * (int64_t)hl_limit(e, HL_T_LOCKING_WINDOW) + 1;

        snprintf(needs, sizeof needs, "%lld generated tokens", (long long)n_tokens);
        snprintf(how, sizeof how,
                 "write a trace with headlight generate --max-tokens %lld --trace, then give it to "
                 "headlight diagnose --trace",
                 (long long)n_tokens);
        return hl_examination_not_run(e, needs, how);
    }
    HL_NEED(read_decoded(&text, e->trace));
    return find_locked(e, &text);
}

/* --------------------------------------------------------------------- flat */

static void explain_flat(hl_examination *e, const hl_layer_shape *shape)
{
    int64_t idlest = -1; /* the least influential block */
    double  least  = NAN;

    for (int64_t layer = 0; layer < hl_profile_n_layers(e->profile); layer++) {
        double influence = hl_profile_block_influence(e->profile, layer);
        if (influence < least || (isnan(least) && !isnan(influence))) {
            least  = influence;
            idlest = layer;
        }
    }
    hl_text_addf(&e->finding, "range %.4f over %lld layers, standard error per layer %.4f",
                 shape->range, (long long)hl_profile_n_layers(e->profile), shape->error);
    if (shape->minimum >= 0)
        hl_text_addf(&e->finding, "; lowest in layer %lld", (long long)shape->minimum);
    if (!isnan(shape->spearman))
        hl_text_addf(&e->against, "Rank correlation with depth %.2f. ", shape->spearman);
    if (idlest >= 0)
        hl_text_addf(&e->against, "Least block influence: %.3f in layer %lld.", least,
                     (long long)idlest);
    else
        hl_text_addf(&e->against, "Block influence was not measured.");
}

hl_status hl_diagnose_flat(hl_examination *e)
{
    HL_CLOSED(hl_layer_profile_free) hl_layer_profile *layers = NULL;
    double                                             errors = hl_limit(e, HL_T_FLAT_ERRORS);

    hl_text_addf(&e->rule,
                 "the range of the layers' mean normalized entropies is under %g standard errors",
                 errors);
    HL_NEED(hl_layer_profile_new(&layers, e->profile, HL_Q_NORMALIZED, errors, 0));
    if (isnan(layers->shape.range)) { /* no row saw 16 keys */
        hl_layer_profile_free(hl_taken(&layers));
        HL_NEED(hl_layer_profile_new(&layers, e->profile, HL_Q_ENTROPY, errors, 0));
    }
    e->result->value     = layers->shape.range;
    e->result->threshold = errors * layers->shape.error;
    if (isnan(layers->shape.range) || isnan(layers->shape.error)) {
        char needs[80] = "2 windows of text in every layer";

        if (hl_profile_n_sequences(e->profile) < 2)
            snprintf(needs, sizeof needs, "at least 2 windows of text; the profile has %lld",
                     (long long)hl_profile_n_sequences(e->profile));
        return hl_examination_not_run(
            e, needs, "measure the model on a longer text, or with a shorter --context");
    }
    e->result->verdict = layers->shape.flat ? HL_VERDICT_FOUND : HL_VERDICT_NOT_FOUND;
    explain_flat(e, &layers->shape);
    return HL_OK;
}
