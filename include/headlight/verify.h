/* headlight/verify.h - ours beside what other software computed.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_VERIFY_H
#define HEADLIGHT_VERIFY_H

#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- verify
 *
 * Runs a golden file, a safetensors file with inputs and what another program
 * computed from them, and reports the largest error of every output.  There are
 * attention cases; files of quantized blocks: NAME.blocks, U8, beside
 * NAME.values, F32, for each type, which must be read exactly; and models, with
 * the tensors of an expected.safetensors beside them, or else by themselves: fused
 * rows against rows materialized in double precision. */

typedef struct hl_verify_options {
    const char *backend;    /* NULL: every one that this CPU can run */
    const char *write_path; /* store what the chosen back end computed, under the case's names */
    int32_t     n_threads;
    /* Of models.  With an expected file the path is that of a model; HL_BAD_ARGUMENT, naming it,
     * where another file is given one of the others. */
    const char *expected_path; /* NULL: expected.safetensors beside the model, if there */
    int64_t     n_chunk;       /* prefill so many tokens at a time; 0: all */
    bool        decode;        /* one token at a time, through the cache */
    /* Called with the model when it is open: for gates.  If the expected file's masked_heads are
     * those that were closed, logits and hidden are compared with masked_logits and
     * masked_hidden; with other gates the model is compared with itself. */
    hl_status (*prepare)(void *context, hl_model *model);
    void *context;
} hl_verify_options;

typedef struct hl_verify_entry {
    const char *backend; /* borrowed, as is output */
    const char *output;  /* "entropy", "dq", ...; of blocks the type, "Q4_K" */
    double      error;   /* largest, absolute or relative as `relative` says */
    double      tolerance;
    bool        relative; /* to the largest value of the tensor */
    bool        passed;
    int64_t     worst; /* which element of the output, counted as it is stored, has the error */
} hl_verify_entry;

typedef struct hl_verify_report {
    char            *name; /* of the case: the file's name without its ending */
    hl_verify_entry *entries;
    size_t           n_entries;
    bool             passed;
    double           max_score; /* of a model, the largest |score|: its rounding, 8 * 2^-24 of
                                 * it, is allowed in any case; 0: not looked at */
} hl_verify_report;

/* Whichever of the three it is. */
HL_API hl_status hl_verify(hl_verify_report **out, const char *path,
                           const hl_verify_options *options);
HL_API void      hl_verify_report_free(hl_verify_report *report);

#ifdef __cplusplus
}
#endif
#endif
