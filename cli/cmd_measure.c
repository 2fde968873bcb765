/* cmd_measure.c - headlight measure: makes a profile from a model and a text. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "progress.h"
#include "shared_options.h"
#include "values.h"

typedef struct measure_request {
    hl_common           common;
    hl_arguments        arguments;
    hl_corpus_arguments text;
    const char         *output;
    const char         *tokenizer_path;
    const char         *attn_path; /* attention maps, measured instead of a model and a text */
    hl_maps_options     maps;
    hl_measure_options  options;
    hl_gate_arguments   gates;
    hl_adjust_arguments adjust;
} measure_request;

/* The state while measuring. */
typedef struct measure_work {
    const measure_request *request;
    char                  *state_path; /* OUTPUT.part; with several ranks OUTPUT.2-of-4.part */
    int32_t                rank;
    int32_t                n_ranks;
    hl_model              *model;
    hl_tokenizer          *tokenizer;
    hl_corpus             *corpus;
    hl_profile            *profile;
    hl_progress_bar        progress;
} measure_work;

/* ------------------------------------------------------------------------ options */

static const char description[] =
    "Runs a model over texts and stores what every attention head does in PROFILE:\n"
    "entropy and other statistics, by position and by type of token, similarity of\n"
    "heads, and output norms.  Each TEXT is a file, a folder, a pattern, a JSONL file\n"
    "or '-' (standard input).  Each file or JSONL line is a document; windows do not\n"
    "cross documents.\n"
    "\n"
    "Every window begins and ends with the special tokens that the tokenizer adds,\n"
    "<bos> or [CLS] ... [SEP]; they take room from the text.  --special document puts\n"
    "them around each document instead; --special none leaves them out.  Token ids\n"
    "(--token-ids) are used as they are.\n"
    "\n"
    "The state is saved in PROFILE.part every --save-every seconds and on Ctrl-C.\n"
    "Interrupted, --resume finishes with a byte-identical file.  --part measures a\n"
    "part of the text; 'headlight merge' joins the parts to the same bytes.\n"
    "\n"
    "--attn measures attention maps that another program stored, of any model.";

static int parse_request(measure_request *request, int argc, char **argv)
{
    hl_measure_options *options = &request->options;
    const hl_option     table[] = {
            HL_CORPUS_OPTIONS(&request->text),
            HL_TEXT("output", 'o', &request->output, "FILE", "profile to write"),
            HL_TEXT("tokenizer", 0, &request->tokenizer_path, "PATH",
                    "tokenizer of a model that has none beside it"),
            HL_TEXT("rows", 0, &options->rows_path, "FILE",
                    "also write the statistics of every row to FILE"),
            HL_FLAG("nll", 0, &options->nll, "also measure the loss"),
            HL_FLAG("no-probe", 0, &options->no_probe,
                    "skip the random sequence that finds induction heads"),
            HL_NUMBER("epsilon", 0, &options->epsilon, "E",
                      "compute entropy as -sum p ln(p+E) from whole rows (slow)", 0, 1),
            HL_NUMBER("save-every", 0, &options->save_every, "SECONDS",
                      "seconds between saves of the state (30)", 0, 1000000),
            HL_FLAG("resume", 0, &options->resume, "continue from PROFILE.part if it exists"),
            HL_TEXT("attn", 0, &request->attn_path, "FILE",
                    "measure stored attention maps: safetensors, npy"),
            HL_FLAG("scores", 0, &request->maps.scores,
                    "--attn: the maps are scores before the softmax"),
            HL_ENUM("mask", 0, &request->maps.mask, "auto|causal|full",
                    "--attn: which keys the rows could see (auto)"),
            HL_TEMPERATURE_OPTION("", &request->adjust),
            HL_ADJUST_OPTIONS("", &request->adjust),
            HL_GATE_OPTIONS(&request->gates),
            { 0 },
    };
    const hl_usage usage = { "measure", "MODEL TEXT... -o PROFILE", description, table };

    HL_PASS(hl_options_parse(&request->arguments, &request->common, &usage, argc, argv));
    if (request->attn_path == NULL && request->arguments.count == 0)
        return hl_options_refuse(&usage, "no MODEL given");
    if (request->attn_path != NULL && request->arguments.count > 0)
        return hl_options_refuse(
            &usage, "--attn takes the place of MODEL and TEXT; unexpected argument '%s'",
            request->arguments.items[0]);
    if (request->attn_path != NULL && hl_gate_options_given(&request->gates))
        return hl_options_refuse(
            &usage, "--off and --gates need a model; they cannot be combined with --attn");
    if (request->attn_path != NULL && hl_adjust_options_given(&request->adjust.adjustment))
        return hl_options_refuse(&usage, "--temperature, --window and --rope options need a model; "
                                         "they cannot be combined with --attn");
    if (request->output == NULL)
        return hl_options_refuse(&usage, "-o PROFILE is missing: the file to write");
    if (request->attn_path != NULL)
        return HL_EXIT_OK;
    return hl_corpus_options_finish(&request->text, &usage, &request->common,
                                    request->arguments.items + 1, request->arguments.count - 1);
}

/* Checks the output path before the work, not after it. */
static int check_output(const char *path)
{
    struct stat about;

    if (stat(path, &about) != 0 || S_ISREG(about.st_mode))
        return HL_EXIT_OK;
    return hl_give_up(HL_EXIT_USAGE, "measure", "%s: not a regular file; it is not overwritten",
                      path);
}

/* -------------------------------------------------------------------------- work */

static hl_status open_work(measure_work *work)
{
    const measure_request *request    = work->request;
    hl_adjustment          adjustment = hl_adjust_options_of(&request->adjust);
    size_t                 room       = strlen(request->output) + 64;

    work->state_path = malloc(room);
    if (work->state_path == NULL)
        return HL_NO_MEMORY;
    if (work->n_ranks > 1)
        snprintf(work->state_path, room, "%s.%d-of-%d.part", request->output, work->rank + 1,
                 work->n_ranks);
    else
        snprintf(work->state_path, room, "%s.part", request->output);
    HL_NEED(hl_model_open_on(&work->model, request->arguments.items[0], request->common.device));
    if (hl_adjust_options_given(&adjustment))
        HL_NEED(hl_model_adjust(work->model, &adjustment));
    HL_NEED(hl_gate_options_apply(work->model, &request->gates, "measure",
                                  request->common.quiet || work->rank > 0));
    return hl_corpus_options_open(&work->corpus, &work->tokenizer, work->model, &request->text,
                                  request->tokenizer_path);
}

static void close_work(measure_work *work)
{
    hl_profile_free(work->profile);
    hl_corpus_close(work->corpus);
    hl_tokenizer_close(work->tokenizer);
    hl_model_close(work->model);
    free(work->state_path);
}

static hl_status run(measure_work *work)
{
    const measure_request *request = work->request;
    hl_measure_options     options = request->options;
    bool                   silent  = request->common.quiet || work->rank > 0;

    options.windows    = request->text.windows;
    options.seed       = request->common.seed;
    options.state_path = work->state_path;
    options.n_threads  = request->common.n_threads;
    options.progress   = hl_progress_show;
    options.context    = &work->progress;
    if (work->n_ranks > 1) {
        options.windows.part    = work->rank;
        options.windows.n_parts = work->n_ranks;
    }
    if (!silent)
        hl_corpus_options_report("measure", work->corpus);
    hl_progress_start(&work->progress, stderr, "measuring", silent);
    hl_status status =
        hl_measure(&work->profile, work->model, work->tokenizer, work->corpus, &options);
    hl_progress_end(&work->progress);
    return status;
}

/* State files are removed only when the profile exists. */
static hl_status finish(measure_work *work, hl_status status)
{
    status = hl_ranks_reduce(work->profile, status);
    if (status == HL_OK && work->rank == 0)
        status = hl_profile_write(work->profile, work->request->output);
    if (work->n_ranks > 1)
        status = hl_ranks_agree(status);
    if (status == HL_OK)
        unlink(work->state_path);
    return status;
}

static hl_status run_maps(measure_work *work)
{
    const measure_request *request = work->request;
    hl_maps_options        options = request->maps;

    options.seed      = request->common.seed;
    options.n_threads = request->common.n_threads;
    HL_NEED(hl_measure_maps(&work->profile, request->attn_path, &options));
    return hl_profile_write(work->profile, request->output);
}

/* ------------------------------------------------------------------------ results */

/* Names a document, or a sequence of maps. */
static void name_document(char *out, size_t n_bytes, const measure_work *work, int64_t document)
{
    hl_document_info info;

    if (work->corpus == NULL)
        snprintf(out, n_bytes, "sequence %lld of %s", (long long)document,
                 work->request->attn_path);
    else if (hl_corpus_get_document(&info, work->corpus, document) == HL_OK)
        snprintf(out, n_bytes, "%s", info.name);
    else
        out[0] = '\0';
}

/* Reports broken losses, and the first heads with broken rows and their places.  Returns true if
 * there are none. */
static bool report_broken(const measure_work *work)
{
    enum { SHOWN = 3 };
    const hl_profile *profile  = work->profile;
    int64_t           n_losses = hl_profile_broken_losses(profile);
    int               n        = 0;

    for (int64_t i = 0; i < hl_profile_n_layers(profile) * hl_profile_n_heads(profile); i++) {
        int64_t layer = i / hl_profile_n_heads(profile);
        int64_t head  = i % hl_profile_n_heads(profile);
        int64_t document, token;
        char    name[256];

        if (!hl_profile_broken_place(&document, &token, profile, layer, head) || ++n > SHOWN)
            continue;
        name_document(name, sizeof name, work, document);
        hl_complain("measure",
                    "L%lldH%lld: %lld rows are NaN or infinite, the first at token %lld of %s",
                    (long long)layer, (long long)head,
                    (long long)hl_profile_broken(profile, layer, head), (long long)token, name);
    }
    if (n > SHOWN)
        hl_complain("measure", "... and %d more heads with such rows", n - SHOWN);
    if (n_losses > 0)
        hl_complain("measure", "%lld of %lld losses are NaN or infinite", (long long)n_losses,
                    (long long)(n_losses + hl_profile_nll(profile).count));
    return n == 0 && n_losses == 0;
}

static void print_result(const measure_work *work)
{
    const hl_profile *profile  = work->profile;
    const char       *output   = work->request->output;
    hl_moments        nll      = hl_profile_nll(profile);
    int64_t           n_layers = hl_profile_n_layers(profile), n_broken = 0;
    int64_t           n_heads   = hl_profile_n_heads(profile);
    int64_t           n_tokens  = hl_profile_n_tokens(profile);
    int64_t           n_windows = hl_profile_all_sequences(profile);
    int64_t           n_losses  = hl_profile_broken_losses(profile);

    for (int64_t i = 0; i < n_layers * n_heads; i++)
        n_broken += hl_profile_broken(profile, i / n_heads, i % n_heads);
    if (work->request->common.json) {
        hl_print_json(HL_OBJECT(HL_IS("profile", hl_value_name(output)), HL_IS("tokens", n_tokens),
                                HL_IS("windows", n_windows), HL_IS("layers", n_layers),
                                HL_IS("heads", n_heads),
                                HL_IS("nll", nll.count > 0 ? nll.mean : NAN),
                                HL_IS("broken_rows", n_broken), HL_IS("broken_losses", n_losses)),
                      JSON_INDENT(1));
        return;
    }
    printf("%s: %lld tokens in %lld windows, %lld layers of up to %lld heads\n", hl_shown(output),
           (long long)n_tokens, (long long)n_windows, (long long)n_layers, (long long)n_heads);
    if (n_losses > 0)
        printf("loss: NaN or infinite\n");
    else if (nll.count > 0)
        printf("loss: %.4f nats per token\n", nll.mean);
}

static int show_result(const measure_work *work)
{
    if (work->rank > 0)
        return HL_EXIT_OK;
    int code = report_broken(work) ? HL_EXIT_OK : HL_EXIT_INPUT;
    if (work->request->common.json || !work->request->common.quiet)
        print_result(work);
    return code;
}

static int fail(const measure_work *work, hl_status status)
{
    if (work->n_ranks <= 1)
        return hl_finish("measure", status);
    hl_complain("measure", "rank %d: %s", work->rank, hl_error_message());
    return hl_exit_for(status);
}

/* All ranks call this, and all return. */
static int measure(measure_work *work)
{
    const measure_request *request = work->request;

    if (work->n_ranks > 1 && (request->text.part != NULL || request->options.rows_path != NULL))
        return hl_give_up(HL_EXIT_USAGE, "measure",
                          "--part and --rows cannot be used with several MPI ranks");
    hl_status status = open_work(work);
    if (status == HL_OK)
        status = run(work);
    int code = status == HL_OK || hl_stop_asked() ? HL_EXIT_OK : fail(work, status);
    if (status == HL_OK || work->n_ranks > 1) {
        hl_status together = finish(work, status);
        if (status == HL_OK && together != HL_OK)
            code = fail(work, together);
        status = together;
    }
    if (status == HL_CANCELLED && hl_stop_asked())
        return hl_give_up(HL_EXIT_STOPPED, "measure",
                          "%s; the state is in %s; --resume continues from it", hl_error_message(),
                          work->state_path);
    return status == HL_OK ? show_result(work) : code;
}

int hl_command_measure(int argc, char **argv)
{
    measure_request                  request = { .adjust = HL_ADJUST_ARGUMENTS };
    HL_KEPT(close_work) measure_work work    = { .request = &request };

    HL_PASS(parse_request(&request, argc, argv));
    HL_PASS(check_output(request.output));
    if (request.attn_path != NULL) { /* one process reads the maps: there is no model to run */
        HL_CALL("measure", run_maps(&work));
        return show_result(&work);
    }
    hl_status status = hl_ranks_start(&work.rank, &work.n_ranks);
    if (status != HL_OK)
        return fail(&work, status);
    hl_stop_watch();
    int code = measure(&work);
    hl_ranks_finish();
    return code;
}
