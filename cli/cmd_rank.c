/* cmd_rank.c - headlight rank: lists heads in pruning order. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "evidence.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "shared_options.h"
#include "values.h"

typedef struct rank_request {
    hl_common         common;
    hl_arguments      arguments; /* the profile, if one is given */
    const char       *by;
    const char       *order;
    const char       *model_path;
    hl_option_list    texts;
    hl_window_options windows;
    int64_t           count;
    bool              groups;
    bool              reselect;
    hl_ranker         ranker;
} rank_request;

/* The state while ranking. */
typedef struct rank_work {
    const rank_request *request;
    hl_model           *model;
    hl_evidence         evidence;
    hl_ranker           ranker; /* the requested ranker, with AUTO resolved if texts are run */
    hl_ranking         *ranking;
} rank_work;

/* -------------------------------------------------------------------- arguments */

static int list_rankers(void)
{
    const char *against = NULL;

    for (size_t i = 0; hl_ranker_name(i) != NULL; i++) {
        bool doubted = hl_ranker_verdict(i) != NULL;

        printf("%-18s %s; %s first%s\n", hl_ranker_name(i), hl_ranker_summary(i),
               hl_ranker_takes_highest((hl_ranker)i) ? "highest" : "lowest", doubted ? " *" : "");
        against = doubted ? hl_ranker_verdict(i) : against;
    }
    if (against != NULL)
        printf("\n* %s\n", against);
    return HL_EXIT_DONE;
}

static int check_request(rank_request *request, const hl_usage *usage)
{
    if (strcmp(request->by, "list") == 0)
        return list_rankers();
    HL_PASS(hl_ranker_option(&request->ranker, usage, "by", request->by));
    if (request->ranker == HL_RANKER_ABLATION &&
        (request->model_path == NULL || request->texts.count == 0))
        return hl_options_refuse(
            usage, "--by ablation needs --model and --text, to disable each head in turn");
    if (request->arguments.count > 1)
        return hl_options_refuse(usage, "give one PROFILE; got %d", request->arguments.count);
    if (request->arguments.count == 0 && request->model_path == NULL)
        return hl_options_refuse(usage, "give a PROFILE, or --model and --text");
    if (request->texts.count > 0 && request->model_path == NULL)
        return hl_options_refuse(usage, "--text needs --model");
    if (request->reselect && (request->model_path == NULL || request->texts.count == 0 ||
                              request->arguments.count > 0 || request->order != NULL))
        return hl_options_refuse(usage,
                                 "--reselect runs --model on --text again and again: it needs "
                                 "both, and neither PROFILE nor --order");
    if (request->reselect && request->ranker != HL_RANKER_AUTO &&
        !hl_ranker_can_reselect(request->ranker))
        return hl_options_refuse(
            usage, "--by %s looks at no text, so it has nothing to look at again", request->by);
    if (request->groups && request->model_path == NULL)
        return hl_options_refuse(usage, "--groups needs --model");
    return HL_EXIT_OK;
}

static int parse_request(rank_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_TEXT("by", 'b', &request->by, "NAME", "ranker (auto); list prints all"),
        HL_CHOICE("order", 0, &request->order, "highest|lowest",
                  "which scores come first (as the ranker has it)"),
        HL_INT("count", 'n', &request->count, "N", "print only the first N heads", 1, INT64_MAX),
        HL_FLAG("groups", 0, &request->groups,
                "rank the query heads of a KV head together, by their mean"),
        HL_FLAG("reselect", 0, &request->reselect,
                "rank again after each head, up to --count (one run of the text each)"),
        HL_CSV_OPTION(&request->common, "print CSV instead of text"),
        HL_TEXT("model", 'm', &request->model_path, "PATH",
                "model, for weights and gradients or instead of PROFILE"),
        HL_LIST("text", 0, &request->texts, "PATH", "text to run --model on (repeatable)"),
        HL_WINDOW_OPTIONS("--text", "16384", &request->windows),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "rank",
        .arguments = "[PROFILE]",
        .text =
            "Lists heads in pruning order: the order in which they would be removed.  Most\n"
            "rankers need a PROFILE; 'weight' needs only --model.  'gradient',\n"
            "'entropy-gradient', 'hies' and 'gnorm' need --model and --text for a backward pass,\n"
            "'fluctuation' and 'wanda' need them for the outputs of heads, and 'ablation' to\n"
            "disable each head in turn.  Without PROFILE, --model is measured on --text.\n"
            "\n"
            "--reselect disables the first head, ranks the others again, and so on.  Heads are\n"
            "listed in the order in which they were disabled, each with its score at that time.\n"
            "\n"
            "'auto' is gradient if --text is given, else (and for encoders) output-norm.  These\n"
            "two cost less than a random order in our sweeps; highest entropy first cost more\n"
            "(doc/sweep.md).\n"
            "\n"
            "A ranking is a prediction.  'headlight sweep' measures how good it is.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    return check_request(request, &usage);
}

/* ------------------------------------------------------------------------- work */

static hl_status take_evidence(rank_work *work)
{
    const rank_request *request = work->request;
    bool                quiet   = request->common.quiet || request->common.json;
    hl_evidence_request wanted  = { .ranker    = work->ranker,
                                    .texts     = request->texts.items,
                                    .n_texts   = (size_t)request->texts.count,
                                    .windows   = request->windows,
                                    .n_threads = request->common.n_threads,
                                    .quiet     = quiet };
    hl_status           status  = hl_evidence_from_texts(&work->evidence, work->model, &wanted);
    const hl_gradients *slopes  = work->evidence.gradients;

    if (status == HL_OK && slopes != NULL && !quiet && !request->common.csv)
        hl_complain("rank", "gradient: mean |dL/dg| over %lld windows; loss %.4f nats per token",
                    (long long)slopes->n_windows, slopes->nll);
    return status;
}

/* Ranks the model again and again, as long as --count says. */
static hl_status reselect(rank_work *work)
{
    const rank_request *request = work->request;
    hl_evidence_request wanted  = { .ranker    = work->ranker,
                                    .texts     = request->texts.items,
                                    .n_texts   = (size_t)request->texts.count,
                                    .windows   = request->windows,
                                    .n_threads = request->common.n_threads,
                                    .quiet     = request->common.quiet || request->common.json };
    hl_choice           choice  = { .ratio        = request->count == 0 ? 1.0 : 0.0,
                                    .count        = request->count,
                                    .empty_layers = true };

    return hl_reselect_from_texts(
        &work->ranking, work->model, &wanted,
        &(hl_reselect_options){ .choice = choice,
                                .groups = request->groups,
                                .rank   = { .seed = request->common.seed } });
}

static hl_status open_work(rank_work *work)
{
    const rank_request *request = work->request;

    if (request->model_path != NULL)
        HL_NEED(hl_model_open(&work->model, request->model_path));
    if (request->arguments.count > 0)
        HL_NEED(hl_profile_load(&work->evidence.profile, request->arguments.items[0]));
    work->ranker = request->ranker;
    if (request->texts.count == 0)
        return HL_OK;
    if (work->ranker == HL_RANKER_AUTO)
        work->ranker = hl_ranker_default(work->model, true, 0.0);
    return request->reselect ? reselect(work) : take_evidence(work);
}

static hl_status rank(rank_work *work)
{
    const rank_request *request = work->request;
    hl_rank_options     options = { .seed = request->common.seed, .places = true };

    if (work->ranking != NULL) /* already, by reselect */
        return HL_OK;
    if (request->order != NULL)
        options.order = strcmp(request->order, "highest") == 0 ? HL_ORDER_HIGHEST : HL_ORDER_LOWEST;
    HL_NEED(hl_evidence_rank(&work->ranking, &work->evidence, work->ranker, work->model, &options));
    return request->groups ? hl_ranking_group(work->ranking, work->model) : HL_OK;
}

static hl_status print_ranking(const rank_work *work)
{
    const rank_request              *request = work->request;
    HL_HELD(hl_sheet_free) hl_sheet *table   = NULL;

    if (request->common.quiet && !request->common.csv && !request->common.json)
        return HL_OK;
    HL_NEED(hl_ranking_sheet(&table, work->ranking, request->count));
    return hl_print_sheet(table, hl_sheet_format_of(&request->common));
}

static void close_work(rank_work *work)
{
    hl_ranking_free(work->ranking);
    hl_evidence_free(&work->evidence);
    hl_model_close(work->model);
}

int hl_command_rank(int argc, char **argv)
{
    rank_request                  request = { .by = "auto", .windows = { .max_tokens = 16384 } };
    HL_KEPT(close_work) rank_work work    = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    HL_CALL("rank", open_work(&work));
    HL_CALL("rank", rank(&work));
    return hl_finish("rank", print_ranking(&work));
}
