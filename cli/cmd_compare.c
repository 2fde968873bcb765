/* cmd_compare.c - headlight compare: two profiles, head by head. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "evidence.h"
#include "headlight.h"
#include "options.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

enum { N_SHOWN = 10 };

typedef struct compare_command {
    hl_common    common;
    hl_arguments paths;
    const char  *table; /* NULL: the screen */
    bool         csv;
    /* Texts to measure both on; none: A and B are profiles. */
    hl_option_list    texts;
    hl_window_options windows;
    hl_gate_arguments gates; /* of B */
    /* What is drawn, if anything is. */
    hl_draw_arguments drawing;
    const char       *prompt;
    int64_t           n_tokens; /* of the maps */
} compare_command;

typedef struct compared {
    hl_profile  *profile;
    hl_patterns *patterns; /* NULL: not wanted, or a profile was read */
} compared;

/* ---------------------------------------------------------------------- text */

static int print_whole(const hl_sheet *table, hl_sheet_format format)
{
    char     *text   = NULL;
    hl_status status = hl_sheet_render(&text, table, format);

    if (status == HL_OK)
        hl_put_sheet(text, format);
    else
        hl_complain("compare", "%s", hl_explain(status));
    hl_free(text);
    return hl_exit_for(status);
}

static void print_kind(const compare_command *command, const hl_comparison *found)
{
    static const char *const meaning[] = {
        "the same tokens: sequences are drawn in pairs",
        "one model on two texts: are its heads' ranks stable?",
        "neither model nor text in common: the two are drawn apart",
    };
    hl_colours colours = hl_terminal_colours(stdout);

    printf("%sA %s%s\n%sB %s%s\n", colours.bold, hl_shown(command->paths.items[0]), colours.plain,
           colours.bold, hl_shown(command->paths.items[1]), colours.plain);
    printf("%s\n", meaning[found->kind]);
    printf("%s model by hash, %lld sequences in common\n\n",
           found->same_model ? "the same" : "not the same", (long long)found->n_shared);
}

/* The row of the largest change of fair entropy that `taken` has not; -1: none is left. */
static int64_t largest_left(const hl_sheet *heads, const int64_t *taken, int n_taken)
{
    int64_t best = -1;

    for (int64_t row = 0; row < hl_sheet_n_rows(heads); row++) {
        double change = fabs(hl_cell_number(heads, row, "difference"));
        bool   seen   = isnan(change);

        for (int i = 0; i < n_taken; i++)
            seen = seen || taken[i] == row;
        if (!seen && (best < 0 || change > fabs(hl_cell_number(heads, best, "difference"))))
            best = row;
    }
    return best;
}

static void print_head(const hl_sheet *heads, int64_t row)
{
    char name[48];

    snprintf(name, sizeof name, "L%.0fH%.0f", hl_cell_number(heads, row, "layer"),
             hl_cell_number(heads, row, "head"));
    printf("  %-8s %7.3f %7.3f %+8.3f  %+.3f to %+.3f  %7.4f%s\n", name,
           hl_cell_number(heads, row, "fair_a"), hl_cell_number(heads, row, "fair_b"),
           hl_cell_number(heads, row, "difference"), hl_cell_number(heads, row, "low"),
           hl_cell_number(heads, row, "high"), hl_cell_number(heads, row, "q"),
           hl_cell_number(heads, row, "significant") > 0.0 ? "  *" : "");
}

static void print_heads(const hl_comparison *found)
{
    int64_t taken[N_SHOWN];

    printf("%lld of %lld heads differ in fair entropy (false discovery rate under 5%%)\n\n",
           (long long)found->n_significant, (long long)found->n_heads);
    printf("  %-8s %7s %7s %8s  %-16s  %7s\n", "head", "A", "B", "B - A", "95% interval", "q");
    for (int i = 0; i < N_SHOWN; i++) {
        taken[i] = largest_left(found->heads, taken, i);
        if (taken[i] < 0)
            break;
        print_head(found->heads, taken[i]);
    }
    printf("\n");
}

static void print_matching(const hl_sheet *matching)
{
    printf("matched by their profiles, %.0f of %lld heads have another partner than their index;\n"
           "mean distance %.4f, by index %.4f\n",
           hl_sheet_fact(matching, "moved"), (long long)hl_sheet_n_rows(matching),
           hl_sheet_fact(matching, "mean distance"),
           hl_sheet_fact(matching, "mean distance by index"));
}

static void print_rows(const hl_sheet *rows)
{
    if (rows == NULL)
        return;
    printf("\nrows of the two on the same tokens, %.0f of each head in %.0f windows: mean total\n"
           "variation %.4f; %.4f with heads matched by it, which gives %.0f another partner\n",
           hl_sheet_fact(rows, "rows"), hl_sheet_fact(rows, "sequences"),
           hl_sheet_fact(rows, "mean variation"), hl_sheet_fact(rows, "mean variation matched"),
           hl_sheet_fact(rows, "moved"));
}

static int print_screen(const compare_command *command, const hl_comparison *found)
{
    print_kind(command, found);
    int code = print_whole(found->ranks, HL_SHEET_TEXT);
    printf("\n");
    if (code == HL_EXIT_OK)
        code = print_whole(found->metrics, HL_SHEET_TEXT);
    printf("\n");
    if (code == HL_EXIT_OK)
        code = print_whole(found->layers, HL_SHEET_TEXT);
    printf("\n");
    print_heads(found);
    print_matching(found->matching);
    print_rows(found->rows);
    return code;
}

/* ---------------------------------------------------------------------- JSON */

static int print_json(const compare_command *command, const hl_comparison *found)
{
    char     *text = NULL;
    hl_status status =
        hl_comparison_render(&text, found, command->paths.items[0], command->paths.items[1]);

    if (status == HL_OK)
        hl_put_json_text(text);
    else
        hl_complain("compare", "%s", hl_explain(status));
    printf("%s", status == HL_OK ? "\n" : "");
    hl_free(text);
    return hl_exit_for(status);
}

/* --------------------------------------------------------------- the command */

static int report(const compare_command *command, const hl_comparison *found)
{
    if (command->table != NULL)
        return print_whole(hl_comparison_table(found, command->table), command->csv ? HL_SHEET_CSV
                                                                       : command->common.json
                                                                           ? HL_SHEET_JSON
                                                                           : HL_SHEET_TEXT);
    if (command->common.json)
        return print_json(command, found);
    return command->common.quiet ? HL_EXIT_OK : print_screen(command, found);
}

/* A or B: a profile to read, or a model to measure. */
static hl_status open_side(compared *out, const compare_command *command, int side)
{
    const char      *path  = command->paths.items[side];
    hl_quick_request quick = { .model_path = path,
                               .gates      = side == 1 ? &command->gates : NULL,
                               .command    = "compare",
                               .texts      = command->texts.items,
                               .n_texts    = (size_t)command->texts.count,
                               .windows    = command->windows,
                               .n_threads  = (int32_t)command->common.n_threads,
                               .quiet      = command->common.quiet || command->common.json };

    if (command->texts.count == 0)
        return hl_profile_load(&out->profile, path);
    if (command->drawing.output != NULL) {
        quick.patterns         = &out->patterns;
        quick.n_pattern_tokens = command->n_tokens;
        quick.prompt           = command->prompt;
    }
    return hl_quick_measure(&out->profile, &quick);
}

/* The last part of a path; returns `out`. */
static const char *name_of(char *out, size_t n_bytes, const char *path)
{
    size_t end = strlen(path);

    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    snprintf(out, n_bytes, "%.*s", (int)(end - begin), path + begin);
    return out;
}

static hl_status draw(const compare_command *command, const compared sides[2],
                      const hl_comparison *found)
{
    char            names[2][128], titles[2][160];
    hl_compared     both[2];
    hl_draw_options options = hl_draw_options_of(&command->drawing);

    for (int i = 0; i < 2; i++) {
        snprintf(titles[i], sizeof titles[i], "%c: %s", i == 0 ? 'A' : 'B',
                 name_of(names[i], sizeof names[i], command->paths.items[i]));
        both[i] = (hl_compared){ titles[i], sides[i].profile, sides[i].patterns };
    }
    options.seed = (uint64_t)command->common.seed;
    hl_draw_listen("compare");
    return hl_draw_comparison(&both[0], &both[1], found, command->drawing.output, &options);
}

/* Two models on the same tokens: what their profiles do not tell. */
static hl_status add_rows(hl_comparison *found, const compare_command *command,
                          const hl_analysis_options *options)
{
    hl_row_distance_options how       = { .windows   = command->windows,
                                          .seed      = options->seed,
                                          .n_threads = (int32_t)command->common.n_threads };
    hl_corpus_options       text      = { .inputs   = command->texts.items,
                                          .n_inputs = (size_t)command->texts.count };
    hl_model               *models[2] = { NULL, NULL };
    hl_tokenizer           *tokenizer = NULL;
    hl_corpus              *corpus    = NULL;
    hl_row_distances       *rows      = NULL;

    if (command->texts.count == 0 || found->kind != HL_COMPARE_SAME_TOKENS)
        return HL_OK;
    hl_status status = hl_model_open(&models[0], command->paths.items[0]);
    if (status == HL_OK)
        status = hl_model_open(&models[1], command->paths.items[1]);
    if (status == HL_OK)
        status = hl_gate_options_apply(models[1], &command->gates, "compare", true);
    if (status == HL_OK)
        status = hl_tokenizer_open(&tokenizer, hl_model_get_info(models[0])->tokenizer_path);
    if (status == HL_OK)
        status = hl_corpus_open(&corpus, models[0], tokenizer, &text);
    if (status == HL_OK)
        status = hl_measure_row_distances(&rows, models[0], models[1], corpus, &how);
    if (status == HL_OK)
        status = hl_comparison_add_rows(found, rows, options);
    hl_row_distances_free(rows);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    hl_model_close(models[0]);
    hl_model_close(models[1]);
    return status;
}

/* A table that only two models on the same tokens have. */
static hl_status check_found(const compare_command *command, const hl_comparison *found)
{
    if (command->table == NULL || hl_comparison_table(found, command->table) != NULL)
        return HL_OK;
    hl_complain("compare",
                "--table %s: needs two models that read a text as the same tokens (--text)",
                command->table);
    return HL_BAD_INPUT;
}

static int compare(const compare_command *command)
{
    hl_analysis_options options  = { .seed = (uint64_t)command->common.seed };
    compared            sides[2] = { 0 };
    hl_comparison      *found    = NULL;

    hl_status status = open_side(&sides[0], command, 0);
    if (status == HL_OK)
        status = open_side(&sides[1], command, 1);
    if (status == HL_OK)
        status = hl_compare(&found, sides[0].profile, sides[1].profile, &options);
    if (status == HL_OK)
        status = add_rows(found, command, &options);
    if (status == HL_OK && command->drawing.output != NULL)
        status = draw(command, sides, found);
    if (status != HL_OK)
        hl_complain("compare", "%s", hl_explain(status));
    else
        status = check_found(command, found);
    int code = status == HL_OK ? report(command, found) : hl_exit_for(status);
    hl_comparison_free(found);
    for (int i = 0; i < 2; i++) {
        hl_profile_free(sides[i].profile);
        hl_patterns_free(sides[i].patterns);
    }
    return code;
}

static int check_table(const compare_command *command, const hl_usage *usage)
{
    hl_nearest nearest = { .wanted = command->table };

    if (command->table == NULL)
        return command->csv ? hl_options_refuse(usage, "--csv needs --table NAME")
                            : HL_OPTIONS_GO_ON;
    if (command->csv && command->common.json)
        return hl_options_refuse(usage, "--csv and --json: only one of them");
    for (size_t i = 0; hl_comparison_table_name(i) != NULL; i++) {
        if (strcmp(command->table, hl_comparison_table_name(i)) == 0)
            return HL_OPTIONS_GO_ON;
        hl_nearest_offer(&nearest, hl_comparison_table_name(i));
    }
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--table: no table is called '%s' (did you mean '%s'?)",
                                 command->table, nearest.word);
    return hl_options_refuse(usage, "--table: no table is called '%s'", command->table);
}

int hl_command_compare(int argc, char **argv)
{
    compare_command command = { .windows  = { .max_tokens = 16384 },
                                .drawing  = HL_DRAW_ARGUMENTS,
                                .n_tokens = 32 };
    const char     *special = NULL;

    hl_option options[] = {
        { "table", 't', HL_OPTION_TEXT, &command.table, "NAME",
          "ranks, metrics, layers, heads, differences, matching or rows", 0, 0 },
        { "csv", 0, HL_OPTION_FLAG, &command.csv, NULL, "the table as CSV", 0, 0 },
        { "text", 0, HL_OPTION_LIST, &command.texts, "PATH",
          "A and B are models: measure both on this; may be repeated", 0, 0 },
        { "context", 'c', HL_OPTION_INT, &command.windows.context, "N",
          "--text: tokens of a window", 1, INT64_MAX },
        { "max-tokens", 0, HL_OPTION_INT, &command.windows.max_tokens, "N",
          "--text: stop after N tokens (16384)", 1, INT64_MAX },
        HL_SPECIAL_OPTION(&special),
        HL_GATE_OPTIONS(&command.gates),
        HL_DRAW_OPTIONS(&command.drawing),
        { "prompt", 0, HL_OPTION_TEXT, &command.prompt, "TEXT",
          "-o and --text: maps of this instead of the text's first tokens", 0, 0 },
        { "tokens", 0, HL_OPTION_INT, &command.n_tokens, "N", "-o and --text: of the maps (32)", 2,
          HL_PATTERNS_MOST_TOKENS },
        { 0 },
    };
    hl_usage usage = {
        "compare",
        "A B",
        "Compares two profiles of models with equally many layers and heads, or\n"
        "with --text two models, which are measured first.\n"
        "Where both were measured on the same tokens, sequences are drawn in pairs\n"
        "(paired bootstrap), and what is called a difference has a false discovery\n"
        "rate under 5% over all heads.  One model on two texts: is the order of\n"
        "its heads stable?  Since training permutes heads, those of a layer are\n"
        "also matched by their profiles instead of their numbers.  Of two models\n"
        "on the same tokens sampled rows are compared as well, and heads matched\n"
        "by the total variation between them.\n"
        "\n"
        "--gates and --off are those of B: with the same model as A and B they show\n"
        "what the other heads do when some are off.\n"
        "\n"
        "With -o the two are drawn as well: with --text the attention of every head\n"
        "as small maps, else their entropies; and the differences.",
        options,
    };

    int code = hl_options_parse(&command.paths, &command.common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    command.windows.around = hl_special_option(special);
    if (command.paths.count != 2)
        return hl_options_refuse(&usage, "wanted two profiles, got %d", command.paths.count);
    if (command.texts.count == 0 && (command.gates.path != NULL || command.gates.off != NULL))
        return hl_options_refuse(&usage, "--gates and --off need --text: profiles are measured");
    if (command.prompt != NULL && (command.drawing.output == NULL || command.texts.count == 0))
        return hl_options_refuse(&usage, "--prompt needs -o FILE and --text PATH");
    code = check_table(&command, &usage);
    return code == HL_OPTIONS_GO_ON ? compare(&command) : code;
}
