/* verify_model.h - what a model computes, under the names of golden files.
 *
 *     hl_verify_results *results = NULL;
 *     HL_TRY(hl_verify_results_new(&results, model, expected, options));
 *     HL_TRY(hl_verify_results_compute(results));
 *     ... results->outputs[HL_MODEL_ENTROPY].values ...
 *   done:
 *     hl_verify_results_free(results);
 *
 * Letters of shapes: L n_layers, M n_layers + 1, B sequences, S tokens of each, T S - 1,
 * H n_heads, V d_vocab, D d_model. */
#ifndef HL_MEASURE_VERIFY_MODEL_H
#define HL_MEASURE_VERIFY_MODEL_H

#include "formats/safetensors.h"
#include "headlight.h"

typedef enum hl_model_output {
    HL_MODEL_ENTROPY = 0,
    HL_MODEL_RENYI2,
    HL_MODEL_VARENTROPY,
    HL_MODEL_PEAK,
    HL_MODEL_DIAGONAL,
    HL_MODEL_PREVIOUS,
    HL_MODEL_FIRST,
    HL_MODEL_LSE,
    HL_MODEL_PATTERN0,
    HL_MODEL_HIDDEN,
    HL_MODEL_LOGITS,
    HL_MODEL_LOGITS_LAST,
    HL_MODEL_NLL,
    HL_MODEL_MASKED_HIDDEN,
    HL_MODEL_MASKED_LOGITS,
    HL_MODEL_LENS_TOP,
    HL_MODEL_LENS_ENTROPY,
    HL_MODEL_N_OUTPUTS
} hl_model_output;

typedef struct hl_model_spec {
    const char *name;
    const char *shape;
    double      tolerance; /* 0: not compared */
    bool        relative;  /* to the largest value of the tensor */
    bool        scored;    /* the rounding of scores widens it */
} hl_model_spec;

extern const hl_model_spec hl_model_specs[HL_MODEL_N_OUTPUTS];

/* The statistics of rows, from which fused and exact rows can be compared. */
#define HL_MODEL_N_STATISTICS (HL_MODEL_LSE + 1)

typedef struct hl_verify_values {
    float           *values; /* NULL: not computed */
    size_t           count;
    const hl_tensor *expected;    /* NULL: the file does not say */
    double           exact_error; /* statistics: the largest distance from exact rows */
} hl_verify_values;

typedef struct hl_verify_results {
    const hl_model      *model;
    const hl_model_info *info;
    hl_session          *session;
    hl_verify_options    options;
    hl_safetensors      *expected; /* NULL: none */
    const char          *where;    /* names it in messages */

    int64_t  n_batch;
    int64_t  n_tokens;
    int64_t *tokens;    /* (B, S) */
    int64_t *lengths;   /* (B) rows of each sequence that are compared; NULL: nothing is expected */
    int64_t *positions; /* (S) those whose rows are materialised */
    int64_t  n_positions;
    float   *gates;    /* (L, H) with masked_heads closed; NULL: none are */
    bool     masked;   /* the pass that is running has them closed */
    bool     alone;    /* nothing is expected of the model as it runs */
    float   *lens_gap; /* (M, S) */
    double   max_score;

    hl_verify_values outputs[HL_MODEL_N_OUTPUTS];
} hl_verify_results;

/* `path` names the expected file, or is NULL: then tokens are made up. */
hl_status hl_verify_results_new(hl_verify_results **out, const hl_model *model, const char *path,
                                const hl_verify_options *options);
void      hl_verify_results_free(hl_verify_results *results);

/* Runs the model on the back end in use. */
hl_status hl_verify_results_compute(hl_verify_results *results);
/* Adds an entry for every output that can be compared. */
hl_status hl_verify_results_compare(hl_verify_report *report, const hl_verify_results *results,
                                    const char *backend);
hl_status hl_verify_results_write(const hl_verify_results *results, const char *path);

/* The size that a letter stands for. */
int64_t hl_verify_results_size(const hl_verify_results *results, char letter);

#endif
