/* child.h - a user's command that gets a text and gives one back, within bounds. */
#ifndef HL_CLI_CHILD_H
#define HL_CLI_CHILD_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hl_child_limits {
    double seconds;   /* then it is killed, and all that it has started */
    size_t max_bytes; /* of what it may print */
} hl_child_limits;

typedef struct hl_child_result {
    char *output; /* what it printed, with a NUL behind it; the caller frees it.  NULL on failure */
    size_t n_bytes;
    char   problem[160]; /* why there is no output, in words; "" if there is */
} hl_child_result;

/* Runs `command` by /bin/sh with `input` as its standard input; its standard error is ours.  True
 * if it ended by itself with status 0 and printed no more than it may.  A command that does
 * not read its input has not failed. */
bool hl_child_run(hl_child_result *out, const char *command, const char *input, size_t n_input,
                  hl_child_limits limits);

#endif
