/* cmd_prune.c - headlight prune: a model without some of its heads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "corpus_options.h"
#include "evidence.h"
#include "headlight.h"
#include "input.h"
#include "options.h"
#include "prune_choose.h"
#include "prune_print.h"
#include "ranker_option.h"

typedef struct prune_request {
    hl_common       common;
    hl_arguments    models;
    hl_prune_choice choice;
    hl_option_list  texts;
    double          ratio; /* -1: not given, as the count */
    int64_t         count;
    const char     *by;
    bool            mean;
    const char     *special;
    const char     *form;
    const char     *type;
    const char     *output;
} prune_request;

typedef struct pruning {
    const prune_request *request;
    hl_model            *model;
    hl_head_list        *heads;
    hl_ranker            ranker; /* AUTO: nothing was ranked */
    float               *means;  /* (n_layers, n_heads, d_head) or NULL */
    int64_t             *tokens; /* (n_tokens) of --mean's text */
    int64_t              n_tokens;
    hl_tokenizer        *tokenizer; /* of that text, and */
    hl_around_tokens     around;    /* what it puts around each window */
    hl_prune_report      report;
} pruning;

/* ------------------------------------------------------------------------- options */

/* Which ranker, and does it have what it needs? */
static int check_ranker(prune_request *request, const hl_usage *usage)
{
    hl_prune_choice *choice = &request->choice;
    int              code   = hl_ranker_option(&choice->ranker, usage, "by", request->by);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (hl_prune_takes_none(choice))
        return HL_OPTIONS_GO_ON; /* nothing to rank */
    if (choice->heads == NULL && choice->ranker == HL_RANKER_AUTO && choice->profile_path == NULL &&
        choice->n_texts == 0)
        return hl_options_refuse(usage, "which heads go first?  Give --text FILE to rank them on, "
                                        "or --profile PROFILE");
    if (choice->heads == NULL && hl_evidence_needs_profile(choice->ranker) &&
        choice->profile_path == NULL && choice->n_texts == 0)
        return hl_options_refuse(
            usage, "--by %s needs --profile PROFILE, or --text FILE to measure", request->by);
    if (choice->heads == NULL && hl_evidence_needs_gradients(choice->ranker) &&
        choice->n_texts == 0)
        return hl_options_refuse(usage, "--by %s needs --text FILE to take gradients on",
                                 request->by);
    if (choice->heads == NULL && choice->ranker == HL_RANKER_ABLATION && choice->n_texts == 0)
        return hl_options_refuse(usage, "--by %s needs --text FILE to switch heads off on",
                                 request->by);
    return HL_OPTIONS_GO_ON;
}

static int check_request(prune_request *request, const hl_usage *usage)
{
    int  n_ways = (request->choice.heads != NULL) + (request->ratio >= 0.0) + (request->count >= 0);
    bool ranked = request->choice.heads == NULL;

    if (request->models.count != 1)
        return hl_options_refuse(usage, request->models.count == 0 ? "no model given"
                                                                   : "more than one model given");
    if (n_ways != 1)
        return hl_options_refuse(usage, "which heads?  Give one of --ratio, --count and --heads");
    if (request->output == NULL)
        return hl_options_refuse(usage, "no model to write: -o OUT");
    if (request->mean && request->texts.count == 0)
        return hl_options_refuse(usage, "--mean needs --text FILE to take the means over");
    if (request->choice.n_steps > 0 &&
        (!ranked || request->texts.count == 0 || request->choice.profile_path != NULL))
        return hl_options_refuse(usage, "--iterative measures again and again: it needs --text "
                                        "FILE, and neither --heads nor --profile");
    if (request->type != NULL &&
        (strcmp(request->form, "masked") == 0 || strcmp(request->form, "compact") == 0))
        return hl_options_refuse(usage, "--type is for GGUF files; folders keep their types");
    return check_ranker(request, usage);
}

static const char help[] =
    "Writes a model without some of its attention heads.  It computes what the\n"
    "model computes with these heads switched off (--off of other commands).\n"
    "\n"
    "  compact  a Hugging Face folder whose tensors are smaller.  Where all layers\n"
    "           keep equally many heads, most families load as they are; else\n"
    "           transformers needs the code that is written beside\n"
    "           (trust_remote_code=True)\n"
    "  gguf     for llama.cpp: smaller where it can load that, else zeroed, and\n"
    "           with the tokenizer as far as such a file can hold it.  Matrices\n"
    "           keep their stored blocks; where a cut goes through blocks they\n"
    "           become Q8_0, which the output says\n"
    "  masked   a folder of the same shapes; the heads' slices of the output\n"
    "           projections are zero.  Loads wherever the model does, and saves\n"
    "           nothing\n"
    "  auto     gguf where OUT ends in .gguf or the model is a file; else compact,\n"
    "           or masked for a family that cannot be compacted\n"
    "\n"
    "--count 0 --as gguf converts a model as it is.\n"
    "\n"
    "Without --by, up to a fifth of the heads go by gradient, which needs --text,\n"
    "and more of them, or those of an encoder or a --profile, by output norm.\n"
    "Highest entropy first cost more than a random order (doc/sweep.md).\n"
    "\n"
    "A K/V head goes with the last of its query heads.  Groups stay equally large:\n"
    "what would make them differ is zeroed; --groups takes whole groups, so that\n"
    "nothing is.  One head stays in every layer, unless --empty-layers or --heads\n"
    "say otherwise.";

static int parse_request(prune_request *request, int argc, char **argv)
{
    hl_prune_choice *choice    = &request->choice;
    const hl_option  options[] = {
         { "ratio", 'r', HL_OPTION_NUMBER, &request->ratio, "R", "this share of all heads", 0, 1 },
         { "count", 'n', HL_OPTION_INT, &request->count, "N", "so many heads", 0, INT64_MAX },
         { "heads", 0, HL_OPTION_TEXT, &choice->heads, "L5H1,L7", "these; L7: all of a layer", 0,
           0 },
         { "by", 0, HL_OPTION_TEXT, &request->by, "RANKER",
           "which go first (auto: gradient or output-norm)", 0, 0 },
         { "profile", 'p', HL_OPTION_TEXT, &choice->profile_path, "PROFILE", "to rank them by", 0,
           0 },
         { "text", 't', HL_OPTION_LIST, &request->texts, "FILE",
           "to measure instead, and for --mean", 0, 0 },
         { "context", 'c', HL_OPTION_INT, &choice->windows.context, "N", "tokens of a window of it",
           2, 1 << 30 },
         { "iterative", 0, HL_OPTION_INT, &choice->n_steps, "K",
           "in K steps, measuring again after each", 1, 1000 },
         { "per-layer-max", 0, HL_OPTION_INT, &choice->choice.per_layer_max, "N",
           "at most so many of a layer", 1, INT64_MAX },
         { "groups", 0, HL_OPTION_FLAG, &choice->groups, NULL,
           "query heads of a K/V head go together", 0, 0 },
         { "empty-layers", 0, HL_OPTION_FLAG, &choice->choice.empty_layers, NULL,
           "a layer may lose all its heads", 0, 0 },
         { "mean", 'm', HL_OPTION_FLAG, &request->mean, NULL,
           "what they wrote on average stays, as a bias", 0, 0 },
         { "max-tokens", 0, HL_OPTION_INT, &request->choice.windows.max_tokens, "N",
           "of the text (16384)", 2, INT64_MAX },
         HL_SPECIAL_OPTION(&request->special),
         { "as", 'a', HL_OPTION_CHOICE, &request->form, "auto|compact|masked|gguf",
           "what to write (auto: the one that saves)", 0, 0 },
         { "type", 0, HL_OPTION_CHOICE, &request->type, "f32|f16|bf16|q8_0|q4_0",
           "of a GGUF file's matrices (as they are stored)", 0, 0 },
         { "tokenizer", 0, HL_OPTION_TEXT, &choice->tokenizer_path, "PATH",
           "use this one instead of the model's own, and write it to a GGUF file", 0, 0 },
         { "output", 'o', HL_OPTION_TEXT, &request->output, "OUT", "the folder or file to write", 0,
           0 },
         { 0 },
    };
    const hl_usage usage = {
        .command   = "prune",
        .arguments = "MODEL (--ratio R | --count N | --heads L5H1,...) -o OUT",
        .text      = help,
        .options   = options,
    };
    int code = hl_options_parse(&request->models, &request->common, &usage, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    choice->windows.around = hl_special_option(request->special);
    choice->texts          = request->texts.items;
    choice->n_texts        = (size_t)request->texts.count;
    choice->choice.ratio   = request->ratio >= 0.0 ? request->ratio : 0.0;
    choice->choice.count   = request->count >= 0 ? request->count : 0;
    choice->seed           = (uint64_t)request->common.seed;
    choice->n_threads      = (int32_t)request->common.n_threads;
    choice->quiet          = request->common.quiet;
    return check_request(request, &usage);
}

static int fail(hl_status status)
{
    hl_complain("prune", "%s", hl_explain(status));
    return hl_exit_for(status);
}

static int out_of_memory(void)
{
    hl_complain("prune", "out of memory");
    return HL_EXIT_RESOURCES;
}

/* ---------------------------------------------------------------------------- means */

static int keep_tokens(pruning *p, const hl_encoding *encoding)
{
    int64_t most = p->request->choice.windows.max_tokens;

    p->tokens = malloc((encoding->n_tokens + 1) * sizeof *p->tokens);
    if (p->tokens == NULL)
        return out_of_memory();
    for (size_t i = 0; i < encoding->n_tokens && p->n_tokens < most; i++)
        p->tokens[p->n_tokens++] = encoding->ids[i];
    return HL_EXIT_OK;
}

/* The first tokens of the first text. */
static int read_tokens(pruning *p)
{
    const char       *own      = hl_model_get_info(p->model)->tokenizer_path;
    const char       *asked    = p->request->choice.tokenizer_path;
    hl_input          input    = { 0 };
    hl_encoding      *encoding = NULL;
    hl_around         way      = p->request->choice.windows.around;
    hl_encode_options options  = { .add_special = way == HL_AROUND_DOCUMENT };
    int               code     = hl_input_read(&input, p->request->texts.items[0], "prune");

    if (code != HL_EXIT_OK)
        return code;
    hl_status status = hl_tokenizer_open(&p->tokenizer, asked != NULL ? asked : own);
    if (status == HL_OK && way == HL_AROUND_WINDOW)
        p->around = hl_tokenizer_around(p->tokenizer);
    if (status == HL_OK)
        status = hl_tokenizer_encode(&encoding, p->tokenizer, input.bytes, input.n_bytes, &options);
    code = status == HL_OK ? keep_tokens(p, encoding) : fail(status);
    hl_encoding_free(encoding);
    hl_input_free(&input);
    return code;
}

static int take_means(pruning *p)
{
    const hl_model_info *info  = hl_model_get_info(p->model);
    size_t               count = (size_t)(info->n_layers * info->n_heads * info->d_head);
    int                  code  = read_tokens(p);

    if (code != HL_EXIT_OK)
        return code;
    p->means = malloc(count * sizeof *p->means);
    if (p->means == NULL)
        return out_of_memory();
    hl_status status = hl_head_means(p->means, p->model, p->tokens, p->n_tokens, &p->around,
                                     p->request->choice.n_threads);
    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static hl_status score(hl_nll *out, const pruning *p, const hl_model *model, const float *gates)
{
    hl_perplexity        *perplexity = NULL;
    hl_perplexity_options options    = { .n_ctx     = p->request->choice.windows.context,
                                         .gates     = gates,
                                         .n_threads = p->request->choice.n_threads,
                                         .around    = p->around };
    hl_scored_text        text       = { .tokens = p->tokens, .n_tokens = p->n_tokens };
    hl_status             status     = hl_perplexity_open(&perplexity, model, &options);

    if (status == HL_OK)
        status = hl_perplexity_add(out, perplexity, &text);
    hl_perplexity_close(perplexity);
    return status;
}

/* Means against zero, both against the whole model; encoders predict nothing. */
static int check_means(hl_mean_check *check, const pruning *p)
{
    hl_gates *gates   = NULL;
    hl_model *written = NULL;
    hl_nll    whole   = { 0 };
    hl_nll    zero    = { 0 };
    hl_nll    mean    = { 0 };

    if (!p->request->mean || hl_model_get_info(p->model)->is_encoder)
        return HL_EXIT_OK;
    hl_status status = hl_gates_new(&gates, p->model);
    if (status == HL_OK) {
        hl_gates_set(gates, p->heads, 0.0f);
        status = score(&whole, p, p->model, NULL);
    }
    if (status == HL_OK)
        status = score(&zero, p, p->model, gates->values);
    if (status == HL_OK)
        status = hl_model_open(&written, p->request->output);
    if (status == HL_OK)
        status = score(&mean, p, written, NULL);
    hl_model_close(written);
    hl_gates_free(gates);
    if (status != HL_OK)
        return fail(status);
    *check = (hl_mean_check){ true, whole.n_scored, whole.mean, zero.mean, mean.mean };
    return HL_EXIT_OK;
}

/* -------------------------------------------------------------------------- the rest */

/* All types that --type names are dtypes, in small letters. */
static hl_dtype type_of(const char *name)
{
    static const struct {
        const char *name;
        hl_dtype    dtype;
    } types[] = {
        { "f16", HL_DTYPE_F16 },
        { "bf16", HL_DTYPE_BF16 },
        { "q8_0", HL_DTYPE_Q8_0 },
        { "q4_0", HL_DTYPE_Q4_0 },
    };

    for (size_t i = 0; name != NULL && i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) == 0)
            return types[i].dtype;
    }
    return HL_DTYPE_F32;
}

static hl_prune_form form_of(const char *name)
{
    size_t form = 0;

    while (hl_prune_form_name(form) != NULL && strcmp(hl_prune_form_name(form), name) != 0)
        form++;
    return (hl_prune_form)form;
}

static hl_prune_options write_options(const pruning *p)
{
    return (hl_prune_options){ .form           = form_of(p->request->form),
                               .dtype          = type_of(p->request->type),
                               .convert        = p->request->type != NULL,
                               .means          = p->means,
                               .tokenizer_path = p->request->choice.tokenizer_path };
}

/* Refusals that need no ranking come first. */
static int open_model(pruning *p)
{
    static const float some    = 0.0f;
    hl_status          status  = hl_model_open(&p->model, p->request->models.items[0]);
    hl_prune_options   options = write_options(p);

    if (p->request->mean)
        options.means = &some; /* is there a place for them? */
    if (status == HL_OK)
        status = hl_prune_check(p->model, &options, p->request->output);
    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static int choose_heads(pruning *p)
{
    hl_status status = hl_prune_choose(&p->heads, &p->ranker, p->model, &p->request->choice);

    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static int write_model(pruning *p)
{
    hl_prune_options options = write_options(p);
    hl_status status = hl_prune_write(&p->report, p->model, p->heads, &options, p->request->output);

    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static int64_t count_heads(const hl_model *model)
{
    int64_t       n_heads = 0;
    hl_layer_info layer;

    for (int64_t i = 0; i < hl_model_get_info(model)->n_layers; i++) {
        if (hl_model_get_layer(&layer, model, i) == HL_OK)
            n_heads += layer.n_heads;
    }
    return n_heads;
}

static int report(const pruning *p)
{
    const prune_request *request = p->request;
    hl_prune_story       story   = { .model_path = request->models.items[0],
                                     .output     = request->output,
                                     .form       = hl_prune_form_name(p->report.form),
                                     .ranker     = p->ranker,
                                     .before     = hl_model_get_info(p->model),
                                     .report     = &p->report,
                                     .heads      = p->heads,
                                     .n_heads    = count_heads(p->model) };
    int                  code    = check_means(&story.check, p);

    if (code != HL_EXIT_OK)
        return code;
    if (request->common.json)
        return hl_prune_print_json(&story);
    if (!request->common.quiet)
        hl_prune_print(&story);
    return HL_EXIT_OK;
}

int hl_command_prune(int argc, char **argv)
{
    prune_request request = { .ratio  = -1.0,
                              .count  = -1,
                              .form   = "auto",
                              .by     = "auto",
                              .choice = { .windows = { .max_tokens = 16384 } } };
    pruning       p       = { .request = &request };
    int           code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    code = open_model(&p);
    if (code == HL_EXIT_OK)
        code = choose_heads(&p);
    if (code == HL_EXIT_OK && request.mean)
        code = take_means(&p);
    if (code == HL_EXIT_OK)
        code = write_model(&p);
    if (code == HL_EXIT_OK)
        code = report(&p);
    hl_prune_report_clear(&p.report);
    hl_head_list_free(p.heads);
    hl_tokenizer_close(p.tokenizer);
    hl_model_close(p.model);
    free(p.means);
    free(p.tokens);
    return code;
}
