/* generate.h - the loop in which texts are made, one text or many together.
 *
 *     feed  ->  of each layer: hl_draft_watch  ->  hl_session_look  ->  of each text: hl_draft_draw
 *
 * hl_generator (generate.c) runs this loop for one text, whenever its caller asks for a token.  The
 * engine (engine_feed.c) runs it for all texts that have a slot.  So the same seed gives the same
 * tokens, numbers and endings in both.
 *
 * A generator is not an engine with one slot: its session, tap and thread are the caller's, and its
 * text can be extended or shortened at any token, while a job belongs to a queue and a worker. */
#ifndef HL_GENERATE_GENERATE_H
#define HL_GENERATE_GENERATE_H

#include "base/memory.h"
#include "model/config.h"
#include "model/pick.h"

HL_CLOSES(hl_generator_close, hl_generator)

/* A text in the making: what its tokens are drawn with, and what ends it. */
typedef struct hl_draft {
    const hl_config    *config;
    hl_generate_options options; /* the data it points to is borrowed */
    hl_sampler         *sampler; /* released by whoever opened the draft */
    int64_t             n_ctx;   /* capacity of its sequence in tokens */
    int64_t             n_drawn; /* number of generated tokens, compared with max_tokens */
    hl_stop             stop;
} hl_draft;

hl_status hl_draft_open(hl_draft *out, const hl_session *session,
                        const hl_generate_options *options);
/* Adds tokens that are part of the text but were not drawn. */
hl_status hl_draft_accept(hl_draft *draft, const int64_t *tokens, int64_t n_tokens);

/* Adds the entropies of a layer's heads in one row (sequence number `sequence` of `rows`) to the
 * attention_entropy of the token that the row predicts.  The value is a sum until
 * hl_draft_describe has run. */
void hl_draft_watch(hl_generated *token, const hl_layer_rows *rows, int64_t sequence, int64_t row);
/* Fills in the token of `pick` and the model's numbers for it.  Called after the last layer. */
void hl_draft_describe(hl_generated *token, const hl_config *config, const hl_pick *pick);
/* Draws the next token, describes it, and reports whether the text ends with it. n_fed is the
 * number of tokens in its sequence. */
hl_status hl_draft_draw(hl_generated *token, hl_draft *draft, hl_pick *pick, int64_t n_fed);

#endif
