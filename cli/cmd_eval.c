/* cmd_eval.c - headlight eval: how well a model predicts texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "eval_print.h"
#include "gate_options.h"
#include "headlight.h"
#include "input.h"
#include "options.h"
#include "progress.h"

typedef struct eval_request {
    hl_common         common;
    hl_arguments      arguments; /* the model, then texts */
    const char       *tokenizer_path;
    int64_t           n_ctx;
    int64_t           stride;
    int64_t           max_tokens;
    bool              per_document;
    hl_gate_arguments gates;
} eval_request;

typedef struct evaluation {
    const eval_request *request;
    hl_model           *model;
    hl_tokenizer       *tokenizer;
    hl_perplexity      *perplexity;
    hl_eval_text       *texts; /* (n_texts) */
    int                 n_texts;
    hl_progress         progress;
} evaluation;

static int parse_request(eval_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "context", 'c', HL_OPTION_INT, &request->n_ctx, "N",
          "tokens of a window (the model's, at most 4096)", 2, 1 << 30 },
        { "stride", 's', HL_OPTION_INT, &request->stride, "N",
          "from one window to the next (--context)", 1, 1 << 30 },
        { "max-tokens", 'n', HL_OPTION_INT, &request->max_tokens, "N",
          "the first N tokens of every text (all)", 1, INT64_MAX },
        { "per-document", 'd', HL_OPTION_FLAG, &request->per_document, NULL,
          "a line for every text", 0, 0 },
        { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
          "use this one instead of the model's own", 0, 0 },
        HL_GATE_OPTIONS(&request->gates),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "eval",
        .arguments = "MODEL TEXT...",
        .text = "Measures how well a model predicts texts: mean negative log-likelihood in nats\n"
                "a token, perplexity, and bits a byte, with ranges of 95%.  Each TEXT is a\n"
                "file, \"-\" is standard input; windows never cross texts.\n"
                "\n"
                "A text is read in windows of --context tokens.  Each token is scored once, in\n"
                "the first window that has it, given what stands before it there.  With a\n"
                "--stride below --context windows overlap: slower, and every token has at\n"
                "least the difference as context.  Without, the first of each is not scored.",
        .options = options,
    };
    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (request->arguments.count < 2)
        return hl_options_refuse(&usage, request->arguments.count == 0 ? "no model given"
                                                                       : "no text given");
    if (request->n_ctx != 0 && request->stride > request->n_ctx)
        return hl_options_refuse(&usage, "--stride %lld would leave gaps between windows of %lld",
                                 (long long)request->stride, (long long)request->n_ctx);
    return HL_OPTIONS_GO_ON;
}

static int fail(hl_status status)
{
    hl_complain("eval", "%s", hl_error_message());
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
    double share = n_total > 0 ? (double)n_tokens / (double)n_total : 0.0;

    hl_progress_update(&((evaluation *)context)->progress, share, n_tokens);
    return HL_OK;
}

static int open_evaluation(evaluation *e)
{
    const eval_request   *request = e->request;
    const char           *asked   = request->tokenizer_path;
    hl_perplexity_options options = { .n_ctx     = request->n_ctx,
                                      .stride    = request->stride,
                                      .n_threads = (int32_t)request->common.n_threads,
                                      .progress  = show_progress,
                                      .context   = e };
    hl_status             status  = hl_model_open(&e->model, request->arguments.items[0]);

    if (status == HL_OK)
        status = hl_gate_options_apply(e->model, &request->gates, "eval", request->common.quiet);
    if (status == HL_OK) /* before the tokenizer: it refuses encoders */
        status = hl_perplexity_open(&e->perplexity, e->model, &options);
    if (status != HL_OK)
        return fail(status);
    const char *own = hl_model_get_info(e->model)->tokenizer_path;
    status          = hl_tokenizer_open(&e->tokenizer, asked != NULL ? asked : own);
    if (status == HL_NOT_FOUND && asked == NULL) {
        hl_complain("eval", "%s (--tokenizer PATH gives one)", hl_error_message());
        return HL_EXIT_INPUT;
    }
    if (status != HL_OK)
        return fail(status);
    e->n_texts = request->arguments.count - 1;
    e->texts   = calloc((size_t)e->n_texts, sizeof *e->texts);
    return e->texts != NULL ? HL_EXIT_OK : out_of_memory();
}

static void close_evaluation(evaluation *e)
{
    free(e->texts);
    hl_perplexity_close(e->perplexity);
    hl_tokenizer_close(e->tokenizer);
    hl_model_close(e->model);
}

/* ----------------------------------------------------------------------- texts */

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

static int score_tokens(hl_nll *out, evaluation *e, const hl_encoding *encoding)
{
    size_t   n       = encoding->n_tokens;
    int64_t *tokens  = malloc((n + 1) * sizeof *tokens);
    int64_t *n_bytes = malloc((n + 1) * sizeof *n_bytes);
    int      code    = tokens != NULL && n_bytes != NULL ? HL_EXIT_OK : out_of_memory();

    if (code == HL_EXIT_OK) {
        int64_t most = e->request->max_tokens;
        count_bytes(n_bytes, encoding);
        for (size_t i = 0; i < n; i++)
            tokens[i] = encoding->ids[i];
        hl_scored_text text   = { .tokens   = tokens,
                                  .n_tokens = most > 0 && most < (int64_t)n ? most : (int64_t)n,
                                  .n_bytes  = n_bytes };
        hl_status      status = hl_perplexity_add(out, e->perplexity, &text);
        if (status != HL_OK) {
            hl_progress_end(&e->progress);
            code = fail(status);
        }
    }
    free(tokens);
    free(n_bytes);
    return code;
}

static int score_text(hl_eval_text *out, evaluation *e, const char *path)
{
    hl_input          input    = { 0 };
    hl_encoding      *encoding = NULL;
    hl_encode_options options  = { .add_special = true };
    int               code     = hl_input_read(&input, path, "eval");

    out->name = path;
    if (code == HL_EXIT_OK) {
        hl_status status =
            hl_tokenizer_encode(&encoding, e->tokenizer, input.bytes, input.n_bytes, &options);
        code = status == HL_OK ? HL_EXIT_OK : fail(status);
    }
    if (code == HL_EXIT_OK) {
        hl_progress_start(&e->progress, stderr, "scoring", e->request->common.quiet);
        code = score_tokens(&out->nll, e, encoding);
        hl_progress_end(&e->progress);
    }
    hl_encoding_free(encoding);
    hl_input_free(&input);
    return code;
}

static int report(const evaluation *e)
{
    hl_eval_report report = { .model        = e->request->arguments.items[0],
                              .total        = hl_perplexity_total(e->perplexity),
                              .texts        = e->texts,
                              .n_texts      = e->n_texts,
                              .per_document = e->request->per_document };

    report.n_ctx = hl_perplexity_context(e->perplexity, &report.stride);
    if (e->request->common.json)
        return hl_eval_print_json(&report) ? HL_EXIT_OK : out_of_memory();
    if (!e->request->common.quiet)
        hl_eval_print(&report);
    return HL_EXIT_OK;
}

int hl_command_eval(int argc, char **argv)
{
    eval_request request = { 0 };
    evaluation   e       = { .request = &request };
    int          code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    code = open_evaluation(&e);
    for (int i = 0; i < e.n_texts && code == HL_EXIT_OK; i++)
        code = score_text(&e.texts[i], &e, request.arguments.items[i + 1]);
    if (code == HL_EXIT_OK)
        code = report(&e);
    close_evaluation(&e);
    return code;
}
