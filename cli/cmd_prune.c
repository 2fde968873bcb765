/* cmd_prune.c - headlight prune: a model without some of its heads. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "evidence.h"
#include "headlight.h"
#include "input.h"
#include "options.h"
#include "shared_options.h"
#include "values.h"

typedef struct prune_choice {
    const char        *heads; /* "L5H1,L7", or NULL and what follows */
    hl_ranker          ranker;
    const char        *profile_path; /* NULL: measure the texts */
    const char *const *texts;        /* (n_texts) */
    size_t             n_texts;
    const char        *tokenizer_path; /* NULL: the model's */
    hl_window_options  windows;
    int64_t            n_steps; /* of --iterative; 0: at once */
    hl_choice          choice;
    bool               groups; /* query heads of a K/V head go together */
    uint64_t           seed;
    int32_t            n_threads;
    bool               quiet;
} prune_choice;

/* With --mean: nats a token on its text. */
typedef struct mean_check {
    bool    done;
    int64_t n_scored;
    double  whole; /* all heads */
    double  zero;  /* the heads off */
    double  mean;  /* the model that was written */
} mean_check;

typedef struct prune_story {
    const char            *model_path;
    const char            *output;
    const char            *form;
    hl_ranker              ranker; /* AUTO: heads were named, or none were taken */
    const hl_model_info   *before;
    const hl_prune_report *report;
    const hl_head_list    *heads;
    int64_t                n_heads; /* of the model */
    mean_check             check;
} prune_story;

typedef struct prune_request {
    hl_common      common;
    hl_arguments   models;
    prune_choice   choice;
    hl_option_list texts;
    double         ratio; /* -1: not given, as the count */
    int64_t        count;
    const char    *by;
    bool           mean;
    const char    *special;
    const char    *form;
    const char    *type;
    const char    *output;
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

/* ----------------------------------------------------------------- which heads */

/* With --iterative the heads that have gone are switched off, the texts measured again and
 * the rest ranked anew.  Those that went before are put in front of every new ranking, so
 * that its first heads, up to the count of the step, are all that are gone by then, and the
 * limits of a choice hold for them together. */

static bool is_listed(const hl_head_list *list, const hl_ranked *head)
{
    for (int64_t i = 0; i < list->n_heads; i++) {
        if (list->heads[i].layer == head->layer && list->heads[i].head == head->head)
            return true;
    }
    return false;
}

/* Those that are gone first, each part in its order. */
static void put_first(hl_ranking *ranking, const hl_head_list *gone)
{
    int64_t n_front = 0;

    for (int64_t i = 0; i < ranking->n_heads; i++) {
        hl_ranked head = ranking->heads[i];
        if (!is_listed(gone, &head))
            continue;
        memmove(&ranking->heads[n_front + 1], &ranking->heads[n_front],
                (size_t)(i - n_front) * sizeof head);
        ranking->heads[n_front++] = head;
    }
}

/* So many heads as the model has. */
static int64_t count_heads(const hl_model *model)
{
    int64_t       n_heads = 0;
    hl_layer_info layer;

    for (int64_t i = 0; hl_model_get_layer(&layer, model, i) == HL_OK; i++)
        n_heads += layer.n_heads;
    return n_heads;
}

/* What the choice says, with auto settled by the share of heads that it takes. */
static hl_ranker ranker_of(const hl_model *model, const prune_choice *choice)
{
    double ratio = choice->choice.ratio;

    if (choice->ranker != HL_RANKER_AUTO)
        return choice->ranker;
    if (ratio <= 0.0)
        ratio = (double)choice->choice.count / (double)count_heads(model);
    return hl_ranker_default(model, choice->n_texts > 0, ratio);
}

static hl_status rank(hl_ranking **out, const hl_model *model, const prune_choice *choice)
{
    hl_evidence         evidence = { 0 };
    hl_rank_options     options  = { .seed = choice->seed };
    hl_ranker           ranker   = ranker_of(model, choice);
    hl_evidence_request request  = { .ranker         = ranker,
                                     .texts          = choice->texts,
                                     .n_texts        = choice->n_texts,
                                     .tokenizer_path = choice->tokenizer_path,
                                     .windows        = choice->windows,
                                     .n_threads      = choice->n_threads,
                                     .quiet          = choice->quiet };
    hl_status           status   = HL_OK;

    *out = NULL;
    if (choice->profile_path != NULL)
        status = hl_profile_load(&evidence.profile, choice->profile_path);
    if (status == HL_OK && choice->n_texts > 0)
        status = hl_evidence_from_texts(&evidence, model, &request);
    if (status == HL_OK)
        status = hl_evidence_rank(out, &evidence, ranker, model, &options);
    if (status == HL_OK && choice->groups)
        status = hl_ranking_group(*out, model);
    hl_evidence_free(&evidence);
    return status;
}

/* The first heads of a ranking of the model as its gates are. */
static hl_status choose_step(hl_head_list **list, const hl_model *model, const prune_choice *choice,
                             const hl_choice *step)
{
    hl_ranking   *ranking = NULL;
    hl_head_list *chosen  = NULL;
    hl_status     status  = rank(&ranking, model, choice);

    if (status == HL_OK && *list != NULL)
        put_first(ranking, *list);
    if (status == HL_OK)
        status = hl_ranking_choose(&chosen, ranking, step);
    if (status == HL_OK) {
        hl_head_list_free(*list);
        *list = chosen;
    }
    hl_ranking_free(ranking);
    return status;
}

/* So many heads as the whole choice takes. */
static int64_t wanted_count(const hl_model *model, const hl_choice *choice)
{
    int64_t n_heads = count_heads(model);

    return choice->ratio > 0.0 ? (int64_t)(choice->ratio * (double)n_heads + 0.5) : choice->count;
}

static hl_status choose_iteratively(hl_head_list **list, hl_model *model,
                                    const prune_choice *choice)
{
    int64_t   total  = wanted_count(model, &choice->choice);
    hl_gates *gates  = NULL;
    hl_status status = hl_gates_new(&gates, model);

    for (int64_t i = 1; i <= choice->n_steps && status == HL_OK; i++) {
        hl_choice step = choice->choice;

        step.ratio = 0.0;
        step.count = total * i / choice->n_steps;
        status     = choose_step(list, model, choice, &step);
        if (status == HL_OK) {
            hl_gates_set(gates, *list, 0.0f);
            status = hl_model_set_gates(model, gates->values);
        }
    }
    if (hl_model_set_gates(model, NULL) != HL_OK && status == HL_OK)
        status = HL_BAD_ARGUMENT;
    hl_gates_free(gates);
    return status;
}

/* Is the model to be written with all of its heads? */
static bool takes_none(const prune_choice *choice)
{
    return choice->heads == NULL && choice->choice.ratio <= 0.0 && choice->choice.count == 0;
}

/* Released with hl_head_list_free.  *used is the ranker, AUTO where there was nothing to rank.  The
 * model's gates are used on the way, and open again afterwards. */
static hl_status choose(hl_head_list **out, hl_ranker *used, hl_model *model,
                        const prune_choice *choice)
{
    hl_head_list *list   = NULL;
    hl_status     status = HL_OK;

    *out  = NULL;
    *used = HL_RANKER_AUTO;
    if (choice->heads != NULL)
        return hl_head_list_parse(out, model, choice->heads);
    if (!takes_none(choice))
        *used = ranker_of(model, choice);
    if (takes_none(choice)) /* then any order will do, and this one needs no evidence */
        status = choose_step(&list, model, &(prune_choice){ .ranker = HL_RANKER_RANDOM },
                             &(hl_choice){ 0 });
    else if (choice->n_steps > 0)
        status = choose_iteratively(&list, model, choice);
    else
        status = choose_step(&list, model, choice, &choice->choice);
    if (status == HL_OK)
        *out = list;
    else
        hl_head_list_free(list);
    return status;
}

/* --------------------------------------------------------------------- options */

/* Which ranker, and does it have what it needs? */
static int check_ranker(prune_request *request, const hl_usage *usage)
{
    prune_choice *choice = &request->choice;
    int           code   = hl_ranker_option(&choice->ranker, usage, "by", request->by);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (takes_none(choice))
        return HL_OPTIONS_GO_ON; /* nothing to rank */
    if (choice->heads == NULL && choice->ranker == HL_RANKER_AUTO && choice->profile_path == NULL &&
        choice->n_texts == 0)
        return hl_options_refuse(usage, "which heads go first?  Give --text FILE to rank them on, "
                                        "or --profile PROFILE");
    if (choice->heads == NULL && (hl_ranker_needs(choice->ranker) & HL_NEEDS_PROFILE) != 0 &&
        choice->profile_path == NULL && choice->n_texts == 0)
        return hl_options_refuse(
            usage, "--by %s needs --profile PROFILE, or --text FILE to measure", request->by);
    if (choice->heads == NULL && (hl_ranker_needs(choice->ranker) & HL_NEEDS_GRADIENT) != 0 &&
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
    prune_choice   *choice    = &request->choice;
    const hl_option options[] = {
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

/* ----------------------------------------------------------------------- means */

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
static int check_means(mean_check *check, const pruning *p)
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
    *check = (mean_check){ true, whole.n_scored, whole.mean, zero.mean, mean.mean };
    return HL_EXIT_OK;
}

/* ------------------------------------------------------------ what was written */

static void print_row(const char *what, double before, double after)
{
    double change = before > 0.0 ? 100.0 * (after - before) / before : 0.0;

    printf("  %-12s %14.0f %14.0f %8.1f%%\n", what, before, after, change + 0.0);
}

static void print_heads(const hl_head_list *heads)
{
    int column = 0;

    for (int64_t i = 0; i < heads->n_heads; i++) {
        char name[48];
        int  n = snprintf(name, sizeof name, "L%lldH%lld", (long long)heads->heads[i].layer,
                          (long long)heads->heads[i].head);

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

/* "blk.12.attn_q.weight" is layer 12 and "attn_q.weight"; -1 and the name for other tensors. */
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

/* The tensors of one name as "blk.0-3,7.attn_q.weight", from tensors[first] on; true for each that
 * was printed. */
static void print_names(bool *printed, const hl_prune_report *report, int64_t first)
{
    const hl_prune_tensor *one  = &report->tensors[first];
    const char            *rest = NULL;
    long                   from = layer_of(&rest, one->name);
    long                   last = from;

    printed[first] = true;
    if (from < 0) {
        printf("    %s\n", one->name);
        return;
    }
    printf("    blk.%ld", from);
    for (int64_t i = first + 1; i < report->n_tensors; i++) {
        const char *other = NULL;
        long        layer = layer_of(&other, report->tensors[i].name);

        if (!is_alike(one, &report->tensors[i]) || layer < 0 || strcmp(other, rest) != 0)
            continue;
        printed[i] = true;
        if (layer != last + 1) {
            if (last > from)
                printf("-%ld", last);
            printf(",%ld", layer);
            from = layer;
        }
        last = layer;
    }
    if (last > from)
        printf("-%ld", last);
    printf(".%s\n", rest);
}

/* What all tensors of one kind have in common: their types, why, and what that costs. */
static void print_kind(const hl_prune_report *report, const hl_prune_tensor *kind)
{
    int64_t count  = 0;
    double  growth = 0.0;

    for (int64_t i = 0; i < report->n_tensors; i++) {
        if (is_alike(kind, &report->tensors[i])) {
            count++;
            growth +=
                (double)report->tensors[i].written_bytes - (double)report->tensors[i].stored_bytes;
        }
    }
    printf("\n  %lld tensor%s stored as %s %s now %s", (long long)count, count == 1 ? "" : "s",
           hl_dtype_name(kind->stored), count == 1 ? "is" : "are", hl_dtype_name(kind->written));
    if (kind->why[0] != '\0')
        printf(", not %s", hl_dtype_name(kind->wanted));
    printf(" (%+.0f bytes)", growth);
    if (kind->why[0] != '\0')
        printf(":\n  %s\n", kind->why);
    else
        printf(", as --type asks\n");
}

/* Matrices that could not have their type, and those that grew. */
static void print_tensors(const hl_prune_report *report)
{
    bool *printed = calloc((size_t)report->n_tensors + 1, sizeof *printed);

    for (int64_t i = 0; printed != NULL && i < report->n_tensors; i++) {
        if (printed[i])
            continue;
        print_kind(report, &report->tensors[i]);
        for (int64_t k = i; k < report->n_tensors; k++) {
            if (!printed[k] && is_alike(&report->tensors[i], &report->tensors[k]))
                print_names(printed, report, k);
        }
    }
    free(printed);
}

/* --------------------------------------------------------------------- as text */

/* NULL: nothing was ranked. */
static const char *ranker_name(const prune_story *story)
{
    return story->ranker != HL_RANKER_AUTO ? hl_ranker_name((size_t)story->ranker) : NULL;
}

static void print_story(const prune_story *story)
{
    const hl_prune_report *report   = story->report;
    const char            *by       = ranker_name(story);
    const char            *verdict  = hl_ranker_verdict((size_t)story->ranker);
    int64_t                n_zeroed = report->n_pruned - report->n_gone;

    printf("%s  %s: %lld of %lld heads pruned, %lld gone, %lld zeroed%s%s\n\n",
           hl_shown(story->output), story->form, (long long)report->n_pruned,
           (long long)story->n_heads, (long long)report->n_gone, (long long)n_zeroed,
           by != NULL ? "; by " : "", by != NULL ? by : "");
    print_heads(story->heads);
    printf("  %-12s %14s %14s\n", "", "before", "after");
    print_row("parameters", (double)story->before->n_params, (double)report->n_params);
    print_row("bytes", (double)story->before->tensor_bytes, (double)report->tensor_bytes);
    if (!story->before->is_encoder)
        print_row("K/V a token", (double)story->before->kv_bytes_f16, (double)report->kv_bytes_f16);
    printf("\n  Opened by headlight, and by %s.\n", report->loads);
    if (report->vocab[0] != '\0')
        printf("  %s: %s.\n", report->has_vocab ? "Its vocabulary" : "No vocabulary",
               hl_shown(report->vocab));
    if (verdict != NULL)
        printf("  %s\n", verdict);
    if (n_zeroed > 0)
        printf("  A head that is zeroed saves no time and no memory.\n");
    if (story->check.done)
        printf("\n  nats/token   %.4f whole, %.4f with zero, %.4f with means  (%lld tokens of the "
               "text\n  that the means are of)\n",
               story->check.whole, story->check.zero, story->check.mean,
               (long long)story->check.n_scored);
    print_tensors(report);
    if (report->form_note[0] != '\0')
        printf("\n  Masked, which saves nothing: %s.\n", hl_shown(report->form_note));
}

/* --------------------------------------------------------------------- as JSON */

static json_t *heads_json(const hl_head_list *heads)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < heads->n_heads; i++) {
        char name[48];
        snprintf(name, sizeof name, "L%lldH%lld", (long long)heads->heads[i].layer,
                 (long long)heads->heads[i].head);
        json_array_append_new(list, json_string(name));
    }
    return list;
}

static json_t *sizes_json(int64_t n_params, size_t n_bytes, size_t kv_bytes)
{
    return json_pack("{s:I, s:I, s:I}", "parameters", (json_int_t)n_params, "tensor_bytes",
                     (json_int_t)n_bytes, "kv_bytes_f16", (json_int_t)kv_bytes);
}

/* Every tensor that could not have its type, or grew. */
static json_t *tensors_json(const hl_prune_report *report)
{
    json_t *list = json_array();

    for (int64_t i = 0; i < report->n_tensors; i++) {
        const hl_prune_tensor *tensor = &report->tensors[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s?}", "name",
                                              tensor->name, "stored", hl_dtype_name(tensor->stored),
                                              "wanted", hl_dtype_name(tensor->wanted), "written",
                                              hl_dtype_name(tensor->written), "stored_bytes",
                                              (json_int_t)tensor->stored_bytes, "written_bytes",
                                              (json_int_t)tensor->written_bytes, "why",
                                              tensor->why[0] != '\0' ? tensor->why : NULL));
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

/* An exit status. */
static int print_json(const prune_story *story)
{
    const hl_prune_report *report = story->report;
    const hl_model_info   *before = story->before;
    json_t                *root =
        json_pack("{s:o, s:o, s:s, s:s?, s:I, s:I, s:I, s:o, s:o, s:o, s:s}", "model",
                  hl_value_name(story->model_path), "output", hl_value_name(story->output), "as",
                  story->form, "by", ranker_name(story), "heads", (json_int_t)story->n_heads,
                  "pruned", (json_int_t)report->n_pruned, "gone", (json_int_t)report->n_gone,
                  "pruned_heads", heads_json(story->heads), "before",
                  sizes_json(before->n_params, before->tensor_bytes, before->kv_bytes_f16), "after",
                  sizes_json(report->n_params, report->tensor_bytes, report->kv_bytes_f16), "loads",
                  report->loads);

    if (root != NULL && report->vocab[0] != '\0')
        json_object_set_new(root, report->has_vocab ? "vocabulary_note" : "no_vocabulary",
                            json_string(report->vocab));
    if (root != NULL && hl_ranker_verdict((size_t)story->ranker) != NULL)
        json_object_set_new(root, "verdict", json_string(hl_ranker_verdict((size_t)story->ranker)));
    if (root != NULL && report->form_note[0] != '\0')
        json_object_set_new(root, "form_note", json_string(report->form_note));
    if (root != NULL && report->form == HL_PRUNE_GGUF) {
        json_object_set_new(root, "file_type", json_string(hl_dtype_name(report->file_type)));
        json_object_set_new(root, "other_types", json_integer(count_fallen_back(report)));
        json_object_set_new(root, "tensors", tensors_json(report));
    }
    if (root != NULL && story->check.done)
        json_object_set_new(root, "nats_per_token",
                            json_pack("{s:f, s:f, s:f, s:I}", "whole", story->check.whole, "zero",
                                      story->check.zero, "mean", story->check.mean, "tokens",
                                      (json_int_t)story->check.n_scored));
    if (!hl_put_json(root, JSON_INDENT(2))) {
        json_decref(root);
        hl_complain("prune", "out of memory");
        return HL_EXIT_RESOURCES;
    }
    printf("\n");
    json_decref(root);
    return HL_EXIT_OK;
}

/* ----------------------------------------------------------------- the command */

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
    hl_status status = choose(&p->heads, &p->ranker, p->model, &p->request->choice);

    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static int write_model(pruning *p)
{
    hl_prune_options options = write_options(p);
    hl_status status = hl_prune_write(&p->report, p->model, p->heads, &options, p->request->output);

    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static int report(const pruning *p)
{
    const prune_request *request = p->request;
    prune_story          story   = { .model_path = request->models.items[0],
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
        return print_json(&story);
    if (!request->common.quiet)
        print_story(&story);
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
