/* verify_attention.c - golden attention cases on every back end.
 *
 * hl_verify_attention of headlight.h: reads a case, runs it on each back end in
 * turn, and lists how far every output is from what the case expects. */
#include "base/status.h"
#include "headlight.h"
#include "measure/verify.h"
#include "measure/verify_case.h"
#include "measure/verify_compare.h"
#include "measure/verify_outputs.h"

typedef struct attention_run {
    const hl_verify_case *golden;
    hl_verify_outputs    *ours;
    int32_t               n_threads;
} attention_run;

/* Without anything to compare, a case would always pass. */
static hl_status check_purpose(const hl_verify_case *golden, const hl_verify_options *options)
{
    for (int output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        if (golden->expected[output] != NULL)
            return HL_OK;
    }
    if (options->write_path != NULL)
        return HL_OK;
    return hl_fail(HL_BAD_INPUT, "%s: holds no expected output to compare with", golden->where);
}

static hl_status add_entries(hl_verify_report *report, const attention_run *run,
                             const char *backend)
{
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        hl_verify_entry entry;

        if (run->golden->expected[output] == NULL)
            continue;
        hl_status status = hl_verify_compare(&entry, run->ours, run->golden, output);
        if (status != HL_OK)
            return status;
        entry.backend = backend;
        hl_verify_report_add(report, &entry);
    }
    return HL_OK;
}

/* A hl_verify_step. */
static hl_status run_case(void *context, hl_verify_report *report, const char *backend,
                          const char *write_path)
{
    attention_run *run = context;

    HL_NEED(hl_verify_outputs_compute(run->ours, run->golden, run->n_threads));
    HL_NEED(add_entries(report, run, backend));
    if (write_path != NULL)
        HL_NEED(hl_verify_outputs_write(run->ours, run->golden, write_path));
    return HL_OK;
}

hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                              const hl_verify_options *options)
{
    hl_status               status   = HL_OK;
    const hl_verify_options defaults = { 0 };
    hl_verify_case         *golden   = NULL;
    hl_verify_outputs      *ours     = NULL;
    hl_verify_report       *report   = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_attention: path is NULL");
    HL_TRY(hl_verify_case_open(&golden, path));
    HL_TRY(check_purpose(golden, options));
    HL_TRY(hl_verify_outputs_new(&ours, golden));
    HL_TRY(hl_verify_report_new(&report, path, HL_VERIFY_N_OUTPUTS));
    attention_run run = { golden, ours, options->n_threads };
    HL_TRY(hl_verify_backends(report, options, run_case, &run));
    *out   = report;
    report = NULL;

done:
    hl_verify_report_free(report);
    hl_verify_outputs_free(ours);
    hl_verify_case_close(golden);
    return status;
}
