/* headlight/prune.h - heads by name, gates, rankings, and which heads to take.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_PRUNE_H
#define HEADLIGHT_PRUNE_H

#include "analysis.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------- heads
 *
 *     hl_head_list *heads = NULL;
 *     if (hl_head_list_parse(&heads, model, "L5H1,L7") == HL_OK) ...
 *     hl_head_list_free(heads); */

/* By layer and head, each once, from hl_head_list_parse; in the order of a ranking from
 * hl_ranking_choose. */
typedef struct hl_head_list {
    hl_head *heads; /* (n_heads) */
    int64_t  n_heads;
} hl_head_list;

/* What "L5H1" says, or "L5" (then .head is -1), of a word of n_bytes; false if it is neither.
 * Whether a model has such a head is another question. */
HL_API bool hl_head_read(hl_head *out, const char *word, size_t n_bytes);
/* "L5H1,L7H3"; "L5" is all of layer 5, and blanks may stand between.  HL_BAD_ARGUMENT, with the
 * word and what the model has, for what is no head of it. */
HL_API hl_status hl_head_list_parse(hl_head_list **out, const hl_model *model, const char *text);
/* "L5H1,L7H3", to be released with hl_free. */
HL_API hl_status hl_head_list_text(char **out, const hl_head_list *list);
HL_API void      hl_head_list_free(hl_head_list *list);

/* As hl_head_list_parse, where words may also be types of heads: "sink,induction,L0" (the types of the
 * table `head-types`).  Types need a profile, which hl_head_words_need_profile asks for before there is
 * one.  A type that no head of the model has is no error, a word that is neither is. */
HL_API hl_status hl_head_list_select(hl_head_list **out, const hl_model *model,
                                     const hl_profile *profile, const char *text);
/* HL_BAD_ARGUMENT for a word that is neither. */
HL_API hl_status hl_head_words_need_profile(bool *out, const hl_model *model, const char *text);

/* ------------------------------------------------------------------- gates
 *
 *     hl_gates_new(&gates, model);
 *     hl_gates_set(gates, heads, 0.0f);
 *     hl_model_set_gates(model, gates->values);      for all sessions, or one feed at a time:
 *     hl_feed feed = { ..., .gates = gates->values };
 *
 * A gate multiplies what its head writes, before the output projection: 1 leaves it as it
 * is, 0 switches it off.  That alone saves no time.
 *
 * hl_gates_set needs the gates alone, and gates that a feed or a call borrows stay as they are until it
 * returns. */

typedef struct hl_gates {
    int64_t n_layers;
    int64_t n_heads; /* the most of any layer, as hl_model_info's */
    float  *values;  /* (n_layers, n_heads), 0 to 1; 1 where a layer has no such head */
} hl_gates;

/* All open. */
HL_API hl_status hl_gates_new(hl_gates **out, const hl_model *model);
/* From a file: { "L5H1": 0, "L7": 0.5, ... } in JSON, where the rest is 1; or the only tensor
 * (or `gates`) of a .safetensors file, F32 of shape [n_layers, n_heads]. */
HL_API hl_status hl_gates_load(hl_gates **out, const hl_model *model, const char *path);
/* Gives all heads of the list this value. */
HL_API void hl_gates_set(hl_gates *gates, const hl_head_list *heads, float value);
/* How many are not 1. */
HL_API int64_t hl_gates_n_changed(const hl_gates *gates);
HL_API void    hl_gates_free(hl_gates *gates);

/* --------------------------------------------------------------- gradients
 *
 *     hl_gate_gradients(&gradients, model, corpus, NULL);
 *     hl_rank_inputs inputs = { .model = model, .gradient = gradients->magnitude };
 *
 * dL/dg of every head, L the mean negative log-likelihood of a window's text (of its first token
 * only where something stands before it), by
 * one forward and one backward pass a window: how much the loss would change if the head
 * were turned down a little.  Importance is the mean over windows of |dL/dg| (after Michel et
 * al. 2019), where the plain mean would let windows cancel.  Gates are the model's, else 1. */

typedef struct hl_gradients {
    int64_t n_layers;
    int64_t n_heads;
    double *magnitude; /* (n_layers, n_heads) mean |dL/dg| over windows */
    double *mean;      /* (n_layers, n_heads) mean dL/dg */
    /* (3, n_layers, n_heads) mean over windows of the Frobenius norm of dL/dW: of the head's rows
     * of W_Q, and of its K/V head's rows of W_K and W_V. */
    double *weight_norms;
    double  nll; /* mean over windows of L */
    int64_t n_windows;
    int64_t n_tokens; /* that were predicted */
} hl_gradients;

typedef struct hl_gradient_options {
    hl_window_options    windows; /* side by side, one at a time: stride and n_batch must be 0 */
    int32_t              n_threads;
    hl_progress_callback progress; /* after every window */
    void                *context;  /* of progress */
} hl_gradient_options;

/* HL_UNSUPPORTED for an encoder. */
HL_API hl_status hl_gate_gradients(hl_gradients **out, const hl_model *model,
                                   const hl_corpus *corpus, const hl_gradient_options *options);
HL_API void      hl_gradients_free(hl_gradients *gradients);

/* ------------------------------------------------------------ what heads write
 *
 *     hl_head_moments_take(&moments, model, corpus, NULL);
 *     hl_rank_inputs inputs = { .model = model, .moments = moments };
 *
 * Mean and variance of every output of every head, before the output projection and after its gate,
 * over all tokens of the texts. */

typedef struct hl_head_moments {
    int64_t n_layers;
    int64_t n_heads; /* largest number in any layer */
    int64_t d_head;
    int64_t n_rows;   /* tokens */
    double *mean;     /* (n_layers, n_heads, d_head), 0 where a layer has no such head */
    double *variance; /* the same, of the sample: over n_rows - 1 */
} hl_head_moments;

typedef struct hl_moments_options {
    hl_window_options    windows; /* one at a time: n_batch does not matter */
    int32_t              n_threads;
    hl_progress_callback progress; /* after every window */
    void                *context;  /* of progress */
} hl_moments_options;

/* HL_BAD_INPUT for fewer than two tokens.  The options may be NULL. */
HL_API hl_status hl_head_moments_take(hl_head_moments **out, const hl_model *model,
                                      const hl_corpus *corpus, const hl_moments_options *options);
HL_API void      hl_head_moments_free(hl_head_moments *moments);

/* ------------------------------------------------------------------ surgeon
 *
 *     hl_surgeon_scores(scores, model, corpus, NULL);
 *     hl_rank_inputs inputs = { .model = model, .surgeon = scores };
 *
 * The order for heads whose removal is repaired (hl_repair_heads): a layer's heads go one by one, each time
 * the one whose absence the others' output projections can make up for best, and its score is the squared
 * error of what the layer writes by then, over the variance of the residual stream.  It costs a pass over
 * the text, and an inverse for each layer. */

typedef struct hl_surgeon_options {
    hl_window_options    windows; /* n_batch and stride must be 0 */
    int32_t              n_threads;
    hl_progress_callback progress; /* after every layer */
    void                *context;  /* of progress */
} hl_surgeon_options;

/* out (n_layers, n_heads), NaN where a layer has no such head.  HL_UNSUPPORTED for an encoder and
 * without LAPACK. */
HL_API hl_status hl_surgeon_scores(double *out, const hl_model *model, const hl_corpus *corpus,
                                   const hl_surgeon_options *options);

/* ---------------------------------------------------------------- rankings
 *
 *     hl_ranking *ranking = NULL;
 *     hl_rank(&ranking, HL_RANKER_AUTO, &(hl_rank_inputs){ .profile = profile }, NULL);
 *     hl_ranking_choose(&heads, ranking, &(hl_choice){ .ratio = 0.3 });
 *
 * A ranker gives every head a score; a ranking has them in the order in which they would be
 * taken out. */

typedef enum hl_ranker {
    HL_RANKER_AUTO = 0,         /* GRADIENT where gradients are given, else OUTPUT_NORM */
    HL_RANKER_ENTROPY,          /* mean H of all rows, nats; highest first             */
    HL_RANKER_NORMALIZED,       /* mean H / ln n; highest first                        */
    HL_RANKER_ENTROPY_NOSINK,   /* mean H without key 0; highest first                 */
    HL_RANKER_RENYI2,           /* mean collision entropy; highest first               */
    HL_RANKER_OUTPUT_NORM,      /* what it writes, of the layer's mean; lowest first   */
    HL_RANKER_WEIGHT,           /* |W_Q| |W_K| |W_V| |W_O|, Frobenius; lowest first    */
    HL_RANKER_GRADIENT,         /* mean |dL/dg| over windows; lowest first             */
    HL_RANKER_ENTROPY_GRADIENT, /* H / max H * (1 - |dL/dg| / max |dL/dg|); highest first */
    HL_RANKER_SINK,             /* mean A(i,0); highest first                          */
    HL_RANKER_HIES,             /* half |dL/dg|, half 1 - H / ln n, each scaled; lowest first */
    HL_RANKER_GNORM,            /* |dL/dW_Q| |dL/dW_K| |dL/dW_V|; lowest first          */
    HL_RANKER_VARIANCE,         /* variance of H over the layer's heads; lowest first   */
    HL_RANKER_FLUCTUATION,      /* var(z) |W_O|^2, standardized in its layer; lowest first */
    HL_RANKER_WANDA,            /* rms(z) |W_O|; lowest first                           */
    HL_RANKER_RETRIEVAL,        /* mean A on what is to be copied; lowest first         */
    HL_RANKER_RECEIVED,         /* 1 - mean A(i,i) - mean A(i,0); lowest first          */
    HL_RANKER_SURGEON, /* squared error that is left when the others make up for it; lowest first */
    HL_RANKER_ABLATION, /* rise of the loss without it; lowest first           */
    HL_RANKER_RANDOM,   /* by seed                                             */
    HL_N_RANKERS
} hl_ranker;

/* "auto", "entropy", "output-norm", ...; NULL past the last.  And a line on each. */
HL_API const char *hl_ranker_name(size_t ranker);
HL_API const char *hl_ranker_summary(size_t ranker);
/* What sweeps said against a ranker, in a sentence; NULL: nothing. */
HL_API const char *hl_ranker_verdict(size_t ranker);
/* What AUTO stands for, before there is evidence.  Up to a fifth of all heads the gradient cost
 * least on average over our sweeps (doc/sweep.md), beyond that the output norm; an encoder has no loss to take
 * gradients of, nor has a profile alone.  `ratio` is the share of heads to be taken, 0 where that
 * is not known; the model may be NULL. */
HL_API hl_ranker hl_ranker_default(const hl_model *model, bool has_texts, double ratio);
/* HL_BAD_ARGUMENT, with all names, if there is none of that name. */
HL_API hl_status hl_ranker_find(hl_ranker *out, const char *name);
/* Can a ranker rank again when heads have gone, to another order?  Those that look at a text can. */
HL_API bool hl_ranker_can_reselect(hl_ranker ranker);
/* Does it take the heads with the highest scores first, unless told otherwise? */
HL_API bool hl_ranker_takes_highest(hl_ranker ranker);

/* What a ranker cannot do without; of AUTO nothing, since it takes what is there. */
enum {
    HL_NEEDS_PROFILE  = 1 << 0,
    HL_NEEDS_MODEL    = 1 << 1,
    HL_NEEDS_GRADIENT = 1 << 2,
    HL_NEEDS_ABLATION = 1 << 3,
    HL_NEEDS_MOMENTS  = 1 << 4,
    HL_NEEDS_PROBE    = 1 << 5, /* in the profile, which hl_measure leaves out if asked to */
    HL_NEEDS_SURGEON  = 1 << 6,
    HL_NEEDS_TEXTS = HL_NEEDS_PROFILE | HL_NEEDS_GRADIENT | HL_NEEDS_ABLATION | HL_NEEDS_MOMENTS |
                     HL_NEEDS_SURGEON,
};
HL_API unsigned hl_ranker_needs(hl_ranker ranker);

/* What a ranker can draw on; NULL: not there. */
typedef struct hl_rank_inputs {
    const hl_profile      *profile;      /* for entropies, sinks and output norms */
    const hl_model        *model;        /* for weights; and for random, without a profile */
    const double          *gradient;     /* (n_layers, n_heads) of hl_gate_gradients */
    const double          *ablation;     /* (n_layers, n_heads) rise of the mean NLL */
    const double          *weight_norms; /* (3, n_layers, n_heads) of hl_gate_gradients */
    const hl_head_moments *moments;      /* of hl_head_moments_take */
    const double          *surgeon;      /* (n_layers, n_heads) of hl_surgeon_scores */
} hl_rank_inputs;

typedef enum hl_rank_order {
    HL_ORDER_DEFAULT = 0, /* the ranker's own */
    HL_ORDER_HIGHEST,     /* highest scores first */
    HL_ORDER_LOWEST,
} hl_rank_order;

typedef struct hl_rank_options {
    hl_rank_order order;
    uint64_t      seed; /* of random */
} hl_rank_options;

typedef struct hl_ranked {
    int64_t layer;
    int64_t head;
    double  score; /* NaN: never measured; such heads come last */
} hl_ranked;

typedef struct hl_ranking {
    hl_ranker  ranker; /* never AUTO */
    bool       highest_first;
    int64_t    n_layers;
    int64_t    n_heads; /* all of the model's */
    hl_ranked *heads;   /* (n_heads) the first to go first; equals by layer and head */
    int64_t   *groups;  /* (n_layers) so many go together, by hl_ranking_group; NULL: one by one */
} hl_ranking;

/* HL_BAD_ARGUMENT if the ranker needs an input that is not there, and says which; HL_BAD_INPUT
 * if the profile is not of the model's shape or does not hold what is needed. */
HL_API hl_status hl_rank(hl_ranking **out, hl_ranker ranker, const hl_rank_inputs *inputs,
                         const hl_rank_options *options);
HL_API void      hl_ranking_free(hl_ranking *ranking);
/* Query heads that share a K/V head go together from now on: groups in the order of their heads'
 * mean score, heads of a group side by side.  HL_BAD_INPUT if the model has other heads. */
HL_API hl_status hl_ranking_group(hl_ranking *ranking, const hl_model *model);
/* As a table, the first `count` heads or, with 0, all. */
HL_API hl_status hl_ranking_sheet(hl_sheet **out, const hl_ranking *ranking, int64_t count);

/* Which heads of a ranking to take: the first, but for those that the limits spare.  Query heads
 * of a K/V head are taken one by one, and the K/V head can only go when all of them have; or,
 * where the ranking is one of groups, all at once: then as many groups as come nearest to the
 * number wanted. */
typedef struct hl_choice {
    double              ratio;         /* of all heads, 0 to 1, rounded to the nearest number; or */
    int64_t             count;         /* so many, if ratio is 0 */
    int64_t             per_layer_max; /* 0: no limit */
    bool                empty_layers;  /* a layer may lose all heads; else one stays in each */
    const hl_head_list *keep; /* heads that stay, with the groups that they are in; NULL: none */
} hl_choice;

/* HL_BAD_ARGUMENT if the limits leave fewer than are wanted; the message has the most. */
HL_API hl_status hl_ranking_choose(hl_head_list **out, const hl_ranking *ranking,
                                   const hl_choice *choice);
/* The most heads that can go within the limits of a choice, whatever its ratio and count. */
HL_API hl_status hl_ranking_room(int64_t *out, const hl_ranking *ranking, const hl_choice *choice);

/* ------------------------------------------------------------------ repair
 *
 *     hl_repair *repair = NULL;
 *     if (hl_repair_heads(&repair, model, corpus, heads, NULL) == HL_OK)
 *         hl_prune_write(NULL, model, heads, &(hl_prune_options){ .repair = repair }, "pruned");
 *     hl_repair_free(repair);
 *
 * Once heads are removed, the output projections of the heads that stay are solved again, layer by layer
 * from below, so that the residual stream behind each attention comes as close as it can to the original
 * model's.  With Z the outputs of the kept heads in the model that is pruned and repaired up to there, W0
 * their output projection, and Y what has to be added to that model's stream to reach the
 * original's,
 *
 *     min |Z W - Y|^2 + lambda |W - W0|^2,    lambda = ridge * mean diagonal of Z'Z,
 *
 * in double.  An output bias is solved for too where the model has one.  All layers from the first that
 * loses a head on are solved.  It costs two passes over the text without the output head, and the
 * solves; each layer's weights are rounded to the type that they are stored in before the next is
 * solved, which then makes up for it. */

typedef struct hl_repair hl_repair;

typedef struct hl_repair_options {
    hl_window_options windows; /* of the text; side by side, so stride and n_batch must be 0 */
    /* 0: in each layer that of 0.001, 0.01, 0.1 and 1 which leaves the least on the last quarter of
     * the text when the rest is solved. */
    double  ridge;
    size_t  memory_bytes; /* most memory for streams, sums and results; 0: 8 GiB */
    int32_t n_threads;
    /* As in hl_sweep_options; the numbers do not depend on these. */
    const char          *state_path;
    double               save_every;
    bool                 resume;
    hl_progress_callback progress; /* with the stage "repairing"; after every layer */
    void                *context;  /* of progress */
} hl_repair_options;

/* What became of a layer. */
typedef struct hl_repair_layer {
    int64_t  layer;
    int64_t  n_kept;     /* heads */
    int64_t  n_unknowns; /* per output: n_kept * d_head, and a bias.  The text should have more
                          * tokens than this; the ridge keeps the solution defined if it has not */
    double   before;     /* mean over tokens of |stream - the original's|^2 behind the attention */
    double   after;      /* the same with the weights that are written */
    hl_dtype stored;     /* type of the output projection */
    hl_dtype dtype;      /* that the new one is written in: the first of `first`, F16 and F32 that
                          * loses at most a tenth of what is gained */
    hl_dtype first;      /* `stored`, or Q8_0 or F16 for blocks that values cannot be turned back
                          * into */
    double   ridge;      /* that was used */
    double   rounding;   /* share of the gain that `dtype` loses, and `first` */
    double   first_rounding;
} hl_repair_layer;

typedef struct hl_repair_info {
    int64_t                n_tokens; /* of the text */
    int64_t                n_layers; /* that were solved */
    const hl_repair_layer *layers;   /* (n_layers) */
    int64_t                n_short;  /* layers with more unknowns than tokens */
    int64_t                n_empty;  /* layers without heads, which cannot be repaired */
    size_t                 n_bytes;  /* most memory that the work took, the session included */
} hl_repair_info;

/* HL_UNSUPPORTED, with the reason, for a model that cannot be repaired: an encoder; a norm between
 * output projection and stream, which makes the problem nonlinear; no LAPACK. */
HL_API hl_status hl_repair_check(const hl_model *model);
/* HL_LIMIT if the text needs more memory than allowed; HL_BAD_INPUT for activations that are not
 * finite, naming the layer, and for a state of other settings; HL_BAD_ARGUMENT if no heads are
 * left.  The state's file is for the caller to remove. */
HL_API hl_status hl_repair_heads(hl_repair **out, const hl_model *model, const hl_corpus *corpus,
                                 const hl_head_list *heads, const hl_repair_options *options);
HL_API void      hl_repair_free(hl_repair *repair);
/* Borrowed from the repair. */
HL_API const hl_repair_info *hl_repair_get_info(const hl_repair *repair);
/* The model's sessions that are opened from now on run with these weights, until NULL is set.  The
 * repair is borrowed; no session of the model may be open.  HL_BAD_ARGUMENT if it is another
 * model's. */
HL_API hl_status hl_model_set_repair(hl_model *model, const hl_repair *repair);

#ifdef __cplusplus
}
#endif
#endif
