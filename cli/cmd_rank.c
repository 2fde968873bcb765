/* cmd_rank.c - headlight rank: which heads to take out first. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "headlight.h"
#include "nearest.h"
#include "options.h"
#include "progress.h"
#include "quick_measure.h"

typedef struct rank_request {
    hl_common         common;
    hl_arguments      arguments; /* the profile, or nothing */
    const char       *by;
    const char       *order;
    const char       *model_path;
    hl_option_list    texts;
    hl_window_options windows;
    int64_t           count;
    bool              groups;
    bool              csv;
    hl_ranker         ranker;
} rank_request;

/* What is open while it ranks. */
typedef struct rank_work {
    const rank_request *request;
    hl_model           *model;
    hl_profile         *profile;
    hl_gradients       *gradients;
    double             *ablation; /* (n_layers, n_heads) */
    hl_ranking         *ranking;
    hl_progress         progress;
} rank_work;

/* -------------------------------------------------------------------- arguments */

static int list_rankers(void)
{
    for (size_t i = 0; hl_ranker_name(i) != NULL; i++)
        printf("%-18s %s; %s first\n", hl_ranker_name(i), hl_ranker_summary(i),
               hl_ranker_takes_highest((hl_ranker)i) ? "highest" : "lowest");
    return HL_EXIT_OK;
}

static int refuse_ranker(const hl_usage *usage, const char *name)
{
    hl_nearest nearest = { .wanted = name };

    for (size_t i = 0; hl_ranker_name(i) != NULL; i++)
        hl_nearest_offer(&nearest, hl_ranker_name(i));
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "--by: no ranker is called '%s' (did you mean '%s'?)", name,
                                 nearest.word);
    return hl_options_refuse(usage, "--by: no ranker is called '%s'; 'list' lists them", name);
}

static int check_request(rank_request *request, const hl_usage *usage)
{
    if (strcmp(request->by, "list") == 0)
        return list_rankers();
    if (hl_ranker_find(&request->ranker, request->by) != HL_OK)
        return refuse_ranker(usage, request->by);
    if (request->ranker == HL_RANKER_ABLATION &&
        (request->model_path == NULL || request->texts.count == 0))
        return hl_options_refuse(usage, "--by ablation needs --model and --text: each head is "
                                        "switched off there");
    if (request->arguments.count > 1)
        return hl_options_refuse(usage, "one profile at a time, got %d", request->arguments.count);
    if (request->arguments.count == 0 && request->model_path == NULL)
        return hl_options_refuse(usage, "no PROFILE given, and no --model");
    if (request->texts.count > 0 && request->model_path == NULL)
        return hl_options_refuse(usage, "--text needs --model");
    if (request->groups && request->model_path == NULL)
        return hl_options_refuse(usage, "--groups needs --model, which knows them");
    if (request->csv && request->common.json)
        return hl_options_refuse(usage, "--csv and --json: only one of them");
    return HL_OPTIONS_GO_ON;
}

static int parse_request(rank_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "by", 'b', HL_OPTION_TEXT, &request->by, "NAME",
          "the ranker (entropy); list: all there are", 0, 0 },
        { "order", 0, HL_OPTION_CHOICE, &request->order, "highest|lowest",
          "which scores go first (as the ranker has it)", 0, 0 },
        { "count", 'n', HL_OPTION_INT, &request->count, "N", "only the first N heads", 1,
          INT64_MAX },
        { "groups", 0, HL_OPTION_FLAG, &request->groups, NULL,
          "query heads of a K/V head as one, by their mean", 0, 0 },
        { "csv", 0, HL_OPTION_FLAG, &request->csv, NULL, "print CSV instead of text", 0, 0 },
        { "model", 'm', HL_OPTION_TEXT, &request->model_path, "PATH",
          "for weights and gradients, or instead of PROFILE", 0, 0 },
        { "text", 0, HL_OPTION_LIST, &request->texts, "PATH",
          "what --model is run on; may be repeated", 0, 0 },
        { "context", 'c', HL_OPTION_INT, &request->windows.context, "N",
          "--text: tokens of a window", 1, INT64_MAX },
        { "max-tokens", 0, HL_OPTION_INT, &request->windows.max_tokens, "N",
          "--text: stop after N tokens (16384)", 1, INT64_MAX },
        { 0 },
    };
    const hl_usage usage = {
        .command   = "rank",
        .arguments = "[PROFILE]",
        .text      = "Orders the heads of a model by a score, the first to take out first.  Most\n"
                     "scores are in a profile; 'weight' needs --model alone, 'gradient' and\n"
                     "'entropy-gradient' need --model and --text, which a backward pass goes\n"
                     "through; so does 'ablation', which switches off each head in turn.\n"
                     "Without PROFILE, --model is measured on --text.\n"
                     "\n"
                     "A ranking is a guess.  'headlight sweep' measures how good it is.",
        .options   = options,
    };

    request->by = "entropy";
    int code    = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);
    return code == HL_OPTIONS_GO_ON ? check_request(request, &usage) : code;
}

/* ------------------------------------------------------------------------- work */

/* A score that no profile has? */
static bool needs_profile(hl_ranker ranker)
{
    return ranker != HL_RANKER_WEIGHT && ranker != HL_RANKER_GRADIENT &&
           ranker != HL_RANKER_ABLATION && ranker != HL_RANKER_RANDOM;
}

static hl_status measure_profile(rank_work *work)
{
    const rank_request *request = work->request;
    hl_quick_request    quick   = { .model_path = request->model_path,
                                    .texts      = request->texts.items,
                                    .n_texts    = (size_t)request->texts.count,
                                    .windows    = request->windows,
                                    .no_probe   = true,
                                    .n_threads  = (int32_t)request->common.n_threads,
                                    .quiet      = request->common.quiet || request->common.json };

    return hl_quick_measure(&work->profile, &quick);
}

static hl_status show_progress(void *context, const hl_measure_progress *progress)
{
    hl_progress_update(context, progress->share, progress->n_tokens);
    return HL_OK;
}

static hl_status run_gradients(rank_work *work, const hl_corpus *corpus)
{
    const rank_request *request = work->request;
    bool                quiet   = request->common.quiet || request->common.json;
    hl_gradient_options options = { .windows   = request->windows,
                                    .n_threads = (int32_t)request->common.n_threads,
                                    .progress  = show_progress,
                                    .context   = &work->progress };

    hl_progress_start(&work->progress, stderr, "backward", quiet);
    hl_status status = hl_gate_gradients(&work->gradients, work->model, corpus, &options);
    hl_progress_end(&work->progress);
    if (status == HL_OK && !quiet && !request->csv)
        hl_complain("rank", "gradients by backward passes: mean |dL/dg| of %lld windows, L %.4f",
                    (long long)work->gradients->n_windows, work->gradients->nll);
    return status;
}

static hl_status show_share(void *context, double share, int64_t n_tokens)
{
    hl_progress_update(context, share, n_tokens);
    return HL_OK;
}

static hl_status run_ablation(rank_work *work, const hl_corpus *corpus)
{
    const rank_request  *request = work->request;
    const hl_model_info *info    = hl_model_get_info(work->model);
    hl_evaluate_options  options = { .windows   = request->windows,
                                     .n_threads = (int32_t)request->common.n_threads,
                                     .progress  = show_share,
                                     .context   = &work->progress };

    work->ablation = malloc((size_t)(info->n_layers * info->n_heads) * sizeof *work->ablation);
    if (work->ablation == NULL)
        return HL_NO_MEMORY;
    hl_progress_start(&work->progress, stderr, "ablating",
                      request->common.quiet || request->common.json);
    hl_status status = hl_ablate(work->ablation, work->model, corpus, &options);
    hl_progress_end(&work->progress);
    return status;
}

/* What needs the model at work on the text. */
static hl_status run_model(rank_work *work)
{
    const rank_request *request   = work->request;
    hl_corpus_options   options   = { .inputs   = request->texts.items,
                                      .n_inputs = (size_t)request->texts.count };
    hl_tokenizer       *tokenizer = NULL;
    hl_corpus          *corpus    = NULL;
    hl_status           status =
        hl_tokenizer_open(&tokenizer, hl_model_get_info(work->model)->tokenizer_path);

    if (status == HL_OK)
        status = hl_corpus_open(&corpus, work->model, tokenizer, &options);
    if (status == HL_OK)
        status = request->ranker == HL_RANKER_ABLATION ? run_ablation(work, corpus)
                                                       : run_gradients(work, corpus);
    hl_corpus_close(corpus);
    hl_tokenizer_close(tokenizer);
    return status;
}

static bool needs_run(hl_ranker ranker)
{
    return ranker == HL_RANKER_GRADIENT || ranker == HL_RANKER_ENTROPY_GRADIENT ||
           ranker == HL_RANKER_ABLATION;
}

static hl_status open_work(rank_work *work)
{
    const rank_request *request = work->request;
    hl_status           status  = HL_OK;

    if (request->model_path != NULL)
        status = hl_model_open(&work->model, request->model_path);
    if (status == HL_OK && request->arguments.count > 0)
        status = hl_profile_load(&work->profile, request->arguments.items[0]);
    else if (status == HL_OK && request->texts.count > 0 && needs_profile(request->ranker))
        status = measure_profile(work);
    if (status == HL_OK && request->texts.count > 0 && needs_run(request->ranker))
        status = run_model(work);
    return status;
}

static hl_status rank(rank_work *work)
{
    const rank_request *request = work->request;
    hl_rank_inputs      inputs  = { .profile = work->profile, .model = work->model };
    hl_rank_options     options = { .seed = (uint64_t)request->common.seed };

    if (work->gradients != NULL)
        inputs.gradient = work->gradients->magnitude;
    inputs.ablation = work->ablation;
    if (request->order != NULL)
        options.order = strcmp(request->order, "highest") == 0 ? HL_ORDER_HIGHEST : HL_ORDER_LOWEST;
    hl_status status = hl_rank(&work->ranking, request->ranker, &inputs, &options);
    return status == HL_OK && request->groups ? hl_ranking_group(work->ranking, work->model)
                                              : status;
}

static hl_status print_ranking(const rank_work *work)
{
    const rank_request *request = work->request;
    hl_sheet           *table   = NULL;
    char               *text    = NULL;
    hl_status           status  = hl_ranking_sheet(&table, work->ranking, request->count);

    if (status == HL_OK)
        status = hl_sheet_render(&text, table,
                                 request->csv           ? HL_SHEET_CSV
                                 : request->common.json ? HL_SHEET_JSON
                                                        : HL_SHEET_TEXT);
    if (status == HL_OK && (request->csv || request->common.json || !request->common.quiet))
        fputs(text, stdout);
    hl_free(text);
    hl_sheet_free(table);
    return status;
}

int hl_command_rank(int argc, char **argv)
{
    rank_request request = { .windows = { .max_tokens = 16384 } };
    rank_work    work    = { .request = &request };
    int          code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    hl_status status = open_work(&work);
    if (status == HL_OK)
        status = rank(&work);
    if (status == HL_OK)
        status = print_ranking(&work);
    if (status != HL_OK)
        hl_complain("rank", "%s", hl_error_message());
    hl_ranking_free(work.ranking);
    hl_gradients_free(work.gradients);
    free(work.ablation);
    hl_profile_free(work.profile);
    hl_model_close(work.model);
    return hl_exit_for(status);
}
