/* headlight/damage.h - which heads of a changed model changed its predictions. Part of headlight.h, which
 * see for the conventions. */
#ifndef HEADLIGHT_DAMAGE_H
#define HEADLIGHT_DAMAGE_H

#include "corpus.h"
#include "prune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------- damage
 *
 *     hl_damage *found = NULL;
 *     hl_damage_find(&found, reference, quantized, corpus, NULL);
 *     hl_damage_sheet(&table, found, "heads");
 *
 * Two models of the same shape read the same windows: a model and its quantization, say.  The damage is
 * KL(reference || model), nats per token.  It is split by patching: the changed model is run again with
 * the output of one head replaced by what that head puts out in the reference model, and what the KL
 * falls by is what this head explains.  So are all heads of a layer at once, and its MLP, whose part of
 * the stream is replaced.
 *
 * Parts do not add up to the whole: damage that one layer does may be undone or magnified by the next. */

/* What was patched. */
typedef enum hl_damage_kind {
    HL_DAMAGE_HEAD = 0,
    HL_DAMAGE_ATTENTION, /* all heads of a layer */
    HL_DAMAGE_MLP,
    HL_DAMAGE_TOP, /* the first `head` heads of those that explain most, of all layers, together */
} hl_damage_kind;

typedef struct hl_damage_part {
    hl_damage_kind kind;
    int64_t        layer;
    int64_t        head;
    double         kl;        /* that is left; NaN: not measured */
    double         explained; /* the whole KL less kl */
    hl_interval    interval;  /* of it, over windows */
    /* Of a head: the relative change of its output (norm of the difference over the norm in the
     * reference model, root mean square over rows), and its mean entropies, nats; else NaN. */
    double output_change;
    double entropy_reference;
    double entropy_model;
} hl_damage_part;

typedef struct hl_damage {
    int64_t         n_windows;
    int64_t         n_rows; /* compared predictions */
    double          kl;
    hl_interval     kl_interval;
    double          top1; /* share of predictions with the same most likely token */
    double          loss_reference;
    double          loss_model;
    int64_t         n_heads;
    hl_damage_part *heads; /* (n_heads) those that explain most first */
    int64_t         n_layers;
    hl_damage_part *layers; /* (n_layers, 2) attention and MLP of each */
    int64_t         n_tops;
    hl_damage_part *tops; /* (n_tops) 1, 2, 4, ... heads, and all of them */
} hl_damage;

typedef struct hl_damage_options {
    hl_window_options    windows; /* n_ctx 0: 256, at most 512; max_tokens 0: eight windows; stride
                                   * and n_batch must be 0 */
    int32_t              n_threads;
    hl_progress_callback progress; /* after every patch */
    void                *context;
} hl_damage_options;

/* Returns HL_BAD_INPUT, with the difference, if the models differ in shape; HL_UNSUPPORTED for
 * encoders and on devices other than the CPU. */
HL_API hl_status hl_damage_find(hl_damage **out, const hl_model *reference, const hl_model *model,
                                const hl_corpus *corpus, const hl_damage_options *options);
HL_API void      hl_damage_free(hl_damage *damage);
/* Tables: "damage" (the whole), "heads", "layers", "tops". */
HL_API hl_status hl_damage_sheet(hl_sheet **out, const hl_damage *damage, const char *name);

#ifdef __cplusplus
}
#endif
#endif
