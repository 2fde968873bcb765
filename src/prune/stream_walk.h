/* stream_walk.h - runs a model one layer at a time, on the whole text before the next layer.
 *
 *     HL_NEED(hl_walk_open(&walk, model, corpus, &windows, n_threads));
 *     for (int64_t layer = 0; layer < n_layers; layer++)
 *         HL_NEED(hl_walk_step(walk, &(hl_walk_stream){ .x = x, .z = z }, layer));
 *     hl_walk_close(walk);
 *
 * x is the residual stream of every token after the attention of a layer: the input of its MLP or,
 * where both branches of a block read the same stream, the input of the next layer.  The caller may
 * change it between two steps, as if the attention had written something else, and may keep several
 * streams.  So a whole walk costs one pass over the text, without the output head, even if the
 * attention of every layer is changed on the way.
 *
 * A second text can be walked along, whose tokens follow those of the first in x.  After the last
 * layer its tokens are predicted from the streams: hl_walk_score. */
#ifndef HL_PRUNE_STREAM_WALK_H
#define HL_PRUNE_STREAM_WALK_H

#include "base/memory.h"
#include "headlight/corpus.h"
#include "headlight/model.h"
#include "prune/evaluate.h"

typedef struct hl_walk hl_walk;

typedef struct hl_walk_stream {
    float         *x;       /* (n_tokens, d_model) after the attention of the layer before; any
                             * values for layer 0 */
    const float   *gates;   /* (n_layers, n_heads) or NULL: all 1 */
    float         *z;       /* (n_tokens, n_kept d_head) outputs of heads of the layer, or NULL */
    const int64_t *heads;   /* (n_kept) heads that z has, ascending */
    int64_t        n_heads; /* n_kept */
} hl_walk_stream;

/* Returns HL_UNSUPPORTED, with the reason, for a model that cannot be run this way. */
hl_status hl_walk_check(const hl_model *model);
/* Reads the text at once.  `scored` is a second text, borrowed, or NULL; its windows are as long as
 * those of the first at most.  Returns HL_UNSUPPORTED for an encoder, and where a norm reads the sum of
 * stream and attention; HL_BAD_INPUT for a text without tokens. */
hl_status hl_walk_open(hl_walk **out, const hl_model *model, const hl_corpus *corpus,
                       const hl_window_options *windows, const hl_scored_windows *scored,
                       int32_t n_threads);
void      hl_walk_close(hl_walk *walk);
HL_CLOSES(hl_walk_close, hl_walk)
/* Number of tokens of both texts, and of the first. */
int64_t hl_walk_n_tokens(const hl_walk *walk);
int64_t hl_walk_n_first(const hl_walk *walk);
/* Returns a hash of tokens and windows. */
uint64_t hl_walk_hash(const hl_walk *walk);
/* Returns the bytes of tokens and session. */
size_t hl_walk_bytes(const hl_walk *walk);
/* Runs the MLP of the layer before and the attention of this one. */
hl_status hl_walk_step(hl_walk *walk, const hl_walk_stream *stream, int64_t layer);
/* After the last layer: the losses of the second text under each of out->n_settings streams, and how
 * far their predictions are from those of `reference`, in `out`, which is of that text.  NULL for a
 * stream leaves its scores as they are. */
hl_status hl_walk_score(hl_evaluation *out, hl_walk *walk, const float *reference,
                        float *const *streams);

#endif
