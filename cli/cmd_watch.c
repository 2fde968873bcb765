/* cmd_watch.c - headlight watch: measures every checkpoint of a training run as it appears.
 *
 *     look at the folder -> measure new, complete checkpoints -> the series, event files, a figure
 *          ^                                                       |
 *          '---------------------- sleep <----- alarms, a command -'
 *
 * The series is written before a checkpoint is reported.  All other output is made from the series,
 * and is brought up to date when the command is started again. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "child.h"
#include "command.h"
#include "diagnoses.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "progress.h"
#include "shared_options.h"
#include "values.h"

typedef struct seen_checkpoint {
    char   *name;
    int64_t n_bytes;
    int64_t modified;
    double  since;     /* time at which it was first seen in this form, on our clock */
    bool    is_failed; /* the checkpoint could not be measured in this form */
} seen_checkpoint;

/* A list that starts as { 0 }. */
typedef struct seen_list {
    seen_checkpoint *items;
    int64_t          count;
} seen_list;

#define ALARMS "entropy-collapse,entropic-overload,dead-or-broken,head-drift"

typedef struct watch_request {
    hl_common           common;
    hl_arguments        arguments; /* the folder, followed by texts */
    hl_corpus_arguments text;
    hl_draw_arguments   drawing;
    hl_option_list      given; /* thresholds */
    hl_thresholds       thresholds;
    const char         *series_path;
    const char         *figure;
    const char         *events;   /* file for events; NULL: none */
    const char         *profiles; /* folder for profiles; NULL: none */
    const char         *tokenizer_path;
    const char         *fail_on;
    const char         *command;
    double              command_seconds;
    double              every;
    double              settle;     /* below 0: not given */
    double              quit_after; /* seconds; 0: never */
    int64_t             n_back;
    bool                nll;
    bool                once;
    bool                stop;
} watch_request;

typedef struct watch_work {
    const watch_request *request;
    hl_series           *series;
    seen_list            seen;
    int64_t              n_shown;
    int64_t              n_alarms; /* number of checkpoints with alarms */
    bool                 is_unnumbered_said;
    double               last;   /* time at which the last new checkpoint was finished */
    hl_status            failed; /* the first failure that did not end the watch */
} watch_work;

/* --------------------------------------------------------------------- options */

static const char description[] =
    "Measures every checkpoint in DIR on the same text, as it appears: Hugging Face\n"
    "folders and GGUF files, ordered by the training step in their names.  The results\n"
    "are kept in one file, and a restarted command continues it.\n"
    "\n"
    "The column 'drop' says how far the mean normalized entropy lies below the\n"
    "highest of the last steps, and 'errors' how many robust standard deviations\n"
    "of the windows that is.  With --nll a drop counts as a collapse only if the loss\n"
    "did not fall with it: attention sharpens while a model learns.\n"
    "\n"
    "An alarm is a finding of one of the checks of --fail-on, by default\n"
    "entropy-collapse, entropic-overload, dead-or-broken and head-drift.  Each alarm is\n"
    "printed and is sent to --exec as JSON, and the exit status becomes 1.  Without\n"
    "--once the watch runs until Ctrl-C, --stop or --quit-after.";

static bool is_figure_path(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL &&
           (strcmp(dot, ".svg") == 0 || strcmp(dot, ".png") == 0 || strcmp(dot, ".pdf") == 0);
}

/* Checks what would otherwise fail only after the first checkpoint has been measured. */
static int check_request(const watch_request *request, const hl_usage *usage)
{
    struct stat about;

    if (request->arguments.count == 0)
        return hl_options_refuse(usage, "no DIR given");
    if (request->series_path == NULL)
        return hl_options_refuse(usage, "--series FILE is missing: the file for the results");
    if (stat(request->series_path, &about) == 0 && !S_ISREG(about.st_mode))
        return hl_options_refuse(usage, "--series: %s is not a regular file; it is not overwritten",
                                 request->series_path);
    for (int i = 1; i < request->arguments.count; i++) {
        if (strcmp(request->arguments.items[i], "-") == 0)
            return hl_options_refuse(usage, "standard input cannot be TEXT here: it can be read "
                                            "only once, and every checkpoint needs the text");
    }
    if (request->drawing.output != NULL && !is_figure_path(request->drawing.output))
        return hl_options_refuse(usage, "-o: %s does not end in .svg, .png or .pdf",
                                 request->drawing.output);
    if (strcmp(request->figure, "loss") == 0 && !request->nll)
        return hl_options_refuse(usage, "--figure loss needs --nll");
    return HL_EXIT_OK;
}

static int finish_request(watch_request *request, const hl_usage *usage)
{
    HL_PASS(check_request(request, usage));
    HL_PASS(hl_threshold_options_set(&request->thresholds, &request->given, usage));
    if (strcmp(request->fail_on, "none") == 0)
        request->fail_on = NULL;
    HL_PASS(hl_diagnosis_list_check(request->fail_on, usage));
    if (request->settle < 0.0)
        request->settle = request->once ? 0.0 : 5.0;
    return hl_corpus_options_finish(&request->text, usage, &request->common,
                                    request->arguments.items + 1, request->arguments.count - 1);
}

static int parse_request(watch_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_CORPUS_OPTIONS(&request->text),
        HL_TEXT("series", 's', &request->series_path, "FILE",
                "file for the results, as JSON lines"),
        HL_TEXT("events", 0, &request->events, "FOLDER", "also write event files for TensorBoard"),
        HL_TEXT("profiles", 0, &request->profiles, "FOLDER",
                "also write every checkpoint's profile"),
        HL_CHOICE("figure", 0, &request->figure, "entropy|layers|loss", "what -o draws (entropy)"),
        HL_DRAW_OPTIONS(&request->drawing),
        HL_FLAG("nll", 0, &request->nll, "also measure the loss"),
        HL_TEXT("tokenizer", 0, &request->tokenizer_path, "PATH",
                "tokenizer of checkpoints that have none beside them"),
        HL_TEXT("fail-on", 0, &request->fail_on, "NAME,...",
                "checks that are alarms; any: all, none"),
        HL_LIST("threshold", 0, &request->given, "NAME=VALUE", "change a threshold (repeatable)"),
        HL_INT("back", 0, &request->n_back, "N", "look for a drop over the last N checkpoints (5)",
               1, 1 << 20),
        HL_TEXT("exec", 0, &request->command, "COMMAND",
                "run COMMAND on an alarm, with JSON as its input"),
        HL_NUMBER("exec-timeout", 0, &request->command_seconds, "SECONDS",
                  "kill COMMAND after that time (60)", 0, 1000000),
        HL_FLAG("stop", 0, &request->stop, "stop after the first alarm"),
        HL_FLAG("once", 0, &request->once, "measure the checkpoints that exist, then end"),
        HL_NUMBER("every", 0, &request->every, "SECONDS", "seconds between looks at DIR (10)", 0,
                  1000000),
        HL_NUMBER("settle", 0, &request->settle, "SECONDS",
                  "a checkpoint is complete when unchanged for that time (5)", 0, 1000000),
        HL_NUMBER("quit-after", 0, &request->quit_after, "SECONDS",
                  "end when nothing new appears for that time", 0, 1 << 30),
        { 0 },
    };
    const hl_usage usage = { "watch", "DIR TEXT... --series FILE", description, options };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return finish_request(request, &usage);
}

/* --------------------------------------------------------------- what was seen */

/* The checkpoints seen so far, including those still being written.  A checkpoint is complete when
 * its size and time have not changed for some seconds: by its own time or, if the clocks of two
 * machines differ, by how long we have seen it unchanged. */

static seen_checkpoint *find_seen(const seen_list *seen, const char *name)
{
    for (int64_t i = 0; i < seen->count; i++) {
        if (strcmp(seen->items[i].name, name) == 0)
            return &seen->items[i];
    }
    return NULL;
}

static seen_checkpoint *add_seen(seen_list *seen, const char *name)
{
    seen_checkpoint *grown = realloc(seen->items, ((size_t)seen->count + 1) * sizeof *seen->items);
    char            *copy  = strdup(name);

    if (grown != NULL)
        seen->items = grown;
    if (grown == NULL || copy == NULL) {
        free(copy);
        return NULL;
    }
    grown[seen->count] = (seen_checkpoint){ .name = copy, .n_bytes = -1 };
    return &grown[seen->count++];
}

/* Returns the entry of a checkpoint in its current form; NULL if memory is out.  Borrowed until the
 * next call. */
static seen_checkpoint *see(seen_list *seen, const hl_checkpoint *checkpoint)
{
    seen_checkpoint *item = find_seen(seen, checkpoint->name);

    if (item == NULL)
        item = add_seen(seen, checkpoint->name);
    if (item == NULL ||
        (item->n_bytes == checkpoint->n_bytes && item->modified == checkpoint->modified))
        return item;
    item->n_bytes   = checkpoint->n_bytes;
    item->modified  = checkpoint->modified;
    item->since     = hl_clock_now();
    item->is_failed = false;
    return item;
}

static bool is_settled(const seen_checkpoint *seen, double seconds)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-9 * (double)seen->modified;
    return age >= seconds || hl_clock_now() - seen->since >= seconds;
}

static void free_seen(seen_list *seen)
{
    for (int64_t i = 0; i < seen->count; i++)
        free(seen->items[i].name);
    free(seen->items);
    *seen = (seen_list){ 0 };
}

/* ---------------------------------------------------------------- what is said */

/* Prints a number in a column; a dash for NaN. */
static void print_number(int width, const char *format, double value)
{
    char text[40] = "-";

    if (!isnan(value))
        snprintf(text, sizeof text, format, value); /* NOLINT: the formats are constants of this
                                                     * file */
    printf(" %*s", width, text);
}

/* Prints a line, with a heading before the first. */
static void print_point(const hl_series_point *point, bool heading)
{
    if (heading)
        printf("%10s %9s %10s %8s %8s %10s  %s\n", "step", "entropy", "normalized", "loss", "drop",
               "errors", "name");
    printf("%10lld", (long long)point->step);
    print_number(9, "%.4f", point->entropy);
    print_number(10, "%.4f", point->normalized);
    print_number(8, "%.4f", point->nll);
    print_number(8, "%+.4f", point->drop);
    print_number(10, "%+.1f", point->drop_errors);
    printf("  %s\n", hl_shown(point->name));
    fflush(stdout); /* the next line may take hours */
}

/* Prints the point as the series' own line. */
static hl_status print_json(const hl_series *series, int64_t index)
{
    HL_HELD(hl_free) char *line = NULL;

    HL_NEED(hl_series_render(&line, series, index));
    hl_put_json_text(line);
    printf("\n");
    fflush(stdout);
    return HL_OK;
}

/* ---------------------------------------------------------------------- alarms */

static bool is_alarm(const hl_series_point *point, int diagnosis, const char *fail_on)
{
    return point->verdicts[diagnosis] == HL_VERDICT_FOUND &&
           hl_diagnosis_is_listed(fail_on, hl_diagnosis_name((size_t)diagnosis));
}

/* Prints a message for every listed diagnosis that was found; returns their number. */
static int print_alarms(const hl_series_point *point, const char *fail_on)
{
    int count = 0;

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (!is_alarm(point, i, fail_on))
            continue;
        hl_complain("watch", "%s: %s: %s", point->name, hl_diagnosis_name((size_t)i),
                    point->findings[i]);
        count++;
    }
    return count;
}

/* ------------------------------------------------------------ a user's command */

enum { MOST_PRINTED = 1 << 16 }; /* largest output of the command, in bytes */

/* Runs a user's command with an object as its input; NULL means that memory is out.  Releases the
 * object.  The command's output goes to standard error; if it fails, this is reported. */
static hl_status run_command(const watch_request *request, json_t *object)
{
    hl_child_limits limits = { request->command_seconds, MOST_PRINTED };
    hl_child_result answer = { 0 };
    HL_HELD(hl_free)
    char *input = object != NULL ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;

    json_decref(object);
    if (input == NULL)
        return HL_NO_MEMORY;
    if (hl_child_run(&answer, request->command, input, strlen(input), limits))
        hl_put_text(stderr, answer.output, answer.n_bytes);
    else
        hl_complain("watch", "--exec: %s", answer.problem);
    free(answer.output);
    return HL_OK;
}

/* Passes { "alarms": [...], "point": {...} } to the user's command. */
static hl_status tell_command(const watch_request *request, const hl_series *series, int64_t index)
{
    HL_HELD(hl_free) char       *line   = NULL;
    HL_HELD(json_decref) json_t *alarms = json_array();
    json_t                      *value  = NULL;

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (is_alarm(hl_series_at(series, index), i, request->fail_on))
            json_array_append_new(alarms, json_string(hl_diagnosis_name((size_t)i)));
    }
    /* The library's line is parsed only to make it part of an object. */
    HL_NEED(hl_series_render(&line, series, index));
    HL_NEED(hl_value_read(&value, line, strlen(line), "the series"));
    return run_command(request,
                       HL_OBJECT(HL_IS("alarms", json_incref(alarms)), HL_IS("point", value)));
}

/* ------------------------------------------------------------------- the figure */

/* The figures of a series; points are drawn by step, whatever their order in it.
 *
 *     entropy   the mean of all heads, the middle half of them and their range, alarms as marks
 *     layers    the mean of each layer's heads, for up to eight layers
 *     loss      nats per token, alarms as marks */

enum { MOST_LAYERS = 8, MOST_ALARMS = 20, NAME_BYTES = 64 };

/* Arrays with one number per step; a figure uses some of them.  They are owned by the caller. */
typedef struct drawing {
    const watch_request    *request;
    const hl_series        *series;
    int64_t                 n;
    const hl_series_point **points; /* (n) points by increasing step */
    double                 *steps;  /* (n) */
    double                 *values; /* (MOST_LAYERS, n) */
    float                  *heads;  /* (n_layers * n_heads) values of a point's heads, sorted */
    double                  alarm_steps[2 * MOST_ALARMS];
    double                  alarm_values[2 * MOST_ALARMS];
    int64_t                 n_alarms; /* number of alarms, counting the gap after each */
    char                    names[MOST_LAYERS][NAME_BYTES];
    hl_curve                curves[MOST_LAYERS + 1];
    int64_t                 n_curves;
} drawing;

static int by_step(const void *left, const void *right)
{
    const hl_series_point *a = *(const hl_series_point *const *)left;
    const hl_series_point *b = *(const hl_series_point *const *)right;

    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int rising(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;

    return (a > b) - (a < b);
}

/* Sorts the heads that exist; returns their number. */
static int64_t sort_heads(drawing *d, const hl_series_point *point)
{
    int64_t size = hl_series_n_layers(d->series) * hl_series_n_heads(d->series);
    int64_t n    = 0;

    for (int64_t i = 0; i < size; i++) {
        if (!isnan(point->heads_normalized[i]))
            d->heads[n++] = point->heads_normalized[i];
    }
    if (n > 1)
        qsort(d->heads, (size_t)n, sizeof *d->heads, rising);
    return n;
}

static double mean_of_layer(const drawing *d, const hl_series_point *point, int64_t layer)
{
    int64_t n_heads = hl_series_n_heads(d->series);
    double  sum     = 0.0;
    int64_t n       = 0;

    for (int64_t head = 0; head < n_heads; head++) {
        float value = point->heads_normalized[layer * n_heads + head];
        if (!isnan(value)) {
            sum += (double)value;
            n++;
        }
    }
    return n > 0 ? sum / (double)n : NAN;
}

static bool has_alarm(const drawing *d, const hl_series_point *point)
{
    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (is_alarm(point, i, d->request->fail_on))
            return true;
    }
    return false;
}

/* Adds marks without a line between them: a gap follows each. */
static void add_alarms(drawing *d, const double *values)
{
    for (int64_t i = 0; i < d->n && d->n_alarms < 2 * MOST_ALARMS; i++) {
        if (!has_alarm(d, d->points[i]) || !isfinite(values[i]))
            continue;
        for (int gap = 0; gap < 2; gap++) {
            d->alarm_steps[d->n_alarms]    = d->steps[i];
            d->alarm_values[d->n_alarms++] = gap ? NAN : values[i];
        }
    }
    if (d->n_alarms > 0)
        d->curves[d->n_curves++] =
            (hl_curve){ .name = d->n_alarms < 2 * MOST_ALARMS ? "alarms" : "the first alarms",
                        .n    = d->n_alarms,
                        .x    = d->alarm_steps,
                        .y    = d->alarm_values };
}

static void add_entropy(drawing *d)
{
    static const double quantiles[] = { 0.0, 1.0, 0.25, 0.75 };

    for (int64_t i = 0; i < d->n; i++) {
        int64_t n_heads = sort_heads(d, d->points[i]);
        d->values[i]    = d->points[i]->normalized;
        for (int q = 0; q < 4; q++)
            d->values[(q + 1) * d->n + i] =
                n_heads > 0
                    ? (double)d->heads[(int64_t)(quantiles[q] * (double)(n_heads - 1) + 0.5)]
                    : NAN;
    }
    d->curves[d->n_curves++] = (hl_curve){ .name       = "mean",
                                           .n          = d->n,
                                           .x          = d->steps,
                                           .y          = d->values,
                                           .low        = d->values + d->n,
                                           .high       = d->values + 2 * d->n,
                                           .inner_low  = d->values + 3 * d->n,
                                           .inner_high = d->values + 4 * d->n };
    add_alarms(d, d->values);
}

static void add_layers(drawing *d)
{
    int64_t n_layers = hl_series_n_layers(d->series);
    int64_t n_shown  = n_layers < MOST_LAYERS ? n_layers : MOST_LAYERS;

    for (int64_t shown = 0; shown < n_shown; shown++) {
        /* Layers are evenly spaced, from the first to the last. */
        int64_t layer = n_shown > 1 ? shown * (n_layers - 1) / (n_shown - 1) : 0;
        double *row   = d->values + shown * d->n;

        for (int64_t i = 0; i < d->n; i++)
            row[i] = mean_of_layer(d, d->points[i], layer);
        snprintf(d->names[shown], NAME_BYTES, "layer %lld", (long long)layer);
        d->curves[d->n_curves++] =
            (hl_curve){ .name = d->names[shown], .n = d->n, .x = d->steps, .y = row };
    }
}

static void add_loss(drawing *d)
{
    for (int64_t i = 0; i < d->n; i++)
        d->values[i] = d->points[i]->nll;
    d->curves[d->n_curves++] =
        (hl_curve){ .name = "loss", .n = d->n, .x = d->steps, .y = d->values };
    add_alarms(d, d->values);
}

static void sort_points(drawing *d)
{
    for (int64_t i = 0; i < d->n; i++)
        d->points[i] = hl_series_at(d->series, i);
    qsort(d->points, (size_t)d->n, sizeof *d->points, by_step);
    for (int64_t i = 0; i < d->n; i++)
        d->steps[i] = (double)d->points[i]->step;
}

static hl_status draw_series(drawing *d)
{
    const char *figure   = d->request->figure;
    bool        is_loss  = strcmp(figure, "loss") == 0;
    bool        is_heads = strcmp(figure, "entropy") == 0;
    char        title[200], what[200];

    if (is_loss)
        add_loss(d);
    else if (is_heads)
        add_entropy(d);
    else
        add_layers(d);
    snprintf(title, sizeof title, "%.120s: %s", d->request->arguments.items[0],
             is_loss ? "loss by training step" : "attention entropy by training step");
    snprintf(what, sizeof what, "%lld checkpoints, %lld tokens each%s", (long long)d->n,
             (long long)d->points[0]->n_tokens,
             is_loss ? "" : "; H / ln n of rows that see at least 16 keys");
    return hl_draw_curves(
        &(hl_curves){ .title      = title,
                      .x_name     = "training step",
                      .y_name     = is_loss ? "nats per token" : "entropy, normalized",
                      .what       = what,
                      .band       = is_heads ? "all heads" : NULL,
                      .inner_band = is_heads ? "the middle half" : NULL,
                      .curves     = d->curves,
                      .n_curves   = d->n_curves },
        d->request->drawing.output, &d->request->drawing.how);
}

static hl_status draw_figure(const watch_work *work)
{
    const hl_series *series = work->series;
    size_t           n      = (size_t)hl_series_n_points(series);
    size_t           size   = (size_t)(hl_series_n_layers(series) * hl_series_n_heads(series));

    HL_HELD(free) const hl_series_point **points = calloc(n + 1, sizeof *points);
    HL_HELD(free) double                 *steps  = calloc(n + 1, sizeof *steps);
    HL_HELD(free) double                 *values = calloc(MOST_LAYERS * (n + 1), sizeof *values);
    HL_HELD(free) float                  *heads  = calloc(size + 1, sizeof *heads);

    if (points == NULL || steps == NULL || values == NULL || heads == NULL)
        return HL_NO_MEMORY;
    drawing d = { .request = work->request,
                  .series  = series,
                  .n       = (int64_t)n,
                  .points  = points,
                  .steps   = steps,
                  .values  = values,
                  .heads   = heads };
    sort_points(&d);
    return draw_series(&d);
}

/* --------------------------------------------------------------------- outputs */

/* Keeps the first failure of a figure or an event file: it does not end the measurements. */
static void note_failure(watch_work *work, hl_status status)
{
    if (status == HL_OK)
        return;
    hl_complain("watch", "%s", hl_error_message());
    if (work->failed == HL_OK)
        work->failed = status;
}

static void update_outputs(watch_work *work)
{
    const watch_request *request = work->request;

    if (hl_series_n_points(work->series) == 0)
        return;
    if (request->events != NULL)
        note_failure(work, hl_series_write_events(work->series, request->events));
    if (request->drawing.output != NULL)
        note_failure(work, draw_figure(work));
}

static hl_status keep_profile(const watch_work *work, const hl_profile *profile, const char *name)
{
    const char         *folder = work->request->profiles;
    size_t              room   = strlen(folder) + strlen(name) + sizeof "/.profile";
    HL_HELD(free) char *path   = malloc(room);

    if (path == NULL)
        return HL_NO_MEMORY;
    mkdir(folder, 0777); /* on failure, writing the files reports it */
    snprintf(path, room, "%s/%s.profile", folder, name);
    return hl_profile_write(profile, path);
}

static hl_status announce(watch_work *work)
{
    const watch_request   *request = work->request;
    int64_t                last    = hl_series_n_points(work->series) - 1;
    const hl_series_point *point   = hl_series_at(work->series, last);
    hl_status              status  = HL_OK;

    if (request->common.json)
        status = print_json(work->series, last);
    else if (!request->common.quiet)
        print_point(point, work->n_shown == 0);
    work->n_shown++;
    if (print_alarms(point, request->fail_on) == 0)
        return status;
    work->n_alarms++;
    if (status == HL_OK && request->command != NULL)
        status = tell_command(request, work->series, last);
    return status;
}

/* ----------------------------------------------------------------- checkpoints */

/* Only failures of the series end the watch. */
static hl_status add_profile(watch_work *work, const hl_profile *profile,
                             const hl_checkpoint *checkpoint, uint64_t text)
{
    const watch_request *request = work->request;
    hl_series_entry      entry   = { .name     = checkpoint->name,
                                     .step     = checkpoint->step,
                                     .n_bytes  = checkpoint->n_bytes,
                                     .modified = checkpoint->modified,
                                     .text     = text };
    hl_series_options options = { .thresholds = &request->thresholds, .n_back = request->n_back };

    HL_NEED(hl_series_add(work->series, profile, &entry, &options));
    HL_NEED(hl_series_write(work->series, request->series_path));
    if (request->profiles != NULL)
        note_failure(work, keep_profile(work, profile, checkpoint->name));
    update_outputs(work);
    return announce(work);
}

/* A file that cannot be read may be incomplete: it is tried again when it changes.  A model that
 * cannot be run, since its weights are not finite, counts as broken and raises an alarm. */
static hl_status report_failure(watch_work *work, const hl_checkpoint *checkpoint, bool is_whole,
                                hl_status status)
{
    const watch_request *request = work->request;
    const char          *broken  = "dead-or-broken";
    char                 problem[600];

    snprintf(problem, sizeof problem, "%s", hl_error_message());
    if (!is_whole || status != HL_BAD_INPUT || !hl_diagnosis_is_listed(request->fail_on, broken)) {
        hl_complain("watch", "%s: %s", checkpoint->name, problem);
        work->failed = work->failed == HL_OK ? status : work->failed;
        return HL_OK;
    }
    hl_complain("watch", "%s: %s: %s", checkpoint->name, broken, problem);
    work->n_alarms++;
    if (request->command == NULL)
        return HL_OK;
    return run_command(request, json_pack("{s:[s], s:s, s:I, s:s}", "alarms", broken, "name",
                                          checkpoint->name, "step", (json_int_t)checkpoint->step,
                                          "problem", problem));
}

static hl_status measure_text(hl_profile **out, const hl_model *model,
                              const hl_tokenizer *tokenizer, const hl_corpus *corpus,
                              const watch_request *request)
{
    hl_progress_bar    progress;
    hl_measure_options options = { .windows   = request->text.windows,
                                   .seed      = request->common.seed,
                                   .nll       = request->nll,
                                   .no_probe  = true,
                                   .n_threads = request->common.n_threads,
                                   .progress  = hl_progress_show,
                                   .context   = &progress };

    hl_progress_start(&progress, stderr, "measuring", request->common.quiet);
    hl_status status = hl_measure(out, model, tokenizer, corpus, &options);
    hl_progress_end(&progress);
    return status;
}

/* *text is the corpus's hash.  *is_whole is true if the files could be read: a later failure is
 * then the model's fault (weights that are not finite), and waiting does not help.  Returns
 * HL_CANCELLED after Ctrl-C. */
static hl_status make_profile(hl_profile **out, uint64_t *text, bool *is_whole, const char *path,
                              const watch_request *request)
{
    HL_HELD(hl_model_close) hl_model         *model     = NULL;
    HL_HELD(hl_tokenizer_close) hl_tokenizer *tokenizer = NULL;
    HL_HELD(hl_corpus_close) hl_corpus       *corpus    = NULL;

    HL_NEED(hl_model_open(&model, path));
    HL_NEED(hl_corpus_options_open(&corpus, &tokenizer, model, &request->text,
                                   request->tokenizer_path));
    *is_whole = true;
    *text     = hl_corpus_get_info(corpus)->hash;
    return measure_text(out, model, tokenizer, corpus, request);
}

static hl_status measure_checkpoint(watch_work *work, const hl_checkpoint *checkpoint,
                                    seen_checkpoint *seen)
{
    HL_HELD(hl_profile_free) hl_profile *profile  = NULL;
    uint64_t                             text     = 0;
    bool                                 is_whole = false;
    hl_status status = make_profile(&profile, &text, &is_whole, checkpoint->path, work->request);

    work->last = hl_clock_now();
    if (status == HL_OK)
        return add_profile(work, profile, checkpoint, text);
    if (status == HL_CANCELLED || status == HL_NO_MEMORY)
        return status;
    seen->is_failed = true;
    return report_failure(work, checkpoint, is_whole, status);
}

static bool is_measured(const watch_work *work, const hl_checkpoint *checkpoint)
{
    const hl_series_point *point = hl_series_find(work->series, checkpoint->name);

    return point != NULL && point->n_bytes == checkpoint->n_bytes &&
           point->modified == checkpoint->modified;
}

static bool is_over(const watch_work *work)
{
    return hl_stop_asked() || (work->request->stop && work->n_alarms > 0);
}

static void mention_unnumbered(watch_work *work, const hl_checkpoints *found)
{
    if (found->n_unnumbered == 0 || work->is_unnumbered_said || work->request->common.quiet)
        return;
    hl_complain("watch", "%s: not measured: its name has no number that could be the training step",
                found->first_unnumbered);
    work->is_unnumbered_said = true;
}

static hl_status look(watch_work *work)
{
    HL_HELD(hl_checkpoints_free) hl_checkpoints *found = NULL;

    HL_NEED(hl_checkpoints_list(&found, work->request->arguments.items[0]));
    mention_unnumbered(work, found);
    for (int64_t i = 0; i < found->count && !is_over(work); i++) {
        seen_checkpoint *seen = see(&work->seen, &found->items[i]);

        if (seen == NULL)
            return HL_NO_MEMORY;
        if (!is_measured(work, &found->items[i]) && !seen->is_failed &&
            is_settled(seen, work->request->settle))
            HL_NEED(measure_checkpoint(work, &found->items[i], seen));
    }
    return HL_OK;
}

/* ----------------------------------------------------------------------- watch */

/* Sleeps in short intervals, since Ctrl-C may come just before one. */
static void rest(double seconds)
{
    double until = hl_clock_now() + seconds;

    while (!hl_stop_asked() && hl_clock_now() < until)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

static hl_status open_series(watch_work *work)
{
    struct stat about;

    if (stat(work->request->series_path, &about) != 0)
        return hl_series_new(&work->series);
    return hl_series_load(&work->series, work->request->series_path);
}

static hl_status watch(watch_work *work)
{
    const watch_request *request = work->request;

    HL_NEED(open_series(work));
    update_outputs(work); /* completes what an interrupted watch has not finished */
    work->last = hl_clock_now();
    for (;;) {
        HL_NEED(look(work));
        bool quiet =
            request->quit_after > 0.0 && hl_clock_now() - work->last >= request->quit_after;
        if (request->once || quiet || is_over(work))
            return HL_OK;
        rest(request->every);
    }
}

/* An alarm determines the exit status before anything else, since alarms are the command's
 * purpose. */
static int exit_code(const watch_work *work, hl_status status)
{
    if (status != HL_OK && status != HL_CANCELLED)
        return hl_finish("watch", status);
    return work->n_alarms > 0 ? HL_EXIT_NO : hl_exit_for(work->failed);
}

int hl_command_watch(int argc, char **argv)
{
    watch_request request = { .thresholds      = hl_thresholds_default(),
                              .figure          = "entropy",
                              .fail_on         = ALARMS,
                              .command_seconds = 60.0,
                              .every           = 10.0,
                              .settle          = -1.0 };

    HL_PASS(parse_request(&request, argc, argv));
    watch_work work = { .request = &request };
    hl_draw_listen("watch");
    hl_stop_watch();
    int code = exit_code(&work, watch(&work));
    free_seen(&work.seen);
    hl_series_free(work.series);
    return code;
}
