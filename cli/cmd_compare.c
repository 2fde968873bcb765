/* cmd_compare.c - headlight compare: two profiles, head by head. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "evidence.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

enum { N_SHOWN = 10 };

typedef struct compare_command {
    hl_common    common;
    hl_arguments paths;
    const char  *table; /* NULL: the screen */
    /* Texts to measure both models on; none: A and B are profiles. */
    hl_option_list    texts;
    hl_window_options windows;
    hl_gate_arguments gates; /* gates of B */
    /* The figure, if one is drawn. */
    hl_draw_arguments drawing;
    const char       *prompt;
    int64_t           n_tokens; /* number of tokens of the maps */
} compare_command;

typedef struct compared {
    hl_profile  *profile;
    hl_patterns *patterns; /* NULL: not wanted, or the side is a profile */
} compared;

/* ---------------------------------------------------------------------- text */

static void print_kind(const compare_command *command, const hl_comparison *found)
{
    static const char *const meaning[] = {
        "measured on the same tokens: sequences are compared in pairs",
        "one model on two texts: is the order of its heads stable?",
        "different models and different texts: each by itself",
    };
    hl_colors colors = hl_terminal_colors(stdout);

    printf("%sA %s%s\n%sB %s%s\n", colors.bold, hl_shown(command->paths.items[0]), colors.plain,
           colors.bold, hl_shown(command->paths.items[1]), colors.plain);
    printf("%s\n", meaning[found->kind]);
    printf("%s model by hash, %lld sequences in common\n\n",
           found->same_model ? "the same" : "not the same", (long long)found->n_shared);
}

/* Returns the row with the largest change of normalized entropy that is not in `taken`; -1 if none
 * is left. */
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

static void print_head(const hl_sheet *heads, const hl_profile *profile, int64_t row)
{
    char name[HL_HEAD_NAME_BYTES];

    printf("  %-8s %7.3f %7.3f %+8.3f  %+.3f to %+.3f  %7.4f%s\n",
           hl_profile_head_name(name, profile, (int64_t)hl_cell_number(heads, row, "layer"),
                                (int64_t)hl_cell_number(heads, row, "head")),
           hl_cell_number(heads, row, "normalized_a"), hl_cell_number(heads, row, "normalized_b"),
           hl_cell_number(heads, row, "difference"), hl_cell_number(heads, row, "low"),
           hl_cell_number(heads, row, "high"), hl_cell_number(heads, row, "q"),
           hl_cell_number(heads, row, "significant") > 0.0 ? "  *" : "");
}

static void print_heads(const hl_comparison *found, const hl_profile *profile)
{
    int64_t taken[N_SHOWN];

    printf("%lld of %lld heads differ in normalized entropy (false discovery rate under 5%%)\n\n",
           (long long)found->n_significant, (long long)found->n_heads);
    printf("  %-8s %7s %7s %8s  %-16s  %7s\n", "head", "A", "B", "B - A", "95% interval", "q");
    for (int i = 0; i < N_SHOWN; i++) {
        taken[i] = largest_left(found->heads, taken, i);
        if (taken[i] < 0)
            break;
        print_head(found->heads, profile, taken[i]);
    }
    printf("\n");
}

static void print_matching(const hl_sheet *matching)
{
    printf("matched by profile, %.0f of %lld heads have a partner with another index; mean "
           "distance\n%.4f (%.4f if each head is paired with the one of the same index)\n",
           hl_sheet_fact(matching, "moved"), (long long)hl_sheet_n_rows(matching),
           hl_sheet_fact(matching, "mean distance"),
           hl_sheet_fact(matching, "mean distance by index"));
}

static void print_rows(const hl_sheet *rows)
{
    if (rows == NULL)
        return;
    printf("\n"
           "mean total variation between the rows of A and B on the same tokens: %.4f\n"
           "(%.0f rows per head, from %.0f windows; %.4f after matching heads by it, which\n"
           "gives %.0f heads a partner with another index)\n",
           hl_sheet_fact(rows, "mean variation"), hl_sheet_fact(rows, "rows"),
           hl_sheet_fact(rows, "sequences"), hl_sheet_fact(rows, "mean variation matched"),
           hl_sheet_fact(rows, "moved"));
}

static hl_status print_screen(const compare_command *command, const hl_profile *profile,
                              const hl_comparison *found)
{
    const hl_sheet *tables[] = { found->ranks, found->metrics, found->diagonal, found->peaks,
                                 found->layers };

    print_kind(command, found);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        HL_NEED(hl_print_sheet(tables[i], HL_SHEET_TEXT));
        printf("\n");
    }
    print_heads(found, profile);
    print_matching(found->matching);
    print_rows(found->rows);
    return HL_OK;
}

/* ---------------------------------------------------------------------- JSON */

static hl_status print_json(const compare_command *command, const hl_comparison *found)
{
    HL_HELD(hl_free) char *text = NULL;

    HL_NEED(hl_comparison_render(&text, found, command->paths.items[0], command->paths.items[1]));
    hl_put_json_text(text);
    printf("\n");
    return HL_OK;
}

/* --------------------------------------------------------------- the command */

static hl_status report(const compare_command *command, const hl_profile *profile,
                        const hl_comparison *found)
{
    if (command->table != NULL)
        return hl_print_sheet(hl_comparison_table(found, command->table),
                              hl_sheet_format_of(&command->common));
    if (command->common.json)
        return print_json(command, found);
    return command->common.quiet ? HL_OK : print_screen(command, profile, found);
}

/* Opens A or B: a profile to read, or a model to measure. */
static hl_status open_side(compared *out, const compare_command *command, int side)
{
    const char      *path  = command->paths.items[side];
    hl_quick_request quick = { .model_path = path,
                               .gates      = side == 1 ? &command->gates : NULL,
                               .command    = "compare",
                               .texts      = command->texts.items,
                               .n_texts    = (size_t)command->texts.count,
                               .windows    = command->windows,
                               .n_threads  = command->common.n_threads,
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

static hl_status draw(const compare_command *command, const compared sides[2],
                      const hl_comparison *found)
{
    char            titles[2][160];
    hl_compared     both[2];
    hl_draw_options how = command->drawing.how;

    for (int i = 0; i < 2; i++) {
        snprintf(titles[i], sizeof titles[i], "%c: %.127s", i == 0 ? 'A' : 'B',
                 hl_base_name(command->paths.items[i]));
        both[i] = (hl_compared){ titles[i], sides[i].profile, sides[i].patterns };
    }
    how.seed = command->common.seed;
    hl_draw_listen("compare");
    return hl_draw_comparison(&both[0], &both[1], found, command->drawing.output, &how);
}

/* Compares the rows of two models on the same tokens, which profiles do not hold. */
static hl_status add_rows(hl_comparison *found, const compare_command *command,
                          const hl_analysis_options *options)
{
    hl_row_distance_options how  = { .windows   = command->windows,
                                     .seed      = options->seed,
                                     .n_threads = command->common.n_threads };
    hl_corpus_options       text = { .inputs   = command->texts.items,
                                     .n_inputs = (size_t)command->texts.count };

    HL_HELD(hl_model_close) hl_model                *a         = NULL;
    HL_HELD(hl_model_close) hl_model                *b         = NULL;
    HL_HELD(hl_tokenizer_close) hl_tokenizer        *tokenizer = NULL;
    HL_HELD(hl_corpus_close) hl_corpus              *corpus    = NULL;
    HL_HELD(hl_row_distances_free) hl_row_distances *rows      = NULL;

    if (command->texts.count == 0 || found->kind != HL_COMPARE_SAME_TOKENS)
        return HL_OK;
    HL_NEED(hl_model_open(&a, command->paths.items[0]));
    HL_NEED(
        hl_model_options_open(&b, command->paths.items[1], NULL, &command->gates, "compare", true));
    HL_NEED(hl_tokenizer_option(&tokenizer, a, NULL));
    HL_NEED(hl_corpus_open(&corpus, a, tokenizer, &text));
    HL_NEED(hl_measure_row_distances(&rows, a, b, corpus, &how));
    return hl_comparison_add_rows(found, rows, options);
}

/* Products that were rounded in different ways change every number a little. */
static void warn_of_math(const compared sides[2])
{
    const char *a = hl_profile_setting(sides[0].profile, "math");
    const char *b = hl_profile_setting(sides[1].profile, "math");

    a = a != NULL ? a : "f32";
    b = b != NULL ? b : "f32";
    if (strcmp(a, b) != 0)
        hl_complain("compare",
                    "A was measured with --math %s, B with --math %s: small differences may come "
                    "from rounding",
                    a, b);
}

static int compare(const compare_command *command, compared sides[2])
{
    hl_analysis_options                        options = { .seed = command->common.seed };
    HL_HELD(hl_comparison_free) hl_comparison *found   = NULL;

    for (int i = 0; i < 2; i++)
        HL_CALL("compare", open_side(&sides[i], command, i));
    warn_of_math(sides);
    HL_CALL("compare", hl_compare(&found, sides[0].profile, sides[1].profile, &options));
    HL_CALL("compare", add_rows(found, command, &options));
    if (command->drawing.output != NULL)
        HL_CALL("compare", draw(command, sides, found));
    if (command->table != NULL && hl_comparison_table(found, command->table) == NULL)
        return hl_give_up(HL_EXIT_INPUT, "compare",
                          "--table %s needs --text and two models with the same tokenizer",
                          command->table);
    return hl_finish("compare", report(command, sides[0].profile, found));
}

int hl_command_compare(int argc, char **argv)
{
    compare_command command  = { .windows = { .max_tokens = 16384 }, .n_tokens = 32 };
    compared        sides[2] = { 0 };

    hl_option options[] = {
        HL_TEXT("table", 't', &command.table, "NAME",
                "ranks, metrics, diagonal, layer_metrics, peaks, pairs, layers, ..."),
        HL_CSV_OPTION(&command.common, "print the table as CSV"),
        HL_LIST("text", 0, &command.texts, "PATH",
                "A and B are models; measure both on this text (repeatable)"),
        HL_WINDOW_OPTIONS("--text", "16384", &command.windows),
        HL_GATE_OPTIONS(&command.gates),
        HL_DRAW_OPTIONS(&command.drawing),
        HL_TEXT("prompt", 0, &command.prompt, "TEXT",
                "with -o and --text: the prompt whose maps are drawn"),
        HL_INT("tokens", 0, &command.n_tokens, "N", "with -o and --text: tokens in the maps (32)",
               2, HL_PATTERNS_MOST_TOKENS),
        { 0 },
    };
    hl_usage usage = {
        "compare",
        "A B",
        "Compares two profiles head by head.  With --text, A and B are models, which are\n"
        "measured first.  Both must have the same numbers of layers and heads.\n"
        "\n"
        "Where both were measured on the same tokens, differences are taken sequence by\n"
        "sequence.  Heads marked as different have a false\n"
        "discovery rate under 5% over all heads.  Training permutes heads, so the heads of\n"
        "each layer are also matched by their profiles.  For two models on the same\n"
        "tokens, sampled attention rows are compared too, by total variation.\n"
        "\n"
        "--gates and --off apply to B.  Give the same model as A and B to see what the\n"
        "other heads do when some are disabled.\n"
        "\n"
        "-o also draws a figure: with --text, small attention maps of every head, else\n"
        "the entropies; and below them the differences.",
        options,
    };

    HL_PASS(hl_options_parse(&command.paths, &command.common, &usage, argc, argv));
    if (command.paths.count != 2)
        return hl_options_refuse(&usage, "give two profiles, A and B; got %d", command.paths.count);
    if (command.texts.count == 0 && hl_gate_options_given(&command.gates))
        return hl_options_refuse(
            &usage, "--gates and --off need --text and two models: a profile is already measured");
    if (command.prompt != NULL && (command.drawing.output == NULL || command.texts.count == 0))
        return hl_options_refuse(&usage, "--prompt needs -o FILE and --text PATH");
    HL_PASS(hl_options_check_table(&usage, command.table, command.common.csv,
                                   hl_comparison_table_name, ""));
    int code = compare(&command, sides);
    for (int i = 0; i < 2; i++) {
        hl_profile_free(sides[i].profile);
        hl_patterns_free(sides[i].patterns);
    }
    return code;
}
