/* sampling_try.h - what a sampling temperature changes, and what it does not. */
#ifndef HL_CLI_SAMPLING_TRY_H
#define HL_CLI_SAMPLING_TRY_H

#include "headlight.h"

/* Mean entropies in nats. */
typedef struct hl_sampling_seen {
    double vocabulary; /* of what the next token is drawn from */
    double attention;  /* of all heads' rows */
} hl_sampling_seen;

typedef struct hl_sampling_trial {
    double           temperature;
    int64_t          n_tokens; /* 0: not measured, the text is no plain file */
    hl_sampling_seen before;   /* at temperature 1 */
    hl_sampling_seen after;
} hl_sampling_trial;

/* Reads the beginning of a text twice, token by token, with a sampler behind each step. */
hl_status hl_sampling_try(hl_sampling_trial *out, const char *model_path, const char *text_path,
                          double temperature, int32_t n_threads);

#endif
