/* cmd_damage.c - headlight damage: which heads of a changed model changed its predictions. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "progress.h"
#include "shared_options.h"
#include "values.h"

typedef struct damage_request {
    hl_common         common;
    hl_arguments      arguments; /* the reference model, the model */
    hl_option_list    texts;
    hl_option_list    fails;
    const char       *table;
    const char       *tokenizer_path;
    int64_t           n_shown;
    hl_gate_arguments gates;
    hl_window_options windows;
} damage_request;

typedef struct damage_work {
    const damage_request *request;
    hl_model             *models[2];
    hl_tokenizer         *tokenizer;
    hl_corpus            *corpus;
    hl_damage            *found;
} damage_work;

static void close_work(damage_work *work)
{
    hl_damage_free(work->found);
    hl_corpus_close(work->corpus);
    hl_tokenizer_close(work->tokenizer);
    hl_model_close(work->models[0]);
    hl_model_close(work->models[1]);
}

/* Reads "kl>0.01", "top1<0.95" or "rise>0.1"; false if it is none. */
static bool breaks_bound(bool *broken, const char *text, const hl_damage *found)
{
    static const char *const names[] = { "kl", "top1", "rise" };
    size_t                   n       = strcspn(text, "<>");

    for (int i = 0; i < 3 && text[n] != '\0'; i++) {
        char  *end   = NULL;
        double bound = strtod(text + n + 1, &end);

        if (strlen(names[i]) != n || strncmp(names[i], text, n) != 0 || end == text + n + 1 ||
            *end != '\0')
            continue;
        if (found == NULL)
            return true;
        double value = i == 0   ? found->kl
                       : i == 1 ? found->top1
                                : found->loss_model - found->loss_reference;
        *broken      = text[n] == '>' ? value > bound : value < bound;
        return true;
    }
    return false;
}

static int parse_request(damage_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_LIST("text", 0, &request->texts, "PATH", "text to compare the models on (repeatable)"),
        HL_WINDOW_OPTIONS("--text", "8 windows", &request->windows),
        HL_CHOICE("table", 0, &request->table, "damage|heads|layers|tops", "print only this table"),
        HL_INT("count", 'n', &request->n_shown, "N", "heads to print (10; all with --table)", 1,
               1 << 20),
        HL_GATE_OPTIONS(&request->gates),
        HL_TOKENIZER_OPTION(&request->tokenizer_path),
        HL_CSV_OPTION(&request->common, "print the table as CSV (heads)"),
        HL_LIST("fail-on", 0, &request->fails, "CONDITION",
                "exit with 1 if kl>X, top1<X or rise>X (repeatable)"),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "damage",
        .arguments = "REFERENCE MODEL --text PATH",
        .text =
            "Compares a changed MODEL (quantized, fine-tuned, with heads disabled by --off) with\n"
            "its REFERENCE on a text: KL divergence, top-1 agreement and loss; and finds which\n"
            "heads are responsible.  MODEL is run again with the output of one head replaced by\n"
            "that of REFERENCE; what the KL falls by is what this head explains.  The same for\n"
            "all heads of a layer, its MLP, and the 1, 2, 4, ... heads that explain most.\n"
            "\n"
            "It costs about half a run of the text for each head.",
        .options = options,
    };
    bool unused;

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->arguments.count != 2)
        return hl_options_refuse(&usage, "give REFERENCE and MODEL; got %d",
                                 request->arguments.count);
    if (request->texts.count == 0)
        return hl_options_refuse(&usage, "no --text given");
    for (int i = 0; i < request->fails.count; i++) {
        if (!breaks_bound(&unused, request->fails.items[i], NULL))
            return hl_options_refuse(&usage, "--fail-on: '%s' is not kl>X, top1<X or rise>X",
                                     request->fails.items[i]);
    }
    return HL_EXIT_OK;
}

static hl_status open_work(damage_work *work)
{
    const damage_request *request = work->request;
    bool                  quiet   = request->common.quiet || request->common.json;

    for (int i = 0; i < 2; i++)
        HL_NEED(hl_model_open(&work->models[i], request->arguments.items[i]));
    HL_NEED(hl_gate_options_apply(work->models[1], &request->gates, "damage", quiet));
    HL_NEED(hl_tokenizer_open(&work->tokenizer,
                              request->tokenizer_path != NULL
                                  ? request->tokenizer_path
                                  : hl_model_get_info(work->models[0])->tokenizer_path));
    return hl_corpus_open(&work->corpus, work->models[0], work->tokenizer,
                          &(hl_corpus_options){ .inputs = (const char *const *)request->texts.items,
                                                .n_inputs = (size_t)request->texts.count });
}

static const char *const tables[] = { "damage", "heads", "layers", "tops" };

static hl_status print_table(const damage_work *work, const char *name, hl_sheet_format format)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

    HL_NEED(hl_damage_sheet(&table, work->found, name));
    if (strcmp(name, "heads") == 0)
        hl_sheet_shorten(table, work->request->n_shown > 0 ? work->request->n_shown : 10);
    return hl_print_sheet(table, format);
}

static hl_status print_json(const damage_work *work)
{
    json_t *root = json_object();

    for (int i = 0; i < 2; i++)
        json_object_set_new(root, i == 0 ? "reference" : "model",
                            hl_value_name(work->request->arguments.items[i]));
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

        HL_NEED(hl_damage_sheet(&table, work->found, tables[i]));
        HL_NEED(hl_set_sheet(root, table));
    }
    (void)hl_print_json(root, JSON_INDENT(1));
    return HL_OK;
}

static hl_status print_text(const damage_work *work)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        HL_NEED(print_table(work, tables[i], HL_SHEET_TEXT));
        printf("\n");
    }
    printf("explained: fall of the KL when the head's output is that of the reference model.\n"
           "output_change: how much the head's output changed, as a share of its size.  Parts need "
           "not add up.\n");
    return HL_OK;
}

static hl_status print_all(const damage_work *work)
{
    const damage_request *request = work->request;

    if (request->common.csv || request->table != NULL)
        return print_table(work, request->table != NULL ? request->table : "heads",
                           hl_sheet_format_of(&request->common));
    if (request->common.json)
        return print_json(work);
    return request->common.quiet ? HL_OK : print_text(work);
}

int hl_command_damage(int argc, char **argv)
{
    damage_request                  request = { 0 };
    HL_KEPT(close_work) damage_work work    = { .request = &request };
    hl_progress_bar                 bar;
    int                             code = HL_EXIT_OK;

    HL_PASS(parse_request(&request, argc, argv));
    HL_CALL("damage", open_work(&work));
    hl_progress_start(&bar, stderr, "patching", request.common.quiet || request.common.json);
    hl_status status = hl_damage_find(&work.found, work.models[0], work.models[1], work.corpus,
                                      &(hl_damage_options){ .windows   = request.windows,
                                                            .n_threads = request.common.n_threads,
                                                            .progress  = hl_progress_show,
                                                            .context   = &bar });
    hl_progress_end(&bar);
    HL_CALL("damage", status);
    HL_CALL("damage", print_all(&work));
    for (int i = 0; i < request.fails.count; i++) {
        bool broken = false;

        breaks_bound(&broken, request.fails.items[i], work.found);
        if (broken) {
            hl_complain("damage", "--fail-on %s: kl %.6f, top1 %.4f, rise %.4f",
                        request.fails.items[i], work.found->kl, work.found->top1,
                        work.found->loss_model - work.found->loss_reference);
            code = HL_EXIT_NO;
        }
    }
    return code;
}
