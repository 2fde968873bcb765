/* prompts.h - the texts of a request as tokens.
 *
 * A completion's prompt is a text, token ids, or an array of either; a chat's messages are one
 * prompt, in the model's own format. */
#ifndef HL_SERVE_PROMPTS_H
#define HL_SERVE_PROMPTS_H

#include "base/json.h"
#include "headlight.h"
#include "serve/http.h"
#include "serve/wire.h"

typedef struct hl_served_prompt {
    int64_t *tokens; /* (n_tokens) */
    uint8_t *kinds;  /* (n_tokens) hl_token_kind */
    int64_t  n_tokens;
} hl_served_prompt;

typedef struct hl_served_prompts {
    hl_served_prompt items[HL_WIRE_MAX_CHOICES];
    int64_t          count;
} hl_served_prompts;

enum { HL_MAX_MESSAGES = 1024 };

typedef struct hl_prompt_reader {
    const hl_model     *model;
    const hl_tokenizer *tokenizer;
    hl_exchange        *exchange; /* whose prompts they are; NULL: nobody's, who cannot leave */
} hl_prompt_reader;

/* To be released in every case.  HL_BAD_INPUT with a message for the client; HL_CANCELLED if it is
 * gone. */
hl_status hl_served_prompts_read(hl_served_prompts *out, const json_t *prompt, bool is_chat,
                                 const hl_prompt_reader *reader);
void      hl_served_prompts_release(hl_served_prompts *prompts);

#endif
