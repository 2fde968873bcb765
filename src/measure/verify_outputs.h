/* verify_outputs.h - what our kernels compute from a golden case.
 *
 *     hl_verify_outputs *ours = NULL;
 *     HL_TRY(hl_verify_outputs_new(&ours, golden));
 *     HL_TRY(hl_verify_outputs_compute(ours, golden, n_threads));
 *     ... ours->values[HL_VERIFY_ENTROPY] ...
 *   done:
 *     hl_verify_outputs_free(ours);
 *
 * Everything that the case's inputs allow is computed, expected or not. */
#ifndef HL_MEASURE_VERIFY_OUTPUTS_H
#define HL_MEASURE_VERIFY_OUTPUTS_H

#include "headlight.h"
#include "measure/verify_case.h"

typedef struct hl_verify_outputs {
    /* By hl_verify_output, packed, shaped as hl_verify_specs says; NULL for what
     * the inputs do not allow, and for argmax, which is kept apart. */
    float   *values[HL_VERIFY_N_OUTPUTS];
    int64_t *argmax; /* (n_batch, n_heads, n_queries) */
} hl_verify_outputs;

hl_status hl_verify_outputs_new(hl_verify_outputs **out, const hl_verify_case *golden);
void      hl_verify_outputs_free(hl_verify_outputs *outputs);

/* Forward, then backward from that forward's results, on the back end in use. */
hl_status hl_verify_outputs_compute(hl_verify_outputs *outputs, const hl_verify_case *golden,
                                    int32_t n_threads);

/* Stores them under the case's names and dtypes, with the case's options. */
hl_status hl_verify_outputs_write(const hl_verify_outputs *outputs, const hl_verify_case *golden,
                                  const char *path);

#endif
