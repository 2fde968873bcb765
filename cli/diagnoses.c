/* diagnoses.c - lists of diagnoses, thresholds by name, and findings in words.
 *
 *     1 problem found in demo.profile: 6 checks passed, 1 not run (needs 129 generated tokens)
 *
 *     FOUND         sink-heads: 12 of 64 heads; highest: 0.982
 *                   rule         a mean attention of more than 0.3 to the first key
 *                   value        0.982; found above 0.3 (idea: Xiao et al. 2023; threshold ours)
 *                   heads        L4H1 0.982, L4H6 0.915 ...
 *     not found     flat-profile: range 0.41 ...
 *     not run       attention-locking: ... */
#include "diagnoses.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "held.h"
#include "values.h"

/* ---------------------------------------------------------- lists of diagnoses */

bool hl_diagnosis_is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);

    if (list != NULL && strcmp(list, "any") == 0) {
        for (size_t i = 0; hl_diagnosis_name(i) != NULL; i++) {
            if (strcmp(hl_diagnosis_name(i), name) == 0)
                return hl_diagnosis_kind(i) == HL_CHECK_ALARM;
        }
        return false;
    }
    for (const char *word = list; word != NULL; word = strchr(word, ',')) {
        word += *word == ',';
        if (strcspn(word, ",") == length && strncmp(word, name, length) == 0)
            return true;
    }
    return false;
}

int hl_diagnosis_list_check(const char *list, const hl_usage *usage)
{
    if (list != NULL && strcmp(list, "any") == 0)
        return HL_EXIT_OK;
    for (const char *word = list; word != NULL; word = strchr(word, ',')) {
        char name[64];

        word += *word == ',';
        snprintf(name, sizeof name, "%.*s", (int)strcspn(word, ","), word);
        HL_PASS(hl_options_check_name(usage, "fail-on", "diagnosis", name, hl_diagnosis_name, ""));
    }
    return HL_EXIT_OK;
}

/* ------------------------------------------------------------------ thresholds */

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
        return HL_EXIT_OK;
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
    for (int i = 0; i < given->count; i++)
        HL_PASS(set_threshold(thresholds, given->items[i], usage));
    return HL_EXIT_OK;
}

/* -------------------------------------------------------------------- in words */

enum { INDENT = 14, FIELD = 12, HEADS_SHOWN = 8 };

static void print_field(const char *name, const char *text)
{
    if (text[0] == '\0')
        return;
    printf("%*s%-*s", INDENT, "", FIELD, name);
    hl_print_wrapped(text, INDENT + FIELD);
}

static void format_number(char *out, size_t n_bytes, double value)
{
    if (isnan(value))
        snprintf(out, n_bytes, "not measured");
    else
        snprintf(out, n_bytes, "%.4g", value);
}

static void print_value(const hl_diagnosis *item)
{
    char value[32], threshold[32], idea[128], text[256];

    format_number(value, sizeof value, item->value);
    format_number(threshold, sizeof threshold, item->threshold);
    snprintf(idea, sizeof idea, "%s%s", item->source[0] != '\0' ? "idea: " : item->evidence,
             item->source);
    size_t used = (size_t)snprintf(text, sizeof text, "%s %s; found %s %s", value, item->unit,
                                   item->below ? "below" : "above", threshold);
    if (!isnan(item->errors))
        used += (size_t)snprintf(text + used, sizeof text - used, "; %.1f times its uncertainty",
                                 item->errors);
    snprintf(text + used, sizeof text - used, " (%s; threshold ours)", idea);
    print_field("effect", text);
}

static void print_heads(const hl_diagnosis *item, const hl_profile *profile)
{
    char   text[512] = "", name[HL_HEAD_NAME_BYTES];
    size_t used      = 0;

    for (int64_t i = 0; i < item->n_heads && i < HEADS_SHOWN; i++)
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%s %.3g", i > 0 ? ", " : "",
            hl_profile_head_name(name, profile, item->heads[i].layer, item->heads[i].head),
            item->heads[i].value);
    if (item->n_heads > HEADS_SHOWN)
        snprintf(text + used, sizeof text - used, " and %lld more",
                 (long long)(item->n_heads - HEADS_SHOWN));
    print_field("heads", text);
}

/* How a check came out, in the order in which readers ask: what to act on, what else was seen, what
 * passed, and what did not run. */
typedef enum outcome {
    OUTCOME_ALARM = 0,
    OUTCOME_OBSERVED,
    OUTCOME_NOT_FOUND,
    OUTCOME_NOT_RUN,
    N_OUTCOMES
} outcome;

static outcome outcome_of(const hl_diagnosis *item)
{
    if (item->verdict == HL_VERDICT_FOUND)
        return item->kind == HL_CHECK_ALARM ? OUTCOME_ALARM : OUTCOME_OBSERVED;
    return item->verdict == HL_VERDICT_NOT_FOUND ? OUTCOME_NOT_FOUND : OUTCOME_NOT_RUN;
}

static const char *outcome_word(const hl_diagnosis *item)
{
    static const char *const words[N_OUTCOMES] = { "FOUND", "observed", "not found", "not run" };

    return words[outcome_of(item)];
}

static const char *outcome_color(const hl_diagnosis *item, const hl_colors *colors)
{
    const char *all[N_OUTCOMES] = { colors->bad, colors->plain, colors->good, colors->dim };

    return all[outcome_of(item)];
}

static void print_heading(const hl_diagnosis *item, const hl_colors *colors)
{
    char text[1024];

    snprintf(text, sizeof text, "%s%s%s", item->name, item->finding[0] != '\0' ? ": " : "",
             item->finding);
    printf("%s%-*s%s", outcome_color(item, colors), INDENT, outcome_word(item), colors->plain);
    hl_print_wrapped(text, INDENT);
}

/* Each hypothesis with its evidence, and what would tell it from the others. */
static void print_causes(const hl_diagnosis *item)
{
    char text[1024];

    for (int64_t i = 0; i < item->n_causes; i++) {
        const hl_cause *cause = &item->causes[i];
        size_t          used  = (size_t)snprintf(text, sizeof text, "%s?", cause->name);

        if (cause->supports[0] != '\0' && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, " For: %s", cause->supports);
        if (cause->against[0] != '\0' && used < sizeof text)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, " Against: %s", cause->against);
        if (used < sizeof text)
            snprintf(text + used, sizeof text - used, " To find out: %s", cause->command);
        print_field(i == 0 ? "causes" : "", text);
    }
}

/* Prints one check; `verbose` prints every check in as much detail as those that found
 * something. */
static void print_check(const hl_diagnosis *item, const hl_profile *profile, bool verbose,
                        const hl_colors *colors)
{
    bool all = verbose || item->verdict == HL_VERDICT_FOUND;

    print_heading(item, colors);
    if (item->verdict != HL_VERDICT_NOT_RUN || verbose) {
        print_field("rule", item->rule);
        print_value(item);
    }
    if (all) {
        print_field("usual", item->usual);
        print_heads(item, profile);
        print_field("against", item->against);
        print_causes(item);
        print_field("mitigation", item->mitigation);
    }
    if (all || item->verdict == HL_VERDICT_NOT_RUN)
        print_field(item->verdict == HL_VERDICT_NOT_RUN ? "to run it" : "to confirm",
                    item->measure);
}

/* Prints "No problems found in demo: 6 checks passed, 2 not run; 1 observation". */
static void print_summary(const hl_diagnoses *found, const char *name)
{
    int         counts[N_OUTCOMES] = { 0 };
    const char *reason             = "";
    char        text[1024];

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &found->items[i];

        if (item->kind == HL_CHECK_ALARM || item->verdict == HL_VERDICT_FOUND)
            counts[outcome_of(item)]++;
        if (item->kind == HL_CHECK_ALARM && item->verdict == HL_VERDICT_NOT_RUN)
            reason = item->finding;
    }
    int    n_found = counts[OUTCOME_ALARM], n_not_run = counts[OUTCOME_NOT_RUN];
    size_t used = 0;
    if (n_found == 0)
        used = (size_t)snprintf(text, sizeof text, "No problems found in %.200s", hl_shown(name));
    else
        used = (size_t)snprintf(text, sizeof text, "%d problem%s found in %.200s", n_found,
                                n_found == 1 ? "" : "s", hl_shown(name));
    used += (size_t)snprintf(text + used, sizeof text - used, ": %d check%s passed",
                             counts[OUTCOME_NOT_FOUND], counts[OUTCOME_NOT_FOUND] == 1 ? "" : "s");
    if (n_not_run > 0)
        used += (size_t)snprintf(text + used, sizeof text - used, ", %d not run", n_not_run);
    if (n_not_run == 1 && used < sizeof text)
        used += (size_t)snprintf(text + used, sizeof text - used, " (%s)", reason);
    if (counts[OUTCOME_OBSERVED] > 0 && used < sizeof text)
        snprintf(text + used, sizeof text - used, "; %d observation%s", counts[OUTCOME_OBSERVED],
                 counts[OUTCOME_OBSERVED] == 1 ? "" : "s");
    hl_print_wrapped(text, 0);
}

void hl_diagnoses_print(const hl_diagnoses *found, const hl_profile *profile, const char *path,
                        bool verbose)
{
    hl_colors colors = hl_terminal_colors(stdout);

    print_summary(found, hl_base_name(path));
    for (int group = 0; group < N_OUTCOMES; group++) {
        for (int i = 0; i < HL_N_DIAGNOSES; i++) {
            if ((int)outcome_of(&found->items[i]) != group)
                continue;
            printf("\n");
            print_check(&found->items[i], profile, verbose, &colors);
        }
    }
}

void hl_diagnoses_print_brief(const hl_diagnoses *found, const hl_colors *colors)
{
    for (int group = 0; group < N_OUTCOMES; group++) {
        for (int i = 0; i < HL_N_DIAGNOSES; i++) {
            const hl_diagnosis *item = &found->items[i];

            if ((int)outcome_of(item) != group)
                continue;
            printf("  %s%-*s%s%-22s", outcome_color(item, colors), INDENT, outcome_word(item),
                   colors->plain, item->name);
            hl_print_wrapped(item->finding, 2 + INDENT + 22);
        }
    }
}

/* --------------------------------------------------------------------- as JSON */

static json_t *json_heads(const hl_diagnosis *item)
{
    json_t *heads = json_array();

    for (int64_t i = 0; i < item->n_heads; i++)
        json_array_append_new(heads, HL_OBJECT(HL_IS("layer", item->heads[i].layer),
                                               HL_IS("head", item->heads[i].head),
                                               HL_IS("value", item->heads[i].value)));
    return heads;
}

static json_t *json_causes(const hl_diagnosis *item)
{
    json_t *causes = json_array();

    for (int64_t i = 0; i < item->n_causes; i++) {
        const hl_cause *cause = &item->causes[i];
        json_array_append_new(
            causes, HL_OBJECT(HL_IS("name", cause->name), HL_IS("for", cause->supports),
                              HL_IS("against", cause->against), HL_IS("command", cause->command)));
    }
    return causes;
}

json_t *hl_diagnoses_json(const hl_diagnoses *found)
{
    json_t *items = json_array();

    for (int i = 0; i < HL_N_DIAGNOSES; i++) {
        const hl_diagnosis *item = &found->items[i];

        json_array_append_new(
            items,
            HL_OBJECT(HL_IS("name", item->name),
                      HL_IS("kind", item->kind == HL_CHECK_ALARM ? "alarm" : "observation"),
                      HL_IS("verdict", hl_verdict_name(item->verdict)), HL_IS("rule", item->rule),
                      HL_IS("value", item->value), HL_IS("threshold", item->threshold),
                      HL_IS("unit", item->unit), HL_IS("errors", item->errors),
                      HL_IS("below", item->below), HL_IS("evidence", item->evidence),
                      HL_IS("source", item->source), HL_IS("finding", item->finding),
                      HL_IS("heads", json_heads(item)), HL_IS("against", item->against),
                      HL_IS("usual", item->usual), HL_IS("causes", json_causes(item)),
                      HL_IS("mitigation", item->mitigation), HL_IS("measure", item->measure)));
    }
    return items;
}

/* ------------------------------------------------------------------ the summary */

hl_status hl_summary_print(const hl_summary *summary)
{
    for (int64_t i = 0; i < summary->n_sentences; i++) {
        HL_HELD(hl_free) char *text = NULL;

        HL_NEED(hl_summary_sentence(&text, summary, i));
        hl_print_wrapped(text, 0);
    }
    return HL_OK;
}

json_t *hl_summary_json(const hl_summary *summary)
{
    json_t *sentences = json_array();

    for (int64_t sentence = 0; sentence < summary->n_sentences; sentence++) {
        HL_HELD(hl_free) char *text  = NULL;
        json_t                *parts = json_array();

        if (hl_summary_sentence(&text, summary, sentence) != HL_OK)
            hl_memory_missed();
        for (int64_t i = 0; i < summary->n_parts; i++) {
            const hl_summary_part *part = &summary->parts[i];
            if (part->sentence == sentence)
                json_array_append_new(parts, HL_OBJECT(HL_IS("text", part->text),
                                                       HL_IS("shows", (const char *)part->shows)));
        }
        json_array_append_new(sentences, HL_OBJECT(HL_IS("text", text), HL_IS("parts", parts)));
    }
    return sentences;
}
