/* cmd_report.c - headlight report: all that is known, as one interactive page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "command.h"
#include "headlight.h"
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
    hl_prompt_source source; /* .model NULL: no prompt */
    hl_head_choices  chosen; /* what `heads` came to */
} report_command;

/* What is open while it is written. */
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
    "Writes one HTML file that shows profiles to anybody with a browser, without a\n"
    "network: every head, layer and diagnosis, with all numbers to download.  Two\n"
    "profiles are compared.  A trace shows a text as it was generated; a model and a\n"
    "prompt show which token looks at which, and what each layer would say.\n"
    "\n"
    "C and S are what 'headlight compare --json' and 'headlight sweep --json' print.";

static int check(report_command *c, const hl_usage *usage)
{
    const char *bad        = c->heads;
    bool        has_prompt = c->source.text != NULL || c->source.file != NULL;

    if (c->output == NULL)
        return hl_options_refuse(usage, "wanted a file to write: -o X.html");
    if (c->paths.count > MOST_PROFILES)
        return hl_options_refuse(usage, "%d profiles; at most %d", c->paths.count,
                                 (int)MOST_PROFILES);
    if (c->paths.count == 0 && c->trace == NULL && c->source.model == NULL && c->compare == NULL &&
        c->sweep == NULL)
        return hl_options_refuse(usage, "wanted a PROFILE, or one of --trace, --compare, --sweep "
                                        "and --model");
    if ((c->source.model != NULL) != has_prompt)
        return hl_options_refuse(usage, "--model and --prompt or --prompt-file need each other");
    if (c->source.text != NULL && c->source.file != NULL)
        return hl_options_refuse(usage, "--prompt and --prompt-file exclude each other");
    if (c->source.ids && c->source.chat)
        return hl_options_refuse(usage, "--ids and --chat exclude each other");
    if (c->heads != NULL && c->source.model == NULL)
        return hl_options_refuse(usage, "--heads needs --model");
    if (c->heads != NULL && !hl_heads_parse(&c->chosen, c->heads, &bad))
        return hl_options_refuse(usage, "--heads: wanted heads like L3H1,L5H0, not '%.20s'", bad);
    return HL_OPTIONS_GO_ON;
}

static int parse(report_command *c, int argc, char **argv)
{
    const hl_option options[] = {
        { "output", 'o', HL_OPTION_TEXT, &c->output, "X.html", "what is written", 0, 0 },
        { "title", 0, HL_OPTION_TEXT, &c->title, "TEXT", "of the page", 0, 0 },
        { "trace", 't', HL_OPTION_TEXT, &c->trace, "FILE", "of 'headlight generate --trace'", 0,
          0 },
        { "compare", 0, HL_OPTION_TEXT, &c->compare, "FILE",
          "a comparison, instead of that of the first two profiles", 0, 0 },
        { "sweep", 0, HL_OPTION_TEXT, &c->sweep, "FILE", "what switching heads off costs", 0, 0 },
        { "model", 'm', HL_OPTION_TEXT, &c->source.model, "MODEL", "that reads the prompt", 0, 0 },
        { "prompt", 'p', HL_OPTION_TEXT, &c->source.text, "TEXT", "for --model", 0, 0 },
        { "prompt-file", 'f', HL_OPTION_TEXT, &c->source.file, "FILE",
          "the prompt is in FILE; - is standard input", 0, 0 },
        { "heads", 0, HL_OPTION_TEXT, &c->heads, "L3H1,L5",
          "whose maps are shown, if the prompt is too long for all", 0, 0 },
        { "chat", 'c', HL_OPTION_FLAG, &c->source.chat, NULL,
          "the prompt is a user's turn, in the model's format", 0, 0 },
        { "ids", 0, HL_OPTION_FLAG, &c->source.ids, NULL, "the prompt is token ids, as in '5 17 3'",
          0, 0 },
        { "tokenizer", 0, HL_OPTION_TEXT, &c->source.tokenizer, "PATH",
          "use this one instead of the model's own", 0, 0 },
        { "beyond", 0, HL_OPTION_FLAG, &c->beyond, NULL,
          "more tokens than the model was made for, if it can", 0, 0 },
        { 0 },
    };
    const hl_usage usage = { "report", "PROFILE... -o X.html", description, options };
    int            code  = hl_options_parse(&c->paths, &c->common, &usage, argc, argv);

    c->source.command = "report";
    c->source.quiet   = c->common.quiet;
    return code == HL_OPTIONS_GO_ON ? check(c, &usage) : code;
}

/* --------------------------------------------------------------------------- work */

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static hl_status open_profiles(report_work *work, const report_command *c)
{
    hl_status status = HL_OK;

    for (int i = 0; i < c->paths.count && status == HL_OK; i++) {
        status         = hl_profile_load(&work->profiles[i], c->paths.items[i]);
        work->named[i] = (hl_report_profile){ name_of(c->paths.items[i]), work->profiles[i] };
    }
    return status;
}

/* The last tokens of a long prompt.  Encoders have no lens, and that is no failure. */
static hl_status look_through_lens(report_work *work, const report_command *c,
                                   const hl_prompt *prompt)
{
    int64_t              n       = prompt->n_tokens;
    hl_lens_view_options options = { .begin      = n > MOST_LENS_TOKENS ? n - MOST_LENS_TOKENS : 0,
                                     .end        = n,
                                     .beyond_ctx = c->beyond,
                                     .n_threads  = (int32_t)c->common.n_threads };
    hl_status status = hl_lens_view_new(&work->lens, work->prompt.model, prompt, &options);

    return status == HL_UNSUPPORTED ? HL_OK : status;
}

static hl_status look_at_prompt(report_work *work, const report_command *c)
{
    hl_prompt              prompt  = hl_opened_prompt_view(&work->prompt);
    hl_prompt_maps_options options = { .heads      = c->chosen.items,
                                       .n_heads    = c->chosen.count,
                                       .beyond_ctx = c->beyond,
                                       .n_threads  = (int32_t)c->common.n_threads };
    hl_status status = hl_prompt_maps_new(&work->maps, work->prompt.model, &prompt, &options);

    return status == HL_OK ? look_through_lens(work, c, &prompt) : status;
}

/* Which profile is of the model, by hash; one that does not say might be.  -1: none. */
static hl_status find_profile(int *out, const report_work *work, const report_command *c)
{
    uint64_t  hash = 0;
    char      wanted[24];
    hl_status status = hl_model_hash(&hash, work->prompt.model, (int32_t)c->common.n_threads);

    snprintf(wanted, sizeof wanted, "%016llx", (unsigned long long)hash);
    *out = -1;
    for (int i = 0; i < c->paths.count && *out < 0; i++) {
        const char *model = hl_profile_setting(work->profiles[i], "model");
        *out              = model == NULL || strcmp(model, wanted) == 0 ? i : -1;
    }
    if (status == HL_OK && *out < 0 && c->paths.count > 0 && !c->common.quiet)
        hl_complain("report",
                    "%s is not the model of the profile%s, as their hashes say; its "
                    "prompt is shown all the same",
                    c->source.model, c->paths.count == 1 ? "" : "s");
    return status;
}

static hl_status write_report(const report_work *work, const report_command *c)
{
    int       place  = -1;
    hl_status status = HL_OK;
    hl_report report = { .title        = c->title,
                         .profiles     = work->named,
                         .n_profiles   = c->paths.count,
                         .maps         = work->maps,
                         .lens         = work->lens,
                         .trace        = work->trace,
                         .compare_path = c->compare,
                         .sweep_path   = c->sweep,
                         .seed         = (uint64_t)c->common.seed };

    if (work->prompt.model != NULL)
        status = find_profile(&place, work, c);
    if (place == 0)
        report.model = hl_model_get_info(work->prompt.model);
    return status == HL_OK ? hl_report_write(&report, c->output) : status;
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
    hl_status status = open_profiles(work, c);

    if (status == HL_OK && c->trace != NULL)
        status = hl_trace_load(&work->trace, c->trace);
    if (status == HL_OK && c->source.model != NULL) {
        int code = hl_opened_prompt_open(&work->prompt, &c->source);
        if (code != HL_EXIT_OK)
            return code;
        status = look_at_prompt(work, c);
    }
    if (status == HL_OK)
        status = write_report(work, c);
    if (status == HL_OK)
        say(work, c);
    else
        hl_complain("report", "%s", hl_explain(status));
    return hl_exit_for(status);
}

int hl_command_report(int argc, char **argv)
{
    report_command c    = { 0 };
    report_work    work = { 0 };
    int            code = parse(&c, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    code = make(&work, &c);
    for (int i = 0; i < MOST_PROFILES; i++)
        hl_profile_free(work.profiles[i]);
    hl_trace_free(work.trace);
    hl_prompt_maps_free(work.maps);
    hl_lens_view_free(work.lens);
    hl_opened_prompt_close(&work.prompt);
    return code;
}
