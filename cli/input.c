/* input.c - reads whole files of any kind, lines of standard input, and lines of JSONL files.
 *
 * Endless input must not fill memory.  A file is read up to the length that it has when it is
 * opened, though it may grow during that time; a pipe or a device, which has no length, up to
 * STREAM_BYTES.  A named pipe is refused, as in all of headlight: opening it would wait for a
 * writer. */
#include "input.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "held.h"
#include "values.h"

enum { STEP = 65536, STREAM_BYTES = 1 << 28 };

/* Makes room for one more step and a NUL. */
static int make_room(hl_input *input, const char *name, const char *command)
{
    if (input->room - input->n_bytes > STEP)
        return HL_EXIT_OK;
    size_t room  = 2 * input->room + 2 * STEP;
    char  *grown = hl_memory_allocate(room);
    if (grown == NULL)
        return hl_give_up(HL_EXIT_RESOURCES, command, "%s: %s", name, hl_error_message());
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
    return hl_give_up(HL_EXIT_INPUT, command, "%s: %s", name, strerror(errno));
}

/* Returns how much to read: the current length of a file; SIZE_MAX otherwise, with STREAM_BYTES as
 * the limit. */
static size_t length_of(FILE *stream)
{
    struct stat info;
    off_t       at = ftello(stream);

    /* Files in /proc have a length of 0. */
    if (fstat(fileno(stream), &info) != 0 || !S_ISREG(info.st_mode) || at < 0 || info.st_size == 0)
        return SIZE_MAX;
    return info.st_size > at ? (size_t)(info.st_size - at) : 0;
}

static int too_long(const char *name, const char *command)
{
    return hl_give_up(HL_EXIT_RESOURCES, command, "%s: more than %d MiB; use a file instead", name,
                      STREAM_BYTES >> 20);
}

static int read_stream(hl_input *out, FILE *stream, const char *name, const char *command)
{
    size_t most = length_of(stream);

    do {
        size_t n = most - out->n_bytes < STEP ? most - out->n_bytes : STEP;

        HL_PASS(make_room(out, name, command));
        out->n_bytes += fread(out->bytes + out->n_bytes, 1, n, stream);
        if (most == SIZE_MAX && out->n_bytes > STREAM_BYTES)
            return too_long(name, command);
    } while (out->n_bytes < most && !feof(stream) && !ferror(stream));
    out->bytes[out->n_bytes] = '\0';
    return check_stream(stream, name, command);
}

/* Returns true for a named pipe; pipes that the shell opened, such as /dev/fd/63, are read. */
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
    if (!is_standard && is_named_pipe(path))
        return hl_give_up(HL_EXIT_INPUT, command,
                          "%s: is a pipe; give a file, or '-' for standard input", path);
    stream = is_standard ? stdin : fopen(path, "rb");
    if (stream == NULL)
        return hl_give_up(HL_EXIT_INPUT, command, "%s: %s", path, strerror(errno));
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
        HL_PASS(make_room(line, name, command));
        if (line->n_bytes >= STREAM_BYTES)
            return too_long(name, command);
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

static bool is_jsonl(const char *path)
{
    const char *ending = strrchr(path, '.');

    return ending != NULL && (strcmp(ending, ".jsonl") == 0 || strcmp(ending, ".ndjson") == 0);
}

/* Adds a document; line 0 stands for the whole file.  The array is full at powers of two. */
static int add_document(hl_input_documents *out, const char *path, int line, const char *text,
                        size_t n_bytes)
{
    size_t room = strlen(path) + 24;

    if ((out->count & (out->count - 1)) == 0) {
        size_t             more  = out->count > 0 ? 2 * (size_t)out->count : 1;
        hl_input_document *items = realloc(out->items, more * sizeof *items);
        if (items == NULL)
            return hl_finish(out->command, HL_NO_MEMORY);
        out->items = items;
    }
    hl_input_document *document = &out->items[out->count];
    *document                   = (hl_input_document){ malloc(room), text, n_bytes };
    if (document->name == NULL)
        return hl_finish(out->command, HL_NO_MEMORY);
    snprintf(document->name, room, line > 0 ? "%s:%d" : "%s", path, line);
    out->count++;
    return HL_EXIT_OK;
}

/* Adds the "text" of a line's object, which is kept. */
static int add_line(hl_input_documents *out, const char *path, int number, const char *line,
                    size_t n_bytes)
{
    char    place[600];
    json_t *object = NULL;

    snprintf(place, sizeof place, "%.500s:%d", path, number);
    hl_status status = hl_value_read(&object, line, n_bytes, place);
    json_t   *text   = json_object_get(object, "text");
    if (status != HL_OK || !json_is_string(text)) {
        hl_complain(out->command, "%s%s", status == HL_OK ? place : "",
                    status == HL_OK ? ": no \"text\", or it is not a string" : hl_explain(status));
        json_decref(object);
        return status == HL_OK ? HL_EXIT_INPUT : hl_exit_for(status);
    }
    if (json_array_append_new(out->lines, object) != 0)
        return hl_finish(out->command, HL_NO_MEMORY);
    return add_document(out, path, number, json_string_value(text), json_string_length(text));
}

static int split_lines(hl_input_documents *out, const char *path)
{
    int         number = 0;
    const char *end    = out->input.bytes + out->input.n_bytes;

    out->lines = json_array();
    if (out->lines == NULL)
        return hl_finish(out->command, HL_NO_MEMORY);
    for (const char *line = out->input.bytes; line < end;) {
        const char *stop    = memchr(line, '\n', (size_t)(end - line));
        size_t      n_bytes = (size_t)((stop != NULL ? stop : end) - line);

        number++;
        if (strspn(line, " \t\r") < n_bytes)
            HL_PASS(add_line(out, path, number, line, n_bytes));
        line += n_bytes + 1;
    }
    return HL_EXIT_OK;
}

int hl_input_documents_read(hl_input_documents *out, const char *path, const char *command)
{
    *out = (hl_input_documents){ .command = command };
    HL_PASS(hl_input_read(&out->input, path, command));
    return is_jsonl(path) ? split_lines(out, path)
                          : add_document(out, path, 0, out->input.bytes, out->input.n_bytes);
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

/* --------------------------------------------------------------- bundled models */

const char *hl_bundled_models(char out[PATH_MAX])
{
    static const char *const places[] = { "models", "share/headlight/models" };
    char                     program[PATH_MAX];
    struct stat              found;

    if (stat("models/demo/config.json", &found) == 0)
        return "models";
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0)
        return NULL;
    program[length] = '\0';
    for (int up = 0; up < 2; up++) { /* removes the program's name, then its folder's */
        char *slash = strrchr(program, '/');
        if (slash == NULL)
            return NULL;
        *slash = '\0';
    }
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n_bytes = snprintf(out, PATH_MAX, "%s/%s/demo/config.json", program, places[i]);
        if (n_bytes < PATH_MAX && stat(out, &found) == 0) {
            out[n_bytes - (int)strlen("/demo/config.json")] = '\0';
            return out;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------ a last word */

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\n' || letter == '\t' || letter == '\r';
}

/* Returns the word's first byte; 0 if nothing precedes it. */
static size_t word_start(const char *text, size_t n_bytes)
{
    size_t at = n_bytes;

    while (at > 0 && is_blank(text[at - 1]))
        at--;
    while (at > 0 && !is_blank(text[at - 1]))
        at--;
    return at;
}

bool hl_last_word_find(size_t *first, size_t *count, const hl_encoding *encoding, const char *text,
                       size_t n_bytes)
{
    size_t start = word_start(text, n_bytes);

    *first = *count = 0;
    for (size_t i = 0; i < encoding->n_tokens; i++) {
        const hl_span *span = &encoding->spans[i];

        if (span->end <= start || span->end == span->begin)
            continue;
        if (*count == 0)
            *first = i;
        *count = i + 1 - *first;
    }
    return start > 0 && *first > 0 && *count > 0;
}

/* ------------------------------------------------------------------- last words */

/* Adds a text if its last word can be predicted; there must be room. */
static int add_text(hl_last_words *out, const hl_input_document *document,
                    const hl_tokenizer *tokenizer, hl_around around, const char *command)
{
    HL_HELD(hl_encoding_free) hl_encoding *encoding = NULL;
    hl_encode_options options = { .add_special = around == HL_AROUND_DOCUMENT };
    size_t            first = 0, count = 0;

    if (hl_tokenizer_encode(&encoding, tokenizer, document->text, document->n_bytes, &options) !=
        HL_OK)
        return hl_give_up(HL_EXIT_INPUT, command, "%s: %s", document->name, hl_error_message());
    if (!hl_last_word_find(&first, &count, encoding, document->text, document->n_bytes))
        return HL_EXIT_OK;
    out->items[out->count]       = (hl_word_text){ encoding->ids, (int64_t)encoding->n_tokens,
                                                   (int64_t)first, (int64_t)count };
    out->encodings[out->count++] = encoding;
    encoding                     = NULL;
    return HL_EXIT_OK;
}

int hl_last_words_read(hl_last_words *out, const char *path, const hl_tokenizer *tokenizer,
                       hl_around around, int64_t most, const char *command)
{
    HL_KEPT(hl_input_documents_free) hl_input_documents documents = { 0 };

    *out = (hl_last_words){ 0 };
    HL_PASS(hl_input_documents_read(&documents, path, command));
    out->items     = malloc(((size_t)documents.count + 1) * sizeof *out->items);
    out->encodings = malloc(((size_t)documents.count + 1) * sizeof *out->encodings);
    if (out->items == NULL || out->encodings == NULL)
        return hl_finish(command, HL_NO_MEMORY);
    for (int i = 0; i < documents.count && (most == 0 || i < most); i++)
        HL_PASS(add_text(out, &documents.items[i], tokenizer, around, command));
    if (out->count == 0)
        return hl_give_up(HL_EXIT_INPUT, command, "%s: no text with two words or more", path);
    return HL_EXIT_OK;
}

void hl_last_words_free(hl_last_words *words)
{
    for (int64_t i = 0; i < words->count; i++)
        hl_encoding_free(words->encodings[i]);
    free(words->encodings);
    free(words->items);
    *words = (hl_last_words){ 0 };
}
