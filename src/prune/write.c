/* write.c - hl_prune_write: from a list of heads to a model on disk.
 *
 * The form is the requested one, or the first that the model allows.  write_folder.c writes folders;
 * this file writes GGUF. */
#include "prune/write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/export_gguf.h"
#include "prune/compact.h"
#include "prune/gates.h"
#include "prune/means.h"
#include "prune/repair.h"
#include "tokenize/tokenizer.h"
#include "tokenize/vocab_source.h"

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

/* ---------------------------------------------------------------- a GGUF file */

/* Heads are removed where llama.cpp has an architecture that loads the result (model/export_gguf.h),
 * and zeroed elsewhere.  The vocabulary is written too: that of a GGUF file unchanged, a
 * tokenizer.json as far as the format can hold it (tokenize/vocab_source.h), a llama2.c tokenizer.bin
 * by its pieces.  Without a vocabulary that can be written, the file says "no_vocab" and runs on token
 * ids, and the report gives the reason. */

/* Returns the type for the matrices of a GGUF file, as hl_gguf_export_new takes it. */
static hl_dtype gguf_dtype(const hl_prune_options *options)
{
    return options->dtype == HL_DTYPE_F32 && !options->convert ? HL_GGUF_AS_STORED : options->dtype;
}

static hl_status copy_gguf(hl_gguf_writer *writer, const char *path)
{
    hl_gguf  *file   = NULL;
    hl_status status = hl_gguf_open(&file, path);

    if (status == HL_OK)
        hl_gguf_copy_vocab(writer, file);
    hl_gguf_close(file);
    return status;
}

/* Writes the pieces of a llama2.c tokenizer, whose number must be that of the model's embeddings. */
static hl_status convert_llama2c(hl_gguf_writer *writer, const char *path, int64_t d_vocab)
{
    HL_CLOSED(hl_llama2c_vocab_close) hl_llama2c_vocab *vocab = NULL;

    HL_NEED(hl_llama2c_vocab_open(&vocab, path));
    const hl_vocab_source *source = hl_llama2c_vocab_source(vocab);
    if ((int64_t)source->n_tokens != d_vocab)
        return hl_fail(HL_UNSUPPORTED, "%s has %zu pieces, the model %lld embeddings", path,
                       source->n_tokens, (long long)d_vocab);
    return hl_gguf_add_vocab(writer, source);
}

static void fill_special(hl_vocab_source *source, const hl_generation *known)
{
    int32_t *special = source->special;

    if (special[HL_SPECIAL_BOS] < 0)
        special[HL_SPECIAL_BOS] = (int32_t)known->bos_id;
    if (special[HL_SPECIAL_EOS] < 0 && known->n_eos_ids > 0)
        special[HL_SPECIAL_EOS] = (int32_t)known->eos_ids[0];
    if (special[HL_SPECIAL_PAD] < 0)
        special[HL_SPECIAL_PAD] = (int32_t)known->pad_id;
}

static hl_status convert_json(hl_prune_report *report, hl_gguf_writer *writer,
                              const hl_model *model, const char *path)
{
    HL_CLOSED(hl_tokenizer_close) hl_tokenizer      *tokenizer = NULL;
    HL_CLOSED(hl_vocab_export_free) hl_vocab_export *vocab     = NULL;

    HL_NEED(hl_tokenizer_open(&tokenizer, path));
    HL_NEED(hl_vocab_export_new(&vocab, tokenizer, (size_t)model->config->d_vocab));
    fill_special(hl_vocab_export_source(vocab), &model->config->generation);
    HL_NEED(hl_gguf_add_vocab(writer, hl_vocab_export_source(vocab)));
    snprintf(report->vocab, sizeof report->vocab, "%s", hl_vocab_export_note(vocab));
    return HL_OK;
}

static hl_status convert_vocab(hl_prune_report *report, hl_gguf_writer *writer,
                               const hl_model *model, const char *path)
{
    if (hl_ends_with(path, ".gguf"))
        return copy_gguf(writer, path);
    if (hl_ends_with(path, ".bin"))
        return convert_llama2c(writer, path, model->config->d_vocab);
    return convert_json(report, writer, model, path);
}

/* Writes the vocabulary; without one that can be written, the model runs on token ids. */
static hl_status add_vocab(hl_prune_report *report, hl_gguf_export *file, const hl_model *model,
                           const char *path)
{
    hl_gguf_writer *writer = hl_gguf_export_writer(file);
    hl_status       status =
        convert_vocab(report, writer, model, path != NULL ? path : model->info.tokenizer_path);

    report->has_vocab = status == HL_OK;
    if (status != HL_UNSUPPORTED && (status != HL_NOT_FOUND || path != NULL))
        return status;
    snprintf(report->vocab, sizeof report->vocab, "%s", hl_error_message());
    hl_gguf_add_text(writer, "tokenizer.ggml.model", "no_vocab");
    hl_gguf_export_token_ids(file);
    return HL_OK;
}

/* Marks heads as GONE in the plan, which has none yet, where the format allows it.  Fills in the
 * software that opens the file, the state of the vocabulary, and the types written. */
static hl_status write_gguf(hl_prune_report *report, const hl_model *model, hl_head_plan *plan,
                            const hl_prune_options *options, const char *path)
{
    HL_CLOSED(hl_gguf_export_free) hl_gguf_export *file  = NULL;
    HL_FREED char                                 *heads = NULL;

    if (hl_compact_check(model->config) == HL_OK)
        hl_head_plan_compact(plan, model->config);
    if (!hl_gguf_export_fits(model->config, plan))
        hl_head_plan_expand(plan, model->config);
    HL_NEED(hl_gguf_export_new(&file, model, plan, gguf_dtype(options)));
    HL_NEED(add_vocab(report, file, model, options->tokenizer_path));
    HL_NEED(hl_prune_heads_text(&heads, model, plan));
    hl_gguf_add_text(hl_gguf_export_writer(file), "headlight.pruned_heads", heads);
    HL_NEED(hl_gguf_export_write(file, path));
    hl_gguf_export_report(report, file);
    report->loads = "llama.cpp";
    return HL_OK;
}

/* ------------------------------------------------------------------- the form */

static const hl_prune_options defaults = { 0 };

static hl_status check_folder(const hl_model *model, const char *path)
{
    if (hl_tensors_kind_of(model->tensors) != HL_TENSORS_SAFETENSORS)
        return hl_fail(HL_UNSUPPORTED,
                       "%s: only a Hugging Face folder can be written as a folder, and this is %s; "
                       "use --as gguf",
                       model->path, model->info.format);
    return hl_folder_check(path);
}

static bool is_gguf(const hl_model *model)
{
    return hl_tensors_kind_of(model->tensors) == HL_TENSORS_GGUF;
}

/* A GGUF file with zeroed heads has the model's own tensors, and no others. */
static hl_status check_copy(const hl_model *model, const hl_prune_options *options)
{
    if (options->means == NULL && options->repair == NULL && !options->convert &&
        options->dtype == HL_DTYPE_F32)
        return HL_OK;
    return hl_fail(
        HL_UNSUPPORTED,
        "%s: heads of a %s are zeroed in a copy of the GGUF file, which keeps its types and "
        "gets no new tensors: no means, no repair (--repair none), no --dtype",
        model->path, model->config->family);
}

/* Can this form be written? */
static hl_status check_form(const hl_model *model, const hl_prune_options *options,
                            hl_prune_form form, const char *path)
{
    if (options->means != NULL && options->repair != NULL)
        return hl_fail(HL_BAD_ARGUMENT, "prune: means and a repair; a repair makes up for means");
    if (form == HL_PRUNE_MASKED && is_gguf(model) && hl_ends_with(path, ".gguf"))
        return check_copy(model, options);
    if (options->means != NULL)
        HL_NEED(hl_new_biases_check(model->config, form));
    if (form == HL_PRUNE_GGUF)
        return hl_gguf_export_check(model->config, gguf_dtype(options));
    HL_NEED(check_folder(model, path));
    if (form == HL_PRUNE_COMPACT)
        HL_NEED(hl_compact_check(model->config));
    return HL_OK;
}

/* Chooses the form to write; if it saves nothing, the report gets the reason. */
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
    if (report->form == HL_PRUNE_GGUF && status == HL_UNSUPPORTED && is_gguf(model)) {
        snprintf(report->form_note, sizeof report->form_note, "%s", hl_error_message());
        report->form = HL_PRUNE_MASKED;
        status       = check_copy(model, options);
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

/* ------------------------------------------------------------------ the whole */

static hl_status plan_heads(hl_head_plan *plan, const hl_config *config, const hl_head_list *list)
{
    for (int64_t i = 0; i < list->n_heads; i++) {
        hl_head head = list->heads[i];

        HL_NEED(hl_head_check(config, head));
        hl_head_plan_zero(plan, head.layer, head.head);
    }
    return HL_OK;
}

static hl_status plan_repair(hl_head_plan *plan, const hl_model *model, const hl_head_list *heads,
                             const hl_repair *repair)
{
    HL_NEED(hl_repair_check_heads(repair, model, heads));
    for (int64_t i = 0; i < plan->n_layers; i++) {
        const hl_repaired *layer = hl_repair_at(repair, i);

        if (layer == NULL)
            continue;
        plan->layers[i].output       = layer->weight;
        plan->layers[i].output_bias  = layer->bias;
        plan->layers[i].output_dtype = layer->dtype;
    }
    return HL_OK;
}

static hl_status write_form(hl_prune_report *report, const hl_model *model, hl_head_plan *plan,
                            const hl_prune_options *options, const char *path)
{
    if (report->form == HL_PRUNE_GGUF)
        return write_gguf(report, model, plan, options, path);
    if (is_gguf(model))
        return hl_prune_copy_gguf(report, model, plan, path);
    if (report->form == HL_PRUNE_COMPACT)
        hl_head_plan_compact(plan, model->config);
    return hl_prune_write_folder(&report->loads, model, plan, path);
}

/* Opens the result and describes it in the report. */
static hl_status fill_report(hl_prune_report *report, const hl_model *model,
                             const hl_head_plan *plan, const char *path)
{
    HL_CLOSED(hl_model_close) hl_model *written  = NULL;
    int64_t                             n_zeroed = 0;

    HL_NEED(hl_model_open(&written, path));
    hl_head_plan_count(&n_zeroed, &report->n_gone, plan, model->config);
    report->n_pruned     = n_zeroed + report->n_gone;
    report->n_params     = written->info.n_params;
    report->tensor_bytes = written->info.tensor_bytes;
    report->kv_bytes_f16 = written->info.kv_bytes_f16;
    return HL_OK;
}

hl_status hl_prune_write(hl_prune_report *report, const hl_model *model, const hl_head_list *heads,
                         const hl_prune_options *options, const char *path)
{
    HL_CLOSED(hl_head_plan_free) hl_head_plan       *plan = NULL;
    HL_SCOPED(hl_prune_report_clear) hl_prune_report made = { 0 };

    if (report != NULL)
        *report = made;
    if (options == NULL)
        options = &defaults;
    if (heads == NULL)
        return hl_fail(HL_BAD_ARGUMENT, "prune: no list of heads");
    HL_NEED(hl_prune_check(model, options, path));
    HL_NEED(choose_form(&made, model, options, path));
    HL_NEED(hl_head_plan_new(&plan, model->config));
    HL_NEED(plan_heads(plan, model->config, heads));
    if (options->means != NULL)
        HL_NEED(hl_means_to_biases(plan, model, options->means));
    if (options->repair != NULL)
        HL_NEED(plan_repair(plan, model, heads, options->repair));
    HL_NEED(write_form(&made, model, plan, options, path));
    HL_NEED(fill_report(&made, model, plan, path));
    if (report != NULL) {
        *report = made;
        made    = (hl_prune_report){ 0 }; /* the caller owns its contents now */
    }
    return HL_OK;
}

/* --------------------------------------------------------- size of the result */

/* Returns the bytes per stored value. */
static double value_bytes(const hl_weight *weight)
{
    return (double)weight->tensor->n_bytes / fmax(1.0, (double)hl_tensor_count(weight->tensor));
}

/* Returns the bytes that removing n_rows rows of a role saves. */
static double rows_bytes(const hl_model *model, hl_role role, int64_t layer, int64_t n_rows)
{
    const hl_param *param = hl_weights_get(model->weights, role, layer, 0);
    double          bytes = 0.0;

    if (param == NULL)
        return 0.0;
    bytes += (double)n_rows * (double)param->weight.n_columns * value_bytes(&param->weight);
    if (param->bias.tensor != NULL)
        bytes += (double)n_rows * value_bytes(&param->bias);
    return bytes;
}

/* Returns the bytes that removing columns saves.  A cut through blocks changes their type to Q8_0, with
 * 34 bytes for 32 values. */
static double columns_bytes(const hl_model *model, int64_t layer, int64_t n_columns)
{
    const hl_param *param = hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t         n_rows, left;

    if (param == NULL || n_columns == 0)
        return 0.0;
    n_rows               = param->weight.n_rows;
    left                 = param->weight.n_columns - n_columns;
    double         each  = value_bytes(&param->weight);
    hl_dtype_block block = hl_dtype_block_of(param->weight.tensor->dtype);
    bool           cuts =
        block.n_values > 1 && model->config->layers[layer].d_head % (int64_t)block.n_values != 0;
    double after = !cuts ? each : left % 32 == 0 ? 34.0 / 32.0 : 2.0;

    return (double)n_rows * ((double)param->weight.n_columns * each - (double)left * after);
}

/* Returns the form that would be written, without checking that the model allows it. */
static hl_prune_form form_of(const hl_model *model, const hl_prune_options *options,
                             const char *path)
{
    bool is_folder = hl_tensors_kind_of(model->tensors) == HL_TENSORS_SAFETENSORS;

    if (options->form != HL_PRUNE_AUTO)
        return options->form;
    if (is_gguf(model) && hl_gguf_export_check(model->config, gguf_dtype(options)) != HL_OK)
        return HL_PRUNE_MASKED;
    if (!is_folder || (path != NULL && hl_ends_with(path, ".gguf")))
        return HL_PRUNE_GGUF;
    return hl_compact_check(model->config) == HL_OK ? HL_PRUNE_COMPACT : HL_PRUNE_MASKED;
}

hl_status hl_prune_size(size_t *tensor_bytes, const hl_model *model, const hl_head_list *heads,
                        const hl_prune_options *options, const char *path)
{
    HL_CLOSED(hl_head_plan_free) hl_head_plan *plan   = NULL;
    const hl_config                           *config = model->config;
    hl_prune_form form  = form_of(model, options != NULL ? options : &defaults, path);
    double        saved = 0.0;

    HL_NEED(hl_head_plan_new(&plan, config));
    HL_NEED(plan_heads(plan, config, heads));
    if (form != HL_PRUNE_MASKED && hl_compact_check(config) == HL_OK)
        hl_head_plan_compact(plan, config);
    if (form == HL_PRUNE_GGUF && !hl_gguf_export_fits(config, plan))
        hl_head_plan_expand(plan, config);
    for (int64_t i = 0; i < config->n_layers; i++) {
        int64_t d    = config->layers[i].d_head;
        int64_t n    = (config->layers[i].n_heads - plan->layers[i].n_heads) * d;
        int64_t n_kv = (config->layers[i].n_kv_heads - plan->layers[i].n_kv_heads) * d;

        saved += rows_bytes(model, HL_ROLE_ATTN_Q, i, n) +
                 rows_bytes(model, HL_ROLE_ATTN_GATE, i, n) +
                 rows_bytes(model, HL_ROLE_ATTN_K, i, n_kv) +
                 rows_bytes(model, HL_ROLE_ATTN_V, i, n_kv) + columns_bytes(model, i, n);
    }
    *tensor_bytes = (size_t)((double)model->info.tensor_bytes - saved + 0.5);
    return HL_OK;
}

void hl_prune_report_clear(hl_prune_report *report)
{
    for (int64_t i = 0; i < report->n_tensors; i++)
        hl_free(report->tensors[i].name);
    hl_free(report->tensors);
    *report = (hl_prune_report){ 0 };
}
