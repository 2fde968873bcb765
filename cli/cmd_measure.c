/* cmd_measure.c - headlight measure: a model and a text to a profile. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "headlight.h"
#include "options.h"
#include "progress.h"
#include "shared_options.h"
#include "values.h"

enum { N_OWN_OPTIONS = 16 + HL_N_GATE_OPTIONS };

typedef struct measure_request {
    hl_common           common;
    hl_arguments        arguments;
    hl_corpus_arguments text;
    const char         *output;
    const char         *tokenizer_path;
    const char         *rows_path;
    const char         *attn_path; /* maps instead of a model and a text */
    const char         *mask;
    bool                scores;
    double              epsilon;
    double              save_every;
    bool                nll;
    bool                no_probe;
    bool                resume;
    hl_gate_arguments   gates;
    hl_adjustment       adjustment;
    int64_t             window_sink;
} measure_request;

/* What is open while it measures. */
typedef struct measure_work {
    const measure_request *request;
    char                  *state_path; /* OUTPUT.part; of several ranks OUTPUT.2-of-4.part */
    int32_t                rank;
    int32_t                n_ranks;
    hl_model              *model;
    hl_tokenizer          *tokenizer;
    hl_corpus             *corpus;
    hl_profile            *profile;
    hl_progress            progress;
} measure_work;

/* ------------------------------------------------------------------------ options */

static const char description[] =
    "Runs a model over a text and stores what every attention head did: entropy and\n"
    "other statistics of rows, by position and by type of token, how alike heads\n"
    "are, what they write.  Texts are files, folders, patterns, JSONL files or '-';\n"
    "each file or line is a document, and windows do not cross documents.\n"
    "\n"
    "Every window begins and ends with the tokens that the tokenizer adds, <bos> or\n"
    "[CLS] ... [SEP], which take their room from the text.  --special document puts\n"
    "them around each document instead, --special none nowhere; --token-ids are left\n"
    "alone.\n"
    "\n"
    "The state is saved in PROFILE.part every --save-every seconds and on Ctrl-C;\n"
    "--resume goes on from it, to the same bytes as without interruption.  --part\n"
    "measures a part, 'headlight merge' makes the whole of parts: the same bytes again.\n"
    "\n"
    "--attn measures attention maps that another program stored, of whatever model.";

/* Is the model to run otherwise than it was trained? */
static bool is_adjusted(const hl_adjustment *a)
{
    return a->temperature != 0.0 || a->window != 0 || a->rope_base != 0.0 || a->rope_factor != 0.0;
}

static int parse_request(measure_request *request, int argc, char **argv)
{
    hl_option       options[HL_N_CORPUS_OPTIONS + N_OWN_OPTIONS + 1];
    const hl_usage  usage = { "measure", "MODEL TEXT... -o PROFILE", description, options };
    const hl_option own[N_OWN_OPTIONS + 1] = {
        { "output", 'o', HL_OPTION_TEXT, &request->output, "FILE", "the profile", 0, 0 },
        { "tokenizer", 0, HL_OPTION_TEXT, &request->tokenizer_path, "PATH",
          "for a model that has none beside it", 0, 0 },
        { "rows", 0, HL_OPTION_TEXT, &request->rows_path, "FILE",
          "store the statistics of every row, too", 0, 0 },
        { "nll", 0, HL_OPTION_FLAG, &request->nll, NULL, "measure the loss of every token, too", 0,
          0 },
        { "no-probe", 0, HL_OPTION_FLAG, &request->no_probe, NULL,
          "no random sequence that finds induction heads", 0, 0 },
        { "epsilon", 0, HL_OPTION_NUMBER, &request->epsilon, "E",
          "entropy as -sum p ln(p+E), from whole rows: slow", 0, 1 },
        { "save-every", 0, HL_OPTION_NUMBER, &request->save_every, "SECONDS",
          "how often the state is saved (30)", 0, 1000000 },
        { "resume", 0, HL_OPTION_FLAG, &request->resume, NULL,
          "go on from PROFILE.part, if it is there", 0, 0 },
        { "attn", 0, HL_OPTION_TEXT, &request->attn_path, "FILE",
          "attention maps instead of MODEL and TEXT: safetensors, npy", 0, 0 },
        { "scores", 0, HL_OPTION_FLAG, &request->scores, NULL,
          "the maps are scores before the softmax", 0, 0 },
        { "mask", 0, HL_OPTION_CHOICE, &request->mask, "auto|causal|full",
          "which keys the maps' rows could see (auto)", 0, 0 },
        { "temperature", 0, HL_OPTION_NUMBER, &request->adjustment.temperature, "T",
          "attention scores divided by T", 0, 1000 },
        { "window", 0, HL_OPTION_INT, &request->adjustment.window, "N",
          "rows see N keys, and the first ones", 1, INT64_MAX },
        { "window-sink", 0, HL_OPTION_INT, &request->window_sink, "K",
          "--window: so many first keys (1)", 0, INT64_MAX },
        { "rope-base", 0, HL_OPTION_NUMBER, &request->adjustment.rope_base, "B", "another theta", 1,
          INT64_MAX },
        { "rope-factor", 0, HL_OPTION_NUMBER, &request->adjustment.rope_factor, "F",
          "positions divided by F", 0, 1000000 },
        HL_GATE_OPTIONS(&request->gates),
        { 0 },
    };

    hl_corpus_options_list(options, &request->text);
    memcpy(options + HL_N_CORPUS_OPTIONS, own, sizeof own);
    int code = hl_options_parse(&request->arguments, &request->common, &usage, argc, argv);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (request->attn_path == NULL && request->arguments.count == 0)
        return hl_options_refuse(&usage, "no MODEL given");
    if (request->attn_path != NULL && request->arguments.count > 0)
        return hl_options_refuse(&usage, "--attn takes the place of MODEL and TEXT, got '%s'",
                                 request->arguments.items[0]);
    if (request->attn_path != NULL && (request->gates.path != NULL || request->gates.off != NULL))
        return hl_options_refuse(&usage, "--attn has no heads to switch off");
    if (request->attn_path != NULL && is_adjusted(&request->adjustment))
        return hl_options_refuse(&usage, "--attn has no model to run otherwise");
    if (request->output == NULL)
        return hl_options_refuse(&usage, "no profile to write: -o FILE");
    request->adjustment.window_sink = request->window_sink > 0 ? request->window_sink : -1;
    if (request->attn_path != NULL)
        return HL_OPTIONS_GO_ON;
    return hl_corpus_options_finish(&request->text, &usage, &request->common,
                                    request->arguments.items + 1, request->arguments.count - 1);
}

/* Known before the work, not after it. */
static int check_output(const char *path)
{
    struct stat about;

    if (stat(path, &about) != 0 || S_ISREG(about.st_mode))
        return HL_OPTIONS_GO_ON;
    hl_complain("measure", "%s: not a regular file, will not be replaced", path);
    return HL_EXIT_USAGE;
}

/* ----------------------------------------------------------------------- stopping */

static hl_status show_progress(void *context, const hl_measure_progress *progress)
{
    measure_work *work = context;

    hl_progress_update(&work->progress, progress->share, progress->n_tokens);
    return hl_stop_asked() ? HL_CANCELLED : HL_OK;
}

/* -------------------------------------------------------------------------- work */

static hl_status open_work(measure_work *work)
{
    const measure_request *request = work->request;
    const char            *path    = request->tokenizer_path;
    size_t                 room    = strlen(request->output) + 64;
    hl_status              status  = hl_model_open(&work->model, request->arguments.items[0]);

    if (status == HL_OK && is_adjusted(&request->adjustment))
        status = hl_model_adjust(work->model, &request->adjustment);
    if (status == HL_OK)
        status = hl_gate_options_apply(work->model, &request->gates, "measure",
                                       request->common.quiet || work->rank > 0);
    if (status == HL_OK && path == NULL && request->text.corpus.token_ids == NULL)
        path = hl_model_get_info(work->model)->tokenizer_path;
    if (status == HL_OK && path != NULL)
        status = hl_tokenizer_open(&work->tokenizer, path);
    if (status == HL_OK)
        status = hl_corpus_open(&work->corpus, work->model, work->tokenizer, &request->text.corpus);
    work->state_path = malloc(room);
    if (status == HL_OK && work->state_path == NULL)
        return HL_NO_MEMORY;
    if (work->state_path != NULL && work->n_ranks > 1)
        snprintf(work->state_path, room, "%s.%d-of-%d.part", request->output, work->rank + 1,
                 work->n_ranks);
    else if (work->state_path != NULL)
        snprintf(work->state_path, room, "%s.part", request->output);
    return status;
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
    hl_measure_options     options = {
            .windows    = request->text.windows,
            .seed       = (uint64_t)request->common.seed,
            .nll        = request->nll,
            .no_probe   = request->no_probe,
            .epsilon    = request->epsilon,
            .rows_path  = request->rows_path,
            .state_path = work->state_path,
            .save_every = request->save_every,
            .resume     = request->resume,
            .n_threads  = (int32_t)request->common.n_threads,
            .progress   = show_progress,
            .context    = work,
    };
    bool      silent = request->common.quiet || work->rank > 0;
    hl_status status;

    if (work->n_ranks > 1) {
        options.windows.part    = work->rank;
        options.windows.n_parts = work->n_ranks;
    }
    if (!silent)
        hl_corpus_options_report("measure", work->corpus);
    hl_progress_start(&work->progress, stderr, "measuring", silent);
    status = hl_measure(&work->profile, work->model, work->tokenizer, work->corpus, &options);
    hl_progress_end(&work->progress);
    return status;
}

/* States are removed when the profile is there, and not before. */
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
    hl_maps_options        options = { .scores    = request->scores,
                                       .seed      = (uint64_t)request->common.seed,
                                       .n_threads = (int32_t)request->common.n_threads };

    if (request->mask != NULL && strcmp(request->mask, "causal") == 0)
        options.mask = HL_MAPS_MASK_CAUSAL;
    else if (request->mask != NULL && strcmp(request->mask, "full") == 0)
        options.mask = HL_MAPS_MASK_FULL;
    hl_status status = hl_measure_maps(&work->profile, request->attn_path, &options);
    if (status == HL_OK)
        status = hl_profile_write(work->profile, request->output);
    return status;
}

/* ------------------------------------------------------------------------ results */

/* A document, or a sequence of maps. */
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

/* The first heads with rows that are no attention, and where they were seen; and losses.  Is all
 * well? */
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
                    "L%lldH%lld: %lld rows are not numbers, the first at token %lld of %s",
                    (long long)layer, (long long)head,
                    (long long)hl_profile_broken(profile, layer, head), (long long)token, name);
    }
    if (n > SHOWN)
        hl_complain("measure", "... and so in %d more heads", n - SHOWN);
    if (n_losses > 0)
        hl_complain("measure", "%lld of %lld losses are not finite", (long long)n_losses,
                    (long long)(n_losses + hl_profile_nll(profile).count));
    return n == 0 && n_losses == 0;
}

static int64_t count_broken_rows(const hl_profile *profile)
{
    int64_t n = 0;

    for (int64_t i = 0; i < hl_profile_n_layers(profile) * hl_profile_n_heads(profile); i++)
        n += hl_profile_broken(profile, i / hl_profile_n_heads(profile),
                               i % hl_profile_n_heads(profile));
    return n;
}

static void print_result(const measure_work *work)
{
    const hl_profile *profile = work->profile;
    hl_moments        nll     = hl_profile_nll(profile);

    printf("%s: %lld tokens in %lld windows, %lld layers of up to %lld heads\n",
           hl_shown(work->request->output), (long long)hl_profile_n_tokens(profile),
           (long long)hl_profile_all_sequences(profile), (long long)hl_profile_n_layers(profile),
           (long long)hl_profile_n_heads(profile));
    if (hl_profile_broken_losses(profile) > 0)
        printf("loss: not finite\n");
    else if (nll.count > 0)
        printf("loss: %.4f nats a token\n", nll.mean);
}

static int print_json(const measure_work *work)
{
    const hl_profile *profile = work->profile;
    hl_moments        nll     = hl_profile_nll(profile);
    json_t           *result  = json_pack(
                   "{s:o, s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "profile", hl_value_name(work->request->output),
                   "tokens", (json_int_t)hl_profile_n_tokens(profile), "windows",
                   (json_int_t)hl_profile_all_sequences(profile), "layers",
                   (json_int_t)hl_profile_n_layers(profile), "heads", (json_int_t)hl_profile_n_heads(profile),
                   "nll", hl_value_number(nll.count > 0 ? nll.mean : NAN), "broken_rows",
                   (json_int_t)count_broken_rows(profile), "broken_losses",
                   (json_int_t)hl_profile_broken_losses(profile));
    bool good = hl_put_json(result, JSON_INDENT(1));

    printf("\n");
    json_decref(result);
    return good ? HL_EXIT_OK : HL_EXIT_RESOURCES;
}

static int stopped_work(const measure_work *work)
{
    hl_complain("measure", "%s; the state is in %s: --resume goes on from it", hl_error_message(),
                work->state_path);
    return HL_EXIT_STOPPED;
}

static int show_result(const measure_work *work)
{
    if (work->rank > 0)
        return HL_EXIT_OK;
    int code = report_broken(work) ? HL_EXIT_OK : HL_EXIT_INPUT;
    if (work->request->common.json && print_json(work) != HL_EXIT_OK)
        return HL_EXIT_RESOURCES;
    if (!work->request->common.json && !work->request->common.quiet)
        print_result(work);
    return code;
}

static int fail(const measure_work *work, hl_status status)
{
    if (work->n_ranks > 1)
        hl_complain("measure", "rank %d: %s", work->rank, hl_error_message());
    else
        hl_complain("measure", "%s", hl_explain(status));
    return hl_exit_for(status);
}

/* All ranks come here, and all leave. */
static int measure(measure_work *work)
{
    const measure_request *request = work->request;

    if (work->n_ranks > 1 && (request->text.part != NULL || request->rows_path != NULL)) {
        hl_complain("measure", "neither --part nor --rows on several ranks");
        return HL_EXIT_USAGE;
    }
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
        return stopped_work(work);
    return status == HL_OK ? show_result(work) : code;
}

/* Maps are read by one process: there is no model to wait for. */
static int measure_maps(measure_work *work)
{
    hl_status status = run_maps(work);
    int       code   = status == HL_OK ? show_result(work) : fail(work, status);

    close_work(work);
    return code;
}

int hl_command_measure(int argc, char **argv)
{
    measure_request request = { .window_sink = 1 };
    measure_work    work    = { .request = &request };
    int             code    = parse_request(&request, argc, argv);

    if (code == HL_OPTIONS_GO_ON)
        code = check_output(request.output);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (request.attn_path != NULL)
        return measure_maps(&work);
    hl_status status = hl_ranks_start(&work.rank, &work.n_ranks);
    if (status != HL_OK)
        return fail(&work, status);
    hl_stop_watch();
    code = measure(&work);
    hl_ranks_finish();
    close_work(&work);
    return code;
}
