/* verify.c - hl_verify: finds out what kind of golden file a path is.
 *
 * A folder, or a file that is not called .safetensors, is a model.  A .safetensors file with
 * tensors called NAME.blocks is a file of quantized blocks.  Any other is an attention case, whose
 * reader reports best what it lacks. */
#include "measure/verify.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "formats/safetensors.h"

static bool is_model(const char *path, const hl_verify_options *options)
{
    return (options != NULL && options->expected_path != NULL) || hl_path_is_folder(path) ||
           !hl_ends_with(path, ".safetensors");
}

static hl_status holds_blocks(bool *out, const char *path)
{
    HL_CLOSED(hl_safetensors_close) hl_safetensors *file = NULL;

    *out = false;
    HL_NEED(hl_safetensors_open(&file, path));
    for (size_t i = 0; i < hl_safetensors_count(file) && !*out; i++)
        *out = hl_verify_is_blocks(hl_safetensors_at(file, i)->name);
    return HL_OK;
}

/* Refuses options that are only for models. */
static hl_status check_no_model(const char *path, const hl_verify_options *options)
{
    const char *unused = options == NULL            ? NULL
                         : options->n_chunk != 0    ? "n_chunk"
                         : options->decode          ? "decode"
                         : options->prepare != NULL ? "prepare"
                                                    : NULL;

    return unused == NULL
               ? HL_OK
               : hl_fail(HL_BAD_ARGUMENT,
                         "%s: '%s' applies to models only, and this is not a model", path, unused);
}

hl_status hl_verify(hl_verify_report **out, const char *path, const hl_verify_options *options)
{
    bool blocks = false;

    *out = NULL;
    if (path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "hl_verify: path is NULL");
    if (is_model(path, options))
        return hl_verify_model(out, path, options);
    HL_NEED(holds_blocks(&blocks, path));
    HL_NEED(check_no_model(path, options));
    return blocks ? hl_verify_blocks(out, path, options) : hl_verify_attention(out, path, options);
}

/* ------------------------------------------------------------------- report */

hl_status hl_verify_case_name(char **out, const char *path)
{
    size_t      end = strlen(path);
    const char *ending;

    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    ending = strrchr(path + begin, '.');
    if (!hl_path_is_folder(path) && ending != NULL && ending != path + begin)
        end = (size_t)(ending - path);
    return hl_strndup(out, path + begin, end - begin);
}

static size_t count_strings(const char *const *strings)
{
    size_t count = 0;

    while (strings[count] != NULL)
        count++;
    return count;
}

hl_status hl_verify_report_new(hl_verify_report **out, const char *path, size_t n_outputs)
{
    HL_CLOSED(hl_verify_report_free) hl_verify_report *report = NULL;

    *out = NULL;
    HL_NEED(HL_ALLOC_ZEROED(&report, 1));
    HL_NEED(hl_verify_case_name(&report->name, path));
    HL_NEED(HL_ALLOC_ZEROED(&report->entries, count_strings(hl_backend_names()) * n_outputs));
    report->passed = true;
    *out           = hl_taken(&report);
    return HL_OK;
}

void hl_verify_report_free(hl_verify_report *report)
{
    if (report == NULL)
        return;
    hl_free(report->name);
    hl_free(report->entries);
    hl_free(report);
}

void hl_verify_report_add(hl_verify_report *report, const hl_verify_entry *entry)
{
    hl_verify_entry *added = &report->entries[report->n_entries++];

    *added         = *entry;
    added->passed  = entry->error <= entry->tolerance;
    report->passed = report->passed && added->passed;
}

double hl_verify_difference(double ours, double theirs)
{
    if (isnan(ours) || isnan(theirs))
        return INFINITY;
    /* Infinities need this case, since -inf - -inf is NaN. */
    if (ours == theirs)
        return 0.0;
    return fabs(ours - theirs);
}

hl_status hl_verify_compare(hl_verify_report *report, const char *backend,
                            const hl_verify_pair *pair)
{
    size_t           count   = (size_t)hl_tensor_count(pair->theirs);
    double           largest = 0.0;
    HL_FREED double *theirs  = NULL;
    hl_verify_entry  entry   = { .backend   = backend,
                                 .output    = pair->output,
                                 .tolerance = pair->tolerance,
                                 .relative  = pair->relative };

    HL_NEED(HL_ALLOC(&theirs, count));
    HL_NEED(hl_dtype_to_f64(theirs, pair->theirs->data, pair->theirs->dtype, count));
    for (size_t i = 0; i < count; i++) {
        double ours = pair->whole != NULL ? (double)pair->whole[i] : (double)pair->ours[i];
        double cost = 0.0;

        if (pair->judge != NULL)
            HL_NEED(pair->judge(&cost, pair->context, i, ours, theirs[i]));
        else
            cost = hl_verify_difference(ours, theirs[i]);
        if (cost < 0.0)
            continue;
        if (cost > entry.error) {
            entry.error = cost;
            entry.worst = (int64_t)i;
        }
        largest = fmax(largest, fabs(theirs[i]));
    }
    if (pair->relative && largest > 0.0)
        entry.error /= largest;
    hl_verify_report_add(report, &entry);
    return HL_OK;
}

/* ------------------------------------------------------------------ back ends */

/* Finds the list's own copy of a name, since reports borrow it and the caller's copy may be freed.
 * A GPU's back end is in no list. */
static hl_status find_backend(const char **out, bool *listed, const char *name)
{
    if (name[0] == '\0')
        return HL_NOT_FOUND; /* HEADLIGHT_BACKEND names no back end; the message is stored
                              * already */
    *listed = true;
    for (const char *const *known = hl_backend_names(); *known != NULL; known++) {
        if (strcmp(*known, name) == 0) {
            *out = *known;
            return HL_OK;
        }
    }
    *listed = false;
    if (strcmp(name, "cuda") == 0) {
        *out = "cuda";
        return hl_backend_select(name); /* the error names what is missing */
    }
    return hl_fail(HL_NOT_FOUND, "no back end '%s' in this build or on this CPU", name);
}

hl_status hl_verify_backends(hl_verify_report *report, const hl_verify_options *options,
                             hl_verify_step step, void *context)
{
    hl_status   status = HL_OK;
    const char *before = hl_backend_name();
    const char *chosen = NULL;
    bool        listed = true;

    HL_NEED(find_backend(&chosen, &listed, options->backend != NULL ? options->backend : before));
    if (!listed) {
        HL_TRY(step(context, report, chosen, options->write_path));
        goto done;
    }
    for (const char *const *name = hl_backend_names(); *name != NULL; name++) {
        if (options->backend != NULL && *name != chosen)
            continue;
        HL_TRY(hl_backend_select(*name));
        HL_TRY(step(context, report, *name, *name == chosen ? options->write_path : NULL));
    }

done:
    hl_backend_select(before[0] != '\0' ? before : NULL);
    return status;
}
