/* command.h - what a command is, what its exit status means, and what all commands stand on:
 * complaints, memory, Ctrl-C, time.
 *
 * Each command lives in its own cmd_NAME.c and is listed here.  It gets its own name as argv[0] and
 * returns one of these; inside of a command, functions return them too, HL_EXIT_OK to go on. */
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
    /* Nothing is left to do, for --help was asked for: HL_EXIT_OK to whoever runs the command. */
    HL_EXIT_DONE = -1,
};

/* ------------------------------------------------------------------- commands */

/* Every command: its name, and one line for the list of commands. */
/* clang-format off */
#define HL_COMMANDS(command)                                                                       \
    command(compare, "two profiles, head by head")                                                 \
    command(demo, "the shipped models, measured, shown and drawn")                                 \
    command(diagnose, "what is wrong with a model's attention, and what to do")                    \
    command(draw, "a figure of a profile: SVG, PNG or PDF")                                        \
    command(eval, "how well a model predicts texts: perplexity")                                   \
    command(generate, "continue a text, token by token")                                           \
    command(info, "what a model is: family, shape, dtypes, memory")                                \
    command(judge, "do the signals of a generated text tell right from wrong?")                    \
    command(lens, "what a model would say after each layer")                                       \
    command(measure, "what every head does on a text, to a profile")                               \
    command(merge, "one profile from many")                                                        \
    command(prune, "a model without some of its heads: masked, compact, GGUF")                     \
    command(rank, "which heads to take out first")                                                 \
    command(report, "all of it as one interactive page, without a network")                        \
    command(serve, "an OpenAI-compatible server with entropy, and the live page")                  \
    command(show, "a profile: heatmap, layers, extremes, diagnoses, tables")                       \
    command(sweep, "what disabling heads costs, by every ranker")                              \
    command(tokenize, "show the tokens of a text, or the text of tokens")                          \
    command(tokens, "which token of a prompt looks at which, and how sharply")                     \
    command(verify, "run golden cases and models on every back end")                               \
    command(watch, "every checkpoint of a training run, as it appears; alarms")
/* clang-format on */

#define HL_COMMAND_DECLARED(name, summary) int hl_command_##name(int argc, char **argv);
HL_COMMANDS(HL_COMMAND_DECLARED)

/* Runs a command.  Where memory was out and the command went on, with less than it should
 * have shown, this says so and fails for it. */
int hl_command_run(int (*run)(int argc, char **argv), int argc, char **argv);

/* -------------------------------------------------------------------- failing */

/* Prints "headlight COMMAND: MESSAGE" to stderr, with no COMMAND where it is NULL; returns `code`. */
int hl_give_up(int code, const char *command, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same where work goes on. */
#define hl_complain(...) ((void)hl_give_up(HL_EXIT_OK, __VA_ARGS__))

/* The exit status for what a call of the library returned, after a complaint unless it is HL_OK. */
int hl_finish(const char *command, hl_status status);
/* The exit status alone. */
int hl_exit_for(hl_status status);
/* What the library says of a failure; of one of ours, which is always that memory was out, it
 * knows nothing. */
const char *hl_explain(hl_status status);

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
/* Something could not be shown. */
void hl_memory_missed(void);
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
