/* watch_print.c - a checkpoint in a line; alarms, and the command that hears of them. */
#include "watch_print.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "command.h"
#include "diagnose_options.h"
#include "printable.h"

enum { MOST_PRINTED = 1 << 16 }; /* bytes of a user's command */

/* ------------------------------------------------------------------------- lines */

/* A number in a column, a dash where there is none. */
static void print_number(int width, const char *format, double value)
{
    char text[40] = "-";

    if (!isnan(value))
        snprintf(text, sizeof text, format, value); /* NOLINT: one of our own formats */
    printf(" %*s", width, text);
}

void hl_watch_print_point(const hl_series_point *point, bool heading)
{
    if (heading)
        printf("%10s %9s %7s %8s %12s  %s\n", "step", "entropy", "fair", "loss", "fall", "name");
    printf("%10lld", (long long)point->step);
    print_number(9, "%.4f", point->entropy);
    print_number(7, "%.4f", point->fair);
    print_number(8, "%.4f", point->nll);
    print_number(6, "%+.1f", point->fall);
    printf(" %-5s  %s\n", isnan(point->fall) ? "" : "sigma", hl_shown(point->name));
    fflush(stdout); /* the next may be hours away */
}

hl_status hl_watch_print_json(const hl_series *series, int64_t index)
{
    char     *line   = NULL;
    hl_status status = hl_series_render(&line, series, index);

    if (status == HL_OK) {
        hl_put_json_text(line);
        printf("\n");
    }
    fflush(stdout);
    hl_free(line);
    return status;
}

/* ------------------------------------------------------------------------ alarms */

static bool is_alarm(const hl_series_point *point, int diagnosis, const char *fail_on)
{
    return point->verdicts[diagnosis] == HL_VERDICT_FOUND &&
           hl_diagnosis_is_listed(fail_on, hl_diagnosis_name((size_t)diagnosis));
}

int hl_watch_print_alarms(const hl_series_point *point, const char *fail_on)
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

/* ----------------------------------------------------------------------- command */

/* Takes the object over, which is NULL when memory is out. */
static hl_status run_command(const char *command, double seconds, json_t *object)
{
    hl_child_result answer = { 0 };
    char           *input  = object != NULL ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;

    json_decref(object);
    if (input == NULL)
        return HL_NO_MEMORY;
    if (hl_child_run(&answer, command, input, strlen(input),
                     (hl_child_limits){ seconds, MOST_PRINTED }))
        hl_put_text(stderr, answer.output, answer.n_bytes);
    else
        hl_complain("watch", "--exec: %s", answer.problem);
    free(answer.output);
    hl_free(input);
    return HL_OK;
}

hl_status hl_watch_run_command(const char *command, double seconds, const hl_series *series,
                               int64_t index, const char *fail_on)
{
    const hl_series_point *point  = hl_series_at(series, index);
    char                  *line   = NULL;
    json_t                *alarms = json_array();
    json_t                *value  = NULL;
    hl_status              status = hl_series_render(&line, series, index);

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        if (is_alarm(point, i, fail_on))
            json_array_append_new(alarms, json_string(hl_diagnosis_name((size_t)i)));
    }
    /* The line is the library's own: read again only to be put into an object. */
    if (status == HL_OK)
        status = hl_json_read(&value, line, strlen(line), "the series");
    if (status == HL_OK)
        status = run_command(command, seconds,
                             json_pack("{s:O, s:o}", "alarms", alarms, "point", value));
    json_decref(alarms);
    hl_free(line);
    return status;
}

hl_status hl_watch_report_broken(const char *command, double seconds,
                                 const hl_checkpoint *checkpoint, const char *problem)
{
    return run_command(command, seconds,
                       json_pack("{s:[s], s:s, s:I, s:s}", "alarms", "dead-or-broken", "name",
                                 checkpoint->name, "step", (json_int_t)checkpoint->step, "problem",
                                 problem));
}
