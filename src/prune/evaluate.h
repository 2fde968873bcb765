/* evaluate.h - one model on one text under many settings of its gates.
 *
 *     HL_NEED(hl_evaluator_open(&evaluator, model, corpus, gates, n_settings, &options));
 *     while (!hl_evaluator_is_done(evaluator))
 *         HL_NEED(hl_evaluator_step(evaluator));          one batch of windows, one setting
 *     ... hl_evaluator_result(evaluator)->scores ...
 *
 * hl_evaluate of headlight.h is this loop.  All settings are run on a batch before the next batch,
 * the unchanged model first.  A caller that saves its work between steps can resume: it restores the
 * scores of the first windows and skips them (hl_evaluator_skip), and likewise the settings already
 * run on the next batch. */
#ifndef HL_PRUNE_EVALUATE_H
#define HL_PRUNE_EVALUATE_H

#include "base/memory.h"
#include "headlight/sweep.h"

HL_CLOSES(hl_evaluation_free, hl_evaluation)

/* Tokens [begin, begin + length) of all tokens; those from `first` are scored. */
typedef struct hl_scored_window {
    int64_t begin;
    int64_t length;
    int64_t first;    /* index in the window, at least 1 */
    int64_t n_before; /* number of tokens scored in earlier windows */
    int64_t document; /* index in the corpus */
} hl_scored_window;

/* The windows of a text that predict something. */
typedef struct hl_scored_windows {
    int64_t          *tokens; /* of all windows, one after the other */
    int64_t           n_tokens;
    hl_scored_window *windows; /* (n_windows) */
    int64_t           n_windows;
    int64_t           n_scored;
} hl_scored_windows;

/* Reads the text into `out`, which must be zero.  HL_BAD_INPUT if no window has two tokens. */
hl_status hl_scored_windows_read(hl_scored_windows *out, const hl_corpus *corpus,
                                 const hl_window_options *options);
void      hl_scored_windows_free(hl_scored_windows *text);
/* Makes an evaluation of this text, with scores of 0. */
hl_status hl_evaluation_new(hl_evaluation **out, const hl_scored_windows *text, int64_t n_settings);

typedef struct hl_evaluator hl_evaluator;

/* Borrows the model and copies the gates (n_settings, n_layers, n_heads). Reads the corpus at
 * once. */
hl_status hl_evaluator_open(hl_evaluator **out, const hl_model *model, const hl_corpus *corpus,
                            const float *gates, int64_t n_settings,
                            const hl_evaluate_options *options);
void      hl_evaluator_close(hl_evaluator *evaluator);
HL_CLOSES(hl_evaluator_close, hl_evaluator)
hl_status hl_evaluator_step(hl_evaluator *evaluator);
bool      hl_evaluator_is_done(const hl_evaluator *evaluator);
/* Returns the number of windows, from the first, that are scored under all settings. */
int64_t hl_evaluator_n_done(const hl_evaluator *evaluator);
/* Restores the scores of the first n_done windows, and the number of layers run for them, from the
 * result. Fails with HL_BAD_ARGUMENT if no batch ends there. */
hl_status hl_evaluator_skip(hl_evaluator *evaluator, int64_t n_done);
/* Progress within the batch that follows the windows done: the number of settings already scored,
 * including the unchanged model, and their scores. Scores are NLL, KL and equal tops per window,
 * (n_settings, windows of the batch, 3). */
int64_t hl_evaluator_n_walked(const hl_evaluator *evaluator);
int64_t hl_evaluator_walk_length(const hl_evaluator *evaluator, int64_t n_walked);
void    hl_evaluator_get_walk(double *out, const hl_evaluator *evaluator);
/* Continues the batch after `n_settings` settings. Fails with HL_BAD_INPUT for impossible scores. */
hl_status hl_evaluator_set_walk(hl_evaluator *evaluator, const double *scores, int64_t n_walked);
/* Converts one window's scores to numbers and back. Returns false for impossible scores, such as a
 * count above n_scored. */
void           hl_scores_write(double out[3], const hl_scores *scores);
bool           hl_scores_read(hl_scores *out, const double in[3], int64_t n_scored);
hl_evaluation *hl_evaluator_result(hl_evaluator *evaluator);
/* Returns the result, which the caller owns; the evaluator can then only be closed. */
hl_evaluation *hl_evaluator_take(hl_evaluator *evaluator);

/* hl_evaluation_rise, of the mean KL divergence from the reference model. */
hl_interval hl_evaluation_kl(const hl_evaluation *evaluation, int64_t setting);

/* ------------------------------------------------------------------ heads one by one */

/* Writes all heads, by layer and head, to `out` if it is not NULL. Returns their number. */
int64_t hl_model_heads(hl_head *out, const hl_model *model);
/* Makes one setting per head, in the order of hl_model_heads: base (n_layers, n_heads; NULL: all 1)
 * with that head at 0. The last setting is base itself. *out is (all heads + 1, n_layers, n_heads),
 * released with hl_free. */
hl_status hl_single_gates(float **out, const hl_model *model, const float *base);
/* Computes the rise in NLL per token of each single-head setting over setting `base` (-1: the
 * unchanged model). These settings must come first in the evaluation. out is (n_layers, n_heads),
 * NaN where there is no head. */
void hl_single_rises(double *out, const hl_model *model, const hl_evaluation *found, int64_t base);

#endif
