/* weights.h - every weight of a model by role, wherever and however it is stored.
 *
 *     hl_weights *weights = NULL;
 *     HL_TRY(hl_weights_resolve(&weights, config, tensors));
 *     const hl_param *q = hl_weights_get(weights, HL_ROLE_ATTN_Q, layer, 0);
 *     ... q->weight.n_rows, hl_weight_row(&q->weight, r) ...
 *   done:
 *     hl_weights_free(weights);
 *
 * Nothing is copied or converted: a hl_weight points into the mapped file and maps each of its rows
 * to a stored row.  That covers the layouts that occur in files: q, k and v in one tensor, one
 * after the other or by head; gate and up in one; experts stacked; rotary pairs side by side; extra
 * rows before the first position.  Other layouts have a field of their own: `transposed`,
 * `plus_one`, `scales`. */
#ifndef HL_MODEL_WEIGHTS_H
#define HL_MODEL_WEIGHTS_H

#include "base/memory.h"
#include "formats/tensors.h"
#include "headlight/base.h"
#include "kernels/matrix.h"
#include "model/config.h"
#include "model/roles.h"

/* (n_rows, n_columns), y = W x; a vector has one column. */
typedef struct hl_weight {
    const hl_tensor *tensor; /* NULL: the model does not have it; names it in messages */
    const void      *data;   /* stored row 0 of this part: in tensor->data       */
    const void      *scales; /* MXFP4 in two tensors: one byte per 32 values */
    hl_dtype         dtype;  /* type of data; HL_DTYPE_U8 where there are scales */
    int64_t          n_rows;
    int64_t          n_columns;
    int64_t          n_stored;   /* rows of the stored matrix, including other weights' */
    bool             transposed; /* stored as (n_columns, n_stored)                 */
    bool             plus_one;   /* the weight is 1 + what is stored                */
    bool             is_log;     /* the weight is -exp(what is stored)              */
    /* Where row r is stored: see hl_weight_row. */
    int64_t first;
    int64_t block;
    int64_t stride;
    int64_t pairs; /* d_head where rotary pairs lie side by side, else 0 */
} hl_weight;

/* The weight as matrix products read it; plus_one is not applied. */
hl_matrix hl_weight_matrix(const hl_weight *weight);

/* The stored row (transposed: column) that holds row `r`. */
static inline int64_t hl_weight_row(const hl_weight *weight, int64_t r)
{
    hl_matrix matrix = hl_weight_matrix(weight);

    return hl_matrix_stored_row(&matrix, r);
}

typedef struct hl_param {
    hl_weight weight;
    hl_weight bias; /* .tensor is NULL if there is no bias */
} hl_param;

typedef struct hl_weights hl_weights;

/* Finds every role of the model, and checks shapes and dtypes.  A tensor that is missing or has
 * another shape is HL_BAD_INPUT; tensors without a role are reported to the log.  Borrows config
 * and tensors, which must outlive it. */
hl_status hl_weights_resolve(hl_weights **out, const hl_config *config, const hl_tensors *tensors);
void      hl_weights_free(hl_weights *weights);
HL_CLOSES(hl_weights_free, hl_weights)

/* The weight of a role, of the model (layer -1) or of a layer.  `part` is the expert, or the
 * head whose norm it is; usually 0.  Borrowed; NULL where the model does not have it.  LM_HEAD
 * of a model with tied embeddings is the embedding. */
const hl_param *hl_weights_get(const hl_weights *weights, hl_role role, int64_t layer,
                               int64_t part);

/* Puts other values in the place of a weight of the model, borrowed. */
void hl_weights_put(hl_weights *weights, hl_role role, int64_t layer, const hl_param *param);

/* Reads a weight as f32, in its role's layout: out (n_rows, n_columns).  For tests and small
 * ones. */
hl_status hl_weight_read(float *out, const hl_weight *weight);
/* Reads one row of a weight: out (n_columns). */
hl_status hl_weight_read_row(float *out, const hl_weight *weight, int64_t row);

/* -------------------------------------------------------- tensors, not roles */

/* The use of a tensor.  The role is HL_N_STORED_ROLES if it is unknown. */
typedef struct hl_tensor_use {
    const hl_tensor *tensor;
    hl_role          role; /* the role as stored: ATTN_QKV, not ATTN_Q */
    bool             is_bias;
    bool             is_buffer; /* not a parameter: masks, frequencies, scales */
} hl_tensor_use;

/* The use of tensor number `index`. */
hl_tensor_use hl_weights_use(const hl_weights *weights, size_t index);
/* The number of learned values: elements of all tensors except buffers and copies, and, in a model
 * of several, except those of the others. */
int64_t hl_weights_n_params(const hl_weights *weights);

#endif
