/* rank_weights.c - how large the weights of a head are.
 *
 * Rows [h d, h d + d) of W_Q belong to head h, those of its K/V head in W_K and W_V, and the
 * columns [h d, h d + d) of W_O.  Weights are read a row at a time, whatever they are stored
 * as. */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "prune/rank.h"

typedef struct weight_sums {
    const hl_model *model;
    float          *row; /* (the widest row) */
    double         *q;   /* (n_heads) sums of squares, as k (n_kv_heads), v and o */
    double         *k;
    double         *v;
    double         *o;
} weight_sums;

static double sum_of_squares(const float *x, int64_t n)
{
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

/* out[h] = the squares of rows h d .. h d + d. */
static hl_status sum_rows(double *out, const weight_sums *sums, hl_role role, int64_t layer,
                          int64_t n_heads)
{
    const hl_param *param  = hl_weights_get(sums->model->weights, role, layer, 0);
    int64_t         d_head = sums->model->config->d_head;

    for (int64_t row = 0; row < n_heads * d_head; row++) {
        hl_status status = hl_weight_read_row(sums->row, &param->weight, row);
        if (status != HL_OK)
            return status;
        out[row / d_head] = (row % d_head == 0 ? 0.0 : out[row / d_head]) +
                            sum_of_squares(sums->row, param->weight.n_columns);
    }
    return HL_OK;
}

/* out[h] = the squares of columns h d .. h d + d. */
static hl_status sum_columns(double *out, const weight_sums *sums, int64_t layer, int64_t n_heads)
{
    const hl_param *param  = hl_weights_get(sums->model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t         d_head = sums->model->config->d_head;

    for (int64_t head = 0; head < n_heads; head++)
        out[head] = 0.0;
    for (int64_t row = 0; row < param->weight.n_rows; row++) {
        hl_status status = hl_weight_read_row(sums->row, &param->weight, row);
        if (status != HL_OK)
            return status;
        for (int64_t head = 0; head < n_heads; head++)
            out[head] += sum_of_squares(sums->row + head * d_head, d_head);
    }
    return HL_OK;
}

static hl_status weigh_layer(double *out, const weight_sums *sums, int64_t layer)
{
    const hl_layer_config *config = &sums->model->config->layers[layer];

    if (config->n_heads == 0)
        return HL_OK;
    HL_NEED(sum_rows(sums->q, sums, HL_ROLE_ATTN_Q, layer, config->n_heads));
    HL_NEED(sum_rows(sums->k, sums, HL_ROLE_ATTN_K, layer, config->n_kv_heads));
    HL_NEED(sum_rows(sums->v, sums, HL_ROLE_ATTN_V, layer, config->n_kv_heads));
    HL_NEED(sum_columns(sums->o, sums, layer, config->n_heads));
    for (int64_t head = 0; head < config->n_heads; head++) {
        int64_t kv_head = head / (config->n_heads / config->n_kv_heads);
        out[head]       = sqrt(sums->q[head]) * sqrt(sums->k[kv_head]) * sqrt(sums->v[kv_head]) *
                    sqrt(sums->o[head]);
    }
    return HL_OK;
}

hl_status hl_rank_weights(double **out, const hl_model *model)
{
    hl_status        status = HL_OK;
    const hl_config *config = model->config;
    size_t           n      = (size_t)config->n_heads;
    int64_t          wide   = config->n_heads * config->d_head;
    weight_sums      sums   = { .model = model };
    double          *all    = NULL;
    double          *norms  = NULL;

    *out = NULL;
    HL_TRY(HL_ALLOC_ZEROED(&norms, (size_t)config->n_layers * n));
    HL_TRY(HL_ALLOC(&all, 4 * n));
    HL_TRY(HL_ALLOC(&sums.row, (size_t)(wide > config->d_model ? wide : config->d_model)));
    sums.q = all;
    sums.k = all + n;
    sums.v = all + 2 * n;
    sums.o = all + 3 * n;
    for (int64_t layer = 0; layer < config->n_layers; layer++)
        HL_TRY(weigh_layer(norms + layer * config->n_heads, &sums, layer));
    *out  = norms;
    norms = NULL;

done:
    hl_free(norms);
    hl_free(all);
    hl_free(sums.row);
    return status;
}
