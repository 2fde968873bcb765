/* prompt.h - a model, its tokenizer and the tokens of one prompt, for several commands.
 *
 *     hl_prompt_source source = { .command = "tokens", .model = path, .text = words };
 *     hl_opened_prompt opened = { 0 };
 *     int              code   = hl_opened_prompt_open(&opened, &source);
 *     ...
 *     hl_opened_prompt_close(&opened); */
#ifndef HL_CLI_PROMPT_H
#define HL_CLI_PROMPT_H

#include "headlight.h"
#include "input.h"
#include "shared_options.h"

typedef struct hl_prompt_source {
    const char *command;   /* name of the command, for messages */
    const char *model;     /* a path */
    const char *device;    /* where it runs; NULL: the CPU, or the environment's choice */
    const char *tokenizer; /* a path; NULL: the model's own */
    const char *text;      /* NULL: it is in a file */
    const char *file;      /* NULL and "-": standard input */
    const char *system;    /* system message of a chat; NULL: none */
    bool        chat;      /* the text is a user's turn, in the model's chat format */
    bool        chat_if;   /* as `chat`, if the tokenizer has a chat template */
    bool        ids;       /* the text is token ids; no tokenizer is required */
    bool        writes;    /* the model is to continue the text: encoders are refused */
    bool        quiet;

    hl_gate_arguments gates;
} hl_prompt_source;

typedef struct hl_opened_prompt {
    hl_model      *model;
    hl_tokenizer  *tokenizer; /* NULL: there is none, and none is needed */
    hl_input       input;     /* the file that was read, or empty */
    const char    *text;
    size_t         n_bytes;
    hl_encoding   *encoding;
    const int64_t *tokens; /* (n_tokens) borrowed from the encoding or from `given` */
    int64_t       *given;  /* token ids given as such, or the begin token of an empty text */
    int64_t        n_tokens;
    bool           is_chat; /* the text was formatted as a user's turn */
    hl_chat_format chat_format;
    bool           begins; /* the prompt was empty: its only token is the model's begin of text */
} hl_opened_prompt;

/* Returns HL_EXIT_OK, or the exit status after a message; must be closed in both cases. A prompt
 * without tokens becomes the token that begins texts, if the model has one. */
int  hl_opened_prompt_open(hl_opened_prompt *out, const hl_prompt_source *source);
void hl_opened_prompt_close(hl_opened_prompt *prompt);

/* Returns HL_EXIT_OK if the model knows all tokens of a text; otherwise the exit status after a
 * message that names the tokenizer. `tokenizer` NULL means the model's own. */
int hl_check_encoding(const hl_encoding *encoding, const hl_model *model, const char *tokenizer,
                      const char *command);

/* Returns the prompt for views; borrowed. */
hl_prompt hl_opened_prompt_view(const hl_opened_prompt *prompt);

/* Returns the kind of every token, (n_tokens) hl_token_kind, to be released with free; NULL if out
 * of memory. */
uint8_t *hl_opened_prompt_kinds(const hl_opened_prompt *prompt);

#endif
