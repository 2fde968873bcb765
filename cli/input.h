/* input.h - text from a file or from standard input. */
#ifndef HL_CLI_INPUT_H
#define HL_CLI_INPUT_H

#include <stddef.h>

typedef struct hl_input {
    char  *bytes; /* with a NUL behind it that is not counted */
    size_t n_bytes;
    size_t room; /* of the bytes: they count for --max-memory */
} hl_input;

/* All of a file, as long as it is at first; "-" is standard input.  Pipes and devices are bounded.  HL_EXIT_OK, or the exit status after a complaint
 * in the name of `command`; then out is empty. */
int hl_input_read(hl_input *out, const char *path, const char *command);
/* The next line of standard input, with its end, in place of what was there; none is left where it
 * comes out empty. */
int  hl_input_read_line(hl_input *line, const char *command);
void hl_input_free(hl_input *input);

#endif
