/* headlight/verify.h - comparing results with those of other software. Part of headlight.h, which
 * see for the conventions. */
#ifndef HEADLIGHT_VERIFY_H
#define HEADLIGHT_VERIFY_H

#include "session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- verify
 *
 * Runs a golden file, a safetensors file with inputs and the outputs that another program computed
 * from them, and reports the largest error of every output.  There are three kinds:
 *
 *   attention cases
 *   quantized blocks  NAME.blocks, U8, and NAME.values, F32, for each type; values must be equal
 *   models            compared with the tensors of an expected.safetensors beside them; without
 *                     one, fused rows are compared with complete rows in double precision */

typedef struct hl_verify_options {
    const char *backend;    /* back end to check; NULL: every one that this CPU can run */
    const char *write_path; /* file to store the chosen back end's results in, under the case's
                             * names */
    int32_t     n_threads;
    /* The options below are for models; HL_BAD_ARGUMENT, naming the option, for other files.  If
     * expected_path is given, the path to verify is that of the model. */
    const char *expected_path; /* NULL: expected.safetensors beside the model, if it exists */
    int64_t     n_chunk;       /* tokens per feed during prefill; 0: all at once */
    bool        decode;        /* feed one token at a time, through the cache */
    /* Called with the opened model, for example to set gates.  If exactly the expected file's
     * masked_heads are disabled, logits and hidden are compared with masked_logits and
     * masked_hidden.  With other gates the model is compared with its own result in double
     * precision. */
    hl_status (*prepare)(void *context, hl_model *model);
    void *context;
} hl_verify_options;

typedef struct hl_verify_entry {
    const char *backend; /* borrowed, like `output` */
    const char *output;  /* "entropy", "dq", ...; for quantized blocks the type, "Q4_K" */
    double      error;   /* largest error, absolute or relative as `relative` says */
    double      tolerance;
    bool        relative; /* errors are relative to the largest value of the tensor */
    bool        passed;
    int64_t     worst; /* index of the element with the largest error, in the order in which the
                        * output is stored */
} hl_verify_entry;

#define HL_VERIFY_NOTES 3

typedef struct hl_verify_report {
    char            *name; /* the file's name without its extension */
    hl_verify_entry *entries;
    size_t           n_entries;
    bool             passed;
    double           max_score; /* models: the largest |score|; an error of 8 * 2^-24 of it, from
                                 * rounding, is always allowed.  0: not examined */
    const char *notes[HL_VERIFY_NOTES]; /* models: why tolerances are wider, or something was not
                                         * compared; static, NULL after the last */
} hl_verify_report;

/* Verifies a file of any of the three kinds. */
HL_API hl_status hl_verify(hl_verify_report **out, const char *path,
                           const hl_verify_options *options);
HL_API void      hl_verify_report_free(hl_verify_report *report);

/* Chat templates: NAME.json beside NAME.jinja is an array of conversations with what another program
 * rendered:
 *
 *     {"messages": [...], "add_generation_prompt": true, "options": {"tools": [...], ...},
 *      "text": "..."}        or "error": "TypeError: ..." where it refused
 *
 * bos_token is "<s>", eos_token "</s>", and the time 2026-07-14 09:30. */
typedef struct hl_verify_chats {
    char  *name; /* the file's name without its extension */
    size_t n_chats;
    size_t n_equal;    /* with the same text to the byte, or the same error */
    size_t first;      /* the first that differs; n_chats if none does */
    char  *difference; /* of that one: both texts from where they part; NULL: none */
} hl_verify_chats;

/* Renders the conversations of NAME.json with NAME.jinja.  With write_path, what was rendered is
 * stored there in the form of NAME.json. */
HL_API hl_status hl_verify_chat(hl_verify_chats **out, const char *path, const char *write_path);
HL_API void      hl_verify_chats_free(hl_verify_chats *chats);

#ifdef __cplusplus
}
#endif
#endif
