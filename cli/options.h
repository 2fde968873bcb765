/* options.h - command lines, by table.
 *
 * A command lists its options with the variables they set:
 *
 *     const char *model = NULL;
 *     bool        force = false;
 *     hl_option options[] = {
 *         { "model", 'm', HL_OPTION_TEXT, &model, "PATH", "the model to read" },
 *         { "force",  0,  HL_OPTION_FLAG, &force, NULL,   "overwrite" },
 *         { 0 },
 *     };
 *     hl_usage     usage = { "prune", "RATIO...", "What it does.", options };
 *     hl_common    common;
 *     hl_arguments rest;
 *     int          code = hl_options_parse(&rest, &common, &usage, argc, argv);
 *     if (code != HL_OPTIONS_GO_ON)
 *         return code;
 *
 * Accepted are --name VALUE, --name=VALUE, -n VALUE, -nVALUE; options and other
 * arguments in any order; "--" makes everything after it an argument, and "-"
 * is one.  The options of every command (hl_common) and --help come for free. */
#ifndef HL_CLI_OPTIONS_H
#define HL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum hl_option_kind {
    HL_OPTION_FLAG = 0, /* target: bool *; takes no value                     */
    HL_OPTION_TEXT,     /* target: const char **; borrowed from argv          */
    HL_OPTION_CHOICE,   /* as TEXT, one of the words of `value`, as in "a|b"  */
    HL_OPTION_INT,      /* target: int64_t *, from low to high                */
    HL_OPTION_NUMBER,   /* target: double *, from low to high                 */
    HL_OPTION_LIST,     /* target: hl_option_list *; as TEXT, any number      */
} hl_option_kind;

/* The values of an option that may be repeated, in their order. */
enum { HL_MAX_OPTION_LIST = 32 };
typedef struct hl_option_list {
    const char *items[HL_MAX_OPTION_LIST];
    int         count;
} hl_option_list;

typedef struct hl_option {
    const char    *name;       /* without dashes; NULL ends a table */
    char           short_name; /* 0: none */
    hl_option_kind kind;
    void          *target; /* left alone where the option is not given */
    const char    *value;  /* what the help calls the value */
    const char    *help;
    int64_t        low;
    int64_t        high;
} hl_option;

typedef struct hl_usage {
    const char      *command;
    const char      *arguments; /* "CASE...", for the first line of the help */
    const char      *text;      /* what the command does; lines of under 80 */
    const hl_option *options;
} hl_usage;

/* What every command takes. */
typedef struct hl_common {
    bool        json;
    bool        quiet;
    int64_t     n_threads; /* 0: all cores */
    int64_t     seed;
    const char *device; /* "cpu", or what hl_device_select was given */
} hl_common;

/* What was not an option; borrowed from argv, whose order it changes. */
typedef struct hl_arguments {
    char **items;
    int    count;
} hl_arguments;

#define HL_OPTIONS_GO_ON (-1)

/* As the only argument of a command: print its options, one a line, for the programs that make
 * man pages and completions from them.  `headlight help --table` asks every command. */
#define HL_OPTIONS_TABLE "--option-table"

/* HL_OPTIONS_GO_ON, or the exit status: after --help, or after a complaint. */
int hl_options_parse(hl_arguments *out, hl_common *common, const hl_usage *usage, int argc,
                     char **argv);

/* Complains, points to --help, and returns HL_EXIT_USAGE. */
int hl_options_refuse(const hl_usage *usage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ----------------------------------------------------------- did you mean ...? */

/* Keeps the nearest word seen so far; starts as { .wanted = "vrify" }. */
typedef struct hl_nearest {
    const char *wanted;
    const char *word; /* NULL: nothing near enough to suggest */
    size_t      distance;
} hl_nearest;

void hl_nearest_offer(hl_nearest *nearest, const char *word);

#endif
