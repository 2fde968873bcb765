/* write_gguf.c - a pruned model as a GGUF file.
 *
 * Heads are taken out where llama.cpp has an architecture that loads the result
 * (model/export_gguf.h), and zeroed elsewhere.  A GGUF file's vocabulary goes along.  That
 * of a Hugging Face folder is not converted: such a file says "no_vocab", and runs on
 * token ids. */
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/export_gguf.h"
#include "prune/compact.h"
#include "prune/write.h"
#include "tokenize/vocab_source.h"

static void add_vocab(hl_gguf_export *file, const hl_model *model)
{
    const hl_gguf *source = hl_tensors_gguf(model->tensors);

    if (source != NULL) {
        hl_gguf_copy_vocab(hl_gguf_export_writer(file), source);
        return;
    }
    hl_gguf_add_text(hl_gguf_export_writer(file), "tokenizer.ggml.model", "no_vocab");
    hl_gguf_export_token_ids(file);
}

hl_status hl_prune_write_gguf(const char **loads, const hl_model *model, hl_head_plan *plan,
                              hl_dtype dtype, const char *path)
{
    hl_status       status = HL_OK;
    hl_gguf_export *file   = NULL;
    char           *heads  = NULL;

    if (hl_compact_check(model->config) == HL_OK)
        hl_head_plan_compact(plan, model->config);
    if (!hl_gguf_export_fits(model->config, plan))
        hl_head_plan_expand(plan, model->config);
    HL_TRY(hl_gguf_export_new(&file, model, plan, dtype));
    add_vocab(file, model);
    HL_TRY(hl_prune_heads_text(&heads, model, plan));
    hl_gguf_add_text(hl_gguf_export_writer(file), "headlight.pruned_heads", heads);
    HL_TRY(hl_gguf_export_write(file, path));
    *loads = "llama.cpp";

done:
    hl_free(heads);
    hl_gguf_export_free(file);
    return status;
}
