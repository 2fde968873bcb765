/* cmd_prune.c - headlight prune: writes a model without some of its heads. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "evidence.h"
#include "headlight.h"
#include "held.h"
#include "input.h"
#include "options.h"
#include "prompt.h"
#include "prune_parts.h"
#include "shared_options.h"
#include "values.h"

typedef struct prune_request {
    hl_common         common;
    hl_arguments      models;
    const char       *heads; /* "L5H1,L7"; NULL: heads are chosen by the options below */
    double            ratio; /* -1: not given; the same holds for the count */
    int64_t           count;
    const char       *by;
    hl_ranker         ranker;
    const char       *profile_path; /* NULL: measure the texts */
    hl_option_list    texts;
    const char       *tokenizer_path; /* NULL: the model's */
    hl_window_options windows;
    int64_t           n_steps;  /* of --iterative; 0: at once */
    bool              reselect; /* as many steps as heads go */
    hl_budget_request budget;
    bool              no_timing;
    hl_choice         choice;
    bool              groups; /* query heads of a KV head are removed together */
    bool              mean;
    int               form; /* index in forms[] */
    int               type; /* index in types[]; -1: matrices keep their types */
    const char       *output;
    hl_repair_request repair;
} prune_request;

/* Tokens of the text that are used; a budget runs half of them many times. */
enum { MAX_TOKENS = 16384, BUDGET_TOKENS = 8192 };

/* The words of --as and of --type, in their order. */
static const hl_prune_form forms[] = { HL_PRUNE_AUTO, HL_PRUNE_COMPACT, HL_PRUNE_MASKED,
                                       HL_PRUNE_GGUF };
static const hl_dtype      types[] = { HL_DTYPE_F32, HL_DTYPE_F16, HL_DTYPE_BF16, HL_DTYPE_Q8_0,
                                       HL_DTYPE_Q4_0 };

/* Results of --mean: nats per token on its text. */
typedef struct mean_check {
    bool   done;
    hl_nll whole; /* with all heads */
    hl_nll zero;  /* with the heads disabled */
    hl_nll mean;  /* of the model that was written */
} mean_check;

typedef struct pruning {
    const prune_request *request;
    hl_model            *model;
    hl_head_list        *heads;
    hl_ranker            ranker;   /* AUTO: heads were named, or none were taken */
    hl_evidence          evidence; /* what --keep and rankings are made of */
    hl_head_list        *keep;     /* NULL: none */
    hl_frontier         *frontier; /* NULL: no budget */
    hl_timing            timing;
    float               *means;     /* (n_layers, n_heads, d_head) or NULL */
    hl_encoding         *text;      /* text of --mean */
    int64_t              n_tokens;  /* number of its tokens that are used */
    hl_tokenizer        *tokenizer; /* tokenizer of that text */
    hl_around_tokens     around;    /* tokens that the tokenizer puts around each window */
    mean_check           check;
    hl_repair_work       repair;
    hl_prune_report      report;
} pruning;

/* ------------------------------------------------------------- choice of heads */

/* So many heads as the model has. */
static int64_t count_heads(const hl_model *model)
{
    int64_t       n_heads = 0;
    hl_layer_info layer;

    for (int64_t i = 0; hl_model_get_layer(&layer, model, i) == HL_OK; i++)
        n_heads += layer.n_heads;
    return n_heads;
}

/* Returns the requested ranker, with AUTO resolved by the share of heads that are removed, and by whether
 * the others are repaired. */
static hl_ranker ranker_of(const hl_model *model, const pruning *p)
{
    const prune_request *request = p->request;
    double               ratio   = request->choice.ratio;

    if (request->ranker != HL_RANKER_AUTO)
        return request->ranker;
    if (hl_repair_is_planned(&p->repair) && request->profile_path == NULL &&
        hl_ranker_default(model, true, 0.0) == HL_RANKER_GRADIENT)
        return HL_RANKER_SURGEON;
    if (ratio <= 0.0)
        ratio = (double)request->choice.count / (double)count_heads(model);
    return hl_ranker_default(model, request->texts.count > 0, ratio);
}

static hl_evidence_request evidence_request(const prune_request *request, hl_ranker ranker)
{
    return (hl_evidence_request){ .ranker         = ranker,
                                  .texts          = request->texts.items,
                                  .n_texts        = (size_t)request->texts.count,
                                  .tokenizer_path = request->tokenizer_path,
                                  .windows        = request->windows,
                                  .n_threads      = request->common.n_threads,
                                  .quiet          = request->common.quiet };
}

/* What the request says, but for the heads that stay. */
static hl_choice choice_of(const pruning *p)
{
    hl_choice choice = p->request->choice;

    choice.keep = p->keep;
    return choice;
}

static hl_status rank(hl_ranking **out, pruning *p)
{
    const prune_request *request = p->request;
    hl_rank_options      options = { .seed = request->common.seed };
    hl_evidence_request  wanted  = evidence_request(request, p->ranker);

    if (request->n_steps > 0 || request->reselect)
        return hl_reselect_from_texts(
            out, p->model, &wanted,
            &(hl_reselect_options){ .choice  = choice_of(p),
                                    .n_steps = request->n_steps,
                                    .groups  = request->groups,
                                    .repair  = hl_repair_is_planned(&p->repair),
                                    .rank    = options });
    if (request->texts.count > 0)
        HL_NEED(hl_evidence_from_texts(&p->evidence, p->model, &wanted));
    HL_NEED(hl_evidence_rank(out, &p->evidence, p->ranker, p->model, &options));
    return request->groups ? hl_ranking_group(*out, p->model) : HL_OK;
}

/* Does a budget determine the number of heads?  It does unless a number is given. */
static bool by_budget(const prune_request *request)
{
    return request->heads == NULL && request->ratio < 0.0 && request->count < 0;
}

/* Returns true if the model is written with all of its heads. */
static bool takes_none(const prune_request *request)
{
    return request->heads == NULL && !by_budget(request) && request->choice.ratio <= 0.0 &&
           request->choice.count == 0;
}

static hl_prune_options write_options(const pruning *p)
{
    const prune_request *request = p->request;

    return (hl_prune_options){ .form           = forms[request->form],
                               .dtype          = request->type >= 0 ? types[request->type] : 0,
                               .convert        = request->type >= 0,
                               .means          = p->means,
                               .repair         = p->repair.repair,
                               .tokenizer_path = request->tokenizer_path };
}

/* Any order will do for none, and this one needs no evidence. */
static hl_status choose_none(pruning *p)
{
    HL_HELD(hl_ranking_free) hl_ranking *ranking = NULL;

    HL_NEED(hl_rank(&ranking, HL_RANKER_RANDOM, &(hl_rank_inputs){ .model = p->model }, NULL));
    return hl_ranking_choose(&p->heads, ranking, &(hl_choice){ 0 });
}

/* The heads that a budget recommends, which the frontier owns until then. */
static hl_status choose_by_budget(pruning *p)
{
    const prune_request *request = p->request;
    hl_prune_options     write   = write_options(p);
    hl_budget_options    options = { .until_loss  = fmax(request->budget.until_loss, 0.0),
                                     .until_kl    = fmax(request->budget.until_kl, 0.0),
                                     .until_bytes = request->budget.n_bytes,
                                     .rankers     = &request->ranker,
                                     .n_rankers   = 1,
                                     .choice      = choice_of(p),
                                     .groups      = request->groups,
                                     .repair      = hl_repair_is_planned(&p->repair),
                                     .write       = &write,
                                     .path        = request->output,
                                     .windows     = request->windows,
                                     .seed        = request->common.seed,
                                     .n_threads   = request->common.n_threads };
    hl_evidence_request  texts   = evidence_request(request, request->ranker);

    if (request->ranker == HL_RANKER_AUTO)
        options.rankers = NULL;
    HL_NEED(hl_frontier_from_texts(&p->frontier, p->model, &texts, &request->budget.test_texts,
                                   &options));
    p->ranker          = p->frontier->points[p->frontier->recommended].ranker;
    p->heads           = p->frontier->heads;
    p->frontier->heads = NULL;
    return HL_OK;
}

static hl_status choose_heads(pruning *p)
{
    const prune_request                 *request = p->request;
    hl_evidence_request                  texts   = evidence_request(request, HL_RANKER_AUTO);
    hl_choice                            choice;
    HL_HELD(hl_ranking_free) hl_ranking *ranking = NULL;

    if (request->heads != NULL)
        return hl_head_list_parse(&p->heads, p->model, request->heads);
    if (takes_none(request))
        return choose_none(p);
    if (request->profile_path != NULL)
        HL_NEED(hl_profile_load(&p->evidence.profile, request->profile_path));
    if (request->budget.keep != NULL)
        HL_NEED(hl_budget_keep(&p->keep, &p->evidence, p->model, &request->budget, &texts));
    if (by_budget(request))
        return choose_by_budget(p);
    p->ranker = ranker_of(p->model, p);
    choice    = choice_of(p);
    HL_NEED(rank(&ranking, p));
    return hl_ranking_choose(&p->heads, ranking, &choice);
}

/* --------------------------------------------------------------------- options */

/* Checks that the ranker has the inputs that it requires. */
static int check_ranker(prune_request *request, const hl_usage *usage)
{
    bool has_text = request->texts.count > 0;

    HL_PASS(hl_ranker_option(&request->ranker, usage, "by", request->by));
    if (request->ranker != HL_RANKER_AUTO && !hl_ranker_can_reselect(request->ranker) &&
        (request->n_steps > 0 || request->reselect))
        return hl_options_refuse(
            usage, "--by %s looks at no text, so it has nothing to look at again", request->by);
    if (takes_none(request) || request->heads != NULL)
        return HL_EXIT_OK; /* no ranking is needed */
    if (request->ranker == HL_RANKER_AUTO && request->profile_path == NULL && !has_text)
        return hl_options_refuse(
            usage, "heads must be ranked: give --text FILE to rank them on, or --profile PROFILE");
    if ((hl_ranker_needs(request->ranker) & HL_NEEDS_PROFILE) != 0 &&
        request->profile_path == NULL && !has_text)
        return hl_options_refuse(
            usage, "--by %s needs --profile PROFILE, or --text FILE to measure", request->by);
    if ((hl_ranker_needs(request->ranker) & HL_NEEDS_GRADIENT) != 0 && !has_text)
        return hl_options_refuse(usage, "--by %s needs --text FILE to compute gradients on",
                                 request->by);
    if ((hl_ranker_needs(request->ranker) & HL_NEEDS_MOMENTS) != 0 && !has_text)
        return hl_options_refuse(usage, "--by %s needs --text FILE to see what heads write",
                                 request->by);
    if ((hl_ranker_needs(request->ranker) & HL_NEEDS_SURGEON) != 0 && !has_text)
        return hl_options_refuse(usage, "--by %s needs --text FILE to run heads on", request->by);
    if (request->ranker == HL_RANKER_ABLATION && !has_text)
        return hl_options_refuse(usage, "--by %s needs --text FILE to disable heads on",
                                 request->by);
    return HL_EXIT_OK;
}

static hl_repair_work repair_of(const prune_request *request)
{
    return (hl_repair_work){ .request        = &request->repair,
                             .texts          = &request->texts,
                             .tokenizer_path = request->tokenizer_path,
                             .windows        = request->windows,
                             .n_threads      = request->common.n_threads,
                             .quiet          = request->common.quiet,
                             .output         = request->output,
                             .mean           = request->mean };
}

/* Budgets, and what goes with them. */
static int check_budget(prune_request *request, const hl_usage *usage, int n_ways)
{
    HL_PASS(hl_budget_refuse(&request->budget, usage, request->texts.count > 0));
    if (n_ways > 0 && hl_budget_given(&request->budget))
        return hl_options_refuse(usage, "a budget sets the number of heads; it cannot be combined "
                                        "with --ratio, --count and --heads");
    if (n_ways > 0 && request->budget.test_texts.count > 0)
        return hl_options_refuse(usage, "--test-text is for budgets: --until-loss, --until-kl, "
                                        "--until-bytes, or none of --ratio, --count and --heads");
    if (n_ways == 0 && request->profile_path != NULL)
        return hl_options_refuse(
            usage, "a budget measures on --text; it cannot be combined with --profile");
    if (request->budget.n_bytes > 0 && request->type >= 0)
        return hl_options_refuse(
            usage,
            "--until-bytes counts matrices as they are stored; it cannot be combined with --type");
    if (request->budget.keep != NULL && request->heads != NULL)
        return hl_options_refuse(usage, "--heads and --keep cannot be combined");
    return HL_EXIT_OK;
}

static int check_request(prune_request *request, const hl_usage *usage)
{
    hl_repair_work repair = repair_of(request);
    int n_ways = (request->heads != NULL) + (request->ratio >= 0.0) + (request->count >= 0);

    if (request->models.count != 1)
        return hl_options_refuse(usage, request->models.count == 0 ? "no MODEL given"
                                                                   : "more than one MODEL given");
    if (n_ways > 1)
        return hl_options_refuse(usage, "give one of --ratio, --count and --heads");
    if (n_ways == 0 && request->texts.count == 0 && !hl_budget_given(&request->budget))
        return hl_options_refuse(usage, "give one of --ratio, --count and --heads, or "
                                        "--text FILE to find out how many can go");
    HL_PASS(check_budget(request, usage, n_ways));
    if (request->output == NULL)
        return hl_options_refuse(usage, "-o OUT is missing: the folder or file to write");
    if (request->mean && request->texts.count == 0)
        return hl_options_refuse(usage, "--mean needs --text FILE to take the means over");
    if ((request->n_steps > 0 || request->reselect) &&
        (request->heads != NULL || request->texts.count == 0 || request->profile_path != NULL ||
         n_ways == 0))
        return hl_options_refuse(
            usage,
            "%s measures after each step: it needs --text FILE and "
            "--ratio or --count, and cannot be combined with --heads or --profile",
            request->reselect ? "--reselect" : "--iterative");
    if (request->n_steps > 0 && request->reselect)
        return hl_options_refuse(usage,
                                 "--reselect ranks again after each head, --iterative K after "
                                 "each of K steps: only one of them");
    if (request->type >= 0 &&
        (forms[request->form] == HL_PRUNE_MASKED || forms[request->form] == HL_PRUNE_COMPACT))
        return hl_options_refuse(usage,
                                 "--type applies to GGUF files only; folders keep their types");
    HL_PASS(hl_repair_refuse(&repair, usage));
    return check_ranker(request, usage);
}

static const char help[] =
    "Writes a model with some of its attention heads removed.  It computes exactly what\n"
    "the model computes with these heads disabled (--off in other commands).\n"
    "\n"
    "  compact  a Hugging Face folder with smaller tensors.  Where all layers keep\n"
    "           the same number of heads, most families load it as it is; else\n"
    "           transformers needs the code that is written beside the weights\n"
    "           (trust_remote_code=True)\n"
    "  gguf     a file for llama.cpp: smaller where llama.cpp can load that, else the\n"
    "           heads are zeroed.  Matrices keep their stored blocks; where a cut\n"
    "           goes through blocks they become Q8_0, and the output says so\n"
    "  masked   a folder of the same shapes, or a copy of a GGUF file of any family,\n"
    "           with the heads zeroed: their columns of\n"
    "           the output projections are zero.  Loads wherever the model does, and\n"
    "           saves nothing\n"
    "  auto     gguf if OUT ends in .gguf or the model is a file; else compact, or\n"
    "           masked for a family that has no other form\n"
    "\n"
    "--count 0 --as gguf converts a model without removing heads.\n"
    "\n"
    "Without --ratio, --count and --heads a budget says how many go: on one half of\n"
    "--text heads are ranked by the three rankers that cost least in our sweeps, or\n"
    "by --by; on the other half more and more are disabled, until the 95% interval\n"
    "of what they cost reaches --until-loss or --until-kl, or until the model has\n"
    "--until-bytes.  Without any of these the loss may rise by 0.05 nats per token.\n"
    "\n"
    "Afterwards both models are run in turns, and what was gained is printed.\n"
    "\n"
    "Without --by, the ranker is gradient for up to a fifth of the heads, which needs\n"
    "--text; for more heads, for encoders and with --profile it is output-norm.\n"
    "Removing heads of highest entropy first cost more than a random order\n"
    "(doc/sweep.md).\n"
    "\n"
    "A KV head is removed with the last of its query heads.  Groups keep equal sizes:\n"
    "heads that would make them differ are zeroed.  --groups removes whole groups, so\n"
    "that none is zeroed.  Each layer keeps at least one head, unless --empty-layers\n"
    "or --heads says otherwise.";

static int parse_request(prune_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        HL_NUMBER("ratio", 'r', &request->ratio, "R", "remove this share of all heads", 0, 1),
        HL_INT("count", 'n', &request->count, "N", "remove this number of heads", 0, INT64_MAX),
        HL_TEXT("heads", 0, &request->heads, "L5H1,L7",
                "remove these heads (L7: all heads of layer 7)"),
        HL_TEXT("by", 0, &request->by, "RANKER",
                "ranker that sets the order (auto: gradient or output-norm)"),
        HL_TEXT("profile", 'p', &request->profile_path, "PROFILE",
                "rank the heads by this profile"),
        HL_LIST("text", 't', &request->texts, "FILE",
                "text to rank on, and for --mean (repeatable)"),
        HL_INT("context", 'c', &request->windows.n_ctx, "N", "tokens per window of --text", 2,
               1 << 30),
        HL_INT("iterative", 0, &request->n_steps, "K",
               "remove in K steps, ranking again after each", 1, 1000),
        HL_FLAG("reselect", 0, &request->reselect, "rank again after each removed head"),
        HL_BUDGET_OPTIONS(&request->budget),
        HL_INT("per-layer-max", 0, &request->choice.per_layer_max, "N",
               "remove at most N heads per layer", 1, INT64_MAX),
        HL_FLAG("groups", 0, &request->groups, "remove all query heads of a KV head together"),
        HL_FLAG("empty-layers", 0, &request->choice.empty_layers, "allow layers to lose all heads"),
        HL_FLAG("mean", 'm', &request->mean, "keep the heads' mean output as a bias"),
        HL_REPAIR_OPTIONS(&request->repair),
        HL_INT("max-tokens", 0, &request->windows.max_tokens, "N",
               "use at most N tokens of --text (16384; for a budget 8192)", 2, INT64_MAX),
        HL_SPECIAL_OPTION(&request->windows.around),
        HL_ENUM("as", 'a', &request->form, "auto|compact|masked|gguf",
                "what to write (auto: the form that saves memory)"),
        HL_ENUM("type", 0, &request->type, "f32|f16|bf16|q8_0|q4_0",
                "type of the matrices in a GGUF file (as stored)"),
        HL_TEXT("tokenizer", 0, &request->tokenizer_path, "PATH",
                "tokenizer to use, and to write to a GGUF file"),
        HL_FLAG("no-timing", 0, &request->no_timing, "do not time both models afterwards"),
        HL_TEXT("output", 'o', &request->output, "OUT", "folder or file to write"),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "prune",
        .arguments = "MODEL (--ratio R | --count N | --heads L5H1,... | --text FILE) -o OUT",
        .text      = help,
        .options   = options,
    };
    HL_PASS(hl_options_parse(&request->models, &request->common, &usage, argc, argv));
    if (request->windows.max_tokens == 0)
        request->windows.max_tokens = by_budget(request) ? BUDGET_TOKENS : MAX_TOKENS;
    request->choice.ratio = request->ratio >= 0.0 ? request->ratio : 0.0;
    request->choice.count = request->count >= 0 ? request->count : 0;
    return check_request(request, &usage);
}

/* ----------------------------------------------------------------------- means */

/* Reads the first tokens of the first text. */
static int read_tokens(pruning *p)
{
    const prune_request *request = p->request;
    hl_encode_options    options = { .add_special = request->windows.around == HL_AROUND_DOCUMENT };

    HL_KEPT(hl_input_free) hl_input input = { 0 };

    HL_PASS(hl_input_read(&input, request->texts.items[0], "prune"));
    HL_CALL("prune", hl_tokenizer_option(&p->tokenizer, p->model, request->tokenizer_path));
    if (request->windows.around == HL_AROUND_WINDOW)
        p->around = hl_tokenizer_around(p->tokenizer);
    HL_CALL("prune",
            hl_tokenizer_encode(&p->text, p->tokenizer, input.bytes, input.n_bytes, &options));
    p->n_tokens = (int64_t)p->text->n_tokens;
    if (p->n_tokens > request->windows.max_tokens)
        p->n_tokens = request->windows.max_tokens;
    return HL_EXIT_OK;
}

static int take_means(pruning *p)
{
    const hl_model_info *info  = hl_model_get_info(p->model);
    size_t               count = (size_t)(info->n_layers * info->n_heads * info->d_head);

    HL_PASS(read_tokens(p));
    p->means = malloc(count * sizeof *p->means);
    if (p->means == NULL)
        return hl_finish("prune", HL_NO_MEMORY);
    return hl_finish("prune", hl_head_means(p->means, p->model, p->text->ids, p->n_tokens,
                                            &p->around, p->request->common.n_threads));
}

static hl_status score(hl_nll *out, const pruning *p, const hl_model *model, const float *gates)
{
    HL_HELD(hl_perplexity_close) hl_perplexity *perplexity = NULL;

    hl_perplexity_options options = { .n_ctx     = p->request->windows.n_ctx,
                                      .gates     = gates,
                                      .n_threads = p->request->common.n_threads,
                                      .around    = p->around };
    hl_scored_text        text    = { .tokens = p->text->ids, .n_tokens = p->n_tokens };

    HL_NEED(hl_perplexity_open(&perplexity, model, &options));
    return hl_perplexity_add(out, perplexity, &text);
}

/* Compares means and zeros with the whole model; not for encoders, which predict nothing. */
static hl_status check_means(pruning *p)
{
    HL_HELD(hl_gates_free) hl_gates  *gates   = NULL;
    HL_HELD(hl_model_close) hl_model *written = NULL;

    if (!p->request->mean || hl_model_get_info(p->model)->is_encoder)
        return HL_OK;
    HL_NEED(hl_gates_new(&gates, p->model));
    hl_gates_set(gates, p->heads, 0.0f);
    HL_NEED(score(&p->check.whole, p, p->model, NULL));
    HL_NEED(score(&p->check.zero, p, p->model, gates->values));
    HL_NEED(hl_model_open_on(&written, p->request->output, p->request->common.device));
    HL_NEED(score(&p->check.mean, p, written, NULL));
    p->check.done = true;
    return HL_OK;
}

/* ------------------------------------------------------------ what was written */

/* A row of sizes: the change is a share of the first. */
static void put_size(hl_sheet *table, const char *what, double before, double after)
{
    hl_sheet_put_text(table, "%s", what);
    hl_sheet_put_reals(table, before, after,
                       before > 0.0 ? 100.0 * (after - before) / before : NAN);
}

static hl_status print_sizes(const pruning *p)
{
    HL_HELD(hl_sheet_free) hl_sheet *table  = NULL;
    const hl_prune_report           *after  = &p->report;
    const hl_model_info             *before = hl_model_get_info(p->model);

    HL_NEED(hl_sheet_new(&table, "sizes", "Before and after",
                         "what:t before:0 after:0 change_percent:1"));
    put_size(table, "parameters", (double)before->n_params, (double)after->n_params);
    put_size(table, "bytes of tensors", (double)before->tensor_bytes, (double)after->tensor_bytes);
    if (!before->is_encoder)
        put_size(table, "KV bytes per token", (double)before->kv_bytes_f16,
                 (double)after->kv_bytes_f16);
    if (p->timing.done) {
        const hl_speed *a = &p->timing.pair.before, *b = &p->timing.pair.after;

        put_size(table, "memory", (double)(a->weight_bytes + a->session_bytes),
                 (double)(b->weight_bytes + b->session_bytes));
        put_size(table, "on disk", (double)p->timing.files_before, (double)p->timing.files_after);
    }
    HL_NEED(hl_sheet_finish(table));
    return hl_print_sheet(table, HL_SHEET_TEXT);
}

static void print_heads(const hl_head_list *heads)
{
    int column = 0;

    for (int64_t i = 0; i < heads->n_heads; i++) {
        char name[HL_HEAD_LABEL_BYTES];
        int  n = (int)strlen(hl_head_label(name, heads->heads[i].layer, heads->heads[i].head));

        if (column + n + 1 > 76) {
            printf("\n");
            column = 0;
        }
        printf("%s%s", column == 0 ? "  " : " ", name);
        column += n + 1;
    }
    if (heads->n_heads > 0)
        printf("\n\n");
}

/* -------------------------------------------------------- tensors that changed */

static bool is_alike(const hl_prune_tensor *a, const hl_prune_tensor *b)
{
    return a->stored == b->stored && a->wanted == b->wanted && a->written == b->written &&
           strcmp(a->why, b->why) == 0;
}

/* Splits "blk.12.attn_q.weight" into layer 12 and "attn_q.weight"; for other tensors, -1 and the
 * name. */
static long layer_of(const char **rest, const char *name)
{
    char *end   = NULL;
    long  layer = -1;

    *rest = name;
    if (strncmp(name, "blk.", 4) == 0)
        layer = strtol(name + 4, &end, 10);
    if (end == NULL || *end != '.')
        return -1;
    *rest = end + 1;
    return layer;
}

/* Do two tensors share all but the layer? */
static bool is_same_row(const hl_prune_tensor *a, const hl_prune_tensor *b)
{
    const char *names[2];

    return layer_of(&names[0], a->name) >= 0 && layer_of(&names[1], b->name) >= 0 &&
           strcmp(names[0], names[1]) == 0 && is_alike(a, b);
}

/* Adds a row for the tensors that share a name, with their layers as "0-3,7"; nothing if an earlier
 * row has this one. */
static void put_tensors(hl_sheet *table, const hl_prune_report *report, int64_t first)
{
    const hl_prune_tensor *one = &report->tensors[first];
    const char            *name;
    long                   last = layer_of(&name, one->name), from = last;
    double                 growth      = (double)one->written_bytes - (double)one->stored_bytes;
    char                   layers[256] = "-";
    size_t                 used        = 0;

    for (int64_t i = 0; i < first; i++)
        if (is_same_row(one, &report->tensors[i]))
            return;
    for (int64_t i = first + 1; i < report->n_tensors; i++) {
        const hl_prune_tensor *tensor = &report->tensors[i];

        if (!is_same_row(one, tensor))
            continue;
        growth += (double)tensor->written_bytes - (double)tensor->stored_bytes;
        long layer = layer_of(&name, tensor->name);
        if (layer != last + 1 && used + 48 < sizeof layers) {
            used += (size_t)snprintf(layers + used, sizeof layers - used,
                                     last > from ? "%ld-%ld," : "%ld,", from, last);
            from = layer;
        }
        last = layer;
    }
    if (last >= 0)
        snprintf(layers + used, sizeof layers - used, last > from ? "%ld-%ld" : "%ld", from, last);
    hl_sheet_put_text(table, "%s", name);
    hl_sheet_put_text(table, "%s", layers);
    hl_sheet_put_text(table, "%s", hl_dtype_name(one->stored));
    hl_sheet_put_text(table, "%s", hl_dtype_name(one->wanted));
    hl_sheet_put_text(table, "%s", hl_dtype_name(one->written));
    hl_sheet_put_real(table, growth);
    hl_sheet_put_text(table, "%s", one->why[0] != '\0' ? one->why : "requested by --type");
}

/* Prints matrices that could not get their type, and those that grew. */
static hl_status print_tensors(const hl_prune_report *report)
{
    HL_HELD(hl_sheet_free) hl_sheet *table = NULL;

    if (report->n_tensors == 0)
        return HL_OK;
    HL_NEED(hl_sheet_new(&table, "tensors", "Tensors of another type",
                         "tensor:t layers:t stored:t wanted:t written:t growth:0 why:t"));
    for (int64_t i = 0; i < report->n_tensors; i++)
        put_tensors(table, report, i);
    HL_NEED(hl_sheet_finish(table));
    printf("\n");
    return hl_print_sheet(table, HL_SHEET_TEXT);
}

/* --------------------------------------------------------------------- as text */

/* Returns the ranker's name; NULL if nothing was ranked. */
static const char *ranker_name(const pruning *p)
{
    return p->ranker != HL_RANKER_AUTO ? hl_ranker_name((size_t)p->ranker) : NULL;
}

static hl_status print_story(const pruning *p)
{
    const hl_prune_report *report   = &p->report;
    const hl_model_info   *before   = hl_model_get_info(p->model);
    const char            *by       = ranker_name(p);
    const char            *verdict  = hl_ranker_verdict((size_t)p->ranker);
    int64_t                n_zeroed = report->n_pruned - report->n_gone;

    if (p->frontier != NULL)
        HL_NEED(hl_budget_print(p->frontier));
    printf("%s  %s: ", hl_shown(p->request->output), hl_prune_form_name(report->form));
    if (report->n_gone > 0 || n_zeroed == 0)
        printf("removed %lld", (long long)report->n_gone);
    if (n_zeroed > 0)
        printf("%s %lld", report->n_gone > 0 ? " and zeroed" : "zeroed", (long long)n_zeroed);
    printf(" of %lld heads%s%s\n\n", (long long)count_heads(p->model), by != NULL ? "; by " : "",
           by != NULL ? by : "");
    print_heads(p->heads);
    HL_NEED(print_sizes(p));
    printf("\n  Loads in headlight and in %s.\n", report->loads);
    if (report->vocab[0] != '\0')
        printf("  %s: %s.\n", report->has_vocab ? "Vocabulary" : "No vocabulary",
               hl_shown(report->vocab));
    if (verdict != NULL)
        printf("  %s\n", verdict);
    if (n_zeroed > 0)
        printf("  A zeroed head saves neither time nor memory.%s\n",
               p->request->groups || before->n_kv_heads == before->n_heads
                   ? ""
                   : "  --groups removes whole groups.");
    hl_repair_print(&p->repair);
    if (p->check.done)
        printf("\n"
               "  nats/token   %.4f with all heads, %.4f with heads zeroed, %.4f with their mean "
               "output\n"
               "  kept (on %lld tokens of the text that gave the means)\n",
               p->check.whole.mean, p->check.zero.mean, p->check.mean.mean,
               (long long)p->check.whole.n_scored);
    HL_NEED(print_tensors(report));
    HL_NEED(hl_timing_print(&p->timing));
    if (report->form_note[0] != '\0')
        printf("\n  Written as masked, which saves nothing: %s.\n", hl_shown(report->form_note));
    return HL_OK;
}

/* --------------------------------------------------------------------- as JSON */

static json_t *heads_json(const hl_head_list *heads)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < heads->n_heads; i++) {
        char name[HL_HEAD_LABEL_BYTES];
        hl_head_label(name, heads->heads[i].layer, heads->heads[i].head);
        json_array_append_new(list, json_string(name));
    }
    return list;
}

static json_t *sizes_json(int64_t n_params, size_t n_bytes, size_t kv_bytes)
{
    return HL_OBJECT(HL_IS("parameters", n_params), HL_IS("tensor_bytes", n_bytes),
                     HL_IS("kv_bytes_f16", kv_bytes));
}

/* Lists every tensor that could not get its type, or that grew. */
static json_t *tensors_json(const hl_prune_report *report)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < report->n_tensors; i++) {
        const hl_prune_tensor *tensor = &report->tensors[i];
        json_array_append_new(list,
                              HL_OBJECT(HL_IS("name", tensor->name),
                                        HL_IS("stored", hl_dtype_name(tensor->stored)),
                                        HL_IS("wanted", hl_dtype_name(tensor->wanted)),
                                        HL_IS("written", hl_dtype_name(tensor->written)),
                                        HL_IS("stored_bytes", tensor->stored_bytes),
                                        HL_IS("written_bytes", tensor->written_bytes),
                                        HL_IS("why", tensor->why[0] != '\0' ? tensor->why : NULL)));
    }
    return list;
}

static int64_t count_fallen_back(const hl_prune_report *report)
{
    int64_t count = 0;

    for (int64_t i = 0; i < report->n_tensors; i++)
        count += report->tensors[i].written != report->tensors[i].wanted;
    return count;
}

/* Makes a string; NULL, so that there is no member, if the text is empty. */
static json_t *if_said(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_string(text) : NULL;
}

static int print_json(const pruning *p)
{
    const hl_prune_report *report  = &p->report;
    const hl_model_info   *before  = hl_model_get_info(p->model);
    bool                   is_gguf = report->form == HL_PRUNE_GGUF;
    json_t                *losses  = NULL;

    if (p->check.done)
        losses =
            HL_OBJECT(HL_IS("whole", p->check.whole.mean), HL_IS("zero", p->check.zero.mean),
                      HL_IS("mean", p->check.mean.mean), HL_IS("tokens", p->check.whole.n_scored));
    return hl_print_json(
        HL_OBJECT(
            HL_IS("model", hl_value_name(p->request->models.items[0])),
            HL_IS("output", hl_value_name(p->request->output)),
            HL_IS("as", hl_prune_form_name(report->form)), HL_IS("by", ranker_name(p)),
            HL_IS("heads", count_heads(p->model)), HL_IS("removed", report->n_gone),
            HL_IS("zeroed", report->n_pruned - report->n_gone),
            HL_IS("removed_heads", heads_json(p->heads)),
            HL_IS("before",
                  sizes_json(before->n_params, before->tensor_bytes, before->kv_bytes_f16)),
            HL_IS("after",
                  sizes_json(report->n_params, report->tensor_bytes, report->kv_bytes_f16)),
            HL_IS("budget", hl_budget_json(p->frontier)),
            HL_IS("timing", hl_timing_json(&p->timing)), HL_IS("loads", report->loads),
            HL_IS(report->has_vocab ? "vocabulary_note" : "no_vocabulary", if_said(report->vocab)),
            HL_IS("verdict", if_said(hl_ranker_verdict((size_t)p->ranker))),
            HL_IS("form_note", if_said(report->form_note)),
            HL_IS("file_type", is_gguf ? json_string(hl_dtype_name(report->file_type)) : NULL),
            HL_IS("other_types", is_gguf ? json_integer(count_fallen_back(report)) : NULL),
            HL_IS("tensors", is_gguf ? tensors_json(report) : NULL),
            HL_IS("repair", hl_repair_json(&p->repair)), HL_IS("nats_per_token", losses)),
        JSON_INDENT(2));
}

/* ----------------------------------------------------------------- the command */

/* Refusals that need no ranking come first. */
static hl_status open_model(pruning *p)
{
    static const float some = 0.0f;

    HL_NEED(hl_model_open_on(&p->model, p->request->models.items[0], p->request->common.device));
    hl_prune_options options = write_options(p);
    if (p->request->mean)
        options.means = &some; /* any pointer: hl_prune_check only tests whether means are wanted */
    HL_NEED(hl_prune_check(p->model, &options, p->request->output));
    return hl_repair_prepare(&p->repair, p->model);
}

static int repair(pruning *p)
{
    hl_status status = hl_repair_run(&p->repair, p->model, p->heads);

    if (status == HL_CANCELLED && hl_stop_asked())
        return hl_give_up(HL_EXIT_STOPPED, "prune", "%s; --resume continues from %s",
                          hl_error_message(), p->repair.state_path);
    return hl_finish("prune", status);
}

static int prune(pruning *p)
{
    const prune_request *request = p->request;

    HL_CALL("prune", open_model(p));
    HL_CALL("prune", choose_heads(p));
    if (request->mean)
        HL_PASS(take_means(p));
    HL_PASS(repair(p));
    hl_prune_options options = write_options(p);
    HL_CALL("prune", hl_prune_write(&p->report, p->model, p->heads, &options, request->output));
    hl_repair_done(&p->repair);
    HL_CALL("prune", check_means(p));
    if (!request->no_timing && p->heads->n_heads > 0 &&
        (request->common.json || !request->common.quiet))
        HL_CALL("prune",
                hl_timing_take(&p->timing, p->model, request->models.items[0], request->output,
                               request->common.device, request->common.n_threads));
    if (request->common.json)
        return print_json(p);
    return request->common.quiet ? HL_EXIT_OK : hl_finish("prune", print_story(p));
}

int hl_command_prune(int argc, char **argv)
{
    prune_request request = {
        .ratio  = -1.0,
        .count  = -1,
        .type   = -1,
        .by     = "auto",
        .repair = { .wanted = -1 },
        .budget = { .until_loss = -1.0, .until_kl = -1.0 },
    };
    pruning p = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    p.repair = repair_of(&request);
    hl_stop_watch();
    int code = prune(&p);
    hl_prune_report_clear(&p.report);
    hl_repair_close(&p.repair);
    hl_head_list_free(p.heads);
    hl_head_list_free(p.keep);
    hl_evidence_free(&p.evidence);
    hl_frontier_free(p.frontier);
    hl_tokenizer_close(p.tokenizer);
    hl_model_close(p.model);
    free(p.means);
    hl_encoding_free(p.text);
    return code;
}
