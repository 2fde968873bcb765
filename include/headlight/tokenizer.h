/* headlight/tokenizer.h - text to tokens and back; chats.
 * Part of headlight.h, which see for the conventions. */
#ifndef HEADLIGHT_TOKENIZER_H
#define HEADLIGHT_TOKENIZER_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------- tokenizers
 *
 *     hl_tokenizer *tokenizer;
 *     hl_encoding  *encoding;
 *     hl_tokenizer_open(&tokenizer, "models/llama");      or .../tokenizer.json
 *     hl_tokenizer_encode(&encoding, tokenizer, text, strlen(text), NULL);
 *     ... encoding->ids[i], encoding->spans[i] ...
 *
 * A tokenizer does not change after it has been opened and may be used by
 * several threads at once.  A decode stream is for one thread at a time.
 *
 * A tokenizer file defines how text is processed, and a malicious file could demand too much.
 * Encoding or decoding n bytes therefore creates at most 64 n bytes + 1 MiB of text and takes at
 * most 8 microseconds per byte + 1 second of processor time; beyond that it fails with HL_LIMIT and
 * a message that names the file and the step.  Real tokenizers need a hundredth of this.
 *
 * Text is UTF-8.  A byte that is not part of a valid character counts as the
 * character U+FFFD; byte-level tokenizers (GPT-2, Llama-3, Qwen ...) see that
 * character when they split text into words, but encode the byte itself, so that
 * decoding gives the input back. */

/* Bytes [begin, end) of a text. */
typedef struct hl_span {
    size_t begin;
    size_t end;
} hl_span;

typedef enum hl_token_type {
    HL_TOKEN_NORMAL = 0,
    HL_TOKEN_UNKNOWN, /* replaces text that the vocabulary lacks */
    HL_TOKEN_SPECIAL, /* a control token, not text: begin of text, end of turn, ... */
    HL_TOKEN_ADDED,   /* text that is matched before the tokenization model runs */
    HL_TOKEN_BYTE,    /* one byte of a character that the vocabulary lacks */
} hl_token_type;

typedef struct hl_tokenizer hl_tokenizer;

/* Opens a tokenizer.  The path is one of: a tokenizer.json; a folder with a tokenizer.json
 * (tokenizer_config.json, special_tokens_map.json and chat_template.jinja in it are read too); a
 * vocab.txt of WordPiece or of characters, or a folder with one; a .safetensors file in such a
 * folder; a .gguf file that contains a tokenizer; a tokenizer.bin of llama2.c, or a checkpoint
 * beside one. */
HL_API hl_status hl_tokenizer_open(hl_tokenizer **out, const char *path);
/* Reads a tokenizer from the bytes of a tokenizer.json; `where` names them in messages. */
HL_API hl_status hl_tokenizer_parse(hl_tokenizer **out, const void *json, size_t n_bytes,
                                    const char *where);
HL_API void      hl_tokenizer_close(hl_tokenizer *tokenizer);

/* Called from time to time during a long call; returning true ends the call with HL_CANCELLED. */
typedef bool (*hl_stop_callback)(void *context);

typedef struct hl_encode_options {
    bool             add_special; /* add the tokens that the model expects around a text */
    bool             plain;       /* treat special tokens that are spelled out in the text as
                                   * ordinary text */
    hl_stop_callback stop;        /* called to ask whether to stop; NULL: the call is never
                                   * stopped */
    void            *context;     /* passed to `stop` */
} hl_encode_options;

typedef struct hl_encoding {
    int64_t       *ids;   /* (n_tokens) */
    hl_span       *spans; /* (n_tokens) bytes of the input; whole characters, so the tokens of a
                           * split character share its span.  {0, 0} for tokens that were added
                           * around the text */
    hl_token_type *types; /* (n_tokens) */
    uint8_t       *roles; /* (n_tokens) hl_chat_role; NULL unless made by hl_chat_encode */
    size_t         n_tokens;
} hl_encoding;

HL_API hl_status hl_tokenizer_encode(hl_encoding **out, const hl_tokenizer *tokenizer,
                                     const char *text, size_t n_bytes,
                                     const hl_encode_options *options);
HL_API void      hl_encoding_free(hl_encoding *encoding);

typedef struct hl_decode_options {
    bool skip_special;
} hl_decode_options;

/* Returns the text of some tokens, followed by a NUL that is not counted.  Release it with
 * hl_free.  It may be invalid UTF-8, since tokens can split characters. */
HL_API hl_status hl_tokenizer_decode(char **out, size_t *n_bytes, const hl_tokenizer *tokenizer,
                                     const int64_t *ids, size_t n_ids,
                                     const hl_decode_options *options);

/* Decodes tokens one at a time.  The texts that push and finish return are borrowed until the
 * next call.  push never splits a character: it may return an empty text now and more with the
 * next token.  finish returns the remaining text.  The tokenizer must outlive the stream. */
typedef struct hl_decode_stream hl_decode_stream;

HL_API hl_status hl_decode_stream_open(hl_decode_stream **out, const hl_tokenizer *tokenizer,
                                       const hl_decode_options *options);
HL_API hl_status hl_decode_stream_push(const char **text, size_t *n_bytes, hl_decode_stream *stream,
                                       int64_t id);
HL_API hl_status hl_decode_stream_finish(const char **text, size_t *n_bytes,
                                         hl_decode_stream *stream);
HL_API void      hl_decode_stream_close(hl_decode_stream *stream);

/* Returns the largest id plus one; some ids below it may have no piece. */
HL_API size_t hl_tokenizer_size(const hl_tokenizer *tokenizer);
/* Returns the kind of model: "BPE", "Unigram", "WordPiece" or "WordLevel". */
HL_API const char *hl_tokenizer_kind(const hl_tokenizer *tokenizer);
/* Returns a piece as the vocabulary spells it, which may differ from its text; NULL if the id
 * has no piece.  The result is borrowed; n_bytes may be NULL. */
HL_API const char *hl_tokenizer_piece(const hl_tokenizer *tokenizer, int64_t id, size_t *n_bytes);
/* Returns the id of a piece, or -1 if the vocabulary does not have it. */
HL_API int64_t hl_tokenizer_id(const hl_tokenizer *tokenizer, const char *piece, size_t n_bytes);
HL_API hl_token_type hl_tokenizer_type(const hl_tokenizer *tokenizer, int64_t id);

typedef enum hl_special {
    HL_SPECIAL_BOS = 0, /* begin of text */
    HL_SPECIAL_EOS,     /* end of text   */
    HL_SPECIAL_UNK,
    HL_SPECIAL_SEP,
    HL_SPECIAL_PAD,
    HL_SPECIAL_CLS,
    HL_SPECIAL_MASK,
    HL_SPECIAL_EOT, /* end of turn */
    HL_SPECIAL_COUNT
} hl_special;

/* Returns the id of a special token, or -1. */
HL_API int64_t hl_tokenizer_special(const hl_tokenizer *tokenizer, hl_special which);

/* Tokens to add around a text: <bos>; [CLS] and [SEP]; or none. */
typedef struct hl_around_tokens {
    const int64_t *before; /* (n_before) ids */
    size_t         n_before;
    const int64_t *after; /* (n_after) ids */
    size_t         n_after;
} hl_around_tokens;

/* Returns the tokens that the tokenizer's own template adds, the same as add_special of
 * hl_encode_options does.  They are borrowed from the tokenizer. */
HL_API hl_around_tokens hl_tokenizer_around(const hl_tokenizer *tokenizer);

/* ------------------------------------------------------------------- chats
 *
 * A model's chat template is a program in Jinja, and it is run: with the limits of a sandbox, and
 * with the result that transformers gives.  A template that refuses a conversation, or that cannot be
 * run, is an error that names the template's line.
 *
 * A tokenizer without a template has one of the built-in formats, "role: content" lines if no other
 * is asked for. */

typedef enum hl_chat_format {
    HL_CHAT_AUTO = 0, /* the tokenizer's template, or else plain lines */
    HL_CHAT_PLAIN,
    HL_CHAT_CHATML,
    HL_CHAT_LLAMA3,
    HL_CHAT_GEMMA,
    HL_CHAT_MISTRAL,
    HL_CHAT_PHI3,
    HL_CHAT_TEMPLATE, /* the tokenizer's template */
} hl_chat_format;

typedef enum hl_chat_role {
    HL_ROLE_TEMPLATE = 0, /* text that the format adds around the messages */
    HL_ROLE_SYSTEM,
    HL_ROLE_USER,
    HL_ROLE_ASSISTANT,
    HL_ROLE_TOOL, /* results of tools */
} hl_chat_role;

typedef struct hl_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} hl_chat_message;

typedef struct hl_chat_options {
    hl_chat_format format;
    bool           no_prompt; /* leave out the opening of the assistant's next turn */
    const char    *variables; /* a JSON object with more variables of the template: tools,
                               * documents and others; NULL: none */
    int64_t        now; /* the template's time in seconds since 1970, as UTC; 0: the present, as
                               * local time */
} hl_chat_options;

typedef struct hl_chat_part {
    hl_chat_role role;
    hl_span      span; /* range of bytes in the text */
} hl_chat_part;

typedef struct hl_chat {
    char          *text;
    size_t         n_bytes;
    hl_chat_part  *parts; /* (n_parts) in order; together they cover the whole text */
    size_t         n_parts;
    hl_span       *generated; /* (n_generated) what the template's `generation` blocks wrote: the
                               * text that the model is trained to write */
    size_t         n_generated;
    hl_chat_format format; /* the format that was written */
} hl_chat;

/* Returns the template as stored in the file; NULL if there is none.  The result is borrowed. */
HL_API const char *hl_tokenizer_chat_template(const hl_tokenizer *tokenizer);
/* Returns HL_CHAT_TEMPLATE if the tokenizer has a template, else HL_CHAT_PLAIN. */
HL_API hl_chat_format hl_tokenizer_chat_format(const hl_tokenizer *tokenizer);
HL_API const char    *hl_chat_format_name(hl_chat_format format);
HL_API hl_status      hl_chat_render(hl_chat **out, const hl_tokenizer *tokenizer,
                                     const hl_chat_message *messages, size_t n_messages,
                                     const hl_chat_options *options);
/* The same for messages as JSON: an array of objects, as OpenAI's clients send them.  All of their
 * members reach the template: tool_calls, contents of several parts, and others. */
HL_API hl_status hl_chat_render_json(hl_chat **out, const hl_tokenizer *tokenizer,
                                     const char *messages, size_t n_bytes,
                                     const hl_chat_options *options);
HL_API void      hl_chat_free(hl_chat *chat);
/* Encodes the text and gives the role of each token.  Special tokens are recognized only in the
 * text that the template added: a message cannot pretend to be another turn. */
HL_API hl_status hl_chat_encode(hl_encoding **out, const hl_tokenizer *tokenizer,
                                const hl_chat *chat, const hl_encode_options *options);

#ifdef __cplusplus
}
#endif
#endif
