/* command.h - what a command is, its exit statuses, and what all commands use: messages, memory,
 * Ctrl-C, time.
 *
 * Each command is a file cmd_NAME.c and is listed here.  It gets its own name as argv[0] and
 * returns one of these statuses.  Functions inside a command return them too; HL_EXIT_OK means to
 * continue. */
#ifndef HL_CLI_COMMAND_H
#define HL_CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "headlight.h"

enum {
    HL_EXIT_OK        = 0,
    HL_EXIT_NO        = 1,   /* a check was made and did not pass */
    HL_EXIT_USAGE     = 2,   /* the command line is not valid */
    HL_EXIT_INPUT     = 3,   /* a file is not valid */
    HL_EXIT_RESOURCES = 4,   /* memory, disk or a limit ran out    */
    HL_EXIT_STOPPED   = 130, /* stopped by Ctrl-C; the number that shells use */
    /* --help was printed and nothing is left to do. The process exits with HL_EXIT_OK. */
    HL_EXIT_DONE = -1,
};

/* ------------------------------------------------------------------- commands */

/* Every command, with its line in the list of commands. */
/* clang-format off */
#define HL_COMMANDS(command)                                                                       \
    command(compare, "compare two profiles or models, head by head")                               \
    command(damage, "find the heads that make a changed model differ from its reference")          \
    command(demo, "measure, show and draw the two bundled models")                                 \
    command(diagnose, "check attention for problems, with evidence and remedies")                  \
    command(draw, "draw a profile as SVG, PNG or PDF")                                             \
    command(eval, "score texts: perplexity, bits per byte, KL from a reference")                   \
    command(generate, "generate text, colored by the entropy of attention")                        \
    command(head, "print all that is known of one head, with examples")                            \
    command(info, "describe a model: family, shape, types, memory")                                \
    command(judge, "test whether the entropy of generated text predicts errors")                   \
    command(lens, "show what a model would predict after each layer")                              \
    command(measure, "measure every head on texts, and write a profile")                           \
    command(merge, "merge profiles of parts of a text into one")                                   \
    command(needle, "find what a model retrieves from a long text, and with which heads")          \
    command(prune, "write a model without some of its heads")                                      \
    command(rank, "list heads in pruning order")                                                   \
    command(report, "write one interactive HTML page, which needs no network")                     \
    command(serve, "run an OpenAI-compatible server with a live page")                             \
    command(show, "print a profile: heatmap, layers, extremes, diagnoses, tables")                 \
    command(sweep, "measure what disabling heads costs, for every ranker")                         \
    command(tokenize, "print the tokens of a text, or the text of tokens")                         \
    command(tokens, "show which token of a prompt looks at which")                                 \
    command(try, "find a model, measure it, and open its live page in a browser")                  \
    command(verify, "run golden cases and models on every back end")                               \
    command(watch, "measure checkpoints as they appear, and raise alarms")
/* clang-format on */

#define HL_COMMAND_DECLARED(name, summary) int hl_command_##name(int argc, char **argv);
HL_COMMANDS(HL_COMMAND_DECLARED)

/* Runs a command. If the command ran out of memory and continued with incomplete output, this
 * reports it and fails. */
int hl_command_run(int (*run)(int argc, char **argv), int argc, char **argv);

/* -------------------------------------------------------------------- failing */

/* Prints "headlight COMMAND: MESSAGE" to stderr, without COMMAND if it is NULL; returns `code`. */
int hl_give_up(int code, const char *command, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prints such a message if the work continues. */
#define hl_complain(...) ((void)hl_give_up(HL_EXIT_OK, __VA_ARGS__))

/* Returns the exit status for a status of the library; prints a message unless it is HL_OK. */
int hl_finish(const char *command, hl_status status);
/* Returns the exit status without printing a message. */
int hl_exit_for(hl_status status);
/* Returns the library's message for a failure. Failures of the command line itself are always out
 * of memory; the library has no message for them. */
const char *hl_explain(hl_status status);

/* ------------------------------------------- memory that things are shown with */

/* Output is made of hundreds of small strings and JSON values. If there is no memory for one, it is
 * left out and remembered here: the command then fails (hl_command_run) instead of succeeding with
 * incomplete output. A file can have any number of JSON values, so they count for --max-memory. */

/* As malloc and calloc; a failure is remembered. */
void *hl_memory_take(size_t n_bytes);
void *hl_memory_take_zeroed(size_t count, size_t size);
/* From now on jansson uses this allocator, and the result of json_dumps is released with
 * hl_free. */
void hl_memory_watch(void);
/* Records that something could not be shown. */
void hl_memory_missed(void);
/* Forgets earlier shortages: they are not the fault of the command. */
void hl_memory_forget(void);

/* ---------------------------------------------------------------------- Ctrl-C */

/* From now on the first Ctrl-C (or SIGTERM) only requests a stop; the second ends the program. */
void hl_stop_watch(void);
/* Has a stop been requested? */
bool hl_stop_asked(void);

/* ------------------------------------------------------------------------ time */

/* Returns seconds on a monotonic clock. */
double hl_clock_now(void);

#endif
