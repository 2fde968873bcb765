/* maps.h - attention that another program computed, in the form of a tap's rows.
 *
 *     hl_maps *maps = NULL;
 *     HL_TRY(hl_maps_open(&maps, path, &options));
 *     const hl_maps_info *info = hl_maps_get_info(maps);
 *     for (int64_t first = 0; first < info->n_batch; first += n)
 *         HL_TRY(hl_maps_feed(maps, first, n, &tap));     calls tap->layer once per layer
 *   done:
 *     hl_maps_close(maps);
 *
 * headlight.h describes the files that can be read.
 *
 * Queries come before keys: entry [i,j] is the attention of position i to position j.  If there are
 * more queries than keys, both begin at position 0.
 *
 * Probabilities are checked when the file is opened: no entry is negative, and each row sums to 1
 * within 1e-3, or to 0 if it sees no key.  A row is then divided by its sum, so that rounding to 16
 * bits cannot make an entropy invalid.  With `scores`, entries are scores before the softmax, and a
 * key is hidden by -inf, by any value up to -1e9, or by the lowest number of its type, which
 * programs write for -inf.
 *
 * A file is causal if no row sees a key after its own position.  A NaN is not an error: it becomes
 * a broken row of the profile. */
#ifndef HL_MEASURE_MAPS_H
#define HL_MEASURE_MAPS_H

#include "base/memory.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "headlight/base.h"
#include "headlight/measure.h"

typedef struct hl_maps_info {
    int64_t  n_layers;
    int64_t  n_batch;
    int64_t  n_heads; /* largest number of heads in a layer */
    int64_t  n_queries;
    int64_t  n_keys;
    bool     is_causal;
    uint64_t hash; /* hash of all maps */
} hl_maps_info;

typedef struct hl_maps hl_maps;

hl_status hl_maps_open(hl_maps **out, const char *path, const hl_maps_options *options);
void      hl_maps_close(hl_maps *maps);
HL_CLOSES(hl_maps_close, hl_maps)
/* The result is borrowed from the maps. */
const hl_maps_info *hl_maps_get_info(const hl_maps *maps);
int64_t             hl_maps_heads_of(const hl_maps *maps, int64_t layer);
/* The number of real positions of a sequence, and a hash of its maps in all layers. */
int64_t  hl_maps_length(const hl_maps *maps, int64_t sequence);
uint64_t hl_maps_hash_of(const hl_maps *maps, int64_t sequence);

/* Calls tap->layer once for every layer, with the rows of sequences [first, first + n): the
 * row statistics of hl_attention_result (out and segment_mass are NULL, lse is 0 for
 * probabilities) and, if the tap wants HL_WANT_PATTERN, whole rows at its positions.  Rows of
 * padding are all zero.  d_head and d_model are 0. */
hl_status hl_maps_feed(hl_maps *maps, int64_t first, int64_t n, const hl_tap *tap);

/* ---------------------------------------------------- the layout of a file */

/* Which tensors of a file are the attention maps of which layer. */
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
