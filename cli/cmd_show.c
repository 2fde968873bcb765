/* cmd_show.c - headlight show: a profile on one screen, or one of its tables. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "nearest.h"
#include "options.h"
#include "printable.h"
#include "show_print.h"
#include "terminal.h"

typedef struct show_command {
    hl_common   common;
    const char *path;
    const char *table; /* NULL: the screen */
    const char *by;    /* NULL: fair */
    bool        csv;
} show_command;

/* Prints the tables there are. */
static int list_tables(void)
{
    for (size_t i = 0; hl_analysis_name(i) != NULL; i++)
        printf("%-20s %s\n", hl_analysis_name(i), hl_analysis_summary(i));
    return HL_EXIT_OK;
}

static int refuse_table(const hl_usage *usage, const char *name)
{
    hl_nearest nearest = { .wanted = name };

    for (size_t i = 0; hl_analysis_name(i) != NULL; i++)
        hl_nearest_offer(&nearest, hl_analysis_name(i));
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--table: no table is called '%s' (did you mean '%s'?)",
                                 name, nearest.word);
    return hl_options_refuse(usage, "--table: no table is called '%s'; 'list' lists them", name);
}

static bool is_table(const char *name)
{
    for (size_t i = 0; hl_analysis_name(i) != NULL; i++) {
        if (strcmp(hl_analysis_name(i), name) == 0)
            return true;
    }
    return false;
}

static hl_status print_table(const show_command *command, const hl_profile *profile)
{
    hl_analysis_options options = { .seed = (uint64_t)command->common.seed };
    hl_sheet           *table   = NULL;
    char               *text    = NULL;
    hl_sheet_format     format  = command->csv           ? HL_SHEET_CSV
                                  : command->common.json ? HL_SHEET_JSON
                                                         : HL_SHEET_TEXT;
    hl_status           status  = hl_analyse(&table, profile, command->table, &options);

    if (status == HL_OK)
        status = hl_sheet_render(&text, table, format);
    if (status == HL_OK)
        hl_put_sheet(text, format);
    hl_free(text);
    hl_sheet_free(table);
    return status;
}

/* A column of the table of heads that has numbers in it. */
static bool is_column(const hl_profile *profile, const char *name)
{
    hl_sheet *heads = NULL;
    bool      found = false;

    if (hl_analyse(&heads, profile, "heads", NULL) == HL_OK) {
        int64_t column = hl_sheet_find(heads, name);
        found          = column > 1 && hl_sheet_column_type(heads, column) == HL_COLUMN_REAL;
    }
    hl_sheet_free(heads);
    return found;
}

static int show(const show_command *command, const hl_usage *usage)
{
    hl_profile *profile = NULL;
    hl_status   status  = hl_profile_load(&profile, command->path);
    int         code    = HL_OPTIONS_GO_ON;

    if (status == HL_OK && command->by != NULL && !is_column(profile, command->by))
        code = hl_options_refuse(usage, "--by: '%s' is no column of numbers in the table of heads",
                                 command->by);
    if (status == HL_OK && code == HL_OPTIONS_GO_ON) {
        hl_show_request request = { command->path, profile, command->by, hl_terminal_depth(stdout),
                                    (uint64_t)command->common.seed };
        if (command->table != NULL)
            status = print_table(command, profile);
        else if (command->common.json)
            status = hl_show_print_json(&request);
        else if (!command->common.quiet)
            status = hl_show_print(&request);
    }
    if (status != HL_OK)
        hl_complain("show", "%s", hl_explain(status));
    hl_profile_free(profile);
    return code != HL_OPTIONS_GO_ON ? code : hl_exit_for(status);
}

int hl_command_show(int argc, char **argv)
{
    show_command command = { 0 };
    hl_arguments rest;

    hl_option options[] = {
        { "table", 't', HL_OPTION_TEXT, &command.table, "NAME", "one table; 'list' names them", 0,
          0 },
        { "csv", 0, HL_OPTION_FLAG, &command.csv, NULL, "the table as CSV", 0, 0 },
        { "by", 0, HL_OPTION_TEXT, &command.by, "COLUMN",
          "what the heatmap shows, of the table of heads (fair)", 0, 0 },
        { 0 },
    };
    hl_usage usage = {
        "show", "PROFILE",
        "Shows a profile: a heatmap of all heads, the layer profile, entropy by\n"
        "position, the most and the least focused heads, and the diagnoses in brief.\n"
        "With --table one table, as text, CSV or JSON.  'headlight help metrics' says\n"
        "what every number means.",
        options
    };

    int code = hl_options_parse(&rest, &command.common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (command.table != NULL && strcmp(command.table, "list") == 0)
        return list_tables();
    if (rest.count != 1)
        return hl_options_refuse(&usage, "wanted one PROFILE, got %d", rest.count);
    if (command.table != NULL && !is_table(command.table))
        return refuse_table(&usage, command.table);
    if (command.csv && command.table == NULL)
        return hl_options_refuse(&usage, "--csv needs --table NAME");
    if (command.csv && command.common.json)
        return hl_options_refuse(&usage, "--csv and --json: only one of them");
    command.path = rest.items[0];
    return show(&command, &usage);
}
