/* input.c - reading all of a file, whatever kind of file it is, and lines of standard input.
 *
 * What has no end must not fill memory.  A file is read up to the length that it has when it is
 * opened, though somebody may append to it meanwhile; pipes and devices, which have none, up to
 * STREAM_BYTES.  A named pipe is refused, as everywhere else: opening it would wait for a writer. */
#include "input.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
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
