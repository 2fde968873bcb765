/* ceiling.c - counting weights. */
#include "prune/ceiling.h"

#include <math.h>

#include "model/model.h"

/* Returns the number of a role's parts that one token uses. */
static int64_t parts_used(hl_role role, const hl_config *config, int64_t layer)
{
    int64_t n_parts = hl_role_parts(role, config, layer);
    bool    is_expert =
        role == HL_ROLE_EXPERT_GATE || role == HL_ROLE_EXPERT_UP || role == HL_ROLE_EXPERT_DOWN;

    return is_expert && config->n_experts_used < n_parts ? config->n_experts_used : n_parts;
}

/* Counts the matrix weights of a role in a layer (-1: of the model); all experts have the same
 * size. */
static double count_role(const hl_model *model, hl_role role, int64_t layer)
{
    double sum = 0.0;

    for (int64_t part = 0; part < parts_used(role, model->config, layer); part++) {
        const hl_param *param = hl_weights_get(model->weights, role, layer, part);
        if (param != NULL && param->weight.n_columns > 1)
            sum += (double)param->weight.n_rows * (double)param->weight.n_columns;
    }
    return sum;
}

/* Counts all weights that take part in multiplications; embedding tables do not. */
static double count_multiplied(const hl_model *model)
{
    double sum = 0.0;

    for (int role = 0; role < HL_N_ROLES; role++) {
        if (role == HL_ROLE_EMBED || role == HL_ROLE_POSITION || role == HL_ROLE_TOKEN_TYPE)
            continue;
        if (role < HL_FIRST_LAYER_ROLE)
            sum += count_role(model, (hl_role)role, -1);
        for (int64_t l = 0; l < model->config->n_layers && role >= HL_FIRST_LAYER_ROLE; l++)
            sum += count_role(model, (hl_role)role, l);
    }
    return sum;
}

/* Returns the mean number of visible keys, over the rows of a window and over heads. */
static double mean_keys(const hl_config *config, int64_t context)
{
    double sum = 0.0, n_heads = 0.0;

    for (int64_t l = 0; l < config->n_layers; l++) {
        const hl_layer_config *layer = &config->layers[l];
        double                 n     = (double)context;
        double                 w     = layer->is_local ? (double)(layer->window_left + 1) : n;
        w                            = w < n ? w : n;
        if (layer->is_local && layer->window_blocks) { /* half a block, on average */
            sum += (double)layer->n_heads * (w + 1.0) / 2.0;
            n_heads += (double)layer->n_heads;
            continue;
        }
        sum += (double)layer->n_heads * (w * (w + 1.0) / 2.0 + (n - w) * w) / n;
        n_heads += (double)layer->n_heads;
    }
    return n_heads > 0.0 ? sum / n_heads : 0.0;
}

hl_shapes hl_shapes_of(const hl_model *model, int64_t context)
{
    const hl_config *config   = model->config;
    double           per_head = (double)(config->d_model * config->d_head);
    double           bias     = (config->biases & HL_BIAS_QKV) != 0 ? (double)config->d_head : 0.0;
    hl_shapes        shapes   = {
                 .n_params      = (double)hl_weights_n_params(model->weights),
                 .n_multiplied  = count_multiplied(model),
                 .query_params  = 2.0 * per_head + bias,
                 .key_params    = 2.0 * (per_head + bias),
                 .query_weights = 2.0 * per_head,
                 .key_weights   = 2.0 * per_head,
                 .group         = INFINITY,
                 .d_head        = (double)config->d_head,
                 .keys          = mean_keys(config, context),
    };

    for (int64_t l = 0; l < config->n_layers; l++) {
        const hl_layer_config *layer = &config->layers[l];
        shapes.n_heads += (double)layer->n_heads;
        if (layer->n_heads > 0)
            shapes.group = fmin(shapes.group, (double)layer->n_heads / (double)layer->n_kv_heads);
    }
    return shapes;
}

hl_ceiling hl_ceiling_of(const hl_shapes *shapes, int64_t n_off)
{
    double heads   = (double)n_off;
    double groups  = floor(heads / shapes->group);
    double params  = heads * shapes->query_params + groups * shapes->key_params;
    double weights = heads * shapes->query_weights + groups * shapes->key_weights;
    double a_head  = 4.0 * shapes->d_head * shapes->keys; /* scores and mixing, per token */
    double all     = 2.0 * shapes->n_multiplied + shapes->n_heads * a_head;

    return (hl_ceiling){ .params       = params,
                         .params_share = params / shapes->n_params,
                         .flops_share  = (2.0 * weights + heads * a_head) / all };
}
