/* command.h - what a command is, and what its exit status means.
 *
 * Each command lives in its own cmd_NAME.c, is declared here and is listed in
 * main.c.  It gets its own name as argv[0] and returns one of these. */
#ifndef HL_CLI_COMMAND_H
#define HL_CLI_COMMAND_H

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

#endif
