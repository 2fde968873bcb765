/* input.c - reading all of a file, whatever kind of file it is, and lines of standard input. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

enum { STEP = 65536 };

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

static int read_stream(hl_input *out, FILE *stream, const char *name, const char *command)
{
    do {
        int code = make_room(out, name, command);
        if (code != HL_EXIT_OK)
            return code;
        out->n_bytes += fread(out->bytes + out->n_bytes, 1, STEP, stream);
    } while (!feof(stream) && !ferror(stream));
    out->bytes[out->n_bytes] = '\0';
    return check_stream(stream, name, command);
}

int hl_input_read(hl_input *out, const char *path, const char *command)
{
    int   is_standard = strcmp(path, "-") == 0;
    FILE *stream      = is_standard ? stdin : fopen(path, "rb");

    *out = (hl_input){ 0 };
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
