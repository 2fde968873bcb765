/* headlight/needle.h - which heads retrieve, and how well a model finds a needle in a haystack. Part of
 * headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_NEEDLE_H
#define HEADLIGHT_NEEDLE_H

#include "prune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------ needles
 *
 *     hl_needle *found = NULL;
 *     hl_needle_run(&found, model, tokenizer, &(hl_needle_options){ .task = HL_NEEDLE_COPY });
 *     hl_needle_sheet(&table, found, "conditions");
 *
 * A text is a haystack with a needle at some depth, and a question at its end.  The answer is fed, too;
 * what is scored is the loss of its tokens, and whether each was the most likely one.
 *
 *     copy    random words; the needle is 8 of them, the question its first 4, the answer the others
 *     pairs   random words; the needle is a key and a value, the question the key, the answer the value
 *     facts   sentences of a text; the needle is "The code of the lamp is 483.", asked for at the end,
 *             by the model's chat template if it has one
 *
 * The retrieval score of a head (after Wu et al. 2024, arXiv 2404.15574) is the share of answer tokens
 * at which the head's largest probability is on the same token in the needle: at the moment when the
 * token is predicted, the head looks at what is to be copied.  Scores and losses are of different
 * texts.  A retrieval head has a score of 0.1 or more. */

typedef enum hl_needle_task {
    HL_NEEDLE_COPY = 0,
    HL_NEEDLE_PAIRS,
    HL_NEEDLE_FACTS,
    HL_N_NEEDLE_TASKS
} hl_needle_task;

/* "copy", "pairs", "facts". */
HL_API const char *hl_needle_task_name(hl_needle_task task);

#define HL_NEEDLE_MOST 64 /* lengths, depths, other models */

/* Another model that reads the same texts: another storage type, or settings of hl_model_adjust.  It
 * must have the same vocabulary. */
typedef struct hl_needle_other {
    const char     *name;
    const hl_model *model;
} hl_needle_other;

typedef struct hl_needle_options {
    hl_needle_task         task;
    const int64_t         *lengths; /* (n_lengths) tokens of a text; NULL: 64, 128, ... up to the
                                     * model's context, or 1024 */
    int64_t                n_lengths;
    const double          *depths; /* (n_depths) place of the needle, 0 (first) to 1 (last); NULL: 5
                                    * equal steps */
    int64_t                n_depths;
    int64_t                n_samples;  /* texts per length and depth; 0: 4 */
    int64_t                n_ranked;   /* texts per length and depth for the scores; 0: 2 */
    int64_t                n_disabled; /* heads of the highest scores to disable; 0: the retrieval
                                        * heads, at least one, at most a quarter; -1: no ablation */
    int64_t                n_random;   /* sets of as many other heads; 0: 5 */
    const hl_needle_other *others;     /* (n_others) */
    int64_t                n_others;
    const char            *text; /* (n_text) for FACTS */
    size_t                 n_text;
    uint64_t               seed;
    int32_t                n_threads;
    hl_progress_callback   progress;
    void                  *context;
} hl_needle_options;

/* How the texts were read: all heads, the retrieval heads disabled, sets of other heads disabled (one
 * condition of several sets), other models. */
typedef struct hl_needle_condition {
    char     name[32];
    int64_t  n_sets;
    hl_head *disabled; /* (n_sets, n_disabled) */
    int64_t  n_disabled;
    double  *losses; /* (n_sets, n_texts) mean of the answer's tokens, nats */
    double
        *exact; /* (n_sets, n_texts) share of the answer's tokens that were the most likely ones */
} hl_needle_condition;

typedef struct hl_needle {
    hl_needle_task task;
    int64_t        n_layers;
    int64_t        n_heads;
    int64_t        n_lengths;
    int64_t       *lengths;
    int64_t        n_depths;
    double        *depths;
    int64_t        n_samples;
    int64_t        n_texts;  /* of all lengths, depths and samples, in this order */
    int64_t        n_scored; /* texts that scores are of */
    double        *scores;   /* (n_scored, n_layers, n_heads) of every text; NaN: no such head */
    int64_t        n_ranked; /* heads */
    hl_ranked     *ranked;   /* (n_ranked) by mean score, highest first */
    int64_t        n_conditions;
    hl_needle_condition *conditions; /* the first: all heads */
} hl_needle;

/* The tokenizer may be NULL for COPY and PAIRS: any tokens of the vocabulary are then words.  Returns
 * HL_UNSUPPORTED for an encoder, HL_BAD_ARGUMENT for a length that does not hold needle and question
 * or exceeds the context, and HL_BAD_INPUT if the losses are not finite. */
HL_API hl_status hl_needle_run(hl_needle **out, const hl_model *model,
                               const hl_tokenizer *tokenizer, const hl_needle_options *options);
HL_API void      hl_needle_free(hl_needle *needle);

/* Mean loss and share of exact tokens of a condition, over all texts or those of one length and depth
 * (-1: all), with intervals over texts; sets of random heads add their own variance. */
typedef struct hl_needle_score {
    double      loss;
    hl_interval loss_interval;
    double      exact;
    double      rise; /* of the loss, from all heads of this model */
    hl_interval rise_interval;
} hl_needle_score;
HL_API hl_status hl_needle_score_of(hl_needle_score *out, const hl_needle *needle,
                                    int64_t condition, int64_t length, int64_t depth);

/* Tables: "conditions", "cells" (every condition by length and depth), "heads" (their scores). */
HL_API hl_status hl_needle_sheet(hl_sheet **out, const hl_needle *needle, const char *name);

#ifdef __cplusplus
}
#endif
#endif
