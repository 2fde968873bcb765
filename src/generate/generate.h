/* generate.h - the loop in which texts are made, one text or many together.
 *
 *     feed  ->  of each layer: hl_draft_watch  ->  hl_session_look  ->  of each text: hl_draft_draw
 *
 * hl_generator (generate.c) goes round it with one text, whenever its caller asks for a token; the
 * engine (engine_feed.c) with all texts that have a slot.  So a seed gives the same tokens,
 * numbers and ends in both. */
#ifndef HL_GENERATE_GENERATE_H
#define HL_GENERATE_GENERATE_H

#include "base/memory.h"
#include "model/config.h"
#include "model/pick.h"

HL_CLOSES(hl_generator_close, hl_generator)

/* A text in the making: what its tokens are drawn with, and what ends it. */
typedef struct hl_draft {
    const hl_config    *config;
    hl_generate_options options; /* what they point to is borrowed */
    hl_sampler         *sampler; /* released by who opened the draft */
    int64_t             n_ctx;   /* tokens that its sequence holds */
    int64_t             n_drawn; /* those that max_tokens counts */
    hl_stop             stop;
} hl_draft;

hl_status hl_draft_open(hl_draft *out, const hl_session *session,
                        const hl_generate_options *options);
/* Tokens that are part of the text and were not drawn. */
hl_status hl_draft_accept(hl_draft *draft, const int64_t *tokens, int64_t n_tokens);

/* Adds what the heads of a layer saw in a row, of number `sequence` in `rows`, to the
 * attention_entropy of the token that the row leads to: a sum, until the token is described. */
void hl_draft_watch(hl_generated *token, const hl_layer_rows *rows, int64_t sequence, int64_t row);
/* The token that `pick` has, and the model's numbers of it; after the last layer. */
void hl_draft_describe(hl_generated *token, const hl_config *config, const hl_pick *pick);
/* Draws the next token, describes it, and says whether the text ends with it.  n_fed: tokens that
 * its sequence has. */
hl_status hl_draft_draw(hl_generated *token, hl_draft *draft, hl_pick *pick, int64_t n_fed);

#endif
