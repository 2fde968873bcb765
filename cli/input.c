/* input.c - reading all of a file, whatever kind of file it is, lines of standard input, and lines of
 * JSONL files.
 *
 * What has no end must not fill memory.  A file is read up to the length that it has when it is
 * opened, though somebody may append to it meanwhile; pipes and devices, which have none, up to
 * STREAM_BYTES.  A named pipe is refused, as everywhere else: opening it would wait for a writer. */
#include "input.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"

enum { STEP = 65536, STREAM_BYTES = 1 << 28 };

/* Room for a step more and a NUL. */
static int make_room(hl_input *input, const char *name, const char *command)
{
    if (input->room - input->n_bytes > STEP)
        return HL_EXIT_OK;
    size_t room  = 2 * input->room + 2 * STEP;
    char  *grown = hl_memory_allocate(room);
    if (grown == NULL) {
        hl_complain(command, "%s: %s", name, hl_error_message());
        return HL_EXIT_RESOURCES;
    }
    if (input->n_bytes > 0)
        memcpy(grown, input->bytes, input->n_bytes);
    hl_free(input->bytes);
    input->bytes = grown;
    input->room  = room;
    return HL_EXIT_OK;
}

static int check_stream(FILE *stream, const char *name, const char *command)
{
    if (!ferror(stream))
        return HL_EXIT_OK;
    hl_complain(command, "%s: %s", name, strerror(errno));
    return HL_EXIT_INPUT;
}

/* How much is read: of a file as much as there is now; SIZE_MAX: until STREAM_BYTES are too many. */
static size_t length_of(FILE *stream)
{
    struct stat info;
    off_t       at = ftello(stream);

    /* Files of /proc say that they are empty. */
    if (fstat(fileno(stream), &info) != 0 || !S_ISREG(info.st_mode) || at < 0 || info.st_size == 0)
        return SIZE_MAX;
    return info.st_size > at ? (size_t)(info.st_size - at) : 0;
}

static int too_long(const char *name, const char *command)
{
    hl_complain(command, "%s: more than %d MiB without an end; use a file", name,
                STREAM_BYTES >> 20);
    return HL_EXIT_RESOURCES;
}

static int read_stream(hl_input *out, FILE *stream, const char *name, const char *command)
{
    size_t most = length_of(stream);

    do {
        int    code = make_room(out, name, command);
        size_t n    = most - out->n_bytes < STEP ? most - out->n_bytes : STEP;
        if (code != HL_EXIT_OK)
            return code;
        out->n_bytes += fread(out->bytes + out->n_bytes, 1, n, stream);
        if (most == SIZE_MAX && out->n_bytes > STREAM_BYTES)
            return too_long(name, command);
    } while (out->n_bytes < most && !feof(stream) && !ferror(stream));
    out->bytes[out->n_bytes] = '\0';
    return check_stream(stream, name, command);
}

/* A pipe with a name of its own; those that the shell opened, /dev/fd/63, are read. */
static bool is_named_pipe(const char *path)
{
    struct stat info;

    return strncmp(path, "/dev/", 5) != 0 && strncmp(path, "/proc/", 6) != 0 &&
           stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

int hl_input_read(hl_input *out, const char *path, const char *command)
{
    int   is_standard = strcmp(path, "-") == 0;
    FILE *stream      = NULL;

    *out = (hl_input){ 0 };
    if (!is_standard && is_named_pipe(path)) {
        hl_complain(command, "%s: is a pipe, wanted a file (standard input is '-')", path);
        return HL_EXIT_INPUT;
    }
    stream = is_standard ? stdin : fopen(path, "rb");
    if (stream == NULL) {
        hl_complain(command, "%s: %s", path, strerror(errno));
        return HL_EXIT_INPUT;
    }
    int code = read_stream(out, stream, is_standard ? "standard input" : path, command);
    if (!is_standard)
        fclose(stream);
    if (code != HL_EXIT_OK)
        hl_input_free(out);
    return code;
}

int hl_input_read_line(hl_input *line, const char *command)
{
    static const char name[] = "standard input";
    int               byte   = 0;

    line->n_bytes = 0;
    while (byte != '\n' && (byte = getc_unlocked(stdin)) != EOF) {
        int code = make_room(line, name, command);
        if (code == HL_EXIT_OK && line->n_bytes >= STREAM_BYTES)
            code = too_long(name, command);
        if (code != HL_EXIT_OK)
            return code;
        line->bytes[line->n_bytes++] = (char)byte;
        line->bytes[line->n_bytes]   = '\0';
    }
    return check_stream(stdin, name, command);
}

void hl_input_free(hl_input *input)
{
    hl_free(input->bytes);
    *input = (hl_input){ 0 };
}

/* ------------------------------------------------------------------- documents */

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
static int grow(hl_input_documents *out)
{
    size_t more = out->count > 0 ? 2 * (size_t)out->count : 1;

    if ((out->count & (out->count - 1)) != 0)
        return HL_EXIT_OK;
    hl_input_document *items = realloc(out->items, more * sizeof *items);
    if (items == NULL)
        return out_of_memory(out->command);
    out->items = items;
    return HL_EXIT_OK;
}

/* One more; line 0: the whole file. */
static int add_document(hl_input_documents *out, const char *path, int line, const char *text,
                        size_t n_bytes)
{
    size_t room = strlen(path) + 24;
    int    code = grow(out);

    if (code != HL_EXIT_OK)
        return code;
    hl_input_document *document = &out->items[out->count];
    *document                   = (hl_input_document){ malloc(room), text, n_bytes };
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
static int add_line(hl_input_documents *out, const char *path, int number, const char *line,
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

static int split_lines(hl_input_documents *out, const char *path)
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

int hl_input_documents_read(hl_input_documents *out, const char *path, const char *command)
{
    *out     = (hl_input_documents){ .command = command };
    int code = hl_input_read(&out->input, path, command);
    if (code == HL_EXIT_OK && is_jsonl(path))
        code = split_lines(out, path);
    else if (code == HL_EXIT_OK)
        code = add_document(out, path, 0, out->input.bytes, out->input.n_bytes);
    return code;
}

void hl_input_documents_free(hl_input_documents *documents)
{
    for (int i = 0; i < documents->count; i++)
        free(documents->items[i].name);
    free(documents->items);
    json_decref(documents->lines);
    hl_input_free(&documents->input);
    *documents = (hl_input_documents){ 0 };
}
