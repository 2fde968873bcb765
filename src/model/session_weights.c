/* session_weights.c - prepares the weights of a model for products.
 *
 * Vectors (norms, biases, sinks) are read as floats once and checked for non-finite values, as they
 * are small.  Matrices are searched only after the residual stream has become non-finite: reading
 * all weights when a session opens would cost more than the session.
 *
 * Maps of the same input (q, k and v; gate and up; all experts) are stored one after the other, so
 * that one product computes them.  On a near device they stay where they are mapped.  For other
 * devices they are copied once for all sessions of a model, in the compute type and in the order of
 * the roles.  Contiguous rows are copied as they are stored and converted by the device, GGUF's
 * blocks too; other rows are converted to floats first.  The same code first counts (the arena has
 * no memory yet), then fills. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "model/forward.h"
#include "model/model.h"

/* ------------------------------------------------------------------- finding */

const hl_session_param *hl_session_param_of(const hl_session *session, hl_role role, int64_t layer,
                                            int64_t part)
{
    const hl_session_index *index = layer < 0 ? &session->of_model : &session->of_layer[layer];
    return index->first[role] >= 0 ? &session->params[index->first[role] + part] : NULL;
}

static bool is_role_of(hl_role role, int64_t layer)
{
    return hl_role_is_of_layer(role) == (layer >= 0);
}

/* Gives every role that the model has its index, and counts them. */
static int64_t index_roles(hl_session_index *index, const hl_session *session, int64_t layer,
                           int64_t first)
{
    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        index->first[role] = -1;
        if (!is_role_of(role, layer) || hl_weights_get(session->weights, role, layer, 0) == NULL)
            continue;
        index->first[role] = first;
        first += hl_role_parts(role, session->config, layer);
    }
    return first;
}

/* ------------------------------------------------------------------- reading */

static hl_status not_a_number(const hl_session *session, const hl_weight *weight, int64_t layer,
                              int64_t row)
{
    const char *file = hl_tensors_file_of(session->model->tensors, weight->tensor);

    if (file == NULL)
        file = session->model->path;
    if (layer < 0)
        return hl_fail(
            HL_BAD_INPUT,
            "%s: tensor '%s' has a NaN or infinite value in row %lld; download the file again",
            file, weight->tensor->name, (long long)row);
    return hl_fail(HL_BAD_INPUT,
                   "%s: layer %lld: tensor '%s' has a NaN or infinite value in row %lld; download "
                   "the file again",
                   file, (long long)layer, weight->tensor->name, (long long)row);
}

static hl_status read_vector(hl_session *session, float **out, const hl_weight *weight,
                             int64_t layer)
{
    if (weight->tensor == NULL)
        return HL_OK;
    HL_NEED(HL_SESSION_ALLOC(session, out, weight->n_rows * weight->n_columns));
    if (session->counting)
        return HL_OK;
    HL_NEED(hl_weight_read(*out, weight));
    for (int64_t i = 0; i < weight->n_rows * weight->n_columns; i++) {
        if (!isfinite((*out)[i]))
            return not_a_number(session, weight, layer, i / weight->n_columns);
    }
    return HL_OK;
}

/* Turns a small table as it is stored, a row per channel, to a column per channel, and multiplies the
 * rows of a convolution by the factors of their parts. */
static hl_status turn_table(hl_session *session, float *table, hl_role role,
                            const hl_weight *weight)
{
    const hl_mixer_config *m       = &session->config->mixer;
    int64_t                inner   = m->n_heads * m->d_head;
    int64_t                keys    = m->n_groups * m->d_state;
    int64_t                columns = weight->n_columns;
    HL_FREED float        *rows    = NULL;

    if (session->counting)
        return HL_OK;
    HL_NEED(HL_ALLOC(&rows, (size_t)(weight->n_rows * columns)));
    memcpy(rows, table, (size_t)(weight->n_rows * columns) * sizeof *rows);
    for (int64_t row = 0; row < weight->n_rows; row++) {
        int    part   = row < inner ? HL_MIX_X : row < inner + keys ? HL_MIX_K : HL_MIX_Q;
        double factor = role == HL_ROLE_MIX_CONV ? m->factors[part] : 1.0;

        for (int64_t i = 0; i < columns; i++)
            table[i * weight->n_rows + row] = (float)(factor * (double)rows[row * columns + i]);
    }
    return HL_OK;
}

/* Some vectors are multiplied by a number that the formula has beside them. */
static void scale_vector(const hl_session *session, float *vector, hl_role role, int64_t n)
{
    double factor = 1.0;

    if (role == HL_ROLE_ROUTER_NORM)
        factor = 1.0 / sqrt((double)session->config->d_model);
    else if (role == HL_ROLE_STREAM_ROUTER_NORM)
        factor = 1.0 / (double)session->config->d_model;
    else if (role == HL_ROLE_PLE_IN_NORM) /* half of the sum's 1/sqrt(2); the table has the other */
        factor = sqrt(0.5);
    for (int64_t i = 0; i < n && factor != 1.0 && !session->counting; i++)
        vector[i] = (float)(factor * (double)vector[i]);
}

static hl_status load_part(hl_session *session, hl_role role, int64_t layer, int64_t part)
{
    const hl_param   *source = hl_weights_get(session->weights, role, layer, part);
    hl_session_param *param  = (hl_session_param *)hl_session_param_of(session, role, layer, part);

    if (source == NULL)
        return hl_fail(HL_INTERNAL, "%s has no part %lld", hl_role_name(role), (long long)part);
    param->source = source;
    if (hl_role_is_floats(role))
        HL_NEED(read_vector(session, &param->vector, &source->weight, layer));
    if (hl_role_is_floats(role))
        scale_vector(session, param->vector, role, source->weight.n_rows);
    if (role == HL_ROLE_MIX_CONV || role == HL_ROLE_MIX_DECAY)
        HL_NEED(turn_table(session, param->vector, role, &source->weight));
    if (!hl_role_is_floats(role))
        param->matrix = hl_weight_matrix(&source->weight);
    HL_NEED(read_vector(session, &param->bias, &source->bias, layer));
    for (int64_t i = 0; param->bias != NULL && i < source->bias.n_rows; i++)
        param->bias[i] *= (float)hl_role_bias_factor(role, session->config);
    return HL_OK;
}

static hl_status load_roles(hl_session *session, int64_t layer)
{
    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        if (!is_role_of(role, layer) || hl_session_param_of(session, role, layer, 0) == NULL)
            continue;
        for (int64_t part = 0; part < hl_role_parts(role, session->config, layer); part++) {
            HL_NEED(load_part(session, role, layer, part));
        }
    }
    return HL_OK;
}

hl_status hl_session_load_weights(hl_session *session)
{
    int64_t n_layers = session->config->n_layers;

    HL_NEED(HL_SESSION_TABLE(session, &session->of_layer, n_layers));
    session->n_params = index_roles(&session->of_model, session, -1, 0);
    for (int64_t layer = 0; layer < n_layers; layer++)
        session->n_params =
            index_roles(&session->of_layer[layer], session, layer, session->n_params);
    HL_NEED(HL_SESSION_TABLE(session, &session->params, session->n_params));
    for (int64_t layer = -1; layer < n_layers; layer++)
        HL_NEED(load_roles(session, layer));
    return HL_OK;
}

/* ----------------------------------------------------------------- searching */

static hl_status search_matrix(float *row_values, const hl_session *session,
                               const hl_session_param *param, int64_t layer)
{
    for (int64_t row = 0; row < param->matrix.n_rows; row++) {
        HL_NEED(hl_matrix_read_row(row_values, &param->matrix, row));
        for (int64_t i = 0; i < param->matrix.n_columns; i++) {
            if (!isfinite(row_values[i]))
                return not_a_number(session, &param->source->weight, layer, row);
        }
    }
    return HL_OK;
}

hl_status hl_session_find_nan(const hl_session *session, int64_t layer)
{
    const hl_session_index *index      = layer < 0 ? &session->of_model : &session->of_layer[layer];
    float                  *row_values = session->pool.scratch; /* a row fits, since a panel does */

    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        if (index->first[role] < 0 || hl_role_is_floats(role))
            continue;
        for (int64_t part = 0; part < hl_role_parts(role, session->config, layer); part++)
            HL_NEED(search_matrix(row_values, session,
                                  hl_session_param_of(session, role, layer, part), layer));
    }
    return HL_OK;
}

/* ----------------------------------------------------------- where products read */

enum { STAGED_FLOATS = 1 << 20 };

typedef struct loader {
    hl_session        *session;
    hl_device_session *d;
    hl_arena          *arena;
    bool               fills; /* false: only addresses and sizes are recorded */
    bool               is_near;
    float             *staged; /* (STAGED_FLOATS, or one row) */
    int64_t            n_staged;
} loader;

static hl_status put(const loader *l, void *to, hl_dtype to_dtype, const void *from,
                     hl_dtype from_dtype, int64_t n_values)
{
    return hl_device_checked(
        l->d, l->d->ops->put_values(l->d->device, to, to_dtype, from, from_dtype, n_values),
        "weights");
}

/* ------------------------------------------------------- matrices, on a device */

/* Copies stored rows [first, first + n) unchanged. */
static hl_status put_stored(const loader *l, uint8_t *to, const hl_matrix *matrix, int64_t first,
                            int64_t n)
{
    hl_dtype_block block     = hl_dtype_block_of(matrix->dtype);
    size_t         row_bytes = (size_t)matrix->n_columns / block.n_values * block.n_bytes;

    return put(l, to, l->d->dtype, (const uint8_t *)matrix->data + (size_t)first * row_bytes,
               matrix->dtype, n * matrix->n_columns);
}

static hl_status put_read(loader *l, uint8_t *to, const hl_matrix *matrix)
{
    int64_t width = matrix->n_columns;
    int64_t step  = STAGED_FLOATS / width > 1 ? STAGED_FLOATS / width : 1;

    if (step * width > l->n_staged) {
        hl_free(l->staged);
        l->staged   = NULL;
        l->n_staged = 0;
        HL_NEED(HL_ALLOC(&l->staged, (size_t)(step * width)));
        l->n_staged = step * width;
    }
    for (int64_t first = 0; first < matrix->n_rows; first += step) {
        int64_t n = matrix->n_rows - first < step ? matrix->n_rows - first : step;

        for (int64_t row = 0; row < n; row++)
            HL_NEED(hl_matrix_read_row(l->staged + row * width, matrix, first + row));
        HL_NEED(put(l, to + (size_t)(first * width) * l->d->size, l->d->dtype, l->staged,
                    HL_DTYPE_F32, n * width));
    }
    return HL_OK;
}

static hl_status put_matrix(loader *l, uint8_t *to, const hl_matrix *matrix)
{
    if (matrix->transposed || matrix->scales != NULL || matrix->pairs > 0)
        return put_read(l, to, matrix);
    for (int64_t row = 0; row < matrix->n_rows; row += matrix->block) {
        int64_t left = matrix->n_rows - row;

        HL_NEED(put_stored(l, to + (size_t)(row * matrix->n_columns) * l->d->size, matrix,
                           matrix->first + row / matrix->block * matrix->stride,
                           left < matrix->block ? left : matrix->block));
    }
    return HL_OK;
}

/* ---------------------------------------------------------------------- maps */

static hl_status add_bias(const loader *l, hl_device_map *map, const hl_session_param *part,
                          int64_t first)
{
    if (part->bias == NULL)
        return HL_OK;
    return put(l, map->bias + first, HL_DTYPE_F32, part->bias, HL_DTYPE_F32, part->matrix.n_rows);
}

/* Lists the parts as they are stored, for a near device. */
static hl_status list_parts(const loader *l, hl_device_map *out,
                            const hl_session_param *const *parts, int64_t n)
{
    hl_stored_map *map   = NULL;
    uint8_t       *block = NULL;

    HL_NEED(HL_SESSION_TABLE(l->session, &block,
                             (int64_t)(sizeof *map + (size_t)n * sizeof *map->parts)));
    map = (hl_stored_map *)(void *)block;
    for (int64_t i = 0; i < n; i++) {
        if (parts[i] != NULL)
            map->parts[map->n_parts++] = (hl_stored_part){ &parts[i]->matrix, parts[i]->bias };
    }
    out->weight = map;
    return HL_OK;
}

/* Loads `parts` (n), one after the other; an entry is NULL if the model does not have it. */
static hl_status load_map(loader *l, hl_device_map *out, const hl_session_param *const *parts,
                          int64_t n)
{
    bool    has_bias = false;
    int64_t first    = 0;

    *out = (hl_device_map){ 0 };
    for (int64_t i = 0; i < n; i++) {
        if (parts[i] == NULL)
            continue;
        out->n_in = parts[i]->matrix.n_columns;
        out->n_out += parts[i]->matrix.n_rows;
        has_bias = has_bias || parts[i]->source->bias.tensor != NULL;
    }
    if (out->n_out == 0)
        return HL_OK;
    if (l->is_near)
        return list_parts(l, out, parts, n);
    out->weight = hl_arena_take(l->arena, out->n_out, out->n_in, l->d->size);
    out->bias   = has_bias ? hl_arena_take(l->arena, out->n_out, 1, sizeof(float)) : NULL;
    for (int64_t i = 0; i < n && l->fills; i++) {
        if (parts[i] == NULL)
            continue;
        HL_NEED(put_matrix(l, (uint8_t *)out->weight + (size_t)(first * out->n_in) * l->d->size,
                           &parts[i]->matrix));
        HL_NEED(add_bias(l, out, parts[i], first));
        first += parts[i]->matrix.n_rows;
    }
    return HL_OK;
}

static hl_status load_role(loader *l, hl_device_map *out, hl_role role, int64_t layer)
{
    const hl_session_param *part = hl_session_param_of(l->session, role, layer, 0);

    return load_map(l, out, &part, 1);
}

/* Loads the parts of two roles; for each part, the first role's comes before the second's. */
static hl_status load_parts(loader *l, hl_device_map *out, hl_role a, hl_role b, int64_t layer,
                            int64_t n_parts)
{
    HL_FREED const hl_session_param **parts = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&parts, (size_t)(2 * n_parts)));
    for (int64_t i = 0; i < n_parts; i++) {
        parts[2 * i]     = a != b ? hl_session_param_of(l->session, a, layer, i) : NULL;
        parts[2 * i + 1] = hl_session_param_of(l->session, b, layer, i);
        if (parts[2 * i] != NULL && parts[2 * i]->matrix.data == NULL)
            parts[2 * i] = NULL;
    }
    return load_map(l, out, parts, 2 * n_parts);
}

/* ------------------------------------------------------------------- vectors */

static hl_status load_floats(const loader *l, float **out, const float *const *from, int64_t n_each,
                             int64_t n_parts)
{
    if (l->is_near && n_parts == 1) {
        *out = (float *)from[0]; /* only read */
        return HL_OK;
    }
    if (l->is_near) {
        HL_NEED(HL_SESSION_ALLOC(l->session, out, n_each * n_parts));
        for (int64_t i = 0; i < n_parts && *out != NULL; i++)
            memcpy(*out + i * n_each, from[i], (size_t)n_each * sizeof **out);
        return HL_OK;
    }
    *out = hl_arena_take(l->arena, n_parts, n_each, sizeof(float));
    for (int64_t i = 0; i < n_parts && l->fills; i++)
        HL_NEED(put(l, *out + i * n_each, HL_DTYPE_F32, from[i], HL_DTYPE_F32, n_each));
    return HL_OK;
}

static hl_status load_vector(const loader *l, hl_device_vector *out, hl_role role, int64_t layer)
{
    const hl_session_param *param   = hl_session_param_of(l->session, role, layer, 0);
    int64_t                 n_parts = hl_role_parts(role, l->session->config, layer);
    HL_FREED const float  **from    = NULL;

    *out = (hl_device_vector){ 0 };
    if (param == NULL || n_parts == 0)
        return HL_OK;
    HL_NEED(HL_ALLOC_ZEROED(&from, (size_t)n_parts));
    if (param->source->weight.tensor != NULL) {
        for (int64_t i = 0; i < n_parts; i++)
            from[i] = param[i].vector;
        HL_NEED(load_floats(l, &out->weight, from,
                            param->source->weight.n_rows * param->source->weight.n_columns,
                            n_parts));
    }
    if (param->source->bias.tensor != NULL) {
        for (int64_t i = 0; i < n_parts; i++)
            from[i] = param[i].bias;
        HL_NEED(load_floats(l, &out->bias, from, param->source->bias.n_rows, n_parts));
    }
    return HL_OK;
}

/* --------------------------------------------------------------------- whole */

static hl_status load_attention(loader *l, hl_device_layer *out, int64_t layer)
{
    const hl_session_param *parts[3] = {
        hl_session_param_of(l->session, HL_ROLE_ATTN_Q, layer, 0),
        hl_session_param_of(l->session, HL_ROLE_ATTN_K, layer, 0),
        hl_session_param_of(l->session, HL_ROLE_ATTN_V, layer, 0),
    };

    HL_NEED(load_map(l, &out->qkv, parts, 3));
    HL_NEED(load_role(l, &out->attn_gate, HL_ROLE_ATTN_GATE, layer));
    HL_NEED(load_vector(l, &out->z_norm, HL_ROLE_ATTN_Z_NORM, layer));
    HL_NEED(load_role(l, &out->o, HL_ROLE_ATTN_O, layer));
    HL_NEED(load_vector(l, &out->attn_norm, HL_ROLE_ATTN_NORM, layer));
    HL_NEED(load_vector(l, &out->attn_post_norm, HL_ROLE_ATTN_POST_NORM, layer));
    HL_NEED(load_vector(l, &out->q_norm, HL_ROLE_Q_NORM, layer));
    HL_NEED(load_vector(l, &out->k_norm, HL_ROLE_K_NORM, layer));
    return load_vector(l, &out->sinks, HL_ROLE_SINKS, layer);
}

/* Loads the parts of a role as maps of their own, such as those of each head. */
static hl_status load_each(loader *l, hl_device_map **out, hl_role role, int64_t layer)
{
    int64_t n_parts = hl_role_parts(role, l->session->config, layer);

    if (*out == NULL)
        HL_NEED(HL_SESSION_TABLE(l->session, out, n_parts));
    for (int64_t i = 0; i < n_parts; i++) {
        const hl_session_param *part = hl_session_param_of(l->session, role, layer, i);

        HL_NEED(load_map(l, &(*out)[i], &part, 1));
    }
    return HL_OK;
}

static hl_status load_latent(loader *l, hl_device_latent *out, int64_t layer)
{
    if (hl_session_param_of(l->session, HL_ROLE_LATENT, layer, 0) == NULL)
        return HL_OK;
    HL_NEED(load_role(l, &out->query, HL_ROLE_LATENT_QUERY, layer));
    HL_NEED(load_vector(l, &out->query_norm, HL_ROLE_LATENT_QUERY_NORM, layer));
    HL_NEED(load_role(l, &out->q, HL_ROLE_LATENT_Q, layer));
    HL_NEED(load_role(l, &out->rope, HL_ROLE_LATENT_ROPE, layer));
    HL_NEED(load_role(l, &out->latent, HL_ROLE_LATENT, layer));
    HL_NEED(load_vector(l, &out->norm, HL_ROLE_LATENT_NORM, layer));
    HL_NEED(load_role(l, &out->index_q, HL_ROLE_INDEX_Q, layer));
    HL_NEED(load_role(l, &out->index_k, HL_ROLE_INDEX_K, layer));
    HL_NEED(load_vector(l, &out->index_k_norm, HL_ROLE_INDEX_K_NORM, layer));
    HL_NEED(load_role(l, &out->index_weights, HL_ROLE_INDEX_WEIGHTS, layer));
    HL_NEED(load_each(l, &out->k, HL_ROLE_LATENT_K, layer));
    return load_each(l, &out->v, HL_ROLE_LATENT_V, layer);
}

static hl_status load_mixer(loader *l, hl_device_mixer *out, int64_t layer)
{
    static const hl_role    of_delta[] = { HL_ROLE_MIX_Q, HL_ROLE_MIX_K, HL_ROLE_MIX_V,
                                           HL_ROLE_MIX_Z, HL_ROLE_MIX_B, HL_ROLE_MIX_A };
    const hl_session_param *parts[6];
    const struct {
        hl_device_vector *out;
        hl_role           role;
    } vectors[] = {
        { &out->conv, HL_ROLE_MIX_CONV },       { &out->decay, HL_ROLE_MIX_DECAY },
        { &out->dt_bias, HL_ROLE_MIX_DT_BIAS }, { &out->skip, HL_ROLE_MIX_SKIP },
        { &out->norm, HL_ROLE_MIX_NORM },       { &out->dt_norm, HL_ROLE_MIX_DT_NORM },
        { &out->k_norm, HL_ROLE_MIX_K_NORM },   { &out->q_norm, HL_ROLE_MIX_Q_NORM },
    };

    if (l->session->config->layers[layer].mixer == HL_MIXER_NONE)
        return HL_OK;
    for (int i = 0; i < 6; i++)
        parts[i] = hl_session_param_of(l->session, of_delta[i], layer, 0);
    if (parts[0] != NULL)
        HL_NEED(load_map(l, &out->in, parts, 6));
    else
        HL_NEED(load_role(l, &out->in, HL_ROLE_MIX_IN, layer));
    HL_NEED(load_role(l, &out->x, HL_ROLE_MIX_X, layer));
    HL_NEED(load_role(l, &out->dt, HL_ROLE_MIX_DT, layer));
    HL_NEED(load_role(l, &out->out, HL_ROLE_MIX_OUT, layer));
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        HL_NEED(load_vector(l, vectors[i].out, vectors[i].role, layer));
    return HL_OK;
}

static hl_status load_mlp(loader *l, hl_device_layer *out, int64_t layer)
{
    int64_t n_experts = l->session->config->layers[layer].n_experts;

    HL_NEED(load_parts(l, &out->up, HL_ROLE_MLP_GATE, HL_ROLE_MLP_UP, layer, 1));
    HL_NEED(load_vector(l, &out->inner_norm, HL_ROLE_MLP_INNER_NORM, layer));
    HL_NEED(load_role(l, &out->down, HL_ROLE_MLP_DOWN, layer));
    HL_NEED(load_vector(l, &out->mlp_norm, HL_ROLE_MLP_NORM, layer));
    HL_NEED(load_vector(l, &out->mlp_post_norm, HL_ROLE_MLP_POST_NORM, layer));
    HL_NEED(load_role(l, &out->ple_gate, HL_ROLE_PLE_GATE, layer));
    HL_NEED(load_role(l, &out->ple_out, HL_ROLE_PLE_OUT, layer));
    HL_NEED(load_vector(l, &out->ple_norm, HL_ROLE_PLE_NORM, layer));
    if (n_experts == 0)
        return HL_OK;
    HL_NEED(load_role(l, &out->router, HL_ROLE_ROUTER, layer));
    HL_NEED(load_vector(l, &out->router_correction, HL_ROLE_ROUTER_CORRECTION, layer));
    HL_NEED(
        load_parts(l, &out->experts_up, HL_ROLE_EXPERT_GATE, HL_ROLE_EXPERT_UP, layer, n_experts));
    HL_NEED(load_parts(l, &out->experts_down, HL_ROLE_EXPERT_DOWN, HL_ROLE_EXPERT_DOWN, layer,
                       n_experts));
    HL_NEED(load_role(l, &out->shared_router, HL_ROLE_SHARED_ROUTER, layer));
    HL_NEED(load_vector(l, &out->router_norm, HL_ROLE_ROUTER_NORM, layer));
    HL_NEED(load_vector(l, &out->expert_scale, HL_ROLE_EXPERT_SCALE, layer));
    HL_NEED(load_vector(l, &out->expert_norm, HL_ROLE_EXPERT_NORM, layer));
    HL_NEED(load_vector(l, &out->expert_post_norm, HL_ROLE_EXPERT_POST_NORM, layer));
    HL_NEED(load_vector(l, &out->shared_post_norm, HL_ROLE_SHARED_POST_NORM, layer));
    HL_NEED(load_parts(l, &out->shared_up, HL_ROLE_SHARED_GATE, HL_ROLE_SHARED_UP, layer, 1));
    return load_role(l, &out->shared_down, HL_ROLE_SHARED_DOWN, layer);
}

static hl_status load_streams(loader *l, hl_device_layer *out, int64_t layer)
{
    HL_NEED(load_vector(l, &out->stream_router_norm, HL_ROLE_STREAM_ROUTER_NORM, layer));
    HL_NEED(load_role(l, &out->stream_router, HL_ROLE_STREAM_ROUTER, layer));
    HL_NEED(load_vector(l, &out->stream_predict, HL_ROLE_STREAM_PREDICT, layer));
    HL_NEED(load_vector(l, &out->stream_correct, HL_ROLE_STREAM_CORRECT, layer));
    HL_NEED(load_vector(l, &out->stream_scale, HL_ROLE_STREAM_SCALE, layer));
    HL_NEED(load_role(l, &out->laurel_in, HL_ROLE_LAUREL_IN, layer));
    HL_NEED(load_role(l, &out->laurel_out, HL_ROLE_LAUREL_OUT, layer));
    return load_vector(l, &out->laurel_norm, HL_ROLE_LAUREL_NORM, layer);
}

/* Whether two weights are the same matrix: tied embeddings are stored once. */
static bool is_same_matrix(const hl_session_param *a, const hl_session_param *b)
{
    return a != NULL && b != NULL && a->matrix.data == b->matrix.data &&
           a->matrix.first == b->matrix.first && a->matrix.n_rows == b->matrix.n_rows &&
           a->matrix.transposed == b->matrix.transposed && b->source->bias.tensor == NULL;
}

static hl_status load_ends(loader *l, hl_device_weights *out)
{
    const hl_session_param *embed = hl_session_param_of(l->session, HL_ROLE_EMBED, -1, 0);
    const hl_session_param *head  = hl_session_param_of(l->session, HL_ROLE_LM_HEAD, -1, 0);

    HL_NEED(load_role(l, &out->embed, HL_ROLE_EMBED, -1));
    HL_NEED(load_role(l, &out->ple_embed, HL_ROLE_PLE_EMBED, -1));
    HL_NEED(load_role(l, &out->ple_in, HL_ROLE_PLE_IN, -1));
    HL_NEED(load_vector(l, &out->ple_in_norm, HL_ROLE_PLE_IN_NORM, -1));
    HL_NEED(load_role(l, &out->embed_in, HL_ROLE_EMBED_IN, -1));
    if (l->session->config->n_streams > 1) {
        HL_NEED(load_each(l, &out->stream_in, HL_ROLE_STREAM_IN, -1));
        HL_NEED(load_each(l, &out->stream_out, HL_ROLE_STREAM_OUT, -1));
    }
    HL_NEED(load_role(l, &out->position, HL_ROLE_POSITION, -1));
    HL_NEED(load_role(l, &out->token_type, HL_ROLE_TOKEN_TYPE, -1));
    HL_NEED(load_role(l, &out->embed_out, HL_ROLE_EMBED_OUT, -1));
    HL_NEED(load_role(l, &out->head_dense, HL_ROLE_HEAD_DENSE, -1));
    HL_NEED(load_vector(l, &out->embed_norm, HL_ROLE_EMBED_NORM, -1));
    HL_NEED(load_vector(l, &out->final_norm, HL_ROLE_FINAL_NORM, -1));
    HL_NEED(load_vector(l, &out->head_norm, HL_ROLE_HEAD_NORM, -1));
    if (is_same_matrix(embed, head))
        out->lm_head = out->embed;
    else
        HL_NEED(load_role(l, &out->lm_head, HL_ROLE_LM_HEAD, -1));
    return HL_OK;
}

hl_status hl_device_load_biases(hl_session *session, hl_arena *arena)
{
    hl_device_session *d       = session->device;
    hl_device_weights *out     = &d->weights;
    int64_t            n_heads = session->config->n_heads;
    const loader       l       = { .session = session,
                                   .d       = d,
                                   .arena   = arena,
                                   .fills   = arena->base != NULL,
                                   .is_near = d->ops->is_near };

    if (session->config->position == HL_POSITION_ALIBI)
        HL_NEED(load_floats(&l, &out->alibi_slopes, (const float *const *)&session->alibi_slopes,
                            n_heads, 1));
    if (session->config->position == HL_POSITION_ALIBI_FALCON)
        HL_NEED(load_floats(&l, &out->key_bias, (const float *const *)&session->key_bias,
                            n_heads * session->options.n_ctx, 1));
    return HL_OK;
}

hl_status hl_device_load_weights(hl_session *session, hl_arena *arena, bool is_there)
{
    hl_status          status  = HL_OK;
    hl_device_session *d       = session->device;
    loader             l       = { .session = session,
                                   .d       = d,
                                   .arena   = arena,
                                   .fills   = !is_there && arena->base != NULL,
                                   .is_near = d->ops->is_near };
    hl_device_weights *weights = &d->weights;

    HL_TRY(load_ends(&l, weights));
    for (int64_t layer = 0; layer < session->config->n_layers; layer++) {
        HL_TRY(load_attention(&l, &weights->layers[layer], layer));
        HL_TRY(load_latent(&l, &weights->layers[layer].latent, layer));
        HL_TRY(load_mixer(&l, &weights->layers[layer].mixer, layer));
        HL_TRY(load_streams(&l, &weights->layers[layer], layer));
        HL_TRY(load_mlp(&l, &weights->layers[layer], layer));
    }

done:
    hl_free(l.staged);
    return status;
}

/* ----------------------------------------------------- copies for all sessions */

typedef struct copy {
    struct copy         *next;
    const hl_device_ops *ops;
    hl_dtype             dtype;
    void                *block; /* in device memory */
} copy;

struct hl_device_copies {
    pthread_mutex_t lock;
    copy           *first;
};

hl_status hl_device_copies_new(hl_device_copies **out)
{
    hl_status status = HL_ALLOC_ZEROED(out, 1);

    if (status == HL_OK)
        pthread_mutex_init(&(*out)->lock, NULL);
    return status;
}

void hl_device_copies_free(hl_device_copies *copies)
{
    if (copies == NULL)
        return;
    while (copies->first != NULL) {
        copy *gone = copies->first;

        copies->first = gone->next;
        gone->ops->free(NULL, gone->block);
        hl_free(gone);
    }
    pthread_mutex_destroy(&copies->lock);
    hl_free(copies);
}

void *hl_device_copies_lock(hl_device_copies *copies, const hl_device_ops *ops, hl_dtype dtype)
{
    pthread_mutex_lock(&copies->lock);
    for (const copy *at = copies->first; at != NULL; at = at->next) {
        if (at->ops == ops && at->dtype == dtype)
            return at->block;
    }
    return NULL;
}

void hl_device_copies_unlock(hl_device_copies *copies)
{
    pthread_mutex_unlock(&copies->lock);
}

hl_status hl_device_copies_keep(hl_device_copies *copies, const hl_device_ops *ops, hl_dtype dtype,
                                void *block)
{
    copy *made = NULL;

    HL_NEED(HL_ALLOC_ZEROED(&made, 1));
    *made         = (copy){ .next = copies->first, .ops = ops, .dtype = dtype, .block = block };
    copies->first = made;
    return HL_OK;
}
