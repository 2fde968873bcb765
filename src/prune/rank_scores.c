/* rank_scores.c - rankers that need all heads at once, or several measurements of one.
 *
 *     weight            norms of a head's weights, multiplied
 *     entropy-gradient  entropy times 1 - gradient, each over its largest
 *     hies              gradient and entropy, each scaled over all heads
 *     gnorm             norms of the gradients of a head's weights, multiplied
 *     variance          variance of the entropies of a layer's heads, one score for all of them
 *     fluctuation       variance of what a head writes times the norm of its output weights
 *     wanda             magnitude of what a head writes times the magnitude of its output weights */
#include "prune/rank_parts.h"

#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"

typedef struct score_work {
    hl_ranking           *ranking;
    const hl_rank_inputs *inputs;
    int64_t               width; /* distance of layers in arrays, in heads */
} score_work;

static double entropy_of(const score_work *w, const hl_ranked *at, hl_quantity quantity)
{
    return hl_profile_moments(w->inputs->profile, at->layer, at->head, quantity).mean;
}

static int64_t place_of(const score_work *w, const hl_ranked *at)
{
    return at->layer * w->width + at->head;
}

/* -------------------------------------------------------------------- weights */

/* Norms of the weights of a head. Rows [h d, h d + d) of W_Q belong to head h, as do the rows of
 * its KV head in W_K and W_V, and the columns [h d, h d + d) of W_O. Weights are read row by row,
 * in any storage type. */
typedef struct weight_sums {
    const hl_model *model;
    float          *row; /* as wide as the widest row */
    double         *q;   /* (n_heads) sums of squares, like k (n_kv_heads), v and o */
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

/* out[h] = sum of squares of rows h d .. h d + d. */
static hl_status sum_rows(double *out, const weight_sums *sums, hl_role role, int64_t layer,
                          int64_t n_heads)
{
    const hl_param *param  = hl_weights_get(sums->model->weights, role, layer, 0);
    int64_t         d_head = sums->model->config->layers[layer].d_head;

    for (int64_t row = 0; row < n_heads * d_head; row++) {
        HL_NEED(hl_weight_read_row(sums->row, &param->weight, row));
        out[row / d_head] = (row % d_head == 0 ? 0.0 : out[row / d_head]) +
                            sum_of_squares(sums->row, param->weight.n_columns);
    }
    return HL_OK;
}

/* out[h] = sum of squares of columns h d .. h d + d. */
static hl_status sum_columns(double *out, const weight_sums *sums, int64_t layer, int64_t n_heads)
{
    const hl_param *param  = hl_weights_get(sums->model->weights, HL_ROLE_ATTN_O, layer, 0);
    int64_t         d_head = sums->model->config->layers[layer].d_head;

    for (int64_t head = 0; head < n_heads; head++)
        out[head] = 0.0;
    for (int64_t row = 0; row < param->weight.n_rows; row++) {
        HL_NEED(hl_weight_read_row(sums->row, &param->weight, row));
        for (int64_t head = 0; head < n_heads; head++)
            out[head] += sum_of_squares(sums->row + head * d_head, d_head);
    }
    return HL_OK;
}

/* out[h] = sum of squares of the rows of part h. */
static hl_status sum_parts(double *out, const weight_sums *sums, hl_role role, int64_t layer,
                           int64_t n_heads)
{
    for (int64_t head = 0; head < n_heads; head++) {
        const hl_weight *weight = &hl_weights_get(sums->model->weights, role, layer, head)->weight;

        out[head] = 0.0;
        for (int64_t row = 0; row < weight->n_rows; row++) {
            HL_NEED(hl_weight_read_row(sums->row, weight, row));
            out[head] += sum_of_squares(sums->row, weight->n_columns);
        }
    }
    return HL_OK;
}

/* The same of latent attention, whose keys and values have maps by head. */
static hl_status weigh_latent(double *out, const weight_sums *sums, int64_t layer)
{
    const hl_config *config = sums->model->config;
    int64_t          n      = config->layers[layer].n_heads;
    int64_t          d_key  = config->latent.d_nope + config->latent.d_rope;
    const hl_weight *q = &hl_weights_get(sums->model->weights, HL_ROLE_LATENT_Q, layer, 0)->weight;

    for (int64_t row = 0; row < n * d_key; row++) {
        HL_NEED(hl_weight_read_row(sums->row, q, row));
        sums->q[row / d_key] = (row % d_key == 0 ? 0.0 : sums->q[row / d_key]) +
                               sum_of_squares(sums->row, q->n_columns);
    }
    HL_NEED(sum_parts(sums->k, sums, HL_ROLE_LATENT_K, layer, n));
    HL_NEED(sum_parts(sums->v, sums, HL_ROLE_LATENT_V, layer, n));
    HL_NEED(sum_columns(sums->o, sums, layer, n));
    for (int64_t head = 0; head < n; head++)
        out[head] = sqrt(sums->q[head] * sums->k[head]) * sqrt(sums->v[head] * sums->o[head]);
    return HL_OK;
}

static hl_status weigh_layer(double *out, const weight_sums *sums, int64_t layer)
{
    const hl_layer_config *config   = &sums->model->config->layers[layer];
    int64_t                kv_layer = sums->model->config->is_encoder ? layer : config->kv_layer;

    if (config->n_heads == 0)
        return HL_OK;
    if (sums->model->config->latent.d_latent > 0)
        return weigh_latent(out, sums, layer);
    HL_NEED(sum_rows(sums->q, sums, HL_ROLE_ATTN_Q, layer, config->n_heads));
    HL_NEED(sum_rows(sums->k, sums, HL_ROLE_ATTN_K, kv_layer, config->n_kv_heads));
    HL_NEED(sum_rows(sums->v, sums, HL_ROLE_ATTN_V, kv_layer, config->n_kv_heads));
    HL_NEED(sum_columns(sums->o, sums, layer, config->n_heads));
    for (int64_t head = 0; head < config->n_heads; head++) {
        int64_t kv_head = head / (config->n_heads / config->n_kv_heads);
        out[head]       = sqrt(sums->q[head]) * sqrt(sums->k[kv_head]) * sqrt(sums->v[kv_head]) *
                    sqrt(sums->o[head]);
    }
    return HL_OK;
}

/* The widest row of any matrix that is read here. */
static int64_t widest_row(const hl_config *config)
{
    int64_t wide = config->n_heads * config->d_head;

    wide = wide > config->latent.d_latent ? wide : config->latent.d_latent;
    wide = wide > config->latent.d_query ? wide : config->latent.d_query;
    wide = wide > config->latent.d_nope ? wide : config->latent.d_nope;
    return wide > config->d_model ? wide : config->d_model;
}

/* The product of the Frobenius norms of a head's rows of W_Q, W_K and W_V and of its columns of
 * W_O.  Heads that share keys and values have the same W_K and W_V. */
static hl_status score_weight(const score_work *w)
{
    const hl_model  *model  = w->inputs->model;
    const hl_config *config = model->config;
    size_t           n      = (size_t)config->n_heads;
    HL_FREED double *all    = NULL;
    HL_FREED double *norms  = NULL;
    HL_FREED float  *row    = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&norms, (size_t)config->n_layers * n));
    HL_NEED(HL_ALLOC(&all, 4 * n));
    HL_NEED(HL_ALLOC(&row, (size_t)widest_row(config)));
    weight_sums sums = { model, row, all, all + n, all + 2 * n, all + 3 * n };
    for (int64_t layer = 0; layer < config->n_layers; layer++)
        HL_NEED(weigh_layer(norms + layer * config->n_heads, &sums, layer));
    for (int64_t i = 0; i < w->ranking->n_heads; i++)
        w->ranking->heads[i].score =
            norms[w->ranking->heads[i].layer * config->n_heads + w->ranking->heads[i].head];
    return HL_OK;
}

/* ------------------------------------------------------- entropy and gradient */

/* The product of diffuse attention and small effect, both scaled from 0 to 1. */
static void score_product(const score_work *w)
{
    const hl_ranking *ranking       = w->ranking;
    const double     *gradient      = w->inputs->gradient;
    double            most_entropy  = 0.0;
    double            most_gradient = 0.0;

    for (int64_t i = 0; i < ranking->n_heads; i++) {
        const hl_ranked *at = &ranking->heads[i];
        most_entropy        = fmax(most_entropy, entropy_of(w, at, HL_Q_ENTROPY));
        most_gradient       = fmax(most_gradient, fabs(gradient[place_of(w, at)]));
    }
    for (int64_t i = 0; i < ranking->n_heads; i++) {
        hl_ranked *at    = &ranking->heads[i];
        double     slope = fabs(gradient[place_of(w, at)]);

        at->score = entropy_of(w, at, HL_Q_ENTROPY) / (most_entropy > 0.0 ? most_entropy : 1.0) *
                    (1.0 - slope / (most_gradient > 0.0 ? most_gradient : 1.0));
    }
}

/* Scales numbers so that the least becomes 0 and the most becomes 1. */
typedef struct scale {
    double least;
    double most;
} scale;

static scale widened(scale s, double value)
{
    return (scale){ fmin(s.least, value), fmax(s.most, value) }; /* a NaN changes neither end */
}

static double scaled(scale s, double value)
{
    return s.most > s.least ? (value - s.least) / (s.most - s.least) : value - s.least;
}

/* HIES with equal weights: the best weights depend on the task, and are not searched for. */
static void score_hies(const score_work *w)
{
    const double share     = 0.5;
    scale        slopes    = { INFINITY, -INFINITY };
    scale        entropies = { INFINITY, -INFINITY };

    for (int64_t i = 0; i < w->ranking->n_heads; i++) {
        const hl_ranked *at = &w->ranking->heads[i];
        slopes              = widened(slopes, w->inputs->gradient[place_of(w, at)]);
        entropies           = widened(entropies, entropy_of(w, at, HL_Q_NORMALIZED));
    }
    for (int64_t i = 0; i < w->ranking->n_heads; i++) {
        hl_ranked *at = &w->ranking->heads[i];

        at->score = share * scaled(slopes, w->inputs->gradient[place_of(w, at)]) +
                    (1.0 - share) * (1.0 - scaled(entropies, entropy_of(w, at, HL_Q_NORMALIZED)));
    }
}

static void score_gnorm(const score_work *w)
{
    const double *norms = w->inputs->weight_norms;
    int64_t       all   = w->ranking->n_layers * w->width;

    for (int64_t i = 0; i < w->ranking->n_heads; i++) {
        hl_ranked *head = &w->ranking->heads[i];
        int64_t    at   = place_of(w, head);

        head->score = norms[at] * norms[all + at] * norms[2 * all + at];
    }
}

/* Heads of a ranking that has not been sorted are side by side, layer by layer. */
static int64_t layer_end(const hl_ranking *ranking, int64_t first)
{
    int64_t end = first;

    while (end < ranking->n_heads && ranking->heads[end].layer == ranking->heads[first].layer)
        end++;
    return end;
}

static void score_variance(const score_work *w)
{
    hl_ranked *heads = w->ranking->heads;
    int64_t    end   = 0;

    for (int64_t first = 0; first < w->ranking->n_heads; first = end) {
        double sum = 0.0, squares = 0.0;

        end = layer_end(w->ranking, first);
        for (int64_t i = first; i < end; i++)
            sum += entropy_of(w, &heads[i], HL_Q_ENTROPY);
        double mean = sum / (double)(end - first);
        for (int64_t i = first; i < end; i++)
            squares += pow(entropy_of(w, &heads[i], HL_Q_ENTROPY) - mean, 2.0);
        for (int64_t i = first; i < end; i++)
            heads[i].score = squares / (double)(end - first);
    }
}

/* ------------------------------------------------------------ what heads write */

/* Adds up magnitudes or squares over the rows of W_O: out (n_heads d). */
static hl_status sum_output(double *out, float *row, const hl_model *model, int64_t layer,
                            bool squares)
{
    const hl_param *param = hl_weights_get(model->weights, HL_ROLE_ATTN_O, layer, 0);

    for (int64_t j = 0; j < param->weight.n_columns; j++)
        out[j] = 0.0;
    for (int64_t i = 0; i < param->weight.n_rows; i++) {
        HL_NEED(hl_weight_read_row(row, &param->weight, i));
        for (int64_t j = 0; j < param->weight.n_columns; j++)
            out[j] += squares ? (double)row[j] * (double)row[j] : fabs((double)row[j]);
    }
    return HL_OK;
}

/* Standardizes to mean 0 and standard deviation 1; equal numbers become 0. */
static void standardize(double *x, int64_t n)
{
    double mean = 0.0, squares = 0.0;

    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    double deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0.0;
    for (int64_t i = 0; i < n; i++)
        x[i] = deviation > 0.0 ? (x[i] - mean) / deviation : 0.0;
}

/* One number per output of the layer's heads, from W_O's column and the moments of that output. */
static hl_status weigh_outputs(double *columns, float *row, const score_work *w, int64_t layer,
                               int64_t n)
{
    const hl_head_moments *m        = w->inputs->moments;
    bool                   is_wanda = w->ranking->ranker == HL_RANKER_WANDA;
    int64_t                first    = layer * m->n_heads * m->d_head;
    double                 count    = (double)m->n_rows;

    HL_NEED(sum_output(columns, row, w->inputs->model, layer, !is_wanda));
    for (int64_t j = 0; j < n; j++) {
        double mean     = m->mean[first + j];
        double variance = m->variance[first + j];

        columns[j] *= is_wanda ? sqrt(mean * mean + variance * (count - 1.0) / count) : variance;
    }
    if (!is_wanda)
        standardize(columns, n);
    return HL_OK;
}

/* Returns the mean over a head's outputs. */
static hl_status score_outputs(const score_work *w)
{
    const hl_config *config  = w->inputs->model->config;
    HL_FREED double *columns = NULL;
    HL_FREED float  *row     = NULL;
    int64_t          end     = 0;

    HL_NEED(HL_ALLOC(&columns, (size_t)(config->n_heads * config->d_head)));
    HL_NEED(HL_ALLOC(&row, (size_t)widest_row(config)));
    for (int64_t first = 0; first < w->ranking->n_heads; first = end) {
        int64_t layer = w->ranking->heads[first].layer;
        int64_t d     = config->layers[layer].d_head;

        end = layer_end(w->ranking, first);
        HL_NEED(weigh_outputs(columns, row, w, layer, (end - first) * d));
        for (int64_t i = first; i < end; i++) {
            double sum = 0.0;

            for (int64_t j = 0; j < d; j++)
                sum += columns[(i - first) * d + j];
            w->ranking->heads[i].score = sum / (double)d;
        }
    }
    return HL_OK;
}

/* ------------------------------------------------------------------ the choice */

hl_status hl_rank_combined(bool *done, hl_ranking *ranking, const hl_rank_inputs *inputs)
{
    score_work work = { ranking, inputs,
                        inputs->profile != NULL ? hl_profile_n_heads(inputs->profile)
                                                : hl_model_get_info(inputs->model)->n_heads };

    *done = true;
    switch (ranking->ranker) {
    case HL_RANKER_WEIGHT:
        return score_weight(&work);
    case HL_RANKER_ENTROPY_GRADIENT:
        score_product(&work);
        return HL_OK;
    case HL_RANKER_HIES:
        score_hies(&work);
        return HL_OK;
    case HL_RANKER_GNORM:
        score_gnorm(&work);
        return HL_OK;
    case HL_RANKER_VARIANCE:
        score_variance(&work);
        return HL_OK;
    case HL_RANKER_FLUCTUATION:
    case HL_RANKER_WANDA:
        return score_outputs(&work);
    default:
        *done = false;
        return HL_OK;
    }
}
