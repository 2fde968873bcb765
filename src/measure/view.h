/* view.h - what the views of a prompt share: the tokens, prepared for display. */
#ifndef HL_MEASURE_VIEW_H
#define HL_MEASURE_VIEW_H

#include "base/memory.h"
#include "headlight/session.h"
#include "headlight/view.h"

HL_CLOSES(hl_token_view_free, hl_token_view)
HL_CLOSES(hl_lens_view_free, hl_lens_view)

/* HL_BAD_ARGUMENT for a prompt without tokens, HL_LIMIT for one with too many. */
hl_status hl_view_check_prompt(const hl_prompt *prompt);
/* HL_BAD_ARGUMENT for a head or layer that does not exist.  A .head of -1 means all heads of a
 * layer, which must have at least one.  *n_heads is the number of heads in the layer. */
hl_status hl_view_check_head(int64_t *n_heads, const hl_model *model, hl_head choice);
/* Names one token; tokenizer may be NULL.  The text is released with hl_free. */
hl_status hl_view_name_token(hl_view_token *out, const hl_tokenizer *tokenizer, int64_t id);
/* The (n_tokens) tokens of a prompt with their roles; released with hl_view_tokens_free. */
hl_status hl_view_tokens_new(hl_view_token **out, const hl_prompt *prompt);
void      hl_view_tokens_free(hl_view_token *tokens, int64_t n_tokens);

/* Reads whole rows of attention on a prompt, a stretch of positions at a time, so that a session
 * holds at most 16 MiB of them.  A decoder is fed one stretch after the other; an encoder is run
 * again on the whole prompt for each stretch. */
typedef struct hl_view_rows {
    void *context;
    /* Gets a layer's rows, with hl_layer_rows.pattern at some positions of the stretch. */
    hl_status (*layer)(void *context, const hl_layer_rows *rows);
    /* Called when all layers have reported the positions [first, first + n); NULL: no callback. */
    hl_status (*piece)(void *context, int64_t first, int64_t n);
    const bool  *heads;   /* (n_layers, n_heads) heads whose rows are wanted */
    int64_t      at_once; /* positions per stretch; 0: hl_view_at_once */
    const float *gates;   /* (n_layers, n_heads), as in hl_feed */
    bool         beyond_ctx;
    int32_t      n_threads;
} hl_view_rows;

hl_status hl_view_run(const hl_model *model, const hl_prompt *prompt, const hl_view_rows *rows);
/* Number of positions that memory allows at a time: at least one, at most all. */
int64_t hl_view_at_once(const hl_model *model, int64_t n_tokens);

/* hl_token_view_new with `at_once` rows requested at a time; 0: as many as memory allows. */
hl_status hl_token_view_in_pieces(hl_token_view **out, const hl_model *model,
                                  const hl_prompt *prompt, const hl_token_view_options *options,
                                  int64_t at_once);

/* hl_prompt_maps_new with `at_once` rows requested at a time; 0: as many as memory allows. */
hl_status hl_prompt_maps_in_pieces(hl_prompt_maps **out, const hl_model *model,
                                   const hl_prompt *prompt, const hl_prompt_maps_options *options,
                                   int64_t at_once);

#endif
