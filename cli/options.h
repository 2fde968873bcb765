/* options.h - command lines, by table.
 *
 * A command lists its options with the variables they set:
 *
 *     const char *model = NULL;
 *     bool        force = false;
 *     hl_option options[] = {
 *         HL_TEXT("model", 'm', &model, "PATH", "the model to read"),
 *         HL_FLAG("force", 0, &force, "overwrite"),
 *         { 0 },
 *     };
 *     hl_usage     usage = { "prune", "RATIO...", "What it does.", options };
 *     hl_common    common;
 *     hl_arguments rest;
 *     HL_PASS(hl_options_parse(&rest, &common, &usage, argc, argv));
 *
 * Accepted forms are --name VALUE, --name=VALUE, -n VALUE and -nVALUE, with options and other
 * arguments in any order.  After "--" everything is an argument; "-" is one too.  The options of
 * every command (hl_common) and --help are added automatically. */
#ifndef HL_CLI_OPTIONS_H
#define HL_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headlight.h"

typedef enum hl_option_kind {
    HL_OPTION_FLAG = 0, /* target: bool *; takes no value                     */
    HL_OPTION_TEXT,     /* target: const char **; borrowed from argv          */
    HL_OPTION_CHOICE,   /* as TEXT; one of the words of `value`, such as "a|b" */
    HL_OPTION_INT,      /* target: int64_t *, from low to high                */
    HL_OPTION_NUMBER,   /* target: double *, from low to high                 */
    HL_OPTION_LIST,     /* target: hl_option_list *; as TEXT, may be repeated */
    HL_OPTION_ENUM,     /* as CHOICE; target: an enum whose values follow the order of the words */
} hl_option_kind;

/* The values of an option that may be repeated, in the order given. */
enum { HL_MAX_OPTION_LIST = 32 };
typedef struct hl_option_list {
    const char *items[HL_MAX_OPTION_LIST];
    int         count;
} hl_option_list;

typedef struct hl_option {
    const char    *name;       /* without dashes; NULL ends a table */
    char           short_name; /* 0: none */
    hl_option_kind kind;
    void          *target; /* unchanged if the option is not given */
    const char    *value;  /* the name of the value in the help text */
    const char    *help;
    int64_t        low;
    int64_t        high;
} hl_option;

/* Entries of a table of options; the compiler checks the type of the target. */
#define HL_OPTION(name, letter, kind, type, target, value, help, low, high)                        \
    {                                                                                              \
        name, letter, kind, 1 ? (target) : (type *)NULL, value, help, low, high                    \
    }
#define HL_FLAG(name, letter, target, help)                                                        \
    HL_OPTION(name, letter, HL_OPTION_FLAG, bool, target, NULL, help, 0, 0)
#define HL_TEXT(name, letter, target, value, help)                                                 \
    HL_OPTION(name, letter, HL_OPTION_TEXT, const char *, target, value, help, 0, 0)
#define HL_CHOICE(name, letter, target, words, help)                                               \
    HL_OPTION(name, letter, HL_OPTION_CHOICE, const char *, target, words, help, 0, 0)
#define HL_ENUM(name, letter, target, words, help) /* enums have the size of an int */             \
    HL_OPTION(name, letter, HL_OPTION_ENUM, int, (int *)(target), words, help, 0, 0)
#define HL_INT(name, letter, target, value, help, low, high)                                       \
    HL_OPTION(name, letter, HL_OPTION_INT, int64_t, target, value, help, low, high)
#define HL_NUMBER(name, letter, target, value, help, low, high)                                    \
    HL_OPTION(name, letter, HL_OPTION_NUMBER, double, target, value, help, low, high)
#define HL_CSV_OPTION(common, help) HL_FLAG("csv", 0, &(common)->csv, help)
#define HL_LIST(name, letter, target, value, help)                                                 \
    HL_OPTION(name, letter, HL_OPTION_LIST, hl_option_list, target, value, help, 0, 0)

typedef struct hl_usage {
    const char      *command;
    const char      *arguments; /* "CASE...", for the usage line */
    const char      *text;      /* what the command does; lines of less than 80 columns */
    const hl_option *options;
} hl_usage;

/* Options that every command takes. */
typedef struct hl_common {
    bool        json;
    bool        csv; /* set by HL_CSV_OPTION, which only some commands have */
    bool        quiet;
    int32_t     n_threads; /* 0: all cores */
    uint64_t    seed;
    const char *device; /* "cpu", or the name of an available device */
} hl_common;

/* Arguments that are not options; borrowed from argv, which is reordered. */
typedef struct hl_arguments {
    char **items;
    int    count;
} hl_arguments;

#define HL_OPTIONS_GO_ON 0 /* equal to HL_EXIT_OK */

/* If this is a command's only argument, its options are printed, one per line, for the programs
 * that make man pages and completions from them. `headlight help --table` does this for every
 * command. */
#define HL_OPTIONS_TABLE "--option-table"

/* Returns HL_EXIT_OK to continue, HL_EXIT_DONE after --help, or the exit status after a message. */
int hl_options_parse(hl_arguments *out, hl_common *common, const hl_usage *usage, int argc,
                     char **argv);

/* The mode that --activations exact|int8 names, the older spelling of --math; DEFAULT for NULL. */
hl_math hl_math_option(const char *activations);

/* Prints a message, points to --help, and returns HL_EXIT_USAGE. */
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

/* Returns HL_EXIT_OK if `name` is one of name_at(0), name_at(1), ... up to the first NULL.
 * Otherwise returns what hl_options_refuse returns, after "--OPTION: no KIND is called 'NAME'" and
 * the nearest name or, if none is near, `otherwise`. */
int hl_options_check_name(const hl_usage *usage, const char *option, const char *kind,
                          const char *name, const char *(*name_at)(size_t), const char *otherwise);
/* As hl_options_check_name, for a --table that may be missing and that --csv requires. */
int hl_options_check_table(const hl_usage *usage, const char *table, bool csv,
                           const char *(*name_at)(size_t), const char *otherwise);

#endif
