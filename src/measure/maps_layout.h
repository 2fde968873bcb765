/* maps_layout.h - which tensors of a file are the attention maps of which layer. */
#ifndef HL_MEASURE_MAPS_LAYOUT_H
#define HL_MEASURE_MAPS_LAYOUT_H

#include "formats/npy.h"
#include "formats/safetensors.h"
#include "headlight/base.h"

typedef struct hl_maps_layer {
    const uint8_t *data; /* (n_batch, n_heads, n_queries, n_keys) */
    hl_dtype       dtype;
    int64_t        n_heads;
} hl_maps_layer;

typedef struct hl_maps_layout {
    hl_npy         *npy;
    hl_safetensors *safetensors;
    hl_maps_layer  *layers; /* (n_layers) */
    int64_t         n_layers;
    int64_t         n_batch;
    int64_t         n_heads; /* largest number of heads in a layer */
    int64_t         n_queries;
    int64_t         n_keys;
    int64_t        *lengths; /* (n_batch) */
} hl_maps_layout;

/* Opens a file as maps.h describes.  `scores` says which to read where a file has both scores and
 * probabilities. */
hl_status hl_maps_layout_open(hl_maps_layout *out, const char *path, bool scores);
void      hl_maps_layout_close(hl_maps_layout *layout);

/* The bytes of one row. */
const uint8_t *hl_maps_layout_row(const hl_maps_layout *layout, int64_t layer, int64_t sequence,
                                  int64_t head, int64_t query);

#endif
