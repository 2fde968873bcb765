/* write_gguf.c - a pruned model as a GGUF file.
 *
 * Heads are taken out where llama.cpp has an architecture that loads the result
 * (model/export_gguf.h), and zeroed elsewhere.  The vocabulary goes along: that of a GGUF
 * file as it is, a tokenizer.json as far as the format can hold it
 * (tokenize/vocab_export.h), a llama2.c tokenizer.bin by its pieces.  Where it cannot, or
 * there is none, the file says "no_vocab" and runs on token ids, and the report says why. */
#include <stdio.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/export_gguf.h"
#include "prune/compact.h"
#include "prune/write.h"
#include "tokenize/vocab_export.h"

/* ---------------------------------------------------------------------- vocabulary */

static hl_status copy_gguf(hl_gguf_writer *writer, const char *path)
{
    hl_gguf  *file   = NULL;
    hl_status status = hl_gguf_open(&file, path);

    if (status == HL_OK)
        hl_gguf_copy_vocab(writer, file);
    hl_gguf_close(file);
    return status;
}

/* llama2.c's pieces, which must be as many as the model's embeddings. */
static hl_status convert_llama2c(hl_gguf_writer *writer, const char *path, int64_t d_vocab)
{
    hl_status         status = HL_OK;
    hl_llama2c_vocab *vocab  = NULL;

    HL_TRY(hl_llama2c_vocab_open(&vocab, path));
    const hl_vocab_source *source = hl_llama2c_vocab_source(vocab);
    if ((int64_t)source->n_tokens != d_vocab)
        HL_TRY(hl_fail(HL_UNSUPPORTED, "%s has %zu pieces, the model %lld embeddings", path,
                       source->n_tokens, (long long)d_vocab));
    HL_TRY(hl_gguf_add_vocab(writer, source));

done:
    hl_llama2c_vocab_close(vocab);
    return status;
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
    hl_status        status    = HL_OK;
    hl_tokenizer    *tokenizer = NULL;
    hl_vocab_export *vocab     = NULL;

    HL_TRY(hl_tokenizer_open(&tokenizer, path));
    HL_TRY(hl_vocab_export_new(&vocab, tokenizer, (size_t)model->config->d_vocab));
    fill_special(hl_vocab_export_source(vocab), &model->config->generation);
    HL_TRY(hl_gguf_add_vocab(writer, hl_vocab_export_source(vocab)));
    snprintf(report->vocab, sizeof report->vocab, "%s", hl_vocab_export_note(vocab));

done:
    hl_vocab_export_free(vocab);
    hl_tokenizer_close(tokenizer);
    return status;
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

/* A model without a vocabulary that can be written is still a model. */
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

/* ----------------------------------------------------------------------- the whole */

hl_dtype hl_prune_gguf_dtype(const hl_prune_options *options)
{
    return options->dtype == HL_DTYPE_F32 && !options->convert ? HL_GGUF_AS_STORED : options->dtype;
}

hl_status hl_prune_write_gguf(hl_prune_report *report, const hl_model *model, hl_head_plan *plan,
                              const hl_prune_options *options, const char *path)
{
    hl_status       status = HL_OK;
    hl_gguf_export *file   = NULL;
    char           *heads  = NULL;

    if (hl_compact_check(model->config) == HL_OK)
        hl_head_plan_compact(plan, model->config);
    if (!hl_gguf_export_fits(model->config, plan))
        hl_head_plan_expand(plan, model->config);
    HL_TRY(hl_gguf_export_new(&file, model, plan, hl_prune_gguf_dtype(options)));
    HL_TRY(add_vocab(report, file, model, options->tokenizer_path));
    HL_TRY(hl_prune_heads_text(&heads, model, plan));
    hl_gguf_add_text(hl_gguf_export_writer(file), "headlight.pruned_heads", heads);
    HL_TRY(hl_gguf_export_write(file, path));
    hl_gguf_export_report(report, file);
    report->loads = "llama.cpp";

done:
    hl_free(heads);
    hl_gguf_export_free(file);
    return status;
}
