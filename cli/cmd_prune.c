/* cmd_prune.c - headlight prune: writes a model without some of its heads. */
#include <jansson.h>
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
    int64_t           n_steps; /* number of steps of --iterative; 0: all heads are chosen at once */
    hl_choice         choice;
    bool              groups; /* query heads of a K/V head are removed together */
    bool              mean;
    int               form; /* index in forms[] */
    int               type; /* index in types[]; -1: matrices keep their types */
    const char       *output;
} prune_request;

/* The forms and types, in the order of the words of --as and --type. */
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
    hl_ranker            ranker;    /* AUTO: heads were named, or none are removed */
    float               *means;     /* (n_layers, n_heads, d_head) or NULL */
    hl_encoding         *text;      /* text of --mean */
    int64_t              n_tokens;  /* number of its tokens that are used */
    hl_tokenizer        *tokenizer; /* tokenizer of that text */
    hl_around_tokens     around;    /* tokens that the tokenizer puts around each window */
    mean_check           check;
    hl_prune_report      report;
} pruning;

/* ----------------------------------------------------------------- which heads */

/* With --iterative, each step disables the heads chosen so far, measures the texts again and ranks
 * the rest anew.  Heads chosen earlier are put in front of every new ranking.  Its first heads, up
 * to the count of the step, are then all heads chosen so far, and the limits of a choice apply to
 * all of them together. */

static bool is_listed(const hl_head_list *list, const hl_ranked *head)
{
    for (int64_t i = 0; i < list->n_heads; i++) {
        if (list->heads[i].layer == head->layer && list->heads[i].head == head->head)
            return true;
    }
    return false;
}

/* Moves the heads that were chosen before to the front; both parts keep their order. */
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

/* Returns the number of heads of the model. */
static int64_t count_heads(const hl_model *model)
{
    int64_t       n_heads = 0;
    hl_layer_info layer;

    for (int64_t i = 0; hl_model_get_layer(&layer, model, i) == HL_OK; i++)
        n_heads += layer.n_heads;
    return n_heads;
}

/* Returns the requested ranker, with AUTO resolved by the share of heads that are removed. */
static hl_ranker ranker_of(const hl_model *model, const prune_request *request)
{
    double ratio = request->choice.ratio;

    if (request->ranker != HL_RANKER_AUTO)
        return request->ranker;
    if (ratio <= 0.0)
        ratio = (double)request->choice.count / (double)count_heads(model);
    return hl_ranker_default(model, request->texts.count > 0, ratio);
}

static hl_status rank(hl_ranking **out, const hl_model *model, const prune_request *request)
{
    HL_KEPT(hl_evidence_free) hl_evidence evidence = { 0 };

    hl_rank_options     options = { .seed = request->common.seed };
    hl_evidence_request wanted  = { .ranker         = ranker_of(model, request),
                                    .texts          = request->texts.items,
                                    .n_texts        = (size_t)request->texts.count,
                                    .tokenizer_path = request->tokenizer_path,
                                    .windows        = request->windows,
                                    .n_threads      = request->common.n_threads,
                                    .quiet          = request->common.quiet };

    if (request->profile_path != NULL)
        HL_NEED(hl_profile_load(&evidence.profile, request->profile_path));
    if (request->texts.count > 0)
        HL_NEED(hl_evidence_from_texts(&evidence, model, &wanted));
    HL_NEED(hl_evidence_rank(out, &evidence, wanted.ranker, model, &options));
    return request->groups ? hl_ranking_group(*out, model) : HL_OK;
}

/* Chooses the first heads of a ranking under the model's current gates; *list has the heads chosen
 * before. */
static hl_status choose_step(hl_head_list **list, const hl_model *model,
                             const prune_request *request, const hl_choice *step)
{
    HL_HELD(hl_ranking_free) hl_ranking *ranking = NULL;
    hl_head_list                        *chosen  = NULL;

    HL_NEED(rank(&ranking, model, request));
    if (*list != NULL)
        put_first(ranking, *list);
    HL_NEED(hl_ranking_choose(&chosen, ranking, step));
    hl_head_list_free(*list);
    *list = chosen;
    return HL_OK;
}

static hl_status choose_steps(hl_head_list **list, hl_model *model, const prune_request *request)
{
    HL_HELD(hl_gates_free) hl_gates *gates = NULL;
    hl_choice                        step  = request->choice;
    int64_t                          total = step.count;

    if (step.ratio > 0.0)
        total = (int64_t)(step.ratio * (double)count_heads(model) + 0.5);
    step.ratio = 0.0;
    HL_NEED(hl_gates_new(&gates, model));
    for (int64_t i = 1; i <= request->n_steps; i++) {
        step.count = total * i / request->n_steps;
        HL_NEED(choose_step(list, model, request, &step));
        hl_gates_set(gates, *list, 0.0f);
        HL_NEED(hl_model_set_gates(model, gates->values));
    }
    return HL_OK;
}

/* Chooses heads in steps.  This sets the model's gates, and resets them at the end. */
static hl_status choose_iteratively(hl_head_list **list, hl_model *model,
                                    const prune_request *request)
{
    hl_status status = choose_steps(list, model, request);

    if (hl_model_set_gates(model, NULL) != HL_OK && status == HL_OK)
        status = HL_BAD_ARGUMENT;
    return status;
}

/* Returns true if the model is written with all of its heads. */
static bool takes_none(const prune_request *request)
{
    return request->heads == NULL && request->choice.ratio <= 0.0 && request->choice.count == 0;
}

static hl_status choose_heads(pruning *p)
{
    const prune_request *request = p->request;

    if (request->heads != NULL)
        return hl_head_list_parse(&p->heads, p->model, request->heads);
    if (takes_none(request)) /* no head is removed, so any order works, and this one requires no
                              * evidence */
        return choose_step(&p->heads, p->model, &(prune_request){ .ranker = HL_RANKER_RANDOM },
                           &(hl_choice){ 0 });
    p->ranker = ranker_of(p->model, request);
    return request->n_steps > 0 ? choose_iteratively(&p->heads, p->model, request)
                                : choose_step(&p->heads, p->model, request, &request->choice);
}

/* --------------------------------------------------------------------- options */

/* Checks that the ranker has the inputs that it requires. */
static int check_ranker(prune_request *request, const hl_usage *usage)
{
    bool has_text = request->texts.count > 0;

    HL_PASS(hl_ranker_option(&request->ranker, usage, "by", request->by));
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
    if (request->ranker == HL_RANKER_ABLATION && !has_text)
        return hl_options_refuse(usage, "--by %s needs --text FILE to disable heads on",
                                 request->by);
    return HL_EXIT_OK;
}

static int check_request(prune_request *request, const hl_usage *usage)
{
    int n_ways = (request->heads != NULL) + (request->ratio >= 0.0) + (request->count >= 0);

    if (request->models.count != 1)
        return hl_options_refuse(usage, request->models.count == 0 ? "no MODEL given"
                                                                   : "more than one MODEL given");
    if (n_ways != 1)
        return hl_options_refuse(usage, "give one of --ratio, --count and --heads");
    if (request->output == NULL)
        return hl_options_refuse(usage, "-o OUT is missing: the folder or file to write");
    if (request->mean && request->texts.count == 0)
        return hl_options_refuse(usage, "--mean needs --text FILE to take the means over");
    if (request->n_steps > 0 &&
        (request->heads != NULL || request->texts.count == 0 || request->profile_path != NULL))
        return hl_options_refuse(usage, "--iterative measures after each step: it needs --text "
                                        "FILE, and cannot be combined with --heads or --profile");
    if (request->type >= 0 &&
        (forms[request->form] == HL_PRUNE_MASKED || forms[request->form] == HL_PRUNE_COMPACT))
        return hl_options_refuse(usage,
                                 "--type applies to GGUF files only; folders keep their types");
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
    "  masked   a folder of the same shapes, with the heads zeroed: their columns of\n"
    "           the output projections are zero.  Loads wherever the model does, and\n"
    "           saves nothing\n"
    "  auto     gguf if OUT ends in .gguf or the model is a file; else compact, or\n"
    "           masked for a family that cannot be compacted\n"
    "\n"
    "--count 0 --as gguf converts a model without removing heads.\n"
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
        HL_INT("per-layer-max", 0, &request->choice.per_layer_max, "N",
               "remove at most N heads per layer", 1, INT64_MAX),
        HL_FLAG("groups", 0, &request->groups, "remove all query heads of a KV head together"),
        HL_FLAG("empty-layers", 0, &request->choice.empty_layers, "allow layers to lose all heads"),
        HL_FLAG("mean", 'm', &request->mean, "keep the heads' mean output as a bias"),
        HL_INT("max-tokens", 0, &request->windows.max_tokens, "N",
               "use at most N tokens of --text (16384)", 2, INT64_MAX),
        HL_SPECIAL_OPTION(&request->windows.around),
        HL_ENUM("as", 'a', &request->form, "auto|compact|masked|gguf",
                "what to write (auto: the form that saves memory)"),
        HL_ENUM("type", 0, &request->type, "f32|f16|bf16|q8_0|q4_0",
                "type of the matrices in a GGUF file (as stored)"),
        HL_TEXT("tokenizer", 0, &request->tokenizer_path, "PATH",
                "tokenizer to use, and to write to a GGUF file"),
        HL_TEXT("output", 'o', &request->output, "OUT", "folder or file to write"),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "prune",
        .arguments = "MODEL (--ratio R | --count N | --heads L5H1,...) -o OUT",
        .text      = help,
        .options   = options,
    };
    HL_PASS(hl_options_parse(&request->models, &request->common, &usage, argc, argv));
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
    HL_NEED(hl_model_open(&written, p->request->output));
    HL_NEED(score(&p->check.mean, p, written, NULL));
    p->check.done = true;
    return HL_OK;
}

/* ------------------------------------------------------------ what was written */

static void print_row(const char *what, double before, double after)
{
    double change = before > 0.0 ? 100.0 * (after - before) / before : 0.0;

    printf("  %-18s %14.0f %14.0f %8.1f%%\n", what, before, after, change + 0.0);
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

/* Prints the tensors that share a name as "blk.0-3,7.attn_q.weight", from tensors[first] on, and
 * marks them as printed. */
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

/* Prints the types that all tensors of one kind share, the reason, and the cost. */
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

/* Prints matrices that could not get their type, and those that grew. */
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

/* Returns the ranker's name; NULL if nothing was ranked. */
static const char *ranker_name(const pruning *p)
{
    return p->ranker != HL_RANKER_AUTO ? hl_ranker_name((size_t)p->ranker) : NULL;
}

static void print_story(const pruning *p)
{
    const hl_prune_report *report   = &p->report;
    const hl_model_info   *before   = hl_model_get_info(p->model);
    const char            *by       = ranker_name(p);
    const char            *verdict  = hl_ranker_verdict((size_t)p->ranker);
    int64_t                n_zeroed = report->n_pruned - report->n_gone;

    printf("%s  %s: ", hl_shown(p->request->output), hl_prune_form_name(report->form));
    if (report->n_gone > 0 || n_zeroed == 0)
        printf("removed %lld", (long long)report->n_gone);
    if (n_zeroed > 0)
        printf("%s %lld", report->n_gone > 0 ? " and zeroed" : "zeroed", (long long)n_zeroed);
    printf(" of %lld heads%s%s\n\n", (long long)count_heads(p->model), by != NULL ? "; by " : "",
           by != NULL ? by : "");
    print_heads(p->heads);
    printf("  %-18s %14s %14s\n", "", "before", "after");
    print_row("parameters", (double)before->n_params, (double)report->n_params);
    print_row("bytes", (double)before->tensor_bytes, (double)report->tensor_bytes);
    if (!before->is_encoder)
        print_row("KV bytes per token", (double)before->kv_bytes_f16, (double)report->kv_bytes_f16);
    printf("\n  Loads in headlight and in %s.\n", report->loads);
    if (report->vocab[0] != '\0')
        printf("  %s: %s.\n", report->has_vocab ? "Vocabulary" : "No vocabulary",
               hl_shown(report->vocab));
    if (verdict != NULL)
        printf("  %s\n", verdict);
    if (n_zeroed > 0)
        printf("  A zeroed head saves neither time nor memory.\n");
    if (p->check.done)
        printf("\n"
               "  nats/token   %.4f with all heads, %.4f with heads zeroed, %.4f with their mean "
               "output\n"
               "  kept (on %lld tokens of the text that gave the means)\n",
               p->check.whole.mean, p->check.zero.mean, p->check.mean.mean,
               (long long)p->check.whole.n_scored);
    print_tensors(report);
    if (report->form_note[0] != '\0')
        printf("\n  Written as masked, which saves nothing: %s.\n", hl_shown(report->form_note));
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
            HL_IS("loads", report->loads),
            HL_IS(report->has_vocab ? "vocabulary_note" : "no_vocabulary", if_said(report->vocab)),
            HL_IS("verdict", if_said(hl_ranker_verdict((size_t)p->ranker))),
            HL_IS("form_note", if_said(report->form_note)),
            HL_IS("file_type", is_gguf ? json_string(hl_dtype_name(report->file_type)) : NULL),
            HL_IS("other_types", is_gguf ? json_integer(count_fallen_back(report)) : NULL),
            HL_IS("tensors", is_gguf ? tensors_json(report) : NULL),
            HL_IS("nats_per_token", losses)),
        JSON_INDENT(2));
}

/* ----------------------------------------------------------------- the command */

static hl_prune_options write_options(const pruning *p)
{
    const prune_request *request = p->request;

    return (hl_prune_options){ .form           = forms[request->form],
                               .dtype          = request->type >= 0 ? types[request->type] : 0,
                               .convert        = request->type >= 0,
                               .means          = p->means,
                               .tokenizer_path = request->tokenizer_path };
}

/* Errors that need no ranking come first. */
static hl_status open_model(pruning *p)
{
    static const float some = 0.0f;

    HL_NEED(hl_model_open(&p->model, p->request->models.items[0]));
    hl_prune_options options = write_options(p);
    if (p->request->mean)
        options.means = &some; /* any pointer: hl_prune_check only tests whether means are wanted */
    return hl_prune_check(p->model, &options, p->request->output);
}

static int prune(pruning *p)
{
    const prune_request *request = p->request;

    HL_CALL("prune", open_model(p));
    HL_CALL("prune", choose_heads(p));
    if (request->mean)
        HL_PASS(take_means(p));
    hl_prune_options options = write_options(p);
    HL_CALL("prune", hl_prune_write(&p->report, p->model, p->heads, &options, request->output));
    HL_CALL("prune", check_means(p));
    if (request->common.json)
        return print_json(p);
    if (!request->common.quiet)
        print_story(p);
    return HL_EXIT_OK;
}

int hl_command_prune(int argc, char **argv)
{
    prune_request request = {
        .ratio = -1.0, .count = -1, .type = -1, .by = "auto", .windows = { .max_tokens = 16384 }
    };
    pruning p = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    int code = prune(&p);
    hl_prune_report_clear(&p.report);
    hl_head_list_free(p.heads);
    hl_tokenizer_close(p.tokenizer);
    hl_model_close(p.model);
    free(p.means);
    hl_encoding_free(p.text);
    return code;
}
