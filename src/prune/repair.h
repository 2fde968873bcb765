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
#include "headlight/sweep.h"
#include "model/model.h"
#include "prune/least_squares.h"

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

/* Scores models that have lost heads: heads (n_cases) on test_corpus, repaired on `corpus`, or where
 * means[i] with the mean outputs of the removed heads instead (NULL: all repaired).  The numbers are
 * those of the models that would be written, and no model is written, or loaded, for them.  The
 * reference model is the original.  No state is kept.  HL_UNSUPPORTED as hl_walk_open for a model that
 * cannot be walked; hl_repair_check is for the caller. */
hl_status hl_evaluate_cases(hl_evaluation **out, const hl_model *model, const hl_corpus *corpus,
                            const hl_corpus *test_corpus, const hl_head_list *heads,
                            const bool *means, int64_t n_cases, const hl_repair_options *options,
                            const hl_window_options *test_windows);

/* Makes sessions that are opened from now on use the repaired weights; NULL ends this.  The repair is
 * borrowed, and no session of the model may be open.  Returns HL_BAD_ARGUMENT if it is another
 * model's. */
hl_status hl_model_set_repair(hl_model *model, const hl_repair *repair);

/* hl_gate_gradients, which also adds the gradients of the losses with respect to what the attention of
 * each layer writes to outputs (n_layers): squares of n_in d_model and n_out 0, a row per token. */
hl_status hl_output_gradients(hl_gradients **out, hl_squares *const *outputs, const hl_model *model,
                              const hl_corpus *corpus, const hl_gradient_options *options);

/* Computes out (n_layers, n_heads), NaN where a layer has no such head.  Returns HL_UNSUPPORTED for
 * an encoder and without LAPACK. */
hl_status hl_surgeon_scores(double *out, const hl_model *model, const hl_corpus *corpus,
                            const hl_surgeon_options *options);

#endif
