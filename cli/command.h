/* command.h - what a command is, what its exit status means, and what all commands stand on:
 * complaints, memory, Ctrl-C, time.
 *
 * Each command lives in its own cmd_NAME.c, is declared here and is listed in
 * main.c.  It gets its own name as argv[0] and returns one of these. */
#ifndef HL_CLI_COMMAND_H
#define HL_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "headlight.h"

enum {
    HL_EXIT_OK        = 0,
    HL_EXIT_NO        = 1,   /* a check was made, and it said no   */
    HL_EXIT_USAGE     = 2,   /* the command line makes no sense    */
    HL_EXIT_INPUT     = 3,   /* a file is not what it should be    */
    HL_EXIT_RESOURCES = 4,   /* memory, disk or a limit ran out    */
    HL_EXIT_STOPPED   = 130, /* by Ctrl-C, as shells say it      */
};

/* The exit status for a library failure. */
int hl_exit_for(hl_status status);

/* What the library says of a failure; of one of ours, which is always that memory was out, it
 * knows nothing. */
const char *hl_explain(hl_status status);

/* Runs a command.  Where memory was out and the command went on, with less than it should
 * have shown, this says so and fails for it. */
int hl_command_run(int (*run)(int argc, char **argv), int argc, char **argv);

/* Prints "headlight COMMAND: MESSAGE" to stderr, with no COMMAND where it is NULL. */
void hl_complain(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

typedef struct hl_command {
    const char *name;
    const char *summary; /* one line, for the list of commands */
    int (*run)(int argc, char **argv);
} hl_command;

int hl_command_compare(int argc, char **argv);
int hl_command_demo(int argc, char **argv);
int hl_command_diagnose(int argc, char **argv);
int hl_command_draw(int argc, char **argv);
int hl_command_eval(int argc, char **argv);
int hl_command_generate(int argc, char **argv);
int hl_command_judge(int argc, char **argv);
int hl_command_info(int argc, char **argv);
int hl_command_lens(int argc, char **argv);
int hl_command_measure(int argc, char **argv);
int hl_command_merge(int argc, char **argv);
int hl_command_prune(int argc, char **argv);
int hl_command_rank(int argc, char **argv);
int hl_command_report(int argc, char **argv);
int hl_command_serve(int argc, char **argv);
int hl_command_show(int argc, char **argv);
int hl_command_sweep(int argc, char **argv);
int hl_command_tokenize(int argc, char **argv);
int hl_command_tokens(int argc, char **argv);
int hl_command_verify(int argc, char **argv);
int hl_command_watch(int argc, char **argv);

/* ------------------------------------------- memory that things are shown with */

/* Output is made of hundreds of small strings and JSON values.  Where there is no memory for
 * one it is left out, and remembered here: the command then fails (hl_command_run), instead of
 * printing less than there is and calling it a success.
 *
 * Values of JSON may be as many as a file has: they count for --max-memory. */

/* As malloc and calloc, but remembered. */
void *hl_memory_take(size_t n_bytes);
void *hl_memory_take_zeroed(size_t count, size_t size);
/* jansson's memory is taken in this way from now on, and what its json_dumps returns is released with
 * hl_free. */
void hl_memory_watch(void);
/* What ran out so far is no fault of the command. */
void hl_memory_forget(void);

/* ---------------------------------------------------------------------- Ctrl-C */

/* From now on the first Ctrl-C (or SIGTERM) only asks; the second ends the program as ever. */
void hl_stop_watch(void);
/* Has it been asked for? */
bool hl_stop_asked(void);

/* ------------------------------------------------------------------------ time */

/* In seconds, by a clock that only goes forward. */
double hl_clock_now(void);

#endif
