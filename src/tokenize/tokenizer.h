/* tokenizer.h - the parts of a tokenizer.
 *
 *     text -> added tokens out -> normalizer -> pre-tokenizer -> model
 *          -> special tokens around                                  = encode
 *     pieces -> decoder -> text                                      = decode
 *
 * tokenizer.c runs the pipeline; tokenizer_json.c, vocab_source.c and similar
 * files build it.  A builder fills the fields and calls hl_tokenizer_finish;
 * after that only the stack of idle workspaces changes. */
#ifndef HL_TOKENIZE_TOKENIZER_H
#define HL_TOKENIZE_TOKENIZER_H

#include <pthread.h>

#include "base/json.h"
#include "tokenize/added.h"
#include "tokenize/decode.h"
#include "tokenize/normalize.h"
#include "tokenize/pretokenize.h"
#include "tokenize/vocab.h"
#include "tokenize/word_models.h"

typedef enum hl_model_kind {
    HL_MODEL_NONE = 0,
    HL_MODEL_BPE,
    HL_MODEL_UNIGRAM,
    HL_MODEL_WORDPIECE,
    HL_MODEL_WORDLEVEL,
} hl_model_kind;

#define HL_MAX_AROUND 64 /* largest number of tokens on either side of a text */

/* The special tokens before and after the text, and whether spans are trimmed of spaces. */
typedef struct hl_postprocessor {
    int64_t before[HL_MAX_AROUND]; /* (n_before) ids */
    size_t  n_before;
    int64_t after[HL_MAX_AROUND]; /* (n_after) ids */
    size_t  n_after;
    bool    trim;
    bool    prefix_space; /* the prefix space of the first token was added by the pre-tokenizer: do
                           * not trim it */
} hl_postprocessor;

typedef struct hl_workspace hl_workspace;
typedef struct hl_jinja     hl_jinja;

struct hl_tokenizer {
    char            *where; /* the file, for messages */
    hl_vocab         vocab;
    hl_added         added;
    hl_normalizer    normalizer;
    hl_pretokenizer  pretokenizer;
    hl_model_kind    kind;
    hl_bpe          *bpe;
    hl_unigram      *unigram;
    hl_wordpiece     wordpiece;
    hl_postprocessor postprocessor;
    hl_decoder       decoder;
    int32_t          special[HL_SPECIAL_COUNT]; /* -1: none */
    char            *chat_template;             /* NULL: none */
    hl_jinja        *chat_program;              /* the template, parsed; NULL: none */
    char            *chat_refusal;              /* or why it could not be parsed */
    pthread_mutex_t  lock;
    hl_workspace    *idle;
};

HL_CLOSES(hl_tokenizer_close, hl_tokenizer)
HL_CLOSES(hl_encoding_free, hl_encoding)

/* Makes an empty tokenizer for a builder to fill; hl_tokenizer_close releases it at any stage. */
hl_status hl_tokenizer_new(hl_tokenizer **out, const char *where);
/* Sorts and checks what has been filled in. */
hl_status hl_tokenizer_finish(hl_tokenizer *tokenizer);
/* Adds an added token, and its piece if the vocabulary lacks it. */
hl_status hl_tokenizer_add_token(hl_tokenizer *tokenizer, hl_added_token token);
/* Appends a token to the list after the text, or to the list before it. */
hl_status hl_postprocessor_add(hl_postprocessor *post, bool after, int32_t id);
/* Stores a copy of the template and parses it (chat.c). */
hl_status hl_tokenizer_set_chat_template(hl_tokenizer *tokenizer, const char *text);

/* hl_chat_render_json for values; `variables` may be NULL, and options->variables is not read. */
hl_status hl_chat_render_values(hl_chat **out, const hl_tokenizer *tokenizer,
                                const json_t *messages, const json_t *variables,
                                const hl_chat_options *options);

hl_status hl_tokenizer_encode_filtered(hl_encoding **out, const hl_tokenizer *tokenizer,
                                       const char *text, size_t n_bytes,
                                       const hl_encode_options *options,
                                       const hl_added_filter   *filter);

#endif
