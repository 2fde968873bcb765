/* cmd_report.c - headlight report: all results as one interactive page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
#include "options.h"
#include "prompt.h"
#include "shared_options.h"
#include "values.h"

enum { MOST_PROFILES = 16, MOST_LENS_TOKENS = 512 };

typedef struct report_command {
    hl_common        common;
    hl_arguments     paths;
    const char      *output;
    const char      *title;
    const char      *trace;
    const char      *compare;
    const char      *sweep;
    const char      *heads;
    bool             beyond;
    hl_prompt_source source; /* .model NULL: there is no prompt */
    hl_head_choices  chosen; /* the heads that `heads` names */
} report_command;

/* The state while the report is made. */
typedef struct report_work {
    hl_profile       *profiles[MOST_PROFILES];
    hl_report_profile named[MOST_PROFILES];
    hl_trace         *trace;
    hl_opened_prompt  prompt;
    hl_prompt_maps   *maps;
    hl_lens_view     *lens;
} report_work;

/* ------------------------------------------------------------------------ options */

static const char description[] =
    "Writes one HTML file that shows profiles in any browser, without a network: every\n"
    "head, layer and diagnosis, with all numbers to download.  With two profiles the\n"
    "page also compares them.  --trace adds a generated text; --model and --prompt add\n"
    "the attention maps of a prompt and the prediction of each layer.\n"
    "\n"
    "--compare and --sweep take what 'headlight compare --json' and 'headlight sweep\n"
    "--json' print.";

static int check(report_command *c, const hl_usage *usage)
{
    const char *bad        = c->heads;
    bool        has_prompt = c->source.text != NULL || c->source.file != NULL;

    if (c->output == NULL)
        return hl_options_refuse(usage, "-o X.html is missing: the file to write");
    if (c->paths.count > MOST_PROFILES)
        return hl_options_refuse(usage, "%d profiles given; a report holds at most %d",
                                 c->paths.count, (int)MOST_PROFILES);
    if (c->paths.count == 0 && c->trace == NULL && c->source.model == NULL && c->compare == NULL &&
        c->sweep == NULL)
        return hl_options_refuse(
            usage, "give a PROFILE, or one of --trace, --compare, --sweep and --model");
    if ((c->source.model != NULL) != has_prompt)
        return hl_options_refuse(usage,
                                 "--model needs --prompt or --prompt-file, and they need --model");
    if (c->source.text != NULL && c->source.file != NULL)
        return hl_options_refuse(usage, "--prompt and --prompt-file cannot be combined");
    if (c->source.ids && c->source.chat)
        return hl_options_refuse(usage, "--ids and --chat cannot be combined");
    if (c->heads != NULL && c->source.model == NULL)
        return hl_options_refuse(usage, "--heads needs --model");
    if (c->heads != NULL && !hl_heads_parse(&c->chosen, c->heads, &bad))
        return hl_options_refuse(usage, "--heads: '%.20s' is not a list of heads such as L3H1,L5H0",
                                 bad);
    return HL_EXIT_OK;
}

static int parse(report_command *c, int argc, char **argv)
{
    const hl_option options[] = {
        HL_TEXT("output", 'o', &c->output, "X.html", "HTML file to write"),
        HL_TEXT("title", 0, &c->title, "TEXT", "title of the page"),
        HL_TEXT("trace", 't', &c->trace, "FILE", "trace of 'headlight generate --trace'"),
        HL_TEXT("compare", 0, &c->compare, "FILE",
                "comparison to show instead of that of the first two profiles"),
        HL_TEXT("sweep", 0, &c->sweep, "FILE", "sweep to show: what disabling heads costs"),
        HL_TEXT("model", 'm', &c->source.model, "MODEL", "model that reads the prompt"),
        HL_TEXT("prompt", 'p', &c->source.text, "TEXT", "prompt for --model"),
        HL_TEXT("prompt-file", 'f', &c->source.file, "FILE",
                "read the prompt from FILE; - is standard input"),
        HL_TEXT("heads", 0, &c->heads, "L3H1,L5",
                "heads whose maps are stored if the prompt is too long for all"),
        HL_FLAG("chat", 'c', &c->source.chat,
                "the prompt is a user's turn, in the model's chat format"),
        HL_FLAG("ids", 0, &c->source.ids, "the prompt is token ids, as in '5 17 3'"),
        HL_TOKENIZER_OPTION(&c->source.tokenizer),
        HL_FLAG("beyond", 0, &c->beyond, "allow more tokens than the model was trained with"),
        { 0 },
    };
    const hl_usage usage = { "report", "PROFILE... -o X.html", description, options };

    HL_PASS(hl_options_parse(&c->paths, &c->common, &usage, argc, argv));
    c->source.command = "report";
    c->source.quiet   = c->common.quiet;
    return check(c, &usage);
}

/* --------------------------------------------------------------------------- work */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Computes the lens of the last tokens of a long prompt.  An encoder has no lens, which is not an
 * error. */
static hl_status look_through_lens(report_work *work, const report_command *c,
                                   const hl_prompt *prompt)
{
    int64_t              n       = prompt->n_tokens;
    hl_lens_view_options options = { .begin      = n > MOST_LENS_TOKENS ? n - MOST_LENS_TOKENS : 0,
                                     .end        = n,
                                     .beyond_ctx = c->beyond,
                                     .n_threads  = c->common.n_threads };
    hl_status status = hl_lens_view_new(&work->lens, work->prompt.model, prompt, &options);

    return status == HL_UNSUPPORTED ? HL_OK : status;
}

static hl_status look_at_prompt(report_work *work, const report_command *c)
{
    hl_prompt              prompt  = hl_opened_prompt_view(&work->prompt);
    hl_prompt_maps_options options = { .heads      = c->chosen.items,
                                       .n_heads    = c->chosen.count,
                                       .beyond_ctx = c->beyond,
                                       .n_threads  = c->common.n_threads };

    HL_NEED(hl_prompt_maps_new(&work->maps, work->prompt.model, &prompt, &options));
    return look_through_lens(work, c, &prompt);
}

/* Finds the profile of the model by its hash; a profile without a hash matches too.  -1: none. */
static hl_status find_profile(int *out, const report_work *work, const report_command *c)
{
    uint64_t  hash = 0;
    char      wanted[24];
    hl_status status = hl_model_hash(&hash, work->prompt.model, c->common.n_threads);

    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)hash);
    *out = -1;
    for (int i = 0; i < c->paths.count && *out < 0; i++) {
        const char *model = hl_profile_setting(work->profiles[i], "model");
        *out              = model == NULL || strcmp(model, wanted) == 0 ? i : -1;
    }
    if (status == HL_OK && *out < 0 && c->paths.count > 0 && !c->common.quiet)
        hl_complain("report",
                    "%s is not the model of the profile%s (their hashes differ); its prompt is "
                    "shown anyway",
                    c->source.model, c->paths.count == 1 ? "" : "s");
    return status;
}

static hl_status write_report(const report_work *work, const report_command *c)
{
    int       place  = -1;
    hl_report report = { .title        = c->title,
                         .profiles     = work->named,
                         .n_profiles   = c->paths.count,
                         .maps         = work->maps,
                         .lens         = work->lens,
                         .trace        = work->trace,
                         .compare_path = c->compare,
                         .sweep_path   = c->sweep,
                         .seed         = c->common.seed };

    if (work->prompt.model != NULL)
        HL_NEED(find_profile(&place, work, c));
    if (place == 0)
        report.model = hl_model_get_info(work->prompt.model);
    return hl_report_write(&report, c->output);
}

static void say(const report_work *work, const report_command *c)
{
    struct stat file    = { 0 };
    long long   n_bytes = stat(c->output, &file) == 0 ? (long long)file.st_size : 0;

    if (c->common.json) {
        printf("{\"output_bytes\": %lld, \"profiles\": %d, \"tokens\": %lld, \"traced\": %lld}\n",
               n_bytes, c->paths.count, work->maps != NULL ? (long long)work->maps->n_tokens : 0,
               work->trace != NULL ? (long long)hl_trace_n_tokens(work->trace) : 0);
    } else if (!c->common.quiet) {
        printf("%s: %d profile%s", hl_shown(c->output), c->paths.count,
               c->paths.count == 1 ? "" : "s");
        if (work->maps != NULL)
            printf(", a prompt of %lld tokens", (long long)work->maps->n_tokens);
        if (work->trace != NULL)
            printf(", a trace of %lld", (long long)hl_trace_n_tokens(work->trace));
        printf(", %.2f MB\n", (double)n_bytes / 1e6);
    }
}

static int make(report_work *work, const report_command *c)
{
    for (int i = 0; i < c->paths.count; i++) {
        HL_CALL("report", hl_profile_load(&work->profiles[i], c->paths.items[i]));
        work->named[i] = (hl_report_profile){ name_of(c->paths.items[i]), work->profiles[i] };
    }
    if (c->trace != NULL)
        HL_CALL("report", hl_trace_load(&work->trace, c->trace));
    if (c->source.model != NULL) {
        HL_PASS(hl_opened_prompt_open(&work->prompt, &c->source));
        HL_CALL("report", look_at_prompt(work, c));
    }
    HL_CALL("report", write_report(work, c));
    say(work, c);
    return HL_EXIT_OK;
}

int hl_command_report(int argc, char **argv)
{
    report_command c    = { 0 };
    report_work    work = { 0 };

    HL_PASS(parse(&c, argc, argv));
    int code = make(&work, &c);
    for (int i = 0; i < MOST_PROFILES; i++)
        hl_profile_free(work.profiles[i]);
    hl_trace_free(work.trace);
    hl_prompt_maps_free(work.maps);
    hl_lens_view_free(work.lens);
    hl_opened_prompt_close(&work.prompt);
    return code;
}
