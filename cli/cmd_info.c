/* cmd_info.c - headlight info: what a model file is. */
#include <stdio.h>

#include "command.h"
#include "headlight.h"
#include "info_print.h"
#include "options.h"

static int fail(hl_status status)
{
    hl_complain("info", "%s", hl_explain(status));
    return hl_exit_for(status);
}

/* The tokenizer that was asked for, or the model's own.  The model is shown all the
 * same where its own is none that we understand, with `problem` in place of it. */
static hl_status open_tokenizer(hl_tokenizer **out, char *problem, size_t n_problem,
                                const hl_model *model, const char *asked)
{
    const char *own    = hl_model_get_info(model)->tokenizer_path;
    hl_status   status = hl_tokenizer_open(out, asked != NULL ? asked : own);

    if (status == HL_OK || asked != NULL || status == HL_NO_MEMORY || status == HL_IO)
        return status;
    if (status != HL_NOT_FOUND)
        snprintf(problem, n_problem, "%s", hl_error_message());
    return HL_OK;
}

/* What a session with a cache in f16 would hold; without logits where there is no head. */
static hl_status measure_memory(hl_session_memory *out, const hl_model *model,
                                const hl_common *common, int64_t n_ctx)
{
    hl_session_options options = { .n_ctx = n_ctx != 0 ? n_ctx : hl_model_get_info(model)->n_ctx,
                                   .wants = HL_WANT_LAST_LOGITS,
                                   .cache_dtype = HL_DTYPE_F16,
                                   .n_threads   = (int32_t)common->n_threads };
    hl_status          status  = hl_session_measure(out, model, &options);

    if (status != HL_UNSUPPORTED)
        return status;
    options.wants = 0;
    return hl_session_measure(out, model, &options);
}

static int show_info(hl_info_request request, const hl_common *common, const char *tokenizer_path,
                     int64_t n_ctx)
{
    hl_model     *model        = NULL;
    hl_tokenizer *tokenizer    = NULL;
    char          problem[256] = "";

    hl_status status = hl_model_open(&model, request.path);
    if (status == HL_OK)
        status = open_tokenizer(&tokenizer, problem, sizeof problem, model, tokenizer_path);
    if (status == HL_OK)
        status = measure_memory(&request.memory, model, common, n_ctx);
    int code = status == HL_OK ? HL_EXIT_OK : fail(status);

    request.model             = model;
    request.tokenizer         = tokenizer;
    request.tokenizer_problem = problem;
    if (status == HL_OK && common->json)
        hl_info_print_json(&request);
    else if (status == HL_OK && !common->quiet)
        hl_info_print(&request);
    hl_tokenizer_close(tokenizer);
    hl_model_close(model);
    return code;
}

int hl_command_info(int argc, char **argv)
{
    const char     *tokenizer_path = NULL;
    int64_t         n_ctx          = 0;
    hl_info_request request        = { 0 };
    hl_common       common;
    hl_arguments    rest;

    hl_option options[] = {
        { "tensors", 't', HL_OPTION_FLAG, &request.tensors, NULL, "list every tensor", 0, 0 },
        { "context", 'c', HL_OPTION_INT, &n_ctx, "N", "memory for N tokens (the model's context)",
          1, 1 << 30 },
        { "tokenizer", 0, HL_OPTION_TEXT, &tokenizer_path, "PATH",
          "use this one instead of the model's own", 0, 0 },
        { 0 },
    };
    hl_usage usage = { "info", "MODEL",
                       "Says what a model is: family, shape, parameters, how its tensors are\n"
                       "stored, its tokenizer, and the memory that running it takes.  MODEL is a\n"
                       "Hugging Face folder or a .safetensors file in it, a .gguf file, or a\n"
                       "llama2.c .bin.",
                       options };

    int code = hl_options_parse(&rest, &common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (rest.count != 1)
        return hl_options_refuse(&usage, "wanted one MODEL, got %d", rest.count);
    request.path = rest.items[0];
    return show_info(request, &common, tokenizer_path, n_ctx);
}
