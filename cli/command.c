/* command.c - how commands fail. */
#include "command.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "memory.h"

int hl_exit_for(hl_status status)
{
    switch (status) {
    case HL_OK:
        return HL_EXIT_OK;
    case HL_BAD_ARGUMENT:
        return HL_EXIT_USAGE;
    case HL_BAD_INPUT:
    case HL_NOT_FOUND:
    case HL_IO: /* almost always a path that cannot be read or written */
    case HL_UNSUPPORTED:
        return HL_EXIT_INPUT;
    default:
        return HL_EXIT_RESOURCES;
    }
}

const char *hl_explain(hl_status status)
{
    const char *message = hl_error_message();
    return status == HL_NO_MEMORY && strstr(message, "memory") == NULL ? "out of memory" : message;
}

int hl_command_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
    const char *name = argv[0]; /* parsing moves the words */

    hl_memory_forget();
    int code = run(argc, argv);

    if (code != HL_EXIT_RESOURCES && hl_memory_ran_out()) {
        hl_complain(name, "out of memory: what was printed is not complete");
        code = HL_EXIT_RESOURCES;
    }
    return code;
}

void hl_complain(const char *command, const char *format, ...)
{
    char    text[4096]; /* not from the heap: it may be that memory is out */
    char    shown[2 * sizeof text];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hl_printable(shown, sizeof shown, text, strlen(text), HL_PRINTABLE_LINE);
    fflush(stdout); /* so that the two streams stay in order on a terminal */
    fprintf(stderr, "headlight%s%s: %s\n", command != NULL ? " " : "",
            command != NULL ? command : "", shown);
}
