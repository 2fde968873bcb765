/* series.c - a training run: what each checkpoint's profile says, and whether attention fell.
 *
 * A fall is looked for among the n_back steps before a checkpoint:
 *
 *     level   o   o                           median of the highest of these
 *                     o   o                   - level of the new one
 *                             o   <- new      = drop, also in sigmas of the highest one's sequences
 *
 * Against the checkpoint just before, a slow collapse would never be seen; against the first of all,
 * every run would fall, since attention sharpens as training begins.  A fall is a collapse only if
 * the loss did not fall with it (hl_fall_is_collapse). */
#include "analysis/series_parts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/numbers.h"
#include "base/buffer.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

enum { DEFAULT_BACK = 5 };
enum { BROKEN = 0, COLLAPSE = 1, DRIFT = 8 }; /* indices in the list of checks */

const char *const hl_series_settings[HL_SERIES_N_SETTINGS] = {
    "family",  "context", "stride",    "seed",     "pack",  "nll",     "probe",
    "epsilon", "samples", "tokenizer", "adjusted", "gates", "special", /* the setting is missing if
                                                                        * the profile does not have
                                                                        * it */
};

/* ------------------------------------------------------------- new and free */

hl_status hl_series_new(hl_series **out)
{
    return HL_ALLOC_ZEROED(out, 1);
}

void hl_series_point_release(hl_series_point *point)
{
    hl_free(point->name);
    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        hl_free(point->findings[i]);
    hl_free(point->heads_entropy);
    hl_free(point->heads_normalized);
    *point = (hl_series_point){ 0 };
}

void hl_series_free(hl_series *series)
{
    if (series == NULL)
        return;
    for (int64_t i = 0; i < series->n_points; i++)
        hl_series_point_release(&series->points[i]);
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++)
        hl_free(series->settings[i]);
    hl_free(series->points);
    hl_free(series);
}

/* ------------------------------------------------------------------- points */

int64_t hl_series_n_points(const hl_series *series)
{
    return series->n_points;
}

int64_t hl_series_n_layers(const hl_series *series)
{
    return series->n_layers;
}

int64_t hl_series_n_heads(const hl_series *series)
{
    return series->n_heads;
}

const hl_series_point *hl_series_at(const hl_series *series, int64_t index)
{
    return &series->points[index];
}

const hl_series_point *hl_series_find(const hl_series *series, const char *name)
{
    for (int64_t i = 0; i < series->n_points; i++) {
        if (strcmp(series->points[i].name, name) == 0)
            return &series->points[i];
    }
    return NULL;
}

hl_status hl_series_put(hl_series *series, hl_series_point *point)
{
    HL_NEED(HL_GROW(&series->points, &series->capacity, (size_t)series->n_points, 1));
    const hl_series_point *same = hl_series_find(series, point->name);
    if (same != NULL) { /* Closes the gap: the order of the others remains that of measuring. */
        int64_t index = same - series->points;
        hl_series_point_release(&series->points[index]);
        memmove(series->points + index, series->points + index + 1,
                (size_t)(series->n_points - index - 1) * sizeof *series->points);
        series->n_points--;
    }
    series->points[series->n_points++] = *point;
    *point                             = (hl_series_point){ 0 };
    return HL_OK;
}

/* --------------------------------------------------------- of the same kind */

static hl_status check_settings(const hl_series *series, const hl_profile *profile,
                                const char *name)
{
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++) {
        const char *had = series->settings[i];
        const char *has = hl_profile_setting(profile, hl_series_settings[i]);
        const char *unsaid =
            strcmp(hl_series_settings[i], "special") == 0 ? "document" : "not known";

        if ((had == NULL) != (has == NULL) || (had != NULL && strcmp(had, has) != 0))
            return hl_fail(
                HL_BAD_INPUT,
                "%s: its %s is %.60s, but %.60s in the series; use another --series FILE", name,
                hl_series_settings[i], has != NULL ? has : unsaid, had != NULL ? had : unsaid);
    }
    return HL_OK;
}

/* Points can be compared only if everything but the weights is the same. */
static hl_status check_same(const hl_series *series, const hl_profile *profile,
                            const hl_series_entry *entry)
{
    int64_t n_layers = hl_profile_n_layers(profile);
    int64_t n_heads  = hl_profile_n_heads(profile);
    int64_t n_tokens = hl_profile_n_tokens(profile);

    if (n_layers != series->n_layers || n_heads != series->n_heads)
        return hl_fail(HL_BAD_INPUT,
                       "%s: %" PRId64 " layers of up to %" PRId64 " heads, but %" PRId64
                       " of %" PRId64 " in the series",
                       entry->name, n_layers, n_heads, series->n_layers, series->n_heads);
    if (entry->text != series->text)
        return hl_fail(HL_BAD_INPUT,
                       "%s: measured on another text (%016" PRIx64 ") than the series (%016" PRIx64
                       ")",
                       entry->name, entry->text, series->text);
    if (series->n_points > 0 && n_tokens != series->points[0].n_tokens)
        return hl_fail(HL_BAD_INPUT,
                       "%s: %" PRId64 " tokens were measured, but %" PRId64 " in the series",
                       entry->name, n_tokens, series->points[0].n_tokens);
    return check_settings(series, profile, entry->name);
}

/* The first profile determines what all others must have in common with it. */
static hl_status begin(hl_series *series, const hl_profile *profile, const hl_series_entry *entry)
{
    for (int i = 0; i < HL_SERIES_N_SETTINGS; i++) {
        const char *value = hl_profile_setting(profile, hl_series_settings[i]);

        hl_free(series->settings[i]);
        series->settings[i] = NULL;
        if (value != NULL)
            HL_NEED(hl_strdup(&series->settings[i], value));
    }
    series->text     = entry->text;
    series->n_layers = hl_profile_n_layers(profile);
    series->n_heads  = hl_profile_n_heads(profile);
    return HL_OK;
}

/* ------------------------------------------------------------------ numbers */

/* Reads a quantity of every head, and their mean. */
static hl_status read_heads(float **out, double *mean, const hl_profile *profile,
                            hl_quantity quantity)
{
    int64_t          size  = hl_grid_size(profile);
    HL_FREED double *means = NULL;

    HL_NEED(hl_grid_means(&means, profile, quantity));
    HL_NEED(HL_ALLOC(out, (size_t)size));
    for (int64_t i = 0; i < size; i++)
        (*out)[i] = (float)means[i];
    *mean = hl_mean(means, size);
    return HL_OK;
}

static hl_status read_profile(hl_series_point *point, const hl_profile *profile,
                              const hl_series_entry *entry, const hl_thresholds *thresholds)
{
    HL_CLOSED(hl_diagnoses_free) hl_diagnoses *found = NULL;
    hl_moments                                 nll   = hl_profile_nll(profile);
    hl_level                                   level;

    *point = (hl_series_point){ .step        = entry->step,
                                .n_bytes     = entry->n_bytes,
                                .modified    = entry->modified,
                                .n_tokens    = hl_profile_n_tokens(profile),
                                .nll         = nll.count > 0 ? nll.mean : NAN,
                                .drop        = NAN,
                                .drop_errors = NAN,
                                .since       = -1 };
    HL_NEED(hl_strdup(&point->name, entry->name));
    HL_NEED(read_heads(&point->heads_entropy, &point->entropy, profile, HL_Q_ENTROPY));
    HL_NEED(read_heads(&point->heads_normalized, &point->normalized, profile, HL_Q_NORMALIZED));
    HL_NEED(hl_level_of(&level, profile));
    point->n_sequences = level.n_sequences;
    point->level       = level.mean;
    point->median      = level.median;
    point->sigma       = level.sigma;
    HL_NEED(hl_diagnose(&found, profile, NULL, thresholds));
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        point->verdicts[i] = found->items[i].verdict;
        point->values[i]   = found->items[i].value;
        point->findings[i] = hl_taken(&found->items[i].finding);
    }
    return HL_OK;
}

/* -------------------------------------------------------------------- falls */

static hl_level level_of(const hl_series_point *point)
{
    return (hl_level){ point->n_sequences, point->level, point->median, point->sigma };
}

static hl_fall fall_since(const hl_series_point *before, const hl_series_point *point)
{
    hl_level high = level_of(before), now = level_of(point);

    return (hl_fall){ .drop        = high.median - now.mean,
                      .errors      = hl_level_fall(&high, &now),
                      .loss_rise   = point->nll - before->nll,
                      .newly_sharp = point->values[COLLAPSE] - before->values[COLLAPSE] };
}

/* Returns the step that the point is compared with, one of the n_back before it: the highest
 * level from which it collapsed, or else the highest of all; the latest of equal ones. NULL if
 * there is none. */
static const hl_series_point *find_reference(const hl_series *series, const hl_series_point *point,
                                             int64_t n_back, const hl_thresholds *thresholds)
{
    const hl_series_point *best           = NULL;
    bool                   best_collapsed = false;

    for (int64_t i = 0; i < series->n_points; i++) {
        const hl_series_point *other     = &series->points[i];
        hl_level               level     = level_of(other);
        int64_t                n_between = 0; /* number of steps between the two */

        for (int64_t j = 0; j < series->n_points; j++)
            n_between +=
                series->points[j].step > other->step && series->points[j].step < point->step;
        /* A step with too few sequences, or with equal ones, cannot be compared with. */
        if (other->step >= point->step || isnan(hl_level_fall(&level, &level)) ||
            n_between >= n_back)
            continue;
        hl_fall fall      = fall_since(other, point);
        bool    collapsed = hl_fall_is_collapse(&fall, thresholds);
        bool    is_higher = best == NULL || other->median > best->median ||
                         (other->median == best->median && other->step > best->step);
        if (collapsed == best_collapsed ? is_higher : collapsed) {
            best           = other;
            best_collapsed = collapsed;
        }
    }
    return best;
}

/* Adds a finding to those of the profile, and makes the point an alarm. */
static hl_status say_found(hl_series_point *point, int check, hl_text *text)
{
    hl_text whole = { 0 };

    point->verdicts[check] = HL_VERDICT_FOUND;
    hl_text_addf(&whole, "%s%s", point->findings[check],
                 point->findings[check][0] != '\0' ? "; " : "");
    hl_free(point->findings[check]);
    point->findings[check] = NULL;
    if (text->n_bytes > 0)
        hl_text_add(&whole, text->bytes, text->n_bytes);
    hl_status status = text->status;
    hl_text_free(text);
    HL_NEED(hl_text_finish(&point->findings[check], &whole));
    return status;
}

static hl_status find_fall(hl_series_point *point, const hl_series *series, int64_t n_back,
                           const hl_thresholds *thresholds)
{
    const hl_series_point *before = find_reference(series, point, n_back, thresholds);
    hl_text                text   = { 0 };

    /* If most rows of a checkpoint are not finite, a lower mean of the others does not show a
     * collapse. */
    if (before == NULL || (point->verdicts[BROKEN] == HL_VERDICT_FOUND &&
                           point->verdicts[COLLAPSE] == HL_VERDICT_NOT_RUN))
        return HL_OK;
    hl_fall fall       = fall_since(before, point);
    point->drop        = fall.drop;
    point->drop_errors = fall.errors;
    point->since       = before->step;
    if (!hl_fall_is_collapse(&fall, thresholds))
        return HL_OK;
    hl_text_addf(&text,
                 "since step %" PRId64 " the mean normalized entropy %s %.3f (%.1f robust "
                 "standard deviations), %.0f%% of heads became one-hot",
                 point->since, fall.drop >= 0.0 ? "fell by" : "rose by", fabs(fall.drop),
                 fabs(fall.errors), 100.0 * fmax(fall.newly_sharp, 0.0));
    if (!isnan(fall.loss_rise))
        hl_text_addf(&text, " and the loss rose by %.3f nats", fall.loss_rise);
    return say_found(point, COLLAPSE, &text);
}

/* -------------------------------------------------------------------- drift */

/* Returns the latest step before the point; NULL if there is none. */
static const hl_series_point *find_previous(const hl_series *series, const hl_series_point *point)
{
    const hl_series_point *previous = NULL;

    for (int64_t i = 0; i < series->n_points; i++) {
        const hl_series_point *other = &series->points[i];
        if (other->step < point->step && (previous == NULL || other->step > previous->step))
            previous = other;
    }
    return previous;
}

/* Compares with the previous checkpoint, as hl_diagnose_drift does with two profiles. */
static hl_status find_drift(hl_series_point *point, const hl_series *series,
                            const hl_thresholds *thresholds)
{
    const hl_series_point *before   = find_previous(series, point);
    double                 furthest = 0.0, least = hl_threshold_of(thresholds, HL_T_DRIFT_ENTROPY);
    int64_t                n_moved = 0;
    hl_text                text    = { 0 };

    if (before == NULL || isnan(point->nll) || isnan(before->nll))
        return HL_OK;
    for (int64_t i = 0; i < series->n_layers * series->n_heads; i++) {
        double moved =
            fabs((double)point->heads_normalized[i] - (double)before->heads_normalized[i]);

        furthest = fmax(furthest, moved); /* fmax ignores NaN */
        n_moved += moved >= least;
    }
    double rise               = point->nll - before->nll;
    point->verdicts[DRIFT]    = HL_VERDICT_NOT_FOUND;
    point->values[DRIFT]      = furthest;
    point->findings[DRIFT][0] = '\0';
    if (!(rise >= hl_threshold_of(thresholds, HL_T_DRIFT_LOSS)) || n_moved == 0)
        return HL_OK;
    hl_text_addf(&text,
                 "since step %" PRId64 " the loss rose by %.3f nats and %" PRId64
                 " heads changed, the furthest by %.3f",
                 before->step, rise, n_moved, furthest);
    return say_found(point, DRIFT, &text);
}

/* ---------------------------------------------------------------------- add */

hl_status hl_series_add(hl_series *series, const hl_profile *profile, const hl_series_entry *entry,
                        const hl_series_options *options)
{
    HL_SCOPED(hl_series_point_release) hl_series_point point = { 0 };
    const hl_thresholds *thresholds = options != NULL ? options->thresholds : NULL;
    int64_t n_back = options != NULL && options->n_back > 0 ? options->n_back : DEFAULT_BACK;

    if (entry->name == NULL || entry->name[0] == '\0' ||
        hl_utf8_find_bad(entry->name, strlen(entry->name)) != strlen(entry->name))
        return hl_fail(HL_BAD_ARGUMENT, "a point of a series needs a name in UTF-8");
    if (entry->step < 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: step %" PRId64 ", wanted one from 0 on", entry->name,
                       entry->step);
    if (series->n_points == 0)
        HL_NEED(begin(series, profile, entry));
    HL_NEED(check_same(series, profile, entry));
    HL_NEED(read_profile(&point, profile, entry, thresholds));
    HL_NEED(find_fall(&point, series, n_back, thresholds));
    HL_NEED(find_drift(&point, series, thresholds));
    return hl_series_put(series, &point);
}
