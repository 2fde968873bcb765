/* prompt.h - a model, its tokenizer and the tokens of one prompt: what several commands begin
 * with.
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
    const char *command;   /* complains */
    const char *model;     /* a path */
    const char *device;    /* where it runs; NULL: the CPU, or what the environment says */
    const char *tokenizer; /* a path; NULL: the model's own */
    const char *text;      /* NULL: it is in a file */
    const char *file;      /* NULL and "-": standard input */
    const char *system;    /* comes first in a chat; NULL: nothing does */
    bool        chat;      /* the text is a user's turn, in the model's format */
    bool        chat_if;   /* the same, where the tokenizer has a chat template */
    bool        ids;       /* the text is token ids; a tokenizer need not be there */
    bool        writes;    /* the model is to go on with it: encoders are refused */
    bool        quiet;

    hl_gate_arguments gates;
} hl_prompt_source;

typedef struct hl_opened_prompt {
    hl_model      *model;
    hl_tokenizer  *tokenizer; /* NULL: there is none, and none is needed */
    hl_input       input;     /* what was read, or nothing */
    const char    *text;
    size_t         n_bytes;
    hl_encoding   *encoding;
    const int64_t *tokens; /* (n_tokens) those of the encoding, or */
    int64_t       *given;  /* these, where they were given as ids or the text was empty */
    int64_t        n_tokens;
    bool           is_chat; /* the text was written as a user's turn, in: */
    hl_chat_format chat_format;
    bool           chat_known; /* the template gives the same; else it is only like it */
    bool           begins; /* the one token is the model's begin of text: the prompt was empty */
} hl_opened_prompt;

/* HL_EXIT_OK, or the exit status after a complaint; to be closed in both cases.  A prompt without
 * tokens becomes the token that begins texts, where the model has one. */
int  hl_opened_prompt_open(hl_opened_prompt *out, const hl_prompt_source *source);
void hl_opened_prompt_close(hl_opened_prompt *prompt);

/* HL_EXIT_OK if the model knows all tokens of a text; else the exit status after a complaint that
 * names the tokenizer, which is the model's own where `tokenizer` is NULL. */
int hl_check_encoding(const hl_encoding *encoding, const hl_model *model, const char *tokenizer,
                      const char *command);

/* For views; borrowed. */
hl_prompt hl_opened_prompt_view(const hl_opened_prompt *prompt);

/* Whose its tokens are: (n_tokens) hl_token_kind, to be released with free; NULL when memory is
 * out. */
uint8_t *hl_opened_prompt_kinds(const hl_opened_prompt *prompt);

#endif
