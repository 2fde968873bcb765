/* export_gguf.h - a model as a GGUF file, as llama.cpp's converter would write it.
 *
 *     hl_gguf_export *file = NULL;
 *     HL_TRY(hl_gguf_export_new(&file, model, NULL, HL_DTYPE_Q8_0));
 *     HL_TRY(hl_gguf_add_vocab(hl_gguf_export_writer(file), &vocab));      tokenize/
 *     HL_TRY(hl_gguf_export_write(file, "model.gguf"));
 *   done:
 *     hl_gguf_export_free(file);
 *
 * The model may come from any format: weights are read by role.  A plan says which heads are
 * removed.  If layers then have different numbers of heads, the architecture is deci, a Llama whose
 * layers may differ; this works for Llama, Mistral and Qwen2 only, and is also used for a Qwen2
 * whose layers are smaller but alike.  Models that the format cannot express, and families that
 * have not been tested, are HL_UNSUPPORTED. */
#ifndef HL_MODEL_EXPORT_GGUF_H
#define HL_MODEL_EXPORT_GGUF_H

#include "base/memory.h"
#include "formats/gguf.h"
#include "headlight/export.h"
#include "model/head_plan.h"

typedef struct hl_gguf_export hl_gguf_export;

/* The dtype for matrices that keep the type they are stored in. */
#define HL_GGUF_AS_STORED HL_DTYPE_COUNT

/* Matrices become `dtype`: F32, F16, BF16, Q8_0 or Q4_0; or HL_GGUF_AS_STORED.  Rows that
 * already have the type are copied block by block.  A matrix that cannot have its type becomes
 * Q8_0, or F16 where rows are not a multiple of 32 values; hl_gguf_export_report lists these
 * matrices and those that grew.  Vectors and position tables are F32, unless they come from a
 * GGUF file and keep their type.  Needs memory for a second model.  Borrows model and plan
 * (NULL: all heads stay) until freed. */
hl_status hl_gguf_export_new(hl_gguf_export **out, const hl_model *model, const hl_head_plan *plan,
                             hl_dtype dtype);
void      hl_gguf_export_free(hl_gguf_export *file);
HL_CLOSES(hl_gguf_export_free, hl_gguf_export)
/* Checks that a model of this description can be written with these types; else HL_UNSUPPORTED. */
hl_status hl_gguf_export_check(const hl_config *config, hl_dtype dtype);
/* Is there a GGUF architecture for the model that the plan leaves? */
bool hl_gguf_export_fits(const hl_config *config, const hl_head_plan *plan);
/* The writer, borrowed, to add more metadata: a vocabulary, or token ids if there is none. */
hl_gguf_writer *hl_gguf_export_writer(hl_gguf_export *file);
/* Writes tokenizer.ggml.bos_token_id and the like from the model, for files without a
 * vocabulary. */
void      hl_gguf_export_token_ids(hl_gguf_export *file);
hl_status hl_gguf_export_write(hl_gguf_export *file, const char *path);
/* Fills file_type of the report, and moves the list of tensors into it; the report then owns it. */
void hl_gguf_export_report(hl_prune_report *report, hl_gguf_export *file);

#endif
