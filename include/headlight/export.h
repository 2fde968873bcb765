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
 * A model without these heads, which computes what the model computes with their gates at 0.
 * A folder is opened again before it is put in place; after a failure there is nothing at
 * `path`, or what was there before. */

typedef enum hl_prune_form {
    HL_PRUNE_AUTO = 0, /* the form that saves: GGUF where the path ends in .gguf or the model is
                        * not a Hugging Face folder; else COMPACT, and MASKED where a family
                        * cannot be compacted.  The report says which */
    HL_PRUNE_MASKED,   /* a Hugging Face folder of the same shapes: the heads' slices of the
                        * output projections are zero, all other bytes as they were.  Saves
                        * nothing */
    HL_PRUNE_COMPACT,  /* a Hugging Face folder of smaller shapes: the heads are gone from all
                        * tensors.  Grouped heads go as far as groups stay equally large (a K/V
                        * head with the last of its queries), the rest is zeroed */
    HL_PRUNE_GGUF,     /* a GGUF file: gone where llama.cpp can load that, else zeroed */
    HL_N_PRUNE_FORMS
} hl_prune_form;

/* "auto", "masked", "compact", "gguf"; NULL past the last. */
HL_API const char *hl_prune_form_name(size_t form);

typedef struct hl_prune_options {
    hl_prune_form form;
    hl_dtype      dtype; /* GGUF: matrices become F16, BF16, Q8_0 or Q4_0, or F32 with `convert` */
    bool          convert; /* GGUF: to dtype even if that is F32.  false, and F32: every matrix
                            * keeps the type that it is stored in, block by block */
    const float  *means;   /* (n_layers, n_heads, d_head) of hl_head_means: what removed heads
                            * wrote on average goes into the output bias; NULL: nothing does */
    const hl_repair
               *repair; /* of the same model and heads: its output projections are written; NULL:
                              * they stay.  Not with means */
    const char *tokenizer_path; /* GGUF: whose vocabulary goes in; NULL: the model's own */
} hl_prune_options;

/* A matrix of a GGUF file that could not have its type, or takes more bytes than before. */
typedef struct hl_prune_tensor {
    char    *name;
    hl_dtype stored; /* in the model */
    hl_dtype wanted; /* `stored`, or the dtype of the options */
    hl_dtype written;
    size_t   stored_bytes;
    size_t   written_bytes;
    char     why[96]; /* it is not `wanted`; "" if it is */
} hl_prune_tensor;

typedef struct hl_prune_report {
    int64_t     n_pruned; /* heads that were asked for */
    int64_t     n_gone;   /* of these, out of the tensors; the others are zeroed */
    int64_t     n_params; /* of what was written */
    size_t      tensor_bytes;
    size_t      kv_bytes_f16; /* a token; 0 for an encoder */
    const char *loads;        /* what opens it, in a few words; static */
    bool        has_vocab;    /* text can be fed to it; else token ids alone.  GGUF files only */
    char        vocab[256];   /* why not, or what the vocabulary leaves out; "" if nothing */

    hl_prune_form form;           /* that was written, never AUTO */
    char          form_note[256]; /* AUTO: why it is MASKED; "" otherwise */
    /* GGUF files only. */
    hl_dtype         file_type; /* of most matrices that were written */
    hl_prune_tensor *tensors;   /* (n_tensors) */
    int64_t          n_tensors;
} hl_prune_report;

/* Releases what the report owns; the report itself is the caller's. */
HL_API void hl_prune_report_clear(hl_prune_report *report);

/* The report may be NULL, else it is to be cleared by hl_prune_report_clear.  A folder must not exist; a GGUF file is replaced.  HL_UNSUPPORTED,
 * with the reason, for what cannot be: heads taken out where the others depend on them (ALiBi,
 * norms over all heads), means where the family has no output biases and none can be added,
 * folders from GGUF files, families that are not written as GGUF. */
HL_API hl_status hl_prune_write(hl_prune_report *report, const hl_model *model,
                                const hl_head_list *heads, const hl_prune_options *options,
                                const char *path);

/* Would hl_prune_write refuse this, whatever the heads?  To ask before long work. */
HL_API hl_status hl_prune_check(const hl_model *model, const hl_prune_options *options,
                                const char *path);

/* What hl_prune_write would write, in bytes of tensors, without writing it.  Exact for folders; near for
 * GGUF files whose blocks a cut goes through.  Of the options only the form is looked at; the path,
 * which may be NULL, tells it as in hl_prune_write. */
HL_API hl_status hl_prune_size(size_t *tensor_bytes, const hl_model *model,
                               const hl_head_list *heads, const hl_prune_options *options,
                               const char *path);

/* What every head gives on average before the output projection, over windows of the
 * default n_ctx: out (n_layers, n_heads, d_head).  `around` stands around
 * each window and is not in the mean; NULL: nothing. */
HL_API hl_status hl_head_means(float *out, const hl_model *model, const int64_t *tokens,
                               int64_t n_tokens, const hl_around_tokens *around, int32_t n_threads);

#ifdef __cplusplus
}
#endif
#endif
