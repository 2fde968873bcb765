/* ceiling.h - the most that removing heads can save, from shapes alone.
 *
 * A token costs two operations per weight that multiplies it, and 4 d_head per head and visible key,
 * for q.k and p v.  A removed head saves its rows of W_Q (and their bias) and its columns of W_O; the
 * rows of W_K and W_V are saved only with the last head of its group.  A measurement that shows a
 * larger saving is wrong. */
#ifndef HL_PRUNE_CEILING_H
#define HL_PRUNE_CEILING_H

#include "headlight/model.h"

/* Numbers of the whole model. */
typedef struct hl_shapes {
    double n_params;
    double n_multiplied;  /* weights that a token is multiplied by; of experts, only those in use */
    double query_params;  /* of one head: W_Q, W_O and biases; the maximum over layers */
    double key_params;    /* of one KV head: W_K, W_V and biases */
    double query_weights; /* W_Q and W_O of one head, without biases */
    double key_weights;
    double n_heads; /* total over all layers */
    double group;   /* query heads per KV head; the minimum over layers */
    double d_head;
    double keys; /* mean number of visible keys, over layers and rows of the context */
} hl_shapes;

typedef struct hl_ceiling {
    double params; /* removed parameters */
    double params_share;
    double flops_share; /* saved share of a forward pass over the context, per token */
} hl_ceiling;

hl_shapes  hl_shapes_of(const hl_model *model, int64_t context);
hl_ceiling hl_ceiling_of(const hl_shapes *shapes, int64_t n_off);

#endif
