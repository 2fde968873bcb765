/* model_support.h - opens models and reads their weights, for tests. */
#ifndef HL_TESTS_MODEL_SUPPORT_H
#define HL_TESTS_MODEL_SUPPORT_H

#include "support.h"
#include <math.h>

#include <sys/stat.h>

#include "model/model.h"

static inline hl_model *open_model(const char *path)
{
    hl_model *model  = NULL;
    hl_status status = hl_model_open(&model, path);
    if (status != HL_OK)
        fail_msg("%s: %s", hl_status_name(status), hl_error_message());
    return model;
}

static inline bool path_exists(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0;
}

/* Reads a whole weight as f32; release with free. */
static inline float *read_weight(const hl_weight *weight)
{
    float *values = malloc(sizeof *values * (size_t)(weight->n_rows * weight->n_columns));
    assert_non_null(values);
    assert_ok(hl_weight_read(values, weight));
    return values;
}

/* Returns KL(p || q) of two rows of logits by its definition, from probabilities. */
static inline double divergence_of(const float *p, const float *q, int64_t n)
{
    double p_sum = 0.0, q_sum = 0.0, sum = 0.0;

    for (int64_t i = 0; i < n; i++) {
        p_sum += exp((double)p[i]);
        q_sum += exp((double)q[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double a = exp((double)p[i]) / p_sum, b = exp((double)q[i]) / q_sum;
        sum += a * log(a / b);
    }
    return sum;
}

#endif
