/* headlight/export.h - models written without some of their heads.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_EXPORT_H
#define HEADLIGHT_EXPORT_H

#include "prune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------- writing models
 *
 *     hl_prune_options options = { .form = HL_PRUNE_COMPACT };
 *     hl_prune_report  report;
 *     if (hl_prune_write(&report, model, heads, &options, "pruned") != HL_OK)
 *         fprintf(stderr, "%s\n", hl_error_message());
 *
 * Writes a model without the given heads, which computes what the model computes with their gates
 * at 0.  A folder is opened again, as a check, before it is moved to `path`; after a failure `path`
 * is as it was before. */

typedef enum hl_prune_form {
    HL_PRUNE_AUTO = 0, /* the form that saves the most: GGUF if the path ends in .gguf or the model
                        * is not a Hugging Face folder; else COMPACT, or MASKED if the family cannot
                        * be compacted or written as GGUF.  The report says which form was chosen */
    HL_PRUNE_MASKED,  /* a Hugging Face folder with the same shapes, or a copy of a GGUF file if the
                        * path ends in .gguf: the heads' slices of the output projections are zero,
                        * all else is unchanged.  Saves no memory and no time */
    HL_PRUNE_COMPACT, /* a Hugging Face folder with smaller shapes: the heads are removed from all
                        * tensors.  Grouped query heads are removed as long as all groups stay
                        * equally large (a KV head together with the last of its query heads); the
                        * rest is zeroed */
    HL_PRUNE_GGUF,    /* a GGUF file: heads are removed if llama.cpp can load the result, else
                        * zeroed */
    HL_N_PRUNE_FORMS
} hl_prune_form;

/* The name of a form: "auto", "masked", "compact", "gguf"; NULL past the last. */
HL_API const char *hl_prune_form_name(size_t form);

typedef struct hl_prune_options {
    hl_prune_form form;
    hl_dtype      dtype;   /* GGUF: type of the matrices: F16, BF16, Q8_0 or Q4_0, or F32 with
                            * `convert` */
    bool          convert; /* GGUF: convert to dtype even if it is F32. If false and dtype is F32,
                            * every matrix keeps its stored type, block by block */
    const float  *means;   /* (n_layers, n_heads, d_head) from hl_head_means: the average output of
                            * removed heads, which is added to the output bias; NULL: nothing is
                            * added */
    const hl_repair
               *repair; /* of the same model and heads: its output projections are written; NULL:
                              * they stay.  Not with means */
    const char *tokenizer_path; /* GGUF: where the vocabulary is taken from; NULL: the model's
                                   * own */
} hl_prune_options;

/* A matrix of a GGUF file that could not get its type, or that takes more bytes than before. */
typedef struct hl_prune_tensor {
    char    *name;
    hl_dtype stored; /* type in the model */
    hl_dtype wanted; /* equal to `stored`, or the dtype of the options */
    hl_dtype written;
    size_t   stored_bytes;
    size_t   written_bytes;
    char     why[96]; /* why `written` is not `wanted`; "" if it is */
} hl_prune_tensor;

typedef struct hl_prune_report {
    int64_t     n_pruned; /* number of heads requested */
    int64_t     n_gone;   /* number of these that were removed from the tensors; the others are
                           * zeroed */
    int64_t     n_params; /* number of parameters of the written model */
    size_t      tensor_bytes;
    size_t      kv_bytes_f16; /* KV-cache bytes per token in F16; 0 for an encoder */
    const char *loads;        /* software that can open the result, in a few words; static */
    bool        has_vocab;    /* GGUF: the file contains a vocabulary; without one it accepts only
                               * token ids */
    char        vocab[256];   /* why there is no vocabulary, or what it leaves out; "" if
                               * complete */

    hl_prune_form form;           /* form that was written, never AUTO */
    char          form_note[256]; /* AUTO: why the form is MASKED; "" otherwise */
    /* The fields below are for GGUF files only. */
    hl_dtype         file_type; /* type of most written matrices */
    hl_prune_tensor *tensors;   /* (n_tensors) */
    int64_t          n_tensors;
} hl_prune_report;

/* Releases what the report owns, but not the report itself. */
HL_API void hl_prune_report_clear(hl_prune_report *report);

/* Writes the model.  The report may be NULL; otherwise release it with hl_prune_report_clear.  A
 * folder must not exist yet; a GGUF file is replaced.  Returns HL_UNSUPPORTED, with the reason, for
 * removing heads that other heads depend on (ALiBi, norms over all heads), for means if the family
 * has no output biases and none can be added, for a folder from a GGUF file, and for families that
 * cannot be written as GGUF. */
HL_API hl_status hl_prune_write(hl_prune_report *report, const hl_model *model,
                                const hl_head_list *heads, const hl_prune_options *options,
                                const char *path);

/* Returns the error that hl_prune_write would return for any choice of heads.  Call this before
 * long work. */
HL_API hl_status hl_prune_check(const hl_model *model, const hl_prune_options *options,
                                const char *path);

/* Computes each head's average output before the output projection, over windows of the default
 * n_ctx: out (n_layers, n_heads, d_head).  The tokens of `around` are added to each window and are
 * not part of the mean; NULL: none are added. */
HL_API hl_status hl_head_means(float *out, const hl_model *model, const int64_t *tokens,
                               int64_t n_tokens, const hl_around_tokens *around, int32_t n_threads);

#ifdef __cplusplus
}
#endif
#endif
