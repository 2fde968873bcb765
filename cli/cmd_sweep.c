/* cmd_sweep.c - headlight sweep: the cost of disabling heads, for every ranker.
 *
 * Prints one line per order, one column per ratio, and the conclusions; as JSON, all tables; as
 * figures, curves over ratios and each ranker's scores against the costs of single heads. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "progress.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

enum { MAX_RATIOS = 100 };

typedef struct sweep_request {
    hl_common      common;
    hl_arguments   arguments; /* the model */
    hl_option_list rank_texts;
    hl_option_list test_texts;
    const char    *by;
    const char    *again; /* rankers to run iteratively */
    const char    *ratio_list;
    const char    *scatter;
    const char    *table;
    const char    *state;
    const char    *tokenizer_path;
    const char    *last_word; /* texts whose last word is to be predicted */
    int64_t        n_last_words;
    double         memory; /* in MiB */
    bool           perplexity;

    hl_draw_arguments drawing; /* file of the curves, and the style of both figures */
    hl_sweep_options  options;
    hl_ranker         rankers[HL_N_RANKERS];
    hl_ranker         iterative[HL_N_RANKERS];
    double            ratios[MAX_RATIOS];
} sweep_request;

/* The state while the sweep runs. */
typedef struct sweep_work {
    const sweep_request *request;
    char                *state_path; /* NULL: no state is saved */
    hl_model            *model;
    hl_tokenizer        *tokenizer;
    hl_corpus           *rank_corpus;
    hl_corpus           *test_corpus;
    hl_last_words        words;
    hl_sweep            *sweep;
    hl_progress_bar      progress;
} sweep_work;

/* --------------------------------------------------------------------- options */

static const char description[] =
    "Measures what disabling heads costs.  Ranks the heads on one text, disables more\n"
    "and more of them in that order, and measures the loss on another text: for every\n"
    "ranker, for random orders, and for every head alone.  Says which ranker costs\n"
    "least at each ratio, whether highest entropy first is better than chance, and\n"
    "whether entropy predicts which heads matter.\n"
    "\n"
    "The state is saved in --state (FIG.part with -o FIG) every --save-every seconds and\n"
    "on Ctrl-C.  Interrupted, --resume finishes with the same numbers, to the byte.";

/* Parses "entropy,weight" into a list without repetitions. */
static int parse_rankers(hl_ranker *out, int64_t *count, const hl_usage *usage, const char *option,
                         const char *text)
{
    while (*text != '\0') {
        size_t    length = strcspn(text, ",");
        char      name[64];
        hl_ranker ranker = 0;
        bool      known  = false;

        snprintf(name, sizeof name, "%.*s", (int)length, text);
        HL_PASS(hl_ranker_option(&ranker, usage, option, name));
        for (int64_t i = 0; i < *count; i++)
            known = known || out[i] == ranker;
        if (ranker == HL_RANKER_AUTO)
            return hl_options_refuse(
                usage, "--%s: auto is not a ranker of its own; name gradient or output-norm",
                option);
        if (!known && ranker != HL_RANKER_RANDOM) /* the random ranker is always included */
            out[(*count)++] = ranker;
        text += length + (text[length] == ',');
    }
    return HL_EXIT_OK;
}

static int parse_ratios(sweep_request *request, const hl_usage *usage)
{
    const char *text = request->ratio_list;

    while (*text != '\0') {
        char  *end   = NULL;
        double ratio = strtod(text, &end);

        if (end == text || (*end != ',' && *end != '\0') || !(ratio >= 0.0 && ratio < 1.0))
            return hl_options_refuse(
                usage, "--ratios: '%s' does not begin with a number of at least 0 and below 1",
                text);
        if (request->options.n_ratios == MAX_RATIOS)
            return hl_options_refuse(usage, "--ratios: at most %d ratios", MAX_RATIOS);
        request->ratios[request->options.n_ratios++] = ratio;
        text                                         = *end == ',' ? end + 1 : end;
    }
    request->options.ratios = request->ratios;
    return HL_EXIT_OK;
}

static int check_request(sweep_request *request, const hl_usage *usage)
{
    hl_sweep_options *options = &request->options;

    if (request->arguments.count != 1)
        return hl_options_refuse(usage, "give one MODEL; got %d", request->arguments.count);
    if (request->rank_texts.count == 0 || request->test_texts.count == 0)
        return hl_options_refuse(usage, "--rank-text A and --test-text B are both needed: a text "
                                        "to rank on and one to test on");
    if (request->n_last_words > 0 && request->last_word == NULL)
        return hl_options_refuse(usage, "--last-words needs --last-word FILE");
    if (options->resume && request->state == NULL && request->drawing.output == NULL)
        return hl_options_refuse(usage, "--resume needs --state FILE, or -o FIG");
    if (request->by != NULL)
        HL_PASS(parse_rankers(request->rankers, &options->n_rankers, usage, "by", request->by));
    if (request->again != NULL)
        HL_PASS(parse_rankers(request->iterative, &options->n_iterative, usage, "iterative",
                              request->again));
    if (request->ratio_list != NULL)
        HL_PASS(parse_ratios(request, usage));
    options->rankers      = request->by != NULL ? request->rankers : NULL;
    options->iterative    = request->again != NULL ? request->iterative : NULL;
    options->memory_bytes = (size_t)(request->memory * 1048576.0);
    options->seed         = request->common.seed;
    options->n_threads    = request->common.n_threads;
    return hl_options_check_table(usage, request->table, request->common.csv, hl_sweep_table_name,
                                  "");
}

static int parse_request(sweep_request *request, int argc, char **argv)
{
    hl_sweep_options *o         = &request->options;
    const hl_option   options[] = {
          HL_LIST("rank-text", 0, &request->rank_texts, "PATH",
                  "text to rank on: file, folder, pattern (repeatable)"),
          HL_LIST("test-text", 0, &request->test_texts, "PATH", "text to test on (repeatable)"),
          HL_TEXT("by", 0, &request->by, "A,B", "rankers (all)"),
          HL_TEXT("iterative", 0, &request->again, "A,B",
                  "rankers that also measure again after each ratio"),
          HL_TEXT("ratios", 0, &request->ratio_list, "R,R",
                  "rising ratios (0,0.1,0.2,0.3,0.4,0.5,0.6,0.7)"),
          HL_INT("seeds", 0, &o->n_seeds, "N", "number of random orders (10)", 2, 100000),
          HL_INT("per-layer-max", 0, &o->per_layer_max, "N", "disable at most N heads per layer", 1,
                 1 << 20),
          HL_FLAG("empty-layers", 0, &o->empty_layers, "allow layers to lose all heads"),
          HL_FLAG("groups", 0, &o->groups, "disable all query heads of a KV head together"),
          HL_INT("context", 'c', &o->n_ctx, "N",
                 "tokens per window (the model's context, at most 4096)", 2, 1 << 30),
          HL_SPECIAL_OPTION(&o->around),
          HL_INT("rank-tokens", 0, &o->rank_tokens, "N",
                 "use the first N tokens of the text to rank on (all)", 1, INT64_MAX),
          HL_INT("test-tokens", 0, &o->test_tokens, "N",
                 "use the first N tokens of the text to test on (all)", 1, INT64_MAX),
          HL_FLAG("same-text", 0, &o->shared_texts, "allow the same documents in both texts"),
          HL_TEXT("last-word", 0, &request->last_word, "FILE",
                  "also measure how often the last word of these texts is predicted"),
          HL_INT("last-words", 0, &request->n_last_words, "N",
                 "use the first N texts of --last-word (all)", 1, INT64_MAX),
          HL_DRAW_OPTIONS(&request->drawing),
          HL_TEXT("scatter", 0, &request->scatter, "FIG",
                  "draw each head's score against its cost alone"),
          HL_FLAG("perplexity", 0, &request->perplexity, "draw perplexity, on a logarithmic axis"),
          HL_TEXT("table", 't', &request->table, "NAME",
                  "points, random, correlation, heads, savings or repair"),
          HL_CSV_OPTION(&request->common, "print the table as CSV"),
          HL_NUMBER("memory", 0, &request->memory, "MIB",
                    "memory for predictions, MiB (1024, or those of one window)", 1, 1 << 30),
          HL_TEXT("state", 0, &request->state, "FILE", "file for the state"),
          HL_NUMBER("save-every", 0, &o->save_every, "SECONDS",
                    "seconds between saves of the state (30)", 0, 1000000),
          HL_FLAG("no-singles", 0, &o->no_singles,
                  "disable no head alone: no tables of heads and correlations"),
          HL_FLAG("repair", 0, &o->repair, "also with means, and repaired (takes much longer)"),
          HL_FLAG("resume", 0, &o->resume, "continue from the state if it exists"),
          HL_TOKENIZER_OPTION(&request->tokenizer_path),
          { 0 },
    };
    const hl_usage usage = { "sweep", "MODEL --rank-text A --test-text B", description, options };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* ------------------------------------------------------------------ for people */

/* Returns the loss of the reference model, nats per token. */
static double dense_loss(const hl_sweep *sweep)
{
    const hl_evaluation *test = hl_sweep_evaluation(sweep);

    return hl_evaluation_total(test, -1).nll / (double)test->n_scored;
}

static void print_heading(const hl_sweep *sweep, const char *model)
{
    const hl_sheet      *random = hl_sweep_table(sweep, "random");
    const hl_evaluation *test   = hl_sweep_evaluation(sweep);
    hl_colors            colors = hl_terminal_colors(stdout);

    printf(
        "%s%s%s  %lld tokens scored in %lld windows of %lld; with all heads %.4f nats per token\n",
        colors.bold, hl_shown(model), colors.plain, (long long)test->n_scored,
        (long long)test->n_windows, (long long)test->n_ctx, dense_loss(sweep));
    printf("Rise of the loss, nats per token, by number of heads disabled:\n\n  %-28s", "ratio");
    for (int64_t i = 0; i < hl_sheet_n_rows(random); i++)
        printf(" %8.2f", hl_cell_number(random, i, "ratio"));
    printf("\n  %-28s", "heads disabled");
    for (int64_t i = 0; i < hl_sheet_n_rows(random); i++)
        printf(" %8.0f", hl_cell_number(random, i, "disabled"));
    printf("\n");
}

/* Returns a mark for a significant difference from random. */
static char mark(const hl_sheet *points, int64_t row)
{
    if (hl_cell_number(points, row, "vs_high") < 0.0)
        return '+';
    return hl_cell_number(points, row, "vs_low") > 0.0 ? '-' : ' ';
}

static void print_orders(const hl_sweep *sweep)
{
    const hl_sheet *points   = hl_sweep_table(sweep, "points");
    const hl_sheet *random   = hl_sweep_table(sweep, "random");
    int64_t         n_ratios = hl_sheet_n_rows(random);

    for (int64_t row = 0; row < hl_sheet_n_rows(points); row++) {
        if (row % n_ratios == 0)
            printf("  %-28s", hl_sheet_text(points, row, 0));
        printf(" %7.4f%c", hl_cell_number(points, row, "rise"), mark(points, row));
        if (row % n_ratios == n_ratios - 1)
            printf("\n");
    }
}

static void print_random(const hl_sweep *sweep)
{
    static const char *const columns[] = { "least", "median", "most" };
    static const char *const names[]   = { "random, lowest", "random, median", "random, highest" };
    const hl_sheet          *random    = hl_sweep_table(sweep, "random");
    double                   dense     = dense_loss(sweep);

    for (int i = 0; i < 3; i++) {
        printf("  %-28s", names[i]);
        for (int64_t row = 0; row < hl_sheet_n_rows(random); row++)
            printf(" %7.4f ", hl_cell_number(random, row, columns[i]) - dense);
        printf("\n");
    }
    printf("\n"
           "  + significantly better than the mean of random orders, - significantly worse\n"
           "  (95%% intervals, not corrected for multiple comparisons)\n"
           "\n");
}

/* Prints shares from a table's column, one per row, under one name. */
static void print_shares(const hl_sheet *table, int64_t first, int64_t count, const char *name)
{
    printf("  %-28s", name);
    for (int64_t row = first; row < first + count; row++)
        printf(" %7.1f ", 100.0 * hl_cell_number(table, row, "last_word"));
    printf("\n");
}

static void print_words(const hl_sweep *sweep)
{
    const hl_sheet *points   = hl_sweep_table(sweep, "points");
    const hl_sheet *random   = hl_sweep_table(sweep, "random");
    int64_t         n_ratios = hl_sheet_n_rows(random);

    if (isnan(hl_cell_number(random, 0, "last_word")))
        return;
    printf("Last words predicted, in percent:\n\n");
    for (int64_t row = 0; row < hl_sheet_n_rows(points); row += n_ratios)
        print_shares(points, row, n_ratios, hl_sheet_text(points, row, 0));
    print_shares(random, 0, n_ratios, "random, mean");
    printf("\n");
}

static hl_status print_sweep(const hl_sweep *sweep, const char *model)
{
    print_heading(sweep, model);
    print_orders(sweep);
    print_random(sweep);
    print_words(sweep);
    if (hl_sheet_n_rows(hl_sweep_table(sweep, "correlation")) > 0) {
        HL_NEED(hl_print_sheet(hl_sweep_table(sweep, "correlation"), HL_SHEET_TEXT));
        printf("\n");
    }
    HL_NEED(hl_print_sheet(hl_sweep_table(sweep, "savings"), HL_SHEET_TEXT));
    if (hl_sheet_n_rows(hl_sweep_table(sweep, "repair")) > 0) {
        printf("\n");
        HL_NEED(hl_print_sheet(hl_sweep_table(sweep, "repair"), HL_SHEET_TEXT));
    }
    printf("\n");
    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
        printf("%s\n", hl_sweep_verdict(sweep, i));
    return HL_OK;
}

/* --------------------------------------------------------------------- as JSON */

static hl_status print_json(const hl_sweep *sweep, const char *model)
{
    const hl_evaluation         *test    = hl_sweep_evaluation(sweep);
    HL_HELD(json_decref) json_t *verdict = json_array();
    HL_HELD(json_decref) json_t *tables  = json_object();

    for (size_t i = 0; hl_sweep_table_name(i) != NULL; i++) {
        const hl_sheet *table = hl_sweep_table(sweep, hl_sweep_table_name(i));

        if (hl_sheet_n_rows(table) > 0) /* that of repairs is empty unless asked for */
            HL_NEED(hl_set_sheet(tables, table));
    }
    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
        json_array_append_new(verdict, json_string(hl_sweep_verdict(sweep, i)));
    json_t *root =
        HL_OBJECT(HL_IS("model", hl_value_name(model)), HL_IS("context", test->n_ctx),
                  HL_IS("windows", test->n_windows), HL_IS("scored", test->n_scored),
                  HL_IS("nll", dense_loss(sweep)), HL_IS("settings", test->n_settings),
                  HL_IS("distinct", test->n_distinct), HL_IS("layers_run", test->n_layers_run),
                  HL_IS("layers_naive", test->n_layers_naive),
                  HL_IS("verdict", json_incref(verdict)), HL_IS("tables", json_incref(tables)));
    hl_print_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    return HL_OK;
}

/* ---------------------------------------------------------------------- curves */

enum { MOST_COLUMNS = 6 }; /* largest number of columns that a curve needs */

/* The curves, and memory for the numbers that they point to. */
typedef struct curve_maker {
    int64_t n_ratios;
    double  dense;
    bool    perplexity;
    double *next; /* next free number */
} curve_maker;

/* Copies a column of a table, from `row` on. */
static double *column(curve_maker *maker, const hl_sheet *table, const char *name, int64_t row)
{
    double *values = maker->next;

    for (int64_t i = 0; i < maker->n_ratios; i++)
        *maker->next++ = hl_cell_number(table, row + i, name);
    return values;
}

/* Converts a column of mean NLLs to what the axis shows. */
static double *shown(curve_maker *maker, const hl_sheet *table, const char *name, int64_t row)
{
    double *values = column(maker, table, name, row);

    for (int64_t i = 0; i < maker->n_ratios; i++)
        values[i] = maker->perplexity ? exp(values[i]) : values[i] - maker->dense;
    return values;
}

static hl_curve order_curve(curve_maker *maker, const hl_sheet *points, int64_t row)
{
    return (hl_curve){ .name = hl_sheet_text(points, row, 0),
                       .n    = maker->n_ratios,
                       .x    = column(maker, points, "ratio", row),
                       .y    = shown(maker, points, "nll", row) };
}

static hl_curve random_curve(curve_maker *maker, const hl_sheet *random)
{
    return (hl_curve){ .name       = "random",
                       .n          = maker->n_ratios,
                       .kind       = HL_CURVE_CHANCE,
                       .x          = column(maker, random, "ratio", 0),
                       .y          = shown(maker, random, "median", 0),
                       .low        = shown(maker, random, "least", 0),
                       .high       = shown(maker, random, "most", 0),
                       .inner_low  = shown(maker, random, "quarter", 0),
                       .inner_high = shown(maker, random, "three_quarters", 0) };
}

/* Draws the rise of the loss over ratios, or the perplexity on a logarithmic axis. */
static hl_status draw_curves(const sweep_work *work)
{
    const sweep_request *request  = work->request;
    const hl_sheet      *points   = hl_sweep_table(work->sweep, "points");
    const hl_sheet      *random   = hl_sweep_table(work->sweep, "random");
    const hl_evaluation *test     = hl_sweep_evaluation(work->sweep);
    curve_maker          maker    = { .n_ratios   = hl_sheet_n_rows(random),
                                      .dense      = dense_loss(work->sweep),
                                      .perplexity = request->perplexity };
    int64_t              n_orders = hl_sheet_n_rows(points) / maker.n_ratios;
    size_t               n_curves = (size_t)n_orders + 1;
    char                 title[200], what[300], band[64];

    HL_HELD(free) hl_curve *curves = calloc(n_curves, sizeof *curves);
    HL_HELD(free)
    double *values = calloc(n_curves * (size_t)maker.n_ratios, MOST_COLUMNS * sizeof *values);

    if (curves == NULL || values == NULL)
        return HL_NO_MEMORY;
    maker.next = values;
    curves[0]  = random_curve(&maker, random);
    for (int64_t i = 0; i < n_orders; i++)
        curves[i + 1] = order_curve(&maker, points, i * maker.n_ratios);
    snprintf(title, sizeof title, "%s: what disabling heads costs", request->arguments.items[0]);
    snprintf(what, sizeof what,
             "%lld tokens scored in %lld windows of %lld; with all heads %.4f nats per token",
             (long long)test->n_scored, (long long)test->n_windows, (long long)test->n_ctx,
             maker.dense);
    snprintf(band, sizeof band, "random: %.0f seeds, lowest to highest",
             hl_sheet_fact(random, "seeds"));
    return hl_draw_curves(&(hl_curves){ .title      = title,
                                        .x_name     = "share of heads disabled",
                                        .y_name     = maker.perplexity
                                                          ? "perplexity"
                                                          : "rise of the loss, nats per token",
                                        .what       = what,
                                        .band       = band,
                                        .inner_band = "the middle half",
                                        .curves     = curves,
                                        .n_curves   = n_orders + 1,
                                        .log_y      = maker.perplexity },
                          request->drawing.output, &request->drawing.how);
}

/* --------------------------------------------------------------------- scatter */

/* Fills in the points of a panel, in the order of the table's first ranker.  Each ranker lists
 * heads in its own order, so they are looked up by layer and number. */
static void fill_panel(double *x, double *y, const hl_sheet *heads, int64_t panel, int64_t n_heads)
{
    for (int64_t i = 0; i < n_heads; i++) {
        for (int64_t row = panel * n_heads; row < (panel + 1) * n_heads; row++) {
            if (hl_cell_number(heads, row, "layer") == hl_cell_number(heads, i, "layer") &&
                hl_cell_number(heads, row, "head") == hl_cell_number(heads, i, "head")) {
                x[i] = hl_cell_number(heads, row, "score");
                y[i] = hl_cell_number(heads, row, "rise");
            }
        }
    }
}

/* Draws each ranker's score of every head against the cost of disabling that head. */
static hl_status draw_scatter(const sweep_work *work)
{
    const hl_sheet *correlation = hl_sweep_table(work->sweep, "correlation");
    const hl_sheet *heads       = hl_sweep_table(work->sweep, "heads");
    int64_t         n_panels    = hl_sheet_n_rows(correlation);
    int64_t         n_heads     = n_panels > 0 ? hl_sheet_n_rows(heads) / n_panels : 0;
    char            title[200];

    HL_HELD(free) hl_scatter_panel *panels = calloc((size_t)n_panels + 1, sizeof *panels);
    HL_HELD(free)
    double *values =
        calloc((size_t)(n_panels * n_heads) + 1, 2 * sizeof *values); /* (n_panels, 2, n_heads) */
    HL_HELD(free) const char **names = calloc((size_t)n_heads + 1, sizeof *names);
    HL_HELD(free) char        *text  = calloc((size_t)n_heads + 1, HL_HEAD_LABEL_BYTES);

    if (panels == NULL || values == NULL || names == NULL || text == NULL)
        return HL_NO_MEMORY;
    for (int64_t i = 0; i < n_heads; i++)
        names[i] = hl_head_label(text + i * HL_HEAD_LABEL_BYTES,
                                 (int64_t)hl_cell_number(heads, i, "layer"),
                                 (int64_t)hl_cell_number(heads, i, "head"));
    for (int64_t i = 0; i < n_panels; i++) {
        double *x = values + 2 * i * n_heads;

        fill_panel(x, x + n_heads, heads, i, n_heads);
        panels[i] = (hl_scatter_panel){ .name     = hl_sheet_text(correlation, i, 0),
                                        .x        = x,
                                        .y        = x + n_heads,
                                        .rho      = hl_cell_number(correlation, i, "rho"),
                                        .rho_low  = hl_cell_number(correlation, i, "low"),
                                        .rho_high = hl_cell_number(correlation, i, "high") };
    }
    snprintf(title, sizeof title, "%s: does the score predict what a head is worth?",
             work->request->arguments.items[0]);
    return hl_draw_scatter(&(hl_scatter){ .title    = title,
                                          .x_name   = "score on the ranking text",
                                          .y_name   = "rise of the loss with the head disabled",
                                          .what     = "Spearman's rho with 95% interval",
                                          .n_points = n_heads,
                                          .names    = names,
                                          .panels   = panels,
                                          .n_panels = n_panels },
                           work->request->scatter, &work->request->drawing.how);
}

/* ------------------------------------------------------------------------ work */

static hl_status open_corpus(hl_corpus **out, const sweep_work *work, const hl_option_list *texts)
{
    hl_corpus_options options = { .inputs = texts->items, .n_inputs = (size_t)texts->count };

    HL_NEED(hl_corpus_open(out, work->model, work->tokenizer, &options));
    if (!work->request->common.quiet)
        hl_corpus_options_report("sweep", *out);
    return HL_OK;
}

static hl_status open_work(sweep_work *work)
{
    const sweep_request *request = work->request;
    const char          *base = request->state != NULL ? request->state : request->drawing.output;

    HL_NEED(hl_model_open_on(&work->model, request->arguments.items[0], request->common.device));
    HL_NEED(hl_tokenizer_option(&work->tokenizer, work->model, request->tokenizer_path));
    HL_NEED(open_corpus(&work->rank_corpus, work, &request->rank_texts));
    HL_NEED(open_corpus(&work->test_corpus, work, &request->test_texts));
    if (base == NULL)
        return HL_OK;
    size_t room      = strlen(base) + 8;
    work->state_path = malloc(room);
    if (work->state_path == NULL)
        return HL_NO_MEMORY;
    snprintf(work->state_path, room, "%s%s", base, request->state != NULL ? "" : ".part");
    return HL_OK;
}

static void close_work(sweep_work *work)
{
    hl_sweep_free(work->sweep);
    hl_corpus_close(work->rank_corpus);
    hl_corpus_close(work->test_corpus);
    hl_last_words_free(&work->words);
    hl_tokenizer_close(work->tokenizer);
    hl_model_close(work->model);
    free(work->state_path);
}

static hl_status run(sweep_work *work)
{
    hl_sweep_options options = work->request->options;

    options.words      = work->words.items;
    options.n_words    = work->words.count;
    options.state_path = work->state_path;
    options.progress   = hl_progress_show;
    options.context    = &work->progress;
    hl_progress_start(&work->progress, stderr, "", work->request->common.quiet);
    hl_status status = hl_sweep_run(&work->sweep, work->model, work->tokenizer, work->rank_corpus,
                                    work->test_corpus, &options);
    hl_progress_end(&work->progress);
    return status;
}

static hl_status draw(const sweep_work *work)
{
    const sweep_request *request = work->request;

    if (request->drawing.output != NULL)
        HL_NEED(draw_curves(work));
    return request->scatter != NULL ? draw_scatter(work) : HL_OK;
}

static hl_status report(const sweep_work *work)
{
    const sweep_request *request = work->request;
    const char          *model   = request->arguments.items[0];

    if (request->table != NULL)
        return hl_print_sheet(hl_sweep_table(work->sweep, request->table),
                              hl_sheet_format_of(&request->common));
    if (request->common.json)
        return print_json(work->sweep, model);
    return request->common.quiet ? HL_OK : print_sweep(work->sweep, model);
}

/* The state file is removed only when all requested output exists. */
static int sweep(sweep_work *work)
{
    const sweep_request *request = work->request;

    HL_CALL("sweep", open_work(work));
    if (request->last_word != NULL)
        HL_PASS(hl_last_words_read(&work->words, request->last_word, work->tokenizer,
                                   request->options.around, request->n_last_words, "sweep"));
    hl_status status = run(work);
    if (status == HL_CANCELLED && hl_stop_asked())
        return hl_give_up(HL_EXIT_STOPPED, "sweep", "%s%s%s", hl_error_message(),
                          work->state_path != NULL ? "; --resume continues from " : "",
                          work->state_path != NULL ? work->state_path : "");
    HL_CALL("sweep", status);
    HL_CALL("sweep", draw(work));
    HL_CALL("sweep", report(work));
    if (work->state_path != NULL)
        unlink(work->state_path);
    return HL_EXIT_OK;
}

int hl_command_sweep(int argc, char **argv)
{
    sweep_request                  request = { 0 };
    HL_KEPT(close_work) sweep_work work    = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    hl_stop_watch();
    return sweep(&work);
}
