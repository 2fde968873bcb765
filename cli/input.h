/* input.h - text from a file or from standard input. */
#ifndef HL_CLI_INPUT_H
#define HL_CLI_INPUT_H

#include <stddef.h>

typedef struct hl_input {
    char  *bytes; /* with a NUL behind it that is not counted */
    size_t n_bytes;
} hl_input;

/* All of a file; "-" is standard input.  HL_EXIT_OK, or the exit status after a complaint
 * in the name of `command`; then out is empty. */
int  hl_input_read(hl_input *out, const char *path, const char *command);
void hl_input_free(hl_input *input);

#endif
