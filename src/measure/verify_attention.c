/* verify_attention.c - golden attention cases on every back end.
 *
 * hl_verify_attention of headlight.h: reads a case, runs it on each back end in
 * turn, and lists how far every output is from what the case expects.  The
 * choice of back end is a setting of the whole process; it is put back. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "headlight.h"
#include "measure/verify_case.h"
#include "measure/verify_compare.h"
#include "measure/verify_outputs.h"

/* ------------------------------------------------------------------- report */

/* "dir/gqa.safetensors" is called "gqa". */
static hl_status case_name(char **out, const char *path)
{
    const char *slash  = strrchr(path, '/');
    const char *name   = slash != NULL ? slash + 1 : path;
    const char *ending = strrchr(name, '.');

    return hl_strndup(out, name,
                      ending != NULL && ending != name ? (size_t)(ending - name) : strlen(name));
}

static size_t count_strings(const char *const *strings)
{
    size_t count = 0;

    while (strings[count] != NULL)
        count++;
    return count;
}

static hl_status report_new(hl_verify_report **out, const char *path, size_t n_backends)
{
    hl_status         status = HL_OK;
    hl_verify_report *report = NULL;

    HL_TRY(HL_ALLOC_ZEROED(&report, 1));
    HL_TRY(case_name(&report->name, path));
    HL_TRY(HL_ALLOC_ZEROED(&report->entries, n_backends * HL_VERIFY_N_OUTPUTS));
    report->passed = true;
    *out           = report;
    report         = NULL;

done:
    hl_verify_report_free(report);
    return status;
}

void hl_verify_report_free(hl_verify_report *report)
{
    if (report == NULL)
        return;
    hl_free(report->name);
    hl_free(report->entries);
    hl_free(report);
}

static hl_status add_entries(hl_verify_report *report, const hl_verify_outputs *ours,
                             const hl_verify_case *golden, const char *backend)
{
    for (hl_verify_output output = 0; output < HL_VERIFY_N_OUTPUTS; output++) {
        hl_verify_entry *entry = &report->entries[report->n_entries];

        if (golden->expected[output] == NULL)
            continue;
        hl_status status = hl_verify_compare(entry, ours, golden, output);
        if (status != HL_OK)
            return status;
        entry->backend = backend;
        report->passed = report->passed && entry->passed;
        report->n_entries++;
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ back ends */

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

static hl_status run_backend(hl_verify_report *report, hl_verify_outputs *ours,
                             const hl_verify_case *golden, const char *backend,
                             const hl_verify_options *options, const char *writer)
{
    hl_status status = HL_OK;

    HL_TRY(hl_backend_select(backend));
    HL_TRY(hl_verify_outputs_compute(ours, golden, options->n_threads));
    HL_TRY(add_entries(report, ours, golden, backend));
    if (options->write_path != NULL && strcmp(backend, writer) == 0)
        HL_TRY(hl_verify_outputs_write(ours, golden, options->write_path));

done:
    return status;
}

/* The list's own spelling of a name: reports borrow it, the caller's may go. */
static hl_status find_backend(const char **out, const char *const *names, const char *name)
{
    if (name[0] == '\0')
        return HL_NOT_FOUND; /* HEADLIGHT_BACKEND names none; the message is there already */
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = names[i];
            return HL_OK;
        }
    }
    return hl_fail(HL_NOT_FOUND, "no back end '%s' in this build or on this CPU", name);
}

static hl_status run_backends(hl_verify_report *report, const hl_verify_case *golden,
                              const char *const *names, const char *chosen,
                              const hl_verify_options *options)
{
    hl_status          status = HL_OK;
    hl_verify_outputs *ours   = NULL;

    HL_TRY(hl_verify_outputs_new(&ours, golden));
    for (size_t i = 0; names[i] != NULL; i++) {
        if (options->backend == NULL || names[i] == chosen)
            HL_TRY(run_backend(report, ours, golden, names[i], options, chosen));
    }

done:
    hl_verify_outputs_free(ours);
    return status;
}

hl_status hl_verify_attention(hl_verify_report **out, const char *path,
                              const hl_verify_options *options)
{
    hl_status               status   = HL_OK;
    const hl_verify_options defaults = { 0 };
    const char *const      *names    = hl_backend_names();
    const char             *before   = hl_backend_name();
    const char             *chosen   = NULL;
    hl_verify_case         *golden   = NULL;
    hl_verify_report       *report   = NULL;

    *out    = NULL;
    options = options != NULL ? options : &defaults;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify_attention: path is NULL");
    HL_TRY(find_backend(&chosen, names, options->backend != NULL ? options->backend : before));
    HL_TRY(hl_verify_case_open(&golden, path));
    HL_TRY(check_purpose(golden, options));
    HL_TRY(report_new(&report, path, count_strings(names)));
    HL_TRY(run_backends(report, golden, names, chosen, options));
    *out   = report;
    report = NULL;

done:
    if (golden != NULL) /* else nothing was selected */
        hl_backend_select(before[0] != '\0' ? before : NULL);
    hl_verify_report_free(report);
    hl_verify_case_close(golden);
    return status;
}
