/* eval_texts.c - a file to documents. */
#include "eval_texts.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static int out_of_memory(const char *command)
{
    hl_complain(command, "out of memory");
    return HL_EXIT_RESOURCES;
}

static bool is_jsonl(const char *path)
{
    const char *ending = strrchr(path, '.');

    return ending != NULL && (strcmp(ending, ".jsonl") == 0 || strcmp(ending, ".ndjson") == 0);
}

/* Room for one more: there is always room for a power of two. */
static int grow(hl_eval_documents *out)
{
    size_t more = out->count > 0 ? 2 * (size_t)out->count : 1;

    if ((out->count & (out->count - 1)) != 0)
        return HL_EXIT_OK;
    hl_eval_document *items = realloc(out->items, more * sizeof *items);
    if (items == NULL)
        return out_of_memory(out->command);
    out->items = items;
    return HL_EXIT_OK;
}

/* One more; line 0: the whole file. */
static int add_document(hl_eval_documents *out, const char *path, int line, const char *text,
                        size_t n_bytes)
{
    size_t room = strlen(path) + 24;
    int    code = grow(out);

    if (code != HL_EXIT_OK)
        return code;
    hl_eval_document *document = &out->items[out->count];
    *document                  = (hl_eval_document){ malloc(room), text, n_bytes };
    if (document->name == NULL)
        return out_of_memory(out->command);
    if (line > 0)
        snprintf(document->name, room, "%s:%d", path, line);
    else
        snprintf(document->name, room, "%s", path);
    out->count++;
    return HL_EXIT_OK;
}

/* "text" of a line's object, which is kept. */
static int add_line(hl_eval_documents *out, const char *path, int number, const char *line,
                    size_t n_bytes)
{
    char    place[600];
    json_t *object = NULL;

    snprintf(place, sizeof place, "%.500s:%d", path, number);
    hl_status status = hl_json_read(&object, line, n_bytes, place);
    json_t   *text   = json_object_get(object, "text");
    if (status != HL_OK || !json_is_string(text)) {
        hl_complain(out->command, "%s%s", status == HL_OK ? place : "",
                    status == HL_OK ? ": no \"text\", or it is no string" : hl_explain(status));
        json_decref(object);
        return status == HL_OK ? HL_EXIT_INPUT : hl_exit_for(status);
    }
    if (json_array_append_new(out->lines, object) != 0)
        return out_of_memory(out->command);
    return add_document(out, path, number, json_string_value(text), json_string_length(text));
}

static int split_lines(hl_eval_documents *out, const char *path)
{
    int         code   = HL_EXIT_OK;
    int         number = 0;
    const char *end    = out->input.bytes + out->input.n_bytes;

    out->lines = json_array();
    if (out->lines == NULL)
        return out_of_memory(out->command);
    for (const char *line = out->input.bytes; line < end && code == HL_EXIT_OK;) {
        const char *stop    = memchr(line, '\n', (size_t)(end - line));
        size_t      n_bytes = (size_t)((stop != NULL ? stop : end) - line);

        number++;
        if (strspn(line, " \t\r") < n_bytes)
            code = add_line(out, path, number, line, n_bytes);
        line += n_bytes + 1;
    }
    return code;
}

int hl_eval_documents_read(hl_eval_documents *out, const char *path, const char *command)
{
    *out     = (hl_eval_documents){ .command = command };
    int code = hl_input_read(&out->input, path, command);
    if (code == HL_EXIT_OK && is_jsonl(path))
        code = split_lines(out, path);
    else if (code == HL_EXIT_OK)
        code = add_document(out, path, 0, out->input.bytes, out->input.n_bytes);
    return code;
}

void hl_eval_documents_free(hl_eval_documents *documents)
{
    for (int i = 0; i < documents->count; i++)
        free(documents->items[i].name);
    free(documents->items);
    json_decref(documents->lines);
    hl_input_free(&documents->input);
    *documents = (hl_eval_documents){ 0 };
}
