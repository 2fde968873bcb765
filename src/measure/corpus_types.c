/* corpus_types.c - names of token types, and the rules that give them. */
#include "measure/corpus_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/utf8.h"

/* The predefined types, in the order of their numbers. */
static const char *const own_names[] = { "prompt", "special", "system", "user", "assistant" };
enum { N_ALWAYS = 2, N_OWN = sizeof own_names / sizeof *own_names };

/* --------------------------------------------------------------------- names */

static hl_status check_name(const char *name, const char *where)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t length = strlen(name);

    if (length > 0 && length <= HL_MAX_TYPE_NAME && strspn(name, letters) == length)
        return HL_OK;
    return hl_fail(
        HL_BAD_INPUT,
        "%s: '%.64s' is not a name for a token type, wanted 1 to %d letters, digits, _ or -", where,
        name, HL_MAX_TYPE_NAME);
}

static int64_t find_name(const hl_types *types, const char *name)
{
    for (int64_t i = 0; i < types->n_types; i++) {
        if (strcmp(types->names[i], name) == 0)
            return i;
    }
    return -1;
}

static bool is_always_there(const char *name)
{
    return strcmp(name, own_names[HL_TYPE_PROMPT]) == 0 ||
           strcmp(name, own_names[HL_TYPE_SPECIAL]) == 0;
}

static hl_status too_many(const hl_types *types, const char *name, const char *where)
{
    char   list[HL_MAX_TYPES * (HL_MAX_TYPE_NAME + 3)] = "";
    size_t used                                        = 0;

    for (int64_t i = 0; i < types->n_types; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? ", " : "",
                                 types->names[i]);
    return hl_fail(
        HL_LIMIT,
        "%s: '%s' is one token type too many beside %s: at most %d with prompt and special", where,
        name, list, HL_MAX_TYPES);
}

hl_status hl_types_need(hl_types *types, const char *name, const char *where)
{
    hl_status status = check_name(name, where);

    if (status != HL_OK || is_always_there(name) || find_name(types, name) >= 0)
        return status;
    if (types->n_types == HL_MAX_TYPES - N_ALWAYS)
        return too_many(types, name, where);
    status = hl_strdup(&types->names[types->n_types], name);
    if (status == HL_OK)
        types->n_types++;
    return status;
}

/* ------------------------------------------------------------------ numbering */

/* Returns the rank of a name: predefined names first, then all others alphabetically. */
static int rank_of(const char *name)
{
    for (int i = 0; i < N_OWN; i++) {
        if (strcmp(name, own_names[i]) == 0)
            return i;
    }
    return N_OWN;
}

static int compare_types(const void *a, const void *b)
{
    const char *left  = *(char *const *)a;
    const char *right = *(char *const *)b;
    int         order = rank_of(left) - rank_of(right);

    return order != 0 ? order : strcmp(left, right);
}

hl_status hl_types_finish(hl_types *types)
{
    for (int i = N_ALWAYS; i < N_OWN && types->has_chat; i++)
        HL_NEED(hl_types_need(types, own_names[i], "chats"));
    for (int i = 0; i < N_ALWAYS; i++) {
        HL_NEED(hl_strdup(&types->names[types->n_types], own_names[i]));
        types->n_types++;
    }
    qsort(types->names, (size_t)types->n_types, sizeof *types->names, compare_types);
    for (size_t i = 0; i < types->n_rules; i++)
        types->rules[i].type = hl_types_find(types, types->rules[i].name);
    return HL_OK;
}

uint8_t hl_types_find(const hl_types *types, const char *name)
{
    int64_t type = find_name(types, name);
    return type >= 0 ? (uint8_t)type : HL_TYPE_PROMPT;
}

/* ---------------------------------------------------------------------- rules */

static hl_status parse_rule(hl_types *types, const char *text)
{
    const char   *equals = strchr(text, '=');
    hl_type_rule *rule   = &types->rules[types->n_rules];

    if (equals == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "type '%.100s': wanted NAME=EXPRESSION", text);
    HL_NEED(hl_strndup(&rule->name, text, (size_t)(equals - text)));
    types->n_rules++; /* counted now, so that close releases it */
    HL_NEED(hl_types_need(types, rule->name, "type"));
    return hl_pattern_new(&rule->pattern, equals + 1, strlen(equals + 1));
}

hl_status hl_types_open(hl_types *out, const char *const *rules, size_t n_rules)
{
    *out = (hl_types){ 0 };
    HL_NEED(HL_ALLOC_ZEROED(&out->rules, n_rules));
    for (size_t i = 0; i < n_rules; i++)
        HL_NEED(parse_rule(out, rules[i]));
    return HL_OK;
}

void hl_types_close(hl_types *types)
{
    for (int64_t i = 0; i < types->n_types; i++)
        hl_free(types->names[i]);
    for (size_t i = 0; i < types->n_rules; i++) {
        hl_pattern_free(types->rules[i].pattern);
        hl_free(types->rules[i].name);
    }
    hl_free(types->rules);
    *types = (hl_types){ 0 };
}

static void mark_span(uint8_t *marks, hl_span span, uint8_t type)
{
    for (size_t i = span.begin; i < span.end; i++) {
        if (marks[i] == HL_NO_TYPE)
            marks[i] = type;
    }
}

static hl_status mark_rule(uint8_t *marks, const hl_type_rule *rule, hl_matcher *matcher,
                           const char *text, size_t n_bytes)
{
    size_t  at    = 0;
    bool    found = true;
    hl_span span;

    while (at < n_bytes) {
        hl_status status =
            hl_pattern_find(&span, &found, rule->pattern, matcher, text, n_bytes, at);
        if (status != HL_OK)
            return hl_fail_within(status, "type %s", rule->name);
        if (!found)
            return HL_OK;
        mark_span(marks, span, rule->type);
        at = span.end;
        if (span.end == span.begin && at < n_bytes) /* an empty match: move on by one character */
            at += hl_utf8_length(text + at, n_bytes - at);
    }
    return HL_OK;
}

hl_status hl_types_mark(uint8_t *marks, const hl_types *types, hl_matcher *matcher,
                        const char *text, size_t n_bytes)
{
    hl_status status = HL_OK;
    hl_budget budget = hl_budget_begin(n_bytes, NULL, NULL);

    hl_matcher_set_budget(matcher, &budget);
    for (size_t i = 0; i < types->n_rules; i++)
        HL_TRY(mark_rule(marks, &types->rules[i], matcher, text, n_bytes));

done:
    hl_matcher_set_budget(matcher, NULL);
    return status;
}
