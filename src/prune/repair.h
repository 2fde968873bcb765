/* repair.h - the inside of a repair: output projections as they are written.
 *
 *     const hl_repaired *layer = hl_repair_at(repair, 3);
 *     if (layer != NULL)
 *         ... layer->weight, of layer->dtype when it is written ...
 *
 * Weights have zeros for heads that are removed. */
#ifndef HL_PRUNE_REPAIR_H
#define HL_PRUNE_REPAIR_H

#include "base/memory.h"
#include "headlight/prune.h"
#include "model/model.h"

typedef struct hl_repaired {
    float   *weight; /* (d_model, n_heads d_head) values of dtype; NULL: the layer is unchanged */
    float   *bias;   /* (d_model) or NULL */
    hl_dtype dtype;
} hl_repaired;

/* Returns NULL where the layer is unchanged. */
const hl_repaired *hl_repair_at(const hl_repair *repair, int64_t layer);
/* Returns HL_BAD_ARGUMENT if the repair is of another model or of other heads. */
hl_status hl_repair_check_heads(const hl_repair *repair, const hl_model *model,
                                const hl_head_list *heads);
/* Makes a repair that only adds the mean outputs of removed heads, means (n_layers, n_heads, d_head)
 * of hl_head_means, to the output biases.  A model without output biases gets them. */
hl_status hl_repair_by_means(hl_repair **out, const hl_model *model, const hl_head_list *heads,
                             const float *means);
HL_CLOSES(hl_repair_free, hl_repair)

/* Makes sessions that are opened from now on use the repaired weights; NULL ends this.  The repair is
 * borrowed, and no session of the model may be open.  Returns HL_BAD_ARGUMENT if it is another
 * model's. */
hl_status hl_model_set_repair(hl_model *model, const hl_repair *repair);

/* Computes out (n_layers, n_heads), NaN where a layer has no such head.  Returns HL_UNSUPPORTED for
 * an encoder and without LAPACK. */
hl_status hl_surgeon_scores(double *out, const hl_model *model, const hl_corpus *corpus,
                            const hl_surgeon_options *options);

#endif
