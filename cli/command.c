/* command.c - how commands fail, run out of memory, and are stopped.
 *
 * A shortage of memory is recorded in a flag, which is atomic because `serve` has threads.  Ctrl-C
 * sets a flag that long work checks from time to time. */
#include "command.h"

#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ------------------------------------------- memory that things are shown with */

static atomic_bool ran_out;

static void *noticed(void *block)
{
    if (block == NULL)
        ran_out = true;
    return block;
}

void *hl_memory_take(size_t n_bytes)
{
    return noticed(malloc(n_bytes > 0 ? n_bytes : 1));
}

void *hl_memory_take_zeroed(size_t count, size_t size)
{
    return noticed(calloc(count > 0 ? count : 1, size));
}

static void *take_counted(size_t n_bytes)
{
    return noticed(hl_memory_allocate(n_bytes));
}

void hl_memory_watch(void)
{
    json_set_alloc_funcs(take_counted, hl_free);
}

void hl_memory_missed(void)
{
    ran_out = true;
}

void hl_memory_forget(void)
{
    ran_out = false;
}

/* ----------------------------------------------------------- how commands fail */

int hl_exit_for(hl_status status)
{
    switch (status) {
    case HL_OK:
        return HL_EXIT_OK;
    case HL_BAD_ARGUMENT:
        return HL_EXIT_USAGE;
    case HL_BAD_INPUT:
    case HL_NOT_FOUND:
    case HL_IO: /* nearly always a path that cannot be read or written */
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
    const char *name = argv[0]; /* parsing reorders argv */

    ran_out  = false;
    int code = run(argc, argv);

    if (code != HL_EXIT_RESOURCES && ran_out)
        return hl_give_up(HL_EXIT_RESOURCES, name, "out of memory: the output is incomplete");
    return code == HL_EXIT_DONE ? HL_EXIT_OK : code;
}

int hl_give_up(int code, const char *command, const char *format, ...)
{
    char    text[4096]; /* not on the heap, since memory may be out */
    char    shown[2 * sizeof text];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    hl_printable(shown, sizeof shown, text, strlen(text), HL_PRINTABLE_LINE);
    fflush(stdout); /* keeps the two streams in order on a terminal */
    fprintf(stderr, "headlight%s%s: %s\n", command != NULL ? " " : "",
            command != NULL ? command : "", shown);
    return code;
}

int hl_finish(const char *command, hl_status status)
{
    if (status != HL_OK)
        hl_complain(command, "%s", hl_explain(status));
    return hl_exit_for(status);
}

/* ---------------------------------------------------------------------- Ctrl-C */

static volatile sig_atomic_t asked;

static void ask(int signal)
{
    (void)signal;
    asked = 1;
}

void hl_stop_watch(void)
{
    struct sigaction action = { .sa_handler = ask, .sa_flags = (int)SA_RESETHAND };

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool hl_stop_asked(void)
{
    return asked != 0;
}

/* ------------------------------------------------------------------------ time */

double hl_clock_now(void)
{
    struct timespec time = { 0 };

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
