/* cmd_merge.c - headlight merge: adds up profiles. */
#include <stdio.h>

#include "command.h"
#include "headlight.h"
#include "held.h"
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
        HL_TEXT("output", 'o', &request->output, "FILE", "merged profile to write"),
        { 0 },
    };
    const hl_usage usage = {
        .command   = "merge",
        .arguments = "PROFILE... -o PROFILE",
        .text = "Merges profiles of the same model, measured with the same settings on parts of a\n"
                "text or on several texts.  The result is byte-identical to measuring everything\n"
                "at once, in whatever order the profiles are given.",
        .options = options,
    };

    HL_PASS(hl_options_parse(&request->profiles, &request->common, &usage, argc, argv));
    if (request->profiles.count == 0)
        return hl_options_refuse(&usage, "no PROFILE given");
    if (request->output == NULL)
        return hl_options_refuse(&usage, "-o PROFILE is missing: the file to write");
    return HL_EXIT_OK;
}

/* Adds the profile at `path` to the sum. */
static int add_profile(hl_profile *sum, const char *first, const char *path)
{
    HL_HELD(hl_profile_free) hl_profile *profile = NULL;

    HL_CALL("merge", hl_profile_load(&profile, path));
    hl_status status = hl_profile_merge(sum, profile);
    if (status != HL_OK)
        hl_complain("merge", "%s and %s: %s", first, path, hl_error_message());
    return hl_exit_for(status);
}

int hl_command_merge(int argc, char **argv)
{
    merge_request                        request = { 0 };
    HL_HELD(hl_profile_free) hl_profile *sum     = NULL;

    HL_PASS(parse_request(&request, argc, argv));
    char **paths = request.profiles.items;
    HL_CALL("merge", hl_profile_load(&sum, paths[0]));
    for (int i = 1; i < request.profiles.count; i++)
        HL_PASS(add_profile(sum, paths[0], paths[i]));
    HL_CALL("merge", hl_profile_write(sum, request.output));

    long long n_tokens = hl_profile_n_tokens(sum), n_windows = hl_profile_all_sequences(sum);
    if (request.common.json)
        printf("{\"profiles\": %d, \"tokens\": %lld, \"windows\": %lld}\n", request.profiles.count,
               n_tokens, n_windows);
    else if (!request.common.quiet)
        printf("%s: %lld tokens in %lld windows, from %d profiles\n", hl_shown(request.output),
               n_tokens, n_windows, request.profiles.count);
    return HL_EXIT_OK;
}
