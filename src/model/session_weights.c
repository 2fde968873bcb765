/* session_weights.c - the weights of a model, ready to multiply with.
 *
 * Matrices stay where they are mapped.  Vectors (norms, biases, sinks) are read
 * as floats once: they are small, and it shows at once whether they hold numbers.
 * Matrices are searched for what is no number only when the residual stream has
 * some: reading all weights to open a session would cost more than the session. */
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/status.h"
#include "model/model.h"
#include "model/session.h"

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

/* Gives every role that the model has its place, and counts places. */
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

static hl_matrix matrix_of(const hl_weight *weight)
{
    return (hl_matrix){
        .data       = weight->data,
        .scales     = weight->scales,
        .dtype      = weight->dtype,
        .n_rows     = weight->n_rows,
        .n_columns  = weight->n_columns,
        .n_stored   = weight->n_stored,
        .transposed = weight->transposed,
        .first      = weight->first,
        .block      = weight->block,
        .stride     = weight->stride,
        .pairs      = weight->pairs,
    };
}

static hl_status not_a_number(const hl_session *session, const hl_weight *weight, int64_t layer,
                              int64_t row)
{
    const char *file = hl_tensors_file_of(session->model->tensors, weight->tensor);

    if (file == NULL)
        file = session->model->path;
    if (layer < 0)
        return hl_fail(HL_BAD_INPUT,
                       "%s: tensor '%s' holds a number that is not finite, in row %lld", file,
                       weight->tensor->name, (long long)row);
    return hl_fail(HL_BAD_INPUT,
                   "%s: layer %lld: tensor '%s' holds a number that is not finite, in row %lld",
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
    for (int64_t i = 0; i < weight->n_rows; i++) {
        if (!isfinite((*out)[i]))
            return not_a_number(session, weight, layer, i);
    }
    return HL_OK;
}

static hl_status load_part(hl_session *session, hl_role role, int64_t layer, int64_t part)
{
    const hl_param   *source = hl_weights_get(session->weights, role, layer, part);
    hl_session_param *param  = (hl_session_param *)hl_session_param_of(session, role, layer, part);

    if (source == NULL)
        return hl_fail(HL_INTERNAL, "%s has no part %lld", hl_role_name(role), (long long)part);
    param->source = source;
    if (hl_role_is_vector(role))
        HL_NEED(read_vector(session, &param->vector, &source->weight, layer));
    else
        param->matrix = matrix_of(&source->weight);
    return read_vector(session, &param->bias, &source->bias, layer);
}

static hl_status load_roles(hl_session *session, int64_t layer)
{
    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        if (!is_role_of(role, layer) || hl_session_param_of(session, role, layer, 0) == NULL)
            continue;
        for (int64_t part = 0; part < hl_role_parts(role, session->config, layer); part++) {
            hl_status status = load_part(session, role, layer, part);
            if (status != HL_OK)
                return status;
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
    float                  *row_values = session->pool.scratch; /* a row fits: it is a panel's */

    for (hl_role role = 0; role < HL_N_ROLES; role++) {
        if (index->first[role] < 0 || hl_role_is_vector(role))
            continue;
        for (int64_t part = 0; part < hl_role_parts(role, session->config, layer); part++)
            HL_NEED(search_matrix(row_values, session,
                                  hl_session_param_of(session, role, layer, part), layer));
    }
    return HL_OK;
}
