/* cmd_eval.c - headlight eval: how well a model predicts texts, and at what cost.
 *
 *     files  ->  documents (eval_texts.c)  ->  tokens  ->  perplexity, and what else is wanted:
 *     last words, agreement with another model; then speed on the first tokens seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "command.h"
#include "corpus_options.h"
#include "eval_files.h"
#include "eval_print.h"
#include "eval_texts.h"
#include "gate_options.h"
#include "headlight.h"
#include "last_word.h"
#include "options.h"
#include "progress.h"
#include "prompt.h"

enum { SPEED_TOKENS = 512 };

typedef struct eval_request {
    hl_common         common;
    hl_arguments      arguments; /* the model, then texts */
    const char       *tokenizer_path;
    const char       *reference_path;
    const char       *special;
    int64_t           n_ctx;
    int64_t           stride;
    int64_t           max_tokens;
    bool              per_document;
    bool              last_word;
    bool              speed;
    hl_gate_arguments gates;
} eval_request;

typedef struct evaluation {
    const eval_request *request;
    hl_model           *model;
    hl_model           *reference; /* NULL: none, as the next */
    hl_agreement       *agreement;
    hl_tokenizer       *tokenizer;
    hl_around_tokens    around; /* each window; with --special window */
    hl_perplexity      *perplexity;
    hl_eval_text       *texts; /* (n_texts) */
    int                 n_texts;
    hl_eval_last_word   last_word;
    int64_t             first[SPEED_TOKENS]; /* tokens, for --speed */
    int64_t             n_first;
    hl_progress         progress;
    double              before; /* the share of the file that is done, and */
    double              part;   /* of it, the document that is being scored */
} evaluation;

/* A document's tokens, and what is found of each. */
typedef struct eval_tokens {
    int64_t *ids;     /* (n) */
    int64_t *n_bytes; /* (n) of the text */
    double  *nll;     /* (n) */
    int64_t *top;     /* (n) */
    int64_t  n;
} eval_tokens;

static const char description[] =
    "Measures how well a model predicts texts: mean negative log-likelihood in nats\n"
    "a token, perplexity, and bits a byte, with ranges of 95%.  Each TEXT is a\n"
    "file, \"-\" is standard input, and each line of a .jsonl file, { \"text\": ... },\n"
    "is a text of its own; windows never cross texts.\n"
    "\n"
    "A text is read in windows of --context tokens.  Each begins and ends with the\n"
    "tokens that the tokenizer adds (<bos>), if any: they take room and are not\n"
    "scored (--special).  Each token of the text is scored once, in the first window\n"
    "that has it, given what stands before it there.  With a --stride below --context\n"
    "windows overlap: slower, and every token has at least the difference as context.\n"
    "Without, the first of each is not scored, unless a special token stands before.\n"
    "\n"
    "With --reference, or with gates, predictions are compared with those of another\n"
    "model, or of the same one without gates: KL divergence from it, and how often\n"
    "both find the same token likeliest.";

static int check_request(const eval_request *request, const hl_usage *usage)
{
    if (request->arguments.count < 2)
        return hl_options_refuse(usage, request->arguments.count == 0 ? "no model given"
                                                                      : "no text given");
    if (request->n_ctx != 0 && request->stride > request->n_ctx)
        return hl_options_refuse(usage, "--stride %lld would leave gaps between windows of %lld",
                                 (long long)request->stride, (long long)request->n_ctx);
    return HL_OPTIONS_GO_ON;
}

static int parse_request(eval_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "context", 'c', HL_OPTION_INT, &request->n_ctx, "N",
          "tokens of a window (the model's, at most 4096)", 2, 1 << 30 },
        { "stride", 's', HL_OPTION_INT, &request->stride, "N",
          "from one window to the next (--context)", 1, 1 << 30 },
        { "max-tokens", 'n', HL_OPTION_INT, &request->max_tokens, "N",
          "the first N tokens of every text (all)", 1, INT64_MAX },
        HL_SPECIAL_OPTION(&request->special),
        { "per-document", 'd', HL_OPTION_FLAG, &request->per_document, NULL,
          "a line for every text, the hardest first", 0, 0 },
        { "last-word", 0, HL_OPTION_FLAG, &request->last_word, NULL,
          "how often the last word of a text is foretold, as LAMBADA", 0, 0 },
        { "reference", 'r', HL_OPTION_TEXT, &request->reference_path, "MODEL",
          "compare predictions with this model's", 0, 0 },
        { "speed", 0, HL_OPTION_FLAG, &request->speed, NULL,
          "time prefill and decoding; memory, bytes of files and cache", 0, 0 },
        { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
          "use this one instead of the model's own", 0, 0 },
        HL_GATE_OPTIONS(&request->gates),
        { 0 },
    };
    const hl_usage usage = { "eval", "MODEL TEXT...", description, options };
    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);

    return code == HL_OPTIONS_GO_ON ? check_request(request, &usage) : code;
}

static int fail(hl_status status)
{
    hl_complain("eval", "%s", hl_explain(status));
    return hl_exit_for(status);
}

static int out_of_memory(void)
{
    hl_complain("eval", "out of memory");
    return HL_EXIT_RESOURCES;
}

/* --------------------------------------------------------------------- opening */

static hl_status show_progress(void *context, int64_t n_tokens, int64_t n_total)
{
    evaluation *e     = context;
    double      share = n_total > 0 ? (double)n_tokens / (double)n_total : 0.0;

    hl_progress_update(&e->progress, e->before + share * e->part, n_tokens);
    return HL_OK;
}

static bool has_gates(const eval_request *request)
{
    return request->gates.path != NULL || request->gates.off != NULL;
}

/* Another model, or the same one with all heads as they are. */
static hl_status open_reference(evaluation *e)
{
    const eval_request  *request = e->request;
    const char          *path    = request->reference_path;
    hl_agreement_options options = { .n_threads = (int32_t)request->common.n_threads };

    if (path == NULL && has_gates(request))
        path = request->arguments.items[0];
    if (path == NULL)
        return HL_OK;
    options.n_ctx    = hl_perplexity_context(e->perplexity, &options.stride);
    options.around   = e->around;
    hl_status status = hl_model_open(&e->reference, path);
    if (status == HL_OK)
        status = hl_agreement_open(&e->agreement, e->model, e->reference, &options);
    return status;
}

static int open_tokenizer(evaluation *e)
{
    const char *asked  = e->request->tokenizer_path;
    const char *own    = hl_model_get_info(e->model)->tokenizer_path;
    hl_status   status = hl_tokenizer_open(&e->tokenizer, asked != NULL ? asked : own);

    if (status == HL_NOT_FOUND && asked == NULL) {
        hl_complain("eval", "%s (--tokenizer PATH gives one)", hl_error_message());
        return HL_EXIT_INPUT;
    }
    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static int open_evaluation(evaluation *e)
{
    const eval_request   *request = e->request;
    hl_perplexity_options options = { .n_ctx     = request->n_ctx,
                                      .stride    = request->stride,
                                      .n_threads = (int32_t)request->common.n_threads,
                                      .progress  = show_progress,
                                      .context   = e };
    hl_status             status  = hl_model_open(&e->model, request->arguments.items[0]);

    if (status == HL_OK)
        status = hl_gate_options_apply(e->model, &request->gates, "eval", request->common.quiet);
    if (status == HL_OK && hl_model_get_info(e->model)->is_encoder) /* it says why not */
        status = hl_perplexity_open(&e->perplexity, e->model, &options);
    int code = status == HL_OK ? open_tokenizer(e) : fail(status);
    if (code != HL_EXIT_OK)
        return code;
    if (hl_special_option(request->special) == HL_AROUND_WINDOW)
        e->around = hl_tokenizer_around(e->tokenizer);
    options.around = e->around;
    status         = hl_perplexity_open(&e->perplexity, e->model, &options);
    if (status == HL_OK)
        status = open_reference(e);
    return status == HL_OK ? HL_EXIT_OK : fail(status);
}

static void close_evaluation(evaluation *e)
{
    for (int i = 0; i < e->n_texts; i++)
        free(e->texts[i].name);
    free(e->texts);
    hl_agreement_close(e->agreement);
    hl_perplexity_close(e->perplexity);
    hl_tokenizer_close(e->tokenizer);
    hl_model_close(e->reference);
    hl_model_close(e->model);
}

/* ---------------------------------------------------------------------- tokens */

/* A token stands for what lies between the end of those before it and its own end, so
 * that every byte counts once, also of characters that several tokens share. */
static void count_bytes(int64_t *n_bytes, const hl_encoding *encoding)
{
    size_t end = 0;

    for (size_t i = 0; i < encoding->n_tokens; i++) {
        size_t to  = encoding->spans[i].end > end ? encoding->spans[i].end : end;
        n_bytes[i] = (int64_t)(to - end);
        end        = to;
    }
}

static void free_tokens(eval_tokens *tokens)
{
    free(tokens->ids);
    free(tokens->n_bytes);
    free(tokens->nll);
    free(tokens->top);
}

static int make_tokens(eval_tokens *out, const hl_encoding *encoding, int64_t most)
{
    size_t n = encoding->n_tokens;

    *out = (eval_tokens){ .ids     = malloc((n + 1) * sizeof *out->ids),
                          .n_bytes = malloc((n + 1) * sizeof *out->n_bytes),
                          .nll     = malloc((n + 1) * sizeof *out->nll),
                          .top     = malloc((n + 1) * sizeof *out->top),
                          .n       = most > 0 && most < (int64_t)n ? most : (int64_t)n };
    if (out->ids == NULL || out->n_bytes == NULL || out->nll == NULL || out->top == NULL)
        return out_of_memory();
    count_bytes(out->n_bytes, encoding);
    for (size_t i = 0; i < n; i++)
        out->ids[i] = encoding->ids[i];
    return HL_EXIT_OK;
}

/* ------------------------------------------------------------------- last word */

/* All tokens of the word must be scored, and it is right if each was the likeliest. */
static void judge_last_word(hl_eval_last_word *out, const eval_tokens *tokens,
                            const hl_encoding *encoding, const hl_eval_document *document)
{
    double nll   = 0.0;
    bool   right = true;
    size_t first = 0, count = 0;

    if (tokens->n != (int64_t)encoding->n_tokens ||
        !hl_last_word_find(&first, &count, encoding, document->text, document->n_bytes))
        return;
    for (size_t i = first; i < first + count; i++) {
        if (tokens->top[i] < 0)
            return;
        right = right && tokens->top[i] == tokens->ids[i];
        nll += tokens->nll[i];
    }
    out->n_words++;
    out->n_right += right;
    out->nll += nll;
}

/* ----------------------------------------------------------------------- texts */

static void keep_first(evaluation *e, const eval_tokens *tokens)
{
    for (size_t i = 0; e->n_first < SPEED_TOKENS && i < e->around.n_before && tokens->n > 0; i++)
        e->first[e->n_first++] = e->around.before[i];
    for (int64_t i = 0; i < tokens->n && e->n_first < SPEED_TOKENS; i++)
        e->first[e->n_first++] = tokens->ids[i];
}

static hl_status score_tokens(hl_nll *out, evaluation *e, const eval_tokens *tokens)
{
    hl_scored_text text   = { .tokens   = tokens->ids,
                              .n_tokens = tokens->n,
                              .n_bytes  = tokens->n_bytes,
                              .nll      = tokens->nll,
                              .top      = e->request->last_word ? tokens->top : NULL };
    hl_status      status = hl_perplexity_add(out, e->perplexity, &text);

    if (status == HL_OK && e->agreement != NULL && out->n_broken == 0)
        status = hl_agreement_add(e->agreement, tokens->ids, tokens->n);
    return status;
}

static int score_document(hl_nll *out, evaluation *e, const hl_eval_document *document)
{
    hl_encoding      *encoding = NULL;
    hl_encode_options options  = { .add_special = hl_special_option(e->request->special) ==
                                                  HL_AROUND_DOCUMENT };
    eval_tokens       tokens   = { 0 };
    hl_status         status =
        hl_tokenizer_encode(&encoding, e->tokenizer, document->text, document->n_bytes, &options);
    int code = status == HL_OK ? HL_EXIT_OK : fail(status);

    if (code == HL_EXIT_OK)
        code = hl_check_encoding(encoding, e->model, e->request->tokenizer_path, "eval");
    if (code == HL_EXIT_OK)
        code = make_tokens(&tokens, encoding, e->request->max_tokens);
    if (code == HL_EXIT_OK) {
        status = score_tokens(out, e, &tokens);
        code   = status == HL_OK ? HL_EXIT_OK : fail(status);
    }
    if (code == HL_EXIT_OK && e->request->last_word)
        judge_last_word(&e->last_word, &tokens, encoding, document);
    if (code == HL_EXIT_OK)
        keep_first(e, &tokens);
    free_tokens(&tokens);
    hl_encoding_free(encoding);
    return code;
}

/* Room for so many texts more, whose names go over to them. */
static int grow_texts(evaluation *e, int more)
{
    size_t        count = (size_t)e->n_texts + (size_t)more;
    hl_eval_text *texts = realloc(e->texts, (count + 1) * sizeof *texts);

    if (texts == NULL)
        return out_of_memory();
    e->texts = texts;
    return HL_EXIT_OK;
}

static int score_file(evaluation *e, const char *path)
{
    hl_eval_documents documents;
    int               code = hl_eval_documents_read(&documents, path, "eval");

    if (code == HL_EXIT_OK)
        code = grow_texts(e, documents.count);
    hl_progress_start(&e->progress, stderr, "scoring", e->request->common.quiet);
    for (int i = 0; i < documents.count && code == HL_EXIT_OK; i++) {
        hl_eval_text *text = &e->texts[e->n_texts++];

        *text                   = (hl_eval_text){ .name = documents.items[i].name };
        documents.items[i].name = NULL;
        e->before               = (double)i / documents.count;
        e->part                 = 1.0 / documents.count;
        code                    = score_document(&text->nll, e, &documents.items[i]);
        if (code == HL_EXIT_OK && text->nll.n_broken > 0)
            hl_complain("eval", "%s: %lld of %lld losses are not finite, the first at token %lld",
                        text->name, (long long)text->nll.n_broken, (long long)text->nll.n_scored,
                        (long long)text->nll.first_broken);
    }
    hl_progress_end(&e->progress);
    hl_eval_documents_free(&documents);
    return code;
}

/* --------------------------------------------------------------------- results */

static int measure_speed(hl_eval_speed *out, const evaluation *e)
{
    hl_speed_options options = { .n_threads = (int32_t)e->request->common.n_threads };
    struct rusage    usage;

    if (e->n_first < 2) {
        hl_complain("eval", "--speed: the texts have %lld tokens, wanted 2 or more",
                    (long long)e->n_first);
        return HL_EXIT_INPUT;
    }
    options.n_decode = e->n_first < 32 ? e->n_first : 32;
    hl_status status = hl_measure_speed(&out->speed, e->model, e->first, e->n_first, &options);
    if (status != HL_OK)
        return fail(status);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->peak_bytes = (size_t)usage.ru_maxrss * 1024; /* in KiB here */
    out->file_bytes = hl_eval_file_bytes(e->request->arguments.items[0]);
    out->kv_bytes   = hl_model_get_info(e->model)->kv_bytes_f32;
    return HL_EXIT_OK;
}

/* NULL where the tokenizer adds nothing: all ways are one. */
static const char *special_of(const evaluation *e)
{
    hl_around_tokens around = hl_tokenizer_around(e->tokenizer);
    hl_around        way    = hl_special_option(e->request->special);

    return around.n_before + around.n_after > 0 ? hl_around_name((size_t)way) : NULL;
}

static int print_report(const evaluation *e, const hl_eval_speed *speed)
{
    const eval_request *request   = e->request;
    hl_agreement_total  agreement = { 0 };
    hl_eval_report      report    = { .model        = request->arguments.items[0],
                                      .total        = hl_perplexity_total(e->perplexity),
                                      .texts        = e->texts,
                                      .n_texts      = e->n_texts,
                                      .per_document = request->per_document,
                                      .special      = special_of(e),
                                      .last_word    = request->last_word ? &e->last_word : NULL,
                                      .speed        = speed };

    report.n_ctx = hl_perplexity_context(e->perplexity, &report.stride);
    if (e->agreement != NULL) {
        agreement        = hl_agreement_get(e->agreement);
        report.agreement = &agreement;
        report.reference =
            request->reference_path != NULL ? request->reference_path : "the model without gates";
    }
    if (request->common.json)
        return hl_eval_print_json(&report) ? HL_EXIT_OK : out_of_memory();
    if (!request->common.quiet)
        hl_eval_print(&report);
    return HL_EXIT_OK;
}

int hl_command_eval(int argc, char **argv)
{
    eval_request  request = { 0 };
    evaluation    e       = { .request = &request };
    hl_eval_speed speed   = { 0 };
    int           code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    code = open_evaluation(&e);
    for (int i = 1; i < request.arguments.count && code == HL_EXIT_OK; i++)
        code = score_file(&e, request.arguments.items[i]);
    if (code == HL_EXIT_OK && request.speed)
        code = measure_speed(&speed, &e);
    if (code == HL_EXIT_OK)
        code = print_report(&e, request.speed ? &speed : NULL);
    if (code == HL_EXIT_OK && hl_perplexity_total(e.perplexity).n_broken > 0)
        code = HL_EXIT_INPUT; /* it has been said of each text */
    close_evaluation(&e);
    return code;
}
