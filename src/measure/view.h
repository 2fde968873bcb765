/* view.h - what the views of a prompt share: the tokens, made fit to be looked at. */
#ifndef HL_MEASURE_VIEW_H
#define HL_MEASURE_VIEW_H

#include "headlight.h"

/* HL_BAD_ARGUMENT of a prompt without tokens, HL_LIMIT of one with too many. */
hl_status hl_view_check_prompt(const hl_prompt *prompt);
/* One token; tokenizer may be NULL.  The text is released with hl_free. */
hl_status hl_view_name_token(hl_view_token *out, const hl_tokenizer *tokenizer, int64_t id);
/* (n_tokens) of a prompt, roles taken into account; released with hl_view_tokens_free. */
hl_status hl_view_tokens_new(hl_view_token **out, const hl_prompt *prompt);
void      hl_view_tokens_free(hl_view_token *tokens, int64_t n_tokens);

/* hl_token_view_new, with so many rows asked for at a time; 0: as many as memory allows. */
hl_status hl_token_view_in_pieces(hl_token_view **out, const hl_model *model,
                                  const hl_prompt *prompt, const hl_token_view_options *options,
                                  int64_t at_once);

#endif
