/* cmd_sweep.c - headlight sweep: what it costs to switch heads off, by every ranker.
 *
 * It shows an order a line, a ratio a column, and the verdict; as JSON, all tables; and as figures,
 * curves over ratios and each ranker's scores against what a head alone costs. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "headlight.h"
#include "last_word.h"
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
    const char    *again; /* rankers, iteratively */
    const char    *ratio_list;
    const char    *scatter;
    const char    *table;
    const char    *state;
    const char    *tokenizer_path;
    const char    *special;
    const char    *last_word; /* texts whose last word is to be foretold */
    int64_t        n_last_words;
    double         memory; /* MiB */
    bool           csv;
    bool           perplexity;

    hl_draw_arguments drawing; /* of the curves, and how both figures look */
    hl_sweep_options  options;
    hl_ranker         rankers[HL_N_RANKERS];
    hl_ranker         iterative[HL_N_RANKERS];
    double            ratios[MAX_RATIOS];
} sweep_request;

/* What is open while it works. */
typedef struct sweep_work {
    const sweep_request *request;
    char                *state_path; /* NULL: none */
    hl_model            *model;
    hl_tokenizer        *tokenizer;
    hl_corpus           *rank_corpus;
    hl_corpus           *test_corpus;
    hl_last_words        words;
    hl_sweep            *sweep;
    hl_progress          progress;
    const char          *stage; /* that the progress bar shows */
} sweep_work;

/* --------------------------------------------------------------------- options */

static const char description[] =
    "Ranks the heads of a model on one text, switches more and more of them off in\n"
    "that order, and measures on another text what that costs: by every ranker, by\n"
    "random orders, and for every head alone.  Says which ranker costs least at\n"
    "which ratio, whether highest entropy first is better than chance, and whether\n"
    "entropy tells which heads matter.\n"
    "\n"
    "Layers below the first that differs from the setting before are not run again.\n"
    "The state is saved in --state (FIG.part with -o FIG) every --save-every seconds\n"
    "and on Ctrl-C; --resume goes on from it, to the same bytes.";

/* "entropy,weight" to a list without repetitions. */
static int parse_rankers(hl_ranker *out, int64_t *count, const hl_usage *usage, const char *option,
                         const char *text)
{
    while (*text != '\0') {
        size_t    length = strcspn(text, ",");
        char      name[64];
        hl_ranker ranker = 0;
        bool      known  = false;

        snprintf(name, sizeof name, "%.*s", (int)length, text);
        int code = hl_ranker_option(&ranker, usage, option, name);
        if (code != HL_OPTIONS_GO_ON)
            return code;
        for (int64_t i = 0; i < *count; i++)
            known = known || out[i] == ranker;
        if (ranker == HL_RANKER_AUTO)
            return hl_options_refuse(usage,
                                     "--%s auto: a sweep compares rankers; auto is gradient "
                                     "or output-norm, name these",
                                     option);
        if (!known && ranker != HL_RANKER_RANDOM) /* which is there anyway */
            out[(*count)++] = ranker;
        text += length + (text[length] == ',');
    }
    return HL_OPTIONS_GO_ON;
}

static int parse_ratios(sweep_request *request, const hl_usage *usage)
{
    const char *text = request->ratio_list;

    while (*text != '\0') {
        char  *end   = NULL;
        double ratio = strtod(text, &end);

        if (end == text || (*end != ',' && *end != '\0') || !(ratio >= 0.0 && ratio < 1.0))
            return hl_options_refuse(usage,
                                     "--ratios: '%s' does not begin with a number from 0 on "
                                     "and below 1",
                                     text);
        if (request->options.n_ratios == MAX_RATIOS)
            return hl_options_refuse(usage, "--ratios: more than %d", MAX_RATIOS);
        request->ratios[request->options.n_ratios++] = ratio;
        text                                         = *end == ',' ? end + 1 : end;
    }
    request->options.ratios = request->ratios;
    return HL_OPTIONS_GO_ON;
}

static int check_table(const sweep_request *request, const hl_usage *usage)
{
    hl_nearest nearest = { .wanted = request->table };

    if (request->table == NULL)
        return request->csv ? hl_options_refuse(usage, "--csv needs --table NAME")
                            : HL_OPTIONS_GO_ON;
    for (size_t i = 0; hl_sweep_table_name(i) != NULL; i++) {
        if (strcmp(request->table, hl_sweep_table_name(i)) == 0)
            return HL_OPTIONS_GO_ON;
        hl_nearest_offer(&nearest, hl_sweep_table_name(i));
    }
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--table: no table is called '%s' (did you mean '%s'?)",
                                 request->table, nearest.word);
    return hl_options_refuse(usage, "--table: no table is called '%s'", request->table);
}

static int check_request(sweep_request *request, const hl_usage *usage)
{
    int code = HL_OPTIONS_GO_ON;

    if (request->arguments.count != 1)
        return hl_options_refuse(usage, "wanted one MODEL, got %d", request->arguments.count);
    if (request->rank_texts.count == 0 || request->test_texts.count == 0)
        return hl_options_refuse(usage, "wanted a text to rank on and one to test on: --rank-text "
                                        "A --test-text B");
    if (request->n_last_words > 0 && request->last_word == NULL)
        return hl_options_refuse(usage, "--last-words needs --last-word FILE");
    if (request->options.resume && request->state == NULL && request->drawing.output == NULL)
        return hl_options_refuse(usage, "--resume needs --state FILE, or -o FIG");
    if (request->by != NULL) {
        code =
            parse_rankers(request->rankers, &request->options.n_rankers, usage, "by", request->by);
        request->options.rankers = request->rankers;
    }
    if (code == HL_OPTIONS_GO_ON && request->again != NULL) {
        code = parse_rankers(request->iterative, &request->options.n_iterative, usage, "iterative",
                             request->again);
        request->options.iterative = request->iterative;
    }
    if (code == HL_OPTIONS_GO_ON && request->ratio_list != NULL)
        code = parse_ratios(request, usage);
    request->options.memory_bytes = (size_t)(request->memory * 1048576.0);
    request->options.seed         = (uint64_t)request->common.seed;
    request->options.around       = hl_special_option(request->special);
    request->options.n_threads    = (int32_t)request->common.n_threads;
    return code == HL_OPTIONS_GO_ON ? check_table(request, usage) : code;
}

static int parse_request(sweep_request *request, int argc, char **argv)
{
    hl_sweep_options *o         = &request->options;
    const hl_option   options[] = {
          { "rank-text", 0, HL_OPTION_LIST, &request->rank_texts, "PATH",
            "the text to rank on: file, folder, pattern; repeatable", 0, 0 },
          { "test-text", 0, HL_OPTION_LIST, &request->test_texts, "PATH", "the text to test on", 0,
            0 },
          { "by", 0, HL_OPTION_TEXT, &request->by, "A,B", "these rankers (all)", 0, 0 },
          { "iterative", 0, HL_OPTION_TEXT, &request->again, "A,B",
            "these also with a new measurement after each ratio", 0, 0 },
          { "ratios", 0, HL_OPTION_TEXT, &request->ratio_list, "R,R",
            "rising (0,0.1,0.2,0.3,0.4,0.5,0.6,0.7)", 0, 0 },
          { "seeds", 0, HL_OPTION_INT, &o->n_seeds, "N", "random orders (10)", 2, 100000 },
          { "per-layer-max", 0, HL_OPTION_INT, &o->limits.per_layer_max, "N",
            "a layer loses no more heads", 1, 1 << 20 },
          { "empty-layers", 0, HL_OPTION_FLAG, &o->limits.empty_layers, NULL,
            "a layer may lose all its heads", 0, 0 },
          { "groups", 0, HL_OPTION_FLAG, &o->groups, NULL, "query heads of a K/V head go together", 0,
            0 },
          { "context", 'c', HL_OPTION_INT, &o->n_ctx, "N",
            "tokens of a window (the model's, at most 1024)", 2, 1 << 30 },
          HL_SPECIAL_OPTION(&request->special),
          { "rank-tokens", 0, HL_OPTION_INT, &o->rank_tokens, "N",
            "the first N tokens of the text to rank on (all)", 1, INT64_MAX },
          { "test-tokens", 0, HL_OPTION_INT, &o->test_tokens, "N",
            "the first N tokens of the text to test on (all)", 1, INT64_MAX },
          { "same-text", 0, HL_OPTION_FLAG, &o->shared_texts, NULL,
            "allow documents that are in both texts", 0, 0 },
          { "last-word", 0, HL_OPTION_TEXT, &request->last_word, "FILE",
            "how often the last word of these texts is foretold", 0, 0 },
          { "last-words", 0, HL_OPTION_INT, &request->n_last_words, "N",
            "the first N texts of it (all)", 1, INT64_MAX },
          HL_DRAW_OPTIONS(&request->drawing),
          { "scatter", 0, HL_OPTION_TEXT, &request->scatter, "FIG",
            "draw scores against what a head alone costs", 0, 0 },
          { "perplexity", 0, HL_OPTION_FLAG, &request->perplexity, NULL,
            "the curves in perplexity, on a logarithmic axis", 0, 0 },
          { "table", 't', HL_OPTION_TEXT, &request->table, "NAME",
            "points, random, correlation, heads or savings", 0, 0 },
          { "csv", 0, HL_OPTION_FLAG, &request->csv, NULL, "the table as CSV", 0, 0 },
          { "memory", 0, HL_OPTION_NUMBER, &request->memory, "MIB",
            "for predictions and residual streams of a batch (1024)", 1, 1 << 30 },
          { "state", 0, HL_OPTION_TEXT, &request->state, "FILE", "where the state is saved", 0, 0 },
          { "save-every", 0, HL_OPTION_NUMBER, &o->save_every, "SECONDS", "how often (30)", 0,
            1000000 },
          { "resume", 0, HL_OPTION_FLAG, &o->resume, NULL, "go on from the state, if it is there", 0,
            0 },
          { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
            "use this one instead of the model's own", 0, 0 },
          { 0 },
    };
    const hl_usage usage = { "sweep", "MODEL --rank-text A --test-text B", description, options };
    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);

    return code == HL_OPTIONS_GO_ON ? check_request(request, &usage) : code;
}

/* -------------------------------------------------------------------- stopping */

/* Each stage has a bar of its own. */
static hl_status show_progress(void *context, const hl_sweep_progress *progress)
{
    sweep_work *work = context;

    if (work->stage == NULL || strcmp(work->stage, progress->stage) != 0) {
        hl_progress_end(&work->progress);
        hl_progress_start(&work->progress, stderr, progress->stage, work->request->common.quiet);
        work->stage = progress->stage;
    }
    hl_progress_update(&work->progress, progress->share, progress->n_tokens);
    return hl_stop_asked() ? HL_CANCELLED : HL_OK;
}

/* ------------------------------------------------------------------ its tables */

static int print_table(const hl_sweep *sweep, const char *name, hl_sheet_format format)
{
    char     *text   = NULL;
    hl_status status = hl_sheet_render(&text, hl_sweep_table(sweep, name), format);

    if (status == HL_OK)
        hl_put_sheet(text, format);
    else
        hl_complain("sweep", "%s", hl_explain(status));
    hl_free(text);
    return hl_exit_for(status);
}

/* ------------------------------------------------------------------ for people */

static void print_heading(const hl_sweep *sweep, const char *model)
{
    const hl_sheet      *random  = hl_sweep_table(sweep, "random");
    const hl_evaluation *test    = hl_sweep_evaluation(sweep);
    hl_colours           colours = hl_terminal_colours(stdout);

    printf(
        "%s%s%s  %lld tokens scored in %lld windows of %lld; without pruning %.4f nats a token\n",
        colours.bold, hl_shown(model), colours.plain, (long long)test->n_scored,
        (long long)test->n_windows, (long long)test->context,
        hl_evaluation_total(test, -1).nll / (double)test->n_scored);
    printf("Rise of the loss, nats a token, with so many heads switched off:\n\n  %-28s", "ratio");
    for (int64_t i = 0; i < hl_sheet_n_rows(random); i++)
        printf(" %8.2f", hl_cell_number(random, i, "ratio"));
    printf("\n  %-28s", "heads off");
    for (int64_t i = 0; i < hl_sheet_n_rows(random); i++)
        printf(" %8.0f", hl_cell_number(random, i, "off"));
    printf("\n");
}

/* A mark where the difference to random is clear. */
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
    static const char *const names[]   = { "random, least", "random, median", "random, most" };
    const hl_sheet          *random    = hl_sweep_table(sweep, "random");
    const hl_evaluation     *test      = hl_sweep_evaluation(sweep);
    double                   dense     = hl_evaluation_total(test, -1).nll / (double)test->n_scored;

    for (int i = 0; i < 3; i++) {
        printf("  %-28s", names[i]);
        for (int64_t row = 0; row < hl_sheet_n_rows(random); row++)
            printf(" %7.4f ", hl_cell_number(random, row, columns[i]) - dense);
        printf("\n");
    }
    printf("\n  + clearly better than the mean of random orders, - clearly worse (95%%, each by "
           "itself)\n\n");
}

/* Shares of a table's column, a row of the table each, under one name. */
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
    printf("Last words foretold, in per cent:\n\n");
    for (int64_t row = 0; row < hl_sheet_n_rows(points); row += n_ratios)
        print_shares(points, row, n_ratios, hl_sheet_text(points, row, 0));
    print_shares(random, 0, n_ratios, "random, mean");
    printf("\n");
}

/* Exit codes, after a complaint. */
static int print_sweep(const hl_sweep *sweep, const char *model)
{
    print_heading(sweep, model);
    print_orders(sweep);
    print_random(sweep);
    print_words(sweep);
    int code = print_table(sweep, "correlation", HL_SHEET_TEXT);
    if (code == HL_EXIT_OK)
        printf("\n");
    if (code == HL_EXIT_OK)
        code = print_table(sweep, "savings", HL_SHEET_TEXT);
    printf("\n");
    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
        printf("%s\n", hl_sweep_verdict(sweep, i));
    return code;
}

/* --------------------------------------------------------------------- as JSON */

/* NULL when memory is out. */
static json_t *tables_of(const hl_sweep *sweep)
{
    json_t *tables = json_object();

    for (size_t i = 0; tables != NULL && hl_sweep_table_name(i) != NULL; i++) {
        char       *text  = NULL;
        json_t     *value = NULL;
        const char *name  = hl_sweep_table_name(i);

        if (hl_sheet_render(&text, hl_sweep_table(sweep, name), HL_SHEET_JSON) != HL_OK ||
            hl_json_read(&value, text, strlen(text), name) != HL_OK ||
            json_object_set_new(tables, name, value) != 0) {
            json_decref(tables);
            tables = NULL;
        }
        hl_free(text);
    }
    return tables;
}

static int print_json(const hl_sweep *sweep, const char *model)
{
    const hl_evaluation *test    = hl_sweep_evaluation(sweep);
    json_t              *verdict = json_array();

    for (size_t i = 0; hl_sweep_verdict(sweep, i) != NULL; i++)
        json_array_append_new(verdict, json_string(hl_sweep_verdict(sweep, i)));
    json_t *root =
        json_pack("{s:o, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:o, s:o}", "model",
                  hl_value_name(model), "context", (json_int_t)test->context, "windows",
                  (json_int_t)test->n_windows, "scored", (json_int_t)test->n_scored, "nll",
                  hl_evaluation_total(test, -1).nll / (double)test->n_scored, "settings",
                  (json_int_t)test->n_settings, "distinct", (json_int_t)test->n_distinct,
                  "layers_run", (json_int_t)test->n_layers_run, "layers_naive",
                  (json_int_t)test->n_layers_naive, "verdict", verdict, "tables", tables_of(sweep));
    bool good = hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(15));

    printf("\n");
    json_decref(root);
    return good ? HL_EXIT_OK : HL_EXIT_RESOURCES;
}

/* ----------------------------------------------------------- arrays of figures */

typedef struct sweep_figure {
    const hl_sweep        *sweep;
    const char            *model; /* its name */
    const hl_draw_options *how;
} sweep_figure;

/* A column of a table from `row` on; free it. */
static double *column(const hl_sheet *table, const char *name, int64_t row, int64_t n)
{
    double *values = malloc((size_t)(n > 0 ? n : 1) * sizeof *values);

    for (int64_t i = 0; i < n && values != NULL; i++)
        values[i] = hl_sheet_number(table, row + i, hl_sheet_find(table, name));
    return values;
}

/* What the axis shows of a mean NLL. */
static double *shown(const hl_sheet *table, const char *name, int64_t row, int64_t n, double dense,
                     bool perplexity)
{
    double *values = column(table, name, row, n);

    for (int64_t i = 0; i < n && values != NULL; i++)
        values[i] = perplexity ? exp(values[i]) : values[i] - dense;
    return values;
}

/* ---------------------------------------------------------------------- curves */

static void free_curve(hl_curve *curve)
{
    free((void *)curve->x);
    free((void *)curve->y);
    free((void *)curve->low);
    free((void *)curve->high);
    free((void *)curve->inner_low);
    free((void *)curve->inner_high);
}

static hl_curve order_curve(const hl_sheet *points, int64_t row, int64_t n, double dense,
                            bool perplexity)
{
    return (hl_curve){ .name = hl_sheet_text(points, row, 0),
                       .n    = n,
                       .x    = column(points, "ratio", row, n),
                       .y    = shown(points, "nll", row, n, dense, perplexity) };
}

static hl_curve random_curve(const hl_sheet *random, double dense, bool perplexity)
{
    int64_t n = hl_sheet_n_rows(random);

    return (hl_curve){ .name       = "random",
                       .n          = n,
                       .kind       = HL_CURVE_CHANCE,
                       .x          = column(random, "ratio", 0, n),
                       .y          = shown(random, "median", 0, n, dense, perplexity),
                       .low        = shown(random, "least", 0, n, dense, perplexity),
                       .high       = shown(random, "most", 0, n, dense, perplexity),
                       .inner_low  = shown(random, "quarter", 0, n, dense, perplexity),
                       .inner_high = shown(random, "three_quarters", 0, n, dense, perplexity) };
}

static bool is_whole(const hl_curve *curve)
{
    bool band = curve->low != NULL && curve->high != NULL && curve->inner_low != NULL &&
                curve->inner_high != NULL;

    return curve->x != NULL && curve->y != NULL && (curve->kind != HL_CURVE_CHANCE || band);
}

/* Ratio against the rise of the loss, or against perplexity on a logarithmic axis. */
static hl_status draw_curves(const sweep_figure *figure, const char *path, bool perplexity)
{
    const hl_sweep      *sweep    = figure->sweep;
    const hl_sheet      *points   = hl_sweep_table(sweep, "points");
    const hl_sheet      *random   = hl_sweep_table(sweep, "random");
    const hl_evaluation *test     = hl_sweep_evaluation(sweep);
    int64_t              n_ratios = hl_sheet_n_rows(random);
    int64_t              n_orders = hl_sheet_n_rows(points) / n_ratios;
    double               dense    = hl_evaluation_total(test, -1).nll / (double)test->n_scored;
    hl_curve            *curves   = calloc((size_t)n_orders + 1, sizeof *curves);
    hl_status            status   = curves != NULL ? HL_OK : HL_NO_MEMORY;
    char                 title[200], what[300], band[64];

    for (int64_t i = 0; i <= n_orders && status == HL_OK; i++) {
        curves[i] = i == 0 ? random_curve(random, dense, perplexity)
                           : order_curve(points, (i - 1) * n_ratios, n_ratios, dense, perplexity);
        status    = is_whole(&curves[i]) ? HL_OK : HL_NO_MEMORY;
    }
    snprintf(title, sizeof title, "%s: what switching heads off costs", figure->model);
    snprintf(
        what, sizeof what, "%lld tokens scored in %lld windows of %lld; dense %.4f nats a token",
        (long long)test->n_scored, (long long)test->n_windows, (long long)test->context, dense);
    snprintf(band, sizeof band, "random: all of %.0f seeds", hl_sheet_fact(random, "seeds"));
    if (status == HL_OK)
        status = hl_draw_curves(
            &(hl_curves){ .title  = title,
                          .x_name = "share of heads switched off",
                          .y_name = perplexity ? "perplexity" : "rise of the loss, nats a token",
                          .what   = what,
                          .band   = band,
                          .inner_band = "the middle half",
                          .curves     = curves,
                          .n_curves   = n_orders + 1,
                          .log_y      = perplexity },
            path, figure->how);
    for (int64_t i = 0; i <= n_orders && curves != NULL; i++)
        free_curve(&curves[i]);
    free(curves);
    return status;
}

/* --------------------------------------------------------------------- scatter */

enum { NAME_BYTES = 48 };

/* The points of all panels: heads in the order of the table's first ranker. */
typedef struct points {
    const hl_sheet   *correlation;
    const hl_sheet   *heads;
    int64_t           n_panels;
    int64_t           n_heads;
    hl_scatter_panel *panels; /* (n_panels) */
    double           *values; /* (n_panels, 2, n_heads) */
    const char      **names;  /* (n_heads) */
    char             *text;   /* (n_heads, NAME_BYTES) */
} points;

static hl_status allocate(points *p)
{
    size_t n_panels = (size_t)p->n_panels, n_heads = (size_t)p->n_heads;

    p->panels = calloc(n_panels + 1, sizeof *p->panels);
    p->values = calloc(n_panels * n_heads + 1, 2 * sizeof *p->values);
    p->names  = calloc(n_heads + 1, sizeof *p->names);
    p->text   = calloc(n_heads + 1, NAME_BYTES);
    return p->panels != NULL && p->values != NULL && p->names != NULL && p->text != NULL
               ? HL_OK
               : HL_NO_MEMORY;
}

static void name_heads(points *p)
{
    for (int64_t i = 0; i < p->n_heads; i++) {
        p->names[i] = p->text + i * NAME_BYTES;
        snprintf(p->text + i * NAME_BYTES, NAME_BYTES, "L%.0fH%.0f",
                 hl_cell_number(p->heads, i, "layer"), hl_cell_number(p->heads, i, "head"));
    }
}

/* Each ranker has its own order: heads are found by layer and number. */
static void fill_panel(points *p, int64_t panel)
{
    double *x = p->values + 2 * panel * p->n_heads;
    double *y = x + p->n_heads;

    for (int64_t i = 0; i < p->n_heads; i++) {
        for (int64_t row = panel * p->n_heads; row < (panel + 1) * p->n_heads; row++) {
            if (hl_cell_number(p->heads, row, "layer") == hl_cell_number(p->heads, i, "layer") &&
                hl_cell_number(p->heads, row, "head") == hl_cell_number(p->heads, i, "head")) {
                x[i] = hl_cell_number(p->heads, row, "score");
                y[i] = hl_cell_number(p->heads, row, "rise");
            }
        }
    }
    p->panels[panel] =
        (hl_scatter_panel){ .name     = hl_sheet_text(p->correlation, panel, 0),
                            .x        = x,
                            .y        = y,
                            .rho      = hl_cell_number(p->correlation, panel, "rho"),
                            .rho_low  = hl_cell_number(p->correlation, panel, "low"),
                            .rho_high = hl_cell_number(p->correlation, panel, "high") };
}

/* Each ranker's score of every head against what that head alone costs. */
static hl_status draw_scatter(const sweep_figure *figure, const char *path)
{
    points p = { .correlation = hl_sweep_table(figure->sweep, "correlation"),
                 .heads       = hl_sweep_table(figure->sweep, "heads") };
    char   title[200];

    p.n_panels       = hl_sheet_n_rows(p.correlation);
    p.n_heads        = p.n_panels > 0 ? hl_sheet_n_rows(p.heads) / p.n_panels : 0;
    hl_status status = allocate(&p);
    if (status == HL_OK) {
        name_heads(&p);
        for (int64_t i = 0; i < p.n_panels; i++)
            fill_panel(&p, i);
        snprintf(title, sizeof title, "%s: does a score tell what a head is worth?", figure->model);
        status = hl_draw_scatter(&(hl_scatter){ .title    = title,
                                                .x_name   = "score on the ranking text",
                                                .y_name   = "rise of the loss without the head",
                                                .what     = "Spearman's rho with 95% interval",
                                                .n_points = p.n_heads,
                                                .names    = p.names,
                                                .panels   = p.panels,
                                                .n_panels = p.n_panels },
                                 path, figure->how);
    }
    free(p.panels);
    free(p.values);
    free(p.names);
    free(p.text);
    return status;
}

/* ------------------------------------------------------------------------ work */

static int fail(hl_status status)
{
    hl_complain("sweep", "%s", hl_explain(status));
    return hl_exit_for(status);
}

static hl_status open_corpus(hl_corpus **out, const sweep_work *work, const hl_option_list *texts)
{
    hl_corpus_options options = { .inputs = texts->items, .n_inputs = (size_t)texts->count };
    hl_status         status  = hl_corpus_open(out, work->model, work->tokenizer, &options);

    if (status == HL_OK && !work->request->common.quiet)
        hl_corpus_options_report("sweep", *out);
    return status;
}

static hl_status name_state(sweep_work *work)
{
    const sweep_request *request = work->request;
    const char          *base = request->state != NULL ? request->state : request->drawing.output;

    if (base == NULL)
        return HL_OK;
    size_t room      = strlen(base) + 8;
    work->state_path = malloc(room);
    if (work->state_path == NULL)
        return HL_NO_MEMORY;
    snprintf(work->state_path, room, "%s%s", base, request->state != NULL ? "" : ".part");
    return HL_OK;
}

static hl_status open_work(sweep_work *work)
{
    const sweep_request *request = work->request;
    const char          *path    = request->tokenizer_path;
    hl_status            status  = hl_model_open(&work->model, request->arguments.items[0]);

    if (status == HL_OK && path == NULL)
        path = hl_model_get_info(work->model)->tokenizer_path;
    if (status == HL_OK)
        status = hl_tokenizer_open(&work->tokenizer, path);
    if (status == HL_OK)
        status = open_corpus(&work->rank_corpus, work, &request->rank_texts);
    if (status == HL_OK)
        status = open_corpus(&work->test_corpus, work, &request->test_texts);
    return status == HL_OK ? name_state(work) : status;
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
    options.progress   = show_progress;
    options.context    = work;
    hl_status status   = hl_sweep_run(&work->sweep, work->model, work->tokenizer, work->rank_corpus,
                                      work->test_corpus, &options);
    hl_progress_end(&work->progress);
    return status;
}

static hl_status draw(const sweep_work *work)
{
    const sweep_request *request = work->request;
    hl_draw_options      how     = hl_draw_options_of(&request->drawing);
    sweep_figure         figure  = { work->sweep, request->arguments.items[0], &how };
    hl_status            status  = HL_OK;

    if (request->drawing.output != NULL)
        status = draw_curves(&figure, request->drawing.output, request->perplexity);
    if (status == HL_OK && request->scatter != NULL)
        status = draw_scatter(&figure, request->scatter);
    return status;
}

static int report(const sweep_work *work)
{
    const sweep_request *request = work->request;

    if (request->table != NULL)
        return print_table(work->sweep, request->table,
                           request->csv           ? HL_SHEET_CSV
                           : request->common.json ? HL_SHEET_JSON
                                                  : HL_SHEET_TEXT);
    if (request->common.json)
        return print_json(work->sweep, request->arguments.items[0]);
    return request->common.quiet ? HL_EXIT_OK
                                 : print_sweep(work->sweep, request->arguments.items[0]);
}

/* The state goes when all that was asked for is there, and not before. */
static int sweep(sweep_work *work)
{
    const sweep_request *request = work->request;
    hl_status            status  = open_work(work);

    if (status == HL_OK && request->last_word != NULL) {
        int code = hl_last_words_read(&work->words, request->last_word, work->tokenizer,
                                      request->options.around, request->n_last_words, "sweep");
        if (code != HL_EXIT_OK)
            return code;
    }
    if (status == HL_OK)
        status = run(work);
    if (status == HL_CANCELLED && hl_stop_asked()) {
        hl_complain("sweep", "%s%s%s", hl_error_message(),
                    work->state_path != NULL ? "; --resume goes on from " : "",
                    work->state_path != NULL ? work->state_path : "");
        return HL_EXIT_STOPPED;
    }
    if (status == HL_OK)
        status = draw(work);
    if (status != HL_OK)
        return fail(status);
    int code = report(work);
    if (code == HL_EXIT_OK && work->state_path != NULL)
        unlink(work->state_path);
    return code;
}

int hl_command_sweep(int argc, char **argv)
{
    sweep_request request = { .drawing = HL_DRAW_ARGUMENTS };
    sweep_work    work    = { .request = &request };
    int           code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    hl_stop_watch();
    code = sweep(&work);
    close_work(&work);
    return code;
}
