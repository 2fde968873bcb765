/* labels.c - parses lines of JSON from an untrusted file. */
#include "analysis/labels.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"

#define MAX_PLACE ((int64_t)1 << 40)
enum { MAX_TASKS = 64 };

void hl_labels_free(hl_labels *labels)
{
    if (labels == NULL)
        return;
    for (int64_t i = 0; i < labels->count; i++)
        hl_free(labels->items[i].trace);
    for (int64_t i = 0; i < labels->n_tasks; i++)
        hl_free(labels->tasks[i]);
    hl_free(labels->tasks);
    hl_free(labels->items);
    hl_free(labels->where);
    hl_free(labels);
}

int64_t hl_labels_n_tasks(const hl_labels *labels)
{
    return labels->n_tasks;
}

const char *hl_labels_task(const hl_labels *labels, int64_t task)
{
    return task >= 0 && task < labels->n_tasks ? labels->tasks[task] : NULL;
}

/* The range is [first, end) and must not be empty. */
static hl_status read_range(hl_label *label, const json_t *range, const char *name,
                            const char *where)
{
    const json_t *first = json_array_get(range, 0);
    const json_t *end   = json_array_get(range, 1);

    if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(end))
        return hl_fail(HL_BAD_INPUT, "%s: '%s' is %s, wanted two whole numbers [first, end)", where,
                       name, json_is_array(range) ? "another list" : hl_json_kind(range));
    label->first = json_integer_value(first);
    label->end   = json_integer_value(end);
    if (label->first < 0 || label->end <= label->first || label->end > MAX_PLACE)
        return hl_fail(HL_BAD_INPUT, "%s: '%s' from %lld to %lld is not a range", where, name,
                       (long long)label->first, (long long)label->end);
    return HL_OK;
}

/* Finds the task of the last label, or adds it. */
static hl_status read_task(hl_labels *labels, const json_t *object, const char *where)
{
    hl_label   *label = &labels->items[labels->count - 1];
    const char *name  = NULL;

    HL_NEED(hl_json_get_string(&name, object, "task", where));
    if (labels->count > 1 && (name != NULL) != (labels->n_tasks > 0))
        return hl_fail(HL_BAD_INPUT, "%s: %s, wanted 'task' in all lines or in none", where,
                       name != NULL ? "has a 'task', which earlier lines lack"
                                    : "'task' is missing");
    if (name == NULL)
        return HL_OK;
    for (label->task = 0; label->task < labels->n_tasks; label->task++) {
        if (strcmp(labels->tasks[label->task], name) == 0)
            return HL_OK;
    }
    if (labels->n_tasks == MAX_TASKS)
        return hl_fail(HL_BAD_INPUT, "%s: more than %d tasks", where, MAX_TASKS);
    HL_NEED(HL_GROW_ONE(&labels->tasks, labels->n_tasks));
    HL_NEED(hl_strdup(&labels->tasks[labels->n_tasks], name));
    labels->n_tasks++;
    return HL_OK;
}

static hl_status read_label(hl_label *label, const json_t *object, const char *where)
{
    const json_t *tokens     = json_object_get(object, "tokens");
    const json_t *characters = json_object_get(object, "characters");
    const json_t *right      = json_object_get(object, "right");
    const char   *trace      = NULL;

    if (!json_is_object(object))
        return hl_fail(HL_BAD_INPUT, "%s: %s, wanted an object", where, hl_json_kind(object));
    if ((tokens == NULL) == (characters == NULL))
        return hl_fail(HL_BAD_INPUT, "%s: wanted either 'tokens' or 'characters'", where);
    if (!json_is_boolean(right))
        return hl_fail(HL_BAD_INPUT, "%s: 'right' is %s, wanted true or false", where,
                       hl_json_kind(right));
    label->is_right      = json_is_true(right);
    label->is_characters = characters != NULL;
    HL_NEED(read_range(label, tokens != NULL ? tokens : characters,
                       tokens != NULL ? "tokens" : "characters", where));
    HL_NEED(hl_json_get_string(&trace, object, "trace", where));
    if (trace != NULL)
        HL_NEED(hl_strdup(&label->trace, trace));
    return HL_OK;
}

static hl_status add_line(hl_labels *labels, const char *text, size_t n_bytes, int64_t line)
{
    char where[512];

    /* Even a label that cannot be read is released with the others. */
    HL_NEED(HL_GROW(&labels->items, &labels->capacity, (size_t)labels->count, 1));
    hl_label    *label  = &labels->items[labels->count++];
    json_auto_t *object = NULL;

    *label = (hl_label){ .line = line, .task = -1 };
    snprintf(where, sizeof where, "%.400s:%lld", labels->where, (long long)line);
    HL_NEED(hl_json_parse(&object, text, n_bytes, where));
    HL_NEED(read_label(label, object, where));
    return read_task(labels, object, where);
}

static bool is_blank(const char *text, size_t n_bytes)
{
    size_t at = 0;

    while (at < n_bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r'))
        at++;
    return at == n_bytes;
}

HL_CLOSES(hl_labels_free, hl_labels)

hl_status hl_labels_parse(hl_labels **out, const char *bytes, size_t n_bytes, const char *where)
{
    HL_CLOSED(hl_labels_free) hl_labels *labels = NULL;
    int64_t                              line   = 1;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&labels, 1));
    HL_NEED(hl_strdup(&labels->where, where));
    for (size_t at = 0; at < n_bytes; line++) {
        const char *found  = memchr(bytes + at, '\n', n_bytes - at);
        size_t      length = found != NULL ? (size_t)(found - bytes) - at : n_bytes - at;

        if (!is_blank(bytes + at, length))
            HL_NEED(add_line(labels, bytes + at, length, line));
        at += length + 1;
    }
    *out = hl_taken(&labels);
    return HL_OK;
}

hl_status hl_labels_load(hl_labels **out, const char *path)
{
    HL_SCOPED(hl_file_unmap) hl_file file = { 0 };

    *out = NULL;
    HL_NEED(hl_file_map(&file, path));
    return hl_labels_parse(out, (const char *)file.bytes, file.n_bytes, path);
}
