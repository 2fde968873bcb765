/* maps.h - attention that another program computed, in the form of a tap's rows.
 *
 *     hl_maps *maps = NULL;
 *     HL_TRY(hl_maps_open(&maps, path, &options));
 *     const hl_maps_info *info = hl_maps_get_info(maps);
 *     for (int64_t first = 0; first < info->n_batch; first += n)
 *         HL_TRY(hl_maps_feed(maps, first, n, &tap));         tap->layer, a layer at a time
 *   done:
 *     hl_maps_close(maps);
 *
 * The file is a .safetensors or a .npy of floating-point numbers, mapped:
 *
 *     one tensor   [L,B,H,S,S], [L,H,S,S] or [H,S,S]; in safetensors its name is attention,
 *                  attentions, attn, pattern, patterns or scores, or it is the only one
 *     one a layer  [B,H,S,S] or [H,S,S] each, in the order of the numbers in their names
 *                  ("blocks.10.attn.hook_pattern" is layer 10); numbers without gaps
 *
 * Queries come before keys: entry [i,j] is how much position i looks at position j, and
 * there may be fewer queries than keys or more.  `lengths` (B), integers, says how many
 * positions of each sequence are real.
 *
 * Probabilities are checked: no entry below 0, each row sums to 1 within 1e-3 or is all
 * 0 (a row that sees nothing); they are used as they are, and what a row lacks or has
 * too much of 1 is not made up for in them.  With `scores` entries are scores and
 * -inf hides a key.  Keys count as visible if their probability is above 0 or, where all
 * keys after the row's own position are 0 in every row of the file, up to that position:
 * such a file is causal (hl_maps_info says so, `mask` decides otherwise).
 *
 * NaN is passed on: it becomes a broken row of the profile, not an error. */
#ifndef HL_MEASURE_MAPS_H
#define HL_MEASURE_MAPS_H

#include "headlight.h"

typedef enum hl_maps_mask {
    HL_MAPS_MASK_AUTO = 0, /* look whether the file is causal */
    HL_MAPS_MASK_CAUSAL,   /* it must be */
    HL_MAPS_MASK_FULL,     /* every key within the length is visible */
} hl_maps_mask;

typedef struct hl_maps_options {
    bool         scores; /* entries are scores before the softmax */
    hl_maps_mask mask;
    int32_t      n_threads;
} hl_maps_options;

typedef struct hl_maps_info {
    int64_t  n_layers;
    int64_t  n_batch;
    int64_t  n_heads; /* the most that a layer has */
    int64_t  n_queries;
    int64_t  n_keys;
    bool     is_causal;
    uint64_t hash; /* of all the maps */
} hl_maps_info;

typedef struct hl_maps hl_maps;

hl_status hl_maps_open(hl_maps **out, const char *path, const hl_maps_options *options);
void      hl_maps_close(hl_maps *maps);
/* Borrowed. */
const hl_maps_info *hl_maps_get_info(const hl_maps *maps);
int64_t             hl_maps_heads_of(const hl_maps *maps, int64_t layer);
/* How many positions of a sequence are real. */
int64_t hl_maps_length(const hl_maps *maps, int64_t sequence);

/* Calls tap->layer once for every layer, with the rows of sequences [first, first + n): the
 * row statistics of hl_attention_result (out, segment_mass NULL) and, if the tap wants
 * HL_WANT_PATTERN, whole rows at its positions.  Start is the position of row 0: keys
 * minus queries where there are fewer queries, else 0. */
hl_status hl_maps_feed(hl_maps *maps, int64_t first, int64_t n, const hl_tap *tap);

#endif
