/* settings.h - settings of a model's gates, as leaves of a tree.
 *
 * Two settings of the gates that agree in layers 0 ... l-1 give the same residual stream
 * before layer l.  Sorted by their gates, layer 0 first, settings are the leaves of a tree
 * whose edges are layers' gates:
 *
 *     layer 0   1 1 ------------------- 1 1 ---- 0 1
 *     layer 1   1 1 ------- 1 0         |        |
 *     layer 2   1 1   0 1   1 1         ...      ...
 *     setting   dense  a     b                            a starts at layer 2, b at 1
 *
 * and a walk from leaf to leaf runs every edge once: the least that can be.  Larger gates come
 * first, so that the dense model, with all gates 1, is the first leaf. */
#ifndef HL_PRUNE_SETTINGS_H
#define HL_PRUNE_SETTINGS_H

#include "headlight.h"

typedef struct hl_settings {
    int64_t  n_settings; /* without the dense model's, which is setting n_settings */
    int64_t  n_layers;
    int64_t  n_heads;
    float   *gates; /* (n_settings + 1, n_layers, n_heads) */
    int64_t *order; /* (n_settings + 1) leaf by leaf; the dense model's before its equals */
} hl_settings;

/* Copies.  HL_BAD_ARGUMENT for a gate that is not from 0 to 1. */
hl_status hl_settings_init(hl_settings *out, const hl_model *model, const float *gates,
                           int64_t n_settings);
void      hl_settings_clear(hl_settings *settings);

/* (n_layers, n_heads) of the leaf. */
const float *hl_settings_gates(const hl_settings *settings, int64_t leaf);
/* The first layer in which a leaf differs from the one before it; n_layers: in none.  0 for the
 * first. */
int64_t hl_settings_first(const hl_settings *settings, int64_t leaf);

#endif
