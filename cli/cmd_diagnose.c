/* cmd_diagnose.c - headlight diagnose: what is wrong with a model's attention? */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "corpus_options.h"
#include "diagnose_options.h"
#include "diagnose_print.h"
#include "diagnose_try.h"
#include "headlight.h"
#include "options.h"
#include "printable.h"
#include "values.h"

typedef struct diagnose_request {
    hl_common     common;
    hl_arguments  profiles;
    hl_thresholds thresholds;
    const char   *fail_on; /* "a,b"; NULL: nothing fails */
    const char   *trace_path;
    bool          verbose;
} diagnose_request;

/* -------------------------------------------------------------------- output */

static void print_json(const diagnose_request *request, const hl_diagnoses *found, bool failed)
{
    json_t *root =
        json_pack("{s:o, s:b, s:o}", "profile", hl_value_name(request->profiles.items[0]), "failed",
                  failed, "diagnoses", hl_diagnoses_json(found));

    hl_put_json(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
}

/* The exit status: 1 where a diagnosis of --fail-on is present. */
static int report(const diagnose_request *request, const hl_diagnoses *found)
{
    bool failed = false;

    for (int i = 0; i < HL_N_DIAGNOSES; i++)
        failed = failed || (found->items[i].verdict == HL_VERDICT_FOUND &&
                            hl_diagnosis_is_listed(request->fail_on, found->items[i].name));
    if (request->common.json)
        print_json(request, found, failed);
    else if (!request->common.quiet)
        hl_diagnoses_print(found, request->profiles.items[0], request->verbose);
    for (int i = 0; i < HL_N_DIAGNOSES && request->fail_on != NULL; i++) {
        const hl_diagnosis *item = &found->items[i];
        if (!hl_diagnosis_is_listed(request->fail_on, item->name))
            continue;
        if (item->verdict == HL_VERDICT_FOUND)
            hl_complain("diagnose", "%s was found", item->name);
        else if (item->verdict == HL_VERDICT_NOT_RUN && strcmp(request->fail_on, "any") != 0)
            hl_complain("diagnose", "%s was not run (%s): it cannot fail", item->name,
                        item->finding);
    }
    return failed ? HL_EXIT_NO : HL_EXIT_OK;
}

/* What a profile cannot tell, from the trace of a text that was generated. */
static hl_status add_trace(hl_diagnoses *found, const diagnose_request *request)
{
    hl_trace *trace  = NULL;
    hl_status status = hl_trace_load(&trace, request->trace_path);

    if (status == HL_OK)
        status = hl_diagnose_trace(found, trace, &request->thresholds);
    hl_trace_free(trace);
    return status;
}

static int diagnose(const diagnose_request *request)
{
    hl_profile   *profile = NULL;
    hl_profile   *before  = NULL;
    hl_diagnoses *found   = NULL;
    int           code    = HL_EXIT_OK;

    hl_status status = hl_profile_load(&profile, request->profiles.items[0]);
    if (status == HL_OK && request->profiles.count > 1)
        status = hl_profile_load(&before, request->profiles.items[1]);
    if (status == HL_OK)
        status = hl_diagnose(&found, profile, before, &request->thresholds);
    if (status == HL_OK && request->trace_path != NULL)
        status = add_trace(found, request);
    if (status != HL_OK) {
        hl_complain("diagnose", "%s", hl_explain(status));
        code = hl_exit_for(status);
    } else {
        code = report(request, found);
    }
    hl_diagnoses_free(found);
    hl_profile_free(before);
    hl_profile_free(profile);
    return code;
}

/* With --try the arguments are MODEL TEXT... */
static int try_mitigations(const diagnose_request *request, const hl_usage *usage,
                           const hl_window_options *windows, const hl_adjustment *wanted,
                           const hl_gate_arguments *gates, double sampling)
{
    if (request->profiles.count < 2)
        return hl_options_refuse(usage, "--try: wanted a MODEL and a TEXT, got %d arguments",
                                 request->profiles.count);
    if (request->fail_on != NULL || request->trace_path != NULL)
        return hl_options_refuse(usage, "--try and %s: only one of them",
                                 request->fail_on != NULL ? "--fail-on" : "--trace");
    return hl_diagnose_try(&(hl_try_request){ .model_path = request->profiles.items[0],
                                              .texts      = request->profiles.items + 1,
                                              .n_texts    = request->profiles.count - 1,
                                              .windows    = *windows,
                                              .thresholds = &request->thresholds,
                                              .wanted     = *wanted,
                                              .gates      = *gates,
                                              .sampling   = sampling,
                                              .n_threads  = (int32_t)request->common.n_threads,
                                              .json       = request->common.json,
                                              .quiet      = request->common.quiet });
}

static const char about[] =
    "Looks for eight things that can be wrong with attention and says of each\n"
    "the rule, the value, the threshold, the kind of evidence; of what was\n"
    "found also the heads that show it, what speaks against it, and what to\n"
    "do.  BEFORE is a profile to compare with: an earlier checkpoint on the\n"
    "same text, or the same shapes with random weights.\n"
    "\n"
    "With --try a model is measured on texts, and again under the mitigation\n"
    "that fits each finding (or the one that is given); what changed is shown,\n"
    "the loss too.\n"
    "\n"
    "Diagnoses: dead-or-broken, entropy-collapse, entropic-overload,\n"
    "attention-locking, flat-profile, head-redundancy, inactive-heads, sink-heads.\n"
    "\n"
    "Thresholds and their defaults: collapse-share 0.5, collapse-entropy 0.05,\n"
    "collapse-fall 4, overload-share 0.5, overload-entropy 0.9,\n"
    "overload-change 0.05, locking-window 64, locking-change 0.05,\n"
    "locking-spread 0.01, flat-errors 2, redundancy-similarity 0.9,\n"
    "inactive-norm 0.1, sink-mass 0.3, broken-rows 0.";

int hl_command_diagnose(int argc, char **argv)
{
    diagnose_request  request  = { .thresholds = hl_thresholds_default() };
    hl_option_list    given    = { 0 };
    hl_window_options windows  = { .max_tokens = 8192 };
    hl_adjustment     wanted   = { 0 };
    int64_t           kept     = 1;
    hl_gate_arguments gates    = { 0 };
    double            sampling = 0.0;
    bool              attempt  = false;
    const char       *special  = NULL;

    hl_option options[] = {
        { "fail-on", 0, HL_OPTION_TEXT, &request.fail_on, "NAME,...",
          "exit status 1 if one of these is found (any: all)", 0, 0 },
        { "threshold", 0, HL_OPTION_LIST, &given, "NAME=VALUE",
          "another threshold; may be repeated", 0, 0 },
        { "trace", 0, HL_OPTION_TEXT, &request.trace_path, "FILE",
          "attention-locking, from headlight generate --trace", 0, 0 },
        { "verbose", 'v', HL_OPTION_FLAG, &request.verbose, NULL,
          "heads, counter-evidence and mitigation of all", 0, 0 },
        { "try", 0, HL_OPTION_FLAG, &attempt, NULL, "measure MODEL on TEXT, then with mitigations",
          0, 0 },
        { "temperature", 0, HL_OPTION_NUMBER, &wanted.temperature, "T",
          "--try: attention scores divided by T", 0, 1000 },
        { "sampling-temperature", 0, HL_OPTION_NUMBER, &sampling, "T",
          "--try: what sampling at T changes instead", 0, 1000 },
        { "window", 0, HL_OPTION_INT, &wanted.window, "N",
          "--try: rows see N keys, and the first ones", 1, INT64_MAX },
        { "window-sink", 0, HL_OPTION_INT, &kept, "K", "--window: so many first keys (1)", 0,
          INT64_MAX },
        { "rope-base", 0, HL_OPTION_NUMBER, &wanted.rope_base, "B", "--try: another theta", 1,
          INT64_MAX },
        { "rope-factor", 0, HL_OPTION_NUMBER, &wanted.rope_factor, "F",
          "--try: positions divided by F", 0, 1000000 },
        { "context", 'c', HL_OPTION_INT, &windows.context, "N", "--try: tokens of a window", 1,
          INT64_MAX },
        { "max-tokens", 0, HL_OPTION_INT, &windows.max_tokens, "N",
          "--try: stop after N tokens (8192)", 1, INT64_MAX },
        HL_SPECIAL_OPTION(&special),
        HL_GATE_OPTIONS(&gates),
        { 0 },
    };
    hl_usage usage = { "diagnose", "PROFILE [BEFORE] | --try MODEL TEXT...", about, options };

    int code = hl_options_parse(&request.profiles, &request.common, &usage, argc, argv);
    if (code == HL_OPTIONS_GO_ON)
        code = hl_threshold_options_set(&request.thresholds, &given, &usage);
    if (code == HL_OPTIONS_GO_ON)
        code = hl_diagnosis_list_check(request.fail_on, &usage);
    if (code != HL_OPTIONS_GO_ON)
        return code;
    wanted.window_sink = kept > 0 ? kept : -1;
    windows.around     = hl_special_option(special);
    if (attempt)
        return try_mitigations(&request, &usage, &windows, &wanted, &gates, sampling);
    if (gates.path != NULL || gates.off != NULL)
        return hl_options_refuse(&usage, "--gates and --off are for --try, which runs a model");
    if (request.profiles.count < 1 || request.profiles.count > 2)
        return hl_options_refuse(&usage, "wanted one or two profiles, got %d",
                                 request.profiles.count);
    return diagnose(&request);
}
