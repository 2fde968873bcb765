/* series.c - a training run: what each checkpoint's profile says, and whether attention fell.
 *
 * A fall is looked for among the n_back steps before a checkpoint:
 *
 *     level   o   o                           median of the highest of these
 *                     o   o                   - level of the new one
 *                             o   <- new      = fall, in sigmas of the highest one's sequences
 *
 * Against the checkpoint just before, a slow collapse would never be seen; against the first of all,
 * every run would fall, since attention sharpens as training begins. */
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
enum { BROKEN = 0, COLLAPSE = 1 }; /* places in the list of diagnoses */

const char *const hl_series_settings[HL_SERIES_N_SETTINGS] = {
    "family",  "context", "stride",    "seed",     "pack",  "nll",     "probe",
    "epsilon", "samples", "tokenizer", "adjusted", "gates", "special", /* is not in files where profiles do not say it */
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
    if (same != NULL) { /* closes the gap, so that the order stays that of measuring */
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

/* Points can be compared only if nothing but the weights differs. */
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

/* The first profile says what all the others must be like. */
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

/* A quantity of every head, and their mean. */
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

    *point = (hl_series_point){ .step     = entry->step,
                                .n_bytes  = entry->n_bytes,
                                .modified = entry->modified,
                                .n_tokens = hl_profile_n_tokens(profile),
                                .nll      = nll.count > 0 ? nll.mean : NAN,
                                .fall     = NAN,
                                .since    = -1 };
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

/* The highest of the n_back steps before the point; of equals the latest.  NULL: there is none. */
static const hl_series_point *find_highest(const hl_series *series, const hl_series_point *point,
                                           int64_t n_back)
{
    const hl_series_point *highest = NULL;

    for (int64_t i = 0; i < series->n_points; i++) {
        const hl_series_point *other     = &series->points[i];
        hl_level               level     = level_of(other);
        int64_t                n_between = 0; /* steps between the two */

        for (int64_t j = 0; j < series->n_points; j++)
            n_between +=
                series->points[j].step > other->step && series->points[j].step < point->step;
        /* Has it sequences enough, and not all alike, for others to be held against it? */
        if (other->step >= point->step || isnan(hl_level_fall(&level, &level)) ||
            n_between >= n_back)
            continue;
        if (highest == NULL || other->median > highest->median ||
            (other->median == highest->median && other->step > highest->step))
            highest = other;
    }
    return highest;
}

static hl_status find_fall(hl_series_point *point, const hl_series *series, int64_t n_back,
                           double limit)
{
    const hl_series_point *before = find_highest(series, point, n_back);
    hl_text                text   = { 0 };

    /* What is left of a checkpoint that is not finite may well lie lower: that is no collapse. */
    if (before == NULL || (point->verdicts[BROKEN] == HL_VERDICT_FOUND &&
                           point->verdicts[COLLAPSE] == HL_VERDICT_NOT_RUN))
        return HL_OK;
    hl_level high = level_of(before), now = level_of(point);
    point->fall  = hl_level_fall(&high, &now);
    point->since = before->step;
    if (!(point->fall > limit))
        return HL_OK;
    point->verdicts[COLLAPSE] = HL_VERDICT_FOUND;
    hl_text_addf(&text, "%s%ssince step %" PRId64 " the mean fell by %.1f robust sigma",
                 point->findings[COLLAPSE], point->findings[COLLAPSE][0] != '\0' ? "; " : "",
                 point->since, point->fall);
    hl_free(point->findings[COLLAPSE]);
    return hl_text_finish(&point->findings[COLLAPSE], &text);
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
    HL_NEED(find_fall(&point, series, n_back, hl_threshold_of(thresholds, HL_T_COLLAPSE_FALL)));
    return hl_series_put(series, &point);
}
