/* diagnose_options.c - lists of diagnoses, and thresholds by name. */
#include "diagnose_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

/* ------------------------------------------------------------------------- lists */

bool hl_diagnosis_is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    if (list != NULL && strcmp(list, "any") == 0)
        return true;
    for (const char *word = list; word != NULL; word = strchr(word, ',')) {
        word += *word == ',';
        if (strcspn(word, ",") == length && strncmp(word, name, length) == 0)
            return true;
    }
    return false;
}

static int check_word(const char *name, const hl_usage *usage)
{
    hl_nearest nearest = { .wanted = name };

    for (size_t i = 0; hl_diagnosis_name(i) != NULL; i++) {
        if (strcmp(hl_diagnosis_name(i), name) == 0)
            return HL_OPTIONS_GO_ON;
        hl_nearest_offer(&nearest, hl_diagnosis_name(i));
    }
    return hl_options_refuse(usage, "--fail-on: no diagnosis is called '%s'%s%s%s", name,
                             nearest.word != NULL ? " (did you mean '" : "",
                             nearest.word != NULL ? nearest.word : "",
                             nearest.word != NULL ? "'?)" : "");
}

int hl_diagnosis_list_check(const char *list, const hl_usage *usage)
{
    int code = HL_OPTIONS_GO_ON;

    if (list != NULL && strcmp(list, "any") == 0)
        return code;
    for (const char *word = list; word != NULL && code == HL_OPTIONS_GO_ON;
         word             = strchr(word, ',')) {
        char name[64];

        word += *word == ',';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word, ","), word);
        code = check_word(name, usage);
    }
    return code;
}

/* -------------------------------------------------------------------- thresholds */

static int set_threshold(hl_thresholds *thresholds, const char *text, const hl_usage *usage)
{
    const char *equals = strchr(text, '=');
    char        name[64];
    char       *end = NULL;

    if (equals == NULL || (size_t)(equals - text) >= sizeof name)
        return hl_options_refuse(usage, "--threshold: '%s' is not NAME=VALUE", text);
    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    errno        = 0;
    double value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != '\0' || errno == ERANGE)
        return hl_options_refuse(usage, "--threshold %s: '%s' is not a number", name, equals + 1);
    if (hl_threshold_set(thresholds, name, value) == HL_OK)
        return HL_OPTIONS_GO_ON;
    hl_nearest nearest = { .wanted = name };
    for (size_t i = 0; hl_threshold_name(i) != NULL; i++)
        hl_nearest_offer(&nearest, hl_threshold_name(i));
    if (nearest.word != NULL && nearest.distance > 0)
        return hl_options_refuse(usage, "%s (did you mean '%s'?)", hl_error_message(),
                                 nearest.word);
    return hl_options_refuse(usage, "%s", hl_error_message());
}

int hl_threshold_options_set(hl_thresholds *thresholds, const hl_option_list *given,
                             const hl_usage *usage)
{
    int code = HL_OPTIONS_GO_ON;

    for (int i = 0; i < given->count && code == HL_OPTIONS_GO_ON; i++)
        code = set_threshold(thresholds, given->items[i], usage);
    return code;
}
