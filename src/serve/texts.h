/* texts.h - the texts of a request: prompts as tokens, and texts to be measured as a corpus. */
#ifndef HL_SERVE_TEXTS_H
#define HL_SERVE_TEXTS_H

#include "base/buffer.h"
#include "base/json.h"
#include "headlight/corpus.h"
#include "headlight/serve.h"
#include "serve/http.h"
#include "serve/server.h"
#include "serve/wire.h"

/* Returns options that stop tokenizing once the client is gone; NULL: there is no client. */
hl_encode_options hl_served_encoding(hl_exchange *exchange);

/* ------------------------------------------------------------------- prompts */

/* A completion's prompt is a text, token ids, or an array of either; a chat's messages are one
 * prompt, in the model's own format. */

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
    hl_exchange        *exchange;  /* the client's exchange; NULL: there is no client */
    const json_t       *variables; /* of the chat template: tools and others; NULL: none */
} hl_prompt_reader;

/* Must be released whatever it returns. Fails with HL_BAD_INPUT and a message for the client, or
 * with HL_CANCELLED if the client is gone. */
hl_status hl_served_prompts_read(hl_served_prompts *out, const json_t *prompt, bool is_chat,
                                 const hl_prompt_reader *reader);
/* The text of a request's messages, checked and in the form that templates expect. */
hl_status hl_served_chat_render(hl_chat **out, const hl_tokenizer *tokenizer, const json_t *list,
                                const json_t *variables, const hl_chat_options *options);
void      hl_served_prompts_release(hl_served_prompts *prompts);

/* ------------------------------------------------------------------ a corpus */

/* The texts of a request as a corpus.
 *
 *     hl_served_texts texts = { 0 };
 *     status = hl_served_texts_open(&texts, server, json_object_get(root, "input"),
 *                                   exchange);
 *     ... texts.corpus ...
 *     hl_served_texts_close(&texts);
 *
 * Error messages call the texts `input`, with the number of the text. */

#define HL_SERVED_MAX_TEXTS 1024

typedef struct hl_served_texts {
    hl_buffer  lines; /* JSON lines that the corpus reads */
    hl_corpus *corpus;
} hl_served_texts;

/* Takes a text or an array of 1 to HL_SERVED_MAX_TEXTS texts. Tokenizing stops when the client is
 * gone. Must be closed whatever it returned. */
hl_status hl_served_texts_open(hl_served_texts *out, const hl_server *server, const json_t *input,
                               hl_exchange *exchange);
void      hl_served_texts_close(hl_served_texts *texts);

#endif
