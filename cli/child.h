/* child.h - runs a user's command that gets a text and returns one, within limits. */
#ifndef HL_CLI_CHILD_H
#define HL_CLI_CHILD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hl_child_limits {
    double seconds;   /* time limit; then it is killed together with everything that it started */
    size_t max_bytes; /* limit of its output */
} hl_child_limits;

typedef struct hl_child_result {
    char  *output; /* its output, NUL-terminated; the caller frees it. NULL on failure */
    size_t n_bytes;
    char   problem[160]; /* why there is no output, in words; "" on success */
} hl_child_result;

/* Runs `command` by /bin/sh with `input` as its standard input; it shares our standard error.
 * Returns true if it exited with status 0 and its output was within the limit. A command that does
 * not read its input has not failed. */
bool hl_child_run(hl_child_result *out, const char *command, const char *input, size_t n_input,
                  hl_child_limits limits);

#endif
