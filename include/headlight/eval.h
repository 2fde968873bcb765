/* headlight/eval.h - how much a model differs from a reference model, and how fast it runs. Part of
 * headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_EVAL_H
#define HEADLIGHT_EVAL_H

#include "generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- agreement
 *
 *     hl_agreement_open(&agreement, pruned, dense, &(hl_agreement_options){ .n_ctx = 512 });
 *     for each text
 *         hl_agreement_add(agreement, tokens, n_tokens);
 *     hl_agreement_total total = hl_agreement_get(agreement);
 *
 * Compares a changed model with its reference model.  Both read the same tokens, in the windows of
 * hl_perplexity, and their predictions of every scored token are compared.
 *
 * An hl_agreement is for one thread at a time. */

typedef struct hl_agreement hl_agreement;

typedef struct hl_agreement_options {
    int64_t n_ctx; /* as in hl_perplexity_options; 0: the smaller of the two models' defaults */
    int64_t stride;
    int32_t n_threads;
    hl_around_tokens around;
} hl_agreement_options;

typedef struct hl_agreement_total {
    int64_t n_tokens; /* number of predictions compared */
    int64_t n_windows;
    double  kl; /* mean KL(reference || model), nats per token; without rows, NaN like the others */
    hl_interval kl_interval;
    double      top1; /* share of rows with the same most likely token in both */
} hl_agreement_total;

/* Borrows both models.  They must have the same number of tokens, and neither may be an encoder. */
HL_API hl_status hl_agreement_open(hl_agreement **out, const hl_model *model,
                                   const hl_model *reference, const hl_agreement_options *options);
HL_API void      hl_agreement_close(hl_agreement *agreement);
HL_API hl_status hl_agreement_add(hl_agreement *agreement, const int64_t *tokens, int64_t n_tokens);
HL_API hl_agreement_total hl_agreement_get(const hl_agreement *agreement);

/* ------------------------------------------------------------------- speed */

typedef struct hl_speed_options {
    int64_t n_prefill; /* tokens of the prompt; 0: all given tokens, at most 512 */
    int64_t n_decode;  /* tokens fed one at a time after the prompt; 0: 32; -1: none */
    int64_t n_rounds;  /* number of rounds that the medians are taken over; 0: 3 */
    int32_t n_threads;
} hl_speed_options;

typedef struct hl_speed {
    int64_t n_prefill;
    int64_t n_decode;
    double  prefill_seconds; /* median time for all tokens of the prompt */
    double  decode_seconds;  /* median time for all tokens after the prompt */
    size_t  session_bytes;   /* memory in addition to the weights, including the cache */
    size_t  cache_bytes;
    size_t  weight_bytes; /* of the model's tensors, as they are stored */
} hl_speed;

/* Feeds the tokens as a prompt, then feeds them again from the start, one at a time.  Times depend
 * on the machine and its load: compare only times that were measured side by side. */
HL_API hl_status hl_measure_speed(hl_speed *out, const hl_model *model, const int64_t *tokens,
                                  int64_t n_tokens, const hl_speed_options *options);

/* The time of one model over the time of another, round by round: above 1, the other is faster. */
typedef struct hl_speed_ratio {
    double median;
    double low; /* of any round, as the next: a difference that not all rounds show is noise */
    double high;
} hl_speed_ratio;

typedef struct hl_speed_pair {
    int64_t        n_rounds;
    hl_speed       before;
    hl_speed       after;
    hl_speed_ratio prefill;
    hl_speed_ratio decode; /* 0 without tokens to decode */
} hl_speed_pair;

/* Two models on the same tokens, round by round in turns, so that what else the machine does meets
 * both; after one round that is not counted. */
HL_API hl_status hl_measure_speeds(hl_speed_pair *out, const hl_model *before,
                                   const hl_model *after, const int64_t *tokens, int64_t n_tokens,
                                   const hl_speed_options *options);

#ifdef __cplusplus
}
#endif
#endif
