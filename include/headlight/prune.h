/* headlight/prune.h - names of heads, gates, rankings, and choosing heads to remove. Part of
 * headlight.h, which see for the conventions. */
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

/* Each head occurs once.  hl_head_list_parse sorts by layer and head; hl_ranking_choose keeps the
 * order of the ranking. */
typedef struct hl_head_list {
    hl_head *heads; /* (n_heads) */
    int64_t  n_heads;
} hl_head_list;

/* Parses "L5H1", or "L5" (.head is then -1), in a word of n_bytes; returns false if it is neither.
 * Does not check whether a model has such a head. */
HL_API bool hl_head_read(hl_head *out, const char *word, size_t n_bytes);
/* Parses "L5H1,L7H3"; "L5" stands for all heads of layer 5, and spaces are allowed between heads.
 * Returns HL_BAD_ARGUMENT for a head that the model does not have; the message has the word and
 * what the model has. */
HL_API hl_status hl_head_list_parse(hl_head_list **out, const hl_model *model, const char *text);
/* Formats a list as "L5H1,L7H3".  Release *out with hl_free. */
HL_API hl_status hl_head_list_text(char **out, const hl_head_list *list);
HL_API void      hl_head_list_free(hl_head_list *list);

/* As hl_head_list_parse, where words may also be types of heads: "sink,induction,L0" (the types of the
 * table `head-types`).  Types need a profile, which hl_head_words_need_profile asks for before there is
 * one.  A type that no head of the model has is accepted; a word that is neither
 * head nor type is an error. */
HL_API hl_status hl_head_list_select(hl_head_list **out, const hl_model *model,
                                     const hl_profile *profile, const char *text);
/* HL_BAD_ARGUMENT for a word that is neither. */
HL_API hl_status hl_head_words_need_profile(bool *out, const hl_model *model, const char *text);

/* ------------------------------------------------------------------- gates
 *
 *     hl_gates_new(&gates, model);
 *     hl_gates_set(gates, heads, 0.0f);
 *     hl_model_set_gates(model, gates->values);           for all sessions, or
 *     hl_feed feed = { ..., .gates = gates->values };     for one feed
 *
 * A gate multiplies the output of its head, before the output projection: 1 leaves the output
 * unchanged, 0 disables the head.  A disabled head saves no time.
 *
 * No other thread may use the gates during hl_gates_set, and gates that a call borrows must not
 * change until it returns. */

typedef struct hl_gates {
    int64_t n_layers;
    int64_t n_heads; /* largest number in any layer, as in hl_model_info */
    float  *values;  /* (n_layers, n_heads), 0 to 1; 1 for heads that a layer lacks */
} hl_gates;

/* Creates gates that are all 1. */
HL_API hl_status hl_gates_new(hl_gates **out, const hl_model *model);
/* Reads gates from a file: JSON such as { "L5H1": 0, "L7": 0.5, ... }, where the rest is 1; or a
 * .safetensors file with a tensor `gates`, or only one tensor, F32 of shape [n_layers, n_heads]. */
HL_API hl_status hl_gates_load(hl_gates **out, const hl_model *model, const char *path);
/* Sets the gates of all heads of the list to this value. */
HL_API void hl_gates_set(hl_gates *gates, const hl_head_list *heads, float value);
/* Returns the number of gates that are not 1. */
HL_API int64_t hl_gates_n_changed(const hl_gates *gates);
HL_API void    hl_gates_free(hl_gates *gates);

/* --------------------------------------------------------------- gradients
 *
 *     hl_gate_gradients(&gradients, model, corpus, NULL);
 *     hl_rank_inputs inputs = { .model = model, .gradient = gradients->magnitude };
 *
 * Computes dL/dg for the gate g of every head, by one forward and one backward pass per window:
 * how much the loss would change if the gate were lowered a little.  L is the mean negative
 * log-likelihood of a window's text; the first token counts only if a token precedes it.  The
 * importance of a head is the mean of |dL/dg| over windows (after Michel et al. 2019); in the mean
 * of dL/dg, windows could cancel.  Gates are the model's, else 1. */

typedef struct hl_gradients {
    int64_t n_layers;
    int64_t n_heads;
    double *magnitude; /* (n_layers, n_heads) mean |dL/dg| over windows */
    double *mean;      /* (n_layers, n_heads) mean dL/dg */
    /* (3, n_layers, n_heads) mean over windows of the Frobenius norm of dL/dW: of the head's rows
     * of W_Q, and of its KV head's rows of W_K and W_V. */
    double  *weight_norms;
    double  *each;      /* (n_windows, n_layers, n_heads) |dL/dg| of every window */
    int64_t *documents; /* (n_windows) which document of the corpus a window is of */
    double   nll;       /* mean over windows of the loss L */
    int64_t  n_windows;
    int64_t  n_tokens; /* number of predicted tokens */
} hl_gradients;

typedef struct hl_gradient_options {
    hl_window_options    windows; /* windows do not overlap and run one at a time: stride and
                                   * n_batch must be 0 */
    int32_t              n_threads;
    hl_progress_callback progress; /* called after every window */
    void                *context;  /* passed to `progress` */
} hl_gradient_options;

/* Returns HL_UNSUPPORTED for an encoder. */
HL_API hl_status hl_gate_gradients(hl_gradients **out, const hl_model *model,
                                   const hl_corpus *corpus, const hl_gradient_options *options);
HL_API void      hl_gradients_free(hl_gradients *gradients);

/* ------------------------------------------------------------ what heads write
 *
 * hl_evidence_take measures it.  Mean and variance of every output of every head, before the output projection and after its gate,
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

/* ------------------------------------------------------------------ surgeon
 *
 * hl_evidence_take measures it.  The order for heads whose removal is repaired (hl_repair_heads): a layer's
 * heads go one by one, each time the one whose absence the others' output projections can make up for
 * best.  Its score is the rise of the loss, nats per token, that the error left causes to second order,
 * by the gradients of the loss with respect to what the layer's attention writes.  For a model without
 * gradients (a layer with a state), it is the squared error over the variance of the residual stream.
 * It costs a pass over the text, a backward pass, and an inverse for each layer. */

typedef struct hl_surgeon_options {
    hl_window_options    windows; /* n_batch and stride must be 0 */
    int32_t              n_threads;
    hl_progress_callback progress; /* after every layer */
    void                *context;  /* of progress */
} hl_surgeon_options;

/* ---------------------------------------------------------------- rankings
 *
 *     hl_ranking *ranking = NULL;
 *     hl_rank(&ranking, HL_RANKER_AUTO, &(hl_rank_inputs){ .profile = profile }, NULL);
 *     hl_ranking_choose(&heads, ranking, &(hl_choice){ .ratio = 0.3 });
 *
 * A ranker gives every head a score; a ranking has all heads in the order in which they would be
 * removed. */

typedef enum hl_ranker {
    HL_RANKER_AUTO = 0,         /* GRADIENT if gradients are given, else OUTPUT_NORM */
    HL_RANKER_ENTROPY,          /* mean H of all rows, nats; highest first             */
    HL_RANKER_NORMALIZED,       /* mean H / ln n; highest first                        */
    HL_RANKER_ENTROPY_NOSINK,   /* mean H without the first key; highest first */
    HL_RANKER_RENYI2,           /* mean collision entropy; highest first               */
    HL_RANKER_OUTPUT_NORM,      /* output norm relative to the layer's mean; lowest first */
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
    HL_RANKER_SURGEON,  /* error that is left when the others make up for it; lowest first */
    HL_RANKER_ABLATION, /* rise of the loss with the head disabled; lowest first */
    HL_RANKER_RANDOM,   /* random order, by seed */
    HL_N_RANKERS
} hl_ranker;

/* The names of the rankers, "auto", "entropy", "output-norm", ..., and one line on each; NULL past
 * the last. */
HL_API const char *hl_ranker_name(size_t ranker);
HL_API const char *hl_ranker_summary(size_t ranker);
/* Returns a sentence on how the ranker did badly in our sweeps; NULL if it did not. */
HL_API const char *hl_ranker_verdict(size_t ranker);
/* Returns the ranker that AUTO stands for, before there is evidence: GRADIENT for up to a fifth of
 * all heads, where it cost least on average in our sweeps (doc/sweep.md), beyond that OUTPUT_NORM.
 * It is also OUTPUT_NORM for models without gradients (encoders, layers with a state), and without texts.
 *  `ratio` is the share of heads to be removed, 0 if unknown; the model may be NULL. */
HL_API hl_ranker hl_ranker_default(const hl_model *model, bool has_texts, double ratio);
/* Finds a ranker by name.  Returns HL_BAD_ARGUMENT, with all names, if there is no such ranker. */
HL_API hl_status hl_ranker_find(hl_ranker *out, const char *name);
/* Returns true if the ranker can rank again after heads have been removed, and so reach another order:
 * every ranker that runs a text. */
HL_API bool hl_ranker_can_reselect(hl_ranker ranker);
/* Returns true if the ranker's default order puts the highest scores first. */
HL_API bool hl_ranker_takes_highest(hl_ranker ranker);

/* The inputs that a ranker requires.  AUTO requires none, since it uses what is given. */
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

/* The inputs of a ranker; NULL: not given. */
typedef struct hl_rank_inputs {
    const hl_profile      *profile;      /* for entropies, sinks and output norms */
    const hl_model        *model;        /* for weights; for random, used if there is no profile */
    const double          *gradient;     /* (n_layers, n_heads) from hl_gate_gradients */
    const double          *ablation;     /* (n_layers, n_heads) rise of the mean NLL */
    const double          *weight_norms; /* (3, n_layers, n_heads) from hl_gate_gradients */
    const hl_gradients    *gradients;    /* where `gradient` is of, for places */
    const hl_head_moments *moments;      /* as in hl_evidence */
    const double          *surgeon;      /* (n_layers, n_heads) scores of the surgeon */
} hl_rank_inputs;

typedef enum hl_rank_order {
    HL_ORDER_DEFAULT = 0, /* the ranker's default */
    HL_ORDER_HIGHEST,     /* highest scores first */
    HL_ORDER_LOWEST,
} hl_rank_order;

typedef struct hl_rank_options {
    hl_rank_order order;
    uint64_t      seed;   /* seed of the random ranker */
    bool          places; /* find hl_ranking.places, which compares all heads with one another */
} hl_rank_options;

typedef struct hl_ranked {
    int64_t layer;
    int64_t head;
    double  score; /* NaN: not measured; such heads come last */
} hl_ranked;

/* How certain the place of a head is.  Two heads are in a certain order if the 95% interval of the
 * difference of their scores, over the same windows, does not hold 0. */
typedef struct hl_rank_place {
    hl_interval interval; /* of the score */
    int64_t     first;    /* 1 + the number of heads that are certainly before it */
    int64_t     last;     /* number of heads - those certainly behind it; both 0: not known */
} hl_rank_place;

typedef struct hl_ranking {
    hl_ranker  ranker; /* never AUTO */
    bool       highest_first;
    int64_t    n_layers;
    int64_t    n_heads; /* number of heads in the model */
    hl_ranked *heads;   /* (n_heads) in pruning order; heads with equal scores by layer and head */
    int64_t   *groups;  /* (n_layers) number of heads that are removed together, from
                         * hl_ranking_group; NULL: heads are removed one by one */
    hl_rank_place
        *places; /* (n_heads) as `heads`; NULL: not asked for, in groups, or a ranker whose
                            * scores are not known per window: all but the entropies, sink, received,
                            * output-norm and gradient */
    char *
        layers; /* names of the layers, as the profile's setting "layers" has them; NULL: L0, L1 ... */
} hl_ranking;

/* Ranks the heads.  Returns HL_BAD_ARGUMENT, naming the input, if an input that the ranker requires
 * is missing; HL_BAD_INPUT if the profile does not have the model's shape or lacks what the ranker
 * requires. */
HL_API hl_status hl_rank(hl_ranking **out, hl_ranker ranker, const hl_rank_inputs *inputs,
                         const hl_rank_options *options);
HL_API void      hl_ranking_free(hl_ranking *ranking);
/* Makes query heads that share a KV head be removed together: groups are ordered by the mean score
 * of their heads, and the heads of a group stand side by side.  Returns HL_BAD_INPUT if the model's
 * heads are not those of the ranking. */
HL_API hl_status hl_ranking_group(hl_ranking *ranking, const hl_model *model);
/* Makes a table of the first `count` heads; 0: all heads. */
HL_API hl_status hl_ranking_sheet(hl_sheet **out, const hl_ranking *ranking, int64_t count);

/* How to choose heads: the first ones of a ranking, except those that the limits protect.  If the
 * ranking is not grouped, query heads are removed one by one, and a KV head can only be removed
 * when all of its query heads are.  If it is grouped, whole groups are removed, and their number is
 * chosen so that the number of heads comes closest to the one wanted. */
typedef struct hl_choice {
    double  ratio;            /* share of all heads, 0 to 1, rounded to the nearest number */
    int64_t count;            /* number of heads if ratio is 0 */
    int64_t per_layer_max;    /* largest number of removed heads per layer; 0: no limit */
    bool    empty_layers;     /* a layer may lose all heads; false: each layer keeps at least one */
    const hl_head_list *keep; /* heads that are never removed, with their groups; NULL: none */
} hl_choice;

/* Chooses heads.  Returns HL_BAD_ARGUMENT if the limits leave fewer heads than wanted; the message
 * has the largest possible number. */
HL_API hl_status hl_ranking_choose(hl_head_list **out, const hl_ranking *ranking,
                                   const hl_choice *choice);

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
 * in double, where the rows of Z and Y, one per token, are divided by the root mean square of the
 * original's stream of that token: a norm reads the stream, so errors matter relative to it.  An output bias is solved for too where the model has one.  All layers from the first that
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
    double   before;     /* mean over tokens of |stream - the original's|^2 / |the original's|^2
                          * behind the attention */
    double   after;      /* that mean with the weights that are written */
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

#ifdef __cplusplus
}
#endif
#endif
