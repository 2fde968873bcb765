/* layers.h - how entropy goes from layer to layer, and what shape that has. */
#ifndef HL_ANALYSIS_LAYERS_H
#define HL_ANALYSIS_LAYERS_H

#include "headlight.h"
#include "stats/profile.h"

typedef struct hl_layer_shape {
    double  range;     /* highest mean - lowest mean */
    double  error;     /* a layer mean's standard error, root mean square over layers; NaN with
                        * fewer than two sequences */
    int64_t minimum;   /* the lowest layer; -1: none was measured */
    double  depth;     /* of the minimum: 0 first layer, 1 last */
    double  curvature; /* c of a + b x + c x^2, x the depth from 0 to 1; positive: a valley */
    double  spearman;  /* rank correlation of the mean with depth */
    bool    flat;      /* the range is under `flat_errors` times the error */
} hl_layer_shape;

typedef struct hl_layer_profile {
    int64_t        n_layers;
    double        *means; /* (n_layers) over heads, of the heads' means */
    double        *lows;  /* (n_layers) 95% interval, as below; NaN with fewer than two sequences */
    double        *highs;
    double        *errors;
    hl_layer_shape shape;
} hl_layer_profile;

/* Of ENTROPY, FAIR or NOSINK.  Intervals are by the bootstrap over sequences. */
hl_status hl_layer_profile_new(hl_layer_profile **out, const hl_profile *profile,
                               hl_quantity quantity, double flat_errors, uint64_t seed);
void      hl_layer_profile_free(hl_layer_profile *layers);

#endif
