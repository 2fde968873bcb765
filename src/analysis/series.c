/* series.c - a training run: what each checkpoint's profile says, whether attention fell, and the file
 * that keeps it.
 *
 * A fall is looked for among the n_back steps before a checkpoint:
 *
 *     level   o   o                           median of the highest of these
 *                     o   o                   - level of the new one
 *                             o   <- new      = fall, in sigmas of the highest one's sequences
 *
 * Against the checkpoint just before, a slow collapse would never be seen; against the first of all,
 * every run would fall, since attention sharpens as training begins.
 *
 * The file is lines of JSON (doc/watch.md): one that says what holds for all of the series, then one a
 * checkpoint.  Numbers have the digits that bring the same float or double back; what is NaN is null.
 * Nobody vouches for a file that is read: memory is taken for what a line holds, not for what it
 * claims. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/diagnose.h"
#include "analysis/grid.h"
#include "analysis/growing_text.h"
#include "analysis/numbers.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"
#include "headlight.h"
#include "stats/profile.h"

#define FORMAT "headlight series 1"

enum { DEFAULT_BACK = 5 };
enum { BROKEN = 0, COLLAPSE = 1 }; /* places in the list of diagnoses */

/* What a profile says of how it was measured, but for the model's weights. */
enum { N_SETTINGS = 13 };
static const char *const setting_names[N_SETTINGS] = {
    "family",  "context", "stride",    "seed",     "pack",  "nll",     "probe",
    "epsilon", "samples", "tokenizer", "adjusted", "gates", "special", /* is not in files where profiles do not say it */
};

/* Points, and what must be the same for all of them. */
struct hl_series {
    int64_t          n_layers; /* 0: nothing was added yet */
    int64_t          n_heads;
    uint64_t         text;
    char            *settings[N_SETTINGS]; /* NULL: profiles do not say */
    hl_series_point *points;               /* (n_points) */
    int64_t          n_points;
    int64_t          capacity;
};

/* ------------------------------------------------------------- new and free */

hl_status hl_series_new(hl_series **out)
{
    return HL_ALLOC_ZEROED(out, 1);
}

/* Releases what the point holds, not the point. */
static void release_point(hl_series_point *point)
{
    hl_free(point->name);
    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        hl_free(point->findings[i]);
    hl_free(point->heads_entropy);
    hl_free(point->heads_fair);
    *point = (hl_series_point){ 0 };
}

void hl_series_free(hl_series *series)
{
    if (series == NULL)
        return;
    for (int64_t i = 0; i < series->n_points; i++)
        release_point(&series->points[i]);
    for (int i = 0; i < N_SETTINGS; i++)
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

/* Closes the gap, so that the order stays that of measuring. */
static void drop(hl_series *series, const char *name)
{
    const hl_series_point *found = hl_series_find(series, name);

    if (found == NULL)
        return;
    int64_t index = found - series->points;
    release_point(&series->points[index]);
    memmove(series->points + index, series->points + index + 1,
            (size_t)(series->n_points - index - 1) * sizeof *series->points);
    series->n_points--;
}

/* Puts a point behind the others and takes what it holds over, also where this fails.  One that
 * has its name goes. */
static hl_status put_point(hl_series *series, hl_series_point *point)
{
    hl_status status = HL_OK;

    if (series->n_points == series->capacity) {
        int64_t grown = 2 * series->capacity + 8;
        HL_TRY(hl_realloc((void **)&series->points, (size_t)series->capacity, (size_t)grown,
                          sizeof *series->points));
        series->capacity = grown;
    }
    drop(series, point->name);
    series->points[series->n_points++] = *point;
    *point                             = (hl_series_point){ 0 };

done:
    release_point(point);
    return status;
}

/* --------------------------------------------------------- of the same kind */

static hl_status check_settings(const hl_series *series, const hl_profile *profile,
                                const char *name)
{
    for (int i = 0; i < N_SETTINGS; i++) {
        const char *had    = series->settings[i];
        const char *has    = hl_profile_setting(profile, setting_names[i]);
        const char *unsaid = strcmp(setting_names[i], "special") == 0 ? "document" : "not known";

        if ((had == NULL) != (has == NULL) || (had != NULL && strcmp(had, has) != 0))
            return hl_fail(HL_BAD_INPUT, "%s: its %s is %.60s, but %.60s in the series", name,
                           setting_names[i], has != NULL ? has : unsaid,
                           had != NULL ? had : unsaid);
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
    for (int i = 0; i < N_SETTINGS; i++) {
        const char *value = hl_profile_setting(profile, setting_names[i]);

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
    hl_status status = HL_OK;
    int64_t   size   = hl_grid_size(profile);
    double   *means  = NULL;

    HL_TRY(hl_grid_means(&means, profile, quantity));
    HL_TRY(HL_ALLOC(out, (size_t)size));
    for (int64_t i = 0; i < size; i++)
        (*out)[i] = (float)means[i];
    *mean = hl_mean(means, size);

done:
    hl_free(means);
    return status;
}

static hl_status read_diagnoses(hl_series_point *point, const hl_profile *profile,
                                const hl_thresholds *thresholds)
{
    hl_status     status = HL_OK;
    hl_diagnoses *found  = NULL;

    HL_TRY(hl_diagnose(&found, profile, NULL, thresholds));
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        point->verdicts[i]      = found->items[i].verdict;
        point->values[i]        = found->items[i].value;
        point->findings[i]      = found->items[i].finding;
        found->items[i].finding = NULL;
    }

done:
    hl_diagnoses_free(found);
    return status;
}

static hl_status read_profile(hl_series_point *point, const hl_profile *profile,
                              const hl_series_entry *entry, const hl_thresholds *thresholds)
{
    hl_moments nll = hl_profile_nll(profile);
    hl_level   level;

    *point = (hl_series_point){ .step     = entry->step,
                                .n_bytes  = entry->n_bytes,
                                .modified = entry->modified,
                                .n_tokens = hl_profile_n_tokens(profile),
                                .nll      = nll.count > 0 ? nll.mean : NAN,
                                .fall     = NAN,
                                .since    = -1 };
    HL_NEED(hl_strdup(&point->name, entry->name));
    HL_NEED(read_heads(&point->heads_entropy, &point->entropy, profile, HL_Q_ENTROPY));
    HL_NEED(read_heads(&point->heads_fair, &point->fair, profile, HL_Q_FAIR));
    HL_NEED(hl_level_of(&level, profile));
    point->n_sequences = level.n_sequences;
    point->level       = level.mean;
    point->median      = level.median;
    point->sigma       = level.sigma;
    return read_diagnoses(point, profile, thresholds);
}

/* -------------------------------------------------------------------- falls */

static hl_level level_of(const hl_series_point *point)
{
    return (hl_level){ point->n_sequences, point->level, point->median, point->sigma };
}

/* How many points lie between two steps, neither counted. */
static int64_t count_between(const hl_series *series, int64_t from, int64_t to)
{
    int64_t count = 0;

    for (int64_t i = 0; i < series->n_points; i++)
        count += series->points[i].step > from && series->points[i].step < to;
    return count;
}

/* Has it sequences enough, and not all alike, for others to be held against it? */
static bool has_spread(const hl_series_point *point)
{
    hl_level level = level_of(point);

    return !isnan(hl_level_fall(&level, &level));
}

/* The highest of the n_back steps before the point; of equals the latest.  NULL: there is none. */
static const hl_series_point *find_highest(const hl_series *series, const hl_series_point *point,
                                           int64_t n_back)
{
    const hl_series_point *highest = NULL;

    for (int64_t i = 0; i < series->n_points; i++) {
        const hl_series_point *other = &series->points[i];

        if (other->step >= point->step || !has_spread(other) ||
            count_between(series, other->step, point->step) >= n_back)
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

static hl_status check_entry(const hl_series_entry *entry)
{
    if (entry->name == NULL || entry->name[0] == '\0' ||
        hl_utf8_find_bad(entry->name, strlen(entry->name)) != strlen(entry->name))
        return hl_fail(HL_BAD_ARGUMENT, "a point of a series needs a name in UTF-8");
    if (entry->step < 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: step %" PRId64 ", wanted one from 0 on", entry->name,
                       entry->step);
    return HL_OK;
}

hl_status hl_series_add(hl_series *series, const hl_profile *profile, const hl_series_entry *entry,
                        const hl_series_options *options)
{
    hl_status            status     = HL_OK;
    hl_series_point      point      = { 0 };
    const hl_thresholds *thresholds = options != NULL ? options->thresholds : NULL;
    int64_t n_back = options != NULL && options->n_back > 0 ? options->n_back : DEFAULT_BACK;

    HL_TRY(check_entry(entry));
    if (series->n_points == 0)
        HL_TRY(begin(series, profile, entry));
    HL_TRY(check_same(series, profile, entry));
    HL_TRY(read_profile(&point, profile, entry, thresholds));
    HL_TRY(find_fall(&point, series, n_back, hl_threshold_of(thresholds, HL_T_COLLAPSE_FALL)));
    HL_TRY(put_point(series, &point));

done:
    release_point(&point);
    return status;
}

/* --------------------------------------------------- lines of JSON, written */

static void render_number(hl_text *text, const char *name, double value)
{
    if (isfinite(value))
        hl_text_addf(text, ", \"%s\": %.17g", name, value);
    else
        hl_text_addf(text, ", \"%s\": null", name);
}

/* In quotation marks; NULL is null. */
static void render_string(hl_text *text, const char *bytes)
{
    json_t *value  = bytes != NULL ? hl_json_text(bytes, strlen(bytes)) : json_null();
    char   *quoted = hl_json_dump(value, JSON_ENCODE_ANY);

    if (quoted != NULL)
        hl_text_add(text, quoted, strlen(quoted));
    else if (text->status == HL_OK)
        text->status = hl_fail(HL_NO_MEMORY, "out of memory");
    hl_free(quoted);
    json_decref(value);
}

static void render_heads(hl_text *text, const char *name, const hl_series *series,
                         const float *values)
{
    hl_text_addf(text, ", \"%s\": ", name);
    for (int64_t i = 0; i < series->n_layers * series->n_heads; i++) {
        hl_text_addf(text, i == 0 ? "[[" : i % series->n_heads == 0 ? "], [" : ", ");
        if (isfinite(values[i]))
            hl_text_addf(text, "%.9g", (double)values[i]);
        else
            hl_text_addf(text, "null");
    }
    hl_text_addf(text, "]]");
}

static void render_diagnoses(hl_text *text, const hl_series_point *point)
{
    hl_text_addf(text, ", \"diagnoses\": {");
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        hl_text_addf(text, "%s\"%s\": {\"verdict\": \"%s\"", i > 0 ? ", " : "",
                     hl_diagnosis_name((size_t)i), hl_verdict_name(point->verdicts[i]));
        render_number(text, "value", point->values[i]);
        hl_text_addf(text, ", \"finding\": ");
        render_string(text, point->findings[i]);
        hl_text_addf(text, "}");
    }
    hl_text_addf(text, "}");
}

static void render_point(hl_text *text, const hl_series *series, const hl_series_point *point)
{
    hl_text_addf(text, "{\"name\": ");
    render_string(text, point->name);
    hl_text_addf(text,
                 ", \"step\": %" PRId64 ", \"bytes\": %" PRId64 ", \"modified\": %" PRId64
                 ", \"tokens\": %" PRId64,
                 point->step, point->n_bytes, point->modified, point->n_tokens);
    render_number(text, "entropy", point->entropy);
    render_number(text, "fair", point->fair);
    render_number(text, "loss", point->nll);
    hl_text_addf(text, ", \"sequences\": %" PRId64, point->n_sequences);
    render_number(text, "level", point->level);
    render_number(text, "median", point->median);
    render_number(text, "sigma", point->sigma);
    render_number(text, "fall", point->fall);
    hl_text_addf(text, ", \"since\": %" PRId64, point->since);
    render_diagnoses(text, point);
    render_heads(text, "heads_entropy", series, point->heads_entropy);
    render_heads(text, "heads_fair", series, point->heads_fair);
    hl_text_addf(text, "}");
}

static void render_beginning(hl_text *text, const hl_series *series)
{
    hl_text_addf(text,
                 "{\"format\": \"" FORMAT "\", \"layers\": %" PRId64 ", \"heads\": %" PRId64
                 ", \"text\": \"%016" PRIx64 "\", \"settings\": {",
                 series->n_layers, series->n_heads, series->text);
    for (int i = 0; i < N_SETTINGS; i++) {
        if (series->settings[i] == NULL && strcmp(setting_names[i], "special") == 0)
            continue;
        hl_text_addf(text, "%s\"%s\": ", i > 0 ? ", " : "", setting_names[i]);
        render_string(text, series->settings[i]);
    }
    hl_text_addf(text, "}}\n");
}

hl_status hl_series_render(char **out, const hl_series *series, int64_t index)
{
    hl_text text = { 0 };

    *out = NULL;
    if (index < 0 || index >= series->n_points)
        return hl_fail(HL_BAD_ARGUMENT, "point %" PRId64 " of a series of %" PRId64, index,
                       series->n_points);
    render_point(&text, series, &series->points[index]);
    return hl_text_finish(out, &text);
}

/* A line at a time: a long series need not be in memory twice. */
static hl_status write_lines(hl_writer *writer, const hl_series *series)
{
    hl_text text = { 0 };
    char   *line = NULL;

    render_beginning(&text, series);
    for (int64_t i = -1; i < series->n_points; i++) {
        if (i >= 0) {
            text = (hl_text){ 0 };
            render_point(&text, series, &series->points[i]);
            hl_text_addf(&text, "\n");
        }
        HL_NEED(hl_text_finish(&line, &text));
        hl_writer_write(writer, line, strlen(line));
        hl_free(line);
        line = NULL;
    }
    return HL_OK;
}

hl_status hl_series_write(const hl_series *series, const char *path)
{
    hl_status  status = HL_OK;
    hl_writer *writer = NULL;

    if (series->n_points == 0)
        return hl_fail(HL_BAD_ARGUMENT, "%s: a series without a point", path);
    HL_NEED(hl_writer_open(&writer, path));
    status = write_lines(writer, series);
    if (status != HL_OK)
        hl_writer_abandon(writer);
    else
        status = hl_writer_finish(writer);
    return status;
}

/* ------------------------------------------------------ lines of JSON, read */

typedef struct lines {
    hl_json_lines text;
    hl_series    *series;
} lines;

/* A whole number that must be there. */
static hl_status get_count(int64_t *out, const json_t *line, const char *key, int64_t low,
                           int64_t high, const lines *l)
{
    const json_t *value = json_object_get(line, key);

    if (!json_is_integer(value))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %s, wanted an integer", l->text.place, key,
                       hl_json_kind(value));
    *out = json_integer_value(value);
    if (*out < low || *out > high)
        return hl_fail(HL_BAD_INPUT,
                       "%s: '%s' is %" PRId64 ", wanted one from %" PRId64 " to %" PRId64,
                       l->text.place, key, *out, low, high);
    return HL_OK;
}

/* Null or missing is NaN. */
static hl_status get_number(double *out, const json_t *line, const char *key, const lines *l)
{
    *out = NAN;
    return hl_json_get_double(out, line, key, l->text.place);
}

/* A copy; null or missing is NULL. */
static hl_status get_string(char **out, const json_t *line, const char *key, const lines *l)
{
    const char *text   = NULL;
    hl_status   status = hl_json_get_string(&text, line, key, l->text.place);

    if (status == HL_OK && text != NULL)
        status = hl_strdup(out, text);
    return status;
}

/* ----------------------------------------------------- read: the first line */

static hl_status parse_text_hash(uint64_t *out, const json_t *line, const lines *l)
{
    const char *text   = NULL;
    char       *end    = NULL;
    hl_status   status = hl_json_get_string(&text, line, "text", l->text.place);

    if (status != HL_OK)
        return status;
    if (text != NULL && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16) {
        *out = strtoull(text, &end, 16);
        return HL_OK;
    }
    return hl_fail(HL_BAD_INPUT, "%s: 'text' is '%.40s', wanted 16 hexadecimal digits",
                   l->text.place, text != NULL ? text : "");
}

static hl_status parse_beginning(lines *l, const json_t *line)
{
    const char   *format   = NULL;
    const json_t *settings = json_object_get(line, "settings");

    HL_NEED(hl_json_get_string(&format, line, "format", l->text.place));
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return hl_fail(HL_BAD_INPUT, "%s: its format is '%.40s', wanted '%s'", l->text.place,
                       format != NULL ? format : "", FORMAT);
    HL_NEED(get_count(&l->series->n_layers, line, "layers", 1, HL_PROFILE_MAX_LAYERS, l));
    HL_NEED(get_count(&l->series->n_heads, line, "heads", 1, HL_PROFILE_MAX_HEADS, l));
    HL_NEED(parse_text_hash(&l->series->text, line, l));
    if (!json_is_object(settings))
        return hl_fail(HL_BAD_INPUT, "%s: 'settings' is %s, wanted an object", l->text.place,
                       hl_json_kind(settings));
    for (int i = 0; i < N_SETTINGS; i++)
        HL_NEED(get_string(&l->series->settings[i], settings, setting_names[i], l));
    return HL_OK;
}

/* ------------------------------------------------------------- read: points */

static hl_status check_heads(const json_t *rows, const char *key, const lines *l)
{
    bool good = json_array_size(rows) == (size_t)l->series->n_layers;

    for (size_t i = 0; i < json_array_size(rows) && good; i++)
        good = json_array_size(json_array_get(rows, i)) == (size_t)l->series->n_heads;
    return good ? HL_OK
                : hl_fail(HL_BAD_INPUT,
                          "%s: '%s' is not %" PRId64 " lists of %" PRId64 " numbers each",
                          l->text.place, key, l->series->n_layers, l->series->n_heads);
}

/* [[...], ...], null where there is no head. */
static hl_status parse_heads(float **out, const json_t *line, const char *key, const lines *l)
{
    const json_t *rows    = json_object_get(line, key);
    size_t        n_heads = (size_t)l->series->n_heads;
    size_t        size    = (size_t)l->series->n_layers * n_heads;

    HL_NEED(check_heads(rows, key, l));
    HL_NEED(HL_ALLOC(out, size));
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(json_array_get(rows, i / n_heads), i % n_heads);

        if (!json_is_number(value) && !json_is_null(value))
            return hl_fail(HL_BAD_INPUT, "%s: '%s' has %s, wanted numbers and null", l->text.place,
                           key, hl_json_kind(value));
        (*out)[i] = json_is_null(value) ? NAN : (float)json_number_value(value);
    }
    return HL_OK;
}

static hl_status parse_verdict(hl_verdict *out, const json_t *item, const lines *l)
{
    /* The words of series that earlier versions wrote. */
    static const char *const before[] = { "absent", "present", "not measured" };
    const char              *name     = NULL;
    hl_status                status   = hl_json_get_string(&name, item, "verdict", l->text.place);

    for (int i = HL_VERDICT_NOT_FOUND; i <= HL_VERDICT_NOT_RUN && name != NULL; i++) {
        *out = (hl_verdict)i;
        if (strcmp(name, hl_verdict_name(*out)) == 0 || strcmp(name, before[i]) == 0)
            return HL_OK;
    }
    return status != HL_OK ? status
                           : hl_fail(HL_BAD_INPUT, "%s: no verdict is called '%.40s'",
                                     l->text.place, name != NULL ? name : "");
}

static hl_status parse_diagnoses(hl_series_point *point, const json_t *line, const lines *l)
{
    const json_t *found = json_object_get(line, "diagnoses");

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const char   *name = hl_diagnosis_name((size_t)i);
        const json_t *item = json_object_get(found, name);

        if (!json_is_object(item))
            return hl_fail(HL_BAD_INPUT, "%s: 'diagnoses' has no object '%s'", l->text.place, name);
        HL_NEED(parse_verdict(&point->verdicts[i], item, l));
        HL_NEED(get_number(&point->values[i], item, "value", l));
        HL_NEED(get_string(&point->findings[i], item, "finding", l));
        if (point->findings[i] == NULL)
            HL_NEED(hl_strdup(&point->findings[i], ""));
    }
    return HL_OK;
}

static hl_status parse_numbers(hl_series_point *point, const json_t *line, const lines *l)
{
    HL_NEED(get_count(&point->step, line, "step", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->n_bytes, line, "bytes", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->modified, line, "modified", INT64_MIN, INT64_MAX, l));
    HL_NEED(get_count(&point->n_tokens, line, "tokens", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->n_sequences, line, "sequences", 0, INT64_MAX, l));
    HL_NEED(get_count(&point->since, line, "since", -1, INT64_MAX, l));
    HL_NEED(get_number(&point->entropy, line, "entropy", l));
    HL_NEED(get_number(&point->fair, line, "fair", l));
    HL_NEED(get_number(&point->nll, line, "loss", l));
    HL_NEED(get_number(&point->level, line, "level", l));
    HL_NEED(get_number(&point->median, line, "median", l));
    HL_NEED(get_number(&point->sigma, line, "sigma", l));
    return get_number(&point->fall, line, "fall", l);
}

static hl_status parse_point(lines *l, const json_t *line)
{
    hl_status       status = HL_OK;
    hl_series_point point  = { 0 };

    HL_TRY(get_string(&point.name, line, "name", l));
    if (point.name == NULL || point.name[0] == '\0') {
        status = hl_fail(HL_BAD_INPUT, "%s: it has no name", l->text.place);
        goto done;
    }
    if (hl_series_find(l->series, point.name) != NULL) {
        status = hl_fail(HL_BAD_INPUT, "%s: '%.100s' was there before", l->text.place, point.name);
        goto done;
    }
    HL_TRY(parse_numbers(&point, line, l));
    HL_TRY(parse_diagnoses(&point, line, l));
    HL_TRY(parse_heads(&point.heads_entropy, line, "heads_entropy", l));
    HL_TRY(parse_heads(&point.heads_fair, line, "heads_fair", l));
    HL_TRY(put_point(l->series, &point));

done:
    release_point(&point);
    return status;
}

/* ---------------------------------------------------------- read: the whole */

hl_status hl_series_parse(hl_series **out, const char *text, size_t n_bytes, const char *where)
{
    hl_status status = HL_OK;
    json_t   *line   = NULL;
    lines     l      = { .text = { .at = text, .end = text + n_bytes, .where = where } };

    *out = NULL;
    HL_TRY(hl_series_new(&l.series));
    HL_TRY(hl_json_lines_next(&line, &l.text));
    HL_TRY(parse_beginning(&l, line));
    while (l.text.at < l.text.end) {
        json_decref(line);
        HL_TRY(hl_json_lines_next(&line, &l.text));
        HL_TRY(parse_point(&l, line));
    }
    *out     = l.series;
    l.series = NULL;

done:
    json_decref(line);
    hl_series_free(l.series);
    return status;
}

hl_status hl_series_load(hl_series **out, const char *path)
{
    hl_status status = HL_OK;
    hl_file   file   = { 0 };

    *out = NULL;
    HL_TRY(hl_file_map(&file, path));
    HL_TRY(hl_series_parse(out, (const char *)file.bytes, file.n_bytes, path));

done:
    hl_file_unmap(&file);
    return status;
}
