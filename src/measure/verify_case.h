/* verify_case.h - one golden attention case, read and checked.
 *
 *     hl_verify_case *golden = NULL;
 *     HL_TRY(hl_verify_case_open(&golden, "tests/data/attention/gqa.safetensors"));
 *     ... pass golden->problem to hl_attention_forward ...
 *   done:
 *     hl_verify_case_close(golden);
 *
 * A case is a safetensors file: inputs and upstream gradients, the options as JSON under the
 * metadata key "case", and outputs that another program computed from them.  The file is untrusted;
 * after a successful open every size, dtype and number has been checked, and the inputs are aligned
 * copies. */
#ifndef HL_MEASURE_VERIFY_CASE_H
#define HL_MEASURE_VERIFY_CASE_H

#include "base/memory.h"
#include "formats/safetensors.h"
#include "headlight/attention.h"

/* The outputs that a case may expect, in the order of a report. */
typedef enum hl_verify_output {
    HL_VERIFY_OUT = 0,
    HL_VERIFY_LSE,
    HL_VERIFY_ENTROPY,
    HL_VERIFY_RENYI2,
    HL_VERIFY_VARENTROPY,
    HL_VERIFY_ENTROPY_NOSINK,
    HL_VERIFY_PEAK,
    HL_VERIFY_ARGMAX,
    HL_VERIFY_SELF,
    HL_VERIFY_PREVIOUS,
    HL_VERIFY_FIRST,
    HL_VERIFY_SEGMENT_MASS,
    HL_VERIFY_DQ, /* HL_VERIFY_DQ and all later ones come from the backward pass */
    HL_VERIFY_DK,
    HL_VERIFY_DV,
    HL_VERIFY_DGATES,
    HL_VERIFY_DSINKS,
    HL_VERIFY_N_OUTPUTS
} hl_verify_output;

/* A shape is a word of these letters:
 *   B n_batch   H n_heads   G n_kv_heads   Q n_queries   K n_keys
 *   D d_head    V d_value   S n_segments */
typedef struct hl_verify_spec {
    const char *name;  /* name of the tensor */
    const char *shape; /* "BHQ", ... */
    hl_dtype    dtype; /* dtype in golden files */
    double      tolerance;
    bool        relative; /* tolerance is relative to the largest value of the tensor */
} hl_verify_spec;

extern const hl_verify_spec hl_verify_specs[HL_VERIFY_N_OUTPUTS];

#define HL_VERIFY_MAX_INPUTS 16

typedef struct hl_verify_case {
    hl_safetensors *file;
    char           *where;   /* names the file in messages */
    const char     *options; /* the JSON text; borrowed from file */

    hl_attention          problem;
    hl_attention_upstream upstream;     /* the three gradients; the caller sets the other members */
    bool                  has_upstream; /* at least one of the three gradients is in the file */
    double                max_score;    /* largest |score|: sets the rounding allowed for */

    /* Borrowed from the file; NULL if the case does not expect this output. */
    const hl_tensor *expected[HL_VERIFY_N_OUTPUTS];

    void  *inputs[HL_VERIFY_MAX_INPUTS]; /* the aligned copies that problem points to */
    size_t n_inputs;
} hl_verify_case;

hl_status hl_verify_case_open(hl_verify_case **out, const char *path);
/* Reads a case from memory that outlives it; `where` names it in messages. */
hl_status hl_verify_case_parse(hl_verify_case **out, const uint8_t *bytes, size_t n_bytes,
                               const char *where);
void      hl_verify_case_close(hl_verify_case *golden);
HL_CLOSES(hl_verify_case_close, hl_verify_case)

/* The size that a letter of a shape stands for. */
int64_t hl_verify_size(const hl_verify_case *golden, char letter);
/* The number of elements of one output. */
size_t hl_verify_count(const hl_verify_case *golden, hl_verify_output output);

#endif
