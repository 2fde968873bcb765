/* main.c - the program: a table of commands.
 *
 *     headlight                      the commands
 *     headlight COMMAND ...          runs one
 *     headlight help COMMAND         the same as COMMAND --help
 *     headlight help metrics         what every number means
 *     headlight help --table         every command and option, for other programs
 *     headlight --version [--json]
 *
 * The program uses the library through headlight.h only; any other program can do the same. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "options.h"
#include "screen.h"
#include "values.h"

typedef struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
} command;

#define COMMAND_LISTED(name, summary) { #name, summary, hl_command_##name },
static const command commands[] = { HL_COMMANDS(COMMAND_LISTED) };

enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_commands(void)
{
    printf("headlight: see what every attention head of a transformer looks at, how sharply, and\n"
           "which heads can be removed, without ever building an attention matrix.\n"
           "\n"
           "usage: headlight COMMAND [options] ...\n"
           "\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].summary);
    printf("\n"
           "  help COMMAND    help for a command\n"
           "  help metrics    the definition of every number\n"
           "  --version       version and back ends of this build\n"
           "\n"
           "Exit status: 0 success, 1 a check failed, 2 usage error, 3 bad input,\n"
           "4 out of resources.\n");
}

/* Prints the definitions for tools/metrics_page, tab-separated: name, title, unit, text, with "-" for
 * an empty field.  A heading has only its own text. */
static void print_metrics_table(void)
{
    for (size_t i = 0; hl_definition_at(i) != NULL; i++) {
        const hl_definition *entry = hl_definition_at(i);

        if (entry->text == NULL)
            printf("%s\n", entry->name);
        else
            printf("%s\t%s\t%s\t%s\n", entry->name, entry->title != NULL ? entry->title : "-",
                   entry->unit != NULL && entry->unit[0] != '\0' ? entry->unit : "-", entry->text);
    }
}

/* Prints every definition in short; doc/metrics.md has the long ones. */
static void print_metrics(void)
{
    enum { NAME_WIDTH = 19 };

    for (size_t i = 0; hl_definition_at(i) != NULL; i++) {
        const hl_definition *entry = hl_definition_at(i);

        if (entry->text == NULL) {
            printf("%s%s\n", i > 0 ? "\n" : "", entry->name);
            continue;
        }
        printf("  %-*s", NAME_WIDTH, entry->name);
        hl_print_wrapped(entry->text, 2 + NAME_WIDTH);
    }
}

static int print_version_json(void)
{
    json_t *backends = json_array();

    for (const char *const *name = hl_backend_names(); *name != NULL; name++)
        json_array_append_new(backends, json_string(*name));
    return hl_print_json(HL_OBJECT(HL_IS("version", hl_version()), HL_IS("build", hl_build_info()),
                                   HL_IS("backends", backends),
                                   HL_IS("backend", hl_backend_name())),
                         JSON_INDENT(1));
}

/* --version, with --json before or after it. */
static int print_version(int argc, char **argv)
{
    const char *in_use = hl_backend_name();
    bool        json   = false;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--version") != 0)
            return hl_give_up(HL_EXIT_USAGE, NULL,
                              "--version takes no argument but --json; got '%s'", argv[i]);
    }
    if (json)
        return print_version_json();
    printf("headlight %s\n"
           "%s\n"
           "back ends on this CPU:",
           hl_version(), hl_build_info());
    for (const char *const *name = hl_backend_names(); *name != NULL; name++)
        printf(" %s%s", *name, strcmp(*name, in_use) == 0 ? " (in use)" : "");
    printf("\n");
    return HL_EXIT_OK;
}

static int refuse_command(const char *name)
{
    hl_nearest nearest = { .wanted = name };

    for (int i = 0; i < N_COMMANDS; i++)
        hl_nearest_offer(&nearest, commands[i].name);
    hl_nearest_offer(&nearest, "help");
    if (nearest.word != NULL)
        hl_complain(NULL, "no command '%s' (did you mean '%s'?)", name, nearest.word);
    else
        hl_complain(NULL, "no command '%s'", name);
    fprintf(stderr, "Run 'headlight' to list the commands.\n");
    return HL_EXIT_USAGE;
}

static int run_command(int argc, char **argv)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[0], commands[i].name) == 0)
            return hl_command_run(commands[i].run, argc, argv);
    }
    return refuse_command(argv[0]);
}

/* Prints one line per command and per option, for man pages and completions. */
static int print_tables(void)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        char  name[16], option[] = HL_OPTIONS_TABLE;
        char *asked[] = { name, option, NULL };

        snprintf(name, sizeof name, "%s", commands[i].name);
        printf("command\t%s\t%s\n", commands[i].name, commands[i].summary);
        int code = hl_command_run(commands[i].run, 2, asked);
        if (code != HL_EXIT_OK)
            return code;
    }
    return HL_EXIT_OK;
}

static int run_help(int argc, char **argv)
{
    char  option[] = "--help";
    char *asked[]  = { argc > 1 ? argv[1] : NULL, option, NULL };

    if (argc > 2 && strcmp(argv[1], "metrics") == 0 && strcmp(argv[2], "--table") == 0)
        print_metrics_table();
    else if (argc > 1 && strcmp(argv[1], "metrics") == 0)
        print_metrics();
    else if (argc > 1 && strcmp(argv[1], "--table") == 0)
        return print_tables();
    else if (argc > 1)
        return run_command(2, asked);
    else
        print_commands();
    return HL_EXIT_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc == 0 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_commands();
        return HL_EXIT_OK;
    }
    if (strcmp(argv[0], "--version") == 0 ||
        (argc > 1 && strcmp(argv[0], "--json") == 0 && strcmp(argv[1], "--version") == 0))
        return hl_command_run(print_version, argc, argv);
    if (strcmp(argv[0], "help") == 0)
        return run_help(argc, argv);
    return run_command(argc, argv);
}

int main(int argc, char **argv)
{
    hl_guard_mapped_files();
    hl_memory_watch();

    int code = argc > 0 ? dispatch(argc - 1, argv + 1) : HL_EXIT_USAGE;

    /* If the disk is full, the program must not exit with success. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0)
        return hl_give_up(HL_EXIT_RESOURCES, NULL, "cannot write the output");
    return code;
}
