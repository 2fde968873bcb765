/* cmd_merge.c - headlight merge: one profile from many. */
#include <stdio.h>

#include "command.h"
#include "headlight.h"
#include "options.h"
#include "values.h"

typedef struct merge_request {
    hl_common    common;
    hl_arguments profiles;
    const char  *output;
} merge_request;

static int parse_request(merge_request *request, int argc, char **argv)
{
    const hl_option options[] = {
        { "output", 'o', HL_OPTION_TEXT, &request->output, "FILE", "the profile of them all", 0,
          0 },
        { 0 },
    };
    const hl_usage usage = {
        .command   = "merge",
        .arguments = "PROFILE... -o PROFILE",
        .text      = "Adds up profiles of the same model, measured in the same way on parts of a\n"
                     "text or on several texts.  The result has the same bytes as if all had been\n"
                     "measured at once, in whatever order they are given.",
        .options   = options,
    };
    int code = hl_options_parse(&request->profiles, &request->common, &usage, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    if (request->profiles.count == 0)
        return hl_options_refuse(&usage, "no profile given");
    if (request->output == NULL)
        return hl_options_refuse(&usage, "no profile to write: -o FILE");
    return HL_OPTIONS_GO_ON;
}

static int fail(hl_status status)
{
    hl_complain("merge", "%s", hl_explain(status));
    return hl_exit_for(status);
}

/* Adds the profile at `path` to the sum. */
static int add_profile(hl_profile *sum, const char *first, const char *path)
{
    hl_profile *profile = NULL;
    hl_status   status  = hl_profile_load(&profile, path);

    if (status != HL_OK)
        return fail(status);
    status = hl_profile_merge(sum, profile);
    hl_profile_free(profile);
    if (status == HL_OK)
        return HL_EXIT_OK;
    hl_complain("merge", "%s and %s: %s", first, path, hl_error_message());
    return hl_exit_for(status);
}

int hl_command_merge(int argc, char **argv)
{
    merge_request request = { 0 };
    hl_profile   *sum     = NULL;
    int           code    = parse_request(&request, argc, argv);

    if (code != HL_OPTIONS_GO_ON)
        return code;
    char    **paths  = request.profiles.items;
    hl_status status = hl_profile_load(&sum, paths[0]);
    if (status != HL_OK)
        return fail(status);
    code = HL_EXIT_OK;
    for (int i = 1; i < request.profiles.count && code == HL_EXIT_OK; i++)
        code = add_profile(sum, paths[0], paths[i]);
    if (code == HL_EXIT_OK) {
        status = hl_profile_write(sum, request.output);
        code   = status == HL_OK ? HL_EXIT_OK : fail(status);
    }
    if (code == HL_EXIT_OK && !request.common.quiet && !request.common.json)
        printf("%s: %lld tokens in %lld windows, from %d profiles\n", hl_shown(request.output),
               (long long)hl_profile_n_tokens(sum), (long long)hl_profile_all_sequences(sum),
               request.profiles.count);
    if (code == HL_EXIT_OK && request.common.json)
        printf("{\"profiles\": %d, \"tokens\": %lld, \"windows\": %lld}\n", request.profiles.count,
               (long long)hl_profile_n_tokens(sum), (long long)hl_profile_all_sequences(sum));
    hl_profile_free(sum);
    return code;
}
