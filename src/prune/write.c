/* write.c - hl_prune_write: from a list of heads to a model on disk. */
#include "prune/write.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/export_gguf.h"
#include "prune/compact.h"
#include "prune/means.h"
#include "prune/new_biases.h"

static const char *const form_names[HL_N_PRUNE_FORMS] = {
    [HL_PRUNE_AUTO]    = "auto",
    [HL_PRUNE_MASKED]  = "masked",
    [HL_PRUNE_COMPACT] = "compact",
    [HL_PRUNE_GGUF]    = "gguf",
};

const char *hl_prune_form_name(size_t form)
{
    return form < HL_N_PRUNE_FORMS ? form_names[form] : NULL;
}

hl_status hl_prune_heads_text(char **out, const hl_model *model, const hl_head_plan *plan)
{
    json_t *table = hl_compact_heads(model->config, plan, HL_HEAD_ZEROED);

    *out = hl_json_dump(table, JSON_COMPACT);
    json_decref(table);
    return *out != NULL ? HL_OK : hl_fail(HL_NO_MEMORY, "out of memory for a list of heads");
}

static hl_status plan_heads(hl_head_plan *plan, const hl_config *config, const hl_head_list *list)
{
    for (int64_t i = 0; i < list->n_heads; i++) {
        hl_head head = list->heads[i];

        if (head.layer < 0 || head.layer >= config->n_layers || head.head < 0 ||
            head.head >= config->layers[head.layer].n_heads)
            return hl_fail(HL_BAD_ARGUMENT, "the model has no head L%lldH%lld",
                           (long long)head.layer, (long long)head.head);
        hl_head_plan_zero(plan, head.layer, head.head);
    }
    return HL_OK;
}

static const hl_prune_options defaults = { 0 };

static hl_status check_folder(const hl_model *model, const char *path)
{
    if (hl_tensors_kind_of(model->tensors) != HL_TENSORS_SAFETENSORS)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: a folder is written from a Hugging Face folder only, and this is %s: "
                       "write GGUF",
                       model->path, model->info.format);
    return hl_folder_check(path);
}

/* Can this form be written? */
static hl_status check_form(const hl_model *model, const hl_prune_options *options,
                            hl_prune_form form, const char *path)
{
    if (options->means != NULL)
        HL_NEED(hl_new_biases_check(model->config, form));
    if (form == HL_PRUNE_GGUF)
        return hl_gguf_export_check(model->config, hl_prune_gguf_dtype(options));
    HL_NEED(check_folder(model, path));
    if (form == HL_PRUNE_COMPACT)
        HL_NEED(hl_compact_check(model->config));
    return HL_OK;
}

/* The form to write, and in `report` why it is one that saves nothing. */
static hl_status choose_form(hl_prune_report *report, const hl_model *model,
                             const hl_prune_options *options, const char *path)
{
    bool is_folder = hl_tensors_kind_of(model->tensors) == HL_TENSORS_SAFETENSORS;

    report->form = options->form;
    if (options->form != HL_PRUNE_AUTO)
        return check_form(model, options, options->form, path);
    report->form     = hl_ends_with(path, ".gguf") || !is_folder ? HL_PRUNE_GGUF : HL_PRUNE_COMPACT;
    hl_status status = check_form(model, options, report->form, path);
    if (report->form == HL_PRUNE_COMPACT && status == HL_UNSUPPORTED) {
        snprintf(report->form_note, sizeof report->form_note, "%s", hl_error_message());
        report->form = HL_PRUNE_MASKED;
        status       = check_form(model, options, report->form, path);
    }
    return status;
}

hl_status hl_prune_check(const hl_model *model, const hl_prune_options *options, const char *path)
{
    hl_prune_report unasked = { 0 };

    if (options == NULL)
        options = &defaults;
    if (model == NULL || path == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "prune: no model or no path");
    if ((unsigned)options->form >= HL_N_PRUNE_FORMS)
        return hl_fail(HL_BAD_ARGUMENT, "prune: there is no form %d", (int)options->form);
    return choose_form(&unasked, model, options, path);
}

static hl_status write_form(hl_prune_report *report, const hl_model *model, hl_head_plan *plan,
                            const hl_prune_options *options, const char *path)
{
    if (report->form == HL_PRUNE_GGUF)
        return hl_prune_write_gguf(report, model, plan, options, path);
    if (report->form == HL_PRUNE_COMPACT)
        hl_head_plan_compact(plan, model->config);
    return hl_prune_write_folder(&report->loads, model, plan, path);
}

/* What was written, by opening it. */
static hl_status fill_report(hl_prune_report *report, const hl_model *model,
                             const hl_head_plan *plan, const char *path)
{
    hl_status status   = HL_OK;
    hl_model *written  = NULL;
    int64_t   n_zeroed = 0;

    HL_TRY(hl_model_open(&written, path));
    hl_head_plan_count(&n_zeroed, &report->n_gone, plan, model->config);
    report->n_pruned     = n_zeroed + report->n_gone;
    report->n_params     = written->info.n_params;
    report->tensor_bytes = written->info.tensor_bytes;
    report->kv_bytes_f16 = written->info.kv_bytes_f16;

done:
    hl_model_close(written);
    return status;
}

hl_status hl_prune_write(hl_prune_report *report, const hl_model *model, const hl_head_list *heads,
                         const hl_prune_options *options, const char *path)
{
    hl_status       status  = HL_OK;
    hl_head_plan   *plan    = NULL;
    hl_prune_report unasked = { 0 };

    if (report == NULL)
        report = &unasked;
    *report = (hl_prune_report){ 0 };
    if (options == NULL)
        options = &defaults;
    if (heads == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "prune: no list of heads");
    HL_TRY(hl_prune_check(model, options, path));
    HL_TRY(choose_form(report, model, options, path));
    HL_TRY(hl_head_plan_new(&plan, model->config));
    HL_TRY(plan_heads(plan, model->config, heads));
    if (options->means != NULL)
        HL_TRY(hl_means_to_biases(plan, model, options->means));
    HL_TRY(write_form(report, model, plan, options, path));
    HL_TRY(fill_report(report, model, plan, path));

done:
    hl_head_plan_free(plan);
    if (status != HL_OK || report == &unasked)
        hl_prune_report_clear(report);
    return status;
}

void hl_prune_report_clear(hl_prune_report *report)
{
    for (int64_t i = 0; i < report->n_tensors; i++)
        hl_free(report->tensors[i].name);
    hl_free(report->tensors);
    *report = (hl_prune_report){ 0 };
}
