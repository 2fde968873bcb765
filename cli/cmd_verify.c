/* cmd_verify.c - headlight verify: golden cases and models on every back end. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "gate_options.h"
#include "headlight.h"
#include "nearest.h"
#include "options.h"
#include "verify_print.h"

/* Up to so many cases get a table each; more get a line each. */
enum { MAX_TABLES = 3 };

typedef struct verify_request {
    hl_common         common;
    hl_arguments      cases;
    const char       *backend;
    const char       *write_path;
    const char       *expected_path;
    int64_t           n_chunk;
    bool              decode;
    bool              verbose;
    hl_gate_arguments gates;
} verify_request;

static bool is_backend(const char *name)
{
    for (const char *const *known = hl_backend_names(); *known != NULL; known++) {
        if (strcmp(*known, name) == 0)
            return true;
    }
    return false;
}

static int refuse_backend(const hl_usage *usage, const char *name)
{
    char       known[128] = "";
    size_t     used       = 0;
    hl_nearest nearest    = { .wanted = name };

    for (const char *const *backend = hl_backend_names(); *backend != NULL; backend++) {
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", *backend);
        hl_nearest_offer(&nearest, *backend);
    }
    if (nearest.word != NULL)
        return hl_options_refuse(usage, "no back end '%s' here (did you mean '%s'?)", name,
                                 nearest.word);
    return hl_options_refuse(usage, "no back end '%s' here; there are:%s", name, known);
}

static int check_request(const verify_request *request, const hl_usage *usage)
{
    if (request->cases.count == 0)
        return hl_options_refuse(usage, "no case given");
    if (request->write_path != NULL && request->cases.count != 1)
        return hl_options_refuse(usage, "--write takes one case, got %d", request->cases.count);
    if (request->expected_path != NULL && request->cases.count != 1)
        return hl_options_refuse(usage, "--expected takes one model, got %d", request->cases.count);
    if (request->decode && request->n_chunk != 0)
        return hl_options_refuse(usage, "--chunk and --decode exclude each other");
    if (strcmp(request->common.device, "cpu") != 0 && request->backend != NULL)
        return hl_options_refuse(usage, "--device %s and --backend exclude each other",
                                 request->common.device);
    if (request->backend != NULL && !is_backend(request->backend))
        return refuse_backend(usage, request->backend);
    /* Empty when HEADLIGHT_BACKEND asks for one that is not there. */
    if (request->backend == NULL && hl_backend_name()[0] == '\0')
        return hl_options_refuse(usage, "%s", hl_error_message());
    return HL_OPTIONS_GO_ON;
}

static int parse_request(verify_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "backend", 0, HL_OPTION_TEXT, &request->backend, "NAME",
          "only this one (scalar, avx2, avx512, neon)", 0, 0 },
        { "write", 0, HL_OPTION_TEXT, &request->write_path, "FILE",
          "store what the chosen back end computed", 0, 0 },
        { "expected", 0, HL_OPTION_TEXT, &request->expected_path, "FILE",
          "what a model should compute", 0, 0 },
        { "chunk", 0, HL_OPTION_INT, &request->n_chunk, "N", "feed a model N tokens at a time", 1,
          1 << 30 },
        { "decode", 0, HL_OPTION_FLAG, &request->decode, NULL, "feed a model one token at a time",
          0, 0 },
        { "verbose", 'v', HL_OPTION_FLAG, &request->verbose, NULL,
          "a table for every case, however many", 0, 0 },
        HL_GATE_OPTIONS(&request->gates),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "verify",
        .arguments = "CASE.safetensors... | MODEL...",
        .text      = "Runs golden cases on every back end that this CPU has, and shows the\n"
                     "largest error of each output beside what is allowed: attention cases\n"
                     "forward and backward, and files of quantised blocks, NAME.blocks beside\n"
                     "NAME.values, which must be read exactly.  Exit status 1 when an error is\n"
                     "over.\n"
                     "\n"
                     "A MODEL is a folder, a .gguf or a .bin.  Its tokens and what they should\n"
                     "give come from expected.safetensors in the folder, or from --expected.\n"
                     "Without either, the fused statistics of rows are compared with those of\n"
                     "the same rows materialised in double precision.\n"
                     "\n"
                     "With --off or --gates a model's logits are compared with masked_logits,\n"
                     "if those were made with the same heads off; else rows are, as without a\n"
                     "file.\n"
                     "\n"
                     "--write stores the outputs of --backend, or else of the back end that would\n"
                     "be chosen at run time, under the case's own tensor names; one case at a time.",
        .options   = options,
    };
    int code = hl_options_parse(&request->cases, &request->common, &usage, argc, argv);

    return code == HL_OPTIONS_GO_ON ? check_request(request, &usage) : code;
}

static hl_verify_style choose_style(const verify_request *request)
{
    if (request->common.json)
        return HL_VERIFY_JSON;
    if (request->common.quiet)
        return HL_VERIFY_SILENT;
    return request->verbose || request->cases.count <= MAX_TABLES ? HL_VERIFY_FULL
                                                                  : HL_VERIFY_COMPACT;
}

/* How wide the column of names must be. */
static int longest_name(const verify_request *request)
{
    int longest = 16;

    for (int i = 0; i < request->cases.count; i++) {
        const char *slash  = strrchr(request->cases.items[i], '/');
        const char *name   = slash != NULL ? slash + 1 : request->cases.items[i];
        const char *ending = strrchr(name, '.');
        int         length = (int)(ending != NULL ? ending - name : (long)strlen(name));

        longest = length > longest ? length : longest;
    }
    return longest;
}

/* What is done to a model before it runs. */
static hl_status gate_model(void *context, hl_model *model)
{
    const verify_request *request = context;

    return hl_gate_options_apply(model, &request->gates, "verify",
                                 request->common.quiet || request->common.json);
}

/* The exit status of one case. */
static int verify_case(hl_verify_printer *printer, const char *path,
                       const hl_verify_options *options)
{
    hl_verify_report *report = NULL;
    hl_status         status = hl_verify(&report, path, options);

    if (status != HL_OK) {
        hl_complain("verify", "%s", hl_explain(status));
        hl_verify_print_unread(printer, path, status);
        return hl_exit_for(status);
    }
    int code = report->passed ? HL_EXIT_OK : HL_EXIT_NO;
    hl_verify_print_case(printer, report);
    hl_verify_report_free(report);
    return code;
}

/* Models run on the device; attention cases through the back end of the same name. */
static hl_status use_gpu(verify_request *request)
{
    hl_status status = hl_backend_select("cuda");

    request->backend = "cuda";
    return status == HL_OK ? hl_device_select(request->common.device) : status;
}

int hl_command_verify(int argc, char **argv)
{
    verify_request request = { 0 };
    int            code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (strcmp(request.common.device, "cpu") != 0) {
        hl_status status = use_gpu(&request);
        if (status != HL_OK) {
            hl_complain("verify", "%s", hl_explain(status));
            return hl_exit_for(status);
        }
    }

    const char       *only[]  = { request.backend, NULL };
    hl_verify_options options = {
        .backend       = request.backend,
        .write_path    = request.write_path,
        .n_threads     = (int32_t)request.common.n_threads,
        .expected_path = request.expected_path,
        .n_chunk       = request.n_chunk,
        .decode        = request.decode,
        .prepare       = gate_model,
        .context       = &request,
    };
    hl_verify_printer printer = {
        .style      = choose_style(&request),
        .n_cases    = (size_t)request.cases.count,
        .backends   = request.backend != NULL ? only : hl_backend_names(),
        .name_width = longest_name(&request),
    };

    /* One bad file does not hide the others; the gravest status wins. */
    int worst = HL_EXIT_OK;
    hl_verify_print_begin(&printer);
    for (int i = 0; i < request.cases.count; i++) {
        code  = verify_case(&printer, request.cases.items[i], &options);
        worst = code > worst ? code : worst;
    }
    hl_verify_print_end(&printer);
    return worst;
}
