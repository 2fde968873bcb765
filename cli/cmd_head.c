/* cmd_head.c - headlight head: all that is known of one head.
 *
 *     type, with its rule and how sure it is
 *     numbers with intervals, and the place of each among all heads
 *     entropy by position, similar heads
 *     with a model: where in a text it is most active, and what the text costs without it */
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "prompt.h"
#include "screen.h"
#include "shared_options.h"
#include "values.h"

enum {
    MOST_SEEN   = 512,  /* tokens in which examples are looked for */
    MOST_SCORED = 4096, /* tokens on which the loss is measured */
    CONTEXT     = 512,  /* of these */
    AROUND      = 6,    /* tokens of an example beside the two that it is about */
};

typedef struct head_command {
    hl_common        common;
    const char      *path;
    const char      *name; /* "L7H3" */
    hl_head          head;
    hl_prompt_source source;
    bool             no_loss;
    char             bundled[PATH_MAX];
    char             text_path[PATH_MAX];
} head_command;

typedef struct head_work {
    hl_profile      *profile;
    hl_head_card    *card;
    hl_opened_prompt prompt;
    hl_prompt_maps  *maps;
    hl_corpus       *corpus;
    hl_evaluation   *cost; /* setting 0: without the head; NULL: not measured */
} head_work;

/* ---------------------------------------------------------------- the command line */

static int parse(head_command *c, int argc, char **argv)
{
    hl_arguments    rest;
    char            plain[24];
    const hl_option options[] = {
        HL_TEXT("model", 'm', &c->source.model, "MODEL",
                "the model: adds examples, and the loss without this head"),
        HL_TEXT("prompt", 'p', &c->source.text, "TEXT", "text for the examples"),
        HL_TEXT("text", 't', &c->source.file, "FILE",
                "file of a text for examples and loss (a bundled book); - is standard input"),
        HL_FLAG("no-loss", 0, &c->no_loss, "do not measure the loss, which runs the text twice"),
        HL_TOKENIZER_OPTION(&c->source.tokenizer),
        { 0 },
    };
    const hl_usage usage = {
        "head", "PROFILE L7H3",
        "Prints all that is known of one head: its type and how sure that is, its numbers and\n"
        "their places among all heads, its entropy by position, and the most similar heads.\n"
        "With --model, also where in a text it is most active, and what disabling it adds to\n"
        "the loss on that text.",
        options
    };

    HL_PASS(hl_options_parse(&rest, &c->common, &usage, argc, argv));
    if (rest.count != 2)
        return hl_options_refuse(&usage,
                                 "give a PROFILE and a head such as L7H3; got %d argument%s",
                                 rest.count, rest.count == 1 ? "" : "s");
    c->path = rest.items[0];
    c->name = rest.items[1];
    snprintf(plain, sizeof plain, "%.*s", (int)sizeof plain - 1, c->name);
    if (plain[0] != '\0' && strchr("EXVA", plain[0]) != NULL) /* sets of an encoder-decoder */
        plain[0] = 'L';
    if (!hl_head_read(&c->head, plain, strlen(plain)) || c->head.head < 0)
        return hl_options_refuse(&usage, "'%.20s' is not a head; write L7H3 for head 3 of layer 7",
                                 c->name);
    if (c->source.model == NULL && (c->source.text != NULL || c->source.file != NULL))
        return hl_options_refuse(&usage, "--prompt and --text need --model");
    if (c->source.text != NULL && c->source.file != NULL)
        return hl_options_refuse(&usage, "--prompt and --text cannot be combined");
    c->source.command = "head";
    c->source.quiet   = c->common.quiet;
    c->source.device  = c->common.device;
    return HL_EXIT_OK;
}

/* Without a text of the user's, takes a bundled one. */
static int choose_text(head_command *c)
{
    if (c->source.text != NULL || c->source.file != NULL)
        return HL_EXIT_OK;
    const char *folder = hl_bundled_models(c->bundled);
    if (folder == NULL ||
        snprintf(c->text_path, sizeof c->text_path, "%s/text/alice.txt", folder) >= PATH_MAX)
        return hl_give_up(HL_EXIT_INPUT, "head",
                          "the bundled text was not found beside the program; give --text FILE");
    c->source.file = c->text_path;
    return HL_EXIT_OK;
}

/* ----------------------------------------------------------------------------- work */

/* Finds the rows of the beginning of the text in which the head is most active. */
static hl_status find_examples(head_work *work, const head_command *c)
{
    hl_prompt              prompt  = hl_opened_prompt_view(&work->prompt);
    int64_t                n_ctx   = hl_model_get_info(work->prompt.model)->n_ctx;
    hl_prompt_maps_options options = { .heads      = &c->head,
                                       .n_heads    = 1,
                                       .most_cells = 1, /* no map but this head's */
                                       .n_threads  = c->common.n_threads };

    prompt.n_tokens = prompt.n_tokens < MOST_SEEN ? prompt.n_tokens : MOST_SEEN;
    if (n_ctx > 0 && prompt.n_tokens > n_ctx)
        prompt.n_tokens = n_ctx;
    return hl_prompt_maps_new(&work->maps, work->prompt.model, &prompt, &options);
}

/* Measures the loss with all heads and without this one.  Encoders predict nothing: they have none. */
static hl_status measure_loss(head_work *work, const head_command *c)
{
    const hl_model     *model   = work->prompt.model;
    hl_head             head    = c->head;
    hl_head_list        one     = { &head, 1 };
    hl_gates           *gates   = NULL;
    hl_evaluate_options options = { .windows   = { .n_ctx = CONTEXT, .max_tokens = MOST_SCORED },
                                    .n_threads = c->common.n_threads };
    int64_t             n_ctx   = hl_model_get_info(model)->n_ctx;

    if (c->no_loss || hl_model_get_info(model)->is_encoder || work->prompt.n_tokens < 2)
        return HL_OK;
    if (n_ctx > 0 && n_ctx < CONTEXT)
        options.windows.n_ctx = n_ctx;
    HL_NEED(hl_corpus_open_bytes(&work->corpus, model, work->prompt.tokenizer, work->prompt.text,
                                 work->prompt.n_bytes, "the text", &(hl_corpus_options){ 0 }));
    HL_NEED(hl_gates_new(&gates, model));
    hl_gates_set(gates, &one, 0.0f);
    hl_status status = hl_evaluate(&work->cost, model, work->corpus, gates->values, 1, &options);
    hl_gates_free(gates);
    return status;
}

/* The profile may be of another model: a head of the same name would be another head. */
static hl_status check_model(const head_work *work)
{
    const hl_model_info *info = hl_model_get_info(work->prompt.model);
    char                 wanted[24];
    uint64_t             hash  = 0;
    const char          *model = hl_profile_setting(work->profile, "model");

    HL_NEED(hl_model_hash(&hash, work->prompt.model, 0));
    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)hash);
    if (model != NULL && strcmp(model, wanted) != 0)
        hl_complain("head", "the model is not that of the profile (their hashes differ)");
    return info->n_layers > work->card->layer ? HL_OK : HL_BAD_INPUT;
}

/* ------------------------------------------------------------------------- the screen */

static void print_type(const head_work *work)
{
    const hl_head_card *card        = work->card;
    hl_colors           colors      = hl_terminal_colors(stdout);
    bool                is_previous = strcmp(card->type, "previous") == 0;
    char                name[HL_HEAD_NAME_BYTES];

    printf("%s%s%s  %s%s head%s\n", colors.bold,
           hl_profile_head_name(name, work->profile, card->layer, card->head), colors.plain,
           card->type, is_previous ? "-token" : "",
           card->is_uncertain ? " (uncertain: other rows of the text could give another type)"
                              : "");
    if (isnan(card->value))
        printf("%s\n\n", card->rule);
    else
        printf("%s: %.3f, threshold %.2f\n\n", card->rule, card->value, card->threshold);
}

static void print_numbers(const hl_sheet *numbers)
{
    printf("  %-16s %8s  %-16s %s\n", "number", "value", "95% interval", "rank from the lowest");
    for (int64_t row = 0; row < hl_sheet_n_rows(numbers); row++) {
        double low        = hl_cell_number(numbers, row, "low"),
               high       = hl_cell_number(numbers, row, "high");
        char interval[40] = "";

        if (!isnan(low))
            snprintf(interval, sizeof interval, "%.3f to %.3f", low, high);
        printf("  %-16s %8.3f  %-16s %.0f of %.0f\n",
               hl_sheet_text(numbers, row, hl_sheet_find(numbers, "number")),
               hl_cell_number(numbers, row, "value"), interval,
               hl_cell_number(numbers, row, "rank"), hl_cell_number(numbers, row, "heads"));
    }
    printf("\n");
}

static void print_positions(const hl_sheet *positions, const char *context)
{
    static const char *const bars[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    int64_t                  n      = hl_sheet_n_rows(positions);
    double                   most   = 0.0;

    if (n == 0)
        return;
    double last = hl_cell_number(positions, n - 1, "to"); /* the bucket's, whatever was measured */
    if (context != NULL)
        last = fmin(last, strtod(context, NULL) - 1.0);
    for (int64_t row = 0; row < n; row++)
        most = fmax(most, hl_cell_number(positions, row, "entropy"));
    printf("entropy by position  ");
    for (int64_t row = 0; row < n; row++)
        printf("%s", bars[(int)fmin(7.0, floor(8.0 * hl_cell_number(positions, row, "entropy") /
                                               (most > 0.0 ? most : 1.0)))]);
    printf("  0 to %.2f nats; positions %.0f to %.0f\n", most, hl_cell_number(positions, 0, "from"),
           last);
}

static void print_similar(const hl_sheet *similar, const hl_profile *profile)
{
    printf("similar heads        ");
    for (int64_t row = 0; row < hl_sheet_n_rows(similar); row++) {
        char name[HL_HEAD_NAME_BYTES];

        printf("%s%s %.2f %s", row > 0 ? " · " : "",
               hl_profile_head_name(name, profile, (int64_t)hl_cell_number(similar, row, "layer"),
                                    (int64_t)hl_cell_number(similar, row, "head")),
               hl_cell_number(similar, row, "similarity"),
               hl_sheet_text(similar, row, hl_sheet_find(similar, "type")));
    }
    printf("%s\n", hl_sheet_n_rows(similar) > 0 ? "" : "not measured");
}

static const hl_active_row *active_rows(const head_work *work)
{
    const hl_prompt_maps *maps = work->maps;

    return maps->active + (work->card->layer * maps->n_heads + work->card->head) * HL_ACTIVE_ROWS;
}

/* Writes the tokens around one token, which is marked: "...of the >sail< and...". */
static void add_around(char *out, size_t room, const hl_prompt_maps *maps, int64_t row, int64_t key,
                       int64_t begin, int64_t end)
{
    size_t used = strlen(out);

    for (int64_t i = begin < 0 ? 0 : begin; i < end && used + 8 < room; i++) {
        const char *format = i == row ? ">%s<" : i == key ? "[%s]" : "%s";
        int         n      = snprintf(out + used, room - used, format, maps->tokens[i].text);
        used += n > 0 && (size_t)n < room - used ? (size_t)n : 0;
    }
    out[used] = '\0';
}

/* Prints an example: from the token that is looked at to the one that looks, or both apart. */
static void example_text(char *out, size_t room, const hl_prompt_maps *maps, hl_active_row of)
{
    bool near = of.row - of.key <= 3 * AROUND && of.row >= of.key;

    out[0] = '\0';
    if (near) {
        add_around(out, room, maps, of.row, of.key, of.key - AROUND / 2, of.row + 1);
        return;
    }
    add_around(out, room, maps, of.row, of.key, of.key - AROUND / 2, of.key + 2);
    snprintf(out + strlen(out), room - strlen(out), " … ");
    add_around(out, room, maps, of.row, of.key, of.row - AROUND / 2, of.row + 1);
}

static void print_examples(const head_work *work)
{
    const hl_active_row *rows = active_rows(work);

    printf("\nmost active, in %lld tokens: the token in >< puts this much on the one in []\n",
           (long long)work->maps->n_tokens);
    for (int i = 0; i < HL_ACTIVE_ROWS; i++) {
        char text[1024];

        if (rows[i].row < 0)
            continue;
        example_text(text, sizeof text, work->maps, rows[i]);
        printf("  %.3f  %s\n", (double)rows[i].attention, hl_shown(text));
    }
}

static void print_cost(const head_work *work)
{
    const hl_evaluation *e    = work->cost;
    hl_interval          rise = hl_evaluation_rise(e, 0);
    double               n    = (double)e->n_scored;
    char                 reason[128];

    printf("\nloss without it      %+.4f nats per token",
           (hl_evaluation_total(e, 0).nll - hl_evaluation_total(e, -1).nll) / n);
    hl_interval_reason(reason, sizeof reason, &rise);
    if (reason[0] == '\0')
        printf(" (95%%: %+.4f to %+.4f)", rise.low, rise.high);
    printf(", on %s tokens in %lld windows%s%s\n", hl_grouped(e->n_scored), (long long)e->n_windows,
           reason[0] != '\0' ? "; " : "", reason);
}

static void print_screen(const head_work *work)
{
    print_type(work);
    print_numbers(work->card->numbers);
    print_positions(work->card->positions, hl_profile_setting(work->profile, "context"));
    print_similar(work->card->similar, work->profile);
    if (work->maps != NULL)
        print_examples(work);
    if (work->cost != NULL)
        print_cost(work);
}

/* ------------------------------------------------------------------------------- JSON */

static json_t *examples_json(const head_work *work)
{
    const hl_active_row *rows = active_rows(work);
    json_t              *list = json_array();

    for (int i = 0; i < HL_ACTIVE_ROWS; i++) {
        char text[1024];

        if (rows[i].row < 0)
            continue;
        example_text(text, sizeof text, work->maps, rows[i]);
        json_array_append_new(
            list,
            HL_OBJECT(HL_IS("row", (long long)rows[i].row), HL_IS("key", (long long)rows[i].key),
                      HL_IS("attention", (double)rows[i].attention),
                      HL_IS("token", (const char *)work->maps->tokens[rows[i].row].text),
                      HL_IS("looks_at", (const char *)work->maps->tokens[rows[i].key].text),
                      HL_IS("text", (const char *)text)));
    }
    return list;
}

static json_t *cost_json(const hl_evaluation *e)
{
    hl_interval rise = hl_evaluation_rise(e, 0);
    hl_scores   all = hl_evaluation_total(e, -1), without = hl_evaluation_total(e, 0);
    double      n = (double)e->n_scored;

    return HL_OBJECT(HL_IS("tokens", (long long)e->n_scored),
                     HL_IS("windows", (long long)e->n_windows), HL_IS("nll", all.nll / n),
                     HL_IS("nll_without", without.nll / n),
                     HL_IS("rise", (without.nll - all.nll) / n), HL_IS("kl", without.kl / n),
                     HL_IS("interval", hl_value_interval(&rise)));
}

static hl_status print_json(const head_work *work, const head_command *c)
{
    const hl_head_card          *card   = work->card;
    HL_HELD(json_decref) json_t *tables = json_object();
    char                         name[HL_HEAD_NAME_BYTES];

    HL_NEED(hl_set_sheet(tables, card->numbers));
    HL_NEED(hl_set_sheet(tables, card->positions));
    HL_NEED(hl_set_sheet(tables, card->similar));
    hl_print_json(
        HL_OBJECT(HL_IS("profile", hl_value_name(c->path)),
                  HL_IS("head", hl_profile_head_name(name, work->profile, card->layer, card->head)),
                  HL_IS("type", card->type), HL_IS("rule", card->rule), HL_IS("value", card->value),
                  HL_IS("threshold", card->threshold), HL_IS("uncertain", card->is_uncertain),
                  HL_IS("tables", json_incref(tables)),
                  HL_IS("examples", work->maps != NULL ? examples_json(work) : NULL),
                  HL_IS("loss", work->cost != NULL ? cost_json(work->cost) : NULL)),
        JSON_INDENT(1) | JSON_REAL_PRECISION(15));
    return HL_OK;
}

/* ------------------------------------------------------------------------ the command */

/* Finds E3H1 and X3H1, which only some profiles have, and L3H1 in such a profile. */
static hl_status find_head(head_command *c, const hl_profile *profile)
{
    const char *layers = hl_profile_setting(profile, "layers");

    if (layers == NULL && (c->name[0] == 'L' || c->name[0] == 'l'))
        return HL_OK; /* the card says what the profile has */
    if (hl_profile_head_find(&c->head, profile, c->name, strlen(c->name)))
        return HL_OK;
    hl_complain("head", "%s: %s has no such head; its layers are %s", c->name, c->path,
                layers != NULL ? layers : "L0, L1, ...");
    return HL_BAD_ARGUMENT;
}

static int make(head_work *work, head_command *c)
{
    HL_CALL("head", hl_profile_load(&work->profile, c->path));
    HL_CALL("head", find_head(c, work->profile));
    HL_CALL("head", hl_head_card_new(&work->card, work->profile, c->head.layer, c->head.head));
    if (c->source.model != NULL) {
        HL_PASS(choose_text(c));
        HL_PASS(hl_opened_prompt_open(&work->prompt, &c->source));
        HL_CALL("head", check_model(work));
        HL_CALL("head", find_examples(work, c));
        HL_CALL("head", measure_loss(work, c));
    }
    if (c->common.json)
        return hl_finish("head", print_json(work, c));
    print_screen(work);
    return HL_EXIT_OK;
}

int hl_command_head(int argc, char **argv)
{
    head_command c    = { 0 };
    head_work    work = { 0 };

    HL_PASS(parse(&c, argc, argv));
    int code = make(&work, &c);
    hl_profile_free(work.profile);
    hl_head_card_free(work.card);
    hl_prompt_maps_free(work.maps);
    hl_evaluation_free(work.cost);
    hl_corpus_close(work.corpus);
    hl_opened_prompt_close(&work.prompt);
    return code;
}
