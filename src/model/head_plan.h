/* head_plan.h - the fate of every head when a model is written.
 *
 * A head can be pruned in two ways:
 *
 *     ZEROED   its slice of the output projection is zero; all shapes stay
 *     GONE     removed: its rows of q, those of k and v with the last of its group, and its slice of
 *              the output projection are left out
 *
 * Both give the same numbers.  Grouped attention needs the same number of queries in every group,
 * so a plan that removes heads zeroes those that would make groups differ:
 *
 *     groups of 4, pruned heads x     A  B  x  D | x  x  G  H | x  x  x  x
 *     removed (g) and zeroed (0)      A  B  g  D | g  0  G  H | g  g  g  g
 *     result: two KV heads with three queries each
 *
 * A layer that loses all its heads keeps its first KV head, zeroed: its attention then writes
 * nothing, which every loader can run.  (`bias` is the mean output of pruned heads, which may be
 * added to the output bias.) */
#ifndef HL_MODEL_HEAD_PLAN_H
#define HL_MODEL_HEAD_PLAN_H

#include "base/memory.h"
#include "headlight/base.h"
#include "model/config.h"

typedef enum hl_head_fate {
    HL_HEAD_KEPT = 0,
    HL_HEAD_ZEROED,
    HL_HEAD_GONE,
} hl_head_fate;

typedef struct hl_layer_plan {
    int64_t  n_heads; /* number of heads in the written file */
    int64_t  n_kv_heads;
    uint8_t *heads; /* (n_heads of the model) hl_head_fate */
    uint8_t *kv;    /* (n_kv_heads of the model) hl_head_fate, never ZEROED */
    float   *bias;  /* (d_model) added to the output bias, or NULL */
    /* (d_model, n_heads d_head of the model) and (d_model): an output projection and its bias in the
     * place of the model's, with the type to write it in; NULL: the model's own.  Borrowed. */
    const float *output;
    const float *output_bias;
    hl_dtype     output_dtype;
} hl_layer_plan;

typedef struct hl_head_plan {
    int64_t        n_layers;
    hl_layer_plan *layers; /* (n_layers) */
    uint8_t       *fates;  /* memory of all layers' heads and kv */
    float         *biases; /* (n_layers, d_model) or NULL */
} hl_head_plan;

/* Makes a plan that keeps all heads. */
hl_status hl_head_plan_new(hl_head_plan **out, const hl_config *config);
void      hl_head_plan_free(hl_head_plan *plan);
HL_CLOSES(hl_head_plan_free, hl_head_plan)

/* Marks a head ZEROED.  It must exist. */
void hl_head_plan_zero(hl_head_plan *plan, int64_t layer, int64_t head);
/* Turns as many ZEROED heads into GONE as the shapes allow. */
void hl_head_plan_compact(hl_head_plan *plan, const hl_config *config);
/* Turns all GONE heads back into ZEROED ones. */
void hl_head_plan_expand(hl_head_plan *plan, const hl_config *config);

/* Do all layers have the same number of heads, and of KV heads? */
bool hl_head_plan_is_uniform(const hl_head_plan *plan);
/* Are any heads GONE? */
bool hl_head_plan_is_compact(const hl_head_plan *plan, const hl_config *config);
/* Does the plan add biases to a model whose output projections have none? */
bool hl_head_plan_adds_biases(const hl_head_plan *plan, const hl_config *config);
/* The numbers of ZEROED and of GONE heads. */
void hl_head_plan_count(int64_t *n_zeroed, int64_t *n_gone, const hl_head_plan *plan,
                        const hl_config *config);

#endif
