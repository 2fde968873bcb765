/* input.c - reading all of a file, whatever kind of file it is. */
#include "input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

enum { STEP = 65536 };

/* Room for a step more and a NUL; false when memory is out. */
static int make_room(hl_input *input, size_t *capacity)
{
    if (*capacity - input->n_bytes > STEP)
        return 1;
    char *grown = realloc(input->bytes, 2 * *capacity + 2 * STEP);
    if (grown == NULL)
        return 0;
    input->bytes = grown;
    *capacity    = 2 * *capacity + 2 * STEP;
    return 1;
}

static int read_stream(hl_input *out, FILE *stream, const char *name, const char *command)
{
    size_t capacity = 0;

    do {
        if (!make_room(out, &capacity)) {
            hl_complain(command, "%s: out of memory", name);
            return HL_EXIT_RESOURCES;
        }
        out->n_bytes += fread(out->bytes + out->n_bytes, 1, STEP, stream);
    } while (!feof(stream) && !ferror(stream));
    if (ferror(stream)) {
        hl_complain(command, "%s: %s", name, strerror(errno));
        return HL_EXIT_INPUT;
    }
    out->bytes[out->n_bytes] = '\0';
    return HL_EXIT_OK;
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

void hl_input_free(hl_input *input)
{
    free(input->bytes);
    *input = (hl_input){ 0 };
}
